"""Diagnostics: how the warehouse fares. Everything comes from the catalog; nothing here starts Spark or changes anything."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace

from headwater.catalog import Catalog, Snapshot
from headwater.model.reports import (
    ChangeBuffer,
    ClusterWorkers,
    DependencyTree,
    DiamondGroup,
    Freshness,
    HealthCheck,
    ScheduleAdvice,
    SchedulerStatus,
    TimelineEntry,
    Unseen,
    WorkerAllocation,
)
from headwater.model.tables import BatchFormat, StreamTable, Table
from headwater.refresh.cycle import Refresher
from headwater.schedule.advice import SAMPLES_USED, schedule_advice
from headwater.schedule.freshness_report import Ages, Present, ages_of, freshness_of, present_of
from headwater.schedule.graph import Graph, graph_of
from headwater.schedule.graph_report import dependency_tree, diamond_groups, drawing_of, explained_dag
from headwater.schedule.health_report import Vitals, health_checks
from headwater.schedule.reports import (
    change_buffers,
    cluster_workers,
    divided_batches,
    metrics_of,
    read_tables,
    scheduler_statuses,
    timeline_of,
    worker_allocation,
)
from headwater.store.ground import Ground
from headwater.store.reading import Source
from headwater.store.rows import ACTION_FIELD

_CHANGES_LOOKED_AT = 5_000


class Diagnostics(ABC):
    """The questions about a warehouse that need no Spark."""

    _ground: Ground
    _refresher: Refresher
    _catalog: Catalog

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """Return what the catalog holds now; refuse if the warehouse was closed."""

    @abstractmethod
    def lookup(self, snapshot: Snapshot, name: str) -> Table:
        """Return a table by its name, or refuse with the nearest names."""

    @abstractmethod
    def _stream(self, snapshot: Snapshot, name: str) -> tuple[Table, StreamTable]:
        """Return a stream table by its name, or refuse."""

    # freshness --------------------------------------------------------------------------------------------------------------

    def get_staleness(self, name: str) -> float | None:
        """Return how many seconds ago the oldest change was committed that a stream table does not show.

        0 if it shows all of them, None if it was never populated. Changes count that wait in a stream table which it reads.
        """
        snapshot = self.snapshot()
        _, stream = self._stream(snapshot, name)
        return self._ages(snapshot).staleness.get(stream.table_id)

    def freshness(self, snapshot: Snapshot) -> dict[str, Freshness]:
        """Return the freshness of every stream table by its id, in two small queries for all of them."""
        present = self._present(snapshot, self._catalog.oldest_unseen())
        return {i: freshness_of(present, i) for i in snapshot.streams}

    def _present(self, snapshot: Snapshot, unseen: Mapping[tuple[str, str], Unseen]) -> Present:
        return present_of(snapshot, unseen, self._ground.settings, self._catalog.now())

    def _ages(self, snapshot: Snapshot) -> Ages:
        return ages_of(snapshot, self._catalog.oldest_unseen())

    # health -----------------------------------------------------------------------------------------------------------------

    def health_check(self) -> list[HealthCheck]:
        """Return the outcome of every check, also of those that find nothing wrong."""
        snapshot = self.snapshot()
        unseen = self._catalog.oldest_unseen()
        present, buffers = self._present(snapshot, unseen), self._buffers(snapshot, unseen)
        return health_checks(Vitals(present, buffers, self._catalog.schedulers()))

    def refresh_timeline(self, limit: int = 50) -> list[TimelineEntry]:
        """Return the newest refreshes of all stream tables, newest first."""
        return timeline_of(self.snapshot(), self._catalog.history(None, limit))

    def change_buffer_sizes(self) -> list[ChangeBuffer]:
        """Return how many change rows of each source wait for each stream table that reads it."""
        return self._buffers(self.snapshot(), self._catalog.oldest_unseen())

    def _buffers(self, snapshot: Snapshot, unseen: Mapping[tuple[str, str], Unseen]) -> list[ChangeBuffer]:
        manifests = self._catalog.manifests(read_tables(snapshot), snapshot.version)
        divided = divided_batches(snapshot, manifests)
        reader = self._ground.reader
        reader.inline_tables([d.batch for d in divided if d.batch.format is BatchFormat.INLINE])  # all of them at once
        parts: dict[tuple[str, int], int] = {}
        for part in divided:
            only = replace(manifests[part.table_id], batches=(part.batch,))
            source = Source(snapshot.tables[part.table_id], only)
            rows = reader.change_values(source, part.after, part.batch.last_version, (ACTION_FIELD,))
            parts[part.batch.id, part.after] = rows.num_rows
        return change_buffers(snapshot, manifests, unseen, parts)

    # the graph --------------------------------------------------------------------------------------------------------------

    def dependency_tree(self, name: str | None = None) -> DependencyTree:
        """Return what a table reads, directly or not; without a name, that of all stream tables."""
        snapshot = self.snapshot()
        return dependency_tree(snapshot, None if name is None else self.lookup(snapshot, name).id)

    def explain_dag(self, format: str = "mermaid") -> str:
        """Return a drawing of all stream tables and what they read, as a Mermaid flowchart or (`dot`) for Graphviz."""
        snapshot = self.snapshot()
        drawing = drawing_of(snapshot, self._graph_of(snapshot), self._ground.settings, self._catalog.now())
        return explained_dag(drawing, format)

    def diamond_groups(self) -> list[DiamondGroup]:
        """Return the stream tables that read the same thing on several ways that meet again, by diamond."""
        snapshot = self.snapshot()
        return diamond_groups(snapshot, self._graph_of(snapshot))

    def _graph_of(self, snapshot: Snapshot) -> Graph:
        return graph_of({i: snapshot.sources.get(i, ()) for i in snapshot.streams})

    # advice -----------------------------------------------------------------------------------------------------------------

    def recommend_schedule(self, name: str) -> ScheduleAdvice:
        """Return which schedule fits a stream table, judged by its history and by when its sources change."""
        snapshot = self.snapshot()
        _, stream = self._stream(snapshot, name)
        return self._advice(snapshot, stream, {})

    def schedule_recommendations(self) -> list[ScheduleAdvice]:
        """Return which schedule fits each stream table, by name."""
        snapshot = self.snapshot()
        known: dict[str, list[float]] = {}
        found = [self._advice(snapshot, stream, known) for stream in snapshot.streams.values()]
        return sorted(found, key=lambda a: a.stream_table)

    def _advice(self, snapshot: Snapshot, stream: StreamTable, known: dict[str, list[float]]) -> ScheduleAdvice:
        """Return advice; `known` keeps the times at which tables changed."""
        times: list[float] = []
        if not self._refresher.definition(stream).always:
            for source in snapshot.sources.get(stream.table_id, ()):
                if source not in known:
                    known[source] = self._catalog.change_times(source, _CHANGES_LOOKED_AT)
                times += known[source]
        records = self._catalog.history(stream.table_id, 2 * SAMPLES_USED)
        return schedule_advice(snapshot.tables[stream.table_id].name, stream, records, times, self._catalog.now())

    # workers ----------------------------------------------------------------------------------------------------------------

    def worker_allocation_status(self) -> list[WorkerAllocation]:
        """Return how the workers of each scheduler that lives are used."""
        return worker_allocation(self._catalog.schedulers())

    def cluster_worker_summary(self) -> list[ClusterWorkers]:
        """Return the workers of all schedulers that live, by warehouse and host."""
        return cluster_workers(self._catalog.schedulers())

    def scheduler_diagnostics(self) -> list[SchedulerStatus]:
        """Return how each scheduler that lives fares, in this process or another."""
        return scheduler_statuses(self._catalog.schedulers())

    def metrics_summary(self) -> Mapping[str, float]:
        """Return numbers about the whole warehouse by name."""
        snapshot = self.snapshot()
        reads = self._ground.reader.change_reads.counts()
        totals, entries = self._catalog.refresh_totals(), self._catalog.schedulers()
        return metrics_of(snapshot, totals, self._ages(snapshot), entries, reads)
