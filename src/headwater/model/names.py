"""Names of tables: one or more parts, and the one function that quotes a name for Spark SQL."""

from __future__ import annotations

from dataclasses import dataclass


def quoted_name(part: str) -> str:
    """Return one part of a name in backticks."""
    return "`" + part.replace("`", "``") + "`"


@dataclass(frozen=True, slots=True)
class TableName:
    """The name of a table as its parts: `orders`, or `shop.orders`.

    `str()` joins the parts by dots and is what the catalog stores and people read; so that it can be taken apart again, no part
    holds a dot. `quoted` is the form that enters SQL.
    """

    parts: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.parts or not all(self.parts):
            raise ValueError("a table name has at least one part, and no part is empty")
        if any("." in part for part in self.parts):
            raise ValueError(f"a part of a table name holds a dot: {self.parts}")

    def __str__(self) -> str:
        return ".".join(self.parts)

    @property
    def quoted(self) -> str:
        return ".".join(quoted_name(part) for part in self.parts)

    @property
    def last(self) -> str:
        return self.parts[-1]

    @staticmethod
    def of(dotted: str) -> TableName:
        """Return the name that `str()` writes as `dotted`."""
        return TableName(tuple(dotted.split(".")))
