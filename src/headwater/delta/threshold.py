"""A row compared with a value that moves: only what lies between the old and the new value can change.

    delta V * {r : r > v}  =  delta V * {r : r > v and r between the least and the greatest v of delta V}
                              if the weights in delta V add up to nothing and nothing but the comparison reads v

For a row outside of these values the comparison says the same of every v. It is then added as often as it is taken away.

`WHERE x > (SELECT avg(x) FROM ...)` is the case that matters: every change moves the average a little, no row has a key in common with
it, and all rows would be compared with both values. What the weights add up to is known when the rows of delta V are: the limit
says where they are (`plan/operators.py::Between`), and whoever reads the table looks at them.

Relies on: comparing is monotone. Floating-point numbers are left out (NaN), strings too (collations).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from headwater.delta.accumulators import decimal_parts
from headwater.delta.context import WEIGHT, stage_place
from headwater.plan.expressions import Call, Column, ColumnRef, Expression, Literal, column_ids
from headwater.plan.operators import Between, Filter, Operator, Project, Scan, SemiJoin, Side, Stage

_COMPARISONS = ("({0} < {1})", "({0} <= {1})", "({0} > {1})", "({0} >= {1})")
_CAST = re.compile(r"CAST\(\{0\} AS (DECIMAL\(\d+, ?\d+\))\)")
_DIGITS = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 19}


def moving(changes: Operator) -> tuple[Column, ...]:
    """Return the columns of changes that need not be the same in each of their rows."""
    items = changes.items if isinstance(changes, Project) else ()
    same = {WEIGHT.id, *(i.column.id for i in items if isinstance(i.expression, Literal))}
    return tuple(c for c in changes.output if c.id not in same)


def threshold(
    changes: Sequence[Column], side: Sequence[Column], conditions: Sequence[Expression], read: Sequence[Expression]
) -> tuple[Column, Column] | None:
    """Return the column of `side` and the one of `changes` that are compared, if nothing else reads what changes.

    `changes` are the moving columns, `conditions` all that join the two, `read` whatever else is computed from their rows.
    """
    values = {c.id: c for c in changes}
    using = [c for c in conditions if column_ids(c) & values.keys()]
    if len(using) != 1 or any(column_ids(e) & values.keys() for e in read):
        return None
    (condition,) = using
    if not isinstance(condition, Call) or condition.form not in _COMPARISONS:
        return None
    own = {c.id: c for c in side}
    for mine, other in (condition.args, condition.args[::-1]):
        found = _widened(mine, own)
        if found is not None and isinstance(other, ColumnRef) and other.id in values:
            return found, values[other.id]
    return None


def _widened(expression: Expression, columns: dict[int, Column]) -> Column | None:
    """Return the column that an expression is, or is in a wider type; None if it is neither, or has no plain order."""
    if isinstance(expression, ColumnRef):
        column = columns.get(expression.id)
        return column if column is not None and (column.type == "DATE" or _digits(column.type)) else None
    if not isinstance(expression, Call) or len(expression.args) != 1 or not isinstance(expression.args[0], ColumnRef):
        return None
    cast, column = _CAST.fullmatch(expression.form), columns.get(expression.args[0].id)
    if cast is None or column is None:
        return None
    source, target = _digits(column.type), _digits(cast[1])
    is_wider = source and target and target[0] >= source[0] and target[1] >= source[1]
    return column if is_wider else None


def _digits(type_: str) -> tuple[int, int] | None:
    """Return how many digits a type has before and after the point."""
    if type_ in _DIGITS:
        return _DIGITS[type_], 0
    if not type_.startswith("DECIMAL("):
        return None
    precision, scale = decimal_parts(type_)
    return precision - scale, scale


def has_limit(op: Operator, column: int) -> bool:
    """Say whether `between` can limit a scan below `op`: the column comes from one, and nothing limits that one already."""
    return between(op, column, Stage("", ()), Column(column, "", "")) != op


def between(op: Operator, column: int, stage: Stage, value: Column) -> Operator:
    """Return `op` with the scan that `column` comes from limited by the rows of `stage`; unchanged if it is computed."""
    match op:
        case Scan() if op.side in (Side.NEW, Side.OLD) and not op.near:
            name = {c.id: n for c, n in zip(op.columns, op.names, strict=True)}[column]
            return replace(op, between=Between(name, stage_place(stage.name), value.sql, WEIGHT.sql))
        case Filter():
            return op.with_inputs(between(op.input, column, stage, value))
        case SemiJoin():
            return op.with_inputs(between(op.left, column, stage, value), op.right)
        case Project():
            expression = next(i.expression for i in op.items if i.column.id == column)
            if isinstance(expression, ColumnRef):
                return op.with_inputs(between(op.input, expression.id, stage, value))
    return op
