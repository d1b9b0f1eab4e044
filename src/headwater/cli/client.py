"""Handing work over to the service of a warehouse, if one runs; else the command does it in its own process.

Neither Spark nor the warehouse is loaded for it: the command takes as long as the work. A service that would do it differently, because
it has another time zone or other settings than the client was given, is left alone.
"""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import IO, Any

from headwater.cli.common import opened, reporting
from headwater.cli.completion import is_url
from headwater.cli.output import JsonOutput, Output
from headwater.cli.protocol import (
    MAX_GREETING_BYTES,
    MAX_REQUEST_BYTES,
    PROTOCOL,
    Greeting,
    Lines,
    ProtocolError,
    Request,
    encoded,
    greeting_of,
    local_zone,
    request_value,
)
from headwater.cli.screen import Surface, surface_of
from headwater.cli.sockets import connected
from headwater.cli.tasks import Task, texts_of
from headwater.errors import HeadwaterError, ServiceLostError

GREETING_SECONDS = 5.0
NOT_ASKED = frozenset({"HEADWATER_WAREHOUSE", "HEADWATER_NO_SERVICE"})
"""Environment variables that are no settings."""

RELATIVE_FILE = re.compile(
    r"(?i)\b(?:parquet|csv|json|orc|text|binaryfile|avro|xml|delta)`?\s*\.\s*`(?!/|[a-z][a-z0-9+.-]*:/)"
)
"""A file that a query reads by its name, csv.`orders.csv`, which is not absolute."""


def perform(task: Task, target: str, out: Output, *, no_service: bool) -> int:
    """Do a task where it is done soonest, and return the exit code."""
    if not no_service:
        with reporting(out):
            code = handed_over(task, target, out)
        if code is not None:
            return code
    with opened(target, out) as warehouse:
        return task.run(warehouse, out)


def is_served(target: str) -> bool:
    """Say whether a service of this warehouse answers."""
    place = _place(target)
    connection = None if place is None else connected(place[0])
    if connection is not None:
        connection.close()
    return connection is not None


def handed_over(task: Task, target: str, out: Output) -> int | None:
    """Let the service of a warehouse do a task, and return its exit code; None if there is none that would do it alike."""
    place = _place(target)
    if place is None:
        return None
    directory, warehouse_id = place
    connection = connected(directory)
    if connection is None:
        return None
    with connection:
        return _asked(connection, task, warehouse_id, directory, out)


def _asked(connection: socket.socket, task: Task, warehouse_id: str | None, directory: Path, out: Output) -> int | None:
    line = encoded(request_value(Request(task, isinstance(out, JsonOutput), *_surfaces(out))))
    lines = Lines(connection)
    try:
        connection.settimeout(GREETING_SECONDS)
        greeting = greeting_of(lines.read(MAX_GREETING_BYTES))
        difference = _difference(greeting, task, warehouse_id, directory)
        if difference is None and len(line) > MAX_REQUEST_BYTES:
            difference = "takes no request as large as this"
        if difference is not None:
            _declined(out, difference)
            return None
        connection.settimeout(None)
        connection.sendall(line)
    except (OSError, ProtocolError):
        _declined(out, "does not answer")
        return None
    return _answer(lines, out)


def _answer(lines: Lines, out: Output) -> int | None:
    """Write what the service sends."""
    try:
        while (frame := lines.read()) is not None:
            match frame:
                case {"out": str(text)}:
                    _write(out.screen.out.file, text)
                case {"err": str(text)}:
                    _write(out.screen.err.file, text)
                case {"exit": int(code)}:
                    return code
                case {"refused": str(why)}:
                    _declined(out, f"refused: {why}")
                    return None
    except (ConnectionError, ProtocolError):
        pass
    raise ServiceLostError(
        "the service of the warehouse ended before it had answered",
        detail="What was asked for may be done, or not.",
        hint="`headwater status` and `headwater history` show what was done.",
    )


def _place(target: str) -> tuple[Path, str | None] | None:
    """Return the directory of a warehouse, and its id if that had to be read from a shared catalog."""
    if not is_url(target):
        return Path(target).resolve(), None
    from headwater.catalog import Catalog

    try:
        with Catalog.open(target) as catalog:
            return Path(catalog.location).resolve(), catalog.warehouse_id
    except HeadwaterError:
        return None  # the command will meet it too, and say so


def _difference(greeting: Greeting, task: Task, warehouse_id: str | None, directory: Path) -> str | None:
    """Return why the service would not do the same as this process; None if it would."""
    if greeting.protocol != PROTOCOL:
        return f"speaks another protocol ({greeting.protocol}, not {PROTOCOL})"
    if warehouse_id not in (None, greeting.warehouse_id):
        return "serves another catalog"
    if greeting.zone != local_zone():
        return "is in another time zone"
    if greeting.directory != os.getcwd() and any(RELATIVE_FILE.search(text) for text in texts_of(task)):
        return "runs in another directory, and a file is named relative to this one"
    own = _given_settings(directory)
    other = sorted(name for name, value in own.items() if greeting.settings.get(name) != value)
    return f"runs with other settings ({', '.join(other)})" if other else None


def _given_settings(directory: Path) -> dict[str, Any]:
    """Return the settings that this process was given; what is left to the default is the service's choice."""
    in_environment = any(name.startswith("HEADWATER_") for name in os.environ.keys() - NOT_ASKED)
    if not in_environment and not any((place / "headwater.toml").exists() for place in (Path.cwd(), directory)):
        return {}
    from headwater.settings import Settings

    settings = Settings.read(directory=directory)
    return settings.model_dump(mode="json", include=settings.model_fields_set)


def _surfaces(out: Output) -> tuple[Surface, Surface]:
    return surface_of(out.screen.out), surface_of(out.screen.err)


def _write(file: IO[str], text: str) -> None:
    file.write(text)
    file.flush()


def _declined(out: Output, why: str) -> None:
    out.aside(f"The service of this warehouse {why}; the work is done in this process.")
