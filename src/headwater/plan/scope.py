"""What names mean where an expression stands, and what reading needs to know of the session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from headwater.plan.catalyst_json import Node
from headwater.plan.expressions import Expression
from headwater.plan.refusal import Findings


@dataclass(frozen=True, slots=True)
class Session:
    """Function names by expression class, whether ANSI mode is on, and the columns that tell the rows of a table apart."""

    names: Mapping[str, tuple[str, ...]]
    is_ansi: bool
    key_of: Callable[[str], tuple[str, ...]] = lambda table: ()

    def has_function(self, name: str) -> bool:
        return any(name in registered for registered in self.names.values())


@dataclass(frozen=True, slots=True)
class Scope:
    """What names mean in one place.

    `columns` maps Catalyst's expression ids to our column ids; None means that the input was refused and any column is accepted.
    `aggregate` turns an aggregate function into a reference to its result; None where no aggregate may stand.
    `variables` are the parameters of enclosing lambdas, `common` the expressions that Catalyst names to evaluate them once.
    `subqueries` are the values of subqueries, by Catalyst's expression id.
    """

    columns: Mapping[int, int] | None
    aggregate: Callable[[Node, Scope], Expression] | None = None
    variables: Mapping[int, str] = field(default_factory=dict)
    common: Mapping[str, Expression] = field(default_factory=dict)
    subqueries: Mapping[int, Expression] = field(default_factory=dict)


class Reader(Protocol):
    """Reads expressions; implemented by `ExpressionReader`, used by the functions that read one class each."""

    session: Session
    findings: Findings

    def read(self, node: Node, scope: Scope) -> Expression:
        """Return the expression, or a placeholder after recording why it is refused."""

    def children(self, node: Node, scope: Scope) -> tuple[Expression, ...]:
        """Read all children."""

    def function(self, node: Node, args: tuple[Expression, ...]) -> Expression:
        """Return the function that the class of `node` stands for, over `args`."""

    def moded(self, node: Node, form: str, try_form: str) -> str:
        """Return the form for the evaluation mode of `node`."""

    def unprintable(self, node: Node) -> Expression:
        """Refuse `node` because it has no SQL text; return a placeholder."""


ReadClass = Callable[[Reader, Node, Scope], Expression]
"""Reads one class of expressions."""
