"""A load as data: each step says what it does to a warehouse, and what it does to a model of the warehouse.

The one who runs steps writes a journal: a line before each step and a line after it. Whoever reads the journal later knows what
must be there: the effects of every acknowledged step once, and those of a step without its second line whole or not at all.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headwater.errors import HeadwaterError

BRANCHES = ("north", "south", "east")

SETTINGS: dict[str, Any] = {
    # Small limits, so that few rows take every way there is: in the catalog, in files by pyarrow, in files by Spark.
    "inline_max_rows": 3,
    "arrow_max_rows": 20,
    "tail_max_files": 3,
    "vacuum_grace_seconds": 0,
    "retention_hours": 0,
    # Whoever checks after a crash lets them run out by itself (`crash.let_time_pass`).
    "lease_seconds": 300,
    "write_seconds": 3600,
}

TABLES = (
    "CREATE TABLE accounts (id BIGINT PRIMARY KEY, branch STRING, balance BIGINT)",
    "CREATE TABLE events (branch STRING, amount BIGINT)",
)

STREAMS = {
    "by_branch": ("SELECT branch, count(*) AS n, sum(balance) AS total FROM accounts GROUP BY branch", "DIFFERENTIAL"),
    "rich": ("SELECT id, balance FROM accounts WHERE balance > 120", "DIFFERENTIAL"),
    "large": ("SELECT branch, amount FROM events WHERE amount > 10", "DIFFERENTIAL"),
    "ranked": ("SELECT branch, amount, rank() OVER (PARTITION BY branch ORDER BY amount) AS r FROM events", "FULL"),
}

Contents = tuple[frozenset[tuple[int, str, int]], frozenset[tuple[tuple[str, int], int]]]


@dataclass(frozen=True)
class Model:
    """What the two managed tables hold: accounts by their key, events as a multiset."""

    accounts: dict[int, tuple[str, int]] = field(default_factory=dict)
    events: Counter[tuple[str, int]] = field(default_factory=Counter)

    def contents(self) -> Contents:
        accounts = frozenset((i, b, m) for i, (b, m) in self.accounts.items())
        return accounts, frozenset((+self.events).items())


@dataclass(frozen=True)
class Step:
    """One thing to do; `kind` names it in `KINDS`."""

    kind: str
    arguments: dict[str, Any] = field(default_factory=dict)

    def run(self, wh: Any) -> None:
        KINDS[self.kind][0](wh, **self.arguments)

    def applied(self, model: Model) -> Model:
        after = replace(model, accounts=dict(model.accounts), events=Counter(model.events))
        KINDS[self.kind][1](after, **self.arguments)
        return after


def step(kind: str, **arguments: Any) -> Step:
    assert kind in KINDS
    return Step(kind, arguments)


def _account(number: int) -> tuple[int, str, int]:
    return number, BRANCHES[number % 3], 100 + number % 7


def _rows(first: int, count: int) -> list[dict[str, Any]]:
    return [dict(zip(("id", "branch", "balance"), _account(i), strict=True)) for i in range(first, first + count)]


def _open_accounts(wh: Any, first: int, count: int) -> None:
    wh.insert("accounts", _rows(first, count))


def _opened(model: Model, first: int, count: int) -> None:
    for i in range(first, first + count):
        assert i not in model.accounts
        model.accounts[i] = _account(i)[1:]


def _reset(wh: Any, first: int, count: int) -> None:
    wh.upsert("accounts", _rows(first, count))


def _was_reset(model: Model, first: int, count: int) -> None:
    for i in range(first, first + count):
        model.accounts[i] = _account(i)[1:]


def _pay_interest(wh: Any, branch: str, amount: int) -> None:
    wh.update("accounts", set={"balance": f"balance + {amount}"}, where=f"branch = '{branch}'")


def _interest_paid(model: Model, branch: str, amount: int) -> None:
    for i, (b, m) in model.accounts.items():
        if b == branch:
            model.accounts[i] = (b, m + amount)


def _close_accounts(wh: Any, modulus: int, rest: int) -> None:
    wh.sql(f"DELETE FROM accounts WHERE id % {modulus} = {rest}")


def _closed(model: Model, modulus: int, rest: int) -> None:
    for i in [i for i in model.accounts if i % modulus == rest]:
        del model.accounts[i]


def _note(wh: Any, branch: str, amount: int, count: int) -> None:
    wh.insert("events", [{"branch": branch, "amount": amount}] * count)


def _noted(model: Model, branch: str, amount: int, count: int) -> None:
    model.events[branch, amount] += count


def _forget(wh: Any, amount: int) -> None:
    wh.delete("events", where=f"amount = {amount}")


def _forgotten(model: Model, amount: int) -> None:
    for key in [k for k in model.events if k[1] == amount]:
        del model.events[key]


def _pay(wh: Any, first: int, count: int, branch: str, amount: int) -> None:
    """Both tables in one transaction; the second statement of a table sees the first."""
    with wh.transaction():
        wh.sql(f"UPDATE accounts SET balance = balance - {amount} WHERE id >= {first} AND id < {first + count}")
        _note(wh, branch, amount, count)
        wh.sql(f"UPDATE events SET amount = amount + 1 WHERE branch = '{branch}' AND amount = {amount}")


def _paid(model: Model, first: int, count: int, branch: str, amount: int) -> None:
    for i in range(first, first + count):
        if i in model.accounts:
            b, m = model.accounts[i]
            model.accounts[i] = (b, m - amount)
    _noted(model, branch, amount, count)
    moved = model.events.pop((branch, amount))
    model.events[branch, amount + 1] += moved


def _create(wh: Any, name: str) -> None:
    query, mode = STREAMS[name]
    wh.sql(f"CREATE STREAM TABLE {name} REFRESH MODE {mode} AS {query}")


def _replace(wh: Any, name: str) -> None:
    query, mode = STREAMS[name]
    wh.sql(f"CREATE OR REPLACE STREAM TABLE {name} REFRESH MODE {mode} AS {query}")


def _same(model: Model, **_: Any) -> None:
    """Maintenance and refreshes leave the managed tables as they are."""


KINDS: dict[str, tuple[Callable[..., None], Callable[..., None]]] = {
    "open": (_open_accounts, _opened),
    "reset": (_reset, _was_reset),
    "interest": (_pay_interest, _interest_paid),
    "close": (_close_accounts, _closed),
    "note": (_note, _noted),
    "forget": (_forget, _forgotten),
    "pay": (_pay, _paid),
    "create": (_create, _same),
    "replace": (_replace, _same),
    "drop": (lambda wh, name: wh.drop_stream_table(name, cascade=True), _same),
    "refresh": (lambda wh, name=None, full=False: wh.refresh(name, full=full), _same),
    "compact": (lambda wh, name: wh.compact(name), _same),
    "vacuum": (lambda wh: wh.vacuum(), _same),
}


def random_steps(seed: int) -> Iterator[Step]:
    """Yield steps without end, the same for the same seed. Each is possible whatever came before."""
    rng = random.Random(seed)
    names = list(STREAMS)
    following = 1_000_000 * (seed + 1)
    while True:
        kind = rng.choices(
            ("open", "reset", "interest", "close", "note", "forget", "pay", "refresh", "all", "compact", "vacuum"),
            (5, 2, 4, 2, 5, 2, 5, 6, 2, 2, 1),
        )[0]
        branch, amount = rng.choice(BRANCHES), rng.randrange(1, 30)
        count = rng.choice((1, 2, 8, 40))
        first = following - rng.randrange(1, 40)
        if kind == "open":
            yield step("open", first=following, count=count)
            following += count
        elif kind == "reset":
            yield step("reset", first=first, count=count)
            following = max(following, first + count)
        elif kind == "interest":
            yield step("interest", branch=branch, amount=amount)
        elif kind == "close":
            yield step("close", modulus=rng.choice((5, 11)), rest=rng.randrange(5))
        elif kind == "note":
            yield step("note", branch=branch, amount=amount, count=count)
        elif kind == "forget":
            yield step("forget", amount=amount)
        elif kind == "pay":
            yield step("pay", first=first, count=count, branch=branch, amount=amount)
        elif kind == "refresh":
            yield step("refresh", name=rng.choice(names), full=rng.random() < 0.15)
        elif kind == "all":
            yield step("refresh")
        elif kind == "compact":
            yield step("compact", name=rng.choice(("accounts", "events", *names)))
        else:
            yield step("vacuum")


class Journal:
    """The record of what was tried and what was acknowledged. Survives its writer: each line is one write."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, **entry: Any) -> None:
        handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(handle, json.dumps(entry).encode() + b"\n")
        finally:
            os.close(handle)

    def entries(self) -> list[dict[str, Any]]:
        if not self._path.exists():
            return []
        return [json.loads(line) for line in self._path.read_text().splitlines()]

    def run(self, wh: Any, steps: Sequence[Step] | Iterator[Step], before: Callable[[Step], None]) -> None:
        """Run steps, each between its two lines; `before` is called after the first of them."""
        for one in steps:
            self.write(tried=one.kind, arguments=one.arguments)
            before(one)
            try:
                one.run(wh)
            except HeadwaterError as error:
                self.write(failed=str(error), code=error.code)
                raise
            self.write(done=one.kind)

    def outcome(self, model: Model) -> tuple[Model, Model]:
        """Return the model after all acknowledged steps, and after the one that was only tried as well (else the same)."""
        *_, before, after = self.states(model)
        return before, after

    def states(self, model: Model) -> list[Model]:
        """Return the model before the first step, after each acknowledged one, and after the one that was only tried (else the same)."""
        pending: Step | None = None
        passed = [model]
        for entry in self.entries():
            assert "failed" not in entry, entry["failed"]
            if "tried" in entry:
                pending = Step(entry["tried"], entry["arguments"])
            elif "done" in entry:
                assert pending is not None
                passed.append(pending.applied(passed[-1]))
                pending = None
        return [*passed, passed[-1] if pending is None else pending.applied(passed[-1])]

    def clear(self) -> None:
        self._path.unlink(missing_ok=True)
