"""delta(L semi join R) = delta L where it has a match in R' + rows of L, as they were, whose first match came or last one went."""

from __future__ import annotations

import pytest
from tests.support.stories import Story

FORMS = {
    "exists": "SELECT c.id, c.name FROM customers c WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer = c.id)",
    "in": "SELECT id, name FROM customers WHERE id IN (SELECT customer FROM orders)",
    "join": "SELECT c.id, c.name FROM customers c LEFT SEMI JOIN orders o ON o.customer = c.id",
}


def shop(story: Story) -> None:
    story.table("customers", "id INT, name STRING", [(1, "Ann"), (2, "Bob")], key="id")
    story.table("orders", "id INT, customer INT, amount INT", [(10, 1, 5), (11, 1, 7)], key="id")


@pytest.mark.parametrize("form", FORMS)
def test_b29_existence_is_judged_before_and_after_the_change(story: Story, form: str) -> None:
    shop(story)
    s = story.stream(FORMS[form])
    assert s.rows() == [(1, "Ann")]
    story.change("DELETE FROM orders WHERE id = 10", "INSERT INTO orders VALUES (12, 2, 1), (13, 2, 1)")
    assert s.refreshed() == [(1, "Ann"), (2, "Bob")]
    assert s.changes == (1, 0)
    story.change("DELETE FROM orders WHERE customer = 1", "UPDATE customers SET name = 'Amy' WHERE id = 1")
    assert s.refreshed() == [(2, "Bob")]
    assert s.changes == (0, 1)
    story.change("UPDATE orders SET customer = 1 WHERE id = 12", "DELETE FROM customers WHERE id = 2")
    assert s.refreshed() == [(1, "Amy")]
    story.verified()


def test_x3_a_new_row_with_a_new_partner_is_emitted_once(story: Story) -> None:
    story.table("a", "k INT", [(1,)])
    story.table("b", "k INT", [(9,)])
    s = story.stream("SELECT k FROM a WHERE k IN (SELECT k FROM b)")
    story.change("INSERT INTO a VALUES (1), (2), (2)", "INSERT INTO b VALUES (1), (2), (2)")
    assert s.refreshed() == [(1,), (1,), (2,), (2,)]
    assert s.changes == (4, 0)
    story.apply("a", (1, "D"), (2, "D"))
    story.apply("b", (2, "D"))
    assert s.refreshed() == [(1,), (2,)]
    story.change("DELETE FROM a WHERE k = 2", "DELETE FROM b WHERE k = 2", "INSERT INTO a VALUES (1)")
    assert s.refreshed() == [(1,), (1,)]
    story.verified()


def test_several_partners_do_not_multiply_and_null_matches_nobody(story: Story) -> None:
    story.table("a", "k INT, v STRING", [(1, "x"), (1, "x"), (None, "n")])
    story.table("b", "k INT", [(None,)])
    s = story.stream("SELECT k, v FROM a WHERE k IN (SELECT k FROM b)")
    assert s.rows() == []
    story.change("INSERT INTO b VALUES (1), (1), (1)")
    assert s.refreshed() == [(1, "x"), (1, "x")]
    story.apply("b", (1, "D"), (1, "D"))
    assert s.kept() == [(1, "x"), (1, "x")]
    assert s.changes == (0, 0)
    story.change("UPDATE a SET k = NULL WHERE k = 1", "INSERT INTO a VALUES (1, 'y')")
    assert s.refreshed() == [(1, "y")]
    story.apply("b", (1, "D"), (None, "D"))
    assert s.refreshed() == []
    story.verified()


def test_a_condition_between_both_sides_is_counted_per_row(story: Story) -> None:
    story.table("bids", "id INT, item INT, price INT", [(1, 1, 10), (2, 1, 30), (3, 2, 5)], key="id")
    s = story.stream(
        "SELECT b.id FROM bids b WHERE EXISTS (SELECT 1 FROM bids o WHERE o.item = b.item AND o.price > b.price)"
    )
    assert s.rows() == [(1,)]
    story.change("INSERT INTO bids VALUES (4, 2, 6), (5, 1, 40)")
    assert s.refreshed() == [(1,), (2,), (3,)]
    story.change("DELETE FROM bids WHERE id = 5", "UPDATE bids SET price = 50 WHERE id = 1")
    assert s.refreshed() == [(2,), (3,)]
    story.change("UPDATE bids SET item = 3 WHERE id IN (1, 4)")
    assert s.refreshed() == [(4,)]
    story.verified()


def test_b31_exists_over_groups_that_pass_having(story: Story) -> None:
    shop(story)
    s = story.stream(
        "SELECT c.id FROM customers c WHERE EXISTS (SELECT o.customer FROM orders o WHERE o.customer = c.id"
        " GROUP BY o.customer HAVING sum(o.amount) > 10)",
        "correlated",
    )
    listed = story.stream(
        "SELECT id FROM customers WHERE id IN (SELECT customer FROM orders GROUP BY customer HAVING count(*) > 1)",
        "listed",
    )
    assert (s.rows(), listed.rows()) == ([(1,)], [(1,)])
    story.change("UPDATE orders SET amount = 2 WHERE id = 11", "INSERT INTO orders VALUES (12, 2, 11)")
    assert s.refreshed() == [(2,)]
    assert listed.kept() == [(1,)]
    story.change("UPDATE orders SET customer = 2 WHERE id = 10")
    assert s.kept() == [(2,)]
    assert listed.refreshed() == [(2,)]
    story.change("UPDATE orders SET amount = 12 WHERE customer = 1", "DELETE FROM orders WHERE id = 12")
    assert s.refreshed() == [(1,)]
    assert listed.refreshed() == []
    story.verified()


def test_b32_every_column_of_a_row_is_compared(story: Story) -> None:
    story.table("a", "id INT, x INT, y INT", [(1, 1, 1), (2, 1, 2), (3, 2, 1), (4, 1, None)], key="id")
    story.table("b", "x INT, y INT", [(1, 1), (2, 2)])
    s = story.stream("SELECT id FROM a WHERE (x, y) IN (SELECT x, y FROM b)")
    assert s.rows() == [(1,)]
    story.change("UPDATE b SET y = 1 WHERE x = 2", "INSERT INTO b VALUES (1, NULL)")
    assert s.refreshed() == [(1,), (3,)]
    story.change("UPDATE a SET y = 2 WHERE id = 1", "UPDATE b SET y = 2 WHERE x = 1 AND y = 1")
    assert s.refreshed() == [(1,), (2,), (3,)]
    story.change("DELETE FROM b WHERE y = 2", "UPDATE a SET x = 2, y = 1 WHERE id = 4")
    assert s.refreshed() == [(3,), (4,)]
    story.verified()


def test_b38_an_in_within_an_in_with_a_correlated_sum(story: Story) -> None:
    """The shape of TPC-H query 20."""
    story.table("suppliers", "id INT, name STRING", [(1, "S1"), (2, "S2"), (3, "S3")], key="id")
    story.table("parts", "id INT, name STRING", [(1, "forest green"), (2, "forest red"), (3, "sky")], key="id")
    story.table(
        "stock", "part INT, supplier INT, qty INT", [(1, 1, 100), (2, 2, 10), (3, 3, 999)], key=["part", "supplier"]
    )
    story.table("sold", "id INT, part INT, supplier INT, qty INT", [(1, 1, 1, 60), (2, 2, 2, 30)], key="id")
    query = (
        "SELECT name FROM suppliers WHERE id IN (SELECT supplier FROM stock"
        " WHERE part IN (SELECT id FROM parts WHERE name LIKE 'forest%')"
        " AND qty > (SELECT 0.5 * sum(qty) FROM sold WHERE sold.part = stock.part AND sold.supplier = stock.supplier))"
    )
    # No part of it is looked through row by row, and the inner sum is kept per group.
    costs = {cost for _, _, cost in story.wh.validate_query(query).operators}
    assert costs <= {
        "rows changed",
        "rows changed and their matches",
        "rows that share a changed key",
        "groups changed",
    }
    s = story.stream(query)
    assert s.rows() == [("S1",)]
    story.change("UPDATE sold SET qty = 10 WHERE id = 2")
    assert s.refreshed() == [("S1",), ("S2",)]
    story.change("INSERT INTO sold VALUES (3, 1, 1, 300)", "UPDATE parts SET name = 'forest' WHERE id = 3")
    assert s.refreshed() == [("S2",)]
    story.change("INSERT INTO sold VALUES (4, 3, 3, 1)", "UPDATE parts SET name = 'sea' WHERE id = 2")
    assert s.refreshed() == [("S3",)]
    story.change(
        "DELETE FROM sold WHERE id = 3",
        "UPDATE stock SET supplier = 2 WHERE part = 1",
        "DELETE FROM suppliers WHERE id = 3",
    )
    assert s.refreshed() == []
    story.change("INSERT INTO sold VALUES (5, 1, 2, 2)")
    assert s.refreshed() == [("S2",)]
    story.verified()


def test_semi_joins_above_and_below_other_joins(story: Story) -> None:
    shop(story)
    story.table("vips", "customer INT", [(1,)])
    s = story.stream(
        "SELECT o.id, c.name FROM orders o JOIN customers c ON o.customer = c.id"
        " WHERE c.id IN (SELECT customer FROM vips) AND EXISTS (SELECT 1 FROM orders x WHERE x.customer = c.id AND x.id <> o.id)"
    )
    assert s.rows() == [(10, "Ann"), (11, "Ann")]
    story.change(
        "INSERT INTO vips VALUES (2)",
        "INSERT INTO orders VALUES (12, 2, 1), (13, 2, 2)",
        "DELETE FROM orders WHERE id = 10",
    )
    assert s.refreshed() == [(12, "Bob"), (13, "Bob")]
    story.change(
        "DELETE FROM vips WHERE customer = 2",
        "INSERT INTO orders VALUES (14, 1, 1)",
        "UPDATE customers SET name = 'Amy'",
    )
    assert s.refreshed() == [(11, "Amy"), (14, "Amy")]
    story.change("UPDATE orders SET customer = 1", "INSERT INTO vips VALUES (1)")
    assert s.refreshed() == [(11, "Amy"), (12, "Amy"), (13, "Amy"), (14, "Amy")]
    story.verified()


def test_an_uncorrelated_exists_opens_and_closes_the_whole_table(story: Story) -> None:
    story.table("a", "id INT", [(1,), (2,)], key="id")
    story.table("switches", "is_on BOOLEAN", [(False,)])
    s = story.stream("SELECT id FROM a WHERE EXISTS (SELECT 1 FROM switches WHERE is_on)")
    assert s.rows() == []
    story.change("INSERT INTO switches VALUES (true)", "INSERT INTO a VALUES (3)")
    assert s.refreshed() == [(1,), (2,), (3,)]
    story.change("UPDATE switches SET is_on = true")
    assert s.kept() == [(1,), (2,), (3,)]
    story.change("TRUNCATE TABLE switches", "DELETE FROM a WHERE id = 1")
    assert s.refreshed() == []
    story.verified()


def test_a_subquery_that_takes_any_rows_is_refused(story: Story) -> None:
    shop(story)
    story.refused("SELECT id FROM customers WHERE id IN (SELECT customer FROM orders LIMIT 1)", "ORDER_DEPENDENT")
    clocked = FORMS["exists"].replace("= c.id", "= c.id AND current_date() > DATE '2024-01-01'")
    story.refused(clocked, "TIME_DEPENDENT")


def test_exists_three_levels_deep(story: Story) -> None:
    """Each level speaks of the one around it; Spark pulls conditions out of one level at a time."""
    story.table("c", "id INT", [(1,), (2,), (3,)], key="id")
    story.table("o", "id INT, customer INT", [(10, 1), (11, 1), (20, 2)], key="id")
    story.table("l", "order_id INT, part INT", [(10, 7), (11, 8), (20, 7)])
    story.table("p", "id INT, bad BOOLEAN", [(7, False), (8, True)], key="id")
    s = story.stream(
        "SELECT c.id FROM c WHERE EXISTS (SELECT 1 FROM o WHERE o.customer = c.id AND NOT EXISTS (SELECT 1 FROM l WHERE l.order_id = o.id"
        " AND EXISTS (SELECT 1 FROM p WHERE p.id = l.part AND p.bad)))"
    )
    assert s.rows() == [(1,), (2,)]
    story.change("UPDATE p SET bad = NOT bad")
    assert s.refreshed() == [(1,)]
    story.change("INSERT INTO o VALUES (30, 3)", "UPDATE p SET bad = true")
    assert s.refreshed() == [(3,)]
    story.change("DELETE FROM l WHERE order_id = 20", "INSERT INTO l VALUES (30, 8)")
    assert s.refreshed() == [(2,)]
    story.verified()


@pytest.mark.parametrize(("word", "before", "after"), [("", [(1,)], [(2,)]), ("NOT ", [(2,), (3,)], [(1,), (3,)])])
def test_one_column_in_two_equalities(
    story: Story, word: str, before: list[tuple[int]], after: list[tuple[int]]
) -> None:
    story.table("l", "id INT, s STRING", [(1, "a"), (2, "b"), (3, None)], key="id")
    story.table("r", "s STRING, t STRING", [("a", "a"), ("b", "x"), (None, "b"), ("x", "x")])
    stream = story.stream(
        f"SELECT l.id FROM l WHERE l.s {word}IN (SELECT r.s AS x FROM r WHERE r.t = l.s AND r.s IS NOT NULL)"
    )
    assert stream.rows() == before
    story.change("UPDATE r SET t = 'b' WHERE s = 'b'", "DELETE FROM r WHERE s = 'a'")
    assert stream.refreshed() == after
    story.verified()
