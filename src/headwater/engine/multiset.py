"""The multiset hash: the sum of the hashes of all rows, modulo 2**64. It does not depend on their order."""

from __future__ import annotations

from collections.abc import Mapping

_PIECES = (0, 22, 44)


def hash_sums_sql(hash_sql: str, sign: str = "1L") -> dict[str, str]:
    """Return aggregates, by name, that `hash_of_sums` makes a multiset hash of.

    The bits of the hashes are summed in three pieces: each sum stays a BIGINT for 2**41 rows, where a DECIMAL is slower than a write.
    """
    mask = f"{(1 << 22) - 1}L"
    return {f"h{n}": f"sum({sign} * (shiftrightunsigned({hash_sql}, {n}) & {mask}))" for n in _PIECES}


def hash_of_sums(sums: Mapping[str, int | None]) -> int:
    """Return the sum of all hashes modulo 2**64."""
    return sum((sums[f"h{n}"] or 0) << n for n in _PIECES) % 2**64
