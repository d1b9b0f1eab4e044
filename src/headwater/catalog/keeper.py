"""Keeping a lease while work is done under it."""

from __future__ import annotations

import logging
import time
from threading import Event, Thread
from types import TracebackType
from typing import Protocol, Self

from headwater.errors import HeadwaterError
from headwater.model.commit import LeaseToken

log = logging.getLogger(__name__)

BEATS = 3
"""How often a lease is renewed within the time it holds: two beats may fail."""


class Leases(Protocol):
    """What a keeper needs of the catalog."""

    def heartbeat(self, token: LeaseToken, ttl: float) -> bool: ...

    def release(self, token: LeaseToken) -> None: ...


class LeaseKeeper:
    """Renews a lease from a thread of its own, and gives it back at the end.

    `lost` turns true when another process took the lease, or when it could not be renewed for as long as it holds. It
    is a courtesy that saves useless work; what protects the data is the check in the commit.
    """

    def __init__(self, leases: Leases, token: LeaseToken, ttl: float) -> None:
        self.token = token
        self._leases = leases
        self._ttl = ttl
        self._lost = Event()
        self._done = Event()
        self._thread = Thread(target=self._beat, name=f"lease {token.name}", daemon=True)

    @property
    def lost(self) -> bool:
        """Say whether work under this lease has become useless."""
        return self._lost.is_set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()
        try:
            self._leases.release(self.token)
        except HeadwaterError as failure:
            # It expires by itself; the outcome of the work must not be hidden by this.
            log.warning("lease not released name=%s owner=%s: %s", self.token.name, self.token.owner, failure.message)

    def _beat(self) -> None:
        renewed = time.monotonic()
        while not self._done.wait(self._ttl / BEATS):
            started = time.monotonic()
            try:
                kept = self._leases.heartbeat(self.token, self._ttl)
            except HeadwaterError as failure:
                log.warning(
                    "lease not renewed name=%s owner=%s: %s", self.token.name, self.token.owner, failure.message
                )
                kept = time.monotonic() - renewed < self._ttl
            else:
                renewed = started
            if not kept:
                self._lost.set()
                return
