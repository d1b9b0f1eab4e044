"""Reading generators: functions that make several rows of one, in the select list or as LATERAL VIEW."""

from __future__ import annotations

from headwater.plan.catalyst_json import Node
from headwater.plan.catalyst_reader import PlanReader, Relation
from headwater.plan.expressions import Call, Column, Expression
from headwater.plan.operators import Generate, Named, Project
from headwater.plan.refusal import Code

_GENERATORS = frozenset({"Explode", "PosExplode", "Inline", "Stack", "JsonTuple"})


def read_generate(reader: PlanReader, node: Node) -> Relation | None:
    """Each row of the input with each row that the generator makes of it."""
    generator = node.expression("generator")
    relation, scope = reader.over(reader.read(node.children[0]), [generator])
    attributes = node.expressions("generatorOutput")
    if generator.kind == "ReplicateRows":
        return _replicated(reader, relation, reader.expressions.children(generator, scope), attributes)
    if generator.kind not in _GENERATORS:
        detail = f"Spark's {generator.kind} cannot be written as a LATERAL VIEW."
        reader.findings.refuse(Code.FUNCTION_NOT_PRINTABLE, str(generator.fields.get("name") or generator.kind), detail)
        reader.expressions.children(generator, scope)
        return None
    call = reader.expressions.function(generator, reader.expressions.children(generator, scope))
    made = reader.new_output(attributes, node.fields["hw_output"][len(node.fields["hw_output"]) - len(attributes) :])
    if relation is None:
        return None
    left_out = set(node.fields["unrequiredChildIndex"])
    kept = tuple(c for i, c in enumerate(relation.output) if i not in left_out)
    op = Generate(relation.op, call, tuple(c for _, c in made), bool(node.fields["outer"]))
    return Relation(op, (*kept, *made))


def _replicated(
    reader: PlanReader, relation: Relation | None, args: tuple[Expression, ...], attributes: tuple[Node, ...]
) -> Relation | None:
    """EXCEPT ALL and INTERSECT ALL: each row as often as its first argument says."""
    if relation is None:
        return None
    copies = Call("explode", args[:1], "explode(array_repeat(0, CAST({0} AS INT)))")
    op = Generate(relation.op, copies, (reader.new("copy", "INT", nullable=False),))
    known = {c.id: c for c in relation.op.output}
    columns: list[Column] = []
    items: list[Named] = []
    for attribute, expression in zip(attributes, args[1:], strict=True):
        passed = known.get(getattr(expression, "id", 0))
        column = passed if passed is not None and passed not in columns else reader.new(attribute.fields["name"], "")
        columns.append(column)
        items.append(Named(column, expression))
    output = tuple((a.expression_id, c) for a, c in zip(attributes, columns, strict=True))
    return Relation(Project(op, tuple(items)), output)
