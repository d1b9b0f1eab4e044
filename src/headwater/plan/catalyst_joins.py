"""Reading joins, and what Catalyst makes joins of: IN, EXISTS, INTERSECT, EXCEPT, correlated and LATERAL subqueries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from headwater.plan.catalyst_json import Node, nested
from headwater.plan.catalyst_reader import PlanReader, Relation
from headwater.plan.expressions import Column
from headwater.plan.operators import Join, JoinKind

_KINDS = {
    "Inner": JoinKind.INNER,
    "Cross": JoinKind.INNER,
    "LeftOuter": JoinKind.LEFT,
    "RightOuter": JoinKind.LEFT,
    "FullOuter": JoinKind.FULL,
    "LeftSemi": JoinKind.SEMI,
    "LeftAnti": JoinKind.ANTI,
    "LeftSingle": JoinKind.SINGLE,
    "ExistenceJoin": JoinKind.EXISTENCE,
}


def read_join(reader: PlanReader, node: Node) -> Relation | None:
    """A join of two relations; a right join is a left join with its sides changed."""
    join_type = node.fields["joinType"]
    word = str(join_type.get("object") or join_type.get("product-class")).rpartition(".")[2].removesuffix("$")
    kind = _KINDS.get(word)
    if kind is None:
        reader.refuse(node)
        return None
    roots = list(_conjuncts(node.expression("condition"))) if node.fields.get("condition") else []
    first, second = reader.read(node.children[0]), reader.read(node.children[1])
    left, right = (second, first) if word == "RightOuter" else (first, second)
    left, scope = reader.over(left, roots)
    known = None if left is None or right is None else {**left.columns, **right.columns}
    conditions = tuple(reader.expressions.read(r, replace(scope, columns=known)) for r in roots)
    if left is None or right is None:
        return None
    if kind is JoinKind.EXISTENCE:
        attribute = nested(join_type["exists"])
        exists = reader.new(attribute.fields["name"], "BOOLEAN", nullable=False)
        op = Join(left.op, right.op, kind, conditions, exists)
        return Relation(op, (*left.output, (attribute.expression_id, exists)))
    op = Join(left.op, right.op, kind, conditions)
    if kind in (JoinKind.SEMI, JoinKind.ANTI):
        return Relation(op, left.output)
    left_output = _nullable(left.output) if kind is JoinKind.FULL else left.output
    right_output = right.output if kind is JoinKind.INNER else _nullable(right.output)
    sides = (right_output, left_output) if word == "RightOuter" else (left_output, right_output)
    return Relation(op, (*sides[0], *sides[1]))


def _nullable(output: Sequence[tuple[int, Column]]) -> tuple[tuple[int, Column], ...]:
    return tuple((e, replace(c, nullable=True)) for e, c in output)


def _conjuncts(node: Node) -> Iterator[Node]:
    if node.kind == "And":
        for child in node.children:
            yield from _conjuncts(child)
    else:
        yield node
