"""The writes of the project controller, request by request, and the cases in which it writes nothing."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from orchestrator.cluster.objects import Metadata, Namespace, Project
from orchestrator.cluster.transport import Transport
from orchestrator.control.decide.observer import Observer
from orchestrator.control.operator import unique_identity
from orchestrator.control.operator_config import DEFAULT_CONFIG, OperatorConfig
from orchestrator.control.projects.project_controller import ProjectController
from orchestrator.observe.snapshot import Reading
from orchestrator.planner.model import Plan, Snapshot
from orchestrator.submit import protection
from tests.cluster.fake_api_server import Answer, FakeApiServer, access_to, error_answer, serving
from tests.observe.objects import decoded, namespace

PROJECT = "/apis/muster.dev/v1alpha1/projects/team-a/status"
SPACE = "/api/v1/namespaces/muster-team-a"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/namespaces/muster-team-a/rolebindings"
QUOTA = f"{SPACE}/resourcequotas/muster-objects"
NETWORK = "/apis/networking.k8s.io/v1/namespaces/muster-team-a/networkpolicies"
STEPS = [
    ("PATCH", f"{BINDINGS}/muster-operator"),
    *(
        ("PATCH", f"{NETWORK}/{policy['metadata']['name']}")
        for policy in protection.network_policies("muster-team-a")
    ),
    ("PATCH", QUOTA),
    ("PATCH", f"{SPACE}/serviceaccounts/default"),
    ("PATCH", f"{BINDINGS}/muster-members"),
    ("PATCH", PROJECT),
]


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with serving() as server:
        for method, path in (("POST", "/api/v1/namespaces"), ("PATCH", SPACE), *STEPS):
            server.on(method, path, Answer({}))
        yield server


@pytest.fixture
async def transport(server: FakeApiServer) -> AsyncIterator[Transport]:
    async with Transport(access_to(server)) as transport:
        yield transport


def a_project(**spec: Any) -> Project:
    members = [{"kind": "User", "name": "ada"}]
    spec = {"gpu": {"quota": 1}, "members": members, **spec}
    return decoded(Project, metadata={"name": "team-a", "uid": "uid-team-a"}, spec=spec)


def its_namespace() -> Namespace:
    """Return the project's namespace in its final state."""
    made = namespace("muster-team-a", "team-a")
    made.metadata.labels.update(protection.labels(a_project().spec, protection.PolicyMode.DENY))
    return made


def controller(
    transport: Transport, *namespaces: Namespace, leads: bool = True, config: OperatorConfig = DEFAULT_CONFIG
) -> ProjectController:
    observer = Observer(transport)
    observer.namespaces._objects.update({each.metadata.uid: each for each in namespaces})
    made = ProjectController(transport, observer, config, is_leader=lambda: leads)
    made.note(Reading(Snapshot((), (), ()), {}, {}), Plan((), (), {}, {}, {}))
    return made


def requests(server: FakeApiServer) -> list[tuple[str, str]]:
    return [(request.method, request.path) for request in server.requests]


async def test_a_standby_operator_writes_nothing(server: FakeApiServer, transport: Transport) -> None:
    await controller(transport, leads=False)._reconcile(a_project())
    assert requests(server) == []


async def test_a_new_project_gets_its_namespace_and_its_protection_before_its_members(
    server: FakeApiServer, transport: Transport
) -> None:
    await controller(transport)._reconcile(a_project(objects={"jobs": 5}, storage="10Ti"))
    assert requests(server) == [("POST", "/api/v1/namespaces"), *STEPS]
    made, operator, *_, quota, account, members, status = (request.body for request in server.requests)
    assert made["metadata"]["ownerReferences"][0]["uid"] == "uid-team-a"
    assert (operator["roleRef"]["name"], operator["subjects"][0]["namespace"]) == (
        "muster-operator-writer",
        "muster-system",
    )
    assert (members["roleRef"]["name"], members["subjects"][0]["name"]) == ("muster-researcher", "ada")
    hard = {
        "count/pods": "10000",
        "count/jobs.batch": "5",
        "count/resourceclaims.resource.k8s.io": "20000",
        "requests.storage": "10Ti",
    }
    assert quota["spec"]["hard"] == hard
    assert "imagePullSecrets" not in account
    assert status["status"]["conditions"][0]["status"] == "True"


async def test_the_account_of_the_pods_has_the_pull_secrets_of_the_project(
    server: FakeApiServer, transport: Transport
) -> None:
    made = controller(transport, its_namespace())
    for secrets in (["ngc", "harbor"], ["ngc", "harbor"], []):
        await made._reconcile(a_project(imagePullSecrets=secrets))
    first, last = (
        request.body for request in server.requests if request.path == f"{SPACE}/serviceaccounts/default"
    )
    assert first["imagePullSecrets"] == [{"name": "ngc"}, {"name": "harbor"}]
    assert "imagePullSecrets" not in last  # server-side apply removes fields that this writer no longer sends


async def test_under_the_manifests_of_an_older_version_members_and_status_still_come(
    server: FakeApiServer, transport: Transport
) -> None:
    server._scripts["PATCH", f"{SPACE}/serviceaccounts/default"].insert(0, error_answer(403, "Forbidden"))
    await controller(transport, its_namespace())._reconcile(a_project())
    assert requests(server)[-2:] == STEPS[-2:]


@pytest.mark.parametrize(
    ("objects", "hard"),
    [
        (
            {},
            {
                "count/pods": "10000",
                "count/jobs.batch": "10000",
                "count/resourceclaims.resource.k8s.io": "20000",
            },
        ),
        (
            {"pods": 7},
            {"count/pods": "7", "count/jobs.batch": "10000", "count/resourceclaims.resource.k8s.io": "14"},
        ),
        (
            {"pods": 3, "jobs": 0},
            {"count/pods": "3", "count/jobs.batch": "0", "count/resourceclaims.resource.k8s.io": "6"},
        ),
    ],
)
async def test_limits_of_a_project_replace_the_default(
    server: FakeApiServer,
    transport: Transport,
    objects: dict[str, int],
    hard: dict[str, str],
) -> None:
    await controller(transport, its_namespace())._reconcile(a_project(objects=objects))
    (quota,) = server.requests_of("PATCH", QUOTA)
    assert quota.body["spec"]["hard"] == hard


async def test_written_objects_are_not_written_again(server: FakeApiServer, transport: Transport) -> None:
    projects = controller(transport, its_namespace())
    await projects._reconcile(a_project())
    count = len(server.requests)
    await projects._reconcile(a_project())
    assert len(server.requests) == count == len(STEPS)


async def test_a_removed_label_is_restored(server: FakeApiServer, transport: Transport) -> None:
    space = its_namespace()
    del space.metadata.labels["muster.dev/project"]
    await controller(transport, space)._reconcile(a_project())
    (restored,) = server.requests_of("PATCH", SPACE)
    assert restored.body["metadata"]["labels"] == {"muster.dev/project": "team-a"}


@pytest.mark.parametrize(
    ("spec", "spaces", "why"),
    [
        (
            {},
            [decoded(Namespace, metadata={"name": "muster-team-a", "uid": "u"})],
            "does not belong to the project",
        ),
        ({"namespace": "vision"}, [], "there is no namespace vision"),
        (
            {"namespace": "vision"},
            [decoded(Namespace, metadata={"name": "vision", "uid": "u"})],
            "kubectl label namespace vision muster.dev/project=team-a",
        ),
        ({"namespace": "kube-system"}, [], "reserved"),
        (
            {},
            [
                decoded(
                    Namespace,
                    metadata={
                        "name": "muster-team-a",
                        "uid": "u",
                        "deletionTimestamp": "2026-01-01T00:00:00Z",
                    },
                )
            ],
            "is being deleted",
        ),
    ],
)
async def test_a_project_that_can_have_no_namespace_says_why_and_nothing_is_bound(
    server: FakeApiServer, transport: Transport, spec: dict[str, Any], spaces: list[Namespace], why: str
) -> None:
    await controller(transport, *spaces)._reconcile(a_project(**spec))
    assert requests(server) == [("PATCH", PROJECT)]
    ready = server.requests[0].body["status"]["conditions"][0]
    assert (ready["type"], ready["status"], ready["reason"]) == ("Ready", "False", "NoNamespace")
    assert why in ready["message"]


async def test_a_write_that_the_api_server_does_not_allow_yet_is_tried_again_soon(
    server: FakeApiServer, transport: Transport
) -> None:
    refused = f"{BINDINGS}/muster-members"
    server._scripts["PATCH", refused].insert(0, error_answer(403, "Forbidden"))
    projects = controller(transport, its_namespace())
    await projects._reconcile(a_project())
    assert server.requests_of("PATCH", PROJECT) == []
    await projects._reconcile(a_project())
    assert [request.path for request in server.requests_of("PATCH", refused)] == [refused, refused]
    assert len(server.requests_of("PATCH", PROJECT)) == 1


async def test_a_project_that_raises_an_unknown_error_is_logged_once_and_ends_nothing(
    server: FakeApiServer, transport: Transport, caplog: pytest.LogCaptureFixture
) -> None:
    projects = controller(transport, its_namespace())
    unreadable: Any = None
    broken = Project(metadata=Metadata(name="broken", uid="uid-broken"), spec=unreadable)
    for project in (broken, a_project(), broken):
        await projects._reconcile(project)
    assert requests(server) == STEPS
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        "project broken: it cannot be reconciled"
    ]


def test_two_processes_of_one_name_are_not_taken_for_each_other() -> None:
    first, second = unique_identity("muster-operator-0"), unique_identity("muster-operator-0")
    assert first != second
    assert first.partition("_")[0] == second.partition("_")[0] == "muster-operator-0"
