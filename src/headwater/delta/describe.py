"""How each operator of a query is maintained, and what a change costs: what `validate_query` and `explain` tell."""

from __future__ import annotations

from headwater.delta.aggregate import strategy_of
from headwater.delta.aggregates import Strategy
from headwater.delta.context import DeltaOptions
from headwater.delta.matching import split
from headwater.delta.recursion import is_linear
from headwater.delta.sharing import is_shared
from headwater.delta.top import is_kept
from headwater.plan.operators import (
    Aggregate,
    Join,
    JoinKind,
    Operator,
    Recursion,
    Scan,
    Top,
    Values,
    Window,
)

Description = tuple[str, str, str]
"""The operator, how it is maintained, and the cost class of a change."""


def described(tree: Operator, options: DeltaOptions) -> tuple[Description, ...]:
    """Say for each operator how it is kept and what a change costs, parents first; equal parts are told once."""
    found: list[Description] = []
    seen: set[Operator] = set()

    def tell(op: Operator) -> None:
        if is_shared(op) and op in seen:
            found.append((_name(op), "shared with an equal part", "nothing more"))
            return
        seen.add(op)
        found.append((_name(op), *_described(op, options)))
        for child in op.inputs:
            tell(child)

    tell(tree)
    return tuple(found)


def _name(op: Operator) -> str:
    return f"Join ({op.kind.value})" if isinstance(op, Join) else type(op).__name__


def _described(op: Operator, options: DeltaOptions) -> tuple[str, str]:
    match op:
        case Scan():
            return "changes", "rows changed"
        case Values():
            return "constant", "nothing"
        case Aggregate():
            strategy = strategy_of(op, options)
            return strategy.value, "rows of changed groups" if strategy is Strategy.RESCAN else "groups changed"
        case Join():
            return _described_join(op)
        case Window():
            return "scoped recompute", "rows of changed partitions" if op.partition else "all rows"
        case Top():
            return ("first rows and a reserve", "rows changed") if is_kept(op) else ("recompute", "all rows")
        case Recursion():
            return ("rounds", "rows that follow from the change") if is_linear(op) else ("recompute", "all rows")
        case _:
            return "linear", "rows changed"


def _described_join(op: Join) -> tuple[str, str]:
    keys, others = split(op)
    if op.kind is JoinKind.INNER:
        return "bilinear", "rows changed and their matches" if keys else "rows changed times rows of the other side"
    if not keys:
        return "match counts of all rows", "rows of the other side"
    return "match counts per row" if others else "match counts per key", "rows that share a changed key"
