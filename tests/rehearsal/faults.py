"""Faults of the rehearsed cluster, one at a time: `make rehearsal FAULTS=1`. Each is named with its fix, and mended."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from musterlab.gpus import shown
from tests.deployment.hosts import stubs
from tests.rehearsal import gpus, machines, site, storage
from tests.rehearsal.chain import MUSTER, SIZE, Chain, Step, StepFailed, start_servers, wait_for_gpus
from tests.rehearsal.machines import Machine

_DNS: Final = ("--namespace", "kube-system", "deployment/coredns")
_VERSION: Final = stubs.DRIVERS[site.OLDER["driver"]]
_OTHER_VERSION: Final = "570.158.01"
_IMAGE: Final = "docker.io/library/python:latest"


@dataclass(frozen=True)
class Fault:
    """A fault, the words that muster must say of it, and the way back."""

    name: str
    begin: Callable[[Chain], object]
    says: tuple[str, ...]
    end: Callable[[Chain], object]


def _worker(chain: Chain) -> Machine:
    return next(machine for machine in machines.load(chain.folder / "hosts") if machine.gpus)


def _lose_gpu(chain: Chain) -> None:
    worker = _worker(chain)
    worker.run("touch", f"/run/nvidia-stub/lost-{gpus.addresses()[-1]}", check=True)
    with shown.changes(gpus.state(worker.disk)) as changes:
        changes.set(gpus.COUNT - 1, {"lost": 1})


def _find_gpu(chain: Chain) -> None:
    worker = _worker(chain)
    worker.run("rm", f"/run/nvidia-stub/lost-{gpus.addresses()[-1]}", check=True)
    with shown.changes(gpus.state(worker.disk)) as changes:
        changes.gpus.pop(gpus.COUNT - 1, None)


def _manage(*words: str) -> Callable[[Chain], object]:
    return lambda chain: _worker(chain).run("systemctl", *words, "nvidia-fabricmanager", check=True)


def _change_manager(old: str, new: str) -> Callable[[Chain], object]:
    def change(chain: Chain) -> None:
        worker = _worker(chain)
        worker.run("sed", "-i", f"s/{old}/{new}/", "/usr/bin/nv-fabricmanager", check=True)
        worker.run("systemctl", "restart", "nvidia-fabricmanager", check=True)

    return change


def _break_dns(chain: Chain) -> None:
    """Let CoreDNS ask itself, as on hosts whose resolver names an address of loopback."""
    configuration = json.loads(
        chain.kubectl("get", "configmap", "coredns", "-n", "kube-system", "-o", "json")
    )
    chain.state["corefile"] = configuration["data"]["Corefile"]
    chain.save()
    lines = chain.state["corefile"].splitlines()
    _configure_dns(
        chain, "\n".join("forward . 127.0.0.1 {" if "forward ." in line else line for line in lines)
    )


def _mend_dns(chain: Chain) -> None:
    _configure_dns(chain, chain.state["corefile"])


def _configure_dns(chain: Chain, corefile: str) -> None:
    patch = json.dumps({"data": {"Corefile": corefile}})
    chain.kubectl("patch", "configmap", "coredns", "-n", "kube-system", "--type=merge", "-p", patch)
    chain.kubectl("delete", "pods", "-n", "kube-system", "-l", "k8s-app=kube-dns")


def _stop_worker(chain: Chain) -> None:
    _worker(chain).kill()
    chain.kubectl(
        "wait", f"node/{site.WORKERS[0]}", "--for=jsonpath={.status.conditions[?(@.type=='Ready')].status}=Unknown",
        "--timeout=180s",
    )  # fmt: skip


def _start_worker(chain: Chain) -> None:
    worker = _worker(chain)
    worker.start(chain.folder / "packages", chain.folder / storage.VOLUMES)
    worker.show_processors()
    chain.kubectl("wait", f"node/{site.WORKERS[0]}", "--for=condition=Ready", "--timeout=180s")
    wait_for_gpus(chain)


FAULTS: Final = (
    Fault(
        "a missing GPU",
        _lose_gpu,
        (
            f"{gpus.COUNT - 1} of {gpus.COUNT} GPUs answer the driver",
            f"{gpus.addresses()[-1]} on the PCI bus does not",
        ),
        _find_gpu,
    ),
    Fault(
        "a dead fabric manager",
        _manage("stop"),
        ("nvidia-fabricmanager is inactive, so CUDA fails with error 802",),
        _manage("start"),
    ),
    Fault(
        "a fabric manager of another version",
        _change_manager(_VERSION, _OTHER_VERSION),
        (f"fabric manager {_OTHER_VERSION} does not work with driver {_VERSION}",),
        _change_manager(_OTHER_VERSION, _VERSION),
    ),
    Fault(
        "DNS that asks itself",
        _break_dns,
        ("kube-system: Deployment coredns", "plugin/loop"),
        _mend_dns,
    ),
    Fault("a host without power", _stop_worker, (f"{site.WORKERS[0]}",), _start_worker),
)


def tried(fault: Fault, command: Callable[[Chain], Sequence[str]]) -> Step:
    """Return the step that makes a fault, expects its words of a command of muster, and mends it."""

    def act(chain: Chain) -> None:
        log = f"fault-{fault.name.replace(' ', '-')}"
        fault.begin(chain)
        try:
            said = " ".join(chain.muster(log, *command(chain), allowed=(1,)).split())
        finally:
            fault.end(chain)
        unsaid = [words for words in fault.says if words not in said]
        if unsaid:
            raise StepFailed(f"{fault.name}: muster does not say {', '.join(unsaid)}; see {log}.log")

    return Step(f"fault: {fault.name}", act)


def stop_registry(chain: Chain) -> None:
    """Stop the registry while a node lacks an image: the validation must name image and node. Start it again."""
    worker = _worker(chain)
    worker.run("/usr/local/bin/crictl", "rmi", _IMAGE)
    chain.stop("servers")
    options = ("--size", SIZE, "--profile", "rehearsal", "--scenario", "build1*", "--out")
    try:
        said = chain.call(
            "fault-registry", *MUSTER, "validate", "--target", "cluster", *options,
            str(chain.folder / "without-registry"), allowed=(1,),
        )  # fmt: skip
    finally:
        start_servers(chain)
    report = (chain.folder / "without-registry" / "report.json").read_text()
    if not all(word in report for word in ("python", site.WORKERS[0], "connection refused")):
        raise StepFailed(f"the validation does not name the image that no registry serves: {said[-600:]}")


def install_again(chain: Chain) -> None:
    """Install a second time: nothing changes."""
    chain.muster("installed-again", "install")
    changed = changes(chain.folder / "state" / "rehearsal" / "journal.jsonl")
    if changed:
        raise StepFailed(f"the second installation changed something: {changed}")


def _entries(journal: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in journal.read_text().splitlines()]


def changes(journal: Path) -> dict[str, int]:
    """Return by stage how much the last run of a site changed."""
    entries = _entries(journal)
    last = entries[-1]["run"]
    return {each["stage"]: each["changed"] for each in entries if each["run"] == last and each.get("changed")}


STEPS: Final = (
    *(tried(fault, lambda _: ("verify",)) for fault in FAULTS),
    Step("fault: the registry stops", stop_registry),
    Step("a second installation", install_again),
)
AFTERWARDS: Final = (
    Step("muster verify after the faults", lambda chain: print(chain.muster("mended", "verify"))),
)
