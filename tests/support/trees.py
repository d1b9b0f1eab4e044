"""Operator trees evaluated in plain Python: what a tree yields if its scans are taken at their word.

Rows that `near`, `where` or `between` of a scan says may be left out are left out, all of them. So a tree whose scans promise too much
yields something else here than the same tree without limits.

Of functions only those are known that the random trees use (`random_trees.py`); aggregates and windows count rows.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.delta.context import WEIGHT, changes_place, stage_place
from headwater.plan.expressions import Call, ColumnRef, Expression, Literal
from headwater.plan.operators import (
    Aggregate,
    At,
    Between,
    Expand,
    Filter,
    Generate,
    Join,
    JoinKind,
    Near,
    Operator,
    Project,
    Scan,
    SemiJoin,
    Side,
    Stage,
    Top,
    Union,
    Values,
    Via,
    Window,
    walk_operators,
)
from headwater.store.near import _fitted_ends
from headwater.store.where import rows_where

Row = dict[int, Any]
"""The values of a row by the numbers of its columns."""


@dataclass(frozen=True, slots=True)
class Data:
    """What trees read: `states` are tables by side and name, `at_hand` changes of tables and rows of stages by their place."""

    states: Mapping[tuple[Side, str], pa.Table]
    at_hand: Mapping[str, pa.Table]


def bag(rows: Iterable[Row]) -> Counter[tuple[tuple[int, Any], ...]]:
    """Return how often each row is there."""
    return Counter(tuple(sorted(r.items())) for r in rows)


def z_set(rows: Iterable[Row]) -> dict[tuple[tuple[int, Any], ...], int]:
    """Return what the weights of each row add up to, where that is not nothing."""
    total: Counter[tuple[tuple[int, Any], ...]] = Counter()
    for row in rows:
        total[tuple(sorted((i, v) for i, v in row.items() if i != WEIGHT.id))] += row[WEIGHT.id]
    return {row: weight for row, weight in total.items() if weight}


# expressions ----------------------------------------------------------------------------------------------------------------


def value(expression: Expression, row: Row) -> Any:
    """Return what an expression is in a row; None is NULL."""
    match expression:
        case ColumnRef():
            return row[expression.id]
        case Literal():
            return None if expression.text.startswith("CAST(NULL") else int(expression.text)
        case Call():
            args = [value(a, row) for a in expression.args]
            return _one_of(*args) if expression.name == "in" else _FORMS[expression.form](*args)
        case _:
            raise AssertionError(expression)


def _known(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that is NULL if any of its arguments is."""
    return lambda *args: None if None in args else fn(*args)


def _and(*args: bool | None) -> bool | None:
    return False if False in args else None if None in args else True


def _or(*args: bool | None) -> bool | None:
    return True if True in args else None if None in args else False


def _one_of(tested: Any, *listed: Any) -> bool | None:
    return _or(*(_FORMS["({0} = {1})"](tested, v) for v in listed))


_FORMS: dict[str, Callable[..., Any]] = {
    "({0} = {1})": _known(operator.eq),
    "({0} <=> {1})": operator.eq,
    "({0} < {1})": _known(operator.lt),
    "({0} <= {1})": _known(operator.le),
    "({0} > {1})": _known(operator.gt),
    "({0} >= {1})": _known(operator.ge),
    "({0} BETWEEN {1} AND {2})": lambda x, low, high: _and(_known(operator.ge)(x, low), _known(operator.le)(x, high)),
    "({0} AND {1})": _and,
    "({0} OR {1})": _or,
    "(NOT {0})": _known(operator.not_),
    "({0} + {1})": _known(operator.add),
    "explode(array({0}, {1}))": lambda *values: values,
    "CAST({0} AS DECIMAL(14,4))": lambda x: x,
}


def _all_hold(conditions: Sequence[Expression], row: Row) -> bool:
    return all(value(c, row) is True for c in conditions)


# operators ------------------------------------------------------------------------------------------------------------------


def evaluated(op: Operator, data: Data) -> list[Row]:
    """Return the rows of a tree."""
    inputs = [evaluated(i, data) for i in op.inputs]
    match op:
        case Scan():
            return _named(_scanned(op, data), zip(op.columns, op.names, strict=True))
        case Stage():
            return _named(data.at_hand[stage_place(op.name)], ((c, c.sql) for c in op.columns))
        case Values():
            return [{c.id: value(e, {}) for c, e in zip(op.columns, r, strict=True)} for r in op.rows]
        case Filter():
            return [r for r in inputs[0] if _all_hold((op.condition,), r)]
        case Project():
            return [{i.column.id: value(i.expression, r) for i in op.items} for r in inputs[0]]
        case Expand():
            made = ((e, r) for r in inputs[0] for e in op.rows)
            return [{c.id: value(x, r) for c, x in zip(op.columns, e, strict=True)} for e, r in made]
        case Generate():
            assert not op.outer
            return [{**r, op.columns[0].id: v} for r in inputs[0] for v in value(op.generator, r)]
        case Union():
            pairs = [list(zip(op.columns, b.output, strict=True)) for b in op.branches]
            return [{c.id: r[b.id] for c, b in p} for p, rows in zip(pairs, inputs, strict=True) for r in rows]
        case Aggregate():
            counts = Counter(tuple(r[g.id] for g in op.groups) for r in inputs[0])
            if not op.groups and not counts:
                counts[()] = 0
            ids = [c.id for c in op.output]
            return [dict(zip(ids, (*g, *[n] * len(op.calls)), strict=True)) for g, n in counts.items()]
        case Window():
            counts = Counter(tuple(r[p.id] for p in op.partition) for r in inputs[0])
            own = [(r, counts[tuple(r[p.id] for p in op.partition)]) for r in inputs[0]]
            return [{**r, **{c.column.id: n for c in op.calls}} for r, n in own]
        case Top():
            keys = [k.column.id for k in op.order]
            ordered = sorted(inputs[0], key=lambda r: [(r[k] is not None, r[k] or 0) for k in keys])
            return ordered[op.offset :][: op.limit]
        case SemiJoin():
            met = {tuple(r[b.id] for _, b in op.on) for r in inputs[1]}
            return [r for r in inputs[0] if tuple(r[a.id] for a, _ in op.on) in met]
        case Join():
            return _joined(op, *inputs)
        case _:
            raise AssertionError(op)


def _joined(op: Join, lefts: list[Row], rights: list[Row]) -> list[Row]:
    empty_left, empty_right = ({c.id: None for c in i.output} for i in op.inputs)
    found: list[Row] = []
    met: set[int] = set()
    for left in lefts:
        matches = [i for i, right in enumerate(rights) if _all_hold(op.conditions, {**left, **right})]
        met.update(matches)
        match op.kind:
            case JoinKind.SEMI | JoinKind.ANTI:
                found += [left] if bool(matches) is (op.kind is JoinKind.SEMI) else []
            case JoinKind.EXISTENCE:
                assert op.exists is not None
                found.append({**left, op.exists.id: int(bool(matches))})
            case JoinKind.INNER:
                found += [{**left, **rights[i]} for i in matches]
            case JoinKind.LEFT | JoinKind.FULL | JoinKind.SINGLE:
                assert op.kind is not JoinKind.SINGLE or len(matches) <= 1
                found += [{**left, **rights[i]} for i in matches] or [{**left, **empty_right}]
    if op.kind is JoinKind.FULL:
        found += [{**empty_left, **right} for i, right in enumerate(rights) if i not in met]
    return found


# tables ---------------------------------------------------------------------------------------------------------------------


def origin_values(origin: At | Via, data: Data) -> set[Any]:
    """Return the values that a column's values come from."""
    rows = data.at_hand[origin.place] if isinstance(origin, At) else _near(origin, origin.near, data)
    return set(rows_where(rows, origin.where).column(origin.name).to_pylist())


def rows_read(op: Operator, data: Data) -> int:
    """Return how many rows all scans of a tree read."""
    return sum(_scanned(o, data).num_rows for o in walk_operators(op) if isinstance(o, Scan))


def _named(table: pa.Table, columns: Iterable[tuple[Any, str]]) -> list[Row]:
    pairs = list(columns)
    return [{c.id: row[name] for c, name in pairs} for row in table.to_pylist()]


def _scanned(scan: Scan, data: Data) -> pa.Table:
    is_change = scan.side is Side.DELTA
    rows = data.at_hand[changes_place(scan.table)] if is_change else _near(scan, scan.near, data)
    if scan.between is not None:
        rows = _between(rows, scan.between, data)
    return rows_where(rows, scan.where)


def _near(read: Scan | Via, near: Sequence[Near], data: Data) -> pa.Table:
    rows = data.states[read.side, read.table]
    for one in near:
        keys = set().union(*(origin_values(s, data) for s in one.sources))
        if not one.null_safe:
            keys.discard(None)
        rows = rows.filter(pa.array([v in keys for v in rows.column(one.name).to_pylist()], pa.bool_()))
    return rows


def _between(rows: pa.Table, limit: Between, data: Data) -> pa.Table:
    """Return what lies between the values of a stage, whatever their weights add up to: to know that is the reader's task."""
    column = rows.column(limit.name)
    ends = pc.min_max(data.at_hand[limit.place].column(limit.column)).as_py()
    low, high = _fitted_ends((ends["min"], ends["max"]), column.type)
    return rows.filter(pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high)))
