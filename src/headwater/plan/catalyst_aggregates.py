"""Reading aggregates into their normal form: keys computed below, bare calls, and a projection above."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from headwater.plan.aggregates import aggregate_call
from headwater.plan.canonical import from_one_row
from headwater.plan.catalyst_json import Node
from headwater.plan.catalyst_reader import (
    PlanReader,
    Relation,
    scalar_subqueries,
    subquery_shape,
    with_computed,
)
from headwater.plan.expressions import AggregateCall, Column, ColumnRef, Expression, Literal, column_ids, substituted
from headwater.plan.operators import Aggregate, Named, NamedAggregate, Operator, Project
from headwater.plan.refusal import Code
from headwater.plan.scope import Scope


def read_aggregate(reader: PlanReader, node: Node) -> Relation | None:
    """GROUP BY, DISTINCT, and aggregates without groups."""
    key_nodes, items = node.expressions("groupingExpressions"), node.expressions("aggregateExpressions")
    calls_within = [n for i in items for n in i.walk() if n.kind == "AggregateExpression"]
    relation, scope = reader.over(reader.read(node.children[0]), [*key_nodes, *calls_within])
    below = {
        subquery_shape(n): scope.subqueries[n.expression_id] for n in scalar_subqueries([*key_nodes, *calls_within])
    }
    above = _Above(reader, items, below)
    keys = [reader.expressions.read(e, scope) for e in key_nodes]
    calls = _Calls(reader, lambda name, type_: reader.new(name, type_))
    scope = replace(scope, subqueries=above.places, aggregate=calls.add)
    read = [reader.expressions.read(i, scope) for i in items]
    if relation is None or reader.findings.refusals:
        return None
    input_, groups = with_computed(reader, relation.op, keys, "key")
    named = calls.named()
    if not groups and not named:
        named = (
            NamedAggregate(reader.new("count", "BIGINT", False), AggregateCall("count", (Literal("1"),), "count({0})")),
        )
    _refuse_collated(reader, groups.values())
    op = Aggregate(input_, tuple({g.id: g for g in groups.values()}.values()), named)
    wrapped, read = above.joined(op, [_over_keys(e, groups) for e in read])
    if wrapped is not op:
        return _projected(reader, wrapped, read, node)
    return _with_items(reader, op, read, node)


class _Above:
    """Scalar subqueries of the select list: they are no keys and no arguments, so they stand beside the groups."""

    def __init__(self, reader: PlanReader, items: Sequence[Node], below: Mapping[str, Expression]) -> None:
        """`below` are the values, by shape, of the subqueries in keys and arguments: a key in the select list reads the same."""
        self._reader = reader
        self._nodes: dict[int, Node] = {}
        self.places: dict[int, Expression] = {}
        places = dict(below)
        for node in scalar_subqueries(items):
            shape = subquery_shape(node)
            if shape not in places:
                places[shape] = ColumnRef(reader.new("subquery", "").id)
            place = self.places[node.expression_id] = places[shape]
            if isinstance(place, ColumnRef):
                self._nodes[place.id] = node

    def joined(self, op: Operator, items: Sequence[Expression]) -> tuple[Operator, list[Expression]]:
        """Return `op` beside the subqueries that `items` still read, and the items over it."""
        used = set().union(*(column_ids(i) for i in items)) - {c.id for c in op.output}
        columns: dict[int, Expression] = {}
        relation: Relation | None = Relation(op, ())
        for id_ in sorted(used & self._nodes.keys()):
            relation, columns[id_] = self._reader.with_subquery(relation, self._nodes[id_])
        if relation is None:
            return op, [substituted(i, dict.fromkeys(used, Literal("NULL"))) for i in items]
        return relation.op, [substituted(i, columns) for i in items]


class _Calls:
    """The aggregate calls met while reading one Aggregate; equal calls are one."""

    def __init__(self, reader: PlanReader, new: Callable[[str, str], Column]) -> None:
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


def _over_keys(expression: Expression, groups: Mapping[Expression, Column]) -> Expression:
    """Return `expression` with everything that is a group key replaced by the column of the key."""
    if expression in groups:
        return ColumnRef(groups[expression].id)
    if not expression.children:
        return expression
    return expression.with_children(tuple(_over_keys(c, groups) for c in expression.children))


def _with_items(reader: PlanReader, op: Aggregate, items: Sequence[Expression], node: Node) -> Relation:
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
    return _projected(reader, op, items, node)


def _projected(reader: PlanReader, op: Operator, items: Sequence[Expression], node: Node) -> Relation:
    known = {c.id: c for c in op.output}
    attributes = node.expressions("aggregateExpressions")
    named, output = [], []
    used: set[int] = set()
    for attribute, expression, (type_, nullable) in zip(attributes, items, node.fields["hw_output"], strict=True):
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


def _refuse_collated(reader: PlanReader, groups: Iterable[Column]) -> None:
    for group in groups:
        if "COLLATE" in group.type:
            detail = "Strings that the collation calls equal are one group; which of them names it depends on the order of rows."
            reader.findings.refuse(Code.ORDER_DEPENDENT, f"GROUP BY {group.name}", detail)
