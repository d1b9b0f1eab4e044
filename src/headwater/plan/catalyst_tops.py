"""Reading projections, ORDER BY and LIMIT.

The rows that LIMIT keeps are fixed by their order alone if that is total. So every order of a limit goes on with all other columns:
rows that are still equal are the same row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.plan.canonical import NO_ORDER
from headwater.plan.catalyst_json import Node
from headwater.plan.catalyst_reader import PASSED_THROUGH, PlanReader, Relation
from headwater.plan.expressions import Column, ColumnRef, SortKey
from headwater.plan.operators import Named, Operator, Project, Top
from headwater.plan.refusal import Code
from headwater.plan.unique import unique_keys

_LIMIT_NOTICE = (
    "LIMIT and OFFSET decide between rows that ORDER BY calls equal by all other columns, in ascending order:"
    " the choice is not reproducible otherwise."
)


def read_project(reader: PlanReader, node: Node) -> Relation | None:
    """A select list."""
    return project_over(reader, node, reader.read(node.children[0]))


def project_over(
    reader: PlanReader, node: Node, relation: Relation | None, carried: Sequence[Column] = ()
) -> Relation | None:
    """Return the select list of `node` over a relation; `carried` columns are passed on beside it."""
    roots = node.expressions("projectList")
    relation, scope = reader.over(relation, roots)
    items: list[Named] = []
    output: list[tuple[int, Column]] = []
    used: set[int] = set()
    known = {c.id: c for c in relation.op.output} if relation else {}
    for item, (type_, nullable) in zip(roots, node.fields["hw_output"], strict=True):
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
    items += [Named.same(known[c.id]) for c in carried if c.id not in used]
    return Relation(Project(relation.op, tuple(items)), tuple(output))


def read_sort(reader: PlanReader, node: Node) -> Relation | None:
    """ORDER BY without LIMIT: a stream table is a set of rows."""
    reader.findings.notice("ORDER BY is dropped: a stream table is a set of rows, give the order when you read it.")
    relation = reader.read(node.children[0])
    _, scope = reader.over(relation, node.expressions("order"))
    for order in node.expressions("order"):
        reader.expressions.read(order.children[0], scope)
    return relation


@dataclass(frozen=True, slots=True)
class _Cut:
    """LIMIT and OFFSET, and what stands between them and what they cut."""

    limit: int | None
    offset: int
    projections: tuple[Node, ...]
    input: Node


def read_limit(reader: PlanReader, node: Node) -> Relation | None:
    """LIMIT, OFFSET or both, with the ORDER BY below."""
    cut = _cut(reader, node)
    if cut is None:
        reader.find_more_reasons(node)
        return None
    if cut.input.kind == "Sort" and cut.input.fields.get("global", True):
        relation = _top(reader, cut.input, cut.limit, cut.offset)
    else:
        relation = _without_order(reader, cut)
    for projection in reversed(cut.projections):
        relation = project_over(reader, projection, relation)
    return relation


def _cut(reader: PlanReader, node: Node) -> _Cut | None:
    limit, offset = None, 0
    if node.kind in ("GlobalLimit", "LocalLimit"):
        limit = _constant(reader, node.expression("limitExpr"), "LIMIT")
        if limit is None:
            return None
        node = node.children[0].children[0] if node.children[0].kind == "LocalLimit" else node.children[0]
    if node.kind == "Offset":
        found = _constant(reader, node.expression("offsetExpr"), "OFFSET")
        if found is None:
            return None
        offset, node = found, node.children[0]
    projections = []
    below = node
    while below.kind in PASSED_THROUGH | {"Project"}:
        if below.kind == "Project":
            projections.append(below)
        below = below.children[0]
    if below.kind != "Sort":
        return _Cut(limit, offset, (), node)
    return _Cut(limit, offset, tuple(projections), below)


def _constant(reader: PlanReader, node: Node, word: str) -> int | None:
    if node.kind == "Literal" and node.fields.get("value") is not None:
        return int(node.fields["value"])
    reader.findings.refuse(Code.OPERATOR_NOT_SUPPORTED, word, "It is computed: only a constant can be maintained.")
    return None


def _without_order(reader: PlanReader, cut: _Cut) -> Relation | None:
    relation = reader.read(cut.input)
    if cut.limit != 0:
        word = "OFFSET" if cut.limit is None else "LIMIT"
        detail = "Which rows it keeps depends on the order in which they arrive."
        hint = "Add an ORDER BY, or set refresh_mode = 'FULL'."
        reader.findings.refuse(Code.ORDER_DEPENDENT, f"{word} without ORDER BY", detail, hint)
        return None
    return None if relation is None else Relation(Top(relation.op, (), 0), relation.output)


def _top(reader: PlanReader, sort: Node, limit: int | None, offset: int) -> Relation | None:
    orders = sort.expressions("order")
    input_ = reader.read(sort.children[0])
    relation, scope = reader.over(input_, orders)
    expressions = [reader.expressions.read(o.children[0], scope) for o in orders]
    if relation is None or input_ is None:
        return None
    computed, columns = reader.with_columns(relation, expressions, "order")
    keys = sort_keys([columns[e] for e in expressions], orders)
    types = [type_ for type_, _ in sort.children[0].fields["hw_output"]]
    ties, unsortable = tie_break(reader, relation, types, keys)
    if unsortable:
        detail = f"Rows may differ in {unsortable[0].name} alone, which cannot be sorted."
        reader.findings.refuse(Code.ORDER_DEPENDENT, "LIMIT", detail)
        return None
    if ties:
        reader.findings.notice(_LIMIT_NOTICE)
    op: Operator = Top(computed.op, (*keys, *ties), limit, offset)
    return Relation(reader.exactly(Relation(op, relation.output)), relation.output)


def sort_keys(columns: Sequence[Column], orders: Sequence[Node]) -> tuple[SortKey, ...]:
    """Return the order of Catalyst's SortOrder nodes by these columns; a column once."""
    keys: dict[int, SortKey] = {}
    for column, order in zip(columns, orders, strict=True):
        descending = "Descending" in str(order.fields["direction"])
        key = SortKey(column, descending, "NullsFirst" in str(order.fields["nullOrdering"]))
        keys.setdefault(column.id, key)
    return tuple(keys.values())


def tie_break(
    reader: PlanReader, relation: Relation, types: Sequence[str], keys: Sequence[SortKey]
) -> tuple[tuple[SortKey, ...], tuple[Column, ...]]:
    """Return the columns that make an order total, and the columns that cannot be sorted. `types` are those of the output.

    An order by columns that no two rows share is total already.
    """
    taken = {k.column.id for k in keys}
    if any(unique <= taken for unique in unique_keys(relation.op, reader.expressions.session.key_of)):
        return (), ()
    ties: dict[int, SortKey] = {}
    unsortable: list[Column] = []
    for (_, column), type_ in zip(relation.output, types, strict=True):
        if NO_ORDER.search(type_):
            unsortable.append(column)
        elif column.id not in taken:
            ties.setdefault(column.id, SortKey(column))
    return tuple(ties.values()), tuple(unsortable)
