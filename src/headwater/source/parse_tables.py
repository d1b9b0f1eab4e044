"""Statements about tables as such: create, drop, truncate, alter, show, describe."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headwater.source.cursor import Cursor, Refusal
from headwater.source.parse_rows import read_query
from headwater.source.statements import (
    AlterTableAddColumns,
    ColumnDefinition,
    CreateTable,
    DescribeTable,
    DropTable,
    Fragment,
    ShowStreamTables,
    ShowTables,
    TruncateTable,
)
from headwater.source.tokens import Token, TokenKind

_CREATE_FORM = (
    "CREATE [OR REPLACE] TABLE [IF NOT EXISTS] name "
    "(column type [NOT NULL] [COMMENT '...'], ..., PRIMARY KEY (column, ...)) [AS query]"
)

_CHECK = Refusal("CHECK", "Only NOT NULL and PRIMARY KEY are checked when rows are written.", "Leave it out.")
_FOREIGN_KEY = Refusal("FOREIGN KEY", "References between tables are not checked.", "Leave it out; joins need none.")
_UNIQUE = Refusal("UNIQUE", "A table has one key, its primary key.", "Declare the columns as PRIMARY KEY.")
_GENERATED = Refusal(
    "generated columns", "Columns hold what was inserted.", "Compute the value when inserting, or in a stream table."
)
_DEFAULT = Refusal("DEFAULT", "A column that is not given a value is NULL.", "Give the value when inserting.")

_COLUMN_REFUSALS = {
    "DEFAULT": _DEFAULT,
    "GENERATED": _GENERATED,
    "AS (": _GENERATED,
    "AUTO_INCREMENT": _GENERATED,
    "IDENTITY": _GENERATED,
    "CHECK": _CHECK,
    "FOREIGN KEY": _FOREIGN_KEY,
    "REFERENCES": _FOREIGN_KEY,
    "UNIQUE": _UNIQUE,
    "MASK": Refusal("MASK", "Every reader sees the same rows.", "Leave it out."),
}
_CONSTRAINT_REFUSALS = {
    "CHECK (": _CHECK,
    "FOREIGN KEY": _FOREIGN_KEY,
    "UNIQUE (": _UNIQUE,
}
_CONSTRAINT_WORDS = ("PRIMARY", "CHECK", "UNIQUE", "FOREIGN", "REFERENCES")
_LAYOUT = "Headwater lays out its files itself."
_TABLE_REFUSALS = {
    "PARTITIONED": Refusal("PARTITIONED BY", _LAYOUT, "Leave it out; files are skipped by their statistics."),
    "CLUSTERED": Refusal("CLUSTERED BY", _LAYOUT, "Leave it out; files are skipped by their statistics."),
    "CLUSTER": Refusal("CLUSTER BY", _LAYOUT, "Leave it out; files are skipped by their statistics."),
    "LOCATION": Refusal("LOCATION", "Every table is stored in the warehouse.", "Leave it out."),
    "STORED": Refusal("STORED AS", _LAYOUT, "Leave it out."),
    "ROW": Refusal("ROW FORMAT", _LAYOUT, "Leave it out."),
    "OPTIONS": Refusal("OPTIONS", _LAYOUT, "Leave it out."),
    "TBLPROPERTIES": Refusal("TBLPROPERTIES", "Tables have no free properties.", "Leave it out."),
    "LIKE": Refusal(
        "LIKE",
        "Columns are written out.",
        "Use CREATE TABLE new AS SELECT * FROM old WHERE false, or write the columns out.",
    ),
    "DEFAULT": Refusal("DEFAULT COLLATION", "A collation belongs to a column.", "Write the type STRING COLLATE name."),
    "WITH (": Refusal("WITH", "Tables have no options.", "Leave it out; options are for CREATE STREAM TABLE."),
}
_ALTER_REFUSALS = {
    "RENAME TO": Refusal(
        "RENAME TO",
        "Stream tables know their sources by name.",
        "CREATE TABLE new AS SELECT * FROM old copies the table.",
    ),
    "RENAME": Refusal(
        "RENAME COLUMN", "Stream tables know columns by name.", "Add a column and UPDATE it, or copy the table."
    ),
    "DROP": Refusal("DROP", "Stream tables may read the column.", "CREATE TABLE new AS SELECT the other columns."),
    "ALTER": Refusal(
        "ALTER COLUMN", "Types of stored columns are fixed.", "Add a column of the new type and UPDATE it."
    ),
    "CHANGE": Refusal(
        "CHANGE COLUMN", "Types of stored columns are fixed.", "Add a column of the new type and UPDATE it."
    ),
    "SET": Refusal("SET", "Tables have no properties.", "To change a stream table: ALTER STREAM TABLE name SET ..."),
    "ADD CONSTRAINT": Refusal("ADD CONSTRAINT", "Keys are declared at creation.", "CREATE TABLE new with the key."),
    "ADD PRIMARY KEY": Refusal("ADD PRIMARY KEY", "Keys are declared at creation.", "CREATE TABLE new with the key."),
    "ADD PARTITION": Refusal("ADD PARTITION", _LAYOUT, "INSERT the rows."),
    "REPLACE": Refusal(
        "REPLACE COLUMNS", "Types of stored columns are fixed.", "CREATE TABLE new AS SELECT ... FROM old."
    ),
}
_ADD_REFUSALS = {
    "IF NOT EXISTS": Refusal("ADD COLUMN IF NOT EXISTS", "Spark has no such clause.", "DESCRIBE the table first.")
}
_AFTER_TYPE = {"NOT", "NULL", "COMMENT", "PRIMARY", "CONSTRAINT", "FIRST", "AFTER"} | {
    phrase.split()[0] for phrase in _COLUMN_REFUSALS
}
"""What ends the type of a column."""
_TYPE_BRACKETS = {"(": ")", "<": ">"}
_OWN_FORMATS = ("delta", "headwater")


def read_create_table(cursor: Cursor) -> CreateTable:
    """Read CREATE TABLE, with columns or as a query."""
    cursor.statement, cursor.form = "CREATE TABLE", _CREATE_FORM
    cursor.expect("CREATE")
    or_replace = cursor.take("OR", "REPLACE")
    cursor.expect("TABLE")
    if_not_exists = read_if_not_exists(cursor, or_replace=or_replace)
    name = cursor.table_name()
    body = _read_body(cursor) if cursor.at("(") else _Body()
    comment = _read_table_clauses(cursor)
    at_query = cursor.token
    query: Fragment | None = None
    if cursor.take("AS"):
        if body.columns:
            raise cursor.wrong(
                "columns and a query",
                at=at_query,
                hint="With AS the columns are the query's; only (PRIMARY KEY (column, ...)) may stand before it.",
            )
        query = read_query(cursor)
    elif not body.columns:
        raise cursor.expected("a column list or AS and a query")
    return CreateTable(name, body.columns, body.key, if_not_exists, or_replace, comment, query)


def read_if_not_exists(cursor: Cursor, *, or_replace: bool) -> bool:
    """Read IF NOT EXISTS, which excludes OR REPLACE."""
    start = cursor.token
    if not cursor.take("IF", "NOT", "EXISTS"):
        return False
    if or_replace:
        raise cursor.wrong("OR REPLACE and IF NOT EXISTS exclude each other", at=start, hint="Keep one of the two.")
    return True


def read_drop_table(cursor: Cursor) -> DropTable:
    """Read DROP TABLE."""
    cursor.statement, cursor.form = "DROP TABLE", "DROP TABLE [IF EXISTS] name [CASCADE | RESTRICT]"
    cursor.expect("DROP", "TABLE")
    if_exists = cursor.take("IF", "EXISTS")
    return DropTable(cursor.table_name(), if_exists, read_cascade(cursor))


def read_cascade(cursor: Cursor) -> bool:
    """Read CASCADE or RESTRICT; without either it is RESTRICT."""
    cursor.refuse_any(
        {"PURGE": Refusal("PURGE", "Older versions may still be read.", "Leave it out; vacuum deletes files in time.")}
    )
    if cursor.take("RESTRICT"):
        return False
    return cursor.take("CASCADE")


def read_truncate(cursor: Cursor) -> TruncateTable:
    """Read TRUNCATE TABLE."""
    cursor.statement, cursor.form = "TRUNCATE TABLE", "TRUNCATE TABLE name"
    cursor.expect("TRUNCATE", "TABLE")
    name = cursor.table_name()
    cursor.refuse_any({"PARTITION": Refusal("PARTITION", _LAYOUT, "Use DELETE FROM name WHERE ...")})
    return TruncateTable(name)


def read_alter_table(cursor: Cursor) -> AlterTableAddColumns:
    """Read ALTER TABLE ADD COLUMN; every other change of a table is refused by its name."""
    cursor.statement, cursor.form = "ALTER TABLE", "ALTER TABLE name ADD COLUMNS (column type [COMMENT '...'], ...)"
    cursor.expect("ALTER", "TABLE")
    name = cursor.table_name()
    cursor.refuse_any(_ALTER_REFUSALS)
    cursor.expect("ADD")
    if not cursor.take("COLUMN") and not cursor.take("COLUMNS"):
        raise cursor.expected("COLUMN or COLUMNS")
    cursor.refuse_any(_ADD_REFUSALS)
    grouped = cursor.take("(")
    body = _read_items(cursor)
    if grouped:
        cursor.expect(")")
    if body.key_token is not None:
        raise cursor.refused(
            Refusal("PRIMARY KEY", "Keys are declared at creation.", "CREATE TABLE new with the key."),
            at=body.key_token,
        )
    return AlterTableAddColumns(name, body.columns)


def read_show(cursor: Cursor) -> ShowTables | ShowStreamTables:
    """Read SHOW TABLES and SHOW STREAM TABLES."""
    cursor.statement, cursor.form = "SHOW", "SHOW TABLES, or SHOW STREAM TABLES"
    cursor.expect("SHOW")
    is_stream = cursor.take("STREAM")
    if not cursor.take("TABLES"):
        raise cursor.expected("TABLES" if is_stream else "TABLES or STREAM TABLES")
    everything = Refusal("a filter", "It lists all tables.", "Leave it out and filter the result.")
    cursor.refuse_any(dict.fromkeys(("LIKE", "IN", "FROM", "WHERE"), everything))
    return ShowStreamTables() if is_stream else ShowTables()


def read_describe(cursor: Cursor) -> DescribeTable:
    """Read DESCRIBE of a table of either kind."""
    cursor.statement, cursor.form = "DESCRIBE", "DESCRIBE [TABLE] name"
    cursor.step()
    if not cursor.take("STREAM", "TABLE") and cursor.has_name(1):
        cursor.take("TABLE")
    for word in ("EXTENDED", "FORMATTED", "HISTORY", "DETAIL"):
        if cursor.at(word) and cursor.has_name(1):
            raise cursor.refused(
                Refusal(
                    word, "It lists the columns.", "Leave it out; `headwater status` and `headwater history` say more."
                )
            )
    if cursor.at("QUERY") or cursor.at("SELECT"):
        raise cursor.refused(
            Refusal(
                "queries", "It lists the columns of a table.", "Run the query and ask its DataFrame for the schema."
            )
        )
    return DescribeTable(cursor.table_name())


# -- columns -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Body:
    """Column definitions and the key; `key_token` is where the key was declared."""

    columns: tuple[ColumnDefinition, ...] = ()
    key: tuple[str, ...] = ()
    key_token: Token | None = None


def _read_body(cursor: Cursor) -> _Body:
    cursor.expect("(")
    body = _read_items(cursor)
    if not cursor.take(")"):
        raise cursor.expected('"," or ")"')
    return body


def _read_items(cursor: Cursor) -> _Body:
    """Read columns and constraints separated by commas."""
    columns: list[ColumnDefinition] = []
    key: list[tuple[str, Token]] = []
    key_token: Token | None = None
    while True:
        start = cursor.token
        declared = _read_key_constraint(cursor)
        if not declared:
            column, is_key = _read_column(cursor)
            if any(column.name.casefold() == other.name.casefold() for other in columns):
                raise cursor.wrong(
                    f'column "{column.name}" is defined twice', at=start, hint="Give each column its own name."
                )
            columns.append(column)
            declared = [(column.name, start)] if is_key else []
        if declared and key:
            raise cursor.wrong(
                "there are two primary keys", at=start, hint="Several key columns are one PRIMARY KEY (a, b)."
            )
        if declared:
            key, key_token = declared, start
        if not cursor.take(","):
            return _with_key(cursor, columns, key, key_token)


def _with_key(
    cursor: Cursor, columns: list[ColumnDefinition], key: list[tuple[str, Token]], key_token: Token | None
) -> _Body:
    """Give key columns the spelling of their definition, and make them NOT NULL. Without columns, a query has them."""
    spelling = {column.name.casefold(): column.name for column in columns}
    names: list[str] = []
    for name, token in key:
        if columns and name.casefold() not in spelling:
            raise cursor.wrong(
                f'key column "{name}" is not a column', at=token, hint=f"Columns are {', '.join(spelling.values())}."
            )
        if name.casefold() in (other.casefold() for other in names):
            raise cursor.wrong(f'key column "{name}" is named twice', at=token, hint="Name each key column once.")
        names.append(spelling.get(name.casefold(), name))
    definitions = tuple(replace(c, nullable=False) if c.name in names else c for c in columns)
    return _Body(definitions, tuple(names), key_token)


def _read_key_constraint(cursor: Cursor) -> list[tuple[str, Token]]:
    """Read `[CONSTRAINT name] PRIMARY KEY (a, b)`; refuse other constraints; leave a column alone."""
    if cursor.at("CONSTRAINT") and cursor.has_name(1) and cursor.key(2) in _CONSTRAINT_WORDS:
        cursor.step()
        cursor.step()
        cursor.refuse_any(_COLUMN_REFUSALS)
    cursor.refuse_any(_CONSTRAINT_REFUSALS)
    if not cursor.take("PRIMARY", "KEY"):
        return []
    cursor.expect("(")
    names: list[tuple[str, Token]] = []
    while True:
        token = cursor.token
        names.append((cursor.name("a key column"), token))
        if not cursor.take(","):
            break
    if not cursor.take(")"):
        raise cursor.expected('"," or ")"')
    _refuse_key_options(cursor)
    return names


def _read_column(cursor: Cursor) -> tuple[ColumnDefinition, bool]:
    """Read `name type [NOT NULL] [PRIMARY KEY] [COMMENT '...']`; also say whether it is the key."""
    name = cursor.name("a column name")
    column = ColumnDefinition(name, _read_type(cursor, name))
    is_key = False
    while not cursor.is_at_end() and cursor.key() not in (",", ")"):
        cursor.refuse_any(_COLUMN_REFUSALS)
        if cursor.at("CONSTRAINT") and cursor.has_name(1):
            cursor.step()
            cursor.step()
            if cursor.key() not in _CONSTRAINT_WORDS:
                raise cursor.expected("PRIMARY KEY")
        elif cursor.take("NOT", "NULL"):
            column = replace(column, nullable=False)
        elif cursor.take("COMMENT"):
            column = replace(column, comment=cursor.string("the comment as a string"))
        elif cursor.take("PRIMARY", "KEY"):
            is_key = True
            _refuse_key_options(cursor)
        elif cursor.key() in ("FIRST", "AFTER"):
            raise cursor.refused(Refusal(cursor.key(), "A new column is the last one.", "Leave it out."))
        else:
            raise cursor.expected('NOT NULL, PRIMARY KEY, COMMENT, "," or ")"')
    return column, is_key


def _read_type(cursor: Cursor, column: str) -> Fragment:
    """Cut out a type: up to an option, a comma or a closing parenthesis outside `<...>` and `(...)`."""
    first = cursor.token
    if first.kind is not TokenKind.WORD or first.key in _AFTER_TYPE:
        raise cursor.expected(f'the type of column "{column}"')
    opened: list[Token] = []
    while not cursor.is_at_end():
        key = cursor.key()
        if not opened and (key in (",", ")") or key in _AFTER_TYPE):
            break
        if key in (")", ">"):
            if not opened:
                raise cursor.wrong(f'"{key}" closes nothing', hint="Write types as in ARRAY<INT> or DECIMAL(12, 2).")
            if _TYPE_BRACKETS[opened[-1].key] != key:
                break
            opened.pop()
        elif key in _TYPE_BRACKETS:
            opened.append(cursor.token)
        cursor.step()
    if opened:
        closing = _TYPE_BRACKETS[opened[-1].key]
        problem = f'"{opened[-1].key}" is not closed by "{closing}"'
        raise cursor.wrong(problem, at=opened[-1], hint=f"Add the missing {closing}.")
    return cursor.between(first)


def _refuse_key_options(cursor: Cursor) -> None:
    checked = Refusal("an unchecked key", "A key is always checked.", "Leave out NOT ENFORCED and RELY.")
    cursor.refuse_any({"NOT ENFORCED": checked, "RELY": checked, "NORELY": checked})


def _read_table_clauses(cursor: Cursor) -> str | None:
    """Read USING and COMMENT, refuse the others; return the comment."""
    comment: str | None = None
    while True:
        cursor.refuse_any(_TABLE_REFUSALS)
        if cursor.at("USING"):
            cursor.step()
            token = cursor.token
            if cursor.name("a format").casefold() not in _OWN_FORMATS:
                refusal = Refusal(
                    f"USING {token.text}", _LAYOUT, "Leave it out; every table can be opened as a Delta table."
                )
                raise cursor.refused(refusal, at=token)
        elif cursor.take("COMMENT"):
            comment = cursor.string("the comment as a string")
        else:
            return comment
