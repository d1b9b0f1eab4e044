"""Fixtures that every test may use. One Spark session per test run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from headwater.engine.session import start_session
from headwater.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put files with slow tests first, so that no process of a parallel run is left with a long one at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session: two cores, two shuffle partitions, UTC."""
    session = start_session(
        Settings(shuffle_partitions=2, spark_memory="2g"),
        config={"spark.master": "local[2]", "spark.sql.session.timeZone": "UTC"},
    )
    yield session
    session.stop()
