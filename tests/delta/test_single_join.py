"""A single join is a left join that may find one partner at most: a correlated scalar subquery. A second partner fails."""

from __future__ import annotations

import pytest
from tests.support.stories import Story

from headwater.errors import HeadwaterError

NAMED = "SELECT o.id, (SELECT c.name FROM customers c WHERE c.id = o.customer) AS name FROM orders o"
TOO_MANY = r"scalar.?subquery"


def shop(story: Story) -> None:
    story.table("customers", "id INT, name STRING", [(1, "Ann"), (2, "Bob")])
    story.table("orders", "id INT, customer INT", [(10, 1), (11, 3), (12, None)], key="id")


def test_b35_a_correlated_subquery_in_select_is_null_where_it_is_empty(story: Story) -> None:
    shop(story)
    s = story.stream(NAMED)
    assert s.rows() == [(10, "Ann"), (11, None), (12, None)]
    story.change("INSERT INTO customers VALUES (3, 'Cy')", "UPDATE orders SET customer = 2 WHERE id = 12")
    assert s.refreshed() == [(10, "Ann"), (11, "Cy"), (12, "Bob")]
    story.change("DELETE FROM customers WHERE id = 1", "UPDATE customers SET name = 'Bea' WHERE id = 2")
    assert s.refreshed() == [(10, None), (11, "Cy"), (12, "Bea")]
    story.change(
        "INSERT INTO orders VALUES (13, 4)",
        "INSERT INTO customers VALUES (4, 'Di')",
        "DELETE FROM orders WHERE id = 10",
    )
    assert s.refreshed() == [(11, "Cy"), (12, "Bea"), (13, "Di")]
    story.verified()


def test_b35_a_second_row_fails_the_refresh_and_leaves_the_table_as_it_was(story: Story) -> None:
    shop(story)
    s = story.stream(NAMED)
    story.change("INSERT INTO customers VALUES (1, 'Amy')", "INSERT INTO orders VALUES (13, 2)")
    s.fails(TOO_MANY)
    story.change("UPDATE orders SET customer = 2 WHERE id = 11")
    s.fails(TOO_MANY)
    story.change("DELETE FROM customers WHERE name = 'Ann'")
    assert s.refreshed() == [(10, "Amy"), (11, "Bob"), (12, None), (13, "Bob")]
    story.change("INSERT INTO customers VALUES (2, 'Bob')")
    s.fails(TOO_MANY)
    story.apply("customers", (2, "Bob", "D"))
    story.change("UPDATE orders SET customer = 1 WHERE id = 12")
    assert s.refreshed() == [(10, "Amy"), (11, "Bob"), (12, "Amy"), (13, "Bob")]
    story.verified()


def test_two_rows_that_nobody_asks_for_are_no_error_until_somebody_does(story: Story) -> None:
    shop(story)
    s = story.stream(NAMED)
    story.change("INSERT INTO customers VALUES (7, 'x'), (7, 'y'), (2, 'Bea')", "INSERT INTO orders VALUES (13, 1)")
    assert s.refreshed() == [(10, "Ann"), (11, None), (12, None), (13, "Ann")]
    story.change("UPDATE orders SET customer = 7 WHERE id = 11")
    s.fails(TOO_MANY)
    story.change("UPDATE orders SET customer = 8 WHERE id = 11", "INSERT INTO customers VALUES (8, 'Eve')")
    assert s.refreshed() == [(10, "Ann"), (11, "Eve"), (12, None), (13, "Ann")]
    story.change("INSERT INTO orders VALUES (14, 2)")
    s.fails(TOO_MANY)
    story.change("DELETE FROM orders WHERE id = 14", "UPDATE customers SET name = 'Amy' WHERE id = 1")
    assert s.refreshed() == [(10, "Amy"), (11, "Eve"), (12, None), (13, "Amy")]
    story.verified()


def test_a_partner_that_is_replaced_in_one_refresh_is_still_one(story: Story) -> None:
    shop(story)
    s = story.stream(NAMED)
    story.change("INSERT INTO customers VALUES (1, 'Amy')", "DELETE FROM customers WHERE name = 'Ann'")
    assert s.refreshed() == [(10, "Amy"), (11, None), (12, None)]
    story.change("UPDATE customers SET id = 3 - id")
    assert s.refreshed() == [(10, "Bob"), (11, None), (12, None)]
    story.change("INSERT INTO customers VALUES (3, 'x'), (3, 'y')", "DELETE FROM customers WHERE name = 'x'")
    assert s.refreshed() == [(10, "Bob"), (11, "y"), (12, None)]
    story.verified()


def test_a_query_with_two_rows_cannot_be_created(story: Story) -> None:
    shop(story)
    story.change("INSERT INTO customers VALUES (1, 'Amy')")
    with pytest.raises(HeadwaterError) as raised:
        story.wh.create_stream_table("result", NAMED, refresh_mode="DIFFERENTIAL")
    assert "subquery" in str(raised.value).lower()
    assert story.wh.snapshot().table("result") is None
    story.change("DELETE FROM customers WHERE name = 'Amy'")
    s = story.stream(NAMED)
    story.change("DELETE FROM orders WHERE id > 10")
    assert s.refreshed() == [(10, "Ann")]
    story.verified()


def test_correlated_aggregates_count_zero_and_sum_null(story: Story) -> None:
    story.table("customers", "id INT", [(1,), (2,)], key="id")
    story.table("orders", "id INT, customer INT, amount INT", [(10, 1, 5), (11, 1, 7)], key="id")
    s = story.stream(
        "SELECT c.id, (SELECT count(*) FROM orders o WHERE o.customer = c.id) AS n,"
        " (SELECT sum(o.amount) FROM orders o WHERE o.customer = c.id) AS total,"
        " (SELECT max(o.amount) FROM orders o WHERE o.customer = c.id AND o.amount < 7) AS small FROM customers c"
    )
    assert s.rows() == [(1, 2, 12, 5), (2, 0, None, None)]
    story.change("UPDATE orders SET customer = 2 WHERE id = 10", "INSERT INTO customers VALUES (3)")
    assert s.refreshed() == [(1, 1, 7, None), (2, 1, 5, 5), (3, 0, None, None)]
    story.change("DELETE FROM orders WHERE id = 11", "INSERT INTO orders VALUES (12, 3, 6), (13, 3, NULL)")
    assert s.refreshed() == [(1, 0, None, None), (2, 1, 5, 5), (3, 2, 6, 6)]
    story.change("DELETE FROM customers WHERE id = 2", "DELETE FROM orders WHERE id = 12")
    assert s.refreshed() == [(1, 0, None, None), (3, 1, None, None)]
    story.verified()


def test_a_correlated_subquery_in_where_compares_each_row_with_its_group(story: Story) -> None:
    """The shape of TPC-H query 17."""
    rows = [(1, "a", 10), (2, "a", 20), (3, "a", 60), (4, "b", 5)]
    story.table("sold", "id INT, part STRING, qty INT", rows, key="id")
    s = story.stream("SELECT s.id FROM sold s WHERE s.qty < (SELECT avg(t.qty) FROM sold t WHERE t.part = s.part)")
    assert s.rows() == [(1,), (2,)]
    story.change("DELETE FROM sold WHERE id = 3", "INSERT INTO sold VALUES (5, 'b', 7)")
    assert s.refreshed() == [(1,), (4,)]
    story.change("UPDATE sold SET part = 'b' WHERE id = 1")
    assert s.refreshed() == [(4,), (5,)]
    story.change("UPDATE sold SET part = NULL WHERE id = 4", "UPDATE sold SET qty = 30 WHERE id = 5")
    assert s.refreshed() == [(1,)]
    story.verified()


def test_b37_a_correlated_subquery_with_order_and_limit_takes_the_first_row(story: Story) -> None:
    story.table("customers", "id INT", [(1,), (2,)], key="id")
    story.table("orders", "id INT, customer INT, amount INT", [(10, 1, 5), (11, 1, 7), (12, 2, 1)], key="id")
    s = story.stream(
        "SELECT c.id, (SELECT o.id FROM orders o WHERE o.customer = c.id ORDER BY o.amount DESC, o.id LIMIT 1) AS best FROM customers c"
    )
    assert s.rows() == [(1, 11), (2, 12)]
    story.change("INSERT INTO orders VALUES (13, 2, 9), (14, 2, 9)", "DELETE FROM orders WHERE id = 11")
    assert s.refreshed() == [(1, 10), (2, 13)]
    story.change("UPDATE orders SET customer = 1 WHERE id = 13")
    assert s.refreshed() == [(1, 13), (2, 14)]
    story.change("DELETE FROM orders WHERE customer = 1")
    assert s.refreshed() == [(1, None), (2, 14)]
    story.verified()


def test_a_clock_inside_the_subquery_is_refused(story: Story) -> None:
    shop(story)
    story.refused(
        NAMED.replace("= o.customer", "= o.customer AND current_date() > DATE '2024-01-01'"), "TIME_DEPENDENT"
    )
    story.refused(NAMED.replace("SELECT o.id", "SELECT uuid() AS u, o.id"), "EXPRESSION_NOT_DETERMINISTIC")
