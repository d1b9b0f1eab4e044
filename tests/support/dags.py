"""Random graphs of stream tables, and what happens to them.

Two managed tables are a bank: money is moved between their accounts in transactions, so all of it together is always the same. Stream
tables keep the sums of both sides; those that must appear together are a `Bank`, and whoever reads all of them in one statement has to
find all the money. The other managed tables change as they like. Every stream table has the columns k, n and v and can be read by others.

    Dag      the graph to be made                  `random_dag(seed, size)`
    Round    what happens before and during a tick `random_rounds(dag)`, without end

Everything that is random is in here: a seed, and how many rounds of it are played, is a whole run. `tests/soak_dags.py` plays it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, assert_never

from headwater.schedule.workers import Inline, Pool, Spawned, Workers

LEFT, RIGHT = "checking", "savings"
ACCOUNTS, MONEY, KEYS = 12, 100, 6
TOTAL = 2 * ACCOUNTS * MONEY
COLUMNS = "id BIGINT, k BIGINT, n BIGINT, v BIGINT"
FUSE_CEILING = 40

CREWS: dict[str, Callable[[], Workers]] = {"inline": Inline, "spawned": lambda: Spawned(3), "pool": lambda: Pool(3)}


# what is made ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Node:
    """A stream table."""

    name: str
    query: str
    sources: tuple[str, ...]
    schedule: str
    mode: str
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Share:
    """What a stream table says of the money: what of its rows adds up to the left and to the right side."""

    table: str
    left: str | None = None
    right: str | None = None


@dataclass(frozen=True)
class Bank:
    """Stream tables that appear together: read in one statement they agree about each side, and both sides are all the money."""

    shares: tuple[Share, ...]
    money: int = TOTAL

    @property
    def sql(self) -> str:
        parts = []
        for i, share in enumerate(self.shares):
            left, right = (f"coalesce(sum({x}), 0)" if x else "NULL" for x in (share.left, share.right))
            parts.append(f"(SELECT CAST({left} AS BIGINT) AS l{i}, CAST({right} AS BIGINT) AS r{i} FROM {share.table})")
        return f"SELECT * FROM {' CROSS JOIN '.join(parts)}"

    def fault(self, row: Any) -> str | None:
        """Return what is wrong with the one row that the statement found."""
        sides = [{row[f"{s}{i}"] for i in range(len(self.shares))} - {None} for s in "lr"]
        if any(len(found) > 1 for found in sides):
            return f"tables that appear together disagree: {row}: {self.sql}"
        total = sum(found.pop() for found in sides if found)
        return None if total == self.money else f"there is {total} instead of {self.money}: {row}: {self.sql}"


@dataclass(frozen=True)
class Dag:
    """Managed tables, stream tables with those first that others read, and which of them belong together."""

    seed: int
    free: tuple[str, ...]
    nodes: tuple[Node, ...]
    banks: tuple[Bank, ...]
    groups: tuple[tuple[str, tuple[str, ...]], ...]
    ordered: frozenset[str] = frozenset()
    """Stream tables of which nobody stops or refreshes one alone: they are right only as long as each finds the others fresh."""

    @property
    def free_to_stop(self) -> tuple[str, ...]:
        """The stream tables that operators may do anything to."""
        return tuple(n.name for n in self.nodes if n.name not in self.ordered)

    @property
    def free_to_gate(self) -> tuple[str, ...]:
        return self.free if self.ordered else self.managed

    @property
    def managed(self) -> tuple[str, ...]:
        return (LEFT, RIGHT, *self.free)

    @property
    def money(self) -> frozenset[str]:
        """The stream tables that somebody counts money in."""
        return frozenset(s.table for b in self.banks for s in b.shares)


ONE_INPUT = (
    "SELECT k, n, v FROM {a} WHERE pmod(k, 3) <> 1",
    "SELECT k, n + 1 AS n, v - n AS v FROM {a} WHERE v > -1000",
    "SELECT k, count(*) AS n, sum(v) AS v FROM {a} GROUP BY k",
    "SELECT pmod(k, 3) AS k, max(n) AS n, min(v) AS v FROM {a} GROUP BY pmod(k, 3)",
    "SELECT k, count(DISTINCT n) AS n, max(v) AS v FROM {a} GROUP BY k HAVING count(*) > 1",
    "SELECT DISTINCT k, n, CAST(0 AS BIGINT) AS v FROM {a}",
    "SELECT CAST(0 AS BIGINT) AS k, count(*) AS n, coalesce(sum(v), 0) AS v FROM {a}",
    "SELECT k, n, v FROM {a} ORDER BY v DESC, k, n LIMIT 5",
)
TWO_INPUTS = (
    "SELECT a.k AS k, count(*) AS n, sum(a.v + b.v) AS v FROM {a} a JOIN {b} b ON a.k = b.k GROUP BY a.k",
    "SELECT a.k AS k, a.n AS n, b.v AS v FROM {a} a LEFT JOIN (SELECT k, max(v) AS v FROM {b} GROUP BY k) b ON a.k = b.k",
    "SELECT k, n, v FROM {a} a WHERE EXISTS (SELECT 1 FROM {b} b WHERE b.k = a.k AND b.n > 2)",
    "SELECT k, n, v FROM {a} a WHERE NOT EXISTS (SELECT 1 FROM {b} b WHERE b.k = a.k AND b.v > 100)",
    "SELECT k, sum(n) AS n, sum(v) AS v FROM (SELECT k, n, v FROM {a} UNION ALL SELECT k, n, v FROM {b}) GROUP BY k",
    "SELECT k, n, v FROM {a} UNION SELECT k, n, v FROM {b}",
)
FRAGILE = "SELECT k, 100 DIV n AS n, v FROM {a}"
"""Fails while there is a zero."""
SUM = "SELECT k, count(*) AS n, sum(v) AS v FROM {a} GROUP BY k"
MEETING = "SELECT coalesce(l.k, r.k) AS k, coalesce(l.v, 0) AS n, coalesce(r.v, 0) AS v FROM {a} l FULL JOIN {b} r ON l.k = r.k"
BOTH = "SELECT k, CAST(0 AS BIGINT) AS n, v FROM {a} UNION ALL SELECT k, CAST(1 AS BIGINT) AS n, v FROM {b}"
SIDES = (
    "SELECT k, sum(l) AS n, sum(r) AS v FROM "
    "(SELECT k, v AS l, CAST(0 AS BIGINT) AS r FROM {a} UNION ALL SELECT k, CAST(0 AS BIGINT) AS l, v AS r FROM {b}) GROUP BY k"
)
SCHEDULES = {"1s": 25, "5s": 20, "30s": 15, "2m": 8, "calculated": 25, "manual": 5, "*/1 * * * *": 2}
MODES = {"AUTO": 50, "DIFFERENTIAL": 35, "FULL": 15}
TIERS = {"hot": 70, "warm": 15, "cold": 10, "frozen": 5}
SHAPES = ("ledger", "shared", "group", "uneven", "moment")


def random_dag(seed: int, size: int) -> Dag:
    """Return the graph of a seed with `size` stream tables."""
    maker = _Maker(seed)
    shapes = maker.rng.sample(SHAPES, 1 if size < 15 else 2 if size < 25 else 3)
    for i, shape in enumerate(shapes):
        maker.bank(f"b{i}", shape)
    while len(maker.nodes) < size:
        maker.ordinary()
    maker.group_ordinary()
    found = tuple(maker.nodes), tuple(maker.banks), tuple(maker.groups), frozenset(maker.ordered)
    return Dag(seed, maker.free, *found)


class _Maker:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"dag {seed}")
        self.free = tuple(f"s{i}" for i in range(self.rng.randint(1, 3)))
        self.nodes: list[Node] = []
        self.banks: list[Bank] = []
        self.groups: list[tuple[str, tuple[str, ...]]] = []
        self.ordered: list[str] = []

    def _chosen(self, weights: dict[str, int]) -> str:
        return self.rng.choices(list(weights), list(weights.values()))[0]

    def add(self, name: str, query: str, *sources: str, **options: Any) -> str:
        given = dict(zip("ab", sources, strict=False))
        tier = self._chosen(TIERS)
        if tier != "hot":
            options["tier"] = tier
        if self.rng.random() < 0.15:
            options |= {"fuse_mode": "on", "fuse_ceiling": FUSE_CEILING}
        if self.rng.random() < 0.1:
            options["sla"] = "20s"
        if self.rng.random() < 0.05:
            options["diamond_schedule_policy"] = "slowest"
        schedule, mode = self._chosen(SCHEDULES), self._chosen(MODES)
        self.nodes.append(Node(name, query.format(**given), sources, schedule, mode, tuple(sorted(options.items()))))
        return name

    # banks ------------------------------------------------------------------------------------------------------------------

    def bank(self, name: str, shape: str) -> None:
        """Add stream tables that keep the sums of both sides, in a way that makes them appear together."""
        shares: list[Share] = []
        if shape == "moment":
            self._bank_of_a_moment(name)
            return
        if shape == "ledger":  # everything comes out of one stream table
            ledger = self.add(f"{name}_ledger", BOTH, LEFT, RIGHT)
            self.banks.append(Bank((_both_sides(ledger),)))
            left = self._stages(f"{name}_left", ledger, "n = 0")
            right = self._stages(f"{name}_right", ledger, "n = 1")
        elif shape == "shared":  # the sides have nothing in common but a table that says nothing of money
            query = (
                "SELECT a.k AS k, max(b.n) AS n, sum(a.v) AS v FROM {a} a LEFT JOIN {b} b ON b.id = a.k GROUP BY a.k"
            )
            left = [self.add(f"{name}_left", query, LEFT, self.free[0])]
            right = [self.add(f"{name}_right", query, RIGHT, self.free[0])]
        elif shape == "group":  # only somebody's word holds them together
            left = self._stages(f"{name}_left", LEFT, "v <> 0")
            right = self._stages(f"{name}_right", RIGHT, "v <> 0")
        else:  # one side on a detour
            ledger = self.add(f"{name}_ledger", BOTH, LEFT, RIGHT)
            shares.append(_both_sides(ledger))
            left = self._stages(f"{name}_left", ledger, "n = 0")
            right = self._stages(f"{name}_right", RIGHT, "v <> 0")
        shares += [Share(t, left="v") for t in left] + [Share(t, right="v") for t in right]
        members = [s.table for s in shares]
        if shape != "group" or self.rng.random() < 0.5:
            meeting = self.add(f"{name}_meet", MEETING, left[-1], right[-1])
            shares.append(Share(meeting, left="n", right="v"))
            members.append(meeting)
            if self.rng.random() < 0.5:
                below = self.add(
                    f"{name}_all", "SELECT CAST(0 AS BIGINT) AS k, sum(n) AS n, sum(v) AS v FROM {a}", meeting
                )
                self.banks.append(Bank((Share(below, left="n", right="v"),)))
        if shape == "group":
            self.groups.append((f"{name}_group", tuple(members)))
        self.banks.append(Bank(tuple(shares)))

    def _bank_of_a_moment(self, name: str) -> None:
        """Add one side that is refreshed just before what reads it together with the other side, each in a commit of its own."""
        left, both, beside = f"{name}_left", f"{name}_both", f"{name}_beside"
        schedule = self.rng.choice(("1s", "5s", "30s"))
        self.nodes.append(Node(left, SUM.format(a=LEFT), (LEFT,), "calculated", self._chosen(MODES)))
        self.nodes.append(Node(both, SIDES.format(a=left, b=RIGHT), (left, RIGHT), schedule, self._chosen(MODES)))
        self.nodes.append(Node(beside, ONE_INPUT[0].format(a=left), (left,), "1s", "AUTO"))
        self.banks.append(Bank((Share(both, left="n", right="v"),)))
        self.ordered += [left, both, beside]

    def _stages(self, name: str, source: str, where: str) -> list[str]:
        """Add the sum of a side, sometimes with a stream table before it; return what was added."""
        if self.rng.random() < 0.5:
            return [self.add(name, SUM.replace(" GROUP", f" WHERE {where} GROUP"), source)]
        first = self.add(f"{name}_rows", f"SELECT k, n, v FROM {{a}} WHERE {where}", source)
        return [first, self.add(name, SUM, first)]

    # the others -------------------------------------------------------------------------------------------------------------

    def ordinary(self) -> None:
        """Add a stream table that reads one or two others, near or far."""
        name = f"n{len(self.nodes)}"
        streams = [n.name for n in self.nodes if n.name not in self.ordered]
        rows = [*self.free, LEFT, RIGHT]
        if self.rng.random() < 0.6:  # apart from banks, so that not everything is one group
            others = [s for s in streams if s.startswith("n")]
            streams = others if len(others) > 2 else streams
        loose = {} if self.rng.random() < 0.4 else {"diamond_consistency": "none"}
        way = self.rng.choice(("chain", "wide", "diamond", "any", "fragile"))
        if way == "fragile" and not any("DIV" in n.query for n in self.nodes):
            self.add(name, FRAGILE, self.free[0])
        elif way == "chain" and streams:
            self.add(name, self.rng.choice(ONE_INPUT), streams[-1])
        elif way == "wide":
            self.add(name, self.rng.choice(ONE_INPUT), self.rng.choice(rows))
        else:
            one, other = self.rng.sample(streams if way == "diamond" and len(streams) > 1 else [*rows, *streams], 2)
            self.add(name, self.rng.choice(TWO_INPUTS), one, other, **loose)

    def group_ordinary(self) -> None:
        """Bring some stream tables together that have nothing to do with each other."""
        taken = {m for _, members in self.groups for m in members}
        left = [n.name for n in self.nodes if n.name.startswith("n") and n.name not in taken]
        for i in range(len(left) // 8 + (self.rng.random() < 0.5)):
            if len(left) >= 2:
                pair = tuple(self.rng.sample(left, 2))
                left = [n for n in left if n not in pair]
                self.groups.append((f"g{i}", pair))


def _both_sides(ledger: str) -> Share:
    return Share(ledger, left="CASE WHEN n = 0 THEN v END", right="CASE WHEN n = 1 THEN v END")


def rows_of(rng: random.Random, first: int, count: int) -> str:
    """Return rows for a free table."""
    rows = (
        f"({i}, {rng.randrange(KEYS)}, {rng.randint(1, 9)}, {rng.randrange(500)})" for i in range(first, first + count)
    )
    return ", ".join(rows)


# what happens ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """Statements that are one transaction."""

    texts: tuple[str, ...]


class Verb(Enum):
    """What operators say."""

    PAUSE = "pause"
    RESUME = "resume"
    PAUSE_ALL = "pause all"
    RESUME_ALL = "resume all"
    DRAIN = "drain"
    UNDRAIN = "undrain"
    GATE = "gate"
    UNGATE = "ungate"
    TIER = "tier"
    SCHEDULE = "schedule"
    REFRESH = "refresh"
    RESET_FUSES = "reset fuses"
    RESUME_SUSPENDED = "resume suspended"


@dataclass(frozen=True)
class Control:
    """Something that an operator says, of some tables."""

    verb: Verb
    names: tuple[str, ...] = ()
    value: str = ""


class Harm(Enum):
    """What happens to a refresh in a worker."""

    ERROR = "the disk fails before it computes"
    LATE = "the disk fails after it computed"
    BUG = "our code fails"
    CANCEL = "somebody cancels what runs"
    DEATH = "its thread dies"
    LOST = "the answer to its commit is lost"


@dataclass(frozen=True)
class Strike:
    """Harm done to the next refresh of a stream table in a tick."""

    table: str
    harm: Harm


@dataclass(frozen=True)
class Kill:
    """A process of its own ticks, and dies before or after the n-th call of a function."""

    function: str
    when: str
    nth: int


@dataclass(frozen=True)
class Round:
    """What happens between two ticks, how much later the second one is, and what somebody changes while it runs."""

    actions: tuple[Change | Control | Strike | Kill, ...]
    seconds: float
    meanwhile: tuple[Change | Control, ...]
    verify: str


POINTS = (
    ("headwater.refresh.computing:Computer.computed", "before"),
    ("headwater.refresh.computing:Computer.computed", "after"),
    ("headwater.catalog.catalog:Catalog.commit", "before"),
    ("headwater.catalog.committing:Committer._publish", "after"),
    ("headwater.catalog.catalog:Catalog.commit", "after"),
)


def random_rounds(dag: Dag, *, kills: float = 0.0) -> Iterator[Round]:
    """Return rounds without end, the same for the same graph. Each is possible whatever became of those before it."""
    events = _Events(dag)
    rng = events.rng
    while True:
        actions: list[Change | Control | Strike | Kill] = [events.change() for _ in range(rng.randint(1, 3))]
        if rng.random() < 0.65:
            actions.append(events.control())
        if rng.random() < 0.25:
            actions.append(Strike(rng.choice(dag.nodes).name, rng.choice(list(Harm))))
        if rng.random() < kills:
            function, when = rng.choice(POINTS)
            actions.append(Kill(function, when, rng.randint(1, 5)))
        meanwhile: list[Change | Control] = [events.transfer() for _ in range(rng.choice((0, 1, 1, 2)))]
        if rng.random() < 0.3:
            meanwhile.append(events.meanwhile())
        seconds = rng.choice((1, 2, 5, 10, 30, 60))
        yield Round(tuple(actions), seconds, tuple(meanwhile), rng.choice(dag.nodes).name)


class _Events:
    """Makes changes and commands. Remembers what was said, to take it back some time."""

    def __init__(self, dag: Dag) -> None:
        self.rng = random.Random(f"rounds {dag.seed}")
        self._dag = dag
        self._following = 1_000
        self._said: list[Control] = []

    # changes ----------------------------------------------------------------------------------------------------------------

    def change(self) -> Change:
        made = self.rng.choices(
            (self.transfer, self._bank_change, self._insert, self._update, self._delete, self._flood, self._poison),
            (40, 12, 20, 12, 10, 4, 2),
        )[0]
        return made()

    def transfer(self) -> Change:
        """Move money from one side to the other, or within one."""
        one, other = self.rng.randrange(ACCOUNTS), self.rng.randrange(ACCOUNTS)
        source, target = self.rng.choice(((LEFT, RIGHT), (RIGHT, LEFT), (LEFT, LEFT)))
        amount = self.rng.randint(1, 60)
        return Change(
            (
                f"UPDATE {source} SET v = v - {amount} WHERE id = {one}",
                f"UPDATE {target} SET v = v + {amount} WHERE id = {other}",
            )
        )

    def _bank_change(self) -> Change:
        """Change what is not money: accounts are opened, closed, and moved to another branch."""
        table = self.rng.choice((LEFT, RIGHT))
        text = self.rng.choice(
            (
                f"INSERT INTO {table} VALUES ({self._next(1)}, {self.rng.randrange(KEYS)}, 1, 0)",
                f"DELETE FROM {table} WHERE v = 0 AND id >= 1000",
                f"UPDATE {table} SET k = pmod(k + 1, {KEYS}) WHERE pmod(id, 4) = {self.rng.randrange(4)}",
                f"UPDATE {table} SET n = n + 1 WHERE k = {self.rng.randrange(KEYS)}",
            )
        )
        return Change((text,))

    def _insert(self) -> Change:
        count = self.rng.randint(1, 6)
        return Change((f"INSERT INTO {self._free()} VALUES {rows_of(self.rng, self._next(count), count)}",))

    def _flood(self) -> Change:
        """Change more than a fuse lets through."""
        count = FUSE_CEILING + 5
        return Change((f"INSERT INTO {self._free()} VALUES {rows_of(self.rng, self._next(count), count)}",))

    def _update(self) -> Change:
        k = self.rng.randrange(KEYS)
        return Change(
            (f"UPDATE {self._free()} SET v = v + {self.rng.randint(1, 20)}, n = 1 + pmod(n, 9) WHERE k = {k}",)
        )

    def _delete(self) -> Change:
        return Change((f"DELETE FROM {self._free()} WHERE pmod(id, 7) = {self.rng.randrange(7)}",))

    def _poison(self) -> Change:
        return Change((f"UPDATE {self._dag.free[0]} SET n = 0 WHERE pmod(id, 5) = {self.rng.randrange(5)}",))

    def _free(self) -> str:
        return self.rng.choice(self._dag.free)

    def _next(self, count: int) -> int:
        self._following += count
        return self._following - count

    # commands ---------------------------------------------------------------------------------------------------------------

    def control(self) -> Control:
        if self._said and self.rng.random() < 0.6:
            return _taken_back(self._said.pop(self.rng.randrange(len(self._said))))
        names = self._dag.free_to_stop
        verb = self.rng.choices(
            (
                Verb.PAUSE,
                Verb.PAUSE_ALL,
                Verb.DRAIN,
                Verb.GATE,
                Verb.TIER,
                Verb.SCHEDULE,
                Verb.REFRESH,
                Verb.RESET_FUSES,
            ),
            (25, 2, 2, 20, 12, 13, 16, 10),
        )[0]
        made = Control(verb)
        if verb is Verb.PAUSE:
            made = Control(verb, tuple(self.rng.sample(names, self.rng.randint(1, 3))))
        elif verb is Verb.GATE:
            made = Control(verb, (self.rng.choice(self._dag.free_to_gate),))
        elif verb is Verb.TIER:
            made = Control(verb, (self.rng.choice(names),), self.rng.choice(("frozen", "warm", "cold")))
        elif verb is Verb.SCHEDULE:
            made = Control(verb, (self.rng.choice(names),), self._chosen_schedule())
        elif verb is Verb.REFRESH:
            made = Control(verb, (self.rng.choice(names),))
        elif verb is Verb.RESET_FUSES:
            made = Control(self.rng.choice((verb, Verb.RESUME_SUSPENDED)), (), self.rng.choice(FUSE_ACTIONS))
        if _taken_back(made) is not made:
            self._said.append(made)
        return made

    def meanwhile(self) -> Control:
        """Say something while a tick runs."""
        made = Control(
            self.rng.choice((Verb.REFRESH, Verb.REFRESH, Verb.PAUSE)), (self.rng.choice(self._dag.free_to_stop),)
        )
        if made.verb is Verb.PAUSE:
            self._said.append(made)
        return made

    def _chosen_schedule(self) -> str:
        return self.rng.choices(list(SCHEDULES), list(SCHEDULES.values()))[0]


FUSE_ACTIONS = ("apply", "reinitialize", "skip_changes")


def _taken_back(control: Control) -> Control:
    """Return what ends a command; the command itself where nothing has to."""
    match control.verb:
        case Verb.PAUSE:
            return Control(Verb.RESUME, control.names)
        case Verb.PAUSE_ALL:
            return Control(Verb.RESUME_ALL)
        case Verb.DRAIN:
            return Control(Verb.UNDRAIN)
        case Verb.GATE:
            return Control(Verb.UNGATE, control.names)
        case Verb.TIER:
            return Control(Verb.TIER, control.names, "hot")
        case (
            Verb.RESUME
            | Verb.RESUME_ALL
            | Verb.UNDRAIN
            | Verb.UNGATE
            | Verb.SCHEDULE
            | Verb.REFRESH
            | Verb.RESET_FUSES
            | Verb.RESUME_SUSPENDED
        ):
            return control
        case _:
            assert_never(control.verb)


# what must hold -------------------------------------------------------------------------------------------------------------


class WrongStateError(AssertionError):
    """Somebody could see what never was, or something was done that must not be."""


def require(holds: bool, text: str) -> None:
    if not holds:
        raise WrongStateError(text)


def check_history(wh: Any, but: Collection[str] = ()) -> Counter[str]:
    """Check that each refresh went on where the last one had ended: nothing was done twice, nothing left out.

    Return how often each stream table was refreshed. Of those in `but` changes were left out on request.
    """
    snapshot = wh.snapshot()
    counts: Counter[str] = Counter()
    for table_id in snapshot.streams:
        name = snapshot.tables[table_id].name
        records = [r for r in reversed(wh._catalog.history(table_id, 100_000)) if r.status == "COMPLETED"]
        counts[name] = len(records)
        if name in but:
            continue
        at: int | None = None
        for record in records:
            require(record.frontier_from == at, f"{name} was refreshed from {record.frontier_from} on, not from {at}")
            is_new = at is None or (record.frontier_to or 0) > at or record.reason == "asked for"
            require(is_new, f"{name} was refreshed to {record.frontier_to} twice")
            at = record.frontier_to
    return counts
