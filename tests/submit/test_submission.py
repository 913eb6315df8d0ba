"""A submission is refused if a value is impossible or contradicts another value."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.errors import InvalidField
from orchestrator.submit.submission import Submission
from orchestrator.submit.text_limits import MAX_ANNOTATION_BYTES, MAX_STRING_BYTES, MAX_STRINGS_BYTES
from orchestrator.submit.values import Mount, Port, Rendezvous, Variable


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
    ({"service_type": "ingress"}, "ports"),
    ({"ports": (Port(1, 1),)}, "service_type"),
    ({"service_type": "ingress", "ports": (Port(1, 80), Port(2, 80))}, "ports"),
    ({"volumes": (Mount("/a", "/x"),), "claims": (Mount("b", "/x"),)}, "/x"),
    ({"large_shm": True, "claims": (Mount("b", "/dev/shm"),)}, "/dev/shm"),  # noqa: S108
    ({"interactive": True, "parallelism": 2, "completions": 2}, "completions"),
    ({"interactive": True, "min_member": 2}, "min_member"),
    ({"interactive": True, "ttl_seconds": 5}, "ttl_seconds"),
    ({"interactive": True, "backoff_limit": 3}, "backoff_limit"),
    ({"interactive": True, "snapshot_on_success": True, "claims": (Mount("b", "/x"),)}, "interactive"),
    ({"snapshot_on_success": True}, "snapshot_on_success needs volumes to keep"),
    ({"snapshot_on_success": True, "claims": (Mount("b", "/x"),), "ttl_seconds": 59}, "ttl_seconds 59"),
    ({"parallelism": 2}, "completions"),
    ({"parallelism": 2, "completions": 2, "min_member": 3}, "min_member"),
    ({"indexed": True}, "indexed needs completions"),
    (
        {"indexed": True, "completions": 2, "parallelism": 2, "min_member": 2},
        "indexed does not go with min_member",
    ),
    (
        {"indexed": True, "completions": 2, "rendezvous": Rendezvous("mpi")},
        "indexed does not go with rendezvous",
    ),
    ({"indexed": True, "completions": 2, "interactive": True}, "completions does not go with interactive"),
    ({"gpu_milli": 1000, "gpu_memory_bytes": 10**9}, "gpu_milli and gpu_memory_bytes"),
    ({"gpu_devices": 2}, "gpu_devices"),
    ({"tty": True}, "tty needs stdin"),
    ({"working_dir": "data"}, "working_dir data must begin with /"),
    ({"labels": (("a", "1"), ("a", "2"))}, "labels a is given twice"),
    ({"environment": (Variable("NVIDIA_VISIBLE_DEVICES", "all"),)}, "NVIDIA_VISIBLE_DEVICES"),
]


@pytest.mark.parametrize(("values", "named"), CONTRADICTIONS)
def test_values_that_contradict_each_other_are_refused(values: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidField, match=named):
        Submission("x", "image", "ann", **values)


IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    ({"name": "A"}, "the name 'A' is not possible"),
    ({"image": "a b"}, "image must be set"),
    ({"gpu_milli": 1500}, "gpu_milli 1500 is not possible"),
    ({"gpu_milli": -1000}, "gpu_milli -1000 is not possible"),
    ({"gpu_memory_bytes": 1}, "gpu_memory_bytes 1 is not possible"),
    ({"cpu_milli": -1}, "cpu_milli -1 is not possible"),
    ({"completions": 0}, "completions 0 is not possible"),
    ({"service_type": "teleport"}, "service_type 'teleport' is not possible: use one of portforward"),
    ({"rendezvous": Rendezvous("smoke")}, "rendezvous 'smoke' is not possible"),
]


@pytest.mark.parametrize(("values", "named"), IMPOSSIBLE)
def test_a_value_that_no_parser_would_make_is_refused(values: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidField, match=named):
        Submission(**{"name": "x", "image": "image", "user": "ann", **values})


MAX_VALUE = "x" * (MAX_STRING_BYTES - len("V="))


@pytest.mark.parametrize("value", ["x" * 65536, MAX_VALUE, "ä" * (len(MAX_VALUE) // 2)])
def test_text_that_linux_can_take_is_taken(value: str) -> None:
    assert Submission("x", "image", "ann", environment=(Variable("V", value),)).environment[0].value == value


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"environment": (Variable("V", MAX_VALUE + "x"),)}, "environment V is 131072 bytes"),
        ({"environment": (Variable("V", "ä" * 65536),)}, "environment V is 131074 bytes"),
        ({"environment": (Variable("V", "a\0b"),)}, "environment V has a NUL"),
        ({"args": ("a\0",)}, "args has a NUL"),
        ({"command": ("x" * 131072,)}, "command is 131072 bytes"),
        (
            {"args": ("x" * 131000,) * 9},
            rf"1179000 bytes together, and Kubernetes keeps at most {MAX_STRINGS_BYTES}",
        ),
        ({"annotations": (("example.com/a", "x" * MAX_ANNOTATION_BYTES),)}, "annotations: all annotations"),
        ({"annotations": (("a", "1"), ("a", "2"))}, "annotations a is given twice"),
        ({"labels": (("a", "1"), ("a", "2"))}, "labels a is given twice"),
    ],
)
def test_text_that_cannot_arrive_is_refused_with_the_reason(fields: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidField, match=message):
        Submission("x", "image", "ann", **fields)  # type: ignore[arg-type]
