"""Which left rows have a match on the right, before and after: what every join but the inner one asks.

For a left row l let e0(l) and e1(l) say whether it has a match before and after this refresh, 0 or 1. Any join that keeps the left row
f(e) times, with f(e) 0 or 1, follows from them:

    delta(L kept f(e) times)  =  delta L * f(e0)  +  L' * (f(e1) - f(e0))

with L' the left input after this refresh: expand L' f(e1) - L f(e0) with L = L' - delta L. Only left rows whose e changes appear in the
second part, and e can only change for rows that meet a change of the right side.

*By key.* If all conditions are equalities, e depends on the join key alone: the right side is counted once per key that a change
touches, n1 as it is now, n0 = n1 less the weights of its changes. Several changes of one key make one transition.

*By row.* With any other condition, matches are counted for each left row that a change touches: the changes of the left side, and the
rows of L' that meet a change of the right one.

Relies on: counting needs signed rows only, so the right side before this refresh is its new state less its changes, never read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.delta.context import (
    WEIGHT,
    Delta,
    DeltaContext,
    Term,
    call,
    computed,
    drivers_of,
    stage_place,
)
from headwater.delta.near import EQUAL, Pair, equalities, narrowed, reads, restricted
from headwater.plan.expressions import AggregateCall, Call, Column, ColumnRef, Expression, Literal, substituted
from headwater.plan.operators import (
    Aggregate,
    Filter,
    Join,
    JoinKind,
    Named,
    NamedAggregate,
    Operator,
    Project,
    Stage,
    Union,
)
from headwater.plan.printer import BROADCAST_HINT, BROADCAST_LEFT_HINT

_FLIPS = "({0} > 0) <> ({1} > 0)"


@dataclass(frozen=True, slots=True)
class Key:
    """An equality between the sides of a join."""

    left: Expression
    right: Expression
    null_safe: bool


def split(op: Join) -> tuple[tuple[Key, ...], tuple[Expression, ...]]:
    """Return the equalities between the sides of a join, and the other conditions."""
    keys, others = [], []
    for condition in op.conditions:
        found = None
        for a, b, null_safe in equalities([condition]):
            if reads(a, op.left.output) and reads(b, op.right.output):
                found = Key(a, b, null_safe)
            elif reads(b, op.left.output) and reads(a, op.right.output):
                found = Key(b, a, null_safe)
        if found is None:
            others.append(condition)
        else:
            keys.append(found)
    return tuple(keys), tuple(others)


@dataclass(frozen=True, slots=True)
class Side:
    """One input of a join: its changes, what drives them, and the columns of its join key."""

    op: Operator
    changes: Operator | None
    drivers: tuple[str, ...]
    keys: tuple[Expression, ...]


class Meeting:
    """The two sides of a join as one rule sees them. Rows of either side are read near the changes of the other, once."""

    def __init__(self, op: Join, ctx: DeltaContext) -> None:
        self.op, self.ctx = op, ctx
        self.keys, self.others = split(op)
        deltas = [ctx.delta(side) for side in op.inputs]
        changes = [ctx.changes(side) for side in op.inputs]
        self.left = Side(op.left, changes[0], _drivers(changes[0], deltas[0]), tuple(k.left for k in self.keys))
        self.right = Side(op.right, changes[1], _drivers(changes[1], deltas[1]), tuple(k.right for k in self.keys))
        self.drivers = tuple(dict.fromkeys((*self.left.drivers, *self.right.drivers)))
        self._near: dict[tuple[int, bool], Operator] = {}

    def mirrored(self) -> Meeting:
        """Return the same meeting seen from the other side."""
        other = object.__new__(Meeting)
        other.op, other.ctx, other.others = self.op, self.ctx, self.others
        other.keys = tuple(Key(k.right, k.left, k.null_safe) for k in self.keys)
        other.left, other.right, other.drivers = self.right, self.left, self.drivers
        other._near = {}
        return other

    # rows near the change ---------------------------------------------------------------------------------------------------

    def near_right(self, *, again: bool) -> Operator:
        """Return the right rows, as they are now, that share a key with any change; `again`: they will be read more than once."""
        return self._rows_near(self.right, (self.left, self.right), 1, again=again)

    def near_left(self, *, again: bool) -> Operator:
        """Return the left rows, as they are now, that share a key with a change of the right side."""
        return self._rows_near(self.left, (self.right,), 0, again=again)

    def near_left_both(self, *, again: bool) -> Operator:
        """Return the left rows, as they are now, that share a key with any change."""
        return self._rows_near(self.left, (self.left, self.right), 2, again=again)

    def _rows_near(self, side: Side, changed: Sequence[Side], which: int, *, again: bool) -> Operator:
        for found in ((which, True), (which, again)):
            if found in self._near:
                return self._near[found]
        tree = self.ctx.new(side.op)
        keys = self._changed_keys(changed)
        is_restricted = False
        if keys is not None:
            tree, columns = computed(tree, side.keys, self.ctx)
            pairs = [Pair(c, k, key.null_safe) for c, k, key in zip(columns, keys.output, self.keys, strict=True)]
            tree = narrowed(restricted(tree, keys, pairs), side.op.output)
            is_restricted = True
        if again and is_restricted:
            drivers = tuple(dict.fromkeys(d for s in changed for d in s.drivers))
            tree = self.ctx.rows("near", (Term(drivers, tree),), side.op.output)
        self._near[which, again] = tree
        return tree

    def _changed_keys(self, sides: Sequence[Side]) -> Operator | None:
        """Return the keys of all changes of these sides; None if the join has no key or nothing can change."""
        parts = []
        for side in sides:
            if side.changes is not None:
                parts.append(computed(side.changes, side.keys, self.ctx))
        if not self.keys or not parts:
            return None
        columns = tuple(self.ctx.fresh("k", "") for _ in self.keys)
        renamed = [  # one column may be equal to several
            Project(p, tuple(Named(self.ctx.again(n), ColumnRef(c.id)) for n, c in zip(columns, own, strict=True)))
            for p, own in parts
        ]
        return Union(tuple(renamed), columns)

    # pairs ------------------------------------------------------------------------------------------------------------------

    def pairs_delta(self, near_left: Operator, near_right: Operator) -> Delta:
        """Return the changes of the pairs:  delta L join R'  +  L' join delta R  -  delta L join delta R.

        The inner join's law with L replaced by L' - delta L, so that each side is read in one state only.
        """
        terms = []
        conditions = self.op.conditions
        if self.left.changes is not None:
            tree = Join(self.left.changes, near_right, JoinKind.INNER, conditions, hint=BROADCAST_LEFT_HINT)
            terms.append(Term(self.left.drivers, self._pair_rows(tree, ColumnRef(WEIGHT.id))))
        if self.right.changes is not None:
            tree = Join(near_left, self.right.changes, JoinKind.INNER, conditions, hint=BROADCAST_HINT)
            terms.append(Term(self.right.drivers, self._pair_rows(tree, ColumnRef(WEIGHT.id))))
        if self.left.changes is not None and self.right.changes is not None:
            weight = self.ctx.again(WEIGHT)
            items = (*(Named.same(c) for c in self.right.op.output), Named(weight, ColumnRef(WEIGHT.id)))
            other = Project(self.right.changes, items)
            tree = Join(self.left.changes, other, JoinKind.INNER, conditions, hint=BROADCAST_HINT)
            product = call("(-{0} * {1})", ColumnRef(WEIGHT.id), ColumnRef(weight.id))
            terms.append(Term(self.left.drivers, self._pair_rows(tree, product)))
        return tuple(terms)

    def _pair_rows(self, tree: Operator, weight: Expression) -> Operator:
        columns = (*self.op.left.output, *self.op.right.output)
        return Project(tree, (*(Named.same(c) for c in columns), Named(WEIGHT, weight)))

    # matches ----------------------------------------------------------------------------------------------------------------

    def matched(self, near_right: Operator) -> Matched:
        """Count the matches of every left row that a change touches."""
        return self._by_row(near_right) if self.others else self._by_key(near_right)

    def _counted(self, near_right: Operator) -> tuple[Operator, Column, Column]:
        """Return the right rows near the change with two weights: how often they were there, and how often they are."""
        n0, n1 = (self.ctx.fresh(n, "BIGINT", nullable=False) for n in ("n0", "n1"))
        output = self.right.op.output

        def part(tree: Operator, before: Expression, after: Expression) -> Operator:
            return Project(tree, (*(Named.same(c) for c in output), Named(n0, before), Named(n1, after)))

        parts = [part(near_right, Literal("1L"), Literal("1L"))]
        if self.right.changes is not None:
            gone = call("(-CAST({0} AS BIGINT))", ColumnRef(WEIGHT.id))
            parts.append(part(self.right.changes, gone, Literal("0L")))
        columns = (*output, n0, n1)
        return (Union(tuple(parts), columns) if len(parts) > 1 else parts[0]), n0, n1

    def _by_key(self, near_right: Operator) -> Matched:
        rows, n0, n1 = self._counted(near_right)
        rows, columns = computed(rows, self.right.keys, self.ctx)
        for column, key in zip(columns, self.keys, strict=True):
            if not key.null_safe:
                rows = Filter(rows, call("({0} IS NOT NULL)", ColumnRef(column.id)))
        sums = [self.ctx.fresh(n, "BIGINT") for n in ("n0", "n1")]
        calls = tuple(
            NamedAggregate(s, AggregateCall("sum", (ColumnRef(n.id),), "coalesce(sum({0}), 0L)"))
            for s, n in zip(sums, (n0, n1), strict=True)
        )
        distinct = tuple({c.id: c for c in columns}.values())
        counted = Aggregate(rows, distinct, calls)
        fresh = {c.id: self.ctx.again(c) for c in (*distinct, *sums)}
        flips = self.ctx.fresh("flips", "BOOLEAN", nullable=False)
        items = [Named(fresh[c.id], ColumnRef(c.id)) for c in (*distinct, *sums)]
        items.append(Named(flips, call(_FLIPS, *(ColumnRef(s.id) for s in sums))))
        renamed = Project(counted, tuple(items))
        stage = self.ctx.rows("match", (Term(self.drivers, renamed),), renamed.output)
        counts = fresh[sums[0].id], fresh[sums[1].id]
        return Matched(self, stage, tuple(fresh[c.id] for c in columns), counts, flips, None)

    def _by_row(self, near_right: Operator) -> Matched:
        """Count for each candidate: a change of the left side, or a left row of now that meets a change of the right side."""
        number = self.ctx.fresh("row", "BIGINT", nullable=False)
        is_state = self.ctx.fresh("state", "BOOLEAN", nullable=False)
        columns = (*self.left.op.output, WEIGHT, is_state)
        terms = []
        if self.left.changes is not None:
            items = (*(Named.same(c) for c in (*self.left.op.output, WEIGHT)), Named(is_state, Literal("false")))
            terms.append(Term(self.left.drivers, Project(self.left.changes, items)))
        if self.right.changes is not None:
            changes = narrowed(self.right.changes, self.right.op.output)
            met = Join(self.near_left(again=False), changes, JoinKind.SEMI, self.op.conditions, hint=BROADCAST_HINT)
            items = (
                *(Named.same(c) for c in self.left.op.output),
                Named(WEIGHT, Literal("1")),
                Named(is_state, Literal("true")),
            )
            terms.append(Term(self.right.drivers, Project(met, items)))
        numbered = tuple(
            t.over(lambda tree: Project(tree, (*(Named.same(c) for c in columns), Named(number, Literal("uuid()")))))
            for t in terms
        )
        number = Column(number.id, number.name, "STRING", nullable=False)
        candidates = self.ctx.rows("row", numbered, (*columns, number))
        rows, n0, n1 = self._counted(near_right)
        fresh = {c.id: self.ctx.again(c) for c in candidates.columns}
        looked = Project(candidates, tuple(Named(fresh[c.id], ColumnRef(c.id)) for c in candidates.columns))
        conditions = tuple(_replaced(c, fresh) for c in self.op.conditions)
        joined = Join(looked, rows, JoinKind.INNER, conditions, hint=BROADCAST_LEFT_HINT)
        sums = tuple(self.ctx.fresh(n, "BIGINT") for n in ("n0", "n1"))
        calls = tuple(
            NamedAggregate(s, AggregateCall("sum", (ColumnRef(n.id),), "coalesce(sum({0}), 0L)"))
            for s, n in zip(sums, (n0, n1), strict=True)
        )
        counted = Aggregate(joined, (fresh[number.id],), calls)
        stage = self.ctx.rows("match", (Term((stage_place(candidates.name),), counted),), counted.output)
        return Matched(self, stage, (fresh[number.id],), (sums[0], sums[1]), None, (candidates, number, is_state))


def _replaced(expression: Expression, columns: dict[int, Column]) -> Expression:
    return substituted(expression, {old: ColumnRef(new.id) for old, new in columns.items()})


def _drivers(changes: Operator | None, delta: Delta) -> tuple[str, ...]:
    """Return what drives the changes of a side: its terms, or the stage that holds them."""
    if isinstance(changes, Stage):
        return (stage_place(changes.name),)
    return drivers_of(delta)


@dataclass(frozen=True, slots=True)
class Matched:
    """Match counts by key, or by candidate row; `counts` are the columns with the numbers before and after.

    `flips`: the column that says whether the answer changes; counts by row have none.
    """

    meeting: Meeting
    rows: Operator
    keys: tuple[Column, ...]
    counts: tuple[Column, Column]
    flips: Column | None
    candidates: tuple[Operator, Column, Column] | None

    @property
    def before(self) -> Expression:
        """Whether a row had a match before; over left rows joined with the counts."""
        return call("coalesce({0} > 0, false)", ColumnRef(self.counts[0].id))

    @property
    def after(self) -> Expression:
        return call("coalesce({0} > 0, false)", ColumnRef(self.counts[1].id))

    def looked_up(self) -> Delta:
        """Return the changes of the left side beside their counts."""
        m = self.meeting
        if self.candidates is not None:
            return (self._candidate_rows("NOT {0}"),)
        if m.left.changes is None:
            return ()
        joined = Join(m.left.changes, self.rows, JoinKind.LEFT, self._on(), hint=BROADCAST_HINT)
        return (Term(m.left.drivers, joined),)

    def flipped(self, also: str = "") -> Delta:
        """Return the left rows of now whose answer changes, beside their counts; `also`: or for which this holds of {0}, {1}."""
        m = self.meeting
        changed: Expression = call(f"{_FLIPS} OR {also}" if also else _FLIPS, *(ColumnRef(c.id) for c in self.counts))
        if self.flips is not None and not also:
            changed = ColumnRef(self.flips.id)
        if self.candidates is not None:
            return (self._candidate_rows("{0}").over(lambda tree: Filter(tree, changed)),)
        if m.right.changes is None and not also:
            return ()
        drivers = m.drivers if also else m.right.drivers
        columns = self.rows.output
        flips = m.ctx.rows("flips", (Term(drivers, Filter(self.rows, changed)),), columns)
        keyed, own = computed(m.ctx.new(m.left.op), m.left.keys, m.ctx)
        if m.keys:
            fresh = tuple(m.ctx.again(k) for k in self.keys)
            renamed = Project(flips, tuple(Named(n, ColumnRef(k.id)) for n, k in zip(fresh, self.keys, strict=True)))
            pairs = [Pair(c, k, key.null_safe) for c, k, key in zip(own, fresh, m.keys, strict=True)]
            keyed = restricted(keyed, renamed, pairs)
        left = narrowed(keyed, m.left.op.output)
        joined = Join(left, flips, JoinKind.INNER, self._on(), hint=BROADCAST_HINT)
        return (Term((stage_place(flips.name),), joined),)

    def _on(self) -> tuple[Expression, ...]:
        form = {True: "({0} <=> {1})", False: EQUAL}
        return tuple(
            Call("=", (k.left, ColumnRef(c.id)), form[k.null_safe])
            for k, c in zip(self.meeting.keys, self.keys, strict=True)
        )

    def _candidate_rows(self, wanted: str) -> Term:
        assert self.candidates is not None
        rows, number, is_state = self.candidates
        chosen = Filter(rows, call(wanted, ColumnRef(is_state.id)))
        on = (Call("=", (ColumnRef(number.id), ColumnRef(self.keys[0].id)), EQUAL),)
        joined = Join(chosen, self.rows, JoinKind.LEFT, on, hint=BROADCAST_HINT)
        drivers = self.meeting.left.drivers if wanted.startswith("NOT") else self.meeting.right.drivers
        return Term(drivers, joined)


def kept_rows(matched: Matched, output: Sequence[Column], form: str, *, also: str = "", failure: str = "") -> Delta:
    """Return the delta of the left rows kept f(e) times; `form` is f as a condition over {0}.

    `failure` is raised for a left row of now for which `also` holds of its counts.
    """
    before, after = call(form, matched.before), call(form, matched.after)
    columns = tuple(Named.same(c) for c in output)
    terms = []
    counts = tuple(ColumnRef(c.id) for c in matched.counts)
    fails = f"CAST(raise_error('{failure}') AS INT)"
    own: Expression = call("CASE WHEN {0} THEN {1} ELSE 0 END", before, ColumnRef(WEIGHT.id))
    step: Expression = call("(CAST({1} AS INT) - CAST({0} AS INT))", before, after)
    if failure:
        own = call(f"CASE WHEN {{3}} > 0 AND {also} THEN {fails} ELSE {{2}} END", *counts, own, ColumnRef(WEIGHT.id))
        step = call(f"CASE WHEN {also} THEN {fails} ELSE {{2}} END", *counts, step)
    for term in matched.looked_up():
        weight = Named(WEIGHT, own)
        terms.append(term.over(lambda tree, w=weight: _nonzero(Project(tree, (*columns, w)))))  # type: ignore[misc]
    for term in matched.flipped(also):
        weight = Named(WEIGHT, step)
        terms.append(term.over(lambda tree, w=weight: _nonzero(Project(tree, (*columns, w)))))  # type: ignore[misc]
    return tuple(terms)


def _nonzero(op: Operator) -> Operator:
    return Filter(op, call("({0} <> 0)", ColumnRef(WEIGHT.id)))
