"""Which Java is taken, and what is said when none is good enough."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.engine.java import java_major, read_java
from headwater.errors import SparkUnavailableError


def fake_java(directory: Path, script: str) -> Path:
    path = directory / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def says(version: str) -> str:
    return f"echo 'openjdk version \"{version}\" 2025-04-15' >&2"


@pytest.mark.parametrize(
    ("banner", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "21-ea" 2023-09-19', 21),
        ("command not understood", None),
    ],
)
def test_java_major(banner: str, major: int | None) -> None:
    assert java_major(banner) == major


def test_java_home_wins_over_path(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", says("21.0.1"))
    on_path = fake_java(tmp_path / "path", says("17.0.1"))
    found = read_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path.parent)})
    assert (found.path, found.major) == (str(home), 21)
    found = read_java({"PATH": str(on_path.parent)})
    assert (found.path, found.major) == (str(on_path), 17)


def test_no_java(tmp_path: Path) -> None:
    with pytest.raises(SparkUnavailableError, match="there is no Java") as caught:
        read_java({"PATH": str(tmp_path)})
    assert "17 or newer" in (caught.value.hint or "")


def test_java_home_without_java(tmp_path: Path) -> None:
    with pytest.raises(SparkUnavailableError, match="JAVA_HOME holds no Java"):
        read_java({"JAVA_HOME": str(tmp_path)})


def test_java_too_old(tmp_path: Path) -> None:
    fake_java(tmp_path, says("11.0.2"))
    with pytest.raises(SparkUnavailableError, match="Java 11 is too old"):
        read_java({"JAVA_HOME": str(tmp_path)})


def test_java_that_fails(tmp_path: Path) -> None:
    fake_java(tmp_path, "exit 3")
    with pytest.raises(SparkUnavailableError, match="does not run"):
        read_java({"JAVA_HOME": str(tmp_path)})


def test_java_that_says_nothing_known(tmp_path: Path) -> None:
    fake_java(tmp_path, "echo hello")
    with pytest.raises(SparkUnavailableError, match="not known"):
        read_java({"JAVA_HOME": str(tmp_path)})
