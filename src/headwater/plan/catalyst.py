"""Reading plans: Catalyst's JSON becomes an operator tree in normal form, or a list of refusals.

Column ids are numbers of our own, given in the order in which columns are met, from the leaves up: the same query gives the same
tree in every process, while Catalyst's ids count on for as long as its JVM lives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from headwater.model.analyzed import AnalyzedQuery
from headwater.plan.aggregates import aggregate_call
from headwater.plan.canonical import from_one_row
from headwater.plan.catalyst_expressions import ExpressionReader
from headwater.plan.catalyst_json import Node, nested
from headwater.plan.expressions import AggregateCall, Column, ColumnRef, Expression, Literal
from headwater.plan.operators import Aggregate, Expand, Filter, Named, NamedAggregate, Operator, Project, Scan, Union
from headwater.plan.refusal import Code, Findings
from headwater.plan.scope import Scope, Session

UNSUPPORTED: dict[str, str] = {
    "Join": "JOIN",
    "LateralJoin": "LATERAL JOIN",
    "AsOfJoin": "AS OF JOIN",
    "Window": "OVER (...)",
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

_PASSED_THROUGH = frozenset(
    {"ResolvedHint", "UnresolvedHint", "Repartition", "RepartitionByExpression", "RebalancePartitions", "SubqueryAlias"}
)
"""Nodes that say how to compute, not what."""

_LIMITS = frozenset({"GlobalLimit", "LocalLimit", "Offset", "Tail"})


@dataclass(frozen=True, slots=True)
class Relation:
    """An operator and the columns that the plan node it came from has: Catalyst's id and our column, in order."""

    op: Operator
    output: tuple[tuple[int, Column], ...]

    @property
    def columns(self) -> dict[int, int]:
        return {expression_id: column.id for expression_id, column in self.output}


def read_plan(query: AnalyzedQuery, session: Session, findings: Findings) -> Operator | None:
    """Return the tree whose output is the output of the query, in order; None if anything was refused."""
    reader = _PlanReader(session, findings)
    relation = reader.read(nested(query.nodes))
    if relation is None or findings.refusals:
        return None
    return reader.exactly(relation)


class _PlanReader:
    def __init__(self, session: Session, findings: Findings) -> None:
        self.findings = findings
        self.expressions = ExpressionReader(session, findings)
        self._ids: Iterator[int] = count(1)

    def read(self, node: Node) -> Relation | None:
        handler = _OPERATORS.get(node.kind)
        if handler is not None:
            return handler(self, node)
        if node.kind in _PASSED_THROUGH:
            return self.read(node.children[0])
        self.refuse(node)
        return None

    def new(self, name: str, type_: str, nullable: bool = True) -> Column:
        return Column(next(self._ids), name, type_, nullable)

    def exactly(self, relation: Relation) -> Operator:
        """Return an operator whose output is the relation's, in order, each column once."""
        wanted = [column for _, column in relation.output]
        if tuple(wanted) == relation.op.output:
            return relation.op
        seen: set[int] = set()
        items = []
        for column in wanted:
            is_new = column.id in seen
            target = self.new(column.name, column.type, column.nullable) if is_new else column
            items.append(Named(target, ColumnRef(column.id)))
            seen.add(column.id)
        return Project(relation.op, tuple(items))

    def refuse(self, node: Node) -> None:
        fragment = UNSUPPORTED.get(node.kind, node.kind)
        if not node.children:
            detail = "Rows that do not come from a table of the warehouse have no changes to read."
            self.findings.refuse(Code.SOURCE_NOT_TRACKED, fragment, detail)
        else:
            self.findings.refuse(Code.OPERATOR_NOT_SUPPORTED, fragment, "There is no delta rule for it.")
        self._find_more_reasons(node)

    def _find_more_reasons(self, node: Node) -> None:
        scope = Scope(None, lambda call, inner: self._ignored_aggregate(call, inner))
        for expression in _expressions(node):
            root = expression.children[0] if expression.kind == "SortOrder" else expression
            self.expressions.read(root, scope)
        for child in node.children:
            if not (node.kind in _LIMITS and child.kind in _LIMITS | {"Sort"}):
                self.read(child)
            elif child.children:
                self._find_more_reasons(child)

    def _ignored_aggregate(self, node: Node, scope: Scope) -> Expression:
        aggregate_call(self.expressions, node, scope)
        return Literal("NULL")


def _scan(reader: _PlanReader, node: Node) -> Relation | None:
    scan = node.fields.get("hw_scan")
    if scan is None:
        reader.refuse(node)
        return None
    output = tuple((eid, reader.new(name, type_, nullable)) for eid, name, type_, nullable in scan["columns"])
    columns = tuple(c for _, c in output)
    return Relation(Scan(scan["table"], columns, tuple(c.name for c in columns)), output)


def _filter(reader: _PlanReader, node: Node) -> Relation | None:
    relation = reader.read(node.children[0])
    condition = reader.expressions.read(node.expression("condition"), _scope(relation))
    if relation is None:
        return None
    return Relation(Filter(relation.op, condition), relation.output)


def _project(reader: _PlanReader, node: Node) -> Relation | None:
    relation = reader.read(node.children[0])
    scope = _scope(relation)
    items: list[Named] = []
    output: list[tuple[int, Column]] = []
    used: set[int] = set()
    known = {c.id: c for c in relation.op.output} if relation else {}
    for item, (type_, nullable) in zip(node.expressions("projectList"), node.fields["hw_output"], strict=True):
        expression = reader.expressions.read(item, scope)
        if item.kind == "AttributeReference" and isinstance(expression, ColumnRef) and expression.id not in used:
            column = known[expression.id]
        else:
            column = reader.new(item.fields["name"], type_, nullable)
        used.add(column.id)
        items.append(Named(column, expression))
        output.append((item.expression_id, column))
    if relation is None:
        return None
    return Relation(Project(relation.op, tuple(items)), tuple(output))


def _expand(reader: _PlanReader, node: Node) -> Relation | None:
    relation = reader.read(node.children[0])
    scope = _scope(relation)
    rows = [tuple(reader.expressions.read(nested(e), scope) for e in row) for row in node.fields["projections"]]
    output = [
        (attribute.expression_id, reader.new(attribute.fields["name"], type_, nullable))
        for attribute, (type_, nullable) in zip(node.expressions("output"), node.fields["hw_output"], strict=True)
    ]
    if relation is None:
        return None
    return Relation(Expand(relation.op, tuple(rows), tuple(c for _, c in output)), tuple(output))


def _union(reader: _PlanReader, node: Node) -> Relation | None:
    relations = [reader.read(c) for c in node.children]
    branches = [r for r in relations if r is not None]
    if len(branches) < len(relations):
        return None
    first = branches[0]
    output = [
        (expression_id, reader.new(column.name, type_, nullable))
        for (expression_id, column), (type_, nullable) in zip(first.output, node.fields["hw_output"], strict=True)
    ]
    return Relation(Union(tuple(reader.exactly(b) for b in branches), tuple(c for _, c in output)), tuple(output))


def _sort(reader: _PlanReader, node: Node) -> Relation | None:
    reader.findings.notice("ORDER BY is dropped: a stream table is a set of rows, give the order when you read it.")
    relation = reader.read(node.children[0])
    for order in node.expressions("order"):
        reader.expressions.read(order.children[0], _scope(relation))
    return relation


def _aggregate(reader: _PlanReader, node: Node) -> Relation | None:
    relation = reader.read(node.children[0])
    scope = _scope(relation)
    keys = [reader.expressions.read(e, scope) for e in node.expressions("groupingExpressions")]
    calls = _Calls(reader, lambda name, type_: reader.new(name, type_))
    items = node.expressions("aggregateExpressions")
    read = [reader.expressions.read(i, replace(scope, aggregate=calls.add)) for i in items]
    if relation is None or reader.findings.refusals:
        return None
    input_, groups = _with_keys(reader, relation.op, keys)
    named = calls.named()
    if not groups and not named:
        named = (
            NamedAggregate(reader.new("count", "BIGINT", False), AggregateCall("count", (Literal("1"),), "count({0})")),
        )
    _refuse_collated(reader, groups.values())
    op = Aggregate(input_, tuple({g.id: g for g in groups.values()}.values()), named)
    return _with_items(reader, op, [_over_keys(e, groups) for e in read], node)


class _Calls:
    """The aggregate calls met while reading one Aggregate; equal calls are one."""

    def __init__(self, reader: _PlanReader, new: Callable[[str, str], Column]) -> None:
        self._reader = reader
        self._new = new
        self._columns: dict[AggregateCall, Column] = {}

    def add(self, node: Node, scope: Scope) -> Expression:
        call = aggregate_call(self._reader.expressions, node, replace(scope, aggregate=None))
        if call is None:
            return Literal("NULL")
        if call not in self._columns:
            self._columns[call] = self._new(call.name, node.children[0].fields.get("hw_result", ""))
        return ColumnRef(self._columns[call].id)

    def named(self) -> tuple[NamedAggregate, ...]:
        calls = from_one_row(list(self._columns))
        return tuple(NamedAggregate(column, call) for column, call in zip(self._columns.values(), calls, strict=True))


def _with_keys(
    reader: _PlanReader, op: Operator, keys: Sequence[Expression]
) -> tuple[Operator, dict[Expression, Column]]:
    """Return an input that has every key as a column, and the column of each key."""
    known = {c.id: c for c in op.output}
    groups: dict[Expression, Column] = {}
    computed: list[Named] = []
    for key in keys:
        if key in groups:
            continue
        if isinstance(key, ColumnRef):
            groups[key] = known[key.id]
        else:
            groups[key] = reader.new("key", "")
            computed.append(Named(groups[key], key))
    if computed:
        op = Project(op, (*(Named.same(c) for c in op.output), *computed))
    return op, groups


def _over_keys(expression: Expression, groups: Mapping[Expression, Column]) -> Expression:
    """Return `expression` with everything that is a group key replaced by the column of the key."""
    if expression in groups:
        return ColumnRef(groups[expression].id)
    if not expression.children:
        return expression
    return expression.with_children(tuple(_over_keys(c, groups) for c in expression.children))


def _with_items(reader: _PlanReader, op: Aggregate, items: Sequence[Expression], node: Node) -> Relation:
    """Return the select list of an aggregate: a Project above it if anything is computed from keys and calls."""
    known = {c.id: c for c in op.output}
    attributes = node.expressions("aggregateExpressions")
    described = list(zip(attributes, items, node.fields["hw_output"], strict=True))
    if all(isinstance(e, ColumnRef) for e in items):
        names = {e.id: (a.fields["name"], t, n) for a, e, (t, n) in reversed(described) if isinstance(e, ColumnRef)}
        calls = tuple(replace(c, column=_described(c.column, names)) for c in op.calls)
        op = Aggregate(op.input, op.groups, calls)
        known = {c.id: c for c in op.output}
        return Relation(op, tuple((a.expression_id, known[e.id]) for a, e, _ in described if isinstance(e, ColumnRef)))
    named, output = [], []
    used: set[int] = set()
    for attribute, expression, (type_, nullable) in described:
        passes = (
            attribute.kind == "AttributeReference" and isinstance(expression, ColumnRef) and expression.id not in used
        )
        if passes and isinstance(expression, ColumnRef):
            column = known[expression.id]
        else:
            column = reader.new(attribute.fields["name"], type_, nullable)
        used.add(column.id)
        named.append(Named(column, expression))
        output.append((attribute.expression_id, column))
    return Relation(Project(op, tuple(named)), tuple(output))


def _described(column: Column, names: Mapping[int, tuple[str, str, bool]]) -> Column:
    if column.id not in names:
        return column
    name, type_, nullable = names[column.id]
    return replace(column, name=name, type=type_, nullable=nullable)


def _refuse_collated(reader: _PlanReader, groups: Iterable[Column]) -> None:
    for group in groups:
        if "COLLATE" in group.type:
            detail = "Strings that the collation calls equal are one group; which of them names it depends on the order of rows."
            reader.findings.refuse(Code.ORDER_DEPENDENT, f"GROUP BY {group.name}", detail)


def _expressions(node: Node) -> Iterator[Node]:
    """Yield the expressions in all fields of a plan node that is not a leaf."""
    for key, value in node.fields.items():
        if isinstance(value, list) and value and node.children and not key.startswith("hw_"):
            for flat in value if isinstance(value[0], list) else [value]:
                if flat and isinstance(flat[0], dict) and ".expressions." in flat[0].get("class", ""):
                    yield nested(flat)


def _scope(relation: Relation | None) -> Scope:
    return Scope(None if relation is None else relation.columns)


_OPERATORS: dict[str, Callable[[_PlanReader, Node], Relation | None]] = {
    "LocalRelation": _scan,
    "LogicalRDD": _scan,
    "LogicalRelation": _scan,
    "Filter": _filter,
    "Project": _project,
    "Aggregate": _aggregate,
    "Expand": _expand,
    "Union": _union,
    "Sort": _sort,
}
