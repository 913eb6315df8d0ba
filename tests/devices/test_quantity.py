"""`orchestrator.devices.quantity`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.devices.quantity import NANO, NotAQuantity, format_nano, parse_nano, whole


@pytest.mark.parametrize(
    ("text", "nano"),
    [
        ("0", 0),
        ("1", NANO),
        ("1500m", 3 * NANO // 2),
        ("1.5Gi", 3 * 2**29 * NANO),
        ("-2k", -2000 * NANO),
        (".5", NANO // 2),
        ("1e3", 1000 * NANO),
        ("1E", 10**18 * NANO),
        ("1E2", 100 * NANO),
        ("0.0000000001", 1),
        ("12n", 12),
    ],
)
def test_a_quantity_is_exact(text: str, nano: int) -> None:
    assert parse_nano(text) == nano


@pytest.mark.parametrize("text", ["", ".", "Gi", "1 Gi", "1K", "0x10", "1e", "--1", "1" * 65, "٣"])
def test_a_text_that_is_no_quantity_says_so(text: str) -> None:
    with pytest.raises(NotAQuantity, match="is not a quantity"):
        parse_nano(text)


@given(st.integers(-(10**30), 10**30))
def test_a_quantity_is_read_back_as_it_was_written(nano: int) -> None:
    assert parse_nano(format_nano(nano)) == nano


@pytest.mark.parametrize(
    ("nano", "text"), [(32 * 2**30 * NANO, "32Gi"), (NANO, "1"), (1500 * 10**6, "1500m")]
)
def test_it_is_written_as_people_write_it(nano: int, text: str) -> None:
    assert format_nano(nano) == text


def test_a_part_counts_as_one_more() -> None:
    assert whole(parse_nano("1500m")) == 2
