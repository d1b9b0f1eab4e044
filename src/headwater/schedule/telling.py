"""Telling: events become log lines, calls of those who listen, and lines in the catalog.

Refreshes that went well are in the history already and are not kept a second time. Keeping events never fails the work that they are
about: what cannot be written is logged.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable

from headwater.catalog import Catalog
from headwater.errors import HeadwaterError
from headwater.model.events import SEVERE, Event, EventKind

LOG = logging.getLogger("headwater.events")

Listener = Callable[[Event], None]

_NOT_KEPT = frozenset({EventKind.REFRESH_COMPLETED})


class Teller:
    """The events of one warehouse object."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._listeners: dict[int, Listener] = {}
        self._numbers = itertools.count()
        self._kept: list[Event] = []
        self._lock = threading.Lock()

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with each event from now on; return what ends that."""
        number = next(self._numbers)
        with self._lock:
            self._listeners[number] = listener

        def end() -> None:
            with self._lock:
                self._listeners.pop(number, None)

        return end

    def tell(self, kind: EventKind, at: float, table: str | None = None, **data: object) -> None:
        """Tell an event."""
        event = Event(kind, at, table, data)
        fields = "".join(f" {name}={value}" for name, value in data.items())
        level = logging.WARNING if kind in SEVERE else logging.INFO
        LOG.log(level, "%s table=%s%s", kind.value, table or "-", fields)
        with self._lock:
            listeners = list(self._listeners.values())
            if kind not in _NOT_KEPT:
                self._kept.append(event)
        for listener in listeners:
            try:
                listener(event)
            except Exception:
                LOG.exception("a listener failed event=%s", kind.value)

    def keep(self) -> None:
        """Write what was told into the catalog."""
        with self._lock:
            kept, self._kept = self._kept, []
        try:
            self._catalog.record_events(kept)
        except HeadwaterError as error:
            LOG.warning("events not kept count=%d error=%s", len(kept), error.message)
