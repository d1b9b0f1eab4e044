"""Wrong input of every kind: a clear error with its code, its reason and what to do next; and nothing has changed."""

from __future__ import annotations

import sqlite3
import types
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headwater as hw
from headwater.errors import (
    BusyError,
    CatalogCorruptError,
    CatalogTooNewError,
    ClosedError,
    ConstraintError,
    CycleError,
    DuplicateTableError,
    EvaluationError,
    HasDependentsError,
    HeadwaterError,
    MissingFileError,
    NotAWarehouseError,
    QueryError,
    SettingError,
    SparkUnavailableError,
    StatementError,
    UnknownTableError,
    UnknownVersionError,
    WrongKindError,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def shop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A warehouse that every test here insults and none may change."""
    with hw.connect(tmp_path_factory.mktemp("bad") / "shop", spark=spark, settings={"inline_max_rows": 1}) as wh:
        wh.sql("CREATE TABLE orders (id BIGINT PRIMARY KEY, region STRING, amount DECIMAL(12, 2))")
        wh.insert("orders", [{"id": i, "region": f"r{i % 2}", "amount": i} for i in range(6)])
        wh.sql("CREATE STREAM TABLE sales AS SELECT region, sum(amount) AS total FROM orders GROUP BY region")
        wh.sql("CREATE STREAM TABLE overall AS SELECT sum(total) AS total FROM sales")
        yield wh


@contextmanager
def refused(wh: Any, error: type[HeadwaterError], code: str, *words: str, hint: bool = True) -> Iterator[None]:
    """Expect the error; the words stand in its text, and the warehouse is as it was and can be read."""
    before = (wh.version, [(s.name, s.rows) for s in wh.status()])
    with pytest.raises(error) as caught:
        yield
    found = caught.value
    assert type(found) is error
    assert found.code == code
    for word in words:
        assert word in str(found), str(found)
    assert found.hint or not hint, f"no hint: {found}"
    assert "Traceback" not in str(found)
    assert (wh.version, [(s.name, s.rows) for s in wh.status()]) == before
    assert wh.table("orders").count() == 6


# opening ----------------------------------------------------------------------------------------------------------------------


def test_a_directory_that_holds_something_else(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(NotAWarehouseError, match="is not a warehouse") as caught:
        hw.connect(tmp_path)
    assert caught.value.code == "HW101"
    assert "headwater init" in str(caught.value.hint)
    assert [p.name for p in tmp_path.iterdir()] == ["letter.txt"]


def test_a_directory_that_is_not_there_when_none_may_be_made(tmp_path: Path) -> None:
    with pytest.raises(NotAWarehouseError, match="does not exist"):
        hw.connect(tmp_path / "nowhere", create=False)
    assert not (tmp_path / "nowhere").exists()


def test_a_file(tmp_path: Path) -> None:
    file = tmp_path / "shop"
    file.write_text("x")
    with pytest.raises(NotAWarehouseError, match="is a file") as caught:
        hw.connect(file)
    assert "directory" in str(caught.value.hint)
    assert file.read_text() == "x"


@pytest.mark.parametrize("damage", [b"", b"not a database at all, but long enough to have a header" * 4])
def test_a_catalog_that_is_no_database(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "headwater.db").write_bytes(damage)
    with pytest.raises(CatalogCorruptError) as caught:
        hw.connect(tmp_path)
    assert caught.value.code == "HW102"
    assert "backup" in str(caught.value.hint)
    assert (tmp_path / "headwater.db").read_bytes() == damage


def test_a_catalog_whose_pages_are_damaged(tmp_path: Path) -> None:
    hw.connect(tmp_path / "w").close()
    file = tmp_path / "w" / "headwater.db"
    whole = file.read_bytes()
    file.write_bytes(whole[:200] + b"\x55" * (len(whole) - 200))
    with pytest.raises(CatalogCorruptError) as caught:
        hw.connect(tmp_path / "w").status()
    assert (caught.value.code, "backup" in str(caught.value.hint)) == ("HW102", True)


def test_a_database_of_another_application(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "headwater.db")) as other:
        other.execute("CREATE TABLE mine (x)")
        other.commit()
    with pytest.raises(NotAWarehouseError, match="not a Headwater catalog"):
        hw.connect(tmp_path)
    with closing(sqlite3.connect(tmp_path / "headwater.db")) as other:
        assert [r[0] for r in other.execute("SELECT name FROM sqlite_master")] == ["mine"]


def test_a_catalog_of_a_newer_headwater(tmp_path: Path) -> None:
    hw.connect(tmp_path / "w").close()
    with closing(sqlite3.connect(tmp_path / "w" / "headwater.db")) as catalog:
        (ours,) = catalog.execute("SELECT format FROM warehouse").fetchone()
        catalog.execute("UPDATE warehouse SET format = 999")
        catalog.commit()
    with pytest.raises(CatalogTooNewError, match="999") as caught:
        hw.connect(tmp_path / "w")
    assert (caught.value.code, "Upgrade" in str(caught.value.hint)) == ("HW103", True)
    with closing(sqlite3.connect(tmp_path / "w" / "headwater.db")) as catalog:
        catalog.execute("UPDATE warehouse SET format = ?", (ours,))
        catalog.commit()
    hw.connect(tmp_path / "w").close()


def test_an_address_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(HeadwaterError) as caught:
        hw.connect("postgresql://nobody@localhost:1/none", location=tmp_path, settings={"busy_timeout_seconds": 1})
    assert caught.value.code == "HW108"


def test_an_unknown_setting(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="lease_second") as caught:
        hw.connect(tmp_path / "w", settings={"lease_second": 3})
    assert "lease_seconds" in str(caught.value.hint)
    assert not (tmp_path / "w").exists()


def test_a_spark_connect_session(shop: Any, tmp_path: Path) -> None:
    stranger = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with refused(shop, SparkUnavailableError, "HW105", "Spark Connect", "classic"):
        hw.connect(tmp_path / "w", spark=stranger)
    with refused(shop, SparkUnavailableError, "HW105", "not a Spark session"):
        hw.connect(tmp_path / "w2", spark=types.SimpleNamespace())
    assert not (tmp_path / "w").exists()


def test_a_closed_warehouse(tmp_path: Path) -> None:
    wh = hw.connect(tmp_path / "w")
    wh.close()
    for call in (lambda: wh.status(), lambda: wh.sql("SELECT 1"), lambda: wh.table("t"), lambda: wh.insert("t", [])):
        with pytest.raises(ClosedError) as caught:
            call()
        assert caught.value.code == "HW106"


# names and kinds --------------------------------------------------------------------------------------------------------------


def test_an_unknown_table_names_the_nearest(shop: Any) -> None:
    calls = (
        lambda: shop.table("order"),
        lambda: shop.insert("order", [{"id": 1}]),
        lambda: shop.sql("SELECT * FROM order_"),
        lambda: shop.sql("DELETE FROM ordres"),
        lambda: shop.create_stream_table("s", "SELECT * FROM ordrs"),
    )
    for call in calls:
        with refused(shop, UnknownTableError, "HW201", 'Did you mean "orders"'):
            call()
    with refused(shop, UnknownTableError, "HW201", 'Did you mean "sales"'):
        shop.refresh("sale")


def test_an_unknown_column_keeps_the_words_and_the_place_of_spark(shop: Any) -> None:
    for call in (
        lambda: shop.sql("SELECT id,\n  amout FROM orders"),
        lambda: shop.create_stream_table("s", "SELECT id,\n  amout FROM orders"),
        lambda: shop.validate_query("SELECT id,\n  amout FROM orders"),
    ):
        with refused(shop, QueryError, "HW401", "UNRESOLVED_COLUMN", "amout", "amount", "line 2", hint=False):
            call()


def test_a_query_that_cannot_be_parsed(shop: Any) -> None:
    with pytest.raises(HeadwaterError) as caught:
        shop.sql("SELECT FROM WHERE")
    assert caught.value.code in ("HW401", "HW303")
    with refused(shop, StatementError, "HW303", hint=False):
        shop.sql("CREATE STREAM TABLE AS SELECT 1")


def test_unknown_columns_in_changes(shop: Any) -> None:
    with refused(shop, ConstraintError, "HW301", "regoin", "region"):
        shop.insert("orders", [{"id": 9, "regoin": "x"}])
    with refused(shop, ConstraintError, "HW301", "regoin", "region"):
        shop.update("orders", set={"regoin": "'x'"})


def test_rows_that_break_the_table(shop: Any) -> None:
    with refused(shop, ConstraintError, "HW301", hint=False):
        shop.insert("orders", [{"id": 1, "region": "twice", "amount": 1}])
    with refused(shop, ConstraintError, "HW301", hint=False):
        shop.insert("orders", [{"id": None, "region": "none", "amount": 1}])
    with refused(shop, ConstraintError, "HW301", hint=False):
        shop.insert("orders", [{"id": 99, "region": "big", "amount": 10**15}])


def test_a_transaction_that_fails_in_the_middle(shop: Any) -> None:
    with refused(shop, ConstraintError, "HW301", hint=False), shop.transaction():
        shop.delete("orders", where="id = 0")
        shop.insert("orders", [{"id": 1, "region": "twice", "amount": 1}])


def test_the_wrong_kind_of_table(shop: Any) -> None:
    with refused(shop, WrongKindError, "HW203", "sales"):
        shop.insert("sales", [{"region": "x", "total": 1}])
    with refused(shop, WrongKindError, "HW203", "orders"):
        shop.refresh("orders")
    with refused(shop, WrongKindError, "HW203", "DROP STREAM TABLE"):
        shop.sql("DROP TABLE overall")
    with refused(shop, DuplicateTableError, "HW202", "sales", "CREATE OR REPLACE"):
        shop.create_stream_table("sales", "SELECT 1 AS one")
    with refused(shop, DuplicateTableError, "HW202", "orders"):
        shop.create_table("ORDERS", "id BIGINT")


def test_versions_that_are_not_there(shop: Any) -> None:
    with refused(shop, UnknownVersionError, "HW206", "does not exist yet", hint=False):
        shop.table("orders", version=shop.version + 1)
    with refused(shop, UnknownVersionError, "HW206", "did not exist", hint=False):
        shop.table("overall", version=1)


# definitions ------------------------------------------------------------------------------------------------------------------


def test_a_stream_table_that_would_read_itself(shop: Any) -> None:
    with refused(shop, CycleError, "HW205", "sales", "overall", hint=False):
        shop.sql("CREATE OR REPLACE STREAM TABLE sales AS SELECT 'x' AS region, total FROM overall")
    with refused(shop, CycleError, "HW205", "sales", hint=False):
        shop.sql("CREATE OR REPLACE STREAM TABLE sales AS SELECT region, total FROM sales")
    assert shop.table("sales").count() == 2


def test_drop_with_dependents_lists_them(shop: Any) -> None:
    with refused(shop, HasDependentsError, "HW204", '"sales"', '"overall"', "CASCADE"):
        shop.sql("DROP TABLE orders")
    with refused(shop, HasDependentsError, "HW204", '"overall"', "CASCADE"):
        shop.sql("DROP STREAM TABLE sales")


def test_drop_cascade(spark: SparkSession, tmp_path: Path) -> None:
    with hw.connect(tmp_path / "w", spark=spark) as wh:
        wh.sql("CREATE TABLE t (id BIGINT)")
        wh.sql("CREATE STREAM TABLE a AS SELECT id FROM t")
        wh.sql("CREATE STREAM TABLE b AS SELECT id FROM a")
        wh.sql("DROP TABLE t CASCADE")
        assert wh.status() == []


def test_a_stream_table_whose_first_refresh_fails_is_not_there(shop: Any) -> None:
    with pytest.raises(EvaluationError) as caught:
        shop.create_stream_table("ratio", "SELECT id, 1 / (id - 3) AS r FROM orders")
    assert "DIVIDE_BY_ZERO" in str(caught.value)
    assert shop.snapshot().table("ratio") is None


def test_a_replacement_whose_first_refresh_fails_leaves_the_old_one(spark: SparkSession, tmp_path: Path) -> None:
    with hw.connect(tmp_path / "w", spark=spark) as wh:
        wh.sql("CREATE TABLE t (id BIGINT)")
        wh.insert("t", [{"id": i} for i in range(5)])
        wh.sql("CREATE STREAM TABLE s AS SELECT id FROM t")
        with pytest.raises(EvaluationError):
            wh.sql("CREATE OR REPLACE STREAM TABLE s AS SELECT 1 / (id - 3) AS id FROM t")
        assert sorted(r["id"] for r in wh.table("s").collect()) == [0, 1, 2, 3, 4]
        wh.insert("t", [{"id": 7}])
        wh.refresh("s")
        assert wh.verify("s").equal


def test_a_refresh_that_fails_leaves_the_table_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    with hw.connect(tmp_path / "w", spark=spark) as wh:
        wh.sql("CREATE TABLE t (id BIGINT)")
        wh.insert("t", [{"id": 1}])
        wh.sql("CREATE STREAM TABLE s AS SELECT 6 / (id - 3) AS r FROM t")
        wh.insert("t", [{"id": 3}])
        with pytest.raises(EvaluationError):
            wh.refresh("s")
        assert wh.verify("s").equal
        assert wh.status()[0].last_error
        wh.delete("t", where="id = 3")
        wh.refresh("s", full=True)
        assert (wh.verify("s").equal, wh.status()[0].last_error) == (True, None)


# files and other processes ----------------------------------------------------------------------------------------------------


def test_a_missing_data_file(spark: SparkSession, tmp_path: Path) -> None:
    with hw.connect(tmp_path / "w", spark=spark, settings={"inline_max_rows": 1}) as wh:
        wh.sql("CREATE TABLE orders (id BIGINT PRIMARY KEY)")
        wh.sql("CREATE TABLE other (id BIGINT PRIMARY KEY)")
        wh.insert("orders", [{"id": i} for i in range(6)])
        wh.insert("other", [{"id": i} for i in range(6)])
        wh.compact("orders")
        (file,) = Path(wh.base_path("orders")).rglob("*.parquet")
        kept = file.read_bytes()
        file.unlink()
        with pytest.raises(MissingFileError) as caught:
            wh.table("orders").collect()
        assert caught.value.code == "HW104"
        assert "missing" in caught.value.message
        assert "backup" in str(caught.value.hint)
        assert wh.table("other").count() == 6
        file.write_bytes(kept)
        assert wh.table("orders").count() == 6


def test_a_refresh_while_somebody_else_refreshes_names_the_holder(shop: Any) -> None:
    shop.update("orders", set={"amount": "amount + 1"})
    table = shop.snapshot().table("sales")
    lease = shop._catalog.acquire(f"refresh:{table.id}", "far.example:4711:abcdef", 60)
    assert lease is not None
    try:
        with refused(shop, BusyError, "HW501", '"sales"', "far.example:4711"):
            shop.refresh("sales")
    finally:
        shop._catalog.release(lease)
    assert shop.refresh("sales").action is hw.RefreshAction.DIFFERENTIAL
    assert shop.verify("sales").equal
