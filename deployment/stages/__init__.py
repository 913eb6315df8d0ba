"""The stages of the installer. A module for each has its requirements, checks, variables, effects and its upgrade.

Its playbook has the hosts and the order (`deployment.playbook`), its role does the work.
"""

from collections.abc import Iterator
from typing import Final

from deployment.site import Finding, Site
from deployment.stages import (
    bundle,
    container_toolkit,
    deepops,
    device_plugin,
    docker,
    dra,
    driver,
    host_network,
    nexus,
    nfs_client,
    ontap,
    orchestrator,
    preflight,
    remove_node,
    snapshot,
    teardown,
    trident,
    verify,
)
from deployment.stages.definition import StageDefinition

STAGES: Final[tuple[StageDefinition, ...]] = (
    preflight.STAGE,
    host_network.STAGE,
    bundle.STAGE,
    nexus.STAGE,
    ontap.STAGE,
    driver.STAGE,
    container_toolkit.STAGE,
    docker.STAGE,
    nfs_client.STAGE,
    snapshot.STAGE,
    deepops.STAGE,
    trident.STAGE,
    device_plugin.STAGE,
    dra.STAGE,
    orchestrator.STAGE,
    verify.STAGE,
)

_UNKNOWN: Final = StageDefinition()
_BY_NAME: Final = {definition.name: definition for definition in (*STAGES, remove_node.STAGE, teardown.STAGE)}


def stage(name: str) -> StageDefinition:
    """Return the definition of a stage; an empty one for a site's own playbook."""
    return _BY_NAME.get(name, _UNKNOWN)


def matrix_findings(site: Site) -> Iterator[Finding]:
    """Yield all releases of a site that no row of the matrix allows."""
    for definition in STAGES:
        yield from definition.matrix_findings(site)
