"""The stage verify: every layer is proved."""

from typing import ClassVar, Final

from deployment import matrix
from deployment.site import Site
from deployment.stages import container_toolkit, dra, orchestrator, trident
from deployment.stages.definition import StageDefinition, Variables


class Verify(StageDefinition):
    """Looks at the nodes, and has the cluster run what a site is there for."""

    name: ClassVar[str] = "verify"
    looks_only: ClassVar[bool] = True
    on_cluster: ClassVar[bool] = True

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
