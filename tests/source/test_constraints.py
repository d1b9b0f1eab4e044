"""A change that breaks a rule fails with a clear message and leaves no trace: no version, no row, no file, no open write."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.support.tables import contents, files_on_disk, table_of

import headwater as hw
from headwater.errors import BusyError, ConstraintError, HeadwaterError, QueryError, StatementError
from headwater.source import constraints
from headwater.warehouse import Warehouse

Attempt = Callable[[Warehouse], Any]

REFUSED: dict[str, tuple[Attempt, str]] = {
    "null key": (lambda w: w.insert("t", [{"id": None, "n": 1}]), 'column "id" must not be NULL'),
    "no key": (lambda w: w.insert("t", [{"n": 1}]), 'column "id" of table "t" must not be NULL'),
    "null in a NOT NULL column": (
        lambda w: w.sql("INSERT INTO t (id, n) VALUES (9, NULL)"),
        'column "n" must not be NULL',
    ),
    "updated to null": (lambda w: w.sql("UPDATE t SET n = NULL"), 'column "n" must not be NULL'),
    "missing NOT NULL column": (lambda w: w.sql("INSERT INTO t (id) VALUES (9)"), 'column "n" of table "t" must not'),
    "key twice": (
        lambda w: w.insert("t", [{"id": 7, "n": 1}, {"id": 7, "n": 2}]),
        'duplicate key in table "t": id = 7',
    ),
    "key there": (lambda w: w.insert("t", [{"id": 1, "n": 5}]), 'duplicate key in table "t": id = 1'),
    "key moved": (lambda w: w.sql("UPDATE t SET id = 2 WHERE id = 1"), "duplicate key"),
    "keys collapsed": (lambda w: w.sql("UPDATE t SET id = 5"), "duplicate key"),
    "upserted twice": (lambda w: w.upsert("t", [{"id": 1, "n": 3}, {"id": 1, "n": 4}]), "duplicate key in the rows"),
    "text as number": (lambda w: w.insert("t", [{"id": 7, "n": "x"}]), 'column "n" of table "t" is not of type INT'),
    "text column": (lambda w: w.insert("t", pa.table({"id": [7], "n": ["1"]})), "the value is of type STRING"),
    "sql text": (lambda w: w.sql("INSERT INTO t (id, n) VALUES (7, 'x')"), "the value is of type STRING"),
    "half inside": (lambda w: w.insert("t", [{"id": 7, "n": 1, "tiny": [1.5]}]), "1.5 is not a whole number"),
    "truth": (lambda w: w.insert("t", [{"id": 7, "n": "true"}]), "is not a whole number"),
    "number as day": (lambda w: w.insert("t", [{"id": 7, "n": 1, "day": 5}]), "5 is not a date"),
    "lost field": (lambda w: w.insert("t", [{"id": 7, "n": 1, "pair": {"a": 1, "c": 2}}]), "has no field 'c'"),
    "half": (lambda w: w.insert("t", [{"id": 7, "n": 1.5}]), "is not of type INT"),
    "unknown column": (lambda w: w.insert("t", [{"id": 7, "m": 1}]), 'table "t" has no column "m"'),
    "unknown in frame": (lambda w: w.insert("t", w.spark.sql("SELECT 7L AS id, 1 AS n, 2 AS dex")), "Did you mean"),
    "unknown in update": (lambda w: w.sql("UPDATE t SET nn = 1"), 'has no column "nn"'),
    "hidden column": (lambda w: w.sql("UPDATE kl SET __row_id = 1"), 'has no column "__row_id"'),
    "column twice": (lambda w: w.sql("INSERT INTO t (id, n, ID) VALUES (1, 2, 3)"), "column"),
    "assigned twice": (lambda w: w.sql("UPDATE t SET n = 1, N = 2"), ""),
    "too few values": (lambda w: w.sql("INSERT INTO t VALUES (7, 1)"), "target columns but 2 values"),
    "overflow": (
        lambda w: w.sql("INSERT INTO t (id, n) VALUES (7, 2147483648)"),
        'does not fit column "n" of type INT',
    ),
    "overflow in Python": (lambda w: w.insert("t", [{"id": 7, "n": 2**31}]), "is not of type INT"),
    "overflow in update": (lambda w: w.sql("UPDATE t SET n = 2147483647L + id"), "does not fit"),
    "overflow inside": (lambda w: w.sql("INSERT INTO t (id, n, tiny) VALUES (7, 1, array(1, 300))"), "300"),
    "decimal overflow": (lambda w: w.sql("INSERT INTO t (id, n, dec) VALUES (7, 1, 12345.6)"), "does not fit"),
    "decimal digits": (lambda w: w.insert("t", [{"id": 7, "n": 1, "dec": Decimal("1.23456")}]), "is not of type DEC"),
    "too long": (lambda w: w.sql("INSERT INTO t (id, n, word) VALUES (7, 1, 'abcd')"), 'longer than column "word"'),
    "too long for CHAR": (lambda w: w.insert("t", [{"id": 7, "n": 1, "code": "äöüß"}]), 'longer than column "code"'),
    "too long inside": (lambda w: w.sql("INSERT INTO t (id, n, words) VALUES (7, 1, array('abc'))"), "longer than"),
    "division": (lambda w: w.sql("UPDATE t SET n = 1 / 0"), ""),
    "rows of lists": (lambda w: w.insert("t", [[1, 2]]), "have the type list"),
    "objects": (lambda w: w.insert("t", pd.DataFrame({"id": [7], "n": [object()]})), "is not of type INT"),
    "complex numbers": (lambda w: w.insert("t", pd.DataFrame({"id": [7], "n": np.array([1j])})), "cannot be read"),
    "no such column": (lambda w: w.sql("DELETE FROM t WHERE missing = 1"), ""),
    "merge without a key": (
        lambda w: w.sql("MERGE INTO t USING kl ON false WHEN NOT MATCHED THEN INSERT (n) VALUES (1)"),
        'column "id" must not be NULL',
    ),
    "merge twice": (
        lambda w: w.sql(
            "MERGE INTO t USING (SELECT 8L AS id UNION ALL SELECT 8L) s ON t.id = s.id "
            "WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id, 1)"
        ),
        "duplicate key",
    ),
}


@pytest.fixture(scope="module")
def strict(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    path: Path = tmp_path_factory.mktemp("strict")
    warehouse = hw.connect(path / "shop", spark=spark, settings={"vacuum_grace_seconds": 0})
    warehouse.sql(
        "CREATE TABLE t (id BIGINT PRIMARY KEY, n INT NOT NULL, word VARCHAR(3), code CHAR(3), dec DECIMAL(6,2), "
        "tiny ARRAY<TINYINT>, words ARRAY<VARCHAR(2)>, day DATE, pair STRUCT<a: INT, b: INT>)"
    )
    warehouse.sql("INSERT INTO t (id, n, word) VALUES (1, 1, 'abc  '), (2, 2, NULL)")
    warehouse.sql("CREATE TABLE kl (a INT)")
    warehouse.sql("INSERT INTO kl VALUES (1)")
    yield warehouse
    warehouse.close()


@pytest.mark.parametrize("case", REFUSED)
def test_refused_changes_leave_no_trace(strict: Warehouse, case: str) -> None:
    attempt, text = REFUSED[case]
    before = (strict.version, table_of(strict, "t"), files_on_disk(strict), len(open_writes(strict)))
    with pytest.raises(HeadwaterError) as caught:
        attempt(strict)
    assert isinstance(caught.value, ConstraintError | QueryError | StatementError), caught.value
    assert text in str(caught.value)
    assert before == (strict.version, table_of(strict, "t"), files_on_disk(strict), len(open_writes(strict)))


def open_writes(wh: Warehouse) -> list[str]:
    with wh._catalog._database._engine.connect() as connection:
        return [r[0] for r in connection.exec_driver_sql("SELECT id FROM writes")]


def test_the_table_is_as_it_was_after_all_of_that(strict: Warehouse) -> None:
    assert contents(strict, "t") == {(1, 1, "abc", *[None] * 6): 1, (2, 2, *[None] * 7): 1}


def test_a_failure_in_a_big_insert_leaves_no_file(spark: SparkSession, tmp_path: Path) -> None:
    settings = {"arrow_max_rows": 10, "local_relation_max_rows": 5, "inline_max_rows": 0}
    with hw.connect(tmp_path / "shop", spark=spark, settings=settings) as wh:
        wh.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, n TINYINT)")
        wh.sql("INSERT INTO t SELECT id, 1 FROM range(100)")
        before = (wh.version, files_on_disk(wh))
        with pytest.raises(ConstraintError, match="does not fit"):
            wh.sql("INSERT INTO t SELECT id + 1000, id FROM range(400)")
        with pytest.raises(ConstraintError, match="duplicate key"):
            wh.sql("INSERT INTO t SELECT id + 99, 1 FROM range(400)")
        with pytest.raises(ConstraintError, match="duplicate key"):
            wh.insert("t", [{"id": i % 7 + 1000} for i in range(20)])
        assert (wh.version, files_on_disk(wh)) == before
        assert open_writes(wh) == []


def test_a_transaction_that_fails_changes_nothing(strict: Warehouse) -> None:
    before = (strict.version, table_of(strict, "t"), table_of(strict, "kl"), files_on_disk(strict))

    def stopped() -> None:
        with strict.transaction():
            strict.sql("DELETE FROM t WHERE id = 1")
            strict.sql("INSERT INTO kl VALUES (2)")
            raise RuntimeError("stop")

    def refused() -> None:
        with strict.transaction():
            strict.sql("DELETE FROM kl")
            strict.insert("t", [{"id": 2, "n": 2}])

    with pytest.raises(RuntimeError, match="stop"):
        stopped()
    with pytest.raises(ConstraintError):
        refused()
    assert before == (strict.version, table_of(strict, "t"), table_of(strict, "kl"), files_on_disk(strict))
    assert contents(strict, "kl") == {(1,): 1}


def test_a_transaction_that_meets_another_writer_is_busy(spark: SparkSession, tmp_path: Path) -> None:
    with (
        hw.connect(tmp_path / "shop", spark=spark, settings={"inline_max_rows": 0}) as mine,
        hw.connect(tmp_path / "shop", spark=spark) as theirs,
    ):
        mine.sql("CREATE TABLE a (n INT)")
        mine.sql("CREATE TABLE b (n INT)")

        def crossed() -> None:
            with mine.transaction():
                mine.sql("INSERT INTO b VALUES (1)")
                mine.sql("INSERT INTO a VALUES (1)")
                theirs.sql("INSERT INTO a VALUES (2)")

        with pytest.raises(BusyError, match='"a" was changed by somebody else'):
            crossed()
        assert contents(mine, "a") == {(2,): 1}
        assert contents(mine, "b") == {}
        assert files_on_disk(mine) == set()
        assert open_writes(mine) == []
        # Other tables do not matter, and a statement of its own is tried again.
        with mine.transaction():
            mine.sql("INSERT INTO b VALUES (3)")
            theirs.sql("INSERT INTO a VALUES (4)")
        assert contents(mine, "b") == {(3,): 1}


def test_keys_of_few_rows_are_checked_without_spark(wh: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    rows_frame = constraints.rows_frame
    monkeypatch.setattr(constraints, "rows_frame", lambda *args: (asked.append(1), rows_frame(*args))[1])
    wh.sql("CREATE TABLE checked (id BIGINT, part STRING, v INT, PRIMARY KEY (id, part))")
    wh.sql("INSERT INTO checked VALUES (1, 'a', 1), (2, 'a', 1)")
    wh.compact("checked")
    wh.sql("ALTER TABLE checked ADD COLUMN w INT")
    wh.sql("INSERT INTO checked (id, part, v) VALUES (1, 'b', 1), (3, 'c', 1)")
    wh.sql("UPDATE checked SET v = 2, id = id + 10 WHERE id = 1")
    wh.sql("DELETE FROM checked WHERE id = 2")
    wh.sql("INSERT INTO checked (id, part) VALUES (2, 'a')")
    assert not asked
    for again in ("(11, 'a')", "(3, 'c')", "(5, 'e'), (5, 'e')"):
        with pytest.raises(ConstraintError, match="duplicate key"):
            wh.sql(f"INSERT INTO checked (id, part) VALUES {again}")
    with pytest.raises(ConstraintError, match="id = 3, part = c"):
        wh.sql("UPDATE checked SET id = 3, part = 'c' WHERE id = 2")
    assert len(asked) == 4
    assert wh.table("checked").count() == 4


def test_a_key_with_a_dot_is_not_a_field_of_a_struct(wh: Warehouse) -> None:
    wh.sql("CREATE TABLE dotted (`a.b` INT PRIMARY KEY, a STRUCT<b: INT>)")
    wh.sql("INSERT INTO dotted VALUES (7, struct(100))")
    wh.compact("dotted")
    with pytest.raises(ConstraintError, match="duplicate key"):
        wh.sql("INSERT INTO dotted VALUES (7, struct(1))")
