"""Attempts of members to take, see or break more than their project grants, each with the member's own token.

Each attempt is denied with a message, leaves no object, and affects no other user. docs/explanation/security.md
explains the numbers and letters of the attempts.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.cluster.errors import Forbidden, Invalid
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.objects import Pod
from orchestrator.cluster.resources import INGRESSES, JOBS, NODES, PODS, SERVICES, Resource
from orchestrator.cluster.transport import Transport
from tests.cluster.waiting import DEADLINE_SECONDS
from tests.control.operators import muster
from tests.trust.objects import (
    HOME,
    THEIRS,
    Body,
    gpus,
    job,
    of_editors,
    of_members,
    pod,
    security,
    template,
    volume,
)
from tests.trust.test_rules_in_a_lab import denial_pattern, ingress, rules, service

if TYPE_CHECKING:
    from tests.trust.conftest import Site

pytestmark = pytest.mark.lab

NODE = "dgx-a100-1"
FORGED = {"muster.dev/gpu-devices": ",".join(map(str, range(8)))}
ROOT: dict[str, Any] = {
    "hostNetwork": True,
    "volumes": [{"name": "host", "hostPath": {"path": "/"}}],
    "tolerations": [{"operator": "Exists"}],
}

ATTEMPTS: dict[str, tuple[str, Body]] = {
    "1-root-of-a-control-plane-node": (
        "(node-name|host-namespaces)",  # either of two policies may deny first
        template(container=security(privileged=True), nodeName="control-plane", **ROOT),
    ),
    "1-root-of-any-node": ("privileged", template(container=security(privileged=True))),
    "1-beside-the-control-plane": ("control-plane", template(tolerations=[{"operator": "Exists"}])),
    "1-the-file-system-of-a-node": ("directories", volume({"hostPath": {"path": "/"}})),
    "1-the-exports-of-others": ("directories", volume({"nfs": {"server": "nas", "path": "/team-b"}})),
    "3a-another-scheduler": ("gpu-scheduler", template(container=gpus(8))),
    "3b-a-node-of-ones-own": (
        "node-name",
        template(
            {"muster.dev/preemptible": "false"}, container=gpus(8), nodeName=NODE, schedulerName="muster"
        ),
    ),
    "3c-unreadable-and-on-a-node": (
        "node-name",
        template({"muster.dev/gpu-fraction": "x"}, container=gpus(8), nodeName=NODE, schedulerName="muster"),
    ),
    "3d-forged-devices-without-gpus": ("operator-annotations", template(FORGED, schedulerName="muster")),
    "3e-empty-devices-on-a-node": (
        "node-name",
        template({"muster.dev/gpu-devices": ""}, container=gpus(8), nodeName=NODE, schedulerName="muster"),
    ),
    "3e-empty-devices": (
        "operator-annotations",
        template({"muster.dev/gpu-devices": ""}, container=gpus(1), schedulerName="muster"),
    ),
    "3g-deaf-for-a-year": (
        "termination-grace",
        template(container=gpus(1), schedulerName="muster", terminationGracePeriodSeconds=31_536_000),
    ),
    "3h-critical-for-the-node": ("priority-class", template(priorityClassName="system-node-critical")),
}
"""The rule that refuses each attempt, and the template that the attempt creates, by the attempt's number and name."""


async def everything(admin: Transport) -> dict[str, int]:
    """Return the number of objects of each kind that an attempt could leave behind."""
    kinds: list[Resource] = [PODS, JOBS, SERVICES, INGRESSES]
    counts = {}
    for kind in kinds:
        answer = await admin.get(kind.path())
        counts[kind.plural] = len(answer["items"])
    return counts


@pytest.mark.parametrize("attempt", ATTEMPTS)
async def test_it_is_denied_and_leaves_nothing(
    attempt: str, ada: Transport, dev: Transport, admin: Transport
) -> None:
    rule, content = ATTEMPTS[attempt]
    before = await everything(admin)
    for person, objects in ((ada, of_members(attempt, content)), (dev, of_editors(attempt, content))):
        for resource, body in objects:
            with pytest.raises((Invalid, Forbidden), match=denial_pattern(resource, rule)):
                await person.create(resource.path(HOME), body)
    assert await everything(admin) == before


@pytest.mark.parametrize("attempt", ["3a-another-scheduler", "3d-forged-devices-without-gpus"])
def test_kubectl_says_which_rule_and_which_field(attempt: str, site: Site) -> None:
    rule, content = ATTEMPTS[attempt]
    done = kubectl(site, "dev", pod("kubectl", content), "apply", "-f", "-")
    assert done.returncode != 0
    assert f"rule {rule}: " in done.stderr
    assert ("spec.schedulerName" in done.stderr) or ("metadata.annotations" in done.stderr)


def kubectl(site: Site, person: str, body: Body, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(site.lab.kubectl_directory / "kubectl"), *words],
        env={**os.environ, "KUBECONFIG": str(site.kubeconfigs[person])},
        input=json.dumps(body),
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


@pytest.mark.parametrize(
    ("resource", "body"),
    [
        (SERVICES, service(externalIPs=["10.96.0.1"])),
        (INGRESSES, ingress(**rules("/", "console.example.com"))),
        (INGRESSES, ingress(**rules("/"))),
    ],
    ids=["11-the-addresses-of-others", "11-the-hosts-of-others", "11-the-paths-of-others"],
)
async def test_traffic_of_others_is_not_taken(
    resource: Resource, body: Body, ada: Transport, admin: Transport
) -> None:
    before = await everything(admin)
    with pytest.raises(Invalid, match=r"rule (external-ips|ingress-hosts|ingress-paths)"):
        await ada.create(resource.path(HOME), body)
    assert await everything(admin) == before


async def test_the_namespace_of_another_project_is_closed(site: Site) -> None:
    for person in ("ada", "dev", "lea"):
        done = await asyncio.to_thread(
            kubectl, site, person, job("x", template()), "-n", THEIRS, "apply", "-f", "-"
        )
        assert done.returncode != 0
        assert "Forbidden" in done.stderr


async def test_legitimate_requests_still_work(site: Site, admin: Transport) -> None:
    """A member's job is bound and gets devices, and an administrator can place a pod on a chosen node."""
    submitted = await asyncio.to_thread(
        muster, site.kubeconfigs["ada"], "submit", "mine", "-i", "image", "-g", "1", "-p", "team-a"
    )
    assert (submitted.returncode, submitted.stderr) == (0, "")
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not (bound := [one for one in await pods(admin) if one.spec.node_name]):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert bound[0].metadata.annotations["muster.dev/gpu-devices"] == "0"
        node = (await admin.get(NODES.path()))["items"][0]["metadata"]["name"]
        await admin.create(PODS.path(HOME), pod("look", template(nodeName=node)))
        await admin.delete(PODS.path(HOME, "look"), grace_seconds=0)
    finally:
        deleted = await asyncio.to_thread(muster, site.kubeconfigs["ada"], "delete", "mine", "-p", "team-a")
    assert (deleted.returncode, deleted.stderr) == (0, "")
    async with asyncio.timeout(DEADLINE_SECONDS):
        while await pods(admin):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def pods(admin: Transport) -> list[Pod]:
    """Return the pods in the namespace of team-a."""
    return (await admin.list(PODS.path(HOME), Pod)).items


async def test_members_have_no_say_in_pods_of_others(site: Site) -> None:
    async with Transport(load_access(site.kubeconfigs["bob"])) as bob:
        with pytest.raises(Exception, match="forbidden"):
            await bob.get(PODS.path(HOME))
