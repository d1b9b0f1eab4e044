"""Random graphs of stream tables under a scheduler: whoever reads sees one moment, and in the end everything is right.

What is random stands in `tests/support/dags.py`, what is checked in `tests/soak_dags.py`, which runs larger graphs for longer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.soak_dags import Plan, lived
from tests.support.children import nursery
from tests.support.dags import Dag, random_dag, random_rounds
from tests.support.oracle import interpreted

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.timeout(1200),
    pytest.mark.filterwarnings(
        "ignore:Exception in thread headwater-refresh:pytest.PytestUnhandledThreadExceptionWarning"
    ),
]

NODES, ROUNDS = 9, 6
PLANS = [Plan(7, NODES, ROUNDS, "inline"), Plan(32, NODES, ROUNDS, "spawned"), Plan(5, NODES, ROUNDS, "pool")]
DEADLY = Plan(2, 6, 2, "spawned", kills=1.0)


def shown(line: str) -> None:
    print(line)


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.crew)
def test_a_random_graph_is_one_moment_for_every_reader(plan: Plan, spark: SparkSession, tmp_path: Path) -> None:
    with interpreted(spark):
        done = lived(spark, tmp_path, plan, None, shown)
    print(done)
    assert done.actions["DIFFERENTIAL"] >= 12
    assert len(done.changed) >= NODES - 2
    assert done.together >= 2
    assert done.states >= 3
    assert done.failed
    assert done.skipped


@pytest.mark.slow
def test_a_random_graph_survives_the_death_of_processes_that_refresh_it(spark: SparkSession, tmp_path: Path) -> None:
    with interpreted(spark), nursery(spark, tmp_path) as children:
        done = lived(spark, tmp_path, DEADLY, children, shown)
    print(done)
    assert done.deaths >= 2
    assert done.actions["DIFFERENTIAL"] >= 4
    assert done.states >= 2


def test_a_seed_is_one_graph_and_one_history() -> None:
    dag = random_dag(3, 30)
    assert dag == random_dag(3, 30)
    assert dag != random_dag(4, 30)
    assert histories(dag) == histories(random_dag(3, 30))
    assert len(dag.nodes) == 30


def histories(dag: Dag) -> list[object]:
    rounds = random_rounds(dag, kills=0.2)
    return [next(rounds) for _ in range(20)]


def test_many_seeds_cover_every_shape_mode_and_schedule() -> None:
    dags = [random_dag(seed, 30) for seed in range(30)]
    nodes = [n for dag in dags for n in dag.nodes]
    assert {n.mode for n in nodes} == {"AUTO", "DIFFERENTIAL", "FULL"}
    assert {"1s", "calculated", "manual"} <= {n.schedule for n in nodes}
    assert {"tier", "sla", "fuse_mode", "diamond_consistency", "diamond_schedule_policy"} <= {
        name for n in nodes for name, _ in n.options
    }
    for words in ("GROUP BY", "JOIN", "UNION ALL", "DISTINCT", "EXISTS", "LIMIT", "WHERE", "DIV"):
        assert any(words in n.query for n in nodes), words
    assert all(dag.banks for dag in dags)
    assert {len(dag.managed) for dag in dags} == {3, 4, 5}
