"""Queries as trees: relations and expressions that know their columns, and can be taken apart.

Every relation gives its columns names that are its own (c1, c2, ...), so an expression names a column by its name alone and a
relation can stand for another one that has the same columns. A subquery sees the columns of the relation it stands in, and
nothing further out. `require_resolved` says whether a tree makes sense, `pieces` and `rebuilt` take it apart and put it together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tests.support.values import Column

TYPES = {
    "int": "INT",
    "big": "BIGINT",
    "string": "STRING",
    "dec": "DECIMAL(12,2)",
    "money": "DECIMAL(22,2)",
    "mean": "DECIMAL(16,6)",
    "date": "DATE",
    "bool": "BOOLEAN",
    "double": "DOUBLE",
    "ratio": "DOUBLE",
    "arr": "ARRAY<INT>",
}
"""What a tag is in SQL. `money` is a sum of decimals, `mean` their average; a `ratio` is a double whose sums are not exact."""


class UnresolvedError(Exception):
    """A tree names a column or a shared relation that is not there."""


# expressions ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ref:
    """A column of the relation below, or of the one around a subquery."""

    name: str
    tag: str


@dataclass(frozen=True, slots=True)
class Lit:
    """A constant; None is NULL."""

    value: Any
    tag: str


@dataclass(frozen=True, slots=True)
class Call:
    """A function, an operator or an aggregate. The text has `{0}`, `{1}` for its arguments; DuckDB's may be another."""

    tag: str
    spark: str
    args: tuple[Expression, ...] = ()
    duckdb: str = ""

    @property
    def texts(self) -> dict[str, str]:
        return {"spark": self.spark, "duckdb": self.duckdb or self.spark}


@dataclass(frozen=True, slots=True)
class Order:
    """One term of an ORDER BY."""

    by: Expression
    direction: str = "ASC NULLS FIRST"


@dataclass(frozen=True, slots=True)
class Over:
    """A window function."""

    call: Call
    partition: tuple[Expression, ...] = ()
    order: tuple[Order, ...] = ()
    frame: str = ""

    @property
    def tag(self) -> str:
        return self.call.tag


@dataclass(frozen=True, slots=True)
class Exists:
    """EXISTS, or NOT EXISTS."""

    query: Relation
    negated: bool = False
    tag: str = "bool"


@dataclass(frozen=True, slots=True)
class Within:
    """IN, or NOT IN, with a subquery. Stands only where NULL counts as FALSE, because Spark says FALSE elsewhere too."""

    values: tuple[Expression, ...]
    query: Relation
    negated: bool = False
    tag: str = "bool"


@dataclass(frozen=True, slots=True)
class Scalar:
    """A subquery of one row and one column."""

    query: Relation

    @property
    def tag(self) -> str:
        return self.query.columns[0].tag


Expression = Ref | Lit | Call | Over | Exists | Within | Scalar


@dataclass(frozen=True, slots=True)
class Item:
    """A computed column and its name."""

    name: str
    value: Expression

    @property
    def column(self) -> Column:
        return Column(self.name, self.value.tag)


def item_columns(items: tuple[Item, ...]) -> tuple[Column, ...]:
    return tuple(i.column for i in items)


# relations ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scan:
    """A table, its columns renamed in order."""

    table: str
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Shared:
    """A reference to the body of a `With`, or of a `Recursive` to itself."""

    name: str
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Values:
    """Constant rows."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Lit, ...], ...]


@dataclass(frozen=True, slots=True)
class Project:
    """Computed columns."""

    input: Relation
    items: tuple[Item, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return item_columns(self.items)


@dataclass(frozen=True, slots=True)
class Filter:
    """Rows for which a condition holds."""

    input: Relation
    condition: Expression

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns


@dataclass(frozen=True, slots=True)
class Join:
    """INNER, LEFT, RIGHT, FULL or CROSS join; only the last has no condition."""

    kind: str
    left: Relation
    right: Relation
    condition: Expression | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.left.columns + self.right.columns


@dataclass(frozen=True, slots=True)
class Lateral:
    """INNER or LEFT join with a subquery that sees the columns on the left."""

    kind: str
    left: Relation
    right: Relation

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.left.columns + self.right.columns


@dataclass(frozen=True, slots=True)
class Explode:
    """One row per element of an array: its position, if there are two names, and its value."""

    input: Relation
    array: Expression
    names: tuple[str, ...]
    outer: bool = False

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns + tuple(Column(n, "int") for n in self.names)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """GROUP BY. `sets` may say how the groups are combined: `ROLLUP ({0}, {1})`, with a number for each group."""

    input: Relation
    groups: tuple[Item, ...]
    calls: tuple[Item, ...]
    having: Expression | None = None
    sets: str = ""

    @property
    def columns(self) -> tuple[Column, ...]:
        return item_columns(self.groups + self.calls)


@dataclass(frozen=True, slots=True)
class Distinct:
    """Each row once."""

    input: Relation

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns


@dataclass(frozen=True, slots=True)
class SetOperation:
    """UNION, INTERSECT or EXCEPT, with or without ALL; columns by position, named as on the left."""

    kind: str
    left: Relation
    right: Relation

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.left.columns


@dataclass(frozen=True, slots=True)
class Window:
    """The input with window functions beside it."""

    input: Relation
    items: tuple[Item, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns + item_columns(self.items)


@dataclass(frozen=True, slots=True)
class TopK:
    """ORDER BY all columns, LIMIT, OFFSET."""

    input: Relation
    order: tuple[Order, ...]
    limit: int
    offset: int = 0

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns


@dataclass(frozen=True, slots=True)
class Pivot:
    """One column per listed value of `by`; the groups keep their names."""

    input: Relation
    groups: tuple[Ref, ...]
    by: Ref
    call: Call
    values: tuple[tuple[Lit, str], ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(Column(g.name, g.tag) for g in self.groups) + tuple(
            Column(n, self.call.tag) for _, n in self.values
        )


@dataclass(frozen=True, slots=True)
class With:
    """A body with a name, and a main part that refers to it."""

    name: str
    body: Relation
    main: Relation

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.main.columns


@dataclass(frozen=True, slots=True)
class Recursive:
    """The rows of `anchor`, and again and again what `step` makes of the newest ones."""

    name: str
    anchor: Relation
    step: Relation
    columns: tuple[Column, ...]


Relation = (
    Scan
    | Shared
    | Values
    | Project
    | Filter
    | Join
    | Lateral
    | Explode
    | Aggregate
    | Distinct
    | SetOperation
    | Window
    | TopK
    | Pivot
    | With
    | Recursive
)
Node = Relation | Expression | Item | Order

Path = tuple[str, int | None]


# taking apart ---------------------------------------------------------------------------------------------------------------


def pieces(node: Node) -> Iterator[tuple[Path, Node]]:
    """Yield the nodes directly below one, each with the field it stands in and its place there."""
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        if isinstance(value, Node):
            yield (field.name, None), value
        elif isinstance(value, tuple):
            yield from (((field.name, i), v) for i, v in enumerate(value) if isinstance(v, Node))


def rebuilt(node: Any, path: Path, piece: Node) -> Any:
    """Return a node with another piece in one place."""
    name, place = path
    if place is None:
        return replace(node, **{name: piece})
    old = getattr(node, name)
    return replace(node, **{name: (*old[:place], piece, *old[place + 1 :])})


def walked(node: Node) -> Iterator[Node]:
    """Yield a node and all below it."""
    yield node
    for _, piece in pieces(node):
        yield from walked(piece)


def relations_in(node: Node) -> Iterator[Relation]:
    return (n for n in walked(node) if isinstance(n, Relation))


def tables_in(node: Node) -> set[str]:
    return {n.table for n in walked(node) if isinstance(n, Scan)}


def depth(node: Node) -> int:
    """Return how many relations stand above each other, leaves not counted."""
    below = max((depth(piece) for _, piece in pieces(node)), default=0)
    inner = isinstance(node, Relation) and not isinstance(node, Scan | Shared | Values)
    return below + inner


# checking -------------------------------------------------------------------------------------------------------------------

Tags = tuple[str, ...]


def tags(columns: tuple[Column, ...]) -> Tags:
    return tuple(c.tag for c in columns)


def require_resolved(
    node: Node, seen: Mapping[str, str] | None = None, shared: Mapping[str, Tags] | None = None
) -> None:
    """Raise `UnresolvedError` unless every name below stands for something of the right type.

    `seen` are the columns that expressions may name: of the inputs, and of the relation around a subquery.
    """
    seen, shared = seen or {}, shared or {}
    match node:
        case Ref():
            if seen.get(node.name) != node.tag:
                raise UnresolvedError(node.name)
        case Shared():
            if shared.get(node.name) != tags(node.columns):
                raise UnresolvedError(node.name)
        case With():
            require_resolved(node.body, seen, shared)
            require_resolved(node.main, seen, {**shared, node.name: tags(node.body.columns)})
        case Recursive():
            require_resolved(node.anchor, seen, shared)
            require_resolved(node.step, seen, {**shared, node.name: tags(node.columns)})
            _require_same(node.columns, node.anchor.columns, node.step.columns)
        case Lateral():
            require_resolved(node.left, seen, shared)
            require_resolved(node.right, {**seen, **_named(node.left)}, shared)
        case SetOperation():
            require_resolved(node.left, seen, shared)
            require_resolved(node.right, seen, shared)
            _require_same(node.left.columns, node.right.columns)
        case _:
            _require_pieces(node, seen, shared)
    if isinstance(node, Relation) and len({c.name for c in node.columns}) < max(1, len(node.columns)):
        raise UnresolvedError("columns of the same name, or none")


def _require_pieces(node: Node, seen: Mapping[str, str], shared: Mapping[str, Tags]) -> None:
    inside = dict(seen)
    for _, piece in pieces(node):
        require_resolved(piece, inside, shared)
        if isinstance(node, Relation) and isinstance(piece, Relation):
            inside |= _named(piece)


def _named(relation: Relation) -> dict[str, str]:
    return {c.name: c.tag for c in relation.columns}


def _require_same(*sides: tuple[Column, ...]) -> None:
    if len({tags(s) for s in sides}) != 1:
        raise UnresolvedError("sides with other columns")
