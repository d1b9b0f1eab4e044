"""The prompt: several lines make a statement, several statements may share a line."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.cli import prompt
from headwater.cli.output import output_for
from headwater.errors import StatementError


@pytest.fixture(autouse=True)
def _own_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def typed(monkeypatch: pytest.MonkeyPatch, *lines: str | type[BaseException]) -> list[str]:
    """Return the prompts shown, filled while statements are read."""
    shown: list[str] = []
    queue: Iterator[str | type[BaseException]] = iter(lines)

    def answer(text: str) -> str:
        shown.append(text)
        line = next(queue, EOFError)
        if isinstance(line, str):
            return line
        raise line

    monkeypatch.setattr("builtins.input", answer)
    return shown


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("", []),
        ("-- only a comment", []),
        (" ; ; ", []),
        ("SELECT 1", None),
        ("SELECT 1;", ["SELECT 1"]),
        ("SELECT 1; -- done;", ["SELECT 1"]),
        ("SELECT 1; SELECT 2", None),
        ("SELECT ';' AS a; SELECT `a;b` FROM t;", ["SELECT ';' AS a", "SELECT `a;b` FROM t"]),
        (r"SELECT 'it\'s; one';", [r"SELECT 'it\'s; one'"]),
        ("SELECT 'open;", None),
        ("SELECT 1 /* open; ", None),
        ("SELECT 1 -- no; not here\n;", ["SELECT 1"]),
    ],
)
def test_finished_statements(text: str, statements: list[str] | None) -> None:
    assert prompt.finished_statements(text) == statements


def test_a_statement_over_several_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = typed(monkeypatch, "SELECT 1,", "  ';'", "FROM t; SELECT 2;")
    assert list(prompt.read_statements(output_for(as_json=True))) == ["SELECT 1,\n  ';'\nFROM t", "SELECT 2"]
    assert shown == ["headwater> ", "        -> ", "        -> ", "headwater> "]


@pytest.mark.parametrize("word", ["exit", "QUIT;", r"\q", "  exit ; "])
def test_words_that_end(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    typed(monkeypatch, word, "SELECT 1;")
    assert list(prompt.read_statements(output_for(as_json=True))) == []


def test_ctrl_c_forgets_what_was_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    typed(monkeypatch, "SELECT 'never", KeyboardInterrupt, "SELECT 2;")
    assert list(prompt.read_statements(output_for(as_json=True))) == ["SELECT 2"]


def test_history_is_kept_for_its_owner_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("readline")
    typed(monkeypatch, "SELECT 1;")
    assert list(prompt.read_statements(output_for(as_json=True))) == ["SELECT 1"]
    file = tmp_path / "state" / "headwater" / "sql_history"
    assert file.stat().st_mode & 0o077 == 0


def test_text_from_a_file_and_from_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.sql"
    file.write_text("SELECT 'ü';", encoding="utf-8")
    assert prompt.read_text(file) == "SELECT 'ü';"
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT 3;"))
    assert prompt.read_text(Path("-")) == "SELECT 3;"


@pytest.mark.parametrize("content", [None, b"\xff\xff"])
def test_a_file_that_cannot_be_read(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "a.sql"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(StatementError, match="cannot be read"):
        prompt.read_text(file)
