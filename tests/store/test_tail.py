"""The tail stays short: many tiny commits become few batches, and what they say stays the same."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.support.tables import check_hash, contents, files_on_disk, manifest_of, table_of

import headwater as hw
from headwater.errors import ConstraintError
from headwater.model.commit import Commit
from headwater.model.schema import Field
from headwater.model.tables import Batch, BatchFormat
from headwater.store import maintain
from headwater.store.netting import net_sql
from headwater.store.rows import CHANGED, VERSION, WEIGHT, Rows, arrow_rows, concatenated, in_utc, row_codes
from headwater.warehouse import Warehouse


def commit_tiny(wh: Warehouse, name: str, count: int) -> None:
    """Commit `count` one-row inserts as the writer does, without Spark, and let maintenance follow each."""
    ground = wh._ground
    for n in range(count):
        table = table_of(wh, name)
        rows = pa.table(
            {"id": pa.array([n], pa.int64()), "v": ["x"], "__action": ["I"], "__hash": pa.array([0], pa.int64())}
        )
        batch, ids = ground.writer.batch(arrow_rows(rows), table)
        wh._catalog.commit(Commit((batch,), unmoved={table.id: table.moved}, write_ids=ids))
        wh._maintenance.after_change([table.id])


def test_hundreds_of_tiny_commits_stay_few_entries(wh: Warehouse) -> None:
    wh.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v STRING)")
    first = wh.version
    commit_tiny(wh, "t", 300)
    batches = manifest_of(wh, "t").batches
    assert len(batches) <= 65
    assert sum(b.inserts for b in batches) == 300
    assert any(b.merged for b in batches)
    assert contents(wh, "t") == {(n, "x"): 1 for n in range(300)}
    # Merged rows keep their versions: the table as it was after the hundredth commit.
    at = versions_of(wh, "t")[99]
    assert contents(wh, "t", version=at) == {(n, "x"): 1 for n in range(100)}
    assert wh.changes("t", first, at).count() == 100


def versions_of(wh: Warehouse, name: str) -> list[int]:
    manifest = manifest_of(wh, name)
    found: list[int] = []
    for batch in manifest.batches:
        if batch.merged:
            found += wh._ground.reader.inline_tables([batch])[batch.id].column(VERSION).to_pylist()
        else:
            found.append(batch.first_version)
    return sorted(found)


def test_tail_files_are_merged_at_the_limit(spark: SparkSession, tmp_path: Path) -> None:
    settings = {"inline_max_rows": 0, "tail_max_files": 3, "vacuum_grace_seconds": 0}
    with hw.connect(tmp_path / "w", spark=spark, settings=settings) as wh:
        wh.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARIANT, s STRING)")
        seen = []
        for n in range(7):
            wh.sql(
                f"INSERT INTO t SELECT {n}, parse_json('[{n}]'), 'x'" if n % 2 else f"INSERT INTO t (id) VALUES ({n})"
            )
            wh.sql(f"UPDATE t SET s = 'y' WHERE id = {n}")
            seen.append(sum(b.format is BatchFormat.TAIL for b in manifest_of(wh, "t").batches))
        assert max(seen) < 4
        found = wh.table("t").selectExpr("id", "to_json(v) AS v", "s").collect()
        assert sorted((r["id"], r["v"], r["s"]) for r in found) == [
            (n, f"[{n}]" if n % 2 else None, "y") for n in range(7)
        ]
        check_hash(wh, "t")
        assert files_on_disk(wh)


def test_netting_sums_full_tuples(wh: Warehouse) -> None:
    with wh._ground.engine.worker() as worker:
        rows = worker.sql(
            "SELECT * FROM VALUES (1, map('a', 1, 'b', 2), 1), (1, map('b', 2, 'a', 1), 1), (1, map('a', 1), -1), "
            "(NULL, NULL, 1), (NULL, NULL, -1), (2, NULL, -1), (2, NULL, -1) AS t(k, m, w)"
        ).withColumnRenamed("w", WEIGHT)
        fields = (Field("k", "INT"), Field("m", "MAP<STRING, INT>"))
        found = worker.sql(net_sql(worker.view(rows), fields)).collect()
    assert sorted((r["k"], len(r["m"] or ()), r[WEIGHT]) for r in found) == [(1, 1, -1), (1, 2, 2), (2, 0, -2)]


def test_cancelling_rows_leave_nothing_and_their_masks_go(wh: Warehouse) -> None:
    table = pa.table(
        {
            "id": [1, 1, 2, 3],
            "__action": ["D", "I", "D", "I"],
            CHANGED: pa.array([[1], [1], [2], [2]], pa.list_(pa.int64())),
            "__hash": pa.array([5, 5, 7, -9], pa.int64()),
        }
    )
    rows = arrow_rows(table)
    assert (rows.inserts, rows.deletes, rows.hash_change) == (1, 1, (-9 - 7) % 2**64)
    assert isinstance(rows, Rows)
    assert rows.arrow is not None
    assert rows.arrow.column("id").to_pylist() == [2, 3]


def test_rows_cancel_by_value_in_every_type(wh: Warehouse) -> None:
    """One D and one I row each: (values, whether they are the same)."""
    cases: list[tuple[pa.DataType, object, object, bool]] = [
        (pa.float64(), float("nan"), float("nan"), True),
        (pa.float64(), 0.0, -0.0, False),
        (pa.float64(), None, float("nan"), False),
        (pa.float64(), None, None, True),
        (pa.string(), "", None, False),
        (pa.string(), "a", "a", True),
        (pa.decimal128(38, 10), 1, 1, True),
        (pa.timestamp("us", "UTC"), 5, 5, True),
        (pa.list_(pa.int64()), [1, None], [1, None], True),
        (pa.list_(pa.int64()), [1], [1, None], False),
        (pa.list_(pa.int64()), [1, 2], [1, 3], False),
        (pa.list_(pa.int64()), [], None, False),
        (pa.list_(pa.int64()), None, None, True),
        (pa.list_(pa.float64()), [float("nan"), 0.0], [float("nan"), 0.0], True),
        (pa.list_(pa.float64()), [0.0], [-0.0], False),
        (pa.list_(pa.list_(pa.string())), [["a"], [], None], [["a"], [], None], True),
        (pa.list_(pa.list_(pa.string())), [["a"], [], None], [["a"], None, []], False),
        (pa.list_(pa.struct({"a": pa.int64()})), [{"a": 1}, None], [{"a": 1}, None], True),
        (pa.list_(pa.struct({"a": pa.int64()})), [{"a": None}], [None], False),
        (pa.struct({"a": pa.int64()}), None, {"a": None}, False),
        (pa.list_(pa.map_(pa.string(), pa.int64())), [[("a", 1)]], [[("a", 1)]], True),
        (pa.map_(pa.string(), pa.int64()), [("a", 1), ("b", 2)], [("b", 2), ("a", 1)], True),
        (pa.struct({"a": pa.float64()}), {"a": -0.0}, {"a": 0.0}, False),
    ]
    for kind, old, new, same in cases:
        hashes = pa.array([7, 7, 9], pa.int64())
        table = pa.table({"v": pa.array([old, new, None], kind), "__action": ["D", "I", "I"], "__hash": hashes})
        assert arrow_rows(table).count == (1 if same else 3), (kind, old, new)


def test_copies_cancel_one_by_one(wh: Warehouse) -> None:
    table = pa.table(
        {"v": [1, 1, 1, 2, 1, 3], "__action": ["D", "I", "I", "I", "I", "D"], "__hash": pa.array([5] * 6, pa.int64())}
    )
    rows = arrow_rows(table)
    assert (rows.inserts, rows.deletes, rows.hash_change) == (3, 1, 10)
    assert rows.arrow is not None
    assert sorted(rows.arrow.column("v").to_pylist()) == [1, 1, 2, 3]


def test_equal_hashes_do_not_make_rows_equal(wh: Warehouse) -> None:
    table = pa.table({"id": [1, 2], "__action": ["D", "I"], "__hash": pa.array([5, 5], pa.int64())})
    assert arrow_rows(table).count == 2


def test_codes_tell_rows_apart_and_know_equal_ones() -> None:
    rows = [
        (1, None, "a"),
        (None, 1, "a"),
        (1, None, "a"),
        (None, None, None),
        (1, 1, ""),
        (None, None, None),
        (1, 1, ""),
    ]
    columns = list(zip(*rows, strict=True))
    nested = pa.array([[v] for v in columns[0]], pa.list_(pa.int64()))
    table = pa.table({"a": columns[0], "b": columns[1], "c": columns[2], "n": nested})
    codes = row_codes(table).tolist()
    assert [codes.index(c) for c in codes] == [rows.index(r) for r in rows]
    assert row_codes(table.slice(0, 0)).tolist() == []


def test_times_of_all_zones_go_together() -> None:
    parts = [
        pa.table(
            {"t": pa.array([0], pa.timestamp("us", zone)), "l": pa.array([[0]], pa.list_(pa.timestamp("us", zone)))}
        )
        for zone in ("UTC", "Europe/Berlin", "+02:00")
    ]
    together = concatenated([in_utc(p) for p in parts])
    assert together.schema.field("t").type == pa.timestamp("us", "UTC")
    assert len(set(together.column("t").to_pylist())) == 1


def test_a_batch_knows_its_versions(wh: Warehouse) -> None:
    wh.sql("CREATE TABLE t (n INT)")
    wh.sql("INSERT INTO t VALUES (1)")
    (batch,) = manifest_of(wh, "t").batches
    assert isinstance(batch, Batch)
    assert (batch.first_version, batch.last_version, batch.merged) == (wh.version, wh.version, False)


def test_changes_of_a_table_with_a_column_action(wh: Warehouse) -> None:
    wh.sql("CREATE TABLE t (n INT, Action STRING)")
    before = wh.version
    wh.sql("INSERT INTO t VALUES (1, 'jump')")
    assert [r.asDict() for r in wh.changes("t", before).collect()] == [{"n": 1, "Action": "jump", "__action": "I"}]


def test_only_neighbours_are_merged(wh: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that covers the versions of a larger one would hide which row of a key is the newest."""
    monkeypatch.setattr(maintain, "_MERGE_ROWS", 4)
    monkeypatch.setattr(maintain, "_MERGE_INLINE", 6)
    wh.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    wh.sql("INSERT INTO t SELECT id, 0 FROM range(40)")
    wh.compact("t")
    wh.sql("UPDATE t SET v = 1 WHERE id = 1")
    wh.sql("DELETE FROM t WHERE id BETWEEN 5 AND 12")
    wh.sql("INSERT INTO t VALUES (7, 7)")
    for i in range(9):
        wh.sql(f"UPDATE t SET v = {i} WHERE id = {20 + i}")
    ranges = sorted((b.first_version, b.last_version) for b in manifest_of(wh, "t").batches)
    assert any(low < high for low, high in ranges)
    assert all(a[1] < b[0] for a, b in itertools.pairwise(ranges))
    with pytest.raises(ConstraintError, match="duplicate key"):
        wh.sql("INSERT INTO t VALUES (7, 8)")
    assert contents(wh, "t")[(7, 7)] == 1
    check_hash(wh, "t")


def test_dates_outside_of_pythons_calendar_inside_other_values(wh: Warehouse) -> None:
    wh.sql("CREATE TABLE t (id INT PRIMARY KEY, a ARRAY<DATE>)")
    wh.sql("INSERT INTO t VALUES (1, array(DATE '+12000-01-01')), (2, NULL)")
    wh.sql("DELETE FROM t WHERE id = 2")
    assert [tuple(r) for r in wh.table("t").selectExpr("id", "CAST(a AS STRING)").collect()] == [(1, "[+12000-01-01]")]
