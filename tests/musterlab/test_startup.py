"""The errors of `up` if the programs themselves fail."""

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from musterlab import ports
from musterlab.errors import PortTaken
from tests.musterlab.conftest import World

Programs = Callable[..., Path]
HANGING_API_SERVER = '#!/bin/sh\n[ "$1" != --version ] || exit 1\nexec sleep 600\n'
ProcessesOf = Callable[[Path], list[str]]


def test_a_program_that_ends_at_once_is_named_with_the_end_of_its_log(
    world: World, programs_in: Programs, processes_of: ProcessesOf
) -> None:
    programs_in(world.tools)
    (world.tools / "etcd").write_text("#!/bin/sh\necho first; echo unknown flag: --lab; exit 7\n")
    (world.tools / "kube-apiserver").write_text(HANGING_API_SERVER)
    result = world.lab("up")
    assert result.returncode == 1
    assert "etcd ended with status 7 while the lab came up; the last lines of its log:" in result.stderr
    assert result.stderr.endswith("  first\n  unknown flag: --lab\n")
    assert world.labs() == []
    assert processes_of(world.root) == []


def test_a_port_lost_to_someone_else_is_chosen_again_and_not_for_ever(
    world: World, programs_in: Programs
) -> None:
    programs_in(world.tools)
    (world.tools / "etcd").write_text(
        f"#!/bin/sh\necho run >>{world.runs}; echo bind: address already in use; exit 1\n"
    )
    (world.tools / "kube-apiserver").write_text(HANGING_API_SERVER)
    result = world.lab("up")
    assert result.returncode == 1
    assert "etcd found its port taken; trying with others" in result.stderr
    assert "ports on loopback were taken 5 times over" in result.stderr
    assert world.builds() == 5
    assert world.labs() == []


def test_an_asked_for_port_lost_at_the_last_moment_is_named(world: World, programs_in: Programs) -> None:
    programs_in(world.tools)
    (world.tools / "etcd").write_text("#!/bin/sh\nexec sleep 600\n")
    (world.tools / "kube-apiserver").write_text(
        "#!/bin/sh\necho listen tcp: bind: address already in use; exit 1\n"
    )
    (port,) = ports.choose(1)
    result = world.lab("up", "--port", str(port))
    assert result.returncode == 1
    assert f"port {port} on 127.0.0.1 is in use" in result.stderr
    assert world.labs() == []


def test_a_state_directory_that_cannot_be_made_is_named(world: World, programs_in: Programs) -> None:
    programs_in(world.tools)
    world.state.write_text("a file")
    result = world.lab("up")
    assert result.returncode == 1
    assert f"the state directory {world.state}/muster/labs/default cannot be made" in result.stderr
    assert "--state-dir" in result.stderr


def test_a_name_that_cannot_be_a_directory_is_refused(world: World) -> None:
    result = world.lab("up", "--name", "../up")
    assert result.returncode == 2
    assert "lab name '../up'" in result.stderr


def test_down_touches_no_directory_that_is_not_a_lab(world: World) -> None:
    precious = world.root / "labs" / "precious"
    precious.mkdir(parents=True)
    (precious / "thesis.txt").write_text("years of work")
    result = world.lab("down", "--name", "precious", "--state-dir", str(world.root / "labs"))
    assert result.returncode == 1
    assert "is not the state of a lab" in result.stderr
    assert (precious / "thesis.txt").exists()


def test_chosen_ports_differ() -> None:
    assert len(set(ports.choose(20))) == 20


def test_a_taken_port_is_named() -> None:
    with socket.socket() as occupied:
        occupied.bind(("127.0.0.1", 0))
        occupied.listen()
        port = occupied.getsockname()[1]
        with pytest.raises(PortTaken, match=f"port {port} on 127.0.0.1 is in use"):
            ports.check_free(port)
    ports.check_free(port)
