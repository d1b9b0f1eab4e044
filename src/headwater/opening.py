"""Opening a warehouse: a directory with its own catalog, or a shared catalog in PostgreSQL."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwater.catalog import Catalog, CatalogExistsError, Options
from headwater.engine.session import adopt_session
from headwater.errors import NotAWarehouseError
from headwater.settings import Settings
from headwater.warehouse import Warehouse

CATALOG_FILE = "headwater.db"


def connect(
    target: str | os.PathLike[str],
    *,
    location: str | os.PathLike[str] | None = None,
    spark: Any = None,
    settings: Mapping[str, Any] | None = None,
    create: bool = True,
) -> Warehouse:
    """Open a warehouse, or create it where nothing is.

    `target` is a directory (its catalog is a SQLite file in it) or a `postgresql://` URL of a shared catalog; then `location` says
    where the data files are. `spark` is a classic Spark session to use; without one an embedded session starts when it is needed.
    """
    if spark is not None:
        adopt_session(spark)  # refused before anything is created
    text = os.fspath(target)
    if text.startswith(("postgresql://", "postgres://", "postgresql+")):
        catalog, root, values = _shared(text, location, settings, create)
    else:
        catalog, root, values = _local(Path(text), settings, create)
    logging.getLogger("headwater").setLevel(values.log_level.value)
    return Warehouse(catalog, root, values, spark)


def _local(path: Path, settings: Mapping[str, Any] | None, create: bool) -> tuple[Catalog, Path, Settings]:
    values = Settings.read(settings, directory=path)
    file = path / CATALOG_FILE
    options = Options(busy_timeout=values.busy_timeout_seconds)
    if path.exists() and not path.is_dir():
        raise NotAWarehouseError(f'"{path}" is a file', hint="A warehouse is a directory.")
    if file.exists():
        return Catalog.open(str(file), options=options), path, values
    if not create or (path.exists() and any(p.name != "headwater.toml" for p in path.iterdir())):
        raise NotAWarehouseError(
            f'"{path}" is not a warehouse',
            detail=f"It holds no {CATALOG_FILE}." if path.exists() else "The directory does not exist.",
            hint="`headwater init` creates a warehouse in a new or empty directory.",
        )
    path.mkdir(parents=True, exist_ok=True)
    try:
        return Catalog.create(str(file), location=".", options=options), path, values
    except CatalogExistsError:  # another process was first
        return Catalog.open(str(file), options=options), path, values


def _shared(
    url: str, location: str | os.PathLike[str] | None, settings: Mapping[str, Any] | None, create: bool
) -> tuple[Catalog, Path, Settings]:
    root = Path(location) if location is not None else None
    values = Settings.read(settings, directory=root)
    options = Options(busy_timeout=values.busy_timeout_seconds)
    try:
        catalog = Catalog.open(url, options=options)
    except NotAWarehouseError:
        if not create or root is None:
            raise
        root.mkdir(parents=True, exist_ok=True)
        try:
            catalog = Catalog.create(url, location=str(root.resolve()), options=options)
        except CatalogExistsError:
            catalog = Catalog.open(url, options=options)
    return catalog, root if root is not None else Path(catalog.location), values
