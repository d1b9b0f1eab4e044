"""Two values in the type of a column: of the values that it can have, none between them is left out."""

from __future__ import annotations

from collections import Counter
from datetime import date
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headwater.store.near import _fitted_ends

INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
DECIMALS = (
    pa.decimal128(1, 0),
    pa.decimal128(3, 3),
    pa.decimal128(9, 2),
    pa.decimal128(18, 4),
    pa.decimal128(38, 0),
    pa.decimal128(38, 38),
)


def fitted(low: Any, high: Any, kind: pa.DataType) -> tuple[Any, Any]:
    ends = _fitted_ends((low, high), kind)
    assert {e.type for e in ends} == {kind}
    return ends[0].as_py(), ends[1].as_py()


def decimals(low: str, high: str) -> tuple[Decimal, Decimal]:
    return Decimal(low), Decimal(high)


def units_of(kind: pa.DataType) -> tuple[int, int, int]:
    """Return the least and the greatest value of a type without its point, and how many digits stand after that."""
    if pa.types.is_decimal(kind):
        return 1 - 10**kind.precision, 10**kind.precision - 1, kind.scale
    return -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1, 0


# by hand ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", INTEGERS, ids=str)
@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [
        ("2", "7", (2, 7)),
        ("2.5000", "7.5000", (2, 8)),
        ("2.9999", "7.0001", (2, 8)),
        ("-7.5", "-2.5", (-8, -2)),
        ("-0.0001", "0.0001", (-1, 1)),
        ("2.25", "2.75", (2, 3)),
    ],
)
def test_integers_are_rounded_outwards(kind: pa.DataType, low: str, high: str, wanted: tuple[int, int]) -> None:
    assert fitted(*decimals(low, high), kind) == wanted


@pytest.mark.parametrize("kind", INTEGERS, ids=str)
def test_integers_stay_as_they_are(kind: pa.DataType) -> None:
    assert fitted(-3, 100, kind) == (-3, 100)
    least, most, _ = units_of(kind)
    assert fitted(least, most, kind) == (least, most)


@pytest.mark.parametrize("kind", INTEGERS, ids=str)
def test_what_an_integer_cannot_be_is_its_least_or_its_greatest(kind: pa.DataType) -> None:
    least, most, _ = units_of(kind)
    assert fitted(-(10**30), 10**30, kind) == (least, most)
    assert fitted(Decimal(least) - Decimal("0.5"), Decimal(most) + Decimal("0.5"), kind) == (least, most)
    assert fitted(most + 1, 10**37, kind) == (most, most)
    assert fitted(-(10**37), least - 1, kind) == (least, least)


@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [
        ("1.23", "1.24", ("1.23", "1.24")),
        ("1.2301", "1.2399", ("1.23", "1.24")),
        ("-1.2399", "-1.2301", ("-1.24", "-1.23")),
        ("5", "6", ("5.00", "6.00")),
        ("-0.001", "0.001", ("-0.01", "0.01")),
        ("9999999.991", "1e20", ("9999999.99", "9999999.99")),
        ("-1e20", "-9999999.991", ("-9999999.99", "-9999999.99")),
        ("-1e30", "1e30", ("-9999999.99", "9999999.99")),
    ],
)
def test_decimals_are_rounded_outwards_as_far_as_they_go(low: str, high: str, wanted: tuple[str, str]) -> None:
    assert fitted(*decimals(low, high), pa.decimal128(9, 2)) == decimals(*wanted)


def test_an_integer_bounds_decimals() -> None:
    assert fitted(-2, 3, pa.decimal128(9, 2)) == decimals("-2.00", "3.00")


def test_all_digits_of_the_longest_decimals_are_kept() -> None:
    digits = "1234567890" * 3 + "12345678"
    assert fitted(*decimals(f"-{digits}", digits), pa.decimal128(38, 0)) == decimals(f"-{digits}", digits)
    assert fitted(*decimals(f"-0.{digits}", f"0.{digits}"), pa.decimal128(38, 38)) == decimals(
        f"-.{digits}", f".{digits}"
    )
    most = "0." + "9" * 38
    assert fitted(*decimals(f"-{digits}", digits), pa.decimal128(38, 38)) == decimals(f"-{most}", most)
    assert fitted(*decimals(f"0.{digits}", f"1.{digits[:37]}"), pa.decimal128(38, 0)) == decimals("0", "2")


def test_days_stay_as_they_are() -> None:
    days = date(1, 1, 1), date(9999, 12, 31)
    assert fitted(*days, pa.date32()) == days


# the law ----------------------------------------------------------------------------------------------------------------------

SEEDS = range(1500)


def number(units: int, scale: int) -> Decimal:
    """Return a number with so many digits after the point, exactly."""
    return Decimal(f"{units}e-{scale}")


def around(rng: Random, kind: pa.DataType) -> tuple[int, int]:
    """Return a number at zero, at an end of a type, anywhere in it or outside of it, and its digits after the point."""
    least, most, scale = units_of(kind)
    near = rng.choice((0, 0, least, most, 10 * least, 10 * most, rng.randint(least, most)))
    finer = rng.choice((0, 1, 3))
    return (near + rng.randint(-5, 5)) * 10**finer + rng.randint(-300, 300), scale + finer


def test_no_value_between_the_ends_is_left_out() -> None:
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        rng = Random(seed)
        kind = rng.choice(INTEGERS + DECIMALS)
        least, most, scale = units_of(kind)
        low, high = sorted(number(*around(rng, kind)) for _ in range(2))
        near = [*(int(Fraction(e) * 10**scale) + i for e in (low, high) for i in range(-3, 4)), least, most]
        values = [
            number(min(max(n, least), most), scale) for n in (*near, *(rng.randint(least, most) for _ in range(5)))
        ]
        column = pa.array(values if pa.types.is_decimal(kind) else [int(v) for v in values], kind)
        first, last = _fitted_ends((low, high), kind)
        kept = pc.and_(pc.greater_equal(column, first), pc.less_equal(column, last)).to_pylist()
        wanted = [low <= v <= high for v in values]
        assert all(k for k, w in zip(kept, wanted, strict=True) if w), f"seed {seed}"
        seen["wanted"] += sum(wanted)
        seen["left out"] += kept.count(False)
    assert seen["wanted"] > 15_000
    assert seen["left out"] > 9_000
