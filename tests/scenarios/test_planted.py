"""Planted bugs are caught: a test suite is worth what it finds.

Every bug in `tests/support/planted.py` is a wrong delta rule. With it, the trap that it names must show wrong rows, or fail a check of the
product, after a refresh: what the stream table held at first was right. Without a bug every trap passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from tests.support import stories
from tests.support.oracle import interpreted
from tests.support.planted import PLANTED, PlantedBug, Shows
from tests.support.traps import TRAPS, Trap, set_trap, spring_trap, trap_named

import headwater as hw
from headwater.delta.join import JOIN_RULES
from headwater.delta.rules import RULES
from headwater.errors import CheckFailedError
from headwater.plan.operators import Join
from headwater.refresh import places
from headwater.store import reading

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.warehouse import Warehouse

SUPPORT = Path(stories.__file__).parent


@pytest.fixture(scope="module")
def simple_spark(spark: SparkSession) -> Iterator[SparkSession]:
    with interpreted(spark):
        yield spark


@pytest.fixture
def wh(simple_spark: SparkSession, tmp_path: Path) -> Iterator[Warehouse]:
    """A warehouse of its own: what a wrong rule wrote is not left to others."""
    spark_adds_up = mock.patch.object(reading, "_FEW_ROWS", 0)  # what the driver does instead has bugs of its own
    spark_scans = mock.patch.object(places, "rows_near", return_value=None)
    with spark_adds_up, spark_scans, hw.connect(tmp_path / "warehouse", spark=simple_spark) as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("trap", TRAPS, ids=lambda t: t.name)
def test_a_trap_lets_the_right_rule_pass(trap: Trap, wh: Warehouse) -> None:
    story, stream = set_trap(wh, trap)
    spring_trap(story, stream, trap)


@pytest.mark.slow
@pytest.mark.parametrize("bug", PLANTED, ids=lambda b: b.name)
def test_a_planted_bug_is_caught(bug: PlantedBug, wh: Warehouse) -> None:
    trap = trap_named(bug.caught_by)
    with bug.plant():
        story, stream = set_trap(wh, trap)
        match bug.shows:
            case Shows.WRONG_ROWS:
                with pytest.raises(AssertionError) as raised:
                    spring_trap(story, stream, trap)
                assert raised.traceback[-1].path.parent == SUPPORT  # it is the story that says so
            case Shows.FAILED_CHECK:
                with pytest.raises(CheckFailedError):
                    spring_trap(story, stream, trap)


def test_every_rule_has_a_planted_bug() -> None:
    broken = {bug.breaks for bug in PLANTED}
    assert broken >= {*RULES, *JOIN_RULES} - {Join}


def test_every_trap_catches_something() -> None:
    assert {t.name for t in TRAPS} == {b.caught_by for b in PLANTED}


def test_a_planted_bug_is_dug_out_again() -> None:
    rules, join_rules = dict(RULES), dict(JOIN_RULES)
    for bug in PLANTED:
        with bug.plant():
            pass
    assert (rules, join_rules) == (RULES, JOIN_RULES)


def test_there_are_many_and_no_two_have_one_name() -> None:
    assert len(PLANTED) >= 60
    assert len({b.name for b in PLANTED}) == len(PLANTED)
