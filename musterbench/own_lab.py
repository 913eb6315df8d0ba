"""The lab that a benchmark measures in: its own, and gone at the end."""

import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import yaml

from musterlab.cluster import Lab
from musterlab.profiles import DEFAULT_PROFILE
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.transport import Transport


class OwnLab(NamedTuple):
    """A lab, a transport to it with its administrator's rights, and a folder for logs."""

    lab: Lab
    transport: Transport
    directory: Path


@asynccontextmanager
async def own_lab(
    nodes: int, progress: Callable[[str], None], profile: Mapping[str, object] | None = None
) -> AsyncIterator[OwnLab]:
    """Start a lab with so many nodes, of the default profile or this one, and take it down at the end.

    Raises MusterError leaves.
    """
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        directory = Path(folder)
        name = DEFAULT_PROFILE
        if profile is not None:
            file = directory / f"{profile['prefix']}.yaml"
            file.write_text(yaml.safe_dump(profile))
            name = str(file)
        async with (
            Lab.attached([(name, nodes)], state_dir=directory / "labs", progress=progress) as lab,
            Transport(load_access(lab.kubeconfig)) as transport,
        ):
            yield OwnLab(lab, transport, directory)
