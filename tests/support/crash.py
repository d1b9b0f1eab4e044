"""Dying at a chosen step of the commit protocol, and what must hold afterwards.

A `Point` names a function of the product and the moment, before it runs or after, at which the child process kills itself. The
product knows nothing of it: the child wraps the function. `Survivor` is the warehouse that lives through one death after another;
`check` is called after each and holds it against the model.
"""

from __future__ import annotations

import functools
import importlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from tests.support.children import ROOT, Nursery, environment, session, wait_until_idle
from tests.support.load import SETTINGS, STREAMS, TABLES, Contents, Journal, Model, Step, random_steps

import headwater as hw

CATALOG = "headwater.db"


@dataclass(frozen=True)
class Point:
    """The moment of death: `when` ("before" or "after") the `nth` call of `function` in the last of `steps`."""

    name: str
    steps: tuple[Step, ...]
    function: str
    when: str
    nth: int = 1
    abandoned: bool = False
    """Whether an expired write with a file lies about when the child starts."""


# in the child ---------------------------------------------------------------------------------------------------------------


def struck(
    path: str,
    journal: str,
    steps: list[dict[str, Any]],
    function: str,
    when: str,
    nth: int,
    number: int = signal.SIGKILL,
    settings: dict[str, Any] | None = None,
) -> None:
    """Run steps and send this process a signal in the last one: to die, or to be stopped until somebody lets it go on.

    It is stopped while none of its threads writes to the catalog: SQLite's lock would stop everybody else too.
    """
    todo = [Step(**s) for s in steps]

    def strike(wh: hw.Warehouse) -> None:
        with wh._catalog._database._turn() if number == signal.SIGSTOP else nullcontext():
            os.kill(os.getpid(), number)

    def before(one: Step) -> None:
        if one is todo[-1]:
            arm(function, when, nth, lambda: strike(wh))

    with hw.connect(path, spark=session(), settings={**SETTINGS, **(settings or {})}) as wh:
        Journal(Path(journal)).run(wh, todo, before)


def arm(function: str, when: str, nth: int, act: Callable[[], None]) -> None:
    """Wrap "module:Class.method" or "module:function", so that `act` is called around its `nth` call."""
    module, _, name = function.partition(":")
    *outer, last = name.split(".")
    owner = functools.reduce(getattr, outer, importlib.import_module(module))
    original = getattr(owner, last)
    calls = 0

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        mine = calls
        if mine == nth and when == "before":
            act()
        result = original(*args, **kwargs)
        if mine == nth and when == "after":
            act()
        return result

    setattr(owner, last, wrapped)


def endless(path: str, journal: str, seed: int, own_spark: bool = False) -> None:
    """Run random steps until somebody kills this process."""
    spark = None if own_spark else session()
    settings = {**SETTINGS, "spark_memory": "1g", "shuffle_partitions": 2}
    record = Journal(Path(journal))
    with hw.connect(path, spark=spark, settings=settings) as wh:
        wh.spark.range(1).collect()
        record.write(ready=True)
        record.run(wh, random_steps(seed), lambda _: None)


# in the test ----------------------------------------------------------------------------------------------------------------


@dataclass
class Survivor:
    """A warehouse and the model of what it must hold."""

    path: Path
    spark: Any
    model: Model = field(default_factory=Model)
    seen: set[Contents] = field(default_factory=set)

    @property
    def journal(self) -> Journal:
        return Journal(self.path.parent / "journal.jsonl")

    def open(self) -> Any:
        return hw.connect(self.path, spark=self.spark, settings=SETTINGS)

    def create(self) -> None:
        """Make the warehouse with its tables and stream tables."""
        with self.open() as wh:
            for statement in TABLES:
                wh.sql(statement)
            for name, (query, mode) in STREAMS.items():
                wh.create_stream_table(name, query, refresh_mode=mode)
        self.seen.add(self.model.contents())

    def die_at(self, point: Point, nursery: Nursery) -> None:
        """Let a child die at the point."""
        self.journal.clear()
        if point.abandoned:
            self._abandon_write()
        child = nursery.start(
            "tests.support.crash:struck",
            path=str(self.path),
            journal=str(self.path.parent / "journal.jsonl"),
            steps=[asdict(s) for s in point.steps],
            function=point.function,
            when=point.when,
            nth=point.nth,
        )
        code = child.ended()
        tried = self.journal.entries()
        assert code == -signal.SIGKILL, f"the child ended with {code} after {tried[-1:]}: {nursery.log()}"
        assert "tried" in tried[-1], tried[-1]

    def die_under_load(self, seed: int, delay: float, nursery: Nursery | None) -> None:
        """Kill a child that runs random steps `delay` seconds after it began; without a nursery it has a Spark of its own."""
        self.journal.clear()
        arguments = {"path": str(self.path), "journal": str(self.path.parent / "journal.jsonl"), "seed": seed}
        if nursery is not None:
            child = nursery.start("tests.support.crash:endless", **arguments)
            self._await_ready(lambda: None)
            time.sleep(delay)
            child.send(signal.SIGKILL)
            child.ended()
            wait_until_idle(self.spark)
            return
        log = self.path.parent / "own-spark.log"
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.crash", str(self.path), arguments["journal"], str(seed)],
                cwd=ROOT,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                start_new_session=True,
            )
        try:
            self._await_ready(lambda: process.poll() is not None and log.read_text()[-3000:])
            time.sleep(delay)
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # with its JVM
            process.wait(60)

    def _await_ready(self, failure: Callable[[], object]) -> None:
        end = time.monotonic() + 240
        while not self.journal.entries():
            assert not failure(), failure()
            assert time.monotonic() < end
            time.sleep(0.05)

    def _abandon_write(self) -> None:
        with self.open() as wh:
            table = wh.snapshot().table("events")
            pattern = f"data/{table.id}/tail/{{id}}"
            write_id = wh._catalog.open_write("somebody:1:dead", 0.001, (pattern,))
            folder = self.path / pattern.replace("{id}", write_id)
            folder.mkdir(parents=True)
            (folder / "part-0.parquet").write_bytes(b"PAR1 half of a fi")

    def check(self) -> None:
        """Hold the warehouse against the model; every claim that must survive a death is here."""
        states = self.journal.states(self.model)
        before, after = states[-2:]
        possible = {before.contents(): before, after.contents(): after}
        self.seen |= {one.contents() for one in states}  # a base may have been exported after any step
        let_time_pass(self.path)
        with self.open() as wh:
            found = contents(wh)
            assert found in possible, _difference(found, before, after)
            self.model = possible[found]
            self._check_outside_readers(wh)
            for report in wh.refresh():
                assert report.action.value in ("NO_DATA", "DIFFERENTIAL", "FULL", "INITIAL")
            self._check_streams(wh)
            wh.vacuum()
            assert contents(wh) == found, "vacuum changed a table"
            self._check_outside_readers(wh)
            left = orphans(self.path)
            assert left == [], left

    def _check_streams(self, wh: Any) -> None:
        for result in wh.verify():
            assert result.equal, result
        totals = {r["branch"]: (r["n"], r["total"]) for r in wh.table("by_branch").collect()}
        expected: dict[str, tuple[int, int]] = {}
        for branch, balance in self.model.accounts.values():
            n, total = expected.get(branch, (0, 0))
            expected[branch] = (n + 1, total + balance)
        assert totals == expected, (totals, expected)

    def _check_outside_readers(self, wh: Any) -> None:
        """The lake log shows rows of a state that was committed once, this one or an earlier one."""
        accounts, events = set(), set()
        for one in self.seen:
            accounts.add(one[0])
            events.add(one[1])
        lake = wh.base_path("accounts")
        if DeltaTable.is_deltatable(lake):
            rows = DeltaTable(lake).to_pyarrow_table().to_pylist()
            assert len({r["id"] for r in rows}) == len(rows)
            shown = frozenset((r["id"], r["branch"], r["balance"]) for r in rows)
            assert shown in accounts, f"the lake log of accounts shows what never was: {sorted(shown)}"
        lake = wh.base_path("events")
        if DeltaTable.is_deltatable(lake):
            counted = Counter((r["branch"], r["amount"]) for r in DeltaTable(lake).to_pyarrow_table().to_pylist())
            assert frozenset(counted.items()) in events, f"the lake log of events shows what never was: {counted}"


def contents(wh: Any) -> Contents:
    """Return what the managed tables hold."""
    rows = wh.table("accounts").collect()
    assert len({r["id"] for r in rows}) == len(rows)
    counted = Counter((r["branch"], r["amount"]) for r in wh.table("events").collect())
    return frozenset((r["id"], r["branch"], r["balance"]) for r in rows), frozenset(counted.items())


def let_time_pass(path: Path) -> None:
    """Let every lease, write and pin run out."""
    with closing(sqlite3.connect(path / CATALOG, timeout=30)) as catalog:
        for table in ("leases", "writes", "pins"):
            catalog.execute(f"UPDATE {table} SET expires = 1")
        catalog.commit()


def orphans(path: Path) -> list[str]:
    """Return what is on disk and not in the catalog, what is in the catalog and not on disk, and writes left open."""
    with closing(sqlite3.connect(path / CATALOG)) as catalog:
        named = {row[0] for row in catalog.execute("SELECT path FROM files")}
        needed = {row[0] for row in catalog.execute("SELECT path FROM files WHERE removed IS NULL")}
        tables = {row[0] for row in catalog.execute("SELECT id FROM tables")}
        writes = [f"write {row[0]}" for row in catalog.execute("SELECT id FROM writes")]
    there = {
        str(file.relative_to(path))
        for file in (path / "data").rglob("*")
        if file.is_file() and "_delta_log" not in file.parts
    }
    folders = {file.relative_to(path / "data").parts[0] for file in (path / "data").rglob("*") if file.is_file()}
    left = [f"not in the catalog: {p}" for p in sorted(there - named)]
    left += [f"not on disk: {p}" for p in sorted(needed - there)]
    left += [f"folder of no table: {t}" for t in sorted(folders - tables)]
    return left + writes


def _difference(found: Contents, before: Model, after: Model) -> str:
    parts = []
    for label, model in (("before", before), ("after", after)):
        wanted = model.contents()
        for name, got, want in (("accounts", found[0], wanted[0]), ("events", found[1], wanted[1])):
            parts.append(f"{label} {name}: unexpected {sorted(got - want)[:5]}, missing {sorted(want - got)[:5]}")
    return "; ".join(parts)


if __name__ == "__main__":
    endless(sys.argv[1], sys.argv[2], int(sys.argv[3]), own_spark=True)
