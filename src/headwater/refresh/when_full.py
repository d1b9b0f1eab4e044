"""The option `when_full`: what happens where a table would be computed in full though nobody asked for it.

Asked for is the mode FULL, and `full` for one refresh. Everything else that ends in computing the whole table is unasked: a query that
cannot be maintained from changes, or changes that are no longer kept. `refuse` fails before anything is computed, `warn` writes it
to the log and shows a notice, `allow` goes on; the reason is recorded in any case.
"""

from __future__ import annotations

import logging
from typing import assert_never

from headwater.errors import FullRefusedError, NotIncrementalError, StatementError
from headwater.model.sql import quoted
from headwater.model.tables import RefreshAction, RefreshMode, StreamTable, WhenFull
from headwater.refresh.definition import Planned

LOG = logging.getLogger("headwater.refresh")


def when_full_of(word: str | WhenFull) -> WhenFull:
    """Return the policy that a user named, in any letter case."""
    if isinstance(word, WhenFull):
        return word
    try:
        return WhenFull(str(word).lower())
    except ValueError:
        raise StatementError(
            f"when_full cannot be {word!r}", hint=f"Choose one of {', '.join(w.value for w in WhenFull)}."
        ) from None


def is_unasked(stream: StreamTable, action: RefreshAction, *, full: bool) -> bool:
    """Say whether a refresh computes the whole table without having been told to."""
    return action is RefreshAction.FULL and not full and stream.mode is not RefreshMode.FULL


def require_incremental(plan: Planned, mode: RefreshMode, when_full: WhenFull, name: str) -> None:
    """Fail if each refresh of a table that is to be created would be full, and may not be."""
    if mode is RefreshMode.AUTO and plan.refusals and when_full is WhenFull.REFUSE:
        raise NotIncrementalError(
            f'stream table "{name}" cannot be maintained incrementally, and its when_full is refuse',
            detail="; ".join(f"{r.code.value} at {r.fragment}: {r.detail}" for r in plan.refusals),
            hint=f"{plan.refusals[0].hint} With when_full = 'warn' or 'allow' it is computed in full at each refresh.",
        )


def apply_when_full(name: str, when_full: WhenFull, reason: str) -> None:
    """Let a refresh go on in full, or fail: `reason` says why it must be full."""
    match when_full:
        case WhenFull.REFUSE:
            raise FullRefusedError(
                f'stream table "{name}" would be computed in full, and its when_full is refuse',
                detail=f"The reason is: {reason}. Nothing was changed.",
                hint=f"Run it once with `headwater refresh --full` or wh.refresh(..., full=True), "
                f"or ALTER STREAM TABLE {quoted(name)} SET (when_full = 'warn').",
            )
        case WhenFull.WARN:
            LOG.warning("computed in full table=%s reason=%s", name, reason)
        case WhenFull.ALLOW:
            return
        case _:
            assert_never(when_full)


def full_notices(stream: StreamTable, action: RefreshAction, reason: str) -> tuple[str, ...]:
    """Return what users should know about the next refresh, if it is `action` because of `reason`."""
    if not is_unasked(stream, action, full=False):
        return ()
    match stream.when_full:
        case WhenFull.REFUSE:
            return (f"its refresh will be refused, because its when_full is refuse: {reason}",)
        case WhenFull.WARN:
            return (f"it will be computed in full: {reason}",)
        case WhenFull.ALLOW:
            return ()
        case _:
            assert_never(stream.when_full)
