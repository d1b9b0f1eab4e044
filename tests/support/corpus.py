"""Compositions as JSON files: what once failed, or is known to be tricky, is run again for ever.

    {"name": ..., "why": ..., "tables": {"t1": {"key": true, "columns": {"id": "BIGINT", ...}, "rows": [[...], ...]}},
     "sql": ..., "duckdb": ... or null, "steps": [[{"do": "Insert", "table": "t1", "rows": [[...]], "via": "dicts"}, ...], ...]}

Rows are lists in the order of the columns; decimals and dates are written as text.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.support.compositions import Composition
from tests.support.generate import Apply, Delete, Insert, Merge, Rekey, TableSpec, Update, Upsert
from tests.support.histories import Change, DeleteWhere, Together, UpdateWhere
from tests.support.relations import TYPES
from tests.support.values import Column, Row

CHANGES = {
    c.__name__: c for c in (Insert, Update, Rekey, Upsert, Delete, Apply, Merge, DeleteWhere, UpdateWhere, Together)
}
_TAGS = {"INT": "int", "DOUBLE": "double"} | {ddl: tag for tag, ddl in TYPES.items() if tag not in ("ratio", "int")}


def save(composition: Composition, path: Path, why: str = "") -> None:
    """Write a composition; its tree is not kept, only the texts."""
    tables = {
        t.name: {
            "key": t.keyed,
            "columns": {c.name: c.ddl for c in t.columns},
            "rows": _rows_out(t, composition.rows.get(t.name, ())),
        }
        for t in composition.tables
    }
    specs = {t.name: t for t in composition.tables}
    made = {
        "name": composition.name,
        "why": why,
        "tables": tables,
        "sql": composition.sql,
        "duckdb": composition.duckdb,
        "steps": [[_change_out(specs, c) for c in step] for step in composition.steps],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_laid_out(made) + "\n")


def load(path: Path) -> Composition:
    """Read a composition."""
    found = json.loads(path.read_text())
    specs = {}
    for name, table in found["tables"].items():
        columns = tuple(Column(n, _TAGS[ddl], ddl) for n, ddl in table["columns"].items())
        specs[name] = TableSpec(name, columns, table["key"])
    rows = {name: _rows_in(specs[name], table["rows"]) for name, table in found["tables"].items()}
    steps = tuple(tuple(_change_in(specs, c) for c in step) for step in found["steps"])
    return Composition(found["name"], tuple(specs.values()), rows, steps, found["sql"], found["duckdb"])


# values ---------------------------------------------------------------------------------------------------------------------


def _value_out(value: Any) -> Any:
    return str(value) if isinstance(value, Decimal | date) else value


def _value_in(column: Column, value: Any) -> Any:
    readers: dict[str, Callable[[Any], Any]] = {"dec": Decimal, "date": date.fromisoformat, "double": float}
    return readers[column.tag](value) if column.tag in readers and value is not None else value


def _rows_out(table: TableSpec, rows: Sequence[Row]) -> list[list[Any]]:
    return [[_value_out(r[c.name]) for c in table.columns] for r in rows]


def _rows_in(table: TableSpec, rows: Sequence[Sequence[Any]]) -> tuple[Row, ...]:
    return tuple({c.name: _value_in(c, v) for c, v in zip(table.columns, row, strict=True)} for row in rows)


# changes --------------------------------------------------------------------------------------------------------------------


def _change_out(specs: Mapping[str, TableSpec], change: Change) -> dict[str, Any]:
    made: dict[str, Any] = {"do": type(change).__name__}
    if isinstance(change, Together):
        return {**made, "parts": [_change_out(specs, p) for p in change.parts]}
    for field in dataclasses.fields(change):
        value = getattr(change, field.name)
        if field.name == "rows":
            value = _rows_out(specs[change.table], value)
        elif isinstance(value, dict):
            value = {n: _value_out(v) for n, v in value.items()}
        elif isinstance(value, tuple):
            value = [_value_out(v) for v in value]
        made[field.name] = value
    return made


def _change_in(specs: Mapping[str, TableSpec], found: Mapping[str, Any]) -> Change:
    kind = CHANGES[found["do"]]
    if kind is Together:
        return Together(tuple(_change_in(specs, p) for p in found["parts"]))
    table = specs[found["table"]]
    columns = {c.name: c for c in table.columns}
    made: dict[str, Any] = {}
    for name, value in found.items():
        if name == "rows":
            made[name] = _rows_in(table, value)
        elif isinstance(value, dict):
            made[name] = {n: _value_in(columns[n], v) for n, v in value.items()}
        elif name == "values":
            made[name] = tuple(_value_in(columns[found["column"]], v) for v in value)
        elif name != "do":
            made[name] = tuple(value) if isinstance(value, list) else value
    return kind(**made)


# layout ---------------------------------------------------------------------------------------------------------------------


def _laid_out(value: Any, depth: int = 0) -> str:
    """Return JSON with one row, or one change, per line."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) + 2 * depth <= 110 or not isinstance(value, dict | list) or not value:
        return line
    indent = "  " * (depth + 1)
    if isinstance(value, dict):
        parts = [f"{json.dumps(k)}: {_laid_out(v, depth + 1)}" for k, v in value.items()]
        opened, closed = "{", "}"
    else:
        parts = [_laid_out(v, depth + 1) for v in value]
        opened, closed = "[", "]"
    return f"{opened}\n{indent}" + f",\n{indent}".join(parts) + f"\n{'  ' * depth}{closed}"
