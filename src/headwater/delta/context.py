"""What a delta rule may ask for: the deltas and states of its inputs, fresh columns, and places to keep rows and state.

The delta of an operator is a sum of *terms*. A term is an operator tree with the output of the operator plus one column, the weight,
and it names what drives it: the changes of a table, or the rows of an earlier stage. Where nothing drives it, it has no rows and is
not run: an unchanged source contributes nothing.

Rules declare *stages* that run before the trees that read them: rows that are needed more than once (`RowsStage`), and auxiliary
tables that hold state (`StateStage`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from headwater.model.schema import Field, TableSchema
from headwater.plan.expressions import Call, Column, ColumnRef, Expression, Literal
from headwater.plan.forms import escaped
from headwater.plan.operators import (
    Filter,
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

FIRST_ID = 1_000_000
WEIGHT = Column(FIRST_ID, "__w", "INT", nullable=False)


def call(form: str, *args: Expression) -> Call:
    """Return a piece of SQL over expressions; `{0}`, `{1}` ... stand for them."""
    return Call("sql", args, form)


def cast(value: Expression, type_: str) -> Call:
    """Return `value` as that type; names of fields may hold braces."""
    return call(f"CAST({{0}} AS {escaped(type_)})", value)


def null_of(type_: str) -> Literal:
    """Return a NULL of that type."""
    return Literal(f"CAST(NULL AS {type_})")


def changes_place(table: str) -> str:
    """Return the name of the changes of a table, as drivers use it."""
    return f"changes:{table}"


def stage_place(name: str) -> str:
    """Return the name of the rows of a stage, as drivers use it."""
    return f"stage:{name}"


@dataclass(frozen=True, slots=True)
class Term:
    """A part of a delta: the rows that `drivers` bring about. Its tree ends with the weight."""

    drivers: tuple[str, ...]
    tree: Operator

    def over(self, fn: Callable[[Operator], Operator]) -> Term:
        """Return the term with `fn` applied to its tree."""
        return replace(self, tree=fn(self.tree))


Delta = tuple[Term, ...]


def drivers_of(*deltas: Delta) -> tuple[str, ...]:
    """Return all drivers, each once."""
    return tuple(dict.fromkeys(d for delta in deltas for t in delta for d in t.drivers))


@dataclass(frozen=True, slots=True)
class RowsStage:
    """Rows that are computed once and read by what follows.

    `netted`: they are change rows (the weight is the last column), and what cancels is taken out before they are read.
    """

    name: str
    terms: Delta
    columns: tuple[Column, ...]
    netted: bool = False


@dataclass(frozen=True, slots=True)
class LoopStage:
    """Rows that follow from `seeds` by applying `step`, which reads the rows of the last round as the stage `wave`, until none come."""

    name: str
    wave: str
    seeds: Delta
    step: Operator
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class StateStage:
    """Computes the change of one auxiliary table.

    `keys` yields the changed groups (materialised first, its bounds limit what is read of the old state); `delta` the change rows of
    the state, with a weight and a flag for groups whose new state must be read from the source instead; `delta_of_few` and
    `delta_of_many` the same, given exactly the old rows of the changed groups, and the latter with pairs that cancel; `rescan` is
    the state of just the flagged groups, computed afresh. `initial` is the whole state, computed afresh. `source_groups` says for
    each group column which (table, column) it is, if it is one: the bounds of the changed groups then limit what is read of it.
    `is_direct`: the changed groups are those of the changes of the sources, as they stand there.
    """

    name: str
    schema: TableSchema
    columns: tuple[Column, ...]
    groups: tuple[Column, ...]
    keys: Delta
    keys_columns: tuple[Column, ...]
    keys_name: str
    delta: Operator
    delta_of_few: Operator
    delta_of_many: Operator
    paired: Column
    flag: Column
    initial: Operator
    rescan: Operator
    rescan_name: str
    rescan_groups: tuple[Column, ...]
    strategy: str
    always_rescan: bool
    source_groups: tuple[tuple[str, str] | None, ...]
    is_direct: bool


AnyStage = RowsStage | LoopStage | StateStage

_CHEAP = (Project, Filter, Scan, Stage)


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What is known of a source when a query is planned: the columns of its key, and about how many rows it has."""

    key: tuple[str, ...] = ()
    rows: int = 0


@dataclass
class DeltaContext:
    """Collects the stages of one program."""

    rules: Callable[[Operator, DeltaContext], Delta]
    options: DeltaOptions
    facts: Callable[[str], TableFacts] = lambda table: TableFacts()
    stages: list[AnyStage] = field(default_factory=list)
    kept: dict[Operator, Operator] = field(default_factory=dict)
    """Operators whose rows are kept, with the tree that reads them as they are after this refresh."""
    frozen: dict[str, Operator] = field(default_factory=dict)
    """What recursions read of themselves: their rows before this refresh."""
    state_names: dict[Operator, str] = field(default_factory=dict)
    """Names of states that are read before they are declared."""
    _deltas: dict[Operator, Delta] = field(default_factory=dict)
    _staged: dict[Operator, Operator] = field(default_factory=dict)
    _ids: itertools.count[int] = field(default_factory=lambda: itertools.count(FIRST_ID + 1))

    # deltas and states ------------------------------------------------------------------------------------------------------

    def delta(self, op: Operator) -> Delta:
        """Return the changes of `op`; equal inputs share one answer, and so their state."""
        if op not in self._deltas:
            self._deltas[op] = self.rules(op, self)
        return self._deltas[op]

    def settle(self, op: Operator, delta: Delta) -> None:
        """Fix the changes of `op` before its rule has ended: what it declares next may read them."""
        self._deltas[op] = delta

    def new(self, op: Operator) -> Operator:
        """Return the tree that yields all rows of `op` as they are after this refresh; what is kept is read, not computed again.

        Two ways to compute the same sum of floats differ in the last digits. Read from one place, it is one value.
        """
        return self._state(op, Side.NEW)

    def old(self, op: Operator) -> Operator:
        """Return the tree that yields all rows of `op` as they were before this refresh."""
        return self._state(op, Side.OLD)

    def _state(self, op: Operator, side: Side) -> Operator:
        if op in self.kept:
            return with_side(self.kept[op], side)
        if isinstance(op, Scan):
            return replace(op, side=side)
        if isinstance(op, Stage):
            return self.frozen.get(op.name, op)
        if isinstance(op, Recursion):  # computed afresh: it reads itself, round after round
            return op.with_inputs(*(with_side(i, side) for i in op.inputs))
        return op.with_inputs(*(self._state(i, side) for i in op.inputs)) if op.inputs else op

    # stages -----------------------------------------------------------------------------------------------------------------

    def rows(self, label: str, terms: Delta, columns: Sequence[Column], *, netted: bool = False) -> Stage:
        """Declare rows that are computed before what reads them; return the leaf that does."""
        name = f"{label}{len(self.stages)}"
        self.stages.append(RowsStage(name, terms, tuple(columns), netted))
        return Stage(name, tuple(columns))

    def changes(self, op: Operator) -> Operator | None:
        """Return the changes of `op` as one tree that may be read several times; None if it has none."""
        terms = self.delta(op)
        if not terms:
            return None
        if op not in self._staged:
            columns = (*op.output, WEIGHT)
            if len(terms) <= 3 and all(is_cheap(t.tree) for t in terms):
                self._staged[op] = gathered(terms, columns)
            else:
                self._staged[op] = self.rows("delta", terms, columns, netted=True)
        return self._staged[op]

    # columns ----------------------------------------------------------------------------------------------------------------

    def fresh(self, name: str, type_: str, *, nullable: bool = True) -> Column:
        return Column(next(self._ids), name, type_, nullable)

    def again(self, column: Column) -> Column:
        """Return a column like this one with an id of its own."""
        return replace(column, id=next(self._ids))


@dataclass(frozen=True, slots=True)
class DeltaOptions:
    """Settings that decide how state is kept."""

    extremum_buffer: int = 16
    float_tolerance: float = 1e-9
    float_exact: bool = False
    decimal_average: bool = True
    """Whether a quotient of decimals is rounded to fit: the exact average relies on it."""


def is_cheap(op: Operator) -> bool:
    """Say whether `op` only looks at rows that are at hand, one at a time."""
    return all(isinstance(o, _CHEAP) for o in walk_operators(op))


def gathered(terms: Iterable[Term], columns: Sequence[Column]) -> Operator:
    """Return the rows of all terms as one tree."""
    trees = tuple(t.tree for t in terms)
    if len(trees) == 1 and trees[0].output == tuple(columns):
        return trees[0]
    return Union(trees, tuple(columns))


def weighted(op: Operator, weight: str) -> Operator:
    """Return the rows of a state as change rows of this weight."""
    return Project(op, (*(Named.same(c) for c in op.output), Named(WEIGHT, Literal(weight))))


def with_side(op: Operator, side: Side) -> Operator:
    """Return `op` with every scan of a state or source reading this side."""
    if isinstance(op, Scan):
        return replace(op, side=side)
    return op.with_inputs(*(with_side(i, side) for i in op.inputs)) if op.inputs else op


def computed(op: Operator, expressions: Sequence[Expression], ctx: DeltaContext) -> tuple[Operator, tuple[Column, ...]]:
    """Return `op` with every expression among its columns, and these columns."""
    known = {c.id: c for c in op.output}
    columns, added = [], []
    for expression in expressions:
        if isinstance(expression, ColumnRef):
            columns.append(known[expression.id])
        else:
            columns.append(ctx.fresh("key", ""))
            added.append(Named(columns[-1], expression))
    if added:
        op = Project(op, (*(Named.same(c) for c in op.output), *added))
    return op, tuple(columns)


def scanned_tables(op: Operator) -> tuple[str, ...]:
    """Return the names of all tables below `op`, each once."""
    return tuple(dict.fromkeys(o.table for o in walk_operators(op) if isinstance(o, Scan)))


def source_column(op: Operator, column: Column) -> tuple[str, str] | None:
    """Return (table, column name) if `column` is a column of a table passed on unchanged, else None."""
    for scan in walk_operators(op):
        if isinstance(scan, Scan):
            for c, name in zip(scan.columns, scan.names, strict=True):
                if c.id == column.id:
                    return scan.table, name
    return None


def state_field(column: Column) -> Field:
    """Return the stored field of a state column."""
    return Field(column.name, column.type, column.nullable)
