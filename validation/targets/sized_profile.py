"""A profile of a node for the lab, with the number of GPUs that a scenario needs."""

from pathlib import Path
from typing import Final

import yaml

from musterlab import profiles
from orchestrator.names import GPU_RESOURCE
from validation.scenario.schema import Cluster

_COUNT_LABEL: Final = "nvidia.com/gpu.count"


def profile_of(cluster: Cluster, directory: Path) -> str:
    """Return the name of the cluster's profile if it has the right number of GPUs.

    Else write a profile with that number, and return its path.

    Raises ProfileError.
    """
    profile = profiles.load(cluster.profile)
    gpus = str(cluster.gpus_per_node)
    if profile.capacity.get(GPU_RESOURCE, "0") == gpus:
        return cluster.profile
    labels = dict(profile.labels)
    if _COUNT_LABEL in labels:
        labels[_COUNT_LABEL] = gpus
    content = {
        "prefix": profile.prefix,
        "capacity": {**profile.capacity, GPU_RESOURCE: gpus},
        "labels": labels,
        "node_info": dict(profile.node_info),
    }
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{profile.prefix}-{gpus}-gpus.yaml"
    path.write_text(yaml.safe_dump(content))
    return str(path)
