"""What the catalog answers with: records of its own, beside those of the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any

from headwater.model.control import NO_NOTES, Notes
from headwater.model.tables import Batch, DataFile, StreamTable, Table


@dataclass(frozen=True, slots=True)
class Head:
    """Where the catalog stands. Two equal heads mean two equal snapshots.

    `version` counts commits, `generation` the commits that changed definitions, `revision` the changes of status and
    costs that are recorded outside commits.
    """

    version: int
    generation: int
    revision: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All tables that live at one version.

    `changed` is the last version that changed a table's rows, where `Table.moved` counts definitions too. `streams`,
    `sources`, `dependents` and `notes` are those of the present: an older version has no definitions of its own.
    """

    version: int
    generation: int
    tables: Mapping[str, Table]
    changed: Mapping[str, int]
    streams: Mapping[str, StreamTable]
    sources: Mapping[str, tuple[str, ...]]
    dependents: Mapping[str, tuple[str, ...]]
    names: Mapping[str, str]
    notes: Notes = NO_NOTES
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """The auxiliary tables of each table."""

    def table(self, name: str) -> Table | None:
        """Return the table called `name`, in any letter case."""
        table_id = self.names.get(name.casefold())
        return None if table_id is None else self.tables[table_id]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The entries of a table that stand at one version; a function of table and version alone, so it may be kept.

    `files` are those of the base, `batches` are ordered by `first_version` and come without their inline bytes,
    `batch_files` holds the files of the batches that have some.
    """

    files: tuple[DataFile, ...]
    batches: tuple[Batch, ...]
    batch_files: Mapping[str, tuple[DataFile, ...]]


EMPTY_MANIFEST = Manifest((), (), MappingProxyType({}))


class WriteState(Enum):
    """What may still happen to a write."""

    OPEN = "open"
    """It may be committed."""
    DISCARDED = "discarded"
    """Vacuum has taken it: a commit that names it fails, its files are being deleted."""


@dataclass(frozen=True, slots=True)
class Write:
    """Files in the making. `paths` are the directories, relative to the warehouse location, that may hold them."""

    id: str
    owner: str
    paths: tuple[str, ...]
    state: WriteState
    opened_at: float
    expires: float


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """Who holds a lease, and until when unless it is renewed."""

    owner: str
    expires: float


@dataclass(frozen=True, slots=True)
class SchedulerEntry:
    """A scheduler that lives: who it is, and how it said to fare when it was seen last."""

    owner: str
    started_at: float
    seen_at: float
    data: Mapping[str, Any]
