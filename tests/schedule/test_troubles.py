"""Troubles: what kind of failure it was, how they are counted, and when the next try is."""

from __future__ import annotations

import pytest

from headwater.errors import (
    BusyError,
    CancelledError,
    CheckFailedError,
    ConstraintError,
    EndlessRecursionError,
    EvaluationError,
    FullRefusedError,
    HeadwaterError,
    LeaseLostError,
    MissingFileError,
    NotIncrementalError,
    QueryError,
    ResultTooLargeError,
    SparkUnavailableError,
    TimedOutError,
    UnknownTableError,
    UnsupportedTypeError,
    WrongKindError,
)
from headwater.model.control import ErrorKind, Trouble
from headwater.schedule.troubles import MOST_SECONDS, is_failure, kind_of_error, retry_seconds, trouble_after

USER, SCHEMA, SYSTEM, INTERNAL = ErrorKind.USER, ErrorKind.SCHEMA, ErrorKind.SYSTEM, ErrorKind.INTERNAL


class TestRetry:
    @pytest.mark.parametrize(
        ("errors", "seconds"),
        [(1, 1.25), (2, 1.5), (3, 5.0), (4, 6.0), (5, 20.0), (6, 24.0), (7, 75.0), (8, 45.0), (9, 75.0), (10, 45.0)],
    )
    def test_doubled_each_time_a_quarter_more_or_less_by_turns(self, errors: int, seconds: float) -> None:
        assert retry_seconds(errors) == seconds

    @pytest.mark.parametrize("errors", [7, 100, 1_025, 100_000])
    def test_no_more_than_a_minute_and_a_quarter(self, errors: int) -> None:
        """`max_consecutive_errors` may be as large as somebody likes."""
        assert retry_seconds(errors) in (0.75 * MOST_SECONDS, 1.25 * MOST_SECONDS)


class TestKinds:
    @pytest.mark.parametrize(
        ("error", "kind"),
        [
            (EvaluationError("e", detail="[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012"), USER),
            (EvaluationError("e", detail="[USER_RAISED_EXCEPTION] no SQLSTATE: P0001"), USER),
            (EvaluationError("e", detail="[HW504] more than one row SQLSTATE: P0001"), SYSTEM),
            (EvaluationError("e", detail="Job aborted: executor lost"), SYSTEM),
            (EvaluationError("e"), SYSTEM),
            (EndlessRecursionError("e"), SYSTEM),
            (ResultTooLargeError("e"), SYSTEM),
            (FullRefusedError("e"), USER),
            (ConstraintError("e"), USER),
            (QueryError("e"), SCHEMA),
            (NotIncrementalError("e"), SCHEMA),
            (UnknownTableError("t", []), SCHEMA),
            (UnsupportedTypeError("e"), SCHEMA),
            (WrongKindError("e"), SCHEMA),
            (CheckFailedError("e"), INTERNAL),
            (CancelledError("e"), SYSTEM),
            (MissingFileError("e"), SYSTEM),
            (SparkUnavailableError("e"), SYSTEM),
            (BusyError("e"), SYSTEM),
            (LeaseLostError("e"), SYSTEM),
            (HeadwaterError("e"), SYSTEM),
            (OSError(28, "No space left on device"), SYSTEM),
            (MemoryError(), SYSTEM),
            (KeyError("x"), INTERNAL),
            (AssertionError(), INTERNAL),
        ],
        ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value.value,
    )
    def test_who_can_do_something_about_it(self, error: Exception, kind: ErrorKind) -> None:
        assert kind_of_error(error) is kind

    @pytest.mark.parametrize("error", [BusyError("e"), LeaseLostError("e"), CancelledError("the process ends")])
    def test_meeting_somebody_else_or_being_stopped_is_no_failure(self, error: Exception) -> None:
        assert not is_failure(error)

    @pytest.mark.parametrize("error", [TimedOutError("e"), EvaluationError("e"), OSError(), KeyError("x")])
    def test_everything_else_is_one(self, error: Exception) -> None:
        assert is_failure(error)


class TestCounting:
    def test_the_first_failure(self) -> None:
        error = QueryError("no such column", detail="It is gone.", hint="Add it.")
        assert trouble_after(None, error, 100.0, 7) == Trouble(
            1, SCHEMA, 100.0, 101.25, "no such column: It is gone.", 7
        )

    def test_the_next_one_counts_on_and_replaces_the_rest(self) -> None:
        before = Trouble(2, SCHEMA, 100.0, 101.5, "no such column", 7)
        assert trouble_after(before, OSError("full"), 200.0, 9) == Trouble(3, SYSTEM, 200.0, 205.0, "OSError: full", 9)

    @pytest.mark.parametrize(
        ("error", "text"),
        [
            (AssertionError(), "AssertionError"),
            (ValueError("one\ntwo"), "ValueError: one"),
            (BusyError("busy"), "busy"),
            (QueryError("no column", detail="\nx is gone\nsince yesterday"), "no column: x is gone"),
        ],
    )
    def test_the_message_is_one_line_and_never_empty(self, error: Exception, text: str) -> None:
        assert trouble_after(None, error, 0.0, 1).message == text
