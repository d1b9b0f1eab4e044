"""Netting: signed rows summed per full tuple, and the sums as change rows.

A tuple of weight n stands for n equal rows, so it becomes n rows again; what cancels is gone. Every place that turns weights into
rows uses these texts, because they decide what "the same tuple" means.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.engine.identity import exact_sql, identity_list
from headwater.model.schema import Field
from headwater.model.sql import quoted
from headwater.store.rows import ACTION, WEIGHT


def net_sql(view: str, fields: Sequence[Field], largest: Sequence[str] = ()) -> str:
    """Return the sum of weights per full tuple, and the largest value of some other columns; tuples that cancel are gone."""
    return _net_sql(view, fields, identity_list(fields), largest)


def net_exactly_sql(view: str, fields: Sequence[Field]) -> str:
    """Return the sum of weights per full tuple of rows that are still computed with: what any function tells apart does not cancel."""
    return _net_sql(view, fields, [exact_sql(quoted(f.name), f.type) for f in fields], ())


def _net_sql(view: str, fields: Sequence[Field], identities: Sequence[str], largest: Sequence[str]) -> str:
    groups = f"GROUP BY {', '.join(identities)} " if fields else ""
    columns = "".join(
        (name if name == identity else f"any_value({name}) AS {name}") + ", "
        for name, identity in zip((quoted(f.name) for f in fields), identities, strict=True)
    )
    columns += "".join(f"max({x}) AS {x}, " for x in largest)
    return f"SELECT {columns}CAST(sum({WEIGHT}) AS INT) AS {WEIGHT} FROM {view} {groups}HAVING sum({WEIGHT}) <> 0"


def copies_sql(net: str, columns: str, where: str = "") -> str:
    """Return `columns` of each tuple of `net` (a view, or a query in parentheses) as often as its weight says, of either sign."""
    return f"SELECT {columns} FROM {net} LATERAL VIEW explode(sequence(1, abs({WEIGHT}))) AS __copy{where}"


def net_changes_sql(view: str, fields: Sequence[Field]) -> str:
    """Return the change rows, `fields` and `__action`, that the signed rows of `view` come to."""
    names = "".join(quoted(f.name) + ", " for f in fields)
    return copies_sql(f"({net_sql(view, fields)})", f"{names}CASE WHEN {WEIGHT} > 0 THEN 'I' ELSE 'D' END AS {ACTION}")
