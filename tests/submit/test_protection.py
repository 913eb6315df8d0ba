"""Labels and annotations of a project's namespace, and the submissions that they refuse."""

from typing import Any

import pytest

from orchestrator.cluster.objects import Directory, Metadata, ProjectSpec, SecuritySpec
from orchestrator.submit.network import IngressSettings
from orchestrator.submit.protection import (
    PolicyMode,
    annotations,
    ingress_settings,
    labels,
    metadata_patch,
    objection,
)
from orchestrator.submit.submission import Submission
from orchestrator.submit.values import Mount, RunAs, Toleration

LEVEL, ENFORCE = "muster.dev/pod-security", "pod-security.kubernetes.io/enforce"
WARN, AUDIT = "pod-security.kubernetes.io/warn", "pod-security.kubernetes.io/audit"
CLASS, HOST = "muster.dev/ingress-class", "muster.dev/ingress-host"
SETS = Directory(path="/raid/sets")
SCRATCH = Directory(path="/scratch", writable=True)
HOMES = Directory(path="/home", nfs_server="nas", writable=True)


def spec(**security: Any) -> ProjectSpec:
    return ProjectSpec(security=SecuritySpec(**security))


def submission(**values: Any) -> Submission:
    return Submission(name="mine", image="image", user="ada", **values)


@pytest.mark.parametrize(
    ("security", "mode", "expected"),
    [
        ({}, "deny", {LEVEL: "baseline", ENFORCE: "baseline"}),
        ({"pod_security": "restricted"}, "deny", {LEVEL: "restricted", ENFORCE: "restricted"}),
        ({"directories": [HOMES]}, "deny", {LEVEL: "baseline", ENFORCE: "baseline"}),
        ({"directories": [SETS]}, "deny", {LEVEL: "baseline", ENFORCE: "privileged"}),
        ({"directories": [SETS]}, "off", {LEVEL: "baseline", ENFORCE: "baseline"}),
        ({}, "warn", {LEVEL: "baseline", WARN: "baseline", AUDIT: "baseline"}),
        ({}, "audit", {LEVEL: "baseline", AUDIT: "baseline"}),
    ],
)
def test_the_labels(security: dict[str, Any], mode: str, expected: dict[str, str]) -> None:
    assert labels(spec(**security), PolicyMode(mode)) == expected


def test_the_annotations_have_the_settings_of_the_project_and_no_more() -> None:
    assert annotations(spec()) == {}
    assert annotations(
        spec(
            directories=[SETS, SCRATCH, HOMES],
            priority_classes=["one", "two"],
            max_termination_grace_seconds=0,
            ingress_domain="example.com",
            scheduler_name="other",
            control_plane=True,
        ),
        ["/raid/sets/b"],
    ) == {
        "muster.dev/closed-directories": "/raid/sets/b",
        "muster.dev/control-plane": "true",
        "muster.dev/read-only-directories": "/raid/sets",
        "muster.dev/writable-directories": "/scratch,nas:/home",
        "muster.dev/priority-classes": "one,two",
        "muster.dev/max-termination-grace-seconds": "0",
        "muster.dev/ingress-domain": "example.com",
        "muster.dev/scheduler": "other",
    }


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (IngressSettings(), {}),
        (IngressSettings("nginx", "a.example.com"), {HOST: "a.example.com"}),
        (IngressSettings("traefik"), {CLASS: "traefik"}),
        (IngressSettings("traefik", "a.example.com"), {CLASS: "traefik", HOST: "a.example.com"}),
    ],
)
def test_the_annotations_have_the_hosts_of_ingresses_and_are_read_again(
    settings: IngressSettings, expected: dict[str, str]
) -> None:
    written = annotations(spec(), ingress=settings)
    assert written == expected
    assert ingress_settings(Metadata(annotations=written)) == settings
    patch = metadata_patch(
        spec(), PolicyMode.OFF, Metadata(annotations={HOST: "old", CLASS: "old"}), ingress=settings
    )
    changed = patch["metadata"]["annotations"]
    assert changed == {HOST: expected.get(HOST), CLASS: expected.get(CLASS)}


def test_only_differences_are_patched_and_fields_of_others_remain() -> None:
    right = Metadata(labels={"team": "a", **labels(spec(), PolicyMode.DENY)}, annotations={"note": "x"})
    assert metadata_patch(spec(), PolicyMode.DENY, right) == {}
    wrong = Metadata(labels={ENFORCE: "privileged"}, annotations={"muster.dev/writable-directories": "/"})
    assert metadata_patch(spec(), PolicyMode.DENY, wrong) == {
        "metadata": {
            "labels": {LEVEL: "baseline", ENFORCE: "baseline"},
            "annotations": {"muster.dev/writable-directories": None},
        }
    }


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({}, None),
        ({"capabilities": ("KILL",)}, None),
        ({"host_network": True}, "host_network is not possible in project p: its pod security is baseline"),
        ({"host_ipc": True}, "host_ipc is not possible"),
        ({"capabilities": ("KILL", "SYS_ADMIN")}, "capabilities SYS_ADMIN is not possible"),
        ({"volumes": (Mount("/scratch", "/x"),)}, None),
        ({"volumes": (Mount("/scratch/a", "/x"),)}, "volumes /scratch/a is not possible in project p"),
        ({"volumes": (Mount("/raid/sets/a", "/x", read_only=True),)}, None),
        ({"volumes": (Mount("/raid/sets/a", "/x"),)}, "/raid/sets with all below it, read only (:ro)"),
        ({"volumes": (Mount("/raid/sets/../x", "/x", read_only=True),)}, "is not possible"),
        ({"volumes": (Mount("/home", "/x", nfs_server="nas"),)}, None),
        ({"volumes": (Mount("/home", "/x"),)}, "volumes /home is not possible"),
    ],
)
def test_a_submission_is_refused_before_anything_is_created(
    values: dict[str, Any], problem: str | None
) -> None:
    project = spec(directories=[SETS, SCRATCH, HOMES])
    namespace = Metadata(labels=labels(project, PolicyMode.DENY), annotations=annotations(project))
    request = submission(**values)
    error = objection(request, namespace, "p")
    assert (error is None) if problem is None else problem in str(error)


def test_a_path_below_a_directory_in_which_others_write_is_not_mounted() -> None:
    project = spec(directories=[Directory(path="/data")])
    namespace = Metadata(
        labels=labels(project, PolicyMode.DENY), annotations=annotations(project, ["/data/b", "/data/c"])
    )
    for source, is_possible in (("/data", True), ("/data/a", True), ("/data/b", True), ("/data/c/x", False)):
        error = objection(submission(volumes=(Mount(source, "/x", read_only=True),)), namespace, "p")
        assert (error is None) is is_possible, source


@pytest.mark.parametrize(
    ("toleration", "is_possible"),
    [
        (Toleration("node-role.kubernetes.io/control-plane"), False),
        (Toleration("node-role.kubernetes.io/master", effect="NoSchedule"), False),
        (Toleration("node-role.kubernetes.io/control-plane", effect="NoExecute"), True),
        (Toleration("nvidia.com/gpu"), True),
    ],
)
def test_the_control_plane_is_tolerated_where_the_project_says_so(
    toleration: Toleration, is_possible: bool
) -> None:
    request = submission(tolerations=(toleration,))
    for project, expected in ((spec(), is_possible), (spec(control_plane=True), True)):
        namespace = Metadata(labels=labels(project, PolicyMode.DENY), annotations=annotations(project))
        assert (objection(request, namespace, "p") is None) is expected


@pytest.mark.parametrize("source", ["/raid/mine/link", "/raid/mine/link/etc"])
def test_a_path_that_may_be_linked_elsewhere_is_not_mounted(source: str) -> None:
    project = spec(directories=[Directory(path="/raid"), Directory(path="/raid/mine", writable=True)])
    namespace = Metadata(labels=labels(project, PolicyMode.DENY), annotations=annotations(project))
    assert objection(submission(volumes=(Mount("/raid/mine", "/x"),)), namespace, "p") is None
    assert objection(submission(volumes=(Mount("/raid/sets", "/x", read_only=True),)), namespace, "p") is None
    error = objection(submission(volumes=(Mount(source, "/x", read_only=True),)), namespace, "p")
    assert f"volumes {source} is not possible" in str(error)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"run_as": RunAs(uid=0)}, "uid 0"),
        ({"privilege_escalation": True}, "privilege_escalation"),
        ({"capabilities": ("KILL",)}, "capabilities KILL"),
        ({"run_as": RunAs(uid=1), "capabilities": ("NET_BIND_SERVICE",)}, None),
    ],
)
def test_a_restricted_project_refuses_more(values: dict[str, Any], field: str | None) -> None:
    namespace = Metadata(labels=labels(spec(pod_security="restricted"), PolicyMode.DENY))
    error = objection(submission(**values), namespace, "p")
    assert str(error).startswith(f"{field} is not possible in project p") if field else error is None


@pytest.mark.parametrize(
    "namespace_labels",
    [{}, labels(spec(pod_security="privileged"), PolicyMode.DENY), labels(spec(), PolicyMode.WARN)],
    ids=["no operator", "privileged", "warn"],
)
def test_nothing_is_said_where_nothing_would_be_refused(namespace_labels: dict[str, str]) -> None:
    request = submission(host_network=True, volumes=(Mount("/", "/x"),))
    assert objection(request, Metadata(labels=namespace_labels), "p") is None
