"""The hosts on which the roles are tested, with the variables of their sites."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOOLKIT = {
    "container_toolkit_repository": "file:/srv/packages/toolkit",
    "container_toolkit_key_url": "file:///srv/packages/toolkit/gpgkey",
}


def key(packages: Path) -> dict[str, str]:
    """Return the variable with the digest of the key that signs the toolkit's packages in a folder of repositories."""
    content = (packages / "toolkit" / "gpgkey").read_bytes()
    return {"container_toolkit_key_sha256": hashlib.sha256(content).hexdigest()}


@dataclass(frozen=True)
class Scenario:
    """A host: its Ubuntu release, its GPUs by PCI device id, and the variables of the roles."""

    suite: str
    gpus: tuple[str, ...]
    variables: dict[str, Any]
    product: str = ""
    """The product name in the firmware."""
    ansible: str = ""
    """The release of ansible-core that manages the host; empty for the release of this environment."""


SCENARIOS = {
    "dgx-os-4": Scenario(
        "bionic",
        ("1db5",) * 8,
        TOOLKIT
        | {
            "driver_os": "dgx-os-4",
            "driver_model": "dgx-1",
            "driver_branch": "450",
            "container_toolkit_version": "1.13.5",
            "container_toolkit_runtime": "none",
        },
        product="NVIDIA DGX-1 with V100-32",
        ansible="2.16",
    ),
    "dgx-os-6": Scenario(
        "jammy",
        ("1db5",) * 8,
        TOOLKIT
        | {
            "driver_os": "dgx-os-6",
            "driver_model": "dgx-1",
            "driver_branch": "580",
            "driver_dra": True,
            "container_toolkit_version": "1.19.1",
        },
        product="NVIDIA DGX-1 with V100-32",
    ),
    "ubuntu-24.04": Scenario(
        "noble",
        ("2330",) * 2,
        TOOLKIT
        | {
            "driver_os": "ubuntu-24.04",
            "driver_branch": "580",
            "driver_dra": True,
            "container_toolkit_version": "1.19.1",
            "docker_daemon": {"default-shm-size": "1G"},
        },
    ),
}
