"""Names that the shell completes come from the catalog, without Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.shops import HEADWATER, environment

from headwater.cli.completion import complete_source, complete_stream


class Context:
    """What completion is told of the line that is being typed."""

    def __init__(self, **params: str) -> None:
        self.params = params


def streams(shop: str, begun: str) -> list[str]:
    return complete_stream(Context(target=shop), begun)  # type: ignore[arg-type]


def test_stream_tables_by_what_is_typed(shop: str) -> None:
    assert streams(shop, "") == ["large", "sales"]
    assert streams(shop, "SA") == ["sales"]
    assert streams(shop, "orders") == []


def test_sources_are_what_stream_tables_read(shop: str) -> None:
    assert complete_source(Context(target=shop), "o") == ["orders"]  # type: ignore[arg-type]


def test_the_warehouse_is_found_as_by_the_command(shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_WAREHOUSE", shop)
    assert complete_stream(Context(), "s") == ["sales"]  # type: ignore[arg-type]
    monkeypatch.delenv("HEADWATER_WAREHOUSE")
    monkeypatch.chdir(shop)
    assert complete_stream(Context(), "s") == ["sales"]  # type: ignore[arg-type]


@pytest.mark.parametrize("target", ["none", "postgresql://nobody@127.0.0.1:1/none"])
def test_without_a_warehouse_nothing_is_completed_and_nothing_said(
    tmp_path: Path, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert streams(target if "://" in target else str(tmp_path / target), "") == []
    captured = capsys.readouterr()
    assert captured.out + captured.err == ""


def test_the_shell_asks_and_no_spark_is_loaded(shop: str, tmp_path: Path) -> None:
    line = ["headwater", "pause", "-w", shop, "sa"]
    asked = environment(
        _HEADWATER_COMPLETE="complete_bash",
        COMP_WORDS=" ".join(line),
        COMP_CWORD=str(len(line) - 1),
        JAVA_HOME=str(tmp_path / "no-java"),
    )
    ran = subprocess.run([HEADWATER], env=asked, capture_output=True, text=True, timeout=60)
    assert ran.stdout.split() == ["sales"]
    assert ran.stderr == ""
    code = (
        "import sys; from headwater.cli.completion import complete_stream as c\n"
        f"class X: params = {{'target': {shop!r}}}\n"
        "assert c(X(), 's') == ['sales']; sys.exit('pyspark' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
