"""Warming up: the first refreshes of a process are slow, because classes are loaded and queries planned for the first time.

So each stream table's delta program is computed once more over the newest changes of its sources, and the result is thrown away.
Nothing is committed; what cannot be computed so (the changes are many, or the state does not fit them any more) is left.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from headwater.catalog import Snapshot
from headwater.errors import HeadwaterError
from headwater.model.tables import RefreshAction, RefreshMode, StreamTable
from headwater.refresh.cycle import Refresher
from headwater.refresh.scene import newest_scene
from headwater.store.ground import Ground

LOG = logging.getLogger("headwater.schedule")

TURNS = 2
"""A text is planned for good when it comes the second time."""
_MOST_ROWS = 1_000


def warmed_up(
    ground: Ground,
    refresher: Refresher,
    snapshot: Snapshot,
    progress: Callable[[str, int, int], None] | None,
    seconds: float,
) -> int:
    """Compute the programs of stream tables without effect, for `seconds` at most; return how many."""
    deadline = time.monotonic() + seconds
    ground.engine.spark  # noqa: B018 - started here
    streams = [s for s in snapshot.streams.values() if s.frontier is not None and s.mode is not RefreshMode.FULL]
    done = 0
    for i, stream in enumerate(streams):
        if time.monotonic() > deadline:
            break
        if progress is not None:
            progress(snapshot.tables[stream.table_id].name, i, len(streams))
        done += all(_computed(ground, refresher, snapshot, stream) for _ in range(TURNS))
    return done


def _computed(ground: Ground, refresher: Refresher, snapshot: Snapshot, stream: StreamTable) -> bool:
    definition = refresher.definition(stream)
    if definition.template is None:
        return False
    scene = newest_scene(ground, snapshot)
    given = refresher.computer.refresh_input(scene, stream, definition)
    since = {}
    for table_id, source in given.sources.items():
        last = max(source.manifest.batches, key=lambda b: b.last_version, default=None)
        if last is not None and last.inserts + last.deletes <= _MOST_ROWS and table_id in given.since:
            since[table_id] = last.first_version - 1
    if not since:
        return False
    then = replace(stream, frontiers={**stream.frontiers, **since})
    try:
        outcome = refresher.computer.computed(scene, then, definition, RefreshAction.DIFFERENTIAL)
    except HeadwaterError as error:
        LOG.debug("not warmed up table=%s error=%s", stream.table_id, error.message)
        return False
    for rows in outcome.rows.values():
        ground.writer.discard(rows)
    return True
