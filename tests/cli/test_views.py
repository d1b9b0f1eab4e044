"""Records for output: sizes, addresses, sentences."""

from __future__ import annotations

import pytest

from headwater.cli.views import as_list, human_bytes, without_password


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1400, "1.4 kB"), (12_000_000, "12.0 MB"), (5 * 10**13, "50.0 TB")]
)
def test_human_bytes(count: int, text: str) -> None:
    assert human_bytes(count) == text


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        ("shop", "shop"),
        ("postgresql://me:secret@db/shop", "postgresql://me:***@db/shop"),
        ("postgresql://me:p@ss:w/rd@db:5432/shop", "postgresql://me:***@db:5432/shop"),
        ("postgresql://me@db/shop", "postgresql://me@db/shop"),
        ("postgresql://db/shop", "postgresql://db/shop"),
        ("postgresql://db/shop?password=a&user=b", "postgresql://db/shop?password=***&user=b"),
    ],
)
def test_without_password(target: str, shown: str) -> None:
    assert without_password(target) == shown


def test_as_list() -> None:
    assert as_list(["a", "b"]) == ["a", "b"]
    assert as_list(3) == [3]
