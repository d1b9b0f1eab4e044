"""Normal forms that the rules rely on: keys carried to the top, aggregate arguments as columns.

*Keys.* Every table has a unique key where one can be proved: a scan has its table's, a filter keeps its input's, a projection
carries it along (hidden, unless the user selected it), an aggregate has its group columns. A union has none: its rows are counted.
Orders that must be total go on with the keys: rows that agree in all else would change places from one run to the next.

*Arguments.* Calls of an aggregate read columns, not expressions (constants that a function needs as such stay): what they compute
is computed by a projection below, so that old and new rows are evaluated by the same text and Spark can say of which type it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from headwater.delta.aggregates import ALGEBRAIC, is_counted_constant
from headwater.delta.matching import split
from headwater.plan.canonical import NO_ORDER
from headwater.plan.expressions import AggregateCall, Call, Column, ColumnRef, Expression, Literal, SortKey, column_ids
from headwater.plan.operators import (
    Aggregate,
    Filter,
    Join,
    JoinKind,
    Named,
    NamedAggregate,
    Operator,
    Project,
    Scan,
    Top,
    Window,
    walk_operators,
)
from headwater.plan.unique import is_collated


@dataclass(frozen=True, slots=True)
class SourceKey:
    """The key of a table: names and types of its columns."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    nullable: tuple[bool, ...]


class _Ids:
    def __init__(self, tree: Operator) -> None:
        self.next = 1 + max((c.id for o in walk_operators(tree) for c in o.output), default=0)

    def column(self, name: str, type_: str, nullable: bool = True) -> Column:
        self.next += 1
        return Column(self.next - 1, name, type_, nullable)


def with_argument_columns(tree: Operator) -> Operator:
    """Return `tree` with every aggregate argument and filter a column of its input or a constant. New columns have no type yet."""
    return _with_arguments(tree, _Ids(tree))


def _with_arguments(op: Operator, ids: _Ids) -> Operator:
    inputs = tuple(_with_arguments(i, ids) for i in op.inputs)
    op = op.with_inputs(*inputs) if inputs else op
    if not isinstance(op, Aggregate):
        return op
    made: dict[Expression, Column] = {}

    def as_column(expression: Expression) -> Expression:
        if isinstance(expression, ColumnRef) or not column_ids(expression):
            return expression
        if expression not in made:
            made[expression] = ids.column("arg", "")
        return ColumnRef(made[expression].id)

    def as_any_column(expression: Expression) -> Expression:
        if isinstance(expression, ColumnRef):
            return expression
        if expression not in made:
            made[expression] = ids.column("arg", "")
        return ColumnRef(made[expression].id)

    def mapped(call: AggregateCall) -> AggregateCall:
        call = _guarded(call)
        if call.name == "count":
            return call.map(lambda e: e if is_counted_constant(e) else as_any_column(e))
        return call.map(as_any_column if call.name in ALGEBRAIC else as_column)

    calls = tuple(NamedAggregate(c.column, mapped(c.call)) for c in op.calls)
    if not made:
        return op
    items = (*(Named.same(c) for c in op.input.output), *(Named(c, e) for e, c in made.items()))
    return Aggregate(Project(op.input, items), op.groups, calls)


def _guarded(call: AggregateCall) -> AggregateCall:
    """Return a call whose arguments are computed only for rows that its FILTER lets through: others may not allow it."""
    if call.filter is None:
        return call
    guard = call.filter

    def guarded(argument: Expression) -> Expression:
        if isinstance(argument, ColumnRef) or not column_ids(argument):
            return argument
        return Call("case", (guard, argument), "CASE WHEN {0} THEN {1} END")

    return replace(call, args=tuple(guarded(a) for a in call.args))


def with_key(tree: Operator, key_of: Callable[[str], SourceKey]) -> tuple[Operator, tuple[Column, ...] | None]:
    """Return `tree` with its key among its outputs, and the key's columns; None where rows have to be counted."""
    return _keyed(tree, key_of, _Ids(tree))


def _keyed(op: Operator, key_of: Callable[[str], SourceKey], ids: _Ids) -> tuple[Operator, tuple[Column, ...] | None]:
    if isinstance(op, Scan):
        return _keyed_scan(op, key_of(op.table), ids)
    if isinstance(op, Filter):
        child, key = _keyed(op.input, key_of, ids)
        return op.with_inputs(child), key
    if isinstance(op, Project):
        child, key = _keyed(op.input, key_of, ids)
        if key is None:
            return op, None
        return _keyed_project(op, child, key)
    if isinstance(op, Aggregate):
        if op.groups:
            return op, op.groups
        one = ids.column("__one", "INT", nullable=False)
        items = (*(Named.same(c) for c in op.output), Named(one, Literal("0")))
        return Project(op, items), (one,)
    if isinstance(op, Join):
        return _keyed_join(op, key_of, ids)
    if isinstance(op, Window | Top):
        child, key = _keyed(op.input, key_of, ids)
        if key is None:
            return op, None
        total = _with_total_order(op, child, key)
        return (_reordered(total, op.output), key) if total is not None else (op, None)
    return op, None


def _with_total_order(op: Window | Top, child: Operator, key: tuple[Column, ...]) -> Operator | None:
    """Return `op` over an input that carries its key; None if its rows cannot be told apart by an order.

    Rows that were the same row to the user are different rows now: which of them comes first must not differ between two runs.
    """
    if isinstance(op, Window) and not op.tells_rows_apart:
        return op.with_inputs(child)
    taken = {k.column.id for k in op.order}
    taken |= {c.id for c in op.partition} if isinstance(op, Window) else set()
    ties = [SortKey(c) for c in key if c.id not in taken]
    if any(NO_ORDER.search(t.column.type) for t in ties):
        return None
    return replace(op, input=child, order=(*op.order, *ties))


def _keyed_join(op: Join, key_of: Callable[[str], SourceKey], ids: _Ids) -> tuple[Operator, tuple[Column, ...] | None]:
    """A pair is identified by its two rows, a left row alone by itself; of a side that is met once at most, the other side says it.

    A full join has rows of either side alone. Where both keys may be NULL altogether, a column says that the left side is there.
    """
    left, left_key = _keyed(op.left, key_of, ids)
    if left_key is None:
        return op, None
    if op.kind in (JoinKind.SEMI, JoinKind.ANTI, JoinKind.EXISTENCE):
        return _reordered(op.with_inputs(left, op.right), op.output), left_key
    if op.kind is JoinKind.SINGLE:
        return _reordered(op.with_inputs(left, op.right), op.output), left_key
    right, right_key = _keyed(op.right, key_of, ids)
    if right_key is None:
        return op, None
    joined = op.with_inputs(left, right)
    assert isinstance(joined, Join)
    keys, _ = split(joined)
    met = {k.right.id for k in keys if isinstance(k.right, ColumnRef)}
    if op.kind in (JoinKind.INNER, JoinKind.LEFT) and _is_met_once(right_key, met):
        return _reordered(joined, op.output), left_key
    met = {k.left.id for k in keys if isinstance(k.left, ColumnRef)}
    if op.kind is JoinKind.INNER and _is_met_once(left_key, met):
        return _reordered(joined, op.output), right_key
    both = (*left_key, *right_key)
    if op.kind is JoinKind.FULL and all(c.nullable for c in both):
        there = ids.column("__there", "INT", nullable=False)
        marked = Project(joined.left, (*(Named.same(c) for c in joined.left.output), Named(there, Literal("1"))))
        joined, both = joined.with_inputs(marked, joined.right), (there, *both)
    if op.kind is not JoinKind.INNER:
        both = tuple(replace(c, nullable=True) for c in both)
    return _reordered(joined, op.output), both


def _is_met_once(key: tuple[Column, ...], met: set[int]) -> bool:
    """Say whether equality on the columns in `met` finds one row of this key at most."""
    return {c.id for c in key} <= met and not any(is_collated(c) for c in key)


def _reordered(op: Operator, first: tuple[Column, ...]) -> Operator:
    """Return `op` with these columns before all others."""
    if op.output[: len(first)] == first:
        return op
    known = {c.id for c in first}
    rest = tuple(c for c in op.output if c.id not in known)
    return Project(op, tuple(Named.same(c) for c in (*first, *rest)))


def _keyed_scan(op: Scan, key: SourceKey, ids: _Ids) -> tuple[Operator, tuple[Column, ...] | None]:
    if not key.names:
        return op, None
    columns, names, found = list(op.columns), list(op.names), []
    for name, type_, nullable in zip(key.names, key.types, key.nullable, strict=True):
        if name in names:
            found.append(columns[names.index(name)])
        else:
            column = ids.column(name, type_, nullable)
            columns.append(column)
            names.append(name)
            found.append(column)
    return replace(op, columns=tuple(columns), names=tuple(names)), tuple(found)


def _keyed_project(op: Project, child: Operator, key: Iterable[Column]) -> tuple[Operator, tuple[Column, ...]]:
    items, found = list(op.items), []
    passed = {i.expression.id: i.column for i in op.items if isinstance(i.expression, ColumnRef)}
    for column in key:
        if column.id not in passed:
            items.append(Named.same(column))
            passed[column.id] = column
        found.append(passed[column.id])
    return Project(child, tuple(items)), tuple(found)
