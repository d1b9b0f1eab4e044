"""Delta of constant rows.

delta(VALUES)  =  nothing
"""

from __future__ import annotations

from headwater.delta.context import Delta, DeltaContext
from headwater.plan.operators import Values


def values_delta(op: Values, ctx: DeltaContext) -> Delta:
    """Return no terms."""
    return ()
