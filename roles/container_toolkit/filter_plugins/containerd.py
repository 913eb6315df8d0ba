"""What configurations say: containerd's, apart from the import of NVIDIA's drop-in, and the toolkit's own."""

import tomllib
from typing import Any

DROP_INS = "/etc/containerd/conf.d/*.toml"
BY_VARIABLE = "accept-nvidia-visible-devices-envvar-when-unprivileged"


def says_the_same(present: str, before: str, imported: str = DROP_INS) -> bool:
    """Compare two files as data, apart from the import.

    nvidia-ctk also writes the version of the format, and loses comments.
    """
    now, then = tomllib.loads(present), tomllib.loads(before)
    imports = [each for each in now.pop("imports", []) if each != imported]
    if imports or "imports" in then:
        now["imports"] = imports
        then["imports"] = [each for each in then.get("imports", []) if each != imported]
    if "version" not in then:
        now.pop("version", None)
    return now == then


def gives_by_variable(text: str) -> bool:
    """Whether the toolkit gives a container that is not privileged the GPUs that its environment names.

    It does where its configuration does not say otherwise.
    """
    return tomllib.loads(text).get(BY_VARIABLE, True) is not False


class FilterModule:
    """The filters of this role."""

    def filters(self) -> dict[str, Any]:
        """By the name that tasks call them."""
        return {"gives_by_variable": gives_by_variable, "says_the_same": says_the_same}
