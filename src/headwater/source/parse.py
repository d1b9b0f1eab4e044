"""SQL text becomes a statement record.

    read_statement   one statement
    split_script     a script, cut at its semicolons

Only the skeleton of a statement is read: keywords, names, types, where clauses begin and end. Everything Spark understands better
is cut out and kept. What is not supported is refused by its name, with a reason and a way out.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches

from headwater.errors import StatementError
from headwater.source.cursor import Cursor, Refusal
from headwater.source.parse_rows import read_delete, read_insert, read_merge, read_query, read_update
from headwater.source.parse_streams import (
    read_alter_stream_table,
    read_create_stream_table,
    read_drop_stream_table,
    read_explain,
    read_refresh,
)
from headwater.source.parse_tables import (
    read_alter_table,
    read_create_table,
    read_describe,
    read_drop_table,
    read_show,
    read_truncate,
)
from headwater.source.statements import Fragment, Query, Statement
from headwater.source.tokens import Token, TokenKind, place, tokens_of


def read_statement(text: str | Fragment) -> Statement:
    """Return the statement that `text` says; a closing semicolon is allowed.

    Given a fragment, a piece of a script, errors name the position in the script.
    """
    source = text if isinstance(text, Fragment) else Fragment(text)
    cursor = Cursor(source)
    while cursor.take(";"):
        pass
    if cursor.is_at_end():
        raise StatementError("the statement is empty", hint=f"Supported are {_SUPPORTED}.")
    reader = _READERS.get(cursor.key())
    if reader is None:
        raise _unknown_statement(cursor, source)
    statement = reader(cursor)
    if not cursor.is_at_end():
        raise cursor.expected("the end of the statement")
    while cursor.take(";"):
        pass
    if not cursor.is_at_end():
        raise StatementError(
            "one statement at a time",
            detail=f"{place(source, cursor.token.start)}: a second statement begins.",
            hint="Give each statement to a call of its own, or run a file: `headwater sql -f file`.",
        )
    return statement


def split_script(text: str) -> tuple[Fragment, ...]:
    """Return the statements of a script: what stands between semicolons, without the comments before and after it."""
    source = Fragment(text)
    pieces: list[Fragment] = []
    first: Token | None = None
    last: Token | None = None
    for token in tokens_of(source):
        if token.key == ";" or token.kind is TokenKind.END:
            if first is not None and last is not None:
                pieces.append(source.piece(first.start, last.end))
            first = last = None
        else:
            first, last = first or token, token
    return tuple(pieces)


def _read_create(cursor: Cursor) -> Statement:
    cursor.statement = "CREATE"
    after = 3 if cursor.at("CREATE", "OR", "REPLACE") else 1
    if cursor.key(after) == "TABLE":
        return read_create_table(cursor)
    if cursor.key(after) == "STREAM":
        return read_create_stream_table(cursor)
    raise _unknown_kind(cursor, after)


def _read_drop(cursor: Cursor) -> Statement:
    cursor.statement = "DROP"
    if cursor.at("DROP", "TABLE"):
        return read_drop_table(cursor)
    if cursor.at("DROP", "STREAM"):
        return read_drop_stream_table(cursor)
    raise _unknown_kind(cursor, 1)


def _read_alter(cursor: Cursor) -> Statement:
    cursor.statement = "ALTER"
    if cursor.at("ALTER", "TABLE"):
        return read_alter_table(cursor)
    if cursor.at("ALTER", "STREAM"):
        return read_alter_stream_table(cursor)
    raise _unknown_kind(cursor, 1)


def _read_query_statement(cursor: Cursor) -> Query:
    cursor.statement = "the query"
    return Query(read_query(cursor))


_READERS: dict[str, Callable[[Cursor], Statement]] = {
    "CREATE": _read_create,
    "DROP": _read_drop,
    "ALTER": _read_alter,
    "TRUNCATE": read_truncate,
    "INSERT": read_insert,
    "UPDATE": read_update,
    "DELETE": read_delete,
    "MERGE": read_merge,
    "REFRESH": read_refresh,
    "EXPLAIN": read_explain,
    "SHOW": read_show,
    "DESCRIBE": read_describe,
    "DESC": read_describe,
    "SELECT": _read_query_statement,
    "WITH": _read_query_statement,
    "VALUES": _read_query_statement,
    "FROM": _read_query_statement,
    "TABLE": _read_query_statement,
    "(": _read_query_statement,
}
"""Every statement by its first word."""

_SUPPORTED = (
    "SELECT and other queries, CREATE / ALTER / DROP / TRUNCATE TABLE, INSERT, UPDATE, DELETE, MERGE, "
    "CREATE / ALTER / DROP / REFRESH / EXPLAIN STREAM TABLE, SHOW [STREAM] TABLES and DESCRIBE"
)

_ALTERNATIVES = {
    "BEGIN": "Every statement is a commit of its own; MERGE makes several changes at once.",
    "START": "Every statement is a commit of its own; MERGE makes several changes at once.",
    "COMMIT": "Every statement is a commit of its own.",
    "ROLLBACK": "Every statement is a commit of its own.",
    "SET": "Settings are read from headwater.toml, HEADWATER_* or the arguments of connect.",
    "USE": "Write the whole name: schema.table.",
    "REPLACE": "Use MERGE, or upsert() from Python.",
    "UPSERT": "Use MERGE, or upsert() from Python.",
    "COPY": "Read the file by Spark and give the DataFrame to insert().",
    "LOAD": "Read the file by Spark and give the DataFrame to insert().",
    "CACHE": "Keep a result fresh by CREATE STREAM TABLE.",
    "RENAME": "CREATE TABLE new AS SELECT * FROM old copies a table under another name.",
}

_SCHEMA = Refusal(
    "", "A warehouse has no schemas to create.", "Name the table schema.table; nothing has to exist before."
)
_KINDS = {
    "VIEW": Refusal(
        "", "There are tables and stream tables.", "CREATE STREAM TABLE name AS query keeps a result fresh."
    ),
    "TABLE": Refusal(
        "", "Every table is stored in the warehouse and kept.", "Use CREATE TABLE or CREATE STREAM TABLE."
    ),
    "INDEX": Refusal("", "Tables have a primary key and file statistics.", "Declare a PRIMARY KEY."),
    "FUNCTION": Refusal("", "Functions belong to the Spark session.", "Write the expression out in the query."),
    "SCHEMA": _SCHEMA,
    "DATABASE": _SCHEMA,
    "NAMESPACE": _SCHEMA,
}
"""What other systems create, drop and alter."""


def _unknown_kind(cursor: Cursor, after: int) -> StatementError:
    """Refuse CREATE, DROP or ALTER of what Headwater does not have: the kind is the first known word that follows."""
    for _ in range(after):
        cursor.step()
    words = [cursor.key(ahead) for ahead in range(4)]
    for count, word in enumerate(words, start=1):
        refusal = _KINDS.get(word)
        if refusal is not None:
            return cursor.refused(Refusal(" ".join(words[:count]), refusal.why, refusal.hint))
    return cursor.expected("TABLE or STREAM TABLE", hint=f"Supported are {_SUPPORTED}.")


def _unknown_statement(cursor: Cursor, source: Fragment) -> StatementError:
    token = cursor.token
    near = get_close_matches(token.key, [word for word in _READERS if word.isalpha()], n=1, cutoff=0.7)
    advice = _ALTERNATIVES.get(token.key) or (f"Did you mean {near[0]}?" if near else "")
    return StatementError(
        f'"{token.key or token.text}" does not start a supported statement',
        detail=f"{place(source, token.start)}.",
        hint=f"{advice} Supported are {_SUPPORTED}.".lstrip(),
    )
