"""Reading plans: Catalyst's JSON becomes an operator tree in normal form, or a list of refusals."""

from __future__ import annotations

from headwater.model.analyzed import AnalyzedQuery
from headwater.plan.catalyst_aggregates import read_aggregate
from headwater.plan.catalyst_generators import read_generate
from headwater.plan.catalyst_joins import read_join
from headwater.plan.catalyst_json import Node, nested
from headwater.plan.catalyst_leaves import (
    read_inline_table,
    read_loop,
    read_loop_reference,
    read_one_row,
    read_scan,
    read_values,
)
from headwater.plan.catalyst_reader import Handler, PlanReader, Relation
from headwater.plan.catalyst_tops import read_limit, read_project, read_sort
from headwater.plan.catalyst_windows import read_window
from headwater.plan.operators import Expand, Filter, Operator, Union
from headwater.plan.refusal import Findings
from headwater.plan.scope import Session


def read_plan(query: AnalyzedQuery, session: Session, findings: Findings) -> Operator | None:
    """Return the tree whose output is the output of the query, in order; None if anything was refused."""
    reader = PlanReader(session, findings, _OPERATORS)
    relation = reader.read(nested(query.nodes))
    if relation is None or findings.refusals:
        return None
    return reader.exactly(relation)


def _filter(reader: PlanReader, node: Node) -> Relation | None:
    root = node.expression("condition")
    relation, scope = reader.over(reader.read(node.children[0]), [root])
    condition = reader.expressions.read(root, scope)
    if relation is None:
        return None
    return Relation(Filter(relation.op, condition), relation.output)


def _expand(reader: PlanReader, node: Node) -> Relation | None:
    roots = [[nested(e) for e in row] for row in node.fields["projections"]]
    relation, scope = reader.over(reader.read(node.children[0]), [e for row in roots for e in row])
    rows = [tuple(reader.expressions.read(e, scope) for e in row) for row in roots]
    output = reader.new_output(node.expressions("output"), node.fields["hw_output"])
    if relation is None:
        return None
    return Relation(Expand(relation.op, tuple(rows), tuple(c for _, c in output)), output)


def _union(reader: PlanReader, node: Node) -> Relation | None:
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


_OPERATORS: dict[str, Handler] = {
    "LocalRelation": read_values,
    "OneRowRelation": read_one_row,
    "ResolvedInlineTable": read_inline_table,
    "LogicalRDD": read_scan,
    "LogicalRelation": read_scan,
    "Filter": _filter,
    "Project": read_project,
    "Aggregate": read_aggregate,
    "Expand": _expand,
    "Union": _union,
    "Join": read_join,
    "Window": read_window,
    "Sort": read_sort,
    "GlobalLimit": read_limit,
    "LocalLimit": read_limit,
    "Offset": read_limit,
    "Generate": read_generate,
    "UnionLoop": read_loop,
    "UnionLoopRef": read_loop_reference,
}
