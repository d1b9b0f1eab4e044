"""Delta of window functions.

    delta(window(R))  =  window(R', changed partitions)  -  window(R, changed partitions)

A window function looks at the rows of its partition alone, so partitions without a change stay as they are. A row that moves between
partitions changes both: its old row names one, its new row the other. Without PARTITION BY there is one partition.

Relies on: the order is total where a function could tell peers apart, so the same rows give the same answers again.
"""

from __future__ import annotations

from headwater.delta.context import Delta, DeltaContext, Term, drivers_of, stage_place, weighted
from headwater.delta.near import Pair, restricted
from headwater.plan.expressions import ColumnRef
from headwater.plan.operators import Named, Operator, Project, Stage, Window


def window_delta(op: Window, ctx: DeltaContext) -> Delta:
    """Return the old rows of the changed partitions as deletions and the new ones as insertions."""
    changes = ctx.changes(op.input)
    if changes is None:
        return ()
    drivers = (stage_place(changes.name),) if isinstance(changes, Stage) else drivers_of(ctx.delta(op.input))
    partitions = tuple(ctx.again(c) for c in op.partition)
    items = tuple(Named(n, ColumnRef(c.id)) for n, c in zip(partitions, op.partition, strict=True))
    keys = Project(changes, items)
    pairs = [Pair(c, k) for c, k in zip(op.partition, partitions, strict=True)]

    def within(state: Operator) -> Operator:
        return op.with_inputs(restricted(state, keys, pairs))

    return (
        Term(drivers, weighted(within(ctx.old(op.input)), "-1")),
        Term(drivers, weighted(within(ctx.new(op.input)), "1")),
    )
