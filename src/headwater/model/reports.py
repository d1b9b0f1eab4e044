"""What the warehouse answers with, besides frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headwater.model.tables import RefreshMode


@dataclass(frozen=True, slots=True)
class Result:
    """What a statement that is not a query did. `notices` are what its user should know besides."""

    message: str
    rows_affected: int = 0
    value: Any = None
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A table at a glance; everything comes from the catalog."""

    name: str
    kind: str
    rows: int
    version: int
    mode: str | None = None
    schedule: str | None = None
    status: str | None = None
    frontier: int | None = None
    pending: bool = False
    last_action: str | None = None
    last_duration_ms: float | None = None
    last_error: str | None = None
    reason: str | None = None
    when_full: str | None = None
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Validation:
    """How a query would be maintained, and what stands against it."""

    mode: RefreshMode
    operators: tuple[tuple[str, str, str], ...]
    notices: tuple[str, ...]
    refusals: tuple[Any, ...]
    columns: tuple[tuple[str, str], ...]
