"""Where files are, and what is known about each: paths, sizes, statistics, durability.

Every write has a directory of its own, named after its write id, so an abandoned write is one directory to remove and a name is
never used twice. Statistics come from Parquet footers and decide which files a read can skip.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.errors import MissingFileError
from headwater.model.tables import DataFile, FileRole

Bound = tuple[Any, Any]


@dataclass(frozen=True, slots=True)
class Layout:
    """The directory tree of a warehouse."""

    location: Path

    def directory(self, table_id: str, role: FileRole, write_id: str) -> str:
        """Return the directory of a write, relative to the location."""
        return f"data/{table_id}/{role.value}/{write_id}"

    def scratch(self, write_id: str) -> str:
        """Return the directory for rows on their way in, relative to the location: executors read them, no table ever holds them."""
        return f"data/scratch/{write_id}"

    def base(self, table_id: str) -> Path:
        """Return the folder that outside readers open as a Delta table."""
        return self.location / "data" / table_id / FileRole.BASE.value

    def absolute(self, path: str) -> str:
        return str(self.location / path)

    def paths(self, files: Iterable[DataFile]) -> list[str]:
        return [str(self.location / f.path) for f in files]

    def require(self, files: Iterable[DataFile]) -> None:
        """Fail clearly if a file is not there."""
        for file in files:
            if not os.path.exists(self.location / file.path):
                raise MissingFileError(
                    f'data file "{file.path}" is missing',
                    detail="The catalog lists it, the warehouse directory does not hold it.",
                    hint="Restore it from a backup. Other tables stay readable.",
                )

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(self.location / path, ignore_errors=True)


def written_files(layout: Layout, table_id: str, role: FileRole, directory: str, write_id: str) -> tuple[DataFile, ...]:
    """Return the non-empty Parquet files of a finished write, made durable; empty ones are removed."""
    found = []
    root = layout.location / directory
    for path in sorted(root.glob("*.parquet")):
        metadata = pq.read_metadata(path)
        if metadata.num_rows == 0:
            path.unlink()
            continue
        _fsync(path)
        found.append(
            DataFile(
                id=uuid.uuid4().hex,
                table_id=table_id,
                role=role,
                path=f"{directory}/{path.name}",
                rows=metadata.num_rows,
                bytes=path.stat().st_size,
                write_id=write_id,
                stats=json.dumps(footer_statistics(metadata)),
            )
        )
    for extra in (root / "_SUCCESS", *root.glob(".*.crc")):
        extra.unlink(missing_ok=True)
    if root.exists():
        _fsync(root)
        _fsync(root.parent)
    return tuple(found)


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write a file as our readers expect it. Dictionaries only for texts: of numbers they take twice the time and more space."""
    texts = [f.name for f in table.schema if pa.types.is_string(f.type) or pa.types.is_binary(f.type)]
    pq.write_table(table, path, coerce_timestamps="us", use_dictionary=texts or False)


def write_arrow(
    layout: Layout, table: pa.Table, table_id: str, role: FileRole, directory: str, write_id: str
) -> tuple[DataFile, ...]:
    """Write a small table as one Parquet file, without Spark."""
    root = layout.location / directory
    root.mkdir(parents=True, exist_ok=True)
    write_parquet(table, root / "part-0.parquet")
    return written_files(layout, table_id, role, directory, write_id)


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# statistics -----------------------------------------------------------------------------------------------------------------


def footer_statistics(metadata: pq.FileMetaData) -> dict[str, list[Any]]:
    """Return {column: [min, max, nulls]} for top-level columns whose order is the same for Parquet, Python and Spark."""
    result: dict[str, list[Any]] = {}
    unknown: set[str] = set()
    schema = metadata.schema.to_arrow_schema()
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for i in range(row_group.num_columns):
            chunk = row_group.column(i)
            name = chunk.path_in_schema
            if name not in schema.names or name in unknown or not _has_order(schema.field(name).type):
                continue
            stats = chunk.statistics
            extremes = _extremes(stats, row_group.num_rows)
            if extremes is None:
                unknown.add(name)
                result.pop(name, None)
                continue
            low, high = extremes
            if name in result:
                old = result[name]
                low = old[0] if low is None else low if old[0] is None else min(low, _decoded(old[0]))
                high = old[1] if high is None else high if old[1] is None else max(high, _decoded(old[1]))
                nulls = old[2] + stats.null_count
            else:
                nulls = stats.null_count
            result[name] = [_encoded(low), _encoded(high), nulls]
    return result


def _extremes(stats: pq.Statistics | None, rows: int) -> Bound | None:
    """Return the smallest and largest value of a column chunk, both None if it holds NULLs only; None if they are not known."""
    if stats is None or not stats.has_null_count:
        return None
    if not stats.has_min_max:
        return (None, None) if stats.null_count == rows else None
    try:
        low, high = stats.min, stats.max
    except (OverflowError, ValueError):  # a date or time outside Python's calendar
        return None
    return None if low is None or _too_long(low) or _too_long(high) else (low, high)


def _has_order(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_date(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_timestamp(kind)
    )


def _too_long(value: Any) -> bool:
    return isinstance(value, str) and len(value) > 128


def _encoded(value: Any) -> Any:
    """Return a JSON form that keeps its type: {"t": type, "v": text} for everything JSON has no word for."""
    if isinstance(value, datetime):
        return {"t": "ts", "v": value.isoformat()}
    if isinstance(value, date):
        return {"t": "date", "v": value.isoformat()}
    if isinstance(value, Decimal):
        return {"t": "dec", "v": str(value)}
    return value


def _decoded(value: Any) -> Any:
    if isinstance(value, dict):
        if value["t"] == "ts":
            return datetime.fromisoformat(value["v"])
        if value["t"] == "date":
            return date.fromisoformat(value["v"])
        return Decimal(value["v"])
    return value


def decoded_statistics(file: DataFile) -> dict[str, tuple[Any, Any, int]]:
    """Return {column: (min, max, nulls)} with Python values."""
    return {k: (_decoded(v[0]), _decoded(v[1]), v[2]) for k, v in json.loads(file.stats).items()}


def files_within(files: Sequence[DataFile], bounds: Mapping[str, Bound]) -> tuple[DataFile, ...]:
    """Return the files that may hold a row with every bounded column inside its bounds (a NULL never is)."""
    if not bounds:
        return tuple(files)
    return tuple(x for x in files if _may_match(decoded_statistics(x), bounds))


def _may_match(stats: Mapping[str, tuple[Any, Any, int]], bounds: Mapping[str, Bound]) -> bool:
    for column, (low, high) in bounds.items():
        known = stats.get(column)
        if known is None:
            continue
        if known[0] is None:
            return False
        try:
            if known[1] < low or known[0] > high:
                return False
        except TypeError:
            continue
    return True


def column_bounds(table: pa.Table, columns: Sequence[str]) -> dict[str, Bound]:
    """Return the smallest and largest value of each column that has an order and no NULL; none for an empty table."""
    result: dict[str, Bound] = {}
    if table.num_rows == 0:
        return result
    for name in columns:
        column = table.column(name)
        if not _has_order(column.type) or column.null_count:
            continue
        try:
            extremes = pc.min_max(column).as_py()
        except (OverflowError, ValueError):  # a date or time outside Python's calendar
            continue
        low, high = extremes["min"], extremes["max"]
        if not (_too_long(low) or _too_long(high)):
            result[name] = (low, high)
    return result
