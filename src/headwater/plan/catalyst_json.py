"""Catalyst's JSON as a tree: the flat preorder lists of `toJSON()`, nested.

A plan and an expression have the same shape: a class, fields, children. A field that holds expressions holds them as flat lists
again; `Node.expressions` nests those.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a plan or of an expression; `kind` is the class without its package."""

    kind: str
    fields: dict[str, Any]
    children: tuple[Node, ...]

    def expression(self, field: str) -> Node:
        """Return the one expression in `field`."""
        return nested(self.fields[field])

    def expressions(self, field: str) -> tuple[Node, ...]:
        """Return the expressions in `field`."""
        return tuple(nested(flat) for flat in self.fields[field])

    @property
    def expression_id(self) -> int:
        found: int = self.fields["exprId"]["id"]
        return found

    def walk(self) -> Iterator[Node]:
        """Yield this node and everything below it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()


def nested(flat: Sequence[dict[str, Any]]) -> Node:
    """Return the tree of a preorder list."""
    node, end = _nested_from(flat, 0)
    if end != len(flat):
        raise ValueError("Catalyst JSON holds more nodes than its tree")
    return node


def _nested_from(flat: Sequence[dict[str, Any]], start: int) -> tuple[Node, int]:
    fields = flat[start]
    children = []
    position = start + 1
    for _ in range(fields["num-children"]):
        child, position = _nested_from(flat, position)
        children.append(child)
    kind = fields["class"].rpartition(".")[2].removesuffix("$")
    return Node(kind, fields, tuple(children)), position
