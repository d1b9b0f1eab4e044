"""What the catalog says about tables: nouns of every layer, frozen."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from headwater.model.options import DEFAULT_OPTIONS, StreamOptions
from headwater.model.schema import TableSchema


class TableKind(Enum):
    """What a table is to its users."""

    MANAGED = "managed"
    """Written by users through Headwater."""
    STREAM = "stream"
    """Kept equal to a query."""
    AUX = "aux"
    """State of a stream table that is not its result."""


class RefreshMode(Enum):
    """How a stream table may be brought up to date."""

    AUTO = "AUTO"
    DIFFERENTIAL = "DIFFERENTIAL"
    FULL = "FULL"


class WhenFull(Enum):
    """What happens to a stream table that would be computed in full though nobody asked for it."""

    REFUSE = "refuse"
    """It is not created, and not refreshed."""
    WARN = "warn"
    """It is computed in full, and says so in the log and in a notice."""
    ALLOW = "allow"
    """It is computed in full."""


class RefreshAction(Enum):
    """What a refresh really did."""

    NO_DATA = "NO_DATA"
    DIFFERENTIAL = "DIFFERENTIAL"
    FULL = "FULL"
    INITIAL = "INITIAL"


class BatchFormat(Enum):
    """Where the rows of a change batch are."""

    INLINE = "inline"
    """Arrow IPC bytes in the catalog, with the change columns."""
    TAIL = "tail"
    """Parquet files of the tail, with the change columns."""
    INSERT = "insert"
    """Parquet files of the base that hold nothing but these inserted rows, without change columns."""


class FileRole(Enum):
    """What a data file is part of."""

    BASE = "base"
    TAIL = "tail"


@dataclass(frozen=True, slots=True)
class Table:
    """A table as one version of the catalog knows it.

    `moved` is the last version that changed its contents or definition, `base_version` the version whose state the base files
    hold. `hash` is the multiset hash of the visible contents, modulo 2**64.
    """

    id: str
    name: str
    kind: TableKind
    schema: TableSchema
    created: int
    moved: int
    base_version: int
    parent_id: str | None = None
    row_count: int = 0
    hash: int = 0
    next_row_id: int = 0
    dropped: int | None = None


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file. `path` is relative to the warehouse location; `stats` is {column: [min, max, nulls]} as JSON text."""

    id: str
    table_id: str
    role: FileRole
    path: str
    rows: int
    bytes: int
    write_id: str
    stats: str = "{}"
    batch_id: str | None = None
    added: int = 0
    removed: int | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """Change rows of the versions `first_version .. last_version` (one version unless merged).

    A merged batch has a `__version` column. `added` and `removed` say in which catalog versions this entry stands for its rows.
    """

    id: str
    table_id: str
    format: BatchFormat
    inserts: int
    deletes: int
    bytes: int
    merged: bool = False
    inline: builtins.bytes | None = None
    first_version: int = 0
    last_version: int = 0
    added: int = 0
    removed: int | None = None


ACTIVE = "ACTIVE"
SUSPENDED = "SUSPENDED"
"""Status of a stream table whose refreshes failed too often: schedulers leave it until it is resumed."""
REREAD = "REREAD"
"""Status of a stream table whose changes were given up: its next refresh reads its sources anew."""


@dataclass(frozen=True, slots=True)
class StreamTable:
    """The definition of a stream table and how far it has come.

    `frontier` is the version its contents stand for. A source in `frontiers` was read at the version given there: a stream table
    whose own contents stand for that moment, and were committed later. `refreshed_at` and `refresh_ms` say when the last refresh
    began that brought it on, and how long that took.
    """

    table_id: str
    query: str
    mode: RefreshMode
    schedule: str | None
    when_full: WhenFull
    definition: str
    frontier: int | None
    status: str = ACTIVE
    full_ms: float | None = None
    diff_ms: float | None = None
    last_error: str | None = None
    frontiers: Mapping[str, int] = field(default_factory=dict)
    options: StreamOptions = DEFAULT_OPTIONS
    refreshed_at: float | None = None
    refresh_ms: float | None = None

    def frontier_of(self, source_id: str) -> int:
        """Return the version at which a source was read; the table must have been populated."""
        if self.frontier is None:
            raise ValueError(f"stream table {self.table_id} is not populated")
        return self.frontiers.get(source_id, self.frontier)


@dataclass(frozen=True, slots=True)
class RefreshRecord:
    """One line of a stream table's history: what really ran."""

    table_id: str
    started_at: float
    finished_at: float
    action: RefreshAction
    status: str
    rows_in: int
    rows_inserted: int
    rows_deleted: int
    duration_ms: float
    spark_jobs: int
    reason: str
    frontier_from: int | None
    frontier_to: int | None
    version: int | None = None
    error: str | None = None
    bytes_written: int = 0
    id: int | None = None
