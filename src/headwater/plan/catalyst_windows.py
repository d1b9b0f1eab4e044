"""Reading window functions.

A stream table needs the same answer whatever the order in which rows arrive. Functions differ in what they see of it:

    none    the rows of the partition as a multiset: they need no order at all
    peers   rows up to those that ORDER BY calls equal: more columns in the order would change the result
    rows    single rows: the order goes on with all columns of the input, so that rows still equal are the same row

One node of Catalyst becomes up to three operators, one for each kind, each above the other. Columns of the partition are the same in
all its rows, so they need no place in an order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from headwater.plan.catalyst_json import Node
from headwater.plan.catalyst_reader import PASSED_THROUGH, PlanReader, Relation
from headwater.plan.catalyst_tops import project_over, sort_keys, tie_break
from headwater.plan.expressions import Column, SortKey
from headwater.plan.operators import NamedWindow, Operator, Window, WindowCall
from headwater.plan.refusal import Code
from headwater.plan.scope import Scope
from headwater.plan.window_calls import read_window_call

_NOTICE = (
    "window functions take all columns of their input as tie-break: among rows that ORDER BY calls equal the choice is not"
    " reproducible otherwise."
)
_WHOLE = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
_UNBOUNDED = ("UnboundedPreceding", "UnboundedFollowing")


class Sees(Enum):
    """What a function sees of the order of rows."""

    NONE = "none"
    PEERS = "peers"
    ROWS = "rows"


@dataclass(frozen=True, slots=True)
class _Item:
    """A window function, and what it sees. `is_sensitive`: it could tell peers apart."""

    column: Column
    call: WindowCall
    sees: Sees
    is_sensitive: bool


def read_window(reader: PlanReader, node: Node) -> Relation | None:
    """Window functions that share a partition and an order."""
    items, partition, orders = (node.expressions(f) for f in ("windowExpressions", "partitionSpec", "orderSpec"))
    input_, order = _ordered_input(reader, node) if _is_limit(items, orders) else (reader.read(node.children[0]), ())
    relation, scope = reader.over(input_, [*items, *partition, *orders])
    keys = [reader.expressions.read(p, scope) for p in partition]
    ordering = [reader.expressions.read(o.children[0], scope) for o in orders]
    described = node.fields["hw_output"][len(node.fields["hw_output"]) - len(items) :]
    read = [_item(reader, i, scope, t, n) for i, (t, n) in zip(items, described, strict=True)]
    if relation is None or reader.findings.refusals:
        return None
    calls = [i for i in read if i is not None]
    computed, columns = reader.with_columns(relation, [*keys, *ordering], "key")
    order = order or sort_keys([columns[e] for e in ordering], orders)
    types = [type_ for type_, _ in node.children[0].fields["hw_output"]]
    parts = tuple({columns[k].id: columns[k] for k in keys}.values())
    ties, unsortable = tie_break(reader, relation, types, [*order, *(SortKey(c) for c in parts)])
    _refuse_unreproducible(reader, calls, ties, unsortable)
    if ties and any(i.sees is Sees.ROWS for i in calls):
        reader.findings.notice(_NOTICE)
    own_order = {Sees.NONE: (), Sees.PEERS: order, Sees.ROWS: (*order, *ties)}
    op: Operator = computed.op
    for sees, own in own_order.items():
        group = tuple(NamedWindow(i.column, i.call) for i in calls if i.sees is sees)
        if group:
            op = Window(op, parts, own, group, tells_rows_apart=sees is Sees.ROWS)
    output = tuple((i.expression_id, c.column) for i, c in zip(items, calls, strict=True))
    return Relation(op, (*relation.output, *output))


def _item(reader: PlanReader, node: Node, scope: Scope, type_: str, nullable: bool) -> _Item | None:
    function, specification = node.children[0].children
    frame = specification.children[-1]
    column = reader.new(node.fields["name"], type_, nullable)
    read = read_window_call(reader.expressions, function, scope)
    if read is None:
        return None
    if not read.takes_frame:
        return _Item(column, read.call(""), Sees.PEERS if read.sees_peers else Sees.ROWS, False)
    if tuple(b.kind for b in frame.children) == _UNBOUNDED:
        return _Item(column, read.call(_WHOLE), Sees.ROWS if read.is_sensitive else Sees.NONE, False)
    by_rows = "RowFrame" in str(frame.fields["frameType"])
    bounds = [_bound(reader, b, scope) for b in frame.children]
    text = f"{'ROWS' if by_rows else 'RANGE'} BETWEEN {bounds[0]} AND {bounds[1]}"
    return _Item(column, read.call(text), Sees.ROWS if by_rows else Sees.PEERS, read.is_sensitive)


_BOUNDS = {
    "UnboundedPreceding": "UNBOUNDED PRECEDING",
    "UnboundedFollowing": "UNBOUNDED FOLLOWING",
    "CurrentRow": "CURRENT ROW",
}


def _bound(reader: PlanReader, node: Node, scope: Scope) -> str:
    """Return one end of a frame. PRECEDING negates its operand, FOLLOWING takes it as it is, whatever its sign."""
    if node.kind in _BOUNDS:
        return _BOUNDS[node.kind]
    if node.kind == "UnaryMinus":
        return f"{reader.expressions.read(node.children[0], scope).sql} PRECEDING"
    return f"{reader.expressions.read(node, scope).sql} FOLLOWING"


def _refuse_unreproducible(
    reader: PlanReader, items: Sequence[_Item], ties: Sequence[SortKey], unsortable: Sequence[Column]
) -> None:
    for item in items:
        name = f"{item.call.name}() OVER (...)"
        if item.sees is Sees.ROWS and unsortable:
            detail = f"It depends on the order of rows, and rows may differ in {unsortable[0].name} alone, which cannot be sorted."
            reader.findings.refuse(Code.ORDER_DEPENDENT, name, detail)
        elif item.sees is Sees.PEERS and item.is_sensitive and (ties or unsortable):
            detail = "Its result depends on the order among rows that ORDER BY calls equal."
            hint = "Order by columns that tell all rows apart, or give a ROWS frame, or set refresh_mode = 'FULL'."
            reader.findings.refuse(Code.ORDER_DEPENDENT, name, detail, hint)


def _is_limit(items: Sequence[Node], orders: Sequence[Node]) -> bool:
    """Say whether this is what Catalyst makes of LIMIT in a correlated subquery: SQL knows no row_number() without order."""
    return not orders and any(i.children[0].children[0].kind == "RowNumber" for i in items)


def _ordered_input(reader: PlanReader, node: Node) -> tuple[Relation | None, tuple[SortKey, ...]]:
    """Return the input of a LIMIT in a correlated subquery, and the order that stands below it."""
    projections, below = [], node.children[0]
    while below.kind in PASSED_THROUGH | {"Project"}:
        if below.kind == "Project":
            projections.append(below)
        below = below.children[0]
    if below.kind != "Sort":
        detail = "Which rows it keeps depends on the order in which they arrive."
        hint = "Add an ORDER BY, or set refresh_mode = 'FULL'."
        reader.findings.refuse(Code.ORDER_DEPENDENT, "LIMIT without ORDER BY", detail, hint)
        return reader.read(node.children[0]), ()
    orders = below.expressions("order")
    relation, scope = reader.over(reader.read(below.children[0]), orders)
    expressions = [reader.expressions.read(o.children[0], scope) for o in orders]
    if relation is None:
        return None, ()
    sorted_, columns = reader.with_columns(relation, expressions, "order")
    order = sort_keys([columns[e] for e in expressions], orders)
    current: Relation | None = sorted_
    for projection in reversed(projections):
        current = project_over(reader, projection, current, [k.column for k in order])
    return current, order
