"""Watching over stream tables: what waits too long, what grows too large, which fuses have to blow.

Each thing is told once when it begins, not at every look. Counting rows costs one question to the catalog for all tables, asked every
`buffer_check_seconds` at most; fuses are checked before each refresh that they guard.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from headwater.catalog import Catalog, Snapshot
from headwater.model.control import Blown, Noted, Watermark, WatermarkGroup, noted
from headwater.model.events import EventKind
from headwater.model.options import FuseMode, Tier
from headwater.model.tables import REREAD, StreamTable
from headwater.schedule.due import Timing
from headwater.schedule.schedules import Every
from headwater.schedule.telling import Teller
from headwater.settings import Settings

_STALE = 2.0
_BREACH = 1.2


def fuse_ceiling(stream: StreamTable, settings: Settings) -> int:
    """Return how many changed rows blow the fuse of a stream table; 0 for none."""
    options = stream.options
    match options.fuse_mode:
        case FuseMode.OFF:
            return 0
        case FuseMode.ON:
            return options.fuse_ceiling
        case FuseMode.AUTO:
            return options.fuse_ceiling or settings.fuse_default_ceiling


def rows_waiting(catalog: Catalog, snapshot: Snapshot, nodes: Iterable[str]) -> dict[str, int]:
    """Return how many change rows each of several stream tables has not seen."""
    reads = {
        n: [(s, snapshot.streams[n].frontier_of(s)) for s in snapshot.sources.get(n, ())]
        for n in nodes
        if snapshot.streams[n].frontier is not None
    }
    counts = catalog.waiting_rows(pair for pairs in reads.values() for pair in pairs)
    return {n: sum(counts[p] for p in pairs) for n, pairs in reads.items()}


class Watch:
    """What a scheduler has noticed, and told."""

    def __init__(self, catalog: Catalog, settings: Settings, teller: Teller) -> None:
        self._catalog = catalog
        self._settings = settings
        self._teller = teller
        self._over: dict[str, int] = {}
        self._crowded: dict[str, int] = {}
        self._told: dict[tuple[EventKind, str], float] = {}
        self._counted_at = 0.0

    # fuses ------------------------------------------------------------------------------------------------------------------

    def blown_fuses(self, snapshot: Snapshot, nodes: Iterable[str], now: float) -> dict[str, Blown]:
        """Return those of the stream tables about to be refreshed whose fuses blow, and note that they have blown."""
        guarded = {n: c for n in nodes if (c := fuse_ceiling(snapshot.streams[n], self._settings))}
        if not guarded:
            return {}
        found: dict[str, Blown] = {}
        for node, rows in rows_waiting(self._catalog, snapshot, guarded).items():
            if rows <= guarded[node]:
                self._over.pop(node, None)
                continue
            self._over[node] = self._over.get(node, 0) + 1
            if self._over[node] >= snapshot.streams[node].options.fuse_sensitivity:
                del self._over[node]
                found[node] = Blown(now, rows, guarded[node])
        notes: list[Noted] = [noted(node, blown) for node, blown in found.items()]
        self._catalog.note(notes)
        for node, blown in found.items():
            self._tell(EventKind.FUSE_BLOWN, snapshot, node, now, pending=blown.pending, ceiling=blown.ceiling)
        return found

    # looks ------------------------------------------------------------------------------------------------------------------

    def look(self, timing: Timing, behind: Collection[str], now: float) -> None:
        """Notice what waits too long or stands still. `behind` are the stream tables that have something to do."""
        snapshot = timing.snapshot
        self._forget(snapshot, behind)
        for node in behind:
            again = self._settings.fuse_reminder_seconds
            blown = snapshot.notes.get(Blown, node)
            if blown is not None and now - blown.at >= again:
                self._once(EventKind.FUSE_BLOWN_REMINDER, snapshot, node, now, again, pending=blown.pending)
            is_frozen = snapshot.streams[node].options.tier is Tier.FROZEN and self._settings.tiered_scheduling
            if is_frozen:
                self._once(EventKind.FROZEN_TIER_SKIP, snapshot, node, now)
            if snapshot.streams[node].status == REREAD:
                self._once(EventKind.REINITIALIZE_NEEDED, snapshot, node, now)
            schedule = timing.schedules.get(node)
            waited = now - timing.clock.waiting_since.get(node, now)
            if isinstance(schedule, Every) and not is_frozen:
                limit = _STALE * timing.interval(node, schedule)
                if waited > limit:
                    self._once(EventKind.STALE_DATA, snapshot, node, now, seconds=round(waited, 1), limit=limit)
        self._look_at_watermarks(snapshot, now)
        if now - self._counted_at >= self._settings.buffer_check_seconds:
            self._counted_at = now
            self._look_at_buffers(snapshot, behind, now)

    def beginning(self, timing: Timing, node: str, now: float) -> None:
        """Notice that a refresh begins which will not keep its promise."""
        stream = timing.snapshot.streams[node]
        since = timing.clock.changed_since.get(node)
        if stream.options.sla_seconds is None or since is None:
            return
        expected = now - since + (stream.refresh_ms or 0.0) / 1000
        if expected > _BREACH * stream.options.sla_seconds:
            promised = stream.options.sla_seconds
            self._tell(EventKind.PREDICTED_SLA_BREACH, timing.snapshot, node, now, expected=expected, promised=promised)

    def _look_at_buffers(self, snapshot: Snapshot, behind: Collection[str], now: float) -> None:
        limit = self._settings.buffer_alert_threshold
        waiting = rows_waiting(self._catalog, snapshot, behind)
        for node in self._crowded.keys() - {n for n, rows in waiting.items() if rows > limit}:
            del self._crowded[node]
        for node, rows in waiting.items():
            if rows <= limit:
                continue
            self._crowded[node] = looks = self._crowded.get(node, 0) + 1
            if looks == 1:
                self._tell(EventKind.BUFFER_GROWTH_WARNING, snapshot, node, now, rows=rows, limit=limit)
            if looks == self._settings.backpressure_consecutive_limit:
                self._tell(EventKind.CHANGE_BUFFER_BACKPRESSURE, snapshot, node, now, rows=rows, cycles=looks)

    def _look_at_watermarks(self, snapshot: Snapshot, now: float) -> None:
        limit = self._settings.watermark_holdback_timeout
        if limit <= 0:
            return
        marks = snapshot.notes.of(Watermark)
        grouped = {s for g in snapshot.notes.of(WatermarkGroup).values() for s in g.sources if s in marks}
        for source in grouped:
            if source not in snapshot.tables:
                continue
            is_stuck = now - marks[source].at > limit
            key = (EventKind.WATERMARK_STUCK, source)
            if is_stuck:
                self._once(EventKind.WATERMARK_STUCK, snapshot, source, now, seconds=round(now - marks[source].at, 1))
            elif self._told.pop(key, None) is not None:
                self._tell(EventKind.WATERMARK_RESUMED, snapshot, source, now)

    # telling ----------------------------------------------------------------------------------------------------------------

    def _once(
        self, kind: EventKind, snapshot: Snapshot, node: str, now: float, again: float = float("inf"), **data: object
    ) -> None:
        last = self._told.get((kind, node))
        if last is None or now - last >= again:
            self._told[kind, node] = now
            self._tell(kind, snapshot, node, now, **data)

    def _forget(self, snapshot: Snapshot, behind: Collection[str]) -> None:
        """Let what is over be told again when it comes back."""
        for kind, node in list(self._told):
            if kind is not EventKind.WATERMARK_STUCK and node not in behind:
                del self._told[kind, node]

    def _tell(self, kind: EventKind, snapshot: Snapshot, node: str, now: float, **data: object) -> None:
        self._teller.tell(kind, now, snapshot.tables[node].name, **data)
