"""The requirements of a run that are missing: programs, checksums, the image, secrets, and the cluster."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from deployment.plan import LEFT_OUT, RUN, StagePlan
from deployment.site import CHECKSUM_OF_TRIDENT, Place, Site

MissingRequirement = tuple[Place, str]
_CLUSTER_STAGE: Final = "deepops"
"""The stage that installs Kubernetes."""


def missing_requirements(
    site: Site, variables: Mapping[str, Any], decisions: Sequence[StagePlan], *, installs: bool
) -> list[MissingRequirement]:
    """Return every missing requirement with its place in the site file. `variables` are those of all hosts."""
    return [
        *_ansible(site),
        *_programs(site, variables, decisions, installs=installs),
        *_checksums(variables, decisions, installs=installs),
        *_image(site, variables, decisions, installs=installs),
        *_secrets(site),
        *_cluster(site, variables, decisions, installs=installs),
    ]


def without_cluster(variables: Mapping[str, Any], decisions: Sequence[StagePlan]) -> list[StagePlan]:
    """Return the decisions of a check, without the stages whose cluster is not installed yet."""
    if Path(variables["muster_kubeconfig"]).is_file() or not _runs(decisions, _CLUSTER_STAGE):
        return list(decisions)
    reason = "the cluster that would be asked is made by the stage deepops, which a check does not do"
    return [
        replace(decision, verb=LEFT_OUT, reason=reason)
        if decision.verb == RUN and decision.stage.on_cluster
        else decision
        for decision in decisions
    ]


def _ansible(site: Site) -> Iterator[MissingRequirement]:
    if site.missing_ansible:
        yield ("controller", "ansible_bin"), site.missing_ansible


def _programs(
    site: Site, variables: Mapping[str, Any], decisions: Sequence[StagePlan], *, installs: bool
) -> Iterator[MissingRequirement]:
    """Yield the programs that a stage needs on this machine, and that are not there."""
    speaks_ssh = any(host.get("connection", "ssh") == "ssh" for host in site.hosts.values())
    helm = str(variables.get("dra_helm", "helm"))
    needs = (
        ("deepops", "git", "install the package git"),
        *([("deepops", "ssh", "install the package openssh-client")] if speaks_ssh else []),
        ("dra", helm, "install Helm 3, or name it in dra_helm under vars"),
    )
    for stage, program, fix in needs:
        if installs and _runs(decisions, stage) and shutil.which(program) is None:
            yield (
                ("versions",),
                f"the stage {stage} needs {program} on this machine, and it is not there: {fix}",
            )


def _image(
    site: Site, variables: Mapping[str, Any], decisions: Sequence[StagePlan], *, installs: bool
) -> Iterator[MissingRequirement]:
    """Yield the image of the operator where nobody says which it is: no registry of ours has one."""
    runs = installs and _runs(decisions, "orchestrator") and site.get("orchestrator", "replicas") != 0
    if runs and "orchestrator_image" not in variables:
        yield (
            ("orchestrator",) if site.get("orchestrator") else ("name",),
            (
                "orchestrator.image is missing, and nobody publishes one: build it with `make image`, push it to a "
                "registry that the nodes reach, and name it with its tag"
            ),
        )


def _checksums(
    variables: Mapping[str, Any], decisions: Sequence[StagePlan], *, installs: bool
) -> Iterator[MissingRequirement]:
    """Yield what would be fetched without anybody saying what it must be."""
    archive = str(variables.get("trident_archive", "the archive of the release"))
    is_local = "trident_archive" in variables and "://" not in archive
    if installs and _runs(decisions, "trident") and not is_local and not variables.get("trident_checksum"):
        yield (
            ("versions", "trident"),
            f"storage.trident.sha256 is missing, and nothing else says what {archive} must be; "
            + CHECKSUM_OF_TRIDENT,
        )


def _secrets(site: Site) -> Iterator[MissingRequirement]:
    """Yield the environment variables of secrets that are not set."""
    for place, secret in site.secrets():
        if "env" in secret and not os.environ.get(secret["env"]):
            where = ".".join(map(str, place))
            yield place, f"{where}: the environment variable {secret['env']} is not set"


def _cluster(
    site: Site, variables: Mapping[str, Any], decisions: Sequence[StagePlan], *, installs: bool
) -> Iterator[MissingRequirement]:
    path = Path(variables["muster_kubeconfig"])
    asks = [
        decision.stage.name for decision in decisions if decision.verb == RUN and decision.stage.on_cluster
    ]
    if variables.get("preflight_kubernetes") and _runs(decisions, "preflight"):
        asks.append("preflight")
    if path.is_file() or not asks or (installs and _runs(decisions, _CLUSTER_STAGE)):
        return
    name = "name the access to the cluster in kubernetes.kubeconfig"
    if site.get("kubernetes", "kubeconfig"):
        yield ("kubernetes", "kubeconfig"), f"kubernetes.kubeconfig: there is no file {path}"
    elif site.has_stage(_CLUSTER_STAGE):
        cause = f"the stage deepops leaves the access to the cluster in {path}, and it is not there: "
        yield ("versions", _CLUSTER_STAGE), f"{cause}run `muster install --from deepops`, or {name}"
    elif os.environ.get("KUBECONFIG"):
        yield ("versions", "kubernetes"), f"KUBECONFIG names {path}, and there is no such file: {name}"
    else:
        yield (
            ("versions", "kubernetes"),
            f"no stage here installs Kubernetes, and KUBECONFIG is not set: {name}, or in KUBECONFIG",
        )


def _runs(decisions: Sequence[StagePlan], stage: str) -> bool:
    return any(decision.stage.name == stage and decision.verb == RUN for decision in decisions)
