"""Work that needs Spark, as data: a command does it in its own process, or hands it to the service of the warehouse.

The same `run` does it in both places. A task is sent as its name and its fields, so these are JSON values.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, assert_never

from headwater.cli import views
from headwater.cli.common import Exit, progress_of
from headwater.cli.output import Output
from headwater.errors import BusyError

if TYPE_CHECKING:
    from headwater.warehouse import Warehouse

BUSY_PAUSE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Sql:
    """Run statements one after the other; the first that fails ends it."""

    statements: tuple[str, ...]
    limit: int

    def run(self, warehouse: Warehouse, out: Output) -> Exit:
        for text in self.statements:
            out.check()
            _run_statement(warehouse, out, text, self.limit)
        return Exit.OK


@dataclass(frozen=True, slots=True)
class Refresh:
    """Bring a stream table up to date, or all of them."""

    name: str | None
    full: bool

    def run(self, warehouse: Warehouse, out: Output) -> Exit:
        with out.steps("Refreshing", None) as steps:
            progress = progress_of(out, steps, "Refreshing")
            found: dict[str, Any] = {}

            def work() -> None:
                for report in views.as_list(warehouse.refresh(self.name, full=self.full, progress=progress)):
                    before = found.get(report.name)
                    if before is None or before.action.value == "NO_DATA":
                        found[report.name] = report

            _patiently(work, warehouse.settings.busy_timeout_seconds, out)
        rows = [views.record_of(r) for r in found.values()]
        out.records(views.REFRESH, rows, empty="There are no stream tables yet.")
        return Exit.OK


@dataclass(frozen=True, slots=True)
class Verify:
    """Compare a stream table with its query, or all of them."""

    name: str | None

    def run(self, warehouse: Warehouse, out: Output) -> Exit:
        with out.steps("Verifying", None) as steps:
            answers = warehouse.verify(self.name, progress=progress_of(out, steps, "Verifying"))
        rows = [views.verify_row(a) for a in views.as_list(answers)]
        out.records(views.VERIFY, rows, empty="There are no stream tables yet.")
        return Exit.OK if all(row["equal"] for row in rows) else Exit.ERROR


@dataclass(frozen=True, slots=True)
class Validate:
    """Say how a query would be maintained."""

    query: str

    def run(self, warehouse: Warehouse, out: Output) -> Exit:
        views.show_validation(warehouse.validate_query(self.query), out)
        return Exit.OK


@dataclass(frozen=True, slots=True)
class Explain:
    """Say how a stream table is maintained."""

    name: str

    def run(self, warehouse: Warehouse, out: Output) -> Exit:
        out.message(warehouse.explain_stream_table(self.name), {"name": self.name})
        return Exit.OK


class FuseAction(Enum):
    """What becomes of the changes that blew a fuse."""

    APPLY = "apply"
    REINITIALIZE = "reinitialize"
    SKIP = "skip_changes"


@dataclass(frozen=True, slots=True)
class ResetFuse:
    """Mend a fuse that has blown. `action` is the value of a `FuseAction`."""

    name: str
    action: str

    def run(self, warehouse: Warehouse, out: Output) -> Exit:
        with out.steps(f"Mending the fuse of {self.name}", None):
            report = warehouse.reset_fuse(self.name, action=self.action)
        if report is not None:
            out.records(views.REFRESH, [views.record_of(report)], empty="")
        else:
            out.message(f"changes skipped: {self.name}", {"name": self.name, "action": self.action})
        return Exit.OK


Task = Sql | Refresh | Verify | Validate | Explain | ResetFuse

TASKS: Mapping[str, type[Task]] = {
    "sql": Sql,
    "refresh": Refresh,
    "verify": Verify,
    "validate": Validate,
    "explain": Explain,
    "reset_fuse": ResetFuse,
}
_NAMES: Mapping[type[Task], str] = {type_: name for name, type_ in TASKS.items()}


def texts_of(task: Task) -> tuple[str, ...]:
    """Return the SQL that a task was given."""
    match task:
        case Sql():
            return task.statements
        case Validate():
            return (task.query,)
        case Refresh() | Verify() | Explain() | ResetFuse():
            return ()
        case _:
            assert_never(task)


def task_value(task: Task) -> dict[str, Any]:
    """Return a task as JSON values."""
    return {"task": _NAMES[type(task)], "arguments": asdict(task)}


def task_of(value: Mapping[str, Any]) -> Task:
    """Return the task that `task_value` described. Raises ValueError for anything else."""
    name, arguments = value.get("task"), value.get("arguments")
    type_: Any = TASKS.get(name) if isinstance(name, str) else None
    if type_ is None or not isinstance(arguments, Mapping):
        raise ValueError(f"there is no task {name!r}")
    try:
        made: Task = type_(**{str(k): tuple(v) if isinstance(v, list) else v for k, v in arguments.items()})
    except TypeError as error:
        raise ValueError(str(error)) from error
    return made


def _patiently(work: Callable[[], None], seconds: float, out: Output) -> None:
    """Do work, again and again for so long as somebody else does the same."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            work()
        except BusyError:
            if time.monotonic() >= deadline:
                raise
            out.check()
            time.sleep(BUSY_PAUSE_SECONDS)
        else:
            return


def _run_statement(warehouse: Warehouse, out: Output, statement: str, limit: int) -> None:
    result: Any = warehouse.sql(statement)
    if not hasattr(result, "collect"):
        out.message(result.message, {"rows_affected": result.rows_affected, "notices": result.notices})
        for notice in result.notices:
            out.note(f"notice: {notice}")
        return
    rows = (result.limit(limit + 1) if limit else result).collect()
    more = bool(limit) and len(rows) > limit
    out.result(result.columns, rows[:limit] if more else rows, more=more)
