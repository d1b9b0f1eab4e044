"""One refresh: choose, evaluate, publish.

Nothing changed: nothing runs. Otherwise the lease of the table is taken, one version is read, the change is computed, and data,
state, frontier and history are one commit. If anything moved meanwhile the commit is refused and nothing has happened.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from enum import Enum

from headwater.catalog import CommitUnknownError, LeaseKeeper, Snapshot
from headwater.engine.cancelling import Cancellation
from headwater.engine.jobs import counting_jobs
from headwater.errors import BusyError, EvaluationError, brief
from headwater.model.commit import AddBatch, Change, Commit, MoveFrontier
from headwater.model.control import Note, Skipped, Trouble, withdrawn
from headwater.model.tables import ACTIVE, REREAD, RefreshAction, RefreshMode, RefreshRecord, StreamTable, Table
from headwater.refresh.computing import Computer
from headwater.refresh.definition import Definition
from headwater.refresh.evaluate import Outcome, check_failure, in_full_instead
from headwater.refresh.moment import Moment, newest
from headwater.refresh.scene import Scene
from headwater.refresh.shared import SharedChanges
from headwater.refresh.when_full import apply_when_full, is_unasked
from headwater.store.ground import Ground
from headwater.store.rows import Rows

LOG = logging.getLogger("headwater.refresh")
LEASES = "refresh:"


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


@dataclass(frozen=True, slots=True)
class Terms:
    """On which terms a refresh runs: who may cancel it, and with whom it shares the changes that it reads.

    `refused` is asked under the lease, when nobody else can begin it any more, and may say why it must not run after all.
    """

    cancellation: Cancellation = field(default_factory=Cancellation)
    shared: SharedChanges | None = None
    refused: Callable[[Snapshot], str | None] = field(default=lambda snapshot: None)


Outcomes = dict[str, "RefreshReport | Exception"]
"""What came of each of several refreshes. Who is not named was left out."""


class Failing(Enum):
    """What becomes of the others where one of several refreshes fails."""

    TOGETHER = "together"
    """Nothing is committed, and the error is raised."""
    CHAIN = "chain"
    """Those before it are committed, those after it are left out."""
    APART = "apart"
    """The others are committed."""


class MemberError(Exception):
    """One of several refreshes failed, and so all of them did."""

    def __init__(self, table_id: str, error: Exception) -> None:
        super().__init__(str(error))
        self.table_id = table_id
        self.error = error


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
        self._lock = threading.Lock()

    def definition(self, stream: StreamTable) -> Definition:
        """Return the parsed definition; texts never change under one key, so they are kept."""
        with self._lock:
            found = self._definitions.get(stream.definition)
            if found is not None:
                self._definitions.move_to_end(stream.definition)
                return found
        found = Definition.from_json(stream.definition)
        with self._lock:
            self._definitions[stream.definition] = found
            while len(self._definitions) > self._ground.settings.template_cache_max_entries:
                self._definitions.popitem(last=False)
        return found

    def refresh(self, table_id: str, *, full: bool = False, at: Moment | None = None) -> RefreshReport:
        """Bring one stream table up to date, or to the moment `at`, if it is not there yet."""
        return self.refresh_together((table_id,), full=full, at=at)[0]

    def refresh_together(
        self, table_ids: Sequence[str], *, full: bool = False, at: Moment | None = None, terms: Terms | None = None
    ) -> list[RefreshReport]:
        """Bring stream tables to one moment in one commit: all of them, or none. Those that others read come first."""
        try:
            outcomes = self.refresh_unit(table_ids, Failing.TOGETHER, full=full, at=at, terms=terms)
        except MemberError as failed:
            raise failed.error from failed.error.__cause__
        return [o for o in outcomes.values() if isinstance(o, RefreshReport)]

    def refresh_unit(
        self,
        table_ids: Sequence[str],
        failing: Failing,
        *,
        full: bool = False,
        at: Moment | None = None,
        terms: Terms | None = None,
    ) -> Outcomes:
        """Bring stream tables to one moment in one commit, and return what came of each."""
        began = time.perf_counter()
        terms = terms or Terms()
        snapshot = self._ground.catalog.snapshot()
        moment = at or newest(snapshot)
        if not full and not any(self._has_work(snapshot, moment, i) for i in table_ids):
            ms = (time.perf_counter() - began) * 1000
            return {i: self._nothing(snapshot, moment, i, ms) for i in table_ids}
        with ExitStack() as held:
            keeper = self._leases(snapshot, table_ids, held)
            snapshot = self._ground.catalog.snapshot()
            refused = terms.refused(snapshot)
            if refused is not None:
                ms = (time.perf_counter() - began) * 1000
                return {i: replace(self._nothing(snapshot, moment, i, ms), reason=refused) for i in table_ids}
            scene = Scene(self._ground, snapshot, at or newest(snapshot), terms.shared)
            group = _Group(scene, keeper, terms.cancellation)
            held.callback(self._ground.reader.forget, group.foreseen)
            return self._locked(group, table_ids, full, failing)

    def _has_work(self, snapshot: Snapshot, moment: Moment, table_id: str) -> bool:
        _, stream = _live(snapshot, table_id)
        return _idle_reason(snapshot, stream, self.definition(stream), moment) is None

    def _nothing(self, snapshot: Snapshot, moment: Moment, table_id: str, ms: float) -> RefreshReport:
        table, stream = _live(snapshot, table_id)
        reason = _idle_reason(snapshot, stream, self.definition(stream), moment) or ""
        return RefreshReport(table.name, RefreshAction.NO_DATA, 0, 0, 0, ms, reason, 0, snapshot.version)

    def _leases(self, snapshot: Snapshot, table_ids: Sequence[str], held: ExitStack) -> LeaseKeeper:
        """Take the leases of all tables, and keep them for as long as `held` is open."""
        catalog, seconds = self._ground.catalog, self._ground.settings.lease_seconds
        names = {lease_name(_live(snapshot, i)[0].id): i for i in table_ids}
        # An owner for this work alone: another thread of this process must not take the leases either.
        taken = catalog.acquire_all(list(names), f"{self._ground.owner}/{uuid.uuid4().hex[:8]}", seconds)
        if isinstance(taken, str):
            holder = catalog.lease_holder(taken)
            raise BusyError(
                f'stream table "{snapshot.tables[names[taken]].name}" is being refreshed by another process',
                detail=f"The lease is held by {holder.owner}." if holder else None,
                hint="Try again when it has finished; nothing was changed.",
            )
        return held.enter_context(catalog.keep_leases(taken, seconds))

    def _locked(self, group: _Group, table_ids: Sequence[str], full: bool, failing: Failing) -> Outcomes:
        """Compute one table after the other, and commit them all, or those that did not fail."""
        catalog = self._ground.catalog
        failed: dict[str, Exception] = {}
        current = table_ids[0]
        try:
            for current in table_ids:
                begun = len(group.works)
                try:
                    added = self._compute(group, current, full)
                except Exception as error:
                    if failing is Failing.TOGETHER or group.cancellation.is_cancelled:
                        raise
                    failed[current] = _told(error, group.cancellation)
                    self._leave_out(group, begun, error)
                    if failing is Failing.CHAIN:
                        break
                    continue
                if added is not None and failing is not Failing.APART and current != table_ids[-1]:
                    group.foresee(added)
            group.cancellation.check()
            committing = time.perf_counter()
            version = catalog.commit(group.commit()) if group.works else group.scene.snapshot.version
            if group.works:
                group.keeper.given_back()
            took = (time.perf_counter() - committing) * 1000
        except Exception as error:
            if not isinstance(error, CommitUnknownError):
                for work in group.works:
                    self._discard(work)
            told = _told(error, group.cancellation)
            self._note_failure(group, told)
            told.__cause__ = error if told is not error else error.__cause__
            raise MemberError(current, told) from error
        for work in group.works:
            self._recovered(group.scene.snapshot, work)
            work.duration_ms += took / len(group.works)
            work.log(version)
        done: Outcomes = {w.table.id: w.report(version) for w in group.works}
        left_out = list(table_ids)[list(table_ids).index(current) + 1 :] if current in failed else []
        for table_id in table_ids:
            if table_id in failed:
                done[table_id] = failed[table_id]
            elif table_id not in done and table_id not in left_out:
                done[table_id] = self._nothing(group.scene.snapshot, group.scene.moment, table_id, 0.0)
        return {i: done[i] for i in table_ids if i in done}

    def _recovered(self, snapshot: Snapshot, work: _Work) -> None:
        """Forget failures of a table that was refreshed, and what was left out of one that was computed anew."""
        table_id = work.table.id
        if work.stream.status != ACTIVE or work.stream.last_error:
            self._ground.catalog.set_stream_status(table_id, ACTIVE, None)
        kinds: list[type[Note]] = [Trouble]
        if work.action is not RefreshAction.DIFFERENTIAL:
            kinds.append(Skipped)
        self._ground.catalog.note(
            [withdrawn(k, table_id) for k in kinds if snapshot.notes.get(k, table_id) is not None]
        )

    def _leave_out(self, group: _Group, begun: int, error: Exception) -> None:
        """Go on without the refresh that failed."""
        lost = _Group(group.scene, group.keeper, group.cancellation, group.works[begun:])
        del group.works[begun:]
        for work in lost.works:
            self._discard(work)
        self._note_failure(lost, error)

    def _discard(self, work: _Work) -> None:
        for rows in work.outcome.rows.values():
            self._ground.writer.discard(rows)

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
        with counting_jobs(self._ground.engine.spark, group.cancellation) as counted:
            try:
                group.cancellation.check()
                work.outcome = self.computer.computed(scene, stream, definition, action)
            except EvaluationError as stopped:
                group.cancellation.check()
                why = None if action is RefreshAction.FULL else in_full_instead(stopped)
                if why is None:
                    raise
                work.action, work.reason = RefreshAction.FULL, why
                apply_when_full(table.name, stream.when_full, why)
                work.outcome = self.computer.computed(scene, stream, definition, work.action)
        work.jobs = counted.count
        group.cancellation.check()
        added = self._store(work, scene)
        work.finish(self._ground.catalog.now())
        work.changes.append(work.move(scene))
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
                catalog.set_stream_error(work.table.id, brief(error))
            LOG.warning("refresh failed table=%s action=%s error=%s", work.table.name, work.action.value, brief(error))


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

    def move(self, scene: Scene) -> MoveFrontier:
        """Return how far the table comes."""
        moment, stream = self.moment, self.stream
        read: dict[str, int | None] = {
            s: None if s in scene.foreseen else moment.of(s)
            for s in scene.snapshot.sources[stream.table_id]
            if moment.of(s) != moment.version
        }
        return MoveFrontier(
            stream.table_id, stream.frontier, moment.version, read, began=self.started_at, ms=self.duration_ms
        )

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
    keeper: LeaseKeeper
    cancellation: Cancellation
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
            leases=self.keeper.tokens,
            releases=True,
            write_ids=tuple(i for w in self.works for i in w.write_ids),
            history=tuple(w.record() for w in self.works),
        )


def _told(error: Exception, cancellation: Cancellation) -> Exception:
    """Return a failure as it is told: what Spark says of a job that was cancelled is not the reason."""
    if cancellation.is_cancelled and isinstance(error, EvaluationError):
        return cancellation.error()
    return check_failure(error) if isinstance(error, EvaluationError) else error


def lease_name(table_id: str) -> str:
    """Return the name of the lease under which a stream table is refreshed."""
    return f"{LEASES}{table_id}"


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
