"""The PVCs that a pod mounts, and their directories in its main container. Pure.

The narrow structs of pods have no mounts, so that the caches of pods stay small. These functions read one whole pod.
"""

from collections.abc import Iterator, Mapping
from typing import Any


def mounted_claims(pod: Mapping[str, Any]) -> list[str]:
    """Return a text for each PVC that the first container of the pod mounts, such as `data at /work`."""
    spec = pod.get("spec") or {}
    claims = dict(_claims(spec, pod["metadata"]["name"]))
    containers = spec.get("containers") or [{}]
    return [
        f"{claims[mount['name']]} at {mount['mountPath']}"
        for mount in containers[0].get("volumeMounts") or ()
        if mount["name"] in claims
    ]


def _claims(spec: Mapping[str, Any], pod: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each volume that is a PVC, with the name of the PVC."""
    for volume in spec.get("volumes") or ():
        if claim := volume.get("persistentVolumeClaim"):
            yield volume["name"], claim["claimName"]
        elif volume.get("ephemeral"):
            yield volume["name"], f"{pod}-{volume['name']}"
