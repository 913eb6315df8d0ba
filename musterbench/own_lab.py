"""The lab of a benchmark, which is removed at the end."""

import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

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
async def own_lab(nodes: int, progress: Callable[[str], None]) -> AsyncIterator[OwnLab]:
    """Start a lab with this number of nodes of the default profile, and delete it at the end.

    Raises subclasses of MusterError.
    """
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        directory = Path(folder)
        async with (
            Lab.attached([(DEFAULT_PROFILE, nodes)], state_dir=directory / "labs", progress=progress) as lab,
            Transport(load_access(lab.kubeconfig)) as transport,
        ):
            yield OwnLab(lab, transport, directory)
