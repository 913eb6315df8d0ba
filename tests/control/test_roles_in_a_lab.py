"""The shipped roles on a real API server: the rights of each role, by reviews of the API server itself."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from musterlab.cluster import Lab, start
from orchestrator.cluster.errors import NotFound
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.objects import RoleBinding
from orchestrator.cluster.resources import (
    ALL,
    CLUSTER_ROLE_BINDINGS,
    JOBS,
    PROJECTS,
    ROLE_BINDINGS,
)
from orchestrator.cluster.transport import Transport
from orchestrator.names import MEMBERS_BINDING
from orchestrator.roles import CLUSTER_ADMIN, PROJECT_ADMIN, VIEWER
from tests.cluster.waiting import DEADLINE_SECONDS
from tests.control.operators import may, must, operator, prepare, until_granted

pytestmark = pytest.mark.lab
OURS, THEIRS = "muster-team-a", "muster-team-b"

MAY = {
    "ada": {  # a member of team-a
        ("create", "jobs", OURS): True,
        ("create", "jobs", THEIRS): False,
        ("get", "pods/log", OURS): True,
        ("create", "pods/exec", OURS): True,
        ("create", "pods/exec", THEIRS): False,
        ("create", "pods/portforward", OURS): True,
        ("delete", "jobs", OURS): True,
        ("patch", "statefulsets", OURS): True,
        ("create", "configmaps", OURS): False,
        ("create", "rolebindings", OURS): False,
        ("create", "pods", OURS): False,
        ("get", "namespaces", OURS): True,
        ("get", "namespaces", THEIRS): False,
        ("list", "evictionrecords", OURS): True,
        ("create", "evictionrecords", OURS): False,
        ("delete", "evictionrecords", OURS): False,
        ("list", "nodes", ""): False,
        ("list", "projects", ""): False,
        ("patch", "projects", ""): False,
    },
    "lea": {  # project-admin in team-a
        ("create", "jobs", OURS): True,
        ("create", "configmaps", OURS): True,
        ("create", "rolebindings", OURS): True,
        ("create", "rolebindings", THEIRS): False,
        ("create", "poddisruptionbudgets", OURS): False,
        ("create", "evictionrecords", OURS): False,
        ("patch", "evictionrecords", OURS): False,
        ("delete", "evictionrecords", OURS): False,
        ("patch", "resourcequotas", OURS): False,
        ("patch", "namespaces", OURS): False,
        ("patch", "projects", ""): False,
    },
    "vic": {  # a viewer of the whole cluster
        ("list", "jobs", OURS): True,
        ("list", "pods", THEIRS): True,
        ("list", "nodes", ""): True,
        ("list", "projects", ""): True,
        ("create", "jobs", OURS): False,
        ("get", "pods/log", OURS): False,
        ("get", "secrets", OURS): False,
    },
    "carl": {  # cluster-admin of muster
        ("create", "projects", ""): True,
        ("create", "jobs", THEIRS): True,
        ("patch", "nodes", ""): True,
        ("create", "poddisruptionbudgets", THEIRS): True,
        ("create", "evictionrecords", THEIRS): False,
        ("list", "validatingadmissionpolicies", ""): True,
        ("patch", "validatingadmissionpolicies", ""): False,
        ("delete", "nodes", ""): False,
        ("create", "clusterrolebindings", ""): False,
    },
    "eve": {  # a user without any role
        ("list", "projects", ""): False,
        ("list", "namespaces", ""): False,
        ("get", "configmaps", "muster-system"): False,
        ("list", "configmaps", "muster-system-templates"): True,
        ("create", "configmaps", "muster-system-templates"): False,
        ("list", "pods", OURS): False,
        ("create", "jobs", OURS): False,
    },
}
RESOURCES = {each.plural: each for each in ALL}


@pytest.fixture
def own_lab(tmp_path: Path) -> Iterator[Lab]:
    lab = start("roles", nodes=1, detach=False, state_dir=tmp_path / "labs")
    yield lab
    lab.stop()


@pytest.fixture
async def admin(own_lab: Lab) -> AsyncIterator[Transport]:
    async with Transport(load_access(own_lab.kubeconfig)) as transport:
        yield transport


async def faults(admin: Transport) -> list[str]:
    """Return the differences from the table."""
    found = []
    for user, table in MAY.items():
        for (verb, resource, namespace), expected in table.items():
            plural, _, sub = resource.partition("/")
            allowed = await may(admin, user, verb, RESOURCES[plural], namespace, sub=sub)
            if allowed is not expected:
                where = namespace or "the cluster"
                found.append(f"{user} may {'' if allowed else 'not '}{verb} {resource} in {where}")
    return found


async def give(admin: Transport, role: str, user: str, namespace: str = "") -> None:
    resource = ROLE_BINDINGS if namespace else CLUSTER_ROLE_BINDINGS
    body = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": f"{role}-{user}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
    }
    await admin.create(resource.path(namespace or None), body)


async def binding(admin: Transport) -> str:
    """Return the uid of the members' RoleBinding; "" while there is none."""
    try:
        found = await admin.get(ROLE_BINDINGS.path(OURS, MEMBERS_BINDING), RoleBinding)
    except NotFound:
        return ""
    return found.metadata.uid


async def test_the_shipped_roles_allow_the_rights_of_their_table_and_no_more(
    own_lab: Lab, admin: Transport, tmp_path: Path
) -> None:
    account = await prepare(own_lab.kubeconfig, tmp_path / "operator.kubeconfig")
    with operator(account, tmp_path / "operator.log"):
        await asyncio.to_thread(
            must, own_lab.kubeconfig, "project", "create", "team-a", "-g", "2", "--member", "user:ada"
        )
        await asyncio.to_thread(must, own_lab.kubeconfig, "project", "create", "team-b", "-g", "2")
        await give(admin, VIEWER, "vic")
        await give(admin, CLUSTER_ADMIN, "carl")
        await give(admin, PROJECT_ADMIN, "lea", OURS)
        first = ""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not (first := await binding(admin)):  # noqa: ASYNC110 - one object, for a second at most
                await asyncio.sleep(0.05)
        for user, verb, namespace in (("ada", "create", OURS), ("lea", "create", OURS), ("vic", "list", "")):
            await until_granted(admin, user, verb, JOBS, namespace)
        await until_granted(admin, "carl", "create", PROJECTS)
        assert await faults(admin) == []

        await admin.delete(ROLE_BINDINGS.path(OURS, MEMBERS_BINDING))
        async with asyncio.timeout(DEADLINE_SECONDS):
            while await binding(admin) in ("", first):  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.05)
        await until_granted(admin, "ada", "create", JOBS, OURS)
