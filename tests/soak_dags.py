"""Random graphs of stream tables live under a scheduler: `python -m tests.soak_dags --minutes 30 --seed 1 --nodes 30`.

Each seed is a graph and what happens to it: changes, pauses, gates, fuses, tiers, failures, threads and processes that die. All the time
others read, and must find one moment: the money of a bank is always all there. After some rounds everything is taken back, the scheduler
ticks until nothing is left to do, and every stream table is compared with its query.

    python -m tests.soak_dags --minutes 30 --seed 100              seeds from 100 on, until time is up
    python -m tests.soak_dags --seed 107 --count 1 --rounds 6      the first rounds of one seed again
    python -m tests.soak_dags --seed 107 --count 1 --skip 0,1,4    without some of its rounds

The exit status is 1 if any seed failed.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, assert_never

from tests.support.children import Nursery, nursery, session
from tests.support.crash import arm
from tests.support.dags import (
    ACCOUNTS,
    COLUMNS,
    CREWS,
    KEYS,
    LEFT,
    MONEY,
    RIGHT,
    TOTAL,
    Change,
    Control,
    Dag,
    Harm,
    Kill,
    Round,
    Strike,
    Verb,
    check_history,
    random_dag,
    random_rounds,
    require,
    rows_of,
)
from tests.support.oracle import interpreted

import headwater as hw
from headwater.catalog.failures import CommitUnknownError
from headwater.catalog.tables import leases
from headwater.engine.session import start_session
from headwater.errors import BusyError, HeadwaterError, StatementError
from headwater.model.commit import Commit, MoveFrontier
from headwater.model.control import EVERYTHING, Blown, Drain, Gate, Pause, Skipped
from headwater.model.options import Consistency
from headwater.model.tables import SUSPENDED, RefreshAction
from headwater.refresh.moment import pending_sources
from headwater.schedule.scheduler import Scheduler, TickReport
from headwater.schedule.workers import Crew
from headwater.settings import Settings

LATER = 3_600.0
"""So many seconds make every schedule due, and every failure be tried again."""
PAUSE = 0.1
"""Seconds between two reads while others work."""
BESIDE = "beside"
"""The name of threads that read and write while a tick runs. They are not harmed."""
MOST_TICKS = 20
"""So many such ticks bring everything up to date."""


class Time:
    """A clock that is turned by hand."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@dataclass
class Tally:
    """What was done and checked: a run in which nothing happened shows here."""

    ticks: int = 0
    actions: Counter[str] = field(default_factory=Counter)
    changed: Counter[str] = field(default_factory=Counter)
    harmed: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    said: Counter[str] = field(default_factory=Counter)
    together: int = 0
    reads: int = 0
    states: int = 0
    verified: int = 0
    deaths: int = 0

    def __str__(self) -> str:
        lists = {
            "refreshes": self.actions,
            "harmed": self.harmed,
            "failed": self.failed,
            "skipped": self.skipped,
            "said": self.said,
        }
        parts = [f"{self.ticks} ticks"]
        for label, counts in lists.items():
            parts.append(f"{label}: " + (", ".join(f"{n} {what}" for what, n in sorted(counts.items())) or "none"))
        parts.append(f"{sum(self.changed.values())} changed {len(self.changed)} tables, {self.together} in groups")
        parts.append(f"{self.reads} reads of the money saw {self.states} states, {self.verified} tables verified")
        return "; ".join(parts) + (f"; {self.deaths} killed" if self.deaths else "")

    def add(self, other: Tally) -> None:
        for name in ("ticks", "together", "reads", "states", "verified", "deaths"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("actions", "changed", "harmed", "failed", "skipped", "said"):
            getattr(self, name).update(getattr(other, name))


class Life:
    """Plays rounds on a warehouse, and checks all the time."""

    def __init__(self, wh: Any, dag: Dag, crew: str, children: Any = None) -> None:
        self.wh = wh
        self.dag = dag
        self.tally = Tally()
        self._crew = crew
        self._children = children
        self._time = Time()
        self._seen: set[Any] = set()
        self._strikes: list[Strike] = []
        self._is_ticking = False
        self._lock = threading.Lock()
        self._node = {n.name: n for n in dag.nodes}
        self._groups: list[frozenset[str]] = []
        self._skipped: set[str] = set()
        self._scheduler: Scheduler | None = None

    # making -----------------------------------------------------------------------------------------------------------------

    def create(self) -> None:
        """Make the tables with their first rows, and the stream tables."""
        wh, rng = self.wh, random.Random(f"rows {self.dag.seed}")
        for name in (LEFT, RIGHT):
            wh.create_table(name, COLUMNS, primary_key="id")
            wh.insert(name, [{"id": i, "k": i % KEYS, "n": 1, "v": MONEY} for i in range(ACCOUNTS)])
        for name in self.dag.free:
            wh.create_table(name, COLUMNS, primary_key="id")
            wh.sql(f"INSERT INTO {name} VALUES {rows_of(rng, 0, 20)}")
        for n in self.dag.nodes:
            wh.create_stream_table(n.name, n.query, schedule=n.schedule, refresh_mode=n.mode, **dict(n.options))
        for name, members in self.dag.groups:
            wh.create_refresh_group(name, members)
        self._groups = [frozenset(members) for _, members in self.dag.groups]
        diamonds: dict[str, set[str]] = defaultdict(set)
        for g in wh.diamond_groups():
            if g.consistency is Consistency.ATOMIC:
                diamonds[g.group].add(g.member)
        self._groups += [frozenset(members) for members in diamonds.values()]
        self.wh._catalog.now = self._time
        self._arm()
        self.check_banks()

    def scheduler(self) -> Scheduler:
        """Return a scheduler whose clock is ours."""
        wh = self.wh
        return Scheduler(
            wh._ground, wh._refresher, wh._maintenance.after_change, crew=Crew(CREWS[self._crew]()), now=self._time
        )

    # playing ----------------------------------------------------------------------------------------------------------------

    def play(self, scheduler: Scheduler, round_: Round) -> None:
        """Do all of a round, the tick at its end, and look whether everything is as it must be."""
        for action in round_.actions:
            match action:
                case Change():
                    self._change(action)
                case Control():
                    self._control(action)
                case Strike():
                    self._strikes.append(action)
                case Kill():
                    self._kill(action)
                case _:
                    assert_never(action)
        self._time.now += round_.seconds
        self.tick(scheduler, round_.meanwhile)
        self.check_banks()
        self.verify(round_.verify)

    def tick(self, scheduler: Scheduler, meanwhile: Sequence[Change | Control] = ()) -> TickReport | None:
        """Tick while others read and write; return None if the tick died."""
        held = self._held()
        faults: list[BaseException] = []
        over = threading.Event()

        def read() -> None:
            while not over.wait(PAUSE):
                self.check_banks()

        def write() -> None:
            for one in meanwhile:
                if isinstance(one, Change):
                    self._change(one)
                else:
                    self._control(one)

        def begun(work: Callable[[], None]) -> threading.Thread:
            def run() -> None:
                try:
                    work()
                except BaseException as error:
                    faults.append(error)

            thread = threading.Thread(target=run, name=BESIDE, daemon=True)
            thread.start()
            return thread

        threads = [begun(read), begun(write)]
        report = None
        self._scheduler, self._is_ticking = scheduler, True
        try:
            report = scheduler.tick()
        except SystemExit:  # an inline worker died, and took the tick with it
            self.tally.failed["tick"] += 1
        finally:
            self._is_ticking = False
            over.set()
            for thread in threads:
                thread.join()
        if faults:
            raise faults[0]
        if report is not None:
            self._take(report, held)
        return report

    def _take(self, report: TickReport, held: dict[str, str]) -> None:
        """Count what a tick did, and check that it was allowed to."""
        self.tally.ticks += 1
        names = [r.name for r in report.refreshed]
        require(len(set(names)) == len(names), f"refreshed twice in one tick: {sorted(names)}")
        broken = {n: held[n] for n in names if n in held}
        require(not broken, f"refreshed all the same: {broken}")
        versions = {r.name: r.version for r in report.refreshed}
        for group in self._groups:
            found = {versions[n] for n in group if n in versions}
            require(len(found) <= 1, f"members of a group were committed apart: {sorted(group)}: {versions}")
            self.tally.together += len(found) and sum(n in versions for n in group) > 1
        for r in report.refreshed:
            expected = RefreshAction.FULL if self._node[r.name].mode == "FULL" else RefreshAction.DIFFERENTIAL
            require(r.action is expected, f"{r.name} was refreshed {r.action.value}: {r.reason}")
            self.tally.actions[r.action.value] += 1
            if r.rows_inserted or r.rows_deleted:
                self.tally.changed[r.name] += 1
        self.tally.failed.update(text.splitlines()[0].split(":")[0][:40] for _, text in report.failed)
        self.tally.skipped.update(reason.split(":")[0].split(" in ")[0][:40] for _, reason in report.skipped)

    def _held(self) -> dict[str, str]:
        """Return which stream tables must not be refreshed now, and why."""
        snapshot = self.wh.snapshot()
        notes = snapshot.notes
        found: dict[str, str] = {}
        for table_id, stream in snapshot.streams.items():
            reasons = {
                "drained": notes.get(Drain, EVERYTHING) is not None,
                "paused": any(notes.get(Pause, name) is not None for name in (EVERYTHING, table_id)),
                "gated": any(notes.get(Gate, s) is not None for s in snapshot.sources[table_id]),
                "blown": notes.get(Blown, table_id) is not None,
                "suspended": stream.status == SUSPENDED,
                "frozen": stream.options.tier.value == "frozen",
            }
            if any(reasons.values()):
                found[snapshot.tables[table_id].name] = ", ".join(r for r, is_so in reasons.items() if is_so)
        for group in self._groups:
            stopped = next((n for n in group if n in found), None)
            if stopped is not None:
                found |= {n: f"{stopped} is {found[stopped]}" for n in group if n not in found}
        return found

    def _change(self, change: Change) -> None:
        """Make a change; a transaction that meets somebody else is begun again."""
        for left in reversed(range(20)):
            try:
                if len(change.texts) == 1:
                    self.wh.sql(change.texts[0])
                else:
                    with self.wh.transaction():
                        for text in change.texts:
                            self.wh.sql(text)
                return
            except BusyError:
                if not left:
                    raise
                time.sleep(0.05)

    def _control(self, control: Control) -> None:
        wh, names, value = self.wh, control.names, control.value
        self.tally.said[control.verb.value] += 1
        match control.verb:
            case Verb.PAUSE:
                require(not wh.pause_scheduler(names).still_running, "it waits for what runs")
            case Verb.RESUME:
                wh.resume_scheduler(names)
            case Verb.PAUSE_ALL:
                wh.pause_all()
            case Verb.RESUME_ALL:
                wh.resume_all()
            case Verb.DRAIN:
                require(wh.drain(5) and wh.is_drained(), "nothing runs between two ticks")
            case Verb.UNDRAIN:
                wh.undrain()
            case Verb.GATE:
                wh.gate_source(names[0], "loading")
            case Verb.UNGATE:
                wh.ungate_source(names[0])
            case Verb.TIER:
                wh.alter_stream_table(names[0], tier=value)
            case Verb.SCHEDULE:
                wh.alter_stream_table(names[0], schedule=value)
            case Verb.REFRESH:
                self._by_hand(lambda: wh.refresh(names[0]))
            case Verb.RESET_FUSES:
                for name in self._tables_with(Blown):
                    self._reset_fuse(name, value)
            case Verb.RESUME_SUSPENDED:
                self._resume_suspended()
            case _:
                assert_never(control.verb)

    def _reset_fuse(self, name: str, action: str) -> None:
        """Reset a fuse; leave nothing out of what money depends on, or of a group, which refuses that."""
        if action == "skip_changes" and name not in self._upstream_of_money():
            try:
                self.wh.reset_fuse(name, action)
                self._skipped.add(name)
                return
            except StatementError:
                require(any(name in g for g in self._groups), f"{name} is in no group")
        self._by_hand(lambda: self.wh.reset_fuse(name, action if action != "skip_changes" else "apply"))

    def _by_hand(self, work: Callable[[], object]) -> None:
        """Refresh by hand; nobody's fault are rows on which a query fails, and a scheduler that does it just now."""
        try:
            work()
        except HeadwaterError as error:
            is_busy = isinstance(error, BusyError) and threading.current_thread().name == BESIDE
            if "DIVIDE_BY_ZERO" not in str(error) and not is_busy:
                raise
            self.tally.failed["by hand, busy" if is_busy else "by hand"] += 1

    def _tables_with(self, kind: Any) -> list[str]:
        snapshot = self.wh.snapshot()
        return [snapshot.tables[i].name for i in snapshot.notes.of(kind) if i in snapshot.streams]

    def _upstream_of_money(self) -> set[str]:
        """Return the stream tables of which no change may be left out."""
        found = set(self.dag.money)
        for node in reversed(self.dag.nodes):
            if node.name in found:
                found.update(node.sources)
        return found

    def _resume_suspended(self) -> int:
        snapshot = self.wh.snapshot()
        suspended = [snapshot.tables[i].name for i, s in snapshot.streams.items() if s.status == SUSPENDED]
        for name in suspended:
            require(self.wh.resume_stream_table(name), f"{name} was suspended")
        return len(suspended)

    # harm -------------------------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Let refreshes be harmed as strikes say."""
        computer, catalog = self.wh._refresher.computer, self.wh._catalog
        computed, commit = computer.computed, catalog.commit

        def harmed(scene: Any, stream: Any, definition: Any, action: Any) -> Any:
            strike = self._struck(scene.snapshot.tables[stream.table_id].name, lambda s: s.harm is not Harm.LOST)
            if strike is not None:
                self.tally.harmed[strike.harm.name] += 1
                match strike.harm:
                    case Harm.ERROR:
                        raise OSError("no space left on device")
                    case Harm.BUG:
                        raise RuntimeError("nobody expected this")
                    case Harm.DEATH:
                        raise SystemExit("this thread dies")
                    case Harm.CANCEL:
                        assert self._scheduler is not None
                        self._scheduler.cancel("somebody said so")
                    case Harm.LATE:
                        computed(scene, stream, definition, action)
                        raise OSError("no space left on device")
                    case Harm.LOST:
                        pass
                    case _:
                        assert_never(strike.harm)
            return computed(scene, stream, definition, action)

        def lost(commit_: Commit) -> int:
            names = self.wh.snapshot().tables
            moved = [names[c.table_id].name for c in commit_.changes if isinstance(c, MoveFrontier)]
            version = int(commit(commit_))
            if any(self._struck(n, lambda s: s.harm is Harm.LOST) for n in moved):
                self.tally.harmed[Harm.LOST.name] += 1
                raise CommitUnknownError("the connection broke")
            return version

        computer.computed = harmed
        catalog.commit = lost

    def _struck(self, name: str, wanted: Callable[[Strike], bool]) -> Strike | None:
        if not self._is_ticking or threading.current_thread().name == BESIDE:
            return None
        with self._lock:
            found = next((s for s in self._strikes if s.table == name and wanted(s)), None)
            if found is not None:
                self._strikes.remove(found)
            return found

    def _kill(self, kill: Kill) -> None:
        """Let another process tick until it is dead, while others read and write here."""
        if self._children is None:
            return
        location = self.wh._ground.layout.location
        child = self._children.start(
            "tests.soak_dags:tick_until_killed",
            path=str(location),
            now=self._time.now,
            crew=self._crew,
            function=kill.function,
            when=kill.when,
            nth=kill.nth,
        )
        ended: list[int] = []
        waiter = threading.Thread(target=lambda: ended.append(child.ended()), daemon=True)
        waiter.start()
        while waiter.is_alive():
            self.check_banks()
            waiter.join(PAUSE)
        require(ended[0] in (0, -signal.SIGKILL), f"the process ended with {ended[0]}: {self._children.log()}")
        self.tally.deaths += ended[0] == -signal.SIGKILL
        expire_leases(self.wh)
        self._time.now = max([self._time.now, *(s.refreshed_at or 0.0 for s in self.wh.snapshot().streams.values())])

    # checks -----------------------------------------------------------------------------------------------------------------

    def check_banks(self) -> None:
        """Read the money, each bank in one statement."""
        for bank in self.dag.banks:
            row = self.wh.sql(bank.sql).collect()[0]
            fault = bank.fault(row)
            require(fault is None, fault or "")
            self.tally.reads += 1
            if (bank, row) not in self._seen:
                self._seen.add((bank, row))
                self.tally.states += 1

    def verify(self, name: str) -> None:
        """Compare a stream table with its query at its frontier; what was left out of it on request may be missing."""
        result = self.wh.verify(name)
        self.tally.verified += 1
        require(result.equal or name in self._tables_with(Skipped), f"{result}")

    def converge(self, scheduler: Scheduler) -> None:
        """Take back whatever stands in the way, tick until nothing is left to do, and compare with plain Spark."""
        wh = self.wh
        self._strikes.clear()
        wh.undrain()
        wh.resume_all()
        for gate in wh.source_gates():
            wh.ungate_source(gate.source)
        wh.sql(f"UPDATE {self.dag.free[0]} SET n = 1 WHERE n = 0")
        snapshot = wh.snapshot()
        for table_id, stream in snapshot.streams.items():
            if stream.options.tier.value == "frozen" or stream.schedule == "manual":
                wh.alter_stream_table(snapshot.tables[table_id].name, tier="hot", schedule="1s")
        for _ in range(MOST_TICKS):
            for name in self._tables_with(Blown):
                wh.reset_fuse(name, "apply")
            self._resume_suspended()
            for name in self._tables_with(Skipped):
                wh.refresh(name, full=True)
            self.check_banks()
            self._time.now += LATER
            self.tick(scheduler)
            if not self._pending():
                break
        require(not self._pending(), f"never refreshed: {self._pending()}")
        self.check_banks()
        for result in wh.verify():
            require(result.equal, f"{result}")
            self.tally.verified += 1
        self.check_contents()
        check_history(self.wh, self._skipped)

    def _pending(self) -> list[str]:
        snapshot = self.wh.snapshot()
        return [snapshot.tables[i].name for i, s in snapshot.streams.items() if pending_sources(snapshot, s)]

    def check_contents(self) -> None:
        """Compare every stream table with its query over what plain Spark made of those above it."""
        spark = self.wh.spark.newSession()
        for name in self.dag.managed:
            rows = self.wh.table(name).collect()
            spark.createDataFrame(rows, COLUMNS).createOrReplaceTempView(name)
        money = sum(spark.table(t).selectExpr("sum(v)").collect()[0][0] for t in (LEFT, RIGHT))
        require(money == TOTAL, f"there is {money} in the bank")
        for node in self.dag.nodes:
            wanted = spark.sql(node.query).collect()
            found = Counter(tuple(r) for r in self.wh.table(node.name).collect())
            require(found == Counter(map(tuple, wanted)), f"{node.name} is {found}, must be {wanted}: {node.query}")
            spark.createDataFrame(wanted, "k BIGINT, n BIGINT, v BIGINT").createOrReplaceTempView(node.name)


def expire_leases(wh: Any) -> None:
    """Let the leases of the dead run out."""
    wh._catalog._database.write(lambda connection: connection.execute(leases.update().values(expires=1.0)).rowcount)


def tick_until_killed(path: str, now: float, crew: str, function: str, when: str, nth: int) -> None:
    """In a child: tick on a clock of its own until this process is dead, or has nothing to do."""
    with hw.connect(Path(path), spark=session()) as wh:
        clock = Time(now)
        wh._catalog.now = clock  # type: ignore[method-assign]
        arm(function, when, nth, lambda: os.kill(os.getpid(), signal.SIGKILL))
        made = Scheduler(wh._ground, wh._refresher, wh._maintenance.after_change, crew=Crew(CREWS[crew]()), now=clock)
        with made as scheduler, suppress(SystemExit):
            for _ in range(3):
                clock.now += 60
                scheduler.tick()


# the soak -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """A run: the graph, how often everything is taken back, and which rounds are left out."""

    seed: int
    nodes: int
    rounds: int
    crew: str
    kills: float = 0.0
    every: int = 8
    skip: frozenset[int] = frozenset()


def lived(spark: Any, directory: Path, plan: Plan, children: Nursery | None, seen: Callable[[str], None]) -> Tally:
    """Live through a plan in a warehouse of its own; return what was done."""
    dag = random_dag(plan.seed, plan.nodes)
    settings = {"log_level": "ERROR", "auto_backoff": False}  # what is due does not depend on how fast the machine is
    with hw.connect(directory / "warehouse", spark=spark, settings=settings) as wh:
        life = Life(wh, dag, plan.crew, children)
        life.create()
        with life.scheduler() as scheduler:
            for i, round_ in enumerate(itertools.islice(random_rounds(dag, kills=plan.kills), plan.rounds)):
                if i not in plan.skip:
                    seen(f"round {i}: {round_}")
                    life.play(scheduler, round_)
                if (i + 1) % plan.every == 0 or i + 1 == plan.rounds:
                    seen("converge")
                    life.converge(scheduler)
    return life.tally


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    spark = start_session(
        Settings(shuffle_partitions=2, spark_memory="2g"),
        config={"spark.master": "local[2]", "spark.sql.session.timeZone": "UTC"},
    )
    total, failed = Tally(), []
    ends = time.monotonic() + 60 * options.minutes
    with (
        tempfile.TemporaryDirectory(prefix="headwater-dags-", dir=options.directory) as directory,
        interpreted(spark),
        nursery(spark, Path(directory)) as children,
    ):
        for number, seed in enumerate(itertools.count(options.seed)):
            if number and (time.monotonic() >= ends or number == options.count):
                break
            crew = options.crew or list(CREWS)[seed % len(CREWS)]
            plan = Plan(seed, options.nodes, options.rounds, crew, options.kills, options.every, options.skip)
            place = Path(directory) / f"seed-{seed}"
            place.mkdir()
            said: list[str] = []
            began = time.monotonic()
            try:
                done = lived(spark, place, plan, children, said.append)
            except Exception:
                failed.append(seed)
                print("\n".join(said[-1 if not options.verbose else 0 :]))
                traceback.print_exc(file=sys.stdout)
                print(
                    f"seed {seed} ({crew}) failed in {sum(s.startswith('round') for s in said)} rounds: {_again(options, seed)}",
                    flush=True,
                )
                continue
            total.add(done)
            print(f"seed {seed} ({crew}), {time.monotonic() - began:.0f} s: {done}", flush=True)
    print(f"{number} seeds: {total}; failed: {', '.join(map(str, failed)) or 'none'}")
    spark.stop()
    return 1 if failed else 0


def _again(options: argparse.Namespace, seed: int) -> str:
    return (
        f"python -m tests.soak_dags --seed {seed} --count 1 --nodes {options.nodes} --rounds {options.rounds} "
        f"--every {options.every} --kills {options.kills}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.soak_dags", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="begin no seed after so long (10)")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--count", type=int, default=0, help="how many seeds at most")
    parser.add_argument("--nodes", type=int, default=30, help="stream tables of a graph (30)")
    parser.add_argument("--rounds", type=int, default=24, help="rounds of each seed (24)")
    parser.add_argument("--every", type=int, default=8, help="after so many rounds everything must be right (8)")
    parser.add_argument("--kills", type=float, default=0.15, help="share of rounds in which a process is killed (0.15)")
    parser.add_argument("--crew", choices=list(CREWS), help="who refreshes; by the seed without it")
    parser.add_argument("--skip", type=_numbers, default=frozenset(), help="rounds that are left out, as in 0,3,4")
    parser.add_argument("--verbose", action="store_true", help="show all rounds of a seed that failed")
    parser.add_argument("--directory", type=Path, help="where warehouses are made; a temporary directory without it")
    return parser


def _numbers(text: str) -> frozenset[int]:
    return frozenset(map(int, text.split(",")))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
