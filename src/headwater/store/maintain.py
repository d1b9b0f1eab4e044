"""Maintenance: folding changes into the base, merging small batches, forgetting history, deleting files.

None of it changes what any reader sees. Folding and merging replace manifest entries by others that mean the same; forgetting waits
for every consumer, every pin and the retention; a file goes only when no entry that any of them can see names it.

Change rows may be summed only between versions that somebody stands on: the frontiers of consumers, pinned versions, the oldest
version that is kept, and the version of the base itself, since a state is read as the base plus or minus the changes from there.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headwater.catalog import CommitUnknownError, Manifest, Snapshot
from headwater.engine.identity import identity_sql
from headwater.engine.worker import Worker
from headwater.errors import BusyError, HeadwaterError
from headwater.model.commit import Commit, ReplaceBase, ReplaceBatches
from headwater.model.sql import quoted
from headwater.model.tables import REREAD, Batch, BatchFormat, DataFile, Table, TableKind
from headwater.store.export import export_base
from headwater.store.ground import Ground
from headwater.store.layout import column_bounds, files_within
from headwater.store.netting import net_changes_sql
from headwater.store.reading import Source
from headwater.store.rows import ACTION, CHANGE_ID, CHANGED, VERSION, WEIGHT, Rows, concatenated, in_utc

_MERGE_ROWS = 20_000
_MERGE_INLINE = 64
_FOLD_ROWS = 5_000
_SMALL_FILES = 32
_UNREAD = 3
_SMALL_FILE_ROWS = 100_000
_ONE_FILE_ROWS = 500_000

Progress = Callable[[str, int, int], None]
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """What a vacuum removed and rearranged; of a dry run, what can be deleted already."""

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
        catalog = self._ground.catalog
        snapshot = catalog.snapshot()
        wanted = [i for t in table_ids if t in snapshot.tables for i in (t, *snapshot.parts.get(t, ()))]
        if not wanted:
            return
        try:
            manifests = catalog.manifests(wanted, snapshot.version)
            pending = set(catalog.export_pending(wanted))
        except HeadwaterError as error:
            log.warning("tables not maintained error=%s", error.message)
            return
        for table in (snapshot.tables[i] for i in wanted):
            try:
                self._maintained(table, manifests[table.id], is_exported=table.id not in pending)
            except BusyError:
                continue  # somebody else is at it, or will be
            except Exception as error:
                log.warning("table not maintained table=%s error=%s", table.name, error)

    def _maintained(self, table: Table, manifest: Manifest, *, is_exported: bool) -> None:
        self._merge(table, manifest)
        if self._should_fold(table, manifest) and self._fold(table.id):
            is_exported = False
        if table.kind is not TableKind.AUX and not is_exported:
            self._export(table.id)

    def _should_fold(self, table: Table, manifest: Manifest) -> bool:
        tail = sum(b.inserts + b.deletes for b in manifest.batches if b.last_version > table.base_version)
        base = sum(f.rows for f in manifest.files)
        fraction = self._ground.settings.fold_tail_fraction
        if table.kind is TableKind.AUX:
            fraction *= _UNREAD  # nobody reads it whole
        return tail > max(_FOLD_ROWS, fraction * base) or len(_small_files(manifest.files)) > _SMALL_FILES

    def _committed(self, commit: Commit, rows: Rows) -> None:
        """Commit, or remove the rows that were written for it."""
        try:
            self._ground.catalog.commit(commit)
        except CommitUnknownError:
            raise  # it may have been committed: vacuum will know
        except HeadwaterError:
            self._ground.writer.discard(rows)
            raise

    # merging ----------------------------------------------------------------------------------------------------------------

    def _merge_candidates(self, batches: Sequence[Batch]) -> tuple[Batch, ...]:
        """Return small batches worth merging: many inline ones, or more tail files than a reader should see.

        They are neighbours, with no other batch between them: batches cover disjoint ranges of versions, and who looks for the
        newest row of a key relies on that.
        """
        runs = [
            tuple(run)
            for is_small, run in itertools.groupby(sorted(batches, key=lambda b: b.first_version), _is_small)
            if is_small
        ]
        small = [b for run in runs for b in run]
        inline = [b for b in small if b.format is BatchFormat.INLINE]
        files = [b for b in small if b.format is BatchFormat.TAIL]
        if len(inline) >= _MERGE_INLINE or len(files) >= self._ground.settings.tail_max_files:
            longest = max(runs, key=len)
            return longest if len(longest) > 1 else ()
        return ()

    def _merge(self, table: Table, manifest: Manifest) -> int:
        """Put one batch in the place of many small ones; each row keeps its version."""
        chosen = self._merge_candidates(manifest.batches)
        if not chosen:
            return 0
        inline = self._ground.reader.inline_tables([b for b in chosen if b.format is BatchFormat.INLINE])
        tables = []
        for batch in chosen:
            rows = inline.get(batch.id)
            if rows is None:
                paths = self._ground.layout.paths(manifest.batch_files[batch.id])
                rows = concatenated([in_utc(pq.read_table(p)) for p in paths])
            if not batch.merged:
                rows = _at_version(rows, batch.first_version)
            tables.append(rows)
        self._replace(table, chosen, concatenated(tables))
        return len(chosen)

    def _replace(self, table: Table, old: Sequence[Batch], rows: pa.Table) -> None:
        """Put `rows` (change rows with their versions) in the place of `old`."""
        inserts = int((rows.column(ACTION).to_numpy(zero_copy_only=False) == "I").sum())
        writer = self._ground.writer
        made = writer.stored(Rows(inserts, rows.num_rows - inserts, 0, arrow=rows), table)
        added, write_ids = writer.batch(made, table)
        batch = replace(
            added.batch,
            merged=True,
            first_version=min(b.first_version for b in old),
            last_version=max(b.last_version for b in old),
        )
        change = ReplaceBatches(table.id, tuple(b.id for b in old), batch, added.files)
        self._committed(Commit((change,), write_ids=write_ids), made)

    # folding ----------------------------------------------------------------------------------------------------------------

    def compact(self, table_id: str) -> None:
        """Fold all changes into the base and export it."""
        self._fold(table_id)
        self._export(table_id)

    def _fold(self, table_id: str) -> bool:
        """Write the current state of a table as its new base. Only files that hold deleted rows, or are too many, are rewritten."""
        ground = self._ground
        lease = ground.catalog.acquire(f"fold:{table_id}", ground.owner, ground.settings.lease_seconds)
        if lease is None:
            return False
        with ground.catalog.keep_lease(lease, ground.settings.lease_seconds):
            snapshot = ground.catalog.snapshot()
            table = snapshot.tables.get(table_id)
            if table is None:
                return False
            source = ground.source(snapshot, table)
            small = _small_files(source.manifest.files)
            crowded = small if len(small) > _SMALL_FILES else ()
            if table.base_version >= snapshot.changed.get(table_id, 0) and not crowded:
                return False
            with ground.engine.worker() as worker:
                touched = dict.fromkeys((*self._touched_files(worker, source, snapshot.version), *crowded))
                tail = sum(b.inserts + b.deletes for b in source.batches(table.base_version, snapshot.version))
                size = sum(f.rows for f in touched) + tail
                worker.size_for(size)
                part = replace(source, manifest=replace(source.manifest, files=tuple(touched)))
                frame = ground.reader.state(worker, part, snapshot.version)
                rows = ground.writer.inserted(worker, frame.coalesce(1) if size < _ONE_FILE_ROWS else frame, table)
            change = ReplaceBase(
                table_id, tuple(f.id for f in touched), rows.files, snapshot.version, table.base_version
            )
            self._committed(Commit((change,), leases=(lease,), write_ids=rows.write_ids), rows)
        return True

    def _touched_files(self, worker: Worker, source: Source, version: int) -> tuple[DataFile, ...]:
        """Return the base files that may hold a row which the tail deletes."""
        table, files = source.table, source.manifest.files
        if not any(b.deletes for b in source.batches(table.base_version, version)):
            return ()
        key = [f for f in table.schema.fields if f.name in table.schema.key]
        if not key:
            return files
        changes = self._ground.reader.changes(worker, source, table.base_version, version, key)
        view = worker.view(changes.frame)

        def extremes(function: str) -> str:
            items = [
                f"if(count_if({quoted(f.name)} IS NULL) > 0, NULL, "
                f"{function}({identity_sql(quoted(f.name), f.type)})) AS {quoted(f.name)}"
                for f in key
            ]
            return f"SELECT {', '.join(items)} FROM {view} WHERE {WEIGHT} < 0"

        found = worker.to_arrow(worker.sql(f"{extremes('min')} UNION ALL {extremes('max')}"))
        return files_within(files, column_bounds(found, [f.name for f in key]))

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
        """Do all maintenance that is due. With `dry_run` only count what could be deleted now."""
        catalog, settings = self._ground.catalog, self._ground.settings
        hours = settings.retention_hours if retention_hours is None else retention_hours
        now = catalog.now()
        keep_from = max(catalog.version_at(now - hours * 3600), catalog.horizon())
        before = now - settings.vacuum_grace_seconds
        if dry_run:
            files = catalog.unneeded_files(keep_from, before)
            size = sum(f.bytes for f in files)
            return VacuumReport(len(files), size, 0, 0, 0, len(catalog.expired_writes()), 0, keep_from, dry_run=True)
        # First of all: from here on nobody can ask for a version whose change rows are about to be forgotten.
        catalog.move_horizon(keep_from)
        merged = folded = forgotten = exported = 0
        tables = list(catalog.snapshot().tables.values())
        for i, table in enumerate(tables):
            if progress is not None:
                progress(table.name, i, len(tables))
            try:
                merged += self._merge(table, catalog.manifest(table.id, catalog.snapshot().version))
                folded += self._folded_if_due(table.id, keep_from)
                gone, summed = self._forget(table.id, keep_from)
                forgotten += gone
                merged += summed
            except BusyError:
                continue
        kinds = {t.id: t.kind for t in catalog.snapshot().tables.values()}
        for table_id in catalog.export_pending():
            if kinds.get(table_id, TableKind.AUX) is not TableKind.AUX:
                exported += self._exported(table_id)
        forgotten_before = now - settings.history_days * 86_400
        catalog.forget_history(forgotten_before)
        catalog.forget_events(forgotten_before)
        deleted, size = self._delete_files(keep_from, before)
        return VacuumReport(deleted, size, merged, forgotten, folded, self._discard_writes(), exported, keep_from)

    def _folded_if_due(self, table_id: str, keep_from: int) -> bool:
        """Fold a table whose tail is long, or whose base is older than any version that is kept."""
        snapshot = self._ground.catalog.snapshot()
        table = snapshot.tables.get(table_id)
        if table is None:
            return False
        manifest = self._ground.catalog.manifest(table_id, snapshot.version)
        behind = table.base_version < min(keep_from, snapshot.changed.get(table_id, 0))
        return (behind or self._should_fold(table, manifest)) and self._fold(table_id)

    def _exported(self, table_id: str) -> bool:
        try:
            return self._export(table_id)
        except Exception as error:
            log.warning("table not exported table=%s error=%s", table_id, error)
            return False

    def _forget(self, table_id: str, keep_from: int) -> tuple[int, int]:
        """Drop change rows that no consumer and no kept version needs; sum those between what is still needed."""
        catalog = self._ground.catalog
        snapshot = catalog.snapshot()
        table = snapshot.tables.get(table_id)
        if table is None:
            return 0, 0
        batches = catalog.manifest(table_id, snapshot.version).batches
        frontiers = self._frontiers(snapshot, table, batches, keep_from)
        points = sorted(frontiers | {keep_from, table.base_version, *catalog.pinned_versions()})
        old = [b for b in batches if b.last_version <= points[0]]
        if old:
            catalog.commit(Commit((ReplaceBatches(table_id, tuple(b.id for b in old)),)))
        summed = 0
        for low, high in itertools.pairwise(points):
            between = [b for b in batches if b.first_version > low and b.last_version <= high]
            if high <= keep_from and len(between) > 1:
                summed += self._sum(table_id, between)
        return len(old), summed

    def _frontiers(self, snapshot: Snapshot, table: Table, batches: Sequence[Batch], keep_from: int) -> set[int]:
        """Return where the consumers of a table stand, without those for which more is kept than the limit allows.

        Such a consumer is marked: its next refresh reads its sources anew instead of their changes.
        """
        limit = self._ground.settings.consumer_limit_rows
        found = set()
        for consumer in snapshot.dependents.get(table.id, ()):
            stream = snapshot.streams[consumer]
            if stream.frontier is None or stream.status == REREAD:
                continue
            frontier = stream.frontier_of(table.id)
            waiting = sum(b.inserts + b.deletes for b in batches if b.first_version > frontier)
            if limit and frontier < keep_from and waiting > limit:
                reason = f"{waiting} change rows of {table.name} waited for it, the limit is {limit}"
                self._ground.catalog.set_stream_status(consumer, REREAD, reason)
            else:
                found.add(frontier)
        return found

    def _sum(self, table_id: str, batches: Sequence[Batch]) -> int:
        """Replace batches that nobody stands between by their sum; the mask of changed columns is lost with the steps."""
        ground = self._ground
        snapshot = ground.catalog.snapshot()
        table = snapshot.tables[table_id]
        source = ground.source(snapshot, table)
        only = replace(source, manifest=replace(source.manifest, batches=tuple(batches)))
        last = max(b.last_version for b in batches)
        fields = table.schema.fields
        with ground.engine.worker() as worker:
            changes = ground.reader.changes(worker, only, 0, last, fields)
            if not ground.writer.fits_in_memory(fields, changes.count):
                return 0
            rows = in_utc(worker.to_arrow(worker.sql(net_changes_sql(worker.view(changes.frame), fields))))
        rows = rows.append_column(CHANGE_ID, pa.array(np.arange(rows.num_rows, dtype=np.int64)))
        rows = rows.append_column(CHANGED, pa.nulls(rows.num_rows, pa.list_(pa.int64())))
        self._replace(table, batches, _at_version(rows, last))
        return len(batches)

    def _delete_files(self, keep_from: int, before: float) -> tuple[int, int]:
        """Delete the files that nothing needs, then forget the entries that named them."""
        catalog, layout = self._ground.catalog, self._ground.layout
        files = catalog.removable_files(keep_from, before)
        for file in files:
            path = layout.location / file.path
            path.unlink(missing_ok=True)
            _remove_empty(path.parent)
        self._ground.reader.columns.forget()
        catalog.forget_files(f.id for f in files)
        catalog.forget_batches(keep_from, before)
        catalog.forget_tables(keep_from, before, lambda table_id: layout.remove_tree(f"data/{table_id}"))
        catalog.forget_versions(keep_from)
        return len(files), sum(f.bytes for f in files)

    def _discard_writes(self) -> int:
        """Remove what abandoned writes left behind."""
        catalog = self._ground.catalog
        taken = [write for write in catalog.expired_writes() if catalog.take_write(write.id)]
        for write in taken:
            for path in write.paths:
                self._ground.layout.remove_tree(path)
            catalog.discard_write(write.id)
        return len(taken)


def _is_small(batch: Batch) -> bool:
    return batch.format is not BatchFormat.INSERT and batch.inserts + batch.deletes <= _MERGE_ROWS


def _small_files(files: Sequence[DataFile]) -> tuple[DataFile, ...]:
    return tuple(f for f in files if f.rows < _SMALL_FILE_ROWS)


def _at_version(rows: pa.Table, version: int) -> pa.Table:
    return rows.append_column(VERSION, pa.array(np.full(rows.num_rows, version, dtype=np.int64)))


def _remove_empty(folder: os.PathLike[str]) -> None:
    try:
        os.rmdir(folder)
    except OSError:
        return
