"""A bank under two processes: transfers keep the total, counters count every acknowledged increment."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.support.children import session

import headwater as hw
from headwater.errors import BusyError, HeadwaterError

ACCOUNTS, COUNTERS, START = 20, 3, 1000
TOTAL = 2 * ACCOUNTS * START
STREAMS = {
    "by_branch": "SELECT id % 4 AS branch, count(*) AS n, sum(balance) AS total FROM accounts GROUP BY id % 4",
    "rich": "SELECT id, balance FROM vault WHERE balance > 1000",
}

KINDS = ("transfer", "both", "count", "note", "refresh", "read")


def create(wh: Any) -> None:
    """Make the tables with their first rows, and stream tables over them."""
    for name in ("accounts", "vault"):
        wh.create_table(name, "id BIGINT, balance BIGINT", primary_key="id")
        wh.insert(name, [{"id": i, "balance": START} for i in range(ACCOUNTS)])
    wh.create_table("counters", "id BIGINT, n BIGINT", primary_key="id")
    wh.insert("counters", [{"id": i, "n": 0} for i in range(COUNTERS)])
    wh.create_table("log", "who BIGINT, what BIGINT")
    for name, query in STREAMS.items():
        wh.create_stream_table(name, query)


def total(wh: Any) -> int:
    """Return all the money, from one consistent read of both tables."""
    text = "SELECT sum(balance) AS total FROM (SELECT balance FROM accounts UNION ALL SELECT balance FROM vault)"
    return int(wh.sql(text).collect()[0]["total"])


def worker(target: str, location: str | None, seed: int, seconds: float, result: str) -> None:
    """Do what bank clerks do, at random, for some seconds; write what was acknowledged to the file `result`.

    On a slow machine it takes longer: until each kind of statement succeeded.
    """
    rng = random.Random(seed)
    done: Counter[str] = Counter()
    busy: Counter[str] = Counter()
    increments = [0] * COUNTERS
    failures: list[str] = []
    with hw.connect(target, location=location, spark=session(), settings={"busy_timeout_seconds": 30}) as wh:
        total(wh)
        began = time.monotonic()
        while time.monotonic() - began < seconds or (len(done) < len(KINDS) and time.monotonic() - began < 180):
            kind = rng.choice(KINDS)
            number = rng.randrange(COUNTERS)
            try:
                _one(wh, kind, rng, number, seed)
            except BusyError:
                busy[kind] += 1
                continue
            except (HeadwaterError, AssertionError) as error:
                failures.append(f"{kind}: {error}")
                continue
            done[kind] += 1
            increments[number] += kind == "count"
        spent = time.monotonic() - began
    found = {"done": done, "busy": busy, "increments": increments, "failures": failures, "seconds": spent}
    Path(result).write_text(json.dumps(found))


def _one(wh: Any, kind: str, rng: random.Random, number: int, seed: int) -> None:
    one, other = rng.sample(range(ACCOUNTS), 2)
    amount = rng.randrange(1, 50)
    if kind == "transfer":
        sign = f"CASE WHEN id = {one} THEN -{amount} ELSE {amount} END"
        wh.sql(f"UPDATE accounts SET balance = balance + {sign} WHERE id IN ({one}, {other})")
    elif kind == "both":
        with wh.transaction():
            wh.sql(f"UPDATE accounts SET balance = balance - {amount} WHERE id = {one}")
            wh.sql(f"UPDATE vault SET balance = balance + {amount} WHERE id = {other}")
    elif kind == "count":
        wh.update("counters", set={"n": "n + 1"}, where=f"id = {number}")
    elif kind == "note":
        wh.insert("log", [{"who": seed, "what": amount}])
    elif kind == "refresh":
        wh.refresh(rng.choice(list(STREAMS)))
    else:
        found = total(wh)
        assert found == TOTAL, f"the total is {found}, not {TOTAL}"
