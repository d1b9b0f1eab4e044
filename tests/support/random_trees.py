"""Random operator trees over two small tables of integers, with parts that are read twice under other numbers.

A tree that yields no rows tells nothing: conditions are drawn a few times until they leave some.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from random import Random

import pyarrow as pa
from tests.support.trees import Data, Row, evaluated

from headwater.delta.context import changes_place, stage_place
from headwater.delta.near import EQUAL, SAME
from headwater.plan.expressions import AggregateCall, Call, Column, ColumnRef, Expression, Literal, SortKey
from headwater.plan.operators import (
    Aggregate,
    Expand,
    Filter,
    Generate,
    Join,
    JoinKind,
    Named,
    NamedAggregate,
    NamedWindow,
    Operator,
    Project,
    Scan,
    SemiJoin,
    Side,
    Stage,
    Top,
    Union,
    Values,
    Window,
    WindowCall,
)

TABLES = ("t", "u")
NAMES = ("a", "b", "c")
ROWS = 6
LARGEST = 3
TRIES = 6
MOST_PAIRS = 150
"""A join that would look at more pairs of rows is left out."""

COMPARISONS = ("({0} = {1})", "({0} < {1})", "({0} <= {1})", "({0} > {1})", "({0} >= {1})")
JOINS = (*[JoinKind.INNER] * 6, *(k for k in JoinKind if k is not JoinKind.INNER))


class Grower:
    """Draws trees and the rows that they read."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self._ids = itertools.count(1)
        self._at_hand = {changes_place(t): self._table(NAMES) for t in TABLES}
        states = {(side, t): self._table(NAMES) for side in (Side.OLD, Side.NEW) for t in TABLES}
        self.data = Data(states, self._at_hand)

    def rows(self, op: Operator) -> list[Row]:
        return evaluated(op, self.data)

    def column(self, *, nullable: bool = True) -> Column:
        return Column(next(self._ids), "x", "INT", nullable)

    def tree(self, depth: int, sides: Sequence[Side] = (Side.NEW,)) -> Operator:
        """Return a tree with up to `depth` operators above one another, over these sides of tables."""
        if depth == 0 or self._chance(0.1):
            return self._leaf(sides)
        makers = {
            self._filtered: 10,
            self._joined: 14,
            self._projected: 5,
            self._grouped: 5,
            self._union: 4,
            self._semi: 4,
            self._counted: 2,
            self._generated: 2,
            self._expanded: 2,
            self._first: 2,
        }
        make = self.rng.choices(list(makers), weights=list(makers.values()))[0]
        return make(lambda: self.tree(depth - 1, sides))

    def lively(self, make: Callable[[], Operator]) -> Operator:
        """Return one of a few trees that has rows, if any of them has."""
        for _ in range(TRIES):
            made = make()
            if self.rows(made):
                break
        return made

    def again(self, op: Operator) -> Operator:
        """Return `op` under other numbers."""
        return Project(op, tuple(Named(self.column(), ColumnRef(c.id)) for c in op.output))

    def condition(self, columns: Sequence[Column], depth: int = 2) -> Expression:
        """Return a condition over some of these columns."""
        column = ColumnRef(self.rng.choice(columns).id)
        drawn = self.rng.random()
        if drawn < 0.65 or depth == 0:
            pair = (column, self._term(columns))
            return Call("compared", pair if self._chance(0.8) else pair[::-1], self.rng.choice(COMPARISONS))
        if drawn < 0.75:
            return Call("in", (column, self._constant(), self._constant()), "({0} IN ({1}, {2}))")
        if drawn < 0.8:
            ends = sorted(self.rng.choices(range(LARGEST + 1), k=2))
            return Call("between", (column, *(Literal(str(e)) for e in ends)), "({0} BETWEEN {1} AND {2})")
        if drawn < 0.85:
            return Call("not", (self.condition(columns, depth - 1),), "(NOT {0})")
        parts = (self.condition(columns, depth - 1), self.condition(columns, depth - 1))
        return Call("joined", parts, self.rng.choice(("({0} AND {1})", "({0} AND {1})", "({0} OR {1})")))

    # rows and constants -----------------------------------------------------------------------------------------------------

    def _chance(self, share: float) -> bool:
        return self.rng.random() < share

    def _value(self) -> int | None:
        return None if self._chance(0.12) else self.rng.randint(0, LARGEST)

    def _table(self, names: Sequence[str]) -> pa.Table:
        return pa.table({n: pa.array([self._value() for _ in range(ROWS)], pa.int32()) for n in names})

    def _constant(self) -> Literal:
        return Literal(str(self.rng.randint(0, LARGEST)))

    def _term(self, columns: Sequence[Column]) -> Expression:
        return ColumnRef(self.rng.choice(columns).id) if self._chance(0.6) else self._constant()

    # operators --------------------------------------------------------------------------------------------------------------

    def _leaf(self, sides: Sequence[Side]) -> Operator:
        columns = tuple(self.column() for _ in NAMES)
        if self._chance(0.04):
            return Values(tuple(tuple(self._constant() for _ in columns) for _ in range(2)), columns)
        if self._chance(0.08):
            stage = Stage(f"s{columns[0].id}", columns)
            self._at_hand[stage_place(stage.name)] = self._table([c.sql for c in columns])
            return stage
        return Scan(self.rng.choice(TABLES), columns, NAMES, self.rng.choice(sides))

    def _filtered(self, below: Callable[[], Operator]) -> Operator:
        op = below()
        return self.lively(lambda: Filter(op, self.condition(op.output)))

    def _projected(self, below: Callable[[], Operator]) -> Operator:
        op = below()
        return Project(op, tuple(self._item(c, op.output) for c in op.output))

    def _item(self, column: Column, others: Sequence[Column]) -> Named:
        """Return a column for another one, under a number of its own or under one that meant something else before."""
        drawn = self.rng.random()
        if drawn < 0.4:
            return Named.same(column)
        made = column if self._chance(0.4) else self.column()
        if drawn < 0.75:
            return Named(made, ColumnRef(self.rng.choice(others).id))
        if drawn < 0.85:
            return Named(made, self._constant())
        return Named(made, Call("+", (ColumnRef(column.id), Literal("1")), "({0} + {1})"))

    def _grouped(self, below: Callable[[], Operator]) -> Operator:
        op = below()
        groups = tuple(self.rng.sample(op.output, self.rng.randint(0 if self._chance(0.1) else 1, len(op.output))))
        count = AggregateCall("count", (Literal("1"),), "count({0})")
        return Aggregate(op, groups, (NamedAggregate(self.column(nullable=False), count),))

    def _union(self, below: Callable[[], Operator]) -> Operator:
        """Return a union of two parts, or of one part with itself in another order."""
        first = below()
        second = below() if self._chance(0.6) else first
        width = min(len(first.output), len(second.output))
        orders = (first.output, self.rng.sample(second.output, len(second.output)))
        branches = zip((first, second), orders, strict=True)
        narrow = tuple(Project(b, tuple(Named.same(c) for c in order[:width])) for b, order in branches)
        columns = narrow[0].output if self._chance(0.5) else tuple(self.column() for _ in range(width))
        return Union(narrow, columns)

    def _counted(self, below: Callable[[], Operator]) -> Operator:
        op = below()
        count = WindowCall("count", (Literal("1"),), "count({0})")
        partition = tuple(self.rng.sample(op.output, 1))
        return Window(op, partition, (), (NamedWindow(self.column(nullable=False), count),))

    def _generated(self, below: Callable[[], Operator]) -> Operator:
        op = below()
        pair = tuple(ColumnRef(self.rng.choice(op.output).id) for _ in range(2))
        return Generate(op, Call("explode", pair, "explode(array({0}, {1}))"), (self.column(),))

    def _expanded(self, below: Callable[[], Operator]) -> Operator:
        op = below()
        row = [ColumnRef(c.id) for c in op.output]
        other: list[Expression] = [*row]
        other[self.rng.randrange(len(row))] = self.rng.choice((Literal("CAST(NULL AS INT)"), row[0]))
        return Expand(op, (tuple(row), tuple(other)), tuple(self.column() for _ in row))

    def _first(self, below: Callable[[], Operator]) -> Operator:
        op = below()
        return Top(op, tuple(SortKey(c) for c in op.output), self.rng.randint(1, ROWS))

    def _pair(self, below: Callable[[], Operator]) -> tuple[Operator, Operator]:
        """Return two sides of a join: one part twice, or two parts."""
        left = below()
        if self._chance(0.6):
            return left, below()
        sides = [left, self.again(left)]
        self.rng.shuffle(sides)
        return sides[0], sides[1]

    def _semi(self, below: Callable[[], Operator]) -> Operator:
        left, right = self._pair(below)
        return self.lively(
            lambda: SemiJoin(left, right, ((self.rng.choice(left.output), self.rng.choice(right.output)),))
        )

    def _joined(self, below: Callable[[], Operator]) -> Operator:
        left, right = self._pair(below)
        if len(self.rows(left)) * len(self.rows(right)) > MOST_PAIRS:
            return left
        return self.lively(lambda: self._join(left, right))

    def _join(self, left: Operator, right: Operator) -> Operator:
        kind = self.rng.choice(JOINS)
        mine, other = self.rng.choice(left.output), self.rng.choice(right.output)
        equal = Call("=", (ColumnRef(mine.id), ColumnRef(other.id)), self.rng.choice((EQUAL, EQUAL, SAME)))
        if kind is JoinKind.SINGLE:  # one match at most: a row for each value
            return Join(left, Aggregate(right, (other,), ()), kind, (equal,))
        conditions: list[Expression] = [equal] if self._chance(0.6) else []
        if not conditions or self._chance(0.4):
            conditions.append(self.condition((*left.output, *right.output)))
        exists = self.column(nullable=False) if kind is JoinKind.EXISTENCE else None
        return Join(left, right, kind, tuple(conditions), exists)
