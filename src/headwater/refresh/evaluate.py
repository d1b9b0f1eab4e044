"""Evaluating a template: one change travels through the stages of a delta program.

Each stage is run once and its rows are kept, in memory or in a file of the tail that is also its published form. Later stages
and the result read those rows, so state and result can never disagree about what was computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from headwater.engine.identity import row_hash_sql
from headwater.engine.worker import Frame, Worker
from headwater.errors import CheckFailedError, EvaluationError
from headwater.model.schema import Field
from headwater.model.sql import quoted
from headwater.model.tables import Table
from headwater.plan.printer import BROADCAST_HINT
from headwater.refresh.template import StageText, Template, Text
from headwater.store.layout import Bound, Layout, column_bounds
from headwater.store.reading import Changes, Reader, Source, net_sql
from headwater.store.rows import ACTION, CHANGED, HASH, WEIGHT, Rows, arrow_rows
from headwater.store.writing import Writer

_RESCAN = "__rescan"
_PAIRED = "__paired"
_BROADCAST_ROWS = 2_000_000


@dataclass(frozen=True, slots=True)
class RefreshInput:
    """What a refresh reads: the stream table, the tables below it, its state, and the versions between which it moves."""

    target: Source
    template: Template
    sources: Mapping[str, Source]
    states: Mapping[str, Source]
    frontier: int
    version: int


@dataclass(slots=True)
class Outcome:
    """The change rows of every table that a refresh writes, and how many rows it read."""

    rows_in: int
    rows: dict[str, Rows] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    rescanned_groups: int = 0

    def add(self, table: Table, rows: Rows) -> None:
        self.tables[table.id] = table
        self.rows[table.id] = rows


class Evaluation:
    """One refresh being computed by one worker."""

    def __init__(self, worker: Worker, reader: Reader, writer: Writer, layout: Layout, local_rows: int) -> None:
        self._worker = worker
        self._reader = reader
        self._writer = writer
        self._layout = layout
        self._local_rows = local_rows
        self._views: dict[tuple[str, str], str] = {}
        self._stage_rows: dict[str, int] = {}

    # differential -----------------------------------------------------------------------------------------------------------

    def differential(self, given: RefreshInput) -> Outcome:
        """Compute the change of every state and of the result from the changes of the sources."""
        total, inserts_only = self._load_changes(given)
        outcome = Outcome(total)
        self._worker.size_for(total)
        bound = total
        for stage in given.template.stages:
            bound = self._run_stage(stage, given, total, outcome)
        target = given.target.table
        delta = given.template.delta
        text = self._fill(delta, {}, given)
        items = [f"{c} AS {quoted(f.name)}" for c, f in zip(given.template.output, target.schema.fields, strict=True)]
        weight = given.template.weight
        selected = f"SELECT {', '.join(items)}, CASE WHEN {weight} > 0 THEN 'I' ELSE 'D' END AS {ACTION}, {weight} AS {WEIGHT} FROM ({text})"
        expected = sum(self._stage_rows.values()) * delta.fanout if given.template.stages else bound * delta.fanout
        if not target.schema.key or not (self._writer.fits_in_memory(target.schema.fields, expected) or inserts_only):
            selected = _netted(selected, target.schema.fields, self._worker)
        rows = self._writer.materialised(self._worker, self._worker.sql(selected), target, expected)
        outcome.add(target, rows)
        return outcome

    def _load_changes(self, given: RefreshInput) -> tuple[int, bool]:
        total = 0
        inserts_only = True
        for table_id, names in given.template.source_reads("changes").items():
            source = given.sources[table_id]
            fields = _fields(source.table, [n for n in names if n != WEIGHT])
            changes = self._reader.changes(self._worker, source, given.frontier, given.version, fields)
            total += changes.count
            inserts_only = inserts_only and changes.deletes == 0
            self._views["changes", table_id] = self._worker.view(self._relevant(changes, source.table, fields))
        return total, inserts_only

    def _relevant(self, changes: Changes, table: Table, fields: Sequence[Field]) -> Frame:
        """Leave out updates that changed none of the columns read."""
        positions = {f.name: i for i, f in enumerate(table.schema.fields)}
        words: dict[int, int] = {}
        for f in fields:
            word, bit = divmod(positions[f.name], 63)
            words[word] = words.get(word, 0) | 1 << bit
        view = self._worker.view(changes.frame)
        tests = " OR ".join(f"(coalesce(get({CHANGED}, {w}), 0L) & {m}L) <> 0" for w, m in words.items()) or "false"
        columns = "".join(quoted(f.name) + ", " for f in fields)
        return self._worker.sql(f"SELECT {columns}{WEIGHT} FROM {view} WHERE {CHANGED} IS NULL OR {tests}")

    # stages -----------------------------------------------------------------------------------------------------------------

    def _run_stage(self, stage: StageText, given: RefreshInput, total: int, outcome: Outcome) -> int:
        state = given.states[stage.name]
        bounds: dict[str, Bound] = {}
        expected = (total + sum(self._stage_rows.values())) * stage.keys.fanout
        keys_text = self._fill(stage.keys, {}, given)
        keys_table: pa.Table | None = None
        if expected <= self._local_rows:
            keys_table = self._worker.to_arrow(self._worker.sql(keys_text))
            expected = keys_table.num_rows
            keys_frame = self._worker.from_arrow(keys_table, stage.keys.fields())
            bounds = column_bounds(keys_table, [n for n, _ in stage.keys.columns[: stage.groups]])
        else:
            keys_frame = self._worker.sql(keys_text)
        self._views["stage", stage.keys_name] = self._worker.view(keys_frame)
        if expected == 0:
            self._publish_stage(stage, state.table, Rows(0, 0, 0, arrow=None), outcome, empty=True)
            return 0
        key_names = [n for n, _ in stage.keys.columns[: stage.groups]]
        old = None
        if keys_table is not None:
            renamed = keys_table.select(key_names).rename_columns([f"g{i}" for i in range(stage.groups)])
            old = self._reader.state_of_keys(self._worker, state, given.version, state.table.schema.fields, renamed)
        delta = stage.delta if old is None else stage.delta_of_keys
        if old is None:
            state_bounds = {f"g{i}": bounds[n] for i, n in enumerate(key_names) if n in bounds}
            old = self._reader.state(self._worker, state, given.version, bounds=state_bounds)
        self._views["old", stage.name] = self._worker.view(old)
        text = self._stage_select(stage, self._fill(delta, {}, given), expected)
        if self._writer.fits_in_memory(state.table.schema.fields, 2 * expected):
            rows, extra = self._stage_in_memory(stage, text, key_names, bounds, given, outcome)
        else:
            rows, extra = self._stage_in_files(stage, text, key_names, given, outcome, state.table), None
        self._publish_stage(stage, state.table, rows, outcome, paired=extra)
        return rows.count

    def _stage_select(self, stage: StageText, text: str, expected: int) -> str:
        if expected > _BROADCAST_ROWS:
            text = text.replace(BROADCAST_HINT, "")
        fields = stage.table_schema.fields
        items = [f"{c} AS {quoted(f.name)}" for c, f in zip(stage.columns, fields, strict=True)]
        action = f"CASE WHEN {stage.weight} > 0 THEN 'I' ELSE 'D' END AS {ACTION}"
        flags = f"{stage.flag} AS {_RESCAN}, {stage.paired} AS {_PAIRED}"
        inner = f"SELECT {', '.join(items)}, {action}, {flags} FROM ({text})"
        return f"SELECT *, {row_hash_sql(fields)} AS {HASH} FROM ({inner})"

    def _stage_in_memory(
        self,
        stage: StageText,
        text: str,
        key_names: Sequence[str],
        bounds: Mapping[str, Bound],
        given: RefreshInput,
        outcome: Outcome,
    ) -> tuple[Rows, pa.Table | None]:
        table = self._worker.to_arrow(self._worker.sql(text))
        rescan = self._rescan_keys(stage, table, key_names)
        if rescan is not None:
            self._views["stage", stage.rescan_name] = rescan
            fresh = self._worker.to_arrow(self._worker.sql(self._fresh_rows(stage, bounds, given)))
            outcome.rescanned_groups += fresh.num_rows
            if not stage.always_rescan:
                table = table.filter(pc.invert(pc.and_(table.column(_RESCAN), pc.equal(table.column(ACTION), "I"))))
            table = pa.concat_tables([table, fresh.cast(table.schema)])
        paired = table.select([*(f.name for f in stage.table_schema.fields), ACTION, _PAIRED])
        rows = arrow_rows(table.drop_columns([_RESCAN, _PAIRED]))
        return rows, paired if _uses(given.template, stage.paired) else None

    def _rescan_keys(self, stage: StageText, table: pa.Table, key_names: Sequence[str]) -> str | None:
        """Return a view of the groups that must be read again, None if there are none."""
        columns = [name for name, _ in stage.rescan_columns]
        if stage.always_rescan:
            view = self._views["stage", stage.keys_name]
            items = ", ".join(f"{k} AS {c}" for k, c in zip(key_names, columns, strict=True))
            return self._worker.view(self._worker.sql(f"SELECT DISTINCT {items} FROM {view}"))
        flagged = table.filter(table.column(_RESCAN))
        if flagged.num_rows == 0:
            return None
        groups = flagged.select([f"g{i}" for i in range(stage.groups)]).rename_columns(columns)
        fields = [Field(c, f.type) for c, f in zip(columns, stage.table_schema.fields, strict=False)]
        return self._worker.view(self._worker.from_arrow(groups, fields))

    def _fresh_rows(self, stage: StageText, bounds: Mapping[str, Bound], given: RefreshInput) -> str:
        """Return the text that reads the state of the groups in the rescan stage from the sources."""
        limits: dict[str, dict[str, Bound]] = {}
        for (name, _), origin in zip(stage.keys.columns[: stage.groups], stage.source_groups, strict=False):
            if origin is not None and name in bounds:
                limits.setdefault(origin[0], {})[origin[1]] = bounds[name]
        text = self._fill(stage.rescan, limits, given)
        fields = stage.table_schema.fields
        items = [f"{c} AS {quoted(f.name)}" for c, f in zip(stage.columns, fields, strict=True)]
        inner = f"SELECT {', '.join(items)}, 'I' AS {ACTION}, false AS {_RESCAN}, false AS {_PAIRED} FROM ({text})"
        return f"SELECT *, {row_hash_sql(fields)} AS {HASH} FROM ({inner})"

    def _stage_in_files(
        self, stage: StageText, text: str, key_names: Sequence[str], given: RefreshInput, outcome: Outcome, table: Table
    ) -> Rows:
        """Like `_stage_in_memory` for changes that do not fit the driver."""
        frame = self._worker.sql(text).persist()
        try:
            view = self._worker.view(frame)
            columns = [name for name, _ in stage.rescan_columns]
            if stage.always_rescan:
                keys = f"SELECT DISTINCT {_renamed(key_names, columns)} FROM {self._views['stage', stage.keys_name]}"
                needed = True
            else:
                groups = [f"g{i}" for i in range(stage.groups)]
                keys = f"SELECT {_renamed(groups, columns)} FROM {view} WHERE {_RESCAN}"
                needed = bool(self._worker.rows(self._worker.sql(f"SELECT 1 FROM {view} WHERE {_RESCAN} LIMIT 1")))
            selected = f"SELECT * FROM {view}"
            if needed:
                self._views["stage", stage.rescan_name] = self._worker.view(self._worker.sql(keys))
                fresh = self._fresh_rows(stage, {}, given)
                keep = "" if stage.always_rescan else f" WHERE NOT ({_RESCAN} AND {ACTION} = 'I')"
                selected = f"SELECT * FROM {view}{keep} UNION ALL SELECT * FROM ({fresh})"
            if _uses(given.template, stage.paired):
                signed = f"SELECT *, CASE WHEN {ACTION} = 'I' THEN 1 ELSE -1 END AS {WEIGHT} FROM ({selected})"
                self._views["stage", stage.name] = self._worker.view(self._worker.sql(_stage_columns(stage, signed)))
            signed = f"SELECT *, CASE WHEN {ACTION} = 'I' THEN 1 ELSE -1 END AS {WEIGHT} FROM ({selected})"
            netted = _netted(signed, table.schema.fields, self._worker)
            return self._writer.materialised(self._worker, self._worker.sql(netted), table, None)
        finally:
            if not _uses(given.template, stage.paired):
                frame.unpersist()

    def _publish_stage(
        self,
        stage: StageText,
        table: Table,
        rows: Rows,
        outcome: Outcome,
        *,
        paired: pa.Table | None = None,
        empty: bool = False,
    ) -> None:
        """Make the rows of a stage readable for those that follow."""
        fields = stage.table_schema.fields
        self._stage_rows[stage.name] = rows.count
        if empty:
            weight = (Field(stage.weight, "INT"), Field(stage.paired, "BOOLEAN"))
            self._views["stage", stage.name] = self._worker.view(self._worker.empty((*stage.state, *weight)))
            return
        if rows.arrow is not None and rows.count > self._local_rows:
            rows = self._writer.spilled(rows, table)
        outcome.add(table, rows)
        if ("stage", stage.name) in self._views:
            return
        stored = (*fields, Field(ACTION, "STRING"))
        if paired is not None:
            frame = self._worker.from_arrow(paired, (*stored, Field(_PAIRED, "BOOLEAN")))
        elif rows.arrow is not None:
            frame = self._worker.from_arrow(rows.arrow, stored)
        else:
            frame = self._worker.read_parquet(self._layout.paths(rows.files), stored)
        view = self._worker.view(frame)
        flag = _PAIRED if paired is not None else "false"
        signed = f"SELECT *, CASE WHEN {ACTION} = 'I' THEN 1 ELSE -1 END AS {WEIGHT}, {flag} AS __flag FROM {view}"
        text = _stage_columns(stage, signed, flag="__flag")
        self._views["stage", stage.name] = self._worker.view(self._worker.sql(text))

    # whole ------------------------------------------------------------------------------------------------------------------

    def current(self, given: RefreshInput) -> list[tuple[Table, Frame]]:
        """Return the frames of every state and of the result as they must be at the version refreshed to."""
        made: list[tuple[Table, Frame]] = []
        for stage in given.template.stages:
            text = self._fill(stage.initial, {}, given)
            items = [f"{c} AS {quoted(f.name)}" for c, f in zip(stage.columns, stage.table_schema.fields, strict=True)]
            frame = self._worker.sql(f"SELECT {', '.join(items)} FROM ({text})")
            made.append((given.states[stage.name].table, frame))
        return made

    def show_state(self, stage: StageText, frame: Frame) -> None:
        """Let the result read this state as if it had just been filled."""
        view = self._worker.view(frame)
        signed = f"SELECT *, 1 AS {WEIGHT}, false AS __flag FROM {view}"
        self._views["stage", stage.name] = self._worker.view(self._worker.sql(_stage_columns(stage, signed, flag="__flag")))

    def result(self, given: RefreshInput) -> Frame:
        """Return the whole result at the version refreshed to; states must have been shown."""
        text = self._fill(given.template.current, {}, given)
        fields = given.target.table.schema.fields
        items = [f"{c} AS {quoted(f.name)}" for c, f in zip(given.template.output, fields, strict=True)]
        return self._worker.sql(f"SELECT {', '.join(items)} FROM ({text})")

    # places -----------------------------------------------------------------------------------------------------------------

    def _fill(self, text: Text, limits: Mapping[str, Mapping[str, Bound]], given: RefreshInput) -> str:
        wanted = {(kind, name): names for kind, name, names in text.reads}

        def place(kind: str, name: str) -> str:
            if kind == "new":
                source = given.sources[name]
                fields = _fields(source.table, wanted[kind, name])
                return self._worker.view(
                    self._reader.state(self._worker, source, given.version, fields, limits.get(name))
                )
            return self._views[kind, name]

        return text.filled(place)


def _stage_columns(stage: StageText, text: str, flag: str = _PAIRED) -> str:
    """Return rows under the names by which later stages read them."""
    items = [f"{quoted(f.name)} AS {c}" for c, f in zip(stage.columns, stage.table_schema.fields, strict=True)]
    return f"SELECT {', '.join(items)}, {WEIGHT} AS {stage.weight}, {flag} AS {stage.paired} FROM ({text})"


def _renamed(old: Sequence[str], new: Sequence[str]) -> str:
    return ", ".join(f"{a} AS {b}" for a, b in zip(old, new, strict=True))


def _uses(template: Template, column: str) -> bool:
    texts = [template.delta.sql, *(t.sql for s in template.stages for t in (s.keys,))]
    return any(f"NOT {column}" in t for t in texts)


def _netted(text: str, fields: Sequence[Field], worker: Worker) -> str:
    """Sum weights per tuple; a tuple of weight n becomes n rows."""
    view = worker.view(worker.sql(text))
    names = "".join(quoted(f.name) + ", " for f in fields)
    return (
        f"SELECT {names}CASE WHEN {WEIGHT} > 0 THEN 'I' ELSE 'D' END AS {ACTION} FROM ({net_sql(view, fields)}) "
        f"LATERAL VIEW explode(sequence(1, abs({WEIGHT}))) AS __copy"
    )


def _fields(table: Table, names: Sequence[str]) -> tuple[Field, ...]:
    by_name = {f.name: f for f in table.schema.fields}
    missing = [n for n in names if n not in by_name]
    if missing:
        raise CheckFailedError(f'table "{table.name}" has no column {missing[0]!r} that a stream table reads')
    return tuple(by_name[n] for n in names)


def check_failure(error: EvaluationError) -> Exception:
    """Return the failed check if Spark's error came from one of ours."""
    if "[HW503]" in (error.detail or ""):
        return CheckFailedError(
            "the changes of a source do not fit the state kept of it",
            detail="A group would hold a negative number of rows: a row was deleted that had never been inserted.",
            hint="Run REFRESH STREAM TABLE ... FULL to compute it anew, and report this: it must not happen.",
        )
    return error
