"""Delta of a projection.

    delta(project(R))  =  project(delta R)

Linear like a filter; the weight is passed on. Rows that became equal by projecting may cancel: they are summed where the result
is published, not here.

Relies on: every expression is deterministic, so the old row yields today what it yielded when it was published.
"""

from __future__ import annotations

from headwater.delta.context import WEIGHT, Delta, DeltaContext
from headwater.plan.operators import Named, Project


def project_delta(op: Project, ctx: DeltaContext) -> Delta:
    """Return the projection of the changes of its input."""
    items = (*op.items, Named.same(WEIGHT))
    return tuple(t.over(lambda tree: Project(tree, items)) for t in ctx.delta(op.input))
