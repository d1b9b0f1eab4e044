"""What commands say, as text for people or as JSON for programs. The only place that prints.

A command hands over data; how it looks is decided here. As JSON every command writes one document on one line (`sql` one per
statement) to standard output. Errors and progress go to standard error in both forms, so that a pipe carries results alone.
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from headwater.cli.cells import Column, Record, cell, cell_of_result, empty_table, json_text, text_table
from headwater.cli.screen import Screen, own_screen
from headwater.errors import HeadwaterError


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

    @abstractmethod
    def show(self, rows: Sequence[Record], caption: str) -> None:
        """Show `rows`, of which none is new."""


class Output(ABC):
    """Where commands put what they have to say."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen

    def check(self) -> None:
        """Raise if nobody waits for the answer any more."""
        self.screen.check()

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
    def aside(self, text: str) -> None:
        """Say on standard error what is no part of the answer."""

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
        self._write({"message": text, **data})

    def records(self, columns: Sequence[Column], rows: Sequence[Record], *, empty: str) -> None:
        self._write(list(rows))

    def result(self, names: Sequence[str], rows: Sequence[Sequence[Any]], *, more: bool) -> None:
        self._write({"columns": list(names), "rows": [list(row) for row in rows], "more": more})

    def note(self, text: str) -> None:
        return

    def text_records(self, columns: Sequence[Column], rows: Sequence[Record]) -> None:
        return

    def document(self, data: Record) -> None:
        self._write(data)

    def aside(self, text: str) -> None:
        self.screen.err.file.write(json_text({"note": text}) + "\n")

    def error(self, error: HeadwaterError) -> None:
        document = {"code": error.code, "message": error.message, "detail": error.detail, "hint": error.hint}
        self.screen.err.file.write(json_text({"error": document}) + "\n")

    def _write(self, value: Any) -> None:
        self.screen.out.file.write(json_text(value) + "\n")
        self.screen.out.file.flush()


class TextOutput(Output):
    """Sentences and tables, coloured where the terminal can."""

    def message(self, text: str, data: Record) -> None:
        self.screen.out.print(Text(text))

    def note(self, text: str) -> None:
        self.screen.out.print(Text(text))

    def document(self, data: Record) -> None:
        return

    def records(self, columns: Sequence[Column], rows: Sequence[Record], *, empty: str) -> None:
        if not rows:
            self.screen.out.print(Text(empty, style="dim"))
            return
        self.text_records(columns, rows)

    def text_records(self, columns: Sequence[Column], rows: Sequence[Record]) -> None:
        self.screen.out.print(text_table(columns, rows), soft_wrap=False)

    def result(self, names: Sequence[str], rows: Sequence[Sequence[Any]], *, more: bool) -> None:
        table = empty_table()
        for position, name in enumerate(names):
            numbers = all(isinstance(row[position], int | float | Decimal) or row[position] is None for row in rows)
            table.add_column(Text(name), justify="right" if rows and numbers else "left", overflow="fold")
        for row in rows:
            table.add_row(*(cell_of_result(value) for value in row))
        self.screen.out.print(table, soft_wrap=False)
        count = f"{len(rows):,} row" + ("" if len(rows) == 1 else "s")
        self.screen.out.print(Text(f"the first {count}; --limit shows more" if more else count, style="dim"))

    def aside(self, text: str) -> None:
        self.screen.err.print(Text(text, style="dim"))

    def error(self, error: HeadwaterError) -> None:
        self.screen.err.print(Text.assemble((f"error {error.code}: ", "bold red"), (error.message, "red")))
        for label, text in (("detail", error.detail), ("hint", error.hint)):
            if text:
                self.screen.err.print(Text.assemble((f"  {label}: ", "bold"), text))

    @contextmanager
    def steps(self, label: str, total: int | None) -> Iterator[Steps]:
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        ours = self.screen.is_ours  # only then is what else this process writes kept clear of the bar
        if not self.screen.err.is_terminal:
            yield _NoSteps()
            return
        console = self.screen.err
        with Progress(*columns, console=console, transient=True, redirect_stdout=ours, redirect_stderr=ours) as bar:
            yield _BarSteps(bar, label, total)

    @contextmanager
    def board(self, columns: Sequence[Column]) -> Iterator[Board]:
        ours = self.screen.is_ours
        if not self.screen.out.is_terminal:
            yield _LineBoard(self.screen, columns)
            return
        with Live(console=self.screen.out, refresh_per_second=4, redirect_stdout=ours, redirect_stderr=ours) as live:
            yield _LiveBoard(live, columns)


def output_for(*, as_json: bool) -> Output:
    """Return the form asked for on the command line."""
    return output_on(own_screen(), as_json=as_json)


def output_on(screen: Screen, *, as_json: bool) -> Output:
    """Return the form asked for, on a screen."""
    return JsonOutput(screen) if as_json else TextOutput(screen)


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

    def show(self, rows: Sequence[Record], caption: str) -> None:
        return


class _LiveBoard(Board):
    def __init__(self, live: Live, columns: Sequence[Column]) -> None:
        self._live = live
        self._columns = columns

    def update(self, rows: Sequence[Record], changed: Record, caption: str) -> None:
        self.show(rows, caption)

    def show(self, rows: Sequence[Record], caption: str) -> None:
        shown: RenderableType = Group(text_table(self._columns, rows), Text(caption, style="dim"))
        self._live.update(shown)


class _LineBoard(Board):
    def __init__(self, screen: Screen, columns: Sequence[Column]) -> None:
        self._screen = screen
        self._columns = columns

    def update(self, rows: Sequence[Record], changed: Record, caption: str) -> None:
        fields = (f"{c.title} {cell(changed.get(c.field), c.shown).plain or '-'}" for c in self._columns)
        self._screen.out.print(Text("  ".join(fields)))

    def show(self, rows: Sequence[Record], caption: str) -> None:
        return


def discard_stdout() -> None:
    """Stop writing after the reader of a pipe has gone, so that Python does not fail once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
