"""Queries that compose all operators with each other: every refresh gives what Spark and DuckDB give, computed from changes.

Seeds are fixed. A composition that fails in `python -m tests.soak_compose` is kept as a file in `compositions/` when what it
found is fixed; others there are tricky by design.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.compositions import Composition, CompositionTally, random_family, run_composition, run_family
from tests.support.corpus import load
from tests.support.oracle import interpreted

import headwater as hw

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAMILIES, WIDTH = range(4), 4
MAINTAINED = 13
FILES = sorted((Path(__file__).parent / "compositions").glob("*.json"))


@pytest.fixture(scope="module")
def tally(spark: SparkSession) -> Iterator[CompositionTally]:
    with interpreted(spark):
        yield CompositionTally()


def _run(spark: SparkSession, path: Path, composition: Composition) -> CompositionTally:
    with hw.connect(path / "warehouse", spark=spark) as wh:
        return run_composition(wh, spark.newSession(), composition)


@pytest.mark.slow
@pytest.mark.parametrize("seed", FAMILIES)
def test_random_compositions_follow(seed: int, spark: SparkSession, tally: CompositionTally, tmp_path: Path) -> None:
    with hw.connect(tmp_path / "warehouse", spark=spark) as wh:
        done, failures = run_family(wh, spark.newSession(), random_family(seed, WIDTH))
    tally.add(done)
    assert not failures, "\n".join(str(error) for _, error in failures)


@pytest.mark.slow
def test_the_compositions_were_worth_running(tally: CompositionTally) -> None:
    if tally.queries < WIDTH * len(FAMILIES):
        pytest.skip("counts only when all seeds ran")
    assert tally.maintained >= MAINTAINED, tally
    assert tally.refreshes >= 2.5 * tally.maintained, tally
    assert tally.changed >= 0.6 * tally.refreshes, tally
    assert tally.nonempty >= 0.8 * (tally.refreshes + tally.maintained), tally
    assert tally.duckdb >= tally.refreshes, tally
    assert not tally.invalid, tally


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
@pytest.mark.usefixtures("tally")
def test_a_kept_composition_follows(file: Path, spark: SparkSession, tmp_path: Path) -> None:
    done = _run(spark, tmp_path, load(file))
    assert done.maintained == 1, done
    if not file.stem.startswith("seed_"):
        assert done.nonempty > 0, done
        assert done.changed > 0, done


def test_there_are_kept_compositions() -> None:
    assert len(FILES) >= 10
