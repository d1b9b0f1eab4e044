"""What the documents say is true: paths exist, commands exist, snippets run, and the layers hold."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.main import get_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "tests" / "README.md"])
SUFFIXES = (".py", ".md", ".sh", ".toml", ".txt", ".properties")
MADE_LATER = {".venv", "headwater.toml"}
"""Paths that users have, not the repository."""

FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#]+)(#[^)]*)?\)")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def paths_named(text: str) -> set[str]:
    """Return what looks like a path between backticks: it has a slash or a known suffix, and no spaces or placeholders."""
    found = set()
    for code in INLINE.findall(FENCED.sub("", text)):
        looks_like_one = ("/" in code or code.endswith(SUFFIXES)) and re.fullmatch(r"[\w./-]+", code)
        if looks_like_one and code not in MADE_LATER:
            found.add(code)
    return found


def resolves(path: str, page: Path) -> bool:
    """Say whether `path` exists from the root, from the package, or from the page."""
    return any((base / path).exists() for base in (ROOT, ROOT / "src" / "headwater", page.parent))


def test_there_are_pages() -> None:
    assert {"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "GLOSSARY.md", "CHANGELOG.md"} <= {
        name(p) for p in PAGES
    }


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_paths_exist(page: Path) -> None:
    missing = sorted(p for p in paths_named(page.read_text()) if not resolves(p, page))
    assert not missing, f"{name(page)} names paths that do not exist"


def names_defined(path: Path) -> set[str]:
    """Return functions, classes and `Class.method` of a Python file."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{child.name}" for child in node.body if isinstance(child, ast.FunctionDef)}
    return found


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_functions_named_exist(page: Path) -> None:
    named = re.findall(r"`([\w/]+/[\w]+\.py)::([\w.]+)`", page.read_text())
    missing = [
        f"{file}::{what}" for file, what in named if what not in names_defined(ROOT / "src" / "headwater" / file)
    ]
    assert not missing, f"{name(page)} names functions that do not exist"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = [target for target, _ in LINK.findall(page.read_text()) if "://" not in target]
    missing = [t for t in targets if not (page.parent / t).exists()]
    assert not missing, f"{name(page)} links to pages that do not exist"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_make_targets_and_commands_exist(page: Path) -> None:
    from headwater.cli.app import app

    text = page.read_text()
    code = "\n".join([*INLINE.findall(FENCED.sub("", text)), *SHELL.findall(text)])
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z]+)\b", code)) <= targets
    commands = set(get_command(app).commands)  # type: ignore[attr-defined]
    assert set(re.findall(r"\bheadwater ([a-z]+)\b", code)) <= commands


@pytest.mark.parametrize("page", [p for p in PAGES if PYTHON.search(p.read_text())], ids=name)
def test_snippets_run(page: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "snippet"}
    for match in PYTHON.finditer(page.read_text()):
        line = page.read_text()[: match.start(1)].count("\n")
        exec(compile("\n" * line + match.group(1), str(page), "exec"), namespace)


def test_pages_name_no_machine() -> None:
    """No absolute paths of a machine, no addresses of package registries."""
    bad = re.compile(r"(?<![\w.])/(home|root|work|Users|tmp|opt)/|\b(pypi|registry|artifactory)\.")
    for page in PAGES:
        assert not bad.search(page.read_text()), name(page)


def test_layers_hold() -> None:
    ran = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-logo", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
