"""Reading one window function: how it is called, and whether it can tell apart rows that the order calls equal.

Functions keep Spark's own form here, also those that `plan/canonical.py` rewrites in a GROUP BY: the order of a window is total
wherever that matters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from headwater.plan.aggregates import aggregate_call
from headwater.plan.canonical import has_delimiter, ordered_listagg
from headwater.plan.catalyst_json import Node
from headwater.plan.expressions import AggregateCall, Expression
from headwater.plan.forms import fragment, placeholders
from headwater.plan.functions import CANONICAL
from headwater.plan.operators import WindowCall
from headwater.plan.refusal import Code
from headwater.plan.scope import Reader, Scope

_RANKS = {"Rank": "rank", "DenseRank": "dense_rank", "PercentRank": "percent_rank", "CumeDist": "cume_dist"}
"""They count peers. Their children are the order, not arguments."""

_PLACES = {"RowNumber": "row_number", "NTile": "ntile", "Lag": "lag", "Lead": "lead"}
"""They see single rows and take no frame."""

_OWN_FORMS = {
    "First": "first_value",
    "Last": "last_value",
    "AnyValue": "any_value",
    "CollectList": "collect_list",
    "CollectSet": "collect_set",
}
_CANONICAL_TOO = frozenset({"Mode", "MaxBy", "MinBy", "MaxMinByK"})
"""Their canonical form is a plain call, so it can stand before OVER."""

_EXACT = frozenset(
    {
        "min",
        "max",
        "count",
        "count_if",
        "bool_and",
        "bool_or",
        "mode",
        "percentile",
        "percentile_cont",
        "percentile_disc",
    }
) | {"approx_count_distinct", "median"}
"""Their result over floating point numbers does not depend on the order of rows."""

_FLOATING = re.compile(r"FLOAT|DOUBLE")


@dataclass(frozen=True, slots=True)
class ReadCall:
    """A window function without its frame.

    `is_sensitive`: its result depends on the order of the rows in the frame, not only on which they are.
    """

    name: str
    args: tuple[Expression, ...]
    form: str
    takes_frame: bool = True
    sees_peers: bool = False
    is_sensitive: bool = True

    def call(self, frame: str) -> WindowCall:
        return WindowCall(self.name, self.args, self.form, frame)


def read_window_call(reader: Reader, node: Node, scope: Scope) -> ReadCall | None:
    """Return the function `node` of a window expression, or None after recording why it is refused."""
    if node.kind in _RANKS:
        name = _RANKS[node.kind]
        return ReadCall(name, (), f"{name}()", takes_frame=False, sees_peers=True)
    if node.kind in _PLACES:
        name = _PLACES[node.kind]
        args = reader.children(node, scope)
        return ReadCall(name, args, f"{name}({placeholders(len(args))}){_nulls(node)}", takes_frame=False)
    if node.kind == "NthValue":
        return ReadCall("nth_value", reader.children(node, scope), f"nth_value({{0}}, {{1}}){_nulls(node)}")
    if node.kind != "AggregateExpression":
        reader.unprintable(node)
        return None
    function = node.children[0]
    if function.kind in _OWN_FORMS:
        return _own_form(reader, node, scope)
    if function.kind == "ListAgg":
        return _listagg(reader, node, scope)
    if function.kind in CANONICAL and function.kind not in _CANONICAL_TOO:
        detail = "It has no form that gives the same answer whatever the order in which rows arrive."
        reader.findings.refuse(Code.ORDER_DEPENDENT, fragment(function), detail)
        return None
    call = aggregate_call(reader, node, scope)
    if call is None:
        return None
    types = " ".join(function.fields.get("hw_arguments") or ())
    # Spark adds up the BIGINTs of an average as DOUBLE; sums of shorter integers stay exact in it.
    is_floating = _FLOATING.search(types) or (call.name in ("avg", "mean") and "BIGINT" in types)
    return _of_aggregate(
        call, is_sensitive=bool(is_floating) and call.name not in _EXACT and function.kind not in CANONICAL
    )


def _nulls(node: Node) -> str:
    return " IGNORE NULLS" if node.fields.get("ignoreNulls") else ""


def _own_form(reader: Reader, node: Node, scope: Scope) -> ReadCall:
    function = node.children[0]
    name = _OWN_FORMS[function.kind]
    filter_ = reader.read(node.children[1], scope) if len(node.children) > 1 else None
    args = (reader.read(function.children[0], scope),)
    nulls = _nulls(function)
    if name.startswith("collect"):
        nulls = "" if function.fields.get("ignoreNulls", True) else " RESPECT NULLS"
    call = AggregateCall(name, args, f"{name}({{0}}){{filter}}{nulls}", filter=filter_)
    return _of_aggregate(call, is_sensitive=True)


def _listagg(reader: Reader, node: Node, scope: Scope) -> ReadCall:
    function = node.children[0]
    filter_ = reader.read(node.children[1], scope) if len(node.children) > 1 else None
    args = tuple(reader.read(c.children[0] if c.kind == "SortOrder" else c, scope) for c in function.children)
    if len(function.children) > 2:
        return _of_aggregate(replace(ordered_listagg(function, args), filter=filter_), is_sensitive=False)
    separator = ", {1}" if has_delimiter(function) else ""
    return _of_aggregate(
        AggregateCall("listagg", args, f"listagg({{0}}{separator})", filter=filter_), is_sensitive=True
    )


def _of_aggregate(call: AggregateCall, *, is_sensitive: bool) -> ReadCall:
    form = call.form if "{filter}" in call.form else call.form + "{filter}"
    clause = "" if call.filter is None else f" FILTER (WHERE {{{len(call.args)}}})"
    return ReadCall(
        call.name,
        call.expressions,
        form.replace("{distinct}", "").replace("{filter}", clause),
        is_sensitive=is_sensitive,
    )
