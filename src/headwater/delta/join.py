"""The delta rules of joins, by kind, written out."""

from __future__ import annotations

from collections.abc import Callable

from headwater.delta.anti_join import anti_join_delta
from headwater.delta.context import Delta, DeltaContext
from headwater.delta.existence_join import existence_join_delta
from headwater.delta.full_join import full_join_delta
from headwater.delta.inner_join import inner_join_delta
from headwater.delta.left_join import left_join_delta
from headwater.delta.semi_join import semi_join_delta
from headwater.delta.single_join import single_join_delta
from headwater.plan.operators import Join, JoinKind

JOIN_RULES: dict[JoinKind, Callable[[Join, DeltaContext], Delta]] = {
    JoinKind.INNER: inner_join_delta,
    JoinKind.LEFT: left_join_delta,
    JoinKind.FULL: full_join_delta,
    JoinKind.SEMI: semi_join_delta,
    JoinKind.ANTI: anti_join_delta,
    JoinKind.EXISTENCE: existence_join_delta,
    JoinKind.SINGLE: single_join_delta,
}


def join_delta(op: Join, ctx: DeltaContext) -> Delta:
    """Return the changes of a join of any kind."""
    return JOIN_RULES[op.kind](op, ctx)
