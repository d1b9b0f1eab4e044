"""What a client and the service of a warehouse say to each other: lines of JSON over a Unix socket.

    service   {"headwater": 1, ...}                    the greeting: its protocol, and what a client must agree with
    client    {"headwater": 1, "task": ..., ...}       one request: a task, and the screen its answer is for
    service   {"out": text} {"err": text} ...          what the task writes, as it is written
    service   {"exit": code}                           the end; or {"refused": why}, and then nothing was begun

A client that meets another protocol does its work itself. A client that leaves ends its request.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from headwater.cli.screen import Surface
from headwater.cli.tasks import Task, task_of, task_value

PROTOCOL = 1
"""Raised whenever one of the two could misunderstand the other."""

MAX_REQUEST_BYTES = 16 << 20
MAX_GREETING_BYTES = 1 << 20


class ProtocolError(Exception):
    """What came is not what this protocol says."""


@dataclass(frozen=True, slots=True)
class Greeting:
    """Who answers. A client whose own zone, directory, settings or warehouse are others may have to do its work itself."""

    zone: str
    directory: str
    warehouse_id: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    protocol: int = PROTOCOL


@dataclass(frozen=True, slots=True)
class Request:
    """What a client wants done, and what its terminal looks like."""

    task: Task
    as_json: bool
    out: Surface
    err: Surface


def greeting_value(greeting: Greeting) -> dict[str, Any]:
    """Return a greeting as JSON values."""
    return {
        "headwater": greeting.protocol,
        "zone": greeting.zone,
        "directory": greeting.directory,
        "warehouse": greeting.warehouse_id,
        "settings": dict(greeting.settings),
    }


def greeting_of(value: Any) -> Greeting:
    """Return the greeting; of another protocol nothing is read but its number."""
    protocol = _protocol(value)
    if protocol != PROTOCOL:
        return Greeting("", "", "", {}, protocol)
    settings = value.get("settings")
    if not isinstance(settings, dict):
        raise ProtocolError("a greeting without settings")
    return Greeting(str(value.get("zone")), str(value.get("directory")), str(value.get("warehouse")), settings)


def request_value(request: Request) -> dict[str, Any]:
    """Return a request as JSON values."""
    return {
        "headwater": PROTOCOL,
        **task_value(request.task),
        "json": request.as_json,
        "out": asdict(request.out),
        "err": asdict(request.err),
    }


def request_of(value: Any) -> Request:
    """Return the request; raise `ProtocolError` if it is none."""
    protocol = _protocol(value)
    if protocol != PROTOCOL:
        raise ProtocolError(f"this service speaks protocol {PROTOCOL}, not {protocol}")
    try:
        return Request(task_of(value), bool(value["json"]), Surface(**value["out"]), Surface(**value["err"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"not a request: {error}") from error


def _protocol(value: Any) -> int:
    number = value.get("headwater") if isinstance(value, dict) else None
    if not isinstance(number, int):
        raise ProtocolError("the first line does not name a protocol")
    return number


def local_zone() -> str:
    """Return what decides how this process shows moments."""
    return f"{'/'.join(time.tzname)} {time.timezone} {time.altzone}"


def encoded(value: Mapping[str, Any]) -> bytes:
    """Return one line."""
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


class Lines:
    """The lines that come over a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._held = bytearray()

    def read(self, limit: int | None = None) -> Any:
        """Return the next line's value, None at the end. A line longer than `limit` bytes, or no JSON, is a `ProtocolError`."""
        searched = 0
        while (end := self._held.find(b"\n", searched)) < 0:
            searched = len(self._held)
            if limit is not None and searched > limit:
                raise ProtocolError(f"a line of more than {limit:,} bytes")
            chunk = self._connection.recv(1 << 16)
            if not chunk:
                return None
            self._held += chunk
        line = bytes(self._held[:end])
        del self._held[: end + 1]
        try:
            return json.loads(line)
        except ValueError as error:
            raise ProtocolError(f"a line that is not JSON: {line[:40]!r}") from error
