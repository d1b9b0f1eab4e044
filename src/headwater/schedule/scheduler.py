"""The scheduler: tick by tick it brings the stream tables that are due to one moment.

A tick asks the catalog once where it stands. If nothing moved, nothing is done. Otherwise the tables whose sources changed, and what
lies below them, are held against their schedules, and those that are due are refreshed in topological order, all to the moment at
which the tick began: what is committed meanwhile belongs to the next one. A tick need not be over for the next one to begin; who is
still being refreshed, and what lies below, waits.

    look      what is new in the catalog                  one question, however many tables there are
    plan      who is due, blocked, together with whom     from the snapshot alone
    dispatch  units to workers, sources first
    settle    clocks, troubles, events, maintenance       once per round

Relies on: a unit takes the leases of its tables and looks again before it begins (`running.py`), so several schedulers may plan the same
thing, and only one does it.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from types import TracebackType
from typing import Self

from headwater.catalog import Snapshot
from headwater.engine.cancelling import Cancellation
from headwater.errors import HeadwaterError
from headwater.model.events import EventKind
from headwater.model.options import Tier
from headwater.model.reports import SchedulerState
from headwater.model.tables import RefreshAction
from headwater.refresh.cycle import LEASES, Outcomes, Refresher, RefreshReport
from headwater.refresh.definition import Definition
from headwater.refresh.moment import Moment, newest, pending_sources
from headwater.refresh.shared import SharedChanges
from headwater.schedule.blocks import blocked
from headwater.schedule.due import BEHIND, Clock, Timing, due_tables
from headwater.schedule.graph import Graph, empty_graph, rebuilt
from headwater.schedule.groups import Group, due_together, groups_of
from headwater.schedule.rounds import Round, round_of
from headwater.schedule.running import Errand, Runner
from headwater.schedule.schedules import Every, Manual, Schedule, schedule_of
from headwater.schedule.telling import Teller
from headwater.schedule.troubles import is_failure
from headwater.schedule.units import Unit, UnitKind, coalesced, units_of
from headwater.schedule.warming import warmed_up
from headwater.schedule.watch import Watch, fuse_ceiling
from headwater.schedule.workers import Crew
from headwater.store.ground import Ground

LOG = logging.getLogger("headwater.schedule")

COALESCED_MS = 500.0
"""Refreshes that took longer last time are not joined with others: they would make those wait."""
_BUSY = "is being refreshed"
_PLAN_PAUSE = 10
_AGAIN_SECONDS = 1.0
"""What was begun and came to nothing is not begun again before that."""


@dataclass(frozen=True, slots=True)
class TickReport:
    """What a tick did. `skipped` says of tables with something to do why they were left."""

    version: int
    duration_ms: float
    refreshed: tuple[RefreshReport, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class _Tick:
    """A round with what is known of it besides."""

    round: Round
    snapshot: Snapshot
    began: float
    skipped: list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class _Begun:
    """A unit on its way."""

    tick: _Tick
    unit: Unit
    moment: Moment
    cancellation: Cancellation


class Scheduler:
    """Refreshes what is due. Use `tick` for one round, `run` to go on until `stop`, or `start` for a thread that does."""

    def __init__(
        self,
        ground: Ground,
        refresher: Refresher,
        maintain: Callable[[Iterable[str]], None],
        *,
        crew: Crew,
        teller: Teller | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._ground = ground
        self._refresher = refresher
        self._maintain = maintain
        self._now = now
        self._crew = crew
        self._key = f"{ground.owner}:{id(self):x}"
        self._teller = teller or Teller(ground.catalog)
        self._runner = Runner(ground, refresher, self._teller, now)
        self._watch = Watch(ground.catalog, ground.settings, self._teller)
        self._clock = Clock(now())
        self._snapshot: Snapshot | None = None
        self._graph: Graph = empty_graph()
        self._groups: tuple[Group, ...] = ()
        self._schedules: dict[str, Schedule] = {}
        self._always: set[str] = set()
        self._manual: set[str] = set()
        self._dirty: set[str] = set()
        self._recheck: set[str] = set()
        self._running: dict[Unit, Cancellation] = {}
        self._ticks: list[_Tick] = []
        self._following: float | None = None
        self._changed = threading.Condition(threading.RLock())
        self._woken = threading.Condition()  # of its own: who commits must not wait for a plan
        self._signals = 0
        self._stop = threading.Event()
        self._runs_in: threading.Thread | None = None
        self._run_over = threading.Event()
        self._run_over.set()
        self._thread: threading.Thread | None = None
        self._upkeep = ThreadPoolExecutor(1, thread_name_prefix="headwater-upkeep")
        self._shown_at: float | None = None
        self._planned_at = 0.0
        self._ended: list[tuple[Moment, tuple[str, ...], float]] = []
        self._counts = {"ticks": 0, "refreshes": 0, "failures": 0}
        self._tick_ms: deque[float] = deque(maxlen=1000)
        self._is_warming = False
        self._is_closed = False
        crew.join(self._key, self._wake, ground.settings.per_warehouse_worker_quota)
        self._unlisten = ground.catalog.listen(self._wake)

    # life -------------------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def graph(self) -> Graph:
        """The graph as it was seen last. It is never changed, only replaced."""
        return self._graph

    @property
    def is_idle(self) -> bool:
        """Say whether nothing runs and nothing waits for a worker."""
        with self._changed:
            return not self._running and not self._ticks

    def start(self) -> None:
        """Run in a thread of its own until `stop`."""
        if self._thread is None:
            self._thread = threading.Thread(target=self.run, name="headwater-scheduler", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Begin nothing any more, and wait for what runs."""
        self._stop.set()
        self._wake()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
            self._thread = None
        if self._runs_in is not threading.current_thread():
            self._run_over.wait()
        with self._changed:
            self._changed.wait_for(lambda: not self._running)
            if self._is_closed:
                return
            self._taken()
            self._is_closed = True
        self._tried(self._settle)
        self._upkeep.shutdown(wait=True)
        self._unlisten()
        self._crew.leave(self._key)
        self._teller.keep()
        if self._shown_at is not None:
            try:
                self._ground.catalog.hide_scheduler(self._key)
            except HeadwaterError as error:
                LOG.warning("scheduler not signed off error=%s", error.message)

    def cancel(self, reason: str) -> None:
        """Cancel what runs."""
        with self._changed:
            running = list(self._running.values())
        for cancellation in running:
            cancellation.cancel(reason)

    def drain(self, timeout_seconds: float | None = None) -> bool:
        """Begin nothing any more in this scheduler; return whether all that ran came to its end in time."""
        seconds = self._ground.settings.scheduler_drain_timeout if timeout_seconds is None else timeout_seconds
        self._stop.set()
        self._wake()
        with self._changed:
            return self._changed.wait_for(lambda: not self._running, seconds)

    def warm_up(self, progress: Callable[[str, int, int], None] | None = None, *, seconds: float = 20.0) -> int:
        """Compute what refreshes would, without effect, so that the first real ones are quick. Return how many were."""
        self._is_warming = True
        try:
            snapshot = self._ground.catalog.snapshot()
            return warmed_up(self._ground, self._refresher, snapshot, progress, seconds)
        finally:
            self._is_warming = False

    def run(self, seen: Callable[[TickReport], None] | None = None) -> None:
        """Tick until `stop`. `seen` is told of every tick that had something to do, when it is over."""
        self._runs_in = threading.current_thread()
        self._run_over.clear()
        try:
            self._run(seen)
        finally:
            self._runs_in = None
            self._run_over.set()

    def _run(self, seen: Callable[[TickReport], None] | None) -> None:
        self._show()
        while not self._stop.is_set():
            signals = self._signals
            left = self._pause_left()
            if left <= 0:
                self._tried(self._begin)
            began = self._dispatch()
            self._tried(lambda: self._report_to(seen))
            self._show()
            if not began:
                self._rest(signals, left)
        self._dispatch()
        with self._changed:
            self._changed.wait_for(lambda: not self._running)
        self._tried(lambda: self._report_to(seen))

    def _tried(self, step: Callable[[], object]) -> None:
        """Do one step of a tick. A failure does not end the scheduler: the catalog may be away, and be there at the next look."""
        try:
            step()
        except HeadwaterError as error:
            LOG.warning("tick failed error=%s", error)
        except Exception:
            LOG.exception("tick failed")

    def _pause_left(self) -> float:
        """Return how long to wait before the next plan: while units run, planning takes a tenth of the time at most."""
        if not self._ticks or not self._tick_ms:
            return 0.0
        return self._planned_at + _PLAN_PAUSE * self._tick_ms[-1] / 1000 - time.monotonic()

    def _rest(self, signals: int, left: float) -> None:
        """Wait until something happens here, until the next table is due, or until it is time to look for what others did."""
        now = self._now()
        interval = self._ground.settings.scheduler_interval_seconds
        if left > 0:
            interval = min(interval, left)
        if self._following is not None:
            interval = min(interval, max(0.0, self._following - now))
        if not self._stop.is_set():
            self._await(signals, interval)

    def _await(self, signals: int, seconds: float | None = None) -> None:
        """Wait until there was one more signal than that; the end of a unit is one, and so is `stop`."""
        with self._woken:
            self._woken.wait_for(lambda: self._signals != signals, seconds)

    def _wake(self) -> None:
        with self._woken:
            self._signals += 1
            self._woken.notify_all()

    # ticks ------------------------------------------------------------------------------------------------------------------

    def tick(self) -> TickReport:
        """Refresh what is due now to the version that is the newest now, and wait until all of it is done."""
        tick = self._begin()
        while True:
            signals = self._signals
            self._dispatch()
            with self._changed:
                if tick.round.is_over:
                    break
            self._await(signals)
        self._settle()
        self._upkeep.submit(int).result()  # what was handed over before it is done by then
        self._teller.keep()
        return self._report(tick)

    def _begin(self) -> _Tick:
        """Look at the catalog, and begin a round with what is to be done."""
        began = time.perf_counter()
        snapshot = self._ground.catalog.snapshot()
        with self._changed:
            self._look(snapshot)
            self._counts["ticks"] += 1
            graph = self._graph
            candidates = self._dirty | self._always
            if not candidates:
                self._following = None
                self._clock.note_waiting((), self._now())
                self._watch.look(Timing(snapshot, self._schedules, self._clock, self._ground.settings), (), self._now())
                tick = _Tick(round_of(newest(snapshot), (), graph), snapshot, began, [])
            else:
                candidates |= graph.descendants(candidates)
                tick = self._planned(snapshot, candidates, began)
            if not tick.round.is_over:
                self._ticks.append(tick)
            self._tick_ms.append((time.perf_counter() - began) * 1000)
            self._planned_at = time.monotonic()
        return tick

    def _planned(self, snapshot: Snapshot, candidates: set[str], began: float) -> _Tick:
        graph, now, settings = self._graph, self._now(), self._ground.settings
        self._clock.note_waiting(self._dirty, now, below=candidates)
        timing = Timing(snapshot, self._schedules, self._clock, settings)
        due = due_tables(graph, candidates, timing, now)
        self._following = due.following
        groups = self._groups
        looked_at = set(due.now) | {m for g in groups if due.now.intersection(g.members) for m in g.members}
        blocks = blocked(snapshot, looked_at, settings, now)
        stopped = {n: b.text for n, b in blocks.items()} | self._busy(snapshot, due.now)
        chosen, reasons = due_together(groups, due.now, candidates, stopped, self._manual)
        blown = self._watch.blown_fuses(snapshot, (n for n in chosen if not chosen.intersection(graph.sources[n])), now)
        if blown:
            stopped |= {n: f"the fuse has blown: {b.pending} changed rows" for n, b in blown.items()}
            chosen, reasons = due_together(groups, due.now, candidates, stopped, self._manual)
        chosen = self._with_work(chosen)
        self._watch.look(timing, self._dirty, now)
        for node in chosen:
            self._watch.beginning(timing, node, now)
        skipped = [
            (snapshot.tables[n].name, reasons.get(n, "not due"))
            for n in sorted(self._dirty | reasons.keys(), key=lambda n: (graph.level[n], snapshot.tables[n].name))
            if n not in chosen
        ]
        guarded = {n for n in chosen if fuse_ceiling(snapshot.streams[n], settings)}
        units = units_of(graph, chosen, [g.members for g in groups], fusible=chosen - guarded)
        if settings.adaptive_batch_coalescing:
            units = coalesced(units, self._windows(snapshot, chosen), self._crew.workers.capacity)
        shared = self._shared(snapshot, chosen) if units and settings.enable_change_buffer_fanout else None
        return _Tick(round_of(newest(snapshot), units, graph, shared), snapshot, began, skipped)

    def _with_work(self, chosen: set[str]) -> set[str]:
        """Return those that have something to do, or read what is refreshed now and may bring them something."""
        found: set[str] = set()
        for node in sorted(chosen, key=self._graph.level.__getitem__):
            if node in self._dirty or node in self._always or not found.isdisjoint(self._graph.sources[node]):
                found.add(node)
        return found

    def _busy(self, snapshot: Snapshot, due: Iterable[str]) -> dict[str, str]:
        """Return who is being refreshed already, here or elsewhere, and who has to wait for that."""
        here = {n for unit in self._running for n in unit.members}
        waiting = {n for tick in self._ticks for n in tick.round.waiting}
        elsewhere: set[str] = set()
        if any(n not in here and n not in waiting for n in due):
            held = self._ground.catalog.leases_of_others(LEASES, self._key)
            elsewhere = {name.removeprefix(LEASES) for name in held} & snapshot.streams.keys() - here - waiting
        busy = here | waiting | elsewhere
        found = dict.fromkeys(self._graph.descendants(busy), "what it reads is being refreshed")
        found |= dict.fromkeys(here | waiting, _BUSY)
        return found | dict.fromkeys(elsewhere, "is being refreshed by somebody else")

    def _windows(self, snapshot: Snapshot, nodes: Iterable[str]) -> dict[str, object]:
        """Return for each quick refresh which changes it reads."""
        found: dict[str, object] = {}
        for node in nodes:
            stream = snapshot.streams[node]
            if stream.frontier is None or stream.refresh_ms is None or stream.refresh_ms > COALESCED_MS:
                continue
            if fuse_ceiling(stream, self._ground.settings):
                continue  # it may be held at the last moment, and would hold the others
            read = snapshot.sources.get(node, ())
            # A batch is watched as a whole, so those in it may take equally long.
            found[node] = (stream.options.timeout_seconds, frozenset((s, stream.frontier_of(s)) for s in read))
        return found

    def _shared(self, snapshot: Snapshot, nodes: Iterable[str]) -> SharedChanges:
        """Return what a round needs to read each change once."""
        wanted: dict[str, set[str]] = {}
        readers: dict[str, int] = {}
        for node in nodes:
            template = self._refresher.definition(snapshot.streams[node]).template
            for source, names in (template.changes_read() if template is not None else {}).items():
                wanted.setdefault(source, set()).update(names)
                readers[source] = readers.get(source, 0) + 1
        return SharedChanges(self._ground, {s: frozenset(n) for s, n in wanted.items()}, readers)

    # units ------------------------------------------------------------------------------------------------------------------

    def _dispatch(self) -> bool:
        """Begin what may begin, as far as there are workers; return whether anything was."""
        began = False
        while True:
            with self._changed:
                tasks = self._taken()
            if not tasks:
                return began
            began = True
            for begun in tasks:  # an inline worker works right here, so the lock must be free
                try:
                    self._crew.workers.submit(partial(self._work, begun))
                except RuntimeError as error:  # no thread can be had
                    self._end(begun, dict.fromkeys(begun.unit.members, error))

    def _taken(self) -> list[_Begun]:
        """Take workers for units that may begin, the most important ones first."""
        if self._is_closed:
            return []
        ready = [(tick, unit) for tick in self._ticks for unit in tick.round.ready()]
        if self._stop.is_set():
            for tick in self._ticks:
                tick.round.leave_out_all("the scheduler stops")
            self._crew.wait(self._key, 0)
            return []
        ready.sort(key=lambda pair: self._rank(*pair))
        self._crew.wait(self._key, len(ready))
        tasks: list[_Begun] = []
        for tick, unit in ready:
            if not self._crew.take(self._key):
                break
            moment = tick.round.begin(unit)
            self._clock.note_begun(unit.members, self._now())
            self._running[unit] = cancellation = Cancellation()
            tasks.append(_Begun(tick, unit, moment, cancellation))
        return tasks

    def _rank(self, tick: _Tick, unit: Unit) -> tuple[float, int]:
        tier = min(tick.snapshot.streams[n].options.tier.factor for n in unit.members)
        return tier, 0 if unit.kind in (UnitKind.GROUP, UnitKind.CHAIN) else 1

    def _work(self, begun: _Begun) -> None:
        """Refresh a unit; whatever comes of it ends up in its round."""
        outcomes: Outcomes = {}
        reason = None
        try:
            reason = self._blown(begun)
            if reason is None:
                errand = Errand(begun.unit, begun.moment, begun.tick.snapshot, begun.tick.round.shared)
                outcomes = self._runner.run(errand, begun.cancellation)
        except BaseException as error:
            told = error if isinstance(error, Exception) else RuntimeError(repr(error))
            outcomes = dict.fromkeys(begun.unit.members, told)
            raise
        finally:
            self._end(begun, outcomes, reason)

    def _end(self, begun: _Begun, outcomes: Outcomes, reason: str | None = None) -> None:
        """Note what came of a unit, and give its worker back."""
        try:
            with self._changed:
                self._running.pop(begun.unit, None)
                self._recheck |= set(begun.unit.members)
                self._ended.append((begun.moment, begun.unit.members, self._now()))
                begun.tick.round.end(begun.unit, outcomes.items(), reason)
                self._note_times(begun.tick.snapshot, outcomes)
                self._changed.notify_all()
        finally:
            self._crew.give_back(self._key)
            self._wake()

    def _blown(self, begun: _Begun) -> str | None:
        """Say whether what was refreshed before a unit in its round blows the fuse of one of its tables."""
        later = begun.moment.later.keys()
        late = [n for n in begun.unit.members if not later.isdisjoint(self._graph.sources.get(n, ()))]
        streams = begun.tick.snapshot.streams
        if not any(fuse_ceiling(streams[n], self._ground.settings) for n in late):
            return None
        snapshot = self._ground.catalog.snapshot()
        with self._changed:
            found = self._watch.blown_fuses(snapshot, [n for n in late if n in snapshot.streams], self._now())
        return next((f"the fuse has blown: {b.pending} changed rows" for b in found.values()), None)

    def _note_times(self, snapshot: Snapshot, outcomes: Outcomes) -> None:
        """Note how long refreshes took, and put those off that take as long as their schedules."""
        for node, outcome in outcomes.items():
            if isinstance(outcome, Exception):
                self._counts["failures"] += is_failure(outcome)
                continue
            if outcome.action is RefreshAction.NO_DATA:
                continue
            self._counts["refreshes"] += 1
            schedule = self._schedules.get(node)
            if not isinstance(schedule, Every):
                continue
            tier = snapshot.streams[node].options.tier if self._ground.settings.tiered_scheduling else Tier.HOT
            share = outcome.duration_ms / 1000 / (schedule.seconds * tier.factor)
            put_off = self._clock.note_taken(node, share) if self._ground.settings.auto_backoff else False
            if share >= BEHIND and (put_off or node not in self._clock.backoff):
                self._teller.tell(
                    EventKind.SCHEDULER_FALLING_BEHIND,
                    self._now(),
                    snapshot.tables[node].name,
                    ms=round(outcome.duration_ms),
                    schedule=str(schedule),
                    factor=self._clock.backoff.get(node, 1.0),
                )

    # afterwards -------------------------------------------------------------------------------------------------------------

    def _settle(self) -> list[_Tick]:
        """End the rounds that are over: let go what they shared, and put their tables in order. Return them."""
        with self._changed:
            over = [t for t in self._ticks if t.round.is_over]
            self._ticks = [t for t in self._ticks if not t.round.is_over]
        if over:
            self._upkeep.submit(self._tried, partial(self._tidied, over))
        return over

    def _tidied(self, over: list[_Tick]) -> None:
        for tick in over:
            if tick.round.shared is not None:
                self._tried(tick.round.shared.close)
        names = {r.name.casefold() for t in over for r in t.round.refreshed}
        if names and over:
            snapshot = self._ground.catalog.snapshot()
            refreshed = {snapshot.names[n] for n in names if n in snapshot.names}
            self._maintain(refreshed | self._acknowledged(snapshot, refreshed))

    def _acknowledged(self, snapshot: Snapshot, refreshed: set[str]) -> set[str]:
        """Return the sources whose changes have now been seen by all that read them."""
        read = {s for n in refreshed for s in snapshot.sources.get(n, ()) if s not in snapshot.streams}
        return {
            s
            for s in read
            if all(s not in pending_sources(snapshot, snapshot.streams[r]) for r in snapshot.dependents.get(s, ()))
        }

    def _report_to(self, seen: Callable[[TickReport], None] | None) -> None:
        for tick in self._settle():
            if seen is not None:
                self._tried(partial(seen, self._report(tick)))
        self._teller.keep()

    def _report(self, tick: _Tick) -> TickReport:
        names = tick.snapshot.tables
        return TickReport(
            tick.round.moment.version,
            (time.perf_counter() - tick.began) * 1000,
            tuple(tick.round.refreshed),
            tuple((names[n].name, str(error)) for n, error in tick.round.failed),
            (*tick.skipped, *((names[n].name, reason) for n, reason in tick.round.left_out)),
        )

    def _look(self, snapshot: Snapshot) -> None:
        """Take notice of what is new in the catalog."""
        before = self._snapshot
        if snapshot is before and not self._recheck:
            return
        if before is None or snapshot.generation != before.generation:
            self._redefine(snapshot, before)
            looked_at = set(snapshot.streams)
        else:
            moved = [t for t, at in snapshot.changed.items() if before.changed.get(t) != at]
            looked_at = {r for t in moved for r in self._graph.dependents.get(t, ())} | self._dirty | self._recheck
        self._dirty = {n for n in looked_at if n in snapshot.streams and pending_sources(snapshot, snapshot.streams[n])}
        self._recheck = set()
        self._put_back(snapshot)
        if before is None or snapshot.generation != before.generation or snapshot.notes is not before.notes:
            self._groups = groups_of(self._graph, snapshot)
        self._snapshot = snapshot

    def _put_back(self, snapshot: Snapshot) -> None:
        """Let those be due again that were begun and have not come to their moment: they failed, or met somebody, or were left out."""
        for moment, members, ended_at in self._ended:
            for node in members:
                stream = snapshot.streams.get(node)
                if stream is None or (stream.frontier or 0) >= moment.version:
                    continue
                if node in self._always or moment.pending(stream, snapshot.sources.get(node, ())):
                    self._clock.put_back(node, ended_at + _AGAIN_SECONDS)
        self._ended = []

    def _redefine(self, snapshot: Snapshot, before: Snapshot | None) -> None:
        """Take notice of new definitions. What is unchanged is not looked at again."""
        self._graph = rebuilt(self._graph, {n: snapshot.sources.get(n, ()) for n in snapshot.streams})
        known = before.streams if before is not None else {}
        for node in self._schedules.keys() - snapshot.streams.keys():
            del self._schedules[node]
            self._always.discard(node)
            self._manual.discard(node)
        for node, stream in snapshot.streams.items():
            old = known.get(node)
            if old is not None and old.schedule == stream.schedule and old.definition == stream.definition:
                continue
            self._schedules[node] = schedule_of(stream.schedule)
            (self._manual.add if isinstance(self._schedules[node], Manual) else self._manual.discard)(node)
            if Definition.is_always(stream.definition):
                self._always.add(node)
            else:
                self._always.discard(node)

    # how it fares -----------------------------------------------------------------------------------------------------------

    def state(self) -> SchedulerState:
        """Return how this scheduler fares."""
        with self._changed:
            allocation = self._crew.allocation(self._key)
            is_draining = self._stop.is_set()
            word = "draining" if is_draining else "warming" if self._is_warming else "running"
            return SchedulerState(
                owner=self._key,
                host=socket.gethostname(),
                pid=os.getpid(),
                state=word,
                pool=self._crew.workers.kind,
                workers=allocation.capacity,
                quota=allocation.quota,
                active=allocation.used,
                queued=allocation.waiting,
                ticks=self._counts["ticks"],
                refreshes=self._counts["refreshes"],
                failures=self._counts["failures"],
                last_tick_ms=self._tick_ms[-1] if self._tick_ms else 0.0,
                median_tick_ms=statistics.median(self._tick_ms) if self._tick_ms else 0.0,
                behind=tuple(sorted(self._clock.backoff)),
            )

    def metrics(self) -> Mapping[str, float]:
        """Return the numbers of `state`."""
        return {k: float(v) for k, v in asdict(self.state()).items() if isinstance(v, int | float)}

    def _show(self) -> None:
        """Say in the catalog that this scheduler lives."""
        settings, now = self._ground.settings, time.monotonic()
        if self._shown_at is not None and now - self._shown_at < settings.scheduler_heartbeat_seconds:
            return
        self._shown_at = now
        data = json.dumps({**asdict(self.state()), "warehouse": self._ground.catalog.shown_url})
        try:
            ttl = 3 * settings.scheduler_heartbeat_seconds
            self._ground.catalog.show_scheduler(self._key, self._clock.started, ttl, data)
        except HeadwaterError as error:
            LOG.warning("scheduler not shown error=%s", error.message)
