"""Fixtures that every test may use. One Spark session per test run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from headwater.engine.session import start_session
from headwater.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session: two cores, two shuffle partitions, UTC."""
    session = start_session(
        Settings(shuffle_partitions=2, spark_memory="2g"),
        config={"spark.master": "local[2]", "spark.sql.session.timeZone": "UTC"},
    )
    yield session
    session.stop()
