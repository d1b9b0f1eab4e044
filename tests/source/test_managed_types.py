"""Every type that can be stored, through every door: what comes out is what went in."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import functions as f
from tests.support.tables import check_hash, comparable, contents, table_of

from headwater.errors import ConstraintError, UnsupportedTypeError
from headwater.warehouse import Warehouse

COLUMNS = {
    "a_tiny": "TINYINT",
    "a_small": "SMALLINT",
    "an_int": "INT",
    "a_big": "BIGINT",
    "a_bool": "BOOLEAN",
    "a_float": "FLOAT",
    "a_double": "DOUBLE",
    "a_dec": "DECIMAL(12,2)",
    "a_wide": "DECIMAL(38,10)",
    "a_text": "STRING",
    "a_var": "VARCHAR(3)",
    "a_char": "CHAR(5)",
    "bytes": "BINARY",
    "a_day": "DATE",
    "a_time": "TIMESTAMP",
    "a_local": "TIMESTAMP_NTZ",
    "a_list": "ARRAY<DOUBLE>",
    "a_map": "MAP<STRING, DOUBLE>",
    "a_struct": "STRUCT<x: INT, y: ARRAY<STRING>, z: STRUCT<d: DOUBLE>>",
    "a_word": "STRING COLLATE UTF8_LCASE",
}

VALUES: dict[str, Any] = {
    "a_tiny": -128,
    "a_small": 6,
    "an_int": -(2**31),
    "a_big": 2**63 - 1,
    "a_bool": True,
    "a_float": -0.0,
    "a_double": float("inf"),
    "a_dec": Decimal("-1234567890.25"),
    "a_wide": Decimal("1234567890123456789012345678.0123456789"),
    "a_text": "o'hara \\ ü 🌊",
    "a_var": "äbc",
    "a_char": "ab",
    "bytes": b"\x00\xff",
    "a_day": date(2024, 2, 29),
    "a_time": datetime(2024, 3, 31, 1, 30, 0, 123456, tzinfo=UTC),
    "a_local": datetime(2024, 3, 31, 2, 30),
    "a_list": [1.5, None, -0.0],
    "a_map": {"b": -0.0, "a": 1.0},
    "a_struct": {"x": 1, "y": ["p", None], "z": {"d": -0.0}},
    "a_word": "Ab",
}

SHOWN = {
    **VALUES,
    "a_float": 0.0,
    "a_char": "ab   ",
    "a_list": [1.5, None, 0.0],
    "a_map": {"b": 0.0, "a": 1.0},
    "a_struct": {"x": 1, "y": ["p", None], "z": {"d": 0.0}},
}
"""What reading gives: one zero, CHAR filled up."""

SQL_VALUES = """-128Y, 6S, -2147483648, 9223372036854775807L, true, FLOAT(-0.0), DOUBLE('Infinity'), -1234567890.25,
    1234567890123456789012345678.0123456789, 'o\\'hara \\\\ ü 🌊', 'äbc', 'ab', X'00FF', DATE '2024-02-29',
    TIMESTAMP '2024-03-31 01:30:00.123456+00:00', TIMESTAMP_NTZ '2024-03-31 02:30:00', array(1.5D, NULL, -0.0D),
    map('b', -0.0D, 'a', 1.0D), named_struct('x', 1, 'y', array('p', NULL), 'z', named_struct('d', -0.0D)), 'Ab'"""


@pytest.fixture
def wide(wh: Warehouse) -> Warehouse:
    """A warehouse with one table of all types; its clock has a night of 23 hours in the test data."""
    wh.spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    columns = ", ".join(f"{n} {t}" for n, t in COLUMNS.items())
    wh.sql(f"CREATE TABLE wide (k INT, {columns})")
    yield wh
    wh.spark.conf.set("spark.sql.session.timeZone", "UTC")


def shown(wh: Warehouse) -> dict[int, dict[str, Any]]:
    """Return the rows by `k`, times as seconds so that no session's zone matters."""
    frame = wh.table("wide").withColumn("a_time", f.expr("unix_micros(a_time)"))
    return {r["k"]: {n: comparable(r[n]) for n in COLUMNS} for r in frame.collect()}


def expected() -> dict[str, Any]:
    micros = int(VALUES["a_time"].timestamp()) * 10**6 + 123456
    row = {n: comparable(v) for n, v in {**SHOWN, "a_time": micros}.items()}
    row["a_struct"] = (("x", 1), ("y", ("p", None)), ("z", (("d", "0.0"),)))
    return row


def test_every_type_comes_out_as_it_went_in_through_every_door(wide: Warehouse) -> None:
    wide.insert("wide", [{"k": 1, **VALUES}])
    wide.insert("wide", pd.DataFrame([{"k": 2, **VALUES}]))
    wide.sql(f"INSERT INTO wide VALUES (3, {SQL_VALUES})")
    wide.sql("INSERT INTO wide BY NAME SELECT 4 AS k, * EXCEPT (k) FROM wide WHERE k = 1")
    wide.insert("wide", wide.table("wide").where("k = 1").withColumn("k", f.lit(5)))
    wide.insert("wide", wide.table("wide").where("k = 1").withColumn("k", f.lit(6)).toArrow())
    wide.sql("UPDATE wide SET k = 7 WHERE k = 6")
    wide.insert("wide", [{"k": 8}])
    found = shown(wide)
    assert sorted(found) == [1, 2, 3, 4, 5, 7, 8]
    for k in (1, 2, 3, 4, 5, 7):
        assert found[k] == expected(), k
    assert set(found[8].values()) == {None}
    check_hash(wide, "wide")
    wide.compact("wide")
    assert shown(wide) == found
    check_hash(wide, "wide")
    same = " AND ".join(f"d.{n} <=> wide.{n}" for n in COLUMNS if n != "a_map")
    wide.sql(f"DELETE FROM wide WHERE k > 1 AND EXISTS (SELECT 1 FROM wide d WHERE d.k = 1 AND {same})")
    assert sorted(shown(wide)) == [1, 8]
    check_hash(wide, "wide")


def test_equal_values_are_no_change_and_a_letter_is_one(wide: Warehouse) -> None:
    wide.insert("wide", [{"k": 1, **VALUES, "a_double": float("nan")}])
    before = wide.version
    for same in (
        "a_map = map('a', 1.0D, 'b', 0.0D)",
        "a_float = FLOAT(0.0), a_double = DOUBLE('NaN')",
        "a_list = array(1.5D, NULL, 0.0D)",
        "a_char = 'ab'",
    ):
        assert wide.sql(f"UPDATE wide SET {same}").rows_affected == 0, same
    assert wide.version == before
    assert wide.sql("UPDATE wide SET a_word = 'AB'").rows_affected == 1
    assert wide.sql("UPDATE wide SET a_map = map('a', 2.0D)").rows_affected == 1
    check_hash(wide, "wide")


def test_a_time_without_a_zone_means_the_sessions(wide: Warehouse) -> None:
    wide.insert("wide", [{"k": 1, "a_time": datetime(2024, 7, 1, 12)}])
    wide.insert("wide", pd.DataFrame({"k": [2], "a_time": [datetime(2024, 7, 1, 12)]}))
    wide.insert("wide", pa.table({"k": pa.array([3], pa.int32()), "a_time": pa.array([datetime(2024, 7, 1, 12)])}))
    wide.sql("INSERT INTO wide (k, a_time) VALUES (4, TIMESTAMP '2024-07-01 12:00:00')")
    times = wide.table("wide").select(f.expr("unix_seconds(a_time)")).distinct().collect()
    assert [r[0] for r in times] == [int(datetime(2024, 7, 1, 10, tzinfo=UTC).timestamp())]
    wide.spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    wide.sql("UPDATE wide SET k = k + 10 WHERE k = 1")
    wide.compact("wide")
    assert wide.table("wide").where("unix_seconds(a_time) = 1719828000").count() == 4
    check_hash(wide, "wide")


def test_variant_has_the_identity_of_its_json(wh: Warehouse) -> None:
    wh.sql("CREATE TABLE v (k INT PRIMARY KEY, v VARIANT, n ARRAY<VARIANT>)")
    wh.insert("v", [{"k": 1, "v": {"b": [1, 2.5], "a": None}}, {"k": 2, "v": "text"}, {"k": 3}])
    wh.sql("INSERT INTO v VALUES (4, parse_json('{\"a\": null, \"b\": [1, 2.5]}'), array(parse_json('1'), NULL))")
    wh.sql("INSERT INTO v SELECT k + 10, v, n FROM v WHERE k = 4")
    assert wh.sql('UPDATE v SET v = parse_json(\'{"a":null,"b":[1,2.5]}\') WHERE k IN (1, 4)').rows_affected == 0
    assert wh.sql("UPDATE v SET v = parse_json('7') WHERE k = 2").rows_affected == 1
    check_hash(wh, "v")
    for _ in range(2):
        found = wh.table("v").selectExpr("k", "to_json(v) AS v", "to_json(n) AS n").orderBy("k").collect()
        assert [tuple(r) for r in found] == [
            (1, '{"a":null,"b":[1,2.5]}', None),
            (2, "7", None),
            (3, None, None),
            (4, '{"a":null,"b":[1,2.5]}', "[1,null]"),
            (14, '{"a":null,"b":[1,2.5]}', "[1,null]"),
        ]
        wh.compact("v")
    wh.sql("DELETE FROM v WHERE to_json(v) = '7'")
    check_hash(wh, "v")


def test_nested_floats_are_canonical_also_as_map_keys(wh: Warehouse) -> None:
    wh.sql("CREATE TABLE n (m MAP<DOUBLE, ARRAY<FLOAT>>, s STRUCT<a: ARRAY<STRUCT<d: DOUBLE>>>)")
    wh.sql(
        "INSERT INTO n VALUES (map(-0.0D, array(FLOAT(-0.0), FLOAT('NaN'))), "
        "named_struct('a', array(named_struct('d', -0.0D), NULL))), (NULL, NULL)"
    )
    row = wh.table("n").where("m IS NOT NULL").collect()[0]
    assert comparable(row["m"]) == (("0.0", ("0.0", "NaN")),)
    assert comparable(row["s"]) == (("a", ((("d", "0.0"),), None)),)
    check_hash(wh, "n")


def test_far_dates_are_stored(wh: Warehouse) -> None:
    wh.sql("CREATE TABLE far (d DATE PRIMARY KEY, t TIMESTAMP)")
    wh.sql("INSERT INTO far VALUES (DATE '12000-01-01', TIMESTAMP '12000-01-01 00:00:00')")
    wh.compact("far")
    with pytest.raises(ConstraintError, match="duplicate key"):
        wh.sql("INSERT INTO far VALUES (DATE '12000-01-01', NULL)")
    assert wh.table("far").where("d > DATE '9999-12-31'").count() == 1


def test_structs_are_matched_by_name_and_else_by_position(wh: Warehouse) -> None:
    wh.sql("CREATE TABLE s (p STRUCT<a: INT, b: STRING>)")
    wh.sql("INSERT INTO s SELECT named_struct('b', 'x', 'a', 1)")
    wh.sql("INSERT INTO s SELECT struct(2, 'y')")
    assert contents(wh, "s") == {((("a", 1), ("b", "x")),): 1, ((("a", 2), ("b", "y")),): 1}


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ("INTERVAL DAY TO SECOND", "INTERVAL DAY TO SECOND"),
        ("INTERVAL YEAR", "INTERVAL YEAR"),
        ("TIME", "TIME(6)"),
        ("VOID", "VOID"),
        ("STRUCT<a: ARRAY<TIME(3)>>", "TIME(3)"),
    ],
)
def test_types_that_delta_lacks_are_refused_by_name(wh: Warehouse, kind: str, named: str) -> None:
    before = wh.version
    with pytest.raises(UnsupportedTypeError) as caught:
        wh.sql(f"CREATE TABLE t (a INT, b {kind})")
    assert f'column "b" has the type {named}' in caught.value.message
    with pytest.raises(UnsupportedTypeError):
        wh.create_table("t", [("a", "INT"), ("b", kind)])
    assert wh.version == before


def test_a_key_needs_an_order(wh: Warehouse) -> None:
    for kind in ("MAP<STRING, INT>", "VARIANT"):
        with pytest.raises(UnsupportedTypeError, match="primary key"):
            wh.create_table("t", [("a", kind)], primary_key="a")
    wh.create_table("t", [("a", "STRING COLLATE UTF8_LCASE"), ("b", "ARRAY<INT>")], primary_key=["a", "b"])
    wh.insert("t", [{"a": "x", "b": [1]}, {"a": "X", "b": [1]}, {"a": "b", "b": []}, {"a": "C", "b": []}])
    assert table_of(wh, "t").row_count == 4
    for key in ({"a": "x", "b": [1]}, {"a": "b", "b": []}, {"a": "C", "b": []}):
        with pytest.raises(ConstraintError, match="duplicate key"):
            wh.insert("t", [key, {"a": "zz", "b": [9]}, {"a": "A", "b": [9]}])
    wh.compact("t")
    with pytest.raises(ConstraintError, match="duplicate key"):
        wh.insert("t", [{"a": "b", "b": []}, {"a": "Z", "b": [2]}])
    wh.sql("DELETE FROM t WHERE a = 'x' AND collate(a, 'UTF8_BINARY') = 'X'")
    wh.compact("t")
    assert contents(wh, "t") == {("x", (1,)): 1, ("b", ()): 1, ("C", ()): 1}
    check_hash(wh, "t")
