"""Executors that are separate processes: nothing may depend on sharing memory with the driver."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from tests.support.children import ROOT, environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def _spark_home(folder: Path) -> Path:
    """Return a Spark home that is the installed package, except that workers keep their files below `folder`.

    Workers of a local cluster are started from SPARK_HOME and write to its subdirectory `work`.
    """
    home = folder / "spark"
    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    return home


def test_the_core_on_two_executors(tmp_path: Path) -> None:
    # Three JVMs that live for two minutes: their second compiler costs more than it gains.
    run = subprocess.run(
        [sys.executable, "-m", "tests.support.cluster", str(tmp_path)],
        cwd=ROOT,
        env=environment(SPARK_HOME=os.fspath(_spark_home(tmp_path)), JDK_JAVA_OPTIONS="-XX:TieredStopAtLevel=1"),
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    assert "2 executors, all verified" in run.stdout
