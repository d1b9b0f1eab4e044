"""Every error a user can meet: one base class, a stable code, and a message in three parts.

    message   what happened, one sentence, names in double quotes
    detail    why
    hint      what to do next

Programs match on `code` or on the class; people read the text. A new error is a new class with a new code: codes are never
reused and never renamed.
"""

from __future__ import annotations

from difflib import get_close_matches


class HeadwaterError(Exception):
    """Base of all errors raised by Headwater."""

    code: str = "HW000"

    def __init__(self, message: str, *, detail: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.hint = hint

    def __str__(self) -> str:
        lines = [self.message]
        if self.detail:
            lines.append(f"DETAIL: {self.detail}")
        if self.hint:
            lines.append(f"HINT: {self.hint}")
        return "\n".join(lines)


def brief(error: Exception) -> str:
    """Return an error in one line: what happened and, in a word, why."""
    if not isinstance(error, HeadwaterError):
        first = next((line for line in str(error).splitlines() if line.strip()), "")
        return f"{type(error).__name__}: {first}" if first else type(error).__name__
    reason = next((line for line in (error.detail or "").splitlines() if line.strip()), "")
    return f"{error.message}: {reason}" if reason else error.message


class NotAWarehouseError(HeadwaterError):
    """The target of `connect` exists but holds no warehouse."""

    code = "HW101"


class CatalogCorruptError(HeadwaterError):
    """The catalog cannot be read as a Headwater catalog."""

    code = "HW102"


class CatalogTooNewError(HeadwaterError):
    """The catalog was written by a newer Headwater."""

    code = "HW103"


class MissingFileError(HeadwaterError):
    """A data file that the catalog names is not there."""

    code = "HW104"


class SparkUnavailableError(HeadwaterError):
    """Spark cannot be started, or the session given cannot be used."""

    code = "HW105"


class ClosedError(HeadwaterError):
    """The warehouse object was closed."""

    code = "HW106"


class ServiceLostError(HeadwaterError):
    """The service of the warehouse ended while it worked for a client."""

    code = "HW111"


class SettingError(HeadwaterError):
    """A setting is unknown or has an impossible value."""

    code = "HW107"


class UnknownTableError(HeadwaterError):
    """No table of that name."""

    code = "HW201"

    def __init__(self, name: str, known: list[str]) -> None:
        near = get_close_matches(name, known, n=3, cutoff=0.5)
        hint = (
            f"Did you mean {' or '.join(chr(34) + n + chr(34) for n in near)}?"
            if near
            else "`headwater status` lists all tables."
        )
        super().__init__(f'table "{name}" does not exist', hint=hint)
        self.name = name
        self.nearest = near


class DuplicateTableError(HeadwaterError):
    """A table of that name exists already."""

    code = "HW202"


class WrongKindError(HeadwaterError):
    """The statement does not apply to this kind of table."""

    code = "HW203"


class HasDependentsError(HeadwaterError):
    """Other tables read the one to be dropped."""

    code = "HW204"


class CycleError(HeadwaterError):
    """A stream table would read itself, directly or through others."""

    code = "HW205"


class UnknownVersionError(HeadwaterError):
    """The version asked for is in the future, before the table's birth, or no longer kept."""

    code = "HW206"


class ConstraintError(HeadwaterError):
    """A row violates a constraint: NULL or duplicate key, wrong type, unknown column, overflow."""

    code = "HW301"


class UnsupportedTypeError(HeadwaterError):
    """A column has a type that cannot be stored."""

    code = "HW302"


class StatementError(HeadwaterError):
    """A statement cannot be parsed or is not supported."""

    code = "HW303"


class MissingRowError(HeadwaterError):
    """A change deletes a row that is not there."""

    code = "HW304"


class QueryError(HeadwaterError):
    """Spark refuses the query; its own message and position are kept."""

    code = "HW401"


class NotIncrementalError(HeadwaterError):
    """The query cannot be maintained incrementally and the mode demands it."""

    code = "HW402"


class FullRefusedError(HeadwaterError):
    """A refresh would compute the whole table, and its `when_full` refuses that; nothing was changed."""

    code = "HW403"


class BusyError(HeadwaterError):
    """Another process is writing or refreshing the same table; trying again is right."""

    code = "HW501"


class LeaseLostError(BusyError):
    """The lease expired and another process took over; nothing was committed."""

    code = "HW502"


class CheckFailedError(HeadwaterError):
    """A refresh produced something that cannot be true; nothing was committed."""

    code = "HW503"


class CancelledError(HeadwaterError):
    """A refresh was cancelled; nothing was committed."""

    code = "HW505"


class TimedOutError(CancelledError):
    """A refresh was cancelled because it took longer than it may."""

    code = "HW507"


class PausedError(HeadwaterError):
    """A stream table is suspended, or its fuse has blown: it must be resumed first."""

    code = "HW506"


class UnknownGroupError(HeadwaterError):
    """No group of that name."""

    code = "HW207"


class EvaluationError(HeadwaterError):
    """Spark failed while computing; nothing was committed."""

    code = "HW504"


class EndlessRecursionError(EvaluationError):
    """The changes of a recursive query do not come to an end; computed in full, the query may."""


class ResultTooLargeError(EvaluationError):
    """A result is more than the driver takes at once (`spark.driver.maxResultSize`); it can be written by executors instead."""
