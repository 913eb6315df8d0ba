"""Deliberate faults: processes of a lab are killed, stopped, and continued."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from musterlab.cluster import Lab, start
from musterlab.components import KWOK
from musterlab.errors import StateError

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def own_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = start("faults", nodes=1, detach=False, state_dir=tmp_path_factory.mktemp("labs"))
    yield lab
    lab.stop()


def pid(lab: Lab) -> int:
    return next(each.pid for each in lab.status().processes if each.name == KWOK)


def process_state(number: int) -> str:
    return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_process_that_was_restarted_is_another_one_and_the_lab_runs(own_lab: Lab) -> None:
    before = pid(own_lab)
    own_lab.restart(KWOK)
    assert pid(own_lab) != before
    assert own_lab.status().state == "running"


def test_a_process_can_be_stopped_and_continued(
    own_lab: Lab, eventually: Callable[[Callable[[], bool], str], None]
) -> None:
    own_lab.signal(KWOK, signal.SIGSTOP)
    eventually(lambda: process_state(pid(own_lab)) == "T", "it stands still")
    own_lab.signal(KWOK, signal.SIGCONT)
    eventually(lambda: process_state(pid(own_lab)) in "SR", "it runs again")


def test_a_process_that_is_none_of_the_labs_is_named(own_lab: Lab) -> None:
    with pytest.raises(StateError, match="lab 'faults' has no process 'kubelet'"):
        own_lab.signal("kubelet", signal.SIGKILL)


def test_a_detached_lab_starts_no_process_again(tmp_path: Path) -> None:
    lab = start("detached", nodes=0, detach=True, state_dir=tmp_path / "labs")
    try:
        with pytest.raises(StateError, match="was detached"):
            lab.restart(KWOK)
    finally:
        lab.stop()
