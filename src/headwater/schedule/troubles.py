"""Troubles: what kind of failure it was, and when it is tried again.

    the n-th failure in a row waits  1 s * 2^(n-1), 60 s at most, a quarter more or less

A quarter more after an odd failure and less after an even one keeps tables that failed together from coming back together. What only
rows or definitions can mend is not tried again before they change (`blocks.py`).
"""

from __future__ import annotations

from headwater.errors import (
    BusyError,
    CancelledError,
    CheckFailedError,
    ConstraintError,
    EvaluationError,
    FullRefusedError,
    HeadwaterError,
    MissingFileError,
    NotIncrementalError,
    QueryError,
    SparkUnavailableError,
    TimedOutError,
    UnknownTableError,
    UnsupportedTypeError,
    WrongKindError,
    brief,
)
from headwater.model.control import ErrorKind, Trouble
from headwater.refresh.evaluate import is_data_error

MOST_SECONDS = 60.0


def is_failure(error: Exception) -> bool:
    """Say whether an error is one of the table's: one that somebody else is refreshing, or that was stopped, has not failed."""
    return not isinstance(error, BusyError | CancelledError) or isinstance(error, TimedOutError)


def kind_of_error(error: Exception) -> ErrorKind:
    """Return who can do something about an error."""
    match error:
        case FullRefusedError() | ConstraintError():
            return ErrorKind.USER
        case QueryError() | NotIncrementalError() | UnknownTableError() | UnsupportedTypeError() | WrongKindError():
            return ErrorKind.SCHEMA
        case CheckFailedError():
            return ErrorKind.INTERNAL
        case BusyError() | CancelledError() | MissingFileError() | SparkUnavailableError():
            return ErrorKind.SYSTEM
        case EvaluationError():
            return ErrorKind.USER if is_data_error(error) else ErrorKind.SYSTEM
        case HeadwaterError() | OSError() | MemoryError():
            return ErrorKind.SYSTEM
        case _:
            return ErrorKind.INTERNAL


def trouble_after(before: Trouble | None, error: Exception, now: float, version: int) -> Trouble:
    """Return the trouble that a table is in after one more failure."""
    errors = 1 if before is None else before.errors + 1
    return Trouble(errors, kind_of_error(error), now, now + retry_seconds(errors), brief(error), version)


def retry_seconds(errors: int) -> float:
    """Return how long a table waits after so many failures in a row."""
    seconds = min(MOST_SECONDS, 2.0 ** min(errors - 1, 10))
    return seconds * (1.25 if errors % 2 else 0.75)
