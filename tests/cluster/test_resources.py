from __future__ import annotations

import pytest

from orchestrator.cluster import resources
from orchestrator.cluster.resources import JOBS, NODES, PODS, PROJECTS, resource_of
from orchestrator.errors import UsageError


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (PODS.path(), "/api/v1/pods"),
        (PODS.path("team"), "/api/v1/namespaces/team/pods"),
        (PODS.path("team", "a", "binding"), "/api/v1/namespaces/team/pods/a/binding"),
        (NODES.path(None, "dgx-1", "status"), "/api/v1/nodes/dgx-1/status"),
        (NODES.path("ignored", "dgx-1"), "/api/v1/nodes/dgx-1"),
        (JOBS.path("team", "j"), "/apis/batch/v1/namespaces/team/jobs/j"),
        (PROJECTS.path(name="a"), "/apis/muster.dev/v1alpha1/projects/a"),
        (PODS.path("team", "../secrets/x"), "/api/v1/namespaces/team/pods/..%2Fsecrets%2Fx"),
    ],
)
def test_a_path_leads_to_the_object(path: str, expected: str) -> None:
    assert path == expected


def test_an_object_without_its_namespace_or_name_has_no_path() -> None:
    with pytest.raises(ValueError, match="within a namespace"):
        PODS.path(None, "a")
    with pytest.raises(ValueError, match="whole collection"):
        PODS.path("team", "")
    for name in (".", ".."):
        with pytest.raises(ValueError, match="this is no name"):
            PODS.path("ns", name)
    with pytest.raises(ValueError, match="name the object"):
        PODS.path("team", None, "status")


def test_every_resource_is_found_by_its_kind() -> None:
    for resource in resources.ALL:
        assert resource_of(resource.api_version, resource.kind) is resource


def test_an_unknown_kind_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="'Pod' of apiVersion 'v2'"):
        resource_of("v2", "Pod")
