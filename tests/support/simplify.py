"""Making a failing composition small: leave out steps, changes and rows, and simplify the query, as long as it still fails.

A part of the query is replaced by what is below it, with columns of the same names and types put over it: so whatever stands
above still makes sense. What does not resolve is not tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from tests.support.compositions import Composition
from tests.support.dialects import spark_text
from tests.support.generate import Insert, Upsert
from tests.support.histories import Change, Together
from tests.support.relations import (
    Aggregate,
    Call,
    Explode,
    Expression,
    Item,
    Join,
    Lit,
    Node,
    Over,
    Pivot,
    Project,
    Recursive,
    Ref,
    Relation,
    Scalar,
    Scan,
    Shared,
    TopK,
    UnresolvedError,
    Values,
    Window,
    With,
    pieces,
    rebuilt,
    relations_in,
    require_resolved,
    walked,
)
from tests.support.values import Column, Row

Fails = Callable[[Composition], bool]
T = TypeVar("T")


def shrunk(composition: Composition, fails: Fails, *, tries: int = 150) -> Composition:
    """Return a smaller composition that still fails, found in at most so many runs."""
    return _Shrinking(composition, fails, tries).run()


class _Shrinking:
    def __init__(self, composition: Composition, fails: Fails, tries: int) -> None:
        self.best = composition
        self.fails = fails
        self.left = tries

    def run(self) -> Composition:
        before = None
        while before != self.best and self.left > 0:
            before = self.best
            self._steps()
            self._query()
            self._changes()
            self._rows()
        return self.best

    def _attempt(self, candidate: Composition) -> bool:
        if self.left <= 0 or candidate == self.best:
            return False
        self.left -= 1
        if not self.fails(candidate):
            return False
        self.best = candidate
        return True

    def _fewer(self, items: Sequence[T], rebuilt_with: Callable[[tuple[T, ...]], Composition]) -> None:
        """Leave out items: half of them at once, then fewer, then one by one."""
        kept = list(items)
        size = len(kept)
        while size >= 1 and kept and self.left > 0:
            start = 0
            while start < len(kept):
                rest = kept[:start] + kept[start + size :]
                if self._attempt(rebuilt_with(tuple(rest))):
                    kept = rest
                else:
                    start += size
            size //= 2

    def _steps(self) -> None:
        self._fewer(self.best.steps, lambda kept: replace(self.best, steps=kept))

    def _changes(self) -> None:
        for number, step in enumerate(self.best.steps):
            opened = [p for c in step for p in (c.parts if isinstance(c, Together) else (c,))]
            self._attempt(self._with_step(number, tuple(opened)))
            self._fewer(self.best.steps[number], partial(self._with_step, number))
            for place, change in enumerate(self.best.steps[number]):
                if isinstance(change, Insert | Upsert):
                    self._fewer(change.rows, partial(self._with_inserted, number, place))

    def _with_step(self, number: int, step: tuple[Change, ...]) -> Composition:
        steps = self.best.steps
        return replace(self.best, steps=(*steps[:number], step, *steps[number + 1 :]))

    def _with_inserted(self, number: int, place: int, rows: tuple[Row, ...]) -> Composition:
        step = self.best.steps[number]
        change = step[place]
        assert isinstance(change, Insert | Upsert)
        return self._with_step(number, (*step[:place], replace(change, rows=rows), *step[place + 1 :]))

    def _with_rows(self, name: str, rows: tuple[Row, ...]) -> Composition:
        return replace(self.best, rows={**self.best.rows, name: rows})

    def _rows(self) -> None:
        for name, rows in self.best.rows.items():
            self._fewer(rows, partial(self._with_rows, name))

    def _query(self) -> None:
        while self.best.query is not None and self.left > 0:
            if not any(self._attempt(self.best.with_query(q)) for q in smaller_queries(self.best.query)):
                return


# queries --------------------------------------------------------------------------------------------------------------------


def smaller_queries(query: Relation) -> Iterator[Relation]:
    """Yield queries that are a step simpler, the largest steps first."""
    seen = {query}
    weight = _weight(query)
    inputs = [p for _, p in pieces(query) if isinstance(p, Relation)]
    for candidate in (*inputs, *_smaller(query)):
        if candidate not in seen and _resolves(candidate) and _weight(candidate) < weight:
            seen.add(candidate)
            yield candidate


def _resolves(query: Relation) -> bool:
    try:
        require_resolved(query)
    except UnresolvedError:
        return False
    return True


def _weight(query: Relation) -> tuple[int, int]:
    nodes = [n for n in walked(query) if isinstance(n, Relation)]
    return sum(1 if isinstance(n, Project | Scan) else 3 for n in nodes), len(spark_text(query))


_KEPT = {Aggregate: ("calls", "having"), Over: ("call",), Pivot: ("call",), TopK: ("order",), Recursive: ("step",)}
"""Fields that stay as they are: an aggregate cannot be replaced by its argument, and without its bound a recursion has no end."""


def _smaller(node: Any) -> Iterator[Any]:
    """Yield what may stand for a node: parts of it, or itself with one part made smaller."""
    if isinstance(node, Relation):
        yield from _replacements(node)
        yield from _without_parts(node)
    elif isinstance(node, Expression):
        yield from _simpler(node)
    for path, piece in pieces(node):
        if path[0] not in _KEPT.get(type(node), ()):
            made = _smaller(piece)
            yield from (rebuilt(node, path, m) for m in made if not isinstance(node, Scalar) or _has_one_row(m))


def _has_one_row(query: Relation) -> bool:
    return isinstance(query, Aggregate) and not query.groups


def _replacements(node: Relation) -> Iterator[Relation]:
    """Yield relations from below with the columns of this one: tables first, then the inputs."""
    if isinstance(node, Scan | Shared | Values):
        return
    leaves = [r for r in relations_in(node) if isinstance(r, Scan)]
    inputs = [p for _, p in pieces(node) if isinstance(p, Relation)]
    for below in (*leaves, *inputs):
        yield standing_in(below, node.columns)
    if isinstance(node, With):
        yield _inlined(node.main, node)


def standing_in(relation: Relation, columns: Sequence[Column]) -> Relation:
    """Return a relation that has these columns: its own where the types agree, else NULL."""
    if relation.columns == tuple(columns):
        return relation
    return Project(relation, tuple(Item(c.name, _taken(relation, c)) for c in columns))


def _taken(relation: Relation, wanted: Column) -> Ref | Lit:
    alike = [c for c in relation.columns if c.tag == wanted.tag]
    chosen = next((c for c in alike if c.name == wanted.name), alike[0] if alike else None)
    return Lit(None, wanted.tag) if chosen is None else Ref(chosen.name, chosen.tag)


def _inlined(node: Any, shared: With) -> Any:
    """Return a tree with the body of a `With` in place of every reference to it."""
    if isinstance(node, Shared) and node.name == shared.name:
        renamed = zip(node.columns, shared.body.columns, strict=True)
        return Project(shared.body, tuple(Item(new.name, Ref(old.name, old.tag)) for new, old in renamed))
    for path, piece in pieces(node):
        node = rebuilt(node, path, _inlined(piece, shared))
    return node


def _without_parts(node: Relation) -> Iterator[Relation]:
    match node:
        case Project() | Window():
            yield from (replace(node, items=rest) for rest in _one_less(node.items) if rest)
        case Aggregate():
            yield from (replace(node, calls=rest) for rest in _one_less(node.calls) if rest or node.groups)
            yield from (replace(node, groups=rest, sets="") for rest in _one_less(node.groups) if rest or node.calls)
            yield replace(node, sets="")
            yield replace(node, having=None)
        case Join() if node.kind in ("LEFT", "RIGHT", "FULL"):
            yield replace(node, kind="INNER")
        case TopK():
            yield replace(node, offset=0)
        case Explode():
            yield replace(node, outer=False)
            yield replace(node, names=node.names[-1:])
        case Pivot():
            yield from (replace(node, values=rest) for rest in _one_less(node.values) if rest)
        case _:
            return


def _one_less(items: Sequence[T]) -> Iterator[tuple[T, ...]]:
    return ((*items[:i], *items[i + 1 :]) for i in range(len(items)))


def _simpler(node: Node) -> Iterator[Node]:
    if isinstance(node, Call):
        yield from (a for a in node.args if a.tag == node.tag)
    if isinstance(node, Over):
        yield from (replace(node, partition=rest) for rest in _one_less(node.partition))
