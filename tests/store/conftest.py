"""A warehouse of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import headwater as hw
from headwater.warehouse import Warehouse


@pytest.fixture
def wh(spark: SparkSession, tmp_path: Path) -> Iterator[Warehouse]:
    with hw.connect(tmp_path / "shop", spark=spark, settings={"vacuum_grace_seconds": 0}) as warehouse:
        yield warehouse
