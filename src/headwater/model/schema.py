"""Schemas: the columns of a stored table, which of them users see, and which identify a row."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Field:
    """A stored column. `type` is Spark DDL text. Hidden fields carry keys and state that users do not see."""

    name: str
    type: str
    nullable: bool = True
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The fields of a table and its unique key (names of fields; empty for a table that counts whole tuples)."""

    fields: tuple[Field, ...]
    key: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [f.name.casefold() for f in self.fields]
        if len(set(names)) != len(names):
            raise ValueError(f"duplicate column names: {sorted(n for n in names if names.count(n) > 1)}")
        unknown = set(self.key) - {f.name for f in self.fields}
        if unknown:
            raise ValueError(f"key columns are not fields: {sorted(unknown)}")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.fields)

    @property
    def visible(self) -> tuple[Field, ...]:
        return tuple(f for f in self.fields if not f.hidden)

    @property
    def hidden(self) -> tuple[Field, ...]:
        return tuple(f for f in self.fields if f.hidden)

    def field(self, name: str) -> Field | None:
        """Return the field called `name`, in any letter case."""
        folded = name.casefold()
        return next((f for f in self.fields if f.name.casefold() == folded), None)

    def with_field(self, field: Field) -> TableSchema:
        """Return this schema with `field` after the last visible one."""
        return replace(self, fields=(*self.visible, field, *self.hidden))

    def to_json(self) -> str:
        return json.dumps(
            {
                "fields": [[f.name, f.type, f.nullable, f.hidden] for f in self.fields],
                "key": list(self.key),
            },
            ensure_ascii=False,
        )

    @staticmethod
    def from_json(text: str) -> TableSchema:
        data = json.loads(text)
        return TableSchema(tuple(Field(*f) for f in data["fields"]), tuple(data["key"]))
