"""Writing change rows: computed once, counted and hashed on the way, in memory if few and in files if many.

Nothing here commits. What is written belongs to a write id that was registered before its first byte; a commit names it, or
vacuum removes it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.parquet as pq

from headwater.catalog import Catalog
from headwater.engine.identity import has_variant, row_hash_sql
from headwater.engine.worker import Frame, Worker
from headwater.errors import ResultTooLargeError
from headwater.model.commit import AddBatch
from headwater.model.schema import Field
from headwater.model.sql import quoted
from headwater.model.tables import Batch, BatchFormat, FileRole, Table, TableKind
from headwater.store.layout import Layout, write_arrow, written_files
from headwater.store.rows import (
    ACTION,
    CHANGE_ID,
    CHANGED,
    HASH,
    Rows,
    arrow_rows,
    as_inserts,
    concatenated,
    encoded,
    in_utc,
)

_FETCHED_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class WriteLimits:
    """How much goes where."""

    inline_bytes: int
    inline_rows: int
    arrow_rows: int
    write_seconds: float


class Writer:
    """Turns frames into rows of an open write."""

    def __init__(self, catalog: Catalog, layout: Layout, limits: WriteLimits, owner: str) -> None:
        self._catalog = catalog
        self._layout = layout
        self._limits = limits
        self._owner = owner

    def fits_in_memory(self, fields: Sequence[Field], expected: int | None) -> bool:
        """Whether a result of `expected` rows is brought to the driver."""
        return (
            expected is not None
            and expected <= self._limits.arrow_rows
            and not any(has_variant(f.type) for f in fields)
        )

    def materialised(self, worker: Worker, frame: Frame, table: Table, expected: int | None) -> Rows:
        """Run `frame` (stored fields, `__action`, perhaps `__changed_cols`) once and keep its rows, less those that cancel.

        `expected` is an upper bound of their number, None if unknown.
        """
        fields = table.schema.fields
        if self.fits_in_memory(fields, expected):
            with suppress(ResultTooLargeError):
                return arrow_rows(worker.to_arrow(self.selected(worker, frame, table)))
        columns = "".join(quoted(f.name) + ", " for f in fields)
        mask = _mask(frame)
        text = (
            f"SELECT {columns}{ACTION}, monotonically_increasing_id() AS {CHANGE_ID}, {mask} FROM {worker.view(frame)}"
        )
        return self._to_files(worker, worker.sql(text), table, FileRole.TAIL)

    def selected(self, worker: Worker, frame: Frame, table: Table) -> Frame:
        """Return the change rows with their hash, ready for `arrow_rows`."""
        columns = "".join(quoted(f.name) + ", " for f in table.schema.fields)
        hashed = f"{_hash_sql(table)} AS {HASH}"
        return worker.sql(f"SELECT {columns}{ACTION}, {_mask(frame)}, {hashed} FROM {worker.view(frame)}")

    def spilled(self, rows: Rows, table: Table) -> Rows:
        """Move rows from memory into a file of the tail."""
        assert rows.arrow is not None
        with self.opened(table.id, FileRole.TAIL) as (write_id, directory):
            files = write_arrow(self._layout, rows.arrow, table.id, FileRole.TAIL, directory, write_id)
        return replace(rows, arrow=None, files=files, write_ids=(write_id,))

    def fetched(self, rows: Rows, table: Table) -> Rows:
        """Take few rows that executors have written into memory, and their files away: many tiny files are slow to read."""
        few = rows.count <= self._limits.inline_rows and self.fits_in_memory(table.schema.fields, rows.count)
        if not rows.files or not few or sum(f.bytes for f in rows.files) > _FETCHED_BYTES:
            return rows
        found = concatenated([in_utc(pq.read_table(p)) for p in self._layout.paths(rows.files)])
        self.discard(rows)
        return replace(rows, arrow=as_inserts(found) if rows.plain else found, files=(), plain=False, write_ids=())

    def inserted(self, worker: Worker, frame: Frame, table: Table) -> Rows:
        """Run `frame` (stored fields only) once and keep its rows as files that can become base files."""
        columns = ", ".join(quoted(f.name) for f in table.schema.fields)
        return self._to_files(worker, worker.sql(f"SELECT {columns} FROM {worker.view(frame)}"), table, FileRole.BASE)

    def _to_files(self, worker: Worker, frame: Frame, table: Table, role: FileRole) -> Rows:
        action = ACTION if role is FileRole.TAIL else None
        with self.opened(table.id, role) as (write_id, directory):
            target = self._layout.absolute(directory)
            totals = worker.write_parquet(frame, target, action, _hash_sql(table))
            files = written_files(self._layout, table.id, role, directory, write_id)
        if not files:  # nobody will commit a write without rows
            self._drop(write_id, directory)
        return Rows(
            totals.inserts,
            totals.deletes,
            totals.hash_change,
            files=files,
            plain=role is FileRole.BASE,
            write_ids=(write_id,) if files else (),
        )

    @contextmanager
    def opened(self, table_id: str, role: FileRole) -> Iterator[tuple[str, str]]:
        """Register a write; yield its id and its directory relative to the location. A failure inside leaves nothing behind."""
        pattern = self._layout.directory(table_id, role, "{id}")
        write_id = self._catalog.open_write(self._owner, self._limits.write_seconds, (pattern,))
        directory = self._layout.directory(table_id, role, write_id)
        try:
            yield write_id, directory
        except BaseException:
            self._drop(write_id, directory)
            raise

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Yield a directory that executors can read too; it is gone afterwards."""
        write_id = self._catalog.open_write(self._owner, self._limits.write_seconds, (self._layout.scratch("{id}"),))
        directory = self._layout.scratch(write_id)
        try:
            yield self._layout.location / directory
        finally:
            self._drop(write_id, directory)

    def _drop(self, write_id: str, directory: str) -> None:
        self._layout.remove_tree(directory)
        self._catalog.discard_write(write_id)

    def discard(self, rows: Rows) -> None:
        """Remove files that will not be committed."""
        for directory in {f.path.rsplit("/", 1)[0] for f in rows.files}:
            self._layout.remove_tree(directory)
        for write_id in rows.write_ids:
            self._catalog.discard_write(write_id)

    def stored(self, rows: Rows, table: Table) -> Rows:
        """Return rows in the form that a commit names: in the catalog if few and small, else in files."""
        if rows.arrow is None or self._inline(rows, table) is not None:
            return rows
        return self.spilled(rows, table)

    def batch(self, rows: Rows, table: Table, *, next_row_id: int | None = None) -> tuple[AddBatch, tuple[str, ...]]:
        """Return the commit record for `rows` and the write ids it relies on.

        Inserted rows without change columns join the base at once; the caller has seen to it that no change waits in the tail.
        """
        rows = self.stored(rows, table)
        inline = self._inline(rows, table)
        if inline is not None:
            batch = Batch(
                uuid.uuid4().hex, table.id, BatchFormat.INLINE, rows.inserts, rows.deletes, len(inline), inline=inline
            )
            return AddBatch(batch, (), rows.hash_change, next_row_id), ()
        fmt = BatchFormat.INSERT if rows.plain else BatchFormat.TAIL
        size = sum(f.bytes for f in rows.files)
        batch = Batch(uuid.uuid4().hex, table.id, fmt, rows.inserts, rows.deletes, size)
        return AddBatch(batch, rows.files, rows.hash_change, next_row_id, into_base=rows.plain), rows.write_ids

    def _inline(self, rows: Rows, table: Table) -> bytes | None:
        """Return the rows as bytes for the catalog, None if they belong into a file."""
        if rows.arrow is None or rows.count > self._limits.inline_rows:
            return None
        if any(has_variant(f.type) for f in table.schema.fields):
            return None
        data = encoded(rows.arrow)
        return data if len(data) <= self._limits.inline_bytes else None


def _hash_sql(table: Table) -> str:
    """Return what is summed up to the hash of a table. Nobody compares the state of a stream table, so it has none."""
    return "0L" if table.kind is TableKind.AUX else row_hash_sql(table.schema.visible)


def _mask(frame: Frame) -> str:
    return CHANGED if CHANGED in frame.columns else f"CAST(NULL AS ARRAY<BIGINT>) AS {CHANGED}"
