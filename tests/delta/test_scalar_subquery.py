"""A scalar subquery is one value beside every row: when it moves, the rows that used it are judged again, old and new."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.stories import Story

from headwater.refresh import places
from headwater.store.reading import Reader


def sides(story: Story) -> None:
    story.table("a", "id INT, v INT", [(1, 10), (2, 20), (3, 30)], key="id")
    story.table("b", "id INT, v INT", [(1, 15), (2, 25)], key="id")


def test_in_select_every_row_follows_and_empty_is_null(story: Story) -> None:
    sides(story)
    s = story.stream("SELECT id, v - (SELECT min(v) FROM b) AS d, (SELECT v FROM b WHERE id = 2) AS x FROM a")
    assert s.rows() == [(1, -5, 25), (2, 5, 25), (3, 15, 25)]
    story.change("UPDATE b SET v = 5 WHERE id = 1", "DELETE FROM a WHERE id = 3")
    assert s.refreshed() == [(1, 5, 25), (2, 15, 25)]
    story.change("DELETE FROM b WHERE id = 2", "INSERT INTO a VALUES (4, 40)")
    assert s.refreshed() == [(1, 5, None), (2, 15, None), (4, 35, None)]
    story.change("TRUNCATE TABLE b")
    assert s.refreshed() == [(1, None, None), (2, None, None), (4, None, None)]
    story.change("INSERT INTO b VALUES (2, 1)", "UPDATE a SET v = 11 WHERE id = 1")
    assert s.refreshed() == [(1, 10, 1), (2, 19, 1), (4, 39, 1)]
    story.verified()


def test_in_where_only_rows_between_the_old_and_the_new_value_flip(story: Story) -> None:
    sides(story)
    s = story.stream("SELECT id, v FROM a WHERE v > (SELECT avg(v) FROM b)")
    assert s.rows() == [(3, 30)]
    story.change("UPDATE b SET v = v - 10")
    assert s.refreshed() == [(2, 20), (3, 30)]
    assert s.changes == (1, 0)
    story.change("INSERT INTO b VALUES (3, 40)", "INSERT INTO a VALUES (4, 50), (5, 1)")
    assert s.refreshed() == [(3, 30), (4, 50)]
    story.change("INSERT INTO b VALUES (4, 20)", "UPDATE a SET v = 2 WHERE id = 3", "DELETE FROM a WHERE id = 5")
    assert s.refreshed() == [(4, 50)]
    story.change("TRUNCATE TABLE b")
    assert s.refreshed() == []
    story.verified()


def test_b36_the_old_winner_leaves_when_the_maximum_moves(story: Story) -> None:
    """The shape of TPC-H query 15."""
    story.table("suppliers", "id INT, name STRING", [(1, "S1"), (2, "S2"), (3, "S3")], key="id")
    story.table("sold", "id INT, supplier INT, amount INT", [(1, 1, 50), (2, 2, 30), (3, 2, 10)], key="id")
    s = story.stream(
        "WITH revenue AS (SELECT supplier, sum(amount) AS total FROM sold GROUP BY supplier)"
        " SELECT s.name, r.total FROM suppliers s JOIN revenue r ON r.supplier = s.id"
        " WHERE r.total = (SELECT max(total) FROM revenue)"
    )
    assert s.rows() == [("S1", 50)]
    story.change("INSERT INTO sold VALUES (4, 2, 20)")
    assert s.refreshed() == [("S2", 60)]
    story.change("INSERT INTO sold VALUES (5, 1, 10), (6, 3, 1)")
    assert s.refreshed() == [("S1", 60), ("S2", 60)]
    story.change("DELETE FROM sold WHERE id = 1", "UPDATE sold SET amount = 25 WHERE id = 2")
    assert s.refreshed() == [("S2", 55)]
    story.change("DELETE FROM sold WHERE supplier = 2", "DELETE FROM suppliers WHERE id = 1")
    assert s.refreshed() == []
    story.change("UPDATE sold SET amount = 11 WHERE supplier = 3")
    assert s.refreshed() == [("S3", 11)]
    story.verified()


def test_b36_the_row_with_the_largest_value_of_its_own_table(story: Story) -> None:
    sides(story)
    s = story.stream("SELECT id FROM a WHERE v = (SELECT max(v) FROM a)")
    assert s.rows() == [(3,)]
    story.change("INSERT INTO a VALUES (4, 40), (5, 40)")
    assert s.refreshed() == [(4,), (5,)]
    story.change("DELETE FROM a WHERE id = 4", "UPDATE a SET v = 40 WHERE id = 1")
    assert s.refreshed() == [(1,), (5,)]
    story.change("UPDATE a SET v = 0 WHERE v = 40")
    assert s.refreshed() == [(3,)]
    story.verified()


def test_in_having_groups_cross_a_threshold_that_moves(story: Story) -> None:
    story.table(
        "stock", "id INT, part STRING, qty INT", [(1, "x", 10), (2, "x", 20), (3, "y", 5), (4, "z", 65)], key="id"
    )
    s = story.stream(
        "SELECT part, sum(qty) AS total FROM stock GROUP BY part HAVING sum(qty) > (SELECT sum(qty) * 0.25 FROM stock)"
    )
    assert s.rows() == [("x", 30), ("z", 65)]
    story.change("UPDATE stock SET qty = 165 WHERE part = 'z'")
    assert s.refreshed() == [("z", 165)]
    story.change("DELETE FROM stock WHERE id = 4")
    assert s.refreshed() == [("x", 30)]
    story.change("INSERT INTO stock VALUES (5, 'y', 20)", "UPDATE stock SET part = 'w' WHERE id = 1")
    assert s.refreshed() == [("x", 20), ("y", 25)]
    story.verified()


def test_b37_order_and_limit_inside_the_subquery_are_kept(story: Story) -> None:
    sides(story)
    s = story.stream(
        "SELECT id, (SELECT v FROM b ORDER BY v DESC, id LIMIT 1) AS best, (SELECT v FROM b ORDER BY id LIMIT 1 OFFSET 1) AS second"
        " FROM a WHERE id < 3"
    )
    assert s.rows() == [(1, 25, 25), (2, 25, 25)]
    story.change("INSERT INTO b VALUES (3, 99)")
    assert s.refreshed() == [(1, 99, 25), (2, 99, 25)]
    story.change("DELETE FROM b WHERE id = 1", "UPDATE b SET v = 7 WHERE id = 3")
    assert s.refreshed() == [(1, 25, 7), (2, 25, 7)]
    story.change("DELETE FROM b WHERE id = 3", "DELETE FROM a WHERE id = 1")
    assert s.refreshed() == [(2, 25, None)]
    story.verified()


def test_b35_a_second_row_fails_the_refresh_until_it_is_gone(story: Story) -> None:
    sides(story)
    s = story.stream("SELECT id, (SELECT v FROM b WHERE v > 20) AS x FROM a")
    story.change("UPDATE b SET v = 30 WHERE id = 1")
    s.fails(r"scalar.?subquery")
    story.change("DELETE FROM a WHERE id = 1")
    s.fails(r"scalar.?subquery")
    story.change("UPDATE b SET v = 20 WHERE id = 2")
    assert s.refreshed() == [(2, 30), (3, 30)]
    story.verified()


def test_several_subqueries_nested_and_inside_calls(story: Story) -> None:
    sides(story)
    s = story.stream(
        "SELECT id, greatest(v, (SELECT max(v) FROM b WHERE v < (SELECT max(v) FROM b))) AS g,"
        " coalesce((SELECT min(v) FROM b WHERE v > 90), 0) + (SELECT count(*) FROM a) AS n FROM a"
    )
    assert s.rows() == [(1, 15, 3), (2, 20, 3), (3, 30, 3)]
    story.change("INSERT INTO b VALUES (3, 95)")
    assert s.refreshed() == [(1, 25, 98), (2, 25, 98), (3, 30, 98)]
    story.change("DELETE FROM a WHERE id = 3", "DELETE FROM b WHERE id = 2")
    assert s.refreshed() == [(1, 15, 97), (2, 20, 97)]
    story.change("UPDATE b SET v = 1", "INSERT INTO a VALUES (9, 2)")
    assert s.refreshed() == [(1, 10, 3), (2, 20, 3), (9, 2, 3)]
    story.verified()


def test_a_rate_inside_an_aggregate_and_a_join(story: Story) -> None:
    story.table("rates", "name STRING, rate INT", [("tax", 2)])
    story.table("sales", "id INT, region STRING, v INT", [(1, "n", 5), (2, "s", 6), (3, "n", 7)], key="id")
    s = story.stream(
        "SELECT region, sum(v * (SELECT rate FROM rates WHERE name = 'tax')) AS total FROM sales GROUP BY region",
        "totals",
    )
    j = story.stream(
        "SELECT x.id AS x, y.id AS y FROM sales x JOIN sales y ON y.v = x.v + (SELECT max(rate) FROM rates)", "pairs"
    )
    assert s.rows() == [("n", 24), ("s", 12)]
    assert j.rows() == [(1, 3)]
    story.change("UPDATE rates SET rate = 1")
    assert s.refreshed() == [("n", 12), ("s", 6)]
    assert j.refreshed() == [(1, 2), (2, 3)]
    story.change(
        "DELETE FROM rates WHERE name = 'tax'", "INSERT INTO rates VALUES ('fee', 2)", "DELETE FROM sales WHERE id = 2"
    )
    assert s.refreshed() == [("n", None)]
    assert j.refreshed() == [(1, 3)]
    story.change("INSERT INTO rates VALUES ('tax', 10)", "INSERT INTO sales VALUES (4, 's', 15)")
    assert s.refreshed() == [("n", 120), ("s", 150)]
    assert j.refreshed() == [(1, 4)]
    story.verified()


def test_a_value_that_depends_on_chance_is_refused(story: Story) -> None:
    sides(story)
    story.refused("SELECT id, (SELECT v FROM b LIMIT 1) AS x FROM a", "ORDER_DEPENDENT")
    story.refused("SELECT id FROM a WHERE v > (SELECT max(v) * rand() FROM b)", "EXPRESSION_NOT_DETERMINISTIC")
    story.refused(
        "SELECT id, (SELECT max(v) FROM b WHERE now() > TIMESTAMP '2024-01-01 00:00:00') AS x FROM a", "TIME_DEPENDENT"
    )


@pytest.mark.parametrize(
    ("type_", "condition"),
    [
        ("INT", "v > (SELECT max(v) FROM b)"),
        ("DECIMAL(9,2)", "v > (SELECT avg(v) FROM b)"),
        ("DECIMAL(9,2)", "(SELECT max(v) FROM b) <= v"),
        ("BIGINT", "v < (SELECT min(v) FROM b)"),
        ("DATE", "v >= (SELECT min(v) FROM b)"),
        ("DOUBLE", "v > (SELECT avg(v) FROM b)"),
    ],
)
def test_of_a_large_table_only_rows_between_the_values_are_read(
    story: Story, monkeypatch: pytest.MonkeyPatch, type_: str, condition: str
) -> None:
    found: list[int] = []
    few, rows_between = Reader.few, places.rows_between

    def counted(*args: Any) -> Any:
        rows = rows_between(*args)
        found.append(rows.num_rows)
        return rows

    monkeypatch.setattr(
        Reader, "few", lambda self, source, *args: None if source.table.name == "a" else few(self, source, *args)
    )
    monkeypatch.setattr(places, "rows_between", counted)
    value = "date_add(DATE '2024-01-01', {0})" if type_ == "DATE" else "CAST({0} AS " + type_ + ")"

    def values(*pairs: tuple[int, int | None]) -> str:
        return ", ".join(f"({i}, {'NULL' if v is None else value.format(v)})" for i, v in pairs)

    for name in ("a", "b"):
        story.table(name, f"id INT, v {type_}", key="id")
    story.change(f"INSERT INTO a VALUES {values(*((i, i) for i in range(40)), (40, None))}")
    story.wh.compact("a")
    story.change(f"INSERT INTO b VALUES {values((1, 15), (2, 25))}")
    s = story.stream(f"SELECT id, v FROM a WHERE {condition}")
    story.change(
        f"INSERT INTO b VALUES {values((3, 23), (4, 13))}", f"UPDATE b SET v = {value.format(31)} WHERE id = 1"
    )
    s.refreshed()
    story.change(f"INSERT INTO b VALUES {values((5, 2))}", f"UPDATE a SET v = {value.format(20)} WHERE id IN (1, 39)")
    s.refreshed()
    story.change(f"INSERT INTO b VALUES {values((6, 38))}", "DELETE FROM a WHERE id IN (0, 18, 38)")
    s.refreshed()
    if "avg" in condition:  # nothing is beyond the greatest or least of nothing
        story.change("TRUNCATE TABLE b")
        s.refreshed()
        story.change(f"INSERT INTO b VALUES {values((1, 20), (2, 21))}", "UPDATE a SET v = NULL WHERE id = 3")
        s.refreshed()
    story.verified()
    assert type_ == "DOUBLE" or 0 < max(found, default=0) < 40
    assert type_ != "DOUBLE" or not found


def test_values_that_come_without_others_going_are_compared_with_every_row(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = Reader.few
    monkeypatch.setattr(
        Reader, "few", lambda self, source, *args: None if source.table.name == "a" else few(self, source, *args)
    )
    story.table("a", "id INT, v INT", [(i, i) for i in range(20)], key="id")
    story.wh.compact("a")
    story.table("b", "id INT, v INT", [(1, 5)], key="id")
    s = story.stream("SELECT count(*) AS n, sum(a.v) AS total FROM a JOIN b ON a.v > b.v")
    assert s.rows() == [(14, 175)]
    story.change("INSERT INTO b VALUES (2, 10), (3, 12)")
    assert s.refreshed() == [(30, 422)]
    story.change("UPDATE b SET v = 11 WHERE id = 2", "DELETE FROM a WHERE id = 19")
    assert s.refreshed() == [(26, 354)]
    story.change("DELETE FROM b WHERE id <> 1")
    assert s.refreshed() == [(13, 156)]
    story.verified()
