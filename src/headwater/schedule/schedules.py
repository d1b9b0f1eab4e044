"""Schedules: when a stream table is due, as users write it.

    30, '30s', '1h30m', '1d'                    so long after its last refresh, at most
    '*/5 * * * *', '@daily', with a zone        at these times: '0 6 * * 1-5 Europe/Berlin'; UTC without one
    'calculated', or nothing                    as often as those that read it are due
    'manual'                                    only when somebody asks

Durations have the units s, m, h, d and w, each once and the largest first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from headwater.errors import StatementError

UNITS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_DURATION = re.compile("".join(rf"(?:(\d+(?:\.\d+)?){u})?" for u in UNITS))
_FORMS = "Write a duration ('30s', '1h30m'), a cron expression ('0 6 * * 1-5 Europe/Berlin', '@daily'), 'calculated' or 'manual'."


@dataclass(frozen=True, slots=True)
class Every:
    """Due when the last refresh began so long ago."""

    seconds: float

    def __str__(self) -> str:
        return duration_text(self.seconds)


@dataclass(frozen=True, slots=True)
class Cron:
    """Due at the times that a cron expression of five or six fields gives in a time zone."""

    expression: str
    zone: str = "UTC"

    def __str__(self) -> str:
        return self.expression if self.zone == "UTC" else f"{self.expression} {self.zone}"

    def following(self, moment: float) -> float | None:
        """Return the first time after `moment`, in epoch seconds; None if there is none any more."""
        text = ALIASES.get(self.expression, self.expression)
        found = next(CronSim(text, datetime.fromtimestamp(moment, _zone(self.zone))), None)
        return None if found is None else found.timestamp()


@dataclass(frozen=True, slots=True)
class Calculated:
    """Due as often as what reads it needs it."""

    def __str__(self) -> str:
        return "calculated"


@dataclass(frozen=True, slots=True)
class Manual:
    """Never due."""

    def __str__(self) -> str:
        return "manual"


Schedule = Every | Cron | Calculated | Manual


@lru_cache(maxsize=4096)
def schedule_of(text: str | None) -> Schedule:
    """Return the schedule that a text means, or refuse it with what may be written."""
    given = (text or "").strip()
    word = given.lower()
    if word in ("", "calculated"):
        return Calculated()
    if word == "manual":
        return Manual()
    if word.startswith("@") or len(word.split()) >= 5:
        return _cron(given)
    return Every(seconds_of(given))


def seconds_of(text: str) -> float:
    """Return the length of a duration such as '1h30m' or '45'."""
    compact = "".join(text.lower().split())
    if re.fullmatch(r"\d+(\.\d+)?", compact):
        seconds = float(compact)
    else:
        found = _DURATION.fullmatch(compact)
        if not compact or found is None:
            raise StatementError(f"schedule {text!r} is not understood", hint=_FORMS)
        seconds = sum(float(n) * size for n, size in zip(found.groups(), UNITS.values(), strict=True) if n)
    if seconds <= 0:
        raise StatementError(f"schedule {text!r} must be longer than nothing", hint=_FORMS)
    return seconds


def duration_text(seconds: float) -> str:
    """Return a duration as users write it."""
    left, parts = seconds, []
    for unit, size in UNITS.items():
        count = int(left // size) if unit != "s" else round(left, 3)
        if count:
            parts.append(f"{count:g}{unit}")
            left -= count * size
    return "".join(parts) or "0s"


def _cron(text: str) -> Cron:
    fields = text.split()
    zone = "UTC"
    if len(fields) > 1 and not _is_field(fields[-1]):
        zone = fields.pop()
    expression = " ".join(fields)
    if expression.startswith("@"):
        expression = expression.lower()
        if expression not in ALIASES:
            raise StatementError(
                f"schedule {text!r} is not understood", hint=f"The names of times are {', '.join(ALIASES)}."
            )
    try:
        _zone(zone)
    except (KeyError, ValueError):
        raise StatementError(
            f"time zone {zone!r} of schedule {text!r} is unknown", hint="Write a name such as Europe/Berlin, or UTC."
        ) from None
    try:
        CronSim(ALIASES.get(expression, expression), datetime.now(UTC))
    except CronSimError as error:
        raise StatementError(f"schedule {text!r} is not understood", detail=f"{error}.", hint=_FORMS) from None
    return Cron(expression, zone)


def _is_field(text: str) -> bool:
    """Say whether a word is a field of a cron expression: a zone has a letter that no field begins with, or a slash after letters."""
    return (
        re.fullmatch(r"[\d*,/#-]+L?|L|LW|([A-Za-z]{3}([-,#/][A-Za-z\d]+)*)", text) is not None and text.upper() != "UTC"
    )


@lru_cache(maxsize=256)
def _zone(name: str) -> tzinfo:
    return UTC if name == "UTC" else ZoneInfo(name)
