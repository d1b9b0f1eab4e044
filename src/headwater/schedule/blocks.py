"""Blocks: why a stream table must not be refreshed by a scheduler now, whatever its schedule says.

Everything here is read off one snapshot, so that every process, every way of dispatching and every report gives the same answer.
A block of a stream table that failed also holds those that read it; all others may go on with what they last saw of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from headwater.catalog import Snapshot
from headwater.model.control import (
    EVERYTHING,
    Blown,
    Drain,
    ErrorKind,
    Gate,
    Pause,
    Trouble,
    Watermark,
    WatermarkGroup,
)
from headwater.model.options import Tier
from headwater.model.tables import SUSPENDED
from headwater.refresh.moment import pending_sources
from headwater.settings import Settings

REPAIRABLE = frozenset({ErrorKind.USER, ErrorKind.SCHEMA})
"""Failures that trying again cannot mend before rows or definitions change."""


class BlockKind(Enum):
    """What stands in the way."""

    DRAINED = "drained"
    PAUSED = "paused"
    SUSPENDED = "suspended"
    FUSE = "fuse"
    FROZEN = "frozen"
    GATED = "gated"
    WATERMARK = "watermark"
    FAILED = "failed"
    ABOVE = "above"
    """Something that it reads failed."""


@dataclass(frozen=True, slots=True)
class Block:
    """What stands in the way of a stream table, in a word and in a sentence."""

    kind: BlockKind
    text: str


def block_of(snapshot: Snapshot, table_id: str, settings: Settings, now: float) -> Block | None:
    """Return what stands in the way of a scheduled refresh; None if nothing does."""
    own = _own_block(snapshot, table_id, settings, now)
    if own is not None:
        return own
    for source in streams_above(snapshot, table_id):
        failed = _failure(snapshot, source, now)
        if failed is not None:
            return Block(BlockKind.ABOVE, f"waits for {snapshot.tables[source].name}, which {failed.text}")
    return None


def _own_block(snapshot: Snapshot, table_id: str, settings: Settings, now: float) -> Block | None:
    notes = snapshot.notes
    stream = snapshot.streams[table_id]
    if notes.get(Drain, EVERYTHING) is not None:
        return Block(BlockKind.DRAINED, "the warehouse is drained")
    if notes.get(Pause, EVERYTHING) is not None or notes.get(Pause, table_id) is not None:
        return Block(BlockKind.PAUSED, "paused")
    failed = _failure(snapshot, table_id, now)
    if failed is not None:
        return failed
    blown = notes.get(Blown, table_id)
    if blown is not None:
        text = f"the fuse has blown: {blown.pending} changed rows, the ceiling is {blown.ceiling}"
        return Block(BlockKind.FUSE, text)
    if settings.tiered_scheduling and stream.options.tier is Tier.FROZEN:
        return Block(BlockKind.FROZEN, "its tier is frozen")
    gated = [s for s in snapshot.sources.get(table_id, ()) if notes.get(Gate, s) is not None]
    if gated:
        return Block(BlockKind.GATED, f"source {snapshot.tables[gated[0]].name} is gated")
    return _watermark_block(snapshot, table_id)


def _failure(snapshot: Snapshot, table_id: str, now: float) -> Block | None:
    if snapshot.streams[table_id].status == SUSPENDED:
        return Block(BlockKind.SUSPENDED, "is suspended after repeated failures")
    trouble = snapshot.notes.get(Trouble, table_id)
    if trouble is None:
        return None
    if trouble.kind in REPAIRABLE and _moved_since(snapshot, table_id) <= trouble.version:
        return Block(BlockKind.FAILED, "failed, and waits for its sources to change")
    if trouble.retry_at > now:
        return Block(BlockKind.FAILED, f"failed, and is tried again in {trouble.retry_at - now:.0f} s")
    return None


def _moved_since(snapshot: Snapshot, table_id: str) -> int:
    """Return the last version that changed rows or definitions of what a stream table reads, directly or not, or its own definition."""
    above = [table_id, *base_sources(snapshot, table_id), *snapshot.sources.get(table_id, ())]
    return max(snapshot.tables[s].moved for s in above)


def _watermark_block(snapshot: Snapshot, table_id: str) -> Block | None:
    """Say whether sources of a group lie too far apart. Only groups count of which two sources or more are read, all with a mark."""
    groups = snapshot.notes.of(WatermarkGroup)
    if not groups:
        return None
    marks = snapshot.notes.of(Watermark)
    read = base_sources(snapshot, table_id)
    for name, group in groups.items():
        shared = [s for s in group.sources if s in read]
        if len(shared) < 2 or not all(s in marks for s in shared):
            continue
        low, high = min(shared, key=lambda s: marks[s].value), max(shared, key=lambda s: marks[s].value)
        apart = marks[high].value - marks[low].value
        if apart > group.tolerance_seconds:
            text = f"waits for the watermark of {snapshot.tables[low].name}, {apart:g} s behind in group {name}"
            return Block(BlockKind.WATERMARK, text)
    return None


def streams_above(snapshot: Snapshot, table_id: str) -> list[str]:
    """Return the stream tables that a stream table reads, directly or not."""
    return [s for s in _above(snapshot, table_id) if s in snapshot.streams]


def base_sources(snapshot: Snapshot, table_id: str) -> set[str]:
    """Return the tables that are no stream tables and that a stream table reads, directly or not."""
    return {s for s in _above(snapshot, table_id) if s not in snapshot.streams}


def _above(snapshot: Snapshot, table_id: str) -> list[str]:
    found: dict[str, None] = {}
    waiting = list(snapshot.sources.get(table_id, ()))
    while waiting:
        current = waiting.pop()
        if current not in found:
            found[current] = None
            waiting += snapshot.sources.get(current, ())
    return list(found)


def blocked(snapshot: Snapshot, table_ids: Iterable[str], settings: Settings, now: float) -> dict[str, Block]:
    """Return what stands in the way of each of several stream tables, for those that are blocked."""
    found = {i: block_of(snapshot, i, settings, now) for i in table_ids}
    return {i: block for i, block in found.items() if block is not None}


def is_behind(snapshot: Snapshot, table_id: str) -> bool:
    """Say whether a stream table has not seen all changes of what it reads."""
    return bool(pending_sources(snapshot, snapshot.streams[table_id]))
