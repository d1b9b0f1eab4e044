"""Running schedulers in tests: a clock that the test turns, and every way to dispatch work."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater.model.tables import RefreshAction
from headwater.schedule.scheduler import Scheduler, TickReport
from headwater.schedule.workers import Crew, Inline, Pool, Spawned, Workers

if TYPE_CHECKING:
    from headwater.warehouse import Warehouse


class Time:
    """A clock that the test turns."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


MAKES: dict[str, Callable[[], Workers]] = {"inline": Inline, "spawned": lambda: Spawned(3), "pool": lambda: Pool(3)}


def scheduler(wh: Warehouse, time: Time, make: Callable[[], Workers] = Inline) -> Scheduler:
    """Return a scheduler whose time, and that of what it notes, is the test's."""
    wh._catalog.now = time  # type: ignore[method-assign]
    return Scheduler(
        wh._ground, wh._refresher, wh._maintenance.after_change, crew=Crew(make()), teller=wh._teller, now=time
    )


def names(report: TickReport) -> list[str]:
    """Return what was refreshed; nothing may have failed, and all of it must have been differential."""
    assert not report.failed
    assert all(r.action is RefreshAction.DIFFERENTIAL for r in report.refreshed)
    return [r.name for r in report.refreshed]
