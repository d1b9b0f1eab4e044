"""Signals that end a long command: the first one asks, the second one does not wait.

Python runs a handler in the main thread, between two steps of whatever it does there. So the first signal leaves word, and the second
one is an exception: it takes the main thread out of any wait, through its `with` blocks.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn, Self

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class EndAtOnceError(BaseException):
    """The second signal came."""

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {number}")
        self.number = number


class Signals:
    """Catches the signals that end this process, inside its `with` block."""

    def __init__(self, asked: Callable[[], None]) -> None:
        self._asked = asked
        self._before: dict[int, Any] = {}
        self.count = 0

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._caught) for number in ENDING}
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _caught(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count == 1:
            self._asked()
            return
        for each in ENDING:
            signal.signal(each, signal.SIG_IGN)
        raise EndAtOnceError(number)


def exit_now(code: int) -> NoReturn:
    """End this process without waiting for its threads."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue  # nobody reads it any more
    os._exit(code)
