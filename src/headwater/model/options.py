"""How a stream table is to be scheduled besides its schedule: tier, promise of freshness, fuse, policies of its diamond."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from enum import Enum
from typing import Any


class Tier(Enum):
    """How much a stream table matters: its schedule is stretched by this factor."""

    HOT = "hot"
    WARM = "warm"
    COLD = "cold"
    FROZEN = "frozen"
    """It is not refreshed by schedulers at all."""

    @property
    def factor(self) -> float:
        return {Tier.HOT: 1.0, Tier.WARM: 2.0, Tier.COLD: 10.0, Tier.FROZEN: float("inf")}[self]


class FuseMode(Enum):
    """Whether a flood of changes stops a stream table until somebody looks at it."""

    OFF = "off"
    ON = "on"
    """At its own ceiling."""
    AUTO = "auto"
    """At its own ceiling, or else at the one of the settings."""


class Consistency(Enum):
    """Whether the stream tables of a diamond are committed together."""

    ATOMIC = "atomic"
    NONE = "none"


class GroupPolicy(Enum):
    """When stream tables that are committed together are due."""

    FASTEST = "fastest"
    """As soon as one of them is."""
    SLOWEST = "slowest"
    """When all of them are."""


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of one stream table. None and 0 mean: what the settings say."""

    tier: Tier = Tier.HOT
    sla_seconds: float | None = None
    """Changes are to be visible so long after they were made, at most."""
    fuse_mode: FuseMode = FuseMode.AUTO
    fuse_ceiling: int = 0
    """More changed rows than that blow the fuse; 0 is the setting `fuse_default_ceiling`."""
    fuse_sensitivity: int = 1
    """After so many ticks in a row over the ceiling."""
    diamond_consistency: Consistency = Consistency.ATOMIC
    diamond_schedule_policy: GroupPolicy = GroupPolicy.FASTEST
    timeout_seconds: float | None = None
    """A refresh that takes longer is cancelled; None is the setting `refresh_timeout_seconds`."""

    def to_json(self) -> str:
        """Return what differs from the defaults."""
        default = asdict(DEFAULT_OPTIONS)
        given = {n: v for n, v in asdict(self).items() if v != default[n]}
        return json.dumps({n: v.value if isinstance(v, Enum) else v for n, v in given.items()}, sort_keys=True)

    @staticmethod
    def from_json(text: str | None) -> StreamOptions:
        """Read what `to_json` wrote; options and words that this version does not know are left out."""
        values = json.loads(text) if text else {}
        known = {n: v for n, v in values.items() if n not in _ENUMS or v in {word.value for word in _ENUMS[n]}}
        return options_with(DEFAULT_OPTIONS, known)


_ENUMS: Mapping[str, type[Enum]] = {
    "tier": Tier,
    "fuse_mode": FuseMode,
    "diamond_consistency": Consistency,
    "diamond_schedule_policy": GroupPolicy,
}
OPTION_NAMES: tuple[str, ...] = tuple(f.name for f in fields(StreamOptions))
DEFAULT_OPTIONS = StreamOptions()


def options_with(options: StreamOptions, values: Mapping[str, Any]) -> StreamOptions:
    """Return options with some replaced, given as plain values; names that are no options are left out."""
    found: dict[str, Any] = {n: _ENUMS[n](v) if n in _ENUMS else v for n, v in values.items() if n in OPTION_NAMES}
    return replace(options, **found)
