"""The declared hosts of a site, and `join`, which combines the judgements on several tools into one."""

from collections.abc import Container, Iterable, Sequence
from typing import Final

import msgspec

from validation.judge.check_verdict import Judgement
from validation.judge.hosts.drift import Baseline
from validation.judge.hosts.host_facts import NO_HOST, System, Threshold
from validation.judge.verdict import Verdict, gravest
from validation.judge.waivers import MAX_REASON_CHARACTERS

MISSING_TOOL: Final = 127
"""The exit code of every shell for a command that does not exist."""


class DeclaredHost(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A host with GPUs of the site file. `gpus` is 0 if neither the site file nor the model gives their number."""

    name: str
    model: str
    gpus: int = 0


class HostSite(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The hosts with GPUs that the site file declares, and the options of the command line.

    - `away`: the hosts in maintenance with the reasons.
    - `driver`: the branch of the driver.
    - `networks`: the networks to the storage; `servers`: the storage's addresses there; `other_vlans`: the networks
      without storage.
    - `mounts`: the directories at which the hosts mount the storage.
    - `golden`: the host that the others must equal.
    - `tests`: the loads that may be put on the hosts.
    - `nonce`: a random name of this run. The files that the run writes on the mounts contain it in their names, so no
      such file exists before the run.
    - `name`: the name of the site.
    - `busy`: with --in-service, the hosts that were not examined because they could not be reserved, with the reasons.
      The key is absent for other runs.
    """

    hosts: list[DeclaredHost] = []
    away: dict[str, str] = {}
    driver: str = ""
    mtu: int = 0
    networks: list[str] = []
    servers: list[str] = []
    other_vlans: list[str] = []
    mounts: list[str] = []
    mount_options: list[str] = []
    golden: str = ""
    tests: list[str] = []
    nonce: str = ""
    name: str = ""
    busy: dict[str, str] | msgspec.UnsetType = msgspec.UNSET


class HostScope(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The references for the layers below Kubernetes: the site, the figures of the file with the digest
    `figures_sha256`, and the baseline.
    """

    site: HostSite
    systems: list[System]
    thresholds: list[Threshold]
    figures_sha256: str
    baseline: Baseline | msgspec.UnsetType = msgspec.UNSET
    """The key is absent without --baseline."""


def join(judgements: Iterable[Judgement], *, evidence: bool) -> Judgement:
    """Return one judgement for several: the worst verdict, with its reasons first, followed by the reasons of the other
    verdicts.

    NO_HOST is left out if another judgement gives the cause. Without `evidence` there is no PASS. Judgements that are
    not required are ignored if at least one judgement is required.
    """
    every = list(judgements)
    every = [judgement for judgement in every if judgement != NO_HOST] or every
    counted = [judgement for judgement in every if judgement.required]
    if every and not counted:
        return every[0]
    verdict = gravest([judgement.verdict for judgement in counted])
    if verdict == Verdict.PASS and not evidence:
        return NO_HOST
    same = [judgement.reason for judgement in counted if judgement.verdict == verdict]
    others = [
        f"{judgement.verdict}: {judgement.reason}"
        for judgement in counted
        if judgement.verdict not in {verdict, Verdict.PASS}
    ]
    reasons = list(dict.fromkeys(reason for reason in [*same, *others] if reason))
    return Judgement(verdict, _shortened("; ".join(reasons)))


def of_site(site: HostSite) -> list[Judgement]:
    """Return the judgements that follow from the site alone: no host, a host in maintenance, or an unknown golden
    host.
    """
    names = [host.name for host in site.hosts]
    if not names:
        return [Judgement(Verdict.ERROR, "the site has no host with the role gpu in service")]
    judgements = [
        Judgement(Verdict.INCONCLUSIVE, f"{name} is in maintenance: {reason}")
        for name, reason in sorted(site.away.items())
    ]
    if site.golden and site.golden not in names:
        judgements.append(Judgement(Verdict.ERROR, f"the golden host {site.golden} is none of the site's"))
    return judgements


def system_of(host: DeclaredHost, systems: Sequence[System]) -> System | None:
    """Return the hardware of a host of this model; None if it is unknown."""
    return next((system for system in systems if system.model == host.model), None)


def hosts_with_systems(
    names: Container[str], declared: Iterable[DeclaredHost], systems: Sequence[System]
) -> tuple[list[tuple[DeclaredHost, System]], list[str]]:
    """Return the declared hosts with the hardware of their models, and the names of the hosts whose models have no
    figures.
    """
    known: list[tuple[DeclaredHost, System]] = []
    unknown: list[str] = []
    for host in declared:
        if host.name not in names:
            continue
        system = system_of(host, systems)
        if system is None:
            unknown.append(f"{host.name}, a {host.model}")
        else:
            known.append((host, system))
    return known, unknown


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_REASON_CHARACTERS else text[: MAX_REASON_CHARACTERS - 3] + "..."
