"""Canonical forms of aggregates whose result depends on the order in which rows arrive.

SQL leaves them free to return one of several valid answers; Spark returns the one that its scheduling happens to produce. A
stream table needs the same answer from a refresh, from a full recomputation and from `verify`. Each form below returns one of
the valid answers of the original, in the same type, as a function of the multiset of rows alone. It becomes part of the stored
query, so that everything that evaluates the query evaluates this form.

    collect_list, collect_set     sorted
    first, any_value              the smallest value; last: the largest. Several of them in one query take theirs from one row
    listagg                       ordered by its value, after the order the query gives
    mode                          the smallest of the most frequent values
    max_by, min_by                among equal orderings the largest (smallest) value
    approx_percentile             the exact element of that rank

Sorting needs an order: values of types without one, and strings with a collation (equal strings that are not the same), are
refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from headwater.plan.catalyst_json import Node
from headwater.plan.expressions import AggregateCall, Expression
from headwater.plan.refusal import Code, Findings

NO_ORDER = re.compile(r"MAP<|VARIANT|COLLATE|GEOMETRY|GEOGRAPHY|INTERVAL(?! (YEAR|MONTH|DAY|HOUR|MINUTE|SECOND))")
"""Finds types whose values have no order that tells all of them apart."""


def canonical_call(function: Node, args: tuple[Expression, ...], findings: Findings) -> AggregateCall | None:
    """Return a call that returns one of the valid answers of `function`, always the same; None after a refusal."""
    fields = function.fields
    types: list[str] = fields.get("hw_arguments") or []
    if NO_ORDER.search(" ".join(types[:2])):
        name = _NAMES[function.kind]
        findings.refuse(
            Code.ORDER_DEPENDENT,
            f"{name}()",
            f"Its result depends on the order of rows, and {types[0]} cannot be sorted.",
        )
        return None
    match function.kind:
        case "CollectList" | "CollectSet":
            return _collect(function, args, findings)
        case "First" | "Last" | "AnyValue":
            return _pick(function, args, findings)
        case "ListAgg":
            return _listagg(function, args, findings)
        case "Mode":
            return _mode(function, args, findings)
        case "MaxBy" | "MinBy" | "MaxMinByK":
            return _extreme_by(function, args, findings)
        case _:
            return _percentile(function, args, types, findings)


_NAMES = {
    "CollectList": "collect_list",
    "CollectSet": "collect_set",
    "First": "first",
    "Last": "last",
    "AnyValue": "any_value",
    "ListAgg": "listagg",
    "Mode": "mode",
    "MaxBy": "max_by",
    "MinBy": "min_by",
    "MaxMinByK": "max_by",
    "ApproximatePercentile": "approx_percentile",
}


def _collect(function: Node, args: tuple[Expression, ...], findings: Findings) -> AggregateCall:
    name = _NAMES[function.kind]
    nulls = "" if function.fields.get("ignoreNulls", True) else " RESPECT NULLS"
    findings.notice(
        f"{name}() returns its elements in ascending order: the order in which rows arrive is not reproducible."
    )
    return AggregateCall(name, args, f"sort_array({name}({{distinct}}{{0}}){nulls}{{filter}})")


def _pick(function: Node, args: tuple[Expression, ...], findings: Findings) -> AggregateCall:
    name = _NAMES[function.kind]
    extreme = "max" if name == "last" else "min"
    size = "largest" if name == "last" else "smallest"
    findings.notice(
        f"{name}() returns the {size} value of the group: which row comes first or last is not reproducible."
    )
    suffix = "_ignore_nulls" if _ignores_nulls(function) else ""
    return AggregateCall(name + suffix, args[:1], f"{extreme}({{distinct}}{{0}})")


def _ignores_nulls(function: Node) -> bool:
    return bool(function.fields.get("ignoreNulls"))


def from_one_row(calls: Sequence[AggregateCall]) -> tuple[AggregateCall, ...]:
    """Return `calls` with all first() (last(), any_value()) of one filter taken from the same row, as users of several expect.

    The row is the smallest (largest) as a struct of all their arguments. A single one stays as it is.
    """
    return tuple(_with_row_mates(c, calls) for c in calls)


def _with_row_mates(call: AggregateCall, calls: Sequence[AggregateCall]) -> AggregateCall:
    if call.name not in ("first", "last", "any_value") or call.distinct:
        return call
    mates = [c for c in calls if c.name == call.name and c.filter == call.filter and not c.distinct]
    if len(mates) == 1:
        return call
    extreme = "max" if call.name == "last" else "min"
    fields = ", ".join(f"'f{i}', {{{i}}}" for i in range(len(mates)))
    position = mates.index(call)
    args = tuple(m.args[0] for m in mates)
    return replace(call, args=args, form=f"{extreme}(named_struct({fields})){{filter}}.f{position}")


def _listagg(function: Node, args: tuple[Expression, ...], findings: Findings) -> AggregateCall:
    orders = function.children[2:]
    if not orders:
        findings.notice(
            "listagg() without an order joins its values in ascending order: the order of rows is not reproducible."
        )
    if function.fields["hw_arguments"][0] == "STRING" and args[2:] in ((), args[:1]):
        # Beside two DISTINCT calls Spark cannot plan WITHIN GROUP (a ClassCastException of its own).
        values = "array_sort(collect_list({distinct}{0}){filter})"
        values = f"reverse({values})" if orders and "Descending" in str(orders[0].fields.get("direction")) else values
        joined = f"array_join({values}, {'{1}' if has_delimiter(function) else repr('')})"
        return AggregateCall("listagg", args[:2], f"CASE WHEN count({{0}}){{filter}} > 0 THEN {joined} END")
    return ordered_listagg(function, args)


def ordered_listagg(function: Node, args: tuple[Expression, ...]) -> AggregateCall:
    """Return a listagg() that orders its values by what the query says, and then by themselves."""
    terms = []
    for index, order in enumerate(function.children[2:], start=2):
        direction = "DESC" if "Descending" in str(order.fields.get("direction")) else "ASC"
        nulls = "LAST" if "NullsLast" in str(order.fields.get("nullOrdering")) else "FIRST"
        terms.append(f"{{{index}}} {direction} NULLS {nulls}")
    if args[0] not in args[2:]:
        terms.append("{0}")
    separator = ", {1}" if has_delimiter(function) else ""
    return AggregateCall(
        "listagg", args, f"listagg({{distinct}}{{0}}{separator}) WITHIN GROUP (ORDER BY {', '.join(terms)})"
    )


def has_delimiter(function: Node) -> bool:
    """Say whether a listagg() puts anything between its values."""
    delimiter = function.children[1]
    return not (delimiter.kind == "Literal" and delimiter.fields.get("value") is None)


def _mode(function: Node, args: tuple[Expression, ...], findings: Findings) -> AggregateCall:
    reverse = function.fields.get("reverseOpt")
    if reverse is None:
        findings.notice(
            "mode() returns the smallest of the most frequent values: the choice among them is not reproducible."
        )
        return AggregateCall("mode", args[:1], "mode({0}, true)")
    direction = " DESC" if reverse in (False, "false") else ""
    return AggregateCall("mode", args[:1], f"mode() WITHIN GROUP (ORDER BY {{0}}{direction})")


def _extreme_by(function: Node, args: tuple[Expression, ...], findings: Findings) -> AggregateCall:
    name = "min_by" if function.kind == "MinBy" or function.fields.get("reverse") else "max_by"
    findings.notice(
        f"{name}() chooses among rows with equal ordering by the value itself: the choice is not reproducible otherwise."
    )
    count = ", {2}" if function.kind == "MaxMinByK" else ""
    ordering = "CASE WHEN {1} IS NOT NULL THEN struct({1}, {0}) END"
    return AggregateCall(name, args, f"{name}({{0}}, {ordering}{count})")


def _percentile(function: Node, args: tuple[Expression, ...], types: list[str], findings: Findings) -> AggregateCall:
    findings.notice(
        "approx_percentile() returns the exact element of its rank: the approximation depends on the order of rows."
    )
    values = "sort_array(collect_list({distinct}{0}){filter})"
    size = "count({distinct}{0}){filter}"
    one = f"get({values}, greatest(CAST(ceil(%s * {size}) AS INT), 1) - 1)"
    if len(types) > 1 and types[1].startswith("ARRAY"):
        form = f"CASE WHEN {size} > 0 THEN transform({{1}}, p -> {one % 'p'}) END"
    else:
        form = one % "{1}"
    return AggregateCall("approx_percentile", args[:2], form)
