"""Two scheduler processes on one PostgreSQL catalog share the work, obey a third one, and survive each other's death.

Whoever reads while they work sees one moment: money is moved between two tables in transactions, and the stream tables that keep both
sides are refreshed together.
"""

from __future__ import annotations

import itertools
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.children import Child, Nursery, nursery, session
from tests.support.dags import Bank, Share, check_history
from tests.support.load import Journal
from tests.support.oracle import interpreted
from tests.support.postgres import postgres_server, postgres_url  # noqa: F401

import headwater as hw
from headwater.model.reports import PauseReport
from headwater.refresh.cycle import LEASES
from headwater.refresh.moment import pending_sources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.postgres, pytest.mark.timeout(1200)]

LEASE = 3.0
PATIENCE = 120.0
"""How long to wait for what must come, in seconds: machines that run tests are slow at times."""
SETTINGS = {
    "lease_seconds": LEASE,
    "scheduler_interval_seconds": 0.1,
    "scheduler_heartbeat_seconds": 0.5,
    "max_concurrent_refreshes": 2,
    "busy_timeout_seconds": 30,
    "log_level": "ERROR",
}
ROWS, EACH = 12, 100
SOURCES = ("checking", "savings", "orders", "parts")
STREAMS = {
    "left_sums": "SELECT k, sum(v) AS v FROM checking GROUP BY k",
    "right_sums": "SELECT k, sum(v) AS v FROM savings GROUP BY k",
    "meeting": "SELECT l.k, l.v AS a, r.v AS b FROM left_sums l JOIN right_sums r ON l.k = r.k",
    "by_order": "SELECT k, count(*) AS n, sum(v) AS v FROM orders GROUP BY k",
    "large": "SELECT id, k, v FROM orders WHERE v > 50",
    "by_part": "SELECT k, sum(v) AS v FROM parts GROUP BY k",
    "supplied": "SELECT o.id, o.v + p.v AS v FROM orders o JOIN parts p ON o.id = p.id",
    "kinds": "SELECT DISTINCT id, v FROM parts",
}
MEMBERS = ("left_sums", "right_sums", "meeting")
BANK = Bank((Share("left_sums", left="v"), Share("right_sums", right="v"), Share("meeting", "a", "b")), 2 * ROWS * EACH)


def scheduling(target: str, location: str, journal: str) -> None:
    """In a child: run a scheduler until SIGTERM, and write down what it refreshes."""
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: over.set())
    record = Journal(Path(journal))
    with hw.connect(target, location=location, spark=session(), settings=SETTINGS) as wh, wh.scheduler() as scheduler:
        seen = lambda report: record.write(refreshed=[r.name for r in report.refreshed])  # noqa: E731
        thread = threading.Thread(target=scheduler.run, args=(seen,))
        thread.start()
        over.wait()
        scheduler.stop()
        thread.join()


@dataclass
class Pair:
    """A warehouse, and two processes with a scheduler each."""

    wh: Any
    processes: list[Child]
    journals: dict[int, Journal]
    rng: random.Random = field(default_factory=lambda: random.Random(1))

    def change(self) -> None:
        """Change every source; money only moves."""
        one, other, amount = self.rng.randrange(ROWS), self.rng.randrange(ROWS), self.rng.randint(1, 50)
        with self.wh.transaction():
            self.wh.sql(f"UPDATE checking SET v = v - {amount} WHERE id = {one}")
            self.wh.sql(f"UPDATE savings SET v = v + {amount} WHERE id = {other}")
        self.wh.sql(f"UPDATE orders SET v = v + 1 WHERE id = {one}")
        self.wh.sql(f"UPDATE parts SET v = v + 1 WHERE id = {other}")

    def check_bank(self) -> None:
        fault = BANK.fault(self.wh.sql(BANK.sql).collect()[0])
        assert fault is None, fault

    def pending(self) -> set[str]:
        """Return the stream tables that have something to do."""
        snapshot = self.wh.snapshot()
        return {snapshot.tables[i].name for i, s in snapshot.streams.items() if pending_sources(snapshot, s)}

    def done(self) -> dict[int, Counter[str]]:
        """Return what each process has refreshed, and how often."""
        return {
            pid: Counter(name for entry in journal.entries() for name in entry["refreshed"])
            for pid, journal in self.journals.items()
        }

    def alive(self) -> dict[int, Any]:
        """Return how the schedulers fare that live, by process."""
        return {s.pid: s for s in self.wh.scheduler_diagnostics()}

    def held_by(self, pid: int) -> dict[str, float]:
        """Return the stream tables that a process is refreshing, and when its leases end."""
        catalog, names = self.wh._catalog, self.wh.snapshot().tables
        held = catalog.leases_of_others(LEASES, "")
        found = {lease: catalog.lease_holder(lease) for lease, owner in held.items() if f":{pid}:" in owner}
        return {names[lease.removeprefix(LEASES)].name: h.expires for lease, h in found.items() if h is not None}

    def ticked(self, times: int) -> None:
        """Wait until every scheduler has ticked so often again."""
        before = {pid: s.ticks for pid, s in self.alive().items()}
        await_(lambda: all(s.ticks >= before.get(pid, 0) + times for pid, s in self.alive().items()))


@contextmanager
def pair(spark: SparkSession, url: str, here: Path) -> Iterator[Pair]:
    """Make the warehouse, and two processes that run schedulers on it."""
    location = str(here / "files")
    with (
        interpreted(spark),
        nursery(spark, here) as children,
        hw.connect(url, location=location, spark=spark, settings=SETTINGS) as wh,
    ):
        for name in SOURCES:
            wh.create_table(name, "id BIGINT, k BIGINT, v BIGINT", primary_key="id")
            wh.insert(name, [{"id": i, "k": i % 4, "v": EACH} for i in range(ROWS)])
        for name, query in STREAMS.items():
            wh.create_stream_table(name, query, schedule="1s", refresh_mode="DIFFERENTIAL")
        wh.create_refresh_group("money", MEMBERS)
        made = Pair(wh, [], {})
        for i in range(2):
            _begin(made, children, url, location, here / f"journal-{i}.jsonl")
        await_(lambda: len(made.alive()) == 2)
        yield made


def _begin(made: Pair, children: Nursery, url: str, location: str, journal: Path) -> None:
    task = "tests.scenarios.test_scheduler_processes:scheduling"
    child = children.start(task, target=url, location=location, journal=str(journal))
    made.processes.append(child)
    made.journals[child.pid] = Journal(journal)


def await_(holds: Callable[[], object], meanwhile: Callable[[], None] = lambda: None) -> float:
    """Wait until something holds; return how many seconds that took."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < PATIENCE, "it never came"
        meanwhile()
        time.sleep(0.02)
    return time.monotonic() - began


def check_work(wh: Any) -> None:
    """Check that everything is right, that it came from changes, and that nothing was done twice or by two at once."""
    for result in wh.verify():
        assert result.equal, result
        assert result.rows > 0
    assert all(count > 1 for count in check_history(wh).values())
    for table_id in wh.snapshot().streams:
        records = sorted(wh._catalog.history(table_id, 10_000), key=lambda r: (r.started_at, r.finished_at))
        assert {r.action.value for r in records} == {"INITIAL", "DIFFERENTIAL"}
        assert [r for r in records if not r.rows_in or not r.rows_inserted] == []
        for one, other in itertools.pairwise(records):
            assert one.finished_at <= other.started_at, (one, other)


def test_two_schedulers_share_the_work_and_obey_a_third_process(
    spark: SparkSession,
    postgres_url: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    with pair(spark, postgres_url, tmp_path) as both:
        wh = both.wh
        rounds = 0
        while rounds < 3 or not all(both.done().values()):
            assert rounds < 40, both.done()
            rounds += 1
            both.change()
            await_(lambda: not both.pending(), both.check_bank)

        assert wh.pause_scheduler(["large", "kinds"]) == PauseReport(("kinds", "large"), ())
        both.change()
        await_(lambda: both.pending() == {"large", "kinds"}, both.check_bank)
        both.ticked(3)
        assert both.pending() == {"large", "kinds"}
        assert wh.resume_scheduler("large") == ("large",)
        await_(lambda: both.pending() == {"kinds"})
        wh.resume_all()
        await_(lambda: not both.pending())

        both.change()
        assert wh.drain(PATIENCE)
        assert wh.is_drained()
        both.change()
        waiting = both.pending()
        assert waiting
        at = wh.version
        both.ticked(3)
        assert (both.pending(), wh.version) == (waiting, at)
        wh.undrain()
        await_(lambda: not both.pending(), both.check_bank)

        check_work(wh)
        print(f"after {rounds} rounds: {[sum(d.values()) for d in both.done().values()]} refreshes each")
        for child in both.processes:
            child.send(signal.SIGTERM)
        assert [child.ended() for child in both.processes] == [0, 0]
        assert both.alive() == {}


def test_one_scheduler_goes_on_when_the_other_is_killed_at_work(
    spark: SparkSession,
    postgres_url: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    with pair(spark, postgres_url, tmp_path) as both:
        wh = both.wh
        victim, survivor = both.processes
        left = killed_at_work(both, victim)
        assert left
        assert wh.health_check()[0].detail == "2 live: running, running"
        both.change()
        took = await_(lambda: not both.pending(), both.check_bank)
        print(f"{sorted(left)} were left behind, all was done after {took:.1f} s")
        await_(lambda: set(both.alive()) == {survivor.pid})
        assert wh.health_check()[0].detail == "1 live: running"

        snapshot = wh.snapshot()
        for name, expires in left.items():
            after = [r.started_at for r in wh._catalog.history(snapshot.names[name], 100) if r.started_at > expires]
            assert after, f"{name} was never refreshed again"
        assert took < LEASE + PATIENCE / 4
        both.change()
        await_(lambda: not both.pending(), both.check_bank)
        assert set(both.done()[survivor.pid]) == set(STREAMS)
        check_work(wh)
        survivor.send(signal.SIGTERM)
        assert survivor.ended() == 0


def killed_at_work(both: Pair, victim: Child) -> dict[str, float]:
    """Kill a process while it refreshes something; return what that was, and when its leases end."""
    for _ in range(40):
        both.change()
        while both.pending():
            if not both.held_by(victim.pid):
                continue
            victim.send(signal.SIGSTOP)
            victim.stopped()
            held = both.held_by(victim.pid)
            if held:
                victim.send(signal.SIGKILL)
                assert victim.ended() == -signal.SIGKILL
                return held
            victim.send(signal.SIGCONT)
    return {}
