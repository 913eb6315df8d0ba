"""The stage docker: NVIDIA's runtime in Docker's configuration."""

import ipaddress
from collections.abc import Iterator
from typing import ClassVar, Final

from deployment import addresses
from deployment.site import Site
from deployment.stages import networks
from deployment.stages.definition import StageDefinition, Variables
from deployment.stages.runtime import container_runtime
from deployment.stages.words import hosts_on_removal

_BRIDGE: Final = ipaddress.ip_network("172.17.0.0/16")
"""The default network of Docker's bridge."""


class Docker(StageDefinition):
    """The stage for sites where Kubernetes runs its containers in Docker."""

    name: ClassVar[str] = "docker"

    def not_applicable(self, site: Site, *, bundle: bool) -> str:
        runtime = container_runtime(site)
        return "" if runtime == "docker" else f"the containers of Kubernetes run in {runtime}"

    def notes(self, site: Site) -> Iterator[str]:
        daemon = site.get("docker", "daemon", default={})
        for place, owner, text in addresses.fixed(site):
            if networks.is_in(text, _BRIDGE) and not {"bip", "bridge"} & set(daemon):
                yield site.problem(
                    place,
                    f"{owner} has {text}, which is in {_BRIDGE}, the network of Docker's bridge on each host: set "
                    "another network in docker.daemon.bip",
                )
                return

    def variables(self, site: Site) -> Variables:
        docker = site.get("docker", default={})
        return {
            "docker_packages": docker.get("packages"),
            "docker_default_runtime": docker.get("default_runtime"),
            "docker_daemon": docker.get("daemon"),
        }

    def sentence(self, site: Site) -> str:
        return (
            f"merge {self.value(site, 'docker_default_runtime')} as default runtime into daemon.json, check it, "
            "restart Docker once; install Docker only where there is none"
        )

    def removal_sentence(self, site: Site) -> str:
        return hosts_on_removal(site)


STAGE: Final = Docker()
