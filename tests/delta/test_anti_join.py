"""delta(L anti join R) = delta L where it has no match in R' - rows of L, as they were, whose first match came, + last one went."""

from __future__ import annotations

import pytest
from tests.support.stories import Story

FORMS = {
    "exists": "SELECT c.id, c.name FROM customers c WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.customer = c.id)",
    "join": "SELECT c.id, c.name FROM customers c LEFT ANTI JOIN orders o ON o.customer = c.id",
    "null": "SELECT c.id, c.name FROM customers c LEFT JOIN orders o ON o.customer = c.id WHERE o.id IS NULL",
}


def shop(story: Story) -> None:
    story.table("customers", "id INT, name STRING", [(1, "Ann"), (2, "Bob")], key="id")
    story.table("orders", "id INT, customer INT, amount INT", [(10, 1, 5), (11, 1, 7)], key="id")


@pytest.mark.parametrize("form", FORMS)
def test_b29_absence_is_judged_before_and_after_the_change(story: Story, form: str) -> None:
    shop(story)
    s = story.stream(FORMS[form])
    assert s.rows() == [(2, "Bob")]
    story.change("DELETE FROM orders WHERE id = 10", "INSERT INTO orders VALUES (12, 2, 1), (13, 2, 1)")
    assert s.refreshed() == []
    assert s.changes == (0, 1)
    story.change("DELETE FROM orders WHERE customer = 1", "UPDATE customers SET name = 'Amy' WHERE id = 1")
    assert s.refreshed() == [(1, "Amy")]
    assert s.changes == (1, 0)
    story.change("UPDATE orders SET customer = 1", "INSERT INTO customers VALUES (3, 'Cy')")
    assert s.refreshed() == [(2, "Bob"), (3, "Cy")]
    story.change("DELETE FROM customers WHERE id = 2", "INSERT INTO orders VALUES (14, 2, 1), (15, 3, 1)")
    assert s.refreshed() == []
    story.verified()


def test_a_new_row_with_a_new_partner_never_shows(story: Story) -> None:
    story.table("a", "k INT", [(1,), (1,)])
    story.table("b", "k INT", [(9,)])
    s = story.stream("SELECT a.k FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k)")
    story.change("INSERT INTO a VALUES (2), (3)", "INSERT INTO b VALUES (2), (2)")
    assert s.refreshed() == [(1,), (1,), (3,)]
    assert s.changes == (1, 0)
    story.apply("a", (1, "D"), (2, "I"))
    story.apply("b", (2, "D"), (3, "I"))
    assert s.refreshed() == [(1,)]
    story.apply("b", (2, "D"), (1, "I"))
    assert s.refreshed() == [(2,), (2,)]
    story.change("TRUNCATE TABLE b", "DELETE FROM a WHERE k = 2")
    assert s.refreshed() == [(1,), (3,)]
    story.verified()


def test_null_on_either_side_has_no_partner(story: Story) -> None:
    story.table("a", "id INT, k INT", [(1, None), (2, 5)], key="id")
    story.table("b", "id INT, k INT", [(1, None)], key="id")
    s = story.stream("SELECT a.id FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k)", "plain")
    safe = story.stream("SELECT a.id FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k <=> a.k)", "safe")
    assert (s.rows(), safe.rows()) == ([(1,), (2,)], [(2,)])
    story.change("UPDATE b SET k = 5")
    assert s.refreshed() == [(1,)]
    assert safe.refreshed() == [(1,)]
    story.change("UPDATE a SET k = NULL WHERE id = 2", "INSERT INTO b VALUES (2, NULL)")
    assert s.refreshed() == [(1,), (2,)]
    assert safe.refreshed() == []
    story.change("DELETE FROM b", "DELETE FROM a WHERE id = 1")
    assert s.refreshed() == [(2,)]
    assert safe.refreshed() == [(2,)]
    story.verified()


def test_the_best_row_of_each_group_by_not_exists(story: Story) -> None:
    story.table("bids", "id INT, item INT, price INT", [(1, 1, 10), (2, 1, 30), (3, 2, 5)], key="id")
    s = story.stream(
        "SELECT b.item, b.id FROM bids b WHERE NOT EXISTS (SELECT 1 FROM bids o WHERE o.item = b.item AND o.price > b.price)"
    )
    assert s.rows() == [(1, 2), (2, 3)]
    story.change("INSERT INTO bids VALUES (4, 2, 6), (5, 1, 30)")
    assert s.refreshed() == [(1, 2), (1, 5), (2, 4)]
    story.change("DELETE FROM bids WHERE price = 30", "UPDATE bids SET price = 9 WHERE id = 3")
    assert s.refreshed() == [(1, 1), (2, 3)]
    story.change("UPDATE bids SET item = 3 - item")
    assert s.refreshed() == [(1, 3), (2, 1)]
    story.verified()


def test_not_exists_over_a_join_and_over_groups(story: Story) -> None:
    shop(story)
    story.table("returned", "ord INT", [(10,)])
    s = story.stream(
        "SELECT c.id FROM customers c WHERE NOT EXISTS"
        " (SELECT 1 FROM orders o JOIN returned r ON r.ord = o.id WHERE o.customer = c.id)",
        "happy",
    )
    small = story.stream(
        "SELECT c.id FROM customers c WHERE NOT EXISTS"
        " (SELECT o.customer FROM orders o WHERE o.customer = c.id GROUP BY o.customer HAVING sum(o.amount) > 10)",
        "small",
    )
    assert (s.rows(), small.rows()) == ([(2,)], [(2,)])
    story.change("UPDATE orders SET customer = 2 WHERE id = 10")
    assert s.refreshed() == [(1,)]
    assert small.refreshed() == [(1,), (2,)]
    story.change("INSERT INTO orders VALUES (12, 2, 6)", "DELETE FROM returned")
    assert s.refreshed() == [(1,), (2,)]
    assert small.refreshed() == [(1,)]
    story.change("INSERT INTO returned VALUES (11), (12), (12)", "UPDATE orders SET amount = 40 WHERE id = 11")
    assert s.refreshed() == []
    assert small.refreshed() == []
    story.verified()


def test_anti_over_semi_over_inner_joins(story: Story) -> None:
    """The shape of TPC-H query 21: orders with several suppliers of which just one was late."""
    story.table("suppliers", "id INT, name STRING", [(1, "S1"), (2, "S2"), (3, "S3")], key="id")
    rows = [(1, 1, 1, True), (2, 1, 2, False), (3, 2, 2, True), (4, 3, 3, True), (5, 3, 1, True)]
    story.table("parcels", "id INT, ord INT, supplier INT, is_late BOOLEAN", rows, key="id")
    s = story.stream(
        "SELECT s.name, count(*) AS waits FROM suppliers s JOIN parcels l ON l.supplier = s.id WHERE l.is_late"
        " AND EXISTS (SELECT 1 FROM parcels o WHERE o.ord = l.ord AND o.supplier <> l.supplier)"
        " AND NOT EXISTS (SELECT 1 FROM parcels o WHERE o.ord = l.ord AND o.supplier <> l.supplier AND o.is_late)"
        " GROUP BY s.name"
    )
    assert s.rows() == [("S1", 1)]
    story.change("UPDATE parcels SET is_late = false WHERE id = 5", "INSERT INTO parcels VALUES (6, 2, 1, false)")
    assert s.refreshed() == [("S1", 1), ("S2", 1), ("S3", 1)]
    story.change(
        "DELETE FROM parcels WHERE id = 2",
        "UPDATE parcels SET supplier = 2 WHERE id = 4",
        "INSERT INTO parcels VALUES (7, 4, 2, true)",
    )
    assert s.refreshed() == [("S2", 2)]
    story.change("UPDATE parcels SET is_late = true WHERE id = 6", "DELETE FROM suppliers WHERE id = 3")
    assert s.refreshed() == [("S2", 1)]
    story.verified()


def test_a_sampled_or_limited_subquery_is_refused(story: Story) -> None:
    shop(story)
    text = "SELECT c.id FROM customers c LEFT ANTI JOIN (SELECT customer FROM orders {}) o ON o.customer = c.id"
    story.refused(text.format("TABLESAMPLE (50 PERCENT)"), "OPERATOR_NOT_SUPPORTED")
    story.refused(text.format("LIMIT 1"), "ORDER_DEPENDENT")
