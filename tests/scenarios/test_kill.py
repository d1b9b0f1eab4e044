"""Kill a process at every step of the commit protocol: nothing acknowledged is lost, nothing is there twice or by half.

One warehouse lives through all deaths. After each, whoever comes next must be able to read it, refresh it, verify it and clean it
up; see `tests/support/crash.py` for what is checked.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.support.children import Nursery, nursery
from tests.support.crash import Point, Survivor
from tests.support.load import Step, step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

OPEN_WRITE = "headwater.catalog.catalog:Catalog.open_write"
COMMIT = "headwater.catalog.catalog:Catalog.commit"
PUBLISH = "headwater.catalog.committing:Committer._publish"
EXPORT = "headwater.store.maintain:export_base"
LOG = "deltalake:DeltaTable.create_write_transaction"
SET_EXPORTED = "headwater.catalog.catalog:Catalog.set_exported"
REMOVABLE = "headwater.catalog.catalog:Catalog.removable_files"
FORGET_FILES = "headwater.catalog.catalog:Catalog.forget_files"
FORGET_TABLES = "headwater.catalog.catalog:Catalog.forget_tables"
TAKE_WRITE = "headwater.catalog.catalog:Catalog.take_write"
DISCARD_WRITE = "headwater.catalog.catalog:Catalog.discard_write"

PROTOCOL = (
    ("a write is registered, no byte is written", OPEN_WRITE, "after"),
    ("files are written, commit has not begun", COMMIT, "before"),
    ("all is in the transaction, COMMIT is not sent", PUBLISH, "after"),
    ("committed, nobody was told", COMMIT, "after"),
)
"""The four moments of every change that brings files."""


def _through(what: str, *steps: Step, nth: int = 1) -> list[Point]:
    return [Point(f"{what}: {moment}", steps, function, when, nth) for moment, function, when in PROTOCOL]


def _moved(point: Point, by: int) -> Point:
    """Open other accounts than the point before: keys are unique."""
    return Point(
        point.name,
        tuple(
            Step(s.kind, {**s.arguments, "first": s.arguments["first"] + by}) if s.kind == "open" else s
            for s in point.steps
        ),
        point.function,
        point.when,
        point.nth,
        point.abandoned,
    )


NORTH = step("interest", branch="north", amount=7)
SMALL_NOTE = step("note", branch="south", amount=11, count=1)
FILE_NOTES = tuple(step("note", branch="east", amount=20 + i, count=5) for i in range(3))
INSERT = _through("insert by Spark", step("open", first=1000, count=30))
PAY = step("pay", first=1, count=12, branch="east", amount=9)
FOLD = (NORTH, step("compact", name="accounts"))
OTHERS = [
    Point("update: in the transaction", (step("interest", branch="south", amount=3),), PUBLISH, "after"),
    Point("small upsert: committed", (step("reset", first=600, count=2),), COMMIT, "after"),
    Point("delete: files written", (step("close", modulus=7, rest=3),), COMMIT, "before"),
    Point("insert without a key: committed", (step("note", branch="north", amount=5, count=40),), COMMIT, "after"),
    Point("delete without a key: in the transaction", (step("forget", amount=5),), PUBLISH, "after"),
    *_through("transaction over two tables", PAY),
    Point("transaction: one table written, the other not", (PAY,), OPEN_WRITE, "after", 2),
    *_through("differential refresh", NORTH, step("refresh", name="rich")),
    Point("aggregate refresh: in the transaction", (NORTH, step("refresh", name="by_branch")), PUBLISH, "after"),
    Point("aggregate refresh: committed", (NORTH, step("refresh", name="by_branch")), COMMIT, "after"),
    Point("full refresh: in the transaction", (SMALL_NOTE, step("refresh", name="ranked")), PUBLISH, "after"),
    Point("full refresh: committed", (SMALL_NOTE, step("refresh", name="ranked")), COMMIT, "after"),
    *_through("fold", *FOLD),
    Point("fold without a key: committed", (step("forget", amount=5), step("compact", name="events")), COMMIT, "after"),
    Point("export: not begun", FOLD, EXPORT, "before"),
    Point("export: log not written", FOLD, LOG, "before"),
    Point("export: log written, not noted", FOLD, SET_EXPORTED, "before"),
    Point("merge: write registered", FILE_NOTES, OPEN_WRITE, "after", 2),
    Point("merge: before its commit", FILE_NOTES, COMMIT, "before", 2),
    Point("merge: in the transaction", FILE_NOTES, PUBLISH, "after", 2),
    Point("merge: committed", FILE_NOTES, COMMIT, "after", 2),
]

RICH_AGAIN = (step("drop", name="rich"), step("create", name="rich"))
CREATION = [
    *_through("creation", *RICH_AGAIN),
    Point("replacement: in the transaction", (step("replace", name="ranked"),), PUBLISH, "after"),
    Point("replacement: committed", (step("replace", name="ranked"),), COMMIT, "after"),
]

CHURN = (NORTH, step("refresh"), step("compact", name="accounts"), step("vacuum"))
VACUUM = [
    Point("vacuum: horizon moved, no file deleted", CHURN, REMOVABLE, "after"),
    Point("vacuum: files deleted, not forgotten", CHURN, FORGET_FILES, "before"),
    Point("vacuum: files forgotten", CHURN, FORGET_FILES, "after"),
    Point(
        "vacuum: tables forgotten, folders there",
        (step("drop", name="rich"), step("vacuum")),
        FORGET_TABLES,
        "after",
    ),
    Point("vacuum: write taken, files there", (step("vacuum"),), TAKE_WRITE, "after", abandoned=True),
    Point("vacuum: files of a write deleted", (step("vacuum"),), DISCARD_WRITE, "before", abandoned=True),
]


@pytest.fixture(scope="module")
def children(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    with nursery(spark, tmp_path_factory.mktemp("children")) as opened:
        yield opened


@pytest.fixture(scope="module")
def survivor(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Survivor:
    """The warehouse that lives through everything in this file, with something in it."""
    made = Survivor(tmp_path_factory.mktemp("survivor") / "bank", spark)
    made.create()
    with made.open() as wh:
        made.journal.run(
            wh, [step("open", first=0, count=30), step("note", branch="north", amount=12, count=4)], lambda _: None
        )
    made.check()
    return made


def _named(points: list[Point]) -> list[object]:
    return [pytest.param(p, id=p.name.replace(" ", "-")) for p in points]


@pytest.mark.parametrize("point", _named([_moved(p, 100 * i) for i, p in enumerate([*INSERT, *OTHERS])]))
def test_b58_death_in_a_change_a_refresh_or_maintenance(point: Point, survivor: Survivor, children: Nursery) -> None:
    survivor.die_at(point, children)
    survivor.check()


@pytest.mark.parametrize("point", _named(CREATION))
def test_death_while_a_stream_table_is_created(point: Point, survivor: Survivor, children: Nursery) -> None:
    survivor.die_at(point, children)
    with survivor.open() as wh:  # it is there whole, or it can be made again
        for name in ("rich", "ranked"):
            if wh.snapshot().table(name) is None:
                step("create", name=name).run(wh)
    survivor.check()


@pytest.mark.parametrize("point", _named(VACUUM))
def test_death_in_vacuum(point: Point, survivor: Survivor, children: Nursery) -> None:
    survivor.die_at(point, children)
    with survivor.open() as wh:
        if wh.snapshot().table("rich") is None:
            step("create", name="rich").run(wh)
    survivor.check()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_death_at_a_random_instant_together_with_spark(seed: int, survivor: Survivor) -> None:
    survivor.die_under_load(seed, random.Random(seed).uniform(0.5, 8.0), None)
    survivor.check()
