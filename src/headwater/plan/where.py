"""Conditions that can be judged without Spark: a column that is one, compared with constants, or with another column of the row.

They are read off the filters above a table and travel with its scan, so that rows which a filter drops anyway need not be handed to
Spark, and their keys need not be followed into other tables: of fifty thousand changed parts, fifty have the brand that is asked for.

Relies on: nothing. Whatever is not understood is left out, and the filter itself stays where it is: rows that are let through here
are judged again there. Numbers other than integers, strings with a collation, and orders of strings are not understood.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from headwater.plan.expressions import Call, ColumnRef, Expression, Literal

_AND = "({0} AND {1})"
_BETWEEN = "({0} BETWEEN {1} AND {2})"
_BITS = {"TINYINT": 7, "SMALLINT": 15, "INT": 31, "BIGINT": 63}
_INTEGER = re.compile(r"(-?\d{1,18})[LSY]?")
_TEXT = re.compile(r"'([^'\\]*)'", re.DOTALL)
_DATE = re.compile(r"DATE '(\d{4}-\d{2}-\d{2})'")
_CAST = re.compile(r"CAST\(\{0\} AS (\w+)\)")


class Comparison(Enum):
    """How a column is compared."""

    EQUAL = "="
    LESS = "<"
    LESS_EQUAL = "<="
    GREATER = ">"
    GREATER_EQUAL = ">="
    IN = "in"
    STARTS = "starts"
    ENDS = "ends"
    CONTAINS = "contains"


class Kind(Enum):
    """What a column is compared with."""

    INTEGER = "integer"
    TEXT = "text"
    DATE = "date"
    BOOLEAN = "boolean"
    COLUMN = "column"


@dataclass(frozen=True, slots=True)
class Where:
    """A condition on column `name`. `values` are constants (dates as text, TRUE as 1), or the name of another column."""

    name: str
    test: Comparison
    kind: Kind
    values: tuple[int | str, ...]


_COMPARED = {"({0} " + t.value + " {1})": t for t in (Comparison.EQUAL, Comparison.LESS, Comparison.LESS_EQUAL)}
_COMPARED |= {"({0} " + t.value + " {1})": t for t in (Comparison.GREATER, Comparison.GREATER_EQUAL)}
_TURNED = {
    Comparison.EQUAL: Comparison.EQUAL,
    Comparison.LESS: Comparison.GREATER,
    Comparison.LESS_EQUAL: Comparison.GREATER_EQUAL,
    Comparison.GREATER: Comparison.LESS,
    Comparison.GREATER_EQUAL: Comparison.LESS_EQUAL,
}

Names = Mapping[int, tuple[str, str]]
"""Name and type of columns by their id."""


def conjuncts(condition: Expression) -> tuple[Expression, ...]:
    """Return the parts of a condition that must all hold."""
    if isinstance(condition, Call) and condition.form == _AND:
        return conjuncts(condition.args[0]) + conjuncts(condition.args[1])
    return (condition,)


def wheres(conditions: Iterable[Expression], names: Names) -> tuple[Where, ...]:
    """Return what can be said about single rows with these columns if all of `conditions` hold."""
    return tuple(dict.fromkeys(w for c in conditions for part in conjuncts(c) for w in _read(part, names)))


def exactly(condition: Expression, names: Names) -> tuple[Where, ...]:
    """Return what says the same as a condition that is a column; nothing for others."""
    return tuple(_read(condition, names)) if isinstance(condition, ColumnRef) else ()


def _read(condition: Expression, names: Names) -> Iterator[Where]:
    if isinstance(condition, ColumnRef):
        name, type_ = names.get(condition.id, ("", ""))
        if type_ == "BOOLEAN":
            yield Where(name, Comparison.EQUAL, Kind.BOOLEAN, (1,))
        return
    if not isinstance(condition, Call):
        return
    args = condition.args
    if condition.form in _COMPARED:
        test = _COMPARED[condition.form]
        yield from _compared(args[0], test, args[1], names)
        if not isinstance(args[0], ColumnRef):
            yield from _compared(args[1], _TURNED[test], args[0], names)
    elif condition.form == _BETWEEN:
        yield from _compared(args[0], Comparison.GREATER_EQUAL, args[1], names)
        yield from _compared(args[0], Comparison.LESS_EQUAL, args[2], names)
    elif condition.name == "in":
        yield from _one_of(args[0], args[1:], names)
    elif condition.name == "like" and condition.form == "({0} LIKE {1})":
        yield from _like(args[0], args[1], names)


def _compared(column: Expression, test: Comparison, other: Expression, names: Names) -> Iterator[Where]:
    if not isinstance(column, ColumnRef) or column.id not in names:
        return
    name, type_ = names[column.id]
    if isinstance(other, ColumnRef):
        has_order = type_ in _BITS or type_ == "DATE"
        is_judged = has_order or (test is Comparison.EQUAL and type_ == "STRING")
        if is_judged and other.id in names and names[other.id][1] == type_:
            yield Where(name, test, Kind.COLUMN, (names[other.id][0],))
        return
    kind, value = _kind(type_), _constant(other, type_)
    if kind is not None and value is not None and (test is Comparison.EQUAL or kind is not Kind.TEXT):
        yield Where(name, test, kind, (value,))


def _one_of(column: Expression, listed: Iterable[Expression], names: Names) -> Iterator[Where]:
    if not isinstance(column, ColumnRef) or column.id not in names:
        return
    name, type_ = names[column.id]
    kind = _kind(type_)
    values = [_constant(e, type_) for e in listed]
    known = tuple(v for v in values if v is not None)
    if kind is not None and len(known) == len(values):
        yield Where(name, Comparison.IN, kind, known)


def _like(column: Expression, pattern: Expression, names: Names) -> Iterator[Where]:
    """Of a pattern only its pieces between % are looked at, not their order."""
    if not isinstance(column, ColumnRef) or names.get(column.id, ("", ""))[1] != "STRING":
        return
    name, text = names[column.id][0], _constant(pattern, "STRING")
    if not isinstance(text, str) or "_" in text:
        return
    first, *rest = text.split("%")
    if not rest:
        yield Where(name, Comparison.EQUAL, Kind.TEXT, (text,))
        return
    *middle, last = rest
    for test, piece in (
        (Comparison.STARTS, first),
        *((Comparison.CONTAINS, m) for m in middle),
        (Comparison.ENDS, last),
    ):
        if piece:
            yield Where(name, test, Kind.TEXT, (piece,))


def _kind(type_: str) -> Kind | None:
    if type_ in _BITS:
        return Kind.INTEGER
    return {"STRING": Kind.TEXT, "DATE": Kind.DATE}.get(type_)


def _constant(expression: Expression, type_: str) -> int | str | None:
    """Return the value of a constant of this type as far as it is written plainly."""
    kind = _kind(type_)
    if isinstance(expression, Call) and len(expression.args) == 1:
        cast = _CAST.fullmatch(expression.form)
        if cast is None or cast[1] != type_ or not isinstance(expression.args[0], Literal):
            return None
        if kind is Kind.DATE:
            text = _TEXT.fullmatch(expression.args[0].text)
            return _date(text[1]) if text else None
        return _integer(expression.args[0].text, type_) if kind is Kind.INTEGER else None
    if not isinstance(expression, Literal):
        return None
    if kind is Kind.INTEGER:
        return _integer(expression.text, type_)
    found = {Kind.TEXT: _TEXT, Kind.DATE: _DATE}[kind].fullmatch(expression.text) if kind is not None else None
    if found is None:
        return None
    return _date(found[1]) if kind is Kind.DATE else found[1]


def _integer(text: str, type_: str) -> int | None:
    found = _INTEGER.fullmatch(text)
    return int(found[1]) if found and abs(int(found[1])) < 1 << _BITS[type_] else None


def _date(text: str) -> str | None:
    try:
        return datetime.date.fromisoformat(text).isoformat() if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text) else None
    except ValueError:
        return None
