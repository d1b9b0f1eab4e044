"""Which columns are exact, and which are floating-point sums.

The last digits of a sum of floats depend on the order of additions. That is harmless wherever the value is shown or computed with,
and wrong wherever it is tested for equality: two groups with "the same" sum may be one today and two tomorrow.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.delta.accumulators import FLOATS
from headwater.delta.aggregates import ALGEBRAIC
from headwater.delta.near import equalities
from headwater.plan.expressions import Call, Column, ColumnRef, Expression
from headwater.plan.operators import Aggregate, Expand, Generate, Join, Operator, Project, Recursion, Top, Union, Window
from headwater.plan.unique import unique_keys

_SUMS = ALGEBRAIC - {"min", "max"}
_ROUNDING = frozenset({"round", "bround", "floor", "ceil"})
_BY_VALUE = frozenset({"collect_set", "mode", "histogram_numeric", "approx_count_distinct"})


def compared_sums(op: Operator) -> list[str]:
    """Return what an operator tests for equality or orders by although it is a floating-point sum, or computed from one unrounded."""
    match op:
        case Join():
            inexact = _inexact(op.left) | _inexact(op.right)
            keys = [(a, b) for a, b, _ in equalities(op.conditions)]
            return ["JOIN ON a floating-point sum" for pair in keys if any(_depends(x, inexact) for x in pair)][:1]
        case Window():
            inexact = _inexact(op.input)
            used = [*op.partition, *_deciding(op, op.partition)]
            return [f"OVER (... {c.name})" for c in used if c.id in inexact]
        case Top():
            inexact = _inexact(op.input)
            return [f"ORDER BY {c.name}" for c in _deciding(op, ()) if c.id in inexact]
        case Aggregate():
            return _compared_by_aggregate(op)
        case Recursion():  # its rows are counted, or compared before and after
            inexact = _inexact(op)
            return [f"WITH RECURSIVE ... ({c.name})" for c in op.columns if c.id in inexact]
        case _:
            return []


def _deciding(op: Window | Top, known: Sequence[Column]) -> list[Column]:
    """Return the columns of an order that decide between any two rows: none after those that tell all rows apart."""
    keys = unique_keys(op.input, lambda table: ())
    found: list[Column] = []
    for key in op.order:
        if any(unique <= {c.id for c in (*known, *found)} for unique in keys):
            break
        found.append(key.column)
    return found


def _compared_by_aggregate(op: Aggregate) -> list[str]:
    inexact = _inexact(op.input)
    calls = [c.call for c in op.calls if c.call.distinct or c.call.name in _BY_VALUE]
    return [
        *(f"GROUP BY {c.name}" for c in op.groups if c.id in inexact),
        *(f"{c.name}() of equal values" for c in calls if any(_depends(a, inexact) for a in c.args)),
    ]


def _inexact(op: Operator) -> set[int]:
    """Return the columns of `op` whose last digits depend on the order of additions."""
    below = {i for child in op.inputs for i in _inexact(child)}
    made: list[tuple[Column, bool]] = []
    if isinstance(op, Aggregate):
        for c in op.calls:
            made.append((c.column, c.call.name in _SUMS or any(_depends(a, below) for a in c.call.args)))
    elif isinstance(op, Project):
        made += [(i.column, _depends(i.expression, below)) for i in op.items]
    elif isinstance(op, Expand):
        made += [(c, any(_depends(row[i], below) for row in op.rows)) for i, c in enumerate(op.columns)]
    elif isinstance(op, Window):
        made += [(c.column, any(_depends(a, below) for a in c.call.args)) for c in op.calls]
    elif isinstance(op, Generate):
        made += [(c, _depends(op.generator, below)) for c in op.columns]
    elif isinstance(op, Union | Recursion):
        made += [(c, any(b.output[i].id in below for b in op.inputs)) for i, c in enumerate(op.output)]
    below |= {c.id for c, depends in made if depends and c.type in FLOATS}
    return below & {c.id for c in op.output}


def _depends(expression: Expression, columns: set[int]) -> bool:
    if isinstance(expression, Call) and expression.name in _ROUNDING:
        return False
    if isinstance(expression, ColumnRef):
        return expression.id in columns
    return any(_depends(c, columns) for c in expression.children)
