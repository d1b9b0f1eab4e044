"""Rows that are kept are those for which conditions hold; where Arrow cannot tell, all of them."""

from __future__ import annotations

from datetime import date
from typing import Any

import pyarrow as pa
import pytest

from headwater.plan.where import Comparison, Kind, Where
from headwater.store.where import are_judged, columns_of, rows_where

ORDERED = {
    Comparison.EQUAL: [2],
    Comparison.LESS: [1],
    Comparison.LESS_EQUAL: [1, 2],
    Comparison.GREATER: [3],
    Comparison.GREATER_EQUAL: [2, 3],
}
"""Which of 1, 2 and 3 are kept if they are compared with 2."""

STRINGS = ["", "a", "A", "ab", "ba", "aba", "b", "é", "a%", "a\nb", "ab ", None]


def kept(values: list[Any], type_: pa.DataType, *where: Where) -> list[Any]:
    """Return what is kept of rows with one column, x."""
    found: list[Any] = rows_where(pa.table({"x": pa.array(values, type_)}), where).column("x").to_pylist()
    return found


def text(test: Comparison, *values: str) -> Where:
    return Where("x", test, Kind.TEXT, values)


def integer(test: Comparison, *values: int) -> Where:
    return Where("x", test, Kind.INTEGER, values)


def day(number: int) -> date:
    return date(2024, 2, 26 + number)


# a column that is a condition ----------------------------------------------------------------------------------------------------


def test_rows_are_kept_where_a_column_is_true() -> None:
    where = Where("x", Comparison.EQUAL, Kind.BOOLEAN, (1,))
    assert kept([True, None, False, True], pa.bool_(), where) == [True, True]
    assert kept([1, 0], pa.int32(), where) == [1, 0]
    assert columns_of([where]) == ["x"]
    assert are_judged(pa.table({"x": [True]}), [where])
    assert not are_judged(pa.table({"x": [1]}), [where])


# constants --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("test", ORDERED)
@pytest.mark.parametrize("type_", [pa.int8(), pa.int16(), pa.int32(), pa.int64()], ids=str)
def test_integers_of_every_width_are_compared(test: Comparison, type_: pa.DataType) -> None:
    assert kept([3, None, 1, 2], type_, integer(test, 2)) == [n for n in (3, 1, 2) if n in ORDERED[test]]


def test_the_ends_of_integers_are_told_apart() -> None:
    ends = [-(2**63), -(2**63) + 1, 2**63 - 2, 2**63 - 1]
    assert kept(ends, pa.int64(), integer(Comparison.GREATER, 10**18 - 1)) == ends[2:]
    assert kept(ends, pa.int64(), integer(Comparison.LESS_EQUAL, 1 - 10**18)) == ends[:2]
    assert kept([2**53, 2**53 + 1], pa.int64(), integer(Comparison.EQUAL, 2**53 + 1)) == [2**53 + 1]
    assert kept([-128, 127], pa.int8(), integer(Comparison.EQUAL, 127)) == [127]


@pytest.mark.parametrize("test", ORDERED)
def test_dates_are_compared(test: Comparison) -> None:
    where = Where("x", test, Kind.DATE, (day(2).isoformat(),))
    assert kept([day(1), day(2), day(3), None], pa.date32(), where) == [day(n) for n in ORDERED[test]]


def test_days_outside_of_the_calendar_are_compared_too() -> None:
    days = pa.array([-800_000, -1, 0, 2_932_896, 3_000_000, None], pa.int32())
    table = pa.table({"x": days.cast(pa.date32()), "day": days})

    def found(test: Comparison, text: str) -> list[int]:
        numbers: list[int] = rows_where(table, [Where("x", test, Kind.DATE, (text,))]).column("day").to_pylist()
        return numbers

    assert found(Comparison.LESS, "1970-01-01") == [-800_000, -1]
    assert found(Comparison.GREATER, "9999-12-31") == [3_000_000]
    assert found(Comparison.GREATER_EQUAL, "0001-01-01") == [-1, 0, 2_932_896, 3_000_000]
    assert found(Comparison.IN, "9999-12-31") == [2_932_896]


@pytest.mark.parametrize("value", [s for s in STRINGS if s is not None])
def test_strings_are_equal_to_themselves_alone(value: str) -> None:
    assert kept(STRINGS, pa.string(), text(Comparison.EQUAL, value)) == [value]


@pytest.mark.parametrize(
    ("test", "piece", "found"),
    [
        (Comparison.STARTS, "a", ["a", "ab", "aba", "a%", "a\nb", "ab "]),
        (Comparison.STARTS, "é", ["é"]),
        (Comparison.ENDS, "b", ["ab", "b", "a\nb"]),
        (Comparison.ENDS, "ba", ["ba", "aba"]),
        (Comparison.CONTAINS, "ba", ["ba", "aba"]),
        (Comparison.CONTAINS, "\n", ["a\nb"]),
        (Comparison.CONTAINS, "%", ["a%"]),
        (Comparison.CONTAINS, ".", []),
    ],
)
def test_pieces_of_strings_mean_what_they_say(test: Comparison, piece: str, found: list[str]) -> None:
    assert kept(STRINGS, pa.string(), text(test, piece)) == found


def test_lists() -> None:
    assert kept([1, 2, None, 3], pa.int16(), integer(Comparison.IN, 3, 1, 7)) == [1, 3]
    assert kept(STRINGS, pa.string(), text(Comparison.IN, "b", "", "c")) == ["", "b"]
    dates = Where("x", Comparison.IN, Kind.DATE, (day(3).isoformat(), day(1).isoformat()))
    assert kept([day(1), day(2), None, day(3)], pa.date32(), dates) == [day(1), day(3)]
    assert kept([1, None], pa.int32(), integer(Comparison.IN)) == []


# columns ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("test", ORDERED)
@pytest.mark.parametrize(
    ("values", "type_"), [([1, 2, 3], pa.int64()), ([day(1), day(2), day(3)], pa.date32())], ids=["integers", "dates"]
)
def test_columns_of_one_row_are_compared(test: Comparison, values: list[Any], type_: pa.DataType) -> None:
    rows = pa.table(
        {
            "x": pa.array([*values, None, values[1], None], type_),
            "y": pa.array([*[values[1]] * 3, values[1], None, None], type_),
        }
    )
    found = rows_where(rows, [Where("x", test, Kind.COLUMN, ("y",))])
    assert found.column("x").to_pylist() == [values[n - 1] for n in ORDERED[test]]


def test_columns_of_strings_are_equal_or_not() -> None:
    rows = pa.table({"x": ["a", "a", "A", "", None], "y": ["a", "a ", "a", "", None]})
    found = rows_where(rows, [Where("x", Comparison.EQUAL, Kind.COLUMN, ("y",))])
    assert found.to_pylist() == [{"x": "a", "y": "a"}, {"x": "", "y": ""}]


def test_columns_of_two_types_are_not_judged() -> None:
    rows = pa.table({"x": pa.array([1, 2], pa.int32()), "y": pa.array([2, 1], pa.int64())})
    assert rows_where(rows, [Where("x", Comparison.EQUAL, Kind.COLUMN, ("y",))]) == rows


def test_the_columns_that_conditions_look_at() -> None:
    where = [
        integer(Comparison.IN, 1, 2),
        text(Comparison.EQUAL, "y"),
        Where("a", Comparison.LESS, Kind.COLUMN, ("b",)),
    ]
    assert columns_of(where) == ["x", "x", "a", "b"]
    assert columns_of([]) == []


# whole tables -----------------------------------------------------------------------------------------------------------------


def test_all_conditions_have_to_hold() -> None:
    rows = pa.table({"x": [1, 2, 3, None, 2], "s": ["a", "a", "a", "a", None]})
    is_a = Where("s", Comparison.EQUAL, Kind.TEXT, ("a",))
    found = rows_where(rows, [integer(Comparison.GREATER, 1), is_a, integer(Comparison.LESS, 3)])
    assert found.to_pylist() == [{"x": 2, "s": "a"}]


def test_without_conditions_all_rows_are_kept() -> None:
    rows = pa.table({"x": [1, None]})
    assert rows_where(rows, []) is rows


def test_equal_rows_are_kept_as_often_as_they_are_there() -> None:
    assert kept([2, 2, 1, 2], pa.int32(), integer(Comparison.EQUAL, 2)) == [2, 2, 2]


def test_columns_may_come_in_different_pieces() -> None:
    rows = pa.table({"x": pa.chunked_array([[1, 2], [], [3]]), "y": pa.chunked_array([[1], [3, 3]])})
    same = Where("x", Comparison.EQUAL, Kind.COLUMN, ("y",))
    assert rows_where(rows, [same, integer(Comparison.GREATER, 1)]).to_pylist() == [{"x": 3, "y": 3}]


@pytest.mark.parametrize(
    ("type_", "where"),
    [
        *[(pa.int32(), integer(test, 2)) for test in ORDERED],
        (pa.int32(), integer(Comparison.IN, 1, 2)),
        (pa.int32(), Where("x", Comparison.LESS, Kind.COLUMN, ("y",))),
        *[
            (pa.string(), text(t, "a"))
            for t in (Comparison.EQUAL, Comparison.STARTS, Comparison.ENDS, Comparison.CONTAINS)
        ],
        (pa.string(), text(Comparison.IN, "a")),
        (pa.date32(), Where("x", Comparison.LESS, Kind.DATE, ("2024-01-01",))),
        (pa.date32(), Where("x", Comparison.IN, Kind.DATE, ("2024-01-01",))),
        (pa.null(), integer(Comparison.EQUAL, 2)),
        (pa.null(), Where("x", Comparison.LESS, Kind.COLUMN, ("y",))),
    ],
    ids=str,
)
def test_of_no_rows_none_are_kept_with_their_types(type_: pa.DataType, where: Where) -> None:
    for none in (pa.chunked_array([], type_), pa.chunked_array([pa.nulls(0, type_)])):
        rows = pa.table({"x": none, "y": none})
        found = rows_where(rows, [where])
        assert found.num_rows == 0
        assert found.schema == rows.schema


# what is not judged -----------------------------------------------------------------------------------------------------------

ANY = {Kind.INTEGER: integer(Comparison.EQUAL, 2), Kind.TEXT: text(Comparison.STARTS, "b")}
ANY[Kind.DATE] = Where("x", Comparison.LESS, Kind.DATE, ("1970-01-01",))


@pytest.mark.parametrize(
    ("values", "type_", "kinds"),
    [
        ([None, None], pa.null(), "integer text date"),
        (["a", None], pa.large_string(), "integer text date"),
        (["a", None], pa.dictionary(pa.int32(), pa.string()), "integer text date"),
        ([b"a", None], pa.binary(), "integer text date"),
        ([1, None], pa.uint8(), "integer text date"),
        ([1.0, None], pa.float64(), "integer text date"),
        ([True, None], pa.bool_(), "integer text date"),
        ([0, None], pa.timestamp("us"), "integer text date"),
        ([0, None], pa.date64(), "integer text date"),
        ([[1], None], pa.list_(pa.int32()), "integer text date"),
        ([1, None], pa.int32(), "text date"),
        (["a", None], pa.string(), "integer date"),
        ([date(2024, 1, 1), None], pa.date32(), "integer text"),
    ],
    ids=lambda v: str(v) if isinstance(v, pa.DataType) else "",
)
def test_a_column_of_another_type_is_not_judged(values: list[Any], type_: pa.DataType, kinds: str) -> None:
    rows = pa.table({"x": pa.array(values, type_)})
    for kind in kinds.split():
        assert rows_where(rows, [ANY[Kind(kind)]]) == rows


def test_what_is_judged_beside_what_is_not() -> None:
    rows = pa.table({"x": [1, 2], "y": pa.array(["a", "b"], pa.large_string())})
    is_c = Where("y", Comparison.EQUAL, Kind.TEXT, ("c",))
    assert rows_where(rows, [is_c, integer(Comparison.EQUAL, 2)]).to_pylist() == [{"x": 2, "y": "b"}]
