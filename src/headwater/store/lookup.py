"""Finding the rows of some keys: on the driver, because that costs less than asking Spark.

A refresh of few groups needs the state of these groups and nothing else. Where a column of the key has an order (`near.py`), they are
found by it. Otherwise the newest row of a key that the tail knows is taken from there, and the other keys are looked for in the
base, in those row groups whose statistics allow it. Column by column, in Arrow: a million keys are compared in some ten
milliseconds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.engine.identity import has_variant
from headwater.engine.worker import arrow_schema
from headwater.model.schema import Field
from headwater.model.tables import Batch
from headwater.store.columns import has_order, has_plain_equality
from headwater.store.layout import Bound, Layout, column_bounds, files_within
from headwater.store.near import rows_near
from headwater.store.reading import Reader, Source
from headwater.store.rows import ACTION, concatenated, fitted, in_utc

_SEARCHED_ROWS = 2_000_000
_FEW_ROWS = 20_000
"""So many rows are compared before an order would be made of them, or mapped."""
_THREADS = min(8, os.cpu_count() or 1)
Codes = npt.NDArray[np.int64]


def rows_of_keys(reader: Reader, layout: Layout, source: Source, version: int, keys: pa.Table) -> pa.Table | None:
    """Return the stored rows of the table at `version` that have one of these keys; None if Spark had better look for them."""
    table = source.table
    key = [f for f in table.schema.fields if f.name in table.schema.key]
    if not all(has_plain_equality(f.type) for f in key) or version < table.base_version:
        return None
    if any(has_variant(f.type) for f in table.schema.fields):
        return None
    files = files_within(source.manifest.files, column_bounds(keys, [f.name for f in key]))
    if sum(f.rows for f in files) > _FEW_ROWS:
        near = _near(reader, source, version, keys, key)
        if near is not None:
            return near
    batches = source.batches(table.base_version, version)
    searched = sum(b.inserts + b.deletes for b in batches) + sum(p.count for p in source.pending)
    if searched + sum(f.rows for f in files) > _SEARCHED_ROWS:
        return None
    wanted = _Wanted(keys, key)
    schema = arrow_schema(table.schema.fields)
    found, known = _in_tail(reader, source, batches, version, wanted, schema)
    if not known.all():
        layout.require(files)
        with ThreadPoolExecutor(_THREADS) as pool:  # reading and comparing run outside of Python's lock
            for part in pool.map(lambda path: _in_file(path, wanted, known, schema), layout.paths(files)):
                found += part
    return concatenated(found) if found else schema.empty_table()


def _near(reader: Reader, source: Source, version: int, keys: pa.Table, key: Sequence[Field]) -> pa.Table | None:
    """Find the rows by the order of a key column that has one, and look at all of the key afterwards."""
    ordered = [f for f in key if has_order(f.type)]
    wanted = _Wanted(keys, key)
    near = wanted.values([f.name for f in ordered])
    if not near:
        return None
    rows = rows_near(reader, source, version, source.table.schema.fields, near)
    return rows if rows is None or len(key) == 1 else rows.take(pa.array(np.flatnonzero(wanted.numbers(rows) >= 0)))


class _Wanted:
    """Keys, numbered from 0."""

    def __init__(self, keys: pa.Table, fields: Sequence[Field]) -> None:
        self.schema = arrow_schema(fields)
        self._steps: list[tuple[pa.Array, pa.Array]] = []
        keys = self._columns(keys)
        numbers = np.zeros(keys.num_rows, dtype=np.int64)
        for column in keys.columns:
            values = column.unique()
            pairs = numbers * len(values) + _positions(column, values)
            seen = pa.array(np.unique(pairs))
            self._steps.append((values, seen))
            numbers = _positions(pa.array(pairs), seen)
        self.count = int(numbers.max()) + 1 if len(numbers) else 0
        self.bounds = column_bounds(keys, keys.column_names)

    def values(self, names: Sequence[str]) -> dict[str, pa.Array]:
        """Return each value that these columns of the keys have."""
        return {n: values for n, (values, _) in zip(self.schema.names, self._steps, strict=True) if n in names}

    def numbers(self, table: pa.Table) -> Codes:
        """Return for each row which key it has, -1 for one that is not wanted."""
        table = self._columns(table)
        numbers = np.zeros(table.num_rows, dtype=np.int64)
        for column, (values, seen) in zip(table.columns, self._steps, strict=True):
            position = _positions(column, values)
            pairs = np.where((numbers < 0) | (position < 0), -1, numbers * len(values) + position)
            numbers = _positions(pa.array(pairs), seen)
        return numbers

    def _columns(self, table: pa.Table) -> pa.Table:
        return in_utc(table.select(self.schema.names)).cast(self.schema)


def _positions(column: pa.ChunkedArray | pa.Array, values: pa.Array) -> Codes:
    """Return where in `values` each value of `column` stands, -1 if nowhere. NULL equals NULL."""
    found = pc.fill_null(pc.index_in(column, value_set=values), -1)
    positions: Codes = found.to_numpy(zero_copy_only=False) if isinstance(found, pa.Array) else found.to_numpy()
    return positions.astype(np.int64)


def _in_tail(
    reader: Reader, source: Source, batches: Sequence[Batch], version: int, wanted: _Wanted, schema: pa.Schema
) -> tuple[list[pa.Table], npt.NDArray[np.bool_]]:
    """Return the live rows that the tail holds for the wanted keys, and which keys it knows anything about."""
    known = np.zeros(wanted.count, dtype=bool)
    found: list[pa.Table] = []
    if not wanted.count:
        return found, known
    for part, at in reader.tail(source, batches, version):
        number = wanted.numbers(part)
        hits = np.flatnonzero((number >= 0) & ~known[number])
        if not hits.size:
            continue
        part, number, at = part.take(pa.array(hits)), number[hits], at[hits]
        is_insert = pc.equal(part.column(ACTION), "I").to_numpy()
        order = np.lexsort((is_insert, at))
        last = np.full(wanted.count, -1, dtype=np.int64)
        last[number[order]] = order  # of equal numbers the last one stays
        known |= last >= 0
        live = last[last >= 0]
        live = live[is_insert[live]]
        found.append(fitted(part.take(pa.array(live)), schema))
        if known.all():
            break
    return found, known


def _in_file(path: str, wanted: _Wanted, known: npt.NDArray[np.bool_], schema: pa.Schema) -> list[pa.Table]:
    """Return the rows of a base file whose key is wanted and not known yet."""
    found = []
    with pq.ParquetFile(path) as file:
        groups = [g for g in range(file.num_row_groups) if _may_hold(file.metadata.row_group(g), wanted.bounds)]
        for group in groups:
            number = wanted.numbers(file.read_row_group(group, columns=wanted.schema.names))
            hits = np.flatnonzero((number >= 0) & ~known[number])
            if hits.size:
                found.append(fitted(file.read_row_group(group, columns=schema.names).take(pa.array(hits)), schema))
    return found


def _may_hold(group: pq.RowGroupMetaData, bounds: Mapping[str, Bound]) -> bool:
    """Say whether the statistics of a row group allow a row inside the bounds."""
    for i in range(group.num_columns):
        column = group.column(i)
        path = column.path_in_schema
        low_high = bounds.get(path) if "." not in path else None  # a field of a struct, or a name with a dot
        stats = column.statistics
        if low_high is None or stats is None or not stats.has_min_max:
            continue
        try:
            if stats.max < low_high[0] or stats.min > low_high[1]:
                return False
        except (TypeError, ValueError, OverflowError):  # no common order, or outside Python's calendar
            continue
    return True
