"""Which aggregate function is kept how.

Algebraic: the value follows from hidden columns that a change updates in place. Everything else is *rescanned*: the groups that
changed are read again, and only they.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from headwater.delta.accumulators import (
    FLOAT_SUM_RESULT,
    FLOATS,
    INTEGERS,
    Accumulator,
    counter,
    decimal_parts,
    exact_sum,
    extremum,
    float_sum,
    sum_type,
)
from headwater.delta.context import DeltaOptions, call
from headwater.delta.moments import ALIASES, ONE, TWO, moments
from headwater.plan.expressions import AggregateCall, Expression, Literal

NO_DISTINCT = frozenset({"min", "max", "bool_and", "bool_or", "every", "some", "any"})
"""Functions for which DISTINCT changes nothing."""


ALGEBRAIC = frozenset({"count", "count_if", "sum", "avg", "min", "max", *ONE, *TWO, *ALIASES}) | NO_DISTINCT
"""Functions that may be kept from hidden state; all their arguments are columns."""


FIRST_ROWS = "first_rows"
"""Names the aggregate that a LIMIT is: of rows, written so that they sort as wanted, `limit` after `offset`."""


ROW_COUNT = "rows"
"""Names the accumulator that counts all rows of a group: every state keeps it anyway."""


def is_counted_constant(expression: Expression) -> bool:
    """Say whether `expression` is the 1 of count(1) and count(*), which every row has."""
    return isinstance(expression, Literal) and expression.text.isdigit()


class Strategy(Enum):
    """How an aggregate follows its input."""

    ALGEBRAIC = "algebraic"
    BEST_VALUES = "best values per group"
    RESCAN = "rescan of changed groups"


@dataclass(frozen=True, slots=True)
class Kept:
    """The accumulators of one call and the value they give; `accumulators` have keys by which equal ones are shared."""

    strategy: Strategy
    accumulators: tuple[tuple[str, Accumulator], ...]
    result: Callable[[Sequence[Sequence[Expression]]], Expression]


def kept(aggregate: AggregateCall, types: Sequence[str], result_type: str, options: DeltaOptions) -> Kept | None:
    """Return how `aggregate` is kept from hidden state, or None if changed groups have to be read again.

    `types` are the types of its arguments, which are columns or constants.
    """
    name, args, filter_ = ALIASES.get(aggregate.name, aggregate.name), aggregate.args, aggregate.filter
    key = f"{', '.join(a.sql for a in args)} | {filter_.sql if filter_ is not None else ''}"
    if name == "count":
        real = tuple(a for a in args if not is_counted_constant(a))
        label = f"n {', '.join(a.sql for a in real)} | {filter_.sql if filter_ is not None else ''}"
        if not real and filter_ is None:
            label = ROW_COUNT
        return Kept(Strategy.ALGEBRAIC, ((label, counter(real, filter_)),), lambda s: s[0][0])
    if name == "count_if":
        return Kept(Strategy.ALGEBRAIC, ((f"if {key}", counter(args, filter_, "{0}")),), lambda s: s[0][0])
    if not args or len(types) != len(args):
        return None
    type_ = types[0]
    if name in ("sum", "avg"):
        return _sum_or_avg(name, args[0], type_, result_type, filter_, key, options)
    if name in ("bool_and", "every", "bool_or", "some", "any") or (name in ("min", "max") and type_ == "BOOLEAN"):
        return _boolean(name in ("bool_and", "every", "min"), args, filter_, key)
    if name in ("min", "max"):
        accumulator = extremum(args[0], type_, filter_, largest=name == "max", size=options.extremum_buffer)
        return Kept(
            Strategy.BEST_VALUES, ((f"{name} {key}", accumulator),), lambda s: call("try_element_at({0}, 1)", s[0][1])
        )
    if name == FIRST_ROWS:
        return _first_rows(args, type_, filter_, key, options)
    if options.float_exact:
        return None
    if name in ONE and _is_number(type_):
        accumulator = moments(args[:1], filter_, options.float_tolerance)
        return Kept(Strategy.ALGEBRAIC, ((f"m1 {key}", accumulator),), lambda s: call(ONE[name], *s[0]))
    if name in TWO and len(args) == 2 and all(_is_number(t) for t in types):
        accumulator = moments(args, filter_, options.float_tolerance)
        return Kept(Strategy.ALGEBRAIC, ((f"m2 {key}", accumulator),), lambda s: call(TWO[name], *s[0]))
    return None


def _is_number(type_: str) -> bool:
    return type_ in INTEGERS or type_ in FLOATS or type_.startswith("DECIMAL")


def _sum_or_avg(
    name: str,
    arg: Expression,
    type_: str,
    result_type: str,
    filter_: Expression | None,
    key: str,
    options: DeltaOptions,
) -> Kept | None:
    if type_ in FLOATS:
        if options.float_exact:
            return None
        accumulator = float_sum(arg, type_, filter_, options.float_tolerance)
        form = FLOAT_SUM_RESULT if name == "sum" else f"({FLOAT_SUM_RESULT}) / {{0}}"
        if name == "avg":
            form = f"CASE WHEN {{0}} = 0 THEN CAST(NULL AS DOUBLE) ELSE {form} END"
        return Kept(Strategy.ALGEBRAIC, ((f"f {key}", accumulator),), lambda s: call(form, *s[0]))
    if type_ not in INTEGERS and not type_.startswith("DECIMAL"):
        return None
    if name == "avg" and type_ not in INTEGERS and not (options.decimal_average and _avg_is_exact(type_)):
        return None
    accumulators = ((f"n {key}", counter((arg,), filter_)), (f"s {key}", exact_sum(arg, type_, filter_)))
    if name == "sum":
        form = f"CASE WHEN {{0}} = 0 THEN NULL ELSE CAST({{1}} AS {result_type}) END"
    elif type_ in INTEGERS:
        form = "CASE WHEN {0} = 0 THEN NULL ELSE CAST({1} AS DOUBLE) / {0} END"
    else:
        form = _decimal_average(type_, result_type)
    return Kept(Strategy.ALGEBRAIC, accumulators, lambda s: call(form, s[0][0], s[1][0]))


def _first_rows(
    args: tuple[Expression, ...], type_: str, filter_: Expression | None, key: str, options: DeltaOptions
) -> Kept:
    limit, offset = (int(a.sql) for a in args[1:])
    needed = limit + offset
    size = 2 * needed + options.extremum_buffer
    accumulator = extremum(args[0], type_, filter_, largest=False, size=size, needed=needed)
    return Kept(
        Strategy.BEST_VALUES,
        ((f"{FIRST_ROWS} {key}", accumulator),),
        lambda s: call(f"slice({{0}}, {offset + 1}, {limit})", s[0][1]),
    )


def _avg_is_exact(type_: str) -> bool:
    precision, scale = decimal_parts(type_)
    return precision <= 23 and scale <= 14


def _decimal_average(type_: str, result_type: str) -> str:
    """Divide as Spark's avg does, to the last digit.

    `sum / n` alone is rounded to fewer digits than avg keeps when the sum is wide. The quotient is therefore taken apart: the
    remainder is exact, what it leaves is a whole multiple of n, and the fraction has room for all its digits.
    """
    scale = decimal_parts(sum_type(type_))[1]
    n = "CAST({0} AS DECIMAL(10, 0))"
    rest = f"({{1}} % {n})"
    whole = f"CAST(({{1}} - {rest}) / {n} AS DECIMAL({38 - scale - 5}, 0))"
    fraction = f"CAST({rest} / {n} AS DECIMAL({scale + 5}, {scale + 4}))"
    return f"CASE WHEN {{0}} = 0 THEN NULL ELSE CAST({whole} + {fraction} AS {result_type}) END"


def _boolean(conjunction: bool, args: tuple[Expression, ...], filter_: Expression | None, key: str) -> Kept:
    yes, no = counter(args, filter_, "{0}"), counter(args, filter_, "NOT {0}")
    if conjunction:
        form = "CASE WHEN {1} > 0 THEN false WHEN {0} > 0 THEN true END"
    else:
        form = "CASE WHEN {0} > 0 THEN true WHEN {1} > 0 THEN false END"
    return Kept(Strategy.ALGEBRAIC, ((f"yes {key}", yes), (f"no {key}", no)), lambda s: call(form, s[0][0], s[1][0]))
