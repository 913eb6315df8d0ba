"""Helm on the controller, which the stages of charts call, and the records of Helm in the cluster."""

import base64
import gzip
import json
import shutil
from collections.abc import Iterator

from deployment.site import Finding
from deployment.stages.api import items
from orchestrator.cluster.resources import SECRETS
from orchestrator.cluster.transport import Transport


def missing(stage: str, program: str) -> Iterator[Finding]:
    """Yield a finding if this machine lacks the program helm of a stage."""
    if shutil.which(program) is None:
        yield Finding(
            ("versions",),
            f"the stage {stage} needs {program} on this machine, and it is not there: install Helm 3, or name it in "
            f"{stage}_helm under vars",
        )


async def chart_version(transport: Transport, namespace: str, release: str) -> str:
    """Return the version of a release's chart in Helm's newest record, without v; empty if there is no record.

    The record is JSON, gzipped, in base64 twice.
    """
    selector = f"owner=helm,name={release},status=deployed"
    records = await items(transport, f"{SECRETS.path(namespace)}?labelSelector={selector}")
    newest = max(records, key=lambda record: int(record["metadata"]["labels"]["version"]), default=None)
    if newest is None:
        return ""
    packed = base64.b64decode(base64.b64decode(newest["data"]["release"]))
    chart = json.loads(gzip.decompress(packed))["chart"]
    return str(chart["metadata"]["version"]).lstrip("v")
