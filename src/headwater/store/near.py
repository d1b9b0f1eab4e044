"""Finding the rows of a table whose columns meet given values, or lie between two, without asking Spark.

    near(state)  =  near(base)  +  near(changes)

Rows are found in base files by the order of a column (`columns.py`); the change rows of the tail that meet the same values are added
to them. Rows with equal values in all of the columns that are read meet the same values, so what cancels is found together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.engine.identity import has_variant
from headwater.engine.worker import arrow_schema
from headwater.model.schema import Field
from headwater.model.tables import Batch, BatchFormat, DataFile, Table
from headwater.store.columns import Positions, has_plain_equality
from headwater.store.layout import Bound, column_bounds, files_within
from headwater.store.reading import Parts, Reader, Source, distinguishing, parts_of, signs_of, within
from headwater.store.rows import ACTION_FIELD, VERSION_FIELD, added_up, concatenated, fitted

_MOST_ROWS = 400_000
_SMALL_BATCH_ROWS = 20_000

Keys = Mapping[str, pa.Array]
Ends = tuple[Any, Any]


def rows_near(reader: Reader, source: Source, version: int, fields: Sequence[Field], keys: Keys) -> pa.Table | None:
    """Return `fields` of the rows of the table at `version` whose columns are among `keys`.

    None if there are many of them, or if the table is too large for that: then Spark had better look for them.
    """
    limits = [f for f in source.table.schema.fields if f.name in keys]
    if not all(has_plain_equality(f.type) for f in limits):
        return None
    bounds: dict[str, Bound] = {}
    for name, values in keys.items():
        bounds |= column_bounds(pa.table({name: values}), [name])
    wanted = distinguishing(source.table, [*fields, *limits])
    return _found(source, version, fields, _Near(reader, wanted, bounds, keys))


def rows_between(
    reader: Reader, source: Source, version: int, fields: Sequence[Field], name: str, ends: Ends
) -> pa.Table | None:
    """Return `fields` of the rows of the table at `version` whose column lies between two values, both included; None like above."""
    (limit,) = (f for f in source.table.schema.fields if f.name == name)
    kind = arrow_schema([limit]).field(0).type
    if not (pa.types.is_signed_integer(kind) or pa.types.is_date32(kind) or pa.types.is_decimal(kind)):
        return None
    wanted = distinguishing(source.table, [*fields, limit])
    low, high = _fitted_ends(ends, kind)
    bounds = column_bounds(pa.table({name: pa.array([low.as_py(), high.as_py()], kind)}), [name])
    return _found(source, version, fields, _Between(reader, wanted, bounds, limit, (low, high)))


def _found(source: Source, version: int, fields: Sequence[Field], search: _Search) -> pa.Table | None:
    reader, wanted = search.reader, search.wanted
    if any(has_variant(f.type) for f in wanted):
        return None
    parts = parts_of(source, version)
    files, batches = _with_inserted_files(source, parts)
    large = [b for b in batches if b.format is BatchFormat.TAIL and b.inserts + b.deletes > _SMALL_BATCH_ROWS]
    tail_files = [f for b in large for f in source.manifest.batch_files[b.id]]
    if not reader.columns.can_hold([*files, *tail_files], wanted):
        return None
    files = files_within(files, search.bounds)
    reader.layout.require([*files, *tail_files])
    try:
        base = search.in_files(files, wanted)
        tail = None if base is None else search.in_tail(source, parts, large, [b for b in batches if b not in large])
        if base is not None and tail is not None and tail.num_rows:
            signs = signs_of(tail, forward=parts.forward)
            base = _with_tail(base, fitted(tail, arrow_schema(wanted)), signs, source.table)
    except pa.ArrowInvalid:  # more text in a column than Arrow puts into one
        return None
    return None if base is None or tail is None else base.select([f.name for f in fields])


@dataclass(frozen=True, slots=True)
class _Search(ABC):
    """Looks for rows in files and in change rows. `bounds`: between which values their columns lie."""

    reader: Reader
    wanted: tuple[Field, ...]
    bounds: Mapping[str, Bound]

    @property
    @abstractmethod
    def is_exact(self) -> bool:
        """Whether rows at the places that are looked at need not be looked at again."""

    @abstractmethod
    def places(self, files: Sequence[DataFile]) -> list[tuple[DataFile, Positions]]:
        """Return where in files rows may stand."""

    @abstractmethod
    def met(self, rows: pa.Table) -> pa.ChunkedArray:
        """Say which rows are wanted."""

    def in_files(self, files: Sequence[DataFile], fields: Sequence[Field]) -> pa.Table | None:
        places = self.places(files)
        if sum(len(p) for _, p in places) > min(self.reader.driver_rows, _MOST_ROWS):
            return None
        found = [self.reader.columns.taken(file, fields, at) for file, at in places if len(at)]
        if not found:
            return arrow_schema(fields).empty_table()
        rows = pa.concat_tables(found)
        return rows if self.is_exact else rows.filter(self.met(rows))

    def in_tail(self, source: Source, parts: Parts, large: Sequence[Batch], small: Sequence[Batch]) -> pa.Table | None:
        """Return change rows: large batches are searched like files, all rows of small ones are looked at."""
        pending = source.pending if parts.forward else ()
        tail = self.reader.arrow(small, source, pending, *parts.between, (*self.wanted, ACTION_FIELD))
        found = [tail.filter(self.met(tail))] if tail.num_rows else []
        for batch in large:
            stored = (*self.wanted, ACTION_FIELD, *((VERSION_FIELD,) if batch.merged else ()))
            rows = self.in_files(source.manifest.batch_files[batch.id], stored)
            if rows is None:
                return None
            found.append(within(rows, batch, *parts.between).select(tail.column_names))
        return concatenated(found) if found else tail


@dataclass(frozen=True, slots=True)
class _Near(_Search):
    """Looks for rows by the column that finds the fewest, and at the others afterwards."""

    keys: Keys

    @property
    def is_exact(self) -> bool:
        return len(self.keys) == 1

    def places(self, files: Sequence[DataFile]) -> list[tuple[DataFile, Positions]]:
        by = _best(self.reader, files, [f for f in self.wanted if f.name in self.keys], self.keys)
        return [(file, self.reader.columns.positions(file, by, self.keys[by.name])) for file in files]

    def met(self, rows: pa.Table) -> pa.ChunkedArray:
        return _met(rows, self.keys)


@dataclass(frozen=True, slots=True)
class _Between(_Search):
    """Looks at every value of one column."""

    by: Field
    ends: tuple[pa.Scalar, pa.Scalar]

    @property
    def is_exact(self) -> bool:
        return True

    def places(self, files: Sequence[DataFile]) -> list[tuple[DataFile, Positions]]:
        found = []
        for file in files:
            (column,) = self.reader.columns.columns(file, (self.by,))
            within = pc.fill_null(self._within(column), False)
            found.append((file, np.flatnonzero(within.to_numpy(zero_copy_only=False))))
        return found

    def met(self, rows: pa.Table) -> pa.ChunkedArray:
        return self._within(rows.column(self.by.name))

    def _within(self, column: pa.Array | pa.ChunkedArray) -> Any:
        low, high = self.ends
        return pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high))


def _fitted_ends(ends: Ends, kind: pa.DataType) -> tuple[pa.Scalar, pa.Scalar]:
    """Return two values as values of a column's type: of those that it can have, none between them is left out."""
    if pa.types.is_date32(kind):
        return pa.scalar(ends[0], kind), pa.scalar(ends[1], kind)
    is_decimal = bool(pa.types.is_decimal(kind))
    unit = Decimal(1).scaleb(-kind.scale if is_decimal else 0)
    most = 10**kind.precision - 1 if is_decimal else 2 ** (kind.bit_width - 1) - 1
    least = -most if is_decimal else -most - 1
    with localcontext(prec=80):
        low = min(max(Decimal(ends[0]).quantize(unit, ROUND_FLOOR), least * unit), most * unit)
        high = min(max(Decimal(ends[1]).quantize(unit, ROUND_CEILING), least * unit), most * unit)
    return pa.scalar(low if is_decimal else int(low), kind), pa.scalar(high if is_decimal else int(high), kind)


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
