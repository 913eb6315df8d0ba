"""A site's ingress class and domain, from the operator's options to the Ingresses of members and their SERVICE URLs.

Covers `orchestrator.submit.collisions`, `orchestrator.submit.network` and the policy muster-ingresses. No ingress
controller runs: the test writes the status of each Ingress.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import musterlab.cluster
from orchestrator.cluster.errors import Invalid
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.objects import Namespace
from orchestrator.cluster.resources import INGRESSES, JOBS, NAMESPACES, PROJECTS
from orchestrator.cluster.transport import Transport
from tests.cluster.waiting import DEADLINE_SECONDS
from tests.control.operators import must, operator, prepare, until_granted
from tests.trust.test_rules_in_a_lab import ingress, rules

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

pytestmark = pytest.mark.lab

DOMAIN = "gpus.example.com"
LONG = "p" * 52
"""The longest name that a project or job may have."""
OURS, THEIRS = "muster-team-a", "muster-team-b"
NOTEBOOK = ("-i", "image", "--interactive", "-s", "ingress", "--port", "8888")


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Start a cluster whose operator has an ingress class and a domain, and in which ada is a member of team-a."""
    folder = tmp_path_factory.mktemp("ingress")
    lab = musterlab.cluster.start("ingress-hosts", nodes=1, detach=False, state_dir=folder / "labs")
    try:
        own = asyncio.run(prepare(lab.kubeconfig, folder / "operator-kubeconfig"))
        options = ("--ingress-class=traefik", f"--ingress-domain={DOMAIN}")
        with operator(own, folder / "operator.log", "operator-0", *options):
            must(lab.kubeconfig, "project", "create", "team-a", "-g", "1", "--member", "user:ada")
            must(lab.kubeconfig, "project", "create", "team-b", "-g", "1")
            must(lab.kubeconfig, "project", "create", LONG, "-g", "1")
            asyncio.run(until_member(lab.kubeconfig))
            yield lab.kubeconfig
    finally:
        lab.stop()


async def until_member(kubeconfig: Path) -> None:
    async with Transport(load_access(kubeconfig)) as transport:
        await until_granted(transport, "ada", "create", JOBS, OURS)


@pytest.fixture
async def admin(kubeconfig: Path) -> AsyncIterator[Transport]:
    async with Transport(load_access(kubeconfig)) as transport:
        yield transport


@pytest.fixture
async def ada(kubeconfig: Path) -> AsyncIterator[Transport]:
    groups = ("system:authenticated",)
    async with Transport(load_access(kubeconfig, as_user="ada", as_groups=groups)) as transport:
        yield transport


async def until_annotated(admin: Transport, namespace: str, host: str) -> None:
    """Wait until the annotation of a project's namespace has this host."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        annotations: dict[str, str] = {}
        while annotations.get("muster.dev/ingress-host") != host:
            annotations = (await admin.get(NAMESPACES.path(None, namespace), Namespace)).metadata.annotations
            await asyncio.sleep(0.02)


async def test_jobs_of_one_name_have_hosts_of_their_projects(kubeconfig: Path, admin: Transport) -> None:
    """The Ingresses pass the policy, even for a member who may not see the Ingresses of other projects."""
    member = ("--as", "ada", "--as-group", "system:authenticated")
    await asyncio.to_thread(must, kubeconfig, *member, "submit", "note", *NOTEBOOK, "-p", "team-a")
    for project, name in (("team-b", "note"), (LONG, LONG)):
        await asyncio.to_thread(must, kubeconfig, "submit", name, *NOTEBOOK, "-p", project)
    for project, name in (("team-a", "note"), ("team-b", "note"), (LONG, LONG)):
        path = INGRESSES.path(f"muster-{project}", name)
        spec = (await admin.get(path))["spec"]
        (rule,) = spec["rules"]
        assert (spec["ingressClassName"], rule["host"]) == ("traefik", f"{project}.{DOMAIN}")
        assert [entry["path"] for entry in rule["http"]["paths"]] == [f"/{project}-{name}", f"/{name}"]
        status = {"status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.5"}]}}}
        await admin.patch(f"{path}/status", status)
        listed = await asyncio.to_thread(must, kubeconfig, "list", "-p", project)
        assert f" http://{project}.{DOMAIN}/{project}-{name},https://{project}" in listed


@pytest.mark.parametrize(
    "body",
    [
        ingress(**rules("/", f"team-b.{DOMAIN}")),
        ingress(**rules("/team-a-web", f"x.team-b.{DOMAIN}")),
        ingress(**rules("/", DOMAIN)),
        ingress(**rules("/", f"*.{DOMAIN}")),
        ingress(**rules("/", f"ateam-a.{DOMAIN}")),
        ingress(**rules("/", "example.com")),
        ingress(**rules("/web")),
        ingress(**rules("/team-a-web")),
        ingress(rules=[*rules("/", f"team-a.{DOMAIN}")["rules"], *rules("/web")["rules"]]),
        ingress(**rules("/", f"team-a.{DOMAIN}"), tls=[{"hosts": [f"team-b.{DOMAIN}"]}]),
    ],
    ids=[
        "of another project", "below another's", "of the site", "wildcard", "that ends alike", "above", "none",
        "none with a path of its own", "none beside its own", "of another in tls",
    ],
)  # fmt: skip
async def test_no_member_takes_the_host_of_others(body: dict[str, Any], ada: Transport) -> None:
    with pytest.raises(Invalid, match="rule ingress-hosts"):
        await ada.create(INGRESSES.path(OURS), body)


@pytest.mark.parametrize("host", [f"team-a.{DOMAIN}", f"web.team-a.{DOMAIN}", f"*.team-a.{DOMAIN}"])
async def test_below_the_host_of_its_project_a_member_may_choose(host: str, ada: Transport) -> None:
    await ada.create(INGRESSES.path(OURS), ingress(**rules("/", host)), params={"dryRun": "All"})


async def test_a_project_is_not_given_the_domain_of_another(admin: Transport) -> None:
    """The project's own specification cannot give it another project's domain, but gives it a domain elsewhere."""
    project = PROJECTS.path(None, "team-a")
    wanted = {"spec": {"security": {"ingressDomain": f"team-b.{DOMAIN}"}}}
    await admin.patch(project, wanted)
    condition: dict[str, Any] = {}
    async with asyncio.timeout(DEADLINE_SECONDS):
        while condition.get("status") != "False":
            status = (await admin.get(project)).get("status", {})
            condition = {one["type"]: one for one in status.get("conditions", ())}.get("SecurityGranted", {})
            await asyncio.sleep(0.02)
    assert condition["message"] == (
        f"not granted: the domain team-b.{DOMAIN} collides with {DOMAIN}, where each project has that of its name"
    )
    await until_annotated(admin, OURS, f"team-a.{DOMAIN}")
    await until_annotated(admin, THEIRS, f"team-b.{DOMAIN}")
    await admin.patch(project, {"spec": {"security": {"ingressDomain": "ml.example.org"}}})
    await until_annotated(admin, OURS, "ml.example.org")
    await admin.patch(project, {"spec": {"security": None}})
    await until_annotated(admin, OURS, f"team-a.{DOMAIN}")
