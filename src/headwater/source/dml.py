"""Changing managed tables: every statement becomes change rows, computed by Spark in one pass.

INSERT, UPDATE, DELETE, MERGE, upsert and `apply_changes` differ only in how they say which rows go and which come. What they say is
materialised once, checked, and handed to the transaction.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.engine.identity import equal_sql, identity_list, identity_sql, keys_equal_sql
from headwater.engine.texts import named_views
from headwater.engine.worker import Frame, Worker
from headwater.errors import ConstraintError, EvaluationError, StatementError
from headwater.model.schema import Field
from headwater.model.sql import quoted
from headwater.model.tables import Table
from headwater.source.constraints import check_keys, constraint_error, raise_missing
from headwater.source.incoming import Incoming, fitted, fitted_sql, incoming, unknown_column
from headwater.source.statements import Merge, MergeAction, MergeClause, MergeKind
from headwater.source.transaction import Transaction
from headwater.store.layout import decoded_statistics
from headwater.store.rows import ACTION, CHANGED, ROW_ID, WEIGHT, Rows, arrow_rows

_PROBE_ROWS = 50_000


@dataclass(frozen=True, slots=True)
class Change:
    """What a statement did."""

    inserted: int
    deleted: int


class Changer:
    """Runs statements of one transaction with one worker."""

    def __init__(self, transaction: Transaction, worker: Worker) -> None:
        self.transaction = transaction
        self.worker = worker
        self._tx = transaction
        self._worker = worker
        self._ground = transaction.ground
        self._settings = transaction.ground.settings

    # rows in ----------------------------------------------------------------------------------------------------------------

    def insert(self, table: Table, rows: Any) -> Change:
        """Add rows."""
        with tempfile.TemporaryDirectory(prefix="headwater-in-") as scratch:
            given = self._incoming(rows, table, scratch)
            return self._insert_frame(table, fitted(self._worker, given, table), given.count)

    def insert_query(self, table: Table, columns: Sequence[str] | None, query: Frame, *, by_name: bool) -> Change:
        """Add the rows of a query, matched by position, by the columns named, or by name."""
        if not by_name:
            names = list(columns) if columns is not None else [f.name for f in table.schema.visible]
            if len(names) != len(query.columns):
                raise ConstraintError(
                    f'INSERT INTO "{table.name}" has {len(names)} target columns but {len(query.columns)} values',
                    hint="Name the columns: INSERT INTO table (a, b) ...",
                )
            if len({n.casefold() for n in names}) != len(names):
                raise ConstraintError("INSERT names a column twice")
            query = query.toDF(*names)
        return self._insert_frame(table, fitted(self._worker, Incoming(query, None), table), None)

    def _incoming(self, rows: Any, table: Table, scratch: str, extra: Sequence[Field] = ()) -> Incoming:
        return incoming(
            self._worker,
            rows,
            table,
            extra=extra,
            local_rows=self._settings.local_relation_max_rows,
            spill=lambda: str(Path(scratch) / f"{uuid.uuid4().hex}.parquet"),
        )

    def _insert_frame(self, table: Table, frame: Frame, count: int | None) -> Change:
        has_row_id = ROW_ID in table.schema.fields
        small = count is not None and self._ground.writer.fits_in_memory(table.schema.fields, count)
        if not small:
            self._worker.size_for(count or 10_000_000)
        view = self._worker.view(frame)
        names = ", ".join(quoted(f.name) for f in table.schema.visible)
        next_id = table.next_row_id
        row_id = ""
        if has_row_id:
            row_id = (
                f", CAST(0 AS BIGINT) AS {ROW_ID.name}"
                if small
                else f", {next_id}L + monotonically_increasing_id() AS {ROW_ID.name}"
            )
        text = f"SELECT {names}{row_id} FROM {view}"
        try:
            if small:
                rows = self._ground.writer.materialised(
                    self._worker, self._worker.sql(f"SELECT *, 'I' AS {ACTION} FROM ({text})"), table, count
                )
            elif self._tx.is_untouched(table):
                rows = self._ground.writer.inserted(self._worker, self._worker.sql(text), table)
            else:
                rows = self._ground.writer.materialised(
                    self._worker, self._worker.sql(f"SELECT *, 'I' AS {ACTION} FROM ({text})"), table, None
                )
        except EvaluationError as error:
            raise constraint_error(error) from error
        next_row_id = None
        if has_row_id:
            rows, next_row_id = _with_row_ids(rows, next_id)
        return self._accept(table, rows, next_row_id)

    def _accept(self, table: Table, rows: Rows, next_row_id: int | None = None) -> Change:
        try:
            check_keys(self._worker, self._ground, rows, self._tx.source(table.id), self._tx.snapshot.version)
        except BaseException:
            self._ground.writer.discard(rows)
            raise
        self._tx.add(table, rows, next_row_id)
        return Change(rows.inserts, rows.deletes)

    # rows changed -----------------------------------------------------------------------------------------------------------

    def state(self, table: Table) -> Frame:
        """Return the table as the transaction sees it, all stored fields."""
        return self._ground.reader.state(self._worker, self._tx.source(table.id), self._tx.snapshot.version)

    def visible(self, table: Table) -> Frame:
        """Return the table as the transaction sees it, as users see it."""
        source = self._tx.source(table.id)
        return self._ground.reader.state(self._worker, source, self._tx.snapshot.version, table.schema.visible)

    def delete(self, table: Table, alias: str | None, where: str | None, named: Mapping[str, Frame]) -> Change:
        """Remove the rows for which the condition is true."""
        fields = ", ".join(quoted(f.name) for f in table.schema.fields)
        condition = f" WHERE ({where})" if where else ""
        view = self._worker.view(self.state(table))
        with named_views(self._worker, named):
            frame = self._worker.sql(
                f"SELECT {fields}, 'D' AS {ACTION} FROM {view} AS {quoted(alias or table.name)}{condition}"
            )
        return self._accept(table, self._materialised(frame, table))

    def update(
        self,
        table: Table,
        alias: str | None,
        assignments: Mapping[str, str],
        where: str | None,
        named: Mapping[str, Frame],
    ) -> Change:
        """Change columns of the rows for which the condition is true."""
        by_name = _assigned(assignments, table)
        view = self._worker.view(self.state(table))
        scope = f"{view} AS {quoted(alias or table.name)}"
        condition = f" WHERE ({where})" if where else ""
        values = ", ".join(f"({text}) AS {quoted('__new_' + name)}" for name, text in by_name.items())
        old = ", ".join(f"{quoted(f.name)} AS {quoted('__old_' + f.name)}" for f in table.schema.fields)
        with named_views(self._worker, named):
            computed = self._worker.sql(f"SELECT {old}, {values} FROM {scope}{condition}")
        types = {f.name: f.dataType for f in computed.schema.fields}
        new = {
            name: fitted_sql(self._worker, quoted("__new_" + name), types["__new_" + name], _field(table, name), table)
            for name in by_name
        }
        frame = self._worker.sql(_update_sql(self._worker.view(computed), table, new))
        return self._accept(table, self._materialised(frame, table))

    def _materialised(self, frame: Frame, table: Table) -> Rows:
        """Run a statement whose size is unknown: few rows come to the driver, many are written by executors."""
        writer = self._ground.writer
        try:
            if writer.fits_in_memory(table.schema.fields, _PROBE_ROWS):
                self._worker.size_for(0)
                fetched = self._worker.to_arrow(writer.selected(self._worker, frame, table).limit(_PROBE_ROWS + 1))
                if fetched.num_rows <= _PROBE_ROWS:
                    return arrow_rows(fetched)
            self._worker.size_for(10_000_000)
            return writer.materialised(self._worker, frame, table, None)
        except EvaluationError as error:
            raise constraint_error(error) from error

    def upsert(self, table: Table, rows: Any) -> Change:
        """Insert rows, replacing those with the same key."""
        if not table.schema.key or ROW_ID in table.schema.fields:
            raise ConstraintError(
                f'table "{table.name}" has no primary key to upsert by',
                hint="Use insert, or create the table with a PRIMARY KEY.",
            )
        with tempfile.TemporaryDirectory(prefix="headwater-in-") as scratch:
            given = self._incoming(rows, table, scratch)
            arriving = self._worker.view(fitted(self._worker, given, table))
            key = [f for f in table.schema.fields if f.name in table.schema.key]
            state = self._worker.view(self.state(table))
            hint = "/*+ BROADCAST(s) */ " if given.count is not None and given.count <= 500_000 else ""
            differs = " OR ".join(
                f"NOT {equal_sql(f't.{quoted(f.name)}', f's.{quoted(f.name)}', f.type)}" for f in table.schema.visible
            )
            first = quoted(key[0].name)
            frame = self._worker.sql(
                f"SELECT {hint}inline(CASE WHEN t.{first} IS NULL THEN array({_struct(table, 's', 'I')}) "
                f"WHEN {differs} THEN array({_struct(table, 't', 'D')}, {_struct(table, 's', 'I')}) END) "
                f"FROM {arriving} s LEFT JOIN {state} t ON {keys_equal_sql('t', 's', key)}"
            )
            return self._accept(table, self._materialised(frame, table))

    def truncate(self, table: Table) -> Change:
        """Remove all rows."""
        return self.delete(table, None, None, {})

    def merge(
        self, statement: Merge, table: Table, source: str, source_name: str, named: Mapping[str, Frame]
    ) -> Change:
        """Run MERGE INTO: the first clause that applies to a row decides what happens to it."""
        target = quoted(statement.target_alias or table.name)
        origin = quoted(statement.source_alias or source_name)
        view = self._worker.view(self.state(table))
        kinds = {c.kind for c in statement.clauses}
        join = "INNER"
        if MergeKind.NOT_MATCHED in kinds and MergeKind.NOT_MATCHED_BY_SOURCE in kinds:
            join = "FULL OUTER"
        elif MergeKind.NOT_MATCHED in kinds:
            join = "RIGHT OUTER"
        elif MergeKind.NOT_MATCHED_BY_SOURCE in kinds:
            join = "LEFT OUTER"
        scope = (
            f"(SELECT *, true AS __in_target FROM {view}) AS {target} {join} JOIN "
            f"(SELECT *, true AS __in_source FROM {source}) AS {origin} ON ({statement.on})"
        )
        with named_views(self._worker, named):
            columns = self._worker.sql(f"SELECT {origin}.* FROM {scope}").columns[:-1]
            arms = [self._merge_arm(c, table, target, origin, columns, scope) for c in statement.clauses]
            frame = self._worker.sql(f"SELECT inline(CASE {' '.join(arms)} END) FROM {scope}")
        return self._accept(table, self._with_fresh_ids(self._materialised(frame, table), table))

    def _merge_arm(
        self, clause: MergeClause, table: Table, target: str, origin: str, columns: Sequence[str], scope: str
    ) -> str:
        here, there = f"{target}.__in_target", f"{origin}.__in_source"
        test = {
            MergeKind.MATCHED: f"{here} AND {there}",
            MergeKind.NOT_MATCHED: f"{there} AND {here} IS NULL",
            MergeKind.NOT_MATCHED_BY_SOURCE: f"{here} AND {there} IS NULL",
        }[clause.kind]
        if clause.condition is not None:
            test = f"{test} AND ({clause.condition})"
        old = {f.name: f"{target}.{quoted(f.name)}" for f in table.schema.fields}
        if clause.action is MergeAction.DELETE:
            return f"WHEN {test} THEN array({_struct_of(table, old, 'D')})"
        if clause.star:
            by_name = {c.casefold(): c for c in columns}
            given = {
                f.name: f"{origin}.{quoted(by_name[f.name.casefold()])}"
                for f in table.schema.visible
                if f.name.casefold() in by_name
            }
        elif clause.action is MergeAction.UPDATE:
            given = _assigned({a.column: a.value.text for a in clause.assignments}, table)
        else:
            pairs = {c: v.text for c, v in zip(clause.insert_columns, clause.insert_values, strict=True)}
            given = _assigned(pairs, table)
        probe = ", ".join(f"({text}) AS {quoted(name)}" for name, text in given.items())
        types = {f.name: f.dataType for f in self._worker.sql(f"SELECT {probe} FROM {scope}").schema.fields}
        fit = {n: fitted_sql(self._worker, f"({t})", types[n], _field(table, n), table) for n, t in given.items()}
        if clause.action is MergeAction.UPDATE:
            new = {**old, **fit}
            same = " AND ".join(equal_sql(old[n], f"({t})", _field(table, n).type) for n, t in fit.items()) or "true"
            return (
                f"WHEN {test} THEN CASE WHEN {same} THEN CAST(NULL AS ARRAY<{_struct_type(table)}>) ELSE "
                f"array({_struct_of(table, old, 'D')}, {_struct_of(table, new, 'I')}) END"
            )
        made = {}
        for f in table.schema.visible:
            from_null = fitted_sql(self._worker, "NULL", _VOID, f, table)
            made[f.name] = fit.get(f.name, from_null)
        if ROW_ID in table.schema.fields:
            made[ROW_ID.name] = "CAST(-1 AS BIGINT)"
        return f"WHEN {test} THEN array({_struct_of(table, made, 'I')})"

    def _with_fresh_ids(self, rows: Rows, table: Table) -> Rows:
        """Number inserted rows of a table with row ids; those of a MERGE arrive as -1."""
        if ROW_ID not in table.schema.fields or rows.inserts == 0:
            return rows
        if rows.arrow is None:
            raise StatementError(
                f'MERGE INTO "{table.name}" inserts more than {_PROBE_ROWS} rows into a table without a primary key',
                hint="Split it into an UPDATE and an INSERT ... SELECT, or give the table a PRIMARY KEY.",
            )
        ids = rows.arrow.column(ROW_ID.name).to_numpy(zero_copy_only=False).copy()
        fresh = ids == -1
        ids[fresh] = table.next_row_id + np.arange(int(fresh.sum()))
        position = rows.arrow.column_names.index(ROW_ID.name)
        arrow = rows.arrow.set_column(position, ROW_ID.name, pa.array(ids))
        self._tx.next_row_id[table.id] = table.next_row_id + int(fresh.sum())
        return replace(rows, arrow=arrow)

    def apply_changes(self, table: Table, rows: Any, action: str) -> Change:
        """Apply rows that carry their own action, I or D, as one Z-set: what cancels is not there, a deleted row must be."""
        extra = (Field(action, "STRING", nullable=False),)
        with tempfile.TemporaryDirectory(prefix="headwater-in-") as scratch:
            given = self._incoming(rows, table, scratch, extra)
            if action.casefold() not in {c.casefold() for c in given.frame.columns}:
                raise ConstraintError(f'the rows have no column "{action}"', hint="It says I or D for each row.")
            view = self._worker.view(fitted(self._worker, given, table, passed=(action,)))
            visible = table.schema.visible
            names = ", ".join(quoted(f.name) for f in visible)
            weight = (
                f"CASE {quoted(action)} WHEN 'I' THEN 1 WHEN 'D' THEN -1 ELSE "
                f"CAST(raise_error(concat('[HW301] action is neither I nor D: ', coalesce({quoted(action)}, 'NULL'))) AS INT) END"
            )
            same = ", ".join(identity_list(visible))
            shown = ", ".join(f"any_value({quoted(f.name)}) AS {quoted(f.name)}" for f in visible)
            net = self._worker.view(
                self._worker.sql(
                    f"SELECT {shown}, sum({WEIGHT}) AS {WEIGHT} FROM (SELECT {names}, {weight} AS {WEIGHT} FROM {view}) "
                    f"GROUP BY {same} HAVING sum({WEIGHT}) <> 0"
                )
            )
            state = self._worker.view(self.state(table))
            match = " AND ".join(
                f"{identity_sql(f's.{quoted(f.name)}', f.type)} <=> {identity_sql(f'd.{quoted(f.name)}', f.type)}"
                for f in visible
            )
            fields = ", ".join(f"s.{quoted(f.name)}" for f in table.schema.fields)
            order = ", ".join(f"s.{quoted(k)}" for k in table.schema.key) or "1"
            ranked = (
                f"SELECT {fields}, d.{WEIGHT} AS __n, row_number() OVER (PARTITION BY {', '.join(identity_list(visible, 's'))} "
                f"ORDER BY {order}) AS __i FROM {state} s JOIN (SELECT * FROM {net} WHERE {WEIGHT} < 0) d ON {match}"
            )
            stored = ", ".join(quoted(f.name) for f in table.schema.fields)
            deleted = f"SELECT {stored}, 'D' AS {ACTION} FROM ({ranked}) WHERE __i <= -__n"
            row_id = f", CAST(-1 AS BIGINT) AS {ROW_ID.name}" if ROW_ID in table.schema.fields else ""
            added = (
                f"SELECT {names}{row_id}, 'I' AS {ACTION} FROM {net} "
                f"LATERAL VIEW explode(sequence(1L, {WEIGHT})) AS __copy WHERE {WEIGHT} > 0"
            )
            frame = self._worker.sql(f"{deleted} UNION ALL {added}")
            made = self._materialised(frame, table)
            self._check_deleted(net, made, table)
            return self._accept(table, self._with_fresh_ids(made, table))

    def _check_deleted(self, net: str, rows: Rows, table: Table) -> None:
        wanted = (
            self._worker.rows(self._worker.sql(f"SELECT -sum({WEIGHT}) AS n FROM {net} WHERE {WEIGHT} < 0"))[0]["n"]
            or 0
        )
        if rows.deletes < wanted:
            example = self._worker.rows(
                self._worker.sql(f"SELECT * EXCEPT ({WEIGHT}) FROM {net} WHERE {WEIGHT} < 0 LIMIT 1")
            )
            self._ground.writer.discard(rows)
            raise_missing(table, str(example[0].asDict()) if example else "", wanted - rows.deletes)


class _Void:
    """Stands for the type of a bare NULL."""

    @staticmethod
    def simpleString() -> str:  # noqa: N802
        return "void"


_VOID = _Void()


def _with_row_ids(rows: Rows, first: int) -> tuple[Rows, int]:
    """Return the rows with ids of their own, and the next free id."""
    if rows.arrow is not None:
        count = rows.arrow.num_rows
        position = rows.arrow.column_names.index(ROW_ID.name)
        ids = pa.array(np.arange(first, first + count, dtype=np.int64))
        return replace(rows, arrow=rows.arrow.set_column(position, ROW_ID.name, ids)), first + count
    highest = [decoded_statistics(f).get(ROW_ID.name, (None, first, 0))[1] for f in rows.files]
    return rows, max([first, *(int(h) + 1 for h in highest)])


def _field(table: Table, name: str) -> Field:
    field = table.schema.field(name)
    assert field is not None
    return field


def _assigned(assignments: Mapping[str, str], table: Table) -> dict[str, str]:
    """Return assignments by the table's own column names, each once."""
    found: dict[str, str] = {}
    for name, text in assignments.items():
        field = table.schema.field(name)
        if field is None or field.hidden:
            raise unknown_column(name, table)
        if field.name in found:
            raise ConstraintError(f'column "{field.name}" is assigned twice')
        found[field.name] = text
    return found


def _struct(table: Table, prefix: str, action: str) -> str:
    return _struct_of(table, {f.name: f"{prefix}.{quoted(f.name)}" for f in table.schema.fields}, action)


def _struct_of(table: Table, values: Mapping[str, str], action: str) -> str:
    parts = ", ".join(f"CAST({values[f.name]} AS {_plain(f)}) AS {quoted(f.name)}" for f in table.schema.fields)
    return f"struct({parts}, '{action}' AS {ACTION})"


def _plain(field: Field) -> str:
    return "STRING" if field.type.startswith(("CHAR(", "VARCHAR(")) else field.type


def _struct_type(table: Table) -> str:
    return "STRUCT<" + ", ".join(f"{quoted(f.name)}: {_plain(f)}" for f in table.schema.fields) + f", {ACTION}: STRING>"


def _update_sql(view: str, table: Table, new: Mapping[str, str]) -> str:
    """Return old and new rows of an update, with the mask of changed columns; rows that stay the same are left out."""
    fields = table.schema.fields
    old = {f.name: quoted("__old_" + f.name) for f in fields}
    computed = ", ".join(f"{text} AS {quoted('__fit_' + name)}" for name, text in new.items())
    kept = ", ".join(old.values())
    after = {**old, **{n: quoted("__fit_" + n) for n in new}}
    words: dict[int, list[str]] = {i: [] for i in range((len(fields) + 62) // 63)}
    for i, f in enumerate(fields):
        if f.name in new:
            changed = f"NOT {equal_sql(old[f.name], after[f.name], f.type)}"
            words[i // 63].append(f"CASE WHEN {changed} THEN {1 << (i % 63)}L ELSE 0L END")
    mask = "array(" + ", ".join(" | ".join(w) or "0L" for w in words.values()) + ")"
    rows = []
    for action, values in (("D", old), ("I", after)):
        parts = ", ".join(f"{values[f.name]} AS {quoted(f.name)}" for f in fields)
        rows.append(f"struct({parts}, '{action}' AS {ACTION}, __mask AS {CHANGED})")
    inner = f"SELECT {kept}, {computed} FROM {view}"
    masked = f"SELECT *, {mask} AS __mask FROM ({inner})"
    return f"SELECT inline(array({', '.join(rows)})) FROM ({masked}) WHERE exists(__mask, w -> w <> 0)"
