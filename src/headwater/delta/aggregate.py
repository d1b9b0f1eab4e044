"""Delta of an aggregate.

    delta(agg(R))  =  - old state of the changed groups  +  new state of the changed groups
    new state      =  old state merged with the changes, where every call has an algebra
                   =  agg(R', changed groups) elsewhere

The state of every group, also of one that a HAVING hides, is kept in an auxiliary table; what users see is a projection of it.
Old state and change rows meet in one GROUP BY over their union, so no join is needed and sums of wide decimals stay exact.

DISTINCT calls read the changes of a nested aggregate without calls, which keeps how often each (group, value) occurs: a value
counts when it appears and stops counting when its last copy is gone.

Relies on: arguments and filters are columns (`with_argument_columns`), a change row weighs +1 or -1, and an old row that is deleted
was inserted before. A count below zero says that it was not, and fails the refresh.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headwater.delta.accumulators import FLOATS, Accumulator, ChangeRow, counter
from headwater.delta.aggregates import NO_DISTINCT, ROW_COUNT, Kept, Strategy, kept
from headwater.delta.context import (
    WEIGHT,
    Delta,
    DeltaContext,
    DeltaOptions,
    StateStage,
    Term,
    call,
    cast,
    null_of,
    source_column,
    stage_place,
    state_field,
)
from headwater.delta.near import Pair, restricted
from headwater.model.schema import TableSchema
from headwater.plan.canonical import NO_ORDER
from headwater.plan.expressions import AggregateCall, Column, ColumnRef, Expression, Literal, column_ids, substituted
from headwater.plan.operators import (
    Aggregate,
    Expand,
    Filter,
    Named,
    NamedAggregate,
    Operator,
    Project,
    Scan,
    SemiJoin,
    Side,
    Stage,
    Union,
    walk_operators,
)

_ROW_BY_ROW = (Scan, Filter, Project, Expand, Union, Aggregate)


@dataclass(frozen=True, slots=True)
class _Slot:
    """An accumulator in a state table: its columns and which changes it reads (0: the input, n: the n-th distinct source)."""

    columns: tuple[Column, ...]
    accumulator: Accumulator
    args: tuple[Expression, ...]
    filter: Expression | None
    source: int


@dataclass(frozen=True, slots=True)
class _Design:
    """The state of one aggregate: its columns, slots, and the value of each call."""

    groups: tuple[Column, ...]
    rows: Column
    slots: tuple[_Slot, ...]
    results: tuple[Expression, ...]
    distinct: tuple[tuple[tuple[Expression, ...], Expression | None], ...]
    strategy: Strategy

    @property
    def columns(self) -> tuple[Column, ...]:
        return (*self.groups, self.rows, *(c for s in self.slots for c in s.columns))

    @property
    def values(self) -> tuple[Column, ...]:
        return self.columns[len(self.groups) :]


def aggregate_delta(op: Aggregate, ctx: DeltaContext) -> Delta:
    """Declare the stage that keeps the state of `op`; return the term that turns its rows into rows of `op`."""
    design = _design(op, ctx)
    keys, key_columns = _changes(op, design, ctx)
    number = len(ctx.stages)  # what the input needs has declared its own stages by now
    name = ctx.state_names.get(op, f"state{number}")
    keys_stage = Stage(f"keys{number}", key_columns)
    flag = ctx.fresh("rescan", "BOOLEAN", nullable=False)
    paired = ctx.fresh("paired", "BOOLEAN", nullable=False)
    schema = TableSchema(tuple(state_field(c) for c in design.columns), tuple(g.name for g in design.groups))
    old = Scan(name, design.columns, tuple(c.name for c in design.columns), Side.KEPT)
    changed_old = _restrict_old(old, keys_stage, design)
    if design.strategy is Strategy.RESCAN:
        delta, few = (_old_rows(o, design, flag, paired) for o in (changed_old, old))
        many = few
    else:
        delta, few = (_as_pairs(op, o, keys_stage, design, flag, paired, ctx) for o in (changed_old, old))
        many = _apart(op, old, keys_stage, design, flag, paired, ctx) if op.calls else few
    rescan_groups = tuple(ctx.again(g) for g in design.groups)
    rescan_stage = Stage(f"rescan{number}", rescan_groups)
    fresh_input = ctx.new(op.input)
    ctx.stages.append(
        StateStage(
            name=name,
            schema=schema,
            columns=design.columns,
            groups=design.groups,
            keys=keys,
            keys_columns=key_columns,
            keys_name=keys_stage.name,
            delta=delta,
            delta_of_few=few,
            delta_of_many=many,
            paired=paired,
            flag=flag,
            initial=_computed(op, fresh_input, design, ctx),
            rescan=_rescanned(op, fresh_input, rescan_stage, design, ctx),
            rescan_name=rescan_stage.name,
            rescan_groups=rescan_groups,
            strategy=design.strategy.value,
            always_rescan=design.strategy is Strategy.RESCAN,
            source_groups=tuple(source_column(op.input, g) for g in op.groups),
            is_direct=all(isinstance(o, _ROW_BY_ROW) for o in walk_operators(op.input)),
        )
    )
    results = _results(op, design)
    ctx.kept[op] = Project(replace(old, side=Side.NEW), results)
    changed: Operator = Stage(name, (*design.columns, WEIGHT, paired))
    if not op.calls:  # a group that lasts has no values that could change
        changed = Filter(changed, call("NOT {0}", ColumnRef(paired.id)))
    return (Term((stage_place(name),), Project(changed, (*results, Named.same(WEIGHT)))),)


def strategy_of(op: Aggregate, options: DeltaOptions) -> Strategy:
    """Say how the state of `op` follows changes."""
    return _design(op, DeltaContext(rules=lambda op, ctx: (), options=options)).strategy


# design ---------------------------------------------------------------------------------------------------------------------


def _design(op: Aggregate, ctx: DeltaContext) -> _Design:
    types = {c.id: c.type for c in op.input.output}
    groups = tuple(replace(ctx.again(g), name=f"g{i}") for i, g in enumerate(op.groups))
    if not groups:
        groups = (ctx.fresh("g0", "INT", nullable=False),)
    rows = ctx.fresh("n", "BIGINT", nullable=False)
    chosen = [_kept(c, types, ctx) for c in op.calls]
    if any(k is None for k in chosen):
        return _rescanned_design(op, groups, rows, ctx)
    slots: dict[str, _Slot] = {}
    sources: list[tuple[tuple[Expression, ...], Expression | None]] = []
    results = []
    strategy = Strategy.ALGEBRAIC
    for aggregate, choice in zip(op.calls, chosen, strict=True):
        assert choice is not None
        made = aggregate.call
        source = 0
        if _is_distinct(made):
            real = tuple(a for a in made.args if isinstance(a, ColumnRef))
            if (real, made.filter) not in sources:
                sources.append((real, made.filter))
            source = 1 + sources.index((real, made.filter))
        states = []
        for key, accumulator in choice.accumulators:
            if source == 0 and key == ROW_COUNT:
                states.append([ColumnRef(rows.id)])
                continue
            label = f"{source} {key}"
            if label not in slots:
                columns = tuple(ctx.fresh(f"s{_width(slots) + i}", t) for i, t in enumerate(accumulator.types))
                real_args = tuple(a for a in made.args if isinstance(a, ColumnRef))
                slots[label] = _Slot(columns, accumulator, real_args, made.filter if source == 0 else None, source)
            states.append([ColumnRef(c.id) for c in slots[label].columns])
        results.append(cast(choice.result(states), aggregate.column.type))
        if choice.strategy is Strategy.BEST_VALUES:
            strategy = Strategy.BEST_VALUES
    return _Design(groups, rows, tuple(slots.values()), tuple(results), tuple(sources), strategy)


def _width(slots: dict[str, _Slot]) -> int:
    return sum(len(s.columns) for s in slots.values())


def _is_distinct(aggregate: AggregateCall) -> bool:
    return aggregate.distinct and aggregate.name not in NO_DISTINCT


def _kept(aggregate: NamedAggregate, types: dict[int, str], ctx: DeltaContext) -> Kept | None:
    made = aggregate.call
    arg_types = [types[a.id] if isinstance(a, ColumnRef) else "" for a in made.args]
    if not _is_distinct(made):
        return kept(replace(made, distinct=False), arg_types, aggregate.column.type, ctx.options)
    if made.name not in ("count", "sum", "avg") or any(not isinstance(a, ColumnRef) for a in made.args):
        return None
    if made.name != "count" and arg_types[0] in FLOATS:
        return None
    if any(NO_ORDER.search(t) for t in arg_types):  # equal and yet not the same, or not to be looked up
        return None
    choice = kept(replace(made, distinct=False), arg_types, aggregate.column.type, ctx.options)
    if choice is None:
        return None
    places = ", ".join(f"{{{i}}}" for i in range(len(made.args)))
    firsts = {
        "count_if": f"count(DISTINCT {places})",
        "count": f"count(DISTINCT {places})",
        "sum": "sum(DISTINCT {0})",
    }
    accumulators = tuple(
        (key, replace(a, initial=tuple(replace(i, form=firsts[i.name]) for i in a.initial)))
        for key, a in choice.accumulators
    )
    return replace(choice, accumulators=accumulators)


def _rescanned_design(op: Aggregate, groups: tuple[Column, ...], rows: Column, ctx: DeltaContext) -> _Design:
    """Keep the finished values themselves: they are read back, never computed a second time."""
    slots = []
    results: list[Expression] = []
    for i, aggregate in enumerate(op.calls):
        column = ctx.fresh(f"s{i}", aggregate.column.type)
        accumulator = Accumulator(
            types=(column.type,),
            initial=(aggregate.call,),
            finish=lambda made: tuple(made),
            parts=lambda row: (),
            merge=lambda old, part: (),
        )
        slots.append(_Slot((column,), accumulator, (), None, 0))
        results.append(ColumnRef(column.id))
    return _Design(groups, rows, tuple(slots), tuple(results), (), Strategy.RESCAN)


# trees ----------------------------------------------------------------------------------------------------------------------


def _group_items(op: Aggregate, groups: Sequence[Column]) -> list[Named]:
    """Return the group columns of `op` under new ids; a constant where there are none."""
    if not op.groups:
        return [Named(groups[0], Literal("0"))]
    return [Named(new, ColumnRef(old.id)) for new, old in zip(groups, op.groups, strict=True)]


def _read_columns(design: _Design) -> list[int]:
    """Return the input columns that the slots read, each once."""
    found: dict[int, None] = {}
    for slot in design.slots:
        for expression in (*slot.args, *([slot.filter] if slot.filter is not None else [])):
            found.update(dict.fromkeys(sorted(column_ids(expression))))
    return list(found)


def _changes(op: Aggregate, design: _Design, ctx: DeltaContext) -> tuple[Delta, tuple[Column, ...]]:
    """Return the change rows that the state follows: groups, arguments, weight, and which source they come from."""
    groups = tuple(ctx.again(g) for g in design.groups)
    tag = ctx.fresh("source", "INT", nullable=False)
    delta = ctx.delta(op.input)
    if design.strategy is Strategy.RESCAN:
        items = (*_group_items(op, groups), Named.same(WEIGHT), Named(tag, Literal("0")))
        return tuple(t.over(lambda tree: Project(tree, items)) for t in delta), (*groups, WEIGHT, tag)
    by_id = {c.id: c for c in op.input.output}
    wanted = [by_id[i] for i in _read_columns(design)]
    args = tuple(ctx.again(c) for c in wanted)
    main = (
        *_group_items(op, groups),
        *(Named(new, ColumnRef(old.id)) for new, old in zip(args, wanted, strict=True)),
        Named.same(WEIGHT),
        Named(tag, Literal("0")),
    )
    terms = [t.over(lambda tree: Project(tree, main)) for t in delta]
    for number, (values, filter_) in enumerate(design.distinct, start=1):
        value_ids = {v.id for v in values if isinstance(v, ColumnRef)}
        counted = Aggregate(
            _present(op.input, values, filter_), _merge_columns(op.groups, [by_id[i] for i in sorted(value_ids)]), ()
        )
        items = tuple(_group_items(op, groups))
        for new, column in zip(args, wanted, strict=True):
            value = ColumnRef(column.id) if column.id in value_ids else null_of(column.type)
            items = (*items, Named(new, value))
        items = (*items, Named.same(WEIGHT), Named(tag, Literal(str(number))))
        terms += [t.over(lambda tree, row=items: Project(tree, row)) for t in ctx.delta(counted)]  # type: ignore[misc]
    return tuple(terms), (*groups, *args, WEIGHT, tag)


def _merge_columns(groups: Sequence[Column], values: Sequence[Column]) -> tuple[Column, ...]:
    known = {g.id for g in groups}
    return (*groups, *(v for v in values if v.id not in known))


def _present(op: Operator, values: Sequence[Expression], filter_: Expression | None) -> Operator:
    """Return the rows whose values are all there and for which the call's filter holds."""
    condition = call("(" + " AND ".join(f"{{{i}}} IS NOT NULL" for i in range(len(values))) + ")", *values)
    if filter_ is not None:
        condition = call("({0} AND {1})", condition, filter_)
    return Filter(op, condition)


def _restrict_old(old: Scan, keys: Stage, design: _Design) -> Operator:
    """Return the old state of changed groups."""
    groups = keys.columns[: len(design.groups)]
    return SemiJoin(
        old, Project(keys, tuple(Named.same(g) for g in groups)), tuple(zip(design.groups, groups, strict=True))
    )


def _old_rows(old: Operator, design: _Design, flag: Column, paired: Column, needs_rescan: str = "true") -> Operator:
    """Return the old state of changed groups as deletions; by default, the new state is read from the source."""
    items = (
        *(Named.same(c) for c in design.columns),
        Named(WEIGHT, Literal("-1")),
        Named(flag, Literal(needs_rescan)),
        Named(paired, Literal("false")),
    )
    return Project(old, items)


@dataclass(frozen=True, slots=True)
class _Merged:
    """One row for each group: its new values, the old ones that were asked for, whether it has to be read again.

    `touched`: whether any change is the group's. The others come where the whole state was given.
    """

    rows: Operator
    groups: tuple[Column, ...]
    existed: Column
    touched: Column
    olds: dict[int, Column]
    news: dict[int, Column]
    exists: Expression
    suspect: Expression


def _merged(
    op: Aggregate, old: Operator, keys: Stage, design: _Design, ctx: DeltaContext, *, with_old: bool
) -> _Merged:
    """Merge the old state of the changed groups with their changes by one GROUP BY over both."""
    width = len(design.groups)
    args, weight, tag = keys.columns[width:-2], keys.columns[-2], keys.columns[-1]
    read = _read_columns(design)
    groups = tuple(ctx.again(g) for g in design.groups)
    is_old = ctx.fresh("is_old", "BOOLEAN", nullable=False)
    merged_args = tuple(ctx.again(a) for a in args)
    merged_weight, merged_tag = ctx.again(weight), ctx.again(tag)
    olds = tuple(ctx.again(c) for c in design.values)
    changes = Project(
        keys,
        (
            *(Named(ctx.again(g), ColumnRef(g.id)) for g in keys.columns[:width]),
            *(Named(ctx.again(a), ColumnRef(a.id)) for a in args),
            Named(ctx.again(weight), ColumnRef(weight.id)),
            Named(ctx.again(tag), ColumnRef(tag.id)),
            Named(ctx.again(is_old), Literal("false")),
            *(Named(ctx.again(c), null_of(c.type)) for c in design.values),
        ),
    )
    state = Project(
        old,
        (
            *(Named(ctx.again(g), ColumnRef(g.id)) for g in design.groups),
            *(Named(ctx.again(a), null_of(a.type)) for a in args),
            Named(ctx.again(weight), Literal("0")),
            Named(ctx.again(tag), Literal("-1")),
            Named(ctx.again(is_old), Literal("true")),
            *(Named(ctx.again(c), ColumnRef(c.id)) for c in design.values),
        ),
    )
    rows = Union((changes, state), (*groups, *merged_args, merged_weight, merged_tag, is_old, *olds), gathered=True)
    place = dict(zip(read, merged_args, strict=True))
    old_of = {c.id: o for c, o in zip(design.values, olds, strict=True)}

    existed, touched = ctx.fresh("existed", "BOOLEAN"), ctx.fresh("touched", "BOOLEAN")
    kept_old = {c.id: ctx.again(c) for c in design.values}
    calls: list[NamedAggregate] = []
    new_of: dict[int, Expression] = {}
    flags: list[Expression] = []
    slots = (_Slot((design.rows,), counter((), None), (), None, 0), *design.slots)
    for slot in slots:
        active = call(f"(NOT {{0}} AND {{1}} = {slot.source})", ColumnRef(is_old.id), ColumnRef(merged_tag.id))
        if slot.filter is not None:
            active = call("({0} AND coalesce({1}, false))", active, _placed(slot.filter, place))
        row = ChangeRow(
            args=tuple(_placed(a, place) for a in slot.args),
            active=active,
            weight=ColumnRef(merged_weight.id),
            is_old=ColumnRef(is_old.id),
            old=tuple(ColumnRef(old_of[c.id].id) for c in slot.columns),
        )
        parts = []
        for part in slot.accumulator.parts(row):
            column = ctx.fresh("part", "")
            calls.append(NamedAggregate(column, part))
            parts.append(ColumnRef(column.id))
        before = [ColumnRef(kept_old[c.id].id) for c in slot.columns]
        new_of.update(zip((c.id for c in slot.columns), slot.accumulator.merge(before, parts), strict=True))
    wanted = {i for e in new_of.values() for i in column_ids(e)}
    olds_kept = {i: c for i, c in kept_old.items() if with_old or c.id in wanted}
    if with_old:
        calls.append(NamedAggregate(existed, AggregateCall("bool_or", (ColumnRef(is_old.id),), "bool_or({0})")))
        calls.append(NamedAggregate(touched, AggregateCall("bool_or", (ColumnRef(is_old.id),), "bool_or(NOT {0})")))
    calls += [NamedAggregate(c, _only(ColumnRef(old_of[i].id), c.type)) for i, c in olds_kept.items()]
    grouped = Aggregate(rows, groups, tuple(calls))

    news = {c.id: ctx.again(c) for c in design.values}
    merged = Project(
        grouped,
        (
            *(Named.same(g) for g in groups),
            *((Named.same(c) for c in (existed, touched, *kept_old.values())) if with_old else ()),
            *(Named(news[c.id], cast(new_of[c.id], c.type)) for c in design.values),
        ),
    )
    for slot in slots:
        suspicion = slot.accumulator.rescan([ColumnRef(news[c.id].id) for c in slot.columns])
        if suspicion is not None:
            flags.append(suspicion)
    count = ColumnRef(news[design.rows.id].id)
    suspect: Expression = Literal("false")
    if flags:
        suspect = call(" OR ".join(f"{{{i}}}" for i in range(len(flags))), *flags)
        suspect = call("(coalesce({0}, true) AND {1} > 0)", suspect, count)
    exists = call("({0} > 0)", count) if op.groups else Literal("true")
    return _Merged(merged, groups, existed, touched, kept_old, news, exists, suspect)


def _only(value: Expression, type_: str) -> AggregateCall:
    """Return the value of the one row that has it; the others hold NULL."""
    if type_.startswith("ARRAY"):
        return AggregateCall("any_value", (value,), "any_value({0}, true)")
    return AggregateCall("max", (value,), "max({0})")


def _apart(
    op: Aggregate, old: Operator, keys: Stage, design: _Design, flag: Column, paired: Column, ctx: DeltaContext
) -> Operator:
    """Return the old state of the changed groups as deletions and the new one as insertions, side by side.

    For whoever takes out what cancels: a group whose state stayed the same comes both ways.
    """
    made = _merged(op, old, keys, design, ctx, with_old=False)
    new = Project(
        Filter(made.rows, made.exists),
        (
            *(Named(ctx.again(g), ColumnRef(g.id)) for g in made.groups),
            *(Named(ctx.again(c), ColumnRef(made.news[c.id].id)) for c in design.values),
            Named(ctx.again(WEIGHT), Literal("1")),
            Named(ctx.again(flag), made.suspect),
            Named(ctx.again(paired), Literal("false")),
        ),
    )
    gone = _old_rows(old, design, flag, paired, needs_rescan="false")
    return Union((gone, new), (*design.columns, WEIGHT, flag, paired))


def _as_pairs(
    op: Aggregate, old: Operator, keys: Stage, design: _Design, flag: Column, paired: Column, ctx: DeltaContext
) -> Operator:
    """Return one deletion per group that existed and one insertion per group that exists, where anything changed."""
    made = _merged(op, old, keys, design, ctx, with_old=True)
    olds, news, exists, suspect = made.olds, made.news, made.exists, made.suspect
    was = ColumnRef(made.existed.id)
    same = call(
        "(" + " AND ".join(f"{{{2 * i}}} <=> {{{2 * i + 1}}}" for i in range(len(design.values))) + ")",
        *(ColumnRef(x.id) for c in design.values for x in (olds[c.id], news[c.id])),
    )
    changed = call("({0} AND (NOT {1} OR {2}))", ColumnRef(made.touched.id), same, suspect)
    keep = ctx.fresh("keep", "BOOLEAN", nullable=False)
    both = call("({0} AND {1})", was, exists)
    group_refs = [ColumnRef(g.id) for g in made.groups]
    expanded = Expand(
        made.rows,
        (
            (
                *group_refs,
                *(ColumnRef(olds[c.id].id) for c in design.values),
                Literal("-1"),
                Literal("false"),
                both,
                call("({0} AND {1})", was, changed),
            ),
            (
                *group_refs,
                *(ColumnRef(news[c.id].id) for c in design.values),
                Literal("1"),
                suspect,
                both,
                call("({0} AND (NOT {1} OR {2}))", exists, was, changed),
            ),
        ),
        (*design.columns, WEIGHT, flag, paired, keep),
    )
    kept_rows = Filter(expanded, ColumnRef(keep.id))
    return Project(kept_rows, tuple(Named.same(c) for c in expanded.columns[:-1]))


def _placed(expression: Expression, place: dict[int, Column]) -> Expression:
    return substituted(expression, {old: ColumnRef(new.id) for old, new in place.items()})


def _rescanned(op: Aggregate, fresh_input: Operator, keys: Stage, design: _Design, ctx: DeltaContext) -> Operator:
    """Return the state of the groups in `keys`, computed afresh; the one group of a query without GROUP BY may not be among them."""
    if not op.groups:
        computed = _computed(op, fresh_input, design, ctx)
        return SemiJoin(computed, keys, tuple(zip(design.groups, keys.columns, strict=True)))
    pairs = [Pair(g, k) for g, k in zip(op.groups, keys.columns, strict=True)]
    return _computed(op, restricted(fresh_input, keys, pairs), design, ctx)


def _computed(op: Aggregate, source: Operator, design: _Design, ctx: DeltaContext) -> Operator:
    """Return the state of all groups of `source`, computed afresh, as columns of the state table."""
    rows = ctx.fresh("n", "BIGINT", nullable=False)
    calls = [NamedAggregate(rows, AggregateCall("count", (Literal("1"),), "count({0})"))]
    made: list[tuple[_Slot, list[Expression]]] = []
    for slot in design.slots:
        columns = [ctx.fresh("initial", "") for _ in slot.accumulator.initial]
        calls += [NamedAggregate(c, i) for c, i in zip(columns, slot.accumulator.initial, strict=True)]
        made.append((slot, [ColumnRef(c.id) for c in columns]))
    grouped = Aggregate(source, op.groups, tuple(calls))
    items = [*_group_items(op, design.groups), Named(design.rows, ColumnRef(rows.id))]
    for slot, values in made:
        for column, value in zip(slot.columns, slot.accumulator.finish(values), strict=True):
            items.append(Named(column, cast(value, column.type)))
    return Project(grouped, tuple(items))


def _results(op: Aggregate, design: _Design) -> tuple[Named, ...]:
    """Return the columns of `op` as expressions over a row of its state."""
    groups = [Named(original, ColumnRef(kept_.id)) for original, kept_ in zip(op.groups, design.groups, strict=False)]
    return (*groups, *(Named(c.column, r) for c, r in zip(op.calls, design.results, strict=True)))
