"""Delta of a generator (explode, posexplode, inline, stack, json_tuple, LATERAL VIEW).

    delta(generate(R))  =  generate(delta R)

Linear: what a generator makes of a row depends on that row alone, so a row that goes takes with it what was made of it.
"""

from __future__ import annotations

from headwater.delta.context import WEIGHT, Delta, DeltaContext
from headwater.plan.operators import Generate, Named, Operator, Project


def generate_delta(op: Generate, ctx: DeltaContext) -> Delta:
    """Return what the generator makes of the changes of its input."""
    order = tuple(Named.same(c) for c in (*op.output, WEIGHT))

    def generated(tree: Operator) -> Operator:
        return Project(op.with_inputs(tree), order)

    return tuple(t.over(generated) for t in ctx.delta(op.input))
