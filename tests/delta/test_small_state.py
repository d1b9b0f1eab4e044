"""A small state is merged whole with its changes in one question; of a large one the groups that change are looked up first."""

from __future__ import annotations

from unittest import mock

import pytest
from tests.support.stories import Story, Stream

from headwater.refresh import evaluate
from headwater.refresh.places import Places

TOTALS = "SELECT s.name, sum(i.v) AS total, count(*) AS n FROM items i JOIN shops s ON s.id = i.shop GROUP BY s.name"
SPREAD = "SELECT s.name, stddev(i.v) AS spread FROM items i JOIN shops s ON s.id = i.shop GROUP BY s.name"


@pytest.fixture
def shops(story: Story) -> Story:
    story.table("shops", "id INT, name STRING", [(1, "a"), (2, "b"), (3, None), (4, "d")], key="id")
    rows = [(i, i % 3 + 1, 10 * i) for i in range(12)]
    story.table("items", "id INT, shop INT, v INT", rows, key="id")
    return story


def asked(stream: Stream) -> int:
    """Return how often the last refresh asked Spark for something."""
    assert stream.report is not None
    return stream.report.spark_jobs


def test_a_small_state_takes_fewer_questions_than_one_that_is_looked_up(shops: Story) -> None:
    small, large = shops.stream(TOTALS, "small"), shops.stream(TOTALS, "large")
    found, jobs, more_jobs = [], 0, 0
    for step in (
        "UPDATE items SET v = v + 1 WHERE id = 5",
        "UPDATE items SET shop = 4 WHERE id IN (1, 4)",
        "DELETE FROM items WHERE shop = 3",
        "UPDATE shops SET name = 'a' WHERE id = 2",
        "INSERT INTO items VALUES (20, 3, 7), (21, 1, NULL)",
    ):
        shops.change(step)
        found.append(small.refreshed())
        jobs += asked(small)
        with mock.patch.object(evaluate, "_SMALL_STATE", 1):
            assert large.refreshed() == found[-1]
        more_jobs += asked(large)
    assert found == [
        [(None, 261, 4), ("a", 180, 4), ("b", 220, 4)],
        [(None, 261, 4), ("a", 180, 4), ("b", 170, 2), ("d", 50, 2)],
        [("a", 180, 4), ("b", 170, 2), ("d", 50, 2)],
        [("a", 350, 6), ("d", 50, 2)],
        [(None, 7, 1), ("a", 350, 7), ("d", 50, 2)],
    ]
    assert jobs < more_jobs
    shops.verified()


@pytest.mark.parametrize("most", [0, 1_000])
def test_groups_without_a_change_are_not_read_again(shops: Story, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "_SMALL_STATE", most)
    shops.table("weights", "id INT, shop INT, v DOUBLE", [(1, 1, float("nan")), (2, 1, 1.0), (3, 2, 2.0), (4, 2, 6.0)])
    s = shops.stream(SPREAD.replace("items", "weights"))
    shops.change("INSERT INTO weights VALUES (5, 2, 4.0)")
    assert s.refreshed()[1] == ("b", 2.0)
    assert s.report is not None
    assert s.report.rescanned_groups == 0  # that of the NaN would be, if it changed
    shops.change("INSERT INTO weights VALUES (6, 1, 1.0), (7, 2, 4.0)")
    s.refreshed()
    assert s.report.rescanned_groups == 1
    shops.verified()


def test_rows_whose_answer_flips_are_chosen_without_asking_spark(shops: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    s = shops.stream("SELECT id FROM shops WHERE NOT EXISTS (SELECT 1 FROM items i WHERE i.shop = shops.id)")
    assert s.rows() == [(4,)]
    shops.change("UPDATE items SET shop = 4 WHERE shop = 1")
    assert s.refreshed() == [(1,)]
    shops.change("UPDATE items SET shop = 1 WHERE shop = 4")
    assert s.refreshed() == [(4,)]
    chosen = asked(s)
    monkeypatch.setattr(Places, "rows_where", lambda *_: None)
    shops.change("UPDATE items SET shop = 4 WHERE shop = 1")
    assert s.refreshed() == [(1,)]
    assert chosen < asked(s)
    shops.verified()
