"""One refresh: choose, evaluate, publish.

Nothing changed: nothing runs. Otherwise the lease of the table is taken, one version is read, the change is computed, and data,
state, frontier and history are one commit. If anything moved meanwhile the commit is refused and nothing has happened.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from headwater.catalog import CommitUnknownError, Snapshot
from headwater.engine.identity import equal_sql, keys_equal_sql
from headwater.engine.jobs import counting_jobs
from headwater.engine.texts import named_views
from headwater.engine.worker import Frame, Worker
from headwater.errors import BusyError, EndlessRecursionError, EvaluationError
from headwater.model.commit import Change, Commit, LeaseToken, MoveFrontier
from headwater.model.sql import quoted
from headwater.model.tables import ACTIVE, REREAD, RefreshAction, RefreshMode, RefreshRecord, StreamTable, Table
from headwater.refresh.definition import Definition
from headwater.refresh.evaluate import Evaluation, Outcome, check_failure, in_full_instead
from headwater.refresh.moment import Moment, newest
from headwater.refresh.places import RefreshInput
from headwater.refresh.template import filled
from headwater.refresh.when_full import apply_when_full, is_unasked
from headwater.store.ground import Ground
from headwater.store.netting import net_changes_sql
from headwater.store.reading import Source
from headwater.store.rows import ACTION, WEIGHT, Rows

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
        began = time.perf_counter()
        snapshot = self._ground.catalog.snapshot()
        table, stream = _live(snapshot, table_id)
        definition = self.definition(stream)
        reason = _nothing_to_do(snapshot, stream, definition, at or newest(snapshot))
        if reason and not full:
            ms = (time.perf_counter() - began) * 1000
            return RefreshReport(table.name, RefreshAction.NO_DATA, 0, 0, 0, ms, reason, 0, snapshot.version)
        lease = self._lease(table)
        with self._ground.catalog.keep_lease(lease, self._ground.settings.lease_seconds):
            return self._locked(table_id, lease, full, at, began)

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

    def _locked(self, table_id: str, lease: LeaseToken, full: bool, at: Moment | None, began: float) -> RefreshReport:
        started_at = self._ground.catalog.now()
        snapshot = self._ground.catalog.snapshot()
        table, stream = _live(snapshot, table_id)
        moment = at or newest(snapshot)
        definition = self.definition(stream)
        action, reason = chosen(stream, definition, full=full)
        record = RefreshRecord(
            table_id,
            started_at,
            started_at,
            action,
            "FAILED",
            0,
            0,
            0,
            0.0,
            0,
            reason,
            stream.frontier,
            moment.version,
        )
        jobs = 0
        outcome = Outcome(0)
        try:
            if is_unasked(stream, action, full=full):
                apply_when_full(table.name, stream.when_full, reason)
            with counting_jobs(self._ground.engine.spark) as counted:
                try:
                    outcome = self._computed(snapshot, moment, stream, definition, action)
                except EvaluationError as stopped:
                    why = None if action is RefreshAction.FULL else in_full_instead(stopped)
                    if why is None:
                        raise
                    action, reason = RefreshAction.FULL, why
                    record = replace(record, action=action, reason=reason)
                    apply_when_full(table.name, stream.when_full, reason)
                    outcome = self._computed(snapshot, moment, stream, definition, action)
            jobs = counted.count
            changes, unmoved, write_ids = self._changes(snapshot, moment, stream, outcome)
            visible = outcome.rows.get(table_id, Rows(0, 0, 0))
            duration = (time.perf_counter() - began) * 1000
            size = sum(c.batch.bytes for c in changes if hasattr(c, "batch"))
            record = replace(
                record,
                finished_at=self._ground.catalog.now(),
                status="COMPLETED",
                rows_in=outcome.rows_in,
                rows_inserted=visible.inserts,
                rows_deleted=visible.deletes,
                duration_ms=duration,
                spark_jobs=jobs,
                bytes_written=size,
            )
            version = self._ground.catalog.commit(
                Commit(tuple(changes), unmoved, leases=(lease,), write_ids=write_ids, history=(record,))
            )
        except Exception as error:
            if not isinstance(error, CommitUnknownError):
                for rows in outcome.rows.values():
                    self._ground.writer.discard(rows)
            duration = (time.perf_counter() - began) * 1000
            failed = replace(
                record, finished_at=self._ground.catalog.now(), status="FAILED", duration_ms=duration, error=str(error)
            )
            self._ground.catalog.record(failed)
            if not isinstance(error, BusyError):
                self._ground.catalog.set_stream_status(table_id, stream.status, str(error).splitlines()[0])
            LOG.warning(
                "refresh failed table=%s action=%s error=%s", table.name, action.value, str(error).splitlines()[0]
            )
            if isinstance(error, EvaluationError):
                raise check_failure(error) from error
            raise
        duration = (time.perf_counter() - began) * 1000
        if stream.status != ACTIVE or stream.last_error:
            self._ground.catalog.set_stream_status(table_id, ACTIVE, None)
        LOG.info(
            "refreshed table=%s action=%s rows_in=%d inserted=%d deleted=%d ms=%.0f jobs=%d version=%d",
            table.name,
            action.value,
            outcome.rows_in,
            visible.inserts,
            visible.deletes,
            duration,
            jobs,
            version,
        )
        return RefreshReport(
            table.name,
            action,
            outcome.rows_in,
            visible.inserts,
            visible.deletes,
            duration,
            reason,
            jobs,
            version,
            outcome.rescanned_groups,
            size,
        )

    def _changes(
        self, snapshot: Snapshot, moment: Moment, stream: StreamTable, outcome: Outcome
    ) -> tuple[list[Change], dict[str, int], tuple[str, ...]]:
        changes: list[Change] = []
        write_ids: list[str] = []
        unmoved = {stream.table_id: snapshot.tables[stream.table_id].moved}
        writer = self._ground.writer
        with ThreadPoolExecutor(2) as pool:  # most of writing runs outside of Python's lock
            written = {i: pool.submit(writer.stored, r, outcome.tables[i]) for i, r in outcome.rows.items() if r.count}
        outcome.rows.update({i: w.result() for i, w in written.items() if w.exception() is None})
        for table_id, rows in outcome.rows.items():
            table = outcome.tables[table_id]
            unmoved[table_id] = table.moved
            if rows.count == 0:
                continue
            written[table_id].result()
            batch, ids = writer.batch(rows, table)
            changes.append(batch)
            write_ids += ids
        read = {s: moment.of(s) for s in snapshot.sources[stream.table_id] if moment.of(s) != moment.version}
        changes.append(MoveFrontier(stream.table_id, stream.frontier, moment.version, read))
        return changes, unmoved, tuple(write_ids)

    # computing --------------------------------------------------------------------------------------------------------------

    def _computed(
        self, snapshot: Snapshot, moment: Moment, stream: StreamTable, definition: Definition, action: RefreshAction
    ) -> Outcome:
        with self._ground.engine.worker() as worker:
            worker.configure(definition.meaning)
            if action is not RefreshAction.DIFFERENTIAL:
                return self.whole(worker, snapshot, moment, stream, definition)
            given = self.refresh_input(snapshot, moment, stream, definition)
            try:
                return self._evaluation(worker).differential(given)
            except EndlessRecursionError:
                raise
            except EvaluationError:
                # A row that cannot be evaluated may be gone again: then nothing is wrong with what is left.
                return self._evaluation(worker).differential(given, netted=True)

    def _evaluation(self, worker: Worker) -> Evaluation:
        g = self._ground
        return Evaluation(worker, g.reader, g.writer, g.layout, g.settings.local_relation_max_rows)

    def refresh_input(
        self, snapshot: Snapshot, moment: Moment, stream: StreamTable, definition: Definition
    ) -> RefreshInput:
        """Collect what the texts read."""
        assert definition.template is not None
        states = state_tables(snapshot, stream.table_id)
        read = snapshot.sources[stream.table_id]
        ids = [*read, stream.table_id, *(t.id for t in states.values())]
        sources = self._ground.sources(snapshot, ids)
        return RefreshInput(
            target=sources[stream.table_id],
            template=definition.template,
            sources=sources,
            states={name: sources[t.id] for name, t in states.items()},
            since={s: stream.frontier_of(s) if stream.frontier is not None else 0 for s in read},
            upto={s: moment.of(s) for s in read},
            version=snapshot.version,
        )

    def whole(
        self, worker: Worker, snapshot: Snapshot, moment: Moment, stream: StreamTable, definition: Definition
    ) -> Outcome:
        """Compute everything afresh and publish the difference to what is there."""
        sources = self._ground.sources(snapshot, snapshot.sources[stream.table_id])
        rows_in = sum(s.table.row_count for s in sources.values())
        outcome = Outcome(rows_in)
        worker.size_for(rows_in)
        if definition.template is None or stream.mode is RefreshMode.FULL:
            frame = self.full_query(worker, snapshot, definition, moment.of)
            target = self._ground.source(snapshot, snapshot.tables[stream.table_id])
            frame = worker.sql(
                f"SELECT {', '.join(quoted(f.name) for f in target.table.schema.fields)} FROM {worker.view(frame)}"
            )
            outcome.add(target.table, self._difference(worker, snapshot, target, frame))
            return outcome
        given = self.refresh_input(snapshot, moment, stream, definition)
        evaluation = self._evaluation(worker)
        for stage in definition.template.states:
            state = given.states[stage.name]
            frame = evaluation.whole_state(stage, given)
            if state.table.row_count == 0 and not state.manifest.batches:
                frame = _clustered(worker, frame, state.table, rows_in)
                rows = self._ground.writer.inserted(worker, frame, state.table)
                frame = worker.read_parquet(self._ground.layout.paths(rows.files), state.table.schema.fields)
            else:
                frame = frame.persist()
                rows = self._difference(worker, snapshot, state, frame)
            evaluation.show_state(stage, frame)
            outcome.add(state.table, rows)
        outcome.add(
            given.target.table, self._difference(worker, snapshot, given.target, evaluation.whole_result(given))
        )
        return outcome

    def full_query(
        self,
        worker: Worker,
        snapshot: Snapshot,
        definition: Definition,
        version_of: Callable[[str], int],
        *,
        measured: bool = False,
    ) -> Frame:
        """Return the query's result over its sources, each at its version; `measured`: with the scales of its floating-point sums."""
        if definition.named:
            frames = self.named_frames(worker, snapshot, definition.text, version_of)
            with named_views(worker, frames):
                return worker.sql(definition.text)

        def place(kind: str, name: str, number: int) -> str:
            source = self._ground.source(snapshot, snapshot.tables[name])
            return worker.view(self._ground.reader.state(worker, source, version_of(name), source.table.schema.visible))

        text = definition.measured if measured and definition.scales else definition.text
        return worker.sql(filled(text, place))

    def named_frames(
        self, worker: Worker, snapshot: Snapshot, text: str, version_of: Callable[[str], int]
    ) -> Mapping[str, Frame]:
        """Return the tables that a text may mean, under their names."""
        from headwater.source.mentions import mentioned_tables

        frames = {}
        for table in mentioned_tables(text, snapshot):
            source = self._ground.source(snapshot, table)
            frames[table.name] = self._ground.reader.state(worker, source, version_of(table.id), table.schema.visible)
        return frames

    def _difference(self, worker: Worker, snapshot: Snapshot, source: Source, frame: Frame) -> Rows:
        """Return the change rows between what is stored and what should be."""
        table = source.table
        if table.row_count == 0 and not source.manifest.batches:
            return self._ground.writer.inserted(worker, frame, table)
        old = worker.view(self._ground.reader.state(worker, source, snapshot.version))
        new = worker.view(frame)
        return self._ground.writer.materialised(worker, worker.sql(difference_sql(old, new, table)), table, None)


def _clustered(worker: Worker, frame: Frame, table: Table, rows: int) -> Frame:
    """Order a large state by its key, so that later reads of few groups can skip most of it."""
    if rows < 200_000:
        return frame
    view = worker.view(frame)
    key = ", ".join(quoted(k) for k in table.schema.key)
    return worker.sql(
        f"SELECT /*+ REPARTITION_BY_RANGE({max(2, rows // 500_000)}, {key}) */ * FROM {view} SORT BY {key}"
    )


def difference_sql(old: str, new: str, table: Table) -> str:
    """Return the rows that must go and those that must come, to make `old` equal to `new`."""
    fields = table.schema.fields
    names = ", ".join(quoted(f.name) for f in fields)
    if not table.schema.key:
        signed = f"SELECT {names}, 1 AS {WEIGHT} FROM {new} UNION ALL SELECT {names}, -1 AS {WEIGHT} FROM {old}"
        return net_changes_sql(f"({signed})", fields)
    key = [f for f in fields if f.name in table.schema.key]
    differs = " OR ".join(f"NOT {equal_sql(f'o.{quoted(f.name)}', f'n.{quoted(f.name)}', f.type)}" for f in fields)

    def row(side: str, action: str) -> str:
        return f"struct({', '.join(f'{side}.{quoted(f.name)} AS {quoted(f.name)}' for f in fields)}, '{action}' AS {ACTION})"

    return (
        f"SELECT inline(CASE WHEN o.__there IS NULL THEN array({row('n', 'I')}) "
        f"WHEN n.__there IS NULL THEN array({row('o', 'D')}) WHEN {differs} THEN array({row('o', 'D')}, {row('n', 'I')}) END) "
        f"FROM (SELECT *, true AS __there FROM {old}) o FULL OUTER JOIN (SELECT *, true AS __there FROM {new}) n "
        f"ON {keys_equal_sql('o', 'n', key)}"
    )


def _nothing_to_do(snapshot: Snapshot, stream: StreamTable, definition: Definition, moment: Moment) -> str | None:
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


def state_tables(snapshot: Snapshot, table_id: str) -> dict[str, Table]:
    """Return the auxiliary tables of a stream table by the name of their stage."""
    return {t.name.rpartition("$")[2]: t for t in snapshot.tables.values() if t.parent_id == table_id}
