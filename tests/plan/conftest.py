"""A planning session and a session with the same tables and rows in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.plan.round_trip import Frontend

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def frontend(spark: SparkSession) -> Frontend:
    """Tables can be added; queries over them are read, printed and run."""
    return Frontend(spark)


@pytest.fixture(scope="module")
def orders(frontend: Frontend) -> Frontend:
    """The table most hand cases use."""
    frontend.add(
        "orders",
        """SELECT * FROM VALUES
        (1L, 'north', 10.50BD, 1.5D, array(1, 2)), (2L, 'south', 20.00BD, 2.5D, array(3)), (3L, 'north', NULL, NULL, NULL),
        (NULL, NULL, 7.25BD, 0.5D, array()), (5L, 'north', 10.50BD, -1.0D, array(5, NULL))
        AS t(id, region, amount, weight, tags)""",
    )
    return frontend


@pytest.fixture(scope="module")
def pairs(orders: Frontend) -> Frontend:
    """Two tables with keys that match once, twice and not at all, a copy of one of them, and a graph."""
    orders.add(
        "a",
        "SELECT * FROM VALUES (1, 10, 'x'), (2, 20, 'y'), (2, 21, 'y'), (NULL, 30, 'z'), (5, NULL, NULL) AS t(k, v, s)",
    )
    orders.add("b", "SELECT * FROM VALUES (1, 100, 'x'), (2, 200, 'y'), (3, 300, 'w'), (NULL, 400, 'z') AS t(k, v, s)")
    orders.add("b2", "SELECT * FROM b")
    orders.add("e", "SELECT * FROM VALUES (1, 2), (2, 3), (3, 4), (7, 8) AS t(src, dst)")
    return orders
