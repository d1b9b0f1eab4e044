"""What a delta rule may ask for: the deltas of its inputs, fresh columns, and places to keep state.

The delta of an operator is an operator tree with the same output columns plus one: the weight. The state that rules need is
declared here as *auxiliary tables*; the stages that compute their changes run before the tree that reads them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from headwater.model.schema import Field, TableSchema
from headwater.plan.expressions import Call, Column, Expression, Literal
from headwater.plan.operators import Operator, Scan, Side, walk_operators

FIRST_ID = 1_000_000
WEIGHT = Column(FIRST_ID, "__w", "INT", nullable=False)


def call(form: str, *args: Expression) -> Call:
    """Return a piece of SQL over expressions; `{0}`, `{1}` ... stand for them."""
    return Call("sql", args, form)


def null_of(type_: str) -> Literal:
    """Return a NULL of that type."""
    return Literal(f"CAST(NULL AS {type_})")


@dataclass(frozen=True, slots=True)
class StateStage:
    """Computes the change of one auxiliary table.

    `keys` yields the changed groups (materialised first, its bounds limit what is read of the old state); `delta` the change rows of
    the state, with a weight and a flag for groups whose new state must be read from the source instead; `delta_of_few` and
    `delta_of_many` the same, given exactly the old rows of the changed groups, and the latter with pairs that cancel; `rescan` is
    the state of just the flagged groups, computed afresh. `initial` is the whole state, computed afresh. `source_groups` says for
    each group column which (table, column) it is, if it is one: the bounds of the changed groups then limit what is read of it.
    """

    name: str
    schema: TableSchema
    columns: tuple[Column, ...]
    groups: tuple[Column, ...]
    keys: Operator
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


@dataclass
class DeltaContext:
    """Collects the stages of one program."""

    rules: Callable[[Operator, DeltaContext], Operator]
    options: DeltaOptions
    stages: list[StateStage] = field(default_factory=list)
    kept: dict[Operator, Operator] = field(default_factory=dict)
    """Operators whose rows are kept, with the tree that reads them as they are after this refresh."""
    _deltas: dict[Operator, Operator] = field(default_factory=dict)
    _ids: itertools.count[int] = field(default_factory=lambda: itertools.count(FIRST_ID + 1))

    def delta(self, op: Operator) -> Operator:
        """Return the tree that yields the changes of `op`; equal inputs share one answer, and so their state."""
        if op not in self._deltas:
            self._deltas[op] = self.rules(op, self)
        return self._deltas[op]

    def current(self, op: Operator) -> Operator:
        """Return the tree that yields all rows of `op` as they are after this refresh; what is kept is read, not computed again.

        Two ways to compute the same sum of floats differ in the last digits. Read from one place, it is one value.
        """
        if op in self.kept:
            return self.kept[op]
        if isinstance(op, Scan):
            return replace(op, side=Side.NEW)
        return op.with_inputs(*(self.current(i) for i in op.inputs)) if op.inputs else op

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
