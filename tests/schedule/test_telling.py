"""Telling: who hears of an event, what is kept of it, and that nobody's failure is anybody else's."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.schedule.snapshots import NOW

from headwater.catalog import Catalog
from headwater.model.events import SEVERE, Event, EventKind
from headwater.schedule.telling import Teller

COMPLETED, FAILED, RESUMED = EventKind.REFRESH_COMPLETED, EventKind.REFRESH_FAILED, EventKind.RESUMED


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("catalog") / "catalog.db"
    Catalog.create(str(path), location="/warehouse").close()
    return path


@pytest.fixture
def catalog(empty: Path, tmp_path: Path) -> Iterator[Catalog]:
    with Catalog.open(str(shutil.copy(empty, tmp_path))) as catalog:
        yield catalog


@pytest.fixture
def teller(catalog: Catalog) -> Teller:
    return Teller(catalog)


def kept(catalog: Catalog) -> list[tuple[EventKind, str | None]]:
    """Return what the catalog has, oldest first."""
    return [(e.kind, e.table) for e in reversed(catalog.events())]


class TestListening:
    def test_a_listener_hears_of_every_event_from_now_on(self, teller: Teller) -> None:
        heard: list[Event] = []
        teller.tell(RESUMED, NOW, "A")
        teller.listen(heard.append)
        teller.tell(FAILED, NOW + 1, "A", errors=2)
        teller.tell(COMPLETED, NOW + 2, "A")
        assert heard == [Event(FAILED, NOW + 1, "A", {"errors": 2}), Event(COMPLETED, NOW + 2, "A")]

    def test_each_until_it_ends(self, teller: Teller) -> None:
        first: list[Event] = []
        second: list[Event] = []
        end = teller.listen(first.append)
        teller.listen(second.append)
        teller.tell(RESUMED, NOW)
        end()
        teller.tell(RESUMED, NOW)
        assert (len(first), len(second)) == (1, 2)

    def test_ending_twice_is_ending(self, teller: Teller) -> None:
        heard: list[Event] = []
        end = teller.listen(heard.append)
        end()
        end()
        teller.tell(RESUMED, NOW)
        assert heard == []

    def test_one_that_listens_twice_ends_once(self, teller: Teller) -> None:
        heard: list[Event] = []
        end = teller.listen(heard.append)
        teller.listen(heard.append)
        end()
        teller.tell(RESUMED, NOW)
        assert len(heard) == 1

    def test_one_that_fails_disturbs_nobody(
        self, teller: Teller, catalog: Catalog, caplog: pytest.LogCaptureFixture
    ) -> None:
        heard: list[Event] = []

        def fails(event: Event) -> None:
            raise RuntimeError("no ears")

        teller.listen(fails)
        teller.listen(heard.append)
        teller.tell(RESUMED, NOW, "A")
        teller.keep()
        assert [e.kind for e in heard] == [RESUMED]
        assert kept(catalog) == [(RESUMED, "A")]
        assert "a listener failed event=resumed" in caplog.text
        assert "no ears" in caplog.text

    def test_one_may_tell_and_end_while_it_listens(self, teller: Teller) -> None:
        heard: list[EventKind] = []

        def once(event: Event) -> None:
            end()
            heard.append(event.kind)
            teller.tell(FAILED, NOW, "A")

        end = teller.listen(once)
        teller.tell(RESUMED, NOW, "A")
        assert heard == [RESUMED]


class TestLogging:
    @pytest.mark.parametrize("kind", EventKind)
    def test_one_line_as_loud_as_it_is_severe(
        self, teller: Teller, kind: EventKind, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.INFO, "headwater.events"):
            teller.tell(kind, NOW, "A", rows=5, why="100%")
        (line,) = caplog.records
        assert line.levelno == (logging.WARNING if kind in SEVERE else logging.INFO)
        assert line.getMessage() == f"{kind.value} table=A rows=5 why=100%"

    def test_an_event_of_no_table(self, teller: Teller, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.INFO, "headwater.events"):
            teller.tell(RESUMED, NOW)
        assert caplog.records[0].getMessage() == "resumed table=-"


class TestKeeping:
    def test_what_was_told_is_kept_once_in_its_order(self, teller: Teller, catalog: Catalog) -> None:
        teller.tell(FAILED, NOW, "A", errors=1)
        teller.tell(RESUMED, NOW, "B")
        assert kept(catalog) == [], "nothing is written before keep"
        teller.keep()
        teller.keep()
        assert kept(catalog) == [(FAILED, "A"), (RESUMED, "B")]
        assert catalog.events()[-1].data == {"errors": 1}

    def test_refreshes_that_went_well_are_not_kept(self, teller: Teller, catalog: Catalog) -> None:
        teller.tell(COMPLETED, NOW, "A")
        teller.tell(RESUMED, NOW, "A")
        teller.keep()
        assert kept(catalog) == [(RESUMED, "A")]

    def test_nothing_told_is_nothing_written(self, teller: Teller, catalog: Catalog) -> None:
        head = catalog.head()
        teller.keep()
        assert (kept(catalog), catalog.head()) == ([], head)

    def test_what_cannot_be_written_is_logged_and_fails_nobody(
        self, teller: Teller, catalog: Catalog, caplog: pytest.LogCaptureFixture
    ) -> None:
        teller.tell(FAILED, NOW, "A")
        catalog.close()
        teller.keep()
        assert "events not kept count=1 error=the catalog was closed" in caplog.text

    def test_values_of_any_kind_can_be_kept(self, teller: Teller, catalog: Catalog) -> None:
        teller.tell(FAILED, NOW, "A", path=Path("/x"), error=ValueError("v"))
        teller.keep()
        assert catalog.events()[0].data == {"path": "/x", "error": "v"}

    def test_threads_that_tell_at_once_lose_nothing(self, teller: Teller, catalog: Catalog) -> None:
        heard: list[Event] = []
        teller.listen(heard.append)

        def tell(name: str) -> None:
            for i in range(100):
                teller.tell(RESUMED, NOW, name, i=i)
                if i % 10 == 0:
                    teller.keep()

        threads = [threading.Thread(target=tell, args=(name,)) for name in "ABCD"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        teller.keep()
        assert len(heard) == 400
        found = catalog.events(limit=1_000)
        assert len(found) == 400
        for name in "ABCD":
            assert sorted(e.data["i"] for e in found if e.table == name) == list(range(100))
