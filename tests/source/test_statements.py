"""Statements as records: what each accepted form becomes, and what its refused neighbours say."""

from __future__ import annotations

import pytest
from tests.support.statements import cut, refusal

from headwater.errors import StatementError
from headwater.model.names import TableName
from headwater.model.tables import RefreshMode
from headwater.source.parse import read_statement, split_script
from headwater.source.statements import (
    AlterStreamTable,
    AlterTableAddColumns,
    ColumnDefinition,
    CreateStreamTable,
    CreateTable,
    DescribeTable,
    DropStreamTable,
    DropTable,
    ExplainStreamTable,
    Fragment,
    Query,
    RefreshStreamTable,
    ShowStreamTables,
    ShowTables,
    TruncateTable,
)

T, S = TableName(("t",)), TableName(("s",))


def column(sql: str, name: str, type_text: str, nullable: bool = True, comment: str | None = None) -> ColumnDefinition:
    start = sql.index(type_text, sql.index(name) + len(name))
    return ColumnDefinition(name, Fragment(sql).piece(start, start + len(type_text)), nullable, comment)


class TestCreateTable:
    def test_columns_and_a_key_on_a_column(self) -> None:
        sql = "CREATE TABLE shop.orders (id BIGINT PRIMARY KEY, region STRING, amount DECIMAL(12,2) NOT NULL COMMENT 'it''s')"
        assert read_statement(sql) == CreateTable(
            TableName(("shop", "orders")),
            (
                column(sql, "id", "BIGINT", nullable=False),
                column(sql, "region", "STRING"),
                column(sql, "amount", "DECIMAL(12,2)", nullable=False, comment="it's"),
            ),
            ("id",),
        )

    def test_a_key_of_several_columns_has_their_spelling_and_makes_them_not_null(self) -> None:
        sql = (
            "create or replace table `t` (A int, `b c` string, v int, constraint pk primary key (`B C`, a)) "
            "comment 'x' using delta"
        )
        statement = read_statement(sql)
        assert isinstance(statement, CreateTable)
        assert statement.primary_key == ("b c", "A")
        assert [c.nullable for c in statement.columns] == [False, False, True]
        assert (statement.or_replace, statement.if_not_exists, statement.comment) == (True, False, "x")

    def test_types_are_kept_as_written(self) -> None:
        types = [
            "MAP<STRING, STRUCT<a: INT NOT NULL COMMENT 'x, )', `b>`: ARRAY<ARRAY<INT>>>>",
            "STRUCT<>",
            "DECIMAL ( 12 , 2 )",
            "INTERVAL DAY TO SECOND",
            "STRING COLLATE UTF8_LCASE",
            "TIMESTAMP /* zone */ _NTZ",
        ]
        sql = "CREATE TABLE IF NOT EXISTS t (" + ", ".join(f"c{i} {t} NOT NULL" for i, t in enumerate(types)) + ")"
        statement = read_statement(sql)
        assert isinstance(statement, CreateTable)
        assert statement.if_not_exists
        assert [c.type.text for c in statement.columns] == types

    def test_a_query_instead_of_columns(self) -> None:
        sql = "CREATE TABLE t AS WITH q AS (SELECT ';' x) SELECT * FROM q -- the end"
        assert read_statement(sql) == CreateTable(T, (), query=cut(sql, "WITH q AS (SELECT ';' x) SELECT * FROM q"))

    def test_a_key_and_a_query(self) -> None:
        sql = "CREATE TABLE t (PRIMARY KEY (x)) USING headwater AS SELECT 1 AS x"
        assert read_statement(sql) == CreateTable(T, (), ("x",), query=cut(sql, "SELECT 1 AS x"))

    def test_columns_may_be_called_like_clauses(self) -> None:
        statement = read_statement(
            "CREATE TABLE t (primary INT, check STRING, unique INT, foreign INT, constraint INT)"
        )
        assert isinstance(statement, CreateTable)
        assert [c.name for c in statement.columns] == ["primary", "check", "unique", "foreign", "constraint"]

    @pytest.mark.parametrize(
        ("clause", "what"),
        [
            ("(a INT DEFAULT 5)", "DEFAULT"),
            ("(a INT GENERATED ALWAYS AS (b + 1))", "generated columns"),
            ("(a INT CHECK (a > 0))", "CHECK"),
            ("(a INT, CHECK (a > 0))", "CHECK"),
            ("(a INT, CONSTRAINT c CHECK (a > 0))", "CHECK"),
            ("(a INT UNIQUE)", "UNIQUE"),
            ("(a INT, UNIQUE (a))", "UNIQUE"),
            ("(a INT REFERENCES u (b))", "FOREIGN KEY"),
            ("(a INT, FOREIGN KEY (a) REFERENCES u (b))", "FOREIGN KEY"),
            ("(a INT, CONSTRAINT f FOREIGN KEY (a) REFERENCES u (b))", "FOREIGN KEY"),
            ("(a INT PRIMARY KEY NOT ENFORCED)", "an unchecked key"),
            ("(a INT) PARTITIONED BY (a)", "PARTITIONED BY"),
            ("(a INT) CLUSTER BY (a)", "CLUSTER BY"),
            ("(a INT) LOCATION '/x'", "LOCATION"),
            ("(a INT) STORED AS ORC", "STORED AS"),
            ("(a INT) TBLPROPERTIES ('x' = 'y')", "TBLPROPERTIES"),
            ("(a INT) USING parquet", "USING parquet"),
            ("(a INT) WITH (x = 1)", "WITH"),
            ("LIKE u", "LIKE"),
        ],
    )
    def test_refused_by_name(self, clause: str, what: str) -> None:
        error = refusal(f"CREATE TABLE t {clause}")
        assert error.message == f"CREATE TABLE does not support {what}"
        assert error.hint

    @pytest.mark.parametrize(
        ("sql", "problem"),
        [
            ("CREATE TABLE t", "expected a column list or AS and a query, found the end of the text"),
            ("CREATE TABLE t ()", 'expected a column name, found ")"'),
            ("CREATE TABLE t (a)", 'expected the type of column "a", found ")"'),
            ("CREATE TABLE t (a NOT NULL)", 'expected the type of column "a", found "NOT"'),
            ("CREATE TABLE t (a INT", 'expected "," or ")", found the end of the text'),
            ("CREATE TABLE t (a INT,)", 'expected a column name, found ")"'),
            ("CREATE TABLE t (a INT NULL)", 'expected NOT NULL, PRIMARY KEY, COMMENT, "," or ")", found "NULL"'),
            ("CREATE TABLE t (a ARRAY<INT)", '"<" is not closed by ">"'),
            ("CREATE TABLE t (a INT> NOT NULL)", '">" closes nothing'),
            ("CREATE TABLE t (a DECIMAL(12, 2)", 'expected "," or ")", found the end of the text'),
            ("CREATE TABLE t (a INT, A INT)", 'column "A" is defined twice'),
            ("CREATE TABLE t (a INT, PRIMARY KEY (b))", 'key column "b" is not a column'),
            ("CREATE TABLE t (a INT, PRIMARY KEY (a, A))", 'key column "A" is named twice'),
            ("CREATE TABLE t (a INT PRIMARY KEY, b INT PRIMARY KEY)", "there are two primary keys"),
            ("CREATE TABLE t (a INT) AS SELECT 1", "columns and a query"),
            ("CREATE TABLE t AS DELETE FROM u", 'expected a query, found "DELETE"'),
            ("CREATE TABLE 't' (a INT)", "expected a table name, found \"'t'\""),
            ("CREATE TABLE a. (a INT)", 'expected the next part of the table name, found "("'),
            ("CREATE TABLE größe (a INT)", 'expected a table name, found "größe"'),
            ("CREATE TABLE t (a INT) x", 'expected the end of the statement, found "x"'),
            ("CREATE OR REPLACE TABLE IF NOT EXISTS t (a INT)", "OR REPLACE and IF NOT EXISTS exclude each other"),
        ],
    )
    def test_malformed(self, sql: str, problem: str) -> None:
        assert refusal(sql).message == f"cannot read CREATE TABLE: {problem}"

    def test_a_name_holds_no_dot(self) -> None:
        assert refusal("CREATE TABLE `a.b` (a INT)").message == "CREATE TABLE does not support a dot in a table name"

    @pytest.mark.parametrize(
        ("sql", "message"),
        [
            ("CREATE EXTERNAL TABLE t (a INT)", "CREATE does not support EXTERNAL TABLE"),
            ("CREATE TEMPORARY VIEW v AS SELECT 1", "CREATE does not support TEMPORARY VIEW"),
            ("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT 1", "CREATE does not support MATERIALIZED VIEW"),
            ("DROP VIEW v", "DROP does not support VIEW"),
            ("CREATE DATABASE d", "CREATE does not support DATABASE"),
            ("CREATE INDEX i ON t (a)", "CREATE does not support INDEX"),
            ("ALTER VIEW v AS SELECT 1", "ALTER does not support VIEW"),
            ("CREATE ROLE r", 'cannot read CREATE: expected TABLE or STREAM TABLE, found "ROLE"'),
        ],
    )
    def test_other_things_to_create(self, sql: str, message: str) -> None:
        assert refusal(sql).message == message


class TestOtherTableStatements:
    def test_drop_and_truncate(self) -> None:
        assert read_statement("DROP TABLE t") == DropTable(T)
        assert read_statement("drop table if exists `t` cascade;") == DropTable(T, if_exists=True, cascade=True)
        assert read_statement("DROP TABLE t RESTRICT") == DropTable(T)
        assert read_statement("TRUNCATE TABLE a.b.`c d`") == TruncateTable(TableName(("a", "b", "c d")))

    def test_refused_neighbours(self) -> None:
        assert refusal("DROP TABLE t PURGE").message == "DROP TABLE does not support PURGE"
        assert refusal("TRUNCATE TABLE t PARTITION (a = 1)").message == "TRUNCATE TABLE does not support PARTITION"
        error = refusal("DROP TABLE my-table")
        assert error.message == 'cannot read DROP TABLE: expected the table name to end here, found "-"'
        assert error.hint == "A name with a hyphen is put in `backticks`."

    def test_add_columns(self) -> None:
        sql = "ALTER TABLE t ADD COLUMN c STRUCT<a: INT, b: INT> COMMENT 'x'"
        expected = AlterTableAddColumns(T, (column(sql, "c", "STRUCT<a: INT, b: INT>", comment="x"),))
        assert read_statement(sql) == expected
        for listed in ("COLUMNS (a INT, b DATE)", "COLUMNS a INT, b DATE", "COLUMN (a INT, b DATE)"):
            sql = f"ALTER TABLE t ADD {listed};"
            statement = read_statement(sql)
            assert isinstance(statement, AlterTableAddColumns)
            assert [(c.name, c.type.text) for c in statement.columns] == [("a", "INT"), ("b", "DATE")]

    @pytest.mark.parametrize(
        ("change", "what"),
        [
            ("RENAME TO u", "RENAME TO"),
            ("RENAME COLUMN a TO b", "RENAME COLUMN"),
            ("DROP COLUMN a", "DROP"),
            ("ALTER COLUMN a TYPE BIGINT", "ALTER COLUMN"),
            ("SET TBLPROPERTIES ('a' = 'b')", "SET"),
            ("ADD CONSTRAINT c CHECK (a > 0)", "ADD CONSTRAINT"),
            ("ADD COLUMN IF NOT EXISTS a INT", "ADD COLUMN IF NOT EXISTS"),
            ("ADD COLUMN a INT FIRST", "FIRST"),
            ("ADD COLUMN a INT AFTER b", "AFTER"),
            ("ADD COLUMN a INT PRIMARY KEY", "PRIMARY KEY"),
            ("ADD COLUMN a INT DEFAULT 1", "DEFAULT"),
        ],
    )
    def test_other_alterations_are_refused_by_name(self, change: str, what: str) -> None:
        assert refusal(f"ALTER TABLE t {change}").message == f"ALTER TABLE does not support {what}"

    def test_show_and_describe(self) -> None:
        assert read_statement("SHOW TABLES") == ShowTables()
        assert read_statement("show stream tables;") == ShowStreamTables()
        for sql in ("DESCRIBE s", "DESC TABLE s", "DESCRIBE STREAM TABLE s"):
            assert read_statement(sql) == DescribeTable(S)
        assert read_statement("DESCRIBE stream") == DescribeTable(TableName(("stream",)))
        assert refusal("SHOW TABLES LIKE 'a*'").message == "SHOW does not support a filter"
        assert refusal("SHOW VIEWS").message == 'cannot read SHOW: expected TABLES or STREAM TABLES, found "VIEWS"'
        assert refusal("DESCRIBE EXTENDED s").message == "DESCRIBE does not support EXTENDED"
        assert refusal("DESCRIBE SELECT 1").message == "DESCRIBE does not support queries"


class TestStreamTables:
    def test_create(self) -> None:
        sql = "CREATE STREAM TABLE s AS SELECT region, count(*) n FROM orders GROUP BY region"
        assert read_statement(sql) == CreateStreamTable(S, cut(sql, sql[sql.index("SELECT") :]))

    def test_create_with_everything_in_any_order(self) -> None:
        sql = (
            "CREATE OR REPLACE STREAM TABLE s WITH (Tier = hot, 'x.y' = '1;2', n = -3, ok = true) "
            "REFRESH MODE differential SCHEDULE '1' 's' AS (SELECT 1)"
        )
        options = {"tier": "hot", "x.y": "1;2", "n": "-3", "ok": "true"}
        query = cut(sql, "(SELECT 1)")
        mode = RefreshMode.DIFFERENTIAL
        assert read_statement(sql) == CreateStreamTable(S, query, "1s", mode, options, or_replace=True)
        sql = "CREATE STREAM TABLE IF NOT EXISTS s SCHEDULE CALCULATED AS TABLE t"
        assert read_statement(sql) == CreateStreamTable(S, cut(sql, "TABLE t"), "CALCULATED", if_not_exists=True)

    @pytest.mark.parametrize(
        ("middle", "message"),
        [
            ("(a INT) AS SELECT 1", "CREATE STREAM TABLE does not support a column list"),
            ("PARTITIONED BY (a) AS SELECT 1", "CREATE STREAM TABLE does not support storage clauses"),
            ("SCHEDULE 1 AS SELECT 1", "expected the schedule as a string: '1s', found \"1\""),
            ("SCHEDULE '1s' SCHEDULE '2s' AS SELECT 1", "SCHEDULE is said twice"),
            ("REFRESH MODE fast AS SELECT 1", 'expected one of AUTO, DIFFERENTIAL, FULL, found "fast"'),
            ("REFRESH FULL AS SELECT 1", 'expected REFRESH MODE, found "FULL"'),
            ("WITH (a = 1, A = 2) AS SELECT 1", 'option "a" is said twice'),
            ("WITH (schedule = '1s') AS SELECT 1", '"schedule" is not an option'),
            ("WITH (a = ) AS SELECT 1", 'expected a string, a number or a word, found ")"'),
            ("SELECT 1", 'expected SCHEDULE, REFRESH MODE, WITH or AS and a query, found "SELECT"'),
            ("AS", "expected a query, found the end of the text"),
            ("AS WITH x AS (SELECT 1) INSERT INTO t SELECT 1", "INSERT does not support WITH before it"),
        ],
    )
    def test_refused_neighbours(self, middle: str, message: str) -> None:
        assert refusal(f"CREATE STREAM TABLE s {middle}").message.endswith(message)

    def test_alter(self) -> None:
        assert read_statement("ALTER STREAM TABLE s SET SCHEDULE '5s'") == AlterStreamTable(S, "5s")
        assert read_statement("ALTER STREAM TABLE s SET REFRESH MODE 'full'") == AlterStreamTable(
            S, mode=RefreshMode.FULL
        )
        sql = "ALTER STREAM TABLE s SET SCHEDULE '5s', REFRESH MODE AUTO SET (tier = cold) AS SELECT 2"
        expected = AlterStreamTable(S, "5s", RefreshMode.AUTO, {"tier": "cold"}, cut(sql, "SELECT 2"))
        assert read_statement(sql) == expected

    def test_alter_refused_neighbours(self) -> None:
        assert refusal("ALTER STREAM TABLE s").message.endswith(
            "expected SET or AS and a query, found the end of the text"
        )
        assert refusal("ALTER STREAM TABLE s RENAME TO u").message == "ALTER STREAM TABLE does not support RENAME"
        assert refusal("ALTER STREAM TABLE s SET TIER 'x'").message.endswith('or (key = value), found "TIER"')
        assert refusal("ALTER STREAM t SET SCHEDULE '5s'").message.endswith('expected ALTER STREAM TABLE, found "t"')

    def test_drop_refresh_explain(self) -> None:
        assert read_statement("DROP STREAM TABLE IF EXISTS s CASCADE") == DropStreamTable(
            S, if_exists=True, cascade=True
        )
        assert read_statement("REFRESH STREAM TABLE s") == RefreshStreamTable(S)
        for sql in ("REFRESH ALL STREAM TABLES", "REFRESH STREAM TABLES", "REFRESH STREAM TABLE ALL"):
            assert read_statement(sql) == RefreshStreamTable(None)
        assert read_statement("REFRESH STREAM TABLE `all`") == RefreshStreamTable(TableName(("all",)))
        assert read_statement("EXPLAIN STREAM TABLE s") == ExplainStreamTable(S)
        assert refusal("REFRESH TABLE t").message == "REFRESH does not support TABLE"
        assert refusal("EXPLAIN SELECT 1").message == "EXPLAIN does not support queries"
        assert refusal("EXPLAIN STREAM TABLE").message.endswith("expected a table name, found the end of the text")


class TestQueries:
    @pytest.mark.parametrize(
        "sql",
        [
            "SELECT 1",
            "WITH a AS (SELECT 1), b (x) AS (SELECT 2) SELECT * FROM a, b",
            "VALUES (1), (2)",
            "FROM t SELECT a |> WHERE b",
            "TABLE t",
            "((SELECT 1) UNION (SELECT 2))",
            "SELECT case, end, delete FROM t",
            "SELECT x AS case UNION ALL SELECT y",
            "SELECT /*+ BROADCAST(t) */ ':)' -- )\n, \")\", `)` FROM t",
        ],
    )
    def test_kept_whole(self, sql: str) -> None:
        assert read_statement(f" /* before */ {sql} -- after\n;") == Query(Fragment(sql, 14, 1, 15))

    @pytest.mark.parametrize(
        ("sql", "message"),
        [
            ("SELECT (1, 2", 'cannot read the query: "(" is not closed by ")"'),
            ("SELECT (1, [2)", 'cannot read the query: "[" is not closed by "]"'),
            ("SELECT (1; 2)", 'cannot read the query: "(" is not closed by ")"'),
            ("SELECT 1)", 'cannot read the query: expected the end of the statement, found ")"'),
            ("SELECT 1; SELECT 2", "one statement at a time"),
            ("WITH x AS (SELECT 1) DELETE FROM t", "DELETE does not support WITH before it"),
            ("FROM s INSERT INTO t SELECT *", "the query does not support INSERT after FROM"),
            ("", "the statement is empty"),
            (" ; -- nothing", "the statement is empty"),
            ("USE shop", '"USE" does not start a supported statement'),
            ("BEGIN", '"BEGIN" does not start a supported statement'),
            ("'x'", "\"'x'\" does not start a supported statement"),
        ],
    )
    def test_refused_neighbours(self, sql: str, message: str) -> None:
        assert refusal(sql).message == message

    def test_a_misspelling_gets_the_nearest_word_and_the_list(self) -> None:
        hint = refusal("SELCT 1").hint
        assert hint is not None
        assert hint.startswith("Did you mean SELECT? Supported are SELECT and other queries, CREATE / ALTER / DROP")


class TestPositions:
    def test_an_error_names_line_column_and_fragment(self) -> None:
        error = refusal("CREATE TABLE t (\n  a INT,\n  b INT DEFAULT 5\n)")
        assert error.detail == 'A column that is not given a value is NULL. Line 3, column 9, near "DEFAULT 5".'
        error = refusal("DELETE FROM t\nWHERE")
        assert (error.detail, error.hint) == (
            "Line 2, column 6, at the end.",
            "The form is: DELETE FROM name [alias] [WHERE condition]",
        )

    def test_in_a_script_positions_are_the_scripts(self) -> None:
        script = "SELECT 1; -- one\n/* two */ SELECT 2;\n  DELETE t;"
        pieces = split_script(script)
        assert [(p.text, p.line, p.column) for p in pieces] == [
            ("SELECT 1", 1, 1),
            ("SELECT 2", 2, 11),
            ("DELETE t", 3, 3),
        ]
        query = read_statement(pieces[1])
        assert query == Query(pieces[1])
        with pytest.raises(StatementError) as caught:
            read_statement(pieces[2])
        assert caught.value.detail == 'Line 3, column 10, near "t".'
