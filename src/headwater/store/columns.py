"""Finding rows of a data file by the values of a column, without reading the file.

A data file never changes once a commit names it, so what was found out about it stays true. Columns that are looked up are kept a
second time, decoded, as Arrow files that are mapped into memory; beside the column that rows are looked for by stands its order:
sorted values, each with its place in the file. Finding k values among n takes k log n steps, and of the other columns only the
places that were found are touched.

All of it can be made again from the data files. The least recently used columns go when there are too many; what belongs to a file
that is gone goes at the next vacuum.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.engine.worker import arrow_schema
from headwater.model.schema import Field
from headwater.model.tables import DataFile
from headwater.store.layout import Layout
from headwater.store.rows import fitted, in_one_piece

LOG = logging.getLogger("headwater.store")

Positions = npt.NDArray[np.int64]

_KEY_TYPES = frozenset(
    {
        "BOOLEAN",
        "TINYINT",
        "SMALLINT",
        "INT",
        "BIGINT",
        "STRING",
        "BINARY",
        "DATE",
        "DECIMAL",
        "TIMESTAMP",
        "TIMESTAMP_NTZ",
    }
)
_MAPPED = 1_024
_TEXT_BYTES = 24
_LARGEST_COLUMN = 1 << 30
_VALUES, _PLACES = "values", "places"
_KEPT, _NEW = ".arrow", ".new"
_UNFINISHED_SECONDS = 3_600


def has_plain_equality(type_: str) -> bool:
    """Say whether values of a type are equal for Arrow where they are for Spark: no floats (NaN, -0.0), no collations, nothing nested."""
    return type_.partition("(")[0] in _KEY_TYPES


def has_order(type_: str) -> bool:
    """Say whether rows are found by values of a type without looking at each row."""
    return has_plain_equality(type_) and _is_ordered(arrow_schema([Field("x", type_)]).field(0).type)


class Columns:
    """Decoded columns of the data files of a warehouse, no more than `most_bytes` of them; 0 keeps none."""

    def __init__(self, layout: Layout, most_bytes: int) -> None:
        self._layout = layout
        self._directory = layout.location / "index"
        self._most = most_bytes
        self._mapped: OrderedDict[tuple[str, str], pa.Table] = OrderedDict()
        self._lock = threading.Lock()
        self._spare = 0
        self._wanted: tuple[pa.Array, Positions] | None = None

    def can_hold(self, files: Sequence[DataFile], fields: Sequence[Field]) -> bool:
        """Say whether these columns fit, beside as much again."""
        columns = arrow_schema(fields)
        size = sum(f.rows for f in files) * sum(_width(c) for c in columns)
        largest = max((f.rows * _width(c) for f in files for c in columns), default=0)
        return self._most > 0 and 2 * size <= self._most and largest < _LARGEST_COLUMN

    def hits(self, file: DataFile, field: Field, keys: pa.Array) -> int:
        """Return about how many rows have a value among `keys`: exactly, where that is known without reading the column."""
        if not _is_ordered(keys.type):
            return file.rows
        first, last = self._between(file, field, keys)
        return int((last - first).sum())

    def positions(self, file: DataFile, field: Field, keys: pa.Array) -> Positions:
        """Return the places of the rows whose value is among `keys`, in order; NULL is found by NULL."""
        if not _is_ordered(keys.type):
            (column,) = self.columns(file, (field,))
            return np.flatnonzero(pc.is_in(column, value_set=keys).to_numpy(zero_copy_only=False))
        found = _ranges(*self._between(file, field, keys))
        order = self._order(file, field)
        if _PLACES in order.column_names and len(found):
            found = np.sort(order.column(_PLACES).chunk(0).to_numpy()[found].astype(np.int64))
        if keys.null_count:
            (column,) = self.columns(file, (field,))
            nulls = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))
            found = np.sort(np.concatenate([found, nulls]))
        return found

    def _between(self, file: DataFile, field: Field, keys: pa.Array) -> tuple[Positions, Positions]:
        """Return between which places of the order each key stands."""
        values = self._order(file, field).column(_VALUES)
        wanted = self._sorted(keys)
        if not values.num_chunks:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        sorted_values = values.chunk(0).to_numpy()
        return np.searchsorted(sorted_values, wanted, "left"), np.searchsorted(sorted_values, wanted, "right")

    def _sorted(self, keys: pa.Array) -> Positions:
        """Return keys as numbers in order. File after file is searched for the same ones: the last are remembered."""
        known = self._wanted
        if known is None or known[0] is not keys:
            known = self._wanted = (keys, np.unique(_numbers(keys.drop_null())))
        return known[1]

    def _order(self, file: DataFile, field: Field) -> pa.Table:
        return self._kept(file, f"__order {field.name}", lambda: self._ordered(file, field))

    def taken(self, file: DataFile, fields: Sequence[Field], positions: Positions) -> pa.Table:
        """Return columns of the rows at these places."""
        places = pa.array(positions)
        return pa.table([c.take(places) for c in self.columns(file, fields)], schema=arrow_schema(fields))

    def columns(self, file: DataFile, fields: Sequence[Field]) -> list[pa.Array]:
        """Return whole columns."""
        found = {f.name: self._mapping(file, f.name) for f in fields}
        missing = [f for f in fields if found[f.name] is None]
        if missing:
            decoded = self._decoded(file, missing)
            for field in missing:
                found[field.name] = self._keep(file, field.name, decoded.select([field.name]))
        return [in_one_piece(table.column(0)) for table in found.values() if table is not None]

    def forget(self) -> None:
        """Remove what was kept of files that are gone, and what was never finished."""
        for place, folders, _ in os.walk(self._directory):
            for folder in (Path(place) / f for f in folders if f.endswith(".parquet")):
                if not (self._layout.location / folder.relative_to(self._directory)).exists():
                    shutil.rmtree(folder, ignore_errors=True)
        for path, known in _sizes(self._directory, _NEW):
            if known.st_mtime < time.time() - _UNFINISHED_SECONDS:
                path.unlink(missing_ok=True)
        with self._lock:
            self._mapped.clear()  # what is mapped keeps its disk space

    # keeping ----------------------------------------------------------------------------------------------------------------

    def _decoded(self, file: DataFile, fields: Sequence[Field]) -> pa.Table:
        with pq.ParquetFile(self._layout.absolute(file.path)) as data:
            there = [f.name for f in fields if f.name in data.schema_arrow.names]
            table = data.read(columns=there)
        return fitted(table, arrow_schema(fields)).combine_chunks()

    def _ordered(self, file: DataFile, field: Field) -> pa.Table:
        """Return the values of a column in order, and where they stand if that is another order."""
        (column,) = self.columns(file, (field,))
        values = _numbers(column.drop_null())
        if column.null_count == 0 and bool((values[1:] >= values[:-1]).all()):
            return pa.table({_VALUES: values})
        order = np.argsort(values, kind="stable")
        places = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))[order]
        return pa.table({_VALUES: values[order], _PLACES: places.astype(np.int32)})

    def _kept(self, file: DataFile, name: str, make: Callable[[], pa.Table]) -> pa.Table:
        found = self._mapping(file, name)
        return self._keep(file, name, make()) if found is None else found

    def _mapping(self, file: DataFile, name: str) -> pa.Table | None:
        with self._lock:
            if (file.id, name) in self._mapped:
                self._mapped.move_to_end((file.id, name))
                return self._mapped[file.id, name]
        path = self._path(file, name)
        try:
            os.utime(path)
            table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
        except (OSError, pa.ArrowInvalid):
            return None
        with self._lock:
            self._mapped[file.id, name] = table
            while len(self._mapped) > _MAPPED:
                self._mapped.popitem(last=False)
        return table

    def _keep(self, file: DataFile, name: str, table: pa.Table) -> pa.Table:
        """Write a column so that others see all of it or nothing, make room for it, and return it as it is mapped."""
        path = self._path(file, name)
        fresh = path.with_name(f"{uuid.uuid4().hex}{_NEW}")
        table = table.combine_chunks()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with fresh.open("wb") as sink:
                with pa.ipc.new_file(sink, table.schema) as writer:
                    writer.write_table(table)
                sink.flush()
                os.fsync(sink.fileno())
                fresh_size = sink.tell()
            fresh.replace(path)
            self._make_room(path, fresh_size)
        except OSError as error:  # the disk is full, or not ours to write to: it is only kept for the next time
            LOG.warning("column not kept path=%s reason=%s", path, error)
            with suppress(OSError):
                fresh.unlink()
            return table
        mapped = self._mapping(file, name)
        return table if mapped is None else mapped

    def _make_room(self, newest: Path, size: int) -> None:
        """Remove the least recently used columns if there are too many.

        All files are looked at only when half of what was free then is used up: others may have used the other half.
        """
        with self._lock:
            self._spare -= size
            if self._spare >= 0:
                return
        files = [(s.st_mtime, s.st_size, p) for p, s in _sizes(self._directory, _KEPT)]
        total = sum(size for _, size, _ in files)
        for _, used, path in sorted(files):
            if total <= self._most:
                break
            if path != newest:
                path.unlink(missing_ok=True)
                total -= used
                with self._lock:
                    self._mapped.clear()  # what is mapped keeps its disk space
        with self._lock:
            self._spare = max(0, self._most - total) // 2

    def _path(self, file: DataFile, name: str) -> Path:
        return self._directory / file.path / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}{_KEPT}"


def _sizes(directory: Path, suffix: str) -> list[tuple[Path, os.stat_result]]:
    """Return the files below, whatever other processes remove meanwhile."""
    found = []
    for place, _, files in os.walk(directory):
        for path in (Path(place) / f for f in files if f.endswith(suffix)):
            with suppress(FileNotFoundError):
                found.append((path, path.stat()))
    return found


def _is_ordered(kind: pa.DataType) -> bool:
    """Say whether values of a type are numbers inside."""
    return bool(pa.types.is_signed_integer(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind))


def _numbers(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return values without NULL as numbers in the same order."""
    if pa.types.is_date32(column.type):
        column = column.view(pa.int32())
    elif pa.types.is_timestamp(column.type):
        column = column.view(pa.int64())
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)


def _ranges(first: Positions, last: Positions) -> Positions:
    """Return all numbers from each `first` up to, not including, its `last`."""
    counts = last - first
    starts = np.repeat(first - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts) if len(counts) else first
    return np.asarray(starts + np.arange(len(starts)), dtype=np.int64)


def _width(field: pa.Field) -> int:
    try:
        return max(1, int(field.type.bit_width) // 8)
    except ValueError:
        return _TEXT_BYTES
