"""Sums over floats: special values leave as they came, and rounding stays within the bound or the group is read again."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.lab import Lab
from tests.support.oracle import interpreted

import headwater as hw

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def with_settings(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Labs with settings of their own."""
    opened = []

    def made(**settings: Any) -> Lab:
        path: Path = tmp_path_factory.mktemp("float") / "warehouse"
        opened.append(hw.connect(path, spark=spark, settings=settings))
        return Lab(opened[-1])

    with interpreted(spark):
        yield made
        for wh in opened:
            wh.close()


def test_a_huge_value_comes_and_goes(lab: Lab) -> None:
    t = lab.table("id BIGINT, d DOUBLE", [(1, 5.0)], key="id")
    s = lab.stream(f"SELECT sum(d) AS s, avg(d) AS a FROM {t}")
    lab.sql(f"INSERT INTO {t} VALUES (2, 1e300)")
    assert s.follow() == [(1e300, 5e299)]
    lab.sql(f"DELETE FROM {t} WHERE id = 2")
    assert s.follow() == [(5.0, 5.0)]
    lab.sql(f"INSERT INTO {t} VALUES (3, 1e300)")
    lab.sql(f"DELETE FROM {t} WHERE id = 3")
    assert s.follow() == [(5.0, 5.0)]


def test_nan_and_infinities_come_and_go(lab: Lab) -> None:
    t = lab.table("id BIGINT, d DOUBLE, f FLOAT", [(1, 2.0, 2.0)], key="id")
    s = lab.stream(f"SELECT sum(d) AS s, avg(d) AS a, sum(f) AS f, var_pop(d) AS v FROM {t}")
    for value, total in (("NaN", "NaN"), ("Infinity", math.inf), ("-Infinity", -math.inf)):
        lab.sql(f"INSERT INTO {t} VALUES (2, DOUBLE('{value}'), FLOAT('{value}'))")
        assert s.follow()[0][:3] == (total, total, total)
        lab.sql(f"DELETE FROM {t} WHERE id = 2")
        assert s.follow() == [(2.0, 2.0, 2.0, 0.0)]
    lab.sql(f"INSERT INTO {t} VALUES (3, DOUBLE('Infinity'), NULL), (4, DOUBLE('-Infinity'), NULL)")
    assert s.follow()[0][:3] == ("NaN", "NaN", 2.0)
    lab.sql(f"DELETE FROM {t} WHERE id = 4")
    assert s.follow()[0][:2] == (math.inf, math.inf)


def test_a_sum_that_overflows_to_infinity_comes_back(lab: Lab) -> None:
    t = lab.table("id BIGINT, d DOUBLE", [(1, 1.5e308), (2, 1.0)], key="id")
    s = lab.stream(f"SELECT sum(d) AS s FROM {t}")
    lab.sql(f"INSERT INTO {t} VALUES (3, 1.5e308)")
    assert s.follow() == [(math.inf,)]
    lab.sql(f"DELETE FROM {t} WHERE id IN (1, 3)")
    assert s.follow() == [(1.0,)]


def test_all_values_leave_and_null_remains(lab: Lab) -> None:
    t = lab.table("id BIGINT, d DOUBLE", [(1, 0.1), (2, 0.2), (3, None)], key="id")
    s = lab.stream(f"SELECT sum(d) AS s, avg(d) AS a, stddev(d) AS d, count(d) AS n FROM {t}")
    lab.sql(f"DELETE FROM {t} WHERE id < 3")
    assert s.follow() == [(None, None, None, 0)]
    lab.sql(f"INSERT INTO {t} VALUES (4, 0.3)")
    assert s.follow() == [(0.3, 0.3, None, 1)]


def test_moments_after_an_outlier(lab: Lab) -> None:
    t = lab.table("id BIGINT, x DOUBLE, y INT", [(i, i / 4, i % 5) for i in range(8)], key="id")
    s = lab.stream(
        f"SELECT var_pop(x) AS a, var_samp(x) AS b, stddev_pop(x) AS c, stddev(y) AS d, covar_pop(x, y) AS e, covar_samp(x, y) AS f, "
        f"corr(x, y) AS g, regr_count(x, y) AS h, regr_avgx(x, y) AS i, regr_slope(x, y) AS j, regr_r2(x, y) AS k FROM {t}"
    )
    lab.sql(f"INSERT INTO {t} VALUES (100, 1e12, 3)")
    s.follow()
    lab.sql(f"DELETE FROM {t} WHERE id = 100")
    s.follow()
    lab.sql(f"UPDATE {t} SET x = NULL WHERE id = 2")
    s.follow()
    lab.sql(f"DELETE FROM {t} WHERE id > 0")
    assert s.follow()[0][0] == 0.0
    lab.sql(f"INSERT INTO {t} VALUES (1, 0.0, 0), (2, 0.0, 0)")
    s.follow()


def test_moments_of_equal_values(lab: Lab) -> None:
    t = lab.table("id BIGINT, x DOUBLE, y DOUBLE", [(1, 0.1, 1.0), (2, 0.1, 2.0), (3, 7.7, 3.0)], key="id")
    s = lab.stream(f"SELECT var_pop(x) AS v, corr(x, y) AS c, covar_samp(x, y) AS s FROM {t}")
    lab.sql(f"DELETE FROM {t} WHERE id = 3")
    assert s.follow()[0][0] == 0.0
    lab.sql(f"DELETE FROM {t} WHERE id = 2")
    assert s.follow()[0][0] == 0.0


def test_b27_long_histories_stay_within_the_tolerance(lab: Lab) -> None:
    rng = Random(3)
    t = lab.table("id BIGINT, g INT, d DOUBLE", [(i, i % 3, rng.random()) for i in range(30)], key="id")
    s = lab.stream(f"SELECT g, sum(d) AS s, avg(d) AS a, stddev(d) AS v FROM {t} GROUP BY g")
    for step in range(8):
        lab.wh.insert(
            t,
            [
                {"id": 1000 * (step + 1) + i, "g": i % 3, "d": rng.random() * 10 ** rng.choice((0, 3, 9))}
                for i in range(9)
            ],
        )
        lab.sql(f"DELETE FROM {t} WHERE d > 10 AND id % 2 = {step % 2}")
        s.follow()
    s.verify()


def test_exact_mode_always_reads_the_group_again(with_settings: Any) -> None:
    exact, bounded = with_settings(float_mode="exact"), with_settings()
    for lab, rescans in ((exact, 1), (bounded, 0)):
        t = lab.table("id BIGINT, g INT, d DOUBLE", [(i, i % 2, i / 3) for i in range(10)], key="id")
        s = lab.stream(f"SELECT g, sum(d) AS s, count(*) AS n FROM {t} GROUP BY g")
        lab.sql(f"INSERT INTO {t} VALUES (100, 0, 0.1D)")
        s.follow()
        assert s.rescanned == rescans


def test_the_tolerance_decides_when_a_group_is_read_again(with_settings: Any) -> None:
    strict, lax = with_settings(float_tolerance=1e-15), with_settings(float_tolerance=0.5)
    seen = {}
    for name, lab in (("strict", strict), ("lax", lax)):
        t = lab.table("id BIGINT, d DOUBLE", [(i, 1.0) for i in range(4)], key="id")
        s = lab.stream(f"SELECT sum(d) AS s, count(*) AS n FROM {t}")
        lab.sql(f"INSERT INTO {t} VALUES (100, 1e6), (101, 3.0)")
        s.follow()
        lab.sql(f"DELETE FROM {t} WHERE id = 100")
        assert s.follow() == [(7.0, 5)]
        seen[name] = s.rescanned
    assert seen == {"strict": 1, "lax": 0}


def test_sums_that_cancel_are_verified_as_equal(lab: Lab) -> None:
    t = lab.table("id BIGINT, d DOUBLE", [(1, 0.1), (2, 0.2), (3, -0.3)], key="id")
    s = lab.stream(f"SELECT sum(d) AS s FROM {t}")
    lab.sql(f"INSERT INTO {t} VALUES (4, 0.7), (5, -0.7)")
    lab.wh.refresh(s.name)
    s.verify()
