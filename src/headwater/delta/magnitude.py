"""How large the numbers were that a floating-point sum was made of.

Debits and credits may sum to almost nothing, and then the order of additions decides what the rest is: 0.1 + 0.2 - 0.3 is 5.6e-17 or
2.8e-17. Two such results can only be compared on the scale of the numbers that went into them.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

from headwater.delta.accumulators import FLOATS
from headwater.plan.expressions import AggregateCall, Call, Column, ColumnRef
from headwater.plan.operators import Aggregate, Filter, Named, NamedAggregate, Operator, Project, walk_operators


def with_magnitudes(tree: Operator) -> tuple[Operator, tuple[int, ...]]:
    """Return `tree` with more columns at its end, and the positions of the columns whose summands they measure, in order."""
    last = max((c.id for o in walk_operators(tree) for c in o.output), default=0)
    made, scales = _extended(tree, last + 1)
    positions = tuple(i for i, c in enumerate(tree.output) if c.id in scales)
    ids = itertools.count(1 + max(last, *(c.id for c in scales.values()), 0))
    extra = [Named(Column(next(ids), "scale", "DOUBLE"), ColumnRef(scales[tree.output[i].id].id)) for i in positions]
    return Project(made, (*(Named.same(c) for c in tree.output), *extra)), positions


def _extended(op: Operator, first: int) -> tuple[Operator, dict[int, Column]]:
    if isinstance(op, Filter):
        below, scales = _extended(op.input, first)
        return op.with_inputs(below), scales
    if isinstance(op, Project):
        below, scales = _extended(op.input, first)
        passed = {
            i.column.id: scales[i.expression.id]
            for i in op.items
            if isinstance(i.expression, ColumnRef) and i.expression.id in scales
        }
        extra = tuple(Named.same(c) for c in dict.fromkeys(passed.values()))
        return Project(below, (*op.items, *extra)), passed
    if isinstance(op, Aggregate):
        added: dict[int, NamedAggregate] = {}
        for aggregate in op.calls:
            call = aggregate.call
            if call.name in ("sum", "avg") and aggregate.column.type in FLOATS and not call.distinct:
                column = Column(first + len(added), "scale", "DOUBLE")
                size = Call("abs", call.args, "abs(CAST({0} AS DOUBLE))")
                added[aggregate.column.id] = NamedAggregate(
                    column, AggregateCall(call.name, (size,), f"{call.name}({{0}})", filter=call.filter)
                )
        scales = {i: a.column for i, a in added.items()}
        return replace(op, calls=(*op.calls, *added.values())), scales
    return op, {}
