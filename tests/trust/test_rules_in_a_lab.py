"""Each rule of the policies on a real API server: the requests that it refuses, and similar requests that it allows."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.cluster.errors import Forbidden, Invalid, NotFound
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.resources import CRDS, INGRESSES, JOBS, NAMESPACES, NODES, PODS, SERVICES, Resource
from orchestrator.cluster.transport import Transport
from orchestrator.manifests.install import apply
from orchestrator.names import OPERATOR_ACCOUNT, PRIORITY_CLASSES
from tests.cluster.waiting import DEADLINE_SECONDS
from tests.trust.objects import (
    HOME,
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

if TYPE_CHECKING:
    from tests.trust.conftest import Site

pytestmark = pytest.mark.lab

DRY_RUN = {"dryRun": "All"}
CLAIM = [{"name": "gpu", "resourceClaimName": "gpu"}]
DEVICE_CLASS = "deviceclass.resource.kubernetes.io/gpu.nvidia.com"
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
PROBE = {"httpGet": {"host": "10.0.0.1", "port": 80}}

TERM = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}


def beside(namespaces: Body) -> Body:
    """Return a required affinity to pods in these namespaces."""
    term = {**TERM, "namespaceSelector": namespaces}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


REFUSED = {
    "node-name": template(nodeName="dgx1-1"),
    "node-name-with-gpus": template(container=gpus(8), nodeName="dgx1-1", schedulerName="muster"),
    "gpu-scheduler": template(container=gpus(1)),
    "gpu-scheduler-by-name": template(container=gpus(1), schedulerName="default-scheduler"),
    "gpu-scheduler-init": template(initContainers=[{"name": "init", "image": "image", **gpus(1)}]),
    "gpu-scheduler-mig": template(container={"resources": {"limits": {"nvidia.com/mig-1g.5gb": "1"}}}),
    "gpu-resource-mig": template(
        container={"resources": {"limits": {"nvidia.com/mig-1g.5gb": "7"}}}, schedulerName="muster"
    ),
    "gpu-resource-shared": template(
        initContainers=[
            {"name": "i", "image": "i", "resources": {"limits": {"nvidia.com/gpu.shared": "8"}}},
        ],
        schedulerName="muster",
    ),
    "gpu-scheduler-claim": template(resourceClaims=CLAIM),
    "gpu-scheduler-class": template(container={"resources": {"limits": {DEVICE_CLASS: "1"}}}),
    "gpu-scheduler-annotation": template({"muster.dev/gpu-fraction": "0.5"}),
    "scheduling-fields": template(affinity=beside({"matchLabels": {"team": "a"}})),
    "scheduling-fields-preferred": template(
        affinity={
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 1,
                        "podAffinityTerm": {**TERM, "namespaceSelector": {"matchLabels": {"a": "b"}}},
                    }
                ]
            }
        }
    ),
    "scheduling-fields-operator": template(
        affinity=beside(
            {
                "matchExpressions": [
                    {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["x"]}
                ]
            }
        )
    ),
    "operator-annotations": template({"muster.dev/gpu-devices": "0,1"}, schedulerName="muster"),
    "operator-annotations-empty": template({"muster.dev/gpu-devices": ""}, schedulerName="muster"),
    "operator-annotations-nomination": template({"muster.dev/nominated-devices": "0"}),
    "operator-annotations-successor": template({"muster.dev/successor-nomination": "dgx1-1:0"}),
    "operator-annotations-eviction": template({"muster.dev/eviction-reason": "x"}),
    "annotation-size": template({"muster.dev/min-member": "1" * 257}),
    "annotation-size-index": template({"batch.kubernetes.io/job-completion-index": "1" * 5000}),
    "annotation-size-tree": template({"muster.dev/sub-groups": "[" * 65537}),
    "priority-class": template(priorityClassName="system-node-critical"),
    "priority-class-cluster": template(priorityClassName="system-cluster-critical"),
    "priority-class-higher": template(priorityClassName="trust-highest"),
    "termination-grace": template(terminationGracePeriodSeconds=31_536_000),
    "termination-grace-nearest": template(terminationGracePeriodSeconds=601),
    "control-plane": template(tolerations=[{"key": CONTROL_PLANE, "operator": "Exists"}]),
    "control-plane-every-taint": template(tolerations=[{"operator": "Exists", "effect": "NoSchedule"}]),
    "host-namespaces": template(hostNetwork=True),
    "host-namespaces-pid": template(hostPID=True),
    "host-namespaces-ipc": template(hostIPC=True),
    "privileged": template(container=security(privileged=True)),
    "privileged-init": template(initContainers=[{"name": "i", "image": "i", **security(privileged=True)}]),
    "capabilities": template(container=security(capabilities={"add": ["SYS_ADMIN"]})),
    "host-ports": template(container={"ports": [{"containerPort": 80, "hostPort": 80}]}),
    "probe-hosts": template(container={"readinessProbe": PROBE}),
    "probe-hosts-hook": template(container={"lifecycle": {"preStop": PROBE}}),
    "profiles": template(container=security(seccompProfile={"type": "Unconfined"})),
    "profiles-pod": template(securityContext={"appArmorProfile": {"type": "Unconfined"}}),
    "selinux": template(securityContext={"seLinuxOptions": {"type": "spc_t"}}),
    "proc-mount": template(container=security(procMount="Unmasked"), hostUsers=False),
    "sysctls": template(securityContext={"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}),
    "volume-kinds": volume(
        {"iscsi": {"targetPortal": "10.0.0.1", "iqn": "iqn.2001-04.com.example:a", "lun": 0}}
    ),
    "csi-drivers": volume(
        {
            "csi": {
                "driver": "nfs.csi.k8s.io",
                "volumeAttributes": {"server": "nas", "share": "/exports/team-b"},
            }
        }
    ),
    "directories": volume({"hostPath": {"path": "/"}}),
    "directories-nfs": volume({"nfs": {"server": "nas", "path": "/exports/team-b"}}),
}
"""Templates that no member of a project may use. A key is the name of the rule that refuses it, with a suffix for
variants.
"""

ALLOWED = {
    "plain": template(),
    "namespace-by-name": template(affinity=beside({"matchLabels": {"kubernetes.io/metadata.name": "x"}})),
    "every-namespace": template(
        affinity=beside({}), tolerations=[{"key": "example.com/special", "operator": "Exists"}]
    ),
    "gpus": template(container=gpus(8), schedulerName="muster"),
    "fraction": template({"muster.dev/gpu-fraction": "0.5"}, schedulerName="muster"),
    "claim": template(schedulerName="muster", resourceClaims=CLAIM),
    "another-device": template(container={"resources": {"limits": {"rdma/hca": "1"}}}),
    "another-device-of-nvidia": template(
        container={"resources": {"limits": {"nvidia.com/hostdev": "1", "nvidia.com/gpu": "8"}}},
        schedulerName="muster",
    ),
    "secrets-by-csi": volume({"csi": {"driver": "secrets-store.csi.k8s.io", "readOnly": True}}),
    "annotations": template({"muster.dev/min-member": "1" * 256, "site/note": "x" * 5000}),
    "tree": template({"muster.dev/sub-groups": "[" * 65536}),
    "grace": template(terminationGracePeriodSeconds=600),
    "capability": template(container=security(capabilities={"add": ["KILL"], "drop": ["ALL"]})),
    "profile": template(container=security(seccompProfile={"type": "RuntimeDefault"})),
    "sysctl": template(securityContext={"sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "1"}]}),
    "memory": volume({"emptyDir": {"medium": "Memory"}}),
    "volume-claim": volume({"persistentVolumeClaim": {"claimName": "data"}}),
    "tolerations": template(
        tolerations=[
            {"key": "interactive-only", "operator": "Exists"},
            {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
            {"operator": "Exists", "effect": "NoExecute"},
        ]
    ),
    "affinity": template(nodeSelector={"kubernetes.io/hostname": "dgx1-1"}),
    **{name: template(priorityClassName=name) for name in PRIORITY_CLASSES},
}


@pytest.fixture(scope="module", autouse=True)
def highest_priority(site: Site) -> None:
    """Create a PriorityClass of the site above all of muster's."""

    async def make() -> None:
        async with Transport(load_access(site.kubeconfigs["admin"])) as transport:
            body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 126}
            await apply(transport, {**body, "metadata": {"name": "trust-highest"}})

    asyncio.run(make())


@pytest.mark.parametrize("case", REFUSED)
async def test_no_member_of_a_project_may(
    case: str, ada: Transport, dev: Transport, admin: Transport
) -> None:
    rule = next(rule for rule in sorted(RULES, key=len, reverse=True) if case.startswith(rule))
    for person, objects in ((ada, of_members(case, REFUSED[case])), (dev, of_editors(case, REFUSED[case]))):
        for resource, body in objects:
            with pytest.raises((Invalid, Forbidden), match=denial_pattern(resource, rule)):
                await person.create(resource.path(HOME), body)
            with pytest.raises(NotFound):
                await admin.get(resource.path(HOME, case))


def denial_pattern(resource: Resource, rule: str) -> str:
    """Return the pattern of the error. For a pod, Kubernetes' own Pod Security admission may refuse first."""
    ours = f"rule {rule}: [a-z]"
    return f"{ours}|violates PodSecurity" if resource == PODS else ours


RULES = {
    "node-name",
    "gpu-scheduler",
    "gpu-resource",
    "scheduling-fields",
    "operator-annotations",
    "annotation-size",
    "priority-class",
    "termination-grace",
    "control-plane",
    "host-namespaces",
    "privileged",
    "capabilities",
    "host-ports",
    "probe-hosts",
    "profiles",
    "selinux",
    "proc-mount",
    "sysctls",
    "volume-kinds",
    "csi-drivers",
    "directories",
}


@pytest.mark.parametrize("case", ALLOWED)
async def test_every_member_of_a_project_may(case: str, ada: Transport, dev: Transport) -> None:
    for person, objects in ((ada, of_members(case, ALLOWED[case])), (dev, of_editors(case, ALLOWED[case]))):
        for resource, body in objects:
            await person.create(resource.path(HOME), body, params=DRY_RUN)


@pytest.mark.parametrize("case", ["node-name", "operator-annotations", "priority-class", "gpu-scheduler"])
async def test_administrators_of_projects_may_for_pods_of_their_own(case: str, admin: Transport) -> None:
    await admin.create(PODS.path(HOME), pod(case, REFUSED[case]), params=DRY_RUN)
    # a controller's account creates the Job's pods, not the administrator
    with pytest.raises(Invalid, match=f"rule {case}"):
        await admin.create(JOBS.path(HOME), job(case, REFUSED[case]), params=DRY_RUN)


async def test_pods_of_a_controller_with_an_administrators_rights_are_looked_at(admin: Transport) -> None:
    content = REFUSED["node-name"]
    owner = {"apiVersion": "example.org/v1", "kind": "Workflow", "name": "w", "uid": "w", "controller": True}
    made = pod("made", content)
    made["metadata"]["ownerReferences"] = [owner]
    with pytest.raises(Invalid, match="rule node-name"):
        await admin.create(PODS.path(HOME), made, params=DRY_RUN)


async def test_a_service_does_not_become_a_name_elsewhere(ada: Transport, admin: Transport) -> None:
    await ada.create(SERVICES.path(HOME), service())
    try:
        spec = {"type": "ExternalName", "externalName": "web.muster-team-b.svc.cluster.local"}
        with pytest.raises(Invalid, match="rule external-name"):
            await ada.patch(SERVICES.path(HOME, "web"), {"spec": {**spec, "clusterIP": None}}, params=DRY_RUN)
    finally:
        await admin.delete(SERVICES.path(HOME, "web"))


async def test_writers_of_budgets_may_not_in_a_project(dev: Transport, admin: Transport) -> None:
    resource = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
    body = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": "for-ever"},
        "spec": {"maxUnavailable": 0, "selector": {}},
    }
    with pytest.raises(Invalid, match="rule disruption-budgets"):
        await dev.create(resource.path(HOME), body)
    await admin.create(resource.path(HOME), body, params=DRY_RUN)


async def test_outside_of_projects_nothing_is_refused(admin: Transport) -> None:
    for case in ("node-name", "gpu-scheduler", "directories", "host-namespaces"):
        await admin.create(JOBS.path("default"), job(case, REFUSED[case]), params=DRY_RUN)


async def test_the_operator_alone_changes_the_annotations_that_it_decides_by(
    site: Site, dev: Transport, admin: Transport
) -> None:
    path = PODS.path(HOME, "annotated")
    await dev.create(PODS.path(HOME), pod("annotated", template()))
    try:
        patch = {"metadata": {"annotations": {"muster.dev/nominated-devices": "0"}}}
        with pytest.raises(Invalid, match="rule operator-annotations"):
            await dev.patch(path, patch)
        with pytest.raises(Invalid, match="rule annotation-size"):
            await dev.patch(path, {"metadata": {"annotations": {"muster.dev/min-member": "1" * 257}}})
        await dev.patch(path, {"metadata": {"annotations": {"site/note": "mine"}}})
        async with Transport(load_access(site.kubeconfigs["operator"])) as operator:
            await operator.patch(path, patch)
        with pytest.raises(Invalid, match="rule operator-annotations"):
            await dev.patch(path, {"metadata": {"annotations": None}})
    finally:
        await admin.delete(path, grace_seconds=0)


async def test_a_toleration_of_the_control_plane_is_not_added_later(dev: Transport, admin: Transport) -> None:
    path = PODS.path(HOME, "tolerates")
    await dev.create(PODS.path(HOME), pod("tolerates", template()))
    try:
        known = (await admin.get(path))["spec"]["tolerations"]  # the API server adds some tolerations
        other, forbidden = (
            {"spec": {"tolerations": [*known, {"key": taint, "operator": "Exists"}]}}
            for taint in ("site/any", CONTROL_PLANE)
        )
        await dev.patch(path, other, params=DRY_RUN)
        with pytest.raises(Invalid, match="rule control-plane"):
            await dev.patch(path, forbidden)
    finally:
        await admin.delete(path, grace_seconds=0)


async def test_a_reason_of_an_eviction_is_not_written_in_the_operators_name(
    dev: Transport, admin: Transport
) -> None:
    """A new leader takes an eviction reason for its predecessor's if the field manager has the operator's name."""
    path = PODS.path(HOME, "forged")
    await dev.create(PODS.path(HOME), pod("forged", template()))
    try:
        reason = {"metadata": {"annotations": {"muster.dev/eviction-reason": "by the rule of quota"}}}
        with pytest.raises(Invalid, match="rule operator-annotations"):
            await dev.patch(path, reason, params={"fieldManager": OPERATOR_ACCOUNT})
    finally:
        await admin.delete(path, grace_seconds=0)


@pytest.mark.parametrize(
    "metadata",
    [
        {"annotations": {"muster.dev/gpu-fraction": "0.001"}},
        {"annotations": {"muster.dev/preemptible": "false"}},
        {"annotations": None},
        {"labels": {"muster.dev/type": "interactive"}},
    ],
)
async def test_the_binding_of_a_pod_is_immutable(metadata: Body, dev: Transport, admin: Transport) -> None:
    annotations = {"muster.dev/gpu-fraction": "0.9", "muster.dev/preemptible": "true"}
    path, node = PODS.path(HOME, "bound"), (await admin.get(NODES.path()))["items"][0]["metadata"]["name"]
    await admin.create(
        PODS.path(HOME), pod("bound", template(annotations, nodeName=node, schedulerName="muster"))
    )
    try:
        with pytest.raises(Invalid, match="rule bound-request"):
            await dev.patch(path, {"metadata": metadata})
        await dev.patch(path, {"metadata": {"labels": {"site/note": "mine"}}})
    finally:
        await admin.delete(path, grace_seconds=0)


async def test_objects_that_broke_a_rule_before_remain_manageable(admin: Transport) -> None:
    """A Job from before the policies can be suspended and annotated, but a change of its template is checked."""
    await admin.create(
        NAMESPACES.path(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "older"}}
    )
    await admin.create(JOBS.path("older"), job("older", REFUSED["termination-grace"], suspend=True))
    label = {"metadata": {"labels": {"muster.dev/project": "older"}}}
    await admin.patch(NAMESPACES.path(None, "older"), label)
    path = JOBS.path("older", "older")
    try:
        await _until_refused(admin, "older")
        await admin.patch(path, {"spec": {"parallelism": 0}, "metadata": {"annotations": {"note": "x"}}})
        grace = {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}}
        with pytest.raises(Invalid, match="rule termination-grace"):
            await admin.patch(path, grace)
    finally:
        await admin.delete(NAMESPACES.path(None, "older"))


async def _until_refused(admin: Transport, namespace: str) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            try:
                body = job("probe", REFUSED["node-name"])
                await admin.create(JOBS.path(namespace), body, params=DRY_RUN)
            except Invalid:
                return
            await asyncio.sleep(0.02)


async def test_the_templates_of_a_jobset_are_looked_at_too(admin: Transport) -> None:
    resource = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
    await admin.create(CRDS.path(), _definition(resource))
    bad, good = (job("", content)["spec"] for content in (template(nodeName="dgx1-1"), template()))
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while True:
                try:
                    await admin.create(resource.path(HOME), _jobset(good, good), params=DRY_RUN)
                    break
                except NotFound:
                    await asyncio.sleep(0.05)
        with pytest.raises(Invalid, match="rule node-name"):
            await admin.create(resource.path(HOME), _jobset(good, bad), params=DRY_RUN)
    finally:
        await admin.delete(CRDS.path(None, f"{resource.plural}.{resource.group}"))


def _jobset(*jobs: Body) -> Body:
    replicated = [{"name": f"r{index}", "template": {"spec": spec}} for index, spec in enumerate(jobs)]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "set"},
        "spec": {"replicatedJobs": replicated},
    }


def _definition(resource: Resource) -> Body:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": CRDS.api_version,
        "kind": CRDS.kind,
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
            "names": {"plural": resource.plural, "singular": "jobset", "kind": resource.kind},
            "versions": [version],
        },
    }


def service(**spec: Any) -> Body:
    ports = [{"port": 80}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"ports": ports, **spec},
    }


def ingress(annotations: dict[str, str] | None = None, **spec: Any) -> Body:
    return {
        "apiVersion": INGRESSES.api_version,
        "kind": INGRESSES.kind,
        "metadata": {"name": "web", "annotations": annotations or {}},
        "spec": spec,
    }


def rules(path: str, host: str = "") -> Body:
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    http = {"paths": [{"path": path, "pathType": "Prefix", "backend": backend}]}
    return {"rules": [{"http": http} | ({"host": host} if host else {})]}


NGINX = "nginx.ingress.kubernetes.io"
BACKEND = {"service": {"name": "web", "port": {"number": 80}}}


@pytest.mark.parametrize(
    ("rule", "body"),
    [
        ("external-ips", service(externalIPs=["10.0.0.1"])),
        ("external-name", service(type="ExternalName", externalName="web.muster-team-b.svc.cluster.local")),
        ("ingress-hosts", ingress(**rules("/", "login.example.com"))),
        ("ingress-hosts", ingress(**rules("/team-a-web"), tls=[{"hosts": ["login.example.com"]}])),
        ("ingress-paths", ingress(**rules("/"))),
        ("ingress-paths", ingress(**rules("/team-b-web"))),
        ("ingress-paths", ingress(**rules("/web;x"))),
        ("ingress-backend", ingress(defaultBackend=BACKEND)),
        ("ingress-annotations", ingress({f"{NGINX}/server-alias": "x.org"}, **rules("/web"))),
        ("ingress-annotations", ingress({f"{NGINX}/configuration-snippet": ";"}, **rules("/web"))),
        ("ingress-annotations", ingress({f"{NGINX}/canary": "true"}, **rules("/web"))),
        ("ingress-annotations", ingress({"konghq.com/host-aliases": "x.org"}, **rules("/web"))),
        ("ingress-annotations", ingress({f"{NGINX}/use-regex": "true"}, **rules("/web"))),
    ],
)
async def test_services_and_ingresses_reach_only_the_project(rule: str, body: Body, ada: Transport) -> None:
    resource = SERVICES if body["kind"] == "Service" else INGRESSES
    with pytest.raises(Invalid, match=f"rule {rule}"):
        await ada.create(resource.path(HOME), body)


@pytest.mark.parametrize(
    "body",
    [
        service(),
        service(type="NodePort"),
        service(clusterIP="None"),
        ingress(**rules("/team-a-web")),
        ingress(**rules("/web")),
        ingress(**rules("/web-8080")),
        ingress({"site/note": "mine"}, **rules("/web/api")),
    ],
)
async def test_the_projects_own_services_and_ingresses_are_let_through(body: Body, ada: Transport) -> None:
    resource = SERVICES if body["kind"] == "Service" else INGRESSES
    await ada.create(resource.path(HOME), body, params=DRY_RUN)
