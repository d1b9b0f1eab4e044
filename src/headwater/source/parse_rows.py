"""Statements about rows: queries, INSERT, UPDATE, DELETE and MERGE."""

from __future__ import annotations

from collections.abc import Callable

from headwater.source.cursor import Cursor, Refusal
from headwater.source.statements import (
    MERGE_ACTIONS,
    Assignment,
    Delete,
    Fragment,
    Insert,
    Merge,
    MergeAction,
    MergeClause,
    MergeKind,
    Update,
)
from headwater.source.tokens import Token

QUERY_WORDS = ("SELECT", "WITH", "VALUES", "FROM", "TABLE", "(")
"""What a query can begin with."""

_MERGE_HINT = "Use MERGE INTO name USING other ON ... WHEN MATCHED THEN ..."
_LATER_CLAUSES = {
    "ORDER BY": Refusal("ORDER BY", "Rows of a table have no order.", "Leave it out."),
    "LIMIT": Refusal("LIMIT", "Which rows it would take is left to chance.", "Say in WHERE which rows are meant."),
    "RETURNING": Refusal(
        "RETURNING", "The change is read from the table's versions.", "SELECT the rows before or after."
    ),
    "USING": Refusal("USING", "It reads one table.", _MERGE_HINT),
    "FROM": Refusal("FROM", "It reads one table.", _MERGE_HINT),
}
"""Clauses of other dialects after SET or WHERE."""

_INSERT_REFUSALS = {
    "OVERWRITE": Refusal(
        "OVERWRITE",
        "It would replace the table without naming the rows.",
        "Use TRUNCATE TABLE and INSERT INTO, or MERGE.",
    ),
    "OR": Refusal("OR REPLACE", "INSERT only adds rows.", "Use MERGE, or upsert() from Python."),
    "IGNORE": Refusal("IGNORE", "A row that violates the key is an error.", "Use MERGE with WHEN NOT MATCHED."),
}
_CONFLICT = Refusal("ON CONFLICT", "INSERT only adds rows.", "Use MERGE, or upsert() from Python.")
_CONFLICTS = dict.fromkeys(("ON CONFLICT (", "ON CONFLICT DO", "ON CONFLICT ON", "ON DUPLICATE KEY"), _CONFLICT)
_AFTER_TABLE_REFUSALS = {
    "PARTITION": Refusal("PARTITION", "Tables are not partitioned.", "Leave it out."),
    "REPLACE": Refusal("REPLACE WHERE", "INSERT only adds rows.", "Use DELETE and INSERT, or MERGE."),
    "DEFAULT VALUES": Refusal("DEFAULT VALUES", "Columns have no defaults.", "Write VALUES (...)."),
}
_WITH_BEFORE = Refusal(
    "WITH before it", "WITH belongs to a query.", "Use INSERT INTO name WITH ..., or MERGE INTO name USING (WITH ...)."
)
_INSERT_AFTER_FROM = Refusal(
    "INSERT after FROM", "A statement writes one table.", "Use INSERT INTO name SELECT ... FROM ..."
)
_CHANGING_WORDS = ("INSERT", "UPDATE", "DELETE", "MERGE")


def read_query(cursor: Cursor) -> Fragment:
    """Cut out a query: everything up to the end of the statement."""
    if cursor.key() not in QUERY_WORDS:
        raise cursor.expected("a query", hint="A query begins with SELECT, WITH, VALUES, FROM, TABLE or a parenthesis.")
    changing = _changing_word(cursor)
    if changing is not None:
        cursor.statement = changing.key
        raise cursor.refused(_WITH_BEFORE, at=changing)
    is_from = cursor.at("FROM")

    def is_stop() -> bool:
        if is_from and (cursor.at("INSERT", "INTO") or cursor.at("INSERT", "OVERWRITE")):
            raise cursor.refused(_INSERT_AFTER_FROM)
        return False

    return cursor.query(is_stop)


def _changing_word(cursor: Cursor) -> Token | None:
    """Return the INSERT, UPDATE, DELETE or MERGE that follows the common table expressions of a WITH clause, if one does."""
    if not cursor.at("WITH"):
        return None
    ahead = cursor.ahead()
    ahead.step()
    ahead.take("RECURSIVE")
    while ahead.has_name():
        while not ahead.is_at_end() and not ahead.at("AS", "("):
            ahead.step()
        ahead.take("AS")
        if not ahead.at("("):
            return None
        ahead.group("a query")
        if not ahead.take(","):
            return ahead.token if ahead.key() in _CHANGING_WORDS else None
    return None


def read_insert(cursor: Cursor) -> Insert:
    """Read INSERT INTO."""
    cursor.statement, cursor.form = "INSERT", "INSERT INTO name [(column, ...) | BY NAME] query or VALUES (...), ..."
    cursor.expect("INSERT")
    cursor.refuse_any(_INSERT_REFUSALS)
    cursor.expect("INTO")
    if cursor.has_name(1):
        cursor.take("TABLE")
    table = cursor.table_name()
    cursor.refuse_any(_AFTER_TABLE_REFUSALS)
    columns = _read_columns(cursor) if _has_columns(cursor) else None
    by_name = cursor.take("BY", "NAME")
    if by_name and columns is not None:
        raise cursor.wrong("a column list and BY NAME exclude each other", hint="Keep one of the two.")
    if cursor.key() not in QUERY_WORDS:
        raise cursor.expected("VALUES or a query")
    if cursor.at("(") and cursor.key(1) not in QUERY_WORDS:
        raise cursor.expected("a column list or a query")

    def is_stop() -> bool:
        cursor.refuse_any(_CONFLICTS)
        return False

    return Insert(table, columns, cursor.query(is_stop), by_name)


def _has_columns(cursor: Cursor) -> bool:
    """Tell a column list from a query in parentheses: names and commas only."""
    if not cursor.at("("):
        return False
    ahead = 1
    while cursor.has_name(ahead) and cursor.key(ahead + 1) == ",":
        ahead += 2
    return (cursor.has_name(ahead) and cursor.key(ahead + 1) == ")") or ahead > 1


def _read_columns(cursor: Cursor) -> tuple[str, ...]:
    cursor.expect("(")
    names: list[str] = []
    while True:
        token = cursor.token
        name = cursor.name("a column name")
        if name.casefold() in (other.casefold() for other in names):
            raise cursor.wrong(f'column "{name}" is named twice', at=token, hint="Name each column once.")
        names.append(name)
        if not cursor.take(","):
            break
    if not cursor.take(")"):
        raise cursor.expected('"," or ")"')
    return tuple(names)


def read_update(cursor: Cursor) -> Update:
    """Read UPDATE."""
    cursor.statement, cursor.form = "UPDATE", "UPDATE name [alias] SET column = value, ... [WHERE condition]"
    cursor.expect("UPDATE")
    table = cursor.table_name()
    alias = cursor.alias("SET", "WHERE")
    cursor.expect("SET")

    def is_stop() -> bool:
        _refuse_later_clauses(cursor)
        return cursor.at("WHERE")

    assignments = _read_assignments(cursor, (alias or table.last, table.last), is_stop)
    return Update(table, alias, assignments, _read_where(cursor))


def read_delete(cursor: Cursor) -> Delete:
    """Read DELETE."""
    cursor.statement, cursor.form = "DELETE", "DELETE FROM name [alias] [WHERE condition]"
    cursor.expect("DELETE", "FROM")
    table = cursor.table_name()
    alias = cursor.alias("WHERE", "USING", "LIMIT", "ORDER", "RETURNING")
    _refuse_later_clauses(cursor)
    return Delete(table, alias, _read_where(cursor))


def _read_where(cursor: Cursor) -> Fragment | None:
    if not cursor.take("WHERE"):
        return None

    def is_stop() -> bool:
        _refuse_later_clauses(cursor)
        return False

    return cursor.expression("a condition", is_stop)


def _refuse_later_clauses(cursor: Cursor) -> None:
    """A column may be called limit or returning; after a value the word begins a clause."""
    if cursor.follows_value:
        cursor.refuse_any(_LATER_CLAUSES)


def _read_assignments(
    cursor: Cursor, qualifiers: tuple[str, ...], is_stop: Callable[[], bool]
) -> tuple[Assignment, ...]:
    """Read `column = value, ...`; a column may carry one of the qualifiers."""
    assignments: list[Assignment] = []
    while True:
        start = cursor.token
        column = _read_assigned_column(cursor, qualifiers)
        if column.casefold() in (other.column.casefold() for other in assignments):
            raise cursor.wrong(f'column "{column}" is assigned twice', at=start, hint="Assign each column once.")
        if not cursor.take("=") and not cursor.take("=="):
            raise cursor.expected('"="')
        assignments.append(Assignment(column, cursor.expression("a value", lambda: cursor.at(",") or is_stop())))
        if not cursor.take(","):
            return tuple(assignments)


def _read_assigned_column(cursor: Cursor, qualifiers: tuple[str, ...]) -> str:
    start = cursor.token
    parts = [cursor.name("a column name")]
    while cursor.take("."):
        parts.append(cursor.name("a column name"))
    known = {qualifier.casefold() for qualifier in qualifiers}
    if len(parts) == 1:
        return parts[0]
    if len(parts) == 2 and parts[0].casefold() in known:
        return parts[1]
    refusal = Refusal(
        f"assigning to {'.'.join(parts)}",
        "A whole column of the table is assigned.",
        f"Name the column alone, or as {qualifiers[0]}.column; rebuild a struct by named_struct(...).",
    )
    raise cursor.refused(refusal, at=start)


# -- MERGE -------------------------------------------------------------------------------------------------------------------

_MERGE_FORM = (
    "MERGE INTO target [alias] USING source [alias] ON condition "
    "WHEN MATCHED [AND condition] THEN UPDATE SET ... | DELETE "
    "WHEN NOT MATCHED [AND condition] THEN INSERT (...) VALUES (...) "
    "WHEN NOT MATCHED BY SOURCE [AND condition] THEN UPDATE SET ... | DELETE"
)
_SCHEMA_EVOLUTION = Refusal(
    "WITH SCHEMA EVOLUTION", "Columns are added by name.", "Use ALTER TABLE name ADD COLUMN first."
)
_COLUMN_ALIASES = Refusal(
    "column aliases", "Spark has none here.", "Name the columns inside the query: SELECT 1 AS id."
)
_NOTHING = Refusal("DO NOTHING", "Rows that no clause names stay as they are.", "Leave the clause out.")


def read_merge(cursor: Cursor) -> Merge:
    """Read MERGE INTO with all its clauses."""
    cursor.statement, cursor.form = "MERGE", _MERGE_FORM
    cursor.expect("MERGE")
    cursor.refuse_any({"WITH SCHEMA EVOLUTION": _SCHEMA_EVOLUTION})
    cursor.expect("INTO")
    target = cursor.table_name()
    target_alias = cursor.alias("USING")
    cursor.expect("USING")
    first = cursor.token
    if cursor.at("("):
        if cursor.key(1) not in QUERY_WORDS:
            raise cursor.expected('a table name or "(" and a query')
        cursor.group("a query")
        source_name = None
    else:
        source_name = cursor.table_name()
    source = cursor.between(first)
    source_alias = cursor.alias("ON", "WHEN")
    if cursor.at("("):
        raise cursor.refused(_COLUMN_ALIASES)
    cursor.expect("ON")
    on = cursor.expression("a condition", lambda: _is_at_clause(cursor))
    clauses = _read_clauses(cursor, (target_alias or target.last, target.last))
    return Merge(target, target_alias, source, source_name, source_alias, on, clauses)


def _is_at_clause(cursor: Cursor) -> bool:
    return cursor.at("WHEN", "MATCHED") or cursor.at("WHEN", "NOT", "MATCHED")


def _read_clauses(cursor: Cursor, qualifiers: tuple[str, ...]) -> tuple[MergeClause, ...]:
    """Read WHEN clauses. A clause without a condition leaves nothing to a later one of its kind."""
    clauses: list[MergeClause] = []
    while cursor.at("WHEN"):
        start = cursor.token
        clause = _read_clause(cursor, qualifiers)
        if any(earlier.kind is clause.kind and earlier.condition is None for earlier in clauses):
            raise cursor.wrong(
                f"an earlier {clause.kind.value} takes all rows",
                at=start,
                hint="Give every clause of a kind but the last a condition: AND ...",
            )
        clauses.append(clause)
    if not clauses:
        raise cursor.expected("WHEN MATCHED or WHEN NOT MATCHED")
    return tuple(clauses)


def _read_clause(cursor: Cursor, qualifiers: tuple[str, ...]) -> MergeClause:
    cursor.expect("WHEN")
    kind = _read_kind(cursor)
    condition = cursor.expression("a condition", lambda: cursor.at("THEN")) if cursor.take("AND") else None
    cursor.expect("THEN")
    start = cursor.token
    cursor.refuse_any({"DO NOTHING": _NOTHING})
    allowed = MERGE_ACTIONS[kind]
    action = next((action for action in MergeAction if cursor.take(action.value)), None)
    if action is None or action not in allowed:
        raise cursor.expected(f"{' or '.join(a.value for a in allowed)} after {kind.value}", at=start)
    if action is MergeAction.DELETE:
        return MergeClause(kind, action, condition)
    if action is MergeAction.UPDATE:
        cursor.expect("SET")
    if cursor.at("*"):
        if kind is MergeKind.NOT_MATCHED_BY_SOURCE:
            raise cursor.expected("column = value: there is no source row to take values from")
        cursor.step()
        return MergeClause(kind, action, condition, star=True)
    if action is MergeAction.UPDATE:
        assignments = _read_assignments(cursor, qualifiers, lambda: _is_at_clause(cursor))
        return MergeClause(kind, action, condition, assignments=assignments)
    columns, values = _read_insert_lists(cursor, start)
    return MergeClause(kind, action, condition, insert_columns=columns, insert_values=values)


def _read_kind(cursor: Cursor) -> MergeKind:
    if cursor.take("MATCHED"):
        return MergeKind.MATCHED
    if not cursor.take("NOT", "MATCHED"):
        raise cursor.expected("MATCHED or NOT MATCHED")
    if cursor.take("BY", "SOURCE"):
        return MergeKind.NOT_MATCHED_BY_SOURCE
    if cursor.take("BY") and not cursor.take("TARGET"):
        raise cursor.expected("SOURCE or TARGET")
    return MergeKind.NOT_MATCHED


def _read_insert_lists(cursor: Cursor, start: Token) -> tuple[tuple[str, ...], tuple[Fragment, ...]]:
    if not cursor.at("("):
        raise cursor.expected('"*" or a column list')
    columns = _read_columns(cursor)
    cursor.expect("VALUES")
    cursor.expect("(")
    values: list[Fragment] = []
    while True:
        values.append(cursor.expression("a value", lambda: cursor.at(",")))
        if not cursor.take(","):
            break
    if not cursor.take(")"):
        raise cursor.expected('"," or ")"')
    if len(columns) != len(values):
        raise cursor.wrong(
            f"INSERT names {len(columns)} columns and {len(values)} values",
            at=start,
            hint="Give each column one value.",
        )
    return columns, tuple(values)
