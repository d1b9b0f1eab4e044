"""Computing a refresh: what a stream table and its state have to change, from the changes of the sources or from all their rows.

Nothing here commits, and nothing chooses: that is done in `cycle.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from headwater.catalog import Snapshot
from headwater.engine.identity import equal_sql, keys_equal_sql
from headwater.engine.session import FULL_POOL, SMALL_POOL
from headwater.engine.texts import named_views
from headwater.engine.worker import Frame, Worker
from headwater.errors import EndlessRecursionError, EvaluationError
from headwater.model.sql import quoted
from headwater.model.tables import RefreshAction, RefreshMode, StreamTable, Table
from headwater.refresh.definition import Definition
from headwater.refresh.evaluate import Evaluation, Outcome
from headwater.refresh.places import RefreshInput
from headwater.refresh.scene import Scene
from headwater.refresh.template import filled
from headwater.store.ground import Ground
from headwater.store.netting import net_changes_sql
from headwater.store.reading import Source
from headwater.store.rows import ACTION, WEIGHT, Rows


class Computer:
    """Computes refreshes on one ground."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground

    def computed(self, scene: Scene, stream: StreamTable, definition: Definition, action: RefreshAction) -> Outcome:
        """Return what the stream table and its state have to change to stand for the moment of the scene."""
        pool = SMALL_POOL if action is RefreshAction.DIFFERENTIAL else FULL_POOL
        with self._ground.engine.worker(stream.table_id) as worker, worker.in_pool(pool):
            worker.configure(definition.meaning)
            if action is not RefreshAction.DIFFERENTIAL:
                return self.whole(worker, scene, stream, definition)
            given = self.refresh_input(scene, stream, definition)
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

    def refresh_input(self, scene: Scene, stream: StreamTable, definition: Definition) -> RefreshInput:
        """Collect what the texts read."""
        assert definition.template is not None
        states = state_tables(scene.snapshot, stream.table_id)
        read = scene.snapshot.sources[stream.table_id]
        ids = [*read, stream.table_id, *(t.id for t in states.values())]
        sources = scene.sources(ids)
        return RefreshInput(
            target=sources[stream.table_id],
            template=definition.template,
            sources=sources,
            states={name: sources[t.id] for name, t in states.items()},
            since={s: stream.frontier_of(s) if stream.frontier is not None else 0 for s in read},
            upto={s: scene.moment.of(s) for s in read},
            version=scene.snapshot.version,
            shared=scene.shared,
        )

    def whole(self, worker: Worker, scene: Scene, stream: StreamTable, definition: Definition) -> Outcome:
        """Compute everything afresh and publish the difference to what is there."""
        sources = scene.sources(scene.snapshot.sources[stream.table_id])
        rows_in = sum(s.table.row_count for s in sources.values())
        outcome = Outcome(rows_in)
        worker.size_for(rows_in)
        if definition.template is None or stream.mode is RefreshMode.FULL:
            frame = self.full_query(worker, scene, definition)
            target = scene.source(stream.table_id)
            frame = worker.sql(
                f"SELECT {', '.join(quoted(f.name) for f in target.table.schema.fields)} FROM {worker.view(frame)}"
            )
            outcome.add(target.table, self._difference(worker, scene, target, frame))
            return outcome
        given = self.refresh_input(scene, stream, definition)
        evaluation = self._evaluation(worker)
        for stage in definition.template.states:
            state = given.states[stage.name]
            frame = evaluation.whole_state(stage, given)
            if state.table.row_count == 0 and not state.manifest.batches:
                frame = _clustered(worker, frame, state.table, rows_in)
                rows = self._ground.writer.inserted(worker, frame, state.table)
                frame = worker.read_parquet(self._ground.layout.paths(rows.files), state.table.schema.fields)
            else:
                frame = worker.persisted(frame)
                rows = self._difference(worker, scene, state, frame)
            evaluation.show_state(stage, frame)
            outcome.add(state.table, rows)
        outcome.add(given.target.table, self._difference(worker, scene, given.target, evaluation.whole_result(given)))
        return outcome

    def full_query(self, worker: Worker, scene: Scene, definition: Definition, *, measured: bool = False) -> Frame:
        """Return the query's result at the scene's moment; `measured`: with the scales of its floating-point sums."""
        if definition.named:
            frames = self.named_frames(worker, scene, definition.text)
            with named_views(worker, frames):
                return worker.sql(definition.text)

        def place(kind: str, name: str, number: int) -> str:
            return worker.view(scene.visible(worker, name))

        text = definition.measured if measured and definition.scales else definition.text
        return worker.sql(filled(text, place))

    def named_frames(self, worker: Worker, scene: Scene, text: str) -> Mapping[str, Frame]:
        """Return the tables that a text may mean, under their names."""
        from headwater.source.mentions import mentioned_tables

        return {t.name: scene.visible(worker, t.id) for t in mentioned_tables(text, scene.snapshot)}

    def _difference(self, worker: Worker, scene: Scene, source: Source, frame: Frame) -> Rows:
        """Return the change rows between what is stored and what should be."""
        table = source.table
        if table.row_count == 0 and not source.manifest.batches:
            return self._ground.writer.inserted(worker, frame, table)
        old = worker.view(self._ground.reader.state(worker, source, scene.snapshot.version))
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


def state_tables(snapshot: Snapshot, table_id: str) -> dict[str, Table]:
    """Return the auxiliary tables of a stream table by the name of their stage."""
    parts = (snapshot.tables[i] for i in snapshot.parts.get(table_id, ()))
    return {t.name.rpartition("$")[2]: t for t in parts}
