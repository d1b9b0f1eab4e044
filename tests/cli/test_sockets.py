"""The socket of a warehouse: its owner, its place, and what is left of it when a process dies."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.cli import sockets
from headwater.cli.sockets import LOCK, POINTER, SOCKET, connected, listening

DIES = """
import os, sys
from pathlib import Path
from headwater.cli.sockets import listening
assert listening(Path(sys.argv[1])) is not None
os.kill(os.getpid(), 9)
"""


def left_by_a_dead_process(directory: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", DIES, str(directory)], check=False, timeout=60)
    assert ran.returncode == -9


def long_directory(tmp_path: Path) -> Path:
    made = tmp_path / ("x" * 120)
    made.mkdir()
    return made


def test_a_client_reaches_the_listener(tmp_path: Path) -> None:
    listener = listening(tmp_path)
    assert listener is not None
    client = connected(tmp_path)
    assert client is not None
    server, _ = listener.connection.accept()
    client.sendall(b"hello")
    assert server.recv(5) == b"hello"
    for each in (client, server):
        each.close()
    listener.close()
    assert connected(tmp_path) is None
    assert not (tmp_path / SOCKET).exists()


def test_the_socket_is_for_its_owner_alone(tmp_path: Path) -> None:
    listener = listening(tmp_path)
    assert listener is not None
    for name in (SOCKET, LOCK):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    listener.close()


def test_a_process_of_another_user_is_not_spoken_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = listening(tmp_path)
    assert listener is not None
    monkeypatch.setattr(sockets.os, "geteuid", lambda: 4711)
    assert connected(tmp_path) is None
    listener.close()


def test_only_one_process_owns_it_and_the_next_one_after_it(tmp_path: Path) -> None:
    first = listening(tmp_path)
    assert first is not None
    assert listening(tmp_path) is None
    client = connected(tmp_path)
    assert client is not None
    client.close()
    first.close()
    first.close()
    second = listening(tmp_path)
    assert second is not None
    second.close()


def test_no_socket_no_service(tmp_path: Path) -> None:
    assert connected(tmp_path) is None
    assert connected(tmp_path / "none") is None


@pytest.mark.parametrize("place", [lambda path: path, long_directory], ids=["short", "long"])
def test_what_a_dead_process_left_is_ignored_and_replaced(tmp_path: Path, place: object) -> None:
    directory: Path = place(tmp_path)  # type: ignore[operator]
    left_by_a_dead_process(directory)
    assert (directory / SOCKET).exists() or (directory / POINTER).exists()
    assert connected(directory) is None
    before = set(directory.iterdir())
    listener = listening(directory)
    assert listener is not None
    assert set(directory.iterdir()) == before
    client = connected(directory)
    assert client is not None
    client.close()
    listener.close()


def test_a_long_path_gets_a_socket_elsewhere(tmp_path: Path) -> None:
    directory = long_directory(tmp_path)
    listener = listening(directory)
    assert listener is not None
    assert listener.path.parent != directory
    assert stat.S_IMODE(listener.path.parent.stat().st_mode) == 0o700
    assert (directory / POINTER).read_text() == f"{listener.path}\n"
    assert stat.S_IMODE((directory / POINTER).stat().st_mode) == 0o600
    client = connected(directory)
    assert client is not None
    client.close()
    listener.close()
    assert not listener.path.parent.exists()
    assert not (directory / POINTER).exists()


def test_a_pointer_to_anything_but_a_socket_is_not_removed(tmp_path: Path) -> None:
    """The file says where to look, not what to delete."""
    precious = tmp_path / "precious" / SOCKET
    precious.parent.mkdir()
    precious.write_text("data")
    warehouse = tmp_path / "shop"
    warehouse.mkdir()
    (warehouse / POINTER).write_text(f"{precious}\n")
    assert connected(warehouse) is None
    listener = listening(warehouse)
    assert listener is not None
    listener.close()
    assert precious.read_text() == "data"


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        listening(tmp_path / "none")


def test_the_lock_goes_with_its_process_not_with_its_children(tmp_path: Path) -> None:
    """Spark's process is a child: it must not keep the lock."""
    listener = listening(tmp_path)
    assert listener is not None
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
    listener.close()
    again = listening(tmp_path)
    assert again is not None
    again.close()
    assert child.stdin is not None
    child.stdin.close()
    child.wait()


def test_descriptors_are_given_back(tmp_path: Path) -> None:
    def open_ones() -> int:
        return len(os.listdir("/proc/self/fd"))

    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc")
    before = open_ones()
    for _ in range(5):
        listener = listening(tmp_path)
        assert listener is not None
        assert listening(tmp_path) is None
        client = connected(tmp_path)
        assert isinstance(client, socket.socket)
        client.close()
        listener.close()
    assert open_ones() == before
