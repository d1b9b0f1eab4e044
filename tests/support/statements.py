"""Fragments and refusals of statements, for the tests that read them."""

from __future__ import annotations

import pytest

from headwater.errors import StatementError
from headwater.source.parse import read_statement
from headwater.source.statements import Fragment


def cut(sql: str, piece: str) -> Fragment:
    """Return the fragment `piece` of `sql`, found from the right: clauses of interest come late."""
    return Fragment(sql).piece(sql.rindex(piece), sql.rindex(piece) + len(piece))


def refusal(sql: str) -> StatementError:
    """Return the error that `sql` is refused with; unless empty, it says where."""
    with pytest.raises(StatementError) as caught:
        read_statement(sql)
    assert caught.value.code == "HW303"
    assert caught.value.detail is None or "Line " in caught.value.detail
    return caught.value
