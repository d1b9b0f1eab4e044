"""A moment: at which version a refresh reads each of its sources.

One refresh alone reads everything at the newest version. Refreshes of one tick read what the tick saw when it began: a stream table
that was brought to that moment by the same tick is read at the version of its own commit, which is later, everything else at the
version of the tick. So all of them stand for the same moment, whatever is committed while they run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from headwater.catalog import Snapshot
from headwater.model.tables import StreamTable


@dataclass(frozen=True, slots=True)
class Moment:
    """`version` is the version that it stands for, `changed` the last change of each table up to it.

    `later` names the stream tables that stand for it and were committed afterwards, with the versions of their commits.
    """

    version: int
    changed: Mapping[str, int]
    later: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def of(self, source_id: str) -> int:
        """Return the version at which a source is read."""
        return self.later.get(source_id, self.version)

    def with_refreshed(self, table_id: str, version: int) -> Moment:
        """Return the moment in which a stream table that stands for it is read as it was committed at `version`."""
        return replace(self, later=MappingProxyType({**self.later, table_id: version}))

    def pending(self, stream: StreamTable, sources: tuple[str, ...]) -> tuple[str, ...]:
        """Return the sources that changed between what the stream table has read of them and this moment."""
        if stream.frontier is None:
            return sources
        return tuple(s for s in sources if self.later.get(s, self.changed.get(s, 0)) > stream.frontier_of(s))


def newest(snapshot: Snapshot) -> Moment:
    """Return the moment of the newest version."""
    return Moment(snapshot.version, snapshot.changed)


def pending_sources(snapshot: Snapshot, stream: StreamTable) -> tuple[str, ...]:
    """Return the sources that changed since they were read."""
    return newest(snapshot).pending(stream, snapshot.sources.get(stream.table_id, ()))
