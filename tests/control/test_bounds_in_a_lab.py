"""Requests that the operator's account and a project's administrators must not make, tried on a real API server."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from musterlab.cluster import Lab
from orchestrator.cluster.errors import AlreadyExists, ClusterError, Forbidden, Invalid, NotFound
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.resources import (
    CLAIMS,
    CLUSTER_ROLE_BINDINGS,
    CONFIG_MAPS,
    EVICTION_RECORDS,
    INGRESSES,
    JOBS,
    NAMESPACES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PROJECTS,
    RESOURCE_QUOTAS,
    ROLE_BINDINGS,
    SECRETS,
    SERVICES,
    STATEFUL_SETS,
    Resource,
)
from orchestrator.cluster.transport import MERGE_PATCH, Transport
from orchestrator.names import (
    MEMBERS_BINDING,
    OBJECTS_QUOTA,
    OPERATOR_BINDING,
    PRIORITY_CLASSES,
    SYSTEM_NAMESPACE,
    WRITER_ROLE,
)
from orchestrator.roles import CLUSTER_ADMIN, PROJECT_ADMIN, RESEARCHER
from orchestrator.submit.reservation_manifest import reservation_pod
from tests.cluster.waiting import DEADLINE_SECONDS
from tests.control.operators import must, operator, prepare, until_granted

pytestmark = pytest.mark.lab

ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
PROJECT, OURS = "bounds", "muster-bounds"
GROUP = "rbac.authorization.k8s.io"
ACCOUNT = {"kind": "ServiceAccount", "name": "muster-operator", "namespace": "muster-system"}
RECORD = {
    "apiVersion": EVICTION_RECORDS.api_version,
    "kind": EVICTION_RECORDS.kind,
    "metadata": {"name": "one", "namespace": OURS},
    "spec": {
        "at": "2026-01-01T00:00:00Z",
        "workload": "w",
        "pod": "p",
        "podUid": "u",
        "message": "as it was",
    },
}


class Site:
    """A project with its namespace, created by an operator that has stopped, and transports for three users."""

    def __init__(self, admin: Transport, account: Transport, leader: Transport, member: Transport) -> None:
        self.admin = admin
        self.account = account
        self.leader = leader
        self.member = member


@pytest.fixture
async def site(shared_lab: Lab, tmp_path: Path) -> AsyncIterator[Site]:
    kubeconfig = shared_lab.kubeconfig
    account = await prepare(kubeconfig, tmp_path / "operator.kubeconfig")
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(Transport(load_access(kubeconfig)))
        with operator(account, tmp_path / "operator.log"):
            create = ("project", "create", PROJECT, "-g", "1", "--member", "user:mia")
            await asyncio.to_thread(must, kubeconfig, *create)
            await admin.create(ROLE_BINDINGS.path(OURS), binding("lead", PROJECT_ADMIN, user("lea")))
            await until_granted(admin, "mia", "create", JOBS, OURS)
            await until_granted(admin, "lea", "create", CONFIG_MAPS, OURS)
            name = "system:serviceaccount:muster-system:muster-operator"
            await until_granted(admin, name, "create", EVICTION_RECORDS, OURS)
        people = [
            await stack.enter_async_context(
                Transport(load_access(kubeconfig, as_user=name, as_groups=["system:authenticated"]))
            )
            for name in ("lea", "mia")
        ]
        as_operator = await stack.enter_async_context(Transport(load_access(account), "muster-operator"))
        yield Site(admin, as_operator, *people)
        await admin.delete(NAMESPACES.path(name=OURS))
        await admin.delete(PROJECTS.path(name=PROJECT))
        async with asyncio.timeout(DEADLINE_SECONDS):
            while await is_there(admin, NAMESPACES.path(name=OURS)):  # noqa: ASYNC110 - polls a server
                await asyncio.sleep(0.1)


def user(name: str) -> dict[str, str]:
    return {"kind": "User", "name": name, "apiGroup": GROUP}


def binding(name: str, role: str, *subjects: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": ROLE_BINDINGS.api_version,
        "kind": ROLE_BINDINGS.kind,
        "metadata": {"name": name},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        "subjects": list(subjects),
    }


def kind_of(resource: Resource) -> dict[str, str]:
    return {"apiVersion": resource.api_version, "kind": resource.kind}


def pod(name: str) -> dict[str, Any]:
    containers = [{"name": "main", "image": "none"}]
    metadata = {"name": name, "labels": {"app": "x"}, "annotations": {"note": "mine"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}}


def namespace(name: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, **metadata}}


async def is_there(transport: Transport, path: str) -> bool:
    try:
        await transport.get(path)
    except NotFound:
        return False
    return True


async def allowed(attempts: dict[str, Callable[[], Awaitable[object]]]) -> list[str]:
    """Return the attempts that were not refused as forbidden, or as invalid by a policy."""
    through = []
    for what, attempt in attempts.items():
        try:
            await attempt()
        except (Forbidden, Invalid):
            continue
        except (NotFound, AlreadyExists) as error:
            through.append(f"{what}: {error}")
        else:
            through.append(what)
    return through


def apply(
    transport: Transport, resource: Resource, where: str, body: dict[str, Any]
) -> Callable[[], Awaitable[object]]:
    path = resource.path(where, body["metadata"]["name"])
    return lambda: transport.apply(path, body, field_manager="muster-projects")


def patch(transport: Transport, path: str, body: dict[str, Any]) -> Callable[[], Awaitable[object]]:
    return lambda: transport.patch(path, body, content_type=MERGE_PATCH)


async def test_the_operators_token_reaches_no_further_than_the_namespaces_of_projects(site: Site) -> None:
    account = site.account
    for where in (OURS, "default"):
        await site.admin.create(PODS.path(where), pod("bounds-pod"))
    ours, theirs = PODS.path(OURS, "bounds-pod"), PODS.path("default", "bounds-pod")
    owner = {"apiVersion": "muster.dev/v1alpha1", "kind": "Project", "name": "x", "uid": "u"}
    image = {"spec": {"containers": [{"name": "main", "image": "other"}]}}
    template = {"spec": {"containers": [{"name": "m", "image": "none"}], "restartPolicy": "Never"}}
    job = {**kind_of(JOBS), "metadata": {"name": "held"}, "spec": {"suspend": True, "template": template}}
    await site.admin.create(JOBS.path(OURS), job)
    held, after = JOBS.path(OURS, "held"), "muster.dev/after"
    start = {"metadata": {"annotations": {after: None}}, "spec": {"suspend": False}}
    try:
        assert (
            await allowed(
                {
                    "patch a pod elsewhere": patch(
                        account, theirs, {"metadata": {"annotations": {"muster.dev/x": "1"}}}
                    ),
                    "change an image": patch(account, ours, image),
                    "change a label": patch(account, ours, {"metadata": {"labels": {"app": "y"}}}),
                    "change somebody's annotation": patch(
                        account, ours, {"metadata": {"annotations": {"note": "no"}}}
                    ),
                    "remove somebody's annotation": patch(
                        account, ours, {"metadata": {"annotations": {"note": None}}}
                    ),
                    "add an annotation of others": patch(
                        account, ours, {"metadata": {"annotations": {"other/x": "1"}}}
                    ),
                    "say that a pod runs": patch(account, f"{ours}/status", {"status": {"phase": "Running"}}),
                    "write itself into kube-system": apply(
                        account, ROLE_BINDINGS, "kube-system", binding(OPERATOR_BINDING, WRITER_ROLE, ACCOUNT)
                    ),
                    "make a researcher in default": apply(
                        account, ROLE_BINDINGS, "default", binding(MEMBERS_BINDING, RESEARCHER, user("eve"))
                    ),
                    "bind an administrator's role": apply(
                        account, ROLE_BINDINGS, OURS, binding("other", "cluster-admin", user("eve"))
                    ),
                    "give its role to a member": apply(
                        account, ROLE_BINDINGS, OURS, binding(OPERATOR_BINDING, WRITER_ROLE, user("eve"))
                    ),
                    "make itself a member": apply(
                        account, ROLE_BINDINGS, OURS, binding(MEMBERS_BINDING, RESEARCHER, ACCOUNT)
                    ),
                    "make any namespace": lambda: account.create(NAMESPACES.path(), namespace("elsewhere")),
                    "make a reserved namespace": lambda: account.create(
                        NAMESPACES.path(),
                        namespace(
                            "muster-system-x",
                            labels={"muster.dev/project": "system-x"},
                            ownerReferences=[{**owner, "name": "system-x"}],
                        ),
                    ),
                    "label default": patch(
                        account,
                        NAMESPACES.path(name="default"),
                        {"metadata": {"labels": {"muster.dev/project": PROJECT}}},
                    ),
                    "relabel its project's namespace": patch(
                        account, NAMESPACES.path(name=OURS), {"metadata": {"labels": {"other": "x"}}}
                    ),
                    "start a job that waits for no other": patch(account, held, start),
                    "let a job wait for another": patch(
                        account, held, {"metadata": {"annotations": {after: "a:ended:u"}}}
                    ),
                    "read a secret": lambda: account.get(SECRETS.path(OURS)),
                }
            )
            == []
        )
        await patch(account, ours, {"metadata": {"annotations": {"muster.dev/x": "1"}}})()
        await patch(account, ours, {"metadata": {"annotations": {"muster.dev/x": None}}})()
        await patch(site.admin, held, {"metadata": {"annotations": {after: "a:ended:u,b:ended:u"}}})()
        assert (
            await allowed({"start it before all are met": patch(account, held, {"spec": start["spec"]})})
            == []
        )
        await patch(account, held, {"metadata": {"annotations": {after: "b:ended:u"}}})()
        await patch(account, held, start)()
    finally:
        for path in (ours, theirs):
            await site.admin.delete(path, grace_seconds=0)


async def test_the_operator_makes_pods_that_reserve_gpus_and_no_others(site: Site) -> None:
    account, nowhere = site.account, "a-node-that-is-not-there"
    plain = reservation_pod("bounds-reservation", nowhere, "none")
    await site.admin.create(PODS.path(SYSTEM_NAMESPACE), {**plain, "metadata": {"name": "bounds-operator"}})

    def make(name: str, where: str = SYSTEM_NAMESPACE, **spec: Any) -> Callable[[], Awaitable[object]]:
        body = reservation_pod(name, nowhere, "none")
        body["spec"] |= spec
        return lambda: account.create(PODS.path(where), body)

    (container,) = plain["spec"]["containers"]
    token: dict[str, Any] = {"serviceAccountToken": {"path": "token"}}
    secret = {"name": "X", "valueFrom": {"secretKeyRef": {"name": "x", "key": "y"}}}
    assert (
        await allowed(
            {
                "in a project": make("r1", OURS),
                "without the label": lambda: account.create(
                    PODS.path(SYSTEM_NAMESPACE), {**plain, "metadata": {"name": "r2"}}
                ),
                "as an account": make("r3", serviceAccountName="muster-operator"),
                "with a token": make("r4", automountServiceAccountToken=True),
                "with a volume": make("r5", volumes=[{"name": "t", "projected": {"sources": [token]}}]),
                "with a secret": make("r6", containers=[{**container, "env": [secret]}]),
                "with a program": make("r7", containers=[{**container, "command": ["sh"]}]),
                "as one for whom a kubelet ends others": make(
                    "r10", priorityClassName="system-node-critical"
                ),
                "with a probe": make(
                    "r8", containers=[{**container, "livenessProbe": {"exec": {"command": ["x"]}}}]
                ),
                "two containers": make("r9", containers=[container, {**container, "name": "other"}]),
                "delete another": lambda: account.delete(PODS.path(SYSTEM_NAMESPACE, "bounds-operator")),
            }
        )
        == []
    )
    path = PODS.path(SYSTEM_NAMESPACE, "bounds-reservation")
    assert await allowed({"make": make("bounds-reservation"), "delete": lambda: account.delete(path)}) == [
        "make",
        "delete",
    ]
    # the pod stays pending, because its kubelet does not exist
    assert (await site.admin.get(path))["spec"]["priority"] > max(PRIORITY_CLASSES.values())
    for name in ("bounds-operator", "bounds-reservation"):
        with suppress(NotFound):
            await site.admin.delete(PODS.path(SYSTEM_NAMESPACE, name), grace_seconds=0)


async def test_a_record_of_an_eviction_is_written_by_the_operator_and_changed_by_no_account(
    site: Site,
) -> None:
    path = EVICTION_RECORDS.path(OURS, "one")
    forged = {**RECORD, "metadata": {"name": "forged", "namespace": OURS}}
    changed = {"spec": {"message": "as somebody would have it"}}
    await site.account.create(EVICTION_RECORDS.path(OURS), RECORD)
    attempts: dict[str, Callable[[], Awaitable[object]]] = {}
    for name, who in (("member", site.member), ("project admin", site.leader)):
        attempts[f"{name} writes"] = lambda who=who: who.create(EVICTION_RECORDS.path(OURS), forged)  # type: ignore[misc]
        attempts[f"{name} changes"] = patch(who, path, changed)
        attempts[f"{name} deletes"] = lambda who=who: who.delete(path)  # type: ignore[misc]
    attempts["the operator changes"] = patch(site.account, path, changed)
    attempts["an administrator changes"] = patch(site.admin, path, changed)
    assert await allowed(attempts) == []
    for who in (site.member, site.leader):
        read: dict[str, Any] = await who.get(path)
        assert read["spec"] == RECORD["spec"]


async def test_a_role_of_the_sites_own_does_not_let_its_users_write_the_evidence(
    site: Site, shared_lab: Lab
) -> None:
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    await site.admin.create(ROLES.path(OURS), {**kind_of(ROLES), "metadata": {"name": "all"}, "rules": rules})
    everything = binding("all", "all", user("eve"))
    everything["roleRef"]["kind"] = "Role"
    await site.admin.create(ROLE_BINDINGS.path(OURS), everything)
    await until_granted(site.admin, "eve", "create", EVICTION_RECORDS, OURS)
    await site.account.create(EVICTION_RECORDS.path(OURS), {**RECORD, "metadata": {"name": "evidence"}})
    access = load_access(shared_lab.kubeconfig, as_user="eve", as_groups=["system:authenticated"])
    async with Transport(access) as eve:
        for attempt in (
            lambda: eve.create(EVICTION_RECORDS.path(OURS), {**RECORD, "metadata": {"name": "forged"}}),
            lambda: eve.delete(EVICTION_RECORDS.path(OURS, "evidence")),
        ):
            with pytest.raises(Invalid, match="written by the operator alone"):
                await attempt()
    await site.admin.delete(EVICTION_RECORDS.path(OURS, "evidence"))


async def test_a_project_admin_can_not_stop_reclaim(site: Site) -> None:
    budget = {
        "apiVersion": POD_DISRUPTION_BUDGETS.api_version,
        "kind": POD_DISRUPTION_BUDGETS.kind,
        "metadata": {"name": "keep"},
        "spec": {"minAvailable": "100%", "selector": {}},
    }
    attempts: dict[str, Callable[[], Awaitable[object]]] = {
        "write a budget": lambda: site.leader.create(POD_DISRUPTION_BUDGETS.path(OURS), budget),
    }
    for name in (MEMBERS_BINDING, OPERATOR_BINDING):
        path = ROLE_BINDINGS.path(OURS, name)
        attempts[f"delete {name}"] = lambda path=path: site.leader.delete(path)  # type: ignore[misc]
        attempts[f"empty {name}"] = patch(site.leader, path, {"subjects": []})
    assert await allowed(attempts) == []
    await site.leader.create(ROLE_BINDINGS.path(OURS), binding("more", RESEARCHER, user("max")))
    await site.leader.delete(ROLE_BINDINGS.path(OURS, "more"))
    await site.admin.delete(ROLE_BINDINGS.path(OURS, MEMBERS_BINDING))


async def test_every_role_does_its_purpose(site: Site, shared_lab: Lab) -> None:
    template: dict[str, Any] = {
        "metadata": {"labels": {"app": "x"}},
        "spec": {"containers": [{"name": "m", "image": "none"}]},
    }
    selector = {"matchLabels": {"app": "x"}}
    of_job = {**template, "spec": {**template["spec"], "restartPolicy": "Never"}}
    backend = {"service": {"name": "x", "port": {"number": 1}}}
    path = {"path": "/used", "pathType": "Prefix", "backend": backend}
    storage = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    researchers: tuple[tuple[Resource, dict[str, Any]], ...] = (
        (JOBS, {"spec": {"template": of_job, "suspend": True}}),
        (
            STATEFUL_SETS,
            {"spec": {"template": template, "selector": selector, "serviceName": "x", "replicas": 0}},
        ),
        (SERVICES, {"spec": {"ports": [{"port": 1}]}}),
        (INGRESSES, {"spec": {"rules": [{"http": {"paths": [path]}}]}}),
        (CLAIMS, {"spec": storage}),
        (SECRETS, {}),
    )
    for resource, body in researchers:
        await make_and_delete(site.member, resource, OURS, body)
    await make_and_delete(site.leader, CONFIG_MAPS, OURS, {})
    await site.admin.create(PODS.path(OURS), pod("used"))
    for sub_resource in ("exec", "attach", "portforward"):
        with pytest.raises(ClusterError) as refused:  # allowed, but no kubelet can answer the request
            await site.member.create(PODS.path(OURS, "used", sub_resource), {})
        assert not isinstance(refused.value, Forbidden)
    await site.member.delete(PODS.path(OURS, "used"), grace_seconds=0)
    body = {**binding("carl", CLUSTER_ADMIN, user("carl")), "kind": CLUSTER_ROLE_BINDINGS.kind}
    await site.admin.create(CLUSTER_ROLE_BINDINGS.path(), body)
    await until_granted(site.admin, "carl", "create", PROJECTS)
    carl = load_access(shared_lab.kubeconfig, as_user="carl", as_groups=["system:authenticated"])
    async with Transport(carl) as transport:
        await make_and_delete(transport, NAMESPACES, None, {})
        await make_and_delete(transport, PROJECTS, None, {"spec": {"gpu": {"quota": 0}}})
        await make_and_delete(transport, POD_DISRUPTION_BUDGETS, OURS, {"spec": {"minAvailable": 1}})
    await site.admin.delete(CLUSTER_ROLE_BINDINGS.path(name="carl"))


async def make_and_delete(
    transport: Transport, resource: Resource, where: str | None, body: dict[str, Any]
) -> None:
    kind = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": "used"}}
    await transport.create(resource.path(where), {**kind, **body})
    await transport.delete(resource.path(where, "used"))


async def test_a_project_has_at_most_as_many_jobs_as_its_limit_and_the_default_of_pods(
    site: Site, shared_lab: Lab, tmp_path: Path
) -> None:
    account = await prepare(shared_lab.kubeconfig, tmp_path / "operator.kubeconfig")
    limit = {"spec": {"objects": {"jobs": 1}}}
    await site.admin.patch(PROJECTS.path(name=PROJECT), limit, content_type=MERGE_PATCH)
    container = {"name": "m", "image": "none"}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    with operator(account, tmp_path / "operator.log", "operator-0"):
        async with asyncio.timeout(DEADLINE_SECONDS):
            quota: dict[str, Any] = {}
            while (
                quota.get("hard")
                != {
                    "count/jobs.batch": "1",
                    "count/pods": "10k",
                    "count/resourceclaims.resource.k8s.io": "20k",
                }
                or "used" not in quota
            ):
                body: dict[str, Any] = await site.admin.get(RESOURCE_QUOTAS.path(OURS, OBJECTS_QUOTA))
                quota = body.get("status", {})
    jobs = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": template, "suspend": True}}
    await site.member.create(JOBS.path(OURS), {**jobs, "metadata": {"name": "one"}})
    with pytest.raises(Forbidden, match=r"count/jobs\.batch"):
        await site.member.create(JOBS.path(OURS), {**jobs, "metadata": {"name": "two"}})


async def test_a_namespace_that_others_made_or_labelled_is_no_projects(
    shared_lab: Lab, tmp_path: Path
) -> None:
    account = await prepare(shared_lab.kubeconfig, tmp_path / "operator.kubeconfig")
    squatted = namespace("muster-late", labels={"muster.dev/project": "late"})
    async with Transport(load_access(shared_lab.kubeconfig)) as admin:
        await admin.create(NAMESPACES.path(), squatted)
        await admin.create(NAMESPACES.path(), namespace("aaa", labels={"muster.dev/project": "late"}))
        body = {"apiVersion": PROJECTS.api_version, "kind": "Project", "metadata": {"name": "late"}}
        await admin.create(PROJECTS.path(), {**body, "spec": {"gpu": {"quota": 0}}})
        try:
            with operator(account, tmp_path / "operator.log"):
                ready: dict[str, Any] = {}
                async with asyncio.timeout(DEADLINE_SECONDS):
                    while not ready:
                        project: dict[str, Any] = await admin.get(PROJECTS.path(name="late"))
                        conditions = project.get("status", {}).get("conditions", [])
                        ready = next((each for each in conditions if each["type"] == "Ready"), {})
                assert (ready["status"], ready["reason"]) == ("False", "NoNamespace")
                assert "muster-late exists and does not belong to the project" in ready["message"]
                for name in ("muster-late", "aaa"):
                    assert not await is_there(admin, ROLE_BINDINGS.path(name, MEMBERS_BINDING))
        finally:
            await admin.delete(PROJECTS.path(name="late"))
            for name in ("muster-late", "aaa"):
                await admin.delete(NAMESPACES.path(name=name))
