"""A small warehouse, and commands run in this process."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cli.shops import SETUP, Run
from typer.testing import CliRunner, Result

import headwater as hw
from headwater.cli import client
from headwater.cli.app import app
from headwater.cli.service import Service
from headwater.cli.sockets import listening
from headwater.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process."""
    monkeypatch.delenv("HEADWATER_WAREHOUSE", raising=False)

    def invoke(*arguments: str, text: str | None = None) -> Result:
        return CliRunner().invoke(app, [str(a) for a in arguments], input=text)

    return invoke


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """A warehouse with one table and two stream tables."""
    path = tmp_path_factory.mktemp("cli") / "shop"
    assert CliRunner().invoke(app, ["init", str(path)]).exit_code == 0
    made = CliRunner().invoke(app, ["sql", "-w", str(path), "-f", "-"], input=SETUP)
    assert made.exit_code == 0, made.output
    return path


@pytest.fixture
def shop(original: Path, tmp_path: Path) -> str:
    """A copy of it for one test."""
    return str(shutil.copytree(original, tmp_path / "shop"))


@pytest.fixture
def served(shop: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Warehouse]:
    """A warehouse with a service. Commands of this test cannot open it themselves."""
    warehouse = hw.connect(shop, create=False)
    listener = listening(Path(shop))
    assert listener is not None
    running = Service(warehouse, "w", listener)
    monkeypatch.setattr(client, "opened", lambda *_: pytest.fail("the command did the work itself"))
    yield warehouse
    running.close()
    assert running.drain(10)
    warehouse.close()
