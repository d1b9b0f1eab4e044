"""Where the statements of `headwater sql` come from: a prompt with a history, a file, or a pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headwater.cli.output import Output
from headwater.errors import StatementError
from headwater.source.parse import split_script
from headwater.source.statements import Fragment
from headwater.source.tokens import tokens_of

HISTORY_LINES = 1_000
WORDS_THAT_END = frozenset({"exit", "quit", r"\q"})


def is_interactive() -> bool:
    """Say whether a person types the input."""
    return sys.stdin.isatty()


def read_text(file: Path | None) -> str:
    """Return all statements of a file, or of standard input."""
    if file is None or str(file) == "-":
        return sys.stdin.read()
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "It is not UTF-8 text"
        raise StatementError(f'file "{file}" cannot be read', detail=f"{reason}.") from error


def read_statements(out: Output) -> Iterator[str]:
    """Yield statements as they are typed, each ended by a semicolon, until the end of input, `exit` or `quit`."""
    out.note("Statements end with a semicolon; exit or Ctrl-D leaves.")
    with _history():
        pending = ""
        while True:
            try:
                line = input("headwater> " if not pending else "        -> ")
            except EOFError:
                out.note("")
                return
            except KeyboardInterrupt:
                out.note("")
                pending = ""
                continue
            if not pending and line.strip().rstrip(";").strip().lower() in WORDS_THAT_END:
                return
            pending = f"{pending}\n{line}" if pending else line
            statements = finished_statements(pending)
            if statements is not None:
                pending = ""
                yield from statements


def finished_statements(text: str) -> list[str] | None:
    """Return the statements of `text`, or None if it goes on: inside a quote or a comment, or without a last semicolon."""
    try:
        *tokens, _ = tokens_of(Fragment(text))
    except StatementError:
        return None
    if tokens and tokens[-1].key != ";":
        return None
    return [piece.text for piece in split_script(text)]


@contextmanager
def _history() -> Iterator[None]:
    """Keep typed lines between sessions, where this Python has readline and the home directory can be written."""
    try:
        import readline
    except ImportError:
        yield
        return
    file = _state_directory() / "sql_history"
    readline.set_history_length(HISTORY_LINES)
    try:
        readline.read_history_file(file)
    except OSError:
        readline.clear_history()
    try:
        yield
    finally:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(file)
            file.chmod(0o600)
        except OSError:
            readline.clear_history()  # nowhere to keep it


def _state_directory() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "headwater"
