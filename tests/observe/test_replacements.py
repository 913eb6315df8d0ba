"""Which terminating pods already have their successors, by the times that the API server wrote."""

import pytest

from orchestrator.observe.reader import read
from orchestrator.observe.snapshot import Observed
from orchestrator.planner.model import PodState
from tests.observe.objects import by_uid, namespace, pod, project

OLD, NOON, LATER = "2026-11-21T10:00:05Z", "2026-11-21T12:00:00Z", "2026-11-21T12:00:30Z"


def replaced(*pods: tuple[str, str, str | None, int], controller: str = "Job") -> dict[str, bool]:
    """Return for each terminating pod whether it counts as replaced.

    A pod is given as its name, creation time, deletion time, and grace period in seconds.
    """
    owner = {"apiVersion": "v1", "kind": controller, "name": "job", "uid": "job", "controller": True}
    observed = Observed(
        nodes={},
        pods=by_uid(
            *(
                pod(
                    name,
                    gpus=1,
                    ownerReferences=[owner],
                    node="n1",
                    phase="Running",
                    creationTimestamp=created,
                    deletionTimestamp=deleted,
                    deletionGracePeriodSeconds=grace,
                )
                for name, created, deleted, grace in pods
            )
        ),
        namespaces=by_uid(namespace("muster-team-a", "team-a")),
        projects=by_uid(project("team-a", quota=4)),
    )
    (workload,) = read(observed).snapshot.workloads
    return {each.name: each.replaced for each in workload.pods if each.state is PodState.RELEASING}


@pytest.mark.parametrize(
    ("successor_created", "is_replaced"), [(NOON, True), (LATER, True), ("2026-11-21T11:59:59Z", False)]
)
def test_a_pod_that_came_when_another_was_deleted_is_its_successor(
    successor_created: str, is_replaced: bool
) -> None:
    # deleted at noon with a grace period of 30 s
    pods = (("old", OLD, LATER, 30), ("new", successor_created, None, 0))

    assert replaced(*pods) == {"old": is_replaced}


def test_one_successor_replaces_one() -> None:
    pods = (("a", OLD, LATER, 30), ("b", OLD, LATER, 30), ("new", NOON, None, 0))

    assert sorted(replaced(*pods).values()) == [False, True]


def test_the_successor_of_a_deleted_pod_replaces_no_pod_that_was_deleted_later() -> None:
    pods = (("old", OLD, "2026-11-21T12:01:00Z", 30), ("new", NOON, None, 0))

    assert replaced(*pods) == {"old": False}


def test_a_successor_that_leaves_as_well_has_replaced_the_first() -> None:
    pods = (("first", OLD, LATER, 30), ("second", NOON, "2026-11-21T12:01:00Z", 30))

    assert replaced(*pods) == {"first": True, "second": False}


def test_no_pod_replaces_itself() -> None:
    pods = (("old", OLD, None, 0), ("brief", NOON, LATER, 30))

    assert replaced(*pods) == {"brief": False}


def test_a_pod_of_a_stateful_set_is_replaced_only_when_it_has_ended() -> None:
    pods = (("sts-0", OLD, LATER, 30), ("sts-1", NOON, None, 0))

    assert replaced(*pods, controller="StatefulSet") == {"sts-0": False}
