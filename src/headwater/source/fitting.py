"""Fitting: the expression that stores a value of one type in a column of another, or fails with a clear message.

    scalars   SQL's store assignment, checked: what does not fit raises, floats get one zero and one NaN, strings keep their length
    arrays    element by element
    maps      key by key and value by value
    structs   field by field: by name if both have the same names, else by position

Spark's own `try_cast` of a nested value turns a field that does not fit into NULL; going down to the scalars makes it an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from headwater.engine.identity import TypeShape, canonical_sql, type_shape
from headwater.engine.worker import Worker
from headwater.errors import ConstraintError
from headwater.model.schema import Field
from headwater.model.sql import quoted, sql_string
from headwater.model.tables import Table

MARK = "[HW301]"


def unknown_column(name: str, table: Table) -> ConstraintError:
    """Return the error for a column that the table does not have, with the nearest names."""
    known = [f.name for f in table.schema.visible]
    near = get_close_matches(name, known, n=2, cutoff=0.5)
    said = " or ".join(f'"{n}"' for n in near)
    return ConstraintError(
        f'table "{table.name}" has no column "{name}"',
        hint=f"Did you mean {said}?" if near else f"It has {', '.join(known)}.",
    )


def fitted_sql(worker: Worker, value: str, source_type: Any, field: Field, table: Table) -> str:
    """Return an expression that stores `value`, of the Spark type `source_type` (None: a bare NULL), in `field`."""
    target = type_shape(field.type)
    if source_type is None or source_type.simpleString() == "void":
        made = f"CAST(NULL AS {target.stored})"
    else:
        try:
            made = _Fit(worker, field).text(value, type_shape(source_type), target, 0)
        except _NotAssignableError:
            raise ConstraintError(
                f'column "{field.name}" of table "{table.name}" is of type {field.type}, '
                f"the value is of type {source_type.simpleString().upper()}",
                hint="Write an explicit CAST if the conversion is meant.",
            ) from None
    if not field.nullable:
        text = f'{MARK} column "{field.name}" must not be NULL'
        made = f"coalesce({made}, CAST(raise_error({sql_string(text)}) AS {target.stored}))"
    return made


class _NotAssignableError(Exception):
    """A part of the value cannot be stored in its place."""


@dataclass(frozen=True, slots=True)
class _Fit:
    worker: Worker
    field: Field

    def text(self, value: str, source: TypeShape, target: TypeShape, depth: int) -> str:
        """Return the expression; `value` itself if there is nothing to do."""
        if source.is_void:
            return f"CAST(NULL AS {target.stored})"
        if target.element is not None and source.element is not None:
            return self._array(value, source.element, target.element, depth)
        if target.entry is not None and source.entry is not None:
            return self._map(value, source.entry, target.entry, depth)
        if target.fields is not None and source.fields is not None:
            return self._struct(value, source.fields, target.fields, depth)
        return self._scalar(value, source, target)

    def _array(self, value: str, source: TypeShape, target: TypeShape, depth: int) -> str:
        var = f"e{depth}"
        inner = self.text(var, source, target, depth + 1)
        return value if inner == var else f"transform({value}, {var} -> {inner})"

    def _map(
        self, value: str, source: tuple[TypeShape, TypeShape], target: tuple[TypeShape, TypeShape], depth: int
    ) -> str:
        var = f"e{depth}"
        key = self.text(f"{var}.key", source[0], target[0], depth + 1)
        item = self.text(f"{var}.value", source[1], target[1], depth + 1)
        if (key, item) == (f"{var}.key", f"{var}.value"):
            return value
        return f"map_from_entries(transform(map_entries({value}), {var} -> struct({key}, {item})))"

    def _struct(
        self,
        value: str,
        source: tuple[tuple[str, TypeShape], ...],
        target: tuple[tuple[str, TypeShape], ...],
        depth: int,
    ) -> str:
        if len(source) != len(target):
            raise _NotAssignableError
        given = {name.casefold(): (name, shape) for name, shape in source}
        by_name = given.keys() == {name.casefold() for name, _ in target}
        parts = []
        for (name, shape), (at, at_shape) in zip(target, source, strict=True):
            found, found_shape = given[name.casefold()] if by_name else (at, at_shape)
            path = f"{value}.{quoted(found)}"
            parts.append((name, path, self.text(path, found_shape, shape, depth)))
        if all(made == path == f"{value}.{quoted(name)}" for name, path, made in parts) and source == target:
            return value
        made = ", ".join(f"{sql_string(name)}, {text}" for name, _, text in parts)
        return f"if({value} IS NULL, NULL, named_struct({made}))"

    def _scalar(self, value: str, source: TypeShape, target: TypeShape) -> str:
        made = value
        if source.stored != target.stored:
            if not self.worker.can_assign(source.stored_type, target.stored_type):
                raise _NotAssignableError
            text = f'{MARK} a value does not fit column "{self.field.name}" of type {self.field.type}: '
            cast = f"try_cast({value} AS {target.stored})"
            made = (
                f"CASE WHEN {value} IS NOT NULL AND {cast} IS NULL "
                f"THEN CAST({_raised(text, f'CAST({value} AS STRING)')} AS {target.stored}) ELSE {cast} END"
            )
        if target.length is None:
            return canonical_sql(made if made == value else f"({made})", target.stored)
        return self._limited(made, target)

    def _limited(self, value: str, target: TypeShape) -> str:
        """Strings that are too long fail, unless only spaces are over, which go; CHAR is filled up with spaces."""
        limit = target.length
        text = f'{MARK} a value is longer than column "{self.field.name}" of type {self.field.type} allows: '
        kept = f"rpad({value}, {limit}, ' ')" if target.is_padded else f"left({value}, {limit})"
        return (
            f"CASE WHEN char_length({value}) > {limit} AND char_length(rtrim({value})) > {limit} "
            f"THEN CAST({_raised(text, value)} AS STRING) ELSE {kept} END"
        )


def _raised(text: str, value: str) -> str:
    return f"raise_error(concat({sql_string(text)}, left({value}, 100)))"
