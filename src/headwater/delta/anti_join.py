"""Delta of an anti join (NOT EXISTS).

    L anti R  keeps a left row once if it has no match:  f(e) = 1 - e,  see `delta/matching.py`

NOT IN is not one where NULLs may occur: `delta/not_in.py` writes it as existence joins.
"""

from __future__ import annotations

from headwater.delta.context import Delta, DeltaContext
from headwater.delta.matching import Meeting, kept_rows
from headwater.plan.operators import Join


def anti_join_delta(op: Join, ctx: DeltaContext) -> Delta:
    """Return the changes of the left rows that have no match."""
    meeting = Meeting(op, ctx)
    return kept_rows(meeting.matched(meeting.near_right(again=False)), op.output, "(NOT {0})")
