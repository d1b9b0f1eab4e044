"""Delta of UNION ALL.

delta(A + B)  =  delta A + delta B
"""

from __future__ import annotations

from headwater.delta.context import WEIGHT, DeltaContext
from headwater.plan.operators import Operator, Union


def union_delta(op: Union, ctx: DeltaContext) -> Operator:
    """Return the changes of all branches."""
    return Union(tuple(ctx.delta(b) for b in op.branches), (*op.columns, WEIGHT))
