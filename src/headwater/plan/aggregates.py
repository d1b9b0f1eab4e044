"""Reading aggregate functions: one `AggregateCall` per Catalyst AggregateExpression.

The result of a call is a function of the multiset of its input rows, never of their order: functions for which that does not
hold are rewritten by `plan/canonical.py` or refused.
"""

from __future__ import annotations

from dataclasses import replace

from headwater.plan.canonical import canonical_call
from headwater.plan.catalyst_json import Node
from headwater.plan.expressions import AggregateCall, Expression
from headwater.plan.forms import escaped, fragment, placeholders
from headwater.plan.functions import CANONICAL, ORDER_DEPENDENT_SKETCHES
from headwater.plan.literals import string_sql
from headwater.plan.refusal import Code
from headwater.plan.scope import Reader, Scope
from headwater.plan.spelling import MODES, function_name


def aggregate_call(reader: Reader, node: Node, scope: Scope) -> AggregateCall | None:
    """Return the call, or None after recording why it is refused. `node` is the AggregateExpression."""
    function = node.children[0]
    filter_ = reader.read(node.children[1], scope) if len(node.children) > 1 else None
    args = tuple(reader.read(c.children[0] if c.kind == "SortOrder" else c, scope) for c in function.children)
    distinct = bool(node.fields["isDistinct"])
    if function.kind in ORDER_DEPENDENT_SKETCHES:
        name = ORDER_DEPENDENT_SKETCHES[function.kind]
        reader.findings.refuse(
            Code.ORDER_DEPENDENT, f"{name}()", "Its result depends on the order in which rows arrive."
        )
        return None
    is_canonical = function.kind in CANONICAL
    call = canonical_call(function, args, reader.findings) if is_canonical else _plain_call(reader, function, args)
    return None if call is None else replace(call, distinct=distinct, filter=filter_)


def _plain_call(reader: Reader, function: Node, args: tuple[Expression, ...]) -> AggregateCall | None:
    kind = function.kind
    name = function_name(kind, reader.session.names)
    if kind in MODES:
        form, try_form = MODES[kind]
        form = reader.moded(function, form, try_form)
        return AggregateCall(form.partition("(")[0], args, form)
    if kind == "PivotFirst" and (pivot := _pivot_call(function, args)) is not None:
        return pivot
    if kind in _ORDERED:
        return _ordered_call(kind, function, args)
    if name is None:
        detail = f"Spark's {kind} has no SQL text that reads back as the same aggregate."
        reader.findings.refuse(Code.FUNCTION_NOT_PRINTABLE, fragment(function), detail)
        return None
    if kind in ("Min", "Max") and "COLLATE" in str(function.fields.get("hw_arguments")):
        detail = "Strings that the collation calls equal differ; which one is returned depends on the order of rows."
        reader.findings.refuse(Code.ORDER_DEPENDENT, f"{name}()", detail)
        return None
    return AggregateCall(name, args, f"{name}({{distinct}}{placeholders(len(args))})")


_ORDERED = {"PercentileCont": "percentile_cont", "PercentileDisc": "percentile_disc"}


def _ordered_call(kind: str, function: Node, args: tuple[Expression, ...]) -> AggregateCall:
    name = _ORDERED[kind]
    direction = " DESC" if function.fields.get("reverse") else ""
    return AggregateCall(name, args, f"{name}({{1}}) WITHIN GROUP (ORDER BY {{0}}{direction})")


_PIVOT_TYPES = ("STRING", "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT")


def _pivot_call(function: Node, args: tuple[Expression, ...]) -> AggregateCall | None:
    """Return the array that PIVOT picks its columns from: per pivot value, the one value that the group has for it.

    Catalyst aggregates by group and pivot value first, so there is at most one, and the largest is that one.
    """
    pivot_type, values = function.fields["hw_arguments"][0], function.fields["pivotColumnValues"]
    if pivot_type not in _PIVOT_TYPES or not all(isinstance(v, (str, int)) for v in values):
        return None
    constants = [string_sql(v) if isinstance(v, str) else f"CAST({str(v).lower()} AS {pivot_type})" for v in values]
    items = ", ".join(f"max({{1}}) FILTER (WHERE {{0}} <=> {escaped(c)})" for c in constants)
    return AggregateCall("pivot_first", args, f"array({items}){{filter}}")
