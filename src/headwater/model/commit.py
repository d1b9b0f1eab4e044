"""A commit as data: everything one commit changes, and everything it relies on.

The catalog applies a `Commit` in one transaction or not at all. What is not in the record cannot happen in a commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.model.options import DEFAULT_OPTIONS, StreamOptions
from headwater.model.schema import TableSchema
from headwater.model.tables import Batch, DataFile, RefreshMode, RefreshRecord, Table, WhenFull


@dataclass(frozen=True, slots=True)
class LeaseToken:
    """Proof of having taken a lease; a takeover makes a larger number."""

    name: str
    owner: str
    number: int


@dataclass(frozen=True, slots=True)
class CreateTable:
    """A new table. Its `created`, `moved` and `base_version` become the commit's version."""

    table: Table


@dataclass(frozen=True, slots=True)
class DropTable:
    """The end of a table, of its auxiliary tables, and of its stream definition. Its files stay until vacuum."""

    table_id: str


@dataclass(frozen=True, slots=True)
class SetSchema:
    """A changed schema (a column added)."""

    table_id: str
    schema: TableSchema


@dataclass(frozen=True, slots=True)
class AddBatch:
    """Change rows at the commit's version: the table moves. Counters and hash are relative.

    `into_base`: the batch's files are base files too, and the base moves to the commit's version with them.
    """

    batch: Batch
    files: tuple[DataFile, ...] = ()
    hash_change: int = 0
    next_row_id: int | None = None
    into_base: bool = False


@dataclass(frozen=True, slots=True)
class ReplaceBase:
    """New base files for an old base: contents stay as they are, `base_version` is the version they hold.

    `expected_base_version` guards against two folds at once.
    """

    table_id: str
    remove: tuple[str, ...]
    add: tuple[DataFile, ...]
    base_version: int
    expected_base_version: int


@dataclass(frozen=True, slots=True)
class ReplaceBatches:
    """One batch in the place of several (a merge), or none (history no longer needed).

    Fails as busy if one of `remove` is already gone.
    """

    table_id: str
    remove: tuple[str, ...]
    add: Batch | None = None
    files: tuple[DataFile, ...] = ()


@dataclass(frozen=True, slots=True)
class DefineStream:
    """The definition of a stream table, new or replaced; `sources` are table ids."""

    table_id: str
    query: str
    mode: RefreshMode
    schedule: str | None
    when_full: WhenFull
    definition: str
    sources: tuple[str, ...]
    frontier: int | None = None
    options: StreamOptions = DEFAULT_OPTIONS


@dataclass(frozen=True, slots=True)
class MoveFrontier:
    """The stream table now stands for version `new`; it must have stood for `expected`.

    `read` names the sources that were read at another version than `new`; None is the version of this commit. `began` and `ms` say
    when the refresh began, and how long it took.
    """

    table_id: str
    expected: int | None
    new: int
    read: Mapping[str, int | None] = field(default_factory=dict)
    began: float | None = None
    ms: float | None = None


Change = CreateTable | DropTable | SetSchema | AddBatch | ReplaceBase | ReplaceBatches | DefineStream | MoveFrontier


@dataclass(frozen=True, slots=True)
class Commit:
    """What to change, what to check first, and what to record.

    `unmoved` maps table ids to the `moved` version that was read: any difference means somebody else wrote. `definitions` is
    the generation that was read; only commits that change definitions move it. With `releases` the leases are given back in the same
    transaction.
    """

    changes: tuple[Change, ...]
    unmoved: dict[str, int] = field(default_factory=dict)
    generation: int | None = None
    leases: tuple[LeaseToken, ...] = ()
    write_ids: tuple[str, ...] = ()
    history: tuple[RefreshRecord, ...] = ()
    releases: bool = False
