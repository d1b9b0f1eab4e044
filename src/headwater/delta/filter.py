"""Delta of a filter.

    delta(filter(R))  =  filter(delta R)

A filter is linear: it looks at one row at a time, so it may look at the change rows alone. An update that moves a row across the
condition arrives as its old row and its new row, and each is judged by its own values.
"""

from __future__ import annotations

from headwater.delta.context import Delta, DeltaContext
from headwater.plan.operators import Filter


def filter_delta(op: Filter, ctx: DeltaContext) -> Delta:
    """Return the filter over the changes of its input."""
    return tuple(t.over(op.with_inputs) for t in ctx.delta(op.input))
