"""Batches: quick refreshes that read the same changes share a worker, and all workers keep something to do."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.schedule.units import MOST_IN_BATCH, Unit, UnitKind, coalesced

SINGLE, GROUP, CHAIN, BATCH = UnitKind.SINGLE, UnitKind.GROUP, UnitKind.CHAIN, UnitKind.BATCH


def singles(count: int, start: int = 0) -> list[Unit]:
    return [Unit(SINGLE, (f"n{i}",)) for i in range(start, start + count)]


def joined(count: int, capacity: int) -> list[int]:
    """Return the sizes of the units that come of `count` that read the same changes."""
    units = singles(count)
    found = coalesced(units, dict.fromkeys((u.members[0] for u in units), "w"), capacity)
    assert [n for u in found for n in u.members] == [u.members[0] for u in units], "in their order, each once"
    assert all((u.kind is BATCH) == (len(u.members) > 1) for u in found)
    return [len(u.members) for u in found]


class TestSizes:
    @pytest.mark.parametrize(
        ("count", "capacity", "sizes"),
        [
            (0, 4, []),
            (1, 4, [1]),
            (4, 4, [1, 1, 1, 1]),
            (8, 4, [1] * 8),
            (16, 4, [2] * 8),
            (24, 4, [3] * 8),
            (5, 1, [5]),
            (2, 1, [2]),
            (100, 2, [16, 16, 16, 16, 16, 16, 4]),
        ],
    )
    def test_shared_out_among_the_workers(self, count: int, capacity: int, sizes: list[int]) -> None:
        assert joined(count, capacity) == sizes

    @pytest.mark.parametrize("count", [17, 33, 1_000])
    def test_no_batch_is_larger_than_the_most(self, count: int) -> None:
        assert max(joined(count, 1)) == MOST_IN_BATCH == 16

    @pytest.mark.parametrize(("count", "capacity"), [(5, 4), (6, 4), (7, 4), (9, 8), (3, 2), (40, 16)])
    def test_no_worker_is_left_without(self, count: int, capacity: int) -> None:
        assert len(joined(count, capacity)) >= min(count, capacity)


class TestWindows:
    def coalesce(
        self, units: list[Unit], windows: Mapping[str, Hashable], capacity: int = 1
    ) -> list[tuple[UnitKind, str]]:
        return [(u.kind, "".join(u.members)) for u in coalesced(units, windows, capacity)]

    def test_different_windows_are_never_mixed(self) -> None:
        units = [Unit(SINGLE, (n,)) for n in "abcd"]
        windows = {"a": frozenset({("t", 5)}), "b": frozenset({("u", 5)}), "c": frozenset({("t", 5)})}
        assert self.coalesce(units, windows | {"d": frozenset({("t", 6)})}) == [
            (BATCH, "ac"),
            (SINGLE, "b"),
            (SINGLE, "d"),
        ]

    def test_who_has_no_window_stays_alone(self) -> None:
        units = [Unit(SINGLE, (n,)) for n in "abc"]
        assert set(self.coalesce(units, {"a": 1, "c": 1})) == {(BATCH, "ac"), (SINGLE, "b")}
        assert self.coalesce(units, {}) == [(SINGLE, "a"), (SINGLE, "b"), (SINGLE, "c")]

    @pytest.mark.parametrize("kind", [GROUP, CHAIN])
    def test_groups_and_chains_stay_what_they_are(self, kind: UnitKind) -> None:
        units = [Unit(kind, ("a", "b")), Unit(SINGLE, ("c",)), Unit(SINGLE, ("d",))]
        assert self.coalesce(units, dict.fromkeys("abcd", 1)) == [(kind, "ab"), (BATCH, "cd")]

    def test_units_are_counted_over_all_windows(self) -> None:
        """Eight units for two workers: two in each of four batches, though one window has six of them."""
        units = [Unit(SINGLE, (n,)) for n in "abcdefgh"]
        windows = dict.fromkeys("abcdef", 1) | dict.fromkeys("gh", 2)
        assert self.coalesce(units, windows, 2) == [(BATCH, "ab"), (BATCH, "cd"), (BATCH, "ef"), (BATCH, "gh")]


@given(
    st.lists(st.sampled_from(["x", "y", "z", None]), max_size=120),
    st.integers(1, 64),
    st.lists(st.sampled_from([GROUP, CHAIN]), max_size=3),
)
@settings(max_examples=200, deadline=None)
def test_whatever_comes(windows: list[str | None], capacity: int, others: list[UnitKind]) -> None:
    units = singles(len(windows))
    given_ = {u.members[0]: w for u, w in zip(units, windows, strict=True) if w is not None}
    fixed = [Unit(kind, (f"g{i}", f"h{i}")) for i, kind in enumerate(others)]
    found = coalesced([*fixed, *units], given_, capacity)
    assert sorted(n for u in found for n in u.members) == sorted(n for u in [*fixed, *units] for n in u.members)
    assert [u for u in found if u.kind in (GROUP, CHAIN)] == fixed
    batches = [u for u in found if u.kind is BATCH]
    for batch in batches:
        assert 1 < len(batch.members) <= MOST_IN_BATCH
        assert len({given_[n] for n in batch.members}) == 1
    alike = [u for u in found if u.members[0] in given_]
    assert len(alike) >= min(len(given_), capacity)
