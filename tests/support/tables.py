"""Looking at tables from outside: contents as Python values, recomputed hashes, files on disk."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row

from headwater.catalog import Manifest
from headwater.engine.identity import row_hash_sql
from headwater.model.tables import Table

if TYPE_CHECKING:
    from headwater.warehouse import Warehouse


def comparable(value: Any) -> Any:
    """Return a value that can be counted and compared: maps in one order, NaN equal to itself, -0.0 told apart from 0.0."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else repr(value)
    if isinstance(value, Row):
        return tuple((k, comparable(v)) for k, v in value.asDict().items())
    if isinstance(value, dict):
        return tuple(sorted((comparable(k), comparable(v)) for k, v in value.items()))
    if isinstance(value, list):
        return tuple(comparable(v) for v in value)
    if isinstance(value, bytearray):
        return bytes(value)
    return value


def counted(rows: Iterable[Iterable[Any]]) -> Counter[tuple[Any, ...]]:
    """Return rows as a multiset."""
    return Counter(tuple(comparable(v) for v in row) for row in rows)


def contents(wh: Warehouse, name: str, *, version: int | None = None) -> Counter[tuple[Any, ...]]:
    """Return the rows of a table as a multiset."""
    return counted(wh.table(name, version=version).collect())


def table_of(wh: Warehouse, name: str) -> Table:
    found = wh._catalog.snapshot().table(name)
    assert found is not None
    return found


def manifest_of(wh: Warehouse, name: str) -> Manifest:
    snapshot = wh._catalog.snapshot()
    return wh._catalog.manifest(table_of(wh, name).id, snapshot.version)


def check_hash(wh: Warehouse, name: str) -> None:
    """Fail unless the hash and the row count in the catalog are those of the contents."""
    table = table_of(wh, name)
    text = f"sum(CAST({row_hash_sql(table.schema.visible)} AS DECIMAL(38, 0))) AS h"
    found = wh.table(name).selectExpr(text, "count(*) AS n").collect()[0]
    assert (table.hash, table.row_count) == (int(found["h"] or 0) % 2**64, found["n"])


def files_on_disk(wh: Warehouse) -> set[str]:
    """Return the data files that exist, relative to the location; the Delta log is not data."""
    root = Path(wh._ground.layout.location)
    found = (root / "data").rglob("*") if (root / "data").exists() else ()
    return {str(p.relative_to(root)) for p in found if p.is_file() and "_delta_log" not in p.parts}


def files_in_catalog(wh: Warehouse) -> set[str]:
    """Return the data files that the newest version names."""
    snapshot = wh._catalog.snapshot()
    manifests = wh._catalog.manifests(snapshot.tables, snapshot.version)
    base = {f.path for m in manifests.values() for f in m.files}
    return base | {f.path for m in manifests.values() for files in m.batch_files.values() for f in files}
