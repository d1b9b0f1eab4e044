"""TRY, ANSI and LEGACY differ in results: the printed query has the mode of the one that was read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.plan.round_trip import Frontend

from headwater.plan.refusal import Code

BIG = 9223372036854775807


@pytest.fixture(scope="module")
def numbers(spark: object) -> Iterator[Frontend]:
    frontend = Frontend(spark)  # type: ignore[arg-type]
    frontend.add("n", f"SELECT * FROM VALUES ({BIG}L, 'x', 0L), (1L, '7', 0L) AS n(a, s, z)")
    yield frontend
    frontend.set("spark.sql.ansi.enabled", "true")


@pytest.mark.parametrize(
    ("expression", "printed"),
    [
        ("try_cast(s AS INT)", "TRY_CAST(c2 AS INT)"),
        ("try_add(a, 1L)", "try_add(c1, 1L)"),
        ("try_subtract(-a, 2L)", "try_subtract((- c1), 2L)"),
        ("try_multiply(a, 2L)", "try_multiply(c1, 2L)"),
        ("try_divide(a, z)", "try_divide("),
        ("try_mod(a, z)", "try_mod(c1, c3)"),
        ("try_sum(a)", "try_sum(c1)"),
        ("try_avg(a)", "try_avg(c1)"),
        ("try_element_at(array(a), 5)", "element_at(array(c1), 5)"),
        ("try_to_number(s, '9')", "try_to_number(c2, '9')"),
    ],
)
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_try_stays_try(numbers: Frontend, ansi: str, expression: str, printed: str) -> None:
    numbers.set("spark.sql.ansi.enabled", ansi)
    read = numbers.assert_same(f"SELECT {expression} AS x FROM n")
    assert printed in numbers.printed(read)
    assert not numbers.answer(f"SELECT {expression} AS x FROM n").error


@pytest.mark.parametrize("expression", ["CAST(s AS INT)", "a + 1L", "a / z", "a % z", "sum(a)", "array(a)[5]"])
def test_plain_fails_in_ansi_mode_only(numbers: Frontend, expression: str) -> None:
    query = f"SELECT {expression} AS x FROM n"
    numbers.set("spark.sql.ansi.enabled", "true")
    strict = numbers.printed(numbers.accepted(query))
    assert numbers.answer(strict).error
    numbers.set("spark.sql.ansi.enabled", "false")
    numbers.assert_same(query)
    assert not numbers.answer(query).error


def test_a_frame_built_in_another_mode_is_refused(numbers: Frontend) -> None:
    numbers.set("spark.sql.ansi.enabled", "false")
    numbers.planning.sql("SELECT a + 1L AS b FROM n").createOrReplaceTempView("legacy")
    numbers.set("spark.sql.ansi.enabled", "true")
    refused = numbers.refused("SELECT b FROM legacy")
    assert [r.code for r in refused.refusals] == [Code.EVALUATION_MODE]
    assert refused.refusals[0].detail == "It was built in mode LEGACY, the session runs in mode ANSI."
