"""The demo, small."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from headwater.cli.app import app

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = ["demo", "--seconds", "2", "--rows", "2000"]


@pytest.mark.slow
def test_the_demo_follows_changes_and_ends_equal(spark: SparkSession) -> None:
    result = CliRunner().invoke(app, [*SMALL, "--json"])
    assert result.exit_code == 0, result.output
    [document] = [json.loads(line) for line in result.stdout.splitlines()]
    assert document["equal"] is True
    assert document["changes"] > 0
    assert {t["name"] for t in document["tables"]} == {"open_orders", "sales"}
    assert all(t["differential"] > 0 and t["rows"] > 0 for t in document["tables"])
    assert any(r["rows_inserted"] for r in document["refreshes"])


@pytest.mark.slow
def test_the_demo_prints_lines_without_a_terminal(spark: SparkSession) -> None:
    result = CliRunner().invoke(app, SMALL)
    assert result.exit_code == 0, result.output
    assert "CREATE STREAM TABLE sales" in result.stdout
    assert "stream table sales  action DIFFERENTIAL" in result.stdout
    assert "Both stream tables are equal to their queries" in result.stdout
