"""A process that is stopped for longer than its lease and then goes on: it must not publish over its successor."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from tests.support.children import Child, Nursery, nursery
from tests.support.crash import Survivor, orphans
from tests.support.load import Step, step

from headwater.errors import BusyError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

COMMIT = "headwater.catalog.catalog:Catalog.commit"
LOG = "deltalake:DeltaTable.create_write_transaction"
LEASE = {"lease_seconds": 1.0, "write_seconds": 0.5, "busy_timeout_seconds": 600}


@pytest.fixture(scope="module")
def children(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    with nursery(spark, tmp_path_factory.mktemp("children")) as opened:
        yield opened


@pytest.fixture
def bank(spark: SparkSession, tmp_path: Path) -> Survivor:
    made = Survivor(tmp_path / "bank", spark)
    made.create()
    with made.open() as wh:
        made.journal.run(wh, [step("open", first=0, count=30), step("refresh")], lambda _: None)
    made.model, _ = made.journal.outcome(made.model)
    made.seen.add(made.model.contents())
    made.journal.clear()
    return made


def stopped(bank: Survivor, children: Nursery, function: str, *steps: Step) -> Child:
    """Start a child that runs the steps and is stopped before `function` in the last one."""
    child = children.start(
        "tests.support.crash:struck",
        path=str(bank.path),
        journal=str(bank.path.parent / "journal.jsonl"),
        steps=[asdict(s) for s in steps],
        function=function,
        when="before",
        nth=1,
        number=signal.SIGSTOP,
        settings=LEASE,
    )
    assert child.stopped() == signal.SIGSTOP
    return child


def run(bank: Survivor, wh: Any, *steps: Step) -> None:
    """Do what the stopped process does not know of."""
    for one in steps:
        one.run(wh)
        bank.model = one.applied(bank.model)
        bank.seen.add(bank.model.contents())


def outcome_of_the_last(bank: Survivor) -> str:
    last = bank.journal.entries()[-1]
    return str(last.get("code", "done" if "done" in last else "tried"))


def test_a_refresh_that_was_taken_over_is_refused(bank: Survivor, children: Nursery) -> None:
    child = stopped(
        bank, children, COMMIT, step("interest", branch="north", amount=7), step("refresh", name="by_branch")
    )
    bank.model = step("interest", branch="north", amount=7).applied(bank.model)
    with bank.open() as wh:
        with pytest.raises(BusyError) as held:
            wh.refresh("by_branch")
        assert held.value.code == "HW501"
        assert f":{child.pid}:" in str(held.value.detail)
        time.sleep(1.5)
        run(bank, wh, step("open", first=500, count=30))
        report = wh.refresh("by_branch")
        assert (report.action.value, report.rows_in > 0) == ("DIFFERENTIAL", True)
        version = wh.version
    child.send(signal.SIGCONT)
    assert child.ended() == 1
    assert outcome_of_the_last(bank) == "HW502"
    bank.journal.clear()
    with bank.open() as wh:
        assert wh.version == version
        assert wh.history("by_branch", 1)[0].status == "FAILED"
    bank.check()


def test_a_refresh_that_nobody_took_over_is_committed_or_refused_whole(bank: Survivor, children: Nursery) -> None:
    steps = (step("interest", branch="south", amount=5), step("refresh", name="rich"))
    child = stopped(bank, children, COMMIT, *steps)
    time.sleep(1.5)
    child.send(signal.SIGCONT)
    child.ended()
    assert outcome_of_the_last(bank) in ("done", "HW502")
    bank.model = steps[0].applied(bank.model)
    bank.journal.clear()
    bank.check()


def test_a_fold_that_was_taken_over_is_refused(bank: Survivor, children: Nursery) -> None:
    steps = (step("interest", branch="north", amount=2), step("compact", name="accounts"))
    child = stopped(bank, children, COMMIT, *steps)
    bank.model = steps[0].applied(bank.model)
    time.sleep(1.5)
    with bank.open() as wh:
        run(bank, wh, step("interest", branch="north", amount=3))
        wh.compact("accounts")
    child.send(signal.SIGCONT)
    child.ended()
    assert outcome_of_the_last(bank) in ("HW501", "HW502")
    bank.journal.clear()
    bank.check()


def test_a_change_whose_write_vacuum_took_is_computed_again_and_applied_once(bank: Survivor, children: Nursery) -> None:
    change = step("interest", branch="east", amount=4)
    child = stopped(bank, children, COMMIT, step("open", first=900, count=40), change)
    bank.model = step("open", first=900, count=40).applied(bank.model)
    time.sleep(1.0)
    with bank.open() as wh:
        run(bank, wh, step("interest", branch="east", amount=100))
        assert wh.vacuum().writes_discarded >= 1
        assert orphans(bank.path) == []
    child.send(signal.SIGCONT)
    assert child.ended() == 0
    bank.model = change.applied(bank.model)
    bank.journal.clear()
    bank.check()


def test_an_export_that_was_overtaken_does_not_bring_old_files_back(bank: Survivor, children: Nursery) -> None:
    steps = (step("interest", branch="north", amount=2), step("compact", name="accounts"))
    child = stopped(bank, children, LOG, *steps)
    bank.model = steps[0].applied(bank.model)
    bank.seen.add(bank.model.contents())
    time.sleep(1.5)
    with bank.open() as wh:
        run(bank, wh, step("interest", branch="north", amount=3))
        wh.compact("accounts")
        lake = wh.base_path("accounts")
    shown = DeltaTable(lake).to_pyarrow_table().num_rows
    child.send(signal.SIGCONT)
    assert child.ended() == 0
    bank.journal.clear()
    assert DeltaTable(lake).to_pyarrow_table().num_rows == shown == len(bank.model.accounts)
    bank.check()
