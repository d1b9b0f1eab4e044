"""`headwater run`: the scheduler as a process, with a service for other terminals and a board for this one.

    open     the warehouses, their sockets, their schedulers
    warm up  plan and run what refreshes will run; then say that it is ready
    serve    until somebody asks to end: Ctrl-C, SIGTERM, or the time is over
    drain    begin nothing more, wait for what runs, cancel what does not end in time
    close

The main thread waits and shows; Spark is started, and refreshes run, in others. So a signal is heard at any time.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, assert_never

from headwater.cli import views
from headwater.cli.common import Exit, progress_of
from headwater.cli.output import Board, Output
from headwater.cli.runboard import LINE, RunView
from headwater.cli.signals import EndAtOnceError, Signals, exit_now
from headwater.cli.sites import Site, opened_sites
from headwater.errors import CancelledError
from headwater.schedule.scheduler import TickReport

SHOWN_SECONDS = 1.0
LAST_SECONDS = 5.0
"""How long cancelled work may take to end."""


@dataclass(frozen=True, slots=True)
class _Warm:
    """All templates have run; how many of each warehouse."""

    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Ticked:
    """A tick of a warehouse is over."""

    site: Site
    report: TickReport


@dataclass(frozen=True, slots=True)
class _Asked:
    """Somebody asks to end."""


@dataclass(frozen=True, slots=True)
class _Broken:
    """A thread has failed; nothing goes on without it."""

    error: BaseException


_Post = _Warm | _Ticked | _Asked | _Broken


def run_once(targets: Sequence[str], out: Output) -> Exit:
    """Refresh what is due now, and say what was done."""
    code = Exit.OK
    with ExitStack() as held:
        for site in opened_sites(targets, held):
            report = site.scheduler.tick()
            view = RunView([site.name])
            rows = [*view.rows_of(site.name, report), *view.skipped_of(site.name, report)]
            out.document({"warehouse": site.name, "version": report.version, "tables": rows})
            out.note(f"{site.name}: version {report.version}")
            if rows:
                out.text_records(LINE, rows)
            if report.failed:
                code = Exit.ERROR
    return code


def run_on(targets: Sequence[str], out: Output, seconds: float | None) -> Exit:
    """Refresh what becomes due, for `seconds` or until somebody asks to end."""
    posts: SimpleQueue[_Post] = SimpleQueue()
    sites: list[Site] = []
    with Signals(lambda: posts.put(_Asked())) as signals, ExitStack() as held:
        try:
            sites = opened_sites(targets, held)
            for site in sites:
                site.listen()
            return _Run(sites, out, posts, signals).to_the_end(seconds)
        except EndAtOnceError as end:
            for site in sites:
                site.withdraw()
            exit_now(128 + end.number)


class _Run:
    """One run of `headwater run`, from the warm-up to the end."""

    def __init__(self, sites: Sequence[Site], out: Output, posts: SimpleQueue[_Post], signals: Signals) -> None:
        self._sites = sites
        self._out = out
        self._posts = posts
        self._signals = signals
        self._view = RunView([s.name for s in sites])
        self._threads: list[threading.Thread] = []
        self._began = time.monotonic()

    def to_the_end(self, seconds: float | None) -> Exit:
        """Warm up, serve, drain, close."""
        broken: BaseException | None = None
        try:
            if self._warmed_up():
                with self._out.board(self._view.columns) as board:
                    broken = self._served(board, seconds)
                    ended = self._drained(board)
            else:
                ended = self._drained(None)
        except EndAtOnceError:
            raise
        except BaseException:
            self._drained(None)
            raise
        if broken is not None:
            raise broken
        self._say_end(ended)
        return Exit.OK

    # warm up ----------------------------------------------------------------------------------------------------------------

    def _warmed_up(self) -> bool:
        """Run all templates; return False if somebody asked to end meanwhile."""
        thread = threading.Thread(target=self._warm, name="headwater-warm-up", daemon=True)
        self._threads.append(thread)
        thread.start()
        match self._posts.get():
            case _Warm(counts):
                self._say_ready(counts)
                return True
            case _Broken(error):
                raise error
            case _:
                return False

    def _warm(self) -> None:
        counts = []
        try:
            with self._out.steps("Warming up", None) as steps:
                shown = progress_of(self._out, steps, "Warming up")

                def progress(name: str, done: int, total: int) -> None:
                    if self._signals.count:
                        raise CancelledError("the warm-up was cancelled")
                    shown(name, done, total)

                for site in self._sites:
                    counts.append(site.scheduler.warm_up(progress))
        except BaseException as error:
            self._posts.put(_Broken(error))
        else:
            self._posts.put(_Warm(tuple(counts)))

    def _say_ready(self, counts: Sequence[int]) -> None:
        seconds = time.monotonic() - self._began
        found: list[dict[str, Any]] = [
            {
                "warehouse": site.name,
                "stream_tables": len(site.warehouse.snapshot().streams),
                "warmed_up": warm,
                "socket": site.socket,
            }
            for site, warm in zip(self._sites, counts, strict=True)
        ]
        self._out.document({"event": "ready", "pid": os.getpid(), "seconds": round(seconds, 3), "warehouses": found})
        for site, each in zip(self._sites, found, strict=True):
            served = "commands from other terminals are done here" if site.socket else site.unserved
            tables = views.counted(each["stream_tables"], "stream table", "stream tables")
            self._out.note(f"ready: {site.name}, {tables}, {seconds:.1f} s; {served}")

    # serve ------------------------------------------------------------------------------------------------------------------

    def _served(self, board: Board, seconds: float | None) -> BaseException | None:
        """Let the schedulers run; return what broke, if it was that what ended it."""
        for site in self._sites:
            thread = threading.Thread(target=self._schedule, args=(site,), name="headwater-scheduler", daemon=True)
            self._threads.append(thread)
            thread.start()
        until = float("inf") if seconds is None else time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            try:
                post = self._posts.get(timeout=min(left, SHOWN_SECONDS))
            except Empty:
                board.show(*self._view.shown(self._out))
                continue
            match post:
                case _Ticked():
                    self._show(board, post)
                case _Asked():
                    return None
                case _Broken(error):
                    return error
                case _Warm():
                    continue
                case _:
                    assert_never(post)
        return None

    def _schedule(self, site: Site) -> None:
        try:
            site.scheduler.run(lambda report: self._posts.put(_Ticked(site, report)))
        except BaseException as error:
            self._posts.put(_Broken(error))

    def _show(self, board: Board, tick: _Ticked) -> None:
        for row in self._view.taken(tick.site.name, tick.report):
            self._out.document({"event": "refresh", **row})
            rows, caption = self._view.shown(self._out)
            board.update(rows, row, caption)

    # drain ------------------------------------------------------------------------------------------------------------------

    def _drained(self, board: Board | None) -> bool:
        """End what runs, and return whether all of it came to its own end. What cannot even be cancelled ends with the process."""
        for site in self._sites:
            site.begin_to_end()
        if board is not None:
            rows, _ = self._view.shown(self._out)
            board.show(rows, "draining")
        deadline = time.monotonic() + max(s.warehouse.settings.scheduler_drain_timeout for s in self._sites)
        ended = all(site.drain(deadline) for site in self._sites)
        if not ended:
            for site in self._sites:
                site.cancel()
        last = time.monotonic() + LAST_SECONDS
        stopped = all(site.drain(last) for site in self._sites)
        for thread in self._threads:  # Spark may still be starting in one of them
            thread.join(max(0.1, max(deadline, last) - time.monotonic()))
        if not stopped or any(thread.is_alive() for thread in self._threads):
            self._out.aside("Work that could not be cancelled ends with this process; nothing of it is committed.")
            for site in self._sites:
                site.withdraw()
            exit_now(Exit.ERROR)
        self._show_last(board)
        return ended

    def _show_last(self, board: Board | None) -> None:
        while board is not None:
            try:
                post = self._posts.get_nowait()
            except Empty:
                return
            if isinstance(post, _Ticked):
                self._show(board, post)

    def _say_end(self, ended: bool) -> None:
        data = {
            "event": "stopped",
            "refreshes": self._view.refreshes,
            "failures": self._view.failures,
            "drained": ended,
        }
        counted = views.counted(self._view.refreshes, "refresh", "refreshes")
        self._out.document(data)
        self._out.note(f"stopped after {counted}" + ("" if ended else "; what did not end in time was cancelled"))
