from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given, strategies

from orchestrator.cluster.gpu_fraction import format_gpu, gpu_milli
from orchestrator.cluster.quantity import cpu_milli, format_time, memory_bytes, parse_time, whole_count


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("1", 1),
        ("512Gi", 512 * 1024**3),
        ("1.5Ki", 1536),
        ("1e3", 1000),
        ("1E3", 1000),
        ("2E", 2 * 10**18),
        ("1Ei", 1024**6),
        ("128974848", 128974848),
        ("129M", 129_000_000),
        ("1k", 1000),
        ("1500m", 2),
        ("1n", 1),
        (".5Mi", 524288),
        ("5.", 5),
        ("+3", 3),
        ("-1Ki", -1024),
    ],
)
def test_memory_is_read_in_bytes_and_rounded_up(text: str, expected: int) -> None:
    assert memory_bytes(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("500m", 500), ("2", 2000), ("0.1", 100), ("1u", 1), ("96", 96000)]
)
def test_processor_time_is_read_in_thousandths(text: str, expected: int) -> None:
    assert cpu_milli(text) == expected


@pytest.mark.parametrize(
    "text", ["", "1 Gi", "Gi", "1GB", "1ki", "one", "1e", "--1", "0x10", "1\n", "NaN", "\u0661"]
)
def test_a_text_that_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no Kubernetes quantity"):
        memory_bytes(text)


@pytest.mark.parametrize(
    ("text", "expected"), [("110", 110), ("1k", 1000), ("1Ki", 1024), ("1e3", 1000), ("2000m", 2), ("0", 0)]
)
def test_whole_things_are_counted_in_every_form_of_a_quantity(text: str, expected: int) -> None:
    assert whole_count(text) == expected


@pytest.mark.parametrize("text", ["1.5", "500m", "-1", "many", "9" * 5000, "1e99"])
def test_a_text_that_is_no_number_of_things_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no (whole number of things|Kubernetes quantity)"):
        whole_count(text)


@pytest.mark.parametrize("text", ["9" * 5000, "1e99", "9223372036854775808"])
def test_a_quantity_that_the_api_server_never_stores_is_refused(text: str) -> None:
    for parse in (memory_bytes, cpu_milli):
        with pytest.raises(ValueError, match="is more than a Kubernetes quantity can be"):
            parse(text)


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [("2", 2000), ("0.5", 500), (Decimal("0.001"), 1), (3, 3000), ("1e1", 10000), ("1.5000", 1500)],
)
def test_gpus_are_read_in_thousandths_exactly(gpus: Decimal | str | int, expected: int) -> None:
    assert gpu_milli(gpus) == expected


@pytest.mark.parametrize(
    "gpus",
    ["1e999999", "1000001", "0.0001", "1.2345", "-1", "NaN", "Infinity", "half", "", Decimal("0.3333")],
)
def test_gpus_that_are_not_exact_are_refused(gpus: Decimal | str) -> None:
    with pytest.raises(ValueError, match=r"GPUs"):
        gpu_milli(gpus)


@pytest.mark.parametrize(
    ("milli", "text"),
    [(0, "0"), (500, "0.5"), (2000, "2"), (1001, "1.001"), (100_000, "100"), (-250, "-0.25")],
)
def test_gpus_are_written_without_needless_zeros(milli: int, text: str) -> None:
    assert format_gpu(milli) == text


@given(strategies.integers(min_value=0, max_value=10**9))
def test_gpus_that_are_written_and_read_are_the_same(milli: int) -> None:
    assert gpu_milli(format_gpu(milli)) == milli


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:01.5Z", 1_500_000),
        ("1970-01-01T00:00:00.000001Z", 1),
        ("1970-01-01T00:00:00.123456789Z", 123_456),
        ("1970-01-01T02:00:00+02:00", 0),
        ("2026-11-21T10:00:00Z", 1_795_255_200_000_000),
    ],
)
def test_timestamps_are_read_in_microseconds(text: str, expected: int) -> None:
    assert parse_time(text) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "2026-11-21T10:00:00", "2026-13-01T00:00:00Z"])
def test_a_text_that_is_no_timestamp_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="RFC 3339"):
        parse_time(text)


@given(strategies.integers(min_value=0, max_value=2**52))
def test_timestamps_that_are_written_and_read_are_the_same(microseconds: int) -> None:
    assert parse_time(format_time(microseconds)) == microseconds
    assert parse_time(format_time(microseconds, places=0)) == microseconds // 1_000_000 * 1_000_000
