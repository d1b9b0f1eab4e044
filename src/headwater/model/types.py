"""Spark types as DDL text: what `DataType.fromDDL` reads back as the same type.

Types say nothing about NULL: nullability belongs to columns, and Spark derives that of nested values from the expression. Only
the target of a cast names it, so `cast_ddl` keeps NOT NULL of struct fields and `type_ddl` does not.

Spark's JSON keeps the collation of a string outside its type, in the metadata of the struct field that holds it, under the path
to the string: `name`, `name.element`, `name.key`, `name.value`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_NAMES = {
    "integer": "INT",
    "long": "BIGINT",
    "short": "SMALLINT",
    "byte": "TINYINT",
    "void": "VOID",
    "null": "VOID",
}
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_COLLATIONS = "__COLLATIONS"


def type_ddl(json_type: Any) -> str:
    """Return the DDL text of a type given as Spark's JSON."""
    return _Writer("").text(json_type, {}, "")


def cast_ddl(json_type: Any) -> str:
    """Return the DDL text of the target of a cast: as `type_ddl`, with NOT NULL where a struct field demands it."""
    return _Writer(" NOT NULL").text(json_type, {}, "")


def field_ddl(json_field: Mapping[str, Any]) -> str:
    """Return the DDL text of the type of a field, with the collations that its metadata holds."""
    return _Writer("").text(json_field["type"], _collations(json_field), json_field["name"])


def struct_ddl(json_type: Any) -> str:
    """Return the fields of a struct as a column list, the form that schema arguments of functions take."""
    writer = _Writer(" NOT NULL")
    return ", ".join(writer.field(f, " ") for f in json_type["fields"])


class _Writer:
    def __init__(self, not_null: str) -> None:
        self._not_null = not_null

    def text(self, json_type: Any, collations: Mapping[str, str], path: str) -> str:
        if isinstance(json_type, str):
            return _simple(json_type, collations.get(path))
        kind = json_type["type"]
        if kind == "array":
            return f"ARRAY<{self.text(json_type['elementType'], collations, path + '.element')}>"
        if kind == "map":
            key = self.text(json_type["keyType"], collations, path + ".key")
            value = self.text(json_type["valueType"], collations, path + ".value")
            return f"MAP<{key}, {value}>"
        if kind == "struct":
            return f"STRUCT<{', '.join(self.field(f, ': ') for f in json_type['fields'])}>"
        if kind == "udt":
            return self.text(json_type["sqlType"], collations, path)
        raise ValueError(f"unknown Spark type: {json_type!r}")

    def field(self, field: Mapping[str, Any], separator: str) -> str:
        suffix = "" if field["nullable"] else self._not_null
        name = field["name"]
        return f"{quoted_field(name)}{separator}{self.text(field['type'], _collations(field), name)}{suffix}"


def quoted_field(name: str) -> str:
    """Return the name of a struct field, in backticks unless it is a plain word."""
    return name if _PLAIN_NAME.match(name) else "`" + name.replace("`", "``") + "`"


def _simple(name: str, collation: str | None) -> str:
    if collation is not None:
        return f"STRING COLLATE {collation.rpartition('.')[2]}"
    if name.startswith("string collate "):
        return f"STRING COLLATE {name.removeprefix('string collate ')}"
    return _NAMES.get(name, name.upper())


def _collations(field: Mapping[str, Any]) -> Mapping[str, str]:
    found: Mapping[str, str] = (field.get("metadata") or {}).get(_COLLATIONS, {})
    return found
