"""Delta of an expand (GROUPING SETS, CUBE, ROLLUP).

    delta(expand(R))  =  expand(delta R)

Linear: each row becomes a fixed number of rows. The grouping id is one of the columns, so NULL as "all" and NULL as a value never
meet in one group.
"""

from __future__ import annotations

from dataclasses import replace

from headwater.delta.context import WEIGHT, Delta, DeltaContext
from headwater.plan.expressions import ColumnRef
from headwater.plan.operators import Expand, Operator


def expand_delta(op: Expand, ctx: DeltaContext) -> Delta:
    """Return the expansion of the changes of its input."""
    rows = tuple((*row, ColumnRef(WEIGHT.id)) for row in op.rows)

    def expanded(tree: Operator) -> Operator:
        return replace(op, input=tree, rows=rows, columns=(*op.columns, WEIGHT))

    return tuple(t.over(expanded) for t in ctx.delta(op.input))
