"""What is remembered of a group so that an aggregate can follow its changes.

An accumulator holds a few hidden columns per group. Four functions describe it:

    initial  aggregate calls over the rows of the group, and `finish`, which makes the columns of them
    parts    aggregate calls over the old columns and the change rows together
    merge    the new columns, from the old ones and the parts
    rescan   whether the new columns cannot be trusted and the group must be read again
    result   the user's value, from the columns

Laws. A weight never multiplies a value before it is summed: values of deleted rows are negated in a type that holds the
negation, or summed apart. Integer sums are kept as DECIMAL(38, 0), decimal sums in the type Spark itself would give the sum, and
the old sum enters the same `sum()` as the changes, because adding two DECIMAL(38, s) with `+` drops a digit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headwater.delta.context import call
from headwater.plan.expressions import AggregateCall, Expression, Literal
from headwater.plan.forms import escaped

INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
FLOATS = ("FLOAT", "DOUBLE")


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """What parts may look at: one row of the union of old state and changes.

    `active` is true for change rows that the aggregate sees (its FILTER holds), never for the old state; `weight` is +1 or -1 there.
    `is_old` marks the row of old state, whose columns are `old`.
    """

    args: tuple[Expression, ...]
    active: Expression
    weight: Expression
    is_old: Expression
    old: tuple[Expression, ...]

    @property
    def plus(self) -> Expression:
        return call("({0} AND {1} > 0)", self.active, self.weight)

    @property
    def minus(self) -> Expression:
        return call("({0} AND {1} < 0)", self.active, self.weight)


def _no_rescan(new: Sequence[Expression]) -> Expression | None:
    return None


@dataclass(frozen=True, slots=True)
class Accumulator:
    """Hidden columns of one aggregate (or shared by several) and their algebra."""

    types: tuple[str, ...]
    initial: tuple[AggregateCall, ...]
    finish: Callable[[Sequence[Expression]], tuple[Expression, ...]]
    parts: Callable[[ChangeRow], tuple[AggregateCall, ...]]
    merge: Callable[[Sequence[Expression], Sequence[Expression]], tuple[Expression, ...]]
    rescan: Callable[[Sequence[Expression]], Expression | None] = field(default=_no_rescan)


def non_null(args: Sequence[Expression]) -> str:
    """Return the condition that all arguments are there, as a form over them."""
    return " AND ".join(f"{{{i}}} IS NOT NULL" for i in range(len(args))) or "true"


def counter(args: tuple[Expression, ...], filter_: Expression | None, condition: str | None = None) -> Accumulator:
    """Count rows for which `condition` (a form over the arguments; by default: none is NULL) holds."""
    test = non_null(args) if condition is None else condition

    def parts(row: ChangeRow) -> tuple[AggregateCall, ...]:
        active = call(f"({test})", *row.args)
        value = call(
            "CASE WHEN {0} THEN {1} WHEN {2} AND {3} THEN CAST({4} AS BIGINT) ELSE 0L END",
            row.is_old,
            row.old[0],
            row.active,
            active,
            row.weight,
        )
        return (AggregateCall("sum", (value,), "sum({0})"),)

    return Accumulator(
        types=("BIGINT",),
        initial=(AggregateCall("count_if", args, f"count_if({test})", filter=filter_),),
        finish=lambda made: tuple(made),
        parts=parts,
        merge=lambda old, part: (checked_count(part[0]),),
    )


def checked_count(value: Expression) -> Expression:
    """Return `value`, or fail the refresh: a negative count means that a row was deleted which was not there."""
    message = "'[HW503] a group would hold a negative number of rows'"
    return call("CASE WHEN {0} < 0 THEN CAST(raise_error(" + message + ") AS BIGINT) ELSE {0} END", value)


def exact_sum(arg: Expression, type_: str, filter_: Expression | None) -> Accumulator:
    """Sum integers or decimals exactly; 0 if there are none (a count says which).

    A sum that overflows on the way cannot be carried on: the group is read again, which fails if the query itself does. Where Spark
    does not fail, its sum is NULL; it is kept as NULL, and the group is read again at every change until it fits.
    """
    kept = sum_type(type_)
    wide = "DECIMAL(20, 0)" if type_ in INTEGERS else type_

    def parts(row: ChangeRow) -> tuple[AggregateCall, ...]:
        value = call(
            f"CASE WHEN {{0}} THEN {{1}} WHEN {{2}} THEN {{4}} WHEN {{3}} THEN {negated(wide).replace('{0}', '{4}')} END",
            row.is_old,
            row.old[0],
            row.plus,
            row.minus,
            call(f"CAST({{0}} AS {wide})", row.args[0]),
        )
        lost = call("({0} AND {1} IS NULL)", row.is_old, row.old[0])
        return (
            AggregateCall("try_sum", (value,), "try_sum({0})"),
            AggregateCall("count", (value,), "count({0})"),
            AggregateCall("bool_or", (lost,), "bool_or({0})"),
        )

    def whole(total: Expression, count: Expression) -> Expression:
        """Return the sum, NULL only if it overflowed."""
        return call(f"CASE WHEN {{1}} = 0 THEN CAST(0 AS {kept}) ELSE CAST({{0}} AS {kept}) END", total, count)

    return Accumulator(
        types=(kept,),
        initial=(
            AggregateCall("sum", (arg,), "sum({0})", filter=filter_),
            AggregateCall("count", (arg,), "count({0})", filter=filter_),
        ),
        finish=lambda made: (whole(made[0], made[1]),),
        parts=parts,
        merge=lambda old, part: (call("CASE WHEN NOT {0} THEN {1} END", part[2], whole(part[0], part[1])),),
        rescan=lambda new: call("({0} IS NULL)", new[0]),
    )


def negated(type_: str) -> str:
    """Return a form that negates a decimal of this type exactly.

    Spark's minus rounds to 34 digits, and 0 - x may drop decimal places: wider numbers get their sign as texts.
    """
    if decimal_parts(type_)[0] <= 34:
        return "(-{0})"
    text = "CAST({0} AS STRING)"
    return f"CAST(CASE WHEN {{0}} < 0 THEN substring({text}, 2) ELSE concat('-', {text}) END AS {type_})"


def sum_type(type_: str) -> str:
    """Return the type in which sums of `type_` are kept."""
    if type_ in INTEGERS:
        return "DECIMAL(38, 0)"
    precision, scale = decimal_parts(type_)
    return f"DECIMAL({min(38, precision + 10)}, {scale})"


def decimal_parts(type_: str) -> tuple[int, int]:
    """Return precision and scale of a decimal type's text."""
    found = re.fullmatch(r"DECIMAL\((\d+),\s*(\d+)\)", type_)
    if found is None:
        raise ValueError(f"not a decimal type: {type_}")
    return int(found[1]), int(found[2])


def float_sum(arg: Expression, type_: str, filter_: Expression | None, tolerance: float) -> Accumulator:
    """Sum floating-point numbers within a bound.

    Columns: number of values, sum of the finite ones, numbers of NaN, +infinity and -infinity, and the absolute flow since the group
    was last read whole. Rounding errors are at most epsilon times that flow; when this exceeds `tolerance` times the sum, the
    group is read again. Special values are counted, not summed, so that they can leave as they came.
    """
    finite = "(NOT isnan({0}) AND abs({0}) < DOUBLE('Infinity'))"
    value = call("CAST({0} AS DOUBLE)", arg)

    def counted(condition: str) -> AggregateCall:
        return AggregateCall("count_if", (value,), f"count_if({condition})", filter=filter_)

    def parts(row: ChangeRow) -> tuple[AggregateCall, ...]:
        x = call("CAST({0} AS DOUBLE)", row.args[0])
        signed = call(
            "CASE WHEN {0} AND " + finite.replace("{0}", "{2}") + " THEN CASE WHEN {1} > 0 THEN {2} ELSE -{2} END END",
            row.active,
            row.weight,
            x,
        )
        flow = call("CASE WHEN {0} AND " + finite.replace("{0}", "{1}") + " THEN abs({1}) END", row.active, x)

        def net(condition: str, i: int) -> AggregateCall:
            held = condition.replace("{0}", "{4}")
            v = call(
                f"CASE WHEN {{0}} THEN {{1}} WHEN {{2}} AND {held} THEN CAST({{3}} AS BIGINT) ELSE 0L END",
                row.is_old,
                row.old[i],
                row.active,
                row.weight,
                x,
            )
            return AggregateCall("sum", (v,), "sum({0})")

        return (
            net("{0} IS NOT NULL", 0),
            AggregateCall("sum", (signed,), "sum({0})"),
            AggregateCall("sum", (flow,), "sum({0})"),
            net("isnan({0})", 2),
            net("{0} = DOUBLE('Infinity')", 3),
            net("{0} = DOUBLE('-Infinity')", 4),
        )

    def merge(old: Sequence[Expression], part: Sequence[Expression]) -> tuple[Expression, ...]:
        count = checked_count(part[0])
        empty = call("({0} - {1} - {2} - {3} = 0)", *(part[i] for i in (0, 3, 4, 5)))
        total = call("CASE WHEN {0} THEN 0D ELSE coalesce({1}, 0D) + coalesce({2}, 0D) END", empty, old[1], part[1])
        flow = call("CASE WHEN {0} THEN 0D ELSE coalesce({1}, 0D) + coalesce({2}, 0D) END", empty, old[5], part[2])
        return (count, total, checked_count(part[3]), checked_count(part[4]), checked_count(part[5]), flow)

    def rescan(new: Sequence[Expression]) -> Expression:
        return call(
            f"({{0}} > 0D AND NOT ({{0}} * 2.3E-16D <= {tolerance!r}D * abs({{1}}))"
            " OR isnan({1}) OR abs({1}) = DOUBLE('Infinity'))",
            new[5],
            new[1],
        )

    return Accumulator(
        types=("BIGINT", "DOUBLE", "BIGINT", "BIGINT", "BIGINT", "DOUBLE"),
        initial=(
            counted("{0} IS NOT NULL"),
            AggregateCall("sum", (call("CASE WHEN " + finite + " THEN {0} END", value),), "sum({0})", filter=filter_),
            counted("isnan({0})"),
            counted("{0} = DOUBLE('Infinity')"),
            counted("{0} = DOUBLE('-Infinity')"),
        ),
        finish=lambda made: (
            made[0],
            call("coalesce({0}, 0D)", made[1]),
            made[2],
            made[3],
            made[4],
            Literal("0D"),
        ),
        parts=parts,
        merge=merge,
        rescan=rescan,
    )


FLOAT_SUM_RESULT = (
    "CASE WHEN {0} = 0 THEN CAST(NULL AS DOUBLE) WHEN {2} > 0 OR ({3} > 0 AND {4} > 0) THEN DOUBLE('NaN') "
    "WHEN {3} > 0 THEN DOUBLE('Infinity') WHEN {4} > 0 THEN DOUBLE('-Infinity') ELSE {1} END"
)


def extremum(
    arg: Expression, type_: str, filter_: Expression | None, *, largest: bool, size: int, needed: int = 1
) -> Accumulator:
    """Keep the `size` best values of a group, duplicates included, and the number of all its values; `needed` of them are shown.

    The buffer is a prefix of the group's sorted values. Of the inserted and the deleted values only the best `size` are looked at;
    beyond the last value known on any side nothing is known, so the buffer is cut there:

        new = (old + best inserted) - best deleted,  cut at the last old value unless the buffer held all values,
              at the last inserted one seen if there were more, and before the last deleted one seen if there were more

    What remains is again a prefix. Only a group whose buffer holds fewer than are needed, though there are more, is read again.
    """
    best = f"{'max' if largest else 'min'}_by({{0}}, {{0}}, {size})"
    order = "(a, b) -> CASE WHEN a > b THEN -1 WHEN a < b THEN 1 ELSE 0 END" if largest else None
    within = ">=" if largest else "<="
    beyond = ">" if largest else "<"
    none = f"CAST(array() AS ARRAY<{escaped(type_)}>)"

    def parts(row: ChangeRow) -> tuple[AggregateCall, ...]:
        x = row.args[0]
        present = call("({0} AND {1} IS NOT NULL)", row.plus, x)
        gone = call("({0} AND {1} IS NOT NULL)", row.minus, x)
        count = call(
            "CASE WHEN {0} THEN {1} WHEN {2} AND {4} IS NOT NULL THEN CAST({3} AS BIGINT) ELSE 0L END",
            row.is_old,
            row.old[0],
            row.active,
            row.weight,
            x,
        )
        return (
            AggregateCall("sum", (count,), "sum({0})"),
            AggregateCall("best", (x,), best, filter=present),
            AggregateCall("best", (x,), best, filter=gone),
            AggregateCall("count_if", (present,), "count_if({0})"),
            AggregateCall("count_if", (gone,), "count_if({0})"),
        )

    def merge(old: Sequence[Expression], part: Sequence[Expression]) -> tuple[Expression, ...]:
        # 0 old count, 1 old buffer, 2 inserted, 3 deleted, 4 number inserted, 5 number deleted
        removed = (
            f"aggregate(coalesce({{3}}, {none}), concat(coalesce({{1}}, {none}), coalesce({{2}}, {none})), (acc, v) -> "
            "CASE WHEN array_position(acc, v) > 0 THEN concat(slice(acc, 1, CAST(array_position(acc, v) AS INT) - 1), "
            "slice(acc, CAST(array_position(acc, v) AS INT) + 1, size(acc))) ELSE acc END)"
        )
        cut = (
            f"filter({removed}, v -> (coalesce({{0}}, 0L) = size(coalesce({{1}}, {none})) "
            f"OR v {within} try_element_at({{1}}, -1)) "
            f"AND ({{4}} <= {size} OR v {within} try_element_at({{2}}, -1)) "
            f"AND ({{5}} <= {size} OR v {beyond} try_element_at({{3}}, -1)))"
        )
        ordered = f"array_sort({cut}, {order})" if order else f"array_sort({cut})"
        return (checked_count(part[0]), call(f"slice({ordered}, 1, {size})", old[0], old[1], *part[1:]))

    return Accumulator(
        types=("BIGINT", f"ARRAY<{type_}>"),
        initial=(
            AggregateCall("count", (arg,), "count({0})", filter=filter_),
            AggregateCall("best", (arg,), best, filter=filter_),
        ),
        finish=lambda made: (made[0], call(f"coalesce({{0}}, {none})", made[1])),
        parts=parts,
        merge=merge,
        rescan=lambda new: call(f"(size({{1}}) < least({{0}}, {needed}))", new[0], new[1]),
    )
