"""Random queries that compose all operators with each other, up to six above one another.

Results are functions of the multiset of rows: every LIMIT, and every window function that depends on the order of rows, orders by
all columns of its input; of the functions of one window there is one such order. Estimated sizes keep results small enough to compare.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from tests.support.composing import MOST_ROWS, Composer, Maker, Operators
from tests.support.generate import TableSpec
from tests.support.phrases import (
    GROUPABLE,
    ORDERED,
    Palette,
    aggregate,
    compared,
    conjunction,
    full_order,
    having,
    literal,
    predicate,
    value,
    window_function,
)
from tests.support.relations import (
    Aggregate,
    Call,
    Distinct,
    Exists,
    Explode,
    Expression,
    Filter,
    Item,
    Join,
    Lateral,
    Lit,
    Over,
    Pivot,
    Project,
    Recursive,
    Ref,
    Relation,
    Scalar,
    Scan,
    SetOperation,
    Shared,
    TopK,
    Window,
    With,
)
from tests.support.values import Column

DEEPEST = 6
SET_OPERATIONS = ("UNION ALL", "UNION", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL")


def composed(rng: Random, tables: Sequence[TableSpec]) -> Relation:
    """Return a query over some of the tables."""
    depth = rng.choices(range(1, DEEPEST + 1), weights=(6, 16, 26, 26, 16, 10))[0]
    return Composer(rng, tables, _OPERATORS).query(depth)


def _joined(c: Composer, depth: int) -> Relation:
    left, right = c.narrow(c.relation(depth)), c.narrow(c.beside(depth))
    kind = c.rng.choices(("INNER", "LEFT", "RIGHT", "FULL", "CROSS"), weights=(42, 26, 10, 15, 7))[0]
    condition = None if kind == "CROSS" else c.join_condition(left, right)
    if condition is None:
        return Join("CROSS", _few(c, left), _few(c, right))
    return Join(kind, left, right, condition)


def _few(c: Composer, relation: Relation) -> Relation:
    """Return a side of a cross join: some rows of it."""
    return _top(c, relation) if c.size(relation) > 12 else relation


def _chained(c: Composer, depth: int) -> Relation:
    """Return joins of several tables, as a star or a chain."""
    made = c.narrow(c.relation(depth))
    for _ in range(c.rng.randint(1, 3)):
        scan = c.narrow(c.scan(), 4)
        condition = c.join_condition(made, scan)
        if condition is None or c.size(made) * 5 > MOST_ROWS:
            break
        made = Join(c.rng.choice(("INNER", "INNER", "LEFT")), made, scan, condition)
    return made


def _related(c: Composer, depth: int) -> Relation:
    below = c.relation(depth)
    return Filter(below, c.condition(c.palette(below), depth))


def _filtered(c: Composer, depth: int) -> Relation:
    below = c.relation(depth)
    return Filter(below, predicate(c.palette(below)))


def _projected(c: Composer, depth: int) -> Relation:
    below = c.relation(depth)
    p = c.palette(below)
    kept = [Item(i.name, i) for i in p.some(1, 4, *(t for t in (*ORDERED, "arr")))]
    made = [c.item(v) for v in (value(p) for _ in range(c.rng.randint(1, 3))) if v is not None]
    if depth > 0 and c.chance(0.12):
        made.append(c.item(Call("int", "CASE WHEN {0} THEN 1 ELSE 0 END", (c.subquery_test(p, depth - 1),))))
    return Project(below, (*kept, *made))


def _looked_up(c: Composer, depth: int) -> Relation:
    """Return a relation with a scalar subquery beside its columns."""
    below = c.narrow(c.relation(depth), 5)
    p = c.palette(below)
    found = c.scalar(p, depth) or Scalar(Aggregate(c.scan(), (), (c.item(Call("big", "count(*)")),)))
    value_: Expression = found
    if c.chance(0.2):
        value_ = Call(found.tag, "coalesce({0}, {1})", (found, literal(c.rng, found.tag)))
    kept = tuple(Item(column.name, Ref(column.name, column.tag)) for column in below.columns)
    return Project(below, (*kept, c.item(value_)))


def _grouped(c: Composer, below: Relation) -> Relation:
    p = c.palette(below)
    groups: list[Item] = []
    for column in p.some(1, 2, *GROUPABLE) if c.chance(0.88) else ():
        groups.append(c.item(column))
    computed = value(p) if groups and c.chance(0.12) else None
    if isinstance(computed, Call) and computed.tag in GROUPABLE:
        groups.append(c.item(computed))
    calls = [c.item(aggregate(p)) for _ in range(c.rng.randint(1, 3))]
    return Aggregate(below, tuple(groups), tuple(calls), _having(c, p) if c.chance(0.25) else None)


def _having(c: Composer, p: Palette) -> Expression:
    if c.chance(0.7):
        return having(p)
    call = aggregate(p)
    scalar = c.scalar(Palette(c.rng, ()), 1, ("int", "big") if call.tag in ("int", "big") else (call.tag,))
    if scalar is None or call.tag == "bool":
        return having(p)
    return compared(c.rng.choice(("<=", ">=", "<>")), call, scalar)


def _aggregated(c: Composer, depth: int) -> Relation:
    return _grouped(c, c.relation(depth))


def _rolled_up(c: Composer, depth: int) -> Relation:
    below = c.relation(depth)
    p = c.palette(below)
    groups = tuple(c.item(g) for g in p.some(1, 3, *GROUPABLE))
    if not groups:
        return _grouped(c, below)
    places = [f"{{{n}}}" for n in range(len(groups))]
    kind = c.rng.choice(("ROLLUP", "CUBE", "SETS"))
    if kind == "SETS":
        others = c.rng.sample(["()", f"({places[0]})"], c.rng.randint(1, 2)) if len(groups) > 1 else ["()"]
        sets = f"GROUPING SETS (({', '.join(places)}), {', '.join(others)})"
    else:
        sets = f"{kind} ({', '.join(places)})"
    calls = [c.item(aggregate(p)) for _ in range(c.rng.randint(1, 2))]
    if c.chance(0.5):
        calls.append(c.item(Call("int", "CAST(grouping({0}) AS INT)", (groups[0].value,))))
    return Aggregate(below, groups, tuple(calls), having(p) if c.chance(0.15) else None, sets)


def _distinct(c: Composer, depth: int) -> Relation:
    below = c.flat(c.relation(depth))
    p = c.palette(below)
    kept = p.some(1, 3, *ORDERED)
    return Distinct(Project(below, tuple(Item(r.name, r) for r in kept)) if kept else below)


def _set_operation(c: Composer, depth: int) -> Relation:
    left, right = c.flat(c.relation(depth)), c.flat(c.beside(depth))
    kind = c.rng.choices(SET_OPERATIONS, weights=(30, 14, 14, 14, 14, 14))[0]
    most = 3 if kind == "UNION ALL" else 2
    p, other = c.palette(left), c.palette(right)
    shown = p.some(1, most, "int", "string", "bool", "date") or p.some(1, most, *ORDERED)
    arms = (
        Project(left, tuple(c.item(r) for r in shown)),
        Project(right, tuple(c.item(_like(other, r)) for r in shown)),
    )
    return SetOperation(kind, *arms)


def _like(p: Palette, wanted: Ref) -> Expression:
    """Return something of the same type: a column, or a constant."""
    found = p.pick(wanted.tag)
    return literal(p.rng, wanted.tag) if found is None else found


def _windowed(c: Composer, depth: int) -> Relation:
    below = c.narrow(c.flat(c.relation(depth)), 5)
    p = c.palette(below)
    functions = [window_function(p) for _ in range(c.rng.choice((1, 1, 2, 3)))]
    return Window(below, tuple(c.item(f) for f in _in_one_order(functions, len(p.all(*ORDERED)))))


def _in_one_order(functions: Sequence[Over], width: int) -> list[Over]:
    """Return functions of which those that see single rows, by an order of all columns, share partition and order.

    Equal rows have places of their own, and nothing says which place in one order goes with which place in another.
    """
    first = next((f for f in functions if len(f.order) == width), None)
    if first is None:
        return list(functions)
    return [replace(f, partition=first.partition, order=first.order) if len(f.order) == width else f for f in functions]


def _top(c: Composer, below: Relation) -> Relation:
    below = c.narrow(c.flat(below), 5)
    offset = c.rng.choice((0, 0, 0, 1, 2))
    return TopK(below, full_order(c.palette(below)), c.rng.choice((3, 5, 8, 12)), offset)


def _topped(c: Composer, depth: int) -> Relation:
    return _top(c, c.relation(depth))


def _exploded(c: Composer, depth: int) -> Relation:
    below = c.relation(depth)
    p = c.palette(below)
    arrays: list[Expression] = [*p.all("arr"), *p.all("arr")]
    if len(numbers := p.some(1, 2, "int")) > 0:
        texts = ", ".join(f"{{{n}}}" for n in range(len(numbers)))
        arrays.append(Call("arr", f"array({texts}, 1)", tuple(numbers), f"[{texts}, 1]"))
    if not arrays:
        scan = c.rng.choice([t for t in c.tables if any(x.tag == "arr" for x in t.columns)] or [None])
        if scan is None:
            return below
        below = Scan(scan.name, c.renamed(scan.columns))
        arrays = [*c.palette(below).all("arr")]
    names = (c.fresh(), c.fresh()) if c.chance(0.35) else (c.fresh(),)
    return Explode(below, c.rng.choice(arrays), names, c.chance(0.4))


def _lateral(c: Composer, depth: int) -> Relation:
    left = c.narrow(c.relation(depth))
    inner = c.narrow(c.beside(min(depth, 1)), 4)
    outer = c.palette(left)
    roll = c.rng.random()
    if roll < 0.45:
        calls = tuple(c.item(aggregate(c.palette(inner))) for _ in range(c.rng.randint(1, 2)))
        right: Relation = Aggregate(c.correlated(outer, inner, equal=c.chance(0.9)), (), calls)
    elif roll < 0.65:
        flat = c.flat(inner)
        right = TopK(c.correlated(outer, flat, equal=True), full_order(c.palette(flat)), c.rng.choice((1, 2)))
    else:
        right = c.correlated(outer, inner)
    return Lateral(c.rng.choice(("INNER", "LEFT")), left, right)


def _shared(c: Composer, depth: int) -> Relation:
    """Return a relation that uses another one twice."""
    body = c.narrow(c.relation(depth), 4)
    name = f"w{next(c.shares)}"
    c.sizes[name] = c.size(body)
    first, second = Shared(name, c.renamed(body.columns)), Shared(name, c.renamed(body.columns))
    roll = c.rng.random()
    p = c.palette(first)
    main: Relation
    if roll < 0.4 and (condition := c.join_condition(first, second)):
        main = Join(c.rng.choice(("INNER", "LEFT", "FULL")), first, second, condition)
    elif roll < 0.7:
        main = Filter(first, Exists(c.correlated(p, second), c.chance(0.4)))
    elif (column := p.pick(*GROUPABLE)) is not None:
        other = Ref(second.columns[[x.name for x in first.columns].index(column.name)].name, column.tag)
        kind = c.rng.choice(SET_OPERATIONS)
        kept = Filter(second, predicate(c.palette(second)))
        main = SetOperation(kind, Project(first, (c.item(column),)), Project(kept, (c.item(other),)))
    else:
        main = Join("CROSS", first, Aggregate(second, (), (c.item(Call("big", "count(*)")),)))
    return With(name, body, main)


def _pivoted(c: Composer, depth: int) -> Relation:
    below = c.flat(c.relation(depth))
    p = c.palette(below)
    by, number = p.pick("int", "string"), p.pick("int", "double")
    groups = [g for g in p.some(1, 2, *GROUPABLE) if g not in (by, number)]
    if by is None or number is None or by == number or not groups:
        return _grouped(c, below)
    listed = c.rng.sample((1, 2, 3) if by.tag == "int" else ("a", "b", "c"), 2)
    name = c.rng.choice(("min", "max"))
    call = Call(number.tag, f"{name}({{0}})", (number,))
    return Pivot(below, tuple(groups), by, call, tuple((Lit(v, by.tag), c.fresh()) for v in listed))


def _recursive(c: Composer, depth: int) -> Relation:
    """Return what is reachable over the pairs of two columns: always upwards, or a few steps far."""
    edges = c.scan()
    again = Scan(edges.table, c.renamed(edges.columns))
    starts = c.palette(edges).some(2, 2, "int")
    if len(starts) < 2:
        return edges
    places = [next(i for i, x in enumerate(edges.columns) if x.name == s.name) for s in starts]
    origin, goal = (Ref(again.columns[i].name, "int") for i in places)
    name, columns = f"w{next(c.shares)}", (Column(c.fresh(), "int"), Column(c.fresh(), "int"))
    c.sizes[name] = 40
    here = Shared(name, c.renamed(columns))
    at, steps = (Ref(x.name, "int") for x in here.columns)
    anchor = Project(
        Filter(edges, compared("=", starts[0], Lit(c.rng.choice((0, 1, 2)), "int"))),
        (c.item(starts[1]), c.item(Lit(0, "int"))),
    )
    bound = compared("<", steps, Lit(c.rng.choice((1, 2)), "int"))
    upwards = compared(">", goal, at)
    further = conjunction(bound, upwards) if c.chance(0.3) else bound if c.chance(0.5) else upwards
    onwards = Filter(Join("INNER", here, again, compared("=", at, origin)), further)
    step = Project(onwards, (c.item(goal), c.item(Call("int", "({0} + 1)", (steps,)))))
    return Recursive(name, anchor, step, columns)


_LOW: dict[Maker, float] = {
    _joined: 30,
    _related: 24,
    _filtered: 3,
    _projected: 5,
    _looked_up: 5,
    _aggregated: 14,
    _rolled_up: 4,
    _distinct: 4,
    _set_operation: 10,
    _windowed: 10,
    _topped: 5,
    _exploded: 6,
    _lateral: 6,
    _pivoted: 1.5,
    _recursive: 2.5,
}
_OPERATORS = Operators(_LOW, {**_LOW, _shared: 5, _chained: 6}, (_grouped, _grouped, _top))
