"""Rows that a scan may leave out make no difference: by hand, and as a law over random trees in plain Python."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pyarrow as pa
import pytest
from tests.support.random_trees import MOST_PAIRS, Grower
from tests.support.trees import Data, bag, evaluated, origin_values, rows_read

from headwater.delta.context import changes_place
from headwater.delta.near import EQUAL, SAME, Pair, bounded, depth, origins, restricted, with_where
from headwater.plan.expressions import AggregateCall, Call, Column, ColumnRef, Expression, Literal, SortKey
from headwater.plan.operators import (
    Aggregate,
    At,
    Expand,
    Filter,
    Generate,
    Join,
    JoinKind,
    Named,
    NamedAggregate,
    NamedWindow,
    Near,
    Operator,
    Project,
    Scan,
    SemiJoin,
    Side,
    Stage,
    Top,
    Union,
    Via,
    Window,
    WindowCall,
    walk_operators,
)
from headwater.plan.simplify import simplified
from headwater.plan.where import Comparison, Kind, Where

ID, PARENT, U_ID, K, G = (Column(i, n, "INT") for i, n in enumerate(("id", "parent", "id", "k", "g"), 1))
T = Scan("t", (ID, PARENT), ("id", "parent"), Side.NEW)
U = Scan("u", (U_ID, K, G), ("id", "k", "g"), Side.NEW)
N = Column(20, "n", "BIGINT", nullable=False)


def table(names: str, *rows: tuple[int | None, ...]) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table({n: pa.array(c, pa.int32()) for n, c in zip(names.split(), columns, strict=True)})


DATA = Data(
    {
        (Side.NEW, "t"): table("id parent", (1, None), (2, 1), (3, 1), (4, 2), (5, 9)),
        (Side.NEW, "u"): table("id k g", (1, 1, 1), (2, 2, 1), (3, 3, 2), (4, 4, 2), (5, 2, 1)),
        (Side.NEW, "v"): table("id", (1,), (2,), (3,), (4,), (None,)),
    },
    {changes_place("t"): table("id parent", (4, 2), (6, 3))},
)


def compared(a: Column, sign: str, b: Column | int) -> Call:
    other = ColumnRef(b.id) if isinstance(b, Column) else Literal(str(b))
    return Call(sign, (ColumnRef(a.id), other), "({0} " + sign + " {1})")


def both(a: Expression, b: Expression) -> Call:
    return Call("and", (a, b), "({0} AND {1})")


def again(op: Operator, first: int) -> Operator:
    """Return `op` under other numbers, from `first` on."""
    return Project(op, tuple(Named(replace(c, id=i), ColumnRef(c.id)) for i, c in enumerate(op.output, first)))


def counted(op: Operator, *groups: Column) -> Aggregate:
    return Aggregate(op, groups, (NamedAggregate(N, AggregateCall("count", (Literal("1"),), "count({0})")),))


def integer(name: str, test: str, value: int) -> Where:
    return Where(name, Comparison(test), Kind.INTEGER, (value,))


def scans(op: Operator) -> list[Scan]:
    return [o for o in walk_operators(op) if isinstance(o, Scan)]


def found(op: Operator, *columns: Column) -> list[tuple[int | None, ...]]:
    """Return these columns of the rows of a tree."""
    return sorted(tuple(r[c.id] for c in columns) for r in evaluated(op, DATA))


# a part that is read twice ----------------------------------------------------------------------------------------------------

PART = Join(T, U, JoinKind.SEMI, (compared(U_ID, "=", ID),))
OTHER = again(PART, 11)
OTHER_ID, OTHER_PARENT = OTHER.output


def test_columns_of_one_side_are_not_compared_with_those_of_the_other_below_them() -> None:
    """Below the other side its parent has the number 2, and a number 1 is there too: another row's id."""
    tree = with_where(Join(PART, OTHER, JoinKind.INNER, (compared(OTHER_PARENT, "=", ID),)))
    assert [(s.table, s.where) for s in scans(tree)] == [("t", ()), ("u", ()), ("t", ()), ("u", ())]
    assert found(tree, ID, OTHER_ID) == [(1, 2), (1, 3), (2, 4)]


def test_rows_of_one_part_that_are_ordered_by_a_join() -> None:
    conditions = (compared(PARENT, "=", OTHER_PARENT), compared(ID, "<", OTHER_ID))
    tree = with_where(Join(PART, OTHER, JoinKind.INNER, conditions))
    assert not any(s.where for s in scans(tree))
    assert found(tree, ID, OTHER_ID) == [(2, 3)]


def test_each_side_is_asked_for_what_its_own_columns_are_asked_for() -> None:
    own = both(compared(OTHER_PARENT, "=", ID), both(compared(OTHER_ID, ">", 2), compared(OTHER_ID, ">", OTHER_PARENT)))
    tree = with_where(Filter(Join(PART, OTHER, JoinKind.INNER, (own,)), compared(ID, "=", 1)))
    of_other = (integer("id", ">", 2), Where("id", Comparison.GREATER, Kind.COLUMN, ("parent",)))
    assert [s.where for s in scans(tree) if s.table == "t"] == [(integer("id", "=", 1),), of_other]
    assert found(tree, ID, OTHER_ID) == [(1, 3)]


@pytest.mark.parametrize("having", [False, True], ids=["all groups", "some groups"])
def test_keys_that_lie_behind_an_aggregate_that_is_read_twice(having: bool) -> None:
    groups = counted(U, G, K)
    others = again(groups, 11)
    other_g, other_k, _ = others.output
    conditions = [compared(G, "=", other_g), compared(K, "<", other_k)]
    conditions += [compared(other_k, ">", 2)] if having else []
    pairs = Join(groups, others, JoinKind.INNER, tuple(conditions))
    v = Column(30, "id", "INT")
    side = bounded(Scan("v", (v,), ("id",), Side.NEW), pairs, [Pair(v, other_k, null_safe=False)])
    where = (integer("k", ">", 2),) if having else ()
    assert [s.near for s in scans(side)] == [(Near("id", (Via(Side.NEW, "u", "k", (), where),), null_safe=False),)]
    tree = Join(pairs, side, JoinKind.INNER, (compared(v, "=", other_k),))
    assert found(tree, K, v) == ([(3, 4)] if having else [(1, 2), (3, 4)])
    assert found(with_where(tree), K, v) == found(tree, K, v)


def test_changes_of_a_part_are_followed_by_their_own_columns() -> None:
    """A change and the table that it is a change of, under the same numbers below: what is asked of the change stays with it."""
    delta = replace(T, side=Side.DELTA)
    others = again(T, 11)
    other_id, _ = others.output
    met = Filter(Join(delta, others, JoinKind.INNER, (compared(other_id, "=", PARENT),)), compared(ID, "<", 5))
    side = bounded(U, met, [Pair(U_ID, ID, null_safe=False)])
    at_hand = At("changes:t", "id", (integer("id", "<", 5),))
    assert [s.near for s in scans(side)] == [(Near("id", (at_hand,), null_safe=False),)]
    tree = Join(met, side, JoinKind.INNER, (compared(U_ID, "=", ID),))
    assert found(with_where(tree), ID, other_id, K) == [(4, 2, 4)]


# how far a condition goes -----------------------------------------------------------------------------------------------------

ON = (compared(ID, "=", U_ID),)
NEW_ID = Column(40, "renamed", "INT")
COUNT = NamedWindow(N, WindowCall("count", (Literal("1"),), "count({0})"))
REACHED = {
    "a filter": (Filter(T, compared(PARENT, "<", 5)), ID, "t"),
    "another number": (Project(T, (Named(NEW_ID, ColumnRef(ID.id)),)), NEW_ID, "t"),
    "what is grouped by": (counted(T, ID), ID, "t"),
    "every branch of a union": (Union((T, again(T, 50)), (NEW_ID, N)), NEW_ID, "tt"),
    "the rows of a semi join": (SemiJoin(T, U, ((ID, U_ID),)), ID, "t"),
    "the left side of an inner join": (Join(T, U, JoinKind.INNER, ON), ID, "t"),
    "the right side of an inner join": (Join(T, U, JoinKind.INNER, ON), U_ID, "u"),
    "the left side of a left join": (Join(T, U, JoinKind.LEFT, ON), ID, "t"),
    "the left side of a single join": (Join(T, U, JoinKind.SINGLE, ON), ID, "t"),
    "the left side of a join that asks for matches": (Join(T, U, JoinKind.SEMI, ON), ID, "t"),
    "the left side of a join that asks for none": (Join(T, U, JoinKind.ANTI, ON), ID, "t"),
    "the left side of a join that counts matches": (Join(T, U, JoinKind.EXISTENCE, ON, exists=N), ID, "t"),
}
PLUS = Call("+", (ColumnRef(ID.id), Literal("1")), "({0} + {1})")
NOT_REACHED = {
    "what is computed": (Project(T, (Named(NEW_ID, PLUS),)), NEW_ID),
    "what is counted": (counted(T, ID), N),
    "the right side of a left join": (Join(T, U, JoinKind.LEFT, ON), U_ID),
    "the right side of a single join": (Join(T, U, JoinKind.SINGLE, ON), U_ID),
    "the left side of a full join": (Join(T, U, JoinKind.FULL, ON), ID),
    "the right side of a full join": (Join(T, U, JoinKind.FULL, ON), U_ID),
    "whether there is a match": (Join(T, U, JoinKind.EXISTENCE, ON, exists=N), N),
    "the rows of a partition": (Window(T, (PARENT,), (), (COUNT,)), ID),
    "the first rows": (Top(T, (SortKey(ID), SortKey(PARENT)), 2), ID),
    "what is generated": (
        Generate(T, Call("explode", (ColumnRef(1), ColumnRef(2)), "explode(array({0}, {1}))"), (N,)),
        N,
    ),
    "rows of grouping sets": (Expand(T, ((ColumnRef(1),), (Literal("CAST(NULL AS INT)"),)), (NEW_ID,)), NEW_ID),
}


@pytest.mark.parametrize(("op", "column", "reached"), REACHED.values(), ids=REACHED.keys())
def test_a_condition_goes_down_to(op: Operator, column: Column, reached: str) -> None:
    tree = with_where(Filter(op, compared(column, ">", 1)))
    assert [s.table for s in scans(tree) if integer("id", ">", 1) in s.where] == list(reached)


@pytest.mark.parametrize(("op", "column"), NOT_REACHED.values(), ids=NOT_REACHED.keys())
def test_a_condition_does_not_go_down_to(op: Operator, column: Column) -> None:
    tree = Filter(op, compared(column, ">", 1))
    assert with_where(tree) == tree


@pytest.mark.parametrize("kind", [k for k in JoinKind if k is not JoinKind.INNER], ids=lambda k: k.value)
def test_what_a_join_asks_of_a_row_drops_no_row_that_it_keeps(kind: JoinKind) -> None:
    tree = Join(T, U, kind, (*ON, compared(ID, ">", 1)), exists=N if kind is JoinKind.EXISTENCE else None)
    assert with_where(tree) == tree


# where values come from -------------------------------------------------------------------------------------------------------


def test_the_columns_that_values_come_from() -> None:
    asked = compared(ID, ">", 1)
    where = (integer("id", ">", 1),)
    of_t = Via(Side.NEW, "t", "id", (), where)
    assert origins(Filter(T, asked), ID.id) == (of_t,)
    assert origins(T, ID.id, (asked,)) == (of_t,)
    assert origins(Filter(counted(T, ID), asked), ID.id) == (of_t,)
    assert origins(Join(T, U, JoinKind.INNER, (asked,)), ID.id) == (of_t,)
    assert origins(replace(T, side=Side.DELTA), ID.id, (asked,)) == (At("changes:t", "id", where),)
    assert origins(Stage("s", (ID,)), ID.id, (asked,)) == (At("stage:s", "c1"),)
    of_both = Filter(Union((T, again(T, 50)), (NEW_ID, N)), compared(NEW_ID, ">", 1))
    assert origins(of_both, NEW_ID.id) == (of_t, of_t)


@pytest.mark.parametrize(
    ("op", "column"),
    [
        (Project(T, (Named(NEW_ID, PLUS),)), NEW_ID),
        (counted(T, ID), N),
        (Union((T, Project(T, (Named(K, PLUS), Named.same(PARENT)))), (NEW_ID, N)), NEW_ID),
        (Join(T, U, JoinKind.LEFT, ON), U_ID),
        (replace(T, side=Side.KEPT), ID),
        (replace(T, side=Side.PLAIN), ID),
    ],
    ids=["computed", "counted", "computed in one branch", "filled with NULL", "kept", "plain"],
)
def test_values_that_come_from_no_column(op: Operator, column: Column) -> None:
    assert origins(op, column.id) is None


# the law ----------------------------------------------------------------------------------------------------------------------

TREES = 900
CHAINS = 600
RESTRICTIONS = 500


def without_limits(op: Operator) -> Operator:
    if isinstance(op, Scan):
        return replace(op, near=(), where=())
    return op.with_inputs(*(without_limits(i) for i in op.inputs))


def test_conditions_on_scans_drop_no_row_that_matters() -> None:
    """With and without them random trees yield the same, and all values of a column are among those of its origins."""
    seen: Counter[str] = Counter()
    for seed in range(TREES):
        grower = Grower(Random(seed))
        tree = grower.tree(grower.rng.randint(2, 4))
        rows = grower.rows(tree)
        limited = with_where(simplified(tree) if seed % 3 == 0 else tree)
        assert bag(grower.rows(limited)) == bag(rows), f"with_where, seed {seed}"
        for column in tree.output:
            sources = origins(tree, column.id)
            if sources is not None:
                values = set().union(*(origin_values(s, grower.data) for s in sources))
                assert {r[column.id] for r in rows} <= values, f"origins of {column.id}, seed {seed}"
                seen["origins with conditions"] += any(s.where for s in sources)
        if rows:
            seen["trees with rows"] += 1
            seen["trees with conditions"] += any(s.where for s in scans(limited))
            seen["trees that read less"] += rows_read(limited, grower.data) < rows_read(tree, grower.data)
    assert seen["trees with rows"] > 850
    assert seen["trees with conditions"] > 280
    assert seen["trees that read less"] > 260
    assert seen["origins with conditions"] > 350


def chained(grower: Grower) -> tuple[Operator, Operator]:
    """Return a change joined with one part after another, and the same with each part limited by what it meets."""
    rng = grower.rng
    plain = limited = grower.tree(rng.randint(0, 2), (Side.DELTA, Side.DELTA, Side.NEW))
    parts = [plain]
    for _ in range(rng.randint(1, 3)):
        is_new = rng.random() < 0.7
        part = grower.tree(rng.randint(0, 2), (Side.NEW, Side.OLD)) if is_new else grower.again(rng.choice(parts))
        if len(grower.rows(plain)) * len(grower.rows(part)) > MOST_PAIRS:
            break
        parts.append(part)
        plain, limited = joined(grower, plain, limited, part)
    return plain, limited


def joined(grower: Grower, plain: Operator, limited: Operator, part: Operator) -> tuple[Operator, Operator]:
    rng = grower.rng

    def met() -> Join:
        drawn = [(rng.choice(plain.output), rng.choice(part.output)) for _ in range(rng.randint(1, 2))]
        form = rng.choice((EQUAL, EQUAL, SAME))
        return Join(
            plain, part, JoinKind.INNER, tuple(Call("=", (ColumnRef(a.id), ColumnRef(b.id)), form) for a, b in drawn)
        )

    found = grower.lively(met)
    assert isinstance(found, Join)
    pairs = met_pairs(found)
    if rng.random() < 0.5:
        side = bounded(part, limited, pairs)
    else:
        keys = grower.again(limited)
        fresh = {c.id: k for c, k in zip(limited.output, keys.output, strict=True)}
        side = restricted(part, keys, [replace(p, key=fresh[p.key.id]) for p in pairs])
    with_limits = found.with_inputs(limited, side)
    if rng.random() < 0.6:
        return found, with_limits
    top = grower.lively(lambda: Filter(found, grower.condition(found.output)))
    return top, top.with_inputs(with_limits)


def met_pairs(join: Join) -> list[Pair]:
    columns = {c.id: c for c in join.output}
    pairs = []
    for condition in join.conditions:
        assert isinstance(condition, Call)
        key, column = (columns[a.id] for a in condition.args if isinstance(a, ColumnRef))
        pairs.append(Pair(column, key, null_safe=condition.form == SAME))
    return pairs


def test_rows_that_meet_none_of_a_change_are_not_missed() -> None:
    """Joins that start at a change yield the same with and without limits on their parts."""
    seen: Counter[str] = Counter()
    for seed in range(CHAINS):
        grower = Grower(Random(seed))
        plain, tree = chained(grower)
        limited = with_where(simplified(tree))
        rows = grower.rows(plain)
        assert bag(grower.rows(limited)) == bag(rows), f"seed {seed}"
        near = [n for s in scans(limited) for n in s.near]
        if rows:
            seen["chains with rows"] += 1
            seen["chains with limits"] += bool(near)
            seen["chains that read less"] += rows_read(limited, grower.data) < rows_read(
                without_limits(limited), grower.data
            )
            seen["limits behind tables"] += any(depth(n) > 0 for n in near)
            seen["limits with conditions"] += any(v.where for n in near for v in n.sources)
    assert seen["chains with rows"] > 500
    assert seen["chains with limits"] > 320
    assert seen["chains that read less"] > 320
    assert seen["limits behind tables"] > 170
    assert seen["limits with conditions"] > 70


def test_what_is_restricted_are_the_rows_that_are_found_in_the_keys() -> None:
    """However deep a restriction goes, it is the semi join with the keys on top."""
    seen: Counter[str] = Counter()
    for seed in range(RESTRICTIONS):
        grower = Grower(Random(seed))
        rng = grower.rng
        op, keys = grower.tree(rng.randint(1, 3)), grower.tree(rng.randint(0, 1), (Side.DELTA,))
        on = [(rng.choice(op.output), rng.choice(keys.output)) for _ in range(rng.randint(1, 2))]
        whole = SemiJoin(op, keys, tuple(on))
        limited = with_where(restricted(op, keys, [Pair(a, b) for a, b in on]))
        rows = grower.rows(whole)
        assert bag(grower.rows(limited)) == bag(rows), f"seed {seed}"
        if rows:
            seen["with rows"] += 1
            seen["without some rows"] += len(rows) < len(grower.rows(op))
            seen["with limits"] += any(s.near for s in scans(limited))
    assert seen["with rows"] > 340
    assert seen["without some rows"] > 220
    assert seen["with limits"] > 190
