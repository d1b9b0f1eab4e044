"""What Spark says about a query before anything of ours has read it.

Raw material: the nodes are Catalyst's own JSON, in preorder, each with the number of its children. What JSON does not carry is
added under keys that start with `hw_`:

    hw_scan     on a leaf: the table and, per column, its expression id, its name in the table, its DDL type and nullability
    hw_output   on every plan node: DDL type and nullability of each output column
    hw_rows, hw_types  on a constant table of not too many rows: the values, as for literals, and their types
    hw_plan     on a scalar subquery or EXISTS that refers to nothing outside: the nodes of its own plan
    hw_value    on a literal whose JSON text is not its value (bytes, timestamps, nested values)
    hw_arguments, hw_result  on an aggregate function: the types of its arguments, and its own
    hw_type     on an expression whose JSON does not tell its type (collations inside arrays and maps, names of fields)

Fields that JSON leaves null although the object has a value (evaluation mode, escape character, options) are filled in place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class OutputField:
    """A column of the result: the name the user sees, its DDL type, and whether NULL may occur."""

    name: str
    type: str
    nullable: bool


@dataclass(frozen=True, slots=True)
class AnalyzedQuery:
    """A resolved and normalised plan, the schema of its result, the tables it reads, and whether Spark calls it deterministic."""

    nodes: tuple[dict[str, Any], ...]
    output: tuple[OutputField, ...]
    tables: tuple[str, ...]
    is_deterministic: bool
