"""Many stream tables under a running scheduler while changes stream in: `python -m tests.soak_scheduler --minutes 10 --tables 200`.

Several layers of stream tables with mixed queries, schedules and tiers stand over a few sources, which somebody changes all the time.
Looked at from outside, while the scheduler runs:

    memory     of this process and of Spark's, after garbage was collected: after warming up it may grow by a tenth
    schedules  a stream table that has work and is due may wait for twice its schedule while a worker is free, not longer
    failures   no refresh fails, no stream table is suspended, nobody's thread ends

At the end every stream table is compared with its query. The exit status is 1 if anything of it does not hold.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import headwater as hw
from headwater.catalog import Snapshot
from headwater.model.options import Tier
from headwater.model.tables import ACTIVE
from headwater.refresh.moment import pending_sources
from headwater.schedule.scheduler import Scheduler, TickReport
from headwater.schedule.schedules import Every, Manual, schedule_of

ROWS, CUSTOMERS, PRODUCTS = 2_000, 200, 50
REGIONS = ("north", "south", "east", "west")
SOURCE = "id BIGINT, customer BIGINT, product BIGINT, region STRING, amount BIGINT"
LOOK_SECONDS, MEMORY_SECONDS, TOLD_SECONDS = 0.5, 20.0, 30.0
GRACE_SECONDS = 1.0
"""What looking now and then, and a tick, may add to a wait."""
PATIENCE = 2.0
"""How many of its schedules a stream table may wait while a worker is free."""

SCHEDULES = {"1s": 10, "2s": 10, "5s": 20, "10s": 25, "30s": 20, "calculated": 15}
TIERS = {"hot": 80, "warm": 12, "cold": 6, "frozen": 2}
MOVING = {"hot": 80, "warm": 12, "cold": 6}
"""Tiers of diamonds: a frozen table would hold its whole group."""
LAYERS = (0.55, 0.30, 0.15)
FULL_SHARE, DIAMOND_SHARE = 0.03, 0.05

# Every stream table has the columns k, n and total, so that any of them can be read by the layers above.
OVER_SOURCE = (
    "SELECT customer AS k, count(*) AS n, sum(amount) AS total FROM {a} GROUP BY customer",
    "SELECT product AS k, count(*) AS n, max(amount) AS total FROM {a} GROUP BY product",
    "SELECT product AS k, count(DISTINCT customer) AS n, min(amount) AS total FROM {a} WHERE amount > 10 GROUP BY product",
    "SELECT id AS k, product AS n, amount * 2 AS total FROM {a} WHERE region <> 'north'",
    "SELECT DISTINCT customer AS k, product AS n, CAST(0 AS BIGINT) AS total FROM {a} WHERE region = 'south'",
    "SELECT id AS k, customer AS n, amount AS total FROM {a} ORDER BY amount DESC, id LIMIT 25",
    "SELECT id AS k, CAST(rank() OVER (PARTITION BY region ORDER BY amount, id) AS BIGINT) AS n, amount AS total FROM {a}",
)
OVER_TWO_SOURCES = (
    "SELECT a.id AS k, a.customer AS n, a.amount + b.amount AS total FROM {a} a JOIN {b} b ON a.id = b.id",
    "SELECT a.id AS k, a.customer AS n, b.amount AS total FROM {a} a LEFT JOIN {b} b ON a.id = b.id AND b.region = 'east'",
    "SELECT id AS k, customer AS n, amount AS total FROM {a} a WHERE EXISTS (SELECT 1 FROM {b} b WHERE b.id = a.id AND b.amount > 500)",
    "SELECT id AS k, customer AS n, amount AS total FROM {a} a WHERE NOT EXISTS (SELECT 1 FROM {b} b WHERE b.id = a.id)",
    "SELECT k, sum(n) AS n, sum(total) AS total FROM (SELECT customer AS k, product AS n, amount AS total FROM {a} "
    "UNION ALL SELECT customer, product, amount FROM {b}) GROUP BY k",
)
OVER_STREAM = (
    "SELECT pmod(k, 10) AS k, sum(n) AS n, sum(total) AS total FROM {a} GROUP BY pmod(k, 10)",
    "SELECT k, n, total FROM {a} WHERE pmod(k, 3) <> 1",
    "SELECT pmod(k, 7) AS k, count(*) AS n, max(total) AS total FROM {a} GROUP BY pmod(k, 7)",
)
MEETING = "SELECT a.k AS k, a.n + b.n AS n, a.total AS total FROM {a} a JOIN {b} b ON a.k = b.k"


# what is made ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Planned:
    """A stream table to be made."""

    name: str
    query: str
    schedule: str
    tier: str
    mode: str


def planned_tables(rng: random.Random, count: int, sources: Sequence[str]) -> list[Planned]:
    """Return stream tables, those that others read first."""
    layers: list[list[str]] = [[], [], []]
    found: list[Planned] = []
    sums: dict[str, list[str]] = {}  # of each source, sums by customer that no diamond has used yet

    def add(layer: int, query: str, mode: str = "DIFFERENTIAL", tiers: Mapping[str, int] = TIERS) -> Planned:
        made = Planned(f"t{layer}_{len(found)}", query, chosen(rng, SCHEDULES), chosen(rng, tiers), mode)
        found.append(made)
        layers[layer].append(made.name)
        return made

    while len(layers[0]) < max(1, round(count * LAYERS[0])):
        a, b = rng.sample(list(sources), 2)
        if rng.random() < 0.25:
            add(0, rng.choice(OVER_TWO_SOURCES).format(a=a, b=b))
            continue
        query = rng.choice(OVER_SOURCE)
        made = add(0, query.format(a=a), "FULL" if rng.random() < FULL_SHARE else "DIFFERENTIAL")
        if query is OVER_SOURCE[0] and made.tier in MOVING:
            sums.setdefault(a, []).append(made.name)
    while len(found) < count:
        layer = 1 if len(layers[1]) < count * LAYERS[1] else 2
        pairs = [names for names in sums.values() if len(names) > 1]
        if layer == 1 and pairs and rng.random() < DIAMOND_SHARE / LAYERS[1]:
            left, right = pairs[0].pop(), pairs[0].pop()
            add(1, MEETING.format(a=left, b=right), tiers=MOVING)
        else:
            add(layer, rng.choice(OVER_STREAM).format(a=rng.choice(layers[layer - 1])))
    return found


def chosen(rng: random.Random, weights: Mapping[str, int]) -> str:
    return rng.choices(list(weights), list(weights.values()))[0]


def rows_of(rng: random.Random, first: int, count: int) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(first, first + count), pa.int64()),
            "customer": pa.array([rng.randrange(CUSTOMERS) for _ in range(count)], pa.int64()),
            "product": pa.array([rng.randrange(PRODUCTS) for _ in range(count)], pa.int64()),
            "region": pa.array([rng.choice(REGIONS) for _ in range(count)], pa.string()),
            "amount": pa.array([rng.randrange(1_000) for _ in range(count)], pa.int64()),
        }
    )


# who changes ----------------------------------------------------------------------------------------------------------------


class Changer(threading.Thread):
    """Changes sources until told to stop: rows are inserted, updated and deleted, sometimes of two sources at once."""

    def __init__(self, wh: hw.Warehouse, sources: Sequence[str], seed: int, pause: float) -> None:
        super().__init__(name="changer", daemon=True)
        self.made: Counter[str] = Counter()
        self.error: BaseException | None = None
        self._wh = wh
        self._sources = sources
        self._rng = random.Random(seed)
        self._pause = pause
        self._next = dict.fromkeys(sources, ROWS)
        self._over = threading.Event()

    def stop(self) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        try:
            while not self._over.wait(self._rng.expovariate(1 / self._pause) if self._pause else 0.0):
                if self._rng.random() < 0.1:
                    with self._wh.transaction():
                        for source in self._rng.sample(list(self._sources), 2):
                            self._insert_rows(source)
                    self.made["of two sources"] += 1
                else:
                    kind = self._rng.choice((self._insert_rows, self._update_rows, self._delete_rows))
                    kind(self._rng.choice(self._sources))
                    self.made[kind.__name__.split("_")[1]] += 1
        except BaseException as error:
            self.error = error

    def _insert_rows(self, source: str) -> None:
        count = self._rng.randint(1, 30)
        self._wh.insert(source, rows_of(self._rng, self._next[source], count))
        self._next[source] += count

    def _update_rows(self, source: str) -> None:
        where = f"customer = {self._rng.randrange(CUSTOMERS)}"
        self._wh.update(source, set={"amount": "pmod(amount + 137, 1000)"}, where=where)

    def _delete_rows(self, source: str) -> None:
        """Delete about as many rows as are inserted, so that sources keep their size."""
        self._wh.delete(source, where=f"pmod(xxhash64(id, {self._rng.randrange(1 << 30)}), {ROWS // 15}) = 0")


# who looks ------------------------------------------------------------------------------------------------------------------


@dataclass
class Wait:
    """How long a stream table waits: since when it has work and is due, and how much of that while a worker was free."""

    refreshed_at: float | None
    since: float
    free: float = 0.0
    is_told: bool = False


@dataclass
class Schedules:
    """Watches who waits for longer than the schedule allows."""

    wh: hw.Warehouse
    scheduler: Scheduler
    missed: list[str] = field(default_factory=list)
    late: Counter[str] = field(default_factory=Counter)
    looks: int = 0
    crowded: int = 0
    _waits: dict[str, Wait] = field(default_factory=dict)
    _intervals: dict[str, float] = field(default_factory=dict)
    _last: float = 0.0
    _was_free: bool = False

    def look(self) -> None:
        """Take notice of who waits now."""
        snapshot, now = self.wh.snapshot(), time.time()
        state = self.scheduler.state()
        is_free = state.active < state.workers
        self.looks += 1
        self.crowded += not is_free
        if not self._intervals:
            self._intervals = intervals_of(snapshot, self.wh.settings.default_schedule_seconds)
        # A worker was free if it was at both looks; a look that came late says little of the time before.
        free = min(now - self._last, 2 * LOOK_SECONDS) if is_free and self._was_free else 0.0
        self._last, self._was_free = now, is_free
        for table_id, stream in snapshot.streams.items():
            if not pending_sources(snapshot, stream):
                self._waits.pop(table_id, None)
                continue
            wait = self._waits.get(table_id)
            if wait is None or wait.refreshed_at != stream.refreshed_at:
                wait = self._waits[table_id] = Wait(stream.refreshed_at, now)
            interval = self._intervals[table_id]
            due = max(wait.since, (stream.refreshed_at or 0.0) + interval)
            if now <= due:
                continue
            wait.free += min(free, now - due)
            if now - due > PATIENCE * interval + GRACE_SECONDS:
                self._note(snapshot, table_id, wait, now - due)

    def _note(self, snapshot: Snapshot, table_id: str, wait: Wait, waited: float) -> None:
        interval, name = self._intervals[table_id], snapshot.tables[table_id].name
        if not wait.is_told and wait.free > PATIENCE * interval + GRACE_SECONDS:
            wait.is_told = True
            self.missed.append(
                f"{name}, every {interval:g} s, has waited {waited:.1f} s, {wait.free:.1f} s with a free worker"
            )
        self.late[name] = max(self.late[name], round(waited / interval))


def intervals_of(snapshot: Snapshot, default: float) -> dict[str, float]:
    """Return how often each stream table is due at least; one that is calculated as often as what reads it."""
    found: dict[str, float] = {}

    def interval(table_id: str) -> float:
        if table_id not in found:
            stream = snapshot.streams[table_id]
            schedule = schedule_of(stream.schedule)
            if stream.options.tier is Tier.FROZEN or isinstance(schedule, Manual):
                found[table_id] = float("inf")
            elif isinstance(schedule, Every):
                found[table_id] = schedule.seconds * stream.options.tier.factor
            else:
                readers = [s for s in snapshot.streams if table_id in snapshot.sources.get(s, ())]
                found[table_id] = min(map(interval, readers), default=default * stream.options.tier.factor)
        return found[table_id]

    for table_id in snapshot.streams:
        interval(table_id)
    return found


@dataclass(frozen=True)
class Memory:
    """Resident megabytes of both processes, and what of Spark's heap is in use, after garbage was collected."""

    at: float
    python: float
    spark: float
    heap: float


def memory_now(wh: hw.Warehouse, at: float) -> Memory:
    jvm = wh.spark._jvm
    gc.collect()
    jvm.java.lang.System.gc()
    time.sleep(0.3)  # what is free goes back a moment later
    runtime = jvm.java.lang.Runtime.getRuntime()
    heap = (runtime.totalMemory() - runtime.freeMemory()) / (1 << 20)
    pid = jvm.java.lang.ProcessHandle.current().pid()
    return Memory(at, resident_mb("self"), resident_mb(pid), heap)


def resident_mb(pid: int | str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} does not say how much memory it uses")


def growth(samples: Sequence[Memory], of: Callable[[Memory], float]) -> tuple[float, float]:
    """Return the median of the first fifth of the samples, and by which share that of the last one is higher."""
    part = max(1, len(samples) // 5)
    first, last = (statistics.median(of(m) for m in some) for some in (samples[:part], samples[-part:]))
    return first, last / first - 1


# the soak -------------------------------------------------------------------------------------------------------------------


@dataclass
class Ticks:
    """What the scheduler says that it did."""

    count: int = 0
    actions: Counter[str] = field(default_factory=Counter)
    refreshed: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    error: BaseException | None = None

    def take(self, report: TickReport) -> None:
        self.count += 1
        self.actions.update(r.action.value for r in report.refreshed)
        self.refreshed.update(r.name for r in report.refreshed)
        self.failed += [f"{name}: {text.splitlines()[0]}" for name, text in report.failed]

    def run(self, scheduler: Scheduler) -> None:
        try:
            scheduler.run(self.take)
        except BaseException as error:
            self.error = error


def create(wh: hw.Warehouse, rng: random.Random, sources: Sequence[str], tables: Sequence[Planned]) -> None:
    for source in sources:
        wh.create_table(source, SOURCE, primary_key="id")
        wh.insert(source, rows_of(rng, 0, ROWS))
    for i, t in enumerate(tables):
        wh.create_stream_table(t.name, t.query, schedule=t.schedule, refresh_mode=t.mode, tier=t.tier)
        if (i + 1) % 25 == 0:
            say(f"{i + 1} stream tables are created")


def say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


def soaked(wh: hw.Warehouse, options: argparse.Namespace, sources: Sequence[str]) -> list[str]:
    """Let scheduler and changes run for a time; return what did not hold."""
    scheduler: Scheduler = wh.scheduler()
    done = scheduler.warm_up()
    say(f"warmed up with {done} delta programs")
    ticks, changer = Ticks(), Changer(wh, sources, options.seed, options.pause)
    runner = threading.Thread(target=ticks.run, args=(scheduler,), name="scheduler")
    schedules = Schedules(wh, scheduler)
    samples: list[Memory] = []
    began = time.monotonic()
    warm, ends = (began + 60 * m for m in (options.warm_up, options.minutes))
    measured, told = began, began
    runner.start()
    changer.start()
    try:
        while (now := time.monotonic()) < ends and changer.is_alive() and runner.is_alive():
            schedules.look()
            if now >= measured:
                measured = now + min(MEMORY_SECONDS, (ends - warm) / 10)
                samples.append(memory_now(wh, now))
            if now >= told:
                told = now + TOLD_SECONDS
                say(progress_text(now - began, ticks, changer, schedules, samples[-1]))
            time.sleep(LOOK_SECONDS)
    finally:
        changer.stop()
        scheduler.stop()
        runner.join()
    after = [m for m in samples if m.at >= warm]
    report(ticks, changer, schedules, after)
    return [*failures(wh, ticks, changer, schedules), *grown(after, options.most_growth)]


def progress_text(seconds: float, ticks: Ticks, changer: Changer, schedules: Schedules, memory: Memory) -> str:
    return (
        f"{seconds:.0f} s: {sum(changer.made.values())} changes, {ticks.count} ticks, {sum(ticks.refreshed.values())} refreshes, "
        f"{len(schedules.missed)} missed, all workers busy {schedules.crowded / max(1, schedules.looks):.0%}, "
        f"python {memory.python:.0f} MB, spark {memory.spark:.0f} MB, of it {memory.heap:.0f} MB live"
    )


def report(ticks: Ticks, changer: Changer, schedules: Schedules, after: Sequence[Memory]) -> None:
    actions = ", ".join(f"{n} {action}" for action, n in sorted(ticks.actions.items()))
    made = ", ".join(f"{n} {kind}" for kind, n in sorted(changer.made.items()))
    say(f"changes: {made}")
    say(f"{ticks.count} ticks with work; refreshes: {actions}; {len(ticks.refreshed)} stream tables were refreshed")
    late = ", ".join(f"{name} {times}x" for name, times in schedules.late.most_common(5))
    say(
        f"all workers busy in {schedules.crowded} of {schedules.looks} looks; longest waits in schedules: {late or 'none'}"
    )
    for label, of in MEASURES.items():
        if after:
            first, share = growth(after, of)
            say(f"{label}: {first:.0f} MB after warming up, {share:+.1%} at the end ({len(after)} samples)")


MEASURES: Mapping[str, Callable[[Memory], float]] = {
    "python, resident": lambda m: m.python,
    "spark, resident": lambda m: m.spark,
    "spark, live heap": lambda m: m.heap,
}
CHECKED = ("python, resident", "spark, resident")


def grown(after: Sequence[Memory], most: float) -> list[str]:
    """Return which process grew too much after warming up."""
    if len(after) < 5:
        return [f"only {len(after)} samples of memory after warming up: run it for longer"]
    found = []
    for label in CHECKED:
        first, share = growth(after, MEASURES[label])
        if share > most:
            found.append(f"{label}: {first:.0f} MB grew by {share:.1%}, allowed is {most:.0%}")
    return found


def failures(wh: hw.Warehouse, ticks: Ticks, changer: Changer, schedules: Schedules) -> list[str]:
    found = [f"missed: {text}" for text in schedules.missed] + [f"failed: {text}" for text in ticks.failed]
    found += [f"{what} ended: {e!r}" for what, e in (("scheduler", ticks.error), ("changes", changer.error)) if e]
    snapshot = wh.snapshot()
    found += [
        f"{snapshot.tables[i].name} is {stream.status}: {stream.last_error}"
        for i, stream in snapshot.streams.items()
        if stream.status != ACTIVE
    ]
    if not ticks.refreshed or not changer.made:
        found.append("nothing was changed, or nothing refreshed: this run says nothing")
    return found


def differing(wh: hw.Warehouse) -> list[str]:
    """Compare every stream table with its query at its frontier; then bring all up to date and compare those that moved."""
    found: list[Any] = wh.verify()
    say(f"verified {len(found)} stream tables at their frontiers, {sum(v.rows > 0 for v in found)} of them have rows")
    moved = [r.name for r in wh.refresh() if r.action is not hw.RefreshAction.NO_DATA]
    found += [wh.verify(name) for name in moved]
    say(f"refreshed the {len(moved)} that were behind, and verified them again")
    return [
        f"{v.name} differs from its query: {v.missing} missing, {v.unexpected} unexpected" for v in found if not v.equal
    ]


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.warm_up is None:
        options.warm_up = options.minutes * 0.4
    rng = random.Random(options.seed)
    sources = [f"s{i}" for i in range(options.sources)]
    tables = planned_tables(rng, options.tables, sources)
    with (
        tempfile.TemporaryDirectory(prefix="headwater-soak-", dir=options.directory) as directory,
        hw.connect(Path(directory) / "warehouse", settings={"log_level": "ERROR"}) as wh,
    ):
        create(wh, rng, sources, tables)
        wrong = soaked(wh, options, sources)
        wrong += differing(wh)
    for text in wrong:
        say(f"WRONG: {text}")
    say("failed" if wrong else "passed")
    return 1 if wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.soak_scheduler", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="how long the scheduler runs (10)")
    parser.add_argument("--tables", type=int, default=200, help="stream tables (200)")
    parser.add_argument("--sources", type=int, default=10, help="tables that are changed, two at least (10)")
    parser.add_argument("--warm-up", type=float, help="minutes after which memory must not grow (two fifths of all)")
    parser.add_argument("--pause", type=float, default=2.0, help="seconds between two changes on average (2)")
    parser.add_argument("--most-growth", type=float, default=0.10, help="share by which memory may grow (0.1)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, help="where the warehouse is made; a temporary directory without it")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
