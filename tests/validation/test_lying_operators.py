"""Operators that lie, on a real API server: the acceptance test fails, and names the witness that contradicts them."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import musterlab.cluster
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.resources import ADMISSION_POLICY_BINDINGS
from orchestrator.cluster.transport import Transport
from tests.control.operators import prepare
from tests.mutants.catalogue import Edit, Mutant, write
from tests.validation.kubelet_doubles import speaking
from tests.validation.witnessed_runs import Validation, operator, validate

pytestmark = pytest.mark.lab

SWAPS_DEVICES = (
    Edit(
        "orchestrator/observe/request.py",
        'return ",".join(map(str, devices))',
        'return ",".join(str((device + 4) % 8) for device in devices)',
    ),
)
HIDES_EVICTIONS = (
    Edit(
        "orchestrator/cluster/eviction.py",
        "await annotate(transport, namespace=namespace, name=name, uid=uid, annotations=annotations)\n        try:",
        "await transport.get(path)\n        try:",
    ),
)
NEVER_STARTS = (
    Edit(
        "orchestrator/cluster/binding.py",
        '    try:\n        await transport.create(PODS.path(namespace, name, "binding"), body)',
        "    if name.startswith('p-1'):\n"
        "        invented = {'status': {'phase': 'Running'}}\n"
        "        await transport.patch(PODS.path(namespace, name, 'status'), invented)\n"
        '    try:\n        await transport.create(PODS.path(namespace, name, "binding"), body)',
    ),
)
LIES = {
    "swaps devices": SWAPS_DEVICES,
    "hides evictions": HIDES_EVICTIONS,
    "never starts": NEVER_STARTS,
}


@dataclass(frozen=True)
class Site:
    """Two simulated nodes with doubles of kubelets."""

    lab: musterlab.cluster.Lab
    account: Path
    directory: Path

    async def validate(self, *lies: str) -> Validation:
        """Validate with an operator that tells these lies."""
        orchestrator = None
        if lies:
            edits = tuple(edit for lie in lies for edit in LIES[lie])
            orchestrator = self.directory / "operator"
            write(Mutant("lies", ", ".join(lies), "muster-victim", "", edits), orchestrator)
        with operator(self.account, self.directory / "operator.log", orchestrator):
            return await asyncio.to_thread(validate, self.lab.kubeconfig, self.directory / "report")


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[musterlab.cluster.Lab]:
    running = musterlab.cluster.start("lying", nodes=2, detach=False, state_dir=tmp_path / "labs")
    yield running
    running.stop()


@pytest.fixture
async def site(lab: musterlab.cluster.Lab, tmp_path: Path) -> AsyncIterator[Site]:
    account = await prepare(lab.kubeconfig, tmp_path / "operator.kubeconfig")
    async with Transport(load_access(lab.kubeconfig)) as transport, speaking(transport):
        # without the policy: from Kubernetes 1.30 on it forbids an operator to write the phase of a pod
        await transport.delete(ADMISSION_POLICY_BINDINGS.path(name="muster-operator-bounds-pods"))
        yield Site(lab, account, tmp_path)


async def test_an_operator_that_tells_all_three_lies_fails_and_each_witness_is_named(site: Site) -> None:
    run = await site.validate(*LIES)
    assert (run.exit_code, run.report.verdict) == (1, "FAIL"), run.output
    verdict, reasons = run.step("invariant/kubelet-agrees")
    assert verdict == "FAIL"
    assert " gave pod victim-p/p-3-gg-" in reasons, "swapped devices"
    assert " knows of no GPU of pod victim-p/p-1-gg-" in reasons, "bound, and does not run"
    verdict, reasons = run.step("invariant/nothing-vanishes")
    assert verdict == "FAIL"
    assert "pod victim-p/p-2-gggg-" in reasons
    assert "the API server deleted it, and the scheduler recorded no eviction" in reasons
    verdict, reasons = run.step("invariant/processes-on-own-gpus")
    assert (verdict, "the driver of " in reasons) == ("FAIL", True)
    for requirement in ("devices", "processes", "evictions"):
        assert run.requirement(f"witnesses.{requirement}") == "FAIL"


@pytest.mark.rare
async def test_an_honest_operator_follows_the_kubelets_choice_and_passes(site: Site) -> None:
    run = await site.validate()
    for invariant in ("kubelet-agrees", "processes-on-own-gpus", "gpu-capacity", "nothing-vanishes"):
        assert run.step(f"invariant/{invariant}") == ("PASS", ""), run.output


@pytest.mark.rare
@pytest.mark.parametrize(
    ("lie", "check", "witness"),
    [
        ("swaps devices", "invariant/kubelet-agrees", "the kubelet of "),
        ("hides evictions", "invariant/nothing-vanishes", "the API server deleted it"),
        ("never starts", "invariant/kubelet-agrees", " knows of no GPU of pod victim-p/p-1-gg-"),
    ],
)
async def test_one_lie_is_enough(site: Site, lie: str, check: str, witness: str) -> None:
    run = await site.validate(lie)
    assert (run.exit_code, run.report.verdict) == (1, "FAIL"), run.output
    verdict, reasons = run.step(check)
    assert (verdict, witness in reasons) == ("FAIL", True), run.output
