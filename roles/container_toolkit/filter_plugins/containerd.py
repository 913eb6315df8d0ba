"""Whether a configuration of containerd says what it said before NVIDIA's drop-in was imported."""

import tomllib
from typing import Any

DROP_INS = "/etc/containerd/conf.d/*.toml"


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


class FilterModule:
    """The filters of this role."""

    def filters(self) -> dict[str, Any]:
        """By the name that tasks call them."""
        return {"says_the_same": says_the_same}
