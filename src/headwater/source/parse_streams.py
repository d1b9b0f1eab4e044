"""Statements about stream tables: create, alter, drop, refresh, explain."""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater.errors import StatementError
from headwater.model.tables import RefreshMode
from headwater.source.cursor import Cursor, Refusal
from headwater.source.parse_rows import QUERY_WORDS, read_query
from headwater.source.parse_tables import read_cascade, read_if_not_exists
from headwater.source.statements import (
    AlterStreamTable,
    CreateStreamTable,
    DropStreamTable,
    ExplainStreamTable,
    RefreshStreamTable,
)
from headwater.source.tokens import Token, TokenKind

_MODES = ", ".join(mode.value for mode in RefreshMode)
_CREATE_FORM = (
    "CREATE [OR REPLACE] STREAM TABLE [IF NOT EXISTS] name [SCHEDULE '...'] "
    f"[REFRESH MODE {_MODES.replace(', ', ' | ')}] [WITH (key = value, ...)] AS query"
)
_ALTER_FORM = (
    "ALTER STREAM TABLE name [SET SCHEDULE '...'] "
    f"[SET REFRESH MODE {_MODES.replace(', ', ' | ')}] [SET (key = value, ...)] [AS query]"
)
_ALTER_REFUSALS = {
    "RENAME": Refusal(
        "RENAME", "Other stream tables know it by name.", "Create it under the new name and drop this one."
    ),
    "ADD": Refusal("ADD", "Its columns are those of its query.", "Give it a new query: ALTER STREAM TABLE name AS ..."),
    "DROP": Refusal(
        "DROP", "Its columns are those of its query.", "Give it a new query: ALTER STREAM TABLE name AS ..."
    ),
}
_COLUMNS = Refusal(
    "a column list", "Its columns are those of its query.", "Name them in the query: SELECT ... AS name."
)
_STORAGE = Refusal("storage clauses", "Headwater lays out its files itself.", "Leave it out.")
_CREATE_REFUSALS = {
    "(": _COLUMNS,
    "USING": _STORAGE,
    "PARTITIONED": _STORAGE,
    "CLUSTER": _STORAGE,
    "LOCATION": _STORAGE,
    "TBLPROPERTIES": Refusal("TBLPROPERTIES", "Options have their own clause.", "Use WITH (key = value)."),
}
_OPTION_CLAUSES = {"schedule": "SCHEDULE '...'", "refresh_mode": "REFRESH MODE ...", "mode": "REFRESH MODE ..."}


@dataclass(slots=True)
class _Clauses:
    """What has been said so far; each thing once."""

    schedule: str | None = None
    mode: RefreshMode | None = None
    options: dict[str, str] = field(default_factory=dict)


def read_create_stream_table(cursor: Cursor) -> CreateStreamTable:
    """Read CREATE STREAM TABLE; its clauses may come in any order."""
    cursor.statement, cursor.form = "CREATE STREAM TABLE", _CREATE_FORM
    cursor.expect("CREATE")
    or_replace = cursor.take("OR", "REPLACE")
    cursor.expect("STREAM", "TABLE")
    if_not_exists = read_if_not_exists(cursor, or_replace=or_replace)
    name = cursor.table_name()
    said = _Clauses()
    while not cursor.at("AS"):
        cursor.refuse_any(_CREATE_REFUSALS)
        if not _take_clause(cursor, said) and not _take_options(cursor, said, "WITH"):
            raise cursor.expected("SCHEDULE, REFRESH MODE, WITH or AS and a query")
    cursor.expect("AS")
    query = read_query(cursor)
    return CreateStreamTable(name, query, said.schedule, said.mode, said.options, if_not_exists, or_replace)


def read_alter_stream_table(cursor: Cursor) -> AlterStreamTable:
    """Read ALTER STREAM TABLE: any of schedule, mode, options, and at last a query."""
    cursor.statement, cursor.form = "ALTER STREAM TABLE", _ALTER_FORM
    cursor.expect("ALTER", "STREAM", "TABLE")
    name = cursor.table_name()
    cursor.refuse_any(_ALTER_REFUSALS)
    said = _Clauses()
    start = cursor.token
    while cursor.at("SET"):
        if not _take_options(cursor, said, "SET"):
            cursor.expect("SET")
            _expect_clause(cursor, said)
        while cursor.take(","):
            _expect_clause(cursor, said)
    query = read_query(cursor) if cursor.take("AS") else None
    if query is None and cursor.token is start:
        raise cursor.expected("SET or AS and a query")
    return AlterStreamTable(name, said.schedule, said.mode, said.options, query)


def read_drop_stream_table(cursor: Cursor) -> DropStreamTable:
    """Read DROP STREAM TABLE."""
    cursor.statement, cursor.form = "DROP STREAM TABLE", "DROP STREAM TABLE [IF EXISTS] name [CASCADE | RESTRICT]"
    cursor.expect("DROP", "STREAM", "TABLE")
    if_exists = cursor.take("IF", "EXISTS")
    return DropStreamTable(cursor.table_name(), if_exists, read_cascade(cursor))


def read_refresh(cursor: Cursor) -> RefreshStreamTable:
    """Read REFRESH STREAM TABLE, of one table or of all."""
    cursor.statement, cursor.form = "REFRESH", "REFRESH STREAM TABLE name, or REFRESH ALL STREAM TABLES"
    cursor.expect("REFRESH")
    cursor.refuse_any(
        {"TABLE": Refusal("TABLE", "Managed tables are always current.", "Use REFRESH STREAM TABLE name.")}
    )
    if cursor.take("ALL", "STREAM", "TABLES") or cursor.take("STREAM", "TABLES"):
        return RefreshStreamTable(None)
    cursor.expect("STREAM", "TABLE")
    if cursor.at("ALL") and cursor.key(1) != ".":
        cursor.step()
        return RefreshStreamTable(None)
    return RefreshStreamTable(cursor.table_name())


def read_explain(cursor: Cursor) -> ExplainStreamTable:
    """Read EXPLAIN STREAM TABLE."""
    cursor.statement, cursor.form = "EXPLAIN", "EXPLAIN STREAM TABLE name"
    cursor.expect("EXPLAIN")
    words = (*QUERY_WORDS, "EXTENDED", "FORMATTED", "CODEGEN", "COST", "LOGICAL")
    if cursor.key() in words:
        hint = "Run the query and call explain() on its DataFrame, or EXPLAIN STREAM TABLE name."
        raise cursor.refused(Refusal("queries", "Queries are explained by Spark.", hint))
    cursor.expect("STREAM", "TABLE")
    return ExplainStreamTable(cursor.table_name())


# -- clauses -----------------------------------------------------------------------------------------------------------------


def _expect_clause(cursor: Cursor, said: _Clauses) -> None:
    if not _take_clause(cursor, said):
        raise cursor.expected("SCHEDULE, REFRESH MODE or (key = value)")


def _take_clause(cursor: Cursor, said: _Clauses) -> bool:
    """Read SCHEDULE or REFRESH MODE, if it comes."""
    start = cursor.token
    if cursor.take("SCHEDULE"):
        if said.schedule is not None:
            raise _twice(cursor, "SCHEDULE", start)
        said.schedule = "CALCULATED" if cursor.take("CALCULATED") else cursor.string("the schedule as a string: '1s'")
        return True
    if cursor.at("REFRESH"):
        cursor.expect("REFRESH", "MODE")
        if said.mode is not None:
            raise _twice(cursor, "REFRESH MODE", start)
        said.mode = _read_mode(cursor)
        return True
    return False


def _read_mode(cursor: Cursor) -> RefreshMode:
    start = cursor.token
    if start.kind is TokenKind.STRING:
        word = cursor.string("a mode").upper()
    else:
        word = cursor.key()
        if word:
            cursor.step()
    if word not in RefreshMode.__members__:
        raise cursor.expected(f"one of {_MODES}", at=start)
    return RefreshMode[word]


def _take_options(cursor: Cursor, said: _Clauses, word: str) -> bool:
    """Read `WITH (key = value, ...)`, or with another word before the parenthesis."""
    start = cursor.token
    if not cursor.take(word, "("):
        return False
    if said.options:
        raise _twice(cursor, f"{word} (...)", start)
    while True:
        token = cursor.token
        key = cursor.string("an option") if token.kind is TokenKind.STRING else cursor.name("an option")
        key = key.lower()
        if key in _OPTION_CLAUSES:
            raise cursor.wrong(
                f'"{key}" is not an option', at=token, hint=f"It has a clause of its own: {_OPTION_CLAUSES[key]}"
            )
        if key in said.options:
            raise _twice(cursor, f'option "{key}"', token)
        cursor.expect("=")
        said.options[key] = _read_option_value(cursor)
        if not cursor.take(","):
            break
    if not cursor.take(")"):
        raise cursor.expected('"," or ")"')
    return True


def _read_option_value(cursor: Cursor) -> str:
    """Read a string, a number or a word such as true, as text."""
    if cursor.token.kind is TokenKind.STRING:
        return cursor.string("a value")
    sign = "-" if cursor.take("-") else ""
    if cursor.token.kind is TokenKind.NUMBER or (cursor.token.kind is TokenKind.WORD and not sign):
        return sign + cursor.step().text
    raise cursor.expected("a string, a number or a word")


def _twice(cursor: Cursor, what: str, at: Token) -> StatementError:
    return cursor.wrong(f"{what} is said twice", at=at, hint="Say it once.")
