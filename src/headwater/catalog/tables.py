"""The physical schema of the catalog.

What changes with the contents of the warehouse is never overwritten: an entry carries the versions in which it stands,
`added` up to but without `removed`, and the counters of a table get a new row in `table_states` for every commit that
touches them. So any version that is still kept can be read as it was, by the same statements that read the newest one.

Only what belongs to the present alone is updated in place: leases, pins, open writes, and the definitions of stream
tables.

`migrations/` builds the same schema step by step; a test compares the two.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    text,
)

FORMAT = 4
"""The format this code reads and writes: the number of its last migration."""

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    }
)

Identifier = Text
Counter = BigInteger
RowNumber = BigInteger().with_variant(Integer, "sqlite")

warehouse = Table(
    "warehouse",
    metadata,
    Column("format", Integer, nullable=False),
    Column("warehouse_id", Identifier, primary_key=True),
    Column("location", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("version", Counter, nullable=False),
    Column("generation", Counter, nullable=False),
    Column("revision", Counter, nullable=False),
    Column("horizon", Counter, nullable=False),
)
"""One row. `revision` counts what changes snapshots outside commits; versions before `horizon` are kept for pins
alone."""

commits = Table(
    "commits",
    metadata,
    Column("version", Counter, primary_key=True, autoincrement=False),
    Column("uid", Identifier, nullable=False),
    Column("committed_at", Double, nullable=False),
    Index("ix_commits_uid", "uid", unique=True),
    Index("ix_commits_committed_at", "committed_at"),
)
"""When each version was made. `uid` tells a writer that lost its connection whether its commit landed."""

tables = Table(
    "tables",
    metadata,
    Column("id", Identifier, primary_key=True),
    Column("name", Text, nullable=False),
    Column("name_key", Text, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("parent_id", Identifier, ForeignKey("tables.id")),
    Column("created", Counter, nullable=False),
    Column("dropped", Counter),
    Column("dropped_at", Double),
    Index(
        "uq_tables_live_name",
        "name_key",
        unique=True,
        sqlite_where=text("dropped IS NULL"),
        postgresql_where=text("dropped IS NULL"),
    ),
    Index("ix_tables_parent_id", "parent_id"),
)
"""Which tables exist. `name_key` is the name without letter case."""

table_states = Table(
    "table_states",
    metadata,
    Column("table_id", Identifier, ForeignKey("tables.id"), primary_key=True),
    Column("version", Counter, primary_key=True, autoincrement=False),
    Column("moved", Counter, nullable=False),
    Column("changed", Counter, nullable=False),
    Column("base_version", Counter, nullable=False),
    Column("base_changed", Counter, nullable=False),
    Column("row_count", Counter, nullable=False),
    Column("hash", Counter, nullable=False),
    Column("next_row_id", Counter, nullable=False),
    Index("ix_table_states_version", "version"),
)
"""The counters of a table from `version` on. `changed` is the last version that changed its rows, `base_changed` the
last one that changed its base files, `hash` the multiset hash as a signed number."""

table_schemas = Table(
    "table_schemas",
    metadata,
    Column("table_id", Identifier, ForeignKey("tables.id"), primary_key=True),
    Column("version", Counter, primary_key=True, autoincrement=False),
    Column("schema", Text, nullable=False),
)
"""The schema of a table from `version` on."""

batches = Table(
    "batches",
    metadata,
    Column("id", Identifier, primary_key=True),
    Column("table_id", Identifier, ForeignKey("tables.id"), nullable=False),
    Column("format", String(16), nullable=False),
    Column("inserts", Counter, nullable=False),
    Column("deletes", Counter, nullable=False),
    Column("bytes", Counter, nullable=False),
    Column("merged", Boolean, nullable=False),
    Column("first_version", Counter, nullable=False),
    Column("last_version", Counter, nullable=False),
    Column("added", Counter, nullable=False),
    Column("removed", Counter),
    Column("removed_at", Double),
    Index("ix_batches_table_id_removed", "table_id", "removed"),
    Index(
        "ix_batches_removed",
        "removed",
        sqlite_where=text("removed IS NOT NULL"),
        postgresql_where=text("removed IS NOT NULL"),
    ),
)

inline_rows = Table(
    "inline_rows",
    metadata,
    Column("batch_id", Identifier, ForeignKey("batches.id", ondelete="CASCADE"), primary_key=True),
    Column("data", LargeBinary, nullable=False),
)
"""The bytes of inline batches, apart from `batches` so that reading a manifest does not drag them through memory."""

files = Table(
    "files",
    metadata,
    Column("id", Identifier, primary_key=True),
    Column("role", String(8), primary_key=True),
    Column("table_id", Identifier, ForeignKey("tables.id"), nullable=False),
    Column("path", Text, nullable=False),
    Column("rows", Counter, nullable=False),
    Column("bytes", Counter, nullable=False),
    Column("write_id", Identifier, nullable=False),
    Column("stats", Text, nullable=False),
    Column("batch_id", Identifier),
    Column("added", Counter, nullable=False),
    Column("removed", Counter),
    Column("removed_at", Double),
    Index("ix_files_table_id_removed", "table_id", "removed"),
    Index("ix_files_path", "path"),
    Index("ix_files_batch_id", "batch_id"),
    Index(
        "ix_files_removed",
        "removed",
        sqlite_where=text("removed IS NOT NULL"),
        postgresql_where=text("removed IS NOT NULL"),
    ),
)
"""Entries, not files: a file that serves the base and a batch has one entry in each role, each with versions of its
own."""

streams = Table(
    "streams",
    metadata,
    Column("table_id", Identifier, ForeignKey("tables.id"), primary_key=True),
    Column("query", Text, nullable=False),
    Column("mode", String(16), nullable=False),
    Column("schedule", Text),
    Column("when_full", String(16), nullable=False, server_default="warn"),
    Column("definition", Text, nullable=False),
    Column("frontier", Counter),
    Column("status", Text, nullable=False),
    Column("full_ms", Double),
    Column("diff_ms", Double),
    Column("last_error", Text),
    Column("progressed", Counter, nullable=False, server_default="0"),
    Column("options", Text, nullable=False, server_default="{}"),
    Column("refreshed_at", Double),
    Column("refresh_ms", Double),
    Index("ix_streams_progressed", "progressed"),
)
"""`progressed` is version plus revision of the catalog when the row was last written: what is newer than a kept snapshot.

`refreshed_at` and `refresh_ms` say when the last refresh began that brought the table on, and how long it took.
"""

notes = Table(
    "notes",
    metadata,
    Column("kind", String(32), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("value", Text),
    Column("progressed", Counter, nullable=False),
    Index("ix_notes_progressed", "progressed"),
)
"""What operators and schedulers noted, as JSON; null where a note was withdrawn. `progressed` as in `streams`."""

events = Table(
    "events",
    metadata,
    Column("id", RowNumber, primary_key=True, autoincrement=True),
    Column("at", Double, nullable=False),
    Column("event", String(64), nullable=False),
    Column("table_name", Text),
    Column("data", Text, nullable=False),
    Index("ix_events_at", "at"),
)

schedulers = Table(
    "schedulers",
    metadata,
    Column("owner", Identifier, primary_key=True),
    Column("started_at", Double, nullable=False),
    Column("seen_at", Double, nullable=False),
    Column("expires", Double, nullable=False),
    Column("data", Text, nullable=False),
)
"""The schedulers that are running: one that does not show itself until it expires is dead."""

dependencies = Table(
    "dependencies",
    metadata,
    Column("stream_id", Identifier, ForeignKey("tables.id"), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("source_id", Identifier, ForeignKey("tables.id"), nullable=False),
    Column("frontier", Counter),
    Index("ix_dependencies_source_id", "source_id"),
)
"""`frontier` is the version at which the source was read, where that is not the frontier of the stream table."""

history = Table(
    "history",
    metadata,
    Column("id", RowNumber, primary_key=True, autoincrement=True),
    Column("table_id", Identifier, nullable=False),
    Column("started_at", Double, nullable=False),
    Column("finished_at", Double, nullable=False),
    Column("action", String(16), nullable=False),
    Column("status", Text, nullable=False),
    Column("rows_in", Counter, nullable=False),
    Column("rows_inserted", Counter, nullable=False),
    Column("rows_deleted", Counter, nullable=False),
    Column("duration_ms", Double, nullable=False),
    Column("spark_jobs", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    Column("frontier_from", Counter),
    Column("frontier_to", Counter),
    Column("version", Counter),
    Column("error", Text),
    Column("bytes_written", Counter, nullable=False),
    Index("ix_history_table_id_id", "table_id", "id"),
    Index("ix_history_finished_at", "finished_at"),
)

leases = Table(
    "leases",
    metadata,
    Column("name", Text, primary_key=True),
    Column("owner", Text),
    Column("number", Counter, nullable=False),
    Column("expires", Double, nullable=False),
)
"""A row stays for ever: its number must grow for ever. `owner` is null while nobody holds it."""

writes = Table(
    "writes",
    metadata,
    Column("id", Identifier, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("paths", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("opened_at", Double, nullable=False),
    Column("expires", Double, nullable=False),
)
"""Writes that are not committed. A commit deletes its rows, so what is not here can no longer be committed."""

pins = Table(
    "pins",
    metadata,
    Column("id", Identifier, primary_key=True),
    Column("version", Counter, nullable=False),
    Column("owner", Text, nullable=False),
    Column("expires", Double, nullable=False),
    Index("ix_pins_version", "version"),
)

exports = Table(
    "exports",
    metadata,
    Column("table_id", Identifier, ForeignKey("tables.id"), primary_key=True),
    Column("version", Counter, nullable=False),
)

templates = Table(
    "templates",
    metadata,
    Column("key", Text, primary_key=True),
    Column("text", Text, nullable=False),
    Column("generation", Counter, nullable=False),
)
