"""Delta of a full join.

    delta(L full R)  =  delta(L join R)  +  delta(L anti R) * NULLs  +  NULLs * delta(R anti L)

The left join's law and its mirror. Each side is read once, near the changes of both.
"""

from __future__ import annotations

from headwater.delta.context import Delta, DeltaContext
from headwater.delta.left_join import padded
from headwater.delta.matching import Meeting, kept_rows
from headwater.plan.operators import Join


def full_join_delta(op: Join, ctx: DeltaContext) -> Delta:
    """Return the changes of the pairs and of the padded rows of either side."""
    meeting = Meeting(op, ctx)
    near_left, near_right = meeting.near_left_both(again=True), meeting.near_right(again=True)
    pairs = meeting.pairs_delta(near_left, near_right)
    lefts = kept_rows(meeting.matched(near_right), op.left.output, "(NOT {0})")
    rights = kept_rows(meeting.mirrored().matched(near_left), op.right.output, "(NOT {0})")
    return (
        *pairs,
        *(t.over(lambda tree: padded(tree, op.output, op.right.output)) for t in lefts),
        *(t.over(lambda tree: padded(tree, op.output, op.left.output)) for t in rights),
    )
