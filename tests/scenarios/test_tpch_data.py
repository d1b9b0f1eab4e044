"""The TPC-H data, texts and changes are what the other tests take them for. DuckDB alone; no Spark."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support import tpch
from tests.support.tpch import Delete, Insert, Mirror, Update
from tests.support.tpch_churn import CYCLES, churn

SCALE = 0.01
ORDER_OF_LIMITED = {2: (0, 2, 1, 3), 3: (1, 2), 10: (2,), 18: (4, 3), 21: (1, 0)}
"""The columns that ORDER BY names, of the queries with a LIMIT."""


@pytest.fixture(scope="module")
def tables() -> dict[str, pa.Table]:
    return tpch.generate(SCALE)


@pytest.fixture
def mirror(tables: dict[str, pa.Table]) -> Mirror:
    return Mirror(tables, SCALE)


def test_columns_are_those_of_the_schema(tables: dict[str, pa.Table]) -> None:
    assert list(tables) == list(tpch.TABLES)
    kinds = {
        "BIGINT": "int64",
        "INT": "int32",
        "STRING": "string",
        "DATE": "date32[day]",
        "DECIMAL(15, 2)": "decimal128(15, 2)",
    }
    for name, spec in tpch.TABLES.items():
        columns = [c.split(" ", 1) for c in re.split(r", (?=[a-z]+_)", spec.ddl)]
        assert [(f.name, str(f.type)) for f in tables[name].schema] == [(n, kinds[t]) for n, t in columns]
        assert len(tables[name].select(list(spec.key)).group_by(list(spec.key)).aggregate([])) == len(tables[name])
    assert tables["lineitem"].num_rows == 60_175


def test_texts_read_the_tables_that_they_are_said_to_read() -> None:
    for number in tpch.NUMBERS:
        text = re.sub(r"'[^']*'", "", tpch.query_text(number, 1)).casefold()
        # Queries 8 and 9 have a column that is named like a table, which they read too.
        assert {t for t in tpch.TABLES if re.search(rf"\b{t}\b", text)} == set(tpch.READS[number])


def test_texts_differ_from_the_standard_where_it_is_written_down() -> None:
    standard = tpch._standard_texts()
    at_one = {n for n in tpch.NUMBERS if tpch.query_text(n, 1) != standard[n]}
    assert at_one == {18}  # names its last column
    for scale in (0.1, 0.01):
        changed = {n for n in tpch.NUMBERS if tpch.query_text(n, scale) != standard[n]}
        assert changed == {a.number for a in tpch.ADAPTED if scale < a.below}


def test_a_final_order_without_limit_is_dropped() -> None:
    assert "ORDER BY" not in tpch.unordered(tpch.query_text(1, 1))
    assert tpch.unordered(tpch.query_text(20, 1)).endswith("n_name = 'CANADA'")
    for number in ORDER_OF_LIMITED:
        assert tpch.unordered(tpch.query_text(number, 1)) == tpch.query_text(number, 1)
    assert tpch.unordered("SELECT rank() OVER (ORDER BY x) FROM t") == "SELECT rank() OVER (ORDER BY x) FROM t"


def test_all_queries_have_rows_and_change(mirror: Mirror) -> None:
    before = {n: mirror.answer(n) for n in tpch.NUMBERS}
    changed = set()
    for cycle in range(1, CYCLES + 1):
        batches = churn(mirror, cycle)
        for name, batch in batches.items():
            counts = (batch.inserted.num_rows, batch.deleted.num_rows, batch.after.num_rows)
            assert all(counts), f"cycle {cycle} of {name} has {counts} inserts, deletes and updates"
            assert batch.before.num_rows == batch.after.num_rows
            assert batch.count < max(10, mirror.count(name) / 5)
        for number in tpch.NUMBERS:
            answer = mirror.answer(number)
            assert not tpch.is_empty(answer), f"query {number} is empty after cycle {cycle}"
            if sorted(map(repr, answer)) != sorted(map(repr, before[number])):
                changed.add(number)
            before[number] = answer
        for number, columns in ORDER_OF_LIMITED.items():
            assert not is_tied(mirror, number, columns), f"query {number} has a tie at its limit after cycle {cycle}"
    assert changed == set(tpch.NUMBERS)
    assert orphans(mirror) == {"orders": True, "lineitem": True, "partsupp": True}


def is_tied(mirror: Mirror, number: int, columns: tuple[int, ...]) -> bool:
    """Say whether ORDER BY leaves open which row is the last one: then two right answers differ."""
    text, _, limit = tpch.query_text(number, SCALE).rpartition("LIMIT ")
    rows = mirror.rows(f"{text} LIMIT {int(limit) + 1}")
    return len(rows) > int(limit) and all(rows[-1][c] == rows[-2][c] for c in columns)


def orphans(mirror: Mirror) -> dict[str, bool]:
    return {
        "orders": mirror.value("SELECT count(*) FROM orders ANTI JOIN customer ON c_custkey = o_custkey") > 0,
        "lineitem": mirror.value("SELECT count(*) FROM lineitem ANTI JOIN orders ON o_orderkey = l_orderkey") > 0,
        "partsupp": mirror.value("SELECT count(*) FROM partsupp ANTI JOIN part ON p_partkey = ps_partkey") > 0,
    }


def test_keys_stay_unique(mirror: Mirror) -> None:
    for cycle in range(1, CYCLES + 1):
        churn(mirror, cycle, 0.02)
    for name, spec in tpch.TABLES.items():
        keys = ", ".join(spec.key)
        assert mirror.value(f"SELECT count(*) - count(DISTINCT ({keys})) FROM {name}") == 0


def test_the_same_cycle_is_the_same_change(mirror: Mirror, tables: dict[str, pa.Table]) -> None:
    again = Mirror(tables, SCALE)
    for cycle in (1, 2):
        assert churn(mirror, cycle) == churn(again, cycle)


def test_a_batch_is_the_change_in_net(mirror: Mirror) -> None:
    batch = mirror.changed(
        [
            Insert("region", "SELECT 7, 'SEVEN', NULL"),
            Insert("region", "SELECT 8, 'EIGHT', NULL"),
            Update("region", "r_name = 'seven'", "r_regionkey = 7"),
            Delete("region", "r_regionkey = 8"),
            Update("region", "r_comment = NULL", "r_regionkey = 1"),
            Update("region", "r_comment = 'again'", "r_regionkey = 1"),
            Update("region", "r_comment = r_comment", "r_regionkey = 2"),
            Update("region", "r_comment = 'x'", "r_regionkey = 3"),
            Delete("region", "r_regionkey = 3"),
            Delete("region", "r_regionkey = 4"),
            Insert("region", "SELECT 4, 'MIDDLE EAST', NULL"),
        ]
    )["region"]
    assert batch.inserted.to_pylist() == [{"r_regionkey": 7, "r_name": "seven", "r_comment": None}]
    assert batch.deleted.column("r_regionkey").to_pylist() == [3]
    assert batch.deleted.column("r_comment").to_pylist() != ["x"]
    assert batch.before.column("r_regionkey").to_pylist() == [1, 4]
    assert batch.after.column("r_comment").to_pylist() == ["again", None]


def test_files_hold_the_same_rows(tables: dict[str, pa.Table], tmp_path: Path) -> None:
    tpch.write_files(SCALE, tmp_path)
    for name, table in tables.items():
        assert pq.read_table(tmp_path / name).num_rows == table.num_rows


# comparing ------------------------------------------------------------------------------------------------------------------

DAY = date(1995, 1, 1)


def found(*rows: tuple[object, ...]) -> pa.Table:
    kinds = [pa.string(), pa.date32(), pa.decimal128(38, 2), pa.decimal128(19, 6)]
    columns = zip(*rows, strict=True) if rows else [()] * 4
    return pa.table([pa.array(c, k) for c, k in zip(columns, kinds, strict=True)], names=list("abcd"))


def test_equal_rows_do_not_differ() -> None:
    expected = [("x", DAY, Decimal("1.5"), 1 / 3), ("x", DAY, Decimal("1.5"), 2 / 3), (None, DAY, None, None)]
    held = [
        (None, DAY, None, None),
        ("x", DAY, Decimal("1.50"), Decimal("0.666667")),
        ("x", DAY, Decimal("1.50"), Decimal("0.333333")),
    ]
    assert tpch.differences(expected, found(*held)) == ""
    assert tpch.differences([], found()) == ""


@pytest.mark.parametrize(
    "row",
    [
        ("y", DAY, Decimal("1.50"), Decimal("0.333333")),
        ("x", date(1995, 1, 2), Decimal("1.50"), Decimal("0.333333")),
        ("x", DAY, Decimal("1.51"), Decimal("0.333333")),
        ("x", DAY, Decimal("1.50"), Decimal("0.333335")),
        ("x", DAY, Decimal("1.50"), None),
        (None, DAY, Decimal("1.50"), Decimal("0.333333")),
    ],
)
def test_other_rows_differ(row: tuple[object, ...]) -> None:
    assert tpch.differences([("x", DAY, Decimal("1.5"), 1 / 3)], found(row))


def test_the_number_of_equal_rows_counts() -> None:
    row = ("x", DAY, Decimal("1.50"), Decimal("0.333333"))
    assert tpch.differences([("x", DAY, Decimal("1.5"), 1 / 3)], found(row, row))
    assert tpch.differences([("x", DAY, Decimal("1.5"), 1 / 3)] * 2, found(row))
    assert tpch.differences([("x", DAY)], found(row)) == "2 columns expected, 4 found"


def test_the_null_of_an_empty_aggregate_is_empty() -> None:
    assert tpch.is_empty([])
    assert tpch.is_empty([(None,)])
    assert not tpch.is_empty([(0,)])
