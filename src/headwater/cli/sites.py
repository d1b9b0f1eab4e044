"""A warehouse that `headwater run` serves: its scheduler, and the service on its socket."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.cli import views
from headwater.cli.service import Service
from headwater.cli.sockets import Listener, listening

if TYPE_CHECKING:
    from headwater.schedule.scheduler import Scheduler
    from headwater.warehouse import Warehouse

LOG = logging.getLogger("headwater.service")


@dataclass(slots=True)
class Site:
    """One of the warehouses of a run."""

    name: str
    warehouse: Warehouse
    scheduler: Scheduler
    unserved: str = ""
    _listener: Listener | None = None
    _service: Service | None = None

    @property
    def socket(self) -> str | None:
        """The path of the socket; None if another process has it."""
        return None if self._listener is None else str(self._listener.path)

    def listen(self) -> None:
        """Take the socket, if nobody else has it."""
        try:
            self._listener = listening(self.warehouse._ground.layout.location)
        except OSError as error:
            self.unserved = f"no socket for other terminals: {error.strerror or error}"
            LOG.warning("no socket warehouse=%s error=%s", self.name, error)
            return
        if self._listener is None:
            self.unserved = "another process does the commands of other terminals"
            return
        self._service = Service(self.warehouse, self.warehouse._catalog.warehouse_id, self._listener)

    def begin_to_end(self) -> None:
        """Begin nothing any more: no refresh, no request."""
        self.scheduler.drain(0)
        if self._service is not None:
            self._service.refuse()

    def drain(self, deadline: float) -> bool:
        """Wait for what runs, until a moment of the monotonic clock; return whether all of it has ended."""
        ended = self.scheduler.drain(_left(deadline))
        return (self._service is None or self._service.drain(_left(deadline))) and ended

    def cancel(self) -> None:
        """Cancel what runs."""
        self.scheduler.cancel("The process ends")
        if self._service is not None:
            self._service.cancel("The process ends")

    def withdraw(self) -> None:
        """Leave no socket behind."""
        if self._listener is not None:
            self._listener.close()

    def close(self) -> None:
        """Let everything go. Nothing runs any more."""
        self.scheduler.stop()
        if self._service is not None:
            self._service.close()


def opened_sites(targets: Sequence[str], held: ExitStack) -> list[Site]:
    """Open warehouses, to be closed with `held`. They share the workers that the settings of the first one ask for."""
    import headwater as hw
    from headwater.schedule.workers import Crew, workers_of

    sites: list[Site] = []
    crew: Crew | None = None
    for target in dict.fromkeys(targets):
        warehouse = hw.connect(target, create=False)
        held.callback(warehouse.close)
        crew = crew or Crew(workers_of(warehouse.settings))
        site = Site(views.without_password(target), warehouse, warehouse.scheduler(crew))
        held.callback(site.close)
        sites.append(site)
    return sites


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())
