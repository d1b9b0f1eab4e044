"""Leases, writes and pins: what dies with its owner, and when. The clock is in the test's hand."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
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


def all_taken(tokens: list[LeaseToken] | str) -> list[LeaseToken]:
    assert not isinstance(tokens, str)
    return tokens


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10.0
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def wait_until_lost(keeper: LeaseKeeper) -> None:
    wait_until(lambda: keeper.lost)


def is_renewed(catalog: Catalog, name: str, until: float) -> bool:
    holder = catalog.lease_holder(name)
    return holder is not None and holder.expires == until


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
                clock.advance(0.04)
                wait_until(lambda: is_renewed(catalog, "l", clock.time + 0.06))
            assert not keeper.lost
            assert catalog.acquire("l", "b", 10.0) is None
        assert catalog.lease_holder("l") is None

    def test_keeper_notices_a_takeover(self, catalog: Catalog, clock: ManualClock) -> None:
        token = taken(catalog.acquire("l", "a", 1.0))
        clock.advance(2.0)
        taken(catalog.acquire("l", "b", 100.0))
        with catalog.keep_lease(token, 0.03) as keeper:
            wait_until_lost(keeper)
        holder = catalog.lease_holder("l")
        assert holder is not None
        assert holder.owner == "b"

    def test_keeper_notices_that_one_of_several_was_taken_over(self, catalog: Catalog, clock: ManualClock) -> None:
        tokens = all_taken(catalog.acquire_all(("l", "m", "n"), "a", 1.0))
        clock.advance(2.0)
        taken(catalog.acquire("m", "b", 100.0))
        with catalog.keep_leases(tokens, 0.03) as keeper:
            wait_until_lost(keeper)
            assert catalog.acquire("l", "b", 10.0) is None, "the others were renewed"
        assert catalog.leases_of_others("", "c") == {"m": "b"}

    def test_keeper_renews_and_releases_all(self, catalog: Catalog, clock: ManualClock) -> None:
        tokens = all_taken(catalog.acquire_all(("l", "m"), "a", 0.06))
        with catalog.keep_leases(tokens, 0.06) as keeper:
            for _ in range(4):
                clock.advance(0.04)
                wait_until(lambda: all(is_renewed(catalog, name, clock.time + 0.06) for name in ("l", "m")))
            assert not keeper.lost
            assert keeper.tokens == tuple(tokens)
            assert catalog.leases_of_others("", "b") == {"l": "a", "m": "a"}
        assert catalog.leases_of_others("", "b") == {}

    def test_keeper_leaves_what_a_commit_gave_back(self, catalog: Catalog) -> None:
        catalog.commit(create("t"))
        tokens = all_taken(catalog.acquire_all(("l", "m"), "a", 10.0))
        with catalog.keep_leases(tokens, 0.03) as keeper:
            apply(catalog, inline("b", "t"), leases=keeper.tokens, releases=True)
            keeper.given_back()
            theirs = all_taken(catalog.acquire_all(("l", "m"), "b", 10.0))
            time.sleep(0.1)
            assert not keeper.lost, "what was given back cannot be lost"
        assert catalog.heartbeat_all(theirs, 10.0)


class SeveralLeasesContract(CatalogContract):
    def test_several_are_taken_at_once(self, catalog: Catalog) -> None:
        tokens = all_taken(catalog.acquire_all(("m", "l", "m"), "a", 10.0))
        assert tokens == [LeaseToken("l", "a", 1), LeaseToken("m", "a", 1)]
        for name in ("l", "m"):
            holder = catalog.lease_holder(name)
            assert holder is not None
            assert (holder.owner, holder.expires) == ("a", 1_000_010.0)
            assert catalog.acquire(name, "b", 10.0) is None
        assert catalog.acquire_all(("n", "o"), "b", 10.0) == [LeaseToken("n", "b", 1), LeaseToken("o", "b", 1)]

    def test_none_is_taken_while_somebody_holds_one(self, catalog: Catalog) -> None:
        theirs = taken(catalog.acquire("m", "b", 10.0))
        assert catalog.acquire_all(("n", "m", "l"), "a", 10.0) == "m"
        assert catalog.leases_of_others("", "nobody") == {"m": "b"}
        assert catalog.heartbeat(theirs, 10.0)
        assert taken(catalog.acquire("l", "c", 10.0)).number == 1, "it is as if it had never been asked for"
        assert catalog.acquire_all(("n", "m", "l"), "a", 10.0) == "l", "the first one by name is named"
        catalog.release(theirs)
        assert catalog.acquire_all(("n", "m"), "a", 10.0) == [LeaseToken("m", "a", 2), LeaseToken("n", "a", 1)]

    def test_refusal_leaves_what_the_owner_held(self, catalog: Catalog) -> None:
        mine = taken(catalog.acquire("l", "a", 10.0))
        taken(catalog.acquire("m", "b", 10.0))
        assert catalog.acquire_all(("l", "m"), "a", 10.0) == "m"
        assert catalog.heartbeat(mine, 10.0)
        assert catalog.acquire_all(("l", "n"), "a", 10.0) == [LeaseToken("l", "a", 2), LeaseToken("n", "a", 1)]
        assert not catalog.heartbeat(mine, 10.0), "taken again, they have new numbers"

    def test_nothing_is_always_to_be_had(self, catalog: Catalog) -> None:
        assert catalog.acquire_all((), "a", 10.0) == []
        assert catalog.heartbeat_all((), 10.0)
        catalog.release_all(())
        with catalog.keep_leases((), 0.03) as keeper:
            assert not keeper.lost

    def test_expired_ones_are_taken_over(self, catalog: Catalog, clock: ManualClock) -> None:
        mine = all_taken(catalog.acquire_all(("l", "m"), "a", 10.0))
        clock.advance(9.0)
        assert catalog.heartbeat_all(mine[:1], 10.0)
        clock.advance(1.0)
        assert catalog.acquire_all(("l", "m"), "b", 10.0) == "l"
        assert catalog.acquire_all(("m",), "b", 10.0) == [LeaseToken("m", "b", 2)]
        clock.advance(10.0)
        assert catalog.acquire_all(("l", "m"), "c", 10.0) == [LeaseToken("l", "c", 2), LeaseToken("m", "c", 3)]

    def test_many(self, catalog: Catalog) -> None:
        names = [f"refresh:{number:04d}" for number in range(700)]
        tokens = all_taken(catalog.acquire_all(names[::-1], "a", 10.0))
        assert [token.name for token in tokens] == names
        assert set(catalog.leases_of_others("refresh:", "b")) == set(names)

    def test_heartbeat_tells_when_one_is_lost(self, catalog: Catalog, clock: ManualClock) -> None:
        tokens = all_taken(catalog.acquire_all(("l", "m", "n"), "a", 10.0))
        clock.advance(9.0)
        assert catalog.heartbeat_all(tokens[::-1], 10.0)
        clock.advance(9.0)
        catalog.release(tokens[1])
        assert not catalog.heartbeat_all(tokens, 10.0)
        clock.advance(9.0)
        assert catalog.leases_of_others("", "b") == {"l": "a", "n": "a"}, "the others hold on"
        assert catalog.heartbeat_all((tokens[0], tokens[2]), 10.0)

    def test_release_leaves_what_is_lost_with_its_new_holder(self, catalog: Catalog, clock: ManualClock) -> None:
        tokens = all_taken(catalog.acquire_all(("l", "m"), "a", 10.0))
        clock.advance(10.0)
        theirs = taken(catalog.acquire("l", "b", 10.0))
        assert catalog.heartbeat(tokens[1], 10.0)
        catalog.release_all(tokens)
        assert catalog.leases_of_others("", "nobody") == {"l": "b"}
        assert catalog.heartbeat(theirs, 10.0)
        catalog.release_all(tokens)
        assert catalog.heartbeat(theirs, 10.0)

    def test_leases_of_others(self, catalog: Catalog, clock: ManualClock) -> None:
        assert catalog.leases_of_others("refresh:", "a") == {}
        taken(catalog.acquire("refresh:short", "b", 5.0))
        given_back = taken(catalog.acquire("refresh:given back", "b", 50.0))
        catalog.release(given_back)
        for name, owner in (
            ("refresh:t", "b"),
            ("refresh:%", "c"),
            ("refresh:mine", "a"),
            ("refresh", "b"),
            ("Refresh:u", "b"),
            ("refreshing", "b"),
            ("fold:t", "b"),
        ):
            taken(catalog.acquire(name, owner, 50.0))
        clock.advance(5.0)
        assert catalog.leases_of_others("refresh:", "a") == {"refresh:t": "b", "refresh:%": "c"}
        assert catalog.leases_of_others("refresh:", "b") == {"refresh:mine": "a", "refresh:%": "c"}
        assert catalog.leases_of_others("refresh_", "a") == {}, "the beginning is taken by its letters"
        assert catalog.leases_of_others("%", "a") == {}
        assert len(catalog.leases_of_others("", "nobody")) == 7


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


class TestSeveralLeasesOnSqlite(OnSqlite, SeveralLeasesContract):
    pass


class TestSeveralLeasesOnPostgres(OnPostgres, SeveralLeasesContract):
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

    def heartbeat_all(self, tokens: Sequence[LeaseToken], ttl: float) -> bool:
        self.asked.set()
        raise BusyError("the catalog is locked by another writer")

    def release_all(self, tokens: Sequence[LeaseToken]) -> None:
        raise BusyError("the catalog is locked by another writer")


def test_keeper_gives_up_when_the_lease_must_have_expired() -> None:
    leases = UnreachableLeases()
    with LeaseKeeper(leases, (LeaseToken("l", "a", 1), LeaseToken("m", "a", 1)), 0.3) as keeper:
        assert leases.asked.wait(5.0)
        assert not keeper.lost, "the first failure is not the end"
        wait_until_lost(keeper)


class WatchedLeases:
    """Leases that are kept, or not, and what was asked of them."""

    def __init__(self, *, kept: bool = True) -> None:
        self.kept = kept
        self.renewed = Event()
        self.released: list[tuple[LeaseToken, ...]] = []

    def heartbeat_all(self, tokens: Sequence[LeaseToken], ttl: float) -> bool:
        self.renewed.set()
        return self.kept

    def release_all(self, tokens: Sequence[LeaseToken]) -> None:
        self.released.append(tuple(tokens))


def test_keeper_renews_no_more_once_it_has_ended() -> None:
    leases, tokens = WatchedLeases(), (LeaseToken("l", "a", 1), LeaseToken("m", "a", 1))
    with LeaseKeeper(leases, tokens, 0.03) as keeper:
        assert leases.renewed.wait(5.0)
        keeper.end()
        leases.renewed.clear()
        assert not leases.renewed.wait(0.1)
        assert leases.released == []
    assert leases.released == [tokens]


def test_keeper_releases_when_the_work_fails() -> None:
    leases, tokens = WatchedLeases(), (LeaseToken("l", "a", 1),)
    with pytest.raises(ZeroDivisionError), LeaseKeeper(leases, tokens, 10.0):
        raise ZeroDivisionError
    assert leases.released == [tokens]


def test_keeper_does_nothing_more_once_a_commit_gave_them_back() -> None:
    leases = WatchedLeases()
    with LeaseKeeper(leases, (LeaseToken("l", "a", 1),), 0.03) as keeper:
        keeper.given_back()
        keeper._thread.join(5.0)
        assert not keeper._thread.is_alive(), "there is nothing to renew any more"
    assert leases.released == []


def test_what_a_commit_gave_back_was_not_lost() -> None:
    leases = WatchedLeases(kept=False)
    with LeaseKeeper(leases, (LeaseToken("l", "a", 1),), 0.03) as keeper:
        wait_until_lost(keeper)  # a beat that came between the commit and its answer
        keeper.given_back()
        assert not keeper.lost
