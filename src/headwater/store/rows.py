"""Rows that exist but are not committed yet: in memory as Arrow, or in files of an open write.

A change row is a stored row plus three columns:

    __action        'I' or 'D', nothing else: an update is a D row and an I row
    __change_id     order within its batch, D before I
    __changed_cols  which columns an update changed, as words of 63 bits (bit i % 63 of word i / 63 = field i); NULL for a genuine insert or
                    delete and for rows whose history was folded together
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.model.schema import Field
from headwater.model.tables import DataFile

ACTION = "__action"
CHANGE_ID = "__change_id"
CHANGED = "__changed_cols"
VERSION = "__version"
WEIGHT = "__w"
HASH = "__hash"

ACTION_FIELD = Field(ACTION, "STRING", nullable=False)
CHANGED_FIELD = Field(CHANGED, "ARRAY<BIGINT>")
CHANGE_FIELDS = (ACTION_FIELD, Field(CHANGE_ID, "BIGINT", nullable=False), CHANGED_FIELD)
VERSION_FIELD = Field(VERSION, "BIGINT", nullable=False)
ROW_ID = Field("__row_id", "BIGINT", nullable=False, hidden=True)


@dataclass(frozen=True, slots=True)
class Rows:
    """A materialised set of change rows of one table. Exactly one of `arrow` and `files` holds them.

    `plain` files hold inserted rows without change columns: they can become base files.
    """

    inserts: int
    deletes: int
    hash_change: int
    arrow: pa.Table | None = None
    files: tuple[DataFile, ...] = ()
    plain: bool = False
    write_ids: tuple[str, ...] = field(default=())

    @property
    def count(self) -> int:
        return self.inserts + self.deletes


def arrow_rows(table: pa.Table) -> Rows:
    """Wrap change rows; `__change_id` is numbered here.

    Where they carry a `__hash` column it is summed and dropped, and rows that cancel are left out. Sums of 64-bit hashes wrap
    around: the multiset hash is modulo 2**64 anyway.
    """
    table = in_utc(table)
    change = 0
    is_insert = pc.equal(table.column(ACTION), "I").to_numpy()
    if HASH in table.column_names:
        hashes = table.column(HASH).to_numpy()
        gone = _cancelling(table, hashes, is_insert)
        if gone is not None:
            table, hashes, is_insert = table.filter(pa.array(~gone)), hashes[~gone], is_insert[~gone]
        hashes = hashes.view(np.uint64)
        change = (int(hashes[is_insert].sum(dtype=np.uint64)) - int(hashes[~is_insert].sum(dtype=np.uint64))) % 2**64
        table = table.drop_columns([HASH])
    inserts = int(is_insert.sum())
    if CHANGE_ID in table.column_names:
        table = table.drop_columns([CHANGE_ID])
    if CHANGED not in table.column_names:
        table = table.append_column(CHANGED, pa.nulls(table.num_rows, pa.list_(pa.int64())))
    table = table.append_column(CHANGE_ID, pa.array(np.arange(table.num_rows, dtype=np.int64)))
    return Rows(inserts, table.num_rows - inserts, change, arrow=table)


def _cancelling(
    table: pa.Table, hashes: npt.NDArray[np.int64], inserted: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_] | None:
    """Mark pairs of an I and a D row with the same values, None if there are none. The hash finds candidates, the values decide."""
    ones, others = np.flatnonzero(inserted), np.flatnonzero(~inserted)
    met = pc.is_in(pa.array(hashes[ones]), value_set=pa.array(hashes[others])).to_numpy(zero_copy_only=False)
    if not met.any():
        return None
    ones = ones[met]
    others = others[np.isin(hashes[others], hashes[ones])]
    values = table.drop_columns([n for n in (HASH, ACTION, CHANGED, CHANGE_ID) if n in table.column_names])
    gone = np.zeros(table.num_rows, dtype=bool)
    if len(ones) == len(others) == len(np.unique(hashes[ones])):  # as a rule: each hash once on either side
        ones, others = ones[np.argsort(hashes[ones])], others[np.argsort(hashes[others])]
        same = _same_rows(values.take(pa.array(ones)), values.take(pa.array(others)))
        if same is not None:
            gone[ones[same]] = gone[others[same]] = True
            return gone
    waiting: dict[str, list[tuple[bool, int]]] = {}
    positions = np.sort(np.concatenate([ones, others]))
    for position, row in zip(positions.tolist(), values.take(pa.array(positions)).to_pylist(), strict=True):
        key = repr([_comparable(v) for v in row.values()])
        opposite = [w for w in waiting.setdefault(key, []) if w[0] != inserted[position]]
        if opposite:
            waiting[key].remove(opposite[0])
            gone[[opposite[0][1], position]] = True
        else:
            waiting[key].append((bool(inserted[position]), position))
    return gone


def _same_rows(one: pa.Table, other: pa.Table) -> npt.NDArray[np.bool_] | None:
    """Say which rows are equal, pair by pair; None if Arrow cannot tell. NULL equals NULL, NaN equals NaN, -0.0 is not 0.0."""
    same = np.ones(one.num_rows, dtype=bool)
    for a, b in zip(one.columns, other.columns, strict=True):
        equal = _same_values(a.combine_chunks(), b.combine_chunks())
        if equal is None:
            return None
        same &= equal
    return same


def _same_values(a: pa.Array, b: pa.Array) -> npt.NDArray[np.bool_] | None:
    nulls_agree: npt.NDArray[np.bool_] = _numpy(pc.equal(a.is_null(), b.is_null()))
    if pa.types.is_list(a.type):
        return _same_lists(a, b, nulls_agree)
    if pa.types.is_struct(a.type):
        for x, y in zip(a.flatten(), b.flatten(), strict=True):
            inner = _same_values(x, y)
            if inner is None:
                return None
            nulls_agree &= inner
        return nulls_agree
    if pa.types.is_floating(a.type):
        x, y = _numpy(a), _numpy(b)
        nulls_agree &= (x == y) & (np.signbit(x) == np.signbit(y)) | np.isnan(x) & np.isnan(y)
        return nulls_agree
    try:
        nulls_agree &= _numpy(pc.fill_null(pc.equal(a, b), True))
    except pa.ArrowNotImplementedError:
        return None
    return nulls_agree


def _same_lists(a: pa.Array, b: pa.Array, same: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_] | None:
    """Compare element by element those lists that have the same length."""
    lengths, others = (_numpy(pc.fill_null(pc.list_value_length(x), 0)) for x in (a, b))
    same = same & (lengths == others)
    left = np.flatnonzero(same)
    inner = _same_values(*(pc.list_flatten(x.take(pa.array(left))) for x in (a, b)))
    if inner is None:
        return None
    owners = np.repeat(left, lengths[left])
    same[owners[~inner]] = False
    return same


def _numpy(array: pa.Array) -> npt.NDArray[Any]:
    made: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return made


def row_codes(table: pa.Table) -> npt.NDArray[np.int64]:
    """Return a number for each row, the same for equal rows and for no others: there is one zero and one NaN."""
    codes = np.zeros(table.num_rows, dtype=np.int64)
    for column in table.columns:
        if pa.types.is_floating(column.type):
            column = pc.if_else(
                pc.is_nan(column), pa.scalar(np.nan, column.type), pc.add(column, pa.scalar(0.0, column.type))
            )
        try:
            encoded = pc.dictionary_encode(column.combine_chunks(), null_encoding="encode").indices
        except pa.ArrowNotImplementedError:
            texts = pa.array([repr(_comparable(v)) for v in column.to_pylist()])
            encoded = pc.dictionary_encode(texts).indices
        mixed = codes * table.num_rows + encoded.to_numpy().astype(np.int64)
        codes = pc.dictionary_encode(pa.array(mixed)).indices.to_numpy().astype(np.int64)
    return codes


def added_up(rows: pa.Table, signs: npt.NDArray[np.int64]) -> pa.Table | None:
    """Return each row as often as its signs come to, and none below zero; None if Arrow and Python cannot tell rows apart."""
    if (signs > 0).all():
        return rows
    try:
        codes = row_codes(rows)
    except (OverflowError, ValueError):  # dates in lists or structs, outside Python's calendar
        return None
    weights = np.zeros(rows.num_rows, dtype=np.int64)
    np.add.at(weights, codes, signs)
    first = np.unique(codes, return_index=True)[1]
    return rows.take(pa.array(np.repeat(first, np.maximum(weights[codes[first]], 0))))


def _comparable(value: object) -> object:
    """Return a value whose text is equal for equal values: map entries in one order, one zero, at any depth."""
    if isinstance(value, dict):
        return {k: _comparable(v) for k, v in value.items()}
    if isinstance(value, list):
        made = [_comparable(v) for v in value]
        return sorted(made, key=repr) if made and all(isinstance(v, tuple) for v in value) else made
    if isinstance(value, tuple):
        return tuple(_comparable(v) for v in value)
    return value + 0.0 if isinstance(value, float) else value


def changed_words(positions: Iterable[int]) -> dict[int, int]:
    """Return which bits of which words of `__changed_cols` stand for the fields at these positions."""
    words: dict[int, int] = {}
    for position in positions:
        word, bit = divmod(position, 63)
        words[word] = words.get(word, 0) | 1 << bit
    return words


def touching(table: pa.Table, words: Mapping[int, int]) -> pa.Table:
    """Return the change rows without updates that changed none of the fields that `words` stand for."""
    changed = in_one_piece(table.column(CHANGED))
    if changed.null_count == len(changed):
        return table
    kept = _numpy(changed.is_null()).astype(bool)
    lengths = _numpy(pc.fill_null(pc.list_value_length(changed), 0))
    flat = _numpy(pc.list_flatten(changed))
    starts = np.cumsum(lengths) - lengths
    for word, mask in words.items():
        has = np.flatnonzero(lengths > word)
        kept[has] |= (flat[starts[has] + word] & mask) != 0
    return table if kept.all() else table.filter(pa.array(kept))


def in_one_piece(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array; one that is mapped into memory is not copied."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


def in_utc(table: pa.Table) -> pa.Table:
    """Return the table with every timestamp marked as UTC: Arrow marks them with the time zone of the session that made them."""
    schema = pa.schema([pa.field(f.name, _utc_type(f.type), f.nullable, f.metadata) for f in table.schema])
    return table if schema.equals(table.schema) else table.cast(schema)


def fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the table with exactly the columns of `schema`; one that it lacks is NULL."""
    for name in schema.names:
        if name not in table.column_names:
            table = table.append_column(name, pa.nulls(table.num_rows))
    return in_utc(table.select(schema.names)).cast(schema)


def _utc_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit, "UTC") if kind.tz is not None else kind
    if pa.types.is_list(kind):
        return pa.list_(_utc_field(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(_utc_field(kind.key_field), _utc_field(kind.item_field))
    if pa.types.is_struct(kind):
        return pa.struct([_utc_field(f) for f in kind])
    return kind


def _utc_field(inner: pa.Field) -> pa.Field:
    return inner.with_type(_utc_type(inner.type))


def as_inserts(table: pa.Table, first: int = 0) -> pa.Table:
    """Return stored rows as change rows that insert them, numbered from `first`."""
    count = table.num_rows
    table = table.append_column(ACTION, pa.array(["I"] * count, pa.string()))
    table = table.append_column(CHANGE_ID, pa.array(np.arange(first, first + count, dtype=np.int64)))
    return table.append_column(CHANGED, pa.nulls(count, pa.list_(pa.int64())))


def encoded(table: pa.Table) -> bytes:
    """Return Arrow IPC bytes, compressed."""
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table.combine_chunks())
    return sink.getvalue()


def decoded(data: bytes) -> pa.Table:
    """Return the table of Arrow IPC bytes."""
    return pa.ipc.open_stream(data).read_all()


def concatenated(tables: Sequence[pa.Table]) -> pa.Table:
    """Return all rows of `tables`; a column that an older table lacks is NULL."""
    return pa.concat_tables(tables, promote_options="permissive")
