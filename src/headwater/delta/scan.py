"""Delta of a scan.

    delta(R)  =  the change rows of R since the frontier, +1 for I and -1 for D

Updates of columns that the query does not read are left out by `__changed_cols`: both halves carry the same mask, so dropping
them drops a pair that cancels. Rows without a mask are always read.
"""

from __future__ import annotations

from dataclasses import replace

from headwater.delta.context import WEIGHT, Delta, DeltaContext, Term, changes_place
from headwater.plan.operators import Scan, Side


def scan_delta(op: Scan, ctx: DeltaContext) -> Delta:
    """Return the scan of the table's changes, with their weight."""
    tree = replace(op, side=Side.DELTA, columns=(*op.columns, WEIGHT), names=(*op.names, WEIGHT.name))
    return (Term((changes_place(op.table),), tree),)
