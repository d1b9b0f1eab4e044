"""Delta of a single join: a left join whose left rows may have one match at most (a scalar subquery).

    delta(L single R)  =  delta(L left R),  and the refresh fails if a left row of now has two matches

Only left rows that a change touches can have come to have two; the others were judged when they were touched.
"""

from __future__ import annotations

from headwater.delta.context import Delta, DeltaContext
from headwater.delta.left_join import padded
from headwater.delta.matching import Meeting, kept_rows
from headwater.plan.operators import Join

TOO_MANY_ROWS = "[HW504] a scalar subquery returned more than one row"


def single_join_delta(op: Join, ctx: DeltaContext) -> Delta:
    """Return the changes of the pairs and of the padded left rows; fail where a left row has two matches."""
    meeting = Meeting(op, ctx)
    near_right = meeting.near_right(again=True)
    pairs = meeting.pairs_delta(meeting.near_left(again=True), near_right)
    matched = meeting.matched(near_right)
    alone = kept_rows(matched, op.left.output, "(NOT {0})", also="{1} > 1", failure=TOO_MANY_ROWS)
    return (*pairs, *(t.over(lambda tree: padded(tree, op.output, op.right.output)) for t in alone))
