"""Delta of an inner join.

    delta(R1 join ... join Rn)  =  sum over i of  R1 join ... join R(i-1) join (delta Ri) join R'(i+1) join ... join R'n

R is an input before this refresh, R' after it. The sum telescopes: each term replaces one more input by its new state. For two
inputs it is (delta R join S') + (R join delta S), and only both together are right: a pair whose two rows were both deleted is
missing from the first (S' no longer has its row) and comes from the second.

Joins of joins are one cluster, with projections and filters between and above them taken along: so every term starts at its delta and
walks from there along the conditions, always to the input of which it meets the fewest rows. No term joins two whole inputs before the
delta has cut one of them.

Relies on: a state carries no weight (every row counts +1), so the weight of a pair is that of its change row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from headwater.delta.context import WEIGHT, Delta, DeltaContext, Term, computed, stage_place
from headwater.delta.near import Pair, bounded, equalities, narrowed, restricted
from headwater.delta.threshold import between, has_limit, moving, threshold
from headwater.plan.expressions import Column, ColumnRef, Expression, column_ids, substituted
from headwater.plan.operators import (
    Aggregate,
    Filter,
    Join,
    JoinKind,
    Named,
    Operator,
    Project,
    Scan,
    SemiJoin,
    Stage,
    Values,
    walk_operators,
)
from headwater.plan.printer import BROADCAST_LEFT_HINT
from headwater.plan.unique import unique_keys
from headwater.plan.where import conjuncts

_SIMPLE = (Scan, Filter, Project, Values, Stage, SemiJoin)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Inner joins taken apart: inputs, conditions over their columns, and what the output's columns are made of."""

    leaves: tuple[Operator, ...]
    conditions: tuple[Expression, ...]
    made: dict[int, Expression]


def cluster_of(op: Operator) -> Cluster:
    """Return `op` as one cluster; an operator that is no inner join is a cluster of itself."""
    match op:
        case Join() if op.kind is JoinKind.INNER:
            left, right = cluster_of(op.left), cluster_of(op.right)
            made = left.made | right.made
            own = tuple(substituted(c, made) for c in op.conditions)
            return Cluster(left.leaves + right.leaves, left.conditions + right.conditions + own, made)
        case Filter() if is_cluster(op):
            below = cluster_of(op.input)
            own = tuple(substituted(c, below.made) for c in conjuncts(op.condition))
            return Cluster(below.leaves, (*below.conditions, *own), below.made)
        case Project() if is_cluster(op):
            below = cluster_of(op.input)
            made = {i.column.id: substituted(i.expression, below.made) for i in op.items}
            return Cluster(below.leaves, below.conditions, made)
        case _:
            return Cluster((op,), (), {c.id: ColumnRef(c.id) for c in op.output})


def is_cluster(op: Operator) -> bool:
    """Say whether `op` is an inner join with any filters and projections on top."""
    while isinstance(op, Filter | Project):
        op = op.input
    return isinstance(op, Join) and op.kind is JoinKind.INNER


def inner_join_delta(op: Operator, ctx: DeltaContext) -> Delta:
    """Return one term for each change of each input of a cluster."""
    cluster = cluster_of(op)
    deltas = [ctx.delta(leaf) for leaf in cluster.leaves]
    terms = []
    for i, delta in enumerate(deltas):
        for term in delta:
            terms.append(_Walk(op, cluster, i, term, ctx).walked())
    return tuple(terms)


class _Walk:
    """One term: a change of the input at `start`, joined with all the others."""

    def __init__(self, op: Operator, cluster: Cluster, start: int, term: Term, ctx: DeltaContext) -> None:
        self.op, self.cluster, self.start, self.ctx = op, cluster, start, ctx
        self.tree, self.drivers = term.tree, term.drivers
        self.waiting = list(cluster.conditions)
        self.left = [i for i in range(len(cluster.leaves)) if i != start]
        self.equal = _Equal(cluster.conditions)

    def walked(self) -> Term:
        own = self._ready(self.tree.output)
        for condition in own:
            self.tree = Filter(self.tree, condition)
        while self.left:
            self._step(min(self.left, key=self._rank))
        made = self.cluster.made
        items = tuple(Named(c, made[c.id]) for c in self.op.output)
        return Term(self.drivers, Project(self.tree, (*items, Named.same(WEIGHT))))

    def _ready(self, columns: Sequence[Column]) -> list[Expression]:
        """Take the conditions that can be judged with these columns."""
        known = {c.id for c in columns}
        ready = [c for c in self.waiting if column_ids(c) <= known]
        self.waiting = [c for c in self.waiting if c not in ready]
        return ready

    def _rank(self, i: int) -> tuple[bool, float, int, int]:
        """Say how well an input is joined next: connected, met in few rows each, small."""
        leaf = self.cluster.leaves[i]
        met = self._met(leaf)
        return (not met, self._matches(leaf, met), rows_of(leaf, self.ctx), i)

    def _matches(self, leaf: Operator, met: frozenset[int]) -> float:
        """Return about how many rows of an input one row meets."""
        is_filtered = any(isinstance(o, Filter) for o in walk_operators(leaf)) or any(
            column_ids(c) and column_ids(c) <= {x.id for x in leaf.output} for c in self.waiting
        )
        share = 0.25 if is_filtered else 1.0
        if any(key <= met for key in self._keys(leaf)):
            return share
        rows = max(1, rows_of(leaf, self.ctx))
        values = [n for column in met if (n := self._values(column))]
        return share * rows / (max(values) if values else math.sqrt(rows))

    def _values(self, column: int) -> int:
        """Return about how many values a column has that is a key, or equal to one: as many as there are rows of it; 0 if unknown."""
        same = self.equal.to(column)
        own = [leaf for leaf in self.cluster.leaves if any(len(k) == 1 and k <= same for k in self._keys(leaf))]
        return max((rows_of(leaf, self.ctx) for leaf in own), default=0)

    def _keys(self, leaf: Operator) -> tuple[frozenset[int], ...]:
        return unique_keys(leaf, lambda table: self.ctx.facts(table).key)

    def _met(self, leaf: Operator) -> frozenset[int]:
        """Return the columns of `leaf` that are equal to something that is known by now."""
        known = {c.id for c in self.tree.output}
        own = {c.id for c in leaf.output}
        found = set()
        for a, b, _ in equalities(self.waiting):
            for one, other in ((a, b), (b, a)):
                if isinstance(one, ColumnRef) and one.id in own and column_ids(other) and column_ids(other) <= known:
                    found.add(one.id)
        return frozenset(found)

    def _step(self, i: int) -> None:
        leaf = self.cluster.leaves[i]
        side = self.ctx.old(leaf) if i < self.start else self.ctx.new(leaf)
        for condition in self._ready(leaf.output):
            side = Filter(side, condition)
        side = self._limited(side, leaf)
        side = self._between(side, leaf)
        joined = Join(self.tree, side, JoinKind.INNER)
        conditions = tuple(self._ready(joined.output))
        self.tree = Join(self.tree, side, JoinKind.INNER, conditions, hint=BROADCAST_LEFT_HINT)
        self.left.remove(i)

    def _limited(self, side: Operator, leaf: Operator) -> Operator:
        """Return what has to be read of an input: of a table, what lies near the change; of more than that, what it can reach."""
        if all(isinstance(o, _SIMPLE) for o in walk_operators(side)):
            known = {c.id: c for c in self.tree.output}
            pairs = []
            for column in leaf.output:
                same = [known[x] for x in self.equal.to(column.id) if x in known and x != column.id]
                pairs += [Pair(column, key, null_safe=False) for key in same]
            return bounded(side, self.tree, pairs)
        wanted = self._met_pairs(leaf)
        if not wanted:
            return side
        self._materialise()
        keyed, keys = computed(self.tree, [e for _, e, _ in wanted], self.ctx)
        distinct = tuple(dict.fromkeys(keys))  # several columns may be equal to one
        if keyed is not self.tree:
            keyed = self.ctx.rows("keys", (Term(self.drivers, narrowed(keyed, distinct)),), distinct)
        pairs = [Pair(c, k, null_safe=safe) for (c, _, safe), k in zip(wanted, keys, strict=True)]
        fresh = {k.id: self.ctx.again(k) for k in distinct}
        renamed = Project(keyed, tuple(Named(fresh[k.id], ColumnRef(k.id)) for k in distinct))
        pairs = [Pair(p.column, fresh[p.key.id], p.null_safe) for p in pairs]
        return restricted(side, renamed, pairs)

    def _between(self, side: Operator, leaf: Operator) -> Operator:
        """Return what has to be read of an input that is compared with a change and meets it in no key."""
        is_first = len(self.left) + 1 == len(self.cluster.leaves)
        if not is_first or not all(isinstance(o, _SIMPLE) for o in walk_operators(side)):
            return side
        known = {c.id for c in (*self.tree.output, *leaf.output)}
        joining = [c for c in self.waiting if column_ids(c) <= known]
        others = [c for c in self.waiting if c not in joining]
        read = [*others, *(self.cluster.made[c.id] for c in self.op.output)]
        found = threshold(moving(self.tree), leaf.output, joining, read)
        if found is None or not has_limit(side, found[0].id):
            return side
        self._materialise()
        assert isinstance(self.tree, Stage)
        return between(side, found[0].id, self.tree, found[1])

    def _met_pairs(self, leaf: Operator) -> list[tuple[Column, Expression, bool]]:
        known = {c.id for c in self.tree.output}
        own = {c.id: c for c in leaf.output}
        found: dict[int, tuple[Column, Expression, bool]] = {}
        for a, b, safe in equalities(self.waiting):
            for one, other in ((a, b), (b, a)):
                if isinstance(one, ColumnRef) and one.id in own and column_ids(other) and column_ids(other) <= known:
                    found.setdefault(one.id, (own[one.id], other, safe))
        return list(found.values())

    def _materialise(self) -> None:
        """Compute what there is by now, so that its keys can be used and it need not be computed again."""
        if isinstance(self.tree, Stage):
            return
        needed = {i for c in self.waiting for i in column_ids(c)}
        needed |= {i for c in self.op.output for i in column_ids(self.cluster.made[c.id])}
        columns = tuple(c for c in self.tree.output if c.id in needed or c.id == WEIGHT.id)
        stage = self.ctx.rows("part", (Term(self.drivers, narrowed(self.tree, columns)),), columns)
        self.tree, self.drivers = stage, (stage_place(stage.name),)


class _Equal:
    """Which columns are equal in every row of a cluster."""

    def __init__(self, conditions: Sequence[Expression]) -> None:
        self._groups: list[set[int]] = []
        for a, b, null_safe in equalities(conditions):
            if isinstance(a, ColumnRef) and isinstance(b, ColumnRef) and not null_safe:
                met = [g for g in self._groups if a.id in g or b.id in g]
                self._groups = [g for g in self._groups if g not in met] + [set().union({a.id, b.id}, *met)]

    def to(self, column: int) -> set[int]:
        return next((g for g in self._groups if column in g), set())


def rows_of(op: Operator, ctx: DeltaContext) -> int:
    """Return about how many rows `op` has, for comparison with others."""
    if isinstance(op, Scan):
        return ctx.facts(op.table).rows
    below = [rows_of(i, ctx) for i in op.inputs]
    return max(below, default=1) // (4 if isinstance(op, Filter | Aggregate) else 1)
