"""Random queries over one table: filters, projections, aggregates, grouping sets, DISTINCT, UNION, aggregates of aggregates.

A query knows how each of its columns can be checked. Most are `exact`: the user's own words in plain Spark give the answer. The
elements of `bag` columns come in any order. For a `free` column SQL allows several answers: only `verify` can check it.
Expressions never raise: what does is tested by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from tests.support.values import Column

EXACT, BAG, FREE = "exact", "bag", "free"
NUMBERS = ("int", "small", "dec", "wide", "double", "float")
ORDERED = (
    "int",
    "small",
    "big",
    "string",
    "dec",
    "wide",
    "limit",
    "double",
    "wild",
    "float",
    "date",
    "ts",
    "ntz",
    "bin",
    "arr",
    "struct",
)
GROUPABLE = (*ORDERED, "bool")


@dataclass(frozen=True, slots=True)
class Item:
    """One column of a result. `tag` says what a query above may do with it; None: nothing but pass it on."""

    name: str
    sql: str
    tag: str | None
    check: str = EXACT
    aggregate: bool = False

    @property
    def text(self) -> str:
        return f"{self.sql} AS {self.name}"


@dataclass(frozen=True, slots=True)
class Query:
    """A SELECT whose parts can be dropped one by one; `{t}` stands for the table it reads."""

    items: tuple[Item, ...]
    source: str = "{t}"
    where: str = ""
    group: str = ""
    having: str = ""
    distinct: bool = False
    branches: tuple[str, ...] = ()

    def sql(self, table: str) -> str:
        selected = ", ".join(i.text for i in self.items)
        text = f"SELECT {'DISTINCT ' if self.distinct else ''}{selected} FROM {self.source}"
        text += f" WHERE {self.where}" if self.where else ""
        text += f" GROUP BY {self.group}" if self.group else ""
        text += f" HAVING {self.having}" if self.having else ""
        for branch in self.branches:
            text += f" UNION ALL {branch}"
        return text.replace("{t}", table)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns that a query above may use."""
        return tuple(Column(i.name, i.tag) for i in self.items if i.tag is not None)

    def without_item(self, index: int) -> Query | None:
        """Return the query without one of its columns; None where that would change its shape."""
        if len(self.items) == 1 or self.branches or self.distinct:
            return None
        return replace(self, items=self.items[:index] + self.items[index + 1 :])


def random_query(rng: Random, columns: Sequence[Column]) -> Query:
    """Return a query over a table with these columns."""
    maker = rng.choices(
        (_project, _aggregate, _grouping_sets, _distinct, _nested, _union), weights=(18, 46, 10, 8, 12, 6)
    )[0]
    return maker(_Palette(rng, tuple(columns)))


@dataclass(frozen=True, slots=True)
class _Palette:
    """The columns at hand, and dice."""

    rng: Random
    columns: tuple[Column, ...]

    def pick(self, *tags: str) -> str | None:
        found = [c.name for c in self.columns if c.tag in tags]
        return self.rng.choice(found) if found else None

    def tag_of(self, name: str) -> str:
        return next(c.tag for c in self.columns if c.name == name)

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def first_of(self, made: Sequence[tuple[str, str | None] | None]) -> tuple[str, str | None]:
        found = [m for m in made if m is not None]
        return self.rng.choice(found) if found else ("1", "int")


# predicates and values ------------------------------------------------------------------------------------------------------

_TESTS = {
    "int": (
        "{c} > 2",
        "{c} <= 0",
        "{c} IN (1, 2, NULL)",
        "{c} % 2 = 0",
        "{c} BETWEEN 0 AND 4",
        "{c} <=> NULL",
        "{c} <> 3",
    ),
    "small": ("{c} > 0", "{c} IN (1, 2)", "{c} = -32768"),
    "big": ("{c} < 0", "{c} > 7", "{c} = 9223372036854775807", "{c} IS NOT NULL"),
    "string": (
        "{c} = 'a'",
        "{c} > 'a'",
        "{c} IS NULL",
        "{c} LIKE '%b%'",
        "{c} NOT IN ('a', '')",
        "length({c}) > 1",
        "{c} <=> 'é'",
    ),
    "bool": ("{c}", "NOT {c}", "{c} IS NULL", "{c} IS NOT TRUE"),
    "double": ("{c} > 0", "isnan({c})", "{c} < 1e299", "{c} = 0", "{c} >= 'Infinity'"),
    "wild": ("{c} > 0", "{c} = 0", "isnan({c})", "{c} <= -0.1"),
    "float": ("{c} >= 0", "NOT isnan({c})"),
    "dec": ("{c} > 0", "{c} BETWEEN -100.5 AND 100.25", "{c} = 0"),
    "wide": ("{c} > 0", "{c} < 1"),
    "limit": ("{c} > 0", "{c} = 0"),
    "date": ("{c} < DATE'1900-01-01'", "year({c}) = 2024", "{c} >= '1582-10-15'"),
    "ts": ("{c} < TIMESTAMP'1970-01-01 00:00:00Z'", "hour({c}) = 1"),
    "ntz": ("{c} >= TIMESTAMP_NTZ'2000-01-01 00:00:00'",),
    "bin": ("length({c}) > 0", "{c} = X'00'"),
    "arr": ("size({c}) > 1", "array_contains({c}, 1)"),
    "struct": ("{c}.a = 1", "{c} IS NULL"),
    "map": ("{c}['a'] = 1", "size({c}) > 0"),
}


def _predicate(p: _Palette, depth: int = 0) -> str:
    if depth < 2 and p.chance(0.3):
        link = p.rng.choice((" AND ", " OR "))
        text = "(" + link.join(_predicate(p, depth + 1) for _ in range(2)) + ")"
        return f"NOT {text}" if p.chance(0.2) else text
    column = p.rng.choice([c for c in p.columns if c.tag in _TESTS])
    return p.rng.choice(_TESTS[column.tag]).replace("{c}", column.name)


def _value(p: _Palette) -> tuple[str, str | None]:
    """Return an expression that cannot raise, and its tag."""
    i, s, g, m, d = p.pick("int"), p.pick("small"), p.pick("string"), p.pick("dec"), p.pick("double")
    day, ts, arr, st, mp, b = (p.pick(t) for t in ("date", "ts", "arr", "struct", "map", "bool"))
    made: list[tuple[str, str | None] | None] = [
        (f"coalesce({i}, -1)", "int") if i else None,
        (f"{i} * 3 - 1", "int") if i else None,
        (f"CASE WHEN {_predicate(p)} THEN {i} WHEN {_predicate(p)} THEN 0 END", "int") if i else None,
        (f"nullif({i}, 2)", "int") if i else None,
        (f"try_divide({i}, {s})", None) if i and s else None,
        (f"CAST({i} AS STRING)", "string") if i else None,
        (f"upper({g})", "string") if g else None,
        (f"concat({g}, '-', {i})", "string") if g and i else None,
        (f"substr({g}, 1, 1)", "string") if g else None,
        (f"CASE {g} WHEN 'a' THEN 'A' WHEN 'b' THEN NULL ELSE {g} END", "string") if g else None,
        (f"length({g})", "int") if g else None,
        (f"{m} * 2", None) if m else None,
        (f"CAST({m} AS DECIMAL(20,4))", None) if m else None,
        (f"round({m}, 0)", None) if m else None,
        (f"-{m}", "dec") if m else None,
        (f"-{d}", "double") if d else None,
        (f"{d} / 4", None) if d else None,
        (f"nanvl({d}, 0)", None) if d else None,
        (f"year({day})", None) if day else None,
        (f"trunc({day}, 'MM')", "date") if day else None,
        (f"date_trunc('HOUR', {ts})", "ts") if ts else None,
        (f"CAST({ts} AS DATE)", None) if ts else None,
        (f"date_format({ts}, 'yyyy-MM-dd HH')", "string") if ts else None,
        (f"size({arr})", "int") if arr else None,
        (f"get({arr}, 0)", "int") if arr else None,
        (f"{st}.a", "int") if st else None,
        (f"to_json({st})", "string") if st else None,
        (f"{mp}['a']", "int") if mp else None,
        (f"if({b}, 'yes', 'no')", "string") if b else None,
        (f"({_predicate(p)})", "bool"),
    ]
    return p.first_of(made)


def _group_terms(p: _Palette, most: int) -> list[tuple[str, str | None]]:
    count = p.rng.randint(1, most)
    found: dict[str, str | None] = {}
    for _ in range(count):
        if p.chance(0.7) and (name := p.pick(*GROUPABLE)):
            found[name] = p.tag_of(name)
        else:
            text, tag = _value(p)
            found[text] = tag
    return list(found.items())


# aggregates -----------------------------------------------------------------------------------------------------------------


def _call(p: _Palette) -> tuple[str, str | None, str]:
    """Return an aggregate call, its tag and how it is checked."""
    made = p.rng.choices(
        (_counting, _summing, _extreme, _moment, _collecting, _choosing), weights=(24, 26, 20, 12, 11, 7)
    )[0](p)
    text, tag, check = made
    if p.chance(0.2) and "WITHIN GROUP" not in text and not text.startswith("sum(CASE"):
        text = f"{text} FILTER (WHERE {_predicate(p)})"
    return text, tag, check


def _counting(p: _Palette) -> tuple[str, str | None, str]:
    column = p.pick(*GROUPABLE) or "1"
    other = p.pick("int", "string", "bool") or "1"
    texts = [
        "count(*)",
        f"count({column})",
        f"count(DISTINCT {column})",
        f"count_if({_predicate(p)})",
        f"count({column}, {other})",
    ]
    if other != "1" and column != "1":
        texts.append(f"count(DISTINCT {column}, {other})")
    if (exact := p.pick("int", "string", "dec")) is not None:
        texts.append(f"approx_count_distinct({exact})")
    return p.rng.choice(texts), "int", EXACT


def _summing(p: _Palette) -> tuple[str, str | None, str]:
    i, m, w, d, b = p.pick("int", "small"), p.pick("dec"), p.pick("wide"), p.pick("double", "float"), p.pick("big")
    made: list[tuple[str, str | None] | None] = [
        (f"sum({i})", "int") if i else None,
        (f"avg({i})", None) if i else None,
        (f"sum(DISTINCT {i})", "int") if i else None,
        (f"avg(DISTINCT {i})", None) if i else None,
        (f"sum(CASE WHEN {_predicate(p)} THEN {i} ELSE 0 END)", "int") if i else None,
        (f"sum({i} + 1)", "int") if i else None,
        (f"sum({m})", None) if m else None,
        (f"avg({m})", None) if m else None,
        (f"sum(DISTINCT {m})", None) if m else None,
        (f"avg(DISTINCT {m})", None) if m else None,
        (f"try_sum({m})", None) if m else None,
        (f"sum({w})", None) if w else None,
        (f"avg({w})", None) if w else None,
        (f"sum({d})", None) if d else None,
        (f"avg({d})", None) if d else None,
        (f"sum(DISTINCT {d})", None) if d else None,
        (f"sum(CAST({b} AS DECIMAL(38,0)))", None) if b else None,
        (f"bit_xor({b})", "big") if b else None,
    ]
    text, tag = p.first_of([*made, ("count(1)", "int")])
    return text, tag, EXACT


def _extreme(p: _Palette) -> tuple[str, str | None, str]:
    if p.chance(0.2) and (b := p.pick("bool")) is not None:
        return f"{p.rng.choice(('bool_and', 'bool_or', 'every', 'min', 'max'))}({b})", "bool", EXACT
    if p.chance(0.15):
        return f"bool_or({_predicate(p)})", "bool", EXACT
    column = p.pick(*ORDERED)
    if column is None:
        return "count(*)", "int", EXACT
    return f"{p.rng.choice(('min', 'max'))}({column})", p.tag_of(column), EXACT


_ONE = ("var_pop", "var_samp", "stddev_pop", "stddev", "variance", "stddev_samp")
_TWO = ("covar_pop", "covar_samp", "corr")
_REGRESSION = ("regr_count", "regr_avgx", "regr_avgy")


def _moment(p: _Palette) -> tuple[str, str | None, str]:
    x, y = p.pick("spread", "int", "small"), p.pick("spread", "int")
    if x is None or y is None:
        return "count(*)", "int", EXACT
    roll = p.rng.random()
    if roll < 0.55:
        return f"{p.rng.choice(_ONE)}({x})", None, EXACT
    if roll < 0.85:
        return f"{p.rng.choice(_TWO)}({x}, {y})", None, EXACT
    return f"{p.rng.choice(_REGRESSION)}({x}, {y})", None, EXACT


def _collecting(p: _Palette) -> tuple[str, str | None, str]:
    column, text = p.pick(*ORDERED), p.pick("string")
    i = p.pick("int", "small")
    made: list[tuple[str, str] | None] = [
        (f"collect_list({column})", BAG) if column else None,
        (f"collect_set({column})", BAG) if column else None,
        (f"array_agg({column})", BAG) if column else None,
        (f"string_agg({text}, '|') WITHIN GROUP (ORDER BY {text} DESC)", EXACT) if text else None,
        (f"listagg({text}, ',')", FREE) if text else None,
        (f"percentile({i}, 0.5)", EXACT) if i else None,
        (f"median({i})", EXACT) if i else None,
        (f"percentile_cont(0.25) WITHIN GROUP (ORDER BY {i})", EXACT) if i else None,
    ]
    found = [m for m in made if m is not None]
    call, check = p.rng.choice(found) if found else ("count(*)", EXACT)
    return call, None, check


def _choosing(p: _Palette) -> tuple[str, str | None, str]:
    column, order = p.pick(*ORDERED), p.pick("int", "string", "dec", "date")
    if column is None or order is None:
        return "count(*)", "int", EXACT
    name = p.rng.choice(
        ("first({c})", "any_value({c})", "mode({c})", "max_by({c}, {o})", "min_by({c}, {o})", "last({c})")
    )
    return name.replace("{c}", column).replace("{o}", order), None, FREE


# shapes ---------------------------------------------------------------------------------------------------------------------


_Part = tuple[str, str | None, str, bool]
"""The text of an item, its tag, how it is checked, and whether it is an aggregate."""


def _named(parts: Sequence[_Part]) -> tuple[Item, ...]:
    return tuple(Item(f"c{n}", text, tag, check, agg) for n, (text, tag, check, agg) in enumerate(parts))


def _project(p: _Palette) -> Query:
    parts: list[_Part] = []
    for _ in range(p.rng.randint(1, 5)):
        if p.chance(0.5):
            column = p.rng.choice(p.columns)
            parts.append((column.name, column.tag, EXACT, False))
        else:
            parts.append((*_value(p), EXACT, False))
    return Query(_named(parts), where=_predicate(p) if p.chance(0.7) else "")


def _calls(p: _Palette, low: int, high: int) -> list[_Part]:
    return [(*_call(p), True) for _ in range(p.rng.randint(low, high))]


def _runnable(parts: list[_Part], having: str = "") -> list[_Part]:
    """Spark itself cannot plan an ordered string_agg beside a DISTINCT call: count instead."""
    if not any("(DISTINCT " in text for text in (having, *(part[0] for part in parts))):
        return parts
    return [("count(*)", None, EXACT, True) if part[0].startswith("string_agg(") else part for part in parts]


def _having(p: _Palette) -> str:
    tests = ["count(*) > 1", "count(*) BETWEEN 2 AND 5", "count(*) % 2 = 1"]
    if i := p.pick("int"):
        tests += [f"sum({i}) > 3", f"max({i}) >= 5", f"min({i}) IS NOT NULL", f"count(DISTINCT {i}) > 1"]
    if m := p.pick("dec"):
        tests += [f"sum({m}) > 0", f"avg({m}) < 100"]
    return p.rng.choice(tests)


def _aggregate(p: _Palette) -> Query:
    groups = _group_terms(p, 2) if p.chance(0.8) else []
    shown = [g for g in groups if p.chance(0.85)]
    parts = [(t, g, EXACT, False) for t, g in shown] + _calls(p, 1, 4)
    where = _predicate(p) if p.chance(0.4) else ""
    having = _having(p) if p.chance(0.25) else ""
    shown_parts = _named(_runnable(parts, having))
    return Query(shown_parts, where=where, group=", ".join(t for t, _ in groups), having=having)


def _grouping_sets(p: _Palette) -> Query:
    names = list({n: None for n in (p.pick(*GROUPABLE) for _ in range(3)) if n is not None})
    if not names:
        return _aggregate(p)
    kind = p.rng.choice(("ROLLUP", "CUBE", "SETS"))
    if kind == "SETS":
        sets = ["()", f"({names[0]})", f"({', '.join(names)})"]
        group = f"GROUPING SETS ({', '.join(p.rng.sample(sets, 2))}, ({names[-1]}))"
    else:
        group = f"{kind} ({', '.join(names)})"
    used = [n for n in names if n in group]
    parts = [(n, p.tag_of(n), EXACT, False) for n in used]
    if p.chance(0.5):
        parts.append(("CAST(grouping_id() AS INT)", "int", EXACT, True))
    parts += _calls(p, 1, 2)
    return Query(_named(_runnable(parts)), group=group, having="count(*) > 1" if p.chance(0.2) else "")


def _distinct(p: _Palette) -> Query:
    parts = [(t, g, EXACT, False) for t, g in _group_terms(p, 3)]
    return Query(_named(parts), where=_predicate(p) if p.chance(0.4) else "", distinct=True)


def _nested(p: _Palette) -> Query:
    """An aggregate of an aggregate, of a DISTINCT, or of a projection with names of its own."""
    inner = p.rng.choice((_aggregate, _aggregate, _distinct, _project))(p)
    if not inner.columns:
        return inner
    outer = p.rng.choice((_aggregate, _aggregate, _project))(_Palette(p.rng, inner.columns))
    return replace(outer, source=f"({inner.sql('{t}')}) AS q")


def _union(p: _Palette) -> Query:
    first = _project(p)
    first = replace(first, items=tuple(i for i in first.items if i.tag in ("int", "string", "bool"))) or first
    if not first.items:
        return _distinct(p)
    branch = replace(first, where=_predicate(p))
    union = replace(first, branches=(branch.sql("{t}"),))
    if p.chance(0.5):
        return union
    outer = _aggregate(_Palette(p.rng, union.columns))
    return replace(outer, source=f"({union.sql('{t}')}) AS u")
