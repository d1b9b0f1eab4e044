"""Delta of an expand (GROUPING SETS, CUBE, ROLLUP).

    delta(expand(R))  =  expand(delta R)

Linear: each row becomes a fixed number of rows. The grouping id is one of the columns, so NULL as "all" and NULL as a value never
meet in one group.
"""

from __future__ import annotations

from dataclasses import replace

from headwater.delta.context import WEIGHT, DeltaContext
from headwater.plan.expressions import ColumnRef
from headwater.plan.operators import Expand, Operator


def expand_delta(op: Expand, ctx: DeltaContext) -> Operator:
    """Return the expansion of the changes of its input."""
    return replace(
        op,
        input=ctx.delta(op.input),
        rows=tuple((*row, ColumnRef(WEIGHT.id)) for row in op.rows),
        columns=(*op.columns, WEIGHT),
    )
