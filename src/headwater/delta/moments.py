"""Second moments of one or two floating-point arguments: variance, covariance, correlation, regression.

Kept per group: the number n of rows where all arguments are there, the means, and the central sums

    m2x = sum (x - mean x)^2      m2y likewise      cxy = sum (x - mean x)(y - mean y)

Two sets are united by the rule of Chan, Golub and LeVeque, and the same rule read backwards takes a set away:

    union:     m = a + b + dx * dy * na * nb / (na + nb)          with d = mean b - mean a
    removal:   a = m - b - dx * dy * (n - nb) * nb / n            with d = mean b - mean of the rest

Each step rounds; `flow` adds up the magnitudes that passed through since the group was last read whole. When the possible error
exceeds the tolerance of any kept sum, or anything is not finite, the group is read again.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.delta.accumulators import Accumulator, ChangeRow, checked_count, non_null
from headwater.delta.context import call
from headwater.plan.expressions import AggregateCall, Expression, Literal


def moments(args: tuple[Expression, ...], filter_: Expression | None, tolerance: float) -> Accumulator:
    """Keep n, the means, the central sums, and the flow, for one argument or for two."""
    doubles = tuple(call("CAST({0} AS DOUBLE)", a) for a in args)
    pair = len(args) == 2

    def aggregates(values: tuple[Expression, ...], filter_: Expression | None) -> tuple[AggregateCall, ...]:
        """n, means, population variances and covariance of the rows that have all arguments."""
        there = non_null(values)
        masked = [f"CASE WHEN {there} THEN {{{i}}} END" for i in range(len(values))]
        made = [AggregateCall("count_if", values, f"count_if({there})", filter=filter_)]
        made += [AggregateCall("avg", values, f"avg({m})", filter=filter_) for m in masked]
        made += [AggregateCall("var_pop", values, f"var_pop({m})", filter=filter_) for m in masked]
        if pair:
            made.append(AggregateCall("covar_pop", values, f"covar_pop({masked[0]}, {masked[1]})", filter=filter_))
        squares = " + ".join(f"{{{i}}} * {{{i}}}" for i in range(len(values)))
        made.append(AggregateCall("sum", values, f"sum(CASE WHEN {there} THEN {squares} END)", filter=filter_))
        return tuple(made)

    width = 6 if pair else 3  # kept doubles: means, central sums, flow

    def finish(made: Sequence[Expression]) -> tuple[Expression, ...]:
        n = made[0]
        means = tuple(call("coalesce({0}, 0D)", m) for m in made[1 : 1 + len(args)])
        centrals = tuple(call("coalesce({0} * {1}, 0D)", m, n) for m in made[1 + len(args) : -1])
        return (n, *means, *centrals, Literal("0D"))

    def parts(row: ChangeRow) -> tuple[AggregateCall, ...]:
        values = tuple(call("CAST({0} AS DOUBLE)", a) for a in row.args)
        count = call(
            f"CASE WHEN {{0}} THEN {{1}} WHEN {{2}} AND {non_null(values).replace('{1}', '{5}').replace('{0}', '{4}')} "
            "THEN CAST({3} AS BIGINT) ELSE 0L END",
            row.is_old,
            row.old[0],
            row.active,
            row.weight,
            *values,
        )
        total = AggregateCall("sum", (count,), "sum({0})")
        return (total, *aggregates(values, row.plus), *aggregates(values, row.minus))

    def merge(old: Sequence[Expression], part: Sequence[Expression]) -> tuple[Expression, ...]:
        step = (len(part) - 1) // 2
        plus, minus = part[1 : 1 + step], part[1 + step :]
        n0 = call("coalesce({0}, 0L)", old[0])
        have = [n0, *(call("coalesce({0}, 0D)", o) for o in old[1:-1])]
        added = _united(have, _central(plus, len(args)), len(args))
        rest = _removed(added, _central(minus, len(args)), len(args))
        moved = call("coalesce({0}, 0D) + coalesce({1}, 0D)", plus[-1], minus[-1])
        means = have[1 : 1 + len(args)]
        drift = call(
            " + ".join(f"{{{i}}} * {{{i}}}" for i in range(len(means))) or "0D",
            *means,
        )
        kept = call(" + ".join(f"abs({{{i}}})" for i in range(width - 1 - len(args))), *have[1 + len(args) :])
        flow = call(
            "coalesce({0}, 0D) + {1} + {2} + ({3} + {4}) * ({5})", old[-1], kept, moved, plus[0], minus[0], drift
        )
        empty = call("({0} = 0)", part[0])
        return (
            checked_count(part[0]),
            *(call("CASE WHEN {0} THEN 0D ELSE {1} END", empty, r) for r in rest[1:]),
            call("CASE WHEN {0} THEN 0D ELSE {1} END", empty, flow),
        )

    def rescan(new: Sequence[Expression]) -> Expression:
        sums = new[1 + len(args) : -1]
        bad = " OR ".join(f"NOT ({{0}} * 9.0E-16D <= {tolerance!r}D * abs({{{i + 1}}}))" for i in range(len(sums)))
        odd = " OR ".join(f"isnan({{{i + 1}}})" for i in range(len(sums)))
        return call(f"({{0}} > 0D AND ({bad}) OR isnan({{0}}) OR {odd})", new[-1], *sums)

    return Accumulator(
        types=("BIGINT", *["DOUBLE"] * width),
        initial=aggregates(doubles, filter_),
        finish=finish,
        parts=parts,
        merge=merge,
        rescan=rescan,
    )


def _central(made: Sequence[Expression], arity: int) -> list[Expression]:
    """Return n, means and central sums from n, means, population moments and the sum of squares."""
    n = made[0]
    means = [call("coalesce({0}, 0D)", m) for m in made[1 : 1 + arity]]
    return [n, *means, *(call("coalesce({0} * {1}, 0D)", m, n) for m in made[1 + arity : -1])]


def _pairs(arity: int) -> tuple[tuple[int, int], ...]:
    """Which means each central sum belongs to: m2x, m2y, cxy."""
    return ((0, 0),) if arity == 1 else ((0, 0), (1, 1), (0, 1))


def _united(a: Sequence[Expression], b: Sequence[Expression], arity: int) -> list[Expression]:
    n = call("({0} + {1})", a[0], b[0])
    deltas = [call("({1} - {0})", a[1 + i], b[1 + i]) for i in range(arity)]
    means = [
        call("CASE WHEN {0} = 0 THEN 0D ELSE {1} + {2} * {3} / {0} END", n, a[1 + i], deltas[i], b[0])
        for i in range(arity)
    ]
    sums = [
        call(
            "CASE WHEN {0} = 0 THEN 0D ELSE {1} + {2} + {3} * {4} * {5} * {6} / {0} END",
            n,
            a[1 + arity + k],
            b[1 + arity + k],
            deltas[i],
            deltas[j],
            call("CAST({0} AS DOUBLE)", a[0]),
            b[0],
        )
        for k, (i, j) in enumerate(_pairs(arity))
    ]
    return [n, *means, *sums]


def _removed(m: Sequence[Expression], b: Sequence[Expression], arity: int) -> list[Expression]:
    n = call("({0} - {1})", m[0], b[0])
    means = [
        call("CASE WHEN {0} <= 0 THEN 0D ELSE ({1} * {2} - {3} * {4}) / {0} END", n, m[1 + i], m[0], b[1 + i], b[0])
        for i in range(arity)
    ]
    deltas = [call("({1} - {0})", means[i], b[1 + i]) for i in range(arity)]
    sums = [
        call(
            "CASE WHEN {0} <= 0 THEN 0D ELSE {1} - {2} - {3} * {4} * {0} * {5} / {6} END",
            n,
            m[1 + arity + k],
            b[1 + arity + k],
            deltas[i],
            deltas[j],
            call("CAST({0} AS DOUBLE)", b[0]),
            m[0],
        )
        for k, (i, j) in enumerate(_pairs(arity))
    ]
    return [n, *(means), *sums]


# results: forms over (n, mean x, m2x, flow) or (n, mean x, mean y, m2x, m2y, cxy, flow)

ONE = {
    "var_pop": "CASE WHEN {0} > 0 THEN greatest({2}, 0D) / {0} END",
    "var_samp": "CASE WHEN {0} > 1 THEN greatest({2}, 0D) / ({0} - 1) END",
    "stddev_pop": "CASE WHEN {0} > 0 THEN sqrt(greatest({2}, 0D) / {0}) END",
    "stddev_samp": "CASE WHEN {0} > 1 THEN sqrt(greatest({2}, 0D) / ({0} - 1)) END",
}
ALIASES = {"variance": "var_samp", "stddev": "stddev_samp", "std": "stddev_samp"}
TWO = {
    "covar_pop": "CASE WHEN {0} > 0 THEN {5} / {0} END",
    "covar_samp": "CASE WHEN {0} > 1 THEN {5} / ({0} - 1) END",
    "corr": "CASE WHEN {0} > 1 AND {3} > 0 AND {4} > 0 THEN {5} / sqrt({3} * {4}) END",
}
