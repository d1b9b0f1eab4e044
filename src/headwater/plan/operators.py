"""The operator tree: what a query is, independent of how Spark or a user wrote it.

Frozen records that refuse to be built invalid: every column an expression reads is in the output of the input, ids are unique.
So no rule has to defend itself against a malformed tree.

Two normal forms hold everywhere. Group keys of an `Aggregate` are plain columns of its input (expressions are computed by a
`Project` below), and its calls are bare aggregate functions (what is computed from them stands in a `Project` above).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum

from headwater.plan.expressions import AggregateCall, Column, ColumnRef, Expression, SortKey, column_ids
from headwater.plan.where import Where


class Side(Enum):
    """Which state of a table a scan reads."""

    PLAIN = "plain"
    """The table as the query names it: user columns, no weight."""
    DELTA = "delta"
    """The changes since the frontier; the last column is the weight."""
    OLD = "old"
    """The state at the frontier, consolidated."""
    NEW = "new"
    """The state refreshed to, consolidated."""
    KEPT = "kept"
    """Of a state table: the rows of just those groups that this refresh changes, as they were before it."""


@dataclass(frozen=True, slots=True)
class At:
    """A column of rows at hand: the changes of a table, or the rows of a stage. Only rows for which `where` holds matter."""

    place: str
    name: str
    where: tuple[Where, ...] = ()


@dataclass(frozen=True, slots=True)
class Via:
    """A column of a table, of those of its rows that are near others themselves."""

    side: Side
    table: str
    name: str
    near: tuple[Near, ...]
    where: tuple[Where, ...] = ()


@dataclass(frozen=True, slots=True)
class Near:
    """A column of a scan whose values matter only where they are among those of `sources`.

    `null_safe`: NULL matters where a source holds it.
    """

    name: str
    sources: tuple[At | Via, ...]
    null_safe: bool = True


@dataclass(frozen=True, slots=True)
class Between:
    """A column of a scan that matters only between the least and the greatest value of a column of a stage.

    That holds if the weights of the stage's rows add up to nothing, which is looked at when they are known.
    """

    name: str
    place: str
    column: str
    weight: str


@dataclass(frozen=True, slots=True)
class Operator:
    """Base of all operators."""

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return ()

    @property
    def output(self) -> tuple[Column, ...]:
        raise AssertionError(f"{type(self).__name__} has no output")

    def with_inputs(self, *inputs: Operator) -> Operator:
        return self


@dataclass(frozen=True, slots=True)
class Scan(Operator):
    """Rows of a table. `columns` are the plan's columns, `names` what they are called in the table.

    `near` limits what has to be read: rows whose values lie outside the bounds of those at hand may be left out. So may rows for
    which `where` does not hold: a filter above drops them. So may rows outside of `between`: what they yield cancels.
    """

    table: str
    columns: tuple[Column, ...]
    names: tuple[str, ...]
    side: Side = Side.PLAIN
    near: tuple[Near, ...] = ()
    where: tuple[Where, ...] = ()
    between: Between | None = None

    def __post_init__(self) -> None:
        _require(len(self.columns) == len(self.names), "a scan names each of its columns")
        _require_unique(self.columns)

    @property
    def output(self) -> tuple[Column, ...]:
        return self.columns


@dataclass(frozen=True, slots=True)
class Stage(Operator):
    """Rows of an earlier stage of the same program, by its name."""

    name: str
    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        _require_unique(self.columns)

    @property
    def output(self) -> tuple[Column, ...]:
        return self.columns


@dataclass(frozen=True, slots=True)
class Filter(Operator):
    """Rows for which `condition` is true."""

    input: Operator
    condition: Expression

    def __post_init__(self) -> None:
        _require_known(self.input, (self.condition,))

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return (self.input,)

    @property
    def output(self) -> tuple[Column, ...]:
        return self.input.output

    def with_inputs(self, *inputs: Operator) -> Operator:
        return replace(self, input=inputs[0])


@dataclass(frozen=True, slots=True)
class Named:
    """An expression and the column it becomes."""

    column: Column
    expression: Expression

    @staticmethod
    def same(column: Column) -> Named:
        """Pass `column` on unchanged."""
        return Named(column, ColumnRef(column.id))


@dataclass(frozen=True, slots=True)
class Project(Operator):
    """One row of expressions per input row."""

    input: Operator
    items: tuple[Named, ...]

    def __post_init__(self) -> None:
        _require_known(self.input, (i.expression for i in self.items))
        _require_unique(self.output)

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return (self.input,)

    @property
    def output(self) -> tuple[Column, ...]:
        return tuple(i.column for i in self.items)

    def with_inputs(self, *inputs: Operator) -> Operator:
        return replace(self, input=inputs[0])


@dataclass(frozen=True, slots=True)
class Expand(Operator):
    """Each input row once per list of expressions (GROUPING SETS)."""

    input: Operator
    rows: tuple[tuple[Expression, ...], ...]
    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        _require(bool(self.rows), "an expand has at least one row")
        for row in self.rows:
            _require(len(row) == len(self.columns), "each row of an expand fills its columns")
            _require_known(self.input, row)
        _require_unique(self.columns)

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return (self.input,)

    @property
    def output(self) -> tuple[Column, ...]:
        return self.columns

    def with_inputs(self, *inputs: Operator) -> Operator:
        return replace(self, input=inputs[0])


@dataclass(frozen=True, slots=True)
class NamedAggregate:
    """An aggregate call and the column it becomes."""

    column: Column
    call: AggregateCall


@dataclass(frozen=True, slots=True)
class Aggregate(Operator):
    """One row per group: the group columns, then the calls. Without group columns always exactly one row."""

    input: Operator
    groups: tuple[Column, ...]
    calls: tuple[NamedAggregate, ...]

    def __post_init__(self) -> None:
        known = {c.id for c in self.input.output}
        _require(all(g.id in known for g in self.groups), "group columns come from the input")
        _require_known(self.input, (e for c in self.calls for e in c.call.expressions))
        _require_unique(self.output)

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return (self.input,)

    @property
    def output(self) -> tuple[Column, ...]:
        return (*self.groups, *(c.column for c in self.calls))

    def with_inputs(self, *inputs: Operator) -> Operator:
        return replace(self, input=inputs[0])


@dataclass(frozen=True, slots=True)
class Union(Operator):
    """All rows of all inputs, by position; `columns` are the output.

    `gathered`: these are rows of a change, and what stands above compares them with each other.
    """

    branches: tuple[Operator, ...]
    columns: tuple[Column, ...]
    gathered: bool = False

    def __post_init__(self) -> None:
        _require(bool(self.branches), "a union has at least one branch")
        for branch in self.branches:
            _require(len(branch.output) == len(self.columns), "branches of a union agree in width")
        _require_unique(self.columns)

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return self.branches

    @property
    def output(self) -> tuple[Column, ...]:
        return self.columns

    def with_inputs(self, *inputs: Operator) -> Operator:
        return replace(self, branches=inputs)


@dataclass(frozen=True, slots=True)
class SemiJoin(Operator):
    """Rows of `left` that share the key columns, NULL-safe, with some row of `right`."""

    left: Operator
    right: Operator
    on: tuple[tuple[Column, Column], ...]

    def __post_init__(self) -> None:
        left, right = {c.id for c in self.left.output}, {c.id for c in self.right.output}
        _require(bool(self.on), "a semi join has a key")
        _require(all(a.id in left and b.id in right for a, b in self.on), "key columns come from their own side")
        _require(not left & right, "the sides of a join share no column id")

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return (self.left, self.right)

    @property
    def output(self) -> tuple[Column, ...]:
        return self.left.output

    def with_inputs(self, *inputs: Operator) -> Operator:
        return replace(self, left=inputs[0], right=inputs[1])


class JoinKind(Enum):
    """What becomes of rows that match and of rows that do not. A right join is a left join read from the other side."""

    INNER = "inner"
    LEFT = "left"
    FULL = "full"
    SEMI = "semi"
    ANTI = "anti"
    EXISTENCE = "existence"
    """Every left row once, with a column that says whether it has a match."""
    SINGLE = "single"
    """A left join whose left rows may have one match at most: a scalar subquery. A second one fails."""


_LEFT_ONLY = frozenset({JoinKind.SEMI, JoinKind.ANTI, JoinKind.EXISTENCE})


@dataclass(frozen=True, slots=True)
class Join(Operator):
    """Pairs of rows for which all `conditions` are true; see `JoinKind` for the others.

    `exists` is the column of an existence join; `hint` is written into the text for Spark.
    """

    left: Operator
    right: Operator
    kind: JoinKind
    conditions: tuple[Expression, ...] = ()
    exists: Column | None = None
    hint: str = ""

    def __post_init__(self) -> None:
        known = {c.id for c in self.left.output} | {c.id for c in self.right.output}
        _require(len(known) == len(self.left.output) + len(self.right.output), "the sides of a join share no column id")
        for condition in self.conditions:
            missing = column_ids(condition) - known
            _require(not missing, f"columns {sorted(missing)} are on neither side")
        _require((self.exists is not None) == (self.kind is JoinKind.EXISTENCE), "an existence join names its column")

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return (self.left, self.right)

    @property
    def output(self) -> tuple[Column, ...]:
        if self.kind in _LEFT_ONLY:
            return self.left.output if self.exists is None else (*self.left.output, self.exists)
        return (*self.left.output, *self.right.output)

    def with_inputs(self, *inputs: Operator) -> Operator:
        return replace(self, left=inputs[0], right=inputs[1])


@dataclass(frozen=True, slots=True)
class WindowCall:
    """A window function over `args`; `form` prints the call, `frame` is the frame clause, empty where the function takes none."""

    name: str
    args: tuple[Expression, ...]
    form: str
    frame: str = ""

    @property
    def sql(self) -> str:
        return self.form.format(*(a.sql for a in self.args))


@dataclass(frozen=True, slots=True)
class NamedWindow:
    """A window function and the column it becomes."""

    column: Column
    call: WindowCall


@dataclass(frozen=True, slots=True)
class Window(Operator):
    """Each input row with functions of the rows of its partition.

    `tells_rows_apart`: its functions see single rows, not peers. Then rows that partition and `order` call equal are the same row: the
    result depends on the multiset of rows alone. Columns that are carried along beside the user's must go into that order.
    """

    input: Operator
    partition: tuple[Column, ...]
    order: tuple[SortKey, ...]
    calls: tuple[NamedWindow, ...]
    tells_rows_apart: bool = False

    def __post_init__(self) -> None:
        known = {c.id for c in self.input.output}
        _require(all(c.id in known for c in self.partition), "partition columns come from the input")
        _require(all(k.column.id in known for k in self.order), "order columns come from the input")
        _require_known(self.input, (a for c in self.calls for a in c.call.args))
        _require_unique(self.output)

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return (self.input,)

    @property
    def output(self) -> tuple[Column, ...]:
        return (*self.input.output, *(c.column for c in self.calls))

    def with_inputs(self, *inputs: Operator) -> Operator:
        return replace(self, input=inputs[0])


@dataclass(frozen=True, slots=True)
class Top(Operator):
    """The rows that stand at places `offset + 1` to `offset + limit` of a total order; all after `offset` if `limit` is None."""

    input: Operator
    order: tuple[SortKey, ...]
    limit: int | None
    offset: int = 0

    def __post_init__(self) -> None:
        known = {c.id for c in self.input.output}
        _require(all(k.column.id in known for k in self.order), "order columns come from the input")

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return (self.input,)

    @property
    def output(self) -> tuple[Column, ...]:
        return self.input.output

    def with_inputs(self, *inputs: Operator) -> Operator:
        return replace(self, input=inputs[0])


@dataclass(frozen=True, slots=True)
class Generate(Operator):
    """Each input row with each row that `generator` makes of it; `outer`: with NULLs if it makes none."""

    input: Operator
    generator: Expression
    columns: tuple[Column, ...]
    outer: bool = False

    def __post_init__(self) -> None:
        _require_known(self.input, (self.generator,))
        _require_unique(self.output)

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return (self.input,)

    @property
    def output(self) -> tuple[Column, ...]:
        return (*self.input.output, *self.columns)

    def with_inputs(self, *inputs: Operator) -> Operator:
        return replace(self, input=inputs[0])


@dataclass(frozen=True, slots=True)
class Values(Operator):
    """Constant rows."""

    rows: tuple[tuple[Expression, ...], ...]
    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            _require(len(row) == len(self.columns), "each constant row fills its columns")
            _require(not any(column_ids(e) for e in row), "constant rows read no columns")
        _require_unique(self.columns)

    @property
    def output(self) -> tuple[Column, ...]:
        return self.columns


@dataclass(frozen=True, slots=True)
class Recursion(Operator):
    """`anchor` and everything that follows from it: F = anchor + step(F), where `step` reads F as `Stage(name, ...)`."""

    anchor: Operator
    step: Operator
    name: str
    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        for branch in (self.anchor, self.step):
            _require(len(branch.output) == len(self.columns), "branches of a recursion agree in width")
        _require_unique(self.columns)

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return (self.anchor, self.step)

    @property
    def output(self) -> tuple[Column, ...]:
        return self.columns

    def with_inputs(self, *inputs: Operator) -> Operator:
        return replace(self, anchor=inputs[0], step=inputs[1])


def walk_operators(op: Operator) -> Iterator[Operator]:
    """Yield `op` and everything below it, parents first."""
    yield op
    for child in op.inputs:
        yield from walk_operators(child)


def _require(condition: bool, law: str) -> None:
    if not condition:
        raise ValueError(f"invalid operator: {law}")


def _require_unique(columns: tuple[Column, ...]) -> None:
    _require(len({c.id for c in columns}) == len(columns), "column ids are unique")


def _require_known(op: Operator, expressions: Iterable[Expression]) -> None:
    known = {c.id for c in op.output}
    for expression in expressions:
        missing = column_ids(expression) - known
        _require(not missing, f"columns {sorted(missing)} are not in the input")
