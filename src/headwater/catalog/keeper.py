"""Keeping leases while work is done under them."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
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

    def heartbeat_all(self, tokens: Sequence[LeaseToken], ttl: float) -> bool: ...

    def release_all(self, tokens: Sequence[LeaseToken]) -> None: ...


class LeaseKeeper:
    """Renews leases from a thread of its own, and gives them back at the end.

    `lost` turns true when another process took one of them, or when they could not be renewed for as long as they hold. It
    is a courtesy that saves useless work; what protects the data is the check in the commit.
    """

    def __init__(self, leases: Leases, tokens: tuple[LeaseToken, ...], ttl: float) -> None:
        self.tokens = tokens
        self._leases = leases
        self._ttl = ttl
        self._lost = Event()
        self._done = Event()
        self._given_back = False
        self._thread = Thread(target=self._beat, name=f"lease {self._name}", daemon=True)

    @property
    def lost(self) -> bool:
        """Say whether work under these leases has become useless."""
        return self._lost.is_set() and not self._given_back

    def __enter__(self) -> Self:
        if self.tokens:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()
        try:
            if not self._given_back:
                self._leases.release_all(self.tokens)
        except HeadwaterError as failure:
            # They expire by themselves; the outcome of the work must not be hidden by this.
            log.warning("lease not released name=%s owner=%s: %s", self._name, self._owner, failure.message)

    @property
    def _name(self) -> str:
        rest = len(self.tokens) - 1
        return f"{self.tokens[0].name} and {rest} more" if rest > 0 else "".join(t.name for t in self.tokens)

    @property
    def _owner(self) -> str:
        return ",".join({t.owner: None for t in self.tokens})

    def given_back(self) -> None:
        """Note that a commit has given the leases back: there is nothing to renew, to lose, or to release any more."""
        self._given_back = True
        self._done.set()

    def end(self) -> None:
        """Stop renewing."""
        self._done.set()
        if self._thread.is_alive():
            self._thread.join()

    def _beat(self) -> None:
        renewed = time.monotonic()
        while not self._done.wait(self._ttl / BEATS):
            started = time.monotonic()
            try:
                kept = self._leases.heartbeat_all(self.tokens, self._ttl)
            except HeadwaterError as failure:
                log.warning("lease not renewed name=%s owner=%s: %s", self._name, self._owner, failure.message)
                kept = time.monotonic() - renewed < self._ttl
            else:
                renewed = started
            if not kept and not self._done.is_set():
                self._lost.set()
                return
