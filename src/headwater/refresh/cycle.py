"""One refresh: choose, evaluate, publish.

Nothing changed: nothing runs. Otherwise the lease of the table is taken, one version is read, the change is computed, and data,
state, frontier and history are one commit. If anything moved meanwhile the commit is refused and nothing has happened.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from headwater.catalog import CommitUnknownError, Snapshot
from headwater.engine.jobs import counting_jobs
from headwater.errors import BusyError, EvaluationError
from headwater.model.commit import AddBatch, Change, Commit, LeaseToken, MoveFrontier
from headwater.model.tables import ACTIVE, REREAD, RefreshAction, RefreshMode, RefreshRecord, StreamTable, Table
from headwater.refresh.computing import Computer
from headwater.refresh.definition import Definition
from headwater.refresh.evaluate import Outcome, check_failure, in_full_instead
from headwater.refresh.moment import Moment, newest
from headwater.refresh.scene import Scene
from headwater.refresh.when_full import apply_when_full, is_unasked
from headwater.store.ground import Ground
from headwater.store.rows import Rows

LOG = logging.getLogger("headwater.refresh")


@dataclass(frozen=True, slots=True)
class RefreshReport:
    """What a refresh did."""

    name: str
    action: RefreshAction
    rows_in: int
    rows_inserted: int
    rows_deleted: int
    duration_ms: float
    reason: str
    spark_jobs: int
    version: int
    rescanned_groups: int = 0
    bytes_written: int = 0


def chosen(stream: StreamTable, definition: Definition, *, full: bool) -> tuple[RefreshAction, str]:
    """Say how the table will be refreshed, and why."""
    if stream.frontier is None:
        return RefreshAction.INITIAL, "not populated yet"
    if full:
        return RefreshAction.FULL, "asked for"
    if stream.mode is RefreshMode.FULL:
        return RefreshAction.FULL, "refresh mode is FULL"
    if definition.template is None:
        return RefreshAction.FULL, definition.reason
    if stream.status == REREAD:
        return RefreshAction.FULL, "its changes were no longer kept"
    return RefreshAction.DIFFERENTIAL, "the query is maintained from changes"


class Refresher:
    """Runs refreshes on one ground."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self.computer = Computer(ground)
        self._definitions: OrderedDict[str, Definition] = OrderedDict()

    def definition(self, stream: StreamTable) -> Definition:
        """Return the parsed definition; texts never change under one key, so they are kept."""
        found = self._definitions.get(stream.definition)
        if found is None:
            found = Definition.from_json(stream.definition)
            self._definitions[stream.definition] = found
            while len(self._definitions) > self._ground.settings.template_cache_max_entries:
                self._definitions.popitem(last=False)
        else:
            self._definitions.move_to_end(stream.definition)
        return found

    def refresh(self, table_id: str, *, full: bool = False, at: Moment | None = None) -> RefreshReport:
        """Bring one stream table up to date, or to the moment `at`, if it is not there yet."""
        return self.refresh_together((table_id,), full=full, at=at)[0]

    def refresh_together(
        self, table_ids: Sequence[str], *, full: bool = False, at: Moment | None = None
    ) -> list[RefreshReport]:
        """Bring stream tables to one moment in one commit: all of them, or none. Those that others read come first."""
        began = time.perf_counter()
        snapshot = self._ground.catalog.snapshot()
        moment = at or newest(snapshot)
        if not full and not any(self._has_work(snapshot, moment, i) for i in table_ids):
            ms = (time.perf_counter() - began) * 1000
            return [self._nothing(snapshot, moment, i, ms) for i in table_ids]
        with ExitStack() as held:
            leases = self._leases(snapshot, table_ids, held)
            snapshot = self._ground.catalog.snapshot()
            group = _Group(Scene(self._ground, snapshot, at or newest(snapshot)), leases)
            held.callback(self._ground.reader.forget, group.foreseen)
            return self._locked(group, table_ids, full)

    def _has_work(self, snapshot: Snapshot, moment: Moment, table_id: str) -> bool:
        _, stream = _live(snapshot, table_id)
        return _idle_reason(snapshot, stream, self.definition(stream), moment) is None

    def _nothing(self, snapshot: Snapshot, moment: Moment, table_id: str, ms: float) -> RefreshReport:
        table, stream = _live(snapshot, table_id)
        reason = _idle_reason(snapshot, stream, self.definition(stream), moment) or ""
        return RefreshReport(table.name, RefreshAction.NO_DATA, 0, 0, 0, ms, reason, 0, snapshot.version)

    def _leases(self, snapshot: Snapshot, table_ids: Sequence[str], held: ExitStack) -> tuple[LeaseToken, ...]:
        """Take the leases of all tables, always in the same order, and keep them for as long as `held` is open."""
        catalog, seconds = self._ground.catalog, self._ground.settings.lease_seconds
        taken = []
        for table_id in sorted(table_ids):
            lease = self._lease(_live(snapshot, table_id)[0])
            held.enter_context(catalog.keep_lease(lease, seconds))
            taken.append(lease)
        return tuple(taken)

    def _lease(self, table: Table) -> LeaseToken:
        name = f"refresh:{table.id}"
        lease = self._ground.catalog.acquire(name, self._ground.owner, self._ground.settings.lease_seconds)
        if lease is None:
            holder = self._ground.catalog.lease_holder(name)
            raise BusyError(
                f'stream table "{table.name}" is being refreshed by another process',
                detail=f"The lease is held by {holder.owner}." if holder else None,
                hint="Try again when it has finished; nothing was changed.",
            )
        return lease

    def _locked(self, group: _Group, table_ids: Sequence[str], full: bool) -> list[RefreshReport]:
        """Compute one table after the other, and commit them all."""
        catalog = self._ground.catalog
        try:
            for table_id in table_ids:
                added = self._compute(group, table_id, full)
                if added is not None and table_id != table_ids[-1]:
                    group.foresee(added)
            committing = time.perf_counter()
            version = catalog.commit(group.commit()) if group.works else group.scene.snapshot.version
            took = (time.perf_counter() - committing) * 1000
        except Exception as error:
            if not isinstance(error, CommitUnknownError):
                for work in group.works:
                    for rows in work.outcome.rows.values():
                        self._ground.writer.discard(rows)
            self._note_failure(group, error)
            if isinstance(error, EvaluationError):
                raise check_failure(error) from error
            raise
        for work in group.works:
            if work.stream.status != ACTIVE or work.stream.last_error:
                catalog.set_stream_status(work.table.id, ACTIVE, None)
            work.duration_ms += took / len(group.works)
            work.log(version)
        done = {w.table.id: w.report(version) for w in group.works}
        return [
            done[i] if i in done else self._nothing(group.scene.snapshot, group.scene.moment, i, 0.0) for i in table_ids
        ]

    def _compute(self, group: _Group, table_id: str, full: bool) -> AddBatch | None:
        """Compute one table of a group, if it has something to do; return the rows that users will see change."""
        scene = group.scene
        table, stream = _live(scene.snapshot, table_id)
        definition = self.definition(stream)
        if not full and _idle_reason(scene.snapshot, stream, definition, scene.moment) is not None:
            return None
        action, reason = chosen(stream, definition, full=full)
        work = _Work(table, stream, scene.moment, self._ground.catalog.now(), action, reason)
        group.works.append(work)
        if is_unasked(stream, action, full=full):
            apply_when_full(table.name, stream.when_full, reason)
        with counting_jobs(self._ground.engine.spark) as counted:
            try:
                work.outcome = self.computer.computed(scene, stream, definition, action)
            except EvaluationError as stopped:
                why = None if action is RefreshAction.FULL else in_full_instead(stopped)
                if why is None:
                    raise
                work.action, work.reason = RefreshAction.FULL, why
                apply_when_full(table.name, stream.when_full, why)
                work.outcome = self.computer.computed(scene, stream, definition, work.action)
        work.jobs = counted.count
        added = self._store(work, scene)
        work.finish(self._ground.catalog.now())
        return added

    def _store(self, work: _Work, scene: Scene) -> AddBatch | None:
        """Write the rows of a refresh, and return those of the stream table itself."""
        writer, outcome, stream = self._ground.writer, work.outcome, work.stream
        work.unmoved[stream.table_id] = scene.snapshot.tables[stream.table_id].moved
        with ThreadPoolExecutor(2) as pool:  # most of writing runs outside of Python's lock
            written = {i: pool.submit(writer.stored, r, outcome.tables[i]) for i, r in outcome.rows.items() if r.count}
        outcome.rows.update({i: w.result() for i, w in written.items() if w.exception() is None})
        visible = None
        for table_id, rows in outcome.rows.items():
            table = outcome.tables[table_id]
            work.unmoved[table_id] = table.moved
            if rows.count == 0:
                continue
            written[table_id].result()
            batch, ids = writer.batch(rows, table)
            work.changes.append(batch)
            work.write_ids += ids
            if table_id == stream.table_id:
                visible = batch
        moment = scene.moment
        read: dict[str, int | None] = {
            s: None if s in scene.foreseen else moment.of(s)
            for s in scene.snapshot.sources[stream.table_id]
            if moment.of(s) != moment.version
        }
        work.changes.append(MoveFrontier(stream.table_id, stream.frontier, moment.version, read))
        return visible

    def _note_failure(self, group: _Group, error: Exception) -> None:
        """Write down which refresh failed, and that those with it came to nothing."""
        catalog = self._ground.catalog
        for work in group.works:
            failed = work is group.works[-1]
            text = str(error) if failed else f"{group.works[-1].table.name}, which is refreshed with it, failed"
            if not work.finished_at:
                work.finish(catalog.now())
            catalog.record(replace(work.record(), status="FAILED" if failed else "ROLLED_BACK", error=text))
            if not failed:
                continue
            if not isinstance(error, BusyError):
                catalog.set_stream_status(work.table.id, work.stream.status, text.splitlines()[0])
            LOG.warning(
                "refresh failed table=%s action=%s error=%s", work.table.name, work.action.value, text.splitlines()[0]
            )


@dataclass(slots=True)
class _Work:
    """One refresh of a group: what it does, and what it has brought so far."""

    table: Table
    stream: StreamTable
    moment: Moment
    started_at: float
    action: RefreshAction
    reason: str
    began: float = field(default_factory=time.perf_counter)
    outcome: Outcome = field(default_factory=lambda: Outcome(0))
    jobs: int = 0
    changes: list[Change] = field(default_factory=list)
    unmoved: dict[str, int] = field(default_factory=dict)
    write_ids: tuple[str, ...] = ()
    finished_at: float = 0.0
    duration_ms: float = 0.0

    @property
    def visible(self) -> Rows:
        return self.outcome.rows.get(self.table.id, Rows(0, 0, 0))

    @property
    def bytes_written(self) -> int:
        return sum(c.batch.bytes for c in self.changes if isinstance(c, AddBatch))

    def finish(self, now: float) -> None:
        """Note that nothing is left but the commit."""
        self.finished_at = now
        self.duration_ms = (time.perf_counter() - self.began) * 1000

    def record(self) -> RefreshRecord:
        """Return the line of history."""
        return RefreshRecord(
            self.table.id,
            self.started_at,
            self.finished_at,
            self.action,
            "COMPLETED",
            self.outcome.rows_in,
            self.visible.inserts,
            self.visible.deletes,
            self.duration_ms,
            self.jobs,
            self.reason,
            self.stream.frontier,
            self.moment.version,
            bytes_written=self.bytes_written,
        )

    def report(self, version: int) -> RefreshReport:
        """Return what the caller is told."""
        return RefreshReport(
            self.table.name,
            self.action,
            self.outcome.rows_in,
            self.visible.inserts,
            self.visible.deletes,
            self.duration_ms,
            self.reason,
            self.jobs,
            version,
            self.outcome.rescanned_groups,
            self.bytes_written,
        )

    def log(self, version: int) -> None:
        LOG.info(
            "refreshed table=%s action=%s rows_in=%d inserted=%d deleted=%d ms=%.0f jobs=%d version=%d",
            self.table.name,
            self.action.value,
            self.outcome.rows_in,
            self.visible.inserts,
            self.visible.deletes,
            self.duration_ms,
            self.jobs,
            version,
        )


@dataclass(slots=True)
class _Group:
    """Refreshes that are committed together."""

    scene: Scene
    leases: tuple[LeaseToken, ...]
    works: list[_Work] = field(default_factory=list)
    foreseen: list[str] = field(default_factory=list)

    def foresee(self, added: AddBatch) -> None:
        """Let the members that follow read what is not committed yet."""
        self.scene = self.scene.with_foreseen(added)
        self.foreseen.append(added.batch.id)

    def commit(self) -> Commit:
        """Return all of it as one commit."""
        return Commit(
            tuple(c for w in self.works for c in w.changes),
            {t: at for w in self.works for t, at in w.unmoved.items()},
            leases=self.leases,
            write_ids=tuple(i for w in self.works for i in w.write_ids),
            history=tuple(w.record() for w in self.works),
        )


def _idle_reason(snapshot: Snapshot, stream: StreamTable, definition: Definition, moment: Moment) -> str | None:
    """Return why a stream table needs no refresh to stand for the moment; None if it does."""
    if stream.frontier is not None and stream.frontier > moment.version:
        return "it stands for a later moment already"
    if not definition.always and not moment.pending(stream, snapshot.sources[stream.table_id]):
        return "no source changed"
    return None


def _live(snapshot: Snapshot, table_id: str) -> tuple[Table, StreamTable]:
    stream = snapshot.streams.get(table_id)
    if stream is None:
        raise BusyError("the stream table was dropped by another process", hint="Nothing was changed.")
    return snapshot.tables[table_id], stream
