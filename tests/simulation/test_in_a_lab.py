"""The effects that muster's simulation foretells are those that happen on a real API server."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from musterlab.cluster import Lab, start
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.resources import (
    CLUSTER_ROLE_BINDINGS,
    PODS,
    PROJECTS,
    ROLE_BINDINGS,
    SERVICE_ACCOUNTS,
)
from orchestrator.cluster.transport import Transport
from orchestrator.planner.settings import Settings
from orchestrator.simulation.capture import capture
from orchestrator.simulation.reader import load
from tests.cluster.waiting import DEADLINE_SECONDS
from tests.control.operators import must, muster, operator, prepare, until_granted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.lab

QUOTAS = {"team-a": 4, "team-b": 2, "team-c": 2, "team-d": 8}
JOBS = {
    "team-a": ["a-1"],
    "team-b": ["b-1", "b-2"],
    "team-c": ["c-1", "c-2"],
    "team-d": ["d-1"],
}
"""The jobs of each project ask for four GPUs together; all jobs fill two nodes of eight GPUs."""
CHOICES = ("--max-evictions=7", "--reservation-after=never")


@pytest.fixture
def own_lab(tmp_path: Path) -> Iterator[Lab]:
    lab = start("simulation", nodes=2, detach=False, state_dir=tmp_path / "labs")
    yield lab
    lab.stop()


class Cluster:
    """Runs the command line against the lab."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig

    async def must(self, *arguments: str) -> str:
        return await asyncio.to_thread(must, self.kubeconfig, *arguments)

    async def json(self, *arguments: str) -> Any:
        return json.loads(await self.must(*arguments))

    async def submit(self, project: str, name: str, gpus: int) -> None:
        await self.must("submit", name, "-i", "quickstart", "-g", str(gpus), "-p", project)

    async def jobs(self) -> dict[str, Any]:
        return {
            f"{each['project']}/{each['name']}": each for each in await self.json("list", "-A", "-o", "json")
        }

    async def until(
        self, condition: Callable[[dict[str, Any]], object], seconds: float = 2 * DEADLINE_SECONDS
    ) -> dict[str, Any]:
        """Wait until the condition holds for the jobs by PROJECT/NAME, and return the jobs."""
        jobs: dict[str, Any] = {}
        try:
            async with asyncio.timeout(seconds):
                while not condition(jobs := await self.jobs()):  # noqa: ASYNC110 - a command line has no events
                    await asyncio.sleep(0.5)
        except TimeoutError:
            states = {name: (each["status"], each["waitsBecause"]) for name, each in jobs.items()}
            pytest.fail(f"after {seconds} s the jobs are {states}")
        return jobs


def running(jobs: dict[str, Any]) -> dict[str, str]:
    return {name: each["node"] for name, each in jobs.items() if each["status"] == "Running"}


def waiting(jobs: dict[str, Any]) -> dict[str, str]:
    """Return the pending jobs that have a reason, with the code of the reason."""
    return {
        name: each["waitsBecause"].partition(":")[0]
        for name, each in jobs.items()
        if each["status"] == "Pending" and each["waitsBecause"]
    }


def named(entries: list[dict[str, Any]]) -> list[str]:
    return sorted(f"{each['project']}/{each['name']}" for each in entries)


async def test_what_if_why_evicted_and_explain_agree_with_the_events(own_lab: Lab, tmp_path: Path) -> None:
    account = await prepare(own_lab.kubeconfig, tmp_path / "operator.kubeconfig")
    cluster = Cluster(own_lab.kubeconfig)
    undecided = muster(own_lab.kubeconfig, "snapshot").stderr
    assert "the operator's settings are taken to be the defaults: no operator has led" in undecided
    with operator(account, tmp_path / "operator.log", "operator-0", *CHOICES):
        for team, quota in QUOTAS.items():
            await cluster.must("project", "create", team, "-g", str(quota))
        for team, names in JOBS.items():
            for name in names:
                await cluster.submit(team, name, 4 // len(names))
        await cluster.until(lambda jobs: len(running(jobs)) == 6)
        victim = await a_submission_that_evicts(cluster)
        await the_record_of_the_eviction(cluster, victim)
        await the_explanation(cluster, victim)
        await the_snapshot(cluster, tmp_path / "live.yaml")
        await a_member(cluster, victim, tmp_path / "member.kubeconfig")
        await a_deletion(cluster, victim)
    project, _, name = victim.partition("/")
    assert (await cluster.json("why-evicted", name, "-p", project, "--json"))[0]["beneficiary"] == "d-2"


async def a_submission_that_evicts(cluster: Cluster) -> str:
    """Ask for the effects of a submission, submit, and compare. Return the evicted job as PROJECT/NAME."""
    foretold = await cluster.json("what-if", "--submit", "d-2 -g 2 -p team-d", "--json")
    (evicted,) = foretold["wouldBeEvicted"]
    (started,) = foretold["wouldRun"]
    assert (started["project"], started["name"], evicted["rule"]) == ("team-d", "d-2", "quota")
    assert (evicted["beneficiaryProject"], evicted["beneficiary"]) == ("team-d", "d-2")
    before = await cluster.jobs()
    assert "team-d/d-2" not in before
    await cluster.submit("team-d", "d-2", 2)
    wait = {f"{each['project']}/{each['name']}": each["reason"] for each in foretold["wouldWait"]}
    jobs = await cluster.until(lambda jobs: "team-d/d-2" in running(jobs) and waiting(jobs) == wait)
    victim = f"{evicted['project']}/{evicted['name']}"
    assert running(jobs).keys() == before.keys() - {victim} | {"team-d/d-2"}
    assert running(jobs)["team-d/d-2"] == started["pods"][0]["node"]
    return victim


async def the_record_of_the_eviction(cluster: Cluster, victim: str) -> None:
    project, _, name = victim.partition("/")
    records: list[dict[str, Any]] = []
    shown = ""
    # the operator writes record and Event after the eviction
    async with asyncio.timeout(2 * DEADLINE_SECONDS):
        while not records:
            records = await cluster.json("why-evicted", name, "-p", project, "--json")
            await asyncio.sleep(0.2)
        (record,) = records
        while f"[Reclaimed] {record['message']}" not in " ".join(shown.split()):
            shown = await cluster.must("get", name, "-p", project)
            await asyncio.sleep(0.2)
    assert (record["beneficiaryProject"], record["beneficiary"], record["rule"]) == ("team-d", "d-2", "quota")
    assert (record["gpus"], len(record["devices"])) == ("2", 2)
    other = await cluster.must("why-evicted", "a-1", "-p", "team-a")
    assert other.startswith("a-1 was not evicted")


async def the_explanation(cluster: Cluster, victim: str) -> None:
    project, _, name = victim.partition("/")
    answer: dict[str, Any] = {}
    async with asyncio.timeout(
        2 * DEADLINE_SECONDS
    ):  # the operator updates figures in its messages only now and then
        while answer.get("writtenByOperator") != f"{answer.get('reason')}: {answer.get('message')}":
            answer = await cluster.json("explain", name, "-p", project, "--remedies", "--json")
    assert (answer["gpusFree"], answer["gpusTotal"]) == ("0", "16")
    assert (answer["projects"][0]["name"], answer["projects"][0]["held"]) == (project, "2")
    assert "team-d/d-2" in named(answer["holders"])


async def the_snapshot(cluster: Cluster, file: Path) -> None:
    file.write_text(await cluster.must("snapshot"))
    assert "quickstart" not in file.read_text()
    async with Transport(load_access(cluster.kubeconfig)) as transport:
        live = await capture(transport)
    saved = load(file)
    assert saved.settings == Settings(max_evictions=7, reservation_after_seconds=None)
    assert 0 < saved.now_us <= live.snapshot.now_us
    assert replace(saved, now_us=live.snapshot.now_us) == live.snapshot
    calm = json.loads(await cluster.must("simulate", str(file), "--until-stable", "--json"))
    assert (calm["decisions"], calm["stable"], calm["wouldRun"]) == (0, True, [])
    done = muster(cluster.kubeconfig, "what-if", "--from", str(file), "--quota", "team-a=5")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


async def a_deletion(cluster: Cluster, victim: str) -> None:
    foretold = await cluster.json("what-if", "--delete", "team-a/a-1", "--json")
    assert named(foretold["wouldRun"]) == [victim]
    await cluster.must("delete", "a-1", "-p", "team-a")
    jobs = await cluster.until(lambda jobs: victim in running(jobs))
    assert running(jobs)[victim] == foretold["wouldRun"][0]["pods"][0]["node"]
    assert waiting(jobs) == {}


async def a_member(cluster: Cluster, victim: str, kubeconfig: Path) -> None:
    """Check the answers to a member of the victim's project, before and after the member may list projects."""
    project, _, name = victim.partition("/")
    namespace = f"muster-{project}"
    async with Transport(load_access(cluster.kubeconfig)) as transport:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "member"}}
        await transport.create(SERVICE_ACCOUNTS.path(namespace), account)
        binding: dict[str, Any] = {
            "apiVersion": ROLE_BINDINGS.api_version,
            "kind": ROLE_BINDINGS.kind,
            "metadata": {"name": "test-member"},
            "roleRef": {"apiGroup": ROLE_BINDINGS.group, "kind": "ClusterRole", "name": "muster-researcher"},
            "subjects": [{"kind": "ServiceAccount", "name": "member", "namespace": namespace}],
        }
        await transport.create(ROLE_BINDINGS.path(namespace), binding)
        user = f"system:serviceaccount:{namespace}:member"
        await until_granted(transport, user, "list", PODS, namespace)
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        answer: dict[str, Any] = await transport.create(
            SERVICE_ACCOUNTS.path(namespace, "member", "token"), request
        )
    document = yaml.safe_load(cluster.kubeconfig.read_text())
    document["users"] = [{**document["users"][0], "user": {"token": answer["status"]["token"]}}]
    kubeconfig.touch(mode=0o600)
    kubeconfig.write_text(yaml.safe_dump(document))
    member = Cluster(kubeconfig)
    answer = await member.json("explain", name, "-p", project, "--json")
    assert answer["writtenByOperator"]
    assert answer["projects"] == []
    async with Transport(load_access(cluster.kubeconfig)) as transport:
        of_all = {
            **binding,
            "kind": CLUSTER_ROLE_BINDINGS.kind,
            "roleRef": {**binding["roleRef"], "name": "muster-user"},
        }
        await transport.create(CLUSTER_ROLE_BINDINGS.path(), of_all)
        await until_granted(transport, user, "list", PROJECTS, "")
    (record,) = await member.json("why-evicted", name, "-p", project, "--json")
    assert record["beneficiary"] == "d-2"
    answer = await member.json("explain", name, "-p", project, "--json")
    assert answer["writtenByOperator"]
    assert "holders" not in answer
    assert {each["name"]: each["quota"] for each in answer["projects"]} == {
        team: str(quota) for team, quota in QUOTAS.items()
    }
    done = await asyncio.to_thread(muster, kubeconfig, "what-if", "--submit", "x -g 1", "-p", project)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    done = await asyncio.to_thread(muster, kubeconfig, "why-evicted", "a-1", "-p", "team-a")
    assert (done.returncode, done.stdout) == (1, "")
