"""Change after change over all eight tables of TPC-H: rows come, go and change in each of them in every cycle.

Most changes are *background*, spread over the tables by a share of their rows. Where a query looks at so few rows that the background
would miss them, changes are *aimed* at it. References mostly hold, but not always: customers, parts and suppliers are deleted while
orders and lines name them, orders lose their lines and lines their orders, nations move to another region and back, and columns that
are not keys become NULL.

The same cycle over the same contents is the same change: rows are chosen by arithmetic on their keys.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.support.tpch import TABLES, Batch, Delete, Insert, Mirror, Update

CYCLES = 6
NEW_PARTS = 10_000_000
NEW_PEOPLE = 1_000_000
"""New parts, customers and suppliers of a cycle get keys from this times its number, and something."""

AMERICA, ASIA, EUROPE = 1, 2, 3

Statement = Insert | Update | Delete


def churn(mirror: Mirror, cycle: int, share: float = 0.001) -> dict[str, Batch]:
    """Change the mirror, and return what changed in each table. `share` is about the part of the rows that change."""
    pick = _Picker(mirror, share, random.Random(7919 * cycle))
    return mirror.changed(
        [
            *_geography(cycle),
            *_people(pick, cycle),
            *_parts(pick, cycle),
            *_orders(pick, cycle),
            *_aimed(pick, cycle),
        ]
    )


def small_changes(mirror: Mirror) -> dict[str, Batch]:
    """Change a few rows of each table, such that queries about regions and nations change too."""
    pick = _Picker(mirror, 0.0, random.Random(1))
    regions = "CASE r_name WHEN 'ASIA' THEN 'EUROPE' WHEN 'EUROPE' THEN 'AMERICA' ELSE 'ASIA' END"
    pairs = (("FRANCE", "GERMANY"), ("BRAZIL", "CANADA"), ("SAUDI ARABIA", "INDIA"))
    nations = " ".join(f"WHEN '{a}' THEN '{b}' WHEN '{b}' THEN '{a}'" for a, b in pairs)
    return mirror.changed(
        [
            Update("region", f"r_name = {regions}", "r_name IN ('ASIA', 'EUROPE', 'AMERICA')"),
            Update("nation", f"n_name = CASE n_name {nations} ELSE n_name END", "true"),
            *_people(pick, 1),
            *_parts(pick, 1),
            *_orders(pick, 1),
            *_aimed(pick, 1),
        ]
    )


@dataclass(slots=True)
class _Picker:
    """Chooses rows: some of a table, other ones at every call."""

    mirror: Mirror
    share: float
    rng: random.Random

    def some(self, table: str, part: float = 1.0, where: str = "true", least: int = 2) -> str:
        """Return a condition that holds for about `part` of the share of the rows of `table`."""
        return self.few(table, max(least, round(self.mirror.count(table) * self.share * part)), where)

    def few(self, table: str, count: int, where: str = "true") -> str:
        """Return a condition that holds for `count` rows of `table`, if it has so many."""
        key = TABLES[table].key
        mixed = " + ".join(f"{k} * {factor}" for k, factor in zip(key, (2_654_435_761, 40_503), strict=False))
        order = f"({mixed} + {self.rng.randrange(1_000_003)}) % 1000003"
        keys = ", ".join(key)
        return f"({keys}) IN (SELECT ({keys}) FROM {table} WHERE {where} ORDER BY {order}, {keys} LIMIT {count})"


def _geography(cycle: int) -> list[Statement]:
    """A region and a nation come and go in every cycle, two nations swap names, and some move to another region and back."""
    region = (ASIA, EUROPE, AMERICA)[cycle % 3]
    made: list[Statement] = [
        Insert("region", f"SELECT {10 + cycle}, 'ATLANTIS {cycle}', 'made in cycle {cycle}'"),
        Update("region", f"r_comment = 'seen in cycle {cycle}'", f"r_regionkey = {cycle % 5}"),
        Insert("nation", f"SELECT {30 + cycle}, 'UTOPIA {cycle}', {region}, NULL"),
        Update("nation", f"n_comment = 'seen in cycle {cycle}'", f"n_nationkey = {(cycle * 7) % 25}"),
    ]
    if cycle == 1:
        made += [Delete("region", "r_name = 'AFRICA'"), Delete("nation", "n_name = 'MOROCCO'")]
    else:
        made += [Delete("region", f"r_regionkey = {9 + cycle}"), Delete("nation", f"n_nationkey = {29 + cycle}")]
    swap = Update(
        "nation",
        "n_name = CASE n_name WHEN 'FRANCE' THEN 'GERMANY' ELSE 'FRANCE' END",
        "n_name IN ('FRANCE', 'GERMANY')",
    )
    special: dict[int, list[Statement]] = {
        2: [
            Update("nation", f"n_regionkey = {ASIA}", "n_name = 'ROMANIA'"),
            Insert("region", "SELECT 0, 'AFRICA', 'back again'"),
            Insert("nation", "SELECT 15, 'MOROCCO', 0, 'back again'"),
        ],
        3: [Update("nation", f"n_regionkey = {AMERICA}", "n_name = 'INDIA'"), swap],
        4: [Update("nation", f"n_regionkey = {EUROPE}", "n_name = 'ROMANIA'"), swap],
        5: [
            Update("nation", f"n_regionkey = {ASIA}", "n_name = 'INDIA'"),
            Update("region", "r_name = 'MIDDLE EARTH'", "r_name = 'MIDDLE EAST'"),
        ],
        6: [Update("nation", "n_regionkey = NULL", "n_name = 'IRAQ'")],
    }
    return made + special.get(cycle, [])


def _people(pick: _Picker, cycle: int) -> list[Statement]:
    """Customers and suppliers. Those that go leave orders, lines and supplies behind."""
    new = NEW_PEOPLE * cycle
    nation = f"CASE WHEN {{0}}key % 4 = 0 THEN {30 + cycle} ELSE {{1}}_nationkey END AS {{1}}_nationkey"
    complained = "s_comment LIKE '%Customer%Complaints%'"
    return [
        Delete("customer", pick.some("customer")),
        Insert(
            "customer",
            f"SELECT * REPLACE (c_custkey + {new} AS c_custkey, c_acctbal + {cycle} AS c_acctbal, "
            f"{nation.format('c_cust', 'c')}, 'Customer new ' || c_custkey AS c_name) "
            f"FROM customer WHERE {pick.some('customer', where=f'c_custkey < {NEW_PEOPLE}')}",
        ),
        Update("customer", "c_acctbal = 9876.54 - c_acctbal, c_mktsegment = 'BUILDING'", pick.some("customer")),
        Update(
            "customer",
            "c_nationkey = (c_nationkey + 6) % 25, c_phone = '13' || substr(c_phone, 3)",
            pick.some("customer"),
        ),
        Update("customer", "c_acctbal = NULL", pick.few("customer", 1)),
        Update("customer", "c_phone = NULL, c_comment = NULL", pick.few("customer", 1)),
        Delete("supplier", pick.few("supplier", 1)),
        Insert(
            "supplier",
            f"SELECT * REPLACE (s_suppkey + {new} AS s_suppkey, {nation.format('s_supp', 's')}, "
            f"'Supplier new ' || s_suppkey AS s_name) "
            f"FROM supplier WHERE {pick.some('supplier', where=f's_suppkey < {NEW_PEOPLE}')}",
        ),
        Update("supplier", "s_acctbal = s_acctbal + 100, s_nationkey = (s_nationkey + 5) % 25", pick.some("supplier")),
        Update(
            "supplier",
            f"s_comment = CASE WHEN {complained} THEN 'praised' ELSE 'Customer sent Complaints' END",
            pick.few("supplier", 2),
        ),
        Update("supplier", "s_nationkey = NULL", f"{cycle} % 3 = 0 AND {pick.few('supplier', 1)}"),
    ]


def _parts(pick: _Picker, cycle: int) -> list[Statement]:
    """Parts and who supplies them."""
    new = NEW_PARTS * cycle
    apart = pick.mirror.count("supplier") // 4  # four suppliers for a part
    promoted = "p_type = CASE WHEN p_type LIKE 'PROMO%' THEN 'ECONOMY ANODIZED STEEL' ELSE 'PROMO PLATED BRASS' END"
    return [
        Delete("part", pick.some("part")),
        Insert(
            "part",
            f"SELECT * REPLACE (p_partkey + {new} AS p_partkey, 'forest green ' || p_name AS p_name) "
            f"FROM part WHERE {pick.some('part', where=f'p_partkey < {NEW_PARTS}')}",
        ),
        Insert(
            "partsupp",
            f"SELECT p_partkey, s_suppkey, 5000 + {cycle}, 123.45, NULL FROM part, supplier "
            f"WHERE p_partkey >= {new} AND p_partkey < {new + NEW_PARTS} AND s_suppkey % {apart} = p_partkey % {apart}",
        ),
        Update("part", "p_size = p_size % 50 + 1, p_brand = 'Brand#23'", pick.some("part")),
        Update("part", promoted, pick.some("part")),
        Update("part", "p_type = NULL, p_container = NULL", pick.few("part", 1)),
        Delete("partsupp", pick.some("partsupp", 0.5)),
        Update(
            "partsupp",
            "ps_availqty = 10000 - ps_availqty, ps_supplycost = ps_supplycost + 7.77",
            pick.some("partsupp"),
        ),
        Update("partsupp", "ps_availqty = NULL", pick.few("partsupp", 1)),
    ]


def _orders(pick: _Picker, cycle: int) -> list[Statement]:
    """Orders and their lines, mostly together."""
    gone = pick.some("orders", 0.4)
    offset = 8 * (1 + cycle % 2)  # TPC-H uses 8 of 32 keys in a row; the last 8 are left to the benchmarks
    no_order = f"{{0}} % 32 < 8 AND {{0}} + {offset} NOT IN (SELECT o_orderkey FROM orders)"
    no_lines = f"{{0}} % 32 < 8 AND {{0}} + {offset} NOT IN (SELECT l_orderkey FROM lineitem)"
    free = f"{no_order.format('o_orderkey')} AND {no_lines.format('o_orderkey')}"
    days = 11 * cycle
    lines_of = "l_orderkey IN (SELECT o_orderkey FROM orders WHERE {0})"
    return [
        Delete("lineitem", lines_of.format(gone)),
        Delete("orders", gone),
        Delete("orders", pick.some("orders", 0.1, least=1)),
        Delete("lineitem", lines_of.format(pick.some("orders", 0.1, least=1))),
        Delete("lineitem", pick.some("lineitem", 0.1)),
        Insert(
            "orders",
            f"SELECT * REPLACE (o_orderkey + {offset} AS o_orderkey, o_orderdate + {days} AS o_orderdate, "
            f"(o_custkey * 7 + {cycle}) % {pick.mirror.count('customer')} + 1 AS o_custkey) "
            f"FROM orders WHERE {pick.some('orders', 0.5, free)}",
        ),
        Insert(
            "lineitem",
            f"SELECT * REPLACE (l_orderkey + {offset} AS l_orderkey, l_shipdate + {days} AS l_shipdate, "
            f"l_receiptdate + {days} AS l_receiptdate, (l_quantity + {cycle}) % 50 + 1 AS l_quantity) FROM lineitem "
            f"WHERE {no_lines.format('l_orderkey')} AND l_orderkey + {offset} IN (SELECT o_orderkey FROM orders)",
        ),
        Update(
            "orders",
            "o_totalprice = o_totalprice + 1234.56, "
            "o_orderpriority = CASE WHEN o_orderpriority = '1-URGENT' THEN '5-LOW' ELSE '1-URGENT' END, "
            f"o_orderdate = o_orderdate + {days}",
            pick.some("orders", 0.5),
        ),
        Update(
            "orders",
            "o_custkey = o_custkey + 1, o_comment = 'a special wish of many requests'",
            pick.some("orders", 0.2),
        ),
        Update("orders", "o_comment = NULL", pick.few("orders", 2)),
        Update("orders", "o_custkey = NULL", pick.few("orders", 1)),
        Update(
            "lineitem",
            "l_quantity = l_quantity % 50 + 1, l_discount = (l_discount + 0.03) % 0.1",
            pick.some("lineitem", 0.5),
        ),
        Update(
            "lineitem",
            f"l_shipdate = l_shipdate - {days}, l_receiptdate = l_commitdate + 2, l_returnflag = 'R'",
            pick.some("lineitem", 0.3),
        ),
        Update(
            "lineitem",
            f"l_suppkey = (l_suppkey * 3) % {pick.mirror.count('supplier')} + 1, l_shipmode = 'AIR'",
            pick.some("lineitem", 0.2),
        ),
        Update("lineitem", "l_suppkey = NULL, l_discount = NULL", pick.few("lineitem", 1)),
        Update("lineitem", "l_commitdate = NULL, l_comment = NULL", pick.few("lineitem", 1)),
    ]


def _aimed(pick: _Picker, cycle: int) -> list[Statement]:
    """Changes of rows that the choosiest queries read."""
    return [
        *_aimed_at_supplies(pick, cycle),
        *_aimed_at_the_first(pick, cycle),
        *_aimed_at_lines(pick),
        *_aimed_at_large_orders(pick),
    ]


def _aimed_at_supplies(pick: _Picker, cycle: int) -> list[Statement]:
    """Query 2: another supplier is the cheapest. Query 20: a supplier has too much of everything, then nothing."""
    brass = (
        "ps_suppkey IN (SELECT s_suppkey FROM supplier WHERE s_nationkey IN (6, 7, 19, 22, 23)) "
        "AND ps_partkey IN (SELECT p_partkey FROM part WHERE p_size = 15 AND p_type LIKE '%BRASS')"
    )
    name = "forest%" if pick.mirror.scale >= 0.1 else "f%"
    forest = f"ps_partkey IN (SELECT p_partkey FROM part WHERE p_name LIKE '{name}')"
    canadian = (
        "SELECT min(ps_suppkey) FROM partsupp JOIN lineitem ON l_partkey = ps_partkey AND l_suppkey = ps_suppkey "
        f"WHERE year(l_shipdate) = 1994 AND {forest} AND ps_suppkey IN (SELECT s_suppkey FROM supplier WHERE s_nationkey = 3)"
    )
    return [
        Update("partsupp", f"ps_supplycost = {cycle}.01", pick.few("partsupp", 1, brass)),
        Update("partsupp", "ps_supplycost = ps_supplycost + 500", pick.few("partsupp", 1, brass)),
        Update("partsupp", f"ps_availqty = {9999 * (cycle % 2)}", f"ps_suppkey = ({canadian}) AND {forest}"),
    ]


def _aimed_at_the_first(pick: _Picker, cycle: int) -> list[Statement]:
    """Queries 3, 10 and 15: others become the first of all, and in every third cycle what made them so is taken back."""
    building = (
        "l_shipdate > DATE '1995-03-15' AND l_orderkey IN (SELECT o_orderkey FROM orders JOIN customer ON c_custkey = o_custkey "
        "WHERE o_orderdate < DATE '1995-03-15' AND c_mktsegment = 'BUILDING')"
    )
    returned = (
        "l_returnflag = 'R' AND l_orderkey IN (SELECT o_orderkey FROM orders "
        "WHERE o_orderdate >= DATE '1993-10-01' AND o_orderdate < DATE '1994-01-01')"
    )
    in_spring = "l_shipdate >= DATE '1996-01-01' AND l_shipdate < DATE '1996-04-01'"
    raised = "l_extendedprice = l_extendedprice + "
    return [
        Update("lineitem", "l_extendedprice = 999.99", f"l_extendedprice > 140000 AND {cycle} % 3 = 0"),
        Update("lineitem", raised + "250000", pick.few("lineitem", 2, building)),
        Update("lineitem", raised + "350000", pick.few("lineitem", 2, returned)),
        Update("lineitem", raised + f"{cycle}000000", pick.few("lineitem", 2, in_spring)),
    ]


def _aimed_at_lines(pick: _Picker) -> list[Statement]:
    """Queries 8, 12, 17, 19 and 21, which look at a few lines of some parts and suppliers."""
    steel = (
        "l_partkey IN (SELECT p_partkey FROM part WHERE p_type LIKE 'ECONOMY ANODIZED%') AND l_orderkey IN "
        "(SELECT o_orderkey FROM orders WHERE o_orderdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31')"
    )
    boxes = "l_partkey IN (SELECT p_partkey FROM part WHERE p_brand = 'Brand#23' AND p_container LIKE 'MED%')"
    small = (
        "l_shipmode = 'AIR' AND l_partkey IN (SELECT p_partkey FROM part WHERE p_brand = 'Brand#12' AND p_size <= 5 "
        "AND p_container IN ('SM CASE', 'SM BOX', 'SM PACK', 'SM PKG'))"
    )
    mailed = "l_shipmode = 'MAIL' AND l_shipdate < l_commitdate AND l_commitdate < l_receiptdate AND year(l_receiptdate) = 1994"
    late = "l_receiptdate > l_commitdate AND l_suppkey IN (SELECT s_suppkey FROM supplier WHERE s_nationkey = 20)"
    brazilian = "(SELECT min(s_suppkey) FROM supplier WHERE s_nationkey = 2)"
    return [
        Update("lineitem", f"l_suppkey = {brazilian}", pick.few("lineitem", 2, steel)),
        Update("lineitem", "l_quantity = 1", pick.few("lineitem", 2, boxes)),
        Update("lineitem", "l_quantity = 5, l_shipinstruct = 'DELIVER IN PERSON'", pick.few("lineitem", 2, small)),
        Update("lineitem", "l_shipmode = 'SHIP'", pick.few("lineitem", 2, mailed)),
        Update("lineitem", "l_receiptdate = l_commitdate - 1", pick.few("lineitem", 2, late)),
    ]


def _aimed_at_large_orders(pick: _Picker) -> list[Statement]:
    """Query 18: an order becomes large, one is large no more, and one becomes expensive."""
    lines_of = "l_orderkey IN (SELECT o_orderkey FROM orders WHERE {0})"
    orders = "o_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING {0})"
    long = orders.format("count(*) = 7")
    large = orders.format("sum(l_quantity) > 250")
    return [
        Update("lineitem", "l_quantity = 50", lines_of.format(pick.few("orders", 1, long))),
        Update("lineitem", "l_quantity = 7", lines_of.format(pick.few("orders", 1, large))),
        Update("orders", "o_totalprice = o_totalprice + 400000", pick.few("orders", 1, large)),
    ]
