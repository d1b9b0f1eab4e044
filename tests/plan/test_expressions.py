"""Every expression means the same after it was read from Catalyst and printed, in ANSI mode and without."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.plan import expression_cases as cases
from tests.plan.round_trip import Frontend

GROUPS = ("LITERALS", "ARITHMETIC", "CONDITIONALS", "STRINGS", "CASTS", "TIMES", "NESTED", "AGGREGATES")


@pytest.fixture(scope="module", params=["true", "false"], ids=["ansi", "legacy"])
def typed(request: pytest.FixtureRequest, spark: object) -> Iterator[Frontend]:
    frontend = Frontend(spark)  # type: ignore[arg-type]
    frontend.set("spark.sql.ansi.enabled", request.param)
    frontend.data.sql(cases.TABLE).createOrReplaceTempView("plain")
    frontend.add("t", f"SELECT {cases.COLUMNS} FROM plain")
    yield frontend


@pytest.mark.parametrize("group", GROUPS)
def test_expressions_round_trip(typed: Frontend, group: str) -> None:
    wrong = []
    for expression in getattr(cases, group):
        query = f"SELECT {expression} AS x FROM t"
        printed = typed.printed(typed.accepted(query))
        if typed.answer(query) != typed.answer(printed):
            wrong.append((expression, printed))
    assert not wrong


def test_expressions_are_many_and_rarely_fail(typed: Frontend) -> None:
    """A comparison of two errors proves little: few cases may end in one."""
    expressions = [e for g in GROUPS for e in getattr(cases, g)]
    failing = [e for e in expressions if typed.answer(f"SELECT {e} AS x FROM t").error]
    assert len(expressions) > 500
    assert len(failing) < 12, failing


def test_printed_timestamps_do_not_depend_on_the_zone(typed: Frontend) -> None:
    query = "SELECT i4, ts > TIMESTAMP '2024-01-01 00:00:00' AS later, TIMESTAMP '2024-07-01 12:00:00' AS x FROM t"
    printed = typed.printed(typed.accepted(query))
    typed.data.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        in_tokyo = typed.data.sql(f"SELECT unix_micros(x) AS x FROM ({printed})").distinct().collect()
    finally:
        typed.data.conf.set("spark.sql.session.timeZone", "UTC")
    expected = typed.data.sql("SELECT unix_micros(TIMESTAMP '2024-07-01 12:00:00Z') AS x").collect()
    assert in_tokyo == expected
