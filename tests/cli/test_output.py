"""Text for people, JSON for programs, errors on standard error."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from enum import Enum

import pytest

from headwater.cli.cells import Column, Shown, cell, duration_text, json_text
from headwater.cli.output import JsonOutput, TextOutput, output_for
from headwater.errors import SettingError, UnknownTableError

COLUMNS = (Column("name", "table"), Column("rows", "rows", Shown.COUNT), Column("ms", "ms", Shown.MILLISECONDS))


class Colour(Enum):
    RED = "red"


def test_the_form_is_chosen_by_the_option() -> None:
    assert isinstance(output_for(as_json=True), JsonOutput)
    assert isinstance(output_for(as_json=False), TextOutput)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (3, "3"),
        (1.5, "1.5"),
        (float("nan"), '"nan"'),
        (float("-inf"), '"-inf"'),
        (Decimal("1.10"), '"1.10"'),
        (date(2025, 1, 2), '"2025-01-02"'),
        (datetime(2025, 1, 2, 3, 4, 5), '"2025-01-02T03:04:05"'),
        (b"\x00\xff", '"AP8="'),
        (Colour.RED, '"red"'),
        ({"a": [1, (2, None)]}, '{"a": [1, [2, null]]}'),
        ("größer", '"größer"'),
    ],
)
def test_json_values(value: object, text: str) -> None:
    assert json_text(value) == text


@pytest.mark.parametrize(
    ("value", "shown", "text"),
    [
        (None, Shown.COUNT, ""),
        (1234567, Shown.COUNT, "1,234,567"),
        (3.14, Shown.MILLISECONDS, "3.1"),
        (1234.5, Shown.MILLISECONDS, "1,234"),
        (12.34, Shown.FACTOR, "12.3x"),
        (Colour.RED, Shown.TEXT, "red"),
        ("[bold]", Shown.TEXT, "[bold]"),
    ],
)
def test_cells(value: object, shown: Shown, text: str) -> None:
    assert cell(value, shown).plain == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0s"),
        (0.4, "0.4s"),
        (3.9, "3s"),
        (59.9, "59s"),
        (60, "1m"),
        (150, "2m"),
        (3900, "1h05m"),
        (183_600, "2d03h"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_no_time_at_all_is_not_shown() -> None:
    assert cell(0.0, Shown.DURATION).plain == ""
    assert cell(90.0, Shown.DURATION).plain == "1m"


@pytest.mark.parametrize("as_json", [False, True])
def test_what_is_said_aside_is_on_standard_error(capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    output_for(as_json=as_json).aside("by the way")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == ('{"note": "by the way"}\n' if as_json else "by the way\n")


def test_json_records_are_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    output_for(as_json=True).records(COLUMNS, [{"name": "a", "rows": 1, "other": 2}], empty="none")
    captured = capsys.readouterr()
    assert json.loads(captured.out) == [{"name": "a", "rows": 1, "other": 2}]
    output_for(as_json=True).records(COLUMNS, [], empty="none")
    assert json.loads(capsys.readouterr().out) == []


def test_text_records(capsys: pytest.CaptureFixture[str]) -> None:
    output_for(as_json=False).records(COLUMNS, [{"name": "orders [red]", "rows": 12345, "ms": None}], empty="none")
    out = capsys.readouterr().out
    assert "orders [red]" in out
    assert "12,345" in out
    output_for(as_json=False).records(COLUMNS, [], empty="Nothing here.")
    assert capsys.readouterr().out == "Nothing here.\n"


def test_text_without_a_terminal_is_never_folded(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 300
    output_for(as_json=False).result(["a", "b"], [(long, long)], more=False)
    assert f"{long}   {long}" in capsys.readouterr().out


def test_a_result(capsys: pytest.CaptureFixture[str]) -> None:
    output_for(as_json=False).result(["region", "n"], [("north", 2), (None, 1)], more=False)
    out = capsys.readouterr().out
    assert "NULL" in out
    assert out.rstrip().endswith("2 rows")
    output_for(as_json=False).result(["n"], [(1,)], more=True)
    assert "the first 1 row" in capsys.readouterr().out


def test_an_error_has_code_detail_and_hint_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    output_for(as_json=False).error(SettingError("unknown setting", detail="because", hint="do this"))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "error HW107: unknown setting\n  detail: because\n  hint: do this\n"


def test_an_error_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    output_for(as_json=True).error(UnknownTableError("ordes", ["orders"]))
    captured = capsys.readouterr()
    assert captured.out == ""
    error = json.loads(captured.err)["error"]
    assert error["code"] == "HW201"
    assert error["hint"] == 'Did you mean "orders"?'


def test_without_a_terminal_a_board_prints_a_line_per_change(capsys: pytest.CaptureFixture[str]) -> None:
    with output_for(as_json=False).board(COLUMNS) as board:
        board.update([], {"name": "sales", "rows": 3, "ms": 1.5}, "caption")
        board.show([{"name": "sales"}], "nothing new")
    assert capsys.readouterr().out == "table sales  rows 3  ms 1.5\n"


def test_without_a_terminal_progress_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with output_for(as_json=False).steps("Working", 10) as steps:
        steps.advance(5, 10, "Half way")
    captured = capsys.readouterr()
    assert captured.out + captured.err == ""
