"""MIN and MAX keep the best values of a group: most deletions need no rescan, and one that does gets it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from tests.support.lab import Lab
from tests.support.oracle import interpreted

import headwater as hw

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def tiny(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A warehouse that keeps two best values per group."""
    path: Path = tmp_path_factory.mktemp("tiny") / "warehouse"
    with interpreted(spark), hw.connect(path, spark=spark, settings={"extremum_buffer": 2}) as wh:
        yield Lab(wh)


def test_the_extremum_is_deleted(lab: Lab) -> None:
    t = lab.table("id BIGINT, g STRING, v INT", [(1, "a", 1), (2, "a", 5), (3, "a", 9), (4, "b", 2)], key="id")
    s = lab.stream(f"SELECT g, min(v) AS lo, max(v) AS hi FROM {t} GROUP BY g")
    lab.sql(f"DELETE FROM {t} WHERE id = 3")
    assert s.follow() == [("a", 1, 5), ("b", 2, 2)]
    assert s.rescanned == 0
    lab.sql(f"UPDATE {t} SET v = 7 WHERE id = 1")
    assert s.follow() == [("a", 5, 7), ("b", 2, 2)]


def test_one_of_two_equal_extrema_is_deleted(tiny: Lab) -> None:
    t = tiny.table("id BIGINT, v INT", [(1, 9), (2, 9), (3, 1), (4, 0)], key="id")
    s = tiny.stream(f"SELECT max(v) AS m FROM {t}")
    tiny.sql(f"DELETE FROM {t} WHERE id = 1")
    assert s.follow() == [(9,)]
    tiny.sql(f"DELETE FROM {t} WHERE id = 2")
    assert s.follow() == [(1,)]


def test_a_buffer_that_runs_empty_is_read_again(tiny: Lab) -> None:
    t = tiny.table("id BIGINT, v INT", [(i, i) for i in range(10)], key="id")
    s = tiny.stream(f"SELECT max(v) AS hi, min(v) AS lo FROM {t}")
    tiny.sql(f"DELETE FROM {t} WHERE v = 9")
    assert s.follow() == [(8, 0)]
    assert s.rescanned == 0
    tiny.sql(f"DELETE FROM {t} WHERE v = 8")
    assert s.follow() == [(7, 0)]
    assert s.rescanned == 1
    tiny.sql(f"DELETE FROM {t} WHERE v < 5")
    assert s.follow() == [(7, 5)]


def test_a_value_below_the_buffer_does_not_enter_it_unseen(tiny: Lab) -> None:
    """The buffer holds 9 and 8 of 9, 8, 7: when they go, 7 must come back and not the smaller 3 that was inserted."""
    t = tiny.table("id BIGINT, v INT", [(1, 9), (2, 8), (3, 7)], key="id")
    s = tiny.stream(f"SELECT max(v) AS m FROM {t}")
    tiny.sql(f"INSERT INTO {t} VALUES (4, 3)")
    tiny.sql(f"DELETE FROM {t} WHERE id = 1")
    assert s.follow() == [(8,)]
    tiny.sql(f"DELETE FROM {t} WHERE id = 2")
    assert s.follow() == [(7,)]


def test_more_changes_in_one_batch_than_the_buffer_holds(tiny: Lab) -> None:
    t = tiny.table("id BIGINT, v INT", [(i, 10 * i) for i in range(6)], key="id")
    s = tiny.stream(f"SELECT max(v) AS hi, min(v) AS lo, count(*) AS n FROM {t}")
    tiny.sql(f"DELETE FROM {t} WHERE id IN (2, 3, 4, 5)")
    tiny.wh.insert(t, [{"id": 100 + i, "v": i} for i in range(5, 25)])
    assert s.follow() == [(24, 0, 22)]
    tiny.sql(f"UPDATE {t} SET v = -v WHERE id > 100")
    assert s.follow() == [(10, -24, 22)]
    tiny.sql(f"DELETE FROM {t} WHERE v < 0")
    assert s.follow() == [(10, 0, 2)]


@pytest.mark.parametrize(
    ("ddl", "values"),
    [
        ("DOUBLE", ["DOUBLE('NaN')", "DOUBLE('Infinity')", "DOUBLE('-Infinity')", "-0.0D", "0.0D", "1e300D"]),
        ("FLOAT", ["FLOAT('NaN')", "FLOAT('-Infinity')", "FLOAT('-0.0')", "FLOAT('1.5')"]),
        ("STRING", ["''", "'a'", "'B'", "'é'", "'日本'", "'😀'"]),
        ("BINARY", ["X''", "X'00'", "X'FF'", "X'7F00'"]),
        ("DATE", ["DATE'0001-01-01'", "DATE'1582-10-04'", "DATE'9999-12-31'", "DATE'2024-02-29'"]),
        (
            "TIMESTAMP",
            ["TIMESTAMP'0001-01-02 00:00:00Z'", "TIMESTAMP'1883-11-18 12:03:58Z'", "TIMESTAMP'9999-12-30 00:00:00Z'"],
        ),
        ("TIMESTAMP_NTZ", ["TIMESTAMP_NTZ'0001-01-01 00:00:00'", "TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'"]),
        ("ARRAY<INT>", ["array()", "array(1)", "array(1, NULL)", "array(NULL)", "array(0, 9)"]),
        (
            "STRUCT<a: INT, b: STRING>",
            ["named_struct('a', NULL, 'b', 'x')", "named_struct('a', 1, 'b', NULL)", "named_struct('a', 1, 'b', '')"],
        ),
        (
            "DECIMAL(38,10)",
            [
                "9999999999999999999999999999.9999999999BD",
                "-9999999999999999999999999999.9999999999BD",
                "0.0000000001BD",
            ],
        ),
        ("BIGINT", ["-9223372036854775808", "9223372036854775807", "0"]),
        ("BOOLEAN", ["true", "false"]),
    ],
    ids=lambda v: v.split("<")[0] if isinstance(v, str) else "",
)
def test_the_extremum_of_every_ordered_type_comes_and_goes(tiny: Lab, ddl: str, values: list[str]) -> None:
    t = tiny.table(f"id BIGINT, v {ddl}", key="id")
    s = tiny.stream(f"SELECT min(v) AS lo, max(v) AS hi, count(v) AS n FROM {t}")
    rows = ", ".join(f"({i}, CAST({v} AS {ddl}))" for i, v in enumerate([*values, *values, "NULL"]))
    tiny.sql(f"INSERT INTO {t} VALUES {rows}")
    s.follow()
    for i in Random(ddl).sample(range(2 * len(values)), 3):
        tiny.sql(f"DELETE FROM {t} WHERE id = {i}")
    s.follow()
    tiny.sql(f"DELETE FROM {t} WHERE v = (SELECT max(v) FROM {t})")
    tiny.sql(f"INSERT INTO {t} VALUES (99, CAST({values[0]} AS {ddl}))")
    assert s.follow()[0][2] > 0


def test_random_histories_with_a_tiny_buffer(tiny: Lab) -> None:
    rng = Random(7)
    t = tiny.table("id BIGINT, g INT, v INT", key="id")
    s = tiny.stream(
        f"SELECT g, min(v) AS lo, max(v) AS hi, max(v) FILTER (WHERE v % 2 = 0) AS even, count(*) AS n FROM {t} GROUP BY g"
    )
    rescans = 0
    for step in range(8):
        ids = range(100 * step, 100 * step + rng.randrange(12))
        tiny.wh.insert(t, [{"id": i, "g": rng.randrange(3), "v": rng.choice((None, *range(9)))} for i in ids])
        tiny.sql(f"DELETE FROM {t} WHERE id % 7 IN ({rng.randrange(7)}, {rng.randrange(7)})")
        tiny.sql(f"UPDATE {t} SET v = v + {rng.choice((-3, 4))} WHERE id % 5 = {rng.randrange(5)}")
        s.follow()
        rescans += s.rescanned
    assert rescans > 0
    s.verify()


def test_the_buffer_size_decides_how_long_no_rescan_is_needed(lab: Lab, tiny: Lab) -> None:
    needed = {}
    for name, where in (("default", lab), ("tiny", tiny)):
        t = where.table("id BIGINT, v INT", [(i, i) for i in range(40)], key="id")
        s = where.stream(f"SELECT max(v) AS m FROM {t}")
        needed[name] = 0
        for best in range(39, 35, -1):
            where.sql(f"DELETE FROM {t} WHERE id = {best}")
            assert s.follow() == [(best - 1,)]
            needed[name] += s.rescanned
    assert needed == {"default": 0, "tiny": 2}


def test_nan_leaves_an_extremum(lab: Lab) -> None:
    t = lab.table("id BIGINT, d DOUBLE", [(1, math.nan), (2, 3.0)], key="id")
    s = lab.stream(f"SELECT max(d) AS hi, min(d) AS lo FROM {t}")
    assert s.rows() == [("NaN", 3.0)]
    lab.sql(f"DELETE FROM {t} WHERE id = 1")
    assert s.follow() == [(3.0, 3.0)]


def test_groups_that_a_filter_leaves_alone_write_nothing(lab: Lab) -> None:
    rows = [(g, v) for g in range(300) for v in (1, 2, 99)]
    t = lab.table("g INT, v INT", rows)
    s = lab.stream(
        f"SELECT g, min(v) AS low, max(v) AS high, count(*) AS n, sum(v) AS s FROM {t} WHERE v < 10 GROUP BY g"
    )
    lab.sql(f"UPDATE {t} SET v = 98 WHERE v = 99")
    assert len(s.follow()) == 300
    assert s.report is not None
    assert (s.changes, s.report.rows_in, s.report.bytes_written) == ((0, 0), 600, 0)
    lab.sql(f"UPDATE {t} SET v = 3 WHERE v = 98 AND g = 7")
    assert s.follow()[7] == (7, 1, 3, 3, 6)
    assert s.changes == (1, 1)
