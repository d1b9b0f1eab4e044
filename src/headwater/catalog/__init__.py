"""The catalog: definitions, frontiers, manifests, history, leases. The only importer of sqlalchemy and alembic."""

from headwater.catalog.catalog import Catalog
from headwater.catalog.connect import Options
from headwater.catalog.failures import CatalogExistsError, CatalogUnavailableError, CommitUnknownError
from headwater.catalog.keeper import LeaseKeeper
from headwater.catalog.records import Head, LeaseHolder, Manifest, Snapshot, Write, WriteState

__all__ = [
    "Catalog",
    "CatalogExistsError",
    "CatalogUnavailableError",
    "CommitUnknownError",
    "Head",
    "LeaseHolder",
    "LeaseKeeper",
    "Manifest",
    "Options",
    "Snapshot",
    "Write",
    "WriteState",
]
