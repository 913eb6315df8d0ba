"""The stage remove_node: a host leaves the cluster. It is not part of an installation."""

from typing import ClassVar, Final

from deployment.site import Site
from deployment.stages.definition import StageDefinition


class RemoveNode(StageDefinition):
    """The stage that removes one host. It runs on the controller, with the kubespray of the stage deepops."""

    name: ClassVar[str] = "remove_node"
    host_group: ClassVar[str] = "cluster"

    def sentence(self, site: Site) -> str:
        first = next((name for name, host in site.hosts.items() if "control_plane" in host["roles"]), "")
        return (
            "kubespray's remove-node.yml RESETS THE HOST: every container on it is lost. facts.yml reads facts on the "
            f"control plane, and kubectl on {first} deletes the node. Driver and container toolkit stay"
        )


STAGE: Final = RemoveNode()
