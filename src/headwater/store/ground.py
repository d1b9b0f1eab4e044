"""The ground that refreshes and changes stand on: catalog, files, Spark, settings, as one record made at the edge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headwater.catalog import Catalog, Snapshot
from headwater.engine.lazy import Engine
from headwater.model.tables import Table
from headwater.settings import Settings
from headwater.store.layout import Layout
from headwater.store.reading import Reader, Source
from headwater.store.writing import Writer


@dataclass(frozen=True, slots=True)
class Ground:
    """Everything below; `owner` names this process in leases, writes and pins."""

    catalog: Catalog
    layout: Layout
    engine: Engine
    reader: Reader
    writer: Writer
    settings: Settings
    owner: str

    def sources(self, snapshot: Snapshot, table_ids: Iterable[str]) -> Mapping[str, Source]:
        """Return tables with their manifests at the snapshot's version."""
        wanted = list(table_ids)
        manifests = self.catalog.manifests(wanted, snapshot.version)
        return {i: Source(snapshot.tables[i], manifests[i]) for i in wanted}

    def source(self, snapshot: Snapshot, table: Table) -> Source:
        return Source(table, self.catalog.manifest(table.id, snapshot.version))
