"""A stream table is a table like any other to those that read it: they follow its change rows, all of them, and once."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.lab import tuples_of
from tests.support.oracle import interpreted
from tests.support.stories import Rows, Story
from tests.support.tables import manifest_of

import headwater as hw
from headwater.model.tables import BatchFormat, RefreshAction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BELOW: dict[str, tuple[str, Rows, Rows, Rows]] = {
    "key shown": ("SELECT id, v FROM orders", [(1, 5), (2, 7)], [(1, 9)], [(8, 6)]),
    "key not shown": ("SELECT customer AS id, v FROM orders", [(1, 5), (1, 7)], [(1, 9)], [(1, 6)]),
    "no key": (
        "SELECT 0 AS id, v FROM orders UNION ALL SELECT 0, v FROM orders WHERE id < 3",
        [(0, 5), (0, 5), (0, 7), (0, 7)],
        [(0, 9), (0, 9)],
        [(0, 6)],
    ),
    "groups": ("SELECT customer AS id, sum(v) AS v FROM orders GROUP BY customer", [(1, 12)], [(1, 9)], [(1, 6)]),
    "join": (
        "SELECT c.code AS id, o.v FROM orders o JOIN customers c ON o.customer = c.id",
        [(70, 5), (70, 7)],
        [(70, 9)],
        [(70, 6)],
    ),
}
"""Stream tables whose rows are told apart by different things, and which of them have more than 4 as time goes by."""


@pytest.mark.parametrize("kind", BELOW)
def test_b65_an_updated_row_is_the_same_row_above_and_below(story: Story, kind: str) -> None:
    query, first, second, third = BELOW[kind]
    story.table("customers", "id INT, code INT", [(1, 70), (2, 80)], key="id")
    story.table("orders", "id INT, customer INT, v INT", [(1, 1, 5), (2, 1, 7), (3, 2, 3)], key="id")
    below = story.stream(query, "below")
    s = story.stream("SELECT id, v FROM below WHERE v > 4")
    assert s.rows() == first
    story.change("UPDATE orders SET v = 9 WHERE id = 1", "UPDATE orders SET v = 0 WHERE id = 2")
    below.refreshed()
    assert s.refreshed() == second
    story.change("UPDATE orders SET id = 8, v = 6 WHERE id = 1")
    below.refreshed()
    assert s.refreshed() == third
    story.verified()


def test_b66_a_filter_above_sees_the_delete_of_every_update(story: Story) -> None:
    story.table("items", "id INT, v INT", [(1, 1), (2, 2), (3, 9)], key="id")
    tens = story.stream("SELECT id, v * 10 AS w FROM items", "tens")
    small = story.stream("SELECT id, w FROM tens WHERE w < 50", "small")
    total = story.stream("SELECT count(*) AS n, sum(w) AS total FROM tens", "total")
    before = story.wh.version
    story.change("UPDATE items SET v = 8 WHERE id = 1")
    tens.refreshed()
    assert sorted(tuples_of(story.wh.changes("tens", before))) == [(1, 10, "D"), (1, 80, "I")]
    assert small.refreshed() == [(2, 20)]
    assert small.changes == (0, 1)
    assert total.refreshed() == [(3, 190)]
    # Several refreshes below are one change above: id 2 leaves and comes back, id 3 enters for good.
    for statement in ("UPDATE items SET v = 7 WHERE id = 2", "UPDATE items SET v = 3", "UPDATE items SET v = id"):
        story.change(statement)
        tens.refreshed()
    assert small.refreshed() == [(1, 10), (2, 20), (3, 30)]
    assert small.changes == (2, 0)
    assert total.refreshed() == [(3, 60)]
    story.verified()


def test_b67_deletes_reach_those_above_a_table_that_only_grew_so_far(spark: SparkSession, tmp_path: Path) -> None:
    """Rows that were only ever inserted may lie in the base alone, in files without change columns."""
    settings = {"arrow_max_rows": 5, "inline_max_rows": 2, "local_relation_max_rows": 3}
    with interpreted(spark), hw.connect(tmp_path / "w", spark=spark, settings=settings) as wh:
        story = Story(wh)
        story.table("t", "id INT, v INT", [(i, i % 4) for i in range(8)], key="id")
        grown = story.stream("SELECT id, v FROM t WHERE v < 3", "grown")
        s = story.stream("SELECT v, count(*) AS n FROM grown GROUP BY v")
        story.change("INSERT INTO t SELECT CAST(id AS INT) + 100, CAST(id % 4 AS INT) FROM range(12)")
        grown.refreshed()
        for name in ("t", "grown"):
            assert BatchFormat.INSERT in {b.format for b in manifest_of(wh, name).batches}
        assert s.refreshed() == [(0, 5), (1, 5), (2, 5)]
        story.change("DELETE FROM t WHERE id > 103", "UPDATE t SET v = 3 WHERE id = 0")
        grown.refreshed()
        assert s.refreshed() == [(0, 2), (1, 3), (2, 3)]
        story.verified()


def test_b67_inserts_alone_delete_where_the_query_is_not_monotone(story: Story) -> None:
    story.table("t", "id INT, g STRING, v INT", [(1, "a", 5), (2, "b", 3)], key="id")
    story.table("closed", "g STRING", [("z",)])
    best = story.stream("SELECT id, v FROM t WHERE v = (SELECT max(v) FROM t)", "best")
    open_ones = story.stream("SELECT id, g FROM t WHERE g NOT IN (SELECT g FROM closed)", "open_ones")
    s = story.stream("SELECT b.id, b.v, o.g FROM best b LEFT JOIN open_ones o ON o.id = b.id")
    assert s.rows() == [(1, 5, "a")]
    story.change("INSERT INTO t VALUES (3, 'b', 9)")
    assert best.refreshed() == [(3, 9)]
    open_ones.refreshed()
    assert s.refreshed() == [(3, 9, "b")]
    story.change("INSERT INTO closed VALUES ('b')", "INSERT INTO t VALUES (4, 'a', 9)")
    best.refreshed()
    assert open_ones.refreshed() == [(1, "a"), (4, "a")]
    assert s.refreshed() == [(3, 9, None), (4, 9, "a")]
    story.verified()


def test_b68_a_refresh_without_rows_leaves_those_above_alone(story: Story) -> None:
    story.table("t", "id INT, g STRING, v INT", [(1, "a", 5), (2, "a", 3), (3, "b", 1)], key="id")
    best = story.stream("SELECT g, max(v) AS v FROM t GROUP BY g", "best")
    s = story.stream("SELECT sum(v) AS total FROM best")
    version = {t.name: t.version for t in story.wh.status()}
    story.change("UPDATE t SET v = 4 WHERE id = 2", "INSERT INTO t VALUES (4, 'b', 0)")
    best.kept()
    assert best.changes == (0, 0)
    found = {t.name: t for t in story.wh.status()}
    assert (found["best"].version, found["result"].pending) == (version["best"], False)
    s.idle()
    story.change("DELETE FROM t WHERE id = 1")
    assert best.refreshed() == [("a", 4), ("b", 1)]
    assert s.refreshed() == [(5,)]
    story.verified()


def test_b68_those_above_a_table_that_is_computed_in_full_are_due_when_it_changed(story: Story) -> None:
    story.table("t", "id INT, g STRING, v INT", [(1, "a", 5), (2, "a", 3), (3, "b", 1)], key="id")
    sums = story.stream("SELECT g, sum(v) AS total FROM t GROUP BY g", "sums", "FULL")
    s = story.stream("SELECT g, total FROM sums WHERE total > 1")
    assert s.rows() == [("a", 8)]
    story.change("UPDATE t SET v = 7 WHERE id = 3", "DELETE FROM t WHERE id = 1")
    assert sums.refreshed() == [("a", 3), ("b", 7)]
    assert sums.changes == (2, 2)
    assert [t.pending for t in story.wh.status() if t.name == "result"] == [True]
    assert s.refreshed() == [("a", 3), ("b", 7)]
    # Computed anew and found the same: nothing above is due.
    story.change("UPDATE t SET id = id + 10")
    sums.kept()
    assert sums.changes == (0, 0)
    s.idle()
    story.change("DELETE FROM t WHERE g = 'b'")
    sums.refreshed()
    assert s.refreshed() == [("a", 3)]
    assert s.changes == (0, 1)
    story.verified()


def test_b69_a_chain_keeps_the_types_of_its_columns(story: Story) -> None:
    rows = [(1, date(2024, 2, 29), Decimal("1.50"), [1, 2], True, datetime(2024, 3, 1, 12)), (2, *[None] * 5)]
    ddl = "id INT, d DATE, m DECIMAL(12,2), l ARRAY<INT>, ok BOOLEAN, at TIMESTAMP_NTZ"
    story.table("t", ddl, rows, key="id")
    one = story.stream("SELECT id, d, m, l, ok, at FROM t WHERE id > 0", "one")
    two = story.stream("SELECT id, date_add(d, 1) AS d, m * 2 AS m, l[0] AS x, ok, at FROM one", "two")
    three = story.stream(
        "SELECT ok, max(d) AS d, sum(m) AS m, min(at) AS at, sum(x) AS x FROM two GROUP BY ok", "three"
    )
    s = story.stream("SELECT ok, month(d) AS month, m, date(at) AS day, x + 1 AS x FROM three")
    for stream in (one, two, three, s):
        with story.views(stream.query) as spark:
            expected = [(f.name, f.dataType) for f in spark.sql(stream.query).schema]
        assert [(f.name, f.dataType) for f in story.wh.table(stream.name).schema] == expected
    assert s.rows() == [(None, None, None, None, None), (True, 3, Decimal("3.00"), date(2024, 3, 1), 2)]
    story.change("UPDATE t SET m = 0.25, l = array(7), ok = false WHERE id = 2")
    for stream in (one, two, three):
        stream.refreshed()
    assert s.refreshed() == [
        (False, None, Decimal("0.50"), None, 8),
        (True, 3, Decimal("3.00"), date(2024, 3, 1), 2),
    ]
    story.verified()


def test_b69_a_link_of_the_chain_without_changes_is_passed_over(story: Story) -> None:
    story.table("t", "id INT, v INT", [(1, 1), (2, 2)], key="id")
    story.table("names", "id INT, name STRING", [(1, "a"), (2, "b")], key="id")
    low = story.stream("SELECT id, least(v, 5) AS v FROM t", "low")
    middle = story.stream("SELECT v, count(*) AS n FROM low GROUP BY v", "middle")
    s = story.stream("SELECT x.name, m.n FROM names x LEFT JOIN middle m ON m.v = x.id")

    def all_refreshed() -> dict[str, str]:
        return {r.name: r.action.value for r in story.wh.refresh()}

    story.change("UPDATE names SET name = 'c' WHERE id = 2")
    assert all_refreshed() == {"low": "NO_DATA", "middle": "NO_DATA", "result": "DIFFERENTIAL"}
    assert s.check() == [("a", 1), ("c", 1)]
    story.change("UPDATE t SET v = 8 WHERE id = 2")
    assert all_refreshed() == {"low": "DIFFERENTIAL", "middle": "DIFFERENTIAL", "result": "DIFFERENTIAL"}
    assert (low.check(), middle.check()) == ([(1, 1), (2, 5)], [(1, 1), (5, 1)])
    assert s.check() == [("a", 1), ("c", None)]
    # The change ends at the first link, which hides it.
    story.change("UPDATE t SET v = 9 WHERE id = 2")
    assert all_refreshed() == {"low": "DIFFERENTIAL", "middle": "NO_DATA", "result": "NO_DATA"}
    story.change("DELETE FROM t WHERE id = 1")
    for stream in (low, middle):
        stream.refreshed()
    assert s.refreshed() == [("a", None), ("c", None)]
    story.verified()


def test_b73_what_one_sibling_has_read_is_there_for_the_other(story: Story) -> None:
    story.table("t", "id INT, g STRING, v INT", [(1, "a", 1), (2, "a", 2), (3, "b", 4)], key="id")
    base = story.stream("SELECT g, v FROM t WHERE v > 0", "base")
    sums = story.stream("SELECT g, sum(v) AS total FROM base GROUP BY g", "sums")
    counts = story.stream("SELECT g, count(*) AS n FROM base GROUP BY g", "counts")
    s = story.stream("SELECT a.g, a.total, b.n FROM sums a JOIN counts b ON b.g = a.g")
    story.change("INSERT INTO t VALUES (4, 'b', 8)", "DELETE FROM t WHERE id = 1")
    base.refreshed()
    assert sums.refreshed() == [("a", 2), ("b", 12)]
    story.wh.vacuum(retention_hours=0)
    story.change("UPDATE t SET g = 'c' WHERE id = 3")
    base.refreshed()
    assert sums.refreshed() == [("a", 2), ("b", 8), ("c", 4)]
    story.wh.vacuum(retention_hours=0)
    assert counts.refreshed() == [("a", 1), ("b", 1), ("c", 1)]
    assert counts.report is not None
    assert counts.report.rows_in > 0
    assert s.refreshed() == [("a", 2, 1), ("b", 8, 1), ("c", 4, 1)]
    assert all(story.wh.verify(x.name).equal for x in (base, sums, counts, s))


def test_b63_a_full_refresh_contains_the_changes_before_it_and_no_more(story: Story) -> None:
    story.table("t", "id INT, g STRING, v INT", [(1, "a", 1), (2, "b", 2)], key="id")
    sums = story.stream("SELECT g, sum(v) AS total, max(v) AS best FROM t GROUP BY g", "sums")
    s = story.stream("SELECT sum(total) AS total, count(*) AS n FROM sums")
    for step in (1, 2):
        story.change(f"INSERT INTO t VALUES ({10 * step}, 'a', {10 * step})", "UPDATE t SET v = v + 1 WHERE id = 2")
        assert story.wh.refresh("sums", full=True).action is RefreshAction.FULL
        sums.check()
        sums.idle()
    assert sums.rows() == [("a", 31, 20), ("b", 4, 4)]
    # Those above follow the difference that the full refreshes made.
    assert s.refreshed() == [(35, 2)]
    assert s.report is not None
    assert s.report.rows_in == 8
    story.change("DELETE FROM t WHERE id = 20", "INSERT INTO t VALUES (3, 'c', 3)")
    assert sums.refreshed() == [("a", 11, 10), ("b", 4, 4), ("c", 3, 3)]
    assert s.refreshed() == [(18, 3)]
    story.verified()


def test_b76_rows_that_trade_places_are_deleted_and_inserted_once(story: Story) -> None:
    story.table("t", "id INT, g STRING, v INT", [(1, "a", 1), (2, "a", 2), (3, "b", 4), (4, "c", 4)], key="id")
    sums = story.stream("SELECT g, sum(v) AS total, count(*) AS n FROM t GROUP BY g", "sums")
    kinds = story.stream("SELECT DISTINCT total FROM sums", "kinds")
    values = story.stream("SELECT DISTINCT v FROM t", "seen")
    assert (sums.rows(), kinds.rows()) == ([("a", 3, 2), ("b", 4, 1), ("c", 4, 1)], [(3,), (4,)])
    story.change("UPDATE t SET g = CASE g WHEN 'a' THEN 'b' WHEN 'b' THEN 'a' ELSE g END")
    assert sums.refreshed() == [("a", 4, 1), ("b", 3, 2), ("c", 4, 1)]
    assert sums.changes == (2, 2)
    assert kinds.kept() == [(3,), (4,)]
    assert kinds.changes == (0, 0)
    # One copy goes and another comes, in one refresh; then the last one goes.
    story.change("DELETE FROM t WHERE id = 3", "INSERT INTO t VALUES (5, 'a', 4)", "UPDATE t SET v = 1 WHERE id = 2")
    assert sums.refreshed() == [("a", 4, 1), ("b", 2, 2), ("c", 4, 1)]
    assert kinds.refreshed() == [(2,), (4,)]
    assert values.refreshed() == [(1,), (4,)]
    story.change("DELETE FROM t WHERE v = 4", "INSERT INTO t VALUES (6, 'b', 2)")
    assert sums.refreshed() == [("b", 4, 3)]
    assert kinds.refreshed() == [(4,)]
    assert values.refreshed() == [(1,), (2,)]
    story.verified()
