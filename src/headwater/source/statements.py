"""What a user can say in SQL, as frozen records: one class per statement.

Queries and expressions belong to Catalyst. Here they are `Fragment`s: exactly the characters the user wrote, with the place where
they stood. Nothing is ever rendered again from a parsed form.

A fragment starts and ends with a token, so no comment hangs over its end, and its parentheses are balanced: `(` + fragment + `)`
means the same thing wherever it is put. Put expressions in parentheses; that alone keeps `a OR b` together.

Names have lost their backticks. `TableName.quoted` and `quoted_name` put them back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from headwater.model.names import TableName
from headwater.model.tables import RefreshMode


@dataclass(frozen=True, slots=True)
class Fragment:
    """A verbatim piece of a larger text. `start` is its offset there, `line` and `column` count from 1."""

    text: str
    start: int = 0
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return self.text

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    def piece(self, start: int, end: int) -> Fragment:
        """Return the part between two offsets into this text, placed in the larger text."""
        before = self.text[:start]
        newlines = before.count("\n")
        column = len(before) - before.rfind("\n") if newlines else self.column + start
        return Fragment(self.text[start:end], self.start + start, self.line + newlines, column)


# -- tables ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """A column of a new table. `type` is Spark DDL as written; a key column is never nullable."""

    name: str
    type: Fragment
    nullable: bool = True
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class CreateTable:
    """`CREATE TABLE name (columns, PRIMARY KEY (...))`, or `CREATE TABLE name [(PRIMARY KEY (...))] AS query`.

    With a query there are no columns: they are the query's.
    """

    name: TableName
    columns: tuple[ColumnDefinition, ...]
    primary_key: tuple[str, ...] = ()
    if_not_exists: bool = False
    or_replace: bool = False
    comment: str | None = None
    query: Fragment | None = None


@dataclass(frozen=True, slots=True)
class DropTable:
    """`DROP TABLE [IF EXISTS] name [CASCADE]`."""

    name: TableName
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class TruncateTable:
    """`TRUNCATE TABLE name`."""

    name: TableName


@dataclass(frozen=True, slots=True)
class AlterTableAddColumns:
    """`ALTER TABLE name ADD COLUMN column type`, `ADD COLUMNS (...)`."""

    name: TableName
    columns: tuple[ColumnDefinition, ...]


# -- rows ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assignment:
    """`column = value` of a SET clause. The column is a plain name: the table or its alias before it has been removed."""

    column: str
    value: Fragment


@dataclass(frozen=True, slots=True)
class Insert:
    """`INSERT INTO table [(columns) | BY NAME] source`; the source is a query or `VALUES ...`."""

    table: TableName
    columns: tuple[str, ...] | None
    source: Fragment
    by_name: bool = False


@dataclass(frozen=True, slots=True)
class Update:
    """`UPDATE table [alias] SET assignments [WHERE where]`."""

    table: TableName
    alias: str | None
    assignments: tuple[Assignment, ...]
    where: Fragment | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """`DELETE FROM table [alias] [WHERE where]`."""

    table: TableName
    alias: str | None = None
    where: Fragment | None = None


class MergeKind(Enum):
    """Which rows a clause of MERGE is about."""

    MATCHED = "WHEN MATCHED"
    NOT_MATCHED = "WHEN NOT MATCHED"
    """Source rows without a target row."""
    NOT_MATCHED_BY_SOURCE = "WHEN NOT MATCHED BY SOURCE"
    """Target rows without a source row."""


class MergeAction(Enum):
    """What a clause of MERGE does."""

    UPDATE = "UPDATE"
    DELETE = "DELETE"
    INSERT = "INSERT"


MERGE_ACTIONS: dict[MergeKind, tuple[MergeAction, ...]] = {
    MergeKind.MATCHED: (MergeAction.UPDATE, MergeAction.DELETE),
    MergeKind.NOT_MATCHED: (MergeAction.INSERT,),
    MergeKind.NOT_MATCHED_BY_SOURCE: (MergeAction.UPDATE, MergeAction.DELETE),
}
"""What each kind of clause may do."""


@dataclass(frozen=True, slots=True)
class MergeClause:
    """One WHEN clause. `star`: `UPDATE SET *` or `INSERT *`; otherwise assignments, or columns with as many values."""

    kind: MergeKind
    action: MergeAction
    condition: Fragment | None = None
    star: bool = False
    assignments: tuple[Assignment, ...] = ()
    insert_columns: tuple[str, ...] = ()
    insert_values: tuple[Fragment, ...] = ()

    def __post_init__(self) -> None:
        if self.action not in MERGE_ACTIONS[self.kind]:
            raise ValueError(f"{self.kind.value} cannot {self.action.value}")
        if len(self.insert_columns) != len(self.insert_values):
            raise ValueError("as many insert columns as values")


@dataclass(frozen=True, slots=True)
class Merge:
    """`MERGE INTO target USING source ON condition WHEN ...`.

    `source` can stand after FROM: a table's name as written, then `source_name` is set, or a query with its parentheses.
    """

    target: TableName
    target_alias: str | None
    source: Fragment
    source_name: TableName | None
    source_alias: str | None
    on: Fragment
    clauses: tuple[MergeClause, ...]


# -- stream tables ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateStreamTable:
    """`CREATE [OR REPLACE] STREAM TABLE name [SCHEDULE '...'] [REFRESH MODE ...] [WITH (key = value)] AS query`.

    What was not said is None. Keys of options are lower case; values are text, whatever they were in SQL.
    """

    name: TableName
    query: Fragment
    schedule: str | None = None
    mode: RefreshMode | None = None
    options: dict[str, str] = field(default_factory=dict)
    if_not_exists: bool = False
    or_replace: bool = False


@dataclass(frozen=True, slots=True)
class AlterStreamTable:
    """`ALTER STREAM TABLE name [SET SCHEDULE '...'] [SET REFRESH MODE ...] [SET (key = value)] [AS query]`.

    None, or no options: as it was. At least one thing changes.
    """

    name: TableName
    schedule: str | None = None
    mode: RefreshMode | None = None
    options: dict[str, str] = field(default_factory=dict)
    query: Fragment | None = None


@dataclass(frozen=True, slots=True)
class DropStreamTable:
    """`DROP STREAM TABLE [IF EXISTS] name [CASCADE]`."""

    name: TableName
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class RefreshStreamTable:
    """`REFRESH STREAM TABLE name`, or `REFRESH ALL STREAM TABLES`: then there is no name."""

    name: TableName | None


@dataclass(frozen=True, slots=True)
class ExplainStreamTable:
    """`EXPLAIN STREAM TABLE name`."""

    name: TableName


# -- reading ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShowTables:
    """`SHOW TABLES`."""


@dataclass(frozen=True, slots=True)
class ShowStreamTables:
    """`SHOW STREAM TABLES`."""


@dataclass(frozen=True, slots=True)
class DescribeTable:
    """`DESCRIBE [TABLE] name`."""

    name: TableName


@dataclass(frozen=True, slots=True)
class Query:
    """SELECT, WITH, VALUES, FROM, TABLE, or one of them in parentheses."""

    text: Fragment


Statement = (
    CreateTable
    | DropTable
    | TruncateTable
    | AlterTableAddColumns
    | Insert
    | Update
    | Delete
    | Merge
    | CreateStreamTable
    | AlterStreamTable
    | DropStreamTable
    | RefreshStreamTable
    | ExplainStreamTable
    | ShowTables
    | ShowStreamTables
    | DescribeTable
    | Query
)
