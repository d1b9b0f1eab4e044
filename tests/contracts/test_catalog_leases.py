"""Leases, writes and pins: what dies with its owner, and when. The clock is in the test's hand."""

from __future__ import annotations

import time
from threading import Event

import pytest
from tests.catalog.building import (
    CatalogContract,
    ManualClock,
    OnPostgres,
    OnSqlite,
    apply,
    create,
    inline,
    postgres_server,  # noqa: F401
    postgres_url,  # noqa: F401
)

from headwater.catalog import Catalog, LeaseKeeper
from headwater.catalog.records import WriteState
from headwater.errors import BusyError, UnknownVersionError
from headwater.model.commit import LeaseToken


def taken(token: LeaseToken | None) -> LeaseToken:
    assert token is not None
    return token


class LeaseContract(CatalogContract):
    def test_one_holder_at_a_time(self, catalog: Catalog) -> None:
        token = taken(catalog.acquire("l", "a", 10.0))
        assert (token.name, token.owner, token.number) == ("l", "a", 1)
        assert catalog.acquire("l", "b", 10.0) is None
        assert catalog.acquire("m", "b", 10.0) is not None
        holder = catalog.lease_holder("l")
        assert holder is not None
        assert (holder.owner, holder.expires) == ("a", 1_000_010.0)

    def test_holder_may_take_it_again_with_a_new_number(self, catalog: Catalog) -> None:
        first = taken(catalog.acquire("l", "a", 10.0))
        second = taken(catalog.acquire("l", "a", 10.0))
        assert second.number == first.number + 1
        assert not catalog.heartbeat(first, 10.0)
        assert catalog.heartbeat(second, 10.0)

    def test_takeover_after_expiry(self, catalog: Catalog, clock: ManualClock) -> None:
        first = taken(catalog.acquire("l", "a", 10.0))
        clock.advance(9.9)
        assert catalog.acquire("l", "b", 10.0) is None
        clock.advance(0.1)
        assert catalog.lease_holder("l") is None
        second = taken(catalog.acquire("l", "b", 10.0))
        assert second.number == first.number + 1
        assert not catalog.heartbeat(first, 10.0)
        catalog.release(first)  # too late: it is somebody else's
        assert catalog.lease_holder("l") is not None

    def test_heartbeat_prolongs(self, catalog: Catalog, clock: ManualClock) -> None:
        token = taken(catalog.acquire("l", "a", 10.0))
        clock.advance(9.0)
        assert catalog.heartbeat(token, 10.0)
        clock.advance(9.0)
        assert catalog.acquire("l", "b", 10.0) is None

    def test_expired_lease_that_nobody_took_can_be_renewed(self, catalog: Catalog, clock: ManualClock) -> None:
        token = taken(catalog.acquire("l", "a", 10.0))
        clock.advance(100.0)
        assert catalog.heartbeat(token, 10.0)
        assert catalog.acquire("l", "b", 10.0) is None

    def test_numbers_grow_through_release(self, catalog: Catalog) -> None:
        numbers = []
        for owner in ("a", "b", "a", "a"):
            token = taken(catalog.acquire("l", owner, 10.0))
            numbers.append(token.number)
            catalog.release(token)
            assert catalog.lease_holder("l") is None
            assert not catalog.heartbeat(token, 10.0), "what was given back stays given back"
        assert numbers == [1, 2, 3, 4]

    def test_keeper_renews_and_releases(self, catalog: Catalog, clock: ManualClock) -> None:
        token = taken(catalog.acquire("l", "a", 0.06))
        with catalog.keep_lease(token, 0.06) as keeper:
            for _ in range(4):
                time.sleep(0.04)
                clock.advance(0.04)
            assert not keeper.lost
            assert catalog.acquire("l", "b", 10.0) is None
        assert catalog.lease_holder("l") is None

    def test_keeper_notices_a_takeover(self, catalog: Catalog, clock: ManualClock) -> None:
        token = taken(catalog.acquire("l", "a", 1.0))
        clock.advance(2.0)
        taken(catalog.acquire("l", "b", 100.0))
        with catalog.keep_lease(token, 0.03) as keeper:
            deadline = time.monotonic() + 5.0
            while not keeper.lost and time.monotonic() < deadline:
                time.sleep(0.005)
            assert keeper.lost
        holder = catalog.lease_holder("l")
        assert holder is not None
        assert holder.owner == "b"


class WriteContract(CatalogContract):
    def test_paths_carry_the_id(self, catalog: Catalog, clock: ManualClock) -> None:
        write_id = catalog.open_write("worker", 10.0, ("t/base/{id}", "t/tail/ä-{id}"))
        assert catalog.expired_writes() == []
        clock.advance(10.0)
        (write,) = catalog.expired_writes()
        assert (write.id, write.owner, write.state) == (write_id, "worker", WriteState.OPEN)
        assert write.paths == (f"t/base/{write_id}", f"t/tail/ä-{write_id}")
        assert (write.opened_at, write.expires) == (1_000_000.0, 1_000_010.0)

    def test_extension(self, catalog: Catalog, clock: ManualClock) -> None:
        write_id = catalog.open_write("worker", 10.0, ())
        clock.advance(11.0)
        assert catalog.extend_write(write_id, 10.0)
        assert catalog.expired_writes() == []
        assert not catalog.take_write(write_id)
        assert not catalog.extend_write("unknown", 10.0)

    def test_taken_write_cannot_come_back(self, catalog: Catalog, clock: ManualClock) -> None:
        write_id = catalog.open_write("worker", 10.0, ())
        assert not catalog.take_write(write_id), "it has not expired"
        clock.advance(10.0)
        assert catalog.take_write(write_id)
        assert not catalog.take_write(write_id), "another vacuum has it"
        assert not catalog.extend_write(write_id, 10.0)
        assert catalog.expired_writes() == []
        catalog.discard_write(write_id)
        clock.advance(1e6)
        assert catalog.expired_writes() == []

    def test_vacuum_that_died_is_succeeded(self, catalog: Catalog, clock: ManualClock) -> None:
        write_id = catalog.open_write("worker", 10.0, ())
        clock.advance(10.0)
        assert catalog.take_write(write_id)
        clock.advance(3600.0)
        (write,) = catalog.expired_writes()
        assert write.state is WriteState.DISCARDED
        assert catalog.take_write(write_id)

    def test_committed_write_leaves_nothing(self, catalog: Catalog, clock: ManualClock) -> None:
        catalog.commit(create("t"))
        write_id = catalog.open_write("worker", 10.0, ())
        apply(catalog, inline("b", "t"), write_ids=(write_id,))
        clock.advance(1e6)
        assert catalog.expired_writes() == []
        assert not catalog.take_write(write_id)
        assert not catalog.extend_write(write_id, 10.0)


class PinContract(CatalogContract):
    def test_pins_hold_until_they_expire(self, catalog: Catalog, clock: ManualClock) -> None:
        catalog.commit(create("t"))
        first = catalog.pin(0, "reader", 10.0)
        second = catalog.pin(1, "reader", 20.0)
        third = catalog.pin(1, "reader", 20.0)
        assert catalog.pinned_versions() == [0, 1]
        clock.advance(9.0)
        assert catalog.renew_pins([second], 20.0) == {second}
        clock.advance(1.0)
        assert catalog.pinned_versions() == [1]
        assert catalog.renew_pins([first, second, "unknown"], 10.0) == {second}, "vacuum may have passed the first"
        catalog.unpin(second)
        assert catalog.pinned_versions() == [1]
        catalog.unpin(third)
        catalog.unpin(third)
        assert catalog.pinned_versions() == []
        assert catalog.renew_pins([], 10.0) == set()

    def test_only_versions_that_exist(self, catalog: Catalog) -> None:
        with pytest.raises(UnknownVersionError, match="version 1 does not exist"):
            catalog.pin(1, "reader", 10.0)
        catalog.commit(create("t"))
        assert catalog.pin(1, "reader", 10.0)


class TestLeasesOnSqlite(OnSqlite, LeaseContract):
    pass


class TestLeasesOnPostgres(OnPostgres, LeaseContract):
    pass


class TestWritesOnSqlite(OnSqlite, WriteContract):
    pass


class TestWritesOnPostgres(OnPostgres, WriteContract):
    pass


class TestPinsOnSqlite(OnSqlite, PinContract):
    pass


class TestPinsOnPostgres(OnPostgres, PinContract):
    pass


class UnreachableLeases:
    """A catalog that cannot be reached."""

    def __init__(self) -> None:
        self.asked = Event()

    def heartbeat(self, token: LeaseToken, ttl: float) -> bool:
        self.asked.set()
        raise BusyError("the catalog is locked by another writer")

    def release(self, token: LeaseToken) -> None:
        raise BusyError("the catalog is locked by another writer")


def test_keeper_gives_up_when_the_lease_must_have_expired() -> None:
    leases = UnreachableLeases()
    with LeaseKeeper(leases, LeaseToken("l", "a", 1), 0.3) as keeper:
        assert leases.asked.wait(5.0)
        assert not keeper.lost, "the first failure is not the end"
        deadline = time.monotonic() + 5.0
        while not keeper.lost and time.monotonic() < deadline:
            time.sleep(0.01)
        assert keeper.lost
