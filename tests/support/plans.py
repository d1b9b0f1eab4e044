"""Physical plans of Spark, read back from their text: what was scanned, and what was sent around before the change had cut it down.

A plan is a tree of nodes with a name and a text. Two laws are checked on it:

    shuffles   No exchange sends rows of a large table that no change has reduced. A change reduces a table where it meets it in a
               join on a key whose result has no more rows of the table than match: inner, semi, or the null-supplying side of an
               outer join. A filter of the query does not reduce, and neither does a join with a small table.
    scans      No table is read twice in the same restricted form: same files, same columns, same filters.

What is a table and what is a change is told by the leaves: base files of a table in the warehouse are the table; rows from memory, of
the tail, from scratch files, or computed before are changes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

_LINE = re.compile(r"^((?:[: ]  )*)([:+]- )?(?:\*(?:\(\d+\))? )?(.*)$")
_HEADER = re.compile(r"== (\w+) Plan ==")
_PLAN_ID = re.compile(r"\[(?:plan_)?id=#?(\d+)\]")
_JOIN_TYPE = re.compile(r"\b(Inner|Cross|LeftOuter|RightOuter|FullOuter|LeftSemi|LeftAnti|LeftSingle|ExistenceJoin)\b")
_TABLE_FILE = re.compile(r"/data/([0-9a-f]{32})/base/")
_DATA_FILE = re.compile(r"/data/(?:[0-9a-f]{32}|scratch)/")
_ONLY_NOT_NULL = re.compile(r"\(*isnotnull\([^()]*\)\)*(?: AND \(*isnotnull\([^()]*\)\)*)*")
_EXPRESSION_ID = re.compile(r"#\d+L?")

SHUFFLES = ("Exchange",)
HASH_JOINS = ("BroadcastHashJoin", "ShuffledHashJoin", "SortMergeJoin")
ALL_PAIRS = ("BroadcastNestedLoopJoin", "CartesianProduct")
CUTTING = ("TakeOrderedAndProject", "LocalLimit", "GlobalLimit", "CollectLimit")
SMALL = ("Range", "ScanOneRowRelation", "OneRowRelation")


class UnknownPlanError(AssertionError):
    """A plan has a part that the laws do not know how to judge."""


@dataclass(frozen=True)
class Node:
    """A node of a plan. `inner` are plans inside it that are not its inputs: subqueries, and what a cache was made from."""

    name: str
    text: str
    children: tuple[Node, ...] = ()
    inner: tuple[Node, ...] = ()

    def walk(self) -> Iterator[Node]:
        """Yield this node and all below it, inner plans too."""
        yield self
        for node in (*self.inner, *self.children):
            yield from node.walk()


@dataclass(frozen=True, slots=True)
class Tables:
    """What is known about the tables of a warehouse: their names and the bytes of their base, by id; more than `limit` is large."""

    names: Mapping[str, str]
    bytes: Mapping[str, int]
    limit: int

    def is_large(self, table_id: str) -> bool:
        return self.bytes.get(table_id, 0) > self.limit

    def name(self, table_id: str) -> str:
        return self.names.get(table_id, table_id)


# reading --------------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Open:
    depth: int
    name: str
    text: str
    children: list[Node]
    inner: list[Node]


def parse(text: str) -> Node:
    """Read the text of a physical plan, as `executedPlan().toString()` gives it. Of an adaptive plan the final one counts."""
    stack: list[_Open] = []
    roots: list[Node] = []
    skipped: int | None = None

    def close() -> None:
        done = stack.pop()
        node = Node(done.name, done.text, tuple(done.children), tuple(done.inner))
        if not stack:
            roots.append(node)
        elif done.depth - stack[-1].depth > 1:
            stack[-1].inner.append(node)
        else:
            stack[-1].children.append(node)

    for line in text.splitlines():
        found = _LINE.match(line)
        assert found is not None
        prefix, marker, content = found.group(1), found.group(2) or "", found.group(3)
        depth = (len(prefix) + len(marker)) // 3
        header = _HEADER.fullmatch(content.strip())
        if skipped is not None and depth < skipped:
            skipped = None
        if header is not None:
            skipped = depth if header.group(1) == "Initial" else None
            continue
        if skipped is not None or not content.strip():
            continue
        while stack and stack[-1].depth >= depth:
            close()
        stack.append(_Open(depth, _name(content), content, [], []))
    while stack:
        close()
    if len(roots) != 1:
        raise UnknownPlanError(f"a plan with {len(roots)} roots:\n{text}")
    return roots[0]


def _name(content: str) -> str:
    if content.startswith("Scan "):  # Scan ExistingRDD, Scan OneRowRelation
        return "Scan" + content[5:].partition("[")[0].strip()
    found = re.match(r"[A-Za-z]+", content)
    return found.group() if found else content


# scans ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scan:
    """A scan of base files of a table, in a restricted form: which files, which columns, which filters."""

    table_id: str
    files: str
    columns: str
    filters: str


def scan_of(node: Node) -> Scan | None:
    """Return the scan of a table that a node is, None if it is something else."""
    if node.name not in ("FileScan", "BatchScan"):
        return None
    location = _field(node.text, "Location")
    found = _TABLE_FILE.search(location)
    if found is None:
        if not _DATA_FILE.search(location):
            raise UnknownPlanError(f"a scan of files that are not in the warehouse: {node.text}")
        return None
    filters = _EXPRESSION_ID.sub("", f"{_field(node.text, 'DataFilters')} {_field(node.text, 'PushedFilters')}")
    files = " ".join(sorted(location.partition("[")[2].rstrip("]").split(", ")))
    return Scan(found.group(1), files, _field(node.text, "ReadSchema"), filters)


def _field(text: str, name: str) -> str:
    """Return a field of a scan's text: `Location: ..., PartitionFilters: ...`."""
    found = re.search(rf"\b{name}: (.*?)(?:, (?:[A-Z][A-Za-z]+): |$)", text)
    return found.group(1) if found else ""


def repeated_scans(plans: Iterable[Node], tables: Tables) -> list[str]:
    """Say which tables are read more than once in the same form. What a cache was made from is read once, wherever it is used."""
    counted: Counter[Scan] = Counter()
    caches: set[str] = set()
    for plan in plans:
        for node in _computed(plan, caches):
            scan = scan_of(node)
            if scan is not None:
                counted[scan] += 1
    return [
        f"{tables.name(scan.table_id)} is read {times} times with columns {scan.columns} and filters {scan.filters}"
        for scan, times in counted.items()
        if times > 1
    ]


def _computed(node: Node, caches: set[str]) -> Iterator[Node]:
    yield node
    for inner in node.inner:
        if node.name == "InMemoryTableScan":
            made = "\n".join(n.text for n in inner.walk() if n.name != "InMemoryRelation")
            if made in caches:
                continue
            caches.add(made)
        yield from _computed(inner, caches)
    for child in node.children:
        yield from _computed(child, caches)


# shuffles -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Full:
    """A large table that no change has reduced yet; `filtered` by the query's own conditions or not."""

    table_id: str
    filtered: bool


@dataclass(frozen=True, slots=True)
class _Flow:
    """What comes out of a node: whether only rows that a change asks for, and which large tables are in it unreduced."""

    changed: bool
    full: frozenset[_Full]


_NOTHING = _Flow(changed=False, full=frozenset())
_CHANGE = _Flow(changed=True, full=frozenset())


def full_shuffles(plan: Node, tables: Tables) -> list[str]:
    """Say which exchanges of a plan send a large table around before a change has reduced it."""
    judge = _Judge(plan, tables)
    judge.flow(plan)
    for node in plan.walk():  # subqueries are plans of their own
        for inner in node.inner:
            judge.flow(inner)
    return judge.found


class _Judge:
    def __init__(self, plan: Node, tables: Tables) -> None:
        self._tables = tables
        self._flows: dict[int, _Flow] = {}
        self._exchanges = {
            match.group(1): node
            for node in plan.walk()
            if node.name.endswith("Exchange")
            and node.name != "ReusedExchange"
            and (match := _PLAN_ID.search(node.text))
        }
        self.found: list[str] = []

    def flow(self, node: Node) -> _Flow:
        """Return what comes out of `node`; each is judged once."""
        if id(node) not in self._flows:
            self._flows[id(node)] = self._flow(node)
        return self._flows[id(node)]

    def _flow(self, node: Node) -> _Flow:
        if node.name == "ReusedExchange":
            return self._reused(node)
        if node.name in ("InMemoryTableScan", "InMemoryRelation"):
            return self._together([self.flow(n) for n in (*node.inner, *node.children)])
        if not node.children:
            return self._leaf(node)
        inputs = [self.flow(c) for c in node.children]
        if node.name in HASH_JOINS:
            return self._hash_join(node, *inputs)
        if node.name in SHUFFLES:
            return self._sent(node, inputs[0], "shuffles", inputs[0].full)
        if node.name == "BroadcastExchange":
            return self._sent(node, inputs[0], "broadcasts", {f for f in inputs[0].full if not f.filtered})
        if node.name in CUTTING or _is_one_row(node):
            return replace(inputs[0], full=frozenset())
        if node.name == "Filter" and not _ONLY_NOT_NULL.fullmatch(node.text.removeprefix("Filter ")):
            return replace(inputs[0], full=frozenset(replace(f, filtered=True) for f in inputs[0].full))
        if node.name in ALL_PAIRS:
            return replace(self._together(inputs), changed=any(i.changed for i in inputs))
        return self._together(inputs)

    def _leaf(self, node: Node) -> _Flow:
        scan = scan_of(node)
        if scan is not None:
            if not self._tables.is_large(scan.table_id):
                return _NOTHING
            return _Flow(changed=False, full=frozenset({_Full(scan.table_id, filtered=False)}))
        if node.name in SMALL:
            return _NOTHING
        if node.name in ("FileScan", "BatchScan", "LocalTableScan", "EmptyRelation", "ScanExistingRDD", "RDDScan"):
            return _CHANGE
        if node.name in ("Subquery", "ReusedSubquery"):
            return _NOTHING
        raise UnknownPlanError(f"a leaf of a plan that is neither table nor change: {node.text}")

    def _reused(self, node: Node) -> _Flow:
        found = _PLAN_ID.search(node.text)
        if found is None or found.group(1) not in self._exchanges:
            raise UnknownPlanError(f"an exchange that is used again is nowhere in the plan: {node.text}")
        return self.flow(self._exchanges[found.group(1)])

    def _together(self, inputs: Sequence[_Flow]) -> _Flow:
        return _Flow(
            changed=bool(inputs) and all(i.changed for i in inputs),
            full=frozenset(f for i in inputs for f in i.full),
        )

    def _hash_join(self, node: Node, left: _Flow, right: _Flow) -> _Flow:
        found = _JOIN_TYPE.search(node.text)
        if found is None:
            raise UnknownPlanError(f"a join of no known type: {node.text}")
        if node.name == "SortMergeJoin" and (left.full or right.full):  # sorted all of it, even where nothing is sent
            self._blame(node, "sorts", left.full | right.full)
        nothing: frozenset[_Full] = frozenset()
        left_if_met = nothing if right.changed else left.full
        right_if_met = nothing if left.changed else right.full
        match found.group(1):
            case "Inner" | "Cross":
                return _Flow(left.changed or right.changed, left_if_met | right_if_met)
            case "LeftSemi":
                return _Flow(left.changed or right.changed, left_if_met)
            case "LeftAnti" | "ExistenceJoin":
                return left
            case "LeftOuter" | "LeftSingle":
                return _Flow(left.changed, left.full | right_if_met)
            case "RightOuter":
                return _Flow(right.changed, right.full | left_if_met)
            case _:
                return _Flow(left.changed and right.changed, left.full | right.full)

    def _sent(self, node: Node, flow: _Flow, verb: str, bad: Iterable[_Full]) -> _Flow:
        full = frozenset(bad)
        if full:
            self._blame(node, verb, full)
            return replace(flow, full=flow.full - full)  # said once
        return flow

    def _blame(self, node: Node, verb: str, full: Iterable[_Full]) -> None:
        names = ", ".join(sorted({self._tables.name(f.table_id) for f in full}))
        self.found.append(f"{verb} {names} before a change has reduced it: {_EXPRESSION_ID.sub('', node.text)[:160]}")


def _is_one_row(node: Node) -> bool:
    """Say whether a node computes one row per task: an aggregate without groups."""
    return node.name.endswith("Aggregate") and "keys=[]" in node.text
