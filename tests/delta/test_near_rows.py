"""Rows of a table near a change are read once, however many texts of a refresh ask for them."""

from __future__ import annotations

import datetime
from collections import Counter
from typing import Any

import pytest
from tests.support.stories import Story

from headwater.delta import near
from headwater.delta.context import call
from headwater.delta.near import Pair
from headwater.plan.expressions import Column, ColumnRef
from headwater.plan.operators import At, Join, JoinKind, Near, Operator, Scan, Side, Via, walk_operators
from headwater.refresh import places
from headwater.refresh.places import Places
from headwater.store.reading import Reader, Source

D = (datetime.date(2024, 1, 1), datetime.date(2024, 2, 1))
WAITING = """
    SELECT i.supplier, count(*) AS n FROM items i JOIN orders o ON o.id = i.orders
    WHERE o.status = 'F' AND i.late
      AND EXISTS (SELECT 1 FROM items x WHERE x.orders = i.orders AND x.supplier <> i.supplier)
      AND NOT EXISTS (SELECT 1 FROM items y WHERE y.orders = i.orders AND y.supplier <> i.supplier AND y.late)
    GROUP BY i.supplier
"""


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often Spark reads each side of each table in a refresh, as if the driver could find no rows and all tables were large."""
    counted: Counter[str] = Counter()
    state_text = Places._state_text

    def counting(self: Places, read: Any, bounds: Any, given: Any) -> tuple[str, int]:
        if read.name in given.sources:
            counted[f"{given.sources[read.name].table.name}, {read.kind}"] += 1
        return state_text(self, read, bounds, given)

    monkeypatch.setattr(Places, "_state_text", counting)
    monkeypatch.setattr(Places, "_found", lambda *_: None)
    monkeypatch.setattr(places, "_NEAR_TABLE_ROWS", 0)
    return counted


@pytest.fixture
def waiting(story: Story) -> Story:
    story.table("orders", "id INT, status STRING", [(1, "F"), (2, "F"), (3, "O")], key="id")
    rows = [(1, 1, 7, True), (2, 1, 8, False), (3, 2, 7, True), (4, 2, 9, True), (5, 3, 7, True), (6, 3, 8, False)]
    story.table("items", "id INT, orders INT, supplier INT, late BOOLEAN", rows, key="id")
    return story


def test_a_table_that_three_texts_read_near_a_change_is_read_once(waiting: Story, reads: Counter[str]) -> None:
    stream = waiting.stream(WAITING)
    waiting.change("UPDATE items SET late = false WHERE id = 4")
    reads.clear()
    assert stream.refreshed() == [(7, 2)]
    assert reads == {"items, new": 1, "orders, new": 1}
    waiting.change("DELETE FROM items WHERE id = 2")
    assert stream.refreshed() == [(7, 1)]
    waiting.change("UPDATE orders SET status = 'F' WHERE id = 3", "INSERT INTO items VALUES (7, 1, 9, false)")
    assert stream.refreshed() == [(7, 3)]
    waiting.verified()


def test_of_a_small_table_all_is_read(waiting: Story, reads: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "_NEAR_TABLE_ROWS", 10_000)
    stream = waiting.stream(WAITING)
    waiting.change("UPDATE items SET late = false WHERE id = 4")
    reads.clear()
    assert stream.refreshed() == [(7, 2)]
    assert reads["items, new"] > 1


def test_keys_that_were_not_known_yet_are_looked_for_by_themselves(story: Story, reads: Counter[str]) -> None:
    story.table("l", "id INT, k INT", [(1, 1)], key="id")
    story.table("r", "k INT, v INT", [(1, 2), (2, 3), (3, None), (None, 4)])
    stream = story.stream("SELECT l.id, a.v, b.v AS w FROM l LEFT JOIN r a ON a.k <=> l.k LEFT JOIN r b ON b.k <=> a.v")
    story.change("INSERT INTO l VALUES (2, 2), (3, 3), (4, NULL)")
    reads.clear()
    assert stream.refreshed() == [(1, 2, 3), (2, 3, None), (3, None, 4), (4, 4, None)]
    assert reads["r, new"] == 2
    story.change("DELETE FROM l WHERE id = 1", "UPDATE r SET v = 2 WHERE k IS NULL")
    assert stream.refreshed() == [(2, 3, None), (3, None, 2), (4, 2, 3)]
    story.verified()


def test_a_group_that_is_read_again_needs_columns_that_other_texts_do_not(story: Story, reads: Counter[str]) -> None:
    story.table("t", "id INT, k INT, v INT", [(i, i % 2, i) for i in range(60)], key="id")
    stream = story.stream("""
        SELECT a.id, m.top FROM t a JOIN (SELECT k, max(v) AS top FROM t GROUP BY k) m ON a.k = m.k
        WHERE EXISTS (SELECT 1 FROM t x WHERE x.k = a.k AND x.id > a.id)
    """)
    story.change("DELETE FROM t WHERE k = 1 AND id > 6")
    assert [r for r in stream.refreshed() if r[1] != 58] == [(1, 5), (3, 5)]
    assert stream.report is not None
    assert stream.report.rescanned_groups == 1
    story.verified()


@pytest.mark.parametrize("column", ["tags", "pair"])
def test_keys_that_arrow_cannot_tell_apart_are_found_by_spark(story: Story, reads: Counter[str], column: str) -> None:
    rows = [(1, ["x", None], {"a": 1}, 5), (2, ["x", None], {"a": 1}, 7), (3, [], {"a": None}, 9), (4, None, None, 1)]
    story.table("t", "id INT, tags ARRAY<STRING>, pair STRUCT<a: INT>, v INT", rows, key="id")
    story.table("u", "tags ARRAY<STRING>, pair STRUCT<a: INT>", [(["x", None], {"a": 1}), ([], {"a": None})])
    stream = story.stream(f"""
        SELECT CAST(t.{column} AS STRING) AS k, percentile(t.v, 0.5) AS middle FROM t LEFT JOIN u ON u.{column} = t.{column}
        GROUP BY t.{column}
    """)
    story.change("UPDATE t SET v = 11 WHERE id = 2", "DELETE FROM u WHERE size(tags) = 0")
    assert [r[1] for r in stream.refreshed()] in ([1.0, 8.0, 9.0], [1.0, 9.0, 8.0])
    story.verified()


def test_a_state_is_not_looked_up_before_its_stage_has_run(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of u that several texts need are read once, for the keys of later texts too: some of these lie behind the state."""
    few = Reader.few

    def of_all_but_u(self: Reader, source: Source, version: int, fields: Any) -> Any:
        return None if source.table.name == "u" else few(self, source, version, fields)

    monkeypatch.setattr(Reader, "few", of_all_but_u)
    monkeypatch.setattr(places, "rows_near", lambda *_: None)
    monkeypatch.setattr(places, "_NEAR_TABLE_ROWS", 0)
    story.table("t", "id INT, x INT", [(1, 1)], key="id")
    story.table("u", "id INT, c INT", [(1, 1), (2, 2), (3, 2)], key="id")
    story.table("v", "id INT, c INT", [(1, 1), (2, 2)], key="id")
    stream = story.stream(
        "SELECT t.id, a.n, u2.id AS u FROM t"
        " JOIN (SELECT u.c, count(*) AS n FROM u JOIN v ON u.c = v.c GROUP BY u.c) a ON t.x = a.c"
        " JOIN u u2 ON u2.c = a.c"
    )
    story.change("INSERT INTO t VALUES (2, 2)", "INSERT INTO v VALUES (3, 2)")
    assert stream.refreshed() == [(1, 1, 1), (2, 4, 2), (2, 4, 3)]


@pytest.mark.parametrize(
    ("kind", "left_is_limited", "right_is_limited"),
    [
        (JoinKind.INNER, True, True),
        (JoinKind.LEFT, False, True),
        (JoinKind.SEMI, False, True),
        (JoinKind.ANTI, False, True),
        (JoinKind.FULL, False, False),
    ],
)
def test_a_side_that_no_key_reaches_is_limited_by_the_rows_of_the_other(
    kind: JoinKind, left_is_limited: bool, right_is_limited: bool
) -> None:
    left = Scan("l", (Column(1, "k", "INT"), Column(2, "a", "INT")), ("k", "a"), Side.NEW)
    right = Scan("r", (Column(3, "b", "INT"), Column(4, "m", "INT")), ("b", "m"), Side.NEW)
    join = Join(left, right, kind, (call(near.EQUAL, ColumnRef(2), ColumnRef(3)),))
    keys = Scan("t", (Column(5, "k", "INT"),), ("k",), Side.DELTA)

    def limits(by: Column, table: str) -> tuple[Near, ...]:
        tree = near.bounded(join, keys, [Pair(by, keys.columns[0])])
        return next(o.near for o in walk_operators(tree) if isinstance(o, Scan) and o.table == table)

    at_hand = At("changes:t", "k")
    by_left = limits(left.columns[0], "r")
    wanted = (Near("b", (Via(Side.NEW, "l", "a", (Near("k", (at_hand,)),)),), null_safe=False),)
    assert by_left == (wanted if right_is_limited else ())
    if kind in (JoinKind.INNER, JoinKind.LEFT, JoinKind.FULL):  # the others have no columns of the right side
        by_right = limits(right.columns[1], "l")
        wanted = (Near("a", (Via(Side.NEW, "r", "b", (Near("m", (at_hand,)),)),), null_safe=False),)
        assert by_right == (wanted if left_is_limited else ())


def test_limits_do_not_double_with_each_table() -> None:
    """Twenty tables joined on one column: the keys of each lie behind others, and are named once."""

    def scan(n: int) -> Scan:
        return Scan(f"t{n}", (Column(n, "k", "INT"),), ("k",), Side.NEW)

    tree: Operator = Scan("t0", (Column(0, "k", "INT"),), ("k",), Side.DELTA)
    for n in range(1, 20):
        pairs = [Pair(Column(n, "k", "INT"), c, null_safe=False) for c in tree.output]
        tree = Join(tree, near.bounded(scan(n), tree, pairs), JoinKind.INNER)
    last = next(o for o in walk_operators(tree) if isinstance(o, Scan) and o.table == "t19")
    assert [(n.name, n.sources) for n in last.near] == [("k", (At("changes:t0", "k"),))]

    chain: Operator = Scan("t0", (Column(0, "k", "INT"),), ("k",), Side.DELTA)
    for n in range(1, 20):  # each known by the last one alone, and by the one before it
        known = chain.output[-2:]
        pairs = [Pair(Column(n, "k", "INT"), c, null_safe=False) for c in known]
        chain = Join(chain, near.bounded(scan(n), chain, pairs), JoinKind.INNER)
    last = next(o for o in walk_operators(chain) if isinstance(o, Scan) and o.table == "t19")
    assert len(last.near) == 1
    assert near.depth(last.near[0]) <= 10


def test_columns_compared_with_each_other_in_a_table_without_changes(story: Story) -> None:
    story.table("orders", "id INT, priority STRING", [(1, "high"), (2, "low")], key="id")
    story.table("items", "id INT, orders INT, due DATE, done DATE", [(1, 1, D[0], D[1]), (2, 2, D[1], D[0])], key="id")
    s = story.stream(
        "SELECT priority, count(*) AS n FROM orders o"
        " WHERE EXISTS (SELECT 1 FROM items i WHERE i.orders = o.id AND i.due < i.done) GROUP BY priority"
    )
    assert s.rows() == [("high", 1)]
    story.change("UPDATE orders SET priority = 'low' WHERE id = 1")
    assert s.refreshed() == [("low", 1)]
    story.change("UPDATE items SET done = DATE '2024-03-01' WHERE id = 2")
    assert s.refreshed() == [("low", 2)]
    story.verified()


def test_two_limits_on_a_collated_column_are_not_compared_byte_by_byte(story: Story) -> None:
    text = "STRING COLLATE UTF8_LCASE"
    story.table("a", f"id BIGINT, x {text}", [(2, "none")], key="id")
    story.table("b", f"id BIGINT, y {text}, kind INT", [(1, "abc", 3), (2, "xyz", 3)], key="id")
    story.table("c", f"id BIGINT, z {text}", [(0, "none yet")], key="id")
    story.change(
        "INSERT INTO c SELECT id + 1, CASE WHEN id IN (17, 4711) THEN 'aBC' ELSE concat('c', id) END "
        "FROM (SELECT explode(sequence(0, 5999)) AS id)"
    )
    s = story.stream(
        "SELECT a.id, b.id AS b, c.id AS c FROM a JOIN b ON a.x = b.y JOIN c ON b.y = c.z WHERE b.kind = 3"
    )
    story.change("INSERT INTO a VALUES (1, 'ABC')")
    assert s.refreshed() == [(1, 1, 18), (1, 1, 4712)]
    story.change("UPDATE c SET z = 'ABc' WHERE id = 1", "DELETE FROM c WHERE id = 18")
    assert s.refreshed() == [(1, 1, 1), (1, 1, 4712)]
    story.verified()
