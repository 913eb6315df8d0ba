from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cluster.quantity import cpu_milli, memory_bytes
from orchestrator.errors import UsageError
from orchestrator.workloads import values
from orchestrator.workloads.environment import Variable, parse_variable
from orchestrator.workloads.network import Port, parse_port
from orchestrator.workloads.storage import Mount, NewClaim, parse_claim, parse_volume
from orchestrator.workloads.submission import Submission

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
    assert values.parse_gpu(text) == milli


@given(st.decimals(min_value=-2, max_value=20, places=4, allow_nan=False) | st.integers(-3, 100))
def test_every_number_of_gpus_is_exact_or_refused(number: Decimal | int) -> None:
    value = Decimal(number)
    text = f"{value:f}"
    places = len(text.partition(".")[2])
    possible = value > 0 and places <= 3 and (value < 1 or value == int(value))
    if possible:
        assert Decimal(values.parse_gpu(text)) == value * 1000
    else:
        with pytest.raises(UsageError, match=r"-g/--gpu .* whole number"):
            values.parse_gpu(text)


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
    (parse_claim, ":1Gi:/x", NewClaim("1Gi", "/x")),
    (parse_claim, "fast:10GB:/x", NewClaim("10G", "/x", "fast")),
    (parse_claim, "fast:1.5Ti:/x/:ro", NewClaim("1.5Ti", "/x", "fast", read_only=True)),
    (values.parse_name, "a-1-1-jupyter", "a-1-1-jupyter"),
    (values.parse_name, "a" * 52, "a" * 52),
    (values.parse_image, "netapp/tensorflow-tf1-py3:20.01.0", "netapp/tensorflow-tf1-py3:20.01.0"),
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
    *((values.parse_name, text) for text in ("", "A", "1a", "a-", "-a", "a_b", "a.b", "ä", "a" * 53, "a\n")),
    *((values.parse_image, text) for text in ("", " ", "a b", "a\n")),
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
    assert values.parse_duration_seconds("--ttl-after-finish", text) == seconds


@pytest.mark.parametrize("text", ["", "5", "s", "5d", "-5s", "5 s", "9999999999h", "9" * 40 + "h"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--ttl-after-finish"):
        values.parse_duration_seconds("--ttl-after-finish", text)


@pytest.mark.parametrize("convert", [cpu_milli, memory_bytes])
@given(text=st.text(max_size=6))
def test_an_amount_is_kept_as_text_or_refused(convert: Callable[[str], int], text: str) -> None:
    try:
        assert values.parse_quantity("--cpu", text, convert) == text
        assert convert(text) > 0
    except UsageError as error:
        assert "--cpu" in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("values", "preemptible"),
    [
        ({}, True),
        ({"interactive": True}, False),
        ({"interactive": True, "preemptible": True}, True),
        ({"preemptible": False}, False),
    ],
)
def test_preemptibility_follows_the_type_unless_it_is_said(
    values: dict[str, bool], preemptible: bool
) -> None:
    assert Submission("x", "image", "ann", **values).is_preemptible is preemptible  # type: ignore[arg-type]


CONTRADICTIONS: list[tuple[dict[str, Any], str]] = [
    ({"service_type": "ingress"}, "--port"),
    ({"ports": (Port(1, 1),)}, "--service-type"),
    ({"service_type": "ingress", "ports": (Port(1, 80), Port(2, 80))}, "--port"),
    ({"volumes": (Mount("/a", "/x"),), "claims": (Mount("b", "/x"),)}, "/x"),
    ({"large_shm": True, "claims": (Mount("b", "/dev/shm"),)}, "/dev/shm"),  # noqa: S108
    ({"interactive": True, "parallelism": 2, "completions": 2}, "--completions"),
    ({"interactive": True, "min_member": 2}, "--min-member"),
    ({"interactive": True, "ttl_seconds": 5}, "--ttl-after-finish"),
    ({"interactive": True, "backoff_limit": 3}, "--backoff-limit"),
    ({"parallelism": 2}, "--completions"),
    ({"parallelism": 2, "completions": 2, "min_member": 3}, "--min-member"),
    ({"environment": (Variable("NVIDIA_VISIBLE_DEVICES", "all"),)}, "NVIDIA_VISIBLE_DEVICES"),
]


@pytest.mark.parametrize(("values", "named"), CONTRADICTIONS)
def test_values_that_contradict_each_other_are_refused(values: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        Submission("x", "image", "ann", **values)
