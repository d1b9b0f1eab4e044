"""Delta of ORDER BY ... LIMIT n OFFSET m.

    top(R)  =  explode(rows m + 1 to m + n of the first rows of R)

The first rows are an aggregate without groups, and its state can follow changes: a buffer of the best n + m rows and a reserve. A row
that leaves lets the next one move up; only when the reserve is used up is the input read again. `with_kept_tops` writes a
limit of moderate size so; the aggregate's rule does the rest.

Any other limit is computed before and after:

    delta(top(R))  =  top(R')  -  top(R)

The order is total (all columns break ties), so the same rows give the same answer again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from headwater.delta.accumulators import FLOATS, INTEGERS, negated
from headwater.delta.aggregates import FIRST_ROWS
from headwater.delta.context import Delta, DeltaContext, Term, call, cast, drivers_of, weighted
from headwater.plan.canonical import NO_ORDER
from headwater.plan.expressions import AggregateCall, Column, ColumnRef, Expression, Literal, SortKey
from headwater.plan.operators import (
    Aggregate,
    Generate,
    Named,
    NamedAggregate,
    Operator,
    Project,
    Top,
    walk_operators,
)

MOST_KEPT = 500
"""Up to so many rows of a limit are kept; comparing them takes the square of their number."""

_HEX, _FLIPPED = "0123456789ABCDEF", "FEDCBA9876543210"


def top_delta(op: Top, ctx: DeltaContext) -> Delta:
    """Return the old rows as deletions and the new ones as insertions."""
    drivers = drivers_of(ctx.delta(op.input))
    if not drivers:
        return ()
    old, new = (op.with_inputs(state) for state in (ctx.old(op.input), ctx.new(op.input)))
    return (Term(drivers, weighted(old, "-1")), Term(drivers, weighted(new, "1")))


def is_kept(op: Top) -> bool:
    """Say whether the first rows are kept as a state."""
    few = op.limit is not None and 0 < op.limit + op.offset <= MOST_KEPT
    # Whole rows are compared: a MAP cannot be, and what a collation calls equal is not the same row.
    comparable = not any("COLLATE" in c.type or NO_ORDER.search(c.type) for c in op.output)
    return few and comparable and all(ascending(k) is not None for k in op.order)


def with_kept_tops(tree: Operator) -> Operator:
    """Return `tree` with each limit whose rows can be kept as an aggregate. New columns have no type yet."""
    first = 1 + max((c.id for o in walk_operators(tree) for c in o.output), default=0)
    return _rewritten(tree, itertools.count(first))


def _rewritten(op: Operator, ids: Iterator[int]) -> Operator:
    if op.inputs:
        op = op.with_inputs(*(_rewritten(i, ids) for i in op.inputs))
    if not isinstance(op, Top) or not is_kept(op):
        return op
    row, rows, one = (Column(next(ids), n, "", nullable=False) for n in ("row", "rows", "one"))
    keys = [part for key in op.order for part in ascending(key) or ()]
    parts = [*keys, *(ColumnRef(c.id) for c in op.output)]
    made = Project(op.input, (Named(row, _struct(parts)),))
    first = Aggregate(made, (), (NamedAggregate(rows, _first_rows(row, op)),))
    each = Generate(first, call("explode({0})", ColumnRef(rows.id)), (one,))
    return Project(
        each,
        tuple(
            Named(c, cast(call(f"{{0}}.f{len(keys) + i}", ColumnRef(one.id)), c.type)) for i, c in enumerate(op.output)
        ),
    )


def _struct(parts: list[Expression]) -> Expression:
    fields = ", ".join(f"'f{i}', {{{i}}}" for i in range(len(parts)))
    return call(f"named_struct({fields})", *parts)


def _first_rows(row: Column, op: Top) -> AggregateCall:
    assert op.limit is not None
    form = f"slice(min_by({{0}}, {{0}}, {op.limit + op.offset}), {{2}} + 1, {{1}})"
    return AggregateCall(FIRST_ROWS, (ColumnRef(row.id), Literal(str(op.limit)), Literal(str(op.offset))), form)


def ascending(key: SortKey) -> tuple[Expression, ...] | None:
    """Return values whose ascending order is the order of `key`; None if there are none for its type."""
    value, type_ = ColumnRef(key.column.id), key.column.type
    null = call("({0} IS NOT NULL)" if key.nulls_first else "({0} IS NULL)", value)
    if not key.descending:
        return null, value
    if type_ in FLOATS:  # NaN is the largest
        return null, call("(NOT isnan({0}))", value), call("CASE WHEN isnan({0}) THEN 0 ELSE -{0} END", value)
    form = negated(type_) if type_.startswith("DECIMAL") else _DESCENDING.get(type_)
    return None if form is None else (null, call(form, value))


_DESCENDING = {
    **dict.fromkeys(INTEGERS, "(-CAST({0} AS DECIMAL(20, 0)))"),
    "BOOLEAN": "(NOT {0})",
    "DATE": "(-unix_date({0}))",
    "TIMESTAMP": "(-unix_micros({0}))",
    # Longer texts come before their beginnings: the end is marked by what is larger than any digit.
    "STRING": f"concat(translate(hex({{0}}), '{_HEX}', '{_FLIPPED}'), 'G')",
    "BINARY": f"concat(translate(hex({{0}}), '{_HEX}', '{_FLIPPED}'), 'G')",
}
"""Expressions whose ascending order is the descending order of a type."""
