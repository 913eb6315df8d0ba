"""Covers the parsing of option values (`parsing`, `mount_parsing`): invalid values are refused by name."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cluster.quantity import cpu_milli, memory_bytes
from orchestrator.durations import parse_duration_seconds
from orchestrator.errors import InvalidField, UsageError
from orchestrator.submit import parsing
from orchestrator.submit.mount_parsing import (
    parse_claim,
    parse_existing_claim,
    parse_new_claim,
    parse_port,
    parse_volume,
)
from orchestrator.submit.parsing import parse_variable, parse_variables
from orchestrator.submit.values import Mount, NewClaim, Port, Variable

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("text", "milli"),
    [
        (None, 0),
        ("1", 1000),
        ("16", 16000),
        ("0.5", 500),
        (".25", 250),
        ("0.001", 1),
        ("0.999", 999),
        ("2.0", 2000),
    ],
)
def test_gpus_are_whole_or_a_part_of_one(text: str | None, milli: int) -> None:
    assert parsing.parse_gpu(text) == milli


@given(st.decimals(min_value=-2, max_value=20, places=4, allow_nan=False) | st.integers(-3, 100))
def test_every_number_of_gpus_is_exact_or_refused(number: Decimal | int) -> None:
    value = Decimal(number)
    text = f"{value:f}"
    places = len(text.partition(".")[2])
    possible = value > 0 and places <= 3 and (value < 1 or value == int(value))
    if possible:
        assert Decimal(parsing.parse_gpu(text)) == value * 1000
    else:
        with pytest.raises(UsageError, match=r"gpu_milli .* whole number"):
            parsing.parse_gpu(text)


PARSED: list[tuple[Callable[[str], Any], str, Any]] = [
    (parse_port, "8888", Port(8888, 8888)),
    (parse_port, "30080:80", Port(30080, 80)),
    (parse_variable, "A=b=c", Variable("A", "b=c")),
    (parse_variable, "A=", Variable("A")),
    (parse_variable, "A=SECRET:s3,key", Variable("A", secret="s3", secret_key="key")),
    (parse_volume, "/mnt:/data", Mount("/mnt", "/data")),
    (parse_volume, "/mnt:/data/:ro", Mount("/mnt", "/data", read_only=True)),
    (parse_volume, "/mnt:/data:rw", Mount("/mnt", "/data")),
    (parse_claim, "test:/tmp/x", Mount("test", "/tmp/x")),  # noqa: S108
    (parse_claim, "test:/x:ro", Mount("test", "/x", read_only=True)),
    (parse_claim, "test:/x:rw", Mount("test", "/x")),
    (parse_claim, ":1Gi:/x", NewClaim(1 << 30, "/x")),
    (parse_claim, "fast:10GB:/x", NewClaim(10**10, "/x", "fast")),
    (parse_claim, "fast:1.5Ti:/x/:ro", NewClaim(3 << 39, "/x", "fast", read_only=True)),
    (parsing.parse_name, "a-1-1-jupyter", "a-1-1-jupyter"),
    (parsing.parse_name, "a" * 52, "a" * 52),
    (parsing.parse_image, "netapp/tensorflow-tf1-py3:20.01.0", "netapp/tensorflow-tf1-py3:20.01.0"),
]

REFUSED: list[tuple[Callable[[str], Any], str]] = [
    *((parse_port, text) for text in ("", "0", "65536", "a", "1:", ":1", "1:2:3", "-1", "1.0")),
    *((parse_variable, text) for text in ("", "=", "=a", "A", "A B=c", "A=SECRET:", "A=SECRET:x")),
    *((parse_volume, text) for text in ("", "/a", "a:/b", "/a:b", "/a:/b:xx", ":/b", "/a:")),
    *(
        (parse_claim, text)
        for text in (
            "",
            "a",
            "a:b",
            ":/x",
            "A:/x",
            ":1Xi:/x",
            "fast:0:/x:ro",
            "fast:1Gi:x:ro",
            "fast:1Gi:/x:rx",
            "..:/x",
            "F:1Gi:/x:ro",
        )
    ),
    *((parsing.parse_name, text) for text in ("", "A", "1a", "a-", "-a", "a_b", "a.b", "ä", "a" * 53, "a\n")),
    *((parsing.parse_image, text) for text in ("", " ", "a b", "a\n")),
]


@pytest.mark.parametrize(("parse", "text", "value"), PARSED)
def test_a_value_is_read(parse: Callable[[str], Any], text: str, value: object) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(("parse", "text"), REFUSED)
def test_a_value_that_cannot_be_meant_is_refused(parse: Callable[[str], Any], text: str) -> None:
    with pytest.raises(UsageError):
        parse(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("5s", 5), ("2m", 120), ("3h", 10800), ("1h30m", 5400), ("1.5s", 2)]
)
def test_durations_are_whole_seconds(text: str, seconds: int) -> None:
    assert parse_duration_seconds("ttl_seconds", text) == seconds


@pytest.mark.parametrize("text", ["", "5", "s", "5d", "-5s", "5 s", "9999999999h", "9" * 40 + "h"])
def test_a_text_that_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="ttl_seconds"):
        parse_duration_seconds("ttl_seconds", text)


@pytest.mark.parametrize(
    ("parse", "convert"), [(parsing.parse_cpu, cpu_milli), (parsing.parse_memory, memory_bytes)]
)
@given(text=st.text(max_size=6))
def test_an_amount_is_exact_or_refused(
    parse: Callable[[str, str], int], convert: Callable[[str], int], text: str
) -> None:
    try:
        amount = parse("cpu_milli", text)
    except InvalidField as error:
        assert "cpu_milli" in str(error)  # noqa: PT017
    else:
        assert amount == convert(text) > 0


def test_an_amount_that_no_quantity_can_be_is_refused() -> None:
    for parse in (parse_claim, parse_new_claim):
        with pytest.raises(InvalidField, match="not possible"):
            parse(f"fast:{'9' * 30}E:/x" if parse is parse_claim else f"size={'9' * 30}E,path=/x")


def test_an_error_has_the_names_that_the_caller_has_for_fields() -> None:
    with pytest.raises(InvalidField, match=r"^cpu_milli '{name}' is not an amount") as caught:
        parsing.parse_cpu("cpu_milli", "{name}")
    renamed = caught.value.with_names({"cpu_milli": "--cpu"})
    assert str(renamed).startswith("--cpu '{name}' is not an amount")
    assert (type(renamed), renamed.exit_code) == (InvalidField, 2)


def test_an_existing_claim_has_a_name_and_a_path() -> None:
    assert parse_existing_claim("claimname=data,path=/x/,readonly") == Mount("data", "/x", read_only=True)
    with pytest.raises(InvalidField, match=r"existing_claims .* unknown field 'name': give claimname"):
        parse_existing_claim("name=data,path=/x")


def test_a_new_claim_has_its_size_in_bytes() -> None:
    claim = parse_new_claim("size=10GB,path=/x,storageclass=fast,accessmode-rwm")
    assert claim == NewClaim(10**10, "/x", "fast", access_mode="ReadWriteMany")


def test_a_file_of_variables_is_taken_as_it_stands() -> None:
    content = "# a comment\n\nA=1\nB=with = and # and 'quotes' \r\n  C=ä$(X)\nD=SECRET:s3,key\nE=\n".encode()
    assert parse_variables(content, "env") == (
        Variable("A", "1"),
        Variable("B", "with = and # and 'quotes' "),
        Variable("C", "ä$(X)"),
        Variable("D", secret="s3", secret_key="key"),
        Variable("E"),
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"A=1\nnonsense\n", "line 2: give NAME=VALUE"), (b"A=1\n\nB=\xff\n", "line 3: is no")],
)
def test_a_line_that_cannot_be_read_is_named(content: bytes, message: str) -> None:
    with pytest.raises(UsageError, match=f"environment_file env, {message}"):
        parse_variables(content, "env")


@given(text=st.text(max_size=20))
def test_a_variable_is_read_as_it_is_or_refused(text: str) -> None:
    try:
        variable = parse_variable(text)
    except UsageError as error:
        assert "environment" in str(error)  # noqa: PT017
        return
    assert variable.secret or f"{variable.name}={variable.value}" == text
