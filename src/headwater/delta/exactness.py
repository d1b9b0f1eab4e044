"""Which columns are exact, and which are floating-point sums.

The last digits of a sum of floats depend on the order of additions. That is harmless wherever the value is shown or computed with,
and wrong wherever it is tested for equality: two groups with "the same" sum may be one today and two tomorrow.
"""

from __future__ import annotations

from headwater.delta.accumulators import FLOATS
from headwater.delta.aggregates import ALGEBRAIC
from headwater.plan.expressions import Call, Column, ColumnRef, Expression
from headwater.plan.operators import Aggregate, Expand, Operator, Project, Union

_SUMS = ALGEBRAIC - {"min", "max"}
_ROUNDING = frozenset({"round", "bround", "floor", "ceil"})
_BY_VALUE = frozenset({"collect_set", "mode", "histogram_numeric", "approx_count_distinct"})


def compared_sums(op: Operator) -> list[str]:
    """Return what an aggregate tests for equality although it is a floating-point sum, or computed from one without rounding."""
    if not isinstance(op, Aggregate):
        return []
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
    elif isinstance(op, Union):
        made += [(c, any(b.output[i].id in below for b in op.inputs)) for i, c in enumerate(op.output)]
    below |= {c.id for c, depends in made if depends and c.type in FLOATS}
    return below & {c.id for c in op.output}


def _depends(expression: Expression, columns: set[int]) -> bool:
    if isinstance(expression, Call) and expression.name in _ROUNDING:
        return False
    if isinstance(expression, ColumnRef):
        return expression.id in columns
    return any(_depends(c, columns) for c in expression.children)
