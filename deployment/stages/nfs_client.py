"""The stage nfs_client: the programs that mount NFS on every host."""

from typing import ClassVar, Final

from deployment.site import Site
from deployment.stages.definition import StageDefinition
from deployment.stages.words import hosts_on_removal


class NfsClient(StageDefinition):
    """The stage for sites where Trident makes volumes."""

    name: ClassVar[str] = "nfs_client"
    needs: ClassVar[tuple[str, ...]] = ("versions", "trident")

    def removal_sentence(self, site: Site) -> str:
        return hosts_on_removal(site)


STAGE: Final = NfsClient()
