"""The socket of a warehouse: where it is, who owns it, and how a client finds it.

It is `headwater.sock` in the warehouse's directory, for its owner alone. Where that path is too long for a Unix socket, the socket is in
a private temporary directory, and `headwater.sock.path` says where. Whoever holds the lock on `headwater.sock.lock` owns the socket. The
lock goes with its process, however that ends: a socket found under a free lock belongs to nobody, and is replaced.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import tempfile
from pathlib import Path

SOCKET = "headwater.sock"
POINTER = "headwater.sock.path"
LOCK = "headwater.sock.lock"
MAX_PATH_BYTES = 100
BACKLOG = 64


class Listener:
    """A socket that clients may connect to, until `close`."""

    def __init__(self, connection: socket.socket, path: Path, directory: Path, lock: int) -> None:
        self.connection = connection
        self.path = path
        self._directory = directory
        self._lock: int | None = lock

    def close(self) -> None:
        """Take the socket away; then the next process may own one."""
        if self._lock is None:
            return
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self.connection.close()
        _remove_socket(self._directory)
        os.close(self._lock)
        self._lock = None


def listening(directory: Path) -> Listener | None:
    """Make the socket of a warehouse; None if another process owns it. Raises OSError where there can be none."""
    if not hasattr(socket, "AF_UNIX"):
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
    import fcntl  # of the systems that have Unix sockets

    lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    except OSError:
        os.close(lock)
        raise
    try:
        _remove_socket(directory)
        path = _path_for(directory)
        connection = _bound(path)
        if path.parent != directory:
            _write_pointer(directory, path)
    except OSError:
        _remove_socket(directory)
        os.close(lock)
        raise
    return Listener(connection, path, directory, lock)


def connected(directory: Path) -> socket.socket | None:
    """Return a connection to the service of a warehouse; None if none answers, or it is another user's."""
    path = _found_path(directory) if hasattr(socket, "AF_UNIX") else None
    if path is None:
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(str(path))
    except OSError:  # a socket whose process is dead, or one of another host
        connection.close()
        return None
    if not is_same_user(connection):
        connection.close()
        return None
    return connection


def is_same_user(connection: socket.socket) -> bool:
    """Say whether the process at the other end is of this user. Where the system does not tell, the file's mode has to do."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", credentials)
    return int(user) == os.geteuid()


def _path_for(directory: Path) -> Path:
    path = directory / SOCKET
    if len(os.fsencode(path)) <= MAX_PATH_BYTES:
        return path
    return Path(tempfile.mkdtemp(prefix="headwater-")) / SOCKET


def _bound(path: Path) -> socket.socket:
    """Return a listening socket at `path`, never open to anybody else: nobody can connect before `listen`."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.bind(str(path))
        path.chmod(0o600)
        connection.listen(BACKLOG)
    except OSError:
        connection.close()
        raise
    return connection


def _found_path(directory: Path) -> Path | None:
    pointer, path = directory / POINTER, directory / SOCKET
    if path.exists():
        return path
    try:
        return Path(pointer.read_text(encoding="utf-8").strip())
    except (OSError, UnicodeDecodeError):
        return None


def _write_pointer(directory: Path, path: Path) -> None:
    descriptor, made = tempfile.mkstemp(prefix=f".{POINTER}-", dir=directory)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(f"{path}\n")
    os.replace(made, directory / POINTER)


def _remove_socket(directory: Path) -> None:
    """Remove the socket, wherever it is. Only the holder of the lock may."""
    (directory / SOCKET).unlink(missing_ok=True)
    path = _found_path(directory)
    if path is not None and path.name == SOCKET and path.is_socket():
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            path.parent.rmdir()
    (directory / POINTER).unlink(missing_ok=True)
