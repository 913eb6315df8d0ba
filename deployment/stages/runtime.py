"""The container runtime of Kubernetes, on which several stages depend."""

from deployment.content import role_defaults
from deployment.site import Site


def container_runtime(site: Site) -> str:
    """Return containerd or docker."""
    return str(
        site.get("kubernetes", "container_runtime", default=role_defaults("deepops")["deepops_runtime"])
    )
