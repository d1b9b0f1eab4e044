"""Health: one line for each thing that may be wrong with a warehouse, with what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from headwater.catalog import Snapshot
from headwater.catalog.records import SchedulerEntry
from headwater.model.control import (
    EVERYTHING,
    Blown,
    Drain,
    Gate,
    N,
    Pause,
    Skipped,
    Trouble,
    Watermark,
    WatermarkGroup,
)
from headwater.model.reports import ChangeBuffer, HealthCheck, Severity
from headwater.model.tables import REREAD, SUSPENDED
from headwater.schedule.due import BEHIND
from headwater.schedule.freshness_report import Present, overdue
from headwater.schedule.reports import scheduler_statuses
from headwater.schedule.schedules import Calculated, duration_text
from headwater.settings import Settings

_NAMED = 5


@dataclass(frozen=True, slots=True)
class Vitals:
    """What the checks look at, all of one moment."""

    present: Present
    buffers: Sequence[ChangeBuffer] = ()
    schedulers: Sequence[SchedulerEntry] = ()

    @property
    def snapshot(self) -> Snapshot:
        return self.present.snapshot

    @property
    def settings(self) -> Settings:
        return self.present.settings

    def noted(self, kind: type[N]) -> dict[str, N]:
        """Return the notes of a kind about tables that exist."""
        return {i: note for i, note in self.snapshot.notes.of(kind).items() if i in self.snapshot.tables}

    def named(self, table_ids: Iterable[str]) -> str:
        """Return the names of tables for a sentence, the first few of them."""
        return listed(self.snapshot.tables[i].name for i in table_ids)


def listed(names: Iterable[str]) -> str:
    """Return names for a sentence: in order, each once, the first few of them."""
    every = sorted(set(names))
    more = f" and {len(every) - _NAMED} more" if len(every) > _NAMED else ""
    return ", ".join(f'"{n}"' for n in every[:_NAMED]) + more


def health_checks(vitals: Vitals) -> list[HealthCheck]:
    """Return the outcome of every check, in the order of `CHECKS`."""
    return [check(vitals) for check in CHECKS]


def _fine(check: str, detail: str = "nothing found") -> HealthCheck:
    return HealthCheck(check, Severity.OK, detail)


def _scheduler_running(vitals: Vitals) -> HealthCheck:
    check = "scheduler_running"
    scheduled = [i for i, pace in vitals.present.paces.items() if pace.seconds is not None]
    if vitals.schedulers:
        states = [s.state for s in scheduler_statuses(vitals.schedulers)]
        return _fine(check, f"{len(states)} live: {', '.join(states)}")
    if not scheduled:
        return _fine(check, "none lives, and no stream table has a schedule")
    hint = "Run `headwater run`, or start one with `wh.scheduler().start()`."
    behind = [i for i in scheduled if vitals.present.ages.own.get(i) != 0.0]
    if behind:
        return HealthCheck(check, Severity.ERROR, f"none lives, and changes wait for {vitals.named(behind)}", hint)
    return HealthCheck(check, Severity.WARN, f"none lives; {len(scheduled)} stream tables have a schedule", hint)


def _suspended_tables(vitals: Vitals) -> HealthCheck:
    check = "suspended_tables"
    found = [i for i, s in vitals.snapshot.streams.items() if s.status == SUSPENDED]
    if not found:
        return _fine(check)
    detail = f"{vitals.named(found)} failed too often and are not refreshed any more"
    return HealthCheck(check, Severity.ERROR, detail, "Mend the cause, then call `resume_stream_table`.")


def _error_tables(vitals: Vitals) -> HealthCheck:
    check = "error_tables"
    failed = {i: s.last_error for i, s in vitals.snapshot.streams.items() if s.last_error}
    if not failed:
        return _fine(check)
    first = min(failed, key=lambda i: vitals.snapshot.tables[i].name)
    detail = (
        f'the last refresh failed of {vitals.named(failed)}; "{vitals.snapshot.tables[first].name}": {failed[first]}'
    )
    return HealthCheck(check, Severity.WARN, detail, "The history of the stream table has the whole message.")


def _consecutive_errors(vitals: Vitals) -> HealthCheck:
    check = "consecutive_errors"
    found = {i: t for i, t in vitals.noted(Trouble).items() if t.errors}
    if not found:
        return _fine(check)
    most = max(t.errors for t in found.values())
    limit = vitals.settings.max_consecutive_errors
    detail = f"{vitals.named(found)} failed in a row, {most} times at most; after {limit} a table is suspended"
    severity = Severity.ERROR if most >= limit else Severity.WARN
    return HealthCheck(check, severity, detail, "The history of the stream table says why.")


def _stale_tables(vitals: Vitals) -> HealthCheck:
    check = "stale_tables"
    ages = vitals.present.ages.own
    found = [
        i
        for i, pace in vitals.present.paces.items()
        if i in ages and ages[i] > 0 and overdue(pace, ages[i], vitals.present.now)
    ]
    if not found:
        return _fine(check, "no change waits longer than twice the schedule")
    oldest = max(found, key=lambda i: ages[i])
    name, since = vitals.snapshot.tables[oldest].name, duration_text(round(ages[oldest], 1))
    detail = f'changes wait longer than twice the schedule for {vitals.named(found)}; longest for "{name}", {since}'
    return HealthCheck(check, Severity.WARN, detail, "`status` says why each of them waits.")


def _missed_promises(vitals: Vitals) -> HealthCheck:
    check = "missed_promises"
    found = [
        i
        for i, s in vitals.snapshot.streams.items()
        if s.options.sla_seconds is not None and vitals.present.ages.staleness.get(i, 0.0) > s.options.sla_seconds
    ]
    if not found:
        return _fine(check, "every promise of freshness is kept")
    detail = f"changes are not shown as soon as promised by {vitals.named(found)}"
    return HealthCheck(check, Severity.ERROR, detail, "`recommend_schedule` says what can be kept.")


def _needs_rebuild(vitals: Vitals) -> HealthCheck:
    check = "needs_rebuild"
    streams = vitals.snapshot.streams
    empty = [i for i, s in streams.items() if s.frontier is None]
    reread = [i for i, s in streams.items() if s.status == REREAD]
    skipped = [i for i in vitals.noted(Skipped) if i in streams]
    parts = [
        f"{text} {vitals.named(ids)}"
        for text, ids in (
            ("never populated:", empty),
            ("changes were given up, the next refresh reads everything:", reread),
            ("changes were skipped, the contents differ from the query:", skipped),
        )
        if ids
    ]
    if not parts:
        return _fine(check)
    return HealthCheck(check, Severity.WARN, "; ".join(parts), "Refresh them, those with skipped changes in full.")


def _buffer_growth(vitals: Vitals) -> HealthCheck:
    check = "buffer_growth"
    limit = vitals.settings.buffer_alert_threshold
    found = [b for b in vitals.buffers if b.pending_rows > limit]
    if not found:
        return _fine(check, f"no more than {limit:,} change rows wait for any stream table")
    most = max(found, key=lambda b: b.pending_rows)
    detail = (
        f"more than {limit:,} change rows wait for {listed(b.stream_table for b in found)}; "
        f'most of "{most.source_table}" for "{most.stream_table}", {most.pending_rows:,}'
    )
    hint = "Refresh them more often, or in full. `buffer_alert_threshold` is the limit."
    return HealthCheck(check, Severity.WARN, detail, hint)


def _blown_fuses(vitals: Vitals) -> HealthCheck:
    check = "blown_fuses"
    found = vitals.noted(Blown)
    if not found:
        return _fine(check)
    detail = f"more rows changed than the ceiling allows for {vitals.named(found)}"
    hint = "Look at the changes, then call `reset_fuse` with apply, reinitialize or skip_changes."
    return HealthCheck(check, Severity.ERROR, detail, hint)


def _drained(vitals: Vitals) -> HealthCheck:
    check = "drained"
    drain = vitals.snapshot.notes.get(Drain, EVERYTHING)
    if drain is None:
        return _fine(check, "no")
    detail = f"schedulers have started nothing for {_time(vitals, drain.at)}{_by(drain.by)}"
    return HealthCheck(check, Severity.WARN, detail, "Call `undrain` to go on.")


def _paused(vitals: Vitals) -> HealthCheck:
    check = "paused"
    everything = vitals.snapshot.notes.get(Pause, EVERYTHING)
    if everything is not None:
        detail = f"everything has been paused for {_time(vitals, everything.at)}{_by(everything.by)}"
        return HealthCheck(check, Severity.WARN, detail, "Call `resume_all` to go on.")
    found = vitals.noted(Pause)
    if not found:
        return _fine(check)
    detail = f"{vitals.named(found)}, for {_time(vitals, min(p.at for p in found.values()))} at most"
    return HealthCheck(check, Severity.WARN, detail, "Call `resume_scheduler` to go on.")


def _gated(vitals: Vitals) -> HealthCheck:
    check = "gated_sources"
    found = vitals.noted(Gate)
    if not found:
        return _fine(check)
    reasons = sorted({g.reason for g in found.values() if g.reason})
    longest = _time(vitals, min(g.at for g in found.values()))
    detail = f"{vitals.named(found)}, for {longest} at most{': ' if reasons else ''}{', '.join(reasons)}"
    return HealthCheck(check, Severity.WARN, detail, "Call `ungate_source` when the load is done.")


def _falling_behind(vitals: Vitals) -> HealthCheck:
    """Find stream tables whose refreshes take as long as their schedule. A calculated schedule promises nothing."""
    check = "falling_behind"
    found: dict[str, float] = {}
    for i, pace in vitals.present.paces.items():
        took = vitals.snapshot.streams[i].refresh_ms
        if took is not None and pace.seconds is not None and not isinstance(pace.schedule, Calculated):
            found[i] = took / 1000 / pace.seconds
    late = {i: share for i, share in found.items() if share >= BEHIND}
    if not late:
        return _fine(check, f"no refresh takes {BEHIND:.0%} of its schedule")
    worst = max(late, key=lambda i: late[i])
    detail = (
        f"refreshes take {BEHIND:.0%} of their schedule or more of {vitals.named(late)}; "
        f'most of "{vitals.snapshot.tables[worst].name}", {late[worst]:.0%}'
    )
    return HealthCheck(check, Severity.WARN, detail, "`recommend_schedule` says which schedule they can keep.")


def _watermarks(vitals: Vitals) -> HealthCheck:
    """Find watermarks that hold others of their group back and have not moved for longer than the setting allows."""
    check = "stuck_watermarks"
    timeout = vitals.settings.watermark_holdback_timeout
    marks = vitals.noted(Watermark)
    if timeout <= 0:
        return _fine(check, "not watched: `watermark_holdback_timeout` is 0")
    stuck: set[str] = set()
    for group in vitals.snapshot.notes.of(WatermarkGroup).values():
        known = [s for s in group.sources if s in marks]
        newest = max((marks[s].value for s in known), default=0.0)
        stuck.update(
            s
            for s in known
            if newest - marks[s].value > group.tolerance_seconds and vitals.present.now - marks[s].at > timeout
        )
    if not stuck:
        return _fine(check)
    detail = f"{vitals.named(stuck)} hold back the other sources of their group"
    return HealthCheck(check, Severity.WARN, detail, "Call `advance_watermark`, or drop the group.")


def _worker_pool(vitals: Vitals) -> HealthCheck:
    check = "worker_pool"
    full = [s for s in scheduler_statuses(vitals.schedulers) if s.queued > 0 and s.active >= s.workers]
    if not full:
        return _fine(check, "no work waits for a worker")
    waiting = sum(s.queued for s in full)
    detail = f"all {sum(s.workers for s in full)} workers are busy and {waiting} units of work wait"
    hint = "Raise `worker_pool_size` or `max_concurrent_refreshes`, or start another scheduler."
    return HealthCheck(check, Severity.WARN, detail, hint)


def _time(vitals: Vitals, since: float) -> str:
    return duration_text(max(0, round(vitals.present.now - since)))


def _by(who: str) -> str:
    return f", by {who}" if who else ""


CHECKS: tuple[Callable[[Vitals], HealthCheck], ...] = (
    _scheduler_running,
    _suspended_tables,
    _error_tables,
    _consecutive_errors,
    _stale_tables,
    _missed_promises,
    _needs_rebuild,
    _buffer_growth,
    _blown_fuses,
    _drained,
    _paused,
    _gated,
    _falling_behind,
    _watermarks,
    _worker_pool,
)
