"""Which columns tell the rows of an operator apart."""

from __future__ import annotations

from collections.abc import Callable

from headwater.plan.expressions import Column, ColumnRef
from headwater.plan.operators import Aggregate, Filter, Join, JoinKind, Operator, Project, Scan, SemiJoin, Top, Window

_LEFT_ROWS_ONCE = (JoinKind.SEMI, JoinKind.ANTI, JoinKind.EXISTENCE, JoinKind.SINGLE)


def is_collated(column: Column) -> bool:
    """Say whether values of a column may be equal and yet not the same. Keys of tables tell the same from others."""
    return "COLLATE" in column.type


def unique_keys(op: Operator, key_of: Callable[[str], tuple[str, ...]]) -> tuple[frozenset[int], ...]:
    """Return sets of columns of `op`, each of which no two rows share; `key_of` names the key of a table, if it has one.

    The empty set says that there is one row at most.
    """
    match op:
        case Scan():
            names = {n: c.id for c, n in zip(op.columns, op.names, strict=True)}
            key = key_of(op.table)
            if not key or any(k not in names for k in key):
                return ()
            if any(is_collated(c) for c, n in zip(op.columns, op.names, strict=True) if n in key):
                return ()
            return (frozenset(names[k] for k in key),)
        case Filter() | SemiJoin() | Window() | Top():
            return unique_keys(op.inputs[0], key_of)
        case Project():
            passed = {i.expression.id: i.column.id for i in op.items if isinstance(i.expression, ColumnRef)}
            keys = unique_keys(op.input, key_of)
            return tuple(frozenset(passed[i] for i in k) for k in keys if all(i in passed for i in k))
        case Aggregate():
            return (frozenset(g.id for g in op.groups),)
        case Join() if op.kind in _LEFT_ROWS_ONCE:
            return unique_keys(op.left, key_of)
        case _:
            return ()
