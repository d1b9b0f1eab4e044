"""Rounds: each unit begins when all that it reads are done, and what a failure leaves out says why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from headwater.errors import BusyError, EvaluationError
from headwater.model.tables import RefreshAction
from headwater.refresh.cycle import RefreshReport
from headwater.refresh.moment import Moment
from headwater.schedule.graph import graph_of
from headwater.schedule.rounds import WAITS, WITH_IT, Round, round_of
from headwater.schedule.units import Unit, UnitKind

SINGLE, GROUP, CHAIN, BATCH = UnitKind.SINGLE, UnitKind.GROUP, UnitKind.CHAIN, UnitKind.BATCH
LATER_THAN_THE_TICK = 11
FAILED = EvaluationError("no")


def unit(members: str, kind: UnitKind | None = None) -> Unit:
    return Unit(kind or (GROUP if len(members) > 1 else SINGLE), tuple(members))


def a_round(reads: Mapping[str, str], *units: Unit) -> Round:
    """Return a round of units over stream tables that read what they are given; the rest of them is no part of it."""
    graph = graph_of({n: tuple(read.split()) for n, read in reads.items()})
    return round_of(Moment(10, {}), units or [unit(n) for n in graph.order], graph)


def report(
    node: str, rows: int = 1, version: int = LATER_THAN_THE_TICK, action: RefreshAction = RefreshAction.DIFFERENTIAL
) -> RefreshReport:
    return RefreshReport(node.upper(), action, rows, rows, 0, 1.0, "", 1, version)


def nothing(node: str) -> RefreshReport:
    return report(node, 0, 10, RefreshAction.NO_DATA)


def ready(of: Round) -> list[str]:
    return sorted("".join(u.members) for u in of.ready())


def begin(of: Round, *members: str) -> Sequence[Unit]:
    """Begin the units with these members."""
    units = [u for u in of.ready() if "".join(u.members) in members]
    assert len(units) == len(members)
    for each in units:
        of.begin(each)
    return units


def done(of: Round, members: str, version: int = LATER_THAN_THE_TICK) -> None:
    """Let a unit begin and all of its members be refreshed."""
    (each,) = begin(of, members)
    of.end(each, [(n, report(n, version=version)) for n in members])


def left_out(of: Round) -> dict[str, str]:
    names = [n for n, _ in of.left_out]
    assert len(names) == len(set(names)), "each is left out once"
    return dict(of.left_out)


DIAMOND = {"a": "t", "b": "a", "c": "a", "d": "b c", "x": "u"}


class TestOrder:
    def test_each_begins_when_all_that_it_reads_are_done(self) -> None:
        of = a_round(DIAMOND)
        assert ready(of) == ["a", "x"]
        (a,) = begin(of, "a")
        assert ready(of) == ["x"]
        of.end(a, [("a", report("a"))])
        assert ready(of) == ["b", "c", "x"]
        done(of, "b")
        assert ready(of) == ["c", "x"]
        done(of, "c")
        assert ready(of) == ["d", "x"]

    def test_what_is_no_part_of_the_round_is_not_waited_for(self) -> None:
        assert ready(a_round(DIAMOND, unit("b"), unit("d"))) == ["b"]
        assert ready(a_round(DIAMOND, unit("d"))) == ["d"]

    def test_a_unit_waits_for_what_any_of_its_members_reads(self) -> None:
        of = a_round(DIAMOND, unit("a"), unit("x"), unit("bcd"))
        assert ready(of) == ["a", "x"]
        done(of, "a")
        assert ready(of) == ["bcd", "x"]

    def test_members_do_not_wait_for_each_other(self) -> None:
        assert ready(a_round(DIAMOND, unit("abcd"))) == ["abcd"]

    def test_it_is_over_when_nothing_waits_and_nothing_runs(self) -> None:
        of = a_round({"a": "t", "b": "a"})
        done(of, "a")
        assert of.waiting == {"b"}
        (b,) = begin(of, "b")
        assert (of.waiting, of.is_over) == (set(), False)
        of.end(b, [("b", nothing("b"))])
        assert of.is_over
        assert left_out(of) == {}

    def test_a_round_without_units_is_over(self) -> None:
        assert round_of(Moment(10, {}), (), graph_of({})).is_over


class TestMoment:
    def test_who_comes_later_reads_what_was_committed_meanwhile(self) -> None:
        of = a_round({"a": "t", "b": "a", "x": "t"})
        assert of.moment.of("a") == 10
        done(of, "a", version=12)
        (b,) = [u for u in of.ready() if u.members == ("b",)]
        moment = of.begin(b)
        assert (moment.version, moment.of("a"), moment.of("t"), moment.of("x")) == (10, 12, 10, 10)

    def test_the_moment_of_a_unit_that_runs_does_not_change(self) -> None:
        of = a_round({"a": "t", "x": "t"})
        a, x = of.ready()
        before = of.begin(x)
        of.begin(a)
        of.end(a, [("a", report("a", version=12))])
        assert before.of("a") == 10
        assert of.moment.of("a") == 12

    def test_a_refresh_that_changed_no_row_is_read_as_before(self) -> None:
        of = a_round({"a": "t"})
        (a,) = begin(of, "a")
        of.end(a, [("a", report("a", rows=0, version=12))])
        assert of.moment.of("a") == 10
        assert [r.name for r in of.refreshed] == ["A"]

    def test_deleted_rows_are_a_change(self) -> None:
        of = a_round({"a": "t"})
        (a,) = begin(of, "a")
        of.end(a, [("a", RefreshReport("A", RefreshAction.DIFFERENTIAL, 1, 0, 1, 1.0, "", 1, 12))])
        assert of.moment.of("a") == 12

    def test_who_had_nothing_to_do_is_not_reported(self) -> None:
        of = a_round({"a": "t", "b": "a"})
        (a,) = begin(of, "a")
        of.end(a, [("a", nothing("a"))])
        assert of.refreshed == []
        assert ready(of) == ["b"], "and nobody waits for it"


class TestFailures:
    def test_what_reads_a_failure_is_left_out_and_nothing_else(self) -> None:
        of = a_round(DIAMOND)
        done(of, "a")
        (b,) = begin(of, "b")
        of.end(b, [("b", FAILED)])
        assert of.failed == [("b", FAILED)]
        assert left_out(of) == {"d": WAITS}
        assert ready(of) == ["c", "x"]
        done(of, "c")
        done(of, "x")
        assert of.is_over
        assert [r.name for r in of.refreshed] == ["A", "C", "X"]

    def test_all_that_is_below_is_left_out_once(self) -> None:
        of = a_round(DIAMOND)
        (a,) = begin(of, "a")
        of.end(a, [("a", FAILED)])
        assert left_out(of) == {"b": WAITS, "c": WAITS, "d": WAITS}
        assert ready(of) == ["x"]

    def test_what_runs_beside_it_is_not_disturbed(self) -> None:
        of = a_round({"a": "t", "x": "u", "y": "x a"})
        a, x = begin(of, "a", "x")
        of.end(a, [("a", FAILED)])
        assert not of.is_over
        of.end(x, [("x", report("x"))])
        assert of.is_over
        assert left_out(of) == {"y": WAITS}

    def test_a_group_fails_as_one(self) -> None:
        of = a_round(DIAMOND | {"e": "d"}, unit("abcd"), unit("e"), unit("x"))
        (group,) = begin(of, "abcd")
        of.end(group, [("c", FAILED)])
        assert of.failed == [("c", FAILED)]
        assert left_out(of) == {"a": WITH_IT, "b": WITH_IT, "d": WITH_IT, "e": WAITS}
        assert ready(of) == ["x"]

    def test_a_chain_keeps_what_came_before_the_failure(self) -> None:
        of = a_round({"a": "t", "b": "a", "c": "b", "d": "c", "x": "d"}, unit("abcd", CHAIN), unit("x"))
        (chain,) = begin(of, "abcd")
        of.end(chain, [("a", report("a")), ("b", FAILED)])
        assert [r.name for r in of.refreshed] == ["A"]
        assert of.failed == [("b", FAILED)]
        assert left_out(of) == {"c": WAITS, "d": WAITS, "x": WAITS}
        assert of.is_over

    def test_a_batch_keeps_all_but_the_failure(self) -> None:
        of = a_round({"a": "t", "b": "t", "c": "t", "x": "a"}, unit("abc", BATCH), unit("x"))
        (batch,) = begin(of, "abc")
        of.end(batch, [("a", FAILED), ("b", report("b")), ("c", nothing("c"))])
        assert [r.name for r in of.refreshed] == ["B"]
        assert of.failed == [("a", FAILED)]
        assert left_out(of) == {"x": WAITS}

    def test_what_reads_only_the_others_of_a_batch_goes_on(self) -> None:
        """They share a commit, not their failures."""
        of = a_round({"a": "t", "b": "t", "x": "a", "y": "b", "z": "a b"}, unit("ab", BATCH), *map(unit, "xyz"))
        (batch,) = begin(of, "ab")
        of.end(batch, [("a", FAILED), ("b", report("b"))])
        assert left_out(of) == {"x": WAITS, "z": WAITS}
        assert ready(of) == ["y"]

    def test_a_batch_that_came_to_nothing_does_not_blame_what_it_reads(self) -> None:
        """Its commit failed, or it was cancelled: the one at work is named, and the others were refreshed with it."""
        of = a_round({"a": "t", "b": "t"}, unit("ab", BATCH))
        (batch,) = begin(of, "ab")
        of.end(batch, [("b", FAILED)])
        assert left_out(of) == {"a": WITH_IT}

    @pytest.mark.parametrize("kind", [GROUP, BATCH])
    def test_meeting_somebody_else_is_no_failure(self, kind: UnitKind) -> None:
        """Another process is faster: its work is read in a later round."""
        of = a_round({"a": "t", "b": "t", "x": "a"}, unit("ab", kind), unit("x"))
        (both,) = begin(of, "ab")
        of.end(both, [(n, BusyError("is being refreshed by another process")) for n in "ab"])
        assert of.failed == []
        assert left_out(of) == dict.fromkeys("ab", "is being refreshed by another process") | {"x": WAITS}

    @pytest.mark.parametrize("kind", [GROUP, CHAIN, BATCH])
    def test_where_all_fail_nobody_is_left_out(self, kind: UnitKind) -> None:
        of = a_round({"a": "t", "b": "t"}, unit("ab", kind))
        (both,) = begin(of, "ab")
        of.end(both, [("a", FAILED), ("b", FAILED)])
        assert of.failed == [("a", FAILED), ("b", FAILED)]
        assert left_out(of) == {}
        assert of.is_over


class TestLeavingOut:
    def test_with_what_reads_it(self) -> None:
        of = a_round(DIAMOND)
        of.leave_out(next(u for u in of.ready() if u.members == ("a",)), "the scheduler stops")
        assert left_out(of) == {"a": "the scheduler stops", "b": WAITS, "c": WAITS, "d": WAITS}
        assert ready(of) == ["x"]
        assert of.failed == []

    def test_a_whole_unit_has_the_same_reason(self) -> None:
        of = a_round(DIAMOND, unit("abcd"), unit("x"))
        of.leave_out(next(u for u in of.ready() if len(u.members) > 1), "stops")
        assert left_out(of) == dict.fromkeys("abcd", "stops")

    def test_a_deep_graph_is_no_deeper_a_call(self) -> None:
        """Each of two thousand reads the one before it: none is left behind, and Python's stack holds."""
        names = [f"n{i}" for i in range(2_000)]
        reads = {n: (f"n{i - 1}" if i else "t") for i, n in enumerate(names)}
        of = a_round(reads, *(Unit(SINGLE, (n,)) for n in names))
        (first,) = of.ready()
        of.begin(first)
        of.end(first, [("n0", FAILED)])
        assert of.is_over
        assert len(left_out(of)) == 1_999
