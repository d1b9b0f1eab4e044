"""Rows of some keys, found on the driver, are the rows that Spark finds."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.support.tables import manifest_of, table_of

import headwater as hw
from headwater.store import lookup
from headwater.store.lookup import rows_of_keys
from headwater.store.reading import Source
from headwater.warehouse import Warehouse

KEYS = {
    "BIGINT": ("id", [f"{n}" for n in range(9)]),
    "STRING": ("k", ["''", "'a'", "'A'", "'é'", "'a '"]),
    "DECIMAL(12, 2)": ("d", ["0.00", "1.10", "-7.25"]),
    "DATE": ("x", ["DATE'0001-01-01'", "DATE'1970-01-01'", "DATE'9999-12-31'"]),
    "TIMESTAMP": ("at", ["TIMESTAMP'2024-10-27 00:30:00Z'", "TIMESTAMP'2024-10-27 01:30:00Z'"]),
    "BOOLEAN": ("b", ["true", "false"]),
    "BINARY": ("y", ["X''", "X'00'", "X'FF'"]),
}


def found(wh: Warehouse, name: str, keys: pa.Table) -> list[tuple[object, ...]] | None:
    ground = wh._ground
    source = Source(table_of(wh, name), manifest_of(wh, name))
    table = rows_of_keys(ground.reader, ground.layout, source, wh.version, keys)
    if table is None:
        return None
    return sorted((tuple(r.values()) for r in table.to_pylist()), key=repr)


def asked(wh: Warehouse, name: str, where: str) -> list[tuple[object, ...]]:
    table = wh.sql(f"SELECT * FROM {name} WHERE {where}").toArrow()
    zone = pa.timestamp("us", "UTC")
    fields = [f.with_type(zone) if pa.types.is_timestamp(f.type) else f for f in table.schema]
    return sorted((tuple(r.values()) for r in table.cast(pa.schema(fields)).to_pylist()), key=repr)


@pytest.mark.parametrize("few", [0, lookup._FEW_ROWS])
@pytest.mark.parametrize("settings", [{}, {"inline_max_rows": 0}, {"tail_max_files": 1}])
def test_rows_are_found_in_tail_and_base(
    spark: SparkSession, tmp_path: Path, settings: dict[str, int], few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "_FEW_ROWS", few)  # of more rows an order is made
    random = Random(7)
    columns = ", ".join(f"{name} {type_}" for type_, (name, _) in KEYS.items())
    names = [name for name, _ in KEYS.values()]
    with hw.connect(tmp_path / "w", spark=spark, settings=settings) as wh:
        wh.sql(f"CREATE TABLE t ({columns}, v INT, PRIMARY KEY ({', '.join(names)}))")
        rows = {tuple(random.choice(values) for _, values in KEYS.values()) for _ in range(400)}
        wh.sql("INSERT INTO t VALUES " + ", ".join(f"({', '.join(r)}, 0)" for r in sorted(rows)))
        for turn in range(3):
            wh.sql(f"UPDATE t SET v = {turn + 1} WHERE pmod(hash(id, k), 7) = {turn}")
            wh.sql(f"DELETE FROM t WHERE pmod(hash(d, x), 9) = {turn}")
            wh.sql(f"UPDATE t SET id = id + 100 WHERE k = 'a' AND id = {turn}")
            if turn == 1:
                wh.compact("t")
            for where in ("id < 3", "k = 'a'", "false", f"v = {turn + 1} OR id > 50", "true"):
                keys = wh.sql(f"SELECT {', '.join(names)} FROM t WHERE {where}").toArrow()
                assert found(wh, "t", keys) == asked(wh, "t", where), where
        assert bool(list((tmp_path / "w" / "index").glob("**/*.arrow"))) == (few == 0)
        gone = wh.table("t", version=wh.version - 1).toArrow().select(names)
        assert found(wh, "t", gone) == asked(wh, "t", "id <= 100 OR id > 100 AND NOT (k = 'a' AND id = 102)")


@pytest.mark.parametrize("few", [0, lookup._FEW_ROWS])
def test_null_is_a_key_of_a_state(wh: Warehouse, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "_FEW_ROWS", few)
    wh.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, a STRING, b INT, v INT)")
    wh.sql("INSERT INTO t VALUES (1, NULL, 1, 1), (2, 'x', NULL, 2), (3, NULL, NULL, 3), (4, 'x', 1, 4)")
    wh.create_stream_table("s", "SELECT a, b, sum(v) AS n FROM t GROUP BY a, b")
    groups = {"a": pa.array([None, "x"], pa.string()), "b": pa.array([None, None], pa.int32())}
    rows = found(wh, "s", pa.table(groups))
    assert rows is not None
    assert [r[:3] for r in rows] == [("x", None, 2), (None, None, 3)]


def test_spark_looks_for_keys_whose_equality_is_its_own(wh: Warehouse) -> None:
    wh.sql("CREATE TABLE t (id DOUBLE PRIMARY KEY, v INT)")
    wh.sql("INSERT INTO t VALUES (0.0, 1)")
    assert found(wh, "t", pa.table({"id": pa.array([-0.0])})) is None
