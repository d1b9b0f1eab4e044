"""Every expression means the same after it was read from Catalyst and printed, in ANSI mode and without."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from tests.plan import expression_cases as cases
from tests.plan.round_trip import Frontend

GROUPS = ("LITERALS", "ARITHMETIC", "CONDITIONALS", "STRINGS", "CASTS", "TIMES", "NESTED", "AGGREGATES")


@pytest.fixture(scope="module", params=["true", "false"], ids=["ansi", "legacy"])
def typed(request: pytest.FixtureRequest, spark: object) -> Frontend:
    frontend = Frontend(spark)  # type: ignore[arg-type]
    frontend.set("spark.sql.ansi.enabled", request.param)
    frontend.data.sql(cases.TABLE).createOrReplaceTempView("plain")
    frontend.add("t", f"SELECT {cases.COLUMNS} FROM plain")
    return frontend


def select(expressions: Sequence[str]) -> str:
    return f"SELECT {', '.join(f'{e} AS x{i}' for i, e in enumerate(expressions))} FROM t"


@pytest.mark.parametrize("group", GROUPS)
def test_expressions_round_trip(typed: Frontend, group: str) -> None:
    """Expressions are compared in batches; a batch that fails or differs is compared one by one."""
    wrong, failing = [], []
    expressions: tuple[str, ...] = getattr(cases, group)
    for batch in in_batches(expressions, 15):
        expected = typed.answer(select(batch))
        if not expected.error and typed.answer(typed.printed(typed.accepted(select(batch)))) == expected:
            continue
        for expression in batch:
            expected = typed.answer(select([expression]))
            printed = typed.printed(typed.accepted(select([expression])))
            if typed.answer(printed) != expected:
                wrong.append((expression, printed))
            if expected.error:
                failing.append(expression)
    assert not wrong
    assert len(failing) <= 5, failing  # two equal errors prove little


def test_there_are_many_cases() -> None:
    assert sum(len(getattr(cases, g)) for g in GROUPS) > 500


def test_printed_timestamps_do_not_depend_on_the_zone(typed: Frontend) -> None:
    printed = typed.printed(typed.accepted("SELECT i4, TIMESTAMP '2024-07-01 12:00:00' AS x FROM t"))
    typed.data.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        in_tokyo = typed.data.sql(f"SELECT unix_micros(x) AS x FROM ({printed})").distinct().collect()
    finally:
        typed.data.conf.set("spark.sql.session.timeZone", "UTC")
    assert in_tokyo == typed.data.sql("SELECT unix_micros(TIMESTAMP '2024-07-01 12:00:00Z') AS x").collect()


def in_batches(items: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
