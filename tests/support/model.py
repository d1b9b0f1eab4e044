"""What tables should hold, kept in Python: every operation is done twice, once by the warehouse and once here."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from tests.support.generate import (
    AddColumn,
    Apply,
    Atomic,
    Delete,
    Insert,
    Merge,
    Operation,
    Rekey,
    TableSpec,
    Update,
    Upsert,
)
from tests.support.values import Column, Row, arrow_table, literal

from headwater.warehouse import Warehouse


def plain(value: Any) -> Any:
    """Return a hashable form that is equal for equal values: one zero, one NaN, maps without order."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return tuple((k, plain(v)) for k, v in value.items())
    if isinstance(value, list):
        made = [plain(v) for v in value]
        return tuple(sorted(made, key=repr) if made and all(isinstance(v, tuple) for v in value) else made)
    if isinstance(value, tuple):
        return tuple(plain(v) for v in value)
    return value


class Model:
    """The rows of one table."""

    def __init__(self, spec: TableSpec) -> None:
        self.spec = spec
        self.columns: tuple[Column, ...] = spec.columns
        self.rows: list[Row] = []

    def counted(self) -> Counter[tuple[Any, ...]]:
        return Counter(tuple(plain(r.get(c.name)) for c in self.columns) for r in self.rows)

    def apply(self, op: Operation, wh: Warehouse) -> None:
        """Do the operation here and in the warehouse."""
        match op:
            case Insert():
                self._insert(op, wh)
            case Update():
                self._update(op, wh)
            case Rekey():
                self._rekey(op, wh)
            case Upsert():
                self._upsert(op, wh)
            case Delete():
                self._delete(op, wh)
            case Apply():
                self._apply_changes(op, wh)
            case Merge():
                self._merge(op, wh)
            case AddColumn():
                if op.column not in self.columns:
                    wh.add_column(op.table, op.column.name, op.column.ddl)
                    self.columns = (*self.columns, op.column)
            case Atomic():
                with wh.transaction():
                    for part in op.parts:
                        self.apply(part, wh)

    # selecting --------------------------------------------------------------------------------------------------------------

    def _selected(self, chosen: tuple[int, ...]) -> list[Row]:
        return [r for r in self.rows if r[self.spec.selector] in chosen]

    def _where(self, chosen: tuple[int, ...]) -> str:
        return f"{self.spec.selector} IN ({', '.join(map(str, chosen))})"

    def _free(self, rows: tuple[Row, ...]) -> list[Row]:
        """Return copies of the rows whose key is not taken."""
        if not self.spec.keyed:
            return [dict(r) for r in rows]
        taken = {r["id"] for r in self.rows}
        made: dict[int, Row] = {}
        for r in rows:
            if r["id"] not in taken:
                made.setdefault(r["id"], dict(r))
        return list(made.values())

    def _known(self, values: Row) -> Row:
        names = {c.name for c in self.columns}
        return {k: v for k, v in values.items() if k in names}

    # operations -------------------------------------------------------------------------------------------------------------

    def _insert(self, op: Insert, wh: Warehouse) -> None:
        rows = self._free(op.rows)
        if op.via == "sql" and rows:
            names = [c.name for c in self.spec.columns]
            made = ", ".join("(" + ", ".join(literal(r[c.name], c.ddl) for c in self.spec.columns) + ")" for r in rows)
            wh.sql(f"INSERT INTO {op.table} ({', '.join(names)}) VALUES {made}")
        else:
            wh.insert(op.table, arrow_table(self.spec.columns, rows) if op.via == "arrow" else rows)
        self.rows += rows

    def _update(self, op: Update, wh: Warehouse) -> None:
        values = self._known(op.values)
        types = {c.name: c.ddl for c in self.columns}
        texts = {n: literal(v, types[n]) for n, v in values.items()} | {n: n for n in op.same}
        if texts:
            wh.update(op.table, set=texts, where=self._where(op.chosen))
        for row in self._selected(op.chosen):
            row.update(values)

    def _rekey(self, op: Rekey, wh: Warehouse) -> None:
        name = self.spec.selector
        moved = self._selected(op.chosen)
        others = {id(r) for r in moved}
        taken = {r[name] for r in self.rows if id(r) not in others}
        if self.spec.keyed and any(r[name] + op.by in taken for r in moved):
            return
        wh.update(op.table, set={name: f"{name} + {op.by}"}, where=self._where(op.chosen))
        for row in moved:
            row[name] += op.by

    def _upsert(self, op: Upsert, wh: Warehouse) -> None:
        wh.upsert(op.table, [dict(r) for r in op.rows])
        keys = {r["id"] for r in op.rows}
        self.rows = [r for r in self.rows if r["id"] not in keys] + [dict(r) for r in op.rows]

    def _delete(self, op: Delete, wh: Warehouse) -> None:
        if op.chosen is None:
            wh.sql(f"TRUNCATE TABLE {op.table}")
            self.rows = []
            return
        wh.delete(op.table, where=self._where(op.chosen))
        self.rows = [r for r in self.rows if r[self.spec.selector] not in op.chosen]

    def _apply_changes(self, op: Apply, wh: Warehouse) -> None:
        gone: dict[str, Row] = {}
        for row in self._selected(op.gone):
            gone.setdefault(repr([plain(row.get(c.name)) for c in self.columns]), row)
        for row in gone.values():
            self.rows.remove(row)
        come = self._free(op.rows)
        if op.again:
            taken = {r.get("id") for r in come}
            come += [dict(r) for r in gone.values() if not self.spec.keyed or r["id"] not in taken]
        changes = [{**r, "action": "D"} for r in gone.values()] + [{**r, "action": "I"} for r in come]
        if changes:
            wh.apply_changes(op.table, changes)
        self.rows += come

    def _merge(self, op: Merge, wh: Warehouse) -> None:
        name = self.spec.selector
        columns = self.spec.columns
        source = " UNION ALL ".join(
            "SELECT " + ", ".join(f"{literal(r[c.name], c.ddl)} AS {c.name}" for c in columns) for r in op.rows
        )
        assigned = ", ".join(f"{c.name} = s.{c.name}" for c in columns if c.name != name)
        names = ", ".join(c.name for c in columns)
        wh.sql(
            f"MERGE INTO {op.table} AS x USING ({source}) AS s ON x.{name} = s.{name} "
            f"WHEN MATCHED AND s.int_0 % 2 = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET {assigned} "
            f"WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({', '.join(f's.{c.name}' for c in columns)})"
        )
        for row in op.rows:
            matched = [r for r in self.rows if r[name] == row[name]]
            odd = row["int_0"] is not None and row["int_0"] % 2 == 1 and row["int_0"] > 0
            if not matched:
                self.rows.append(dict(row))
            elif odd:
                self.rows = [r for r in self.rows if r[name] != row[name]]
            else:
                for r in matched:
                    r.update({c.name: row[c.name] for c in columns if c.name != name})
