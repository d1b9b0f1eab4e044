"""Events: what an operator may want to be told, as records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class EventKind(Enum):
    """What happened. Values never change: programs match on them."""

    REFRESH_COMPLETED = "refresh_completed"
    REFRESH_FAILED = "refresh_failed"
    REFRESH_CANCELLED = "refresh_cancelled"
    AUTO_SUSPENDED = "auto_suspended"
    RESUMED = "resumed"
    REINITIALIZE_NEEDED = "reinitialize_needed"
    STALE_DATA = "stale_data"
    SCHEDULER_FALLING_BEHIND = "scheduler_falling_behind"
    PREDICTED_SLA_BREACH = "predicted_sla_breach"
    FROZEN_TIER_SKIP = "frozen_tier_skip"
    FUSE_BLOWN = "fuse_blown"
    FUSE_BLOWN_REMINDER = "fuse_blown_reminder"
    BUFFER_GROWTH_WARNING = "buffer_growth_warning"
    CHANGE_BUFFER_BACKPRESSURE = "change_buffer_backpressure"
    WATERMARK_STUCK = "watermark_stuck"
    WATERMARK_RESUMED = "watermark_resumed"


SEVERE = frozenset(
    {
        EventKind.REFRESH_FAILED,
        EventKind.REFRESH_CANCELLED,
        EventKind.AUTO_SUSPENDED,
        EventKind.REINITIALIZE_NEEDED,
        EventKind.STALE_DATA,
        EventKind.SCHEDULER_FALLING_BEHIND,
        EventKind.PREDICTED_SLA_BREACH,
        EventKind.FUSE_BLOWN,
        EventKind.FUSE_BLOWN_REMINDER,
        EventKind.BUFFER_GROWTH_WARNING,
        EventKind.CHANGE_BUFFER_BACKPRESSURE,
        EventKind.WATERMARK_STUCK,
    }
)
"""Events that are logged as warnings."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event. `table` is the name of the table that it is about, if it is about one."""

    kind: EventKind
    at: float
    table: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    id: int | None = None
