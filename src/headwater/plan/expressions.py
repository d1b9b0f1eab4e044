"""Expressions: trees that print as Spark SQL.

An expression knows the text of its own node and nothing of Spark's classes. `Call.form` is the text with `{0}`, `{1}` ... where
the arguments stand, so that a new function needs no new class. Columns are named by number, never by the user's name: the
printer writes column 12 as `c12`, and two columns that share a name cannot be confused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from headwater.model.sql import quoted as quoted


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a relation. `type` is Spark DDL text; `id` is unique within one plan."""

    id: int
    name: str
    type: str
    nullable: bool = True

    @property
    def sql(self) -> str:
        return f"c{self.id}"


@dataclass(frozen=True, slots=True)
class SortKey:
    """A column to sort by."""

    column: Column
    descending: bool = False
    nulls_first: bool = True

    @property
    def sql(self) -> str:
        direction, nulls = "DESC" if self.descending else "ASC", "FIRST" if self.nulls_first else "LAST"
        return f"{self.column.sql} {direction} NULLS {nulls}"


@dataclass(frozen=True, slots=True)
class Expression:
    """Base of all expressions."""

    @property
    def children(self) -> tuple[Expression, ...]:
        return ()

    def with_children(self, children: tuple[Expression, ...]) -> Expression:
        return self

    @property
    def sql(self) -> str:
        raise AssertionError(f"{type(self).__name__} does not print")


@dataclass(frozen=True, slots=True)
class ColumnRef(Expression):
    """The value of column `id` of the input."""

    id: int

    @property
    def sql(self) -> str:
        return f"c{self.id}"


@dataclass(frozen=True, slots=True)
class Literal(Expression):
    """A constant, as SQL text that Spark reads back with the same value and type."""

    text: str

    @property
    def sql(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Variable(Expression):
    """A parameter of an enclosing lambda."""

    name: str

    @property
    def sql(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Lambda(Expression):
    """`(x, y) -> body`."""

    parameters: tuple[str, ...]
    body: Expression

    @property
    def children(self) -> tuple[Expression, ...]:
        return (self.body,)

    def with_children(self, children: tuple[Expression, ...]) -> Expression:
        return replace(self, body=children[0])

    @property
    def sql(self) -> str:
        names = ", ".join(self.parameters)
        return f"{names if len(self.parameters) == 1 else f'({names})'} -> {self.body.sql}"


@dataclass(frozen=True, slots=True)
class Call(Expression):
    """A function or operator: `name` says which (lower case, for rules), `form` says how it prints."""

    name: str
    args: tuple[Expression, ...]
    form: str

    @property
    def children(self) -> tuple[Expression, ...]:
        return self.args

    def with_children(self, children: tuple[Expression, ...]) -> Expression:
        return replace(self, args=children)

    @property
    def sql(self) -> str:
        return self.form.format(*(a.sql for a in self.args))


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """An aggregate function over the rows of a group.

    `form` prints the call; `{distinct}` stands where DISTINCT goes, and `{filter}` where the FILTER clause goes if that is not
    the end of the text. A call whose result would depend on the order in which rows arrive is never built:
    `plan/canonical.py` gives it a form that does not, or refuses it.
    """

    name: str
    args: tuple[Expression, ...]
    form: str
    distinct: bool = False
    filter: Expression | None = None

    @property
    def sql(self) -> str:
        clause = "" if self.filter is None else f" FILTER (WHERE {self.filter.sql})"
        form = self.form if "{filter}" in self.form else self.form + "{filter}"
        return form.format(*(a.sql for a in self.args), distinct="DISTINCT " if self.distinct else "", filter=clause)

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return self.args if self.filter is None else (*self.args, self.filter)

    def map(self, fn: Callable[[Expression], Expression]) -> AggregateCall:
        filter_ = None if self.filter is None else fn(self.filter)
        return replace(self, args=tuple(fn(a) for a in self.args), filter=filter_)


def walk(expression: Expression) -> Iterator[Expression]:
    """Yield `expression` and everything below it, parents first."""
    yield expression
    for child in expression.children:
        yield from walk(child)


def column_ids(expression: Expression) -> frozenset[int]:
    """Return the ids of all columns that `expression` reads."""
    return frozenset(e.id for e in walk(expression) if isinstance(e, ColumnRef))


def substituted(expression: Expression, columns: dict[int, Expression]) -> Expression:
    """Return `expression` with column references replaced."""
    if isinstance(expression, ColumnRef):
        return columns.get(expression.id, expression)
    if not expression.children:
        return expression
    return expression.with_children(tuple(substituted(c, columns) for c in expression.children))
