"""Groups: which stream tables are committed together, when they are due, and what holds all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.schedule.snapshots import snapshot_of

from headwater.model.control import RefreshGroup, noted
from headwater.model.options import Consistency, GroupPolicy
from headwater.schedule.graph import graph_of
from headwater.schedule.groups import Group, due_together, groups_of

FASTEST, SLOWEST = GroupPolicy.FASTEST, GroupPolicy.SLOWEST
NONE = {"diamond_consistency": Consistency.NONE}
LATE = {"diamond_schedule_policy": SLOWEST}

DIAMOND = {"a": "t", "b": "t", "c": "a b"}
TWO = {**DIAMOND, "x": "u", "y": "u", "z": "x y"}
NESTED = {**DIAMOND, "d": "t", "e": "c d"}
"""Two meetings, `c` and `e`, whose diamonds share the member `c`."""


def groups(
    reads: Mapping[str, str], streams: Mapping[str, Mapping[str, Any]] | None = None, **made: str
) -> list[tuple[str, GroupPolicy]]:
    """Return the members of each group, in the order of the alphabet, and its policy; `made` are groups of users, by their names."""
    notes = [noted(name, RefreshGroup(tuple(members.split()))) for name, members in made.items()]
    snapshot = snapshot_of(reads, streams, notes=notes)
    found = groups_of(graph_of(snapshot.sources), snapshot)
    for group in found:
        place = {n: i for i, n in enumerate(group.members)}
        assert all(place[s] < place[n] for n in place for s in snapshot.sources[n] if s in place), "sources come first"
    return sorted(("".join(sorted(g.members)), g.policy) for g in found)


class TestDiamonds:
    def test_a_diamond_is_a_group(self) -> None:
        assert groups(DIAMOND) == [("abc", FASTEST)]

    @pytest.mark.parametrize("reads", [{"a": "t", "b": "a", "c": "b"}, {"a": "t", "b": "t"}, {"a": "t", "b": "u a"}])
    def test_a_chain_and_siblings_are_none(self, reads: Mapping[str, str]) -> None:
        assert groups(reads) == []

    def test_the_meeting_sets_consistency_to_none(self) -> None:
        assert groups(DIAMOND, {"c": NONE}) == []
        assert groups(TWO, {"c": NONE}) == [("xyz", FASTEST)]

    @pytest.mark.parametrize("member", ["a", "b"])
    def test_what_other_members_say_does_not_count(self, member: str) -> None:
        assert groups(DIAMOND, {member: NONE | LATE}) == [("abc", FASTEST)]

    def test_the_meeting_sets_the_policy(self) -> None:
        assert groups(DIAMOND, {"c": LATE}) == [("abc", SLOWEST)]
        assert groups(TWO, {"z": LATE}) == [("abc", FASTEST), ("xyz", SLOWEST)]

    def test_none_makes_no_group_whatever_the_policy(self) -> None:
        assert groups(DIAMOND, {"c": NONE | LATE}) == []

    def test_where_diamonds_share_a_member_the_strictest_wins(self) -> None:
        assert groups(NESTED) == [("abcde", FASTEST)]
        assert groups(NESTED, {"c": NONE}) == groups(NESTED, {"e": NONE}) == [("abcde", FASTEST)]
        assert groups(NESTED, {"c": LATE}) == groups(NESTED, {"e": LATE}) == [("abcde", SLOWEST)]
        assert groups(NESTED, {"c": NONE, "e": NONE}) == []


class TestMadeByUsers:
    def test_members_need_not_be_named_in_order(self) -> None:
        assert groups({"a": "t", "b": "a", "x": "u"}, g="x b a") == [("abx", FASTEST)]
        assert groups({"c": "t", "b": "c", "a": "b"}, g="a b c") == [("abc", FASTEST)]

    def test_groups_that_share_a_member_are_one(self) -> None:
        reads = dict.fromkeys("abcde", "t")
        assert groups(reads, g="a b", h="c d") == [("ab", FASTEST), ("cd", FASTEST)]
        assert groups(reads, g="a b", h="b c", i="d e") == [("abc", FASTEST), ("de", FASTEST)]

    def test_one_that_shares_a_member_with_a_diamond_joins_it(self) -> None:
        assert groups({**DIAMOND, "x": "u"}, g="a x") == [("abcx", FASTEST)]
        assert groups({**DIAMOND, "x": "u"}, {"c": LATE}, g="a x") == [("abcx", SLOWEST)]

    def test_users_may_want_a_diamond_that_is_set_to_none(self) -> None:
        assert groups(DIAMOND, {"c": NONE}, g="a c") == [("ac", FASTEST)]

    def test_a_table_between_two_members_belongs_to_them(self) -> None:
        """`b` waits for `a` and is waited for by `c`; `x`, which only reads a member, is none."""
        assert groups({"a": "t", "b": "a", "c": "b", "x": "c"}, g="a c") == [("abc", FASTEST)]

    def test_groups_that_wait_for_each_other_are_one(self) -> None:
        assert groups({"a": "t", "b": "t", "c": "a", "d": "b"}, g="a d", h="b c") == [("abcd", FASTEST)]

    def test_what_was_dropped_is_no_member(self) -> None:
        assert groups(dict.fromkeys("abc", "t"), g="a gone b") == [("ab", FASTEST)]

    def test_one_that_is_left_alone_is_no_group(self) -> None:
        assert groups({"a": "t", "b": "t"}, g="a gone") == []
        assert groups({"a": "t", "b": "t"}, g="gone") == []


GROUP = Group(("a", "b", "c"), FASTEST)
LATE_GROUP = Group(("a", "b", "c"), SLOWEST)


def together(
    *groups: Group, due: str, busy: str | None = None, stopped: Mapping[str, str] | None = None
) -> tuple[str, dict[str, str]]:
    """Return who is chosen of those that are due, and why others are not; `busy` have something to do."""
    chosen, reasons = due_together(groups, set(due), set(due if busy is None else busy), stopped or {})
    return "".join(sorted(chosen)), reasons


class TestPolicies:
    def test_fastest_takes_all_that_have_something_to_do(self) -> None:
        assert together(GROUP, due="a", busy="ab") == ("ab", {})

    def test_fastest_leaves_out_what_has_nothing_to_do(self) -> None:
        assert together(GROUP, due="a") == ("a", {})

    def test_slowest_waits_for_all_that_have_something_to_do(self) -> None:
        why = "waits until all of its group are due"
        assert together(LATE_GROUP, due="a", busy="ab") == ("", {"a": why})
        assert together(LATE_GROUP, due="ab", busy="abc") == ("", {"a": why, "b": why})
        assert together(LATE_GROUP, due="ab") == ("ab", {}), "c has nothing to do"
        assert together(LATE_GROUP, due="abc") == ("abc", {})

    @pytest.mark.parametrize("group", [GROUP, LATE_GROUP])
    def test_nobody_due_is_nothing_to_do(self, group: Group) -> None:
        assert together(group, due="", busy="abc") == ("", {})

    @pytest.mark.parametrize("group", [GROUP, LATE_GROUP])
    def test_others_do_not_wait_for_a_group(self, group: Group) -> None:
        assert together(group, due="ax", busy="abx", stopped={"b": "paused"})[0] == "x"

    def test_groups_do_not_wait_for_each_other(self) -> None:
        other = Group(("x", "y"), SLOWEST)
        assert together(GROUP, other, due="ax", busy="abxy")[0] == "ab"
        assert together(GROUP, other, due="axy", busy="axy", stopped={"b": "paused"})[0] == "xy"


class TestStopped:
    def test_who_is_stopped_is_not_chosen_and_says_why(self) -> None:
        assert together(due="ab", stopped={"a": "paused"}) == ("b", {"a": "paused"})

    @pytest.mark.parametrize("group", [GROUP, LATE_GROUP])
    def test_one_member_stops_its_group(self, group: Group) -> None:
        chosen, reasons = together(group, due="abc", stopped={"b": "paused"})
        assert chosen == ""
        why = "waits for its group: paused"
        assert reasons == {"a": why, "b": "paused", "c": why}

    def test_a_member_with_nothing_to_do_stops_its_group_too(self) -> None:
        assert together(GROUP, due="a", stopped={"c": "gated"}) == ("", {"a": "waits for its group: gated"})

    def test_who_is_not_due_gets_no_reason_from_its_group(self) -> None:
        assert together(GROUP, due="a", busy="ab", stopped={"c": "gated"})[1] == {"a": "waits for its group: gated"}

    def test_who_is_stopped_and_has_something_to_do_says_why_though_not_due(self) -> None:
        assert together(GROUP, due="", busy="a", stopped={"a": "paused"}) == ("", {"a": "paused"})

    def test_who_is_stopped_and_has_nothing_to_do_says_nothing(self) -> None:
        assert together(due="a", stopped={"b": "paused"}) == ("a", {})

    def test_the_first_of_several_reasons_is_given_to_the_others(self) -> None:
        _, reasons = together(GROUP, due="abc", stopped={"b": "paused", "c": "gated"})
        assert reasons == {"a": "waits for its group: paused", "b": "paused", "c": "gated"}
