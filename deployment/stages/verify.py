"""The stage verify: checks every layer of the site."""

from collections.abc import Iterator
from typing import ClassVar, Final

from deployment import matrix
from deployment.site import Site
from deployment.stages import container_toolkit, deepops, dra, orchestrator, trident
from deployment.stages.definition import StageDefinition, Variables

_WITHOUT: Final = {"verify_gpus": "false", "verify_job_gpus": "0"}
"""Values for a cluster without GPUs."""


class Verify(StageDefinition):
    """The stage that examines the nodes, and runs a job on the cluster for each purpose of the site."""

    name: ClassVar[str] = "verify"
    looks_only: ClassVar[bool] = True
    on_cluster: ClassVar[bool] = True

    def notes(self, site: Site) -> Iterator[str]:
        has_gpus = any("gpu" in host["roles"] for host in site.hosts.values())
        if has_gpus or not deepops.STAGE.is_in(site):
            return
        asks = [name for name in ("verify_gpus", "verify_job_gpus") if self.value(site, name)]
        if asks:
            yield (
                "no host has the role gpu, so verify finds no GPU and fails: give the role to a host, or set "
                f"{' and '.join(f'{name}: {_WITHOUT[name]}' for name in asks)} under vars"
            )

    def variables(self, site: Site) -> Variables:
        return {
            "verify_nodes": sorted(site.hosts),
            "verify_gpus_by_host": {
                name: gpus
                for name, host in sorted(site.hosts.items())
                if "gpu" in host["roles"] and (gpus := matrix.gpus_of(host)) is not None
            },
            "verify_devices": dra.comes(site),
            "verify_orchestrator": orchestrator.STAGE.is_in(site),
            "verify_storage": trident.STAGE.is_in(site),
            "verify_container_toolkit": container_toolkit.STAGE.is_in(site),
        }

    def sentence(self, site: Site) -> str:
        volume = (
            ", exactly one default class, and every node writes to a volume of it and reads the file of "
            "another node"
            if trident.STAGE.is_in(site)
            else ""
        )
        return f"every node is Ready, GPUs are announced{volume}"


STAGE: Final = Verify()
