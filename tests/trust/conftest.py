"""One control plane for the folder, with the operator and users that have their own tokens.

ada     member of team-a
dev     member of team-a, to whom the site gave Kubernetes' role `edit` in its namespace, so that dev may create pods
lea     muster-project-admin of team-a
bob     member of team-b
"""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from musterlab.cluster import start
from orchestrator.cluster.errors import ClusterError
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.resources import JOBS, NAMESPACES, ROLE_BINDINGS, SERVICE_ACCOUNTS
from orchestrator.cluster.transport import Transport
from orchestrator.manifests.install import apply
from tests.cluster.waiting import DEADLINE_SECONDS
from tests.control.operators import must_all, operator, prepare, until_granted
from tests.trust.objects import HOME, PEOPLE, account, job, template

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from musterlab.cluster import Lab

ROLES = {"dev": "edit", "lea": "muster-project-admin"}
PROJECTS = f"""
project create team-a -g 2 --limit 4 --member user:{account("ada")} --member user:{account("dev")}
project create team-b -g 2 --member user:{account("bob")}
"""


@dataclass(frozen=True)
class Site:
    """A cluster of two nodes with eight GPUs each, and the kubeconfig of each user by name."""

    lab: Lab
    kubeconfigs: dict[str, Path]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Start the cluster, and wait until its policies are enforced."""
    directory = tmp_path_factory.mktemp("trust")
    lab = start(f"trust-{os.getpid()}", nodes=2, detach=False, state_dir=directory / "labs")
    try:
        operators = asyncio.run(prepare(lab.kubeconfig, directory / "operator.kubeconfig"))
        with operator(operators, directory / "operator.log"):
            must_all(lab.kubeconfig, *PROJECTS.strip().splitlines())
            kubeconfigs = asyncio.run(_people(lab, directory))
            site = Site(lab, {"admin": lab.kubeconfig, "operator": operators, **kubeconfigs})
            asyncio.run(_until_enforced(site))
            yield site
    finally:
        lab.stop()


@pytest.fixture
async def admin(site: Site) -> AsyncIterator[Transport]:
    async with Transport(load_access(site.kubeconfigs["admin"])) as transport:
        yield transport


@pytest.fixture
async def ada(site: Site) -> AsyncIterator[Transport]:
    async with Transport(load_access(site.kubeconfigs["ada"])) as transport:
        yield transport


@pytest.fixture
async def dev(site: Site) -> AsyncIterator[Transport]:
    async with Transport(load_access(site.kubeconfigs["dev"])) as transport:
        yield transport


@pytest.fixture
async def lea(site: Site) -> AsyncIterator[Transport]:
    async with Transport(load_access(site.kubeconfigs["lea"])) as transport:
        yield transport


async def _people(lab: Lab, directory: Path) -> dict[str, Path]:
    """Create the service accounts, bind their roles in addition to their memberships, and return their kubeconfigs by
    name.
    """
    async with Transport(load_access(lab.kubeconfig)) as transport:
        await apply(transport, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PEOPLE}})
        kubeconfigs = {}
        for person in ("ada", "dev", "lea", "bob"):
            metadata = {"name": person, "namespace": PEOPLE}
            await apply(transport, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
            kubeconfigs[person] = directory / f"{person}.kubeconfig"
            kubeconfigs[person].write_text(json.dumps(await kubeconfig_of(transport, lab, person)))
        for person, role in ROLES.items():
            await apply(transport, _binding(person, role))
            await until_granted(transport, account(person), "create", JOBS, HOME)
        await until_granted(transport, account("ada"), "create", JOBS, HOME)
        return kubeconfigs


async def kubeconfig_of(transport: Transport, lab: Lab, person: str) -> dict[str, Any]:
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = await transport.create(SERVICE_ACCOUNTS.path(PEOPLE, person, "token"), request)
    config: dict[str, Any] = yaml.safe_load(lab.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": answer["status"]["token"]}
    config["contexts"][0]["context"]["namespace"] = HOME
    return config


def _binding(person: str, role: str) -> dict[str, Any]:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": ROLE_BINDINGS.api_version,
        "kind": ROLE_BINDINGS.kind,
        "metadata": {"name": f"trust-{person}", "namespace": HOME},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": account(person), "apiGroup": group}],
    }


async def _until_enforced(site: Site) -> None:
    """Wait until the API server enforces the policies, which it learns of by watches of its own."""
    async with (
        Transport(load_access(site.kubeconfigs["ada"])) as transport,
        asyncio.timeout(DEADLINE_SECONDS),
    ):
        body = job("probe", template(nodeName="somewhere"))
        while True:
            try:
                await transport.create(JOBS.path(HOME), body, params={"dryRun": "All"})
            except ClusterError as error:
                if "rule node-name" in str(error):
                    break
            await asyncio.sleep(0.05)
        # A namespace is created with its labels and annotations.
        await transport.get(NAMESPACES.path(None, HOME))
