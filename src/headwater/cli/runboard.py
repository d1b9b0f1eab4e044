"""What the board of `headwater run` shows: of each stream table the last thing that happened to it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headwater.cli import views
from headwater.cli.cells import Column, Shown
from headwater.cli.output import Output

if TYPE_CHECKING:
    from headwater.schedule.scheduler import TickReport

LINE = (
    Column("name", "stream table"),
    Column("action", "action", Shown.ACTION),
    Column("rows_in", "rows in", Shown.COUNT),
    Column("rows_inserted", "+rows", Shown.COUNT),
    Column("rows_deleted", "-rows", Shown.COUNT),
    Column("duration_ms", "ms", Shown.MILLISECONDS),
    Column("freshness", "freshness", Shown.ACTION),
    Column("at", "last", Shown.CLOCK),
)
FRAME_LINES = 6
"""Lines of the terminal that are not rows: the title, the caption, the prompt."""


class RunView:
    """Collects what ticks report."""

    def __init__(self, sites: Sequence[str]) -> None:
        self.columns = LINE if len(sites) == 1 else (Column("warehouse", "warehouse"), *LINE)
        self.refreshes = 0
        self.failures = 0
        self._rows: dict[tuple[str, str], dict[str, Any]] = {}

    def rows_of(self, site: str, report: TickReport) -> list[dict[str, Any]]:
        """Return a row for each refresh of a tick that did something or failed."""
        now = time.time()
        done = [
            {"warehouse": site, **views.record_of(r), "freshness": "up to date", "at": now}
            for r in report.refreshed
            if r.action.value != "NO_DATA"
        ]
        failed = [
            {"warehouse": site, "name": name, "action": "FAILED", "freshness": first_line(text), "at": now}
            for name, text in report.failed
        ]
        return [*done, *failed]

    def skipped_of(self, site: str, report: TickReport) -> list[dict[str, Any]]:
        """Return a row for each stream table that was left though it has something to do."""
        return [
            {"warehouse": site, "name": name, "action": "SKIPPED", "freshness": reason}
            for name, reason in report.skipped
        ]

    def taken(self, site: str, report: TickReport) -> list[dict[str, Any]]:
        """Take notice of a tick and return the rows that are new."""
        new = self.rows_of(site, report)
        for row in new:
            self.refreshes += row["action"] != "FAILED"
            self.failures += row["action"] == "FAILED"
            self._rows.pop((site, row["name"]), None)
            self._rows[site, row["name"]] = row  # the newest comes last
        for row in self.skipped_of(site, report):
            known = self._rows.get((site, row["name"]))
            self._rows[site, row["name"]] = row if known is None else {**known, "freshness": row["freshness"]}
        return new

    def shown(self, out: Output) -> tuple[list[dict[str, Any]], str]:
        """Return the newest rows, as many as fit on the screen, by name; and the line below them."""
        most = max(1, out.screen.out.height - FRAME_LINES) if out.screen.out.is_terminal else len(self._rows)
        newest = list(self._rows.values())[-most:] if self._rows else []
        newest.sort(key=lambda row: (row["warehouse"], row["name"]))
        hidden = len(self._rows) - len(newest)
        counted = views.counted(self.refreshes, "refresh", "refreshes")
        parts = [
            counted,
            f"{self.failures:,} failed" if self.failures else "",
            f"{hidden} more tables" if hidden else "",
        ]
        return newest, ", ".join([*filter(None, parts), "Ctrl-C ends"])


def first_line(text: str) -> str:
    """Return the first line of an error."""
    return next(iter(text.splitlines()), "")
