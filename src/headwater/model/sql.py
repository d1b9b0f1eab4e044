"""Names and constants as SQL text: the only functions that turn a Python value into a piece of a statement."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any


def quoted(name: str) -> str:
    """Return `name` as a Spark SQL identifier."""
    return "`" + name.replace("`", "``") + "`"


def sql_string(text: str) -> str:
    """Return `text` as a SQL string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def sql_literal(value: Any) -> str | None:
    """Return a constant that Spark can compare with a column of the same kind, or None if there is no safe text for it."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return f"{value}" if -(2**31) < value < 2**31 else f"CAST({sql_string(str(value))} AS BIGINT)"
    if isinstance(value, str):
        return sql_string(value)
    if isinstance(value, Decimal):
        return f"CAST({sql_string(str(value))} AS DECIMAL(38, {max(0, -int(value.as_tuple().exponent))}))"
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return f"TIMESTAMP_NTZ {sql_string(value.isoformat(sep=' '))}"
        return f"TIMESTAMP {sql_string(value.astimezone(UTC).isoformat(sep=' '))}"
    if isinstance(value, date):
        return f"DATE {sql_string(value.isoformat())}"
    return None
