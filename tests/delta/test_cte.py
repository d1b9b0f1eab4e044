"""A CTE is its query wherever it is named: each use has its own changes, and equal names do not make equal subtrees."""

from __future__ import annotations

from tests.support.stories import Story


def orders(story: Story) -> None:
    story.table("orders", "id INT, customer INT, v INT", [(1, 1, 5), (2, 1, 6), (3, 2, 7)], key="id")


def test_b43_a_cte_used_twice_is_maintained_from_changes(story: Story) -> None:
    orders(story)
    s = story.stream(
        "WITH totals AS (SELECT customer, sum(v) AS total FROM orders GROUP BY customer)"
        " SELECT a.customer, a.total, b.customer AS other FROM totals a LEFT JOIN totals b ON b.total > a.total"
    )
    assert s.rows() == [(1, 11, None), (2, 7, 1)]
    story.change("INSERT INTO orders VALUES (4, 2, 10), (5, 3, 1)")
    assert s.refreshed() == [(1, 11, 2), (2, 17, None), (3, 1, 1), (3, 1, 2)]
    story.change("DELETE FROM orders WHERE id = 4", "UPDATE orders SET customer = 3 WHERE id = 2")
    assert s.refreshed() == [(1, 5, 2), (1, 5, 3), (2, 7, None), (3, 7, None)]
    story.change("DELETE FROM orders WHERE customer < 3")
    assert s.refreshed() == [(3, 7, None)]
    story.verified()


def test_b43_with_and_union_all(story: Story) -> None:
    orders(story)
    s = story.stream(
        "WITH big AS (SELECT id, v FROM orders WHERE v > 5), small AS (SELECT id, v FROM orders WHERE v <= 6)"
        " SELECT 'big' AS kind, id FROM big UNION ALL SELECT 'small', id FROM small"
        " UNION ALL SELECT 'both', b.id FROM big b JOIN small s ON b.id = s.id"
    )
    assert s.rows() == [("big", 2), ("big", 3), ("both", 2), ("small", 1), ("small", 2)]
    story.change("UPDATE orders SET v = 6 WHERE id = 1", "UPDATE orders SET v = 1 WHERE id = 3")
    assert s.refreshed() == [("big", 1), ("big", 2), ("both", 1), ("both", 2), ("small", 1), ("small", 2), ("small", 3)]
    story.change("DELETE FROM orders WHERE id = 2", "INSERT INTO orders VALUES (4, 9, 9)")
    assert s.refreshed() == [("big", 1), ("big", 4), ("both", 1), ("small", 1), ("small", 3)]
    story.verified()


def test_b43_the_first_row_of_each_group_inside_a_cte(story: Story) -> None:
    """What PostgreSQL writes as DISTINCT ON."""
    orders(story)
    story.table("customers", "id INT, name STRING", [(1, "Ann"), (2, "Bob")], key="id")
    s = story.stream(
        "WITH numbered AS (SELECT id, customer, v, row_number() OVER (PARTITION BY customer ORDER BY v DESC, id) AS n FROM orders),"
        " best AS (SELECT id, customer, v FROM numbered WHERE n = 1)"
        " SELECT c.name, b.id, b.v FROM customers c JOIN best b ON b.customer = c.id"
    )
    assert s.rows() == [("Ann", 2, 6), ("Bob", 3, 7)]
    story.change("UPDATE orders SET v = 9 WHERE id = 1", "INSERT INTO orders VALUES (4, 2, 7)")
    assert s.refreshed() == [("Ann", 1, 9), ("Bob", 3, 7)]
    story.change("DELETE FROM orders WHERE id IN (1, 3)", "UPDATE customers SET name = 'Bea' WHERE id = 2")
    assert s.refreshed() == [("Ann", 2, 6), ("Bea", 4, 7)]
    story.change("UPDATE orders SET customer = 3 - customer")
    assert s.refreshed() == [("Ann", 4, 7), ("Bea", 2, 6)]
    story.verified()


def test_b47_one_query_under_two_aliases_with_all_its_columns(story: Story) -> None:
    orders(story)
    s = story.stream(
        "WITH w AS (SELECT * FROM orders WHERE v > 4)"
        " SELECT x.*, y.id AS next_id FROM w AS x JOIN w AS y ON y.id = x.id + 1 WHERE x.customer = 1"
    )
    assert s.rows() == [(1, 1, 5, 2), (2, 1, 6, 3)]
    story.change("UPDATE orders SET v = 4 WHERE id = 2")
    assert s.refreshed() == []
    story.change("INSERT INTO orders VALUES (4, 1, 8), (5, 2, 9)", "UPDATE orders SET v = 6 WHERE id = 2")
    assert s.refreshed() == [(1, 1, 5, 2), (2, 1, 6, 3), (4, 1, 8, 5)]
    story.change("DELETE FROM orders WHERE id = 3", "UPDATE orders SET id = 3 WHERE id = 4")
    assert s.refreshed() == [(1, 1, 5, 2), (2, 1, 6, 3)]
    story.verified()


def test_b47_a_stream_table_named_twice_as_a_view_would_be(story: Story) -> None:
    orders(story)
    w = story.stream("SELECT id, customer, v * 10 AS v FROM orders WHERE v > 5", "w")
    s = story.stream("SELECT x.*, y.v AS other FROM w x JOIN w y ON x.customer = y.customer WHERE x.v <= y.v")
    assert s.rows() == [(2, 1, 60, 60), (3, 2, 70, 70)]
    story.change("UPDATE orders SET v = 8 WHERE id = 1")
    w.refreshed()
    assert s.refreshed() == [(1, 1, 80, 80), (2, 1, 60, 60), (2, 1, 60, 80), (3, 2, 70, 70)]
    story.change("UPDATE orders SET customer = 2 WHERE id = 2", "DELETE FROM orders WHERE id = 1")
    w.refreshed()
    assert s.refreshed() == [(2, 2, 60, 60), (2, 2, 60, 70), (3, 2, 70, 70)]
    story.verified()


def test_ctes_that_use_ctes_and_hide_names(story: Story) -> None:
    orders(story)
    s = story.stream(
        "WITH a AS (SELECT customer, count(*) AS n FROM orders GROUP BY customer),"
        " b AS (SELECT n, count(*) AS customers FROM a GROUP BY n),"
        " orders AS (SELECT max(n) AS n FROM b) SELECT b.n, b.customers FROM b JOIN orders o ON b.n = o.n"
    )
    assert s.rows() == [(2, 1)]
    story.change("INSERT INTO orders VALUES (4, 2, 1)")
    assert s.refreshed() == [(2, 2)]
    story.change("INSERT INTO orders VALUES (5, 2, 1)", "DELETE FROM orders WHERE id = 1")
    assert s.refreshed() == [(3, 1)]
    story.change("UPDATE orders SET customer = id")
    assert s.refreshed() == [(1, 4)]
    story.verified()


def test_a_cte_inside_a_subquery_and_used_outside_and_inside(story: Story) -> None:
    orders(story)
    s = story.stream(
        "WITH totals AS (SELECT customer, sum(v) AS total FROM orders GROUP BY customer)"
        " SELECT t.customer, (WITH best AS (SELECT max(total) AS m FROM totals) SELECT m FROM best) - t.total AS behind FROM totals t"
        " WHERE t.customer IN (SELECT customer FROM totals WHERE total > 6)"
    )
    assert s.rows() == [(1, 0), (2, 4)]
    story.change("UPDATE orders SET v = 17 WHERE id = 3", "INSERT INTO orders VALUES (4, 3, 6)")
    assert s.refreshed() == [(1, 6), (2, 0)]
    story.change("DELETE FROM orders WHERE id = 3", "INSERT INTO orders VALUES (5, 3, 1)")
    assert s.refreshed() == [(1, 0), (3, 4)]
    story.verified()


def test_a_cte_of_random_numbers_is_refused(story: Story) -> None:
    orders(story)
    text = "WITH r AS (SELECT id, {} AS x FROM orders) SELECT a.id FROM r a JOIN r b ON a.x = b.x"
    story.refused(text.format("rand()"), "EXPRESSION_NOT_DETERMINISTIC")
    story.refused(text.format("now()"), "TIME_DEPENDENT")
