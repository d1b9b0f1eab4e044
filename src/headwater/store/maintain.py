"""Maintenance: folding changes into the base, merging small batches, forgetting history, deleting files.

None of it changes what any reader sees. Folding and merging replace manifest entries by others that mean the same; forgetting waits
for every consumer, every pin and the retention; a file goes only when no entry that any of them can see names it.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headwater.catalog import Snapshot
from headwater.engine.worker import Worker
from headwater.errors import BusyError, LeaseLostError
from headwater.model.commit import Commit, ReplaceBase, ReplaceBatches
from headwater.model.sql import quoted
from headwater.model.tables import Batch, BatchFormat, DataFile, FileRole, Table, TableKind
from headwater.store.export import export_base
from headwater.store.ground import Ground
from headwater.store.layout import column_bounds, files_within, write_arrow
from headwater.store.reading import Source, net_sql
from headwater.store.rows import ACTION, CHANGE_FIELDS, CHANGED, VERSION, WEIGHT, concatenated, encoded

_MERGE_ROWS = 20_000
_MERGE_INLINE = 64
_FOLD_ROWS = 5_000

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """What a vacuum removed and rearranged."""

    files_deleted: int
    bytes_deleted: int
    batches_merged: int
    batches_forgotten: int
    tables_folded: int
    writes_discarded: int
    tables_exported: int
    oldest_version: int
    dry_run: bool = False


class Maintenance:
    """Runs on one ground; several processes may run it at once."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground

    # after a commit ---------------------------------------------------------------------------------------------------------

    def after_change(self, table_ids: Iterable[str]) -> None:
        """Keep the tails of tables that just changed short, and export bases that changed. Never fails the change."""
        try:
            snapshot = self._ground.catalog.snapshot()
            related = [t for t in snapshot.tables.values() if t.id in table_ids or t.parent_id in table_ids]
            for table in related:
                manifest = self._ground.catalog.manifest(table.id, snapshot.version)
                if self._merge_candidates(manifest.batches):
                    self._merge(snapshot, table)
                if self._should_fold(table, manifest.batches, manifest.files):
                    self._fold(table.id)
                if table.kind is not TableKind.AUX and table.id in self._ground.catalog.export_pending():
                    self._export(table.id)
        except (BusyError, LeaseLostError):
            return  # somebody else is at it, or will be

    def _should_fold(self, table: Table, batches: Sequence[Batch], files: Sequence[DataFile]) -> bool:
        tail = sum(b.inserts + b.deletes for b in batches if b.last_version > table.base_version)
        base = sum(f.rows for f in files)
        return tail > max(_FOLD_ROWS, self._ground.settings.fold_tail_fraction * base)

    # merging ----------------------------------------------------------------------------------------------------------------

    def _merge_candidates(self, batches: Sequence[Batch]) -> tuple[Batch, ...]:
        """Return small batches worth merging: many inline ones, or more tail files than a reader should see."""
        small = tuple(
            b for b in batches if b.format is not BatchFormat.INSERT and b.inserts + b.deletes <= _MERGE_ROWS
        )
        inline = [b for b in small if b.format is BatchFormat.INLINE]
        files = [b for b in small if b.format is BatchFormat.TAIL]
        if len(inline) >= _MERGE_INLINE or len(files) >= self._ground.settings.tail_max_files:
            return small
        return ()

    def _merge(self, snapshot: Snapshot, table: Table) -> int:
        manifest = self._ground.catalog.manifest(table.id, snapshot.version)
        chosen = self._merge_candidates(manifest.batches)
        if not chosen:
            return 0
        inline = self._ground.reader.inline_tables([b for b in chosen if b.format is BatchFormat.INLINE])
        tables = []
        for batch in chosen:
            rows = inline.get(batch.id)
            if rows is None:
                rows = concatenated([pq.read_table(p) for p in self._ground.layout.paths(manifest.batch_files[batch.id])])
            if VERSION not in rows.column_names:
                versions = pa.array(np.full(rows.num_rows, batch.first_version, dtype=np.int64))
                rows = rows.append_column(VERSION, versions)
            tables.append(rows)
        merged = concatenated(tables)
        self._replace(table, chosen, merged)
        return len(chosen)

    def _replace(self, table: Table, old: Sequence[Batch], rows: pa.Table) -> None:
        """Put `rows` (change rows with their versions) in the place of `old`."""
        inserts = int((rows.column(ACTION).to_numpy(zero_copy_only=False) == "I").sum())
        first, last = min(b.first_version for b in old), max(b.last_version for b in old)
        limits = self._ground.settings
        data = encoded(rows) if rows.num_rows <= limits.inline_max_rows else b""
        files: tuple[DataFile, ...] = ()
        write_ids: tuple[str, ...] = ()
        fmt = BatchFormat.INLINE
        if not data or len(data) > limits.inline_max_bytes:
            fmt, data = BatchFormat.TAIL, b""
            write_id, directory = self._ground.writer.open(table.id, FileRole.TAIL)
            files = write_arrow(self._ground.layout, rows, table.id, FileRole.TAIL, directory, write_id)
            write_ids = (write_id,)
        size = len(data) or sum(f.bytes for f in files)
        batch = Batch(
            uuid.uuid4().hex,
            table.id,
            fmt,
            inserts,
            rows.num_rows - inserts,
            size,
            merged=True,
            inline=data or None,
            first_version=first,
            last_version=last,
        )
        change = ReplaceBatches(table.id, tuple(b.id for b in old), batch, files)
        self._ground.catalog.commit(Commit((change,), write_ids=write_ids))

    # folding ----------------------------------------------------------------------------------------------------------------

    def compact(self, table_id: str) -> None:
        """Fold all changes into the base and export it."""
        self._fold(table_id)
        self._export(table_id)

    def _fold(self, table_id: str) -> bool:
        """Write the current state of a table as its new base. Only files that hold deleted rows are written anew."""
        ground = self._ground
        lease = ground.catalog.acquire(f"fold:{table_id}", ground.owner, ground.settings.lease_seconds)
        if lease is None:
            return False
        with ground.catalog.keep_lease(lease, ground.settings.lease_seconds):
            snapshot = ground.catalog.snapshot()
            table = snapshot.tables.get(table_id)
            if table is None or table.base_version >= snapshot.changed.get(table_id, 0):
                return False
            source = ground.source(snapshot, table)
            with ground.engine.worker() as worker:
                touched = self._touched_files(worker, source, snapshot.version)
                worker.size_for(sum(f.rows for f in touched))
                part = replace(source, manifest=replace(source.manifest, files=touched))
                frame = ground.reader.state(worker, part, snapshot.version)
                rows = ground.writer.inserted(worker, frame, table)
            change = ReplaceBase(
                table_id, tuple(f.id for f in touched), rows.files, snapshot.version, table.base_version
            )
            ground.catalog.commit(Commit((change,), leases=(lease,), write_ids=rows.write_ids))
        return True

    def _touched_files(self, worker: Worker, source: Source, version: int) -> tuple[DataFile, ...]:
        """Return the base files that may hold a row which the tail deletes."""
        table, files = source.table, source.manifest.files
        tail = source.batches(table.base_version, version)
        if not any(b.deletes for b in tail):
            return tuple(f for f in files if f.rows < 100_000) if len(files) > 32 else ()
        key = [f for f in table.schema.fields if f.name in table.schema.key]
        if not key:
            return files
        changes = self._ground.reader.changes(worker, source, table.base_version, version, key)
        names = ", ".join(f"min({quoted(f.name)}) AS {quoted('a' + f.name)}, max({quoted(f.name)}) AS {quoted('b' + f.name)}" for f in key)
        nulls = ", ".join(f"count_if({quoted(f.name)} IS NULL) AS {quoted('n' + f.name)}" for f in key)
        view = worker.view(changes.frame)
        found = worker.to_arrow(worker.sql(f"SELECT {names}, {nulls} FROM {view} WHERE {WEIGHT} < 0"))
        bounds = {}
        for f in key:
            if found.column("n" + f.name)[0].as_py() == 0:
                both = pa.table({f.name: pa.concat_arrays([c.combine_chunks() for c in (found.column("a" + f.name), found.column("b" + f.name))])})
                bounds.update(column_bounds(both, [f.name]))
        return files_within(files, bounds)

    # export -----------------------------------------------------------------------------------------------------------------

    def _export(self, table_id: str) -> bool:
        ground = self._ground
        lease = ground.catalog.acquire(f"export:{table_id}", ground.owner, ground.settings.lease_seconds)
        if lease is None:
            return False
        with ground.catalog.keep_lease(lease, ground.settings.lease_seconds):
            snapshot = ground.catalog.snapshot()
            table = snapshot.tables.get(table_id)
            if table is None:
                return False
            manifest = ground.catalog.manifest(table_id, snapshot.version)
            return export_base(ground.catalog, ground.layout, table, manifest, snapshot.version)

    # vacuum -----------------------------------------------------------------------------------------------------------------

    def vacuum(
        self, retention_hours: float | None = None, *, dry_run: bool = False, progress: Progress | None = None
    ) -> VacuumReport:
        """Do all maintenance that is due. With `dry_run` only count what would go."""
        ground = self._ground
        hours = ground.settings.retention_hours if retention_hours is None else retention_hours
        now = ground.catalog.now()
        keep_from = ground.catalog.version_at(now - hours * 3600)
        snapshot = ground.catalog.snapshot()
        merged = folded = forgotten = exported = 0
        tables = list(snapshot.tables.values())
        for i, table in enumerate(tables):
            if progress is not None:
                progress(table.name, i, len(tables))
            if dry_run:
                continue
            try:
                merged += self._merge(ground.catalog.snapshot(), table)
                manifest = ground.catalog.manifest(table.id, ground.catalog.snapshot().version)
                if self._should_fold(table, manifest.batches, manifest.files) or (
                    table.base_version < keep_from and snapshot.changed.get(table.id, 0) > table.base_version
                ):
                    folded += self._fold(table.id)
                done = self._forget(table.id, keep_from)
                forgotten += done[0]
                merged += done[1]
            except BusyError:
                continue
        if not dry_run:
            for table_id in ground.catalog.export_pending():
                live = ground.catalog.snapshot().tables.get(table_id)
                if live is not None and live.kind is not TableKind.AUX:
                    exported += self._export(table_id)
        deleted, size, writes = self._delete(keep_from, now, dry_run=dry_run)
        return VacuumReport(deleted, size, merged, forgotten, folded, writes, exported, keep_from, dry_run)

    def _forget(self, table_id: str, keep_from: int) -> tuple[int, int]:
        """Drop change rows that no consumer and no kept version needs; sum those between what is still needed."""
        ground = self._ground
        snapshot = ground.catalog.snapshot()
        table = snapshot.tables.get(table_id)
        if table is None:
            return 0, 0
        frontiers = [snapshot.streams[d].frontier for d in snapshot.dependents.get(table_id, ())]
        consumers = [f for f in frontiers if f is not None]
        needed = sorted({*consumers, keep_from, *ground.catalog.pinned_versions()})
        floor = min([*needed, table.base_version])
        batches = ground.catalog.manifest(table_id, snapshot.version).batches
        old = [b for b in batches if b.last_version <= floor]
        if old:
            ground.catalog.commit(Commit((ReplaceBatches(table_id, tuple(b.id for b in old)),)))
        summed = 0
        points = [p for p in needed if p >= floor]
        for low, high in zip(points, points[1:], strict=False):
            if high > keep_from:
                break
            between = [b for b in batches if b.first_version > low and b.last_version <= high and b not in old]
            if len(between) > 1:
                summed += self._sum(table_id, between)
        return len(old), summed

    def _sum(self, table_id: str, batches: Sequence[Batch]) -> int:
        """Replace batches that nobody stands between by their sum; the mask of changed columns is lost with the steps."""
        ground = self._ground
        snapshot = ground.catalog.snapshot()
        table = snapshot.tables[table_id]
        source = ground.source(snapshot, table)
        only = replace(source, manifest=replace(source.manifest, batches=tuple(batches)))
        first, last = min(b.first_version for b in batches), max(b.last_version for b in batches)
        fields = table.schema.fields
        with ground.engine.worker() as worker:
            changes = ground.reader.changes(worker, only, first - 1, last, fields)
            if not ground.writer.fits_in_memory(fields, changes.count):
                return 0
            names = "".join(quoted(f.name) + ", " for f in fields)
            net = net_sql(worker.view(changes.frame), fields)
            text = (
                f"SELECT {names}CASE WHEN {WEIGHT} > 0 THEN 'I' ELSE 'D' END AS {ACTION} FROM ({net}) "
                f"LATERAL VIEW explode(sequence(1, abs({WEIGHT}))) AS __copy"
            )
            rows = worker.to_arrow(worker.sql(text))
        rows = rows.append_column(CHANGE_FIELDS[1].name, pa.array(np.arange(rows.num_rows, dtype=np.int64)))
        rows = rows.append_column(CHANGED, pa.nulls(rows.num_rows, pa.list_(pa.int64())))
        rows = rows.append_column(VERSION, pa.array(np.full(rows.num_rows, last, dtype=np.int64)))
        self._replace(table, batches, rows)
        return len(batches)

    def _delete(self, keep_from: int, now: float, *, dry_run: bool) -> tuple[int, int, int]:
        """Delete files that nothing needs, and what abandoned writes left behind."""
        ground = self._ground
        before = now - ground.settings.vacuum_grace_seconds
        files = [] if dry_run else ground.catalog.removable_files(keep_from, before)
        count = size = 0
        for file in files:
            path = ground.layout.location / file.path
            path.unlink(missing_ok=True)
            _remove_empty(path.parent)
            count += 1
            size += file.bytes
        if not dry_run:
            ground.catalog.forget_files(f.id for f in files)
            ground.catalog.forget_batches(keep_from, before)
            for table_id in ground.catalog.forget_tables(keep_from, before):
                ground.layout.remove_tree(f"data/{table_id}")
            ground.catalog.forget_versions(keep_from)
        writes = 0
        for write in ground.catalog.expired_writes():
            if dry_run or not ground.catalog.take_write(write.id):
                continue
            for path in write.paths:
                ground.layout.remove_tree(path)
            ground.catalog.discard_write(write.id)
            writes += 1
        return count, size, writes


def _remove_empty(folder: os.PathLike[str]) -> None:
    try:
        os.rmdir(folder)
    except OSError:
        return


