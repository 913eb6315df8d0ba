"""Reads a live cluster once as the planner's snapshot, and writes nothing.

Only the inputs of a decision are kept: requests, constraints, placements, quotas. No environment, command, secret or
annotation value leaves the cluster.
"""

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.cluster.device_objects import DeviceClass, ResourceClaim, ResourceSlice
from orchestrator.cluster.discovery import served_version
from orchestrator.cluster.errors import Forbidden, NotFound
from orchestrator.cluster.objects import Namespace, Node, Object, Pod, PodDisruptionBudget, Project
from orchestrator.cluster.resources import (
    DEVICE_CLASSES,
    DRA_VERSIONS,
    JOBS,
    NAMESPACES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PROJECTS,
    REPLICA_SETS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    STATEFUL_SETS,
    Resource,
)
from orchestrator.cluster.transport import Transport
from orchestrator.cluster.wire import has_condition
from orchestrator.errors import ConfigurationError
from orchestrator.observe.claim_reader import DynamicObject
from orchestrator.observe.owner_lists import list_owners
from orchestrator.observe.pod_status import NotDecided
from orchestrator.observe.reader import read
from orchestrator.observe.snapshot import Hints, Observed
from orchestrator.planner.model import Snapshot, Waiting
from orchestrator.planner.settings import DEFAULT_SETTINGS, Settings
from orchestrator.simulation.settings import SettingsUnknown, settings_in_force

_ONLY_THE_OPERATOR_KNOWS: Final = tuple(
    f"{code.value}:" for code in (Waiting.BACK_OFF, NotDecided.VOLUME_NOT_READY, NotDecided.SKIPPED)
)


@dataclass(frozen=True, slots=True)
class Capture:
    """The snapshot, and a line for each object that is left out because it could not be read.

    `doubt` is the reason why the operator's settings are unknown and the defaults are used; "" if they are known.
    """

    snapshot: Snapshot
    left_out: tuple[str, ...]
    doubt: str = ""


async def capture(transport: Transport) -> Capture:
    """Read the cluster. Raises subclasses of ClusterError, and ConfigurationError if the CRD of projects is missing."""
    try:
        projects = await transport.list(PROJECTS.path(), Project)
    except NotFound as error:
        raise ConfigurationError(
            "this cluster does not know projects: install the operator, "
            "'muster operator-yaml --cluster NAME | kubectl apply -f -'"
        ) from error
    nodes, namespaces, jobs, stateful_sets, replica_sets = await asyncio.gather(
        transport.list(NODES.path(), Node),
        transport.list(NAMESPACES.path(), Namespace),
        _owners(transport, JOBS),
        _owners(transport, STATEFUL_SETS),
        _owners(transport, REPLICA_SETS),
    )
    pods = await transport.list(PODS.path(), Pod)
    budgets, unseen = await _budgets(transport)
    owners, unread = await list_owners(transport, pods.items, {**jobs, **stateful_sets, **replica_sets})
    dynamic, unlisted = await _dynamic(transport)
    settings, doubt = await _settings(transport)
    reading = read(
        Observed(
            nodes={node.metadata.uid: node for node in nodes.items},
            pods={pod.metadata.uid: pod for pod in pods.items},
            namespaces={namespace.metadata.uid: namespace for namespace in namespaces.items},
            projects={project.metadata.uid: project for project in projects.items},
            owners=(jobs, stateful_sets, replica_sets, owners),
            now_us=time.time_ns() // 1000,
            budgets={budget.metadata.uid: budget for budget in budgets},
            dynamic=dynamic,
        ),
        settings,
        Hints(put_off=dict(_put_off(pods.items))),
    )
    names = {pod.metadata.uid: f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in pods.items}
    left_out = [f"pod {names[uid]}: {why}" for uid, why in reading.unreadable_pods.items()]
    left_out += [f"project {name}: {why}" for name, why in reading.unreadable_projects.items()]
    return Capture(reading.snapshot, tuple(sorted([*left_out, *unseen, *unread, *unlisted])), doubt)


def _put_off(pods: Iterable[Pod]) -> Iterator[tuple[str, str]]:
    """Yield the uid and the reason of each pod that the operator does not place for a reason that only its status
    shows.

    These reasons are failed attempts, volumes that are not ready, and objects that the operator skips.
    """
    for pod in pods:
        said = has_condition(pod.status.conditions, "PodScheduled", "False")
        if said is not None and not pod.spec.node_name and said.message.startswith(_ONLY_THE_OPERATOR_KNOWS):
            yield pod.metadata.uid, said.message


async def _settings(transport: Transport) -> tuple[Settings, str]:
    """Return the operator's settings and ""; or the defaults and the reason why the settings are unknown."""
    try:
        return await settings_in_force(transport), ""
    except SettingsUnknown as error:
        return DEFAULT_SETTINGS, f"the operator's settings are taken to be the defaults: {error}"


async def _budgets(transport: Transport) -> tuple[list[PodDisruptionBudget], list[str]]:
    """Return the disruption budgets. If access is forbidden, an empty list, and a line about it."""
    try:
        page = await transport.list(POD_DISRUPTION_BUDGETS.path(), PodDisruptionBudget)
    except Forbidden as error:
        return [], [f"disruption budgets: {error.message}"]
    return list(page.items), []


async def _dynamic(transport: Transport) -> tuple[list[DynamicObject], list[str]]:
    """ResourceSlices, DeviceClasses and ResourceClaims, and a line for each kind to which access is forbidden."""
    version = await served_version(transport, RESOURCE_CLAIMS.group, DRA_VERSIONS)
    listed: list[DynamicObject] = []
    unseen: list[str] = []
    kinds: tuple[tuple[Resource, type[DynamicObject]], ...] = (
        (DEVICE_CLASSES, DeviceClass),
        (RESOURCE_SLICES, ResourceSlice),
        (RESOURCE_CLAIMS, ResourceClaim),
    )
    for resource, kind in kinds if version else ():
        try:
            page = await transport.list(replace(resource, version=version or "").path(), kind)
        except Forbidden as error:
            unseen.append(f"{resource.plural}: {error.message}")
        else:
            listed += page.items
    return listed, unseen


async def _owners(transport: Transport, resource: Resource) -> Mapping[str, Object]:
    """Return the metadata of the resource's objects by uid. The planner takes the age of a workload from its owner."""
    page = await transport.list(resource.path(), Object)
    return {owner.metadata.uid: owner for owner in page.items}
