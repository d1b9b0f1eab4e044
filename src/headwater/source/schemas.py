"""Schemas of managed tables: what users ask for, checked, with the hidden row id where there is no key."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.engine.identity import is_key_type, refused_type
from headwater.errors import ConstraintError, StatementError, UnsupportedTypeError
from headwater.model.schema import Field, TableSchema
from headwater.store.rows import ROW_ID


def require_name(name: str) -> None:
    """Fail unless `name` can be the name of a table."""
    if not name or set("$/.`") & set(name) or name.startswith("__"):
        raise StatementError(
            f'"{name}" cannot be the name of a table',
            detail="Names of tables have one part, without dots, $, / or backticks, and do not start with two underscores.",
            hint=f'Choose a name such as "{name.replace(".", "_").strip("_$/`") or "orders"}".',
        )


def require_storable(field: Field) -> None:
    """Fail unless a column can be stored."""
    bad = refused_type(field.type)
    if bad is not None:
        raise UnsupportedTypeError(
            f'column "{field.name}" has the type {bad.upper()}, which cannot be stored',
            detail="Delta Lake has no such type.",
            hint="Store it as a number or a string.",
        )
    if field.name.startswith("__"):
        raise ConstraintError(
            f'column name "{field.name}" is reserved', hint="Names must not start with two underscores."
        )


def managed_schema(name: str, fields: Sequence[Field], key: Sequence[str]) -> TableSchema:
    """Return the stored schema of a new table."""
    for field in fields:
        require_storable(field)
    by_name = {f.name.casefold(): f for f in fields}
    if len(by_name) != len(fields):
        raise ConstraintError(f'table "{name}" would have two columns of one name')
    if not fields:
        raise ConstraintError(f'table "{name}" would have no columns')
    names = []
    for part in key:
        found = by_name.get(part.casefold())
        if found is None:
            raise ConstraintError(f'primary key column "{part}" is not a column of table "{name}"')
        if not is_key_type(found.type):
            raise UnsupportedTypeError(f'column "{part}" of type {found.type.upper()} cannot be part of a primary key')
        names.append(found.name)
    if not names:
        return TableSchema((*fields, ROW_ID), (ROW_ID.name,))
    stored = tuple(Field(f.name, f.type, False) if f.name in names else f for f in fields)
    return TableSchema(stored, tuple(dict.fromkeys(names)))
