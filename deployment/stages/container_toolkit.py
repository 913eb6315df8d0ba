"""The stage container_toolkit: NVIDIA's container toolkit on the hosts with GPUs."""

from typing import ClassVar, Final

from deployment.site import Site
from deployment.stages import dra
from deployment.stages.definition import StageDefinition, Variables
from deployment.stages.runtime import container_runtime
from deployment.stages.words import hosts_on_removal


class ContainerToolkit(StageDefinition):
    """The stage that installs four packages of one release, and adds NVIDIA's runtime to the settings of the container
    runtime.
    """

    name: ClassVar[str] = "container_toolkit"
    needs: ClassVar[tuple[str, ...]] = ("versions", "container_toolkit")

    def variables(self, site: Site) -> Variables:
        toolkit = site.get("container_toolkit", default={})
        is_containerd = container_runtime(site) == "containerd"
        return {
            "container_toolkit_version": site.versions.get("container_toolkit"),
            "container_toolkit_package_revision": toolkit.get("package_revision"),
            "container_toolkit_repository": toolkit.get("repository"),
            "container_toolkit_key_url": toolkit.get("key_url"),
            "container_toolkit_key_sha256": toolkit.get("key_sha256"),
            "container_toolkit_runtime": "containerd" if is_containerd else "none",
            "container_toolkit_cdi": toolkit.get("cdi"),
            "container_toolkit_envvar_when_unprivileged": devices_by_variable(site),
        }

    def sentence(self, site: Site) -> str:
        is_containerd = container_runtime(site) == "containerd"
        runtime = "containerd uses it by default" if is_containerd else "the next stage sets it in Docker"
        closed = (
            "ON GPU HOSTS, EVERY CONTAINER GETS THE GPUS THAT ITS ENVIRONMENT NAMES"
            if self.value(site, "container_toolkit_envvar_when_unprivileged")
            else "no container gets GPUs by its environment"
        )
        return f"the four packages at {site.versions['container_toolkit']}, pinned; {runtime}; {closed}"

    def removal_sentence(self, site: Site) -> str:
        return hosts_on_removal(site)


def devices_by_variable(site: Site) -> bool:
    """Return whether the toolkit gives unprivileged containers the GPUs in NVIDIA_VISIBLE_DEVICES.

    The DRA driver passes GPUs through CDI, and needs no variable. A device plugin with its default strategy passes GPUs
    by this variable alone. So does the orchestrator for GPU fractions.
    """
    chosen = site.get("container_toolkit", "envvar_when_unprivileged")
    return not dra.comes(site) if chosen is None else bool(chosen)


def nodes_obey_variable(site: Site) -> bool:
    """Return whether, by the site file, the nodes give unprivileged containers the GPUs in NVIDIA_VISIBLE_DEVICES.

    If the site file lacks the toolkit's stage, return true, because muster does not configure the toolkit then.
    """
    return not STAGE.is_in(site) or bool(STAGE.value(site, "container_toolkit_envvar_when_unprivileged"))


STAGE: Final = ContainerToolkit()
