"""Rows of the physical schema as records of the model, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TypeVar

from headwater.model.options import StreamOptions
from headwater.model.schema import TableSchema
from headwater.model.tables import (
    Batch,
    BatchFormat,
    DataFile,
    FileRole,
    RefreshAction,
    RefreshMode,
    RefreshRecord,
    StreamTable,
    WhenFull,
)

T = TypeVar("T")

CHUNK = 10_000
"""How many values one statement takes: below the limits of both databases (32,766 and 65,535)."""

HASH_RANGE = 1 << 64

schema_of = lru_cache(maxsize=4096)(TableSchema.from_json)
"""Parsed schemas by their text: they are read far more often than they change."""

options_of = lru_cache(maxsize=1024)(StreamOptions.from_json)

_ROLES = {role.value: role for role in FileRole}
_FORMATS = {format_.value: format_ for format_ in BatchFormat}


def chunks(values: Iterable[T]) -> Iterator[Sequence[T]]:
    """Split `values` into parts that one statement can take."""
    every = list(values)
    return (every[start : start + CHUNK] for start in range(0, len(every), CHUNK))


def stored_hash(value: int) -> int:
    """Return a hash modulo 2**64 as the signed number that a BIGINT column holds."""
    value %= HASH_RANGE
    return value - HASH_RANGE if value >= HASH_RANGE // 2 else value


def loaded_hash(value: int) -> int:
    """Undo `stored_hash`."""
    return value % HASH_RANGE


def file_row(file: DataFile) -> dict[str, Any]:
    """Return an entry as a row; its end is written by `Entries` alone."""
    return {
        "id": file.id,
        "role": file.role.value,
        "table_id": file.table_id,
        "path": file.path,
        "rows": file.rows,
        "bytes": file.bytes,
        "write_id": file.write_id,
        "stats": file.stats,
        "batch_id": file.batch_id,
        "added": file.added,
    }


def file_of(row: Sequence[Any]) -> DataFile:
    """Make a file from (id, table_id, role, path, rows, bytes, write_id, stats, batch_id, added[, removed])."""
    return DataFile(row[0], row[1], _ROLES[row[2]], *row[3:])


def batch_row(batch: Batch) -> dict[str, Any]:
    """Return a batch as a row, without its inline bytes."""
    return {
        "id": batch.id,
        "table_id": batch.table_id,
        "format": batch.format.value,
        "inserts": batch.inserts,
        "deletes": batch.deletes,
        "bytes": batch.bytes,
        "merged": batch.merged,
        "first_version": batch.first_version,
        "last_version": batch.last_version,
        "added": batch.added,
    }


def inline_data(batch: Any) -> bytes | None:
    """Return the bytes of an inline batch. (`Batch.bytes` hides the type's name where `Batch.inline` is declared.)"""
    data: bytes | None = batch.inline
    return data


def batch_of(row: Sequence[Any]) -> Batch:
    """Make a batch from (id, table_id, format, inserts, deletes, bytes, merged, first_version, last_version, added)."""
    return Batch(row[0], row[1], _FORMATS[row[2]], row[3], row[4], row[5], bool(row[6]), None, *row[7:])


def stream_of(row: Sequence[Any], frontiers: Mapping[str, int]) -> StreamTable:
    """Make a stream table from the columns of `streams`, in their order."""
    return StreamTable(
        row[0],
        row[1],
        RefreshMode(row[2]),
        row[3],
        WhenFull(row[4]),
        row[5],
        row[6],
        row[7],
        row[8],
        row[9],
        row[10],
        MappingProxyType(frontiers),
        options_of(row[12]),
        row[13],
        row[14],
    )


def record_row(record: RefreshRecord) -> dict[str, Any]:
    """Return a line of history as a row; the database gives its id."""
    return {
        "table_id": record.table_id,
        "started_at": record.started_at,
        "finished_at": record.finished_at,
        "action": record.action.value,
        "status": record.status,
        "rows_in": record.rows_in,
        "rows_inserted": record.rows_inserted,
        "rows_deleted": record.rows_deleted,
        "duration_ms": record.duration_ms,
        "spark_jobs": record.spark_jobs,
        "reason": record.reason,
        "frontier_from": record.frontier_from,
        "frontier_to": record.frontier_to,
        "version": record.version,
        "error": record.error,
        "bytes_written": record.bytes_written,
    }


def record_of(row: Any) -> RefreshRecord:
    """Make a line of history from a row."""
    values = dict(row._mapping)
    values["action"] = RefreshAction(values["action"])
    return RefreshRecord(**values)
