"""The installed releases, read from the cluster; each stage knows where its own are."""

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
    """Read the installed releases of all stages. `recorded` are releases from the journal, which no cluster knows."""
    releases: dict[str, Mapping[str, str]] = dict(recorded)

    async def read(transport: Transport) -> None:
        for stage in STAGES:
            releases[stage.name] = await stage.installed(transport, site) or releases.get(stage.name, {})

    problem = call_api_server(kubeconfig, context, read)
    return Installed(releases, problem)
