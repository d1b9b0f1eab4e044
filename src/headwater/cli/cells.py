"""How one value looks: in a table for people, or as JSON for programs."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any

from rich import box
from rich.console import JustifyMethod
from rich.table import Table as RichTable
from rich.text import Text

Record = Mapping[str, Any]


class Shown(Enum):
    """How a value looks in a text table."""

    TEXT = "text"
    COUNT = "count"
    MILLISECONDS = "milliseconds"
    MOMENT = "moment"
    FACTOR = "factor"
    ACTION = "action"
    CLOCK = "clock"
    """A moment of today: the time of day alone."""
    DURATION = "duration"
    """Seconds, with a unit; nothing for none."""


RIGHT = {Shown.COUNT, Shown.MILLISECONDS, Shown.FACTOR, Shown.DURATION}

STYLES = {
    "NO_DATA": "dim",
    "DIFFERENTIAL": "green",
    "INITIAL": "cyan",
    "FULL": "yellow",
    "ACTIVE": "green",
    "COMPLETED": "green",
    "up to date": "green",
    "behind": "yellow",
    "equal": "green",
    "different": "bold red",
    "FAILED": "bold red",
    "ERROR": "bold red",
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a text table: which field of a record, under which title, shown how."""

    field: str
    title: str
    shown: Shown = Shown.TEXT


def json_text(value: Any) -> str:
    """Return `value` as JSON on one line. What JSON has no type for becomes text."""
    return json.dumps(json_value(value), ensure_ascii=False, allow_nan=False)


def json_value(value: Any) -> Any:
    """Return `value` in JSON's own types: decimals, dates and non-finite floats as text, bytes as base64, rows as objects."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case Enum():
            return value.value
        case datetime() | date() | time():
            return value.isoformat()
        case bytes() | bytearray():
            return base64.b64encode(value).decode()
        case Mapping():
            return {str(k): json_value(v) for k, v in value.items()}
        case _ if hasattr(value, "asDict"):
            return json_value(value.asDict())
        case list() | tuple() | set() | frozenset():
            return [json_value(v) for v in value]
        case _:
            return str(value)


def cell(value: Any, shown: Shown) -> Text:
    """Return one field of a record as it looks in a table."""
    if value is None:
        return Text("")
    match shown:
        case Shown.COUNT:
            return Text(f"{value:,}" if isinstance(value, int) else str(value))
        case Shown.MILLISECONDS:
            return Text(f"{value:,.0f}" if value >= 10 else f"{value:.1f}")
        case Shown.FACTOR:
            return Text(f"{value:,.1f}x")
        case Shown.MOMENT:
            return Text(datetime.fromtimestamp(value).astimezone().strftime("%Y-%m-%d %H:%M:%S"))
        case Shown.CLOCK:
            return Text(datetime.fromtimestamp(value).astimezone().strftime("%H:%M:%S"))
        case Shown.DURATION:
            return Text(duration_text(value) if value else "")
        case Shown.ACTION:
            word = value.value if isinstance(value, Enum) else str(value)
            return Text(word, style=STYLES.get(word, ""))
        case Shown.TEXT:
            return Text(str(value.value if isinstance(value, Enum) else value))


def duration_text(seconds: float) -> str:
    """Return a length of time: 0.4s, 3s, 2m, 1h05m, 2d03h."""
    if seconds < 1:
        return f"{max(seconds, 0.0):.1f}s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m"
    hours = whole // 3600
    return f"{hours}h{whole % 3600 // 60:02d}m" if hours < 24 else f"{hours // 24}d{hours % 24:02d}h"


def empty_table() -> RichTable:
    """Return a table without columns, in our look."""
    return RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")


def text_table(columns: Sequence[Column], rows: Sequence[Record]) -> RichTable:
    """Return records as a table; each column shows one field."""
    table = empty_table()
    for column in columns:
        justify: JustifyMethod = "right" if column.shown in RIGHT else "left"
        table.add_column(column.title, justify=justify, overflow="fold", no_wrap=column.shown is not Shown.TEXT)
    for row in rows:
        table.add_row(*(cell(row.get(column.field), column.shown) for column in columns))
    return table


def cell_of_result(value: Any) -> Text:
    """Return one value of a query's result as it looks in a table."""
    if value is None:
        return Text("NULL", style="dim")
    if isinstance(value, float | Decimal | int | timedelta | datetime | date):
        return Text(str(value))
    if isinstance(value, str):
        return Text(value)
    return Text(json_text(value))
