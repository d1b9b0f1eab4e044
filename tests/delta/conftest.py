"""One warehouse per module: rules are tested on tables of their own in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.lab import Lab
from tests.support.oracle import interpreted
from tests.support.stories import Story

import headwater as hw

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def lab(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    path: Path = tmp_path_factory.mktemp("lab") / "warehouse"
    with interpreted(spark), hw.connect(path, spark=spark) as wh:
        yield Lab(wh)


@pytest.fixture
def story(lab: Lab) -> Iterator[Story]:
    """A story in the warehouse of the module; its tables are gone afterwards."""
    told = Story(lab.wh)
    yield told
    told.close()
