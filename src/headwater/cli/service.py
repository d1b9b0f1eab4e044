"""The service of a warehouse: while `headwater run` runs, commands from other terminals are done here, where Spark is warm.

One thread accepts, a few others work; what a client wants is done as if it had been asked here, and written for the client's
terminal. A client that goes away takes its Spark jobs with it.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import queue
import socket
import threading
import traceback
from typing import IO, TYPE_CHECKING, Any, cast

import typer

from headwater.cli.common import Exit, telling_failures
from headwater.cli.output import output_on
from headwater.cli.protocol import (
    MAX_REQUEST_BYTES,
    Greeting,
    Lines,
    ProtocolError,
    Request,
    encoded,
    greeting_value,
    local_zone,
    request_of,
)
from headwater.cli.screen import Screen, console_on
from headwater.cli.sockets import Listener, is_same_user
from headwater.engine.cancelling import Cancellation
from headwater.engine.jobs import counting_jobs

if TYPE_CHECKING:
    from headwater.warehouse import Warehouse

LOG = logging.getLogger("headwater.service")

WORKERS = 8
"""Requests done at once: threads that stay, because each has a counterpart in Spark's process that stays too."""
MAX_WAITING = 64
REQUEST_SECONDS = 10.0
"""How long a client may take to say what it wants."""
CANCEL_SECONDS = 0.2


class Service:
    """Does the work of clients that connect to `listener`, until `close`."""

    def __init__(self, warehouse: Warehouse, warehouse_id: str, listener: Listener) -> None:
        self._warehouse = warehouse
        self._listener = listener
        settings = warehouse.settings.model_dump(mode="json")
        greeting = Greeting(local_zone(), os.getcwd(), warehouse_id, settings)
        self._greeting = encoded(greeting_value(greeting))
        self._waiting: queue.SimpleQueue[socket.socket | None] = queue.SimpleQueue()
        self._calls: set[_Call] = set()
        self._lock = threading.Condition()
        self._is_closed = False
        for number in range(WORKERS):
            threading.Thread(target=self._work, name=f"headwater-service-{number}", daemon=True).start()
        threading.Thread(target=self._accept, name="headwater-service", daemon=True).start()

    def refuse(self) -> None:
        """Take no more requests."""
        with self._lock:
            self._is_closed = True
        self._listener.close()

    def drain(self, seconds: float) -> bool:
        """Wait for the requests under way; say whether all of them have ended."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._calls, seconds)

    def cancel(self, reason: str) -> None:
        """Cancel the requests under way."""
        with self._lock:
            running = list(self._calls)
        for call in running:
            call.cancellation.cancel(reason)

    def close(self) -> None:
        """Let the threads end."""
        self.refuse()
        for _ in range(WORKERS):
            self._waiting.put(None)

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                connection, _ = self._listener.connection.accept()
            except OSError:
                return  # closed
            if not is_same_user(connection):
                connection.close()
                continue
            try:
                connection.sendall(self._greeting)
            except OSError:
                connection.close()
            else:
                if self._waiting.qsize() < MAX_WAITING:
                    self._waiting.put(connection)
                else:
                    _refuse(connection, "too many requests are waiting")

    def _work(self) -> None:
        while (connection := self._waiting.get()) is not None:
            try:
                self._serve(connection)
            except OSError:
                LOG.debug("client left before it had asked")
            except Exception:
                LOG.exception("request failed")
            finally:
                connection.close()

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(REQUEST_SECONDS)
        try:
            asked = Lines(connection).read(MAX_REQUEST_BYTES)
            if asked is None:
                return
            request = request_of(asked)
        except ProtocolError as error:
            _refuse(connection, str(error))
            return
        connection.settimeout(None)
        call = _Call(connection)
        with self._lock:
            if self._is_closed:
                _refuse(connection, "the service ends")
                return
            self._calls.add(call)
        try:
            with call:
                call.send({"exit": int(self._done(request, call))})
        finally:
            with self._lock:
                self._calls.discard(call)
                self._lock.notify_all()

    def _done(self, request: Request, call: _Call) -> int:
        """Do what was asked and return the exit code of the command."""
        out = output_on(call.screen(request), as_json=request.as_json)
        try:
            with telling_failures(out), counting_jobs(self._warehouse.spark, call.cancellation):
                return request.task.run(self._warehouse, out)
        except typer.Exit as end:
            return end.exit_code
        except Exception:
            LOG.exception("command failed task=%s", type(request.task).__name__)
            call.send({"err": traceback.format_exc()})
            return Exit.ERROR


class _Call:
    """One request under way: what is written for it goes to its client, and it ends when the client has gone."""

    def __init__(self, connection: socket.socket) -> None:
        self.cancellation = Cancellation()
        self._connection = connection
        self._sending = threading.Lock()
        self._is_over = threading.Event()
        self._watch = threading.Thread(target=self._watched, name="headwater-service-client", daemon=True)

    def __enter__(self) -> None:
        self._watch.start()

    def __exit__(self, *exc: object) -> None:
        self._is_over.set()
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)  # wakes the thread that watches
        self._watch.join()

    def screen(self, request: Request) -> Screen:
        """Return the client's screen."""
        out = console_on(request.out, cast(IO[str], _Frames(self, "out", request.out.encoding)))
        err = console_on(request.err, cast(IO[str], _Frames(self, "err", request.err.encoding)))
        return Screen(out, err, False, self.cancellation.check)

    def send(self, frame: dict[str, Any]) -> None:
        """Send a frame. Once the client has gone, nothing happens: threads that draw a progress bar have nobody to tell."""
        with self._sending:
            try:
                self._connection.sendall(encoded(frame))
            except OSError:
                self.cancellation.cancel("Its client has gone")

    def _watched(self) -> None:
        """Wait for the client to go: it says nothing after its request. Jobs that begin later are cancelled too."""
        try:
            while self._connection.recv(4096):
                pass
        except OSError:
            pass
        while not self._is_over.wait(CANCEL_SECONDS):
            self.cancellation.cancel("Its client has gone")


class _Frames(io.TextIOBase):
    """A file whose text is sent to the client."""

    def __init__(self, call: _Call, name: str, encoding: str) -> None:
        self._call = call
        self._name = name
        self._encoding = encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def write(self, text: str) -> int:
        if text:
            self._call.send({self._name: text})
        return len(text)


def _refuse(connection: socket.socket, why: str) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(encoded({"refused": why}))
    connection.close()
