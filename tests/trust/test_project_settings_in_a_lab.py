"""Security settings of a project: which users may set them, and which requests the policies then allow."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.cli.main import main
from orchestrator.cluster.errors import ClusterError, Forbidden, Invalid
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.objects import Namespace
from orchestrator.cluster.resources import (
    ADMISSION_POLICIES,
    CLUSTER_ROLES,
    INGRESSES,
    JOBS,
    NAMESPACES,
    NETWORK_POLICIES,
    PODS,
    PROJECTS,
    ROLE_BINDINGS,
    Resource,
)
from orchestrator.cluster.transport import Transport
from orchestrator.manifests.install import apply
from orchestrator.manifests.render import documents, render
from orchestrator.submit.protection import ANNOTATIONS, LABELS, PolicyMode
from tests.cluster.waiting import DEADLINE_SECONDS
from tests.control.operators import muster
from tests.trust.objects import (
    HOME,
    PEOPLE,
    THEIRS,
    Body,
    account,
    gpus,
    job,
    of_members,
    pod,
    security,
    template,
    volume,
)
from tests.trust.test_rules_in_a_lab import DRY_RUN, ingress, rules

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.trust.conftest import Site

pytestmark = pytest.mark.lab

ENFORCE = "pod-security.kubernetes.io/enforce"


async def allow(admin: Transport, *, closed: bool = False, **fields: Any) -> Namespace:
    """Set the security of team-a to these fields. Return its namespace once the operator has updated it.

    `closed` says that another project writes below one of the directories.
    """
    before = await admin.get(PROJECTS.path(None, "team-a"))
    nothing = dict.fromkeys(before["spec"].get("security", {}))
    await admin.patch(PROJECTS.path(None, "team-a"), {"spec": {"security": {**nothing, **fields}}})
    level = fields.get("podSecurity", "baseline")
    expected = len([field for field in fields if field not in {"podSecurity", "directories"}])
    expected += len({one.get("writable", False) for one in fields.get("directories", ())}) + closed
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            namespace = await admin.get(NAMESPACES.path(None, HOME), Namespace)
            annotations, labels = namespace.metadata.annotations, namespace.metadata.labels
            ours = [key for key in ANNOTATIONS if key in annotations]
            if len(ours) == expected and labels.get(LABELS[0]) == level and ENFORCE in labels:
                return namespace
            await asyncio.sleep(0.02)


@pytest.fixture
async def project(admin: Transport) -> AsyncIterator[Transport]:
    """Yield an administrator's access. At the end reset the security of team-a."""
    yield admin
    await allow(admin)


async def outcome(person: Transport, body: Body) -> str:
    """Create a Job as a dry run. Return `allowed`, or the error message."""
    try:
        await person.create(JOBS.path(HOME), body, params=DRY_RUN)
    except ClusterError as error:
        return str(error)
    return "allowed"


async def until_outcome(person: Transport, body: Body, words: str) -> None:
    """Wait until the API server answers with these words, by the namespace's present settings."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while words not in (latest := await outcome(person, body)):
            assert latest == "allowed" or "rule" in latest, latest
            await asyncio.sleep(0.02)


async def test_projects_are_baseline_from_their_first_moment(admin: Transport) -> None:
    for name in (HOME, THEIRS):
        labels = (await admin.get(NAMESPACES.path(None, name), Namespace)).metadata.labels
        assert (labels[LABELS[0]], labels[ENFORCE]) == ("baseline", "baseline")


@pytest.mark.parametrize("person", ["ada", "dev", "lea", "bob"])
async def test_only_an_administrator_sets_the_rights_of_a_project(site: Site, person: str) -> None:
    patch = {"spec": {"security": {"podSecurity": "privileged"}}}
    labels = {"metadata": {"labels": {LABELS[0]: "privileged", ENFORCE: "privileged"}}}
    async with Transport(load_access(site.kubeconfigs[person])) as transport:
        for path, body in (
            (PROJECTS.path(None, "team-a"), patch),
            (NAMESPACES.path(None, HOME), labels),
            (NETWORK_POLICIES.path(HOME, "muster-default"), {"spec": {"ingress": [{}]}}),
        ):
            if person == "dev" and "networkpolicies" in path:
                continue  # the role `edit` includes this right
            with pytest.raises(Forbidden):
                await transport.patch(path, body)
        # A user cannot get the right by binding a role either.
        with pytest.raises(Forbidden):
            await transport.create(ROLE_BINDINGS.path(HOME), _cluster_admin(person))


def _cluster_admin(person: str) -> Body:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": ROLE_BINDINGS.api_version,
        "kind": ROLE_BINDINGS.kind,
        "metadata": {"name": "more"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "User", "name": account(person), "apiGroup": group}],
    }


@pytest.mark.parametrize(
    "fields",
    [
        {"podSecurity": "none"},
        {"priorityClasses": ["system-node-critical"]},
        {"directories": [{"path": "relative"}]},
        {"directories": [{"path": "/raid/../etc"}]},
        {"directories": [{"path": "/raid,/etc"}]},
        {"directories": [{"path": "/raid", "writable": True}, {"path": "/raid/sets"}]},
        {"directories": [{"path": "/", "writable": True}, {"path": "/raid"}]},
        {"directories": [{"path": "/raid"}, {"path": "/raid/mine", "writable": True}]},
        {"directories": [{"path": "/raid"}, {"path": "/raid", "writable": True}]},
        {"podSecurity": "restricted", "directories": [{"path": "/raid"}]},
        {"maxTerminationGraceSeconds": -1},
        {"ingressDomain": "*"},
    ],
)
async def test_rights_that_a_project_cannot_have(fields: Body, admin: Transport) -> None:
    with pytest.raises(Invalid):
        await admin.patch(PROJECTS.path(None, "team-a"), {"spec": {"security": fields}}, params=DRY_RUN)


def host(path: str) -> Body:
    return {"hostPath": {"path": path}}


def nfs(path: str, server: str = "nas") -> Body:
    return {"nfs": {"server": server, "path": path}}


async def test_directories(project: Transport, ada: Transport, dev: Transport) -> None:
    namespace = await allow(
        project,
        directories=[
            {"path": "/scratch", "writable": True},
            {"path": "/raid/sets"},
            {"path": "/home", "nfsServer": "nas", "writable": True},
            {"path": "/exports/sets", "nfsServer": "nas"},
        ],
    )
    # Kubernetes' level baseline would refuse hostPath volumes
    assert namespace.metadata.labels[ENFORCE] == "privileged"
    await until_outcome(ada, job("x", volume(host("/scratch"))), "allowed")
    allowed = [
        volume(host("/scratch")),
        volume(host("/raid/sets"), read_only=True),
        volume(host("/raid/sets/imagenet"), read_only=True),
        volume(nfs("/home")),
        volume(nfs("/exports/sets/a"), read_only=True),
    ]
    refused = [
        volume(host("/")),
        volume(host("/scratch/a")),  # a user may have made a link there to any path
        volume(host("/scratches")),
        volume(host("/raid/sets")),
        volume(host("/raid/setsandmore"), read_only=True),
        volume(host("/raid"), read_only=True),
        volume({"hostPath": {"path": "/raid/sets/mine", "type": "FileOrCreate"}}, read_only=True),
        volume(host("/home")),
        volume(host("nas:/home")),
        volume(nfs("/home", "other")),
        volume(nfs("/home/bob")),
        volume(nfs("/exports/sets/../team-b"), read_only=True),
        volume(nfs("/scratch")),
        volume(nfs("/a", "/raid/sets/b"), read_only=True),
        volume(nfs("/a", "nas:/exports/sets"), read_only=True),
    ]
    for content in allowed:
        assert await outcome(ada, job("x", content)) == "allowed"
        await dev.create(PODS.path(HOME), pod("x", content), params=DRY_RUN)
    for content in refused:
        for resource, body in of_members("x", content):
            with pytest.raises(
                Invalid, match=r"rule directories: .*/scratch, nas:/home, /raid/sets and below"
            ):
                await ada.create(resource.path(HOME), body, params=DRY_RUN)
        with pytest.raises(Invalid, match="rule directories"):
            await dev.create(PODS.path(HOME), pod("x", content), params=DRY_RUN)
    # Muster's policy enforces the rest of the level baseline in place of Kubernetes' own admission.
    with pytest.raises(Invalid, match="rule privileged"):
        await dev.create(PODS.path(HOME), pod("x", template(container=security(privileged=True))))


async def test_below_a_directory_in_which_another_project_writes_nothing_is_mounted(
    project: Transport, ada: Transport
) -> None:
    """A member of both projects could make a link there in a pod of team-b, and read any file
    of the node through it.
    """
    writes = {"spec": {"security": {"directories": [{"path": "/data/b", "writable": True}]}}}
    await project.patch(PROJECTS.path(None, "team-b"), writes)
    try:
        await allow(project, closed=True, directories=[{"path": "/data"}])
        await until_outcome(ada, job("x", volume(host("/data/a"), read_only=True)), "allowed")
        await until_outcome(ada, job("x", volume(host("/data/b/link"), read_only=True)), "rule directories")
        assert await outcome(ada, job("x", volume(host("/data/b"), read_only=True))) == "allowed"
        assert await outcome(ada, job("x", volume(host("/data"), read_only=True))) == "allowed"
    finally:
        await project.patch(PROJECTS.path(None, "team-b"), {"spec": {"security": None}})


async def test_a_colliding_setting_belongs_to_the_older_project(project: Transport) -> None:
    """team-a is the older project."""
    await allow(project, ingressDomain="example.com", directories=[{"path": "/data/a"}])
    security = {
        "ingressDomain": "b.example.com",
        "directories": [{"path": "/data", "writable": True}, {"path": "/raid"}],
    }
    await project.patch(PROJECTS.path(None, "team-b"), {"spec": {"security": security}})
    try:
        granted: dict[str, Any] = {}
        async with asyncio.timeout(DEADLINE_SECONDS):
            while granted.get("status") != "False":
                status = (await project.get(PROJECTS.path(None, "team-b"))).get("status", {})
                conditions = {one["type"]: one for one in status.get("conditions", ())}
                granted = conditions.get("SecurityGranted", {})
                await asyncio.sleep(0.02)
        assert granted["message"] == (
            "not granted: the directory /data, to be written, is above /data/a of "
            "project team-a; the domain b.example.com collides with example.com of project team-a"
        )
        annotations = (await project.get(NAMESPACES.path(None, THEIRS), Namespace)).metadata.annotations
        assert {key: annotations[key] for key in ANNOTATIONS if key in annotations} == {
            "muster.dev/read-only-directories": "/raid"
        }
    finally:
        await project.patch(PROJECTS.path(None, "team-b"), {"spec": {"security": None}})


async def test_a_project_may_be_allowed_the_control_plane(project: Transport, ada: Transport) -> None:
    tolerant = job("x", template(tolerations=[{"operator": "Exists"}]))
    assert "rule control-plane" in await outcome(ada, tolerant)
    await allow(project, controlPlane=True)
    await until_outcome(ada, tolerant, "allowed")


async def test_privileged_projects_have_the_rights_that_kubernetes_allows(
    project: Transport, ada: Transport
) -> None:
    content = volume({"hostPath": {"path": "/"}}, hostNetwork=True)
    content["spec"]["containers"][0].update(security(privileged=True))
    await allow(project, podSecurity="privileged")
    await until_outcome(ada, job("x", content), "allowed")
    assert "rule node-name" in await outcome(ada, job("x", template(nodeName="dgx1-1")))


async def test_restricted_projects_are_refused_pods_that_are_not(
    site: Site, project: Transport, ada: Transport, dev: Transport
) -> None:
    await allow(project, podSecurity="restricted")
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            try:
                await dev.create(PODS.path(HOME), pod("x", template()), params=DRY_RUN)
            except Forbidden:
                break
            await asyncio.sleep(0.02)
    with pytest.raises(Forbidden, match='violates PodSecurity "restricted'):
        await dev.create(PODS.path(HOME), pod("x", template()))
    await until_outcome(ada, job("x", template()), "rule restricted")
    words = ("submit", "x", "-i", "image", "-p", "team-a", "--git-sync", "source=https://a/b")
    done = await asyncio.to_thread(muster, site.kubeconfigs["ada"], *words, "--dry-run=server", "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    made = next(one for one in json.loads(done.stdout)["items"] if one["kind"] == "Job")
    await dev.create(PODS.path(HOME), pod("x", made["spec"]["template"]), params=DRY_RUN)


async def test_classes_grace_scheduler_and_domain(project: Transport, ada: Transport) -> None:
    await allow(
        project,
        priorityClasses=["trust-higher"],
        maxTerminationGraceSeconds=900,
        schedulerName="other",
        ingressDomain="team-a.example.com",
    )
    gpu = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    await until_outcome(ada, job("x", template(terminationGracePeriodSeconds=900)), "allowed")
    assert await outcome(ada, job("x", template(priorityClassName="trust-higher"))) == "allowed"
    assert await outcome(ada, job("x", template(container=gpu, schedulerName="other"))) == "allowed"
    assert "must be 'other'" in await outcome(ada, job("x", template(container=gpu, schedulerName="muster")))
    assert "at most 900" in await outcome(ada, job("x", template(terminationGracePeriodSeconds=901)))
    await ada.create(INGRESSES.path(HOME), ingress(**rules("/", "web.team-a.example.com")), params=DRY_RUN)
    for host in ("web.team-b.example.com", "xteam-a.example.com"):
        with pytest.raises(Invalid, match=r"rule ingress-hosts: .* under team-a\.example\.com"):
            await ada.create(INGRESSES.path(HOME), ingress(**rules("/", host)))


async def test_no_other_projects_pods_reach_into_a_namespace(admin: Transport) -> None:
    """The lab has no network that enforces policies, so the test checks the NetworkPolicy objects."""
    default = (await admin.get(NETWORK_POLICIES.path(HOME, "muster-default")))["spec"]
    exposed = (await admin.get(NETWORK_POLICIES.path(HOME, "muster-default-exposed")))["spec"]
    outside = {"matchExpressions": [{"key": "muster.dev/project", "operator": "DoesNotExist"}]}
    assert default == {
        "podSelector": {},
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [{"podSelector": {}}, {"namespaceSelector": outside}]}],
    }
    assert exposed["podSelector"] == {"matchLabels": {"muster.dev/exposed": "true"}}
    assert exposed["ingress"] == [{}]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            ("--host-network",),
            "--host-network is not possible in project team-a: its pod security is baseline",
        ),
        (("--host-ipc",), "--host-ipc is not possible"),
        (("--add-capability", "SYS_ADMIN"), "--add-capability SYS_ADMIN is not possible"),
        (
            ("-v", "/etc:/etc"),
            "-v/--volume /etc is not possible in project team-a, which may mount no directories",
        ),
        (("-v", "/etc:/etc", "--nfs-server", "nas"), "-v/--volume nas:/etc is not possible"),
        (
            ("--toleration", "node-role.kubernetes.io/control-plane:NoSchedule"),
            "--toleration node-role.kubernetes.io/control-plane is not possible in project team-a",
        ),
    ],
)
def test_the_command_line_names_impossible_requests_before_anything_is_created(
    words: tuple[str, ...],
    why: str,
    site: Site,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(site.kubeconfigs["ada"]))
    assert main(("submit", "mine", "-i", "image", "-p", "team-a", *words)) == 1
    output = capsys.readouterr()
    assert (output.out, output.err.count("\n")) == ("", 1)
    assert why in output.err
    assert main(("list", "-p", "team-a", "--no-headers")) == 0
    assert capsys.readouterr().out == ""


async def test_an_administrator_sees_refused_objects_first(site: Site, admin: Transport) -> None:
    """With the bindings of the mode `warn`, the same policies only warn and audit."""
    kinds = ("ValidatingAdmissionPolicyBinding",)
    warned = [body for body in documents(render("any", policies=PolicyMode.WARN)) if body["kind"] in kinds]
    denied = [body for body in documents(render("any")) if body["kind"] in kinds]
    body = job("warned", template(nodeName="dgx1-1"))
    async with Transport(load_access(site.kubeconfigs["ada"])) as ada:
        try:
            for binding in warned:
                await apply(admin, binding)
            await until_outcome(ada, body, "allowed")
        finally:
            for binding in denied:
                await apply(admin, binding)
        await until_outcome(ada, body, "rule node-name")


async def test_containers_can_be_asked_to_say_which_devices_they_see(
    site: Site, admin: Transport, dev: Transport
) -> None:
    policies = [
        {
            body["metadata"]["name"]: body
            for body in documents(render("any", require_devices_variable=switch))
            if body["kind"] == ADMISSION_POLICIES.kind
        }
        for switch in (True, False)
    ]
    name = "NVIDIA_VISIBLE_DEVICES"
    by_muster = {"fieldRef": {"fieldPath": "metadata.annotations['muster.dev/gpu-uuids']"}}
    counted = {"fieldRef": {"fieldPath": "metadata.annotations['muster.dev/gpu-devices']"}}
    async with Transport(load_access(site.kubeconfigs["ada"])) as ada:
        try:
            await apply(admin, policies[0]["muster-pods"])
            await until_outcome(ada, job("x", template()), "rule visible-devices")
            for env in (
                [{"name": name, "value": "all"}],
                [{"name": name, "value": "void"}, {"name": name, "value": "0"}],
                [{"name": name, "valueFrom": counted}],
            ):
                for resources in ({}, gpus(1)):
                    content = template(container={"env": env, **resources}, schedulerName="muster")
                    assert "rule visible-devices" in await outcome(ada, job("x", content))
            for prefix, answer in (
                ("", "rule visible-devices"), ("NVIDIA_", "rule visible-devices"), ("MY_", "allowed"),
            ):  # fmt: skip
                source = {"prefix": prefix, "secretRef": {"name": "mine"}}
                content = template(container={"envFrom": [source], **gpus(1)}, schedulerName="muster")
                assert answer in await outcome(ada, job("x", content)), prefix
            for count, answer in ((0, "rule visible-devices"), (1, "allowed")):
                content = template(container=gpus(count), schedulerName="muster")
                assert answer in await outcome(ada, job("x", content))
            await _debug_with_any_image(admin, dev, policies[0]["muster-pod-security"])
            for variable in ({"value": "void"}, {"valueFrom": by_muster}):
                content = template(container={"env": [{"name": name, **variable}]})
                assert await outcome(ada, job("x", content)) == "allowed"
            done = await asyncio.to_thread(
                muster,
                site.kubeconfigs["ada"],
                "submit",
                "x",
                "-i",
                "i",
                "-g",
                "1",
                "-p",
                "team-a",
                "--dry-run=server",
            )
            assert (done.returncode, done.stderr) == (0, "")
        finally:
            for policy in ("muster-pods", "muster-pod-security"):
                await apply(admin, policies[1][policy])
        await until_outcome(ada, job("x", template()), "allowed")


async def _debug_with_any_image(admin: Transport, dev: Transport, policy: Body) -> None:
    """As a user with a role for `kubectl debug`, add containers to a running pod, and check
    which of them are refused.
    """
    void = {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]}
    role = {"kind": "ClusterRole", "name": "debuggers", "apiGroup": "rbac.authorization.k8s.io"}
    subject = {"kind": "ServiceAccount", "name": "dev", "namespace": PEOPLE}
    rule = {"apiGroups": [""], "resources": ["pods/ephemeralcontainers"], "verbs": ["patch", "update"]}
    objects: list[tuple[Resource, str | None, Body]] = [
        (CLUSTER_ROLES, None, {"metadata": {"name": role["name"]}, "rules": [rule]}),
        (ROLE_BINDINGS, HOME, {"metadata": {"name": "debug"}, "roleRef": role, "subjects": [subject]}),
        (PODS, HOME, pod("debugged", template(container=void))),
    ]
    await apply(admin, policy)
    path = PODS.path(HOME, "debugged", "ephemeralcontainers")

    def patch(*containers: Body) -> Body:
        return {"spec": {"ephemeralContainers": list(containers)}}

    mine = {"name": "mine", "image": "image", **void}
    for resource, namespace, body in objects:
        await admin.create(resource.path(namespace), body)
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while "rule visible-devices" not in (
                said := await _answer(dev, path, patch({**mine, "env": []}))
            ):
                assert said == "allowed" or "forbidden" in said, said
                await asyncio.sleep(0.02)
        every = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
        assert "rule visible-devices" in await _answer(dev, path, patch({**mine, "env": [every]}))
        assert await _answer(dev, path, patch(mine)) == "allowed"
    finally:
        for resource, namespace, body in objects:
            await admin.delete(resource.path(namespace, body["metadata"]["name"]), grace_seconds=0)


async def _answer(person: Transport, path: str, patch: Body) -> str:
    try:
        await person.patch(path, patch, params=DRY_RUN)
    except ClusterError as error:
        return str(error)
    return "allowed"
