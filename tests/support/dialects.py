"""Query trees as text, for Spark and for DuckDB.

Relations that a SELECT can hold together become one: joins, filters and generators go into its FROM and WHERE, and what is above
them into its list. Everything else is a subquery with an alias (r1, r2, ...), and every column is written with the alias it comes from.

Where the two engines differ, DuckDB's text says what Spark means: rows for the empty grouping set of no rows are left out, IN
over several columns compares them one by one, a generator is a lateral subquery.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, assert_never

from tests.support.relations import (
    TYPES,
    Aggregate,
    Call,
    Distinct,
    Exists,
    Explode,
    Expression,
    Filter,
    Item,
    Join,
    Lateral,
    Lit,
    Order,
    Over,
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
    Window,
    With,
    Within,
)
from tests.support.values import Column

Names = Mapping[str, str]
"""Where each column comes from: its name, and the same with an alias before it."""

_PLAIN = Scan | Shared | Values | Filter | Join | Lateral | Explode | Project


def spark_text(query: Relation) -> str:
    return _Printer("spark").query(query, {})


def duckdb_text(query: Relation) -> str:
    return _Printer("duckdb").query(query, {})


@dataclass(slots=True)
class _Block:
    """A FROM with its WHERE, that may grow."""

    source: str
    names: dict[str, str]
    where: list[str] = field(default_factory=list)

    @property
    def tail(self) -> str:
        where = f" WHERE {' AND '.join(self.where)}" if self.where else ""
        return f" FROM {self.source}{where}"

    def listed(self, columns: Sequence[Column]) -> list[str]:
        return [self.names[c.name] for c in columns]


class _Printer:
    def __init__(self, dialect: str) -> None:
        self.dialect = dialect
        self.aliases = 0

    def _alias(self) -> str:
        self.aliases += 1
        return f"r{self.aliases}"

    # queries ----------------------------------------------------------------------------------------------------------------

    def query(self, node: Relation, outer: Names) -> str:
        """Return the text of a whole SELECT."""
        match node:
            case Project():
                block = self.block(node.input, outer)
                return f"SELECT {self._items(node.items, outer, block)}{block.tail}"
            case Aggregate():
                return self._aggregate(node, outer)
            case Distinct():
                return self._distinct(node, outer)
            case SetOperation():
                return f"{self._arm(node.left, outer)} {node.kind} {self._arm(node.right, outer)}"
            case Window():
                block = self.block(node.input, outer)
                kept = ", ".join(block.listed(node.input.columns))
                return f"SELECT {kept}, {self._items(node.items, outer, block)}{block.tail}"
            case TopK():
                return self._top(node, outer)
            case Pivot():
                return self._pivot(node, outer)
            case With():
                names = ", ".join(c.name for c in node.body.columns)
                body = self.query(node.body, outer)
                return f"WITH {node.name}({names}) AS ({body}) {self._main(node.main, outer)}"
            case Recursive():
                return self._recursive(node, outer)
            case _:
                block = self.block(node, outer)
                return f"SELECT {', '.join(block.listed(node.columns))}{block.tail}"

    def _main(self, node: Relation, outer: Names) -> str:
        text = self.query(node, outer)
        return f"({text})" if isinstance(node, With | Recursive) else text

    def _arm(self, node: Relation, outer: Names) -> str:
        text = self.query(node, outer)
        return f"({text})" if isinstance(node, SetOperation | TopK | With | Recursive | Pivot) else text

    def _items(self, items: Sequence[Item], outer: Names, block: _Block) -> str:
        names = {**outer, **block.names}
        return ", ".join(self._item(i, names) for i in items)

    def _item(self, item: Item, names: Names) -> str:
        text = self.value(item.value, names)
        return text if text.endswith(f".{item.name}") else f"{text} AS {item.name}"

    def _distinct(self, node: Distinct, outer: Names) -> str:
        if isinstance(node.input, _PLAIN):
            return self.query(node.input, outer).replace("SELECT", "SELECT DISTINCT", 1)
        block = self.block(node.input, outer)
        return f"SELECT DISTINCT {', '.join(block.listed(node.columns))}{block.tail}"

    def _aggregate(self, node: Aggregate, outer: Names) -> str:
        block = self.block(node.input, outer)
        names = {**outer, **block.names}
        text = f"SELECT {self._items(node.groups + node.calls, outer, block)}{block.tail}"
        groups = [self.value(i.value, names) for i in node.groups]
        having = [] if node.having is None else [self.value(node.having, names)]
        if groups:
            text += f" GROUP BY {node.sets.format(*groups) if node.sets else ', '.join(groups)}"
        if node.sets and self.dialect == "duckdb":
            having.append("count(*) > 0")
        return text + (f" HAVING {' AND '.join(having)}" if having else "")

    def _top(self, node: TopK, outer: Names) -> str:
        block = self.block(node.input, outer)
        order = self._order(node.order, {**outer, **block.names})
        offset = f" OFFSET {node.offset}" if node.offset else ""
        listed = ", ".join(block.listed(node.columns))
        return f"SELECT {listed}{block.tail} ORDER BY {order} LIMIT {node.limit}{offset}"

    def _pivot(self, node: Pivot, outer: Names) -> str:
        """Spark's own PIVOT; elsewhere the aggregates that it stands for."""
        if self.dialect == "spark":
            needed = (*node.groups, node.by, *(a for a in node.call.args if isinstance(a, Ref)))
            inner = Project(node.input, tuple(Item(r.name, r) for r in dict.fromkeys(needed)))
            bare = {r.name: r.name for r in needed}
            listed = ", ".join(f"{self.literal(v)} AS {n}" for v, n in node.values)
            columns = ", ".join(c.name for c in node.columns)
            return (
                f"SELECT {columns} FROM ({self.query(inner, outer)}) "
                f"PIVOT ({self.value(node.call, bare)} FOR {node.by.name} IN ({listed}))"
            )
        block = self.block(node.input, outer)
        call, by = self.value(node.call, block.names), block.names[node.by.name]
        groups = ", ".join(block.names[g.name] for g in node.groups)
        calls = ", ".join(f"{call} FILTER (WHERE {by} = {self.literal(v)}) AS {n}" for v, n in node.values)
        return f"SELECT {groups}, {calls}{block.tail} GROUP BY {groups}"

    def _recursive(self, node: Recursive, outer: Names) -> str:
        names = ", ".join(c.name for c in node.columns)
        anchor, step = self._arm(node.anchor, outer), self._arm(node.step, outer)
        alias = self._alias()
        listed = ", ".join(f"{alias}.{c.name}" for c in node.columns)
        body = f"WITH RECURSIVE {node.name}({names}) AS ({anchor} UNION ALL {step})"
        return f"{body} SELECT {listed} FROM {node.name} AS {alias}"

    # what stands in FROM ----------------------------------------------------------------------------------------------------

    def block(self, node: Relation, outer: Names) -> _Block:
        """Return a relation as something to select from."""
        match node:
            case Scan():
                return self._named(node.table, node.columns)
            case Shared():
                return self._named(node.name, node.columns)
            case Values():
                rows = ", ".join(f"({', '.join(self.literal(v) for v in row)})" for row in node.rows)
                return self._named(f"(VALUES {rows})", node.columns)
            case Filter():
                block = self.block(node.input, outer)
                block.where.append(self.value(node.condition, {**outer, **block.names}))
                return block
            case Join():
                return self._join(node, outer)
            case Lateral():
                return self._lateral(node, outer)
            case Explode():
                return self._explode(node, outer)
            case _:
                return self._subquery(node, outer)

    def _named(self, source: str, columns: Sequence[Column]) -> _Block:
        alias = self._alias()
        listed = ", ".join(c.name for c in columns)
        return _Block(f"{source} AS {alias}({listed})", {c.name: f"{alias}.{c.name}" for c in columns})

    def _subquery(self, node: Relation, outer: Names) -> _Block:
        text, alias = self.query(node, outer), self._alias()
        return _Block(f"({text}) AS {alias}", {c.name: f"{alias}.{c.name}" for c in node.columns})

    def _left(self, node: Relation, outer: Names) -> _Block:
        """Return the left side of a join: a FROM without WHERE that a join may follow."""
        if isinstance(node, Filter | Explode):
            return self._subquery(node, outer)
        return self.block(node, outer)

    def _right(self, node: Relation, outer: Names) -> _Block:
        if isinstance(node, Filter | Explode | Join | Lateral):
            return self._subquery(node, outer)
        return self.block(node, outer)

    def _join(self, node: Join, outer: Names) -> _Block:
        left, right = self._left(node.left, outer), self._right(node.right, outer)
        names = {**left.names, **right.names}
        on = "" if node.condition is None else f" ON {self.value(node.condition, {**outer, **names})}"
        kind = {"INNER": "JOIN"}.get(node.kind, f"{node.kind} JOIN")
        return _Block(f"{left.source} {kind} {right.source}{on}", names)

    def _lateral(self, node: Lateral, outer: Names) -> _Block:
        left = self._left(node.left, outer)
        text, alias = self.query(node.right, {**outer, **left.names}), self._alias()
        kind = {"INNER": "JOIN"}.get(node.kind, f"{node.kind} JOIN")
        names = left.names | {c.name: f"{alias}.{c.name}" for c in node.right.columns}
        return _Block(f"{left.source} {kind} LATERAL ({text}) AS {alias} ON TRUE", names)

    def _explode(self, node: Explode, outer: Names) -> _Block:
        block = self.block(node.input, outer)
        array, alias = self.value(node.array, {**outer, **block.names}), self._alias()
        if self.dialect == "spark":
            function = "posexplode" if len(node.names) == 2 else "explode"
            view = "LATERAL VIEW OUTER" if node.outer else "LATERAL VIEW"
            block.source += f" {view} {function}({array}) {alias} AS {', '.join(node.names)}"
        else:
            *position, value = node.names
            places = "".join(f"CAST(unnest(range(len({array}))) AS INT) AS {n}, " for n in position)
            kind = "LEFT JOIN" if node.outer else "JOIN"
            block.source += f" {kind} LATERAL (SELECT {places}unnest({array}) AS {value}) AS {alias} ON TRUE"
        block.names |= {n: f"{alias}.{n}" for n in node.names}
        return block

    # expressions ------------------------------------------------------------------------------------------------------------

    def value(self, node: Expression, names: Names) -> str:
        match node:
            case Ref():
                return names[node.name]
            case Lit():
                return self.literal(node)
            case Call():
                return node.texts[self.dialect].format(*(self.value(a, names) for a in node.args))
            case Over():
                return self._over(node, names)
            case Exists():
                return f"{'NOT ' if node.negated else ''}EXISTS ({self.query(node.query, names)})"
            case Within():
                return self._within(node, names)
            case Scalar():
                return f"({self.query(node.query, names)})"
            case _:
                assert_never(node)

    def _over(self, node: Over, names: Names) -> str:
        parts = []
        if node.partition:
            parts.append(f"PARTITION BY {', '.join(self.value(p, names) for p in node.partition)}")
        if node.order:
            parts.append(f"ORDER BY {self._order(node.order, names)}")
        parts += [node.frame] if node.frame else []
        call = node.call.texts[self.dialect]
        arguments = [self.value(a, names) for a in node.call.args]
        return call.replace("{over}", f"OVER ({' '.join(parts)})").format(*arguments)

    def _order(self, order: Sequence[Order], names: Names) -> str:
        return ", ".join(f"{self.value(o.by, names)} {o.direction}" for o in order)

    def _within(self, node: Within, names: Names) -> str:
        values = [self.value(v, names) for v in node.values]
        text = self.query(node.query, names)
        word = "NOT IN" if node.negated else "IN"
        if len(values) == 1:
            return f"{values[0]} {word} ({text})"
        if self.dialect == "spark":
            return f"({', '.join(values)}) {word} ({text})"
        same = " AND ".join(f"{{0}}.{c.name} = {v}" for c, v in zip(node.query.columns, values, strict=True))
        inner, outer = self._alias(), self._alias()
        rows = f"SELECT ({same.format(inner)}) AS same FROM ({text}) AS {inner}"
        answer = (
            f"CASE WHEN bool_or({outer}.same) THEN TRUE WHEN count(*) > count({outer}.same) THEN NULL ELSE FALSE END"
        )
        found = f"(SELECT {answer} FROM ({rows}) AS {outer})"
        return f"(NOT {found})" if node.negated else found

    def literal(self, node: Lit) -> str:
        return _literal(node.value, TYPES[node.tag], self.dialect)


def _literal(value: Any, ddl: str, dialect: str) -> str:
    if value is None:
        return f"CAST(NULL AS {ddl.replace('ARRAY<INT>', 'INT[]') if dialect == 'duckdb' else ddl})"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return f"'{value}'"
    if ddl == "INT":
        return str(value)
    if ddl == "DATE":
        return f"DATE '{value.isoformat()}'"
    if ddl == "DOUBLE":
        return f"CAST({value!r} AS DOUBLE)"
    return f"CAST({Decimal(value)} AS {ddl})"
