"""The table of delta rules, written out. An operator without a rule here cannot be maintained from changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headwater.delta.aggregate import aggregate_delta
from headwater.delta.context import Delta, DeltaContext
from headwater.delta.expand import expand_delta
from headwater.delta.filter import filter_delta
from headwater.delta.generate import generate_delta
from headwater.delta.inner_join import is_cluster
from headwater.delta.join import JOIN_RULES, join_delta
from headwater.delta.project import project_delta
from headwater.delta.recursion import recursion_delta
from headwater.delta.scan import scan_delta
from headwater.delta.top import top_delta
from headwater.delta.union import union_delta
from headwater.delta.values import values_delta
from headwater.delta.window import window_delta
from headwater.plan.operators import (
    Aggregate,
    Expand,
    Filter,
    Generate,
    Join,
    JoinKind,
    Operator,
    Project,
    Recursion,
    Scan,
    Stage,
    Top,
    Union,
    Values,
    Window,
)

DeltaRule = Callable[[Any, DeltaContext], Delta]


def stage_delta(op: Stage, ctx: DeltaContext) -> Delta:
    """What a recursion reads of itself does not change by itself: `delta/recursion.py` follows it, round after round."""
    return ()


RULES: dict[type[Operator], DeltaRule] = {
    Scan: scan_delta,
    Filter: filter_delta,
    Project: project_delta,
    Expand: expand_delta,
    Aggregate: aggregate_delta,
    Union: union_delta,
    Join: join_delta,
    Window: window_delta,
    Top: top_delta,
    Generate: generate_delta,
    Values: values_delta,
    Recursion: recursion_delta,
    Stage: stage_delta,
}


def delta_of(op: Operator, ctx: DeltaContext) -> Delta:
    """Return the changes of `op` as terms. Filters and projections above inner joins are one with them."""
    rule: DeltaRule = JOIN_RULES[JoinKind.INNER] if is_cluster(op) else RULES[type(op)]
    return rule(op, ctx)
