"""Reports: what the catalog and the schedulers know, as tables for people and programs.

All functions are pure: they are given a snapshot, records of history, entries of schedulers, and put them together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headwater.catalog import Manifest, Snapshot
from headwater.catalog.records import SchedulerEntry
from headwater.model.control import EVERYTHING, Blown, Gate, Pause, Trouble
from headwater.model.reports import (
    ChangeBuffer,
    ClusterWorkers,
    RefreshTotals,
    SchedulerStatus,
    TimelineEntry,
    Unseen,
    WorkerAllocation,
)
from headwater.model.tables import SUSPENDED, Batch, RefreshRecord
from headwater.refresh.moment import pending_sources
from headwater.schedule.freshness_report import Ages

GONE = "(dropped)"
"""The name of a table that history speaks of and that is gone."""


# history --------------------------------------------------------------------------------------------------------------------


def timeline_of(snapshot: Snapshot, records: Sequence[RefreshRecord]) -> list[TimelineEntry]:
    """Return lines of history with the names of their stream tables, in the order given."""
    return [
        TimelineEntry(
            snapshot.tables[r.table_id].name if r.table_id in snapshot.tables else GONE,
            r.started_at,
            r.finished_at,
            r.action,
            r.status,
            r.rows_in,
            r.rows_inserted,
            r.rows_deleted,
            r.duration_ms,
            r.spark_jobs,
            r.reason,
            r.frontier_to,
            r.version,
            r.error,
        )
        for r in records
    ]


# changes that wait ----------------------------------------------------------------------------------------------------------


def read_tables(snapshot: Snapshot) -> list[str]:
    """Return the tables that some stream table reads."""
    return list(dict.fromkeys(s for i in snapshot.streams for s in snapshot.sources.get(i, ())))


@dataclass(frozen=True, slots=True)
class Divided:
    """A batch that was merged across the version that some stream table has read of its table."""

    table_id: str
    batch: Batch
    after: int


def divided_batches(snapshot: Snapshot, manifests: Mapping[str, Manifest]) -> list[Divided]:
    """Return the batches of which a stream table has read a part, once for each version up to which that is."""
    found: dict[tuple[str, int], Divided] = {}
    for table_id, stream in snapshot.streams.items():
        for source in snapshot.sources.get(table_id, ()) if stream.frontier is not None else ():
            after = stream.frontier_of(source)
            for batch in manifests[source].batches:
                if batch.first_version <= after < batch.last_version:
                    found[batch.id, after] = Divided(source, batch, after)
    return list(found.values())


def change_buffers(
    snapshot: Snapshot,
    manifests: Mapping[str, Manifest],
    unseen: Mapping[tuple[str, str], Unseen],
    parts: Mapping[tuple[str, int], int],
) -> list[ChangeBuffer]:
    """Return what waits of each source for each stream table that reads it, by their names.

    A batch counts whole if it begins after what was read. Of a divided one `parts` has the rows after a version, by its id and that
    version; its bytes count by their share. For a stream table that was never populated no changes wait: it reads whole tables.
    """
    found = []
    for table_id, stream in snapshot.streams.items():
        for source in snapshot.sources.get(table_id, ()):
            waiting = [] if stream.frontier is None else _waiting(manifests[source], stream.frontier_of(source), parts)
            first = unseen.get((table_id, source))
            found.append(
                ChangeBuffer(
                    snapshot.tables[table_id].name,
                    snapshot.tables[source].name,
                    sum(rows for rows, _ in waiting),
                    sum(size for _, size in waiting),
                    None if first is None else first.seconds,
                    len(waiting),
                )
            )
    return sorted(found, key=lambda b: (b.stream_table, b.source_table))


def _waiting(manifest: Manifest, after: int, parts: Mapping[tuple[str, int], int]) -> list[tuple[int, int]]:
    """Return rows and bytes of the batches with rows after a version."""
    found = []
    for batch in manifest.batches:
        whole = batch.inserts + batch.deletes
        if batch.first_version > after:
            found.append((whole, batch.bytes))
        elif batch.last_version > after and (rows := parts[batch.id, after]):
            found.append((rows, round(batch.bytes * rows / whole)))
    return found


# workers --------------------------------------------------------------------------------------------------------------------


def scheduler_statuses(entries: Sequence[SchedulerEntry]) -> list[SchedulerStatus]:
    """Return how each scheduler that lives fares."""
    return [
        SchedulerStatus(
            e.owner,
            _word(e, "host"),
            _count(e, "pid"),
            _word(e, "warehouse"),
            _word(e, "state"),
            _word(e, "pool"),
            e.started_at,
            e.seen_at,
            _count(e, "workers"),
            _count(e, "active"),
            _count(e, "queued"),
            _count(e, "ticks"),
            _count(e, "refreshes"),
            _count(e, "failures"),
            None if e.data.get("last_tick_ms") is None else float(e.data["last_tick_ms"]),
        )
        for e in entries
    ]


def worker_allocation(entries: Sequence[SchedulerEntry]) -> list[WorkerAllocation]:
    """Return how the workers of each scheduler are used. A scheduler without a quota may use all that it has."""
    active, most = sum(_count(e, "active") for e in entries), sum(_count(e, "workers") for e in entries)
    return [
        WorkerAllocation(
            _word(e, "warehouse"),
            e.owner,
            _count(e, "active"),
            _count(e, "quota") or _count(e, "workers"),
            _count(e, "queued"),
            active,
            most,
        )
        for e in entries
    ]


def cluster_workers(entries: Sequence[SchedulerEntry]) -> list[ClusterWorkers]:
    """Return the workers of each warehouse and host."""
    together: defaultdict[tuple[str, str], list[SchedulerEntry]] = defaultdict(list)
    for entry in entries:
        together[_word(entry, "warehouse"), _word(entry, "host")].append(entry)
    return [
        ClusterWorkers(
            warehouse,
            host,
            len(of_host),
            sum(_count(e, "active") for e in of_host),
            sum(_count(e, "queued") for e in of_host),
            sum(_count(e, "workers") for e in of_host),
        )
        for (warehouse, host), of_host in sorted(together.items())
    ]


def _count(entry: SchedulerEntry, name: str) -> int:
    """Return a number that a scheduler gave; one of another version may not give it."""
    return int(entry.data.get(name) or 0)


def _word(entry: SchedulerEntry, name: str) -> str:
    return str(entry.data.get(name) or "")


# numbers --------------------------------------------------------------------------------------------------------------------


def metrics_of(
    snapshot: Snapshot,
    totals: RefreshTotals,
    ages: Ages,
    entries: Sequence[SchedulerEntry],
    change_reads: Mapping[str, int],
) -> dict[str, float]:
    """Return numbers about the whole warehouse; those that end in `_total` are sums over the history that is kept, or since the start."""
    streams, notes = snapshot.streams, snapshot.notes
    troubles = [t.errors for i, t in notes.of(Trouble).items() if i in streams]
    is_all_paused = EVERYTHING in notes.of(Pause)
    paused = [i for i in streams if is_all_paused or i in notes.of(Pause)]
    suspended = [i for i, s in streams.items() if s.status == SUSPENDED]
    numbers = {
        "refreshes_total": totals.completed + totals.failed,
        "refreshes_completed_total": totals.completed,
        "refresh_failures_total": totals.failed,
        "refreshes_differential_total": totals.differential,
        "refreshes_full_total": totals.full,
        "refresh_seconds_total": totals.milliseconds / 1000,
        "rows_read_total": totals.rows_in,
        "rows_changed_total": totals.rows_changed,
        "bytes_written_total": totals.bytes_written,
        "spark_jobs_total": totals.spark_jobs,
        "change_reads_total": sum(change_reads.values()),
        "stream_tables": len(streams),
        "active_stream_tables": len(streams.keys() - set(paused) - set(suspended)),
        "paused_stream_tables": len(paused),
        "suspended_stream_tables": len(suspended),
        "pending_stream_tables": sum(bool(pending_sources(snapshot, s)) for s in streams.values()),
        "blown_fuses": sum(i in streams for i in notes.of(Blown)),
        "gated_sources": sum(i in snapshot.tables for i in notes.of(Gate)),
        "consecutive_errors_max": max(troubles, default=0),
        "staleness_max_seconds": max(ages.staleness.values(), default=0.0),
        "schedulers": len(entries),
        "workers": sum(_count(e, "workers") for e in entries),
        "workers_active": sum(_count(e, "active") for e in entries),
        "units_queued": sum(_count(e, "queued") for e in entries),
        "version": snapshot.version,
    }
    return {name: float(value) for name, value in numbers.items()}
