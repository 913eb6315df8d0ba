"""`muster edit` and `muster node drain` with a real operator and simulated nodes."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from musterlab.cluster import start
from orchestrator.client import Client
from orchestrator.views.job_record import job_record
from tests.cli.terminals import terminal
from tests.control.operators import must, must_all, operator, prepare

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.lab

OF_TEAM_A = "-p team-a"


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Run a lab with two nodes of eight GPUs, an operator, and the project team-a."""
    folder = tmp_path_factory.mktemp("site")
    lab = start("daily", nodes=2, detach=False, state_dir=folder / "labs")
    try:
        account = asyncio.run(prepare(lab.kubeconfig, folder / "operator.kubeconfig"))
        with operator(account, folder / "operator.log"):
            must_all(lab.kubeconfig, "project create team-a -g 16")
            yield lab.kubeconfig
    finally:
        lab.stop()


def job(kubeconfig: Path, name: str) -> dict[str, Any]:
    """Return the job as programs get it, without a process for the command line."""
    with Client(kubeconfig, project="team-a") as client:
        return job_record(client.get_job(name), 0)


def test_a_job_that_is_too_large_is_edited_and_runs_and_ends(kubeconfig: Path) -> None:
    must_all(
        kubeconfig,
        f"submit large -i old -g 9 {OF_TEAM_A} -a muster.dev/lab-stop-seconds=0",
        f"edit large -g 4 -i new {OF_TEAM_A} --dry-run",
    )
    assert (job(kubeconfig, "large")["gpus"], job(kubeconfig, "large")["status"]) == ("9", "Pending")
    edit = ("edit", "large", "-g", "4", "-i", "new", "-p", "team-a", "-o", "json")
    foreseen = json.loads(must(kubeconfig, *edit, "--dry-run"))
    edited = json.loads(must(kubeconfig, *edit))
    for record in (foreseen, edited):
        assert (record["name"], record["gpus"], record["image"]) == ("large", "4", "new")
    must_all(kubeconfig, f"wait large --for running --timeout 5m {OF_TEAM_A}")
    runs = job(kubeconfig, "large")
    assert (runs["gpusAllocated"], runs["image"]) == ("4", "new")
    devices = runs["instances"][0]["gpuDevices"]
    assert len(devices.split(",")) == 4
    shown = must(kubeconfig, "get", "large", "-p", "team-a")
    assert f"GPU DEVICES: {runs['node']}:{devices}\n" in shown
    must_all(
        kubeconfig,
        f"delete large -y {OF_TEAM_A}",
        f"submit short -i image -g 1 {OF_TEAM_A} -a muster.dev/lab-run-seconds=0.1",
        f"wait short --for succeeded --timeout 5m {OF_TEAM_A}",
        f"delete short -y {OF_TEAM_A}",
    )


def test_a_drained_node_gives_its_job_to_another_node(kubeconfig: Path) -> None:
    must_all(
        kubeconfig,
        f"submit moves -i image -g 2 {OF_TEAM_A}",
        f"wait moves --for running --timeout 5m {OF_TEAM_A}",
    )
    first = job(kubeconfig, "moves")["node"]
    drained = must(kubeconfig, "node", "drain", first, "-y", "--timeout", "5m")
    assert drained.endswith(f"{first} is drained; 'muster node uncordon {first}' gives it back\n")
    must_all(kubeconfig, f"wait moves --for running --timeout 5m {OF_TEAM_A}")
    assert job(kubeconfig, "moves")["node"] not in ("", first)
    must_all(kubeconfig, f"node uncordon {first}", f"delete moves -y {OF_TEAM_A}")


def test_an_interrupted_drain_continues_and_stops_the_remaining_job(kubeconfig: Path) -> None:
    must_all(
        kubeconfig,
        f"submit stays -i image -g 8 --interactive {OF_TEAM_A}",
        f"wait stays --for running --timeout 5m {OF_TEAM_A}",
    )
    first = job(kubeconfig, "stays")["node"]
    with terminal(kubeconfig, "node", "drain", first, "-y", "--timeout", "1h", columns=250) as person:
        person.see(b"stays of team-a: 1 pod, not evicted yet")
        person.type(b"\x03")
        person.see(f"'muster node uncordon {first}' ends the drain".encode())
        assert person.exit_code() == 130
    with Client(kubeconfig) as client:
        assert client.get_node(first).is_cordoned
    assert (job(kubeconfig, "stays")["status"], job(kubeconfig, "stays")["node"]) == ("Running", first)
    must_all(
        kubeconfig,
        f"node drain {first} -y --force --timeout 5m",
        f"wait stays --for running --timeout 5m {OF_TEAM_A}",
        f"node uncordon {first}",
    )
    assert job(kubeconfig, "stays")["node"] not in ("", first)
    must_all(kubeconfig, f"delete stays -y {OF_TEAM_A}")
