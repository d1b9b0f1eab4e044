"""What conditions say about single rows, and what is left to Spark because it may mean something else."""

from __future__ import annotations

import pytest

from headwater.plan.expressions import Call, ColumnRef, Expression, Literal
from headwater.plan.where import Comparison, Kind, Where, exactly, wheres

NAMES = {
    1: ("a", "INT"),
    2: ("b", "INT"),
    3: ("big", "BIGINT"),
    4: ("tiny", "TINYINT"),
    5: ("s", "STRING"),
    6: ("t", "STRING"),
    7: ("d", "DATE"),
    8: ("e", "DATE"),
    9: ("lower", "STRING COLLATE UTF8_LCASE"),
    10: ("x", "DOUBLE"),
    11: ("price", "DECIMAL(12,2)"),
    12: ("at", "TIMESTAMP"),
    13: ("bin", "BINARY"),
    14: ("unknown", ""),
    15: ("n", "STRUCT<i: INT>"),
    16: ("flag", "BOOLEAN"),
}
A, B, BIG, TINY, S, T, D, E, LOWER, X, PRICE, AT, BIN, UNKNOWN, N, FLAG = (ColumnRef(i) for i in NAMES)
ELSEWHERE = ColumnRef(99)
"""A column of another table."""


def compared(a: Expression, sign: str, b: Expression) -> Call:
    return Call(sign, (a, b), "({0} " + sign + " {1})")


def cast(text: str, type_: str) -> Call:
    return Call("cast", (Literal(text),), "CAST({0} AS " + type_ + ")")


def listed(column: Expression, *values: Expression) -> Call:
    places = ", ".join(f"{{{i}}}" for i in range(1, len(values) + 1))
    return Call("in", (column, *values), f"({{0}} IN ({places}))")


def like(column: Expression, pattern: str) -> Call:
    return Call("like", (column, Literal(pattern)), "({0} LIKE {1})")


def both(a: Expression, b: Expression) -> Call:
    return Call("and", (a, b), "({0} AND {1})")


def read(*conditions: Expression) -> tuple[Where, ...]:
    return wheres(conditions, NAMES)


FIVE = compared(A, "=", Literal("5"))
IS_FIVE = Where("a", Comparison.EQUAL, Kind.INTEGER, (5,))


# a column that is a condition ---------------------------------------------------------------------------------------------------


def test_a_column_may_be_a_condition() -> None:
    holds = Where("flag", Comparison.EQUAL, Kind.BOOLEAN, (1,))
    assert read(FLAG) == (holds,)
    assert read(both(FLAG, FIVE)) == (holds, IS_FIVE)
    assert read(Call("not", (FLAG,), "(NOT {0})")) == ()
    assert read(A, ELSEWHERE) == ()


def test_only_a_condition_that_is_a_column_is_known_exactly() -> None:
    assert exactly(FLAG, NAMES) == read(FLAG)
    assert exactly(A, NAMES) == exactly(FIVE, NAMES) == exactly(like(S, "'a_%'"), NAMES) == ()


# what is understood -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("test", [t for t in Comparison if len(t.value) <= 2 and t is not Comparison.IN])
def test_an_integer_is_compared_with_a_constant(test: Comparison) -> None:
    assert read(compared(A, test.value, Literal("-7"))) == (Where("a", test, Kind.INTEGER, (-7,)),)


@pytest.mark.parametrize(("sign", "turned"), [("=", "="), ("<", ">"), ("<=", ">="), (">", "<"), (">=", "<=")])
def test_a_constant_on_the_left_turns_the_comparison(sign: str, turned: str) -> None:
    assert read(compared(Literal("5"), sign, A)) == (Where("a", Comparison(turned), Kind.INTEGER, (5,)),)


@pytest.mark.parametrize("constant", [Literal("5L"), cast("5", "BIGINT")])
def test_a_constant_may_be_written_in_the_type_of_the_column(constant: Expression) -> None:
    assert read(compared(BIG, "<", constant)) == (Where("big", Comparison.LESS, Kind.INTEGER, (5,)),)


def test_small_integers_have_signs_of_their_own() -> None:
    assert read(compared(TINY, ">", Literal("5Y"))) == (Where("tiny", Comparison.GREATER, Kind.INTEGER, (5,)),)


@pytest.mark.parametrize("constant", [Literal("DATE '1969-12-31'"), cast("'1969-12-31'", "DATE")])
def test_a_date_is_compared_as_text(constant: Expression) -> None:
    assert read(compared(D, ">=", constant)) == (Where("d", Comparison.GREATER_EQUAL, Kind.DATE, ("1969-12-31",)),)


@pytest.mark.parametrize("text", ["", "a", "MED BOX", "é%_", "two  spaces", '"'])
def test_a_string_is_equal_to_a_constant(text: str) -> None:
    assert read(compared(S, "=", Literal(f"'{text}'"))) == (Where("s", Comparison.EQUAL, Kind.TEXT, (text,)),)


def test_columns_of_one_row_are_compared() -> None:
    assert read(compared(D, "<", E)) == (Where("d", Comparison.LESS, Kind.COLUMN, ("e",)),)
    assert read(compared(A, ">=", B)) == (Where("a", Comparison.GREATER_EQUAL, Kind.COLUMN, ("b",)),)
    assert read(compared(S, "=", T)) == (Where("s", Comparison.EQUAL, Kind.COLUMN, ("t",)),)


def test_between_is_two_comparisons() -> None:
    condition = Call("between", (A, Literal("1"), Literal("9")), "({0} BETWEEN {1} AND {2})")
    assert read(condition) == (
        Where("a", Comparison.GREATER_EQUAL, Kind.INTEGER, (1,)),
        Where("a", Comparison.LESS_EQUAL, Kind.INTEGER, (9,)),
    )


def test_of_between_one_end_may_be_understood() -> None:
    condition = Call("between", (A, ELSEWHERE, Literal("9")), "({0} BETWEEN {1} AND {2})")
    assert read(condition) == (Where("a", Comparison.LESS_EQUAL, Kind.INTEGER, (9,)),)


def test_a_list_of_constants() -> None:
    assert read(listed(A, Literal("1"), Literal("2"))) == (Where("a", Comparison.IN, Kind.INTEGER, (1, 2)),)
    assert read(listed(S, Literal("'a'"), Literal("'b'"))) == (Where("s", Comparison.IN, Kind.TEXT, ("a", "b")),)
    dates = listed(D, Literal("DATE '2024-02-29'"), cast("'2024-03-01'", "DATE"))
    assert read(dates) == (Where("d", Comparison.IN, Kind.DATE, ("2024-02-29", "2024-03-01")),)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("a%", [(Comparison.STARTS, "a")]),
        ("%a", [(Comparison.ENDS, "a")]),
        ("%a%", [(Comparison.CONTAINS, "a")]),
        ("a%b", [(Comparison.STARTS, "a"), (Comparison.ENDS, "b")]),
        ("%special%requests%", [(Comparison.CONTAINS, "special"), (Comparison.CONTAINS, "requests")]),
        ("a%b%%c", [(Comparison.STARTS, "a"), (Comparison.CONTAINS, "b"), (Comparison.ENDS, "c")]),
        ("abc", [(Comparison.EQUAL, "abc")]),
        ("", [(Comparison.EQUAL, "")]),
        ("%", []),
        ("%%", []),
    ],
)
def test_of_a_pattern_its_pieces_are_understood(pattern: str, said: list[tuple[Comparison, str]]) -> None:
    assert read(like(S, f"'{pattern}'")) == tuple(Where("s", test, Kind.TEXT, (text,)) for test, text in said)


def test_all_conditions_hold_and_each_is_told_once() -> None:
    name = compared(S, "=", Literal("'a'"))
    is_a = Where("s", Comparison.EQUAL, Kind.TEXT, ("a",))
    assert read(both(FIVE, both(name, FIVE)), name) == (IS_FIVE, is_a)


def test_of_conditions_those_that_are_understood_are_told() -> None:
    assert read(both(compared(X, "=", Literal("1.5D")), FIVE)) == (IS_FIVE,)
    assert read(compared(A, "<", ELSEWHERE), both(compared(ELSEWHERE, "=", Literal("1")), FIVE)) == (IS_FIVE,)


def test_nothing_is_said_without_conditions_or_columns() -> None:
    assert read() == ()
    assert wheres([FIVE], {}) == ()


# what is not ------------------------------------------------------------------------------------------------------------------

REFUSED: dict[str, Expression] = {
    "one of two conditions": Call("or", (FIVE, FIVE), "({0} OR {1})"),
    "the opposite of a condition": Call("not", (FIVE,), "(NOT {0})"),
    "what is not equal": compared(A, "<>", Literal("5")),
    "equality that holds between NULLs": compared(A, "<=>", Literal("5")),
    "a test for NULL": Call("isnull", (A,), "({0} IS NULL)"),
    "a condition inside of a function": Call("coalesce", (FIVE, Literal("true")), "coalesce({0}, {1})"),
    "a column that is a condition": A,
    "a constant condition": Literal("false"),
    "two constants": compared(Literal("1"), "=", Literal("2")),
    "a computed column": compared(Call("add", (A, B), "({0} + {1})"), "=", Literal("5")),
    "a column cast to a wider type": compared(Call("cast", (A,), "CAST({0} AS BIGINT)"), "=", Literal("5L")),
    "a column of another table": compared(ELSEWHERE, "=", Literal("5")),
    "columns of two tables": compared(A, "=", ELSEWHERE),
    "columns of two tables, turned": compared(ELSEWHERE, "=", A),
    "columns of different types": compared(A, "=", BIG),
    "the order of strings": compared(S, "<", Literal("'a'")),
    "the order of columns of strings": compared(S, "<=", T),
    "a string with a collation": compared(LOWER, "=", Literal("'a'")),
    "a column of strings with a collation": compared(LOWER, "=", LOWER),
    "a constant with a collation": compared(S, "=", Literal("CAST('a' AS STRING COLLATE UTF8_LCASE)")),
    "a floating-point number": compared(X, "=", Literal("1.0D")),
    "columns of floating-point numbers": compared(X, "=", X),
    "a decimal": compared(PRICE, "<", Literal("1.10BD")),
    "columns of decimals": compared(PRICE, "<", PRICE),
    "a timestamp": compared(AT, "<", Literal("TIMESTAMP_LTZ '2024-01-01 00:00:00.000000Z'")),
    "columns of timestamps": compared(AT, "<", AT),
    "bytes": compared(BIN, "=", Literal("X'61'")),
    "a struct": compared(N, "=", N),
    "a column whose type is not known": compared(UNKNOWN, "=", Literal("5")),
    "columns whose types are not known": compared(UNKNOWN, "=", UNKNOWN),
    "NULL": compared(A, "=", Literal("CAST(NULL AS INT)")),
    "NULL of no type": compared(S, "=", Literal("NULL")),
    "a number with digits after the point": compared(A, "<", Literal("5.5BD")),
    "a string for a number": compared(A, "=", cast("'5'", "INT")),
    "a number that does not fit the column": compared(TINY, "=", cast("300", "TINYINT")),
    "a number of nineteen digits": compared(BIG, "<", Literal("9223372036854775807L")),
    "a cast to another type": compared(A, "=", cast("5", "BIGINT")),
    "a cast that may fail": compared(D, "=", Call("cast", (Literal("'2024-01-01'"),), "TRY_CAST({0} AS DATE)")),
    "a computed constant": compared(D, "<", Call("date_add", (Literal("DATE '2024-01-01'"),), "date_add({0}, 1)")),
    "a day that does not exist": compared(D, "=", cast("'2023-02-29'", "DATE")),
    "a day in another spelling": compared(D, "=", cast("'2024-1-1'", "DATE")),
    "a day and a time": compared(D, "=", cast("'2024-01-01 00:00:00'", "DATE")),
    "a word for a day": compared(D, "=", cast("'epoch'", "DATE")),
    "a day before the calendar": compared(D, ">", cast("'0000-01-01'", "DATE")),
    "a day after the calendar": compared(D, "<", Literal("date_from_unix_date(2932897)")),
    "a string with an escape": compared(S, "=", Literal(r"'a\nb'")),
    "a string with a quote": compared(S, "=", Literal(r"'it\'s'")),
    "a list with NULL": listed(A, Literal("1"), Literal("CAST(NULL AS INT)")),
    "a list with a column": listed(A, Literal("1"), B),
    "a list of another column's table": listed(ELSEWHERE, Literal("1")),
    "a list of numbers that are not whole": listed(X, Literal("1.0D")),
    "a pattern with a place for any character": like(S, "'a_c'"),
    "a pattern with an escape": like(S, r"'50\\%'"),
    "a pattern with an escape of its own": Call("like", (S, Literal("'50!%'")), "({0} LIKE {1} ESCAPE '!')"),
    "a pattern for both cases": Call("ilike", (S, Literal("'a%'")), "({0} ILIKE {1})"),
    "several patterns": Call("like", (S,), "({0} LIKE ANY ('a%', 'b%'))"),
    "a pattern that is a column": Call("like", (S, T), "({0} LIKE {1})"),
    "a pattern for what is no string": like(A, "'1%'"),
    "a pattern for a string with a collation": like(LOWER, "'a%'"),
    "a regular expression": Call("rlike", (S, Literal("'a'")), "({0} RLIKE {1})"),
    "what lies between others": Call("between", (Literal("5"), A, B), "({0} BETWEEN {1} AND {2})"),
}


@pytest.mark.parametrize("condition", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_left_to_spark(condition: Expression) -> None:
    assert read(condition) == ()
    assert read(both(condition, FIVE)) == (IS_FIVE,)
