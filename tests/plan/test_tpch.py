"""All 22 queries of TPC-H are read, and what is printed of them has the same schema; some are run on a little data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.plan.round_trip import Frontend
from tests.support import tpch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN = (2, 11, 13, 15, 16, 20, 21, 22)


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Frontend:
    frontend = Frontend(spark)
    directory = tmp_path_factory.mktemp("tpch")
    tpch.write_files(0.002, directory)
    for name in tpch.TABLES:
        frontend.add(name, f"SELECT * FROM parquet.`{directory / name}`")
    return frontend


@pytest.mark.parametrize("number", tpch.NUMBERS)
def test_a_query_of_tpch_reads_back(tables: Frontend, number: int) -> None:
    query = tpch.query_text(number, 0.002)
    if number in RUN:
        tables.assert_same(query)
    else:
        tables.accepted(query)
