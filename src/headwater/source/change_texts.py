"""The SQL texts that turn old and new values into change rows of a table."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.engine.identity import equal_sql, type_shape
from headwater.errors import ConstraintError
from headwater.model.schema import Field
from headwater.model.sql import quoted
from headwater.model.tables import Table
from headwater.source.fitting import unknown_column
from headwater.store.rows import ACTION, CHANGED, ROW_ID

FRESH_ID = -1
"""The row id of an inserted row that has not got its own yet."""


def has_row_id(table: Table) -> bool:
    """Whether rows of the table are told apart by a hidden id."""
    return ROW_ID in table.schema.fields


def column(table: Table, name: str) -> Field:
    """Return a column that is known to exist."""
    field = table.schema.field(name)
    assert field is not None
    return field


def assigned(assignments: Mapping[str, str], table: Table) -> dict[str, str]:
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


def row_of(table: Table, prefix: str, action: str) -> str:
    """Return a row of the relation `prefix` names as a change row, a struct."""
    return row_struct(table, {f.name: f"{prefix}.{quoted(f.name)}" for f in table.schema.fields}, action)


def row_struct(table: Table, values: Mapping[str, str], action: str) -> str:
    """Return a change row as a struct of these values."""
    parts = ", ".join(f"CAST({values[f.name]} AS {_stored(f)}) AS {quoted(f.name)}" for f in table.schema.fields)
    return f"struct({parts}, '{action}' AS {ACTION})"


def rows_type(table: Table) -> str:
    """Return the type of an array of change rows."""
    fields = ", ".join(f"{quoted(f.name)}: {_stored(f)}" for f in table.schema.fields)
    return f"ARRAY<STRUCT<{fields}, {ACTION}: STRING>>"


def _stored(field: Field) -> str:
    return type_shape(field.type).stored


def update_sql(view: str, table: Table, new: Mapping[str, str]) -> str:
    """Return old and new rows of an update, with the mask of changed columns; rows that stay the same are left out.

    `view` holds the old values as `__old_*` and whatever the expressions in `new` read.
    """
    fields = table.schema.fields
    old = {f.name: quoted("__old_" + f.name) for f in fields}
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
    computed = ", ".join(f"{text} AS {quoted('__fit_' + name)}" for name, text in new.items())
    inner = f"SELECT {', '.join(old.values())}, {computed} FROM {view}"
    masked = f"SELECT *, {mask} AS __mask FROM ({inner})"
    return f"SELECT inline(array({', '.join(rows)})) FROM ({masked}) WHERE exists(__mask, w -> w <> 0)"
