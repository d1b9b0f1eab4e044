"""What the tests of the command line share besides fixtures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from typer.testing import Result

HEADWATER = Path(sys.executable).with_name("headwater")
Run = Callable[..., Result]

SETUP = """
CREATE TABLE orders (id BIGINT PRIMARY KEY, region STRING, amount DECIMAL(12,2)); -- a table; its rows come next
INSERT INTO orders VALUES (1, 'north; east', 10.00), (2, 'north; east', 5.50), (3, 'south', 7.25);
CREATE STREAM TABLE sales AS SELECT region, count(*) AS n, sum(amount) AS total FROM orders GROUP BY region;
CREATE STREAM TABLE large AS SELECT id, amount FROM orders WHERE amount > 6
"""


def documents(result: Result) -> list[Any]:
    """Return what a command that went well printed, as JSON values."""
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def environment(**extra: str) -> dict[str, str]:
    """Return an environment without settings but these."""
    return {k: v for k, v in os.environ.items() if not k.startswith("HEADWATER_")} | extra


def run_process(*arguments: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    command = [HEADWATER, *arguments]
    return subprocess.run(command, cwd=cwd, env=environment(**environ), capture_output=True, text=True, timeout=240)


ENDLESS = "SELECT count(*) AS n FROM range(0, 10000000000000, 1, 1) WHERE hash(id) = 1"
"""A query that takes a day on one core, and leaves the others to those who test."""


def until(condition: Callable[[], bool], seconds: float = 30.0) -> bool:
    """Wait for a condition, and say whether it came about."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
