"""Scans read only what the query uses, and projections that change nothing are gone.

Catalyst's column pruning leaves full scans under projections. A narrow scan matters here: what is read from a scan is netted,
shuffled and compared, column by column.
"""

from __future__ import annotations

from collections.abc import Iterable

from headwater.plan.expressions import ColumnRef, Expression, column_ids
from headwater.plan.operators import (
    Aggregate,
    Expand,
    Filter,
    Generate,
    Join,
    Operator,
    Project,
    Recursion,
    Scan,
    SemiJoin,
    Top,
    Union,
    Window,
    walk_operators,
)


def pruned(tree: Operator) -> Operator:
    """Return `tree` with the same output, in the same order, and scans of used columns only."""
    used = {c.id for c in tree.output}
    for op in walk_operators(tree):
        used |= _used(op)
    return _narrowed(tree, frozenset(used))


def _used(op: Operator) -> set[int]:
    """Return the ids of the columns that `op` itself needs from its inputs."""
    expressions: list[Expression] = []
    match op:
        case Filter():
            expressions = [op.condition]
        case Project():
            expressions = [i.expression for i in op.items]
        case Expand():
            expressions = [e for row in op.rows for e in row]
        case Aggregate():
            groups = {g.id for g in op.groups}
            return groups.union(*(column_ids(e) for c in op.calls for e in c.call.expressions))
        case Union() | Recursion():
            return {c.id for b in op.inputs for c in b.output}
        case SemiJoin():
            return {c.id for pair in op.on for c in pair}
        case Join():
            expressions = list(op.conditions)
        case Window():
            keys = {c.id for c in op.partition} | {k.column.id for k in op.order}
            return keys | _ids(a for c in op.calls for a in c.call.args)
        case Top():
            return {k.column.id for k in op.order}
        case Generate():
            expressions = [op.generator]
        case _:
            pass
    return _ids(expressions)


def _ids(expressions: Iterable[Expression]) -> set[int]:
    return set().union(*(column_ids(e) for e in expressions))


def _narrowed(op: Operator, used: frozenset[int]) -> Operator:
    if isinstance(op, Scan):
        kept = [(c, n) for c, n in zip(op.columns, op.names, strict=True) if c.id in used]
        return Scan(op.table, tuple(c for c, _ in kept), tuple(n for _, n in kept), op.side)
    inputs = tuple(_narrowed(i, used) for i in op.inputs)
    if isinstance(op, Project) and _changes_nothing(op, inputs[0]):
        return inputs[0]
    return op.with_inputs(*inputs) if inputs else op


def _changes_nothing(op: Project, input_: Operator) -> bool:
    passes = all(i.expression == ColumnRef(i.column.id) for i in op.items)
    return passes and [i.column.id for i in op.items] == [c.id for c in input_.output]
