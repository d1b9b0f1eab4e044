"""Delta of WITH RECURSIVE.

    F = A + S(F)         delta F  =  sum over k of  S'^k (delta A + delta S (F))

A is the anchor, S the step, S' the step over the tables as they are now, delta S its change through the tables alone. Expand
F' - F = delta A + S'(F') - S(F) with S'(F') = S'(F) + S'(delta F), as S is linear in F: the changes of F are those that the anchor and
the tables bring about at once, and whatever follows from them, round after round, until nothing follows. Deletions travel the same
way with weight -1; a row with another derivation keeps it, because rows are counted.

F itself is kept, as rows and how often each occurs. A step that is not linear in F is computed again:

    delta F  =  F'  -  F

Relies on: nothing follows for ever. Rows that do (a circle in the data) are found by counting rounds, and the table is computed in full.
"""

from __future__ import annotations

from headwater.delta.context import (
    WEIGHT,
    Delta,
    DeltaContext,
    LoopStage,
    Term,
    call,
    changes_place,
    scanned_tables,
    stage_place,
    weighted,
)
from headwater.plan.expressions import Column, ColumnRef
from headwater.plan.operators import (
    Aggregate,
    Expand,
    Filter,
    Generate,
    Join,
    JoinKind,
    Named,
    Operator,
    Project,
    Recursion,
    Scan,
    Side,
    Stage,
    Union,
    walk_operators,
)
from headwater.plan.printer import BROADCAST_LEFT_HINT

_OF_THE_LEFT = (JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI, JoinKind.EXISTENCE)


def recursion_delta(op: Recursion, ctx: DeltaContext) -> Delta:
    """Return what follows from the changes of anchor and tables; new less old if the step is not linear."""
    if not scanned_tables(op):
        return ()
    if not is_linear(op):
        drivers = tuple(changes_place(t) for t in scanned_tables(op))
        return (Term(drivers, weighted(ctx.old(op), "-1")), Term(drivers, weighted(ctx.new(op), "1")))
    name, wave = f"{op.name}_rows", f"{op.name}_wave"
    counted = Aggregate(op, op.columns, ())
    ctx.state_names[counted] = f"state_{op.name}"
    ctx.frozen[op.name] = _kept(op, ctx, Side.OLD, _reference(op).columns)
    columns = (*op.columns, WEIGHT)
    seeds = [t.over(lambda tree: _renamed(tree, columns)) for t in (*ctx.delta(op.anchor), *ctx.delta(op.step))]
    last = _renamed(Stage(wave, columns), (*_reference(op).columns, WEIGHT))
    step = _renamed(_followed(op.step, op, last, ctx), columns)
    ctx.stages.append(LoopStage(name, wave, tuple(seeds), step, columns))
    terms = (Term((stage_place(name),), Stage(name, columns)),)
    ctx.settle(op, terms)
    ctx.delta(counted)
    ctx.kept[op] = _kept(op, ctx, Side.NEW, op.columns)
    return terms


def is_linear(op: Recursion) -> bool:
    """Say whether the step reads F once, in a way that treats each of its rows by itself."""
    references = [o for o in walk_operators(op.step) if isinstance(o, Stage) and o.name == op.name]
    return len(references) == 1 and _is_linear(op.step, op)


def _is_linear(op: Operator, loop: Recursion) -> bool:
    match op:
        case Stage():
            return True
        case Project() | Filter() | Generate() | Expand():
            return _is_linear(op.inputs[0], loop)
        case Union():
            return all(_is_linear(b, loop) for b in op.branches if _reads(b, loop))
        case Join():
            if _reads(op.left, loop):
                return op.kind in (JoinKind.INNER, *_OF_THE_LEFT) and _is_linear(op.left, loop)
            return op.kind is JoinKind.INNER and _is_linear(op.right, loop)
        case _:
            return False


def _reads(op: Operator, loop: Recursion) -> bool:
    return any(isinstance(o, Stage) and o.name == loop.name for o in walk_operators(op))


def _reference(op: Recursion) -> Stage:
    return next(o for o in walk_operators(op.step) if isinstance(o, Stage) and o.name == op.name)


def _renamed(tree: Operator, columns: tuple[Column, ...]) -> Operator:
    pairs = zip(columns, tree.output, strict=True)
    return Project(tree, tuple(Named(new, ColumnRef(old.id)) for new, old in pairs))


def _kept(op: Recursion, ctx: DeltaContext, side: Side, columns: tuple[Column, ...]) -> Operator:
    """Return the rows of F from its state, each as often as it occurs."""
    groups = tuple(ctx.fresh(f"g{i}", c.type, nullable=c.nullable) for i, c in enumerate(op.columns))
    count = ctx.fresh("n", "BIGINT", nullable=False)
    scan = Scan(f"state_{op.name}", (*groups, count), (*(g.name for g in groups), "n"), side)
    copy = ctx.fresh("copy", "INT")
    copies = call("explode(array_repeat(0, CAST({0} AS INT)))", ColumnRef(count.id))
    pairs = zip(columns, groups, strict=True)
    return Project(Generate(scan, copies, (copy,)), tuple(Named(new, ColumnRef(g.id)) for new, g in pairs))


def _followed(op: Operator, loop: Recursion, wave: Operator, ctx: DeltaContext) -> Operator:
    """Return what the step makes of a round's change rows, with the tables as they are now."""
    match op:
        case Stage():
            return wave
        case Project():
            return Project(_followed(op.input, loop, wave, ctx), (*op.items, Named.same(WEIGHT)))
        case Filter():
            return op.with_inputs(_followed(op.input, loop, wave, ctx))
        case Generate():
            made = op.with_inputs(_followed(op.input, loop, wave, ctx))
            return _ordered(made, op)
        case Expand():
            rows = tuple((*row, ColumnRef(WEIGHT.id)) for row in op.rows)
            return Expand(_followed(op.input, loop, wave, ctx), rows, (*op.columns, WEIGHT))
        case Union():
            (branch,) = (b for b in op.branches if _reads(b, loop))
            return _renamed(_followed(branch, loop, wave, ctx), (*op.columns, WEIGHT))
        case Join():
            if _reads(op.left, loop):
                left, right = _followed(op.left, loop, wave, ctx), ctx.new(op.right)
                hint = BROADCAST_LEFT_HINT if op.kind is JoinKind.INNER else ""
                return _ordered(Join(left, right, op.kind, op.conditions, op.exists, hint), op)
            left, right = _followed(op.right, loop, wave, ctx), ctx.new(op.left)
            return _ordered(Join(left, right, JoinKind.INNER, op.conditions, hint=BROADCAST_LEFT_HINT), op)
        case _:
            raise AssertionError(f"{type(op).__name__} is not linear")


def _ordered(tree: Operator, op: Operator) -> Operator:
    return Project(tree, tuple(Named.same(c) for c in (*op.output, WEIGHT)))
