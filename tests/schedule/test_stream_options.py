"""Options of stream tables as users write them: what each of them may be, and what is refused with which words."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.errors import StatementError
from headwater.model.options import (
    DEFAULT_OPTIONS,
    OPTION_NAMES,
    Consistency,
    FuseMode,
    GroupPolicy,
    StreamOptions,
    Tier,
)
from headwater.schedule.stream_options import NAMES, plain_options, stream_options


def options(**given: Any) -> StreamOptions:
    return stream_options(DEFAULT_OPTIONS, given)


def refusal(**given: Any) -> StatementError:
    with pytest.raises(StatementError) as caught:
        options(**given)
    return caught.value


class TestWords:
    @pytest.mark.parametrize(
        ("name", "kind"),
        [
            ("tier", Tier),
            ("fuse_mode", FuseMode),
            ("diamond_consistency", Consistency),
            ("diamond_schedule_policy", GroupPolicy),
        ],
    )
    def test_each_word_in_any_case_or_as_itself(self, name: str, kind: Any) -> None:
        ceiling = {"fuse_ceiling": 1} if name == "fuse_mode" else {}
        for value in kind:
            for given in (value.value, value.value.upper(), value):
                assert getattr(options(**ceiling, **{name: given}), name) is value

    @pytest.mark.parametrize(
        ("name", "value", "words"),
        [
            ("tier", "lukewarm", "hot, warm, cold, frozen"),
            ("tier", "", "hot, warm, cold, frozen"),
            ("tier", None, "hot, warm, cold, frozen"),
            ("tier", 1, "hot, warm, cold, frozen"),
            ("tier", GroupPolicy.FASTEST, "hot, warm, cold, frozen"),
            ("fuse_mode", True, "off, on, auto"),
            ("fuse_mode", None, "off, on, auto"),
            ("diamond_consistency", "atomic ", "atomic, none"),
            ("diamond_schedule_policy", "slow", "fastest, slowest"),
        ],
    )
    def test_other_words_are_refused(self, name: str, value: object, words: str) -> None:
        error = refusal(**{name: value})
        assert error.message == f"{name} cannot be {value!r}"
        assert error.hint == f"Choose one of {words}."

    def test_no_value_is_not_the_word_none(self) -> None:
        """Whoever passes None on as "not given" must not turn a diamond's consistency off by that."""
        assert refusal(diamond_consistency=None).message == "diamond_consistency cannot be None"
        assert options(diamond_consistency="none").diamond_consistency is Consistency.NONE


class TestCounts:
    @pytest.mark.parametrize(("given", "count"), [(0, 0), (5, 5), ("100000", 100_000), (10**12, 10**12)])
    def test_a_ceiling(self, given: object, count: int) -> None:
        assert options(fuse_ceiling=given).fuse_ceiling == count

    @pytest.mark.parametrize(("given", "count"), [(1, 1), ("3", 3)])
    def test_a_sensitivity(self, given: object, count: int) -> None:
        assert options(fuse_sensitivity=given).fuse_sensitivity == count

    @pytest.mark.parametrize(
        ("name", "value", "least"),
        [
            ("fuse_ceiling", -1, 0),
            ("fuse_ceiling", "many", 0),
            ("fuse_ceiling", 1.5, 0),
            ("fuse_ceiling", True, 0),
            ("fuse_ceiling", None, 0),
            ("fuse_ceiling", "", 0),
            ("fuse_sensitivity", 0, 1),
            ("fuse_sensitivity", "-2", 1),
        ],
    )
    def test_what_is_no_count_is_refused(self, name: str, value: object, least: int) -> None:
        error = refusal(**{name: value})
        assert error.message == f"{name} cannot be {value!r}"
        assert error.hint == f"Give a whole number, {least} or more."


class TestDurations:
    @pytest.mark.parametrize(
        ("given", "seconds"), [("30s", 30.0), ("1h30m", 5400.0), (45, 45.0), (2.5, 2.5), ("7", 7.0)]
    )
    def test_given_like_a_schedule(self, given: object, seconds: float) -> None:
        assert options(sla=given).sla_seconds == seconds
        assert options(timeout=given).timeout_seconds == seconds

    @pytest.mark.parametrize("nothing", [None, "none", "NULL", "", " "])
    def test_taken_back(self, nothing: object) -> None:
        before = options(sla="30s", timeout="5m")
        assert stream_options(before, {"sla": nothing}) == options(timeout="5m")
        assert stream_options(before, {"timeout": nothing}) == options(sla="30s")

    @pytest.mark.parametrize("name", ["sla", "timeout"])
    @pytest.mark.parametrize("value", ["soon", "@daily", "* * * * *", "manual", -1, 0, "0s", float("inf"), True])
    def test_what_is_no_duration_is_refused_by_its_name(self, name: str, value: object) -> None:
        error = refusal(**{name: value})
        assert name in error.message
        assert "cron" not in (error.hint or ""), "only durations may stand here"


class TestNames:
    @pytest.mark.parametrize(
        ("name", "hint"),
        [
            ("teir", "Did you mean tier?"),
            ("fuse_celing", "Did you mean fuse_ceiling?"),
            ("sla_seconds", None),
            ("timeout_seconds", None),
            ("Tier", "Did you mean tier?"),
        ],
    )
    def test_an_unknown_one_is_refused_with_the_nearest(self, name: str, hint: str | None) -> None:
        error = refusal(**{name: "hot"})
        assert error.message == f"unknown option {name!r}"
        assert error.hint is not None
        assert hint is None or error.hint.startswith(hint)

    def test_without_a_near_one_all_are_named(self) -> None:
        assert refusal(zzz=1).hint == f"The options are when_full, {', '.join(NAMES)}."

    def test_every_option_has_a_name(self) -> None:
        assert {n.removesuffix("_seconds") for n in OPTION_NAMES} == set(NAMES)

    def test_nothing_given_changes_nothing(self) -> None:
        before = options(tier="cold", sla="30s", fuse_ceiling=7)
        assert stream_options(before, {}) is before or stream_options(before, {}) == before

    def test_what_is_not_given_stays(self) -> None:
        before = options(tier="cold", sla="30s")
        assert stream_options(before, {"tier": "warm"}) == options(tier="warm", sla="30s")

    def test_one_that_is_wrong_refuses_all(self) -> None:
        assert refusal(tier="warm", fuse_ceiling=-1).message == "fuse_ceiling cannot be -1"


class TestFuses:
    def test_one_that_is_on_needs_a_ceiling(self) -> None:
        error = refusal(fuse_mode="on")
        assert error.message == "a fuse that is on needs a ceiling"
        assert error.hint == "Give fuse_ceiling, or fuse_mode 'auto'."
        assert options(fuse_mode="on", fuse_ceiling=1).fuse_mode is FuseMode.ON
        assert options(fuse_mode="auto").fuse_mode is FuseMode.AUTO
        assert options(fuse_mode="off").fuse_mode is FuseMode.OFF

    def test_the_ceiling_may_stand_there_already(self) -> None:
        before = options(fuse_ceiling=10)
        assert stream_options(before, {"fuse_mode": "on"}).fuse_mode is FuseMode.ON

    def test_it_cannot_be_taken_from_one_that_is_on(self) -> None:
        before = options(fuse_mode="on", fuse_ceiling=10)
        with pytest.raises(StatementError, match="a fuse that is on needs a ceiling"):
            stream_options(before, {"fuse_ceiling": 0})


FULL = StreamOptions(
    Tier.WARM, 30.0, FuseMode.ON, 100_000, 3, Consistency.NONE, GroupPolicy.SLOWEST, timeout_seconds=0.5
)


class TestRoundTrips:
    @pytest.mark.parametrize(
        "made", [DEFAULT_OPTIONS, FULL, StreamOptions(sla_seconds=0.1), StreamOptions(Tier.FROZEN)]
    )
    def test_given_again_they_are_the_same(self, made: StreamOptions) -> None:
        assert stream_options(DEFAULT_OPTIONS, plain_options(made)) == made

    @pytest.mark.parametrize(
        "made", [DEFAULT_OPTIONS, FULL, StreamOptions(sla_seconds=0.1), StreamOptions(Tier.FROZEN)]
    )
    def test_stored_and_read_they_are_the_same(self, made: StreamOptions) -> None:
        assert StreamOptions.from_json(made.to_json()) == made

    def test_only_what_is_unusual_is_stored(self) -> None:
        assert DEFAULT_OPTIONS.to_json() == "{}"
        assert StreamOptions(Tier.COLD, fuse_ceiling=5).to_json() == '{"fuse_ceiling": 5, "tier": "cold"}'

    @pytest.mark.parametrize("text", [None, "", "{}", '{"of_a_newer_version": 1}'])
    def test_what_is_not_known_is_left_out(self, text: str | None) -> None:
        assert StreamOptions.from_json(text) == DEFAULT_OPTIONS
