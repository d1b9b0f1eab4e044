"""Delta of an existence join (EXISTS and IN anywhere but on top of WHERE).

    delta(L exists R)  =  delta L * (l, e0)  +  L' * ((l, e1) - (l, e0))

Every left row stands in the result once, with e beside it. A row whose answer changes is taken out with the old one and put in with
the new one; see `delta/matching.py`.
"""

from __future__ import annotations

from headwater.delta.context import WEIGHT, Delta, DeltaContext
from headwater.delta.matching import Meeting
from headwater.plan.expressions import ColumnRef, Literal
from headwater.plan.operators import Expand, Join, Named, Operator, Project


def existence_join_delta(op: Join, ctx: DeltaContext) -> Delta:
    """Return the changes of the left rows with their answers."""
    assert op.exists is not None
    meeting = Meeting(op, ctx)
    matched = meeting.matched(meeting.near_right(again=False))
    exists = op.exists
    left = tuple(Named.same(c) for c in op.left.output)

    def looked_up(tree: Operator) -> Operator:
        return Project(tree, (*left, Named(exists, matched.before), Named.same(WEIGHT)))

    def flipped(tree: Operator) -> Operator:
        columns = tuple(ColumnRef(c.id) for c in op.left.output)
        rows = ((*columns, matched.before, Literal("-1")), (*columns, matched.after, Literal("1")))
        return Expand(tree, rows, (*op.output, WEIGHT))

    return (*(t.over(looked_up) for t in matched.looked_up()), *(t.over(flipped) for t in matched.flipped()))
