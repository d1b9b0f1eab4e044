"""What goes over the socket: lines, and what is refused of them."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from headwater.cli.protocol import (
    PROTOCOL,
    Greeting,
    Lines,
    ProtocolError,
    Request,
    encoded,
    greeting_of,
    greeting_value,
    request_of,
    request_value,
)
from headwater.cli.screen import Surface
from headwater.cli.tasks import TASKS, Explain, Refresh, ResetFuse, Sql, Task, Validate, Verify

SURFACE = Surface(True, True, 80, 24, "256", "utf-8", "xterm")
ALL_TASKS: tuple[Task, ...] = (
    Sql(("SELECT 1", "SELECT 'ü'"), 5),
    Refresh("sales", True),
    Verify(None),
    Validate("SELECT 1"),
    Explain("sales"),
    ResetFuse("sales", "apply"),
)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    a, b = socket.socketpair()
    yield a, b
    a.close()
    b.close()


def through_json(value: dict[str, Any]) -> Any:
    return json.loads(encoded(value))


@pytest.mark.parametrize("task", ALL_TASKS, ids=lambda t: type(t).__name__)
def test_a_request_arrives_as_it_was_sent(task: Task) -> None:
    request = Request(task, True, SURFACE, SURFACE)
    assert request_of(through_json(request_value(request))) == request


def test_every_task_is_tested() -> None:
    assert {type(t) for t in ALL_TASKS} == set(TASKS.values())


def test_a_greeting_arrives_as_it_was_sent() -> None:
    greeting = Greeting("CET", "/here", "w1", {"when_full": "warn", "tail_max_files": 16})
    assert greeting_of(through_json(greeting_value(greeting))) == greeting


def test_of_another_protocol_only_the_number_is_read() -> None:
    assert greeting_of({"headwater": PROTOCOL + 1, "settings": "whatever"}).protocol == PROTOCOL + 1


def changed(**fields: Any) -> dict[str, Any]:
    value = request_value(Request(Verify(None), False, SURFACE, SURFACE)) | fields
    return {k: v for k, v in value.items() if v is not ...}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (changed(headwater=PROTOCOL + 1), "speaks protocol"),
        (changed(headwater=...), "does not name a protocol"),
        (changed(task="format_disk"), "no task 'format_disk'"),
        (changed(task=None), "no task"),
        (changed(arguments={"name": None, "force": True}), "force"),
        (changed(arguments={}), "name"),
        (changed(arguments=[]), "no task"),
        (changed(out=...), "out"),
        (changed(err={"width": 3}), "not a request"),
        ([1], "does not name a protocol"),
    ],
)
def test_what_is_no_request_is_refused(value: Any, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        request_of(value)


def test_lines_come_in_pieces_and_several_at_once(ends: tuple[socket.socket, socket.socket]) -> None:
    a, b = ends
    lines = Lines(b)
    a.sendall(b'{"a": 1}\n{"b": 2}\n{"c"')
    assert [lines.read(), lines.read()] == [{"a": 1}, {"b": 2}]
    a.sendall(b": 3}\n")
    assert lines.read() == {"c": 3}
    a.close()
    assert lines.read() is None


def test_a_line_that_is_too_long_is_not_read_to_its_end(ends: tuple[socket.socket, socket.socket]) -> None:
    a, b = ends
    a.sendall(b'"' + b"x" * 5000)
    with pytest.raises(ProtocolError, match="more than 1,000 bytes"):
        Lines(b).read(limit=1000)


def test_a_line_that_is_just_short_enough(ends: tuple[socket.socket, socket.socket]) -> None:
    a, b = ends
    a.sendall(b'"' + b"x" * 998 + b'"\n')
    assert len(Lines(b).read(limit=1000)) == 998


def test_a_line_that_is_no_json(ends: tuple[socket.socket, socket.socket]) -> None:
    a, b = ends
    a.sendall(b"GET / HTTP/1.1\n")
    with pytest.raises(ProtocolError, match="not JSON"):
        Lines(b).read()
