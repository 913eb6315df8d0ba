"""Reads the installed releases, by the hook `installed` of each stage."""

from collections.abc import Mapping
from pathlib import Path

from deployment.cluster_record import call_api_server
from deployment.site import Site
from deployment.stages import STAGES
from deployment.stages.definition import Installed
from orchestrator.cluster.transport import Transport


def detect(
    kubeconfig: Path, context: str, site: Site, recorded: Mapping[str, Mapping[str, str]]
) -> Installed:
    """Read the installed releases of all stages. `recorded` are the releases in the journal that cannot be read from
    a cluster.
    """
    releases: dict[str, Mapping[str, str]] = dict(recorded)

    async def read(transport: Transport) -> None:
        for stage in STAGES:
            releases[stage.name] = await stage.installed(transport, site) or releases.get(stage.name, {})

    problem = call_api_server(kubeconfig, context, read)
    return Installed(releases, problem)
