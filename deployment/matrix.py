"""What runs with what: rows with source and date, and the check of a site against them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import yaml
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from deployment.site import Place, Site

OFF, AUTO = "off", "auto"


@dataclass(frozen=True)
class Finding:
    """A combination that no row allows: the entry of the site file, and what would fit."""

    place: Place
    message: str


@cache
def tables() -> dict[str, list[dict[str, Any]]]:
    """Every table of the matrix, by name; a row has at least `source` and `date`."""
    text = (resources.files("deployment") / "data" / "matrix.yaml").read_text()
    rows: dict[str, list[dict[str, Any]]] = yaml.safe_load(text)
    return rows


def check(site: Site) -> list[Finding]:
    """Everything of the site that no row of the matrix allows."""
    return [
        *_hosts(site),
        *_deepops(site),
        *_runtime(site),
        *_ontap(site),
        *_trident(site),
        *_dra(site),
        *_orchestrator(site),
    ]


def gpus_of(host: Mapping[str, Any]) -> int | None:
    """How many GPUs the host must have, by its own entry or its model; None where nobody says."""
    if "gpus" in host:
        return int(host["gpus"])
    rows = (row for row in tables()["models"] if host.get("model") in row["models"])
    return next((int(row["gpus"]) for row in rows), None)


def dra_release(site: Site) -> tuple[str | None, str]:
    """The DRA driver's release for the site, or None, and why.

    Of itself it comes only where jobs get their GPUs by it with the feature gates that are on by default.
    """
    release = site.versions.get("dra", AUTO)
    if release == OFF:
        return None, "the site file says off"
    if release != AUTO:
        return release, "the site file names it"
    why = ""
    for row in tables()["dra"]:
        why = _dra_hindrance(site, row) or _without_whole(site, row)
        if not why:
            return str(row["release"]), f"the newest that fits ({row['source']})"
    return None, why


def dra_shares(site: Site) -> bool:
    """Whether claims can have parts of GPUs: the driver's release shares out memory, and Kubernetes by default too."""
    release, _ = dra_release(site)
    row = next((row for row in tables()["dra"] if row["release"] == release), {})
    return "shares" in row and within(site.versions["kubernetes"], row["shares"])


def dra_comes(site: Site) -> bool:
    """Whether the DRA driver is installed on the site, and so announces its GPUs."""
    return site.has_stage("dra") and dra_release(site)[0] is not None


def devices_by_variable(site: Site) -> bool:
    """Whether a container that is not privileged gets the GPUs that its environment names.

    What the DRA driver gives comes through CDI, and needs no variable. A device plugin in its default strategy gives
    GPUs by this variable alone, and so does the orchestrator for parts of a GPU; they would give none.
    """
    chosen = site.get("container_toolkit", "envvar_when_unprivileged")
    return not dra_comes(site) if chosen is None else bool(chosen)


def deepops_row(release: str) -> dict[str, Any] | None:
    """The row of a DeepOps release."""
    return next((row for row in tables()["deepops"] if row["release"] == release), None)


def installs(minor: str) -> bool:
    """Whether a DeepOps of the matrix installs some patch of a minor release of Kubernetes, as 1.34."""
    return any(f">={minor}." in ranges for row in tables()["deepops"] for ranges in row["kubernetes"])


def trident_row(release: str) -> dict[str, Any] | None:
    """The row of a Trident release."""
    return next((row for row in tables()["trident"] if within(release, row["release"])), None)


def _hosts(site: Site) -> Iterator[Finding]:
    branch = site.versions.get("driver")
    if "driver" in site.declared_not_applicable:
        return
    for name, host in site.hosts.items():
        if "gpu" not in host["roles"]:
            continue
        rows = [row for row in tables()["hosts"] if host["model"] in row["models"]]
        fitting = [row for row in rows if row["os"] == host["os"]]
        if not fitting:
            systems = ", ".join(sorted({row["os"] for row in rows}))
            yield Finding(
                ("hosts", name, "os"), f"{host['os']} does not run on {host['model']}: take one of {systems}"
            )
        elif branch and not any(branch in row["driver"] for row in fitting):
            branches = ", ".join(fitting[0]["driver"])
            yield Finding(
                ("versions", "driver"),
                f"there is no driver branch {branch} for {host['model']} with {host['os']} ({name}): "
                f"take one of {branches} ({fitting[0]['source']})",
            )


def _deepops(site: Site) -> Iterator[Finding]:
    if not site.has_stage("deepops"):
        return
    release, kubernetes = site.versions["deepops"], site.versions["kubernetes"]
    row = deepops_row(release)
    if row is None:
        known = ", ".join(row["release"] for row in tables()["deepops"])
        yield Finding(("versions", "deepops"), f"DeepOps {release} is not in the matrix: take one of {known}")
        return
    if not any(within(kubernetes, minor) for minor in row["kubernetes"]):
        known = " or ".join(row["kubernetes"])
        yield Finding(
            ("versions", "kubernetes"),
            f"DeepOps {release} does not install Kubernetes {kubernetes}, but {known} ({row['source']})",
        )
    for name, host in site.hosts.items():
        if host["os"] not in row["os"]:
            systems = ", ".join(row["os"])
            yield Finding(
                ("hosts", name, "os"), f"DeepOps {release} does not install on {host['os']}, but on {systems}"
            )


def _runtime(site: Site) -> Iterator[Finding]:
    runtime, kubernetes = site.get("kubernetes", "container_runtime"), site.versions["kubernetes"]
    rows = [row for row in tables()["runtimes"] if row["runtime"] == runtime]
    if runtime and not any(within(kubernetes, row["kubernetes"]) for row in rows):
        place = ("kubernetes", "container_runtime")
        yield Finding(place, f"Kubernetes {kubernetes} does not run on {runtime}")


def _ontap(site: Site) -> Iterator[Finding]:
    release, row = site.versions.get("ontap"), tables()["ontap"][0]
    if release and site.has_stage("ontap") and not within(release, row["release"]):
        yield Finding(
            ("versions", "ontap"),
            f"the stage ontap needs ONTAP {row['release']}, this is {release} ({row['source']}): upgrade it, or "
            "prepare the SVM by hand and declare ontap under not_applicable",
        )


def _trident(site: Site) -> Iterator[Finding]:
    if not site.has_stage("trident"):
        return
    release, kubernetes = site.versions["trident"], site.versions["kubernetes"]
    row = trident_row(release)
    if row is None:
        known = ", ".join(row["release"] for row in tables()["trident"])
        yield Finding(("versions", "trident"), f"Trident {release} is not in the matrix: {known} are")
        return
    if not within(kubernetes, row["kubernetes"]):
        yield Finding(
            ("versions", "trident"),
            f"Trident {release} does not run on Kubernetes {kubernetes}, but on {row['kubernetes']} ({row['source']})",
        )
    ontap = site.versions.get("ontap")
    if ontap and not within(ontap, row["ontap"]):
        yield Finding(
            ("versions", "ontap"), f"Trident {release} needs ONTAP {row['ontap']} ({row['source']})"
        )


def _dra(site: Site) -> Iterator[Finding]:
    release = site.versions.get("dra", AUTO)
    for key in ("gpu_operator", "device_plugin"):
        if site.get("deepops", key) and dra_comes(site):
            yield Finding(
                ("deepops", key),
                f"deepops.{key} announces the GPUs, and the DRA driver would announce them again: "
                f"set versions.dra to off, or leave {key} out",
            )
    if release in {OFF, AUTO} or not site.has_stage("dra"):
        return
    row = next((row for row in tables()["dra"] if row["release"] == release), None)
    why = _dra_hindrance(site, row) if row else f"DRA driver {release} is not in the matrix"
    if why:
        yield Finding(("versions", "dra"), why)


def _dra_hindrance(site: Site, row: dict[str, Any]) -> str:
    kubernetes, branch = site.versions["kubernetes"], site.versions.get("driver")
    if not within(kubernetes, row["kubernetes"]):
        return f"DRA driver {row['release']} needs Kubernetes {row['kubernetes']}, this is {kubernetes}"
    if branch and not within(branch, row["driver"]):
        return f"DRA driver {row['release']} needs driver branch {row['driver']}, this is {branch}"
    for name, host in site.hosts.items():
        capable = any(
            host_row["dra"] for host_row in tables()["hosts"]
            if host.get("model") in host_row["models"] and host["os"] == host_row["os"]
        )  # fmt: skip
        if "gpu" in host["roles"] and not capable:
            return f"there is no driver for DRA on {host['model']} with {host['os']} ({name})"
    return ""


def _without_whole(site: Site, row: dict[str, Any]) -> str:
    """Why jobs would get no GPU although the driver runs; empty if they do."""
    kubernetes = site.versions["kubernetes"]
    if within(kubernetes, row["whole"]):
        return ""
    return f"jobs get GPUs by claims with Kubernetes {row['whole']}, this is {kubernetes}, where that is alpha and off"


def _orchestrator(site: Site) -> Iterator[Finding]:
    kubernetes = site.versions["kubernetes"]
    row = tables()["orchestrator"][0]
    if site.has_stage("orchestrator") and not within(kubernetes, row["kubernetes"]):
        yield Finding(
            ("versions", "kubernetes"),
            f"the orchestrator needs Kubernetes {row['kubernetes']}, this is {kubernetes} ({row['source']})",
        )


def within(release: str, specifier: str) -> bool:
    """Whether a release is in a range; ONTAP's patches (9.16.1P2) count as their release."""
    return SpecifierSet(specifier).contains(Version(release.partition("P")[0]), prereleases=True)
