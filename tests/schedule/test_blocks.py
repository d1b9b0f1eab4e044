"""Blocks: each thing that stands in the way of a stream table, beside the case next to it where nothing does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.schedule.snapshots import CHANGED, NOW, VERSION, snapshot_of

from headwater.catalog import Snapshot
from headwater.model.control import (
    EVERYTHING,
    Blown,
    Drain,
    ErrorKind,
    Gate,
    Noted,
    Pause,
    Trouble,
    Watermark,
    WatermarkGroup,
    noted,
)
from headwater.model.options import Tier
from headwater.model.tables import REREAD, SUSPENDED
from headwater.schedule.blocks import (
    REPAIRABLE,
    Block,
    BlockKind,
    base_sources,
    block_of,
    blocked,
    is_behind,
    streams_above,
)
from headwater.settings import Settings

SYSTEM, USER = ErrorKind.SYSTEM, ErrorKind.USER
CHAIN = {"a": "t", "b": "a", "c": "b u", "d": "u"}
"""`a` reads `t`, `b` reads `a`, `c` reads `b` and `u`; `d` stands beside them."""


def block(snapshot: Snapshot, table_id: str = "a", **settings: Any) -> Block | None:
    return block_of(snapshot, table_id, Settings(**settings), NOW)


def kind(snapshot: Snapshot, table_id: str = "a", **settings: Any) -> BlockKind | None:
    found = block(snapshot, table_id, **settings)
    return None if found is None else found.kind


def kinds(snapshot: Snapshot) -> dict[str, BlockKind]:
    return {n: b.kind for n, b in blocked(snapshot, snapshot.streams, Settings(), NOW).items()}


def noting(*notes: Noted, streams: Mapping[str, Mapping[str, Any]] | None = None) -> Snapshot:
    return snapshot_of(CHAIN, streams, notes=notes)


def failed(kind: ErrorKind = SYSTEM, retry_in: float = 5.0, version: int = VERSION) -> Trouble:
    return Trouble(1, kind, NOW - 1, NOW + retry_in, "no", version)


def test_nothing_stands_in_the_way() -> None:
    assert kinds(noting()) == {}
    assert blocked(noting(), (), Settings(), NOW) == {}


class TestByOperators:
    def test_a_drain_holds_everything(self) -> None:
        assert kinds(noting(noted(EVERYTHING, Drain(NOW)))) == dict.fromkeys(CHAIN, BlockKind.DRAINED)
        assert block(noting(noted(EVERYTHING, Drain(NOW)))) == Block(BlockKind.DRAINED, "the warehouse is drained")

    def test_a_pause_holds_its_table_and_no_other(self) -> None:
        assert kinds(noting(noted("a", Pause(NOW)))) == {"a": BlockKind.PAUSED}
        assert block(noting(noted("a", Pause(NOW)))) == Block(BlockKind.PAUSED, "paused")

    def test_a_pause_of_everything_holds_every_table(self) -> None:
        assert kinds(noting(noted(EVERYTHING, Pause(NOW)))) == dict.fromkeys(CHAIN, BlockKind.PAUSED)

    def test_a_blown_fuse_holds_its_table_and_no_other(self) -> None:
        blown = noting(noted("a", Blown(NOW, 500, 100)))
        assert kinds(blown) == {"a": BlockKind.FUSE}
        assert block(blown) == Block(BlockKind.FUSE, "the fuse has blown: 500 changed rows, the ceiling is 100")

    def test_a_frozen_tier_holds_its_table(self) -> None:
        frozen = noting(streams={"a": {"tier": Tier.FROZEN}})
        assert kinds(frozen) == {"a": BlockKind.FROZEN}
        assert kind(frozen, tiered_scheduling=False) is None
        assert kind(noting(streams={"a": {"tier": Tier.COLD}})) is None

    def test_a_gate_holds_those_that_read_its_source_directly(self) -> None:
        gated = noting(noted("u", Gate(NOW, reason="loading")))
        assert kinds(gated) == {"c": BlockKind.GATED, "d": BlockKind.GATED}
        assert block(gated, "c") == Block(BlockKind.GATED, "source U is gated")
        assert kinds(noting(noted("t", Gate(NOW)))) == {"a": BlockKind.GATED}


class TestFailures:
    def test_a_suspended_table_holds_itself_and_what_reads_it(self) -> None:
        suspended = noting(streams={"a": {"status": SUSPENDED}})
        assert kinds(suspended) == {"a": BlockKind.SUSPENDED, "b": BlockKind.ABOVE, "c": BlockKind.ABOVE}
        assert block(suspended) == Block(BlockKind.SUSPENDED, "is suspended after repeated failures")
        text = "waits for A, which is suspended after repeated failures"
        assert block(suspended, "c") == Block(BlockKind.ABOVE, text)

    def test_one_whose_changes_were_given_up_is_not_held(self) -> None:
        assert kinds(noting(streams={"a": {"status": REREAD}})) == {}

    @pytest.mark.parametrize("error", [SYSTEM, ErrorKind.INTERNAL])
    def test_a_failure_waits_for_its_time(self, error: ErrorKind) -> None:
        assert kind(noting(noted("a", failed(error, retry_in=0.1)))) is BlockKind.FAILED
        assert kind(noting(noted("a", failed(error, retry_in=0.0)))) is None
        text = "failed, and is tried again in 5 s"
        assert block(noting(noted("a", failed(error)))) == Block(BlockKind.FAILED, text)

    def test_a_failure_holds_those_below_and_no_others(self) -> None:
        troubled = noting(noted("b", failed()))
        assert kinds(troubled) == {"b": BlockKind.FAILED, "c": BlockKind.ABOVE}
        assert block(troubled, "c") == Block(BlockKind.ABOVE, "waits for B, which failed, and is tried again in 5 s")

    def test_once_it_may_be_tried_again_those_below_are_free(self) -> None:
        assert kinds(noting(noted("a", failed(retry_in=-1)))) == {}

    @pytest.mark.parametrize("note", [Pause(NOW), Blown(NOW, 2, 1)])
    def test_what_is_held_otherwise_does_not_hold_those_below(self, note: Pause | Blown) -> None:
        assert kinds(noting(noted("a", note))).keys() == {"a"}

    def test_frozen_and_gated_do_not_hold_those_below(self) -> None:
        held = noting(noted("t", Gate(NOW)), streams={"b": {"tier": Tier.FROZEN}})
        assert kinds(held) == {"a": BlockKind.GATED, "b": BlockKind.FROZEN}


class TestRepair:
    """Trying again cannot mend a row or a definition: it waits until what it reads has changed."""

    def after(self, kind: ErrorKind, changed: Mapping[str, int], retry_in: float = -1, node: str = "c") -> Block | None:
        trouble = failed(kind, retry_in, version=VERSION)
        return block(snapshot_of(CHAIN, changed=changed, notes=[noted(node, trouble)]), node)

    def test_who_can_be_repaired(self) -> None:
        assert {USER, ErrorKind.SCHEMA} == REPAIRABLE

    @pytest.mark.parametrize("error", sorted(REPAIRABLE, key=lambda k: k.value))
    def test_not_before_something_changed(self, error: ErrorKind) -> None:
        waits = Block(BlockKind.FAILED, "failed, and waits for its sources to change")
        assert self.after(error, {}) == waits
        assert self.after(error, {"u": VERSION}) == waits, "that is what it failed on"
        assert self.after(error, {"u": VERSION + 1}) is None

    @pytest.mark.parametrize("error", [SYSTEM, ErrorKind.INTERNAL])
    def test_other_failures_do_not_wait_for_changes(self, error: ErrorKind) -> None:
        assert self.after(error, {}) is None

    def test_not_before_its_time_either(self) -> None:
        assert self.after(USER, {"u": VERSION + 1}, retry_in=5) == Block(
            BlockKind.FAILED, "failed, and is tried again in 5 s"
        )

    def test_a_change_far_above_counts(self) -> None:
        assert self.after(USER, {"t": VERSION + 1}) is None

    def test_a_change_of_a_stream_table_that_it_reads_counts(self) -> None:
        assert self.after(USER, {"b": VERSION + 1}) is None

    def test_a_change_beside_it_does_not(self) -> None:
        assert self.after(USER, {"d": VERSION + 1, "b": VERSION}) is not None

    def test_those_below_wait_as_long(self) -> None:
        assert kinds(noting(noted("b", failed(USER, -1)))) == {"b": BlockKind.FAILED, "c": BlockKind.ABOVE}

    @pytest.mark.parametrize("redefined", ["t", "a"])
    def test_a_changed_definition_of_it_or_of_a_source_counts(self, redefined: str) -> None:
        """A column was added to the source, or the table may be computed in full by now."""
        waits = noting(noted("a", failed(USER, -1)))
        assert kind(waits) is BlockKind.FAILED
        table = replace(waits.tables[redefined], moved=VERSION + 1)
        assert kind(replace(waits, tables={**waits.tables, redefined: table})) is None


class TestWatermarks:
    def marked(self, *groups: WatermarkGroup, **marks: float) -> Snapshot:
        notes = [noted(n, Watermark(value, NOW)) for n, value in marks.items()]
        return snapshot_of(
            {"a": "t u v", "b": "a", "c": "t w"}, notes=[*notes, *(noted(f"g{i}", g) for i, g in enumerate(groups))]
        )

    def test_sources_that_lie_too_far_apart_hold_what_reads_them(self) -> None:
        apart = self.marked(WatermarkGroup(("t", "u")), t=100.0, u=160.5)
        assert block(apart) == Block(BlockKind.WATERMARK, "waits for the watermark of T, 60.5 s behind in group g0")

    @pytest.mark.parametrize(("tolerance", "is_held"), [(0.0, True), (59.9, True), (60.0, False), (3600.0, False)])
    def test_as_far_as_the_tolerance_goes(self, tolerance: float, is_held: bool) -> None:
        apart = self.marked(WatermarkGroup(("t", "u"), tolerance), t=100.0, u=160.0)
        assert (kind(apart) is BlockKind.WATERMARK) == is_held

    def test_aligned_sources_hold_nobody(self) -> None:
        assert kind(self.marked(WatermarkGroup(("t", "u", "v")), t=7.0, u=7.0, v=7.0)) is None

    def test_the_two_that_lie_furthest_apart_count(self) -> None:
        assert block(self.marked(WatermarkGroup(("t", "u", "v"), 50.0), t=40.0, u=0.0, v=80.0)) == Block(
            BlockKind.WATERMARK, "waits for the watermark of U, 80 s behind in group g0"
        )

    def test_one_that_reads_a_single_source_of_the_group_is_free(self) -> None:
        apart = self.marked(WatermarkGroup(("t", "u")), t=0.0, u=100.0)
        assert kind(apart, "c") is None
        assert kind(apart, "a") is BlockKind.WATERMARK

    def test_a_source_that_is_read_through_another_table_counts(self) -> None:
        assert kind(self.marked(WatermarkGroup(("t", "u")), t=0.0, u=100.0), "b") is BlockKind.WATERMARK

    def test_the_group_does_not_count_before_all_that_are_read_have_a_mark(self) -> None:
        group = WatermarkGroup(("t", "u", "v"))
        assert kind(self.marked(group, t=0.0, u=100.0)) is None
        assert kind(self.marked(group, t=0.0, u=100.0, v=100.0)) is BlockKind.WATERMARK

    def test_a_source_of_the_group_that_is_not_read_does_not_matter(self) -> None:
        assert kind(self.marked(WatermarkGroup(("t", "u", "w")), t=100.0, u=100.0, w=0.0)) is None
        assert kind(self.marked(WatermarkGroup(("t", "u", "w")), t=100.0, u=0.0)) is BlockKind.WATERMARK

    def test_each_of_several_groups_may_hold(self) -> None:
        loose, strict = WatermarkGroup(("t", "u"), 1000.0), WatermarkGroup(("u", "v"), 1.0)
        assert kind(self.marked(loose, strict, t=0.0, u=0.0, v=0.0)) is None
        assert block(self.marked(loose, strict, t=0.0, u=0.0, v=9.0)) == Block(
            BlockKind.WATERMARK, "waits for the watermark of U, 9 s behind in group g1"
        )

    def test_marks_without_a_group_hold_nobody(self) -> None:
        assert kind(self.marked(t=0.0, u=100.0)) is None


ORDER: Sequence[tuple[BlockKind, Noted | Mapping[str, Any]]] = (
    (BlockKind.DRAINED, noted(EVERYTHING, Drain(NOW))),
    (BlockKind.PAUSED, noted("c", Pause(NOW))),
    (BlockKind.SUSPENDED, {"status": SUSPENDED}),
    (BlockKind.FAILED, noted("c", failed())),
    (BlockKind.FUSE, noted("c", Blown(NOW, 2, 1))),
    (BlockKind.FROZEN, {"tier": Tier.FROZEN}),
    (BlockKind.GATED, noted("u", Gate(NOW))),
    (BlockKind.WATERMARK, noted("g", WatermarkGroup(("t", "u")))),
    (BlockKind.ABOVE, noted("a", failed())),
)
"""Everything that may stand in the way of `c`, what is said first coming first."""


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_of_several_the_one_that_somebody_has_to_undo_first_is_named(first: int) -> None:
    said = [what for _, what in ORDER[first:]]
    values = {k: v for what in said if isinstance(what, Mapping) for k, v in what.items()}
    marks = [noted("t", Watermark(0.0, NOW)), noted("u", Watermark(9.0, NOW))]
    snapshot = noting(*(what for what in said if isinstance(what, Noted)), *marks, streams={"c": values})
    assert kind(snapshot, "c") is ORDER[first][0]


def test_every_kind_of_block_has_a_place_in_that_order() -> None:
    assert {k for k, _ in ORDER} == set(BlockKind)


class TestAbove:
    def test_what_a_table_reads(self) -> None:
        chain = noting()
        assert sorted(streams_above(chain, "c")) == ["a", "b"]
        assert base_sources(chain, "c") == {"t", "u"}
        assert streams_above(chain, "a") == []
        assert base_sources(chain, "a") == {"t"}

    def test_a_source_on_several_ways_is_named_once(self) -> None:
        diamond = snapshot_of({"a": "t", "b": "t", "c": "a b t"})
        assert sorted(streams_above(diamond, "c")) == ["a", "b"]
        assert base_sources(diamond, "c") == {"t"}

    def test_behind_is_who_has_not_seen_all_changes_of_what_it_reads_itself(self) -> None:
        moved = snapshot_of(CHAIN, changed={"t": VERSION + 1})
        assert [n for n in moved.streams if is_behind(moved, n)] == ["a"]
        assert not is_behind(noting(), "a")
        assert is_behind(noting(streams={"a": {"frontier": None}}), "a")
        assert is_behind(noting(streams={"a": {"frontier": CHANGED - 1}}), "a")
        assert not is_behind(noting(streams={"a": {"frontier": CHANGED - 1, "frontiers": {"t": CHANGED}}}), "a")
