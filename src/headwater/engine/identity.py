"""What makes two stored values the same, as Spark SQL.

A value's *identity* is an expression that can be compared, grouped and hashed whatever the type: maps become sorted entries,
variants their canonical JSON text, collated strings plain ones. The *canonical* form is what a value becomes when it enters:
one zero and one NaN, because Spark's GROUP BY would fold -0.0 into 0.0 later and a stored row must never change by being read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    CharType,
    DataType,
    DayTimeIntervalType,
    DoubleType,
    FloatType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimeType,
    UserDefinedType,
    VarcharType,
    VariantType,
    YearMonthIntervalType,
)

from headwater.engine.worker import data_type, stored_type, type_text
from headwater.model.schema import Field
from headwater.model.sql import quoted, sql_string

_REFUSED: tuple[type[DataType], ...] = (
    CalendarIntervalType,
    DayTimeIntervalType,
    YearMonthIntervalType,
    TimeType,
    NullType,
    UserDefinedType,
)


def refused_type(ddl: str) -> str | None:
    """Return the name of a type inside `ddl` that cannot be stored, or None if all can."""
    return _refused(DataType.fromDDL(ddl))


def _refused(kind: DataType) -> str | None:
    if isinstance(kind, _REFUSED):
        return kind.simpleString()
    if isinstance(kind, ArrayType):
        return _refused(kind.elementType)
    if isinstance(kind, MapType):
        return _refused(kind.keyType) or _refused(kind.valueType)
    if isinstance(kind, StructType):
        return next((r for r in (_refused(x.dataType) for x in kind.fields) if r), None)
    return None


@dataclass(frozen=True, slots=True)
class TypeShape:
    """A Spark type taken apart, for code that writes expressions over it and knows no Spark classes.

    `stored` is the DDL text of the type that values are stored as; `length` the limit of CHAR and VARCHAR, which are stored as
    STRING. At most one of `element` (arrays), `entry` (maps: key and value) and `fields` (structs) is set.
    """

    stored: str
    stored_type: DataType
    is_void: bool = False
    length: int | None = None
    is_padded: bool = False
    element: TypeShape | None = None
    entry: tuple[TypeShape, TypeShape] | None = None
    fields: tuple[tuple[str, TypeShape], ...] | None = None


@lru_cache(maxsize=4096)
def _shape_of_ddl(ddl: str) -> TypeShape:
    return _shape(DataType.fromDDL(ddl))


def type_shape(kind: str | DataType) -> TypeShape:
    """Return the shape of a type given as DDL text or by Spark."""
    return _shape_of_ddl(kind) if isinstance(kind, str) else _shape(kind)


def _shape(kind: DataType) -> TypeShape:
    stored = stored_type(kind)
    text = type_text(stored)
    if isinstance(kind, CharType | VarcharType):
        return TypeShape(text, stored, length=kind.length, is_padded=isinstance(kind, CharType))
    if isinstance(kind, ArrayType):
        return TypeShape(text, stored, element=_shape(kind.elementType))
    if isinstance(kind, MapType):
        return TypeShape(text, stored, entry=(_shape(kind.keyType), _shape(kind.valueType)))
    if isinstance(kind, StructType):
        return TypeShape(text, stored, fields=tuple((x.name, _shape(x.dataType)) for x in kind.fields))
    return TypeShape(text, stored, is_void=isinstance(kind, NullType))


def is_plain(ddl: str) -> bool:
    """Whether values of the type are their own identity."""
    return _identity("x", data_type(ddl), 0) == "x"


def is_key_type(ddl: str) -> bool:
    """Whether a column of the type may be part of a key."""
    return not _contains(data_type(ddl), (MapType, VariantType))


def has_variant(ddl: str) -> bool:
    """Whether the type holds a VARIANT: such values travel as Parquet only."""
    return _contains(data_type(ddl), (VariantType,))


def has_float(ddl: str) -> bool:
    """Whether the type holds FLOAT or DOUBLE."""
    return _contains(data_type(ddl), (FloatType, DoubleType))


def _contains(kind: DataType, wanted: tuple[type[DataType], ...]) -> bool:
    if isinstance(kind, wanted):
        return True
    if isinstance(kind, ArrayType):
        return _contains(kind.elementType, wanted)
    if isinstance(kind, MapType):
        return _contains(kind.keyType, wanted) or _contains(kind.valueType, wanted)
    if isinstance(kind, StructType):
        return any(_contains(x.dataType, wanted) for x in kind.fields)
    return False


@lru_cache(maxsize=65536)
def identity_sql(value: str, ddl: str) -> str:
    """Return an expression that is equal for equal values and can be grouped, joined and hashed."""
    return _identity(value, data_type(ddl), 0)


def _identity(value: str, kind: DataType, depth: int) -> str:
    var = f"i{depth}"
    if isinstance(kind, VariantType):
        return f"to_json({value}, map('timeZone', 'UTC'))"
    if isinstance(kind, StringType) and not isinstance(kind, CharType | VarcharType) and _collated(kind):
        return f"collate({value}, 'UTF8_BINARY')"
    if isinstance(kind, MapType):
        key = _identity(f"{var}.key", kind.keyType, depth + 1)
        item = _identity(f"{var}.value", kind.valueType, depth + 1)
        return f"array_sort(transform(map_entries({value}), {var} -> struct({key} AS k, {item} AS v)))"
    if isinstance(kind, ArrayType):
        inner = _identity(var, kind.elementType, depth + 1)
        return value if inner == var else f"transform({value}, {var} -> {inner})"
    if isinstance(kind, StructType):
        parts = [_identity(f"{value}.{quoted(x.name)}", x.dataType, depth) for x in kind.fields]
        if all(p == f"{value}.{quoted(x.name)}" for p, x in zip(parts, kind.fields, strict=True)):
            return value
        return f"if({value} IS NULL, NULL, struct({', '.join(parts)}))"
    return value


@lru_cache(maxsize=65536)
def exact_sql(value: str, ddl: str) -> str:
    """Return an expression that is equal for values that no function tells apart: not for the two zeros, nor for maps in another order."""
    return _exact(value, data_type(ddl), 0)


def _exact(value: str, kind: DataType, depth: int) -> str:
    var = f"e{depth}"
    if isinstance(kind, FloatType | DoubleType):
        return (
            f"struct({value} AS v, {value} = 0 AND power({value}, -1D) < 0 AS z)"  # the inverse of a zero has its sign
        )
    if isinstance(kind, VariantType):
        return f"struct({_identity(value, kind, depth)} AS v, schema_of_variant({value}) AS t)"
    if isinstance(kind, MapType):
        key = _exact(f"{var}.key", kind.keyType, depth + 1)
        item = _exact(f"{var}.value", kind.valueType, depth + 1)
        return f"transform(map_entries({value}), {var} -> struct({key} AS k, {item} AS v))"
    if isinstance(kind, ArrayType):
        inner = _exact(var, kind.elementType, depth + 1)
        return value if inner == var else f"transform({value}, {var} -> {inner})"
    if isinstance(kind, StructType):
        parts = [_exact(f"{value}.{quoted(x.name)}", x.dataType, depth) for x in kind.fields]
        if all(p == f"{value}.{quoted(x.name)}" for p, x in zip(parts, kind.fields, strict=True)):
            return value
        made = ", ".join(f"{p} AS f{i}" for i, p in enumerate(parts))
        return f"if({value} IS NULL, NULL, struct({made}))"
    return _identity(value, kind, depth)


def _collated(kind: StringType) -> bool:
    return getattr(kind, "collation", "UTF8_BINARY") != "UTF8_BINARY"


@lru_cache(maxsize=65536)
def canonical_sql(value: str, ddl: str) -> str:
    """Return an expression for `value` with one zero and one NaN."""
    return _canonical(value, data_type(ddl), 0)


def _canonical(value: str, kind: DataType, depth: int) -> str:
    var = f"f{depth}"
    if isinstance(kind, FloatType | DoubleType):
        name = "FLOAT" if isinstance(kind, FloatType) else "DOUBLE"
        return f"CASE WHEN {value} = 0 THEN {name}(0) WHEN isnan({value}) THEN {name}('NaN') ELSE {value} END"
    if isinstance(kind, ArrayType):
        inner = _canonical(var, kind.elementType, depth + 1)
        return value if inner == var else f"transform({value}, {var} -> {inner})"
    if isinstance(kind, MapType):
        key = _canonical(f"{var}.key", kind.keyType, depth + 1)
        item = _canonical(f"{var}.value", kind.valueType, depth + 1)
        if (key, item) == (f"{var}.key", f"{var}.value"):
            return value
        return f"map_from_entries(transform(map_entries({value}), {var} -> struct({key}, {item})))"
    if isinstance(kind, StructType):
        parts = [(_canonical(f"{value}.{quoted(x.name)}", x.dataType, depth), x.name) for x in kind.fields]
        if all(p == f"{value}.{quoted(n)}" for p, n in parts):
            return value
        made = ", ".join(f"{p} AS {quoted(n)}" for p, n in parts)
        return f"if({value} IS NULL, NULL, struct({made}))"
    return value


def identity_list(fields: Sequence[Field], prefix: str = "") -> list[str]:
    """Return the identity of each field, read from the relation `prefix` names."""
    dot = f"{prefix}." if prefix else ""
    return [identity_sql(f"{dot}{quoted(x.name)}", x.type) for x in fields]


def row_hash_sql(fields: Sequence[Field], values: Mapping[str, str] | None = None) -> str:
    """Return the hash of a row: a NULL contributes nothing, its neighbours carry their names.

    `xxhash64` skips NULLs, so (1, NULL) and (NULL, 1) would collide without the names; and because a NULL leaves no trace, a
    column added later leaves the hash of every old row as it was. `values` gives the text of each field where it is not its name.
    """
    parts = []
    for field in sorted(fields, key=lambda x: x.name):
        value = quoted(field.name) if values is None else values[field.name]
        parts.append(f"if({value} IS NULL, CAST(NULL AS STRING), {sql_string(field.name)})")
        parts.append(identity_sql(value, field.type))
    return f"xxhash64({', '.join(parts)})" if parts else "xxhash64(0)"


def equal_sql(left: str, right: str, ddl: str) -> str:
    """Return the NULL-safe comparison of two values."""
    return f"({identity_sql(left, ddl)} <=> {identity_sql(right, ddl)})"


def keys_equal_sql(left: str, right: str, fields: Sequence[Field]) -> str:
    """Return the condition that rows of the relations `left` and `right` share these key fields."""
    terms = []
    for x in fields:
        a = identity_sql(f"{left}.{quoted(x.name)}", x.type)
        b = identity_sql(f"{right}.{quoted(x.name)}", x.type)
        terms.append(f"{a} {'<=>' if x.nullable else '='} {b}")
    return " AND ".join(terms)
