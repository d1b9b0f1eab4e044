"""The table of delta rules, written out. An operator without a rule here cannot be maintained from changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headwater.delta.aggregate import aggregate_delta
from headwater.delta.context import DeltaContext
from headwater.delta.expand import expand_delta
from headwater.delta.filter import filter_delta
from headwater.delta.project import project_delta
from headwater.delta.scan import scan_delta
from headwater.delta.union import union_delta
from headwater.plan.operators import Aggregate, Expand, Filter, Operator, Project, Scan, Union

DeltaRule = Callable[[Any, DeltaContext], Operator]

RULES: dict[type[Operator], DeltaRule] = {
    Scan: scan_delta,
    Filter: filter_delta,
    Project: project_delta,
    Expand: expand_delta,
    Aggregate: aggregate_delta,
    Union: union_delta,
}


def delta_of(op: Operator, ctx: DeltaContext) -> Operator:
    """Return the tree that yields the changes of `op`."""
    return RULES[type(op)](op, ctx)
