"""Reading only what a change can reach.

    op(R), restricted to keys K  =  op(R restricted to K)      as deep as the key reaches

A restriction by columns that an operator passes on, groups by or partitions by may stand below it as well as above it: it keeps or
drops whole groups. Through the equalities of a join it reaches the other side too. Where it cannot go further it becomes a semi
join against the keys, and where it meets a table, the bounds of keys at hand say which files have to be read at all.

Relies on: keys match NULL-safe, so NULL is a key like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from headwater.delta.context import changes_place, stage_place
from headwater.plan.expressions import Call, Column, ColumnRef, Expression, column_ids, substituted
from headwater.plan.operators import (
    Aggregate,
    At,
    Expand,
    Filter,
    Generate,
    Join,
    JoinKind,
    Named,
    Near,
    Operator,
    Project,
    Scan,
    SemiJoin,
    Side,
    Stage,
    Union,
    Values,
    Via,
    Window,
)
from headwater.plan.where import Where, conjuncts, wheres

EQUAL = "({0} = {1})"
SAME = "({0} <=> {1})"


@dataclass(frozen=True, slots=True)
class Pair:
    """A column of what is restricted and the column of the keys that it must be found in."""

    column: Column
    key: Column
    null_safe: bool = True


Pairs = tuple[Pair, ...]
_AtLeaf = Callable[[Operator, Pairs], Operator]


def restricted(op: Operator, keys: Operator, pairs: Sequence[Pair]) -> Operator:
    """Return the rows of `op` whose columns are found together in a row of `keys`; all of them if there are no pairs."""
    if not pairs:
        return op
    return _pushed(op, keys, tuple(pairs), lambda leaf, p: _semi(_with_bounds(leaf, keys, p), keys, p))


def bounded(op: Operator, keys: Operator, pairs: Sequence[Pair]) -> Operator:
    """Return `op` with its scans limited to the bounds of `keys`; more rows than those may come."""
    if not pairs:
        return op
    return _pushed(op, keys, tuple(pairs), lambda leaf, p: _with_bounds(leaf, keys, p), exact=False)


def equalities(conditions: Sequence[Expression]) -> list[tuple[Expression, Expression, bool]]:
    """Return the sides of every condition that is an equality, and whether it holds between NULLs too."""
    found = []
    for condition in conditions:
        if isinstance(condition, Call) and condition.form in (EQUAL, SAME):
            found.append((condition.args[0], condition.args[1], condition.form == SAME))
    return found


Conditions = tuple[Expression, ...]


def origins(op: Operator, column: int, conditions: Conditions = ()) -> tuple[At | Via, ...] | None:
    """Return the columns that a column's values come from, in rows for which `conditions` hold; None if they are computed."""
    conditions = _over(op, conditions)
    match op:
        case Scan():
            name = {c.id: n for c, n in zip(op.columns, op.names, strict=True)}[column]
            where = _where(op, conditions)
            if op.side is Side.DELTA:
                return (At(changes_place(op.table), name, where),)
            return (Via(op.side, op.table, name, op.near, where),) if op.side in (Side.NEW, Side.OLD) else None
        case Stage():
            return (At(stage_place(op.name), f"c{column}"),)
        case Project():
            expression = next(i.expression for i in op.items if i.column.id == column)
            if not isinstance(expression, ColumnRef):
                return None
            return origins(op.input, expression.id, _below_project(op, conditions))
        case Filter():
            return origins(op.input, column, (*conditions, op.condition))
        case Aggregate():
            groups = {g.id for g in op.groups}
            held = tuple(c for c in conditions if column_ids(c) <= groups)
            return origins(op.input, column, held) if column in groups else None
        case Union():
            place = [c.id for c in op.columns].index(column)
            parts = [origins(b, b.output[place].id, _below_union(op, b, conditions)) for b in op.branches]
            return None if None in parts else tuple(p for part in parts for p in part or ())
        case SemiJoin():
            return origins(op.left, column, conditions)
        case Join() if op.kind is JoinKind.INNER:
            side = op.left if any(c.id == column for c in op.left.output) else op.right
            return origins(side, column, (*conditions, *op.conditions))
        case _:
            return None


def with_where(op: Operator, conditions: Conditions = ()) -> Operator:
    """Return `op` with its scans saying which of their rows the filters above them drop; `conditions` hold above `op`."""
    conditions = _over(op, conditions)
    match op:
        case Scan():
            return replace(op, where=_where(op, conditions))
        case Filter():
            return op.with_inputs(with_where(op.input, (*conditions, op.condition)))
        case Project():
            return op.with_inputs(with_where(op.input, _below_project(op, conditions)))
        case Aggregate():
            groups = {g.id for g in op.groups}
            return op.with_inputs(with_where(op.input, tuple(c for c in conditions if column_ids(c) <= groups)))
        case Union():
            return op.with_inputs(*(with_where(b, _below_union(op, b, conditions)) for b in op.branches))
        case Join() if op.kind is JoinKind.INNER:
            held = (*conditions, *op.conditions)
            return op.with_inputs(with_where(op.left, held), with_where(op.right, held))
        case SemiJoin():
            return op.with_inputs(with_where(op.left, conditions), with_where(op.right))
        case Join() if op.kind is not JoinKind.FULL:
            return op.with_inputs(with_where(op.left, conditions), with_where(op.right))
        case _:
            return op.with_inputs(*(with_where(i) for i in op.inputs)) if op.inputs else op


def _over(op: Operator, conditions: Conditions) -> Conditions:
    """Return what is asked of the columns of `op` alone: below it, others of the same number may mean something else."""
    known = {c.id for c in op.output}
    return tuple(part for c in conditions for part in conjuncts(c) if column_ids(part) <= known)


def _where(scan: Scan, conditions: Conditions) -> tuple[Where, ...]:
    return wheres(conditions, {c.id: (n, c.type) for c, n in zip(scan.columns, scan.names, strict=True)})


def _below_project(op: Project, conditions: Conditions) -> Conditions:
    below = {i.column.id: i.expression for i in op.items}
    return tuple(substituted(c, below) for c in conditions)


def _below_union(op: Union, branch: Operator, conditions: Conditions) -> Conditions:
    below: dict[int, Expression] = {c.id: ColumnRef(b.id) for c, b in zip(op.columns, branch.output, strict=True)}
    return tuple(substituted(c, below) for c in conditions)


# pushing down ---------------------------------------------------------------------------------------------------------------


def _semi(op: Operator, keys: Operator, pairs: Pairs) -> Operator:
    used = tuple(dict.fromkeys(p.key for p in pairs))
    return SemiJoin(op, narrowed(keys, used), tuple((p.column, p.key) for p in pairs))


def narrowed(op: Operator, columns: Sequence[Column]) -> Operator:
    """Return just these columns of `op`."""
    if op.output == tuple(columns):
        return op
    return Project(op, tuple(Named.same(c) for c in columns))


def _with_bounds(op: Operator, keys: Operator, pairs: Pairs) -> Operator:
    if not isinstance(op, Scan) or op.side is Side.DELTA:
        return op
    names = {c.id: n for c, n in zip(op.columns, op.names, strict=True)}
    near = list(op.near)
    for pair in pairs:
        found = origins(keys, pair.key.id)
        if found is not None:
            near.append(Near(names[pair.column.id], found, pair.null_safe))
    at_hand = [n for n in near if depth(n) == 0]
    behind = sorted((n for n in near if depth(n) > 0), key=depth)
    cut = [n for n in behind if _is_cut(n)][:1]
    return replace(op, near=tuple(dict.fromkeys([*at_hand, *(cut or ([] if at_hand else behind[:1]))])))


def _is_cut(near: Near) -> bool:
    """Say whether a table on the way to the keys of a limit drops rows that do not matter: then there are fewer of them."""
    return any(v.where or any(_is_cut(n) for n in v.near) for v in near.sources if isinstance(v, Via))


def depth(near: Near) -> int:
    """Return behind how many tables the keys of a limit lie. One limit of that kind is enough, or they would double with each table."""
    vias = [s for s in near.sources if isinstance(s, Via)]
    return max((1 + max((depth(n) for n in via.near), default=0) for via in vias), default=0)


def _pushed(op: Operator, keys: Operator, pairs: Pairs, at_leaf: _AtLeaf, *, exact: bool = True) -> Operator:
    """Return `op` restricted; what can only be restricted by some of the pairs is restricted by all of them again on top."""
    below, reached = _below(op, keys, pairs, at_leaf, exact)
    if not reached and exact:
        return _semi(below, keys, pairs)
    return below


def _below(op: Operator, keys: Operator, pairs: Pairs, at_leaf: _AtLeaf, exact: bool) -> tuple[Operator, bool]:
    """Push into `op`; say whether all pairs hold exactly afterwards."""

    def push(child: Operator, some: Sequence[Pair]) -> Operator:
        return _pushed(child, keys, tuple(some), at_leaf, exact=exact) if some else child

    match op:
        case Scan() | Stage() | Values():
            return at_leaf(op, pairs), True
        case Filter():
            return op.with_inputs(push(op.input, pairs)), True
        case SemiJoin():
            return op.with_inputs(push(op.left, pairs), op.right), True
        case Project():
            passed = {i.column.id: i.expression.id for i in op.items if isinstance(i.expression, ColumnRef)}
            some = _mapped(pairs, passed, op.input.output)
        case Aggregate():
            some = _mapped(pairs, {g.id: g.id for g in op.groups}, op.input.output)
        case Window():
            some = _mapped(pairs, {c.id: c.id for c in op.partition}, op.input.output)
        case Generate():
            some = _mapped(pairs, {c.id: c.id for c in op.input.output}, op.input.output)
        case Expand():
            some = _mapped(pairs, _fixed(op), op.input.output)
        case Union():
            branches = []
            for branch in op.branches:
                place = {c.id: b.id for c, b in zip(op.columns, branch.output, strict=True)}
                branches.append(push(branch, _mapped(pairs, place, branch.output)))
            return op.with_inputs(*branches), True
        case Join():
            return _into_join(op, pairs, push)
        case _:
            return op, False
    return op.with_inputs(push(op.inputs[0], some)), len(some) == len(pairs)


def _mapped(pairs: Pairs, passed: dict[int, int], columns: Sequence[Column]) -> Pairs:
    by_id = {c.id: c for c in columns}
    return tuple(replace(p, column=by_id[passed[p.column.id]]) for p in pairs if p.column.id in passed)


def _fixed(op: Expand) -> dict[int, int]:
    """Return the columns of an expand that are the same column of the input in each of its rows."""
    found = {}
    for place, column in enumerate(op.columns):
        sources = {row[place] for row in op.rows}
        source = next(iter(sources))
        if len(sources) == 1 and isinstance(source, ColumnRef):
            found[column.id] = source.id
    return found


def _into_join(op: Join, pairs: Pairs, push: Callable[[Operator, Sequence[Pair]], Operator]) -> tuple[Operator, bool]:
    """Restrict the sides of a join.

    A side may be restricted by a column that the other side's equal one is restricted by: its other rows meet nothing. That holds
    for the right side of every join but a full one, and for the left side of an inner join alone. A side that no restriction reaches
    is limited by the rows of the other: those that meet none of them make no difference either. A full join keeps all rows of both
    sides: nothing can be said below it.
    """
    if op.kind is JoinKind.FULL:
        return op, False
    lefts, rights = ({c.id: c for c in side.output} for side in op.inputs)
    on_left = [p for p in pairs if p.column.id in lefts]
    on_right = [p for p in pairs if p.column.id in rights]
    equal: list[tuple[int, int, bool]] = []
    for a, b, null_safe in equalities(op.conditions):
        if isinstance(a, ColumnRef) and isinstance(b, ColumnRef):
            if a.id in lefts and b.id in rights:
                equal.append((a.id, b.id, null_safe))
            elif b.id in lefts and a.id in rights:
                equal.append((b.id, a.id, null_safe))
    to_right = [replace(p, column=rights[r]) for p in on_left for left, r, _ in equal if left == p.column.id]
    left_pairs, right_pairs = list(on_left), list(to_right)
    if op.kind is JoinKind.INNER:
        left_pairs += [replace(p, column=lefts[left]) for p in on_right for left, r, _ in equal if r == p.column.id]
        right_pairs += on_right
    is_exact = len(on_left) == len(pairs) or (op.kind is JoinKind.INNER and len(on_right) == len(pairs))
    left_op, right_op = push(op.left, _once(left_pairs)), push(op.right, _once(right_pairs))
    if left_pairs and not right_pairs:
        right_op = bounded(right_op, left_op, [Pair(rights[r], lefts[left], safe) for left, r, safe in equal])
    elif right_pairs and not left_pairs and op.kind is JoinKind.INNER:
        left_op = bounded(left_op, right_op, [Pair(lefts[left], rights[r], safe) for left, r, safe in equal])
    return op.with_inputs(left_op, right_op), is_exact


def _once(pairs: Sequence[Pair]) -> Pairs:
    """Return each pair of columns once."""
    return tuple({(p.column.id, p.key.id): p for p in pairs}.values())


def reads(expression: Expression, columns: Sequence[Column]) -> bool:
    """Say whether `expression` reads any column, and only these."""
    used = column_ids(expression)
    return bool(used) and used <= {c.id for c in columns}
