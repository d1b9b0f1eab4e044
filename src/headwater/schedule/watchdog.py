"""A watchdog: cancels work that takes longer than it may, again and again until it ends."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from headwater.engine.cancelling import Cancellation
from headwater.errors import TimedOutError

LOG = logging.getLogger("headwater.schedule")

_AGAIN_SECONDS = 0.5


class Watchdog:
    """One thread, which exists while something is watched."""

    def __init__(self) -> None:
        self._watched: dict[Cancellation, tuple[float, str]] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @contextmanager
    def watching(self, cancellation: Cancellation, seconds: float) -> Iterator[None]:
        """Cancel the work of the block if it takes longer; 0 is for ever."""
        if seconds <= 0:
            yield
            return
        with self._changed:
            self._watched[cancellation] = (time.monotonic() + seconds, f"It took longer than {seconds:g} s")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="headwater-watchdog", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._watched.pop(cancellation, None)
                self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._watched:
                    self._thread = None
                    return
                now = time.monotonic()
                late = [(c, reason) for c, (at, reason) in self._watched.items() if at <= now]
                if not late:
                    self._changed.wait(min(at for at, _ in self._watched.values()) - now)
                    continue
            for cancellation, reason in late:
                try:
                    cancellation.cancel(reason, TimedOutError)
                except Exception:  # Spark is away: the others are cancelled all the same, and this one the next time
                    LOG.warning("jobs not cancelled", exc_info=True)
            with self._changed:
                self._changed.wait(_AGAIN_SECONDS)
