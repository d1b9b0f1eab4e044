"""Pins: a lazy DataFrame keeps the files it will read.

A frame that was handed to a user holds a pin on its version until it and the frames derived from it are garbage collected, and for
`grace` seconds at least, since a frame can also live on in a view. Pins are renewed in the background and die with the process.
"""

from __future__ import annotations

import threading
import time
import weakref
from dataclasses import dataclass, field

from headwater.catalog import Catalog
from headwater.engine.worker import Frame, own_session
from headwater.errors import HeadwaterError


@dataclass
class _Pin:
    id: str
    until: float
    holders: int = 0


_NO_PIN = _Pin("", 0.0)


@dataclass
class Pins:
    """The pins of one warehouse object, one per version in use."""

    catalog: Catalog
    owner: str
    ttl: float
    grace: float
    _pins: dict[int, _Pin] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def held(self, frame: Frame, version: int) -> Frame:
        """Pin `version` for as long as `frame`, or any frame derived from it, lives."""
        with self._lock:
            pin = self._pins.get(version)
            if pin is None:
                pin = _Pin(self.catalog.pin(version, self.owner, self.ttl), 0.0)
                self._pins[version] = pin
            pin.holders += 1
            pin.until = time.monotonic() + self.grace
            if self._thread is None:
                self._thread = threading.Thread(target=self._renew, name="headwater-pins", daemon=True)
                self._thread.start()
        weakref.finalize(own_session(frame), self._dropped, pin)
        return frame

    def _dropped(self, pin: _Pin) -> None:
        with self._lock:
            pin.holders -= 1

    def _renew(self) -> None:
        while not self._stop.wait(self.ttl / 3):
            try:
                self._renew_once()
            except HeadwaterError:  # the catalog is busy or away: the next beat tries again
                continue

    def _renew_once(self) -> None:
        now = time.monotonic()
        with self._lock:
            over = [v for v, p in self._pins.items() if p.holders <= 0 and p.until < now]
            ended = [self._pins.pop(v).id for v in over]
            kept = {p.id: v for v, p in self._pins.items()}
        for pin_id in ended:
            self.catalog.unpin(pin_id)
        lost = kept.keys() - self.catalog.renew_pins(kept, self.ttl)
        with self._lock:
            for (
                pin_id
            ) in lost:  # the process slept longer than a pin lives; the next reader of the version needs a new one
                if self._pins.get(kept[pin_id], _NO_PIN).id == pin_id:
                    del self._pins[kept[pin_id]]

    def close(self) -> None:
        """Give all pins back."""
        self._stop.set()
        with self._lock:
            ended = [p.id for p in self._pins.values()]
            self._pins.clear()
        for pin_id in ended:
            self.catalog.unpin(pin_id)
