"""Pieces of SQL text that several readers of expressions share."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.plan.catalyst_json import Node
from headwater.plan.expressions import Call, Expression, Literal
from headwater.plan.literals import string_sql

UNKNOWN = Literal("NULL")
"""Stands where an expression was refused, so that reading goes on and finds the other reasons."""


def call(name: str, args: tuple[Expression, ...]) -> Call:
    """Return `name(args)` as a plain function call."""
    return Call(name, args, f"{name}({placeholders(len(args))})")


def placeholders(count: int) -> str:
    """Return `{0}, {1}, ...`."""
    return ", ".join("{" + str(i) + "}" for i in range(count))


def escaped(text: str) -> str:
    """Return `text` for use inside a form, where braces are placeholders."""
    return text.replace("{", "{{").replace("}", "}}")


def options_sql(options: Mapping[str, str] | None) -> str:
    """Return a map of options as SQL, with a leading comma; empty if there are none."""
    if not options:
        return ""
    return ", map(" + ", ".join(f"{string_sql(k)}, {string_sql(v)}" for k, v in sorted(options.items())) + ")"


def fragment(node: Node) -> str:
    """Return a short text that shows a user which part of the query is meant."""
    name = node.fields.get("name")
    return f"{node.kind}({name})" if isinstance(name, str) else f"{node.kind}(...)"
