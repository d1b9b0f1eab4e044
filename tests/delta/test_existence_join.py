"""An existence join keeps every left row and says whether it has a match: a flip is an update of that one column."""

from __future__ import annotations

import pytest
from tests.support.stories import Story


def shop(story: Story) -> None:
    story.table(
        "customers",
        "id INT, name STRING, is_vip BOOLEAN",
        [(1, "Ann", False), (2, "Bob", True), (3, "Cy", False)],
        key="id",
    )
    story.table("orders", "id INT, customer INT", [(10, 1)], key="id")
    story.table("gifts", "customer INT, name STRING", [(3, "pen")])


HAS_ORDER = "EXISTS (SELECT 1 FROM orders o WHERE o.customer = c.id)"
HAS_GIFT = "c.id IN (SELECT customer FROM gifts)"


def test_b30_exists_or_in_under_or(story: Story) -> None:
    shop(story)
    s = story.stream(f"SELECT c.id FROM customers c WHERE c.is_vip OR {HAS_ORDER}", "one")
    two = story.stream(f"SELECT c.id FROM customers c WHERE {HAS_ORDER} OR {HAS_GIFT} OR c.name = 'Di'", "two")
    assert (s.rows(), two.rows()) == ([(1,), (2,)], [(1,), (3,)])
    story.change("UPDATE orders SET customer = 3", "UPDATE customers SET is_vip = NOT is_vip WHERE id < 3")
    assert s.refreshed() == [(1,), (3,)]
    assert two.refreshed() == [(3,)]
    story.change(
        "DELETE FROM orders",
        "INSERT INTO gifts VALUES (2, 'cap'), (2, 'cup')",
        "INSERT INTO customers VALUES (4, 'Di', false)",
    )
    assert s.refreshed() == [(1,)]
    assert two.refreshed() == [(2,), (3,), (4,)]
    story.change("DELETE FROM gifts WHERE name <> 'cap'", "INSERT INTO orders VALUES (11, 4), (12, 4)")
    assert s.refreshed() == [(1,), (4,)]
    assert two.refreshed() == [(2,), (4,)]
    story.verified()


@pytest.mark.parametrize(
    "condition",
    [
        f"NOT ({HAS_ORDER} OR {HAS_GIFT})",
        f"NOT {HAS_ORDER} AND NOT {HAS_GIFT}",
        f"NOT (NOT (NOT {HAS_ORDER} AND NOT {HAS_GIFT}))",
    ],
)
def test_b30_de_morgan_says_the_same_in_every_form(story: Story, condition: str) -> None:
    shop(story)
    s = story.stream(f"SELECT c.id FROM customers c WHERE {condition}")
    assert s.rows() == [(2,)]
    story.change("INSERT INTO orders VALUES (11, 2)", "DELETE FROM gifts")
    assert s.refreshed() == [(3,)]
    story.change(
        "DELETE FROM orders WHERE id = 10",
        "INSERT INTO gifts VALUES (3, 'cap')",
        "INSERT INTO customers VALUES (4, 'Di', true)",
    )
    assert s.refreshed() == [(1,), (4,)]
    story.verified()


def test_b30_not_of_an_and_of_both(story: Story) -> None:
    shop(story)
    s = story.stream(f"SELECT c.id FROM customers c WHERE NOT ({HAS_ORDER} AND {HAS_GIFT})")
    assert s.rows() == [(1,), (2,), (3,)]
    story.change("INSERT INTO orders VALUES (11, 3), (12, 3)", "INSERT INTO gifts VALUES (2, 'cap')")
    assert s.refreshed() == [(1,), (2,)]
    story.change("INSERT INTO gifts VALUES (1, 'cap')", "DELETE FROM orders WHERE id = 11")
    assert s.refreshed() == [(2,)]
    story.change("DELETE FROM gifts WHERE customer = 3", "DELETE FROM customers WHERE id = 2")
    assert s.refreshed() == [(3,)]
    story.verified()


def test_existence_as_a_column(story: Story) -> None:
    shop(story)
    s = story.stream(f"SELECT c.id, {HAS_ORDER} AS ordered, NOT {HAS_GIFT} AS no_gift FROM customers c")
    assert s.rows() == [(1, True, True), (2, False, True), (3, False, False)]
    story.change("INSERT INTO orders VALUES (11, 2), (12, 2)", "DELETE FROM gifts")
    assert s.refreshed() == [(1, True, True), (2, True, True), (3, False, True)]
    assert s.changes == (2, 2)
    story.change("DELETE FROM orders WHERE id = 12", "INSERT INTO orders VALUES (13, 1)")
    assert s.kept() == [(1, True, True), (2, True, True), (3, False, True)]
    assert s.changes == (0, 0)
    story.change(
        "DELETE FROM orders", "INSERT INTO customers VALUES (4, 'Di', true)", "INSERT INTO gifts VALUES (4, 'cap')"
    )
    assert s.refreshed() == [(1, False, True), (2, False, True), (3, False, True), (4, False, False)]
    story.verified()


def test_b34_subqueries_inside_case_coalesce_and_arguments(story: Story) -> None:
    shop(story)
    s = story.stream(
        f"SELECT c.id, CASE WHEN {HAS_ORDER} THEN 'buyer' WHEN {HAS_GIFT} THEN 'guest' ELSE 'none' END AS kind,"
        f" coalesce(CASE WHEN {HAS_GIFT} THEN (SELECT max(g.name) FROM gifts g WHERE g.customer = c.id) END, '-') AS gift,"
        " concat(c.name, ':', CAST((SELECT count(*) FROM orders o WHERE o.customer = c.id) AS STRING)) AS label FROM customers c"
    )
    assert s.rows() == [(1, "buyer", "-", "Ann:1"), (2, "none", "-", "Bob:0"), (3, "guest", "pen", "Cy:0")]
    story.change("INSERT INTO orders VALUES (11, 1), (12, 3)", "INSERT INTO gifts VALUES (1, 'cap'), (3, 'zip')")
    assert s.refreshed() == [(1, "buyer", "cap", "Ann:2"), (2, "none", "-", "Bob:0"), (3, "buyer", "zip", "Cy:1")]
    story.change("DELETE FROM orders WHERE customer = 1", "DELETE FROM gifts WHERE name = 'zip'")
    assert s.refreshed() == [(1, "guest", "cap", "Ann:0"), (2, "none", "-", "Bob:0"), (3, "buyer", "pen", "Cy:1")]
    story.change(
        "TRUNCATE TABLE gifts", "UPDATE orders SET customer = 2", "UPDATE customers SET name = 'Bea' WHERE id = 2"
    )
    assert s.refreshed() == [(1, "none", "-", "Ann:0"), (2, "buyer", "-", "Bea:1"), (3, "none", "-", "Cy:0")]
    story.verified()


def test_existence_in_the_filter_of_an_aggregate(story: Story) -> None:
    shop(story)
    s = story.stream(
        "SELECT is_vip, count(*) AS n, count(*) FILTER (WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer = c.id)) AS buyers"
        " FROM customers c GROUP BY is_vip"
    )
    assert s.rows() == [(False, 2, 1), (True, 1, 0)]
    story.change("INSERT INTO orders VALUES (11, 2), (12, 2)")
    assert s.refreshed() == [(False, 2, 1), (True, 1, 1)]
    story.change("UPDATE customers SET is_vip = true WHERE id = 1", "DELETE FROM orders WHERE id = 11")
    assert s.refreshed() == [(False, 1, 0), (True, 2, 2)]
    story.change("UPDATE orders SET customer = 3", "DELETE FROM customers WHERE id = 2")
    assert s.refreshed() == [(False, 1, 1), (True, 1, 0)]
    story.verified()


def test_not_in_under_or_knows_null(story: Story) -> None:
    story.table("a", "id INT, k INT", [(1, 1), (2, 2), (3, None)], key="id")
    story.table("b", "k INT", [(1,)])
    s = story.stream("SELECT id FROM a WHERE id = 1 OR k NOT IN (SELECT k FROM b)")
    assert s.rows() == [(1,), (2,)]
    story.change("INSERT INTO b VALUES (NULL)")
    assert s.refreshed() == [(1,)]
    story.change("TRUNCATE TABLE b")
    assert s.refreshed() == [(1,), (2,), (3,)]
    story.change("INSERT INTO b VALUES (2), (2)", "INSERT INTO a VALUES (4, 4)")
    assert s.refreshed() == [(1,), (4,)]
    story.verified()


def test_equal_rows_of_a_table_without_a_key_flip_together(story: Story) -> None:
    story.table("a", "k INT", [(1,), (1,), (2,)])
    story.table("b", "k INT", [(2,), (2,)])
    s = story.stream("SELECT a.k, EXISTS (SELECT 1 FROM b WHERE b.k = a.k) AS e FROM a")
    assert s.rows() == [(1, False), (1, False), (2, True)]
    story.apply("b", (1, "I"), (2, "D"))
    assert s.refreshed() == [(1, True), (1, True), (2, True)]
    story.apply("a", (1, "D"), (3, "I"))
    story.apply("b", (1, "D"), (2, "D"), (3, "I"))
    assert s.refreshed() == [(1, False), (2, False), (3, True)]
    story.verified()


def test_a_clock_inside_the_subquery_is_refused(story: Story) -> None:
    shop(story)
    text = "SELECT c.id, CASE WHEN EXISTS (SELECT 1 FROM orders o WHERE o.customer = c.id AND {}) THEN 1 END AS e FROM customers c"
    story.refused(text.format("current_date() > DATE '2024-01-01'"), "TIME_DEPENDENT")
    story.refused(
        "SELECT id FROM customers WHERE is_vip OR id IN (SELECT customer FROM orders LIMIT 1)", "ORDER_DEPENDENT"
    )
