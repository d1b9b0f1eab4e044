"""All 22 TPC-H queries follow six cycles of inserts, deletes and updates over all eight tables, and DuckDB agrees.

Scale 0.1 here; `TPCH_SCALE=1` for another one. The benchmark does the same at scale 1.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.support import tpch
from tests.support.tpch_churn import CYCLES
from tests.support.tpch_story import Story

import headwater as hw
from headwater.model.tables import RefreshAction

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SCALE = float(os.environ.get("TPCH_SCALE", "0.1"))
VERIFIED = (1, 3, 4, 9, 13, 15, 16, 18, 20, 21, 22)

slow = [pytest.mark.slow, pytest.mark.timeout(3600)]
queries = pytest.mark.parametrize("number", tpch.NUMBERS, ids=tpch.stream_name)


@pytest.fixture(scope="module")
def story(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with hw.connect(tmp_path_factory.mktemp("tpch") / "warehouse", spark=spark) as wh:
        made = Story(wh, SCALE)
        yield made
        made.close()


class TestAllQueries:
    """In the order in which they stand here; each can be run alone and then goes through the cycles before it."""

    pytestmark = slow

    @queries
    def test_is_created_as_differential(self, story: Story, number: int) -> None:
        assert number not in story.errors, story.errors[number]
        status = {s.name: s for s in story.wh.status()}[tpch.stream_name(number)]
        assert (status.mode, status.reason) == ("DIFFERENTIAL", None)
        first = story.steps[0, number]
        assert not first.wrong, first.wrong
        assert not first.is_empty

    @queries
    @pytest.mark.parametrize("cycle", range(1, CYCLES + 1))
    def test_follows(self, story: Story, number: int, cycle: int) -> None:
        story.reach(cycle)
        assert number not in story.errors, story.errors[number]
        step = story.steps[cycle, number]
        assert not step.wrong, step.wrong
        assert not step.is_empty

    @queries
    def test_changed_on_the_way(self, story: Story, number: int) -> None:
        story.reach(CYCLES)
        assert number not in story.errors, story.errors[number]
        steps = [story.steps[cycle, number] for cycle in range(1, CYCLES + 1)]
        written = [s.report is not None and s.report.rows_inserted + s.report.rows_deleted > 0 for s in steps]
        assert any(s.changed and w for s, w in zip(steps, written, strict=True))
        assert not any(w and not s.changed for s, w in zip(steps, written, strict=True)), (
            "it changed though its result did not"
        )

    @pytest.mark.parametrize("number", VERIFIED, ids=tpch.stream_name)
    def test_verify_agrees(self, story: Story, number: int) -> None:
        story.reach(CYCLES)
        result = story.wh.verify(tpch.stream_name(number))
        assert result.equal, result

    @queries
    def test_without_changes_nothing_happens(self, story: Story, number: int) -> None:
        story.reach(CYCLES)
        assert number not in story.errors, story.errors[number]
        report = story.wh.refresh(tpch.stream_name(number))
        assert (report.action, report.spark_jobs) == (RefreshAction.NO_DATA, 0)


def test_a_few_queries_follow_at_a_small_scale(spark: SparkSession, tmp_path: Path) -> None:
    numbers = (3, 13, 17, 20)
    with hw.connect(tmp_path / "warehouse", spark=spark) as wh:
        story = Story(wh, 0.01, numbers)
        story.reach(2)
        story.close()
        assert not story.errors
        assert {k: s.wrong for k, s in story.steps.items() if s.wrong or s.is_empty} == {}
        assert all(any(story.steps[cycle, n].changed for cycle in (1, 2)) for n in numbers)
