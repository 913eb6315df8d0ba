"""Filters that read the configurations of containerd and of the container toolkit."""

import tomllib
from typing import Any

DROP_INS = "/etc/containerd/conf.d/*.toml"
BY_VARIABLE = "accept-nvidia-visible-devices-envvar-when-unprivileged"


def says_the_same(present: str, before: str, imported: str = DROP_INS) -> bool:
    """Return whether two files of containerd differ at most in comments, the format's version, and the import.

    nvidia-ctk adds the import and the version, and drops comments.
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
    """Return whether the toolkit gives an unprivileged container the GPUs that its environment names.

    It does so by default.
    """
    return tomllib.loads(text).get(BY_VARIABLE, True) is not False


class FilterModule:
    """The filters of this role."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"gives_by_variable": gives_by_variable, "says_the_same": says_the_same}
