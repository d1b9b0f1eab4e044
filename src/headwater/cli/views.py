"""How the answers of a warehouse become records, and which of their fields a text table shows."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from headwater.cli.cells import Column, Shown
from headwater.cli.output import Output

REFRESH = (
    Column("name", "stream table"),
    Column("action", "action", Shown.ACTION),
    Column("rows_in", "rows in", Shown.COUNT),
    Column("rows_inserted", "+rows", Shown.COUNT),
    Column("rows_deleted", "-rows", Shown.COUNT),
    Column("duration_ms", "ms", Shown.MILLISECONDS),
    Column("spark_jobs", "jobs", Shown.COUNT),
    Column("reason", "reason"),
)
STATUS = (
    Column("name", "table"),
    Column("kind", "kind"),
    Column("rows", "rows", Shown.COUNT),
    Column("version", "version", Shown.COUNT),
    Column("mode", "mode"),
    Column("when_full", "when full"),
    Column("schedule", "schedule"),
    Column("tier", "tier"),
    Column("status", "status", Shown.ACTION),
    Column("freshness", "freshness", Shown.ACTION),
    Column("staleness_seconds", "by", Shown.DURATION),
    Column("why_behind", "why"),
    Column("last_action", "last", Shown.ACTION),
    Column("last_duration_ms", "ms", Shown.MILLISECONDS),
    Column("reason", "reason for full"),
    Column("last_error", "error"),
)
HISTORY = (
    Column("name", "stream table"),
    Column("started_at", "started", Shown.MOMENT),
    Column("action", "action", Shown.ACTION),
    Column("status", "status", Shown.ACTION),
    Column("rows_in", "rows in", Shown.COUNT),
    Column("rows_inserted", "+rows", Shown.COUNT),
    Column("rows_deleted", "-rows", Shown.COUNT),
    Column("duration_ms", "ms", Shown.MILLISECONDS),
    Column("reason", "reason"),
    Column("error", "error"),
)
VERIFY = (
    Column("name", "stream table"),
    Column("verdict", "contents", Shown.ACTION),
    Column("missing", "missing", Shown.COUNT),
    Column("unexpected", "unexpected", Shown.COUNT),
    Column("tolerance", "tolerance of floats"),
)
OPERATORS = (Column("operator", "operator"), Column("maintenance", "maintained"), Column("cost", "cost"))
REFUSALS = (
    Column("code", "code"),
    Column("fragment", "in the query"),
    Column("detail", "reason"),
    Column("hint", "hint"),
)


def record_of(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass, nested ones too."""
    return dataclasses.asdict(value)


def as_list(value: Any) -> list[Any]:
    """Return several answers as a list, one answer as a list of one."""
    return list(value) if isinstance(value, Sequence) else [value]


def history_rows(records: Mapping[str, Sequence[Any]], limit: int) -> list[dict[str, Any]]:
    """Return the newest lines of history of several stream tables, given by name, as records."""
    rows = [{"name": name, **record_of(record)} for name, lines in records.items() for record in lines]
    return sorted(rows, key=lambda row: row["started_at"], reverse=True)[:limit]


def status_row(status: Any) -> dict[str, Any]:
    """Return the state of a table as a record with its freshness in a word."""
    behind = "behind" if status.pending else "up to date"
    return {**record_of(status), "freshness": behind if is_stream(status) else None}


def verify_row(report: Any) -> dict[str, Any]:
    """Return a verification as a record with its verdict in a word."""
    return {**record_of(report), "verdict": "equal" if report.equal else "different"}


def is_stream(status: Any) -> bool:
    """Say whether a line of `status` is about a stream table."""
    return str(getattr(status.kind, "value", status.kind)) == "stream"


def show_validation(answer: Any, out: Output) -> None:
    """Show how a query would be maintained: the mode, the operators, and what stands in the way."""
    operators = [
        {"operator": operator, "maintenance": maintenance, "cost": cost}
        for operator, maintenance, cost in answer.operators
    ]
    refusals = [{"code": r.code, "fragment": r.fragment, "detail": r.detail, "hint": r.hint} for r in answer.refusals]
    notices = [str(n) for n in answer.notices]
    mode = str(getattr(answer.mode, "value", answer.mode))
    out.document({"mode": mode, "operators": operators, "notices": notices, "refusals": refusals})
    out.note(f"refresh mode: {mode}")
    if operators:
        out.note("")
        out.text_records(OPERATORS, operators)
    if refusals:
        out.note("\nnot maintained incrementally because:")
        out.text_records(REFUSALS, refusals)
    for notice in notices:
        out.note(f"notice: {notice}")


def vacuum_sentence(report: Any, *, dry_run: bool) -> str:
    """Say what a vacuum did, or would do."""
    files = f"{report.files_deleted:,} file{'' if report.files_deleted == 1 else 's'}"
    size = human_bytes(report.bytes_deleted)
    if dry_run:
        return f"would delete {files} ({size})"
    merged = f", merged {report.batches_merged:,} batches" if report.batches_merged else ""
    return f"deleted {files} ({size}){merged}"


def counted(count: int, one: str, many: str) -> str:
    """Return a number with its noun."""
    return f"{count:,} {one if count == 1 else many}"


def human_bytes(count: int) -> str:
    """Return a size with a unit: 532 B, 1.4 kB, 12.0 MB."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def without_password(target: str) -> str:
    """Return an address that may be shown."""
    masked = re.sub(r"(://[^/@:]*):.*@", r"\1:***@", target)
    return re.sub(r"(?i)(password=)[^&]*", r"\1***", masked)
