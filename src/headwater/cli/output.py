"""What commands say, as text for people or as JSON for programs. The only place that prints.

A command hands over data; how it looks is decided here. As JSON every command writes one document on one line (`sql` one per
statement) to standard output. Errors and progress go to standard error in both forms, so that a pipe carries results alone.
"""

from __future__ import annotations

import base64
import json
import math
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any

from rich import box
from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table as RichTable
from rich.text import Text

from headwater.errors import HeadwaterError

Record = Mapping[str, Any]


class Shown(Enum):
    """How a value looks in a text table."""

    TEXT = "text"
    COUNT = "count"
    MILLISECONDS = "milliseconds"
    MOMENT = "moment"
    FACTOR = "factor"
    ACTION = "action"


_WIDE = 100_000

RIGHT = {Shown.COUNT, Shown.MILLISECONDS, Shown.FACTOR}

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


class Steps(ABC):
    """Long work under way; closed by its `with` block."""

    @abstractmethod
    def advance(self, done: int, total: int | None = None, label: str | None = None) -> None:
        """Say how far the work has come."""


class Board(ABC):
    """A table that changes in place where the terminal can do it; else one line per change."""

    @abstractmethod
    def update(self, rows: Sequence[Record], changed: Record, caption: str) -> None:
        """Show `rows`; `changed` is the one that is new."""


class Output(ABC):
    """Where commands put what they have to say."""

    @abstractmethod
    def message(self, text: str, data: Record) -> None:
        """Say one sentence; programs get `data`."""

    @abstractmethod
    def records(self, columns: Sequence[Column], rows: Sequence[Record], *, empty: str) -> None:
        """Show records, or the sentence `empty` if there are none."""

    @abstractmethod
    def result(self, names: Sequence[str], rows: Sequence[Sequence[Any]], *, more: bool) -> None:
        """Show the rows of a query; `more` if there are others that are not shown."""

    @abstractmethod
    def note(self, text: str) -> None:
        """Say something to people only."""

    @abstractmethod
    def text_records(self, columns: Sequence[Column], rows: Sequence[Record]) -> None:
        """Show records to people only."""

    @abstractmethod
    def document(self, data: Record) -> None:
        """Say something to programs only."""

    @abstractmethod
    def error(self, error: HeadwaterError) -> None:
        """Say what went wrong, why, and what to do."""

    @contextmanager
    def steps(self, label: str, total: int | None) -> Iterator[Steps]:
        """Show progress of long work while the block runs."""
        yield _NoSteps()

    @contextmanager
    def board(self, columns: Sequence[Column]) -> Iterator[Board]:
        """Show a table that changes while the block runs."""
        yield _NoBoard()


class JsonOutput(Output):
    """One JSON document per line."""

    def message(self, text: str, data: Record) -> None:
        _write_out(json_text({"message": text, **data}))

    def records(self, columns: Sequence[Column], rows: Sequence[Record], *, empty: str) -> None:
        _write_out(json_text(list(rows)))

    def result(self, names: Sequence[str], rows: Sequence[Sequence[Any]], *, more: bool) -> None:
        _write_out(json_text({"columns": list(names), "rows": [list(row) for row in rows], "more": more}))

    def note(self, text: str) -> None:
        return

    def text_records(self, columns: Sequence[Column], rows: Sequence[Record]) -> None:
        return

    def document(self, data: Record) -> None:
        _write_out(json_text(data))

    def error(self, error: HeadwaterError) -> None:
        document = {"code": error.code, "message": error.message, "detail": error.detail, "hint": error.hint}
        sys.stderr.write(json_text({"error": document}) + "\n")


class TextOutput(Output):
    """Sentences and tables, coloured where the terminal can."""

    def __init__(self) -> None:
        # highlight off: numbers in a sentence need no colour; soft_wrap: a path may be longer than the terminal is wide.
        self._out = Console(highlight=False, soft_wrap=True)
        if not self._out.is_terminal:  # another program may read the lines: nothing is folded or cut
            self._out = Console(highlight=False, soft_wrap=True, width=_WIDE)
        self._err = Console(stderr=True, highlight=False, soft_wrap=True)

    def message(self, text: str, data: Record) -> None:
        self._out.print(Text(text))

    def note(self, text: str) -> None:
        self._out.print(Text(text))

    def document(self, data: Record) -> None:
        return

    def records(self, columns: Sequence[Column], rows: Sequence[Record], *, empty: str) -> None:
        if not rows:
            self._out.print(Text(empty, style="dim"))
            return
        self.text_records(columns, rows)

    def text_records(self, columns: Sequence[Column], rows: Sequence[Record]) -> None:
        self._out.print(_text_table(columns, rows), soft_wrap=False)

    def result(self, names: Sequence[str], rows: Sequence[Sequence[Any]], *, more: bool) -> None:
        table = _empty_table()
        for position, name in enumerate(names):
            numbers = all(isinstance(row[position], int | float | Decimal) or row[position] is None for row in rows)
            table.add_column(Text(name), justify="right" if rows and numbers else "left", overflow="fold")
        for row in rows:
            table.add_row(*(_cell_of_result(value) for value in row))
        self._out.print(table, soft_wrap=False)
        count = f"{len(rows):,} row" + ("" if len(rows) == 1 else "s")
        self._out.print(Text(f"the first {count}; --limit shows more" if more else count, style="dim"))

    def error(self, error: HeadwaterError) -> None:
        self._err.print(Text.assemble((f"error {error.code}: ", "bold red"), (error.message, "red")))
        for label, text in (("detail", error.detail), ("hint", error.hint)):
            if text:
                self._err.print(Text.assemble((f"  {label}: ", "bold"), text))

    @contextmanager
    def steps(self, label: str, total: int | None) -> Iterator[Steps]:
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        if not self._err.is_terminal:
            yield _NoSteps()
            return
        with Progress(*columns, console=self._err, transient=True) as progress:
            yield _BarSteps(progress, label, total)

    @contextmanager
    def board(self, columns: Sequence[Column]) -> Iterator[Board]:
        if not self._out.is_terminal:
            yield _LineBoard(self._out, columns)
            return
        with Live(console=self._out, refresh_per_second=8) as live:
            yield _LiveBoard(live, columns)


def output_for(*, as_json: bool) -> Output:
    """Return the form asked for on the command line."""
    return JsonOutput() if as_json else TextOutput()


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
        case Shown.ACTION:
            word = value.value if isinstance(value, Enum) else str(value)
            return Text(word, style=STYLES.get(word, ""))
        case Shown.TEXT:
            return Text(str(value.value if isinstance(value, Enum) else value))


class _NoSteps(Steps):
    def advance(self, done: int, total: int | None = None, label: str | None = None) -> None:
        return


class _BarSteps(Steps):
    def __init__(self, progress: Progress, label: str, total: int | None) -> None:
        self._progress = progress
        self._task = progress.add_task(label, total=total)

    def advance(self, done: int, total: int | None = None, label: str | None = None) -> None:
        self._progress.update(self._task, completed=done, total=total, description=label)


class _NoBoard(Board):
    def update(self, rows: Sequence[Record], changed: Record, caption: str) -> None:
        return


class _LiveBoard(Board):
    def __init__(self, live: Live, columns: Sequence[Column]) -> None:
        self._live = live
        self._columns = columns

    def update(self, rows: Sequence[Record], changed: Record, caption: str) -> None:
        shown: RenderableType = Group(_text_table(self._columns, rows), Text(caption, style="dim"))
        self._live.update(shown)


class _LineBoard(Board):
    def __init__(self, console: Console, columns: Sequence[Column]) -> None:
        self._console = console
        self._columns = columns

    def update(self, rows: Sequence[Record], changed: Record, caption: str) -> None:
        fields = (f"{c.title} {cell(changed.get(c.field), c.shown).plain or '-'}" for c in self._columns)
        self._console.print(Text("  ".join(fields)))


def _empty_table() -> RichTable:
    return RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")


def _text_table(columns: Sequence[Column], rows: Sequence[Record]) -> RichTable:
    table = _empty_table()
    for column in columns:
        justify: JustifyMethod = "right" if column.shown in RIGHT else "left"
        table.add_column(column.title, justify=justify, overflow="fold", no_wrap=column.shown is not Shown.TEXT)
    for row in rows:
        table.add_row(*(cell(row.get(column.field), column.shown) for column in columns))
    return table


def _cell_of_result(value: Any) -> Text:
    if value is None:
        return Text("NULL", style="dim")
    if isinstance(value, float | Decimal | int | timedelta | datetime | date):
        return Text(str(value))
    if isinstance(value, str):
        return Text(value)
    return Text(json_text(value))


def _write_out(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def discard_stdout() -> None:
    """Stop writing after the reader of a pipe has gone, so that Python does not fail once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
