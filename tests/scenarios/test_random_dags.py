"""Random graphs of stream tables under a scheduler: whoever reads sees one moment, and in the end everything is right.

What is random, and what is checked, stands in `tests/support/dags.py`. `python -m tests.soak_dags` runs larger graphs for longer.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from tests.soak_dags import Life
from tests.support.dags import CREWS, random_dag, random_rounds
from tests.support.oracle import interpreted

import headwater as hw

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SIZE, ROUNDS = 10, 8


@pytest.mark.parametrize(("seed", "crew"), list(enumerate(CREWS, 1)))
def test_a_random_graph_is_one_moment_for_every_reader(
    seed: int, crew: str, spark: SparkSession, tmp_path: Path
) -> None:
    with interpreted(spark), hw.connect(tmp_path / "w", spark=spark) as wh:
        life = Life(wh, random_dag(seed, SIZE), crew)
        life.create()
        with life.scheduler() as scheduler:
            for round_ in itertools.islice(random_rounds(life.dag), ROUNDS):
                life.play(scheduler, round_)
            life.converge(scheduler)
    print(life.tally)
