"""Delta rules that are wrong in one way each, as a competent person would get them wrong. Only `tests/support/planted.py` uses them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import pyarrow as pa

from headwater.delta import aggregate, aggregates, inner_join, matching, near, recursion, sharing, top, window
from headwater.delta.accumulators import Accumulator, counter
from headwater.delta.aggregates import Kept, Strategy
from headwater.delta.context import WEIGHT, Delta, DeltaContext, LoopStage, Term, call, null_of, weighted
from headwater.delta.existence_join import existence_join_delta
from headwater.delta.matching import Key, Matched, Meeting
from headwater.delta.near import EQUAL, SAME, Pairs
from headwater.delta.union import union_delta
from headwater.plan.expressions import Call, Column, ColumnRef, Expression, Literal, SortKey
from headwater.plan.operators import (
    Aggregate,
    Expand,
    Filter,
    Generate,
    Join,
    JoinKind,
    Named,
    Operator,
    Project,
    Recursion,
    Side,
    Stage,
    Top,
    Union,
    Values,
    Window,
)
from headwater.refresh import evaluate
from headwater.refresh.places import Places, RefreshInput
from headwater.refresh.template import TermText, Text
from headwater.store import near as lookups
from headwater.store import reading
from headwater.store.rows import CHANGED, row_codes

WEIGHED = ColumnRef(WEIGHT.id)


def insertions(tree: Operator) -> Operator:
    """Return change rows without deletions."""
    return Filter(tree, call("({0} > 0)", WEIGHED))


# one row at a time ----------------------------------------------------------------------------------------------------------


def touched_in_all_columns(table: pa.Table, words: Mapping[int, int]) -> pa.Table:
    """An update matters only if it changed every column that is read."""
    kept = [
        changed is None or all(w < len(changed) and changed[w] & mask == mask for w, mask in words.items())
        for changed in table.column(CHANGED).to_pylist()
    ]
    return table.filter(pa.array(kept, pa.bool_()))


def filter_that_lets_deletions_pass(op: Filter, ctx: DeltaContext) -> Delta:
    condition = call("({0} OR {1} < 0)", op.condition, WEIGHED)
    return tuple(t.over(lambda tree: Filter(tree, condition)) for t in ctx.delta(op.input))


def filter_that_lets_null_pass(op: Filter, ctx: DeltaContext) -> Delta:
    condition = call("coalesce({0}, true)", op.condition)
    return tuple(t.over(lambda tree: Filter(tree, condition)) for t in ctx.delta(op.input))


def project_to_distinct_rows(op: Project, ctx: DeltaContext) -> Delta:
    items = (*op.items, Named.same(WEIGHT))
    columns = (*op.output, WEIGHT)
    return tuple(t.over(lambda tree: Aggregate(Project(tree, items), columns, ())) for t in ctx.delta(op.input))


def expand_without_grouping_id(op: Expand, ctx: DeltaContext) -> Delta:
    ids = {i for i in range(len(op.columns)) if all(isinstance(row[i], Literal) for row in op.rows)}
    rows = tuple(
        (*(op.rows[0][i] if i in ids and row[i].sql != "NULL" else e for i, e in enumerate(row)), WEIGHED)
        for row in op.rows
    )
    return tuple(t.over(lambda tree: Expand(tree, rows, (*op.columns, WEIGHT))) for t in ctx.delta(op.input))


def generate_without_outer(op: Generate, ctx: DeltaContext) -> Delta:
    order = tuple(Named.same(c) for c in (*op.output, WEIGHT))
    inner = replace(op, outer=False)
    return tuple(t.over(lambda tree: Project(inner.with_inputs(tree), order)) for t in ctx.delta(op.input))


def values_that_come_again(op: Values, ctx: DeltaContext) -> Delta:
    return (Term((), weighted(op, "1")),)


# joins ----------------------------------------------------------------------------------------------------------------------


class WalkOverNewStates(inner_join._Walk):
    """Reads the other inputs as they are now, also those whose own changes have a term."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.start = -1


class WalkOverOldStates(inner_join._Walk):
    """Reads the other inputs as they were: what came on two sides at once meets nowhere."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.start = len(self.cluster.leaves)


class EqualWithNulls(inner_join._Equal):
    """Takes `<=>` for `=`."""

    def __init__(self, conditions: Sequence[Expression]) -> None:
        plain = [replace(c, form=EQUAL) if isinstance(c, Call) and c.form == SAME else c for c in conditions]
        super().__init__(plain)


def inner_join_without_last_delta(op: Join, ctx: DeltaContext) -> Delta:
    cluster = inner_join.cluster_of(op)
    last = ctx.delta(cluster.leaves[-1])
    terms = inner_join.inner_join_delta(op, ctx)
    return terms[: len(terms) - len(last)]


def split_as(null_safe: bool) -> Callable[[Join], tuple[tuple[Key, ...], tuple[Expression, ...]]]:
    """Return a split whose keys are all NULL-safe, or none."""
    split = matching.split

    def wrong(op: Join) -> tuple[tuple[Key, ...], tuple[Expression, ...]]:
        keys, others = split(op)
        return tuple(replace(k, null_safe=null_safe) for k in keys), others

    return wrong


def split_by_left_row(op: Join) -> tuple[tuple[Key, ...], tuple[Expression, ...]]:
    """Say that every column of the right side is part of the join key."""
    return tuple(Key(ColumnRef(c.id), ColumnRef(c.id), False) for c in op.right.output), ()


@contextmanager
def old_for_new() -> Iterator[None]:
    """Let rules that ask for the rows of now get those of before."""
    with mock.patch.object(DeltaContext, "new", DeltaContext.old):
        yield


def within_old_states(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that asks for the rows of now and gets those of before."""

    def wrong(self: Any, *args: Any, **named: Any) -> Any:
        with old_for_new():
            return method(self, *args, **named)

    return wrong


def counted_without_changes(self: Meeting, near_right: Operator) -> tuple[Operator, Column, Column]:
    right = self.right
    self.right = replace(right, changes=None)
    try:
        return _counted(self, near_right)
    finally:
        self.right = right


_counted = Meeting._counted


def near_right_by_its_own_changes(self: Meeting, *, again: bool) -> Operator:
    return self._rows_near(self.right, (self.right,), 1, again=again)


def pairs_without_correction(self: Meeting, near_left: Operator, near_right: Operator) -> Delta:
    return _pairs_delta(self, near_left, near_right)[:2]


_pairs_delta = Meeting.pairs_delta


class MeetingDrivenByItsLeft(Meeting):
    """Counts matches only when the left side changed."""

    def __init__(self, op: Join, ctx: DeltaContext) -> None:
        super().__init__(op, ctx)
        self.drivers = self.left.drivers


def by_row_without_deletions(self: Meeting, near_right: Operator) -> Matched:
    if self.right.changes is not None:
        self.right = replace(self.right, changes=insertions(self.right.changes))
    return _by_row(self, near_right)


_by_row = Meeting._by_row


def _kept(matched: Matched, output: Sequence[Column], own: Expression, step: Expression) -> Delta:
    columns = tuple(Named.same(c) for c in output)

    def weighed(term: Term, weight: Expression) -> Term:
        return term.over(lambda tree: matching._nonzero(Project(tree, (*columns, Named(WEIGHT, weight)))))

    return (*(weighed(t, own) for t in matched.looked_up()), *(weighed(t, step) for t in matched.flipped()))


def kept_per_match(matched: Matched, output: Sequence[Column], form: str) -> Delta:
    """Keep a left row once for each of its matches; with `NOT`, take its padding away once for each."""
    before, after = (call("CAST(coalesce({0}, 0) AS INT)", ColumnRef(c.id)) for c in matched.counts)
    if "NOT" in form:
        own = call("CASE WHEN {0} = 0 THEN {1} ELSE 0 END", before, WEIGHED)
        return _kept(matched, output, own, call("({0} - {1})", before, after))
    return _kept(matched, output, call("({0} * {1})", before, WEIGHED), call("({1} - {0})", before, after))


def kept_by_new_answer(matched: Matched, output: Sequence[Column], form: str) -> Delta:
    """Judge the changes of the left side by the answer of now."""
    before, after = call(form, matched.before), call(form, matched.after)
    own = call("CASE WHEN {0} THEN {1} ELSE 0 END", after, WEIGHED)
    return _kept(matched, output, own, call("(CAST({1} AS INT) - CAST({0} AS INT))", before, after))


def existence_settled_at_birth(op: Join, ctx: DeltaContext) -> Delta:
    with mock.patch.object(Matched, "flipped", return_value=()):
        return existence_join_delta(op, ctx)


def existence_with_both_answers(op: Join, ctx: DeltaContext) -> Delta:
    terms = existence_join_delta(op, ctx)
    return tuple(t.over(insertions) if isinstance(t.tree, Expand) else t for t in terms)


def not_in_form(part: str, instead: str) -> Callable[..., Call]:
    """Return a `call` that has something else in place of a part of the condition."""

    def wrong(form: str, *args: Expression) -> Call:
        return call(form.replace(part, instead), *args)

    return wrong


# groups ---------------------------------------------------------------------------------------------------------------------


def distinct_by_every_change(op: Aggregate, ctx: DeltaContext) -> Delta:
    terms = aggregate.aggregate_delta(op, ctx)
    if op.calls or not op.groups:
        return terms
    items = (*(Named.same(g) for g in op.groups), Named.same(WEIGHT))
    return tuple(t.over(lambda tree: Project(tree, items)) for t in ctx.delta(op.input))


def shown_state_rows(table: pa.Table, names: Sequence[str], groups: int) -> Any:
    """Keep the state of groups that the result shows."""
    if evaluate._KEEP in table.column_names:
        table = table.filter(table.column(evaluate._KEEP))
    return _state_rows(table, names, groups)


_state_rows = evaluate._state_rows


def extremum_that_never_falls(*args: Any, **named: Any) -> Accumulator:
    good = _extremum(*args, **named)
    gone = null_of(good.types[1])
    return replace(good, merge=lambda old, part: good.merge(old, (*part[:2], gone, part[3], Literal("0"))))


def extremum_without_rescan(*args: Any, **named: Any) -> Accumulator:
    return replace(_extremum(*args, **named), rescan=lambda new: None)


def extremum_that_needs_one(*args: Any, needed: int = 1, **named: Any) -> Accumulator:
    return _extremum(*args, **named)


_extremum = aggregates.extremum


def sum_of_nothing_is_zero(*args: Any) -> Kept | None:
    good = _sum_or_avg(*args)
    return good and replace(good, result=lambda states: call("coalesce({0}, 0)", good.result(states)))


def average_over_all_rows(*args: Any) -> Kept | None:
    good = _sum_or_avg(*args)
    if good is None or args[0] != "avg":
        return good
    return replace(good, accumulators=(("all", counter((), None)), *good.accumulators[1:]))


_sum_or_avg = aggregates._sum_or_avg


def rows_of_known_keys(reader: Any, layout: Any, source: Any, version: int, keys: pa.Table) -> pa.Table | None:
    """Look up groups without a NULL."""
    return _rows_of_keys(reader, layout, source, version, keys.drop_null())


_rows_of_keys = evaluate.rows_of_keys


def merged_where(exists: Callable[[aggregate._Merged, Expression], Expression]) -> Callable[..., aggregate._Merged]:
    """Return a merge with another opinion on which groups exist."""
    merged = aggregate._merged

    def wrong(op: Aggregate, old: Operator, keys: Stage, design: Any, ctx: DeltaContext, **named: Any) -> Any:
        made = merged(op, old, keys, design, ctx, **named)
        return replace(made, exists=exists(made, ColumnRef(made.news[design.rows.id].id)))

    return wrong


def changes_of_joined_groups(op: Aggregate, design: Any, ctx: DeltaContext) -> tuple[Delta, tuple[Column, ...]]:
    """Read again only groups that got a row."""
    terms, columns = _group_changes(op, design, ctx)
    if design.strategy is Strategy.RESCAN:
        terms = tuple(t.over(insertions) for t in terms)
    return terms, columns


_group_changes = aggregate._changes


def state_text_as_it_was(self: Places, read: Any, bounds: Any, given: RefreshInput) -> tuple[str, int]:
    """Read the state of an aggregate without what this refresh does to it."""
    with mock.patch.object(self, "new_states", {}):
        return _state_text(self, read, bounds, given)


def state_text_as_it_is(self: Places, read: Any, bounds: Any, given: RefreshInput) -> tuple[str, int]:
    """Read the old state of a table at the version refreshed to."""
    return _state_text(self, read, bounds, replace(given, since=given.upto))


_state_text = Places._state_text


# many rows at once ----------------------------------------------------------------------------------------------------------


def union_without_last_branch(op: Union, ctx: DeltaContext) -> Delta:
    last = ctx.delta(op.branches[-1])
    terms = union_delta(op, ctx)
    return terms[: len(terms) - len(last)]


def window_without_old_rows(op: Window, ctx: DeltaContext) -> Delta:
    return window.window_delta(op, ctx)[1:]


def top_without_old_rows(op: Top, ctx: DeltaContext) -> Delta:
    return top.top_delta(op, ctx)[1:]


def top_of_the_changes(op: Top, ctx: DeltaContext) -> Delta:
    return tuple(t.over(op.with_inputs) for t in ctx.delta(op.input))


def ascending_by_value_alone(key: SortKey) -> tuple[Expression, ...] | None:
    parts = _ascending(key)
    return parts and parts[1:]


_ascending = top.ascending


def recursion_blind_to_tables_of_its_step(op: Recursion, ctx: DeltaContext) -> Delta:
    ctx.settle(op.step, ())
    return recursion.recursion_delta(op, ctx)


def loop_without_deletions(name: str, wave: str, seeds: Delta, *rest: Any) -> LoopStage:
    return LoopStage(name, wave, tuple(t.over(insertions) for t in seeds), *rest)


def loop_of_one_round(name: str, wave: str, seeds: Delta, step: Operator, columns: tuple[Column, ...]) -> LoopStage:
    return LoopStage(name, wave, seeds, Filter(step, Literal("false")), columns)


def old_rows_as_a_set(op: Recursion, ctx: DeltaContext, side: Side, columns: tuple[Column, ...]) -> Operator:
    kept = _recursion_kept(op, ctx, side, columns)
    if side is not Side.OLD:
        return kept
    (made,) = kept.inputs
    assert isinstance(made, Generate)
    return kept.with_inputs(replace(made, generator=call("explode(array(0))")))


_recursion_kept = recursion._kept


def stage_that_is_all_new(op: Stage, ctx: DeltaContext) -> Delta:
    return (Term((), weighted(ctx.new(op), "1")),)


# restrictions and texts -----------------------------------------------------------------------------------------------------


def into_join_as(found: JoinKind, taken_for: JoinKind) -> Callable[..., tuple[Operator, bool]]:
    """Return a push that takes one kind of join for another."""
    into_join = near._into_join

    def wrong(op: Join, pairs: Pairs, push: Any) -> tuple[Operator, bool]:
        if op.kind is not found:
            return into_join(op, pairs, push)
        made, is_exact = into_join(replace(op, kind=taken_for), pairs, push)
        return replace(made, kind=found), is_exact  # type: ignore[call-arg]

    return wrong


def below_is_always_enough(*args: Any) -> tuple[Operator, bool]:
    return _below(*args)[0], True


_below = near._below


def bound_of_known_keys(self: Places, near: Any, given: RefreshInput) -> Any:
    return _bound(self, replace(near, null_safe=False), given)


_bound = Places._bound


def bounds_without_their_end(bounds: Any, fields: Any) -> str:
    return _bounds_sql(bounds, fields).replace("<=", "<")


_bounds_sql = reading._bounds_sql


def live_where_all_drivers_are(self: Text, places: Any) -> tuple[TermText, ...]:
    return tuple(t for t in self.terms if all(d in places for d in t.drivers))


def form_without_constants(self: sharing._Numbering, part: object) -> Hashable:
    if isinstance(part, Literal):
        return "constant"
    return _form(self, part)


_form = sharing._Numbering.form


def copies_once(net: str, columns: str, where: str = "") -> str:
    return f"SELECT {columns} FROM {net}{where}"


def codes_of_the_first_column(table: Any) -> Any:
    return row_codes(table.select([0]))


def met_without_null(rows: pa.Table, keys: Any) -> Any:
    return _met(rows, {name: values.drop_null() for name, values in keys.items()})


_met = lookups._met


def source_as_it_is(self: Places, kind: str, name: str, given: RefreshInput) -> Any:
    return _source(self, "new", name, given)


_source = Places._source
