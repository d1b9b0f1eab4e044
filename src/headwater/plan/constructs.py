"""Reading what SQL writes with syntax of its own: columns, constants, casts, CASE, IN, LIKE, lambdas, field access."""

from __future__ import annotations

from dataclasses import replace

from headwater.model.types import cast_ddl
from headwater.plan.catalyst_json import Node
from headwater.plan.expressions import Call, ColumnRef, Expression, Lambda, Literal, Variable, quoted
from headwater.plan.forms import UNKNOWN, escaped, placeholders
from headwater.plan.literals import literal_sql, string_sql
from headwater.plan.scope import ReadClass, Reader, Scope


def _column(reader: Reader, node: Node, scope: Scope) -> Expression:
    if scope.columns is None:
        return UNKNOWN
    return ColumnRef(scope.columns[node.expression_id])


def _literal(reader: Reader, node: Node, scope: Scope) -> Expression:
    try:
        return Literal(literal_sql(node.fields["dataType"], node.fields.get("hw_value", node.fields.get("value"))))
    except ValueError:
        return reader.unprintable(node)


def _cast(reader: Reader, node: Node, scope: Scope) -> Expression:
    child = reader.read(node.children[0], scope)
    target = escaped(node.fields.get("hw_type") or cast_ddl(node.fields["dataType"]))
    form = reader.moded(node, f"CAST({{0}} AS {target})", f"TRY_CAST({{0}} AS {target})")
    return Call("cast", (child,), form)


def _case_when(reader: Reader, node: Node, scope: Scope) -> Expression:
    args = reader.children(node, scope)
    text = " ".join(f"WHEN {{{2 * i}}} THEN {{{2 * i + 1}}}" for i in range(len(args) // 2))
    otherwise = f" ELSE {{{len(args) - 1}}}" if len(args) % 2 else ""
    return Call("case", args, f"CASE {text}{otherwise} END")


def _in(reader: Reader, node: Node, scope: Scope) -> Expression:
    args = reader.children(node, scope)
    listed = ", ".join(f"{{{i}}}" for i in range(1, len(args)))
    return Call("in", args, f"({{0}} IN ({listed}))")


def _like(reader: Reader, node: Node, scope: Scope) -> Expression:
    word = "ILIKE" if node.kind == "ILike" else "LIKE"
    escape = node.fields.get("escapeChar") or "\\"
    clause = "" if escape == "\\" else f" ESCAPE {escaped(string_sql(escape))}"
    return Call(word.lower(), reader.children(node, scope), f"({{0}} {word} {{1}}{clause})")


_QUANTIFIED = {"LikeAll": "LIKE ALL", "LikeAny": "LIKE ANY", "NotLikeAll": "NOT LIKE ALL", "NotLikeAny": "NOT LIKE ANY"}


def _quantified_like(reader: Reader, node: Node, scope: Scope) -> Expression:
    """LIKE ALL and LIKE ANY over many constant patterns: the patterns are a field, not children."""
    patterns = node.fields.get("patterns")
    if not isinstance(patterns, list):
        return reader.unprintable(node)
    listed = ", ".join("NULL" if p is None else string_sql(p) for p in patterns)
    return Call("like", reader.children(node, scope), f"({{0}} {_QUANTIFIED[node.kind]} ({escaped(listed)}))")


def _struct_field(reader: Reader, node: Node, scope: Scope) -> Expression:
    child = reader.read(node.children[0], scope)
    name = node.fields.get("name")
    if name is None:
        return reader.unprintable(node)
    return Call("field", (child,), f"{{0}}.{escaped(quoted(name))}")


def _array_struct_fields(reader: Reader, node: Node, scope: Scope) -> Expression:
    child = reader.read(node.children[0], scope)
    return Call("field", (child,), f"{{0}}.{escaped(quoted(node.fields['field']['name']))}")


def _lambda(reader: Reader, node: Node, scope: Scope) -> Expression:
    """Parameters are named by nesting depth, so that equal lambdas are equal expressions."""
    body, *parameters = node.children
    depth = len(scope.variables)
    names = tuple(f"x{depth + i + 1}" for i in range(len(parameters)))
    known = dict(scope.variables) | {p.expression_id: n for p, n in zip(parameters, names, strict=True)}
    inner = reader.read(body, replace(scope, variables=known))
    return Lambda(names, inner) if names else inner


def _variable(reader: Reader, node: Node, scope: Scope) -> Expression:
    return Variable(scope.variables[node.expression_id])


def _with(reader: Reader, node: Node, scope: Scope) -> Expression:
    """Common expressions are written out at each use: everything that is read at all is deterministic."""
    body, *definitions = node.children
    common = dict(scope.common)
    for definition in definitions:
        common[definition.fields["id"]] = reader.read(definition.children[0], scope)
    return reader.read(body, replace(scope, common=common))


def _common(reader: Reader, node: Node, scope: Scope) -> Expression:
    return scope.common.get(node.fields["id"], UNKNOWN)


def _between(reader: Reader, node: Node, scope: Scope) -> Expression:
    """Written as BETWEEN, so that the operand stands in the text once."""
    body = node.children[0]
    if body.kind != "With" or body.children[0].kind != "And":
        return reader.read(body, scope)
    low, high = body.children[0].children
    if low.children[0].kind != "CommonExpressionRef" or high.children[0].kind != "CommonExpressionRef":
        return reader.read(body, scope)
    operand = body.children[1].children[0]
    args = tuple(reader.read(n, scope) for n in (operand, low.children[1], high.children[1]))
    return Call("between", args, "({0} BETWEEN {1} AND {2})")


def _null_if_result(reader: Reader, node: Node, scope: Scope) -> Expression:
    return Call("nullif", reader.children(node, scope), "CASE WHEN {0} THEN NULL ELSE {1} END")


def _aggregate(reader: Reader, node: Node, scope: Scope) -> Expression:
    if scope.aggregate is None:
        return reader.unprintable(node)
    return scope.aggregate(node, scope)


def _concat_operator(reader: Reader, node: Node, scope: Scope) -> Expression:
    args = reader.children(node, scope)
    return Call("concat", args, f"concat({placeholders(len(args))})")


CONSTRUCTS: dict[str, ReadClass] = {
    "AttributeReference": _column,
    "Literal": _literal,
    "Cast": _cast,
    "CaseWhen": _case_when,
    "In": _in,
    "Like": _like,
    "ILike": _like,
    "LikeAll": _quantified_like,
    "LikeAny": _quantified_like,
    "NotLikeAll": _quantified_like,
    "NotLikeAny": _quantified_like,
    "GetStructField": _struct_field,
    "GetArrayStructFields": _array_struct_fields,
    "LambdaFunction": _lambda,
    "NamedLambdaVariable": _variable,
    "With": _with,
    "CommonExpressionRef": _common,
    "Between": _between,
    "NullIfResult": _null_if_result,
    "AggregateExpression": _aggregate,
    "Concat": _concat_operator,
}
"""How each of these classes is read."""
