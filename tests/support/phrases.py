"""Random expressions over columns: predicates, values, aggregates and window functions.

None of them raises, whatever the rows: numbers stay small, division is guarded. All are functions of the multiset of rows: what depends
on the order of rows orders by all columns. Sums are taken only of what adds up exactly. DuckDB's texts give Spark's types and rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from random import Random
from typing import Any

from tests.support.relations import Call, Expression, Lit, Order, Over, Ref
from tests.support.values import Column

DOMAINS: dict[str, tuple[Any, ...]] = {
    "int": (0, 1, 2, 3, 4, 5),
    "big": (0, 1, 2, 3, 5, 8),
    "string": ("", "a", "b", "c", "d"),
    "dec": tuple(Decimal(t) for t in ("-3.33", "0.00", "0.25", "1.00", "1.10", "2.50", "7.77")),
    "date": (date(2023, 12, 31), *(date(2024, 1, d) for d in (1, 2, 3, 15)), date(2024, 2, 29)),
    "bool": (False, True),
    "double": (-0.75, 0.0, 0.25, 0.5, 1.0, 1.75, 2.0),
    "arr": ((), (1,), (1, 2), (2, None), (None,), (3, 1, 1), (0, 5)),
}
"""The values of columns, in order: few, so that joins match and rows repeat."""

JOINABLE = ("int", "big", "string", "date", "dec", "double", "bool")
ORDERED = (*JOINABLE, "money", "mean", "ratio")
GROUPABLE = ("int", "string", "bool", "date", "big", "dec", "double")
DIRECTIONS = ("ASC NULLS FIRST", "ASC NULLS LAST", "DESC NULLS FIRST", "DESC NULLS LAST")


_LIKE = {"money": "dec", "mean": "dec", "ratio": "double"}


def literal(rng: Random, tag: str) -> Lit:
    """Return a constant that columns of this type hold."""
    return Lit(rng.choice(DOMAINS[_LIKE.get(tag, tag)]), tag)


def _bound(rng: Random, value: Expression) -> Call:
    """Return a comparison with a constant that most values pass."""
    domain = DOMAINS[_LIKE.get(value.tag, value.tag)]
    half = (len(domain) + 1) // 2
    operator = rng.choice((">=", "<=", ">=", "<=", "<>", "<>", ">", "=", "<=>"))
    known = domain[:half] if operator in (">=", ">") else domain[half:] if operator == "<=" else domain
    return compared(operator, value, Lit(rng.choice(known), value.tag))


@dataclass(frozen=True, slots=True)
class Palette:
    """The columns at hand, and dice."""

    rng: Random
    columns: tuple[Column, ...]

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def all(self, *tags: str) -> list[Ref]:
        return [Ref(c.name, c.tag) for c in self.columns if c.tag in tags]

    def pick(self, *tags: str) -> Ref | None:
        found = self.all(*tags)
        return self.rng.choice(found) if found else None

    def some(self, low: int, high: int, *tags: str) -> list[Ref]:
        """Return several different columns, as many as there are."""
        found = self.all(*tags)
        return self.rng.sample(found, min(len(found), self.rng.randint(low, high)))

    def same(self, value: Ref, others: Palette) -> Ref | None:
        """Return a column of the others that can be compared with this one, now and then of another type."""
        wider = {"int": "big", "big": "int"}.get(value.tag)
        if wider is not None and self.chance(0.12):
            return others.pick(wider)
        return others.pick(value.tag)


# predicates -----------------------------------------------------------------------------------------------------------------


def compared(operator: str, left: Expression, right: Expression) -> Call:
    """Return a comparison; `<=>` holds for two NULLs."""
    other = "IS NOT DISTINCT FROM" if operator == "<=>" else operator
    return Call("bool", f"({{0}} {operator} {{1}})", (left, right), f"({{0}} {other} {{1}})")


def conjunction(*parts: Expression) -> Expression:
    return _linked("AND", parts)


def disjunction(*parts: Expression) -> Expression:
    return _linked("OR", parts)


def _linked(word: str, parts: Sequence[Expression]) -> Expression:
    if len(parts) == 1:
        return parts[0]
    return Call("bool", "(" + f" {word} ".join(f"{{{n}}}" for n in range(len(parts))) + ")", tuple(parts))


def not_null(value: Expression) -> Call:
    return Call("bool", "({0} IS NOT NULL)", (value,))


_TESTS = {
    "int": ("{0} % 2 = 0", "{0} IN (1, 2, NULL)", "{0} BETWEEN 1 AND 4", "{0} NOT IN (0, 9)"),
    "big": ("{0} % 3 <> 1", "{0} BETWEEN 1 AND 5"),
    "string": ("{0} NOT LIKE '%a%'", "{0} IN ('a', 'b', 'c')", "{0} NOT IN ('a')", "length({0}) > 0"),
    "bool": ("{0}", "NOT {0}", "{0} IS NOT TRUE", "{0} IS NOT FALSE"),
    "date": ("year({0}) = 2024",),
}


def predicate(p: Palette, depth: int = 0) -> Expression:
    """Return a condition that more rows pass than fail."""
    if depth < 2 and p.chance(0.25):
        parts = [predicate(p, depth + 1) for _ in range(2)]
        if p.chance(0.1):
            return Call("bool", "(NOT {0})", (conjunction(*parts),))
        return disjunction(*parts) if p.chance(0.75) else conjunction(*parts)
    value = p.pick("int", "string") if p.chance(0.5) else None
    value = value or p.pick(*ORDERED)
    if value is None:
        return Lit(True, "bool")
    roll = p.rng.random()
    if roll < 0.2:
        return Call("bool", p.rng.choice(("({0} IS NOT NULL)",) * 4 + ("({0} IS NULL)",)), (value,))
    if roll < 0.45 and value.tag in _TESTS:
        return Call("bool", f"({p.rng.choice(_TESTS[value.tag])})", (value,))
    if roll < 0.6 and (other := p.pick(value.tag)) is not None and other != value:
        return compared(p.rng.choice(("<=", "<>", ">=", "=", "<=>")), value, other)
    return _bound(p.rng, value)


# values ---------------------------------------------------------------------------------------------------------------------

_DIVIDED = "CASE WHEN {1} <> 0 THEN CAST({0} AS DOUBLE) / {1} END"


def value(p: Palette) -> Expression | None:
    """Return something computed from one or two columns."""
    found = [m for maker in _VALUES if (m := maker(p)) is not None]
    return p.rng.choice(found) if found else None


def _over(tags: tuple[str, ...], text: str, tag: str = "", duckdb: str = "") -> Callable[[Palette], Call | None]:
    def made(p: Palette) -> Call | None:
        column = p.pick(*tags)
        return None if column is None else Call(tag or column.tag, text, (column,), duckdb)

    return made


def _of_two(tags: tuple[str, ...], text: str, tag: str = "", duckdb: str = "") -> Callable[[Palette], Call | None]:
    def made(p: Palette) -> Call | None:
        left = p.pick(*tags)
        right = None if left is None else p.pick(left.tag)
        return None if left is None or right is None else Call(tag or left.tag, text, (left, right), duckdb)

    return made


def _chosen(p: Palette) -> Call | None:
    column = p.pick("int", "string", "big", "date", "dec", "double")
    if column is None:
        return None
    return Call(column.tag, "CASE WHEN {0} THEN {1} ELSE {2} END", (predicate(p), column, literal(p.rng, column.tag)))


def _filled(p: Palette) -> Call | None:
    column = p.pick("int", "string", "big", "date", "dec", "bool", "double")
    if column is None:
        return None
    return Call(column.tag, "coalesce({0}, {1})", (column, literal(p.rng, column.tag)))


_VALUES: tuple[Callable[[Palette], Expression | None], ...] = (
    _filled,
    _chosen,
    _over(("int", "big"), "({0} % 3)"),
    _over(("int", "big"), "({0} + 1)"),
    _over(("int", "big"), "(-{0})"),
    _over(("int", "big"), "abs({0})"),
    _over(("int",), "nullif({0}, 2)"),
    _of_two(("int", "big"), "({0} + {1})"),
    _of_two(("int", "big"), "try_divide({0}, {1})", "ratio", _DIVIDED),
    _over(("string",), "upper({0})"),
    _over(("string",), "substr({0}, 1, 1)"),
    _over(("string",), "length({0})", "int", "CAST(length({0}) AS INT)"),
    _of_two(("string",), "({0} || '-' || {1})"),
    _over(("int",), "CAST({0} AS STRING)", "string"),
    _over(("int",), "CAST({0} AS BIGINT)", "big"),
    _over(("dec",), "(-{0})", "dec"),
    _of_two(("dec",), "CAST({0} + {1} AS DECIMAL(12,2))"),
    _of_two(("double",), "({0} + {1})"),
    _over(("date",), "date_add({0}, 1)", "date", "CAST({0} + 1 AS DATE)"),
    _over(("date",), "year({0})", "int", "CAST(year({0}) AS INT)"),
    lambda p: predicate(p),
)


# aggregates -----------------------------------------------------------------------------------------------------------------

_HALF_UP = (
    "CAST(CAST(sign({s}) * ((2 * abs(CAST({s} * 100 AS HUGEINT)) * 10000 + {n}) // (2 * {n})) AS DECIMAL(30,0))"
    " * CAST(0.000001 AS DECIMAL(7,6)) AS DECIMAL(16,6))"
)
"""The average of decimals as Spark rounds it, from integers: DuckDB's own is a double."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """An aggregate function; `{x}` is the call's tail, a FILTER or an OVER."""

    tags: tuple[str, ...]
    spark: str
    tag: str = ""
    duckdb: str = ""


def _mean(argument: str) -> str:
    return _HALF_UP.replace("{s}", f"CAST(sum({argument}){{x}} AS DECIMAL(22,2))").replace(
        "{n}", f"nullif(count({argument}){{x}}, 0)"
    )


_SUMS = (
    _Shape(("int", "big"), "sum({0}){x}", "big", "CAST(sum({0}){x} AS BIGINT)"),
    _Shape(("dec",), "sum({0}){x}", "money", "CAST(sum({0}){x} AS DECIMAL(22,2))"),
    _Shape(("money",), "CAST(sum({0}){x} AS DECIMAL(22,2))", "money"),
    _Shape(("double",), "sum({0}){x}", "double"),
    _Shape(("int", "big", "double"), "avg({0}){x}", "ratio"),
    _Shape(("dec",), "avg({0}){x}", "mean", _mean("{0}")),
)
_COUNTS = (_Shape(ORDERED, "count({0}){x}", "big"), _Shape((), "count(*){x}", "big"))
_EXTREMES = (_Shape(ORDERED, "min({0}){x}"), _Shape(ORDERED, "max({0}){x}"))
_LOGIC = (_Shape(("bool",), "bool_and({0}){x}"), _Shape(("bool",), "bool_or({0}){x}"))
_DISTINCT = (
    _Shape(GROUPABLE, "count(DISTINCT {0}){x}", "big"),
    _Shape(("int", "big"), "sum(DISTINCT {0}){x}", "big", "CAST(sum(DISTINCT {0}){x} AS BIGINT)"),
)


def _shaped(p: Palette, shapes: Sequence[_Shape]) -> Call | None:
    """Return a call of one of the functions, its tail still open."""
    found = []
    for shape in shapes:
        column = p.pick(*shape.tags)
        if column is not None:
            found.append(Call(shape.tag or column.tag, shape.spark, (column,), shape.duckdb))
        elif not shape.tags:
            found.append(Call(shape.tag, shape.spark, (), shape.duckdb))
    return p.rng.choice(found) if found else None


def _closed(call: Call, tail: str) -> Call:
    return replace(call, spark=call.spark.replace("{x}", tail), duckdb=call.duckdb.replace("{x}", tail))


def counted(p: Palette) -> Call:
    return _closed(_shaped(p, _COUNTS) or Call("big", "count(*)"), "")


def aggregate(p: Palette) -> Call:
    """Return an aggregate call, now and then with FILTER."""
    shapes = p.rng.choices((_SUMS, _COUNTS, _EXTREMES, _LOGIC, _DISTINCT), weights=(30, 22, 26, 8, 14))[0]
    call = None if p.chance(0.12) else _shaped(p, shapes)
    call = call or _odd_aggregate(p)
    if not p.chance(0.18):
        return _closed(call, "")
    filtered = _closed(call, f" FILTER (WHERE {{{len(call.args)}}})")
    return replace(filtered, args=(*call.args, predicate(p)))


def _odd_aggregate(p: Palette) -> Call:
    """Return an aggregate of more than a column."""
    number, pair = p.pick("int"), p.some(2, 2, "int", "string", "date")
    if number is not None and p.chance(0.5):
        text = "sum(CASE WHEN {0} THEN {1} ELSE 0 END){x}"
        return Call("big", text, (predicate(p), number), f"CAST({text} AS BIGINT)")
    if len(pair) == 2 and p.chance(0.6):
        known = "CASE WHEN {0} IS NOT NULL AND {1} IS NOT NULL THEN ({0}, {1}) END"
        return Call("big", "count(DISTINCT {0}, {1}){x}", tuple(pair), f"count(DISTINCT {known}){{x}}")
    return Call("bool", p.rng.choice(("bool_or({0}){x}", "bool_and({0}){x}")), (predicate(p),))


def having(p: Palette) -> Call:
    """Return a condition on a group that many groups pass."""
    made = [
        Call("bool", "(count(*) >= 1)"),
        Call("bool", "(count(*) > 1)"),
        Call("bool", "(count(*) BETWEEN 1 AND 6)"),
    ]
    if (number := p.pick("int", "big")) is not None:
        made += [
            Call("bool", "(sum({0}) > 1)", (number,)),
            Call("bool", "(max({0}) >= 2)", (number,)),
            Call("bool", "(min({0}) IS NOT NULL)", (number,)),
        ]
    if (text := p.pick("string")) is not None:
        made.append(Call("bool", "(count(DISTINCT {0}) > 0)", (text,)))
    return p.rng.choice(made)


# windows --------------------------------------------------------------------------------------------------------------------

_FRAMES = (
    "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    "ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
    "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW",
    "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
    "ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING",
)
_WHOLE = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
_NEAR = "RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING"


def full_order(p: Palette) -> tuple[Order, ...]:
    """Return an order in which only equal rows are ties."""
    found = p.all(*ORDERED)
    p.rng.shuffle(found)
    return tuple(Order(c, p.rng.choice(DIRECTIONS)) for c in found)


def _some_order(p: Palette) -> tuple[Order, ...]:
    return tuple(Order(c, p.rng.choice(DIRECTIONS)) for c in p.some(1, 2, *ORDERED))


def window_function(p: Palette) -> Over:
    """Return a window function over columns that can all be ordered."""
    partition = tuple(p.some(1, 2, *GROUPABLE)) if p.chance(0.85) else ()
    maker = p.rng.choices(
        (_numbered, _ranked, _shifted, _edge, _running, _peers, _overall, _near),
        weights=(16, 14, 14, 10, 18, 14, 12, 3),
    )[0]
    return replace(maker(p), partition=partition)


def _numbered(p: Palette) -> Over:
    return Over(Call("int", "row_number() {over}", (), "CAST(row_number() {over} AS INT)"), order=full_order(p))


def _ranked(p: Palette) -> Over:
    name = p.rng.choice(("rank", "dense_rank"))
    return Over(Call("int", f"{name}() {{over}}", (), f"CAST({name}() {{over}} AS INT)"), order=_some_order(p))


def _shifted(p: Palette) -> Over:
    column = p.pick(*ORDERED)
    if column is None:
        return _numbered(p)
    text = p.rng.choice(("lag({0}) {over}", "lead({0}) {over}", "lag({0}, 2) {over}", "lead({0}, 1) {over}"))
    return Over(Call(column.tag, text, (column,)), order=full_order(p))


def _edge(p: Palette) -> Over:
    column = p.pick(*ORDERED)
    if column is None:
        return _numbered(p)
    name = p.rng.choice(("first_value", "last_value"))
    return Over(
        Call(column.tag, f"{name}({{0}}) {{over}}", (column,)),
        order=full_order(p),
        frame=p.rng.choice(("", _WHOLE, *_FRAMES)),
    )


def _windowed(p: Palette) -> Call:
    shapes = p.rng.choices((_SUMS, _COUNTS, _EXTREMES), weights=(45, 25, 30))[0]
    return _closed(_shaped(p, shapes) or Call("big", "count(*){x}"), " {over}")


def _running(p: Palette) -> Over:
    return Over(_windowed(p), order=full_order(p), frame=p.rng.choice(_FRAMES))


def _peers(p: Palette) -> Over:
    """The default frame takes in all ties, so a few columns may order it."""
    return Over(_windowed(p), order=_some_order(p))


def _overall(p: Palette) -> Over:
    return Over(_windowed(p))


def _near(p: Palette) -> Over:
    column = p.pick("int")
    if column is None:
        return _overall(p)
    return Over(_windowed(p), order=(Order(column, p.rng.choice(DIRECTIONS)),), frame=_NEAR)
