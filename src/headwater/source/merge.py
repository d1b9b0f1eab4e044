"""MERGE INTO: the first clause that applies to a row decides what happens to it.

Target and source are joined once, by the narrowest join that the clauses need. Each joined row yields the change rows of its
clause. A row of the target that more than one row of the source would change is an error, as in SQL; only where the one thing
that can happen to it is its deletion does it not matter how many ask for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.engine.identity import equal_sql, identity_list
from headwater.engine.worker import Frame, Worker
from headwater.errors import ConstraintError
from headwater.model.sql import quoted, sql_string
from headwater.model.tables import Table
from headwater.source.change_texts import FRESH_ID, assigned, column, has_row_id, row_struct, rows_type
from headwater.source.fitting import MARK, fitted_sql
from headwater.source.statements import Merge, MergeAction, MergeClause, MergeKind
from headwater.store.rows import ROW_ID


def merge_frame(worker: Worker, statement: Merge, table: Table, state: Frame, source_name: str) -> Frame:
    """Return the change rows of a MERGE into `table`, whose rows are `state`."""
    target = quoted(statement.target_alias or table.name)
    origin = quoted(statement.source_alias or source_name)
    scope = (
        f"(SELECT *, true AS __in_target FROM {worker.view(state)}) AS {target} {_join(statement)} JOIN "
        f"(SELECT *, true AS __in_source FROM {statement.source}) AS {origin} ON ({statement.on})"
    )
    columns = worker.sql(f"SELECT {origin}.* FROM {scope}").columns[:-1]
    merging = _Merging(worker, table, target, origin, tuple(columns), scope)
    return worker.sql(merging.text(statement.clauses))


def _join(statement: Merge) -> str:
    kinds = {c.kind for c in statement.clauses}
    if {MergeKind.NOT_MATCHED, MergeKind.NOT_MATCHED_BY_SOURCE} <= kinds:
        return "FULL OUTER"
    if MergeKind.NOT_MATCHED in kinds:
        return "RIGHT OUTER"
    return "LEFT OUTER" if MergeKind.NOT_MATCHED_BY_SOURCE in kinds else "INNER"


@dataclass(frozen=True, slots=True)
class _Merging:
    worker: Worker
    table: Table
    target: str
    origin: str
    source_columns: tuple[str, ...]
    scope: str

    def text(self, clauses: Sequence[MergeClause]) -> str:
        rows = f"CASE {' '.join(f'WHEN {self._test(c)} THEN {self._rows(c)}' for c in clauses)} END"
        matched = [c for c in clauses if c.kind is MergeKind.MATCHED]
        if not matched:
            return f"SELECT inline({rows}) FROM {self.scope}"
        hit = " OR ".join(f"coalesce({self._test(c)}, false)" for c in matched)
        key = [f for f in self.table.schema.fields if f.name in self.table.schema.key]
        same = ", ".join(f"{x} AS __k{i}" for i, x in enumerate(identity_list(key, self.target)))
        keys = ", ".join(f"__k{i}" for i in range(len(key)))
        # Rows that no clause for matches concerns must not meet in one window: each gets a partition of its own.
        alone = f"CASE WHEN {hit} THEN NULL ELSE monotonically_increasing_id() END AS __alone"
        found = f"SELECT {rows} AS __rows, {same}, {alone} FROM {self.scope}"
        ranked = f"SELECT __rows, row_number() OVER (PARTITION BY {keys}, __alone ORDER BY 1) AS __rank FROM ({found})"
        if len(matched) == 1 and matched[0].action is MergeAction.DELETE and matched[0].condition is None:
            return f"SELECT inline(__rows) FROM ({ranked}) WHERE __rank = 1"
        text = f'{MARK} a row of table "{self.table.name}" is matched by more than one row of the source'
        error = f"CAST(raise_error({sql_string(text)}) AS {rows_type(self.table)})"
        return f"SELECT inline(CASE WHEN __rank > 1 THEN {error} ELSE __rows END) FROM ({ranked})"

    def _test(self, clause: MergeClause) -> str:
        here, there = f"{self.target}.__in_target", f"{self.origin}.__in_source"
        test = {
            MergeKind.MATCHED: f"{here} AND {there}",
            MergeKind.NOT_MATCHED: f"{there} AND {here} IS NULL",
            MergeKind.NOT_MATCHED_BY_SOURCE: f"{here} AND {there} IS NULL",
        }[clause.kind]
        return test if clause.condition is None else f"{test} AND ({clause.condition})"

    def _rows(self, clause: MergeClause) -> str:
        """Return the array of change rows that a clause makes of one joined row."""
        table = self.table
        old = {f.name: f"{self.target}.{quoted(f.name)}" for f in table.schema.fields}
        if clause.action is MergeAction.DELETE:
            return f"array({row_struct(table, old, 'D')})"
        fit = self._fitted(self._given(clause))
        if clause.action is MergeAction.UPDATE:
            same = " AND ".join(equal_sql(old[n], f"({t})", column(table, n).type) for n, t in fit.items())
            return (
                f"CASE WHEN {same} THEN CAST(NULL AS {rows_type(table)}) ELSE "
                f"array({row_struct(table, old, 'D')}, {row_struct(table, {**old, **fit}, 'I')}) END"
            )
        for f in table.schema.visible:
            if f.name not in fit:
                fit[f.name] = fitted_sql(self.worker, "NULL", None, f, table)
        if has_row_id(table):
            fit[ROW_ID.name] = str(FRESH_ID)
        return f"array({row_struct(table, fit, 'I')})"

    def _given(self, clause: MergeClause) -> dict[str, str]:
        """Return the values that a clause gives to columns."""
        if not clause.star:
            if clause.action is MergeAction.UPDATE:
                return assigned({a.column: a.value.text for a in clause.assignments}, self.table)
            values = [v.text for v in clause.insert_values]
            return assigned(dict(zip(clause.insert_columns, values, strict=True)), self.table)
        by_name = {c.casefold(): c for c in self.source_columns}
        missing = [f.name for f in self.table.schema.visible if f.name.casefold() not in by_name]
        if missing:
            raise ConstraintError(
                f'the source of MERGE INTO "{self.table.name}" has no column "{missing[0]}"',
                detail="The star stands for all columns of the table.",
                hint="Name the columns that are given, or add the missing one to the source.",
            )
        return {f.name: f"{self.origin}.{quoted(by_name[f.name.casefold()])}" for f in self.table.schema.visible}

    def _fitted(self, given: dict[str, str]) -> dict[str, str]:
        probe = ", ".join(f"({text}) AS {quoted(name)}" for name, text in given.items())
        types = {f.name: f.dataType for f in self.worker.sql(f"SELECT {probe} FROM {self.scope}").schema.fields}
        return {
            n: fitted_sql(self.worker, f"({t})", types[n], column(self.table, n), self.table) for n, t in given.items()
        }
