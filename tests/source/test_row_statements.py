"""INSERT, UPDATE, DELETE and MERGE as records, with their refused neighbours."""

from __future__ import annotations

import pytest
from tests.support.statements import cut, refusal

from headwater.model.names import TableName
from headwater.source.parse import read_statement
from headwater.source.statements import (
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

T = TableName(("t",))


class TestInsert:
    @pytest.mark.parametrize(
        ("head", "columns", "by_name", "source"),
        [
            ("INSERT INTO t", None, False, "VALUES (1, 'a;b'), (2, ')')"),
            ("INSERT INTO TABLE t", None, False, "SELECT * FROM u -- x\nWHERE a"),
            ("INSERT INTO t (a, `b c`)", ("a", "b c"), False, "VALUES (1, 2)"),
            ("INSERT INTO t (a)", ("a",), False, "(SELECT 1)"),
            ("INSERT INTO t", None, False, "(SELECT 1)"),
            ("INSERT INTO t", None, False, "(VALUES (1))"),
            ("INSERT INTO t", None, False, "WITH x AS (SELECT 1) SELECT * FROM x JOIN y ON conflict.a = y.a"),
            ("INSERT INTO t BY NAME", None, True, "SELECT 1 AS a"),
            ("INSERT INTO t", None, False, "TABLE u"),
        ],
    )
    def test_forms(self, head: str, columns: tuple[str, ...] | None, by_name: bool, source: str) -> None:
        sql = f"{head} {source};"
        start = len(head) + 1
        assert read_statement(sql) == Insert(T, columns, Fragment(source, start, 1, start + 1), by_name)

    @pytest.mark.parametrize(
        ("sql", "message"),
        [
            ("INSERT OVERWRITE t SELECT 1", "INSERT does not support OVERWRITE"),
            ("INSERT OR REPLACE INTO t VALUES (1)", "INSERT does not support OR REPLACE"),
            ("INSERT INTO t PARTITION (a = 1) SELECT 1", "INSERT does not support PARTITION"),
            ("INSERT INTO t REPLACE WHERE a SELECT 1", "INSERT does not support REPLACE WHERE"),
            ("INSERT INTO t DEFAULT VALUES", "INSERT does not support DEFAULT VALUES"),
            ("INSERT INTO t VALUES (1) ON CONFLICT (a) DO NOTHING", "INSERT does not support ON CONFLICT"),
            ("INSERT INTO t", "cannot read INSERT: expected VALUES or a query, found the end of the text"),
            ("INSERT INTO t (a, 1) VALUES (1)", 'cannot read INSERT: expected a column name, found "1"'),
            ("INSERT INTO t (a, A) VALUES (1, 2)", 'cannot read INSERT: column "A" is named twice'),
            ("INSERT INTO t (t.a) VALUES (1)", 'cannot read INSERT: expected a column list or a query, found "("'),
            ("INSERT INTO t (a)", "cannot read INSERT: expected VALUES or a query, found the end of the text"),
            ("INSERT INTO t (a) BY NAME SELECT 1", "cannot read INSERT: a column list and BY NAME exclude each other"),
            ("INSERT t VALUES (1)", 'cannot read INSERT: expected INTO, found "t"'),
        ],
    )
    def test_refused_neighbours(self, sql: str, message: str) -> None:
        assert refusal(sql).message == message


class TestUpdateAndDelete:
    def test_update(self) -> None:
        sql = "UPDATE t SET a = f(1, ','), `b c` = limit + 1 WHERE limit > 5 AND x.where = 'WHERE' OR returning"
        assert read_statement(sql) == Update(
            T,
            None,
            (Assignment("a", cut(sql, "f(1, ',')")), Assignment("b c", cut(sql, "limit + 1"))),
            cut(sql, "limit > 5 AND x.where = 'WHERE' OR returning"),
        )

    def test_qualified_columns_and_nested_types(self) -> None:
        sql = "UPDATE shop.t AS x SET x.a = b::MAP<STRING, INT>['k'], t.c = b IS DISTINCT FROM c, d = map < 3"
        statement = read_statement(sql)
        assert isinstance(statement, Update)
        assert (statement.alias, statement.where) == ("x", None)
        assert [(a.column, str(a.value)) for a in statement.assignments] == [
            ("a", "b::MAP<STRING, INT>['k']"),
            ("c", "b IS DISTINCT FROM c"),
            ("d", "map < 3"),
        ]

    def test_a_type_ends_a_value_and_a_comparison_does_not(self) -> None:
        sql = "UPDATE t SET a = CASE b WHEN 1 THEN c::MAP<STRING, ARRAY<INT>> END, d = CASE WHEN e > end THEN 1 END, f = 2"
        statement = read_statement(sql)
        assert isinstance(statement, Update)
        assert [a.column for a in statement.assignments] == ["a", "d", "f"]
        assert refusal("UPDATE t SET a = b::ARRAY<INT> FROM s").message == "UPDATE does not support FROM"

    def test_delete(self) -> None:
        sql = "DELETE FROM t x WHERE x.id IN (SELECT id FROM u ORDER BY 1 LIMIT 5)"
        assert read_statement(sql) == Delete(T, "x", cut(sql, "x.id IN (SELECT id FROM u ORDER BY 1 LIMIT 5)"))
        assert read_statement("DELETE FROM t") == Delete(T)

    @pytest.mark.parametrize(
        ("sql", "message"),
        [
            ("UPDATE t SET a = s.b FROM s WHERE t.id = s.id", "UPDATE does not support FROM"),
            ("UPDATE t SET s.a = 1", "UPDATE does not support assigning to s.a"),
            ("UPDATE t SET a = 1, A = 2", 'cannot read UPDATE: column "A" is assigned twice'),
            ("UPDATE t SET a = 1, = 2", 'cannot read UPDATE: expected a column name, found "="'),
            ("UPDATE t SET a = , b = 2", 'cannot read UPDATE: expected a value, found ","'),
            ("UPDATE t SET a <=> 1", 'cannot read UPDATE: expected "=", found "<=>"'),
            ("UPDATE t SET a = 1 WHERE", "cannot read UPDATE: expected a condition, found the end of the text"),
            ("UPDATE t WHERE a", 'cannot read UPDATE: expected SET, found "WHERE"'),
            ("UPDATE t SET a = CASE WHEN b THEN 1", 'cannot read UPDATE: "CASE" is not closed by "END"'),
            ("UPDATE t SET a = 1) WHERE b", 'cannot read UPDATE: expected the end of the statement, found ")"'),
            ("DELETE FROM t USING u WHERE t.a = u.a", "DELETE does not support USING"),
            ("DELETE FROM t WHERE a ORDER BY b", "DELETE does not support ORDER BY"),
            ("DELETE FROM t WHERE a = 1 LIMIT 5", "DELETE does not support LIMIT"),
            ("DELETE FROM t WHERE a RETURNING b", "DELETE does not support RETURNING"),
            ("DELETE t", 'cannot read DELETE: expected DELETE FROM, found "t"'),
            ("DELETE FROM t WHERE (a OR b) OR (c", 'cannot read DELETE: "(" is not closed by ")"'),
        ],
    )
    def test_refused_neighbours(self, sql: str, message: str) -> None:
        assert refusal(sql).message == message


class TestMerge:
    def test_every_clause(self) -> None:
        sql = """MERGE INTO shop.t AS x USING (SELECT * FROM s WHERE a = ')') s
            ON x.id = s.id AND CASE WHEN matched THEN 1 END = 1
            WHEN MATCHED AND CASE WHEN s.end > 1 THEN s.when ELSE end END = 2 THEN
                UPDATE SET x.a = CASE WHEN s.b THEN 1 ELSE 2 END, b = f(3, 4)
            WHEN MATCHED THEN DELETE
            WHEN NOT MATCHED BY TARGET AND s.x IS NOT NULL THEN
                INSERT (a, `b c`) VALUES (s.a, transform(s.b, (x, i) -> x + i))
            WHEN NOT MATCHED THEN INSERT *
            WHEN NOT MATCHED BY SOURCE AND x.z THEN UPDATE SET q = 17 -- ; WHEN
            WHEN NOT MATCHED BY SOURCE THEN DELETE;"""
        update, delete, insert = MergeAction.UPDATE, MergeAction.DELETE, MergeAction.INSERT
        matched, new, gone = MergeKind.MATCHED, MergeKind.NOT_MATCHED, MergeKind.NOT_MATCHED_BY_SOURCE
        assert read_statement(sql) == Merge(
            TableName(("shop", "t")),
            "x",
            cut(sql, "(SELECT * FROM s WHERE a = ')')"),
            None,
            "s",
            cut(sql, "x.id = s.id AND CASE WHEN matched THEN 1 END = 1"),
            (
                MergeClause(
                    matched,
                    update,
                    cut(sql, "CASE WHEN s.end > 1 THEN s.when ELSE end END = 2"),
                    assignments=(
                        Assignment("a", cut(sql, "CASE WHEN s.b THEN 1 ELSE 2 END")),
                        Assignment("b", cut(sql, "f(3, 4)")),
                    ),
                ),
                MergeClause(matched, delete),
                MergeClause(
                    new,
                    insert,
                    cut(sql, "s.x IS NOT NULL"),
                    insert_columns=("a", "b c"),
                    insert_values=(cut(sql, "s.a"), cut(sql, "transform(s.b, (x, i) -> x + i)")),
                ),
                MergeClause(new, insert, star=True),
                MergeClause(gone, update, cut(sql, "x.z"), assignments=(Assignment("q", cut(sql, "17")),)),
                MergeClause(gone, delete),
            ),
        )

    def test_a_table_as_source(self) -> None:
        sql = "MERGE INTO t USING `a b`.s ON t.case = s.case WHEN MATCHED AND case AND t.case THEN UPDATE SET *"
        statement = read_statement(sql)
        assert isinstance(statement, Merge)
        assert (statement.source.text, statement.source_name) == ("`a b`.s", TableName(("a b", "s")))
        assert (statement.target_alias, statement.source_alias) == (None, None)
        condition = cut(sql, "case AND t.case")
        assert statement.clauses == (MergeClause(MergeKind.MATCHED, MergeAction.UPDATE, condition, star=True),)

    @pytest.mark.parametrize(
        ("rest", "message"),
        [
            ("WHEN NOT MATCHED THEN DELETE", 'expected INSERT after WHEN NOT MATCHED, found "DELETE"'),
            ("WHEN MATCHED THEN INSERT *", 'expected UPDATE or DELETE after WHEN MATCHED, found "INSERT"'),
            ("WHEN MATCHED THEN DO NOTHING", "MERGE does not support DO NOTHING"),
            ("WHEN MATCHED UPDATE SET *", 'expected THEN, found "UPDATE"'),
            ("WHEN NOT MATCHED BY SOURCE THEN UPDATE SET *", 'no source row to take values from, found "*"'),
            ("WHEN NOT MATCHED BY x THEN DELETE", 'expected SOURCE or TARGET, found "x"'),
            ("WHEN NOT MATCHED THEN INSERT VALUES (1)", 'expected "*" or a column list, found "VALUES"'),
            ("WHEN NOT MATCHED THEN INSERT (a, b) VALUES (1)", "INSERT names 2 columns and 1 values"),
            ("WHEN NOT MATCHED THEN INSERT (a) VALUES ()", 'expected a value, found ")"'),
            ("WHEN NOT MATCHED THEN INSERT (a) VALUES (1", 'expected "," or ")", found the end of the text'),
            ("WHEN MATCHED THEN DELETE WHEN MATCHED THEN DELETE", "an earlier WHEN MATCHED takes all rows"),
            ("WHEN MATCHED AND THEN DELETE", 'expected a condition, found "THEN"'),
            ("AND b", "expected WHEN MATCHED or WHEN NOT MATCHED, found the end of the text"),
        ],
    )
    def test_refused_neighbours(self, rest: str, message: str) -> None:
        assert refusal(f"MERGE INTO t USING s ON a {rest}").message.endswith(message)

    def test_refused_heads(self) -> None:
        tail = "ON a WHEN MATCHED THEN DELETE"
        assert (
            refusal(f"MERGE INTO t USING (VALUES (1)) s (a) {tail}").message == "MERGE does not support column aliases"
        )
        assert refusal(f"MERGE INTO t USING (s) {tail}").message.endswith(
            'expected a table name or "(" and a query, found "("'
        )
        assert refusal(f"MERGE INTO t {tail}").message.endswith('expected USING, found "a"')
        evolution = refusal(f"MERGE WITH SCHEMA EVOLUTION INTO t USING s {tail}")
        assert evolution.message == "MERGE does not support WITH SCHEMA EVOLUTION"
