"""Evaluating a template: one change travels through the stages of a delta program.

Each stage is run once and its rows are kept, in memory or in a file of the tail that is also its published form. Later stages
and the result read those rows, so state and result can never disagree about what was computed. Where the result only projects the
last state, both come out of one query.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.delta.context import changes_place, stage_place
from headwater.engine.identity import row_hash_sql
from headwater.engine.worker import Frame, Worker
from headwater.errors import CheckFailedError, EndlessRecursionError, EvaluationError, ResultTooLargeError
from headwater.model.schema import Field
from headwater.model.sql import quoted
from headwater.model.tables import Table
from headwater.plan.printer import BROADCAST_HINT, ONE_PARTITION_HINT
from headwater.refresh.places import Places, RefreshInput, fields_of
from headwater.refresh.template import LoopText, RowsText, StageText, Template, Text
from headwater.store.layout import Bound, Layout, column_bounds
from headwater.store.lookup import rows_of_keys
from headwater.store.netting import copies_sql, net_changes_sql, net_exactly_sql
from headwater.store.reading import Changes, Reader
from headwater.store.rows import ACTION, CHANGED, HASH, WEIGHT, Rows, arrow_rows, changed_words, row_codes, touching
from headwater.store.writing import Writer

_RESCAN = "__rescan"
_PAIRED = "__paired"
_KEEP = "__keep"
_INSERTED = "__inserted"
_ALWAYS = "true"
_BROADCAST_ROWS = 2_000_000
_COLLECTED_ROWS = 200_000
_GATHERED_ROWS = 200_000
_MANY_GROUPS = 4_000
_SMALL_STATE = 1_000
"""So few groups are all merged with the changes of few rows: to find out first which of them change would be a query of its own."""
_SMALL_CHANGE = 20_000
_DATA_ERROR = re.compile(r"SQLSTATE: (22|23|P0)")
"""Spark's classes of errors that a value causes, or a user's own check."""


@dataclass(slots=True)
class Outcome:
    """The change rows of every table that a refresh writes, and how many rows it read."""

    rows_in: int
    rows: dict[str, Rows] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    rescanned_groups: int = 0

    def add(self, table: Table, rows: Rows) -> None:
        """Take the rows of one table."""
        self.tables[table.id] = table
        self.rows[table.id] = rows


@dataclass(frozen=True, slots=True)
class _Changed:
    """The changes of a source: how many rows there are, how many of them delete, and those that matter if they are few."""

    count: int
    deletes: int
    rows: pa.Table | None


@dataclass(frozen=True, slots=True)
class _Keys:
    """The changed groups of a stage: how many rows there are at most, their bounds, and the groups themselves if they are few.

    `old`: the state of at least these groups, if it was read to find out.
    """

    count: int
    bounds: dict[str, Bound]
    groups: pa.Table | None
    old: pa.Table | None = None

    @property
    def most(self) -> int:
        """No more than so many groups changed."""
        return self.count if self.groups is None else min(self.count, self.groups.num_rows)


class Evaluation:
    """One refresh being computed by one worker."""

    def __init__(self, worker: Worker, reader: Reader, writer: Writer, layout: Layout, local_rows: int) -> None:
        self._worker = worker
        self._reader = reader
        self._writer = writer
        self._layout = layout
        self._local_rows = local_rows
        self._changes: dict[str, _Changed] = {}
        self._stage_rows: dict[str, int] = {}
        self._stack = ExitStack()
        self._places = Places(worker, reader, writer, local_rows, self._stack)

    # differential -----------------------------------------------------------------------------------------------------------

    def differential(self, given: RefreshInput, *, netted: bool = False) -> Outcome:
        """Compute the change of every state and of the result from the changes of the sources.

        `netted`: first take out what cancels, so that a row which came and went is not evaluated at all.
        """
        with self._stack:
            return self._differential(given, netted)

    def _differential(self, given: RefreshInput, netted: bool) -> Outcome:
        self._load_changes(given, netted)
        total = sum(c.count for c in self._changes.values())
        inserts_only = all(c.deletes == 0 for c in self._changes.values())
        outcome = Outcome(total)
        if all(c.rows is not None and c.rows.num_rows == 0 for c in self._changes.values()):
            return outcome  # updates of columns that nobody reads
        for stage in given.template.stages:
            match stage:
                case StageText():
                    self._run_stage(stage, given, total, outcome)
                    state = given.states[stage.name]
                    changed = outcome.rows.get(state.table.id)
                    self._places.new_states[stage.name] = replace(
                        state, pending=(changed,) if changed is not None else ()
                    )
                case RowsText():
                    self._run_rows(stage, given)
                case LoopText():
                    self._run_loop(stage, given)
        target = given.target.table
        if target.id in outcome.rows:  # computed together with the last state
            return outcome
        delta = given.template.delta
        text = self._places.live_text(delta, given)
        if text is None:
            return outcome
        items = [f"{c} AS {quoted(f.name)}" for c, f in zip(given.template.output, target.schema.fields, strict=True)]
        weight = given.template.weight
        action = f"CASE WHEN {weight} > 0 THEN 'I' ELSE 'D' END AS {ACTION}"
        selected = f"SELECT {', '.join(items)}, {action}, {weight} AS {WEIGHT} FROM ({text})"
        expected = self._places.driving(delta) * delta.fanout
        in_memory = self._writer.fits_in_memory(target.schema.fields, expected)
        if not target.schema.key or not (in_memory or inserts_only):
            selected = net_changes_sql(f"({selected})", target.schema.fields)
        if in_memory:
            with suppress(ResultTooLargeError):
                columns = ", ".join(quoted(f.name) for f in target.schema.fields)
                hashed = (
                    f"SELECT {columns}, {ACTION}, {row_hash_sql(target.schema.visible)} AS {HASH} FROM ({selected})"
                )
                outcome.add(target, arrow_rows(self._worker.collected(hashed)))
                return outcome
        outcome.add(target, self._writer.materialised(self._worker, self._worker.sql(selected), target, None))
        return outcome

    def _load_changes(self, given: RefreshInput, netted: bool) -> None:
        for table_id, names in given.template.changes_read().items():
            source = given.sources[table_id]
            fields = fields_of(source.table, [n for n in names if n != WEIGHT])
            positions = {f.name: i for i, f in enumerate(source.table.schema.fields)}
            words = changed_words(positions[f.name] for f in fields)
            few = given.few_changes(self._reader, source, fields)
            place = changes_place(table_id)
            if few is not None:
                rows = _weighted(touching(few, words), fields)
                deletes = pc.sum(pc.less(rows.column(WEIGHT), 0)).as_py() or 0
                self._changes[table_id] = _Changed(few.num_rows, deletes, rows.select([f.name for f in fields]))
                self._places.counts[place] = rows.num_rows
                self._places.at_hand[place] = rows
                shown = (*fields, Field(WEIGHT, "INT"))
                if not netted:
                    self._places.change_rows[table_id] = rows, shown
                    continue
                relevant = self._places.read_back(rows, shown)
            else:
                changes = given.many_changes(self._reader, self._worker, source, fields)
                self._changes[table_id] = _Changed(changes.count, changes.deletes, None)
                self._places.counts[place] = changes.count
                relevant = _touching_sql(changes, words, fields)
            if netted:
                net = f"({net_exactly_sql(relevant, fields)})"
                columns = "".join(quoted(f.name) + ", " for f in fields)
                relevant = f"({copies_sql(net, f'{columns}CAST(sign({WEIGHT}) AS INT) AS {WEIGHT}')})"
            self._places.relations["changes", table_id] = relevant

    # rows -------------------------------------------------------------------------------------------------------------------

    def _run_rows(self, stage: RowsText, given: RefreshInput) -> None:
        """Compute rows that later texts read; of rows at hand the driver chooses some itself."""
        if stage.chosen is not None and self._places.is_live(stage.rows):
            rows = self._places.rows_where(stage.chosen)
            if rows is not None:
                self._show(stage.name, rows, stage.rows.fields())
                return
        text = self._places.live_text(stage.rows, given)
        if text is not None and stage.weight:
            text = self._netted(text, stage.rows, stage.weight)
        self._materialise(stage.name, stage.rows, text)

    def _netted(self, text: str, rows: Text, weight: str) -> str:
        """Return change rows without what cancels."""
        fields = [f for f in rows.fields() if f.name != weight]
        columns = "".join(f.name + ", " for f in fields)
        signed = f"(SELECT {columns}{weight} AS {WEIGHT} FROM ({text}))"
        return copies_sql(f"({net_exactly_sql(signed, fields)})", f"{columns}CAST(sign({WEIGHT}) AS INT) AS {weight}")

    def _materialise(self, name: str, rows: Text, text: str | None) -> None:
        """Run `text` and let later ones read its rows as a stage: on the driver if they are few, in a file otherwise."""
        place, fields = stage_place(name), rows.fields()
        if text is None:
            self._show(name, pa.table({f.name: pa.nulls(0) for f in fields}), fields)
            return
        if self._places.driving(rows) <= _COLLECTED_ROWS:
            with suppress(ResultTooLargeError):
                self._show(name, self._worker.collected(text), fields)
                return
        folder = self._stack.enter_context(self._writer.scratch())
        self._worker.save(self._worker.sql(text), str(folder))
        files = sorted(str(p) for p in folder.glob("*.parquet"))
        self._places.counts[place] = sum(pq.read_metadata(f).num_rows for f in files)
        self._places.files[place] = files
        self._places.relations["stage", name] = self._worker.relation(self._worker.read_parquet(files, fields), fields)

    def _show(self, name: str, table: pa.Table, fields: Sequence[Field]) -> None:
        """Let later texts read rows of the driver as a stage."""
        place = stage_place(name)
        self._places.counts[place] = table.num_rows
        self._places.at_hand[place] = table
        self._places.relations["stage", name] = self._places.read_back(table, fields)

    def _run_loop(self, stage: LoopText, given: RefreshInput) -> None:
        """Compute what follows from the seeds, round after round, until nothing does.

        Rows that go in circles may double in each round: their number is limited too, long before the rounds are over.
        """
        fields = stage.seeds.fields()
        text = self._places.live_text(stage.seeds, given)
        rounds, rows = self._worker.recursion_limits()
        waves: list[pa.Table] = []
        while text is not None:
            if len(waves) > rounds or sum(w.num_rows for w in waves) > rows:
                raise EndlessRecursionError("the changes of a recursive query do not come to an end")
            waves.append(self._worker.collected(self._netted(text, stage.seeds, stage.weight)))
            self._show(stage.wave, waves[-1], fields)
            self._places.forget_found()
            text = self._places.fill(stage.step, given) if waves[-1].num_rows else None
        waves = waves or [pa.table({f.name: pa.nulls(0) for f in fields})]
        self._show(stage.name, pa.concat_tables(waves), fields)

    # stages -----------------------------------------------------------------------------------------------------------------

    def _run_stage(self, stage: StageText, given: RefreshInput, total: int, outcome: Outcome) -> None:
        state = given.states[stage.name]
        keys = self._stage_keys(stage, given, total)
        if keys.count == 0:
            self._publish_empty(stage)
            return
        found = keys.old
        if keys.groups is not None:
            found = rows_of_keys(self._reader, self._layout, state, given.version, keys.groups)
        if found is not None:
            is_many = keys.most > _MANY_GROUPS and keys.old is None
            delta = stage.delta_of_many if is_many else stage.delta_of_few
            old = self._places.read_back(found, state.table.schema.fields)
        else:
            delta = stage.delta
            old = f"({self._reader.state_sql(self._worker, state, given.version, bounds=keys.bounds)})"
        self._places.relations["kept", stage.name] = old
        self._places.kept_rows[stage.name] = state.table.row_count if found is None else found.num_rows
        text = self._places.fill(delta, given)
        if keys.count > _BROADCAST_ROWS:
            text = text.replace(BROADCAST_HINT, "")
        if keys.count > _GATHERED_ROWS or found is None:
            text = text.replace(ONE_PARTITION_HINT, "")
        if self._writer.fits_in_memory((*state.table.schema.fields, *given.target.table.schema.fields), 2 * keys.most):
            with suppress(ResultTooLargeError):
                self._stage_in_memory(stage, text, keys, given, outcome)
                return
        self._stage_in_files(stage, text, keys, given, outcome)

    def _stage_keys(self, stage: StageText, given: RefreshInput, total: int) -> _Keys:
        """Find the changed groups. Groups that are columns of the source are read off its changes, without asking Spark."""
        names = [f"g{i}" for i in range(stage.groups)]
        text = self._places.live_text(stage.keys, given)
        if text is None:
            return _Keys(0, {}, None)
        direct = self._groups_of_changes(stage, names, given)
        if direct is not None:
            expected = (total + sum(self._stage_rows.values())) * stage.keys.fanout
            self._inline(stage, text, expected)
            return _Keys(expected, column_bounds(direct, names), direct)
        whole = self._small_state(stage, given)
        if whole is not None:
            self._inline(stage, text, self._places.filled_rows)
            return _Keys(self._places.filled_rows, {}, None, whole)
        self._materialise(stage.keys_name, stage.keys, text)
        count = self._places.counts[stage_place(stage.keys_name)]
        columns = [n for n, _ in stage.keys.columns[: stage.groups]]
        table = self._places.rows_at_hand(stage_place(stage.keys_name), columns)
        if table is None:
            return _Keys(count, {}, None)
        groups = _unique(table.rename_columns(names))
        return _Keys(count, column_bounds(groups, names), groups)

    def _inline(self, stage: StageText, text: str, rows: int) -> None:
        """Let the text that merges the changes compute them itself."""
        self._places.counts[stage_place(stage.keys_name)] = rows
        self._places.relations["stage", stage.keys_name] = f"({text})"

    def _small_state(self, stage: StageText, given: RefreshInput) -> pa.Table | None:
        """Return the whole state if it is small and so are the changes."""
        state = given.states[stage.name]
        is_small = state.table.row_count <= _SMALL_STATE and self._places.filled_rows <= _SMALL_CHANGE
        if stage.always_rescan or not is_small:
            return None
        return self._reader.few(state, given.version, state.table.schema.fields)

    def _groups_of_changes(self, stage: StageText, names: Sequence[str], given: RefreshInput) -> pa.Table | None:
        if len(self._changes) != 1 or stage.always_rescan or not stage.is_direct:
            return None  # groups that a WHERE hides would be deleted and never read again
        if not stage.source_groups:  # no GROUP BY: the one group
            return pa.table({names[0]: pa.array([0], pa.int32())})
        origins = [g for g in stage.source_groups if g is not None]
        if len(origins) < len(names):
            return None
        ((table_id, changes),) = self._changes.items()
        source = given.sources[table_id]
        fields = fields_of(source.table, [c for _, c in origins])
        values = changes.rows
        if values is None:
            if not self._writer.fits_in_memory(fields, changes.count):
                return None
            values = self._reader.change_values(source, *given.moved(table_id), fields)
        return _unique(pa.table(dict(zip(names, [values.column(f.name) for f in fields], strict=True))))

    def _stage_select(self, stage: StageText, given: RefreshInput, text: str, weight: str, flags: str) -> str:
        """Return rows of a state under their stored names, with the result's columns and hash where they are fused."""
        fields = stage.table_schema.fields
        items = [f"{c} AS {quoted(f.name)}" for c, f in zip(stage.columns, fields, strict=True)]
        items += [f"{weight} > 0 AS {_INSERTED}", flags]
        if not self._is_fused(stage, given):
            return f"SELECT {', '.join(items)} FROM ({text})"
        computed = self._computed_values(stage, given.template)
        keep = given.template.fused_keep
        if keep != _ALWAYS:
            # What the result does not have is not computed: the condition may be what keeps zero out of a division.
            computed = {name: f"CASE WHEN {keep} THEN {value} END" for name, value in computed.items()}
            items.append(f"({keep}) AS {_KEEP}")
        items += [f"{value} AS {name}" for name, value in computed.items()]
        target = given.target.table.schema
        names = dict(zip([f.name for f in target.fields], self._value_names(stage, given.template), strict=True))
        hashed = f"{row_hash_sql(target.visible, names)} AS {HASH}"
        return f"SELECT *, {hashed} FROM (SELECT {', '.join(items)} FROM ({text}))"

    def _value_names(self, stage: StageText, template: Template) -> list[str]:
        """Return where each column of the result stands: in a column of the state, or in one of its own."""
        stored = dict(zip(stage.columns, (f.name for f in stage.table_schema.fields), strict=True))
        return [stored.get(value, f"__v{i}") for i, value in enumerate(template.fused)]

    def _computed_values(self, stage: StageText, template: Template) -> dict[str, str]:
        names = self._value_names(stage, template)
        return {n: v for n, v in zip(names, template.fused, strict=True) if n.startswith("__v")}

    def _is_fused(self, stage: StageText, given: RefreshInput) -> bool:
        return bool(given.template.fused) and stage.name == given.template.states[-1].name

    def _stage_in_memory(self, stage: StageText, text: str, keys: _Keys, given: RefreshInput, outcome: Outcome) -> None:
        flags = f"{stage.flag} AS {_RESCAN}, {stage.paired} AS {_PAIRED}"
        table = self._worker.collected(self._stage_select(stage, given, text, stage.weight, flags))
        if stage.always_rescan or pc.any(table.column(_RESCAN)).as_py():
            flagged = None if stage.always_rescan else table.filter(table.column(_RESCAN))
            self._places.relations["stage", stage.rescan_name] = self._rescan_keys(stage, flagged, keys)
            fresh = self._worker.to_arrow(self._worker.sql(self._fresh_rows(stage, given)))
            outcome.rescanned_groups += fresh.num_rows
            if flagged is not None:
                table = table.filter(pc.invert(pc.and_(table.column(_RESCAN), table.column(_INSERTED))))
            table = pa.concat_tables([table, fresh.select(table.column_names).cast(table.schema)])
        names = [f.name for f in stage.table_schema.fields]
        state = given.states[stage.name].table
        table = table.append_column(ACTION, pc.if_else(table.column(_INSERTED), "I", "D"))
        rows = _state_rows(table, names, stage.groups)
        if self._is_fused(stage, given):
            shown = table.filter(table.column(_KEEP)) if _KEEP in table.column_names else table
            columns = self._value_names(stage, given.template)
            stored = [f.name for f in given.target.table.schema.fields]
            result = shown.select([*columns, ACTION, HASH]).rename_columns([*stored, ACTION, HASH])
            outcome.add(state, rows)
            outcome.add(given.target.table, arrow_rows(result))
            return
        shown = None
        if _reads_pairs(given.template, stage):
            shown = table.filter(pc.invert(table.column(_PAIRED))).select([*names, ACTION])
        self._publish(stage, state, rows, outcome, shown)

    def _rescan_keys(self, stage: StageText, flagged: pa.Table | None, keys: _Keys) -> str:
        """Return the groups that must be read again: those flagged, or all that changed."""
        columns = [name for name, _ in stage.rescan_columns]
        groups = flagged.select([f"g{i}" for i in range(stage.groups)]) if flagged is not None else keys.groups
        if groups is None:
            names = [n for n, _ in stage.keys.columns[: stage.groups]]
            return (
                f"(SELECT DISTINCT {_renamed(names, columns)} FROM {self._places.relations['stage', stage.keys_name]})"
            )
        groups = groups.rename_columns(columns)
        self._places.counts[stage_place(stage.rescan_name)] = groups.num_rows
        self._places.at_hand[stage_place(stage.rescan_name)] = groups
        return self._places.read_back(groups, [Field(c, t) for c, t in stage.rescan_columns])

    def _fresh_rows(self, stage: StageText, given: RefreshInput) -> str:
        """Return the text that reads the state of the groups in the rescan stage from the sources."""
        text = self._places.fill(stage.rescan, given)
        return self._stage_select(stage, given, text, "1", f"false AS {_RESCAN}, false AS {_PAIRED}")

    def _stage_in_files(self, stage: StageText, text: str, keys: _Keys, given: RefreshInput, outcome: Outcome) -> None:
        """Like `_stage_in_memory` for changes that do not fit the driver: they stay with the executors."""
        table = given.states[stage.name].table
        flags = f"{stage.flag} AS {_RESCAN}, {stage.paired} AS {_PAIRED}"
        items = [f"{c} AS {quoted(f.name)}" for c, f in zip(stage.columns, table.schema.fields, strict=True)]
        signed = f"SELECT {', '.join(items)}, {stage.weight} AS {WEIGHT}, {flags} FROM ({text})"
        view = self._worker.view(self._worker.persisted(self._worker.sql(signed)))
        selected = f"SELECT * FROM {view}"
        has_flags = not stage.always_rescan and self._count(f"{view} WHERE {_RESCAN}") > 0
        if stage.always_rescan or has_flags:
            columns = [name for name, _ in stage.rescan_columns]
            groups = _renamed([f"g{i}" for i in range(stage.groups)], columns)
            flagged = f"(SELECT {groups} FROM {view} WHERE {_RESCAN})"
            self._places.relations["stage", stage.rescan_name] = (
                flagged if has_flags else self._rescan_keys(stage, None, keys)
            )
            fresh = self._places.fill(stage.rescan, given)
            again = f"SELECT {', '.join(items)}, 1 AS {WEIGHT}, false AS {_RESCAN}, false AS {_PAIRED} FROM ({fresh})"
            read = self._worker.view(self._worker.persisted(self._worker.sql(again)))
            outcome.rescanned_groups += self._count(read)
            keep = f" WHERE NOT ({_RESCAN} AND {WEIGHT} > 0)" if has_flags else ""
            selected = f"SELECT * FROM {view}{keep} UNION ALL SELECT * FROM {read}"
        netted = self._worker.sql(net_changes_sql(f"({selected})", table.schema.fields))
        rows = self._writer.materialised(self._worker, netted, table, None)
        self._publish(stage, table, rows, outcome, None)
        if _reads_pairs(given.template, stage):
            self._places.relations["stage", stage.name] = self._unpaired(stage, view)

    def _count(self, rows: str) -> int:
        return int(self._worker.rows(self._worker.sql(f"SELECT count(*) FROM {rows}"))[0][0])

    def _unpaired(self, stage: StageText, view: str) -> str:
        items = [f"{quoted(f.name)} AS {c}" for c, f in zip(stage.columns, stage.table_schema.fields, strict=True)]
        return f"(SELECT {', '.join(items)}, {WEIGHT} AS {stage.weight}, {_PAIRED} AS {stage.paired} FROM {view})"

    def _publish_empty(self, stage: StageText) -> None:
        self._stage_rows[stage.name] = 0
        self._places.counts[stage_place(stage.name)] = 0

    def _publish(self, stage: StageText, table: Table, rows: Rows, outcome: Outcome, shown: pa.Table | None) -> None:
        """Make the rows of a stage readable for those that follow: all, or those in `shown`."""
        count = rows.count if shown is None else shown.num_rows
        self._stage_rows[stage.name] = self._places.counts[stage_place(stage.name)] = count
        at_hand = rows.arrow if shown is None else shown
        if at_hand is not None:
            names = [f.name for f in table.schema.fields]
            self._places.at_hand[stage_place(stage.name)] = at_hand.select(names).rename_columns(list(stage.columns))
        if rows.arrow is not None and rows.count > self._local_rows:
            rows = self._writer.spilled(rows, table)
        outcome.add(table, rows)
        stored = (*table.schema.fields, Field(ACTION, "STRING"))
        if shown is not None:
            view = self._places.read_back(shown, stored)
        elif rows.arrow is not None:
            view = self._worker.relation(rows.arrow, stored)
        else:
            view = self._worker.relation(self._worker.read_parquet(self._layout.paths(rows.files), stored), stored)
        items = [f"{quoted(f.name)} AS {c}" for c, f in zip(stage.columns, table.schema.fields, strict=True)]
        weight = f"CASE WHEN {ACTION} = 'I' THEN 1 ELSE -1 END AS {stage.weight}"
        mark = f"false AS {stage.paired}"
        self._places.relations["stage", stage.name] = f"(SELECT {', '.join(items)}, {weight}, {mark} FROM {view})"

    # whole ------------------------------------------------------------------------------------------------------------------

    def whole_state(self, stage: StageText, given: RefreshInput) -> Frame:
        """Return the state as it must be at the version refreshed to."""
        text = self._places.fill(stage.initial, given)
        items = [f"{c} AS {quoted(f.name)}" for c, f in zip(stage.columns, stage.table_schema.fields, strict=True)]
        return self._worker.sql(f"SELECT {', '.join(items)} FROM ({text})")

    def show_state(self, stage: StageText, frame: Frame) -> None:
        """Let later states and the result read this state."""
        self._places.relations["new", stage.name] = self._worker.view(frame)

    def whole_result(self, given: RefreshInput) -> Frame:
        """Return the result as it must be at the version refreshed to; states must have been shown."""
        text = self._places.fill(given.template.current, given)
        fields = given.target.table.schema.fields
        items = [f"{c} AS {quoted(f.name)}" for c, f in zip(given.template.output, fields, strict=True)]
        return self._worker.sql(f"SELECT {', '.join(items)} FROM ({text})")


def _weighted(rows: pa.Table, fields: Sequence[Field]) -> pa.Table:
    """Return change rows with their weight instead of their action."""
    inserted = pc.equal(rows.column(ACTION), "I")
    weights = pc.if_else(inserted, pa.scalar(1, pa.int32()), pa.scalar(-1, pa.int32()))
    return rows.select([f.name for f in fields]).append_column(WEIGHT, weights)


def _touching_sql(changes: Changes, words: Mapping[int, int], fields: Sequence[Field]) -> str:
    """Return the change rows without updates that changed none of the columns read."""
    columns = "".join(quoted(f.name) + ", " for f in fields)
    if changes.deletes == 0:
        return f"(SELECT {columns}{WEIGHT} FROM ({changes.sql}))"
    tests = " OR ".join(f"(coalesce(get({CHANGED}, {w}), 0L) & {m}L) <> 0" for w, m in words.items()) or "false"
    return f"(SELECT {columns}{WEIGHT} FROM ({changes.sql}) WHERE {CHANGED} IS NULL OR {tests})"


def _renamed(old: Sequence[str], new: Sequence[str]) -> str:
    return ", ".join(f"{a} AS {b}" for a, b in zip(old, new, strict=True))


def _unique(groups: pa.Table) -> pa.Table:
    """Return each group once, where Arrow can tell; twice does no harm."""
    try:
        return groups.group_by(groups.column_names).aggregate([]).select(groups.column_names)
    except (pa.ArrowNotImplementedError, pa.ArrowKeyError):
        return groups


def _state_rows(table: pa.Table, names: Sequence[str], groups: int) -> Rows:
    """Return the changes of a state without those that cancel: groups that were looked at and stayed as they were."""
    rows = table.select([*names, ACTION])
    rows = arrow_rows(rows.append_column(HASH, pa.array(row_codes(rows.select(names[:groups])))))
    return replace(rows, hash_change=0)


def _reads_pairs(template: Template, stage: StageText) -> bool:
    """Say whether a later text tells groups that appear or vanish from groups that last."""
    return any(f"NOT {stage.paired}" in t.sql for t in template.texts())


def is_data_error(error: EvaluationError) -> bool:
    """Say whether rows made Spark fail, and not Spark itself or a check of ours."""
    detail = error.detail or ""
    return "[HW50" not in detail and _DATA_ERROR.search(detail) is not None


def in_full_instead(error: EvaluationError) -> str | None:
    """Return why a refresh that failed from changes may succeed in full; None if it cannot.

    The terms of a join also meet rows that never were there together, and such pairs cancel in the end. An expression may fail on them
    all the same: a quotient whose divisor is zero by now, of a row that is gone.
    """
    if isinstance(error, EndlessRecursionError):
        return str(error).splitlines()[0]
    if not is_data_error(error):
        return None
    detail = error.detail or ""
    return f"the changes could not be evaluated: {detail.strip().splitlines()[0]}"


def check_failure(error: EvaluationError) -> Exception:
    """Return the failed check if Spark's error came from one of ours."""
    if "[HW504]" in (error.detail or "") or "SCALAR_SUBQUERY_TOO_MANY_ROWS" in (error.detail or ""):
        return EvaluationError(
            "a scalar subquery returned more than one row",
            detail="It stands where one value is expected: for one row of the query it now yields several.",
            hint="Repair the rows, or let the subquery choose one of them, with max() or ORDER BY ... LIMIT 1.",
        )
    if "[HW503]" in (error.detail or ""):
        return CheckFailedError(
            "the changes of a source do not fit the state kept of it",
            detail="A group would hold a negative number of rows: a row was deleted that had never been inserted.",
            hint="Refresh it in full (`headwater refresh --full`) to compute it anew, and report this: it must not happen.",
        )
    return error
