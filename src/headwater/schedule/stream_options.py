"""Options of a stream table as users write them: `tier = 'warm'`, `sla = '30s'`, `fuse_ceiling = 100000`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from difflib import get_close_matches
from enum import Enum
from typing import Any

from headwater.errors import StatementError
from headwater.model.options import Consistency, FuseMode, GroupPolicy, StreamOptions, Tier, options_with
from headwater.schedule.schedules import seconds_of

_WORDS: Mapping[str, type[Enum]] = {
    "tier": Tier,
    "fuse_mode": FuseMode,
    "diamond_consistency": Consistency,
    "diamond_schedule_policy": GroupPolicy,
}
_COUNTS = {"fuse_ceiling": 0, "fuse_sensitivity": 1}
_DURATIONS = {"sla": "sla_seconds", "timeout": "timeout_seconds"}
NAMES = ("tier", "sla", "timeout", "fuse_mode", "fuse_ceiling", "fuse_sensitivity", *list(_WORDS)[2:])


def stream_options(before: StreamOptions, given: Mapping[str, Any]) -> StreamOptions:
    """Return options with those replaced that are given; what is no option, or has no such value, is refused."""
    require_known(given)
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name in _WORDS:
            values[name] = _word(name, value)
        elif name in _COUNTS:
            values[name] = _count(name, value)
        else:
            values[_DURATIONS[name]] = None if _is_none(value) else _seconds(name, value)
    made = options_with(before, values)
    if made.fuse_mode is FuseMode.ON and not made.fuse_ceiling:
        raise StatementError("a fuse that is on needs a ceiling", hint="Give fuse_ceiling, or fuse_mode 'auto'.")
    return made


def require_known(given: Iterable[str]) -> None:
    """Refuse names that are no options."""
    for name in given:
        if name not in NAMES:
            near = get_close_matches(name, NAMES, n=1)
            hint = f"Did you mean {near[0]}? " if near else ""
            raise StatementError(
                f"unknown option {name!r}", hint=f"{hint}The options are when_full, {', '.join(NAMES)}."
            )


def plain_options(options: StreamOptions) -> dict[str, Any]:
    """Return options as they are given."""
    names = {field: name for name, field in _DURATIONS.items()}
    return {names.get(n, n): v for n, v in asdict(options).items() if v is not None}


def _is_none(value: Any) -> bool:
    return value is None or str(value).strip().lower() in ("", "none", "null")


def _word(name: str, value: Any) -> str:
    kind = _WORDS[name]
    word = str(value.value if isinstance(value, Enum) else value).lower()
    words = [str(w.value) for w in kind]
    if value is None or word not in words:
        raise StatementError(f"{name} cannot be {value!r}", hint=f"Choose one of {', '.join(words)}.")
    return word


def _seconds(name: str, value: Any) -> float:
    try:
        return seconds_of(str(value))
    except StatementError:
        hint = "Write a duration such as '30s' or '1h30m', or 'none'."
        raise StatementError(f"{name} cannot be {value!r}", hint=hint) from None


def _count(name: str, value: Any) -> int:
    try:
        count = int(str(value))
    except ValueError:
        count = -1
    if count < _COUNTS[name]:
        raise StatementError(f"{name} cannot be {value!r}", hint=f"Give a whole number, {_COUNTS[name]} or more.")
    return count
