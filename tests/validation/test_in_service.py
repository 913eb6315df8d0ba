"""Tests `muster validate --in-service` on a real API server, with hosts over real OpenSSH."""

import asyncio
import itertools
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

import musterlab.cluster
from orchestrator.cluster.errors import ClusterError, Forbidden
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.objects import Node, Pod
from orchestrator.cluster.resources import NODES, PODS
from orchestrator.cluster.transport import MERGE_PATCH, Transport
from tests import forks
from tests.control.operators import MUSTER
from tests.validation.replay import assert_second_judge_agrees
from tests.validation.test_hosts_over_ssh import Site, steps
from validation.report import record
from validation.report.redact import redact
from validation.report.verify import verify
from validation.targets.reservation import ANNOTATION

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[musterlab.cluster.Lab]:
    """Yield a cluster whose two nodes have the names of the hosts."""
    running = musterlab.cluster.start(
        "in-service", nodes=2, detach=False, state_dir=tmp_path_factory.mktemp("labs")
    )
    yield running
    running.stop()


class Cluster:
    """The nodes and pods of a lab, as its administrator sees them."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig

    async def nodes(self) -> dict[str, tuple[bool, str]]:
        """Return by node whether it is cordoned, and its reservation."""
        async with Transport(load_access(self.kubeconfig)) as transport:
            found = (await transport.list(NODES.path(), Node)).items
        return {
            node.metadata.name: (node.spec.unschedulable, node.metadata.annotations.get(ANNOTATION, ""))
            for node in found
        }

    async def cordon(self, name: str, *, closed: bool) -> None:
        """Cordon or open a node."""
        async with Transport(load_access(self.kubeconfig)) as transport:
            body = {"spec": {"unschedulable": closed or None}}
            await transport.patch(NODES.path(name=name), body, content_type=MERGE_PATCH)

    async def run_pod(self, name: str, node: str, **more: Any) -> None:
        """Create a pod that is bound to the node."""
        container = {"name": "c", "image": "scratch", "resources": {"limits": {"nvidia.com/gpu": "1"}}} | more
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"nodeName": node, "containers": [container]},
        }
        async with Transport(load_access(self.kubeconfig)) as transport:
            await transport.create(PODS.path("default"), body)

    async def pods(self) -> dict[str, str]:
        """Return the phases of all pods by name; a pod that is being deleted is terminating."""
        async with Transport(load_access(self.kubeconfig)) as transport:
            found = (await transport.list(PODS.path("default"), Pod)).items
        return {
            pod.metadata.name: "terminating" if pod.metadata.deletion_timestamp else pod.status.phase
            for pod in found
        }

    async def delete_pods(self) -> None:
        """Delete all pods at once."""
        async with Transport(load_access(self.kubeconfig)) as transport:
            for name in await self.pods():
                await transport.delete(PODS.path("default", name), grace_seconds=0)


@pytest.fixture
async def cluster(lab: musterlab.cluster.Lab) -> Cluster:
    """Return the cluster with open nodes and without pods."""
    cluster = Cluster(lab.kubeconfig)
    await cluster.delete_pods()
    assert await cluster.nodes() == {"dgx1-1": (False, ""), "dgx1-2": (False, "")}
    return cluster


def run(arguments: Sequence[str]) -> subprocess.Popen[str]:
    """Start `muster` with these arguments, in a process that SIGINT reaches."""
    script = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    muster = [*MUSTER[:-1], f"{script}; {MUSTER[-1]}"]
    return subprocess.Popen([*muster, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def words(site: Site, kubeconfig: Path, out: Path, *arguments: str) -> list[str]:
    """Return the arguments of a validation in service."""
    command = ["validate", "--site", str(site.write()), "--in-service", "--kubeconfig", str(kubeconfig)]
    return [*command, "--out", str(out), *arguments]


def start(site: Site, kubeconfig: Path, out: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a validation in service."""
    return run(words(site, kubeconfig, out, *arguments))


def ended(site: Site, kubeconfig: Path, out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a validation in service to its end."""
    return forks.run(words(site, kubeconfig, out, *arguments), os.environ, 300)


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.fixture
def load(site: Site, tmp_path: Path) -> Path:
    """Let the load of dgx1-1 last an hour. Return the file that it writes when it begins."""
    marker = tmp_path / "running"
    site.hosts["dgx1-1"].install("all_reduce_perf", f"echo $$ > {marker}; exec sleep 3600")
    return marker


def has_ended(marker: Path) -> bool:
    command = Path(f"/proc/{int(marker.read_text())}/cmdline")
    return not command.exists() or "sleep" not in command.read_text()


async def test_idle_nodes_are_cordoned_for_the_run_and_opened_after_it(
    cluster: Cluster, site: Site, tmp_path: Path
) -> None:
    await cluster.cordon("dgx1-2", closed=True)  # drained by an administrator, who wants it to stay so
    running = start(site, cluster.kubeconfig, tmp_path / "r", "--host-test", "nccl")
    seen: list[dict[str, tuple[bool, str]]] = []
    while running.poll() is None:
        seen.append(await cluster.nodes())
        await asyncio.sleep(0.1)
    output, errors = running.communicate()
    assert running.returncode == 0, errors
    run = record.read(tmp_path / "r").volatile.run.id
    held = next(nodes for nodes in seen if all(reservation for _, reservation in nodes.values()))
    assert all(closed for closed, _ in held.values())
    assert [json.loads(reservation)["run"] for _, reservation in held.values()] == [run, run]
    assert [json.loads(reservation)["cordoned"] for _, reservation in held.values()] == [True, False]
    assert await cluster.nodes() == {"dgx1-1": (False, ""), "dgx1-2": (True, "")}
    assert steps(tmp_path / "r")["nccl"][0] == "PASS"
    assert "Not an acceptance: in service: 2 of 2 hosts were examined." in output
    await cluster.cordon("dgx1-2", closed=False)


async def test_a_node_with_a_pod_is_left_out_and_the_pod_is_untouched(
    cluster: Cluster, site: Site, tmp_path: Path
) -> None:
    await cluster.run_pod("train", "dgx1-2")
    done = await asyncio.to_thread(ended, site, cluster.kubeconfig, tmp_path / "r")
    assert done.returncode == 0, done.stderr
    assert "in service: dgx1-2 has a pod, so it is left out" in done.stderr
    report = record.read(tmp_path / "r")
    hosts = report.scope.hosts
    assert hosts
    assert [host.name for host in hosts.site.hosts] == ["dgx1-1"]
    assert hosts.site.busy == {"dgx1-2": "has a pod"}
    assert "in service: 1 of 2 hosts were examined" in report.scope.deviations
    assert report.verdict == "INCONCLUSIVE"
    assert await cluster.pods() == {"train": "Running"}
    assert await cluster.nodes() == {"dgx1-1": (False, ""), "dgx1-2": (False, "")}
    assert_second_judge_agrees(tmp_path / "r")
    redact(tmp_path / "r", tmp_path / "public")
    assert "dgx1-2" not in (tmp_path / "public" / "events.jsonl").read_text()
    assert verify(tmp_path / "r").problems == []

    await cluster.run_pod("other", "dgx1-1", resources={})  # without GPUs, and still work of a user
    done = await asyncio.to_thread(ended, site, cluster.kubeconfig, tmp_path / "s")
    assert (done.returncode, "no host of the site is idle" in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "s").exists()
    assert await cluster.pods() == {"train": "Running", "other": "Running"}


@pytest.mark.parametrize(
    "how",
    ["a pod comes", pytest.param("an administrator opens the node", marks=pytest.mark.rare), "SIGTERM"],
)
async def test_a_run_that_must_end_ends_its_load_before_it_gives_the_nodes_back(
    how: str, cluster: Cluster, site: Site, load: Path, tmp_path: Path
) -> None:
    running = start(site, cluster.kubeconfig, tmp_path / "r", "--host-test", "nccl")
    until(lambda: load.exists() and bool(load.read_text().strip()))
    assert {name: closed for name, (closed, _) in (await cluster.nodes()).items()} == {
        "dgx1-1": True,
        "dgx1-2": True,
    }
    match how:
        case "a pod comes":
            await cluster.run_pod("train", "dgx1-2")
            words = "in service: dgx1-2 has a pod"
        case "SIGTERM":
            running.send_signal(signal.SIGTERM)
            words = "interrupted by SIGTERM"
        case _:
            await cluster.cordon("dgx1-1", closed=False)
            words = "in service: dgx1-1 was opened by an administrator"
    async with asyncio.timeout(60):
        while (await cluster.nodes())["dgx1-1"][1]:
            assert running.poll() is None
            await asyncio.sleep(0.02)
    ended = has_ended(load)
    running.communicate()
    assert running.returncode == 130
    assert ended
    assert record.read(tmp_path / "r").interrupted == words
    assert await cluster.nodes() == {"dgx1-1": (False, ""), "dgx1-2": (False, "")}
    assert await cluster.pods() == ({"train": "Running"} if how == "a pod comes" else {})


async def test_a_run_that_ends_while_it_reserves_gives_the_nodes_back(
    cluster: Cluster, site: Site, tmp_path: Path
) -> None:
    running = start(site, cluster.kubeconfig, tmp_path / "r")
    async with asyncio.timeout(60):
        while not (await cluster.nodes())["dgx1-1"][0]:
            assert running.poll() is None
            await asyncio.sleep(0.02)
    running.send_signal(signal.SIGTERM)
    _, errors = running.communicate()
    assert (running.returncode, "interrupted before the first check" in errors) == (2, True), errors
    assert await cluster.nodes() == {"dgx1-1": (False, ""), "dgx1-2": (False, "")}


async def test_the_next_run_returns_the_nodes_of_a_killed_run_and_refuses_those_of_a_living_one(
    cluster: Cluster, site: Site, load: Path, tmp_path: Path
) -> None:
    running = start(site, cluster.kubeconfig, tmp_path / "r", "--host-test", "nccl")
    until(lambda: load.exists() and bool(load.read_text().strip()))
    second = await asyncio.to_thread(ended, site, cluster.kubeconfig, tmp_path / "s")
    assert second.returncode == 2
    assert "is reserved by another run" in second.stderr
    running.kill()
    running.communicate()
    assert {name: closed for name, (closed, _) in (await cluster.nodes()).items()} == {
        "dgx1-1": True,
        "dgx1-2": True,
    }
    third = await asyncio.to_thread(ended, site, cluster.kubeconfig, tmp_path / "t")
    assert third.returncode == 0, third.stderr
    assert "dgx1-1 was reserved by a run that was killed, and is given back" in third.stderr
    assert len(record.read(tmp_path / "t").hosts or []) == 2
    assert await cluster.nodes() == {"dgx1-1": (False, ""), "dgx1-2": (False, "")}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--part", "fairness"), "--in-service is for --part hosts"),
        (("--scenario", "hosts"), "--in-service is for --part hosts"),
        (("--host-test", "fio"), "--host-test fio is not for --in-service: jobs use the same storage"),
        (("--golden", "dgx1-1"), "--golden is not for --in-service"),
    ],
)
def test_options_that_users_would_notice_are_refused(
    arguments: tuple[str, ...], message: str, site: Site, tmp_path: Path
) -> None:
    done = ended(site, tmp_path / "none", tmp_path / "r", *arguments)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr


PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "nightly-check.md"
ACCOUNT = "system:serviceaccount:muster-nightly:nightly"
PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/muster-nightly/serviceaccounts",
    "PersistentVolumeClaim": "/api/v1/namespaces/muster-nightly/persistentvolumeclaims",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    "CronJob": "/apis/batch/v1/namespaces/muster-nightly/cronjobs",
}


def example() -> list[dict[str, Any]]:
    """Return the objects of the example in the documentation."""
    text = PAGE.read_text().partition("```yaml\n# nightly.yaml\n")[2].partition("```")[0]
    return list(yaml.safe_load_all(text))


@pytest.fixture
async def nightly(cluster: Cluster, tmp_path: Path) -> Path:
    """Apply the example. Return a kubeconfig of its account."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "muster-nightly"}}
    async with Transport(load_access(cluster.kubeconfig)) as transport:
        for one in [namespace, *example()]:
            await transport.create(PATHS[one["kind"]], one, params={"fieldValidation": "Strict"})
        path = f"{PATHS['ServiceAccount']}/nightly/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = (await transport.create(path, request))["status"]["token"]
    content = yaml.safe_load(cluster.kubeconfig.read_text())
    content["users"] = [{"name": user["name"], "user": {"token": token}} for user in content["users"]]
    account = tmp_path / "nightly.kubeconfig"
    account.write_text(yaml.safe_dump(content))
    async with Transport(load_access(account)) as transport, asyncio.timeout(60):
        # the API server learns of bindings and policies by watches of its own
        for number in itertools.count():
            if await is_refused(
                transport, NODES.path(name="dgx1-1"), {"metadata": {"labels": {"a": f"{number}"}}}
            ):
                break
            await asyncio.sleep(0.2)
    return account


async def is_refused(transport: Transport, path: str, body: dict[str, Any]) -> bool:
    """Return whether the admission policy refuses the change."""
    try:
        await transport.patch(path, body, content_type=MERGE_PATCH)
    except ClusterError as error:
        return "may" in str(error) and "muster-nightly" in str(error)
    return False


async def test_the_example_of_a_cronjob_has_exactly_the_rights_that_it_needs(
    cluster: Cluster, nightly: Path, site: Site, tmp_path: Path
) -> None:
    container = example()[-1]["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]
    healthy = site.command(tmp_path / "baseline", "--host-test", "nccl")
    await asyncio.to_thread(forks.run, healthy, os.environ, 300)
    replaced = {"/site": str(site.write()), "/reports/baseline": str(tmp_path / "baseline")}
    arguments = [replaced.get(word, word) for word in container["args"]]
    arguments += ["--kubeconfig", str(nightly), "--out", str(tmp_path / "r")]
    done = await asyncio.to_thread(forks.run, arguments, os.environ, 300)
    assert done.returncode == 0, done.stderr
    assert steps(tmp_path / "r")["drift"][0] == "PASS"
    assert await cluster.nodes() == {"dgx1-1": (False, ""), "dgx1-2": (False, "")}

    await cluster.run_pod("train", "dgx1-2")
    async with Transport(load_access(nightly)) as transport:
        node = NODES.path(name="dgx1-1")
        for body in (
            {"metadata": {"labels": {"a": "b"}}},
            {"metadata": {"annotations": {"muster.dev/other": "b"}}},
            {"metadata": {"finalizers": ["a/b"]}},
            {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}},
        ):
            assert await is_refused(transport, node, body), body
        pod = PODS.path("default", "train")
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "train"}}
        for attempt in (
            transport.delete(pod),
            transport.create(f"{pod}/eviction", eviction),
            transport.delete(node),
            transport.create(PATHS["Namespace"], {"metadata": {"name": "other"}}),
            transport.get("/api/v1/secrets"),
        ):
            with pytest.raises(Forbidden):
                await attempt
    assert await cluster.pods() == {"train": "Running"}
