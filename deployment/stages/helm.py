"""Helm on the controller, which the stages of charts call, and the records of Helm in the cluster."""

import base64
import gzip
import json
import platform
import shutil
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from deployment.content import role_defaults
from deployment.errors import InstallError
from deployment.site import Finding, Site
from deployment.stages.api import items
from deployment.stages.definition import StageDefinition
from orchestrator.cluster.resources import SECRETS
from orchestrator.cluster.transport import Transport

PROGRAM: Final = "helm_program"
"""The variable of the role `helm` with a program of the controller; empty: the role fetches one for x86-64."""


class ChartStage(StageDefinition):
    """A stage that installs a chart for the nodes with GPUs.

    The variables `NAME_namespace` and `NAME_release` of its role name the release, with NAME as the name of the stage.
    """

    host_group: ClassVar[str] = "gpu"
    on_cluster: ClassVar[bool] = True
    changes_cluster: ClassVar[bool] = True
    is_upgraded_by_install: ClassVar[bool] = True

    def missing_requirements(self, site: Site, variables: Mapping[str, Any]) -> Iterator[Finding]:
        yield from _missing(self.name, variables)
        yield from self._not_bundled(variables)
        chart = str(variables.get(f"{self.name}_chart", ""))
        if chart and "://" not in chart and "{{" not in chart and not Path(chart).exists():
            yield Finding(
                ("vars", f"{self.name}_chart"),
                f"the stage {self.name} needs the chart {chart}, and it is not there",
            )

    def _not_bundled(self, variables: Mapping[str, Any]) -> Iterator[Finding]:
        """Yield a finding if the run is from a bundle, and the bundle lacks a file of the stage."""
        if "bundle_path" not in variables:
            return
        files = {"chart": (self.name, f"{self.name}_chart")}
        if not variables.get(PROGRAM):
            files["Helm"] = ("helm", "helm_archive")
        for words, (role, name) in files.items():
            if "://" in str(variables.get(name, role_defaults(role)[name])):
                yield Finding(
                    ("versions",),
                    f"the bundle does not have the {words} of the stage {self.name}: run `muster bundle build` again "
                    f"for this site file, or name a file in vars.{name}",
                )

    async def installed(self, transport: Transport, site: Site) -> dict[str, str]:
        """Return the version of the chart that Helm has installed."""
        namespace, release = (
            str(self.value(site, f"{self.name}_{part}")) for part in ("namespace", "release")
        )
        version = await _chart_version(transport, namespace, release)
        return {self.name: version} if version else {}


def _missing(stage: str, variables: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield a finding if this machine lacks the Helm of a stage. `variables` are those of all hosts."""
    program = str(variables.get(PROGRAM, role_defaults("helm")[PROGRAM]))
    if program and shutil.which(program) is None:
        yield Finding(
            ("vars", PROGRAM),
            f"the stage {stage} needs {program} on this machine, and it is not there: install Helm 3, or correct "
            f"vars.{PROGRAM}",
        )
    if not program and platform.machine() != "x86_64":
        yield Finding(
            ("vars", PROGRAM),
            f"the stage {stage} fetches Helm for x86-64, and this machine is {platform.machine()}: install Helm 3, and "
            f"name it in vars.{PROGRAM}",
        )


async def _chart_version(transport: Transport, namespace: str, release: str) -> str:
    """Return the version of a release's chart in Helm's newest record, without v; empty if there is no record.

    The record is JSON, gzipped, in base64 twice.
    """
    selector = f"owner=helm,name={release},status=deployed"
    records = await items(transport, f"{SECRETS.path(namespace)}?labelSelector={selector}")
    newest = max(records, key=lambda record: int(record["metadata"]["labels"]["version"]), default=None)
    if newest is None:
        return ""
    try:
        packed = base64.b64decode(base64.b64decode(newest["data"]["release"]))
        chart = json.loads(gzip.decompress(packed))["chart"]
        return str(chart["metadata"]["version"]).lstrip("v")
    except (ValueError, KeyError, TypeError, OSError, EOFError, zlib.error) as error:
        name = newest["metadata"]["name"]
        raise InstallError(
            f"Helm's record {namespace}/{name} cannot be read; look at `helm history {release} --namespace {namespace}`"
        ) from error
