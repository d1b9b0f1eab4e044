"""Rows compared with a value that moves: what is recognised, what is limited, and why what is left out makes no difference."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from datetime import date
from decimal import Decimal
from random import Random
from typing import Any, cast

import pyarrow as pa
import pytest
from tests.support.trees import Data, evaluated, rows_read, z_set

from headwater.delta.context import WEIGHT, call, stage_place
from headwater.delta.threshold import between, moving, threshold
from headwater.plan.expressions import AggregateCall, Column, ColumnRef, Expression, Literal
from headwater.plan.operators import (
    Aggregate,
    At,
    Between,
    Filter,
    Join,
    JoinKind,
    Named,
    NamedAggregate,
    Near,
    Operator,
    Project,
    Scan,
    SemiJoin,
    Side,
    Stage,
    Union,
    Values,
    walk_operators,
)
from headwater.refresh.places import Places

V, OTHER_V = Column(1, "v", "DECIMAL(14,4)"), Column(2, "other", "DECIMAL(14,4)")
X, Y, ELSEWHERE = Column(11, "x", "INT"), Column(12, "y", "INT"), Column(99, "z", "INT")
SIGNS = ("<", "<=", ">", ">=")


def ref(column: Column) -> ColumnRef:
    return ColumnRef(column.id)


def compared(a: Expression, sign: str, b: Expression) -> Expression:
    return call("({0} " + sign + " {1})", a, b)


def wide(expression: Expression, type_: str = "DECIMAL(14,4)") -> Expression:
    return call("CAST({0} AS " + type_ + ")", expression)


WIDE_X = wide(ref(X))
ABOVE = compared(WIDE_X, ">", ref(V))


# what is recognised -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", SIGNS)
def test_a_column_is_compared_with_what_moves_on_either_side(sign: str) -> None:
    assert threshold([V], [X, Y], [compared(WIDE_X, sign, ref(V))], []) == (X, V)
    assert threshold([V], [X, Y], [compared(ref(V), sign, WIDE_X)], []) == (X, V)


@pytest.mark.parametrize("type_", ["TINYINT", "SMALLINT", "INT", "BIGINT", "DATE", "DECIMAL(9,2)", "DECIMAL(38, 18)"])
def test_types_with_a_plain_order(type_: str) -> None:
    value, column = replace(V, type=type_), replace(X, type=type_)
    assert threshold([value], [column], [compared(ref(column), ">", ref(value))], []) == (column, value)


@pytest.mark.parametrize(
    ("type_", "wider"),
    [
        ("TINYINT", "DECIMAL(3,0)"),
        ("SMALLINT", "DECIMAL(5,0)"),
        ("INT", "DECIMAL(10,0)"),
        ("INT", "DECIMAL(14, 4)"),
        ("BIGINT", "DECIMAL(19,0)"),
        ("DECIMAL(9,2)", "DECIMAL(9,2)"),
        ("DECIMAL(9,2)", "DECIMAL(13,6)"),
        ("DECIMAL(9, 2)", "DECIMAL(10,2)"),
    ],
)
def test_casts_that_lose_nothing(type_: str, wider: str) -> None:
    value, column = replace(V, type=wider), replace(X, type=type_)
    assert threshold([value], [column], [compared(wide(ref(column), wider), "<", ref(value))], []) == (column, value)


@pytest.mark.parametrize(
    ("type_", "narrower"),
    [
        ("TINYINT", "DECIMAL(2,0)"),
        ("INT", "DECIMAL(9,0)"),
        ("INT", "DECIMAL(13,4)"),
        ("BIGINT", "DECIMAL(18,0)"),
        ("BIGINT", "DECIMAL(38,20)"),
        ("DECIMAL(9,2)", "DECIMAL(8,2)"),
        ("DECIMAL(9,2)", "DECIMAL(12,1)"),
        ("DECIMAL(9,2)", "DECIMAL(9,3)"),
        ("DOUBLE", "DECIMAL(38,10)"),
        ("STRING", "DECIMAL(38,10)"),
        ("DATE", "DECIMAL(38,10)"),
        ("BIGINT", "DOUBLE"),
        ("DATE", "TIMESTAMP"),
        ("INT", "STRING"),
    ],
)
def test_casts_that_may_lose_something(type_: str, narrower: str) -> None:
    value, column = replace(V, type=narrower), replace(X, type=type_)
    assert threshold([value], [column], [compared(wide(ref(column), narrower), "<", ref(value))], []) is None


@pytest.mark.parametrize(
    "type_", ["DOUBLE", "FLOAT", "STRING", "STRING COLLATE UTF8_LCASE", "TIMESTAMP", "BOOLEAN", "BINARY", ""]
)
def test_types_without_a_plain_order(type_: str) -> None:
    value, column = replace(V, type=type_), replace(X, type=type_)
    assert threshold([value], [column], [compared(ref(column), ">", ref(value))], []) is None


def test_what_reads_nothing_that_moves_may_be_there() -> None:
    conditions = [compared(ref(X), "=", ref(Y)), ABOVE, compared(ref(ELSEWHERE), "<", ref(X))]
    assert threshold([V, OTHER_V], [X, Y], conditions, [ref(X), call("({0} + {1})", ref(X), ref(Y))]) == (X, V)
    assert threshold([V], [X], [ABOVE], [ref(WEIGHT)]) == (X, V)


REFUSED: dict[str, list[Expression]] = {
    "no condition": [],
    "two conditions": [ABOVE, compared(wide(ref(Y)), "<", ref(V))],
    "the same comparison of another value": [ABOVE, compared(WIDE_X, ">", ref(OTHER_V))],
    "a condition on the value alone": [ABOVE, compared(ref(V), ">", Literal("5"))],
    "nothing but a condition on the value": [compared(ref(V), ">", Literal("5"))],
    "two values that move": [compared(ref(V), ">", ref(OTHER_V))],
    "equality": [compared(WIDE_X, "=", ref(V))],
    "equality of NULLs": [compared(WIDE_X, "<=>", ref(V))],
    "inequality": [compared(WIDE_X, "<>", ref(V))],
    "the opposite": [call("(NOT {0})", ABOVE)],
    "both of two": [call("({0} AND {1})", ABOVE, compared(ref(X), ">", ref(Y)))],
    "one of two": [call("({0} OR {1})", ABOVE, compared(ref(X), ">", ref(Y)))],
    "between": [call("({0} BETWEEN {1} AND {2})", WIDE_X, ref(V), ref(OTHER_V))],
    "a column that is computed": [compared(wide(call("({0} + 1)", ref(X))), ">", ref(V))],
    "a value that is computed": [compared(WIDE_X, ">", call("({0} + 1)", ref(V)))],
    "a value in another type": [compared(WIDE_X, ">", wide(ref(V)))],
    "a value beside the column": [compared(call("({0} + {1})", WIDE_X, ref(V)), ">", ref(V))],
    "a cast that may fail": [compared(call("TRY_CAST({0} AS DECIMAL(14,4))", ref(X)), ">", ref(V))],
    "a column of another input": [compared(wide(ref(ELSEWHERE)), ">", ref(V))],
}


@pytest.mark.parametrize("conditions", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_recognised(conditions: list[Expression]) -> None:
    assert threshold([V, OTHER_V], [X, Y], conditions, []) is None


@pytest.mark.parametrize("read", [ref(V), ref(OTHER_V), call("({0} + {1})", ref(X), ref(V))], ids=lambda e: e.sql)
def test_what_moves_is_read_elsewhere(read: Expression) -> None:
    assert threshold([V, OTHER_V], [X, Y], [ABOVE], []) == (X, V)
    assert threshold([V, OTHER_V], [X, Y], [ABOVE], [ref(X), read]) is None


def test_constants_and_weights_of_changes_do_not_move() -> None:
    stage = Stage("s", (V, OTHER_V, WEIGHT))
    assert moving(stage) == (V, OTHER_V)
    items = (Named.same(V), Named(OTHER_V, Literal("5")), Named(X, call("({0} + 1)", ref(V))), Named.same(WEIGHT))
    assert moving(Project(stage, items)) == (V, X)


# what is limited --------------------------------------------------------------------------------------------------------------

STAGE = Stage("moved", (V, WEIGHT))
T = Scan("t", (X, Y), ("a b", "y"), Side.NEW)
LIMIT = Between("a b", "stage:moved", "c1", WEIGHT.sql)
LIMITED = replace(T, between=LIMIT)
KEYS = Values(((Literal("1"),),), (ELSEWHERE,))
IS_ONE = compared(ref(Y), "=", Literal("1"))
NEW_X = Column(21, "new_x", "INT")


@pytest.mark.parametrize("side", [Side.NEW, Side.OLD])
def test_a_scan_is_limited(side: Side) -> None:
    scan = replace(T, side=side)
    assert between(scan, X.id, STAGE, V) == replace(scan, between=LIMIT)


@pytest.mark.parametrize("side", [Side.DELTA, Side.KEPT, Side.PLAIN])
def test_of_other_sides_all_is_read(side: Side) -> None:
    scan = replace(T, side=side)
    assert between(scan, X.id, STAGE, V) == scan


def test_a_scan_that_is_near_a_change_is_not_limited_twice() -> None:
    scan = replace(T, near=(Near("y", (At("changes:u", "y"),)),))
    assert between(scan, X.id, STAGE, V) == scan


def test_the_limit_goes_down_to_the_scan() -> None:
    assert between(Filter(T, IS_ONE), X.id, STAGE, V) == Filter(LIMITED, IS_ONE)
    on = ((Y, ELSEWHERE),)
    assert between(SemiJoin(T, KEYS, on), X.id, STAGE, V) == SemiJoin(LIMITED, KEYS, on)
    renamed = (Named(Y, ref(X)), Named(NEW_X, ref(Y)))
    assert between(Project(T, renamed), Y.id, STAGE, V) == Project(LIMITED, renamed)
    of_y = replace(T, between=replace(LIMIT, name="y"))
    assert between(Project(T, renamed), NEW_X.id, STAGE, V) == Project(of_y, renamed)
    deep = Filter(SemiJoin(Project(Filter(T, IS_ONE), (Named.same(X), Named.same(Y))), KEYS, on), IS_ONE)
    limited = between(deep, X.id, STAGE, V)
    assert [o.between for o in walk_operators(limited) if isinstance(o, Scan)] == [LIMIT]


def test_keys_of_a_semi_join_are_not_limited() -> None:
    others = replace(T, columns=(ELSEWHERE, NEW_X))
    limited = between(SemiJoin(T, others, ((X, ELSEWHERE),)), X.id, STAGE, V)
    assert limited == SemiJoin(LIMITED, others, ((X, ELSEWHERE),))


COUNT = NamedAggregate(NEW_X, AggregateCall("count", (Literal("1"),), "count({0})"))
UNLIMITED: dict[str, tuple[Operator, Column]] = {
    "what is computed": (Project(T, (Named(NEW_X, call("({0} + 1)", ref(X))),)), NEW_X),
    "what is computed under the same number": (Project(T, (Named(X, call("({0} + 1)", ref(X))),)), X),
    "a constant": (Project(T, (Named(NEW_X, Literal("1")),)), NEW_X),
    "groups": (Aggregate(T, (X,), (COUNT,)), X),
    "a join": (Join(T, KEYS, JoinKind.LEFT), X),
    "a union": (Union((T, T), (X, Y)), X),
    "constant rows": (KEYS, ELSEWHERE),
    "rows of a stage": (Stage("s", (X,)), X),
}


@pytest.mark.parametrize(("op", "column"), UNLIMITED.values(), ids=UNLIMITED.keys())
def test_what_is_not_limited(op: Operator, column: Column) -> None:
    assert between(op, column.id, STAGE, V) == op


# between which values ---------------------------------------------------------------------------------------------------------


def ends(values: pa.Array, weights: list[int]) -> tuple[Any, Any] | None:
    """Return what a refresh finds in the rows of the stage."""
    without = cast(Any, None)
    places = Places(without, without, without, 0, ExitStack())
    places.at_hand["stage:moved"] = pa.table({"c1": values, WEIGHT.sql: pa.array(weights, pa.int32())})
    return places._ends(LIMIT)


def test_the_ends_are_the_least_and_the_greatest_value() -> None:
    assert ends(pa.array([5, 2, 3], pa.int32()), [-1, 2, -1]) == (2, 5)
    decimals = pa.array([Decimal("2.5000"), Decimal("-1.2500")], pa.decimal128(14, 4))
    assert ends(decimals, [1, -1]) == (Decimal("-1.25"), Decimal("2.5"))
    assert ends(pa.array([date(2024, 3, 1), date(2024, 2, 29)]), [1, -1]) == (date(2024, 2, 29), date(2024, 3, 1))


@pytest.mark.parametrize(
    ("values", "weights"),
    [
        (pa.array([], pa.int32()), []),
        (pa.array([2], pa.int32()), [1]),
        (pa.array([2, 3], pa.int32()), [-1, -1]),
        (pa.array([2, 3, 3], pa.int32()), [1, -1, 1]),
        (pa.array([2, None], pa.int32()), [1, -1]),
        (pa.array([None, None], pa.int32()), [1, -1]),
        (pa.array([0, 3_000_000], pa.int32()).cast(pa.date32()), [1, -1]),
    ],
    ids=["no rows", "one comes", "two go", "more come than go", "NULL", "nothing but NULL", "outside of the calendar"],
)
def test_values_that_say_nothing_about_the_rows_between_them(values: pa.Array, weights: list[int]) -> None:
    assert ends(values, weights) is None


# the law ----------------------------------------------------------------------------------------------------------------------

SEEDS = range(400)
ROWS = 12


class Drawn:
    """A random comparison of a random side with random changes."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.value = replace(V, type=self.rng.choice(("DECIMAL(14,4)", "INT")))
        self.side = self._side()
        column = ref(self.rng.choice(self.side.output))
        pair = [column if self.value.type == "INT" else wide(column), ref(self.value)]
        self.rng.shuffle(pair)
        self.conditions = [compared(pair[0], self.rng.choice(SIGNS), pair[1])]
        if self.rng.random() < 0.3:
            self.conditions.append(self._condition(self.side))
        self.values, self.weights = self._changes()
        self.rows = pa.table({n: pa.array([self._integer() for _ in range(ROWS)], pa.int32()) for n in T.names})

    def _side(self) -> Operator:
        op: Operator = replace(T, side=self.rng.choice((Side.NEW, Side.OLD)))
        for _ in range(self.rng.randint(0, 3)):
            match self.rng.randrange(3):
                case 0:
                    op = Filter(op, self._condition(op))
                case 1:
                    op = Project(op, tuple(Named(c, ref(self.rng.choice(op.output))) for c in op.output))
                case _:
                    keys = Values(tuple((Literal(str(k)),) for k in range(-6, 7)), (ELSEWHERE,))
                    op = SemiJoin(op, keys, ((self.rng.choice(op.output), ELSEWHERE),))
        return op

    def _condition(self, op: Operator) -> Expression:
        return compared(
            ref(self.rng.choice(op.output)), self.rng.choice((">", "<=")), Literal(str(self.rng.randint(-3, 3)))
        )

    def _integer(self) -> int | None:
        return self.rng.randint(-9, 9) if self.rng.random() < 0.9 else None

    def _changes(self) -> tuple[pa.Array, list[int]]:
        """Return values and weights; the weights add up to nothing."""
        weights = [self.rng.choice((-2, -1, 1, 2)) for _ in range(self.rng.randint(1, 4))]
        weights.append(-sum(weights))
        quarters = [self.rng.randint(-16, 16) for _ in weights]
        if self.value.type == "INT":
            return pa.array([q // 4 for q in quarters], pa.int32()), weights
        return pa.array([Decimal(q) / 4 for q in quarters], pa.decimal128(14, 4)), weights

    @property
    def data(self) -> Data:
        moved = pa.table({self.value.sql: self.values, WEIGHT.sql: pa.array(self.weights, pa.int32())})
        return Data({(s, "t"): self.rows for s in (Side.NEW, Side.OLD)}, {stage_place("moved"): moved})

    @property
    def found(self) -> tuple[Column, Column]:
        made = threshold([self.value], self.side.output, self.conditions, [ref(c) for c in self.side.output])
        assert made is not None
        return made

    @property
    def limited(self) -> Operator:
        column, value = self.found
        return between(self.side, column.id, STAGE, value)

    def joined(self, side: Operator) -> dict[tuple[tuple[int, Any], ...], int]:
        """Return what comes and goes if the changes are joined with a side."""
        changes = Stage("moved", (self.value, WEIGHT))
        join = Join(changes, side, JoinKind.INNER, tuple(self.conditions))
        return z_set(evaluated(Project(join, tuple(Named.same(c) for c in (*side.output, WEIGHT))), self.data))


def test_of_values_that_come_as_often_as_they_go_only_rows_between_them_matter() -> None:
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        drawn = Drawn(seed)
        changes = drawn.joined(drawn.side)
        assert drawn.joined(drawn.limited) == changes, f"seed {seed}"
        assert ends(drawn.values, drawn.weights) is not None
        if changes:
            seen["with changes"] += 1
            seen["reading less"] += rows_read(drawn.limited, drawn.data) < rows_read(drawn.side, drawn.data)
    assert seen["with changes"] > 200
    assert seen["reading less"] > 200


def test_of_values_that_come_more_often_than_they_go_all_rows_matter() -> None:
    """So what the weights add up to has to be looked at, and is."""
    wrong = 0
    for seed in SEEDS:
        drawn = Drawn(seed)
        drawn.weights[0] += drawn.rng.choice((-1, 1))
        wrong += drawn.joined(drawn.limited) != drawn.joined(drawn.side)
        assert ends(drawn.values, drawn.weights) is None
    assert wrong > 200


def test_of_values_that_come_for_nothing_all_rows_matter() -> None:
    """NULL is not compared, so the weights of the values that are do not add up to nothing."""
    wrong = 0
    for seed in SEEDS:
        drawn = Drawn(seed)
        drawn.values = pa.concat_arrays([pa.nulls(1, drawn.values.type), drawn.values[1:]])
        wrong += drawn.joined(drawn.limited) != drawn.joined(drawn.side)
        assert ends(drawn.values, drawn.weights) is None
    assert wrong > 200


def test_a_value_that_is_read_elsewhere_tells_rows_apart_that_would_cancel() -> None:
    """Why nothing but the comparison may read it: with the value beside them, rows outside of the ends come and go, too."""
    wrong = 0
    for seed in SEEDS:
        drawn = Drawn(seed)
        changes = Stage("moved", (drawn.value, WEIGHT))
        whole, limited = (
            z_set(evaluated(Join(changes, side, JoinKind.INNER, tuple(drawn.conditions)), drawn.data))
            for side in (drawn.side, drawn.limited)
        )
        wrong += whole != limited
    assert wrong > 200
