"""The reader of plans: what the readers of all operators share.

Column ids are numbers of our own, given in the order in which columns are met, from the leaves up: the same query gives the same
tree in every process, while Catalyst's ids count on for as long as its JVM lives. A plan that Catalyst reads twice (a common table
expression) is read twice here too, so that no two sides of a join share a column.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from headwater.plan.aggregates import aggregate_call
from headwater.plan.catalyst_expressions import ExpressionReader
from headwater.plan.catalyst_json import Node, nested
from headwater.plan.expressions import Column, ColumnRef, Expression, Literal
from headwater.plan.forms import UNKNOWN
from headwater.plan.operators import Aggregate, Join, JoinKind, Named, Operator, Project, Values, Window
from headwater.plan.refusal import Code, Findings
from headwater.plan.scope import Scope, Session

UNSUPPORTED: dict[str, str] = {
    "LateralJoin": "LATERAL JOIN",
    "AsOfJoin": "AS OF JOIN",
    "GlobalLimit": "LIMIT",
    "LocalLimit": "LIMIT",
    "Offset": "OFFSET",
    "Tail": "tail()",
    "Generate": "explode(), LATERAL VIEW",
    "UnionLoop": "WITH RECURSIVE",
    "Sample": "TABLESAMPLE",
    "Intersect": "INTERSECT",
    "Except": "EXCEPT",
}
"""Plan nodes that users know by another word."""

PASSED_THROUGH = frozenset(
    {"ResolvedHint", "UnresolvedHint", "Repartition", "RepartitionByExpression", "RebalancePartitions", "SubqueryAlias"}
)
"""Nodes that say how to compute, not what."""


@dataclass(frozen=True, slots=True)
class Relation:
    """An operator and the columns that the plan node it came from has: Catalyst's id and our column, in order."""

    op: Operator
    output: tuple[tuple[int, Column], ...]

    @property
    def columns(self) -> dict[int, int]:
        return {expression_id: column.id for expression_id, column in self.output}


Handler = Callable[["PlanReader", Node], Relation | None]
"""Reads one kind of plan node."""


class PlanReader:
    """Reads the plan of one query; what cannot be read goes to `findings`."""

    def __init__(self, session: Session, findings: Findings, handlers: Mapping[str, Handler]) -> None:
        self.findings = findings
        self.expressions = ExpressionReader(session, findings)
        self.loops: dict[int, str] = {}
        self.loop_numbers: Iterator[int] = count(1)
        self._handlers = handlers
        self._ids: Iterator[int] = count(1)

    def read(self, node: Node) -> Relation | None:
        """Return the relation, or None after recording why it is refused."""
        handler = self._handlers.get(node.kind)
        if handler is not None:
            return handler(self, node)
        if node.kind in PASSED_THROUGH:
            return self.read(node.children[0])
        self.refuse(node)
        return None

    def new(self, name: str, type_: str, nullable: bool = True) -> Column:
        """Return a column with an id of its own."""
        return Column(next(self._ids), name, type_, nullable)

    def new_output(
        self, attributes: Iterable[Node], described: Iterable[Sequence[Any]]
    ) -> tuple[tuple[int, Column], ...]:
        """Return new columns for `attributes`, whose types and nullability are given."""
        return tuple(
            (a.expression_id, self.new(a.fields["name"], type_, nullable))
            for a, (type_, nullable) in zip(attributes, described, strict=True)
        )

    def exactly(self, relation: Relation) -> Operator:
        """Return an operator whose output is the relation's, in order, each column once."""
        wanted = [column for _, column in relation.output]
        if [c.id for c in wanted] == [c.id for c in relation.op.output]:
            return relation.op
        seen: set[int] = set()
        items = []
        for column in wanted:
            is_new = column.id in seen
            target = self.new(column.name, column.type, column.nullable) if is_new else column
            items.append(Named(target, ColumnRef(column.id)))
            seen.add(column.id)
        return Project(relation.op, tuple(items))

    def with_columns(
        self, relation: Relation, expressions: Sequence[Expression], name: str
    ) -> tuple[Relation, dict[Expression, Column]]:
        """Return the relation over an operator that has every expression as a column, and the column of each."""
        op, columns = with_computed(self, relation.op, expressions, name)
        return Relation(op, relation.output), columns

    def over(self, relation: Relation | None, roots: Iterable[Node]) -> tuple[Relation | None, Scope]:
        """Return `relation` with a column for each scalar subquery in `roots`, and the scope in which to read these."""
        found: dict[int, Expression] = {}
        shapes: dict[str, Expression] = {}
        for node in scalar_subqueries(roots):
            shape = subquery_shape(node)
            if shape not in shapes:
                relation, shapes[shape] = self.with_subquery(relation, node)
            found[node.expression_id] = shapes[shape]
        return relation, Scope(None if relation is None else relation.columns, subqueries=found)

    def with_subquery(self, relation: Relation | None, node: Node) -> tuple[Relation | None, Expression]:
        """Return `relation` beside the one value of a subquery, and that value."""
        inner = self.read(nested(node.fields["hw_plan"]))
        if inner is None or relation is None:
            return None, UNKNOWN
        if node.kind == "Exists":
            exists = self.new("exists", "BOOLEAN", nullable=False)
            found = Join(relation.op, inner.op, JoinKind.EXISTENCE, (), exists)
            return Relation(found, relation.output), ColumnRef(exists.id)
        right = self.exactly(inner)
        kind = JoinKind.INNER if is_one_row(right) else JoinKind.SINGLE
        joined = Join(relation.op, right, kind)
        return Relation(joined, relation.output), ColumnRef(right.output[0].id)

    def refuse(self, node: Node) -> None:
        """Refuse a plan node, and look for other reasons below it."""
        fragment = UNSUPPORTED.get(node.kind, node.kind)
        if not node.children:
            detail = "Rows that do not come from a table of the warehouse have no changes to read."
            self.findings.refuse(Code.SOURCE_NOT_TRACKED, fragment, detail)
        else:
            self.findings.refuse(Code.OPERATOR_NOT_SUPPORTED, fragment, "There is no delta rule for it.")
        self.find_more_reasons(node)

    def find_more_reasons(self, node: Node) -> None:
        """Read everything in and below a node that was refused, for what else there is to say."""
        scope = Scope(None, lambda call, inner: self._ignored_aggregate(call, inner))
        for expression in _expressions(node):
            root = expression.children[0] if expression.kind == "SortOrder" else expression
            self.expressions.read(root, scope)
            for subquery in scalar_subqueries([root]):
                self.read(nested(subquery.fields["hw_plan"]))
        for child in node.children:
            self.read(child)

    def _ignored_aggregate(self, node: Node, scope: Scope) -> Expression:
        aggregate_call(self.expressions, node, scope)
        return Literal("NULL")


def with_computed(
    reader: PlanReader, op: Operator, expressions: Sequence[Expression], name: str
) -> tuple[Operator, dict[Expression, Column]]:
    """Return an operator that has every expression as a column beside its own, and the column of each."""
    known = {c.id: c for c in op.output}
    columns: dict[Expression, Column] = {}
    computed: list[Named] = []
    for expression in expressions:
        if expression in columns:
            continue
        if isinstance(expression, ColumnRef):
            columns[expression] = known[expression.id]
        else:
            columns[expression] = reader.new(name, "")
            computed.append(Named(columns[expression], expression))
    if computed:
        op = Project(op, (*(Named.same(c) for c in op.output), *computed))
    return op, columns


def is_one_row(op: Operator) -> bool:
    """Say whether `op` has exactly one row, whatever its sources hold."""
    match op:
        case Aggregate():
            return not op.groups
        case Project() | Window():
            return is_one_row(op.input)
        case Values():
            return len(op.rows) == 1
        case Join(kind=JoinKind.INNER, conditions=()):
            return is_one_row(op.left) and is_one_row(op.right)
        case Join(kind=JoinKind.SINGLE | JoinKind.EXISTENCE):
            return is_one_row(op.left)
        case _:
            return False


def scalar_subqueries(roots: Iterable[Node]) -> Iterator[Node]:
    """Yield the subqueries in expressions that have a value and a plan of their own: scalar ones and EXISTS."""
    for root in roots:
        for node in root.walk():
            if "hw_plan" in node.fields:
                yield node


def subquery_shape(node: Node) -> str:
    """Return a text that is the same for subqueries that differ in nothing but Catalyst's ids."""
    numbers: dict[int, int] = {}

    def renumbered(value: Any) -> Any:
        if isinstance(value, list):
            return [renumbered(v) for v in value]
        if not isinstance(value, dict):
            return value
        if str(value.get("product-class")).endswith(".ExprId"):
            return numbers.setdefault(value["id"], len(numbers))
        if "columns" in value and "table" in value:
            columns = [[numbers.setdefault(i, len(numbers)), *rest] for i, *rest in value["columns"]]
            return {"table": value["table"], "columns": columns}
        return {k: renumbered(v) for k, v in value.items() if k not in ("resultId", "qualifier")}

    return node.kind + json.dumps(renumbered(node.fields["hw_plan"]))


def _expressions(node: Node) -> Iterator[Node]:
    """Yield the expressions in all fields of a plan node that is not a leaf."""
    for key, value in node.fields.items():
        if isinstance(value, list) and value and node.children and not key.startswith("hw_"):
            for flat in value if isinstance(value[0], list) else [value]:
                if flat and isinstance(flat[0], dict) and ".expressions." in flat[0].get("class", ""):
                    yield nested(flat)
