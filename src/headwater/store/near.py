"""Finding the rows of a table whose columns meet given values, without asking Spark.

    near(state)  =  near(base)  +  near(changes)

Rows are found in base files by the order of a column (`columns.py`); the change rows of the tail that meet the same values are added
to them. Rows with equal values in all of the columns that are read meet the same values, so what cancels is found together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.engine.identity import has_variant
from headwater.engine.worker import arrow_schema
from headwater.model.schema import Field
from headwater.model.tables import Batch, BatchFormat, DataFile, Table
from headwater.store.columns import has_plain_equality
from headwater.store.layout import column_bounds, files_within
from headwater.store.reading import Parts, Reader, Source, distinguishing, parts_of, signs_of, within
from headwater.store.rows import ACTION_FIELD, VERSION_FIELD, added_up, concatenated, fitted

_MOST_ROWS = 400_000
_SMALL_BATCH_ROWS = 20_000

Keys = Mapping[str, pa.Array]


def rows_near(reader: Reader, source: Source, version: int, fields: Sequence[Field], keys: Keys) -> pa.Table | None:
    """Return `fields` of the rows of the table at `version` whose columns are among `keys`.

    None if there are many of them, or if the table is too large for that: then Spark had better look for them.
    """
    limits = [f for f in source.table.schema.fields if f.name in keys]
    wanted = distinguishing(source.table, [*fields, *limits])
    if any(has_variant(f.type) for f in wanted) or not all(has_plain_equality(f.type) for f in limits):
        return None
    parts = parts_of(source, version)
    files, batches = _with_inserted_files(source, parts)
    large = [b for b in batches if b.format is BatchFormat.TAIL and b.inserts + b.deletes > _SMALL_BATCH_ROWS]
    tail_files = [f for b in large for f in source.manifest.batch_files[b.id]]
    if not reader.columns.can_hold([*files, *tail_files], wanted):
        return None
    for name, values in keys.items():
        files = files_within(files, column_bounds(pa.table({name: values}), [name]))
    reader.layout.require([*files, *tail_files])
    try:
        search = _Search(reader, wanted, keys, _best(reader, files, limits, keys))
        base = search.in_files(files, wanted)
        tail = None if base is None else search.in_tail(source, parts, large, [b for b in batches if b not in large])
        if base is not None and tail is not None and tail.num_rows:
            signs = signs_of(tail, forward=parts.forward)
            base = _with_tail(base, fitted(tail, arrow_schema(wanted)), signs, source.table)
    except pa.ArrowInvalid:  # more text in a column than Arrow puts into one
        return None
    return None if base is None or tail is None else base.select([f.name for f in fields])


@dataclass(frozen=True, slots=True)
class _Search:
    """Looks for rows by one column, and at the others afterwards."""

    reader: Reader
    wanted: tuple[Field, ...]
    keys: Keys
    by: Field

    def in_files(self, files: Sequence[DataFile], fields: Sequence[Field]) -> pa.Table | None:
        columns = self.reader.columns
        places = [(file, columns.positions(file, self.by, self.keys[self.by.name])) for file in files]
        if sum(len(p) for _, p in places) > min(self.reader.driver_rows, _MOST_ROWS):
            return None
        found = [columns.taken(file, fields, at) for file, at in places if len(at)]
        if not found:
            return arrow_schema(fields).empty_table()
        rows = pa.concat_tables(found)
        return rows.filter(_met(rows, self.keys)) if len(self.keys) > 1 else rows

    def in_tail(self, source: Source, parts: Parts, large: Sequence[Batch], small: Sequence[Batch]) -> pa.Table | None:
        """Return change rows: large batches are searched like files, all rows of small ones are looked at."""
        pending = source.pending if parts.forward else ()
        tail = self.reader.arrow(small, source, pending, *parts.between, (*self.wanted, ACTION_FIELD))
        found = [tail.filter(_met(tail, self.keys))] if tail.num_rows else []
        for batch in large:
            stored = (*self.wanted, ACTION_FIELD, *((VERSION_FIELD,) if batch.merged else ()))
            rows = self.in_files(source.manifest.batch_files[batch.id], stored)
            if rows is None:
                return None
            found.append(within(rows, batch, *parts.between).select(tail.column_names))
        return concatenated(found) if found else tail


def _best(reader: Reader, files: Sequence[DataFile], limits: Sequence[Field], keys: Keys) -> Field:
    """Return the column by which the fewest rows are found."""
    if len(limits) == 1:
        return limits[0]
    return min(limits, key=lambda f: sum(reader.columns.hits(file, f, keys[f.name]) for file in files))


def _with_inserted_files(source: Source, parts: Parts) -> tuple[tuple[DataFile, ...], tuple[Batch, ...]]:
    """Return base files and batches, with the files of plain inserts among the former."""
    if not parts.forward:
        return parts.files, parts.batches
    plain = [b for b in parts.batches if b.format is BatchFormat.INSERT]
    inserted = tuple(f for b in plain for f in source.manifest.batch_files[b.id])
    return (*parts.files, *inserted), tuple(b for b in parts.batches if b not in plain)


def _met(rows: pa.Table, keys: Keys) -> pa.ChunkedArray:
    """Say which rows have a value among the keys in each of the columns."""
    tests = [pc.is_in(rows.column(name).cast(values.type), value_set=values) for name, values in keys.items()]
    met = tests[0]
    for test in tests[1:]:
        met = pc.and_(met, test)
    return met


def _with_tail(base: pa.Table, tail: pa.Table, signs: npt.NDArray[np.int64], table: Table) -> pa.Table | None:
    """Return base and signed tail as one. With a key only base rows that share a key column with the tail can be concerned."""
    touched, rest = base, base.slice(0, 0)
    key = [f for f in table.schema.fields if f.name in table.schema.key and has_plain_equality(f.type)]
    if key:
        name = key[0].name
        met = pc.is_in(base.column(name), value_set=tail.column(name).unique())
        touched, rest = base.filter(met), base.filter(pc.invert(met))
    rows = pa.concat_tables([touched, tail])
    total = added_up(rows, np.concatenate([np.ones(touched.num_rows, dtype=np.int64), signs]))
    return None if total is None else pa.concat_tables([rest, total])
