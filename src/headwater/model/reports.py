"""What the warehouse answers with, besides frames."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from headwater.model.options import Consistency, GroupPolicy
from headwater.model.tables import RefreshAction, RefreshMode


@dataclass(frozen=True, slots=True)
class Result:
    """What a statement that is not a query did. `notices` are what its user should know besides."""

    message: str
    rows_affected: int = 0
    value: Any = None
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A table at a glance; everything comes from the catalog."""

    name: str
    kind: str
    rows: int
    version: int
    mode: str | None = None
    schedule: str | None = None
    status: str | None = None
    frontier: int | None = None
    pending: bool = False
    last_action: str | None = None
    last_duration_ms: float | None = None
    last_error: str | None = None
    reason: str | None = None
    when_full: str | None = None
    notices: tuple[str, ...] = ()
    tier: str | None = None
    staleness_seconds: float | None = None
    why_behind: str | None = None


@dataclass(frozen=True, slots=True)
class Validation:
    """How a query would be maintained, and what stands against it."""

    mode: RefreshMode
    operators: tuple[tuple[str, str, str], ...]
    notices: tuple[str, ...]
    refusals: tuple[Any, ...]
    columns: tuple[tuple[str, str], ...]


# how fresh stream tables are, and what waits for them ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unseen:
    """The first change of a source that a stream table has not read: the version that made it, and how long ago that was."""

    version: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Freshness:
    """How long ago the oldest change was committed that a stream table does not show, and why it does not.

    0 seconds: it shows all of them. None: it was never populated.
    """

    staleness_seconds: float | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class ChangeBuffer:
    """What of a source waits for one stream table: rows, bytes and batches after the version that it has read."""

    stream_table: str
    source_table: str
    pending_rows: int
    pending_bytes: int
    oldest_seconds: float | None
    kept_batches: int


# how the warehouse fares ----------------------------------------------------------------------------------------------------


class Severity(Enum):
    """How much a line of a health check wants somebody's attention."""

    OK = "OK"
    WARN = "WARN"
    ERROR = "ERROR"


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """The outcome of one check. A check that finds nothing wrong has a line, too."""

    check: str
    severity: Severity
    detail: str
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One refresh of the history, with the name of its stream table."""

    name: str
    started_at: float
    finished_at: float
    action: RefreshAction
    status: str
    rows_in: int
    rows_inserted: int
    rows_deleted: int
    duration_ms: float
    spark_jobs: int
    reason: str
    frontier: int | None
    version: int | None
    error: str | None


@dataclass(frozen=True, slots=True)
class RefreshTotals:
    """Sums over the history that is kept. What was rolled back because another refresh of its group failed counts as neither."""

    completed: int = 0
    failed: int = 0
    differential: int = 0
    full: int = 0
    rows_in: int = 0
    rows_changed: int = 0
    bytes_written: int = 0
    spark_jobs: int = 0
    milliseconds: float = 0.0


@dataclass(frozen=True, slots=True)
class WorkerAllocation:
    """What one scheduler has for one warehouse. The cluster is all schedulers that live."""

    warehouse: str
    scheduler: str
    workers_used: int
    workers_quota: int
    workers_queued: int
    cluster_active: int
    cluster_max: int


@dataclass(frozen=True, slots=True)
class ClusterWorkers:
    """What all schedulers of one warehouse on one host have together."""

    warehouse: str
    host: str
    schedulers: int
    active_workers: int
    queued_units: int
    workers: int


@dataclass(frozen=True, slots=True)
class SchedulerStatus:
    """A scheduler that lives, as it described itself when it was seen last."""

    scheduler: str
    host: str
    pid: int
    warehouse: str
    state: str
    pool: str
    alive_since: float
    seen_at: float
    workers: int
    active: int
    queued: int
    ticks: int
    refreshes: int
    failures: int
    last_tick_ms: float | None


# the graph ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A line of a dependency tree: what stands under it is what it reads. `is_repeated`: its sources stand further up."""

    name: str
    kind: str
    depth: int
    parent: str | None
    mode: str | None = None
    schedule: str | None = None
    status: str | None = None
    is_repeated: bool = False


@dataclass(frozen=True, slots=True)
class DependencyTree:
    """What stream tables read, directly or not, as records and as a text for people, line by line the same."""

    nodes: tuple[TreeNode, ...]
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class DiamondGroup:
    """A stream table of a diamond, which has the name of the last table in which its ways meet."""

    group: str
    member: str
    is_convergence: bool
    policy: GroupPolicy
    consistency: Consistency
    frontier: int | None


@dataclass(frozen=True, slots=True)
class ScheduleAdvice:
    """Which schedule fits a stream table, how sure that is (0 to 1), and why. Without enough history there is none."""

    stream_table: str
    schedule: str | None
    recommended_interval_seconds: float | None
    peak_window_cron: str | None
    confidence: float
    reasoning: str


@dataclass(frozen=True, slots=True)
class SchedulerState:
    """How a scheduler fares: its workers, what it has done so far, and who falls behind."""

    owner: str
    host: str
    pid: int
    state: str
    pool: str
    workers: int
    quota: int
    active: int
    queued: int
    ticks: int
    refreshes: int
    failures: int
    last_tick_ms: float
    median_tick_ms: float
    behind: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PauseReport:
    """Which stream tables are paused, and which of them were still being refreshed when waiting ended."""

    paused: tuple[str, ...]
    still_running: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FuseStatus:
    """A fuse: how many changed rows blow it, how many wait now, and when it has blown."""

    stream_table: str
    mode: str
    ceiling: int
    pending: int
    blown_at: float | None


@dataclass(frozen=True, slots=True)
class GateStatus:
    """A gate that is closed, and who waits at it."""

    source: str
    since: float
    reason: str
    waiting: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WatermarkStatus:
    """Up to when the data of a source are complete, and how many seconds it is behind the furthest source of its groups."""

    source: str
    value: float
    said_at: float
    groups: tuple[str, ...]
    behind: float


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """Stream tables that appear together because somebody wants it."""

    name: str
    members: tuple[str, ...]
