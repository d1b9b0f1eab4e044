"""Delta of UNION ALL.

delta(A + B)  =  delta A + delta B
"""

from __future__ import annotations

from headwater.delta.context import WEIGHT, Delta, DeltaContext
from headwater.plan.expressions import ColumnRef
from headwater.plan.operators import Named, Operator, Project, Union


def union_delta(op: Union, ctx: DeltaContext) -> Delta:
    """Return the changes of all branches."""
    return tuple(t.over(lambda tree: _renamed(tree, op)) for b in op.branches for t in ctx.delta(b))


def _renamed(tree: Operator, op: Union) -> Operator:
    """Return the rows of a branch under the union's columns, by position."""
    pairs = zip((*op.columns, WEIGHT), tree.output, strict=True)
    return Project(tree, tuple(Named(new, ColumnRef(old.id)) for new, old in pairs))
