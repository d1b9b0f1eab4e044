"""Delta of a semi join (EXISTS, IN).

    L semi R  keeps a left row once if it has a match:  f(e) = e,  see `delta/matching.py`

Several matches of one left row are one, and a left row that is new together with its match appears once.
"""

from __future__ import annotations

from headwater.delta.context import Delta, DeltaContext
from headwater.delta.matching import Meeting, kept_rows
from headwater.plan.operators import Join


def semi_join_delta(op: Join, ctx: DeltaContext) -> Delta:
    """Return the changes of the left rows that have a match."""
    meeting = Meeting(op, ctx)
    return kept_rows(meeting.matched(meeting.near_right(again=False)), op.output, "{0}")
