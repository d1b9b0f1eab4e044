"""Where text goes: to the terminal of this process, or to that of a client whose work is done here.

What a terminal can do is data (`Surface`), so that a client can describe its own to the process that writes for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

from rich.console import Console

_WIDE = 100_000
"""Lines that another program may read are neither folded nor cut."""


@dataclass(frozen=True, slots=True)
class Surface:
    """What the place that text goes to can show."""

    is_terminal: bool
    is_interactive: bool
    width: int
    height: int
    colours: str | None
    encoding: str
    term: str


@dataclass(frozen=True, slots=True)
class Screen:
    """Standard output and standard error of whoever asked.

    `is_ours` says that they are those of this process. `check` raises if nobody waits for the answer any more; long work calls it
    between its steps.
    """

    out: Console
    err: Console
    is_ours: bool
    check: Callable[[], None]


def own_screen() -> Screen:
    """Return the screen of this process."""
    # highlight off: numbers in a sentence need no colour; soft_wrap: a path may be longer than the terminal is wide.
    out = Console(highlight=False, soft_wrap=True)
    if not out.is_terminal:
        out = Console(highlight=False, soft_wrap=True, width=_WIDE)
    return Screen(out, Console(stderr=True, highlight=False, soft_wrap=True), True, _goes_on)


def _goes_on() -> None:
    return


def surface_of(console: Console) -> Surface:
    """Return what a console of this process can show."""
    return Surface(
        console.is_terminal,
        console.is_interactive,
        console.width,
        console.height,
        None if console.no_color else console.color_system,
        console.encoding,
        os.environ.get("TERM", ""),
    )


def console_on(surface: Surface, file: IO[str]) -> Console:
    """Return a console that writes into `file` what looks right on `surface`."""
    colours: Any = surface.colours
    return Console(
        file=file,
        highlight=False,
        soft_wrap=True,
        force_terminal=surface.is_terminal,
        force_interactive=surface.is_interactive,
        width=surface.width,
        height=surface.height,
        color_system=colours,
        no_color=colours is None,
        legacy_windows=False,
        _environ={"TERM": surface.term},
    )
