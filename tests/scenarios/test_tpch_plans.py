"""What Spark runs when a few rows of one table change, for the joins of TPC-H.

No table larger than the broadcast limit is shuffled before the change has reduced it, and none is read twice in the same form. The
broadcast limit is low here, so that the bases of the three largest tables at scale 0.02 are larger, as those of all are at scale.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from tests.support import tpch
from tests.support.plan_capture import Captured, capturing, readable_plans, tables_of
from tests.support.plans import Tables, full_shuffles, repeated_scans
from tests.support.tables import table_of
from tests.support.tpch_churn import small_changes
from tests.support.tpch_story import Story

import headwater as hw
from headwater.model.tables import RefreshAction
from headwater.refresh.cycle import RefreshReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCALE = float(os.environ.get("TPCH_SCALE", "0.02"))
LIMIT = round(2_500_000 * SCALE)
LITTLE = 8 * LIMIT
LARGE = {"lineitem", "orders", "partsupp"}
JOINS = (2, 3, 5, 7, 8, 9, 10, 12, 14, 17, 18, 19, 20, 21)
CASES = [(number, table) for number in JOINS for table in tpch.READS[number]]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

cases = pytest.mark.parametrize(("number", "table"), CASES, ids=[f"{tpch.stream_name(n)}-{t}" for n, t in CASES])


@dataclass(frozen=True, slots=True)
class Refresh:
    """A refresh after a change of one table, and what it ran."""

    report: RefreshReport
    ran: Captured
    tables: Tables


@dataclass(slots=True)
class Refreshes:
    """All of them, and the story to compare with in the end."""

    story: Story
    by_case: dict[tuple[int, str], Refresh]

    def of(self, number: int, table: str) -> Refresh:
        assert number not in self.story.errors, self.story.errors[number]
        return self.by_case[number, table]


@pytest.fixture(scope="module")
def refreshes(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Refreshes]:
    """Change one table after the other by a few rows; after each, refresh every query that reads it."""
    path = tmp_path_factory.mktemp("plans") / "warehouse"
    with readable_plans(spark, LIMIT), hw.connect(path, spark=spark, settings={"index_max_bytes": 0}) as wh:
        story = Story(wh, SCALE, JOINS)
        made = Refreshes(story, {})
        for table, batch in small_changes(story.mirror).items():
            tpch.apply_signed(wh, table, batch)
            for number in story.followed:
                if table in tpch.READS[number]:
                    tables = tables_of(wh, LIMIT)
                    with capturing(spark) as ran:  # the refresh alone, without the upkeep that may follow it
                        report = wh._refresher.refresh(table_of(wh, tpch.stream_name(number)).id)
                    made.by_case[number, table] = Refresh(report, ran, tables)
        yield made
        story.close()


@cases
def test_no_large_table_is_shuffled_before_the_change_has_reduced_it(
    refreshes: Refreshes, number: int, table: str
) -> None:
    refresh = refreshes.of(number, table)
    found = [what for plan in refresh.ran.plans for what in full_shuffles(plan, refresh.tables)]
    assert not found, "\n".join(found)


@cases
def test_no_table_is_read_twice_in_the_same_form(refreshes: Refreshes, number: int, table: str) -> None:
    refresh = refreshes.of(number, table)
    found = repeated_scans(refresh.ran.plans, refresh.tables)
    assert not found, "\n".join(found)


@cases
def test_the_refresh_was_differential_and_its_plans_were_seen(refreshes: Refreshes, number: int, table: str) -> None:
    refresh = refreshes.of(number, table)
    assert refresh.report.action is RefreshAction.DIFFERENTIAL
    assert bool(refresh.ran.plans) == bool(refresh.ran.jobs), "something runs in a way that is not seen"


@pytest.mark.parametrize(
    ("number", "table"), [c for c in CASES if c[1] not in ("region", "nation")], ids=lambda value: str(value)
)
def test_little_is_shuffled(refreshes: Refreshes, number: int, table: str) -> None:
    """Whatever the plans say: few bytes went around, where orders alone has three times as many. (A region is a fifth of everything.)"""
    shuffled = refreshes.of(number, table).ran.shuffled_bytes
    assert shuffled < LITTLE


def test_the_tables_in_question_are_large(refreshes: Refreshes) -> None:
    tables = next(iter(refreshes.by_case.values())).tables
    managed = {i for i, name in tables.names.items() if name in tpch.TABLES}
    assert {tables.name(i) for i in managed if tables.is_large(i)} >= LARGE


@pytest.mark.parametrize("number", JOINS, ids=tpch.stream_name)
def test_the_results_are_right(refreshes: Refreshes, number: int) -> None:
    story = refreshes.story
    assert number not in story.errors, story.errors[number]
    found = story.wh.table(tpch.stream_name(number)).toArrow()
    assert not tpch.differences(story.mirror.answer(number), found)
    changed = [r for (n, _), r in refreshes.by_case.items() if n == number]
    assert any(r.report.rows_inserted + r.report.rows_deleted for r in changed)
