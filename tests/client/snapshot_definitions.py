"""The definitions of VolumeSnapshots, as external-snapshotter publishes them."""

from pathlib import Path

import yaml

from orchestrator.cluster.transport import Transport
from orchestrator.manifests.install import apply

FOLDER = Path(__file__).parent / "snapshot_crds"


async def apply_snapshot_definitions(admin: Transport) -> None:
    """Apply all definitions. The API server can need a moment until it serves them."""
    for path in sorted(FOLDER.glob("*.yaml")):
        (definition,) = (part for part in yaml.safe_load_all(path.read_text(encoding="utf-8")) if part)
        await apply(admin, definition)
