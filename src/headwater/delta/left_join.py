"""Delta of a left join; a right join is a left join read from the other side.

    delta(L left R)  =  delta(L join R)  +  delta(L anti R) * NULLs

The padding follows the anti join's law (`delta/matching.py`): a left row is padded once, however many of its matches come or go.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.delta.context import WEIGHT, Delta, DeltaContext, null_of
from headwater.delta.matching import Meeting, kept_rows
from headwater.plan.expressions import Column
from headwater.plan.operators import Join, Named, Operator, Project


def left_join_delta(op: Join, ctx: DeltaContext) -> Delta:
    """Return the changes of the pairs and of the padded left rows."""
    meeting = Meeting(op, ctx)
    near_right = meeting.near_right(again=True)
    pairs = meeting.pairs_delta(meeting.near_left(again=True), near_right)
    alone = kept_rows(meeting.matched(near_right), op.left.output, "(NOT {0})")
    return (*pairs, *(t.over(lambda tree: padded(tree, op.output, op.right.output)) for t in alone))


def padded(tree: Operator, output: Sequence[Column], missing: Sequence[Column]) -> Operator:
    """Return rows of one side with NULLs for the columns of the other."""
    gone = {c.id for c in missing}
    items = (Named(c, null_of(c.type)) if c.id in gone else Named.same(c) for c in output)
    return Project(tree, (*items, Named.same(WEIGHT)))
