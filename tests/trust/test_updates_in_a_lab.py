"""Every rule of the policies also holds for updates, subresources and claims."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.cluster.errors import Forbidden, Invalid, NotFound
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.resources import (
    CLAIMS,
    DEVICE_CLASSES,
    JOBS,
    NAMESPACES,
    NETWORK_POLICIES,
    NODES,
    PODS,
    RESOURCE_QUOTAS,
    STATEFUL_SETS,
    Resource,
)
from orchestrator.cluster.transport import Transport
from orchestrator.manifests.install import apply
from orchestrator.manifests.render import CLAIM_ANNOTATIONS
from orchestrator.names import DEVICE_RESOURCES_ANNOTATION, NETWORK_POLICY_NAMES, OBJECTS_QUOTA
from tests.cluster.waiting import DEADLINE_SECONDS
from tests.control.operators import until_granted
from tests.trust.conftest import kubeconfig_of
from tests.trust.objects import (
    HOME,
    PEOPLE,
    Body,
    account,
    job,
    of_editors,
    of_members,
    pod,
    service_like,
    template,
    volume,
)
from tests.trust.test_rules_in_a_lab import DRY_RUN, REFUSED

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from pathlib import Path

    from tests.trust.conftest import Site

pytestmark = pytest.mark.lab

REPLICATION_CONTROLLERS = Resource("", "v1", "replicationcontrollers", "ReplicationController")
NAME = "updated"
GATED = {"schedulingGates": [{"name": "tests/gate"}]}


def controller(name: str, content: Body) -> Body:
    """Return a ReplicationController from a template."""
    body = service_like(REPLICATION_CONTROLLERS, name, content, replicas=0)
    return {**body, "spec": {**body["spec"], "selector": {"app": "trust"}}}


def alone(body: Body) -> Body:
    """Return the pod without labels, so that no controller adopts it."""
    return {**body, "metadata": {**body["metadata"], "labels": {}}}


def of_all(name: str, content: Body) -> list[tuple[Resource, Body]]:
    """Return the objects from a template that ada or dev may create."""
    return [
        *of_members(name, content),
        *of_editors(name, content),
        (REPLICATION_CONTROLLERS, controller(name, content)),
    ]


@pytest.fixture(scope="module")
def there(site: Site) -> Iterator[None]:
    """Create an object of each kind that breaks no rule. The pod is gated and the Job suspended, so that more fields
    can change.
    """

    async def make(transport: Transport) -> None:
        for resource, body in of_all(NAME, template()):
            if resource == PODS:
                body["spec"] |= GATED
            if resource == JOBS:
                body["spec"]["suspend"] = True
            await transport.create(resource.path(HOME), alone(body) if resource == PODS else body)

    async def remove(transport: Transport) -> None:
        for resource, _ in of_all(NAME, template()):
            await transport.delete(resource.path(HOME, NAME), grace_seconds=0)

    async def do(work: Callable[[Transport], Awaitable[None]]) -> None:
        async with Transport(load_access(site.kubeconfigs["admin"])) as transport:
            await work(transport)

    asyncio.run(do(make))
    yield
    asyncio.run(do(remove))


@pytest.mark.usefixtures("there")
@pytest.mark.parametrize("case", REFUSED)
async def test_no_rule_is_broken_by_an_update(case: str, dev: Transport) -> None:
    """The update replaces a whole object that breaks no rule. Kubernetes itself refuses changes of some fields."""
    for resource, body in of_all(NAME, REFUSED[case]):
        if resource == JOBS:
            body["spec"]["suspend"] = True
        with pytest.raises((Invalid, Forbidden)):
            await dev.replace(resource.path(HOME, NAME), body, params=DRY_RUN)


@pytest.mark.usefixtures("there")
@pytest.mark.parametrize(
    "annotations",
    [
        {"muster.dev/gpu-fraction": "0.5"},
        {"muster.dev/gpu-devices": "0"},
        {"muster.dev/min-member": "1" * 257},
        {"container.apparmor.security.beta.kubernetes.io/main": "unconfined"},
    ],
)
async def test_no_annotation_that_breaks_a_rule_is_added_to_a_pod(
    annotations: dict[str, str], dev: Transport
) -> None:
    patch = {"metadata": {"annotations": annotations}}
    for path in (PODS.path(HOME, NAME), PODS.path(HOME, NAME, "status")):
        with pytest.raises((Invalid, Forbidden)):
            await dev.patch(path, patch, params=DRY_RUN)
    await dev.patch(PODS.path(HOME, NAME), {"metadata": {"annotations": {"site/note": "x"}}}, params=DRY_RUN)


@pytest.fixture
async def eve(site: Site, admin: Transport, tmp_path: Path) -> AsyncIterator[Transport]:
    """Yield the access of eve, to whom a role of the site gives every right on the namespace's core resources."""
    metadata = {"name": "eve", "namespace": PEOPLE}
    await apply(admin, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    group = "rbac.authorization.k8s.io"
    rule = {"apiGroups": [""], "resources": ["*"], "verbs": ["*"]}
    metadata = {"name": "eve", "namespace": HOME}
    await apply(admin, {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]})
    subject = {"kind": "ServiceAccount", "name": "eve", "namespace": PEOPLE}
    reference = {"apiGroup": group, "kind": "Role", "name": "eve"}
    binding = {"apiVersion": f"{group}/v1", "kind": "RoleBinding", "metadata": metadata}
    await apply(admin, {**binding, "roleRef": reference, "subjects": [subject]})
    await until_granted(admin, account("eve"), "create", PODS, HOME)
    file = tmp_path / "eve.kubeconfig"
    file.write_text(json.dumps(await kubeconfig_of(admin, site.lab, "eve")))
    async with Transport(load_access(file)) as transport:
        yield transport


CONTAINERS = {
    case: content["spec"]["containers"][0]
    for case, content in REFUSED.items()
    if content["spec"]["containers"][0].keys() & {"securityContext", "readinessProbe", "ports"}
}


@pytest.mark.usefixtures("there")
async def test_no_rule_is_broken_by_a_subresource(eve: Transport, admin: Transport) -> None:
    assert len(CONTAINERS) > 5
    for case, container in CONTAINERS.items():
        debugger = {**container, "name": case[:60]}
        with pytest.raises((Invalid, Forbidden)):
            await eve.patch(
                PODS.path(HOME, NAME, "ephemeralcontainers"),
                {"spec": {"ephemeralContainers": [debugger]}},
                params=DRY_RUN,
            )
    for part in ("status", "ephemeralcontainers", "resize"):
        annotations = {"metadata": {"annotations": {"muster.dev/gpu-devices": "0"}}}
        before = (await admin.get(PODS.path(HOME, NAME)))["metadata"].get("annotations")
        try:
            await eve.patch(PODS.path(HOME, NAME, part), annotations)
        except (Invalid, Forbidden):
            continue
        assert (await admin.get(PODS.path(HOME, NAME)))["metadata"].get("annotations") == before, part


@pytest.mark.usefixtures("there")
async def test_a_member_does_not_bind_pods_past_the_scheduler(eve: Transport, admin: Transport) -> None:
    node = (await admin.get(NODES.path()))["items"][0]["metadata"]["name"]
    await admin.create(PODS.path(HOME), alone(pod("unbound", template(schedulerName="nobody"))))
    try:
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "unbound"},
            "target": {"kind": "Node", "name": node},
        }
        for path in (PODS.path(HOME, "unbound", "binding"), f"/api/v1/namespaces/{HOME}/bindings"):
            with pytest.raises(Invalid, match="rule node-name: pods/binding is for schedulers"):
                await eve.create(path, body, params=DRY_RUN)
        await admin.create(PODS.path(HOME, "unbound", "binding"), body, params=DRY_RUN)
    finally:
        await admin.delete(PODS.path(HOME, "unbound"), grace_seconds=0)


def claim(annotations: dict[str, str] | None = None, **spec: Any) -> Body:
    """Return the metadata and specification of a PersistentVolumeClaim or of its template."""
    request = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"annotations": annotations or {}}, "spec": {**request, **spec}}


TRIDENT = "trident.netapp.io"
# The annotations are those of Trident v26.06, frontend/csi/controller_helpers/kubernetes/config.go.
CLAIMS_REFUSED = {
    **{
        f"claim-annotations-{word.lower()}": claim({f"{TRIDENT}/{word}": "x"})
        for word in (
            *("importOriginalName", "importBackendUUID", "importNoRename", "notManaged", "exportPolicy"),
            *(
                "skipRecoveryQueue",
                "shareFromPVC",
                "cloneFromNamespace",
                "mirrorRelationship",
                "luksEncryption",
            ),
            *("internalSnapshotName", "shareToNamespace", "smbShareAdUser", "aWordOfTomorrow"),
        )
    },
    "claim-volume-name": claim(volumeName="pv-1", storageClassName="fast"),
    "claim-volume-class": claim(storageClassName=""),
}
CLAIMS_ALLOWED = {
    "plain": claim(),
    "class": claim(storageClassName="fast"),
    "annotations": claim(dict.fromkeys((*CLAIM_ANNOTATIONS, "site/note"), "x")),
}


def of_claims(name: str, content: Body) -> list[tuple[Resource, Body]]:
    """Return a PersistentVolumeClaim, and every object that creates PersistentVolumeClaims from this template."""
    named = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **content}
    set_of = service_like(STATEFUL_SETS, name, template())
    set_of["spec"]["volumeClaimTemplates"] = [
        {**content, "metadata": {**content["metadata"], "name": "data"}}
    ]
    return [
        (CLAIMS, {**named, "metadata": {**content["metadata"], "name": name}}),
        (STATEFUL_SETS, set_of),
        *of_all(name, volume({"ephemeral": {"volumeClaimTemplate": content}})),
    ]


@pytest.mark.parametrize("case", CLAIMS_REFUSED)
async def test_a_claim_reaches_no_volume_of_others(case: str, dev: Transport, ada: Transport) -> None:
    rule = case.rpartition("-")[0]
    for resource, body in of_claims(case, CLAIMS_REFUSED[case]):
        for person in (dev, ada) if resource in (CLAIMS, JOBS, STATEFUL_SETS) else (dev,):
            with pytest.raises(Invalid, match=f"rule {rule}: "):
                await person.create(resource.path(HOME), body, params=DRY_RUN)


@pytest.mark.parametrize("case", CLAIMS_ALLOWED)
async def test_a_claim_of_its_own_is_let_through(case: str, dev: Transport) -> None:
    for resource, body in of_claims(case, CLAIMS_ALLOWED[case]):
        await dev.create(resource.path(HOME), body, params=DRY_RUN)


async def test_a_claim_is_not_changed_into_one_that_reaches_others(dev: Transport, admin: Transport) -> None:
    (_, body), *_ = of_claims("later", claim(storageClassName="fast"))
    path = CLAIMS.path(HOME, "later")
    await dev.create(CLAIMS.path(HOME), body)
    try:
        for patch in (
            {"metadata": {"annotations": {f"{TRIDENT}/importOriginalName": "datasets"}}},
            {"spec": {"volumeName": "pv-1"}},
        ):
            with pytest.raises(Invalid, match="rule claim-"):
                await dev.patch(path, patch, params=DRY_RUN)
        await dev.patch(path, {"metadata": {"annotations": {"site/note": "x"}}}, params=DRY_RUN)
        await admin.patch(path, {"metadata": {"annotations": {f"{TRIDENT}/notManaged": "true"}}})
        await dev.patch(path, {"metadata": {"labels": {"site/note": "x"}, "annotations": {"a/b": "c"}}})
    finally:
        await admin.delete(path)


async def test_a_resource_of_any_device_class_needs_the_scheduler(ada: Transport, admin: Transport) -> None:
    body = {
        "apiVersion": DEVICE_CLASSES.api_version,
        "kind": DEVICE_CLASSES.kind,
        "metadata": {"name": "h100"},
        "spec": {
            "extendedResourceName": "example.com/h100",
            "selectors": [{"cel": {"expression": 'device.driver == "gpu.nvidia.com"'}}],
        },
    }
    content = template(container={"resources": {"limits": {"example.com/h100": "8"}}})
    await ada.create(JOBS.path(HOME), job("unknown", content), params=DRY_RUN)
    await admin.create(DEVICE_CLASSES.path(), body)
    try:
        await until(admin, lambda settings: settings.get(DEVICE_RESOURCES_ANNOTATION) == "example.com/h100")
        with pytest.raises(Invalid, match="rule gpu-scheduler: "):
            await ada.create(JOBS.path(HOME), job("past", content), params=DRY_RUN)
        content["spec"]["schedulerName"] = "muster"
        await ada.create(JOBS.path(HOME), job("asked", content), params=DRY_RUN)
    finally:
        await admin.delete(DEVICE_CLASSES.path(None, "h100"))
    await until(admin, lambda settings: DEVICE_RESOURCES_ANNOTATION not in settings)


async def until(admin: Transport, holds: Callable[[dict[str, str]], bool]) -> None:
    """Wait until the condition holds for the annotations of team-a's namespace."""

    async def is_so() -> bool:
        namespace = await admin.get(NAMESPACES.path(None, HOME))
        return holds(namespace["metadata"].get("annotations", {}))

    await eventually(is_so)


async def eventually(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Wait until the condition holds."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            if await is_so():
                return
            await asyncio.sleep(0.05)


PROTECTIONS = [
    *((NETWORK_POLICIES, name, {"spec": {"ingress": [{}]}}) for name in NETWORK_POLICY_NAMES[:1]),
    (NETWORK_POLICIES, NETWORK_POLICY_NAMES[1], {"spec": {"podSelector": {"matchLabels": None}}}),
    (RESOURCE_QUOTAS, OBJECTS_QUOTA, {"spec": {"hard": {"count/pods": "999999"}}}),
]


@pytest.mark.parametrize("protection", PROTECTIONS, ids=[name for _, name, _ in PROTECTIONS])
async def test_protections_of_a_project_are_restored(
    protection: tuple[Resource, str, Body], dev: Transport, eve: Transport, admin: Transport
) -> None:
    resource, name, patch = protection
    path = resource.path(HOME, name)
    written = (await admin.get(path))["spec"]
    for person in (dev, eve):
        for attempt in (person.delete(path), person.patch(path, patch)):
            with pytest.raises((Invalid, Forbidden), match=r"muster-protections: |cannot (delete|patch)"):
                await attempt

    async def is_back() -> bool:
        try:
            return bool((await admin.get(path))["spec"] == written)
        except NotFound:
            return False

    for change in (admin.delete(path), admin.patch(path, patch)):
        await change
        await eventually(is_back)
