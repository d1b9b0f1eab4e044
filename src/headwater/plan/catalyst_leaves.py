"""Reading where rows come from: tables, constants, and the rows that a recursion has found so far."""

from __future__ import annotations

from headwater.plan.catalyst_json import Node, nested
from headwater.plan.catalyst_reader import PlanReader, Relation
from headwater.plan.expressions import Expression, Literal
from headwater.plan.literals import literal_sql
from headwater.plan.operators import Recursion, Scan, Stage, Values
from headwater.plan.refusal import Code


def read_scan(reader: PlanReader, node: Node) -> Relation | None:
    """A table of the warehouse."""
    scan = node.fields.get("hw_scan")
    if scan is None:
        reader.refuse(node)
        return None
    output = tuple((eid, reader.new(name, type_, nullable)) for eid, name, type_, nullable in scan["columns"])
    columns = tuple(c for _, c in output)
    return Relation(Scan(scan["table"], columns, tuple(c.name for c in columns)), output)


def read_values(reader: PlanReader, node: Node) -> Relation | None:
    """VALUES: constant rows."""
    if "hw_scan" in node.fields:
        return read_scan(reader, node)
    output = reader.new_output(node.expressions("output"), node.fields["hw_output"])
    if "hw_rows" not in node.fields:
        reader.findings.refuse(Code.OPERATOR_NOT_SUPPORTED, "VALUES", "It has too many rows.")
        return None
    ddl = [type_ for type_, _ in node.fields["hw_output"]]
    try:
        rows = tuple(
            tuple(_constant(t, v, d) for t, v, d in zip(node.fields["hw_types"], row, ddl, strict=True))
            for row in node.fields["hw_rows"]
        )
    except ValueError as error:
        reader.findings.refuse(Code.FUNCTION_NOT_PRINTABLE, "VALUES", f"{str(error).capitalize()}.")
        return None
    return Relation(Values(rows, tuple(c for _, c in output)), output)


def _constant(json_type: object, value: object, ddl: str) -> Expression:
    text = literal_sql(json_type, value)
    return Literal(f"CAST({text} AS {ddl})" if "COLLATE" in ddl else text)


def read_one_row(reader: PlanReader, node: Node) -> Relation | None:
    """SELECT without FROM: one row without columns."""
    return Relation(Values(((),), ()), ())


def read_inline_table(reader: PlanReader, node: Node) -> Relation | None:
    """VALUES that Spark computes anew at each run: what it is that changes between runs is the reason."""
    roots = [nested(flat) for row in node.fields["rows"] for flat in row]
    _, scope = reader.over(read_one_row(reader, node), roots)
    known = len(reader.findings.refusals)
    for root in roots:
        reader.expressions.read(root, scope)
    if len(reader.findings.refusals) == known:
        reader.refuse(node)
    return None


def read_loop(reader: PlanReader, node: Node) -> Relation | None:
    """WITH RECURSIVE. Rows are found in rounds; `UnionLoopRef` in the second branch stands for those of the round before."""
    if node.fields.get("limit") is not None or node.fields.get("maxDepth") is not None:
        reader.findings.refuse(Code.ORDER_DEPENDENT, "WITH RECURSIVE", "It stops before all rows are found.")
    name = f"loop{next(reader.loop_numbers)}"
    anchor = reader.read(node.children[0])
    reader.loops[node.fields["id"]] = name
    step = reader.read(node.children[1])
    if anchor is None or step is None:
        return None
    described = zip(node.fields["outputAttrIds"], anchor.output, node.fields["hw_output"], strict=True)
    output = tuple((e["id"], reader.new(column.name, type_)) for e, (_, column), (type_, _) in described)
    columns = tuple(c for _, c in output)
    return Relation(Recursion(reader.exactly(anchor), reader.exactly(step), name, columns), output)


def read_loop_reference(reader: PlanReader, node: Node) -> Relation | None:
    """The rows of the round before."""
    if node.fields.get("accumulated"):
        reader.findings.refuse(Code.OPERATOR_NOT_SUPPORTED, "WITH RECURSIVE", "Each round reads all rows found so far.")
        return None
    described = [(type_, True) for type_, _ in node.fields["hw_output"]]
    output = reader.new_output(node.expressions("output"), described)
    return Relation(Stage(reader.loops[node.fields["loopId"]], tuple(c for _, c in output)), output)
