"""Which Java Spark will start: found and checked before the launch, so that its absence is a sentence and not a stack trace."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headwater.errors import SparkUnavailableError

NEEDED_JAVA = 17
INSTALL_HINT = (
    f"Install a Java runtime, version {NEEDED_JAVA} or newer (on Debian and Ubuntu: "
    "apt-get install openjdk-17-jre-headless), or set JAVA_HOME to one."
)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime that is new enough."""

    path: str
    major: int


def read_java(environ: Mapping[str, str] | None = None) -> Java:
    """Return the Java that Spark's own launcher would take: JAVA_HOME if set, else the one on PATH."""
    env = os.environ if environ is None else environ
    path = _java_path(env)
    try:
        ran = subprocess.run(
            [path, "-version"], capture_output=True, text=True, timeout=60, check=True, env=dict(env), errors="replace"
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise SparkUnavailableError(
            "Spark cannot be started: Java does not run",
            detail=f"`{path} -version` failed: {error}",
            hint=INSTALL_HINT,
        ) from error
    major = java_major(ran.stderr + ran.stdout)
    if major is None:
        raise SparkUnavailableError(
            "Spark cannot be started: the version of Java is not known",
            detail=f"`{path} -version` printed {(ran.stderr or ran.stdout).strip()[:200]!r}.",
            hint=INSTALL_HINT,
        )
    if major < NEEDED_JAVA:
        raise SparkUnavailableError(
            f"Spark cannot be started: Java {major} is too old",
            detail=f"{path} is version {major}; Spark needs {NEEDED_JAVA} or newer.",
            hint=INSTALL_HINT,
        )
    return Java(path, major)


def java_major(banner: str) -> int | None:
    """Return the major version in what `java -version` prints: `1.8.0_392` is 8, `17.0.15` is 17, `21-ea` is 21."""
    found = re.search(r'version "(?:1\.)?(\d+)', banner)
    return int(found.group(1)) if found else None


def _java_path(environ: Mapping[str, str]) -> str:
    home = environ.get("JAVA_HOME")
    if home:
        path = Path(home, "bin", "java.exe" if os.name == "nt" else "java")
        if not path.is_file():
            raise SparkUnavailableError(
                "Spark cannot be started: JAVA_HOME holds no Java",
                detail=f"There is no file {path}.",
                hint="Correct JAVA_HOME, or unset it to use the java on PATH.",
            )
        return str(path)
    found = shutil.which("java", path=environ.get("PATH"))
    if found is None:
        raise SparkUnavailableError(
            "Spark cannot be started: there is no Java",
            detail="JAVA_HOME is not set and no java is on PATH.",
            hint=INSTALL_HINT,
        )
    return found
