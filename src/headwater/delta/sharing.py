"""Equal parts of a query are computed once: a normal form, not a rule.

    R join R  =  R join renamed(R)

Catalyst writes a CTE or a view out at each of its uses, with columns of its own. Where two parts differ in nothing but the numbers of
their columns, the second is read as the first one under other numbers. Rules then see one operator twice, so its changes, its
stages and its state are one.

Only what keeps state or stages is worth it. An inner join is not: each of its uses starts at another change.

Relies on: two parts are equal if their trees are, with columns numbered in the order in which they are met. Names of columns and aliases
play no part; what a part reads of a recursion around it does.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import fields, is_dataclass
from enum import Enum

from headwater.plan.expressions import Column, ColumnRef
from headwater.plan.operators import (
    Aggregate,
    Join,
    JoinKind,
    Named,
    Operator,
    Project,
    Recursion,
    Stage,
    Top,
    Window,
)


def with_shared_parts(tree: Operator) -> Operator:
    """Return `tree` with every later one of equal parts replaced by the first, renamed."""
    return _shared(tree, {})


def is_shared(op: Operator) -> bool:
    """Say whether equal operators of this kind are computed once."""
    if isinstance(op, Join):
        return op.kind is not JoinKind.INNER
    return isinstance(op, Aggregate | Window | Top | Recursion)


def _shared(op: Operator, seen: dict[Hashable, Operator]) -> Operator:
    form = _Numbering().form(op) if is_shared(op) else None
    first = seen.get(form) if form is not None else None
    if first is not None:
        pairs = zip(op.output, first.output, strict=True)
        return Project(first, tuple(Named(column, ColumnRef(same.id)) for column, same in pairs))
    if op.inputs:
        op = op.with_inputs(*(_shared(i, seen) for i in op.inputs))
    if form is not None:
        seen[form] = op
    return op


class _Numbering:
    """Writes a tree with columns and recursions numbered as they are met; equal parts are written equally."""

    def __init__(self) -> None:
        self._columns: dict[int, int] = {}
        self._loops: dict[str, int] = {}

    def form(self, part: object) -> Hashable:
        match part:
            case Column():
                return ("column", self._column(part.id), part.type, part.nullable)
            case ColumnRef():
                return ("ref", self._column(part.id))
            case Stage():
                return ("stage", self._loops.get(part.name, part.name), self.form(part.columns))
            case Recursion():
                self._loops[part.name] = len(self._loops)
                return ("recursion", self.form(part.anchor), self.form(part.step), self.form(part.columns))
            case tuple():
                return tuple(self.form(p) for p in part)
            case Enum():
                return part
            case _ if is_dataclass(part):
                own = (self.form(getattr(part, f.name)) for f in fields(part))
                return (type(part).__name__, *own)
            case _:
                assert isinstance(part, Hashable)
                return part

    def _column(self, number: int) -> int:
        return self._columns.setdefault(number, len(self._columns))
