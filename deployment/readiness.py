"""Finds the missing requirements of a run: of its stages, its secrets, and the cluster."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from deployment.plan import LEFT_OUT, RUN, StagePlan
from deployment.site import Finding, Place, Site
from deployment.stages import deepops

_CLUSTER_STAGE: Final = deepops.STAGE.name
"""The stage that installs Kubernetes."""


def missing_requirements(
    site: Site, variables: Mapping[str, Any], decisions: Sequence[StagePlan], *, installs: bool
) -> list[Finding]:
    """Return every missing requirement with its entry in the site file. `variables` are those of all hosts."""
    return [
        *_ansible(site),
        *(_of_stages(site, variables, decisions) if installs else ()),
        *_secrets(site),
        *_files(site),
        *_cluster(site, variables, decisions, installs=installs),
    ]


def without_cluster(variables: Mapping[str, Any], decisions: Sequence[StagePlan]) -> list[StagePlan]:
    """Return the decisions of a check. Stages on a cluster that is not installed yet are left out."""
    if Path(variables["muster_kubeconfig"]).is_file() or not _runs(decisions, _CLUSTER_STAGE):
        return list(decisions)
    reason = "the cluster that would be asked is made by the stage deepops, which a check does not do"
    return [
        replace(decision, verb=LEFT_OUT, reason=reason)
        if decision.verb == RUN and decision.stage.definition.on_cluster
        else decision
        for decision in decisions
    ]


def _ansible(site: Site) -> Iterator[Finding]:
    if site.missing_ansible:
        yield Finding(("controller", "ansible_bin"), site.missing_ansible)


def _of_stages(site: Site, variables: Mapping[str, Any], decisions: Sequence[StagePlan]) -> Iterator[Finding]:
    for decision in decisions:
        if decision.verb == RUN:
            yield from decision.stage.definition.missing_requirements(site, variables)


def _secrets(site: Site) -> Iterator[Finding]:
    """Yield the environment variables of secrets that are not set."""
    for place, secret in site.secrets():
        if "env" in secret and not os.environ.get(secret["env"]):
            where = ".".join(map(str, place))
            yield Finding(place, f"{where}: the environment variable {secret['env']} is not set")


def _files(site: Site) -> Iterator[Finding]:
    """Yield the keys, host keys and certificates that are not on the controller."""
    entries: list[Place] = [
        ("access", "key_file"),
        ("access", "known_hosts"),
        ("access", "jump", "key_file"),
        ("storage", "ontap", "ca_file"),
    ]
    entries += [("hosts", name, "jump", "key_file") for name in site.hosts]
    for place in entries:
        text = site.get(*map(str, place))
        path = Path(text).expanduser() if isinstance(text, str) else None
        if path and path.is_absolute() and (path.is_dir() or not path.exists()):
            yield Finding(place, f"{'.'.join(map(str, place))}: there is no file {path}")


def _cluster(
    site: Site, variables: Mapping[str, Any], decisions: Sequence[StagePlan], *, installs: bool
) -> Iterator[Finding]:
    path = Path(variables["muster_kubeconfig"])
    asks = [
        decision.stage.name
        for decision in decisions
        if decision.verb == RUN and decision.stage.definition.on_cluster
    ]
    if variables.get("preflight_kubernetes") and _runs(decisions, "preflight"):
        asks.append("preflight")
    if path.is_file() or not asks or (installs and _runs(decisions, _CLUSTER_STAGE)):
        return
    name = "name the access to the cluster in kubernetes.kubeconfig"
    if site.get("kubernetes", "kubeconfig"):
        yield Finding(("kubernetes", "kubeconfig"), f"kubernetes.kubeconfig: there is no file {path}")
    elif deepops.STAGE.is_in(site):
        cause = f"the stage deepops leaves the access to the cluster in {path}, and it is not there: "
        yield Finding(("versions", _CLUSTER_STAGE), f"{cause}run `muster install --from deepops`, or {name}")
    elif os.environ.get("KUBECONFIG"):
        yield Finding(
            ("versions", "kubernetes"), f"KUBECONFIG names {path}, and there is no such file: {name}"
        )
    else:
        yield Finding(
            ("versions", "kubernetes"),
            f"no stage here installs Kubernetes, and KUBECONFIG is not set: {name}, or in KUBECONFIG",
        )


def _runs(decisions: Sequence[StagePlan], stage: str) -> bool:
    return any(decision.stage.name == stage and decision.verb == RUN for decision in decisions)
