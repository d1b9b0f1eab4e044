"""Rows of the driver for which simple conditions hold (`plan/where.py`)."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headwater.plan.where import Comparison, Kind, Where

_COMPARISONS = {
    Comparison.EQUAL: pc.equal,
    Comparison.LESS: pc.less,
    Comparison.LESS_EQUAL: pc.less_equal,
    Comparison.GREATER: pc.greater,
    Comparison.GREATER_EQUAL: pc.greater_equal,
}
_PIECES = {Comparison.STARTS: pc.starts_with, Comparison.ENDS: pc.ends_with, Comparison.CONTAINS: pc.match_substring}


def columns_of(where: Sequence[Where]) -> list[str]:
    """Return the columns that these conditions look at."""
    return [n for w in where for n in (w.name, *(str(v) for v in w.values if w.kind is Kind.COLUMN))]


def rows_where(table: pa.Table, where: Sequence[Where]) -> pa.Table:
    """Return the rows for which all of `where` hold; a condition on NULL does not hold. What cannot be judged holds."""
    mask = None
    for one in where:
        held = _held(table, one)
        if held is not None:
            mask = held if mask is None else pc.and_(mask, held)
    return table if mask is None else table.filter(mask)


def are_judged(table: pa.Table, where: Sequence[Where]) -> bool:
    """Say whether none of `where` is let through because it cannot be judged."""
    return all(_held(table, one) is not None for one in where)


def _held(table: pa.Table, where: Where) -> pa.ChunkedArray | None:
    column = table.column(where.name)
    if where.kind is Kind.COLUMN:
        other = table.column(str(where.values[0]))
        is_known = any(_is_of(column.type, k) for k in (Kind.INTEGER, Kind.TEXT, Kind.DATE))
        return _COMPARISONS[where.test](column, other) if is_known and column.type == other.type else None
    if not _is_of(column.type, where.kind):
        return None
    if where.kind is Kind.BOOLEAN:
        return column
    if where.test in _PIECES:
        return _PIECES[where.test](column, str(where.values[0]))
    values = pa.array([_value(v, where.kind) for v in where.values]).cast(column.type)
    if where.test is Comparison.IN:
        found = pc.is_in(column, value_set=values)
        return pc.and_(found, column.is_valid())
    return _COMPARISONS[where.test](column, values[0])


def _is_of(type_: pa.DataType, kind: Kind) -> bool:
    match kind:
        case Kind.INTEGER:
            return bool(pa.types.is_signed_integer(type_))
        case Kind.TEXT:
            return bool(pa.types.is_string(type_))
        case Kind.DATE:
            return bool(pa.types.is_date32(type_))
        case Kind.BOOLEAN:
            return bool(pa.types.is_boolean(type_))
        case Kind.COLUMN:
            return True


def _value(value: int | str, kind: Kind) -> object:
    return datetime.date.fromisoformat(str(value)) if kind is Kind.DATE else value
