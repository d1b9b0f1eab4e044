"""Verify says what is wrong, and calls nothing wrong that is not."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from tests.support.lab import Lab
from tests.support.tables import table_of

import headwater.refresh.verify
from headwater.model.commit import Commit
from headwater.warehouse import Warehouse


def tamper(wh: Warehouse, name: str, change: Callable[[Any], Any], where: str = "true") -> int:
    """Write other values of column `s` into a stream table, behind its back but with a right hash; return how many."""
    ground = wh._ground
    table = table_of(wh, name)
    names = ", ".join(f.name for f in table.schema.fields)
    with ground.engine.worker() as worker:
        source = ground.source(wh._catalog.snapshot(), table)
        rows = ground.reader.state(worker, source, wh.version).where(where).collect()
    with ground.engine.worker() as worker:
        frames = []
        for action in "DI":
            values = [{**r.asDict(), "s": r.s if action == "D" else change(r.s), "__action": action} for r in rows]
            schema = ", ".join([*(f"{f.name} {f.type}" for f in table.schema.fields), "__action STRING"])
            frames.append(worker.view(worker.session.createDataFrame([tuple(v.values()) for v in values], schema)))
        text = " UNION ALL ".join(f"SELECT {names}, __action FROM {v}" for v in frames)
        made = ground.writer.materialised(worker, worker.sql(text), table, 2 * len(rows))
    batch, ids = ground.writer.batch(made, table)
    wh._catalog.commit(Commit((batch,), unmoved={table.id: table.moved}, write_ids=ids))
    return len(rows)


def test_last_digits_of_many_rows_are_no_difference(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headwater.refresh.verify, "_COMPARED", 10)
    rows = [(i, i % 40, math.sqrt(i)) for i in range(200)]
    t = lab.table("id BIGINT, g INT, d DOUBLE", rows, key="id")
    s = lab.stream(f"SELECT g, sum(d) AS s FROM {t} GROUP BY g")
    assert tamper(lab.wh, s.name, lambda x: x * (1 + 1e-12)) == 40
    assert lab.wh.verify(s.name).equal
    assert tamper(lab.wh, s.name, lambda x: x * 1.001, "g = 7") == 1
    wrong = lab.wh.verify(s.name)
    assert (wrong.equal, wrong.missing, wrong.unexpected, wrong.hash_matches) == (False, 1, 1, True)
    assert all("g=7" in e for e in wrong.examples)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, None, 1e308])
def test_values_that_are_not_near(lab: Lab, value: float | None) -> None:
    t = lab.table("id BIGINT, g INT, d DOUBLE", [(1, 1, 1.5), (2, 1, -1e308)], key="id")
    s = lab.stream(f"SELECT id, d AS s FROM {t}")
    tamper(lab.wh, s.name, lambda _: value)
    assert (lab.wh.verify(s.name).missing, lab.wh.verify(s.name).unexpected) == (2, 2)


def test_rows_without_a_key_are_paired_one_to_one(lab: Lab) -> None:
    t = lab.table("a INT, s DOUBLE, u DOUBLE", [(1, 0.1, 2.0), (1, 0.1, 2.0), (1, 0.3, 1.0), (None, 0.3, math.nan)])
    s = lab.stream(f"SELECT a, s, u FROM {t}")
    tamper(lab.wh, s.name, lambda x: x * (1 + 1e-13))
    assert lab.wh.verify(s.name).equal
    tamper(lab.wh, s.name, lambda _: 0.3, "s < 0.2")
    assert (lab.wh.verify(s.name).missing, lab.wh.verify(s.name).unexpected) == (2, 2)


def test_exact_columns_are_compared_exactly(lab: Lab) -> None:
    t = lab.table(
        "id BIGINT, g INT, v DECIMAL(20, 10)", [(1, 1, Decimal("1.0000000001")), (2, 2, Decimal(5))], key="id"
    )
    s = lab.stream(f"SELECT g, sum(v) AS s FROM {t} GROUP BY g")
    tamper(lab.wh, s.name, lambda x: x + Decimal("1e-10"), "g = 1")
    wrong = lab.wh.verify(s.name)
    assert (wrong.missing, wrong.unexpected, wrong.tolerance) == (1, 1, 0.0)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT g, sum(d) AS s FROM {t} GROUP BY g",
        "SELECT g, avg(d) FILTER (WHERE d <> 7) AS s FROM {t} GROUP BY g",
        "SELECT s, g FROM (SELECT g, sum(d) AS s, count(*) AS n FROM {t} GROUP BY g HAVING count(*) > 1) WHERE n < 9",
    ],
)
def test_sums_are_compared_on_the_scale_of_what_was_summed(lab: Lab, query: str) -> None:
    """Which of 5.6e-17 and 2.8e-17 is 0.1 + 0.2 - 0.3 is decided by the order of additions alone."""
    rows = [(3 * g + i, g, x * g) for g in range(1, 5) for i, x in enumerate((0.1, 0.2, -0.3))]
    t = lab.table("id BIGINT, g INT, d DOUBLE", rows, key="id")
    s = lab.stream(query.format(t=t))
    assert tamper(lab.wh, s.name, lambda x: -x / 2) == 4
    assert lab.wh.verify(s.name).equal
    tamper(lab.wh, s.name, lambda x: x + 1e-8, "g = 2")
    wrong = lab.wh.verify(s.name)
    assert (wrong.missing, wrong.unexpected) == (1, 1)


def test_numbers_that_are_no_sums_are_compared_on_their_own_scale(lab: Lab) -> None:
    t = lab.table("id BIGINT, g INT, d DOUBLE", [(1, 1, 1e9), (2, 1, 1e-3), (3, 1, -1e9)], key="id")
    s = lab.stream(f"SELECT g, min(abs(d)) AS s, sum(d) AS total FROM {t} GROUP BY g")
    tamper(lab.wh, s.name, lambda x: x * 1.01)
    wrong = lab.wh.verify(s.name)
    assert (wrong.missing, wrong.unexpected) == (1, 1)
