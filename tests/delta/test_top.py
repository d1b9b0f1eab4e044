"""ORDER BY ... LIMIT n OFFSET m keeps n + m rows and a reserve: a row leaves, the next one moves up."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from tests.support.stories import Story, Stream

from headwater.delta.top import ascending
from headwater.plan.expressions import Column, SortKey

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEST = "SELECT id, v FROM t ORDER BY v DESC, id LIMIT 3"


def numbers(story: Story) -> None:
    story.table("t", "id INT, v INT", [(1, 10), (2, 50), (3, 30), (4, 20), (5, 40)], key="id")


def rescanned(stream: Stream) -> int:
    assert stream.report is not None
    return stream.report.rescanned_groups


def test_rows_enter_and_leave_the_best_three(story: Story) -> None:
    numbers(story)
    s = story.stream(BEST)
    assert s.rows() == [(2, 50), (3, 30), (5, 40)]
    story.change("INSERT INTO t VALUES (6, 45), (7, 5)")
    assert s.refreshed() == [(2, 50), (5, 40), (6, 45)]
    assert s.changes == (1, 1)
    story.change("DELETE FROM t WHERE id = 2")
    assert s.refreshed() == [(3, 30), (5, 40), (6, 45)]
    story.change("DELETE FROM t WHERE id IN (1, 7)")
    assert s.kept() == [(3, 30), (5, 40), (6, 45)]
    assert s.changes == (0, 0)
    story.change("UPDATE t SET v = 1 WHERE id = 6", "UPDATE t SET v = 60 WHERE id = 4")
    assert s.refreshed() == [(3, 30), (4, 60), (5, 40)]
    story.verified()


def test_more_rows_leave_than_any_reserve_holds(story: Story) -> None:
    story.table("t", "id INT, v INT", [(i, i) for i in range(60)], key="id")
    s = story.stream(BEST)
    assert s.rows() == [(57, 57), (58, 58), (59, 59)]
    for top in (49, 39, 2):
        story.change(f"DELETE FROM t WHERE v > {top}")
        assert s.refreshed() == [(i, i) for i in range(top - 2, top + 1)]
    story.change("DELETE FROM t WHERE v = 1")
    assert s.refreshed() == [(0, 0), (2, 2)]
    story.change("TRUNCATE TABLE t", "INSERT INTO t VALUES (7, 7)")
    assert s.refreshed() == [(7, 7)]
    story.change("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    assert s.refreshed() == [(2, 2), (3, 3), (7, 7)]
    story.verified()


def test_an_offset_skips_the_first_rows(story: Story) -> None:
    numbers(story)
    s = story.stream("SELECT id FROM t ORDER BY v, id LIMIT 2 OFFSET 1")
    assert s.rows() == [(3,), (4,)]
    story.change("INSERT INTO t VALUES (6, 5)")
    assert s.refreshed() == [(1,), (4,)]
    story.change("DELETE FROM t WHERE id IN (6, 1)")
    assert s.refreshed() == [(3,), (5,)]
    story.change("UPDATE t SET v = 45 WHERE id = 4")
    assert s.refreshed() == [(4,), (5,)]
    story.verified()


def test_ties_between_equal_rows_are_counted(story: Story) -> None:
    story.table("t", "v INT", [(1,), (1,), (2,), (2,), (3,)])
    s = story.stream("SELECT v FROM t ORDER BY v LIMIT 3")
    assert s.rows() == [(1,), (1,), (2,)]
    story.apply("t", (1, "D"))
    assert s.refreshed() == [(1,), (2,), (2,)]
    story.apply("t", (1, "I"), (1, "I"), (1, "I"))
    assert s.refreshed() == [(1,), (1,), (1,)]
    story.apply("t", (1, "D"), (1, "D"), (1, "D"), (1, "D"), (2, "D"))
    assert s.refreshed() == [(2,), (3,)]
    story.verified()


def test_nulls_stand_where_the_order_says(story: Story) -> None:
    numbers(story)
    first = story.stream("SELECT id FROM t ORDER BY v, id LIMIT 2", "ascending")
    last = story.stream("SELECT id FROM t ORDER BY v NULLS LAST, id LIMIT 2", "nulls_last")
    down = story.stream("SELECT id FROM t ORDER BY v DESC NULLS FIRST, id LIMIT 2", "nulls_first")
    story.change("INSERT INTO t VALUES (6, NULL)")
    assert first.refreshed() == [(1,), (6,)]
    assert last.kept() == [(1,), (4,)]
    assert down.refreshed() == [(2,), (6,)]
    story.change("UPDATE t SET v = NULL WHERE id IN (1, 5)")
    assert first.refreshed() == [(1,), (5,)]
    assert last.refreshed() == [(3,), (4,)]
    assert down.refreshed() == [(1,), (5,)]
    story.change("DELETE FROM t WHERE v IS NOT NULL")
    assert first.kept() == [(1,), (5,)]
    assert last.refreshed() == [(1,), (5,)]
    assert down.kept() == [(1,), (5,)]
    story.verified()


def test_the_best_groups_of_a_join(story: Story) -> None:
    """The shape of TPC-H queries 3 and 10."""
    story.table("customers", "id INT, name STRING", [(1, "Ann"), (2, "Bob"), (3, "Cy")], key="id")
    story.table(
        "orders", "id INT, customer INT, amount INT", [(10, 1, 5), (11, 2, 7), (12, 3, 9), (13, 3, 1)], key="id"
    )
    s = story.stream(
        "SELECT c.id, c.name, sum(o.amount) AS total FROM customers c JOIN orders o ON o.customer = c.id GROUP BY c.id, c.name"
        " ORDER BY total DESC, c.id LIMIT 2"
    )
    assert s.rows() == [(2, "Bob", 7), (3, "Cy", 10)]
    story.change("INSERT INTO orders VALUES (14, 1, 4)")
    assert s.refreshed() == [(1, "Ann", 9), (3, "Cy", 10)]
    story.change("DELETE FROM customers WHERE id = 3", "UPDATE orders SET amount = 1 WHERE id = 10")
    assert s.refreshed() == [(1, "Ann", 5), (2, "Bob", 7)]
    story.change("UPDATE orders SET customer = 2", "UPDATE customers SET name = 'Bea' WHERE id = 2")
    assert s.refreshed() == [(2, "Bea", 22)]
    story.verified()


def test_b37_order_limit_and_offset_of_a_subquery_are_kept(story: Story) -> None:
    numbers(story)
    story.table("names", "id INT, name STRING", [(1, "a"), (2, "b"), (3, "c"), (5, "e")], key="id")
    s = story.stream(
        "SELECT n.name, x.v FROM names n JOIN (SELECT id, v FROM t ORDER BY v DESC, id LIMIT 2 OFFSET 1) x ON x.id = n.id",
        "joined",
    )
    total = story.stream("SELECT sum(v) AS total FROM (SELECT v FROM t ORDER BY v DESC, id LIMIT 2)", "total")
    listed = story.stream("SELECT name FROM names WHERE id IN (SELECT id FROM t ORDER BY v, id LIMIT 2)", "listed")
    assert (s.rows(), total.rows(), listed.rows()) == ([("c", 30), ("e", 40)], [(90,)], [("a",)])
    story.change("DELETE FROM t WHERE id = 2", "INSERT INTO names VALUES (4, 'd')")
    assert s.refreshed() == [("c", 30), ("d", 20)]
    assert total.refreshed() == [(70,)]
    assert listed.refreshed() == [("a",), ("d",)]
    story.change("UPDATE t SET v = -v", "UPDATE names SET name = 'z' WHERE id = 4")
    assert s.refreshed() == [("c", -30), ("z", -20)]
    assert total.refreshed() == [(-30,)]
    assert listed.refreshed() == [("c",), ("e",)]
    story.verified()


def test_limits_inside_branches_and_over_distinct(story: Story) -> None:
    numbers(story)
    s = story.stream(
        "(SELECT id FROM t ORDER BY v, id LIMIT 1) UNION ALL (SELECT id FROM t ORDER BY v DESC, id LIMIT 1)", "ends"
    )
    d = story.stream("SELECT DISTINCT v % 20 AS m FROM t ORDER BY m DESC LIMIT 1", "kinds")
    assert (s.rows(), d.rows()) == ([(1,), (2,)], [(10,)])
    story.change("DELETE FROM t WHERE id = 1", "UPDATE t SET v = 60 WHERE id = 2")
    assert s.refreshed() == [(2,), (4,)]
    assert d.kept() == [(10,)]
    story.change("DELETE FROM t WHERE id IN (3, 4, 5)")
    assert s.refreshed() == [(2,), (2,)]
    assert d.refreshed() == [(0,)]
    story.verified()


def test_b45_limit_all_keeps_everything_and_says_that_the_order_is_dropped(story: Story) -> None:
    numbers(story)
    query = "SELECT id FROM t ORDER BY v LIMIT ALL"
    assert any("ORDER BY is dropped" in n for n in story.notices(query))
    s = story.stream(query)
    story.change("INSERT INTO t VALUES (6, 0)", "DELETE FROM t WHERE id = 1")
    assert s.refreshed() == [(2,), (3,), (4,), (5,), (6,)]
    story.verified()


def test_an_order_without_a_limit_is_dropped_with_a_notice(story: Story) -> None:
    numbers(story)
    query = "SELECT id, v FROM t WHERE v > 20 ORDER BY v DESC"
    assert any("ORDER BY is dropped" in n for n in story.notices(query))
    s = story.stream(query)
    story.change("UPDATE t SET v = 25 WHERE id = 1", "DELETE FROM t WHERE id = 2")
    assert s.refreshed() == [(1, 25), (3, 30), (5, 40)]
    story.verified()


def test_b45_another_limit_is_obeyed_from_then_on(story: Story) -> None:
    numbers(story)
    s = story.stream("SELECT id FROM t ORDER BY v DESC, id LIMIT 2")
    story.change("INSERT INTO t VALUES (6, 45)")
    assert s.refreshed() == [(2,), (6,)]
    story.altered(s, "SELECT id FROM t ORDER BY v, id LIMIT 3")
    assert s.rows() == [(1,), (3,), (4,)]
    story.change("DELETE FROM t WHERE id = 1")
    assert s.refreshed() == [(3,), (4,), (5,)]
    story.change("INSERT INTO t VALUES (7, 1), (8, 2)")
    assert s.refreshed() == [(4,), (7,), (8,)]
    story.verified()


def test_a_limit_over_a_stream_table_that_is_limited_itself(story: Story) -> None:
    numbers(story)
    best = story.stream(BEST, "best")
    s = story.stream("SELECT id FROM best ORDER BY v, id LIMIT 1")
    assert s.rows() == [(3,)]
    story.change("INSERT INTO t VALUES (6, 70), (7, 60)")
    assert best.refreshed() == [(2, 50), (6, 70), (7, 60)]
    assert s.refreshed() == [(2,)]
    story.change("DELETE FROM t WHERE id IN (2, 6)")
    assert best.refreshed() == [(3, 30), (5, 40), (7, 60)]
    assert s.refreshed() == [(3,)]
    story.verified()


def test_a_limit_whose_rows_depend_on_chance_is_refused(story: Story) -> None:
    story.table("t", "id INT, g STRING, d DOUBLE", [(1, "a", 0.5), (2, "b", 0.25)], key="id")
    story.refused("SELECT id FROM t LIMIT 1", "ORDER_DEPENDENT")
    story.refused("SELECT id FROM t LIMIT 1 OFFSET 1", "ORDER_DEPENDENT")
    story.refused("SELECT g, sum(d) AS s FROM t GROUP BY g ORDER BY s LIMIT 1", "ORDER_DEPENDENT")
    story.refused("SELECT id FROM t ORDER BY rand() LIMIT 1", "EXPRESSION_NOT_DETERMINISTIC")
    s = story.stream("SELECT g, sum(d) AS s FROM t GROUP BY g ORDER BY round(s, 2), g LIMIT 1")
    story.change("DELETE FROM t WHERE id = 2")
    assert s.refreshed() == [("a", 0.5)]
    story.verified()


def test_a_limit_keeps_its_first_rows_and_reads_the_table_again_only_when_the_reserve_is_used_up(story: Story) -> None:
    story.table("t", "id INT, v INT", [(i, i) for i in range(100)], key="id")
    s = story.stream(BEST)
    assert "best values per group, 1 groups" in story.wh.explain_stream_table("result")
    story.change("DELETE FROM t WHERE id IN (99, 97, 50)", "INSERT INTO t VALUES (200, 98)")
    assert s.refreshed() == [(96, 96), (98, 98), (200, 98)]
    assert rescanned(s) == 0
    story.change("DELETE FROM t WHERE v > 40")
    assert s.refreshed() == [(38, 38), (39, 39), (40, 40)]
    assert rescanned(s) == 1
    story.verified()


def test_a_large_limit_is_computed_before_and_after(story: Story) -> None:
    numbers(story)
    query = "SELECT id FROM t ORDER BY v DESC, id LIMIT 501"
    told = {name: how for name, how, _ in story.wh.validate_query(query).operators}
    assert told["Top"] == "recompute"
    s = story.stream(query)
    assert "best values" not in story.wh.explain_stream_table("result")
    story.change("DELETE FROM t WHERE id < 4", "INSERT INTO t VALUES (6, 45)")
    assert s.refreshed() == [(4,), (5,), (6,)]
    skipped = story.stream("SELECT id FROM t ORDER BY v OFFSET 1", "skipped")
    story.change("INSERT INTO t VALUES (7, 1)")
    assert skipped.refreshed() == [(4,), (5,), (6,)]
    story.verified()


VALUES = {
    "STRING": ["''", "'a'", "'ab'", "'b'", "'é'", "'z'", "'💧'", "'A'"],
    "BINARY": ["X'00'", "X''", "X'FF'", "X'7F'", "X'0001'", "X'80'", "X'01'", "X'FF00'"],
    "FLOAT": ["'NaN'", "'-Infinity'", "'Infinity'", "0.0", "-1.5", "1.5"],
    "DOUBLE": ["'NaN'", "'-Infinity'", "'Infinity'", "0.0", "-1.5", "1.5", "1e300", "-1e-300"],
    "DECIMAL(38,2)": [
        "1",
        "-1",
        "0",
        "999999999999999999999999999999999999.99",
        "-999999999999999999999999999999999999.99",
    ],
    "TINYINT": ["-128", "127", "0"],
    "BIGINT": ["-9223372036854775808", "9223372036854775807", "0", "1", "-1"],
    "BOOLEAN": ["true", "false"],
    "DATE": [f"'{year}-01-01'" for year in ("0001", 1582, 1969, 1970, 1971, 9999)],
    "TIMESTAMP": [f"'{year}-01-01 00:00:00.000001'" for year in ("0001", 1582, 1969, 1970, 1971, 9999)],
}


@pytest.mark.parametrize("type_", VALUES)
def test_a_descending_order_is_written_as_an_ascending_one(spark: SparkSession, type_: str) -> None:
    values = ", ".join(f"(CAST({v} AS {type_}))" for v in (*VALUES[type_], "NULL"))
    for descending, nulls_first in itertools.product((True, False), repeat=2):
        key = SortKey(Column(1, "x", type_), descending, nulls_first)
        parts = ", ".join(e.sql for e in ascending(key) or ())
        spark_says, written = (
            [
                row.t
                for row in spark.sql(
                    f"SELECT CAST(c1 AS STRING) AS t FROM VALUES {values} AS v(c1) ORDER BY {by}"
                ).collect()
            ]
            for by in (key.sql, f"struct({parts})")
        )
        assert written == spark_says
        assert len(written) == len(VALUES[type_]) + 1


def test_a_type_without_such_an_order_is_not_kept() -> None:
    for type_ in ("ARRAY<INT>", "STRING COLLATE UTF8_LCASE", "TIMESTAMP_NTZ"):
        assert ascending(SortKey(Column(1, "x", type_), descending=True)) is None
        assert ascending(SortKey(Column(1, "x", type_))) is not None


def test_rows_with_a_map_are_limited_in_the_order_of_a_key_and_of_nothing_less(story: Story) -> None:
    story.table("t", "id INT, g INT, m MAP<STRING, INT>", key="id")
    story.change("INSERT INTO t VALUES (1, 1, map('a', 1)), (2, 1, map('b', 2)), (3, 1, NULL)")
    s = story.stream("SELECT id, m FROM t ORDER BY id DESC LIMIT 2")
    story.change("INSERT INTO t VALUES (4, 1, map('c', 3))")
    s.refreshed()
    assert [row[0] for row in s.rows()] == [3, 4]
    story.change("DELETE FROM t WHERE id = 3")
    s.refreshed()
    assert [row[0] for row in s.rows()] == [2, 4]
    story.refused("SELECT id, m FROM t ORDER BY g LIMIT 2", "ORDER_DEPENDENT")


def test_an_offset_leaves_out_the_same_one_of_equal_rows(story: Story) -> None:
    story.table("t", "id INT, v STRING, other INT", [(1, "a", 0), (2, "a", 0), (3, "b", 0), (4, "b", 0)], key="id")
    s = story.stream("SELECT v FROM t ORDER BY v OFFSET 1")
    assert s.rows() == [("a",), ("b",), ("b",)]
    story.change("UPDATE t SET other = 1 WHERE id = 1")  # which nobody reads; the row lies behind the others now
    s.kept()
    story.change("DELETE FROM t WHERE id IN (1, 3)", "INSERT INTO t VALUES (5, 'c', 0)")
    assert s.refreshed() == [("b",), ("c",)]
    story.verified()


def test_an_order_by_a_key_with_equal_spellings_is_not_total(story: Story) -> None:
    for name, type_ in (("words", "STRING"), ("spellings", "STRING COLLATE UTF8_LCASE")):
        story.table(name, f"word {type_}, n INT", [("b", 1), ("A", 2), ("a", 3)], key="word")
    assert story.notices("SELECT word, n FROM words ORDER BY word LIMIT 1") == ()
    story.refused("SELECT word, n FROM spellings ORDER BY word LIMIT 1", "ORDER_DEPENDENT")
    story.refused("SELECT n FROM spellings ORDER BY word LIMIT 1", "ORDER_DEPENDENT")
