"""The scene of a refresh: the catalog as it was read, the moment to which sources are read, and what is not committed yet.

Stream tables that are refreshed together are committed together. A member reads the rows of the members before it although no commit
names them yet: they are foreseen as a batch of the next version, which is what they become, or nothing does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from headwater.catalog import Manifest, Snapshot
from headwater.engine.worker import Frame, Worker
from headwater.model.commit import AddBatch
from headwater.model.tables import BatchFormat
from headwater.refresh.moment import Moment, newest
from headwater.refresh.shared import SharedChanges
from headwater.store.ground import Ground
from headwater.store.reading import Source


@dataclass(frozen=True, slots=True)
class Scene:
    """What one refresh sees."""

    ground: Ground
    snapshot: Snapshot
    moment: Moment
    shared: SharedChanges | None = None
    foreseen: Mapping[str, Source] = field(default_factory=lambda: MappingProxyType({}))

    def sources(self, table_ids: Iterable[str]) -> dict[str, Source]:
        """Return tables with all that they consist of."""
        wanted = list(table_ids)
        known = self.ground.sources(self.snapshot, [i for i in wanted if i not in self.foreseen])
        return {i: self.foreseen[i] if i in self.foreseen else known[i] for i in wanted}

    def source(self, table_id: str) -> Source:
        return self.sources((table_id,))[table_id]

    def visible(self, worker: Worker, table_id: str) -> Frame:
        """Return what users see of a table at the moment."""
        source = self.source(table_id)
        return self.ground.reader.state(worker, source, self.moment.of(table_id), source.table.schema.visible)

    def with_foreseen(self, added: AddBatch) -> Scene:
        """Return the scene in which a stream table stands for the moment, with the rows that its refresh has brought."""
        table_id, version = added.batch.table_id, self.snapshot.version + 1
        if added.batch.format is BatchFormat.INLINE:
            self.ground.reader.foresee(added.batch)
        source = self.source(table_id)
        batch = replace(added.batch, first_version=version, last_version=version, added=version, inline=None)
        manifest = Manifest(
            source.manifest.files,
            (*source.manifest.batches, batch),
            MappingProxyType({**source.manifest.batch_files, batch.id: added.files})
            if added.files
            else source.manifest.batch_files,
        )
        return replace(
            self,
            moment=self.moment.with_refreshed(table_id, version),
            foreseen=MappingProxyType({**self.foreseen, table_id: replace(source, manifest=manifest)}),
        )


def newest_scene(ground: Ground, snapshot: Snapshot) -> Scene:
    """Return the scene in which everything is read at the newest version."""
    return Scene(ground, snapshot, newest(snapshot))
