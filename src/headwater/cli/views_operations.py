"""What operators look at, as records: health, events, buffers, advice, schedulers, fuses, gates."""

from __future__ import annotations

from typing import Any

from headwater.cli.cells import Column, Shown, cell, json_text
from headwater.cli.views import record_of

HEALTH = (
    Column("check", "check"),
    Column("severity", "severity", Shown.ACTION),
    Column("detail", "detail"),
    Column("hint", "hint"),
)
EVENTS = (
    Column("at", "time", Shown.MOMENT),
    Column("event", "event", Shown.ACTION),
    Column("table", "table"),
    Column("told", "data"),
)
BUFFERS = (
    Column("stream_table", "stream table"),
    Column("source_table", "source"),
    Column("pending_rows", "rows", Shown.COUNT),
    Column("pending_bytes", "bytes", Shown.COUNT),
    Column("kept_batches", "batches", Shown.COUNT),
    Column("oldest_seconds", "oldest", Shown.DURATION),
)
ADVICE = (
    Column("stream_table", "stream table"),
    Column("schedule", "schedule"),
    Column("recommended_interval_seconds", "every", Shown.DURATION),
    Column("peak_window_cron", "busy at"),
    Column("confidence", "confidence"),
    Column("reasoning", "because"),
)
SCHEDULERS = (
    Column("host", "host"),
    Column("pid", "pid"),
    Column("warehouse", "warehouse"),
    Column("state", "state", Shown.ACTION),
    Column("pool", "workers are"),
    Column("active", "active", Shown.COUNT),
    Column("queued", "queued", Shown.COUNT),
    Column("quota", "quota", Shown.COUNT),
    Column("workers", "workers", Shown.COUNT),
    Column("ticks", "ticks", Shown.COUNT),
    Column("refreshes", "refreshes", Shown.COUNT),
    Column("failures", "failures", Shown.COUNT),
    Column("last_tick_ms", "tick ms", Shown.MILLISECONDS),
    Column("alive_since", "since", Shown.MOMENT),
)
FUSES = (
    Column("stream_table", "stream table"),
    Column("mode", "mode"),
    Column("ceiling", "ceiling", Shown.COUNT),
    Column("pending", "waiting rows", Shown.COUNT),
    Column("blown_at", "blown", Shown.MOMENT),
)
GATES = (
    Column("source", "source"),
    Column("since", "closed", Shown.MOMENT),
    Column("reason", "reason"),
    Column("waiting", "waiting"),
)


def event_row(event: Any) -> dict[str, Any]:
    """Return an event as a record, with its data as text for people."""
    told = "  ".join(f"{name}={_plain(value)}" for name, value in event.data.items())
    return {
        "id": event.id,
        "at": event.at,
        "event": event.kind.value,
        "table": event.table,
        "data": dict(event.data),
        "told": told,
    }


def event_line(row: dict[str, Any]) -> str:
    """Return an event as one line."""
    return "  ".join(text for c in EVENTS if (text := cell(row[c.field], c.shown).plain))


def gate_row(gate: Any) -> dict[str, Any]:
    """Return a closed gate as a record."""
    return {**record_of(gate), "waiting": list(gate.waiting)}


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value)
