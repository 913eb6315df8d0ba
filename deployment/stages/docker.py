"""The stage docker: NVIDIA's runtime in Docker's configuration."""

from typing import ClassVar, Final

from deployment.site import Site
from deployment.stages.definition import StageDefinition, Variables
from deployment.stages.runtime import container_runtime
from deployment.stages.words import hosts_on_removal


class Docker(StageDefinition):
    """The stage for sites where Kubernetes runs its containers in Docker."""

    name: ClassVar[str] = "docker"

    def not_applicable(self, site: Site, *, bundle: bool) -> str:
        runtime = container_runtime(site)
        return "" if runtime == "docker" else f"the containers of Kubernetes run in {runtime}"

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
