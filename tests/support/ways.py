"""Ways that only many rows take, taken by few: otherwise small tests would never see them.

A number chooses which: the same number takes the same ways for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

from headwater.refresh import evaluate, places
from headwater.store import reading


@contextmanager
def ways_of(number: int) -> Iterator[None]:
    """Compute old and new groups apart in one of four; let Spark add up base and tail, and read near rows apart, in every other.

    Rows of tables near a change are found by the driver, but in one of three, where Spark looks for them. In two of five no state
    counts as small: the groups that change are found first, and looked up.
    """
    with ExitStack() as patches:
        if number % 4 == 1:
            patches.enter_context(mock.patch.object(evaluate, "_MANY_GROUPS", 0))
        if number % 2 == 1:
            patches.enter_context(mock.patch.object(reading, "_FEW_ROWS", 0))
        if number % 4 >= 2:
            patches.enter_context(mock.patch.object(places, "_NEAR_TABLE_ROWS", 0))
        if number % 3 == 0:
            patches.enter_context(mock.patch.object(places, "rows_near", return_value=None))
        if number % 5 < 2:
            patches.enter_context(mock.patch.object(evaluate, "_SMALL_STATE", -1))
        yield
