"""What random queries are made of: leaves, conditions with subqueries, names and sizes. The operators are in `composer`.

Correlated conditions stand at the top of their subquery and look one level out, as Spark wants it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from tests.support.generate import TableSpec
from tests.support.phrases import (
    GROUPABLE,
    JOINABLE,
    Palette,
    aggregate,
    compared,
    conjunction,
    counted,
    disjunction,
    having,
    literal,
    not_null,
    predicate,
)
from tests.support.relations import (
    Aggregate,
    Call,
    Exists,
    Explode,
    Expression,
    Filter,
    Item,
    Join,
    Lateral,
    Lit,
    Pivot,
    Project,
    Recursive,
    Ref,
    Relation,
    Scalar,
    Scan,
    SetOperation,
    Shared,
    TopK,
    Values,
    With,
    Within,
    walked,
)
from tests.support.values import Column

MOST_ROWS = 500
MOST_COLUMNS = 9


@dataclass(frozen=True, slots=True)
class Operators:
    """How relations are made from others, each with its weight: at the bottom, above it, and to get fewer rows."""

    low: Mapping[Maker, float]
    high: Mapping[Maker, float]
    cutting: Sequence[Callable[[Composer, Relation], Relation]]


class Composer:
    """Makes relations that fit together: names that are free, conditions that match, sizes that stay small."""

    def __init__(self, rng: Random, tables: Sequence[TableSpec], operators: Operators) -> None:
        self.rng = rng
        self.tables = tables
        self.operators = operators
        self.numbers = itertools.count(1)
        self.shares = itertools.count(1)
        self.sizes: dict[str, float] = {}

    def query(self, depth: int) -> Relation:
        made = self.relation(depth)
        if len(made.columns) > MOST_COLUMNS:
            return Project(made, self._kept(made, MOST_COLUMNS))
        return made

    def relation(self, depth: int) -> Relation:
        if depth <= 0:
            return self._leaf()
        makers = self.operators.high if depth > 1 else self.operators.low
        maker = self.rng.choices(tuple(makers), weights=tuple(makers.values()))[0]
        return self._small(maker(self, depth - 1))

    # dice -------------------------------------------------------------------------------------------------------------------

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def palette(self, *relations: Relation) -> Palette:
        return Palette(self.rng, tuple(c for r in relations for c in r.columns))

    def fresh(self) -> str:
        return f"c{next(self.numbers)}"

    def renamed(self, columns: Sequence[Column]) -> tuple[Column, ...]:
        return tuple(Column(self.fresh(), c.tag) for c in columns)

    def item(self, value: Expression) -> Item:
        return Item(self.fresh(), value)

    def beside(self, depth: int) -> Relation:
        """Return the other side of an operator: not as deep, so that queries grow long rather than wide."""
        return self.relation(self.rng.choice((0, 0, 1, min(2, depth))) if depth > 0 else 0)

    def flat(self, relation: Relation) -> Relation:
        """Return a relation without its arrays, which are neither grouped nor ordered."""
        if all(c.tag != "arr" for c in relation.columns):
            return relation
        kept = tuple(Item(c.name, Ref(c.name, c.tag)) for c in relation.columns if c.tag != "arr")
        return Project(relation, kept or (self.item(literal(self.rng, "int")),))

    def narrow(self, relation: Relation, most: int = 6) -> Relation:
        """Return a relation with few columns."""
        if len(relation.columns) <= most:
            return relation
        return Project(relation, self._kept(relation, most))

    def _kept(self, relation: Relation, most: int) -> tuple[Item, ...]:
        places = sorted(self.rng.sample(range(len(relation.columns)), most))
        return tuple(Item(c.name, Ref(c.name, c.tag)) for c in (relation.columns[i] for i in places))

    def _small(self, relation: Relation) -> Relation:
        """Return a relation with few rows: one that grew too large is grouped or cut."""
        if self.size(relation) <= MOST_ROWS:
            return relation
        return self.rng.choice(self.operators.cutting)(self, relation)

    def size(self, relation: Relation) -> float:
        return estimated(relation, self.sizes)

    # leaves -----------------------------------------------------------------------------------------------------------------

    def scan(self) -> Scan:
        table = self.rng.choice(self.tables)
        return Scan(table.name, self.renamed(table.columns))

    def _leaf(self) -> Relation:
        roll = self.rng.random()
        if roll < 0.03:
            return self._constants()
        if roll < 0.35:
            scan = self.scan()
            return Filter(scan, predicate(self.palette(scan)))
        return self.scan()

    def _constants(self) -> Values:
        tags = self.rng.choice((("int",), ("int", "string"), ("string", "int", "dec"), ("date", "int")))
        rows = [tuple(literal(self.rng, t) for t in tags) for _ in range(self.rng.randint(2, 5))]
        if self.chance(0.4):
            rows.append(tuple(Lit(None, t) for t in tags))
        return Values(tuple(Column(self.fresh(), t) for t in tags), tuple(rows))

    # conditions -------------------------------------------------------------------------------------------------------------

    def matched(self, left: Palette, right: Palette, operators: Sequence[str]) -> Expression | None:
        """Return a comparison of a column on the left with one on the right; ints and strings first."""
        columns = left.all("int", "string") * 4 + left.all(*JOINABLE)
        self.rng.shuffle(columns)
        for column in columns:
            other = left.same(column, right)
            if other is not None:
                return compared(self.rng.choice(operators), column, other)
        return None

    def correlated(self, outer: Palette, inner: Relation, *, equal: bool = False) -> Relation:
        """Return a relation cut down to what belongs to a row around it."""
        mine = self.palette(inner)
        operators = ("=",) if equal or self.chance(0.8) else ("<=>", "<", ">=", "<>")
        first = self.matched(outer, mine, operators)
        if first is None:
            return Filter(inner, predicate(mine))
        parts = [first]
        if self.chance(0.15) and (second := self.matched(outer, mine, ("=", "<=>") if equal else ("=", "<=", "<>"))):
            parts.append(second)
        if self.chance(0.3):
            parts.append(predicate(mine))
        return Filter(inner, conjunction(*parts))

    def subquery_test(self, outer: Palette, depth: int) -> Expression:
        """Return EXISTS, IN or a comparison with a scalar subquery. All may stand wherever NULL counts as FALSE."""
        roll = self.rng.random()
        if roll < 0.45:
            return self._exists(outer, depth)
        if roll < 0.75:
            return self._within(outer, depth)
        return self._scalar_test(outer, depth)

    def _exists(self, outer: Palette, depth: int) -> Expression:
        inner = self.beside(depth)
        negated = self.chance(0.4)
        if self.chance(0.08):
            return Exists(Filter(inner, predicate(self.palette(inner))), negated)
        query = self.correlated(outer, inner)
        if depth > 0 and self.chance(0.25):
            query = Filter(query, self.subquery_test(self.palette(inner), depth - 1))
        elif self.chance(0.12) and (group := self.palette(inner).pick(*GROUPABLE)):
            query = self.correlated(outer, inner, equal=True)
            calls = (self.item(counted(self.palette(inner))),)
            query = Aggregate(query, (self.item(group),), calls, having(self.palette(inner)))
        return Exists(query, negated)

    def _within(self, outer: Palette, depth: int) -> Expression:
        inner = self.beside(depth)
        mine = self.palette(inner)
        pairs = []
        for column in outer.some(1, 2 if self.chance(0.25) else 1, "int", "string"):
            other = outer.same(column, mine)
            if other is not None:
                pairs.append((column, other))
        if not pairs:
            return self._exists(outer, depth)
        negated = self.chance(0.45)
        query = inner
        if negated and self.chance(0.6):
            query = Filter(query, conjunction(*(not_null(other) for _, other in pairs), predicate(mine)))
        if self.chance(0.2):
            query = self.correlated(outer, query)
        listed = Project(query, tuple(self.item(other) for _, other in pairs))
        return Within(tuple(column for column, _ in pairs), listed, negated)

    def scalar(self, outer: Palette, depth: int, tags: Sequence[str] = ()) -> Scalar | None:
        """Return an aggregate as a scalar subquery: of all rows, or of those that belong to the row around it."""
        inner = self.beside(depth)
        mine = self.palette(inner)
        call = aggregate(mine)
        if tags and call.tag not in tags:
            found = [c for c in (aggregate(mine) for _ in range(8)) if c.tag in tags]
            if not found:
                return None
            call = found[0]
        if outer.columns and self.chance(0.5):
            inner = self.correlated(outer, inner, equal=self.chance(0.85))
        return Scalar(Aggregate(inner, (), (self.item(call),)))

    def _scalar_test(self, outer: Palette, depth: int) -> Expression:
        column = outer.pick("int", "big", "string", "dec", "double")
        if column is None:
            return self._exists(outer, depth)
        alike = ("int", "big") if column.tag in ("int", "big") else (column.tag,)
        scalar = self.scalar(outer, depth, alike)
        if scalar is None:
            return self._exists(outer, depth)
        passed = ">=" if "min(" in _call_of(scalar).spark else "<="
        return compared(self.rng.choice((passed, passed, passed, "=", "<>", "<")), column, scalar)

    def condition(self, outer: Palette, depth: int) -> Expression:
        """Return a condition with a subquery: alone, beside others under AND or OR, or in a CASE."""
        test = self.subquery_test(outer, depth)
        roll = self.rng.random()
        if roll < 0.5:
            return test
        if roll < 0.65:
            return disjunction(test, predicate(outer))
        if roll < 0.75:
            return conjunction(predicate(outer), test)
        if roll < 0.85:
            return disjunction(test, self.subquery_test(outer, depth - 1))
        if roll < 0.92:
            return conjunction(test, self.subquery_test(outer, depth - 1))
        return Call("bool", "(CASE WHEN {0} THEN {1} ELSE {2} END)", (test, predicate(outer), predicate(outer)))

    def join_condition(self, left: Relation, right: Relation) -> Expression | None:
        mine, other = self.palette(left), self.palette(right)
        roll = self.rng.random()
        operators = ("=",) if roll < 0.8 else ("<=>",) if roll < 0.9 else ("<", ">=", "<>")
        first = self.matched(mine, other, operators)
        if first is None:
            return None
        parts = [first]
        if self.chance(0.12) and (second := self.matched(mine, other, ("=",))):
            parts.append(second)
        if self.chance(0.12) and (third := self.matched(mine, other, ("<=", ">", "<>"))):
            parts.append(third)
        if self.chance(0.08):
            parts.append(predicate(self.palette(left, right)))
        return conjunction(*dict.fromkeys(parts))


def _call_of(scalar: Scalar) -> Call:
    """Return the aggregate in a scalar subquery."""
    assert isinstance(scalar.query, Aggregate)
    return next(n for n in walked(scalar.query.calls[0].value) if isinstance(n, Call))


Maker = Callable[[Composer, int], Relation]
"""Makes a relation from others that are at most so deep."""


# sizes ----------------------------------------------------------------------------------------------------------------------


def estimated(node: Relation, shared: Mapping[str, float]) -> float:
    """Return roughly how many rows a relation has, rather too many."""
    match node:
        case Scan():
            return 15
        case Shared():
            return shared[node.name]
        case Values():
            return len(node.rows)
        case Recursive():
            return 40
        case Filter():
            return 0.7 * estimated(node.input, shared)
        case Join():
            left, right = estimated(node.left, shared), estimated(node.right, shared)
            share = 1 if node.kind == "CROSS" else _share(node.condition)
            return left * right * share + (0 if node.kind in ("INNER", "CROSS") else left + right)
        case Lateral():
            single = isinstance(node.right, Aggregate)
            right = 1 if single else 1 + 0.25 * estimated(node.right, shared)
            return estimated(node.left, shared) * right
        case Explode():
            return 1.8 * estimated(node.input, shared)
        case Aggregate():
            below = estimated(node.input, shared)
            return min(below, 4.0 ** len(node.groups)) * (3 if node.sets else 1)
        case SetOperation():
            return estimated(node.left, shared) + estimated(node.right, shared)
        case TopK():
            return min(node.limit, estimated(node.input, shared))
        case Pivot():
            return min(20, estimated(node.input, shared))
        case With():
            return estimated(node.main, shared)
        case _:
            return estimated(node.input, shared)


def _share(condition: Expression | None) -> float:
    equal = isinstance(condition, Call) and any(
        "= {1}" in part.spark for part in (condition, *condition.args) if isinstance(part, Call)
    )
    return 0.22 if equal else 0.55
