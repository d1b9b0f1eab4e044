"""Aggregates anywhere in the tree: what reaches them are signed rows of joins, what leaves them are old groups and new ones."""

from __future__ import annotations

from tests.support.stories import Story

ORDERS = "id INT, customer INT, amount INT"
JOINED = "FROM orders o JOIN customers c ON o.customer = c.id"


def shop(story: Story) -> None:
    story.table("customers", "id INT, city STRING", [(1, "Bonn"), (2, "Bonn"), (3, "Rome")], key="id")
    story.table("orders", ORDERS, [(10, 1, 5), (11, 2, 7), (12, 3, 9), (13, 3, 1)], key="id")


def test_b10_a_chain_of_left_joins_onto_groups_one_with_an_extremum(story: Story) -> None:
    shop(story)
    story.table("visits", "customer INT, day INT", [(1, 1), (1, 4), (3, 2)])
    s = story.stream(
        "WITH spent AS (SELECT customer, sum(amount) AS total FROM orders GROUP BY customer),"
        " seen AS (SELECT customer, min(day) AS first_day, max(day) AS last_day, count(*) AS n FROM visits GROUP BY customer)"
        " SELECT c.id, s.total, v.first_day, v.last_day, v.n FROM customers c"
        " LEFT JOIN spent s ON s.customer = c.id LEFT JOIN seen v ON v.customer = c.id"
    )
    assert s.rows() == [(1, 5, 1, 4, 2), (2, 7, None, None, None), (3, 10, 2, 2, 1)]
    story.change("INSERT INTO visits VALUES (1, 9)", "INSERT INTO orders VALUES (14, 1, 1)")
    assert s.refreshed() == [(1, 6, 1, 9, 3), (2, 7, None, None, None), (3, 10, 2, 2, 1)]
    story.change("DELETE FROM visits WHERE day IN (1, 9)", "DELETE FROM orders WHERE customer = 2")
    assert s.refreshed() == [(1, 6, 4, 4, 1), (2, None, None, None, None), (3, 10, 2, 2, 1)]
    story.change(
        "INSERT INTO visits VALUES (2, 5)",
        "DELETE FROM visits WHERE customer = 3",
        "INSERT INTO customers VALUES (4, 'Oslo')",
    )
    assert s.refreshed() == [
        (1, 6, 4, 4, 1),
        (2, None, 5, 5, 1),
        (3, 10, None, None, None),
        (4, None, None, None, None),
    ]
    story.verified()


def test_b16_a_group_of_a_join_that_rises_over_having_shows_all_its_rows(story: Story) -> None:
    shop(story)
    s = story.stream(
        f"SELECT c.city, sum(o.amount) AS total, count(*) AS n {JOINED} GROUP BY c.city HAVING sum(o.amount) > 11"
    )
    assert s.rows() == [("Bonn", 12, 2)]
    story.change("INSERT INTO orders VALUES (14, 3, 2)")
    assert s.refreshed() == [("Bonn", 12, 2), ("Rome", 12, 3)]
    story.change("UPDATE customers SET city = 'Rome' WHERE id = 2", "DELETE FROM orders WHERE id = 12")
    assert s.refreshed() == []
    story.change("UPDATE orders SET amount = 9 WHERE id = 11", "INSERT INTO orders VALUES (15, 1, 6)")
    assert s.refreshed() == [("Rome", 12, 3)]
    story.change("UPDATE customers SET city = 'Bonn' WHERE id = 2")
    assert s.refreshed() == [("Bonn", 20, 3)]
    story.verified()


def test_b18_a_global_aggregate_over_a_join_always_has_one_row(story: Story) -> None:
    shop(story)
    s = story.stream(
        f"SELECT count(*) AS n, sum(o.amount) AS total, avg(o.amount) AS mean, max(c.city) AS city {JOINED}"
    )
    assert s.rows() == [(4, 22, 5.5, "Rome")]
    story.change("UPDATE orders SET amount = 3 WHERE id = 13")
    assert s.refreshed() == [(4, 24, 6.0, "Rome")]
    story.change("DELETE FROM customers WHERE id = 3", "INSERT INTO orders VALUES (14, 1, 6)")
    assert s.refreshed() == [(3, 18, 6.0, "Bonn")]
    story.change("DELETE FROM customers")
    assert s.refreshed() == [(0, None, None, None)]
    story.change("INSERT INTO customers VALUES (3, 'Oslo')")
    assert s.refreshed() == [(2, 12, 6.0, "Oslo")]
    story.verified()


def test_b19_the_partner_of_the_extremum_leaves(story: Story) -> None:
    shop(story)
    s = story.stream(f"SELECT c.city, min(o.amount) AS low, max(o.amount) AS high {JOINED} GROUP BY c.city")
    assert s.rows() == [("Bonn", 5, 7), ("Rome", 1, 9)]
    story.change("DELETE FROM customers WHERE id = 2", "DELETE FROM orders WHERE id = 13")
    assert s.refreshed() == [("Bonn", 5, 5), ("Rome", 9, 9)]
    story.change("INSERT INTO customers VALUES (2, 'Rome')", "UPDATE orders SET amount = 6 WHERE id = 12")
    assert s.refreshed() == [("Bonn", 5, 5), ("Rome", 6, 7)]
    story.change("UPDATE orders SET customer = 1 WHERE customer = 2", "INSERT INTO orders VALUES (14, 3, 6)")
    assert s.refreshed() == [("Bonn", 5, 7), ("Rome", 6, 6)]
    story.change("DELETE FROM orders WHERE id = 14")
    assert s.kept() == [("Bonn", 5, 7), ("Rome", 6, 6)]
    story.verified()


def test_b20_the_order_inside_string_agg_over_a_join_is_kept(story: Story) -> None:
    shop(story)
    s = story.stream(
        f"SELECT c.city, string_agg(CAST(o.id AS STRING), ',') WITHIN GROUP (ORDER BY o.amount DESC) AS ids {JOINED} GROUP BY c.city"
    )
    assert s.rows() == [("Bonn", "11,10"), ("Rome", "12,13")]
    story.change("UPDATE orders SET amount = 8 WHERE id = 10", "INSERT INTO orders VALUES (14, 3, 4)")
    assert s.refreshed() == [("Bonn", "10,11"), ("Rome", "12,14,13")]
    story.change("UPDATE customers SET city = 'Rome' WHERE id = 1")
    assert s.refreshed() == [("Bonn", "11"), ("Rome", "12,10,14,13")]
    story.change("DELETE FROM orders WHERE id IN (11, 12)")
    assert s.refreshed() == [("Rome", "10,14,13")]
    story.verified()


def test_b22_null_group_keys_of_an_outer_join_match_on_delete(story: Story) -> None:
    shop(story)
    s = story.stream(
        "SELECT c.city, count(*) AS n, sum(o.amount) AS total, sort_array(collect_list(o.id)) AS ids"
        " FROM orders o LEFT JOIN customers c ON o.customer = c.id GROUP BY c.city"
    )
    story.change("UPDATE customers SET city = NULL WHERE id = 1", "DELETE FROM customers WHERE id = 3")
    assert s.refreshed() == [(None, 3, 15, (10, 12, 13)), ("Bonn", 1, 7, (11,))]
    story.change("DELETE FROM orders WHERE id = 12", "UPDATE orders SET customer = NULL WHERE id = 11")
    assert s.refreshed() == [(None, 3, 13, (10, 11, 13))]
    story.change("DELETE FROM orders WHERE id IN (10, 13)", "INSERT INTO customers VALUES (9, 'Oslo')")
    assert s.refreshed() == [(None, 1, 7, (11,))]
    story.change("UPDATE orders SET customer = 9")
    assert s.refreshed() == [("Oslo", 1, 7, (11,))]
    story.verified()


def test_b23_a_sum_of_case_over_a_join_retracts_what_the_old_pair_gave(story: Story) -> None:
    """The shape of TPC-H query 12, with an IN list."""
    story.table("orders", "id INT, priority STRING", [(1, "1-URGENT"), (2, "5-LOW"), (3, "2-HIGH")], key="id")
    story.table(
        "parcels",
        "id INT, ord INT, mode STRING",
        [(1, 1, "MAIL"), (2, 2, "MAIL"), (3, 3, "SHIP"), (4, 3, "AIR")],
        key="id",
    )
    s = story.stream(
        "SELECT l.mode, sum(CASE WHEN o.priority IN ('1-URGENT', '2-HIGH') THEN 1 ELSE 0 END) AS high,"
        " sum(CASE WHEN o.priority NOT IN ('1-URGENT', '2-HIGH') THEN 1 ELSE 0 END) AS low"
        " FROM orders o JOIN parcels l ON l.ord = o.id WHERE l.mode IN ('MAIL', 'SHIP') GROUP BY l.mode"
    )
    assert s.rows() == [("MAIL", 1, 1), ("SHIP", 1, 0)]
    story.change("UPDATE orders SET priority = '5-LOW' WHERE id = 1", "UPDATE parcels SET mode = 'MAIL' WHERE id = 3")
    assert s.refreshed() == [("MAIL", 1, 2)]
    story.change("UPDATE orders SET priority = '1-URGENT'", "UPDATE parcels SET mode = 'SHIP' WHERE id IN (1, 4)")
    assert s.refreshed() == [("MAIL", 2, 0), ("SHIP", 2, 0)]
    story.change("DELETE FROM orders WHERE id = 3", "UPDATE orders SET priority = NULL WHERE id = 2")
    assert s.refreshed() == [("MAIL", 0, 0), ("SHIP", 1, 0)]
    story.verified()


def test_b24_groups_by_an_alias_computed_from_both_sides(story: Story) -> None:
    story.table(
        "orders",
        "id INT, day STRING, customer INT",
        [(1, "2023-05-01", 1), (2, "2024-01-01", 1), (3, "2024-06-01", 2)],
        key="id",
    )
    story.table("customers", "id INT, city STRING", [(1, "bonn"), (2, "rome")], key="id")
    inner = (
        "SELECT EXTRACT(YEAR FROM CAST(o.day AS DATE)) AS y, concat(upper(c.city), '-', CAST(o.id % 2 AS STRING)) AS place, o.id"
        " FROM orders o JOIN customers c ON o.customer = c.id"
    )
    s = story.stream(
        f"SELECT y, place, count(*) AS n, sort_array(collect_list(id)) AS ids FROM ({inner}) GROUP BY y, place"
    )
    assert s.rows() == [(2023, "BONN-1", 1, (1,)), (2024, "BONN-0", 1, (2,)), (2024, "ROME-1", 1, (3,))]
    story.change("UPDATE customers SET city = 'rome'", "UPDATE orders SET day = '2024-07-07' WHERE id = 1")
    assert s.refreshed() == [(2024, "ROME-0", 1, (2,)), (2024, "ROME-1", 2, (1, 3))]
    story.change("DELETE FROM customers WHERE id = 2", "UPDATE orders SET day = '2025-01-01' WHERE id = 2")
    assert s.refreshed() == [(2024, "ROME-1", 1, (1,)), (2025, "ROME-0", 1, (2,))]
    story.verified()


def test_b25_few_groups_and_every_row_of_them_changes(story: Story) -> None:
    story.table("a", "id INT, k INT, v INT", [(i, i % 2, i) for i in range(20)], key="id")
    story.table("b", "k INT, g STRING", [(0, "even"), (1, "odd")], key="k")
    s = story.stream("SELECT b.g, count(*) AS n, sum(a.v) AS total FROM a JOIN b ON a.k = b.k GROUP BY b.g")
    assert s.rows() == [("even", 10, 90), ("odd", 10, 100)]
    story.change("UPDATE a SET v = v + 1")
    assert s.refreshed() == [("even", 10, 100), ("odd", 10, 110)]
    story.change("UPDATE a SET k = 1 - k", "UPDATE b SET g = upper(g)")
    assert s.refreshed() == [("EVEN", 10, 110), ("ODD", 10, 100)]
    story.change("DELETE FROM a WHERE id > 0", "UPDATE b SET k = k + 1")
    assert s.refreshed() == [("EVEN", 1, 1)]
    story.verified()


def test_b26_a_rescan_reads_columns_that_nobody_selects(story: Story) -> None:
    shop(story)
    s = story.stream(
        f"SELECT median(o.amount) AS middle, sort_array(collect_list(c.city)) AS cities {JOINED} WHERE o.id <> 13 GROUP BY c.id % 2"
    )
    assert s.rows() == [(7.0, ("Bonn",)), (7.0, ("Bonn", "Rome"))]
    story.change("UPDATE orders SET amount = 11 WHERE id = 11", "DELETE FROM customers WHERE id = 1")
    assert s.refreshed() == [(9.0, ("Rome",)), (11.0, ("Bonn",))]
    story.change("INSERT INTO orders VALUES (14, 2, 21), (15, 3, 1)", "UPDATE orders SET customer = 2 WHERE id = 12")
    assert s.refreshed() == [(1.0, ("Rome",)), (11.0, ("Bonn", "Bonn", "Bonn"))]
    story.change("DELETE FROM orders WHERE id IN (11, 15)")
    assert s.refreshed() == [(15.0, ("Bonn", "Bonn"))]
    story.verified()


def test_b27_a_huge_number_passes_through_a_sum_over_a_join(story: Story) -> None:
    story.table("a", "id INT, k INT, d DOUBLE", [(1, 1, 0.5), (2, 1, 0.25), (3, 2, 4.0)], key="id")
    story.table("b", "k INT, f DOUBLE", [(1, 1.0), (2, 2.0)], key="k")
    s = story.stream("SELECT a.k, sum(a.d * b.f) AS s, avg(a.d) AS m FROM a JOIN b ON a.k = b.k GROUP BY a.k")
    assert s.rows() == [(1, 0.75, 0.375), (2, 8.0, 4.0)]
    story.change("INSERT INTO a VALUES (4, 1, 1e300)", "UPDATE b SET f = 0.5 WHERE k = 2")
    assert s.refreshed()[1] == (2, 2.0, 4.0)
    story.change("DELETE FROM a WHERE id = 4")
    assert s.refreshed() == [(1, 0.75, 0.375), (2, 2.0, 4.0)]
    story.change("UPDATE b SET f = DOUBLE('NaN') WHERE k = 1")
    assert s.refreshed() == [(1, "NaN", 0.375), (2, 2.0, 4.0)]
    story.change("UPDATE b SET f = 2 WHERE k = 1")
    assert s.refreshed() == [(1, 1.5, 0.375), (2, 2.0, 4.0)]
    story.verified()


def test_b28_group_key_join_key_and_value_change_together(story: Story) -> None:
    shop(story)
    s = story.stream(
        f"SELECT c.city, sum(o.amount) AS total, count(*) AS n, min(o.id) AS first_id {JOINED} GROUP BY c.city"
    )
    assert s.rows() == [("Bonn", 12, 2, 10), ("Rome", 10, 2, 12)]
    story.change(
        "UPDATE orders SET id = id + 100, customer = 4 - customer, amount = amount * 10",
        "UPDATE customers SET city = CASE city WHEN 'Rome' THEN 'Oslo' ELSE 'Rome' END",
    )
    assert s.refreshed() == [("Oslo", 50, 1, 110), ("Rome", 170, 3, 111)]
    story.together("UPDATE customers SET id = 4 - id, city = upper(city)", "DELETE FROM orders WHERE id = 111")
    assert s.refreshed() == [("OSLO", 100, 2, 112), ("ROME", 50, 1, 110)]
    story.verified()


def test_joins_over_two_aggregates(story: Story) -> None:
    shop(story)
    story.table("refunds", "customer INT, amount INT", [(1, 2), (3, 4)])
    s = story.stream(
        "SELECT c.city, o.total, r.total AS back FROM"
        " (SELECT c.city, sum(o.amount) AS total FROM orders o JOIN customers c ON o.customer = c.id GROUP BY c.city) o"
        " JOIN (SELECT c.city, sum(f.amount) AS total FROM refunds f JOIN customers c ON f.customer = c.id GROUP BY c.city) r"
        " ON o.city = r.city JOIN (SELECT DISTINCT city FROM customers) c ON c.city = o.city"
    )
    assert s.rows() == [("Bonn", 12, 2), ("Rome", 10, 4)]
    story.change("UPDATE customers SET city = 'Rome' WHERE id = 1")
    assert s.refreshed() == [("Rome", 15, 6)]
    story.change("INSERT INTO refunds VALUES (2, 1)", "DELETE FROM orders WHERE id = 12")
    assert s.refreshed() == [("Bonn", 7, 1), ("Rome", 6, 6)]
    story.change("DELETE FROM refunds WHERE customer IN (1, 3)", "UPDATE orders SET amount = 8 WHERE id = 11")
    assert s.refreshed() == [("Bonn", 8, 1)]
    story.verified()


def test_an_aggregate_of_an_aggregate_of_a_join(story: Story) -> None:
    shop(story)
    s = story.stream(
        "SELECT n, count(*) AS cities, max(total) AS best FROM"
        f" (SELECT c.city, count(*) AS n, sum(o.amount) AS total {JOINED} GROUP BY c.city) GROUP BY n"
    )
    assert s.rows() == [(2, 2, 12)]
    story.change("UPDATE orders SET customer = 1 WHERE id = 12")
    assert s.refreshed() == [(1, 1, 1), (3, 1, 21)]
    story.change("UPDATE customers SET city = 'Oslo' WHERE id = 2", "INSERT INTO orders VALUES (14, 3, 50)")
    assert s.refreshed() == [(1, 1, 7), (2, 2, 51)]
    story.change("DELETE FROM customers WHERE id <> 2")
    assert s.refreshed() == [(1, 1, 7)]
    story.verified()


def test_distinct_and_count_distinct_over_a_join_count_pairs(story: Story) -> None:
    shop(story)
    s = story.stream(f"SELECT DISTINCT c.city, o.amount > 4 AS big {JOINED}", "kinds")
    n = story.stream(
        f"SELECT c.city, count(DISTINCT o.customer) AS people, count(DISTINCT o.amount) AS amounts {JOINED} GROUP BY c.city",
        "counts",
    )
    assert s.rows() == [("Bonn", True), ("Rome", False), ("Rome", True)]
    story.change("DELETE FROM orders WHERE id = 10", "UPDATE orders SET amount = 7 WHERE id = 12")
    assert s.kept() == [("Bonn", True), ("Rome", False), ("Rome", True)]
    assert n.refreshed() == [("Bonn", 1, 1), ("Rome", 1, 2)]
    story.change("UPDATE orders SET customer = 3 WHERE id = 11", "DELETE FROM orders WHERE id = 13")
    assert s.refreshed() == [("Rome", True)]
    assert n.refreshed() == [("Rome", 1, 1)]
    story.change("UPDATE customers SET city = 'Oslo' WHERE id = 3", "INSERT INTO orders VALUES (15, 1, 1)")
    assert s.refreshed() == [("Bonn", False), ("Oslo", True)]
    assert n.refreshed() == [("Bonn", 1, 1), ("Oslo", 1, 1)]
    story.verified()


def test_a_stream_table_of_groups_joined_back_to_its_source(story: Story) -> None:
    shop(story)
    totals = story.stream("SELECT customer, sum(amount) AS total FROM orders GROUP BY customer", "totals")
    s = story.stream(
        "SELECT o.id, o.amount * 100 / t.total AS share FROM orders o JOIN totals t ON t.customer = o.customer"
    )
    assert s.rows() == [(10, 100.0), (11, 100.0), (12, 90.0), (13, 10.0)]
    story.change("INSERT INTO orders VALUES (14, 1, 15)", "DELETE FROM orders WHERE id = 13")
    totals.refreshed()
    assert s.refreshed() == [(10, 25.0), (11, 100.0), (12, 100.0), (14, 75.0)]
    story.change("UPDATE orders SET customer = 2 WHERE id = 12")
    totals.refreshed()
    assert s.refreshed() == [(10, 25.0), (11, 43.75), (12, 56.25), (14, 75.0)]
    story.verified()


def test_equality_of_floating_point_sums_over_joins_is_refused(story: Story) -> None:
    story.table("a", "k INT, d DOUBLE", [(1, 0.5)])
    story.table("b", "k INT", [(1,)])
    sums = "SELECT a.k, sum(a.d) AS s FROM a JOIN b ON a.k = b.k GROUP BY a.k"
    story.refused(f"SELECT s, count(*) AS n FROM ({sums}) GROUP BY s", "ORDER_DEPENDENT")
    story.refused(f"SELECT count(DISTINCT x.s) AS n FROM ({sums}) x JOIN b ON x.k = b.k", "ORDER_DEPENDENT")
    s = story.stream(f"SELECT round(s, 2) AS s, count(*) AS n FROM ({sums}) GROUP BY round(s, 2)")
    story.change("INSERT INTO a VALUES (2, 0.5)", "INSERT INTO b VALUES (2)")
    assert s.refreshed() == [(0.5, 2)]
    story.verified()
