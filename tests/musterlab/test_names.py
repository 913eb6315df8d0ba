"""The name server of real nodes, without containers."""

import contextlib
import socket
import struct
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterlab.realnodes import names

A, AAAA = 1, 28
ADDRESSES = {
    ("job-0", "job", "team", "svc", "cluster", "local"): ["10.80.1.2"],
    ("job",): ["10.80.1.2", "10.80.2.3"],
}


def question(name: str, kind: int = A) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack("!HHHHHH", 77, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", kind, 1)


def status_and_addresses(reply: bytes) -> tuple[int, list[str]]:
    identifier, flags, _, count, _, _ = struct.unpack_from("!HHHHHH", reply)
    assert identifier == 77
    assert flags & 0x8000
    packed = [reply[len(reply) - 16 * number :][12:16] for number in range(count, 0, -1)]
    return flags & 15, [socket.inet_ntoa(each) for each in packed]


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("job-0.job.team.svc.cluster.local", A, (0, ["10.80.1.2"])),
        ("JOB-0.job.team.svc.Cluster.Local", A, (0, ["10.80.1.2"])),
        ("job", A, (0, ["10.80.1.2", "10.80.2.3"])),
        ("job", AAAA, (0, [])),
        ("example.org", A, (3, [])),
    ],
)
def test_a_question_gets_its_answer(name: str, kind: int, expected: tuple[int, list[str]]) -> None:
    assert status_and_addresses(names.answer(question(name, kind), ADDRESSES.get)) == expected


def test_a_server_that_cannot_look_says_so_rather_than_that_there_is_no_such_name() -> None:
    def broken(_: tuple[str, ...]) -> list[str] | None:
        raise ConnectionRefusedError

    assert status_and_addresses(names.answer(question("job"), broken)) == (2, [])


@given(st.binary(max_size=80))
def test_a_malformed_question_is_refused_and_nothing_else_happens(query: bytes) -> None:
    with contextlib.suppress(names.MalformedQuery):
        assert names.answer(query, lambda _: None)[:2] == query[:2]


def test_a_server_continues_after_rubbish() -> None:
    bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    bound.bind(("127.0.0.1", 0))
    threading.Thread(target=names.serve, args=(bound, ADDRESSES.get), daemon=True).start()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(10)
        asking.sendto(b"rubbish", bound.getsockname())
        asking.sendto(question("job"), bound.getsockname())
        assert status_and_addresses(asking.recv(512)) == (0, ["10.80.1.2", "10.80.2.3"])
