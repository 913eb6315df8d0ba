"""Releases with published vulnerabilities: rows `refused` and `warned` of the matrix, and the releases of a site."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from packaging.version import Version

from deployment import matrix
from deployment.site import Finding, Site
from deployment.stages.runtime import container_runtime
from deployment.variable_checks import EXTRA, extra

NAMES: Final = {
    "container_toolkit": "NVIDIA's container toolkit",
    "containerd": "containerd",
    "driver": "driver",
    "kubernetes": "Kubernetes",
    "runc": "runc",
}
"""The usual name of the software in each row."""

_FULL: Final = re.compile(r"[0-9]+([.][0-9]+){2,}")
_LAST: Final = "99999"
"""A release number above all releases of a driver branch."""


def rows(table: str) -> list[dict[str, Any]]:
    """Return the rows of `refused` or `warned`, with every key: for the plan and for the roles."""
    return [
        {
            "software": row["software"],
            "name": NAMES[row["software"]],
            "from": row.get("from", "0"),
            "below": row["below"],
            "take": row.get("take", f"{row['below']} or newer"),
            "cve": row["cve"],
            "source": row["source"],
        }
        for row in matrix.tables()[table]
    ]


def affecting(table: str, software: str, release: str) -> list[dict[str, Any]]:
    """Return the rows of a table that include a release, such as 1.17.7. A release candidate is older than its
    release.
    """
    version = Version(release)
    return [
        row
        for row in rows(table)
        if row["software"] == software
        and Version(row["from"]) <= Version(version.base_version)
        and version < Version(row["below"])
    ]


def sentence(found: Sequence[Mapping[str, Any]], release: str) -> str:
    """Return one sentence for all rows that name a release of one software."""
    cves = ", ".join(dict.fromkeys(cve for row in found for cve in row["cve"]))
    sources = "; ".join(dict.fromkeys(row["source"] for row in found))
    newest = max(found, key=lambda row: Version(row["below"]))
    return f"{newest['name']} {release} has {cves}: take {newest['take']} ({sources})"


def refused_releases(site: Site) -> Iterator[Finding]:
    """Yield the releases of the site file that are refused."""
    for software, release in chosen(site).items():
        if _FULL.fullmatch(release) and (found := affecting("refused", software, release)):
            place = ("versions", software) if software in site.versions else (*EXTRA, f"{software}_version")
            yield Finding(place, sentence(found, release))


def warned_releases(releases: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each release in the table `warned`.

    For a driver, `releases` has only the branch, such as 570.
    """
    for software, release in releases.items():
        whole = f"{release}.{_LAST}" if software == "driver" else release
        if found := affecting("warned", software, whole):
            shown = f"branch {release}" if software == "driver" else release
            yield sentence(found, shown)


def chosen(site: Site) -> dict[str, str]:
    """Return the releases that the site file names, by software; kubespray takes some of them instead of its own."""
    taken = extra(site)
    named = {software: site.versions[software] for software in NAMES if software in site.versions}
    named |= {software: taken[f"{software}_version"] for software in NAMES if f"{software}_version" in taken}
    return {software: str(release) for software, release in named.items()}


def brought(site: Site) -> dict[str, str]:
    """Return the releases that the kubespray of DeepOps installs on the hosts of a site."""
    if container_runtime(site) == "docker":
        return {}  # Docker has its own containerd and runc
    row = matrix.deepops_row(site.versions.get("deepops", "")) or {}
    return {
        software: release
        for software, release in row.get("brings", {}).items()
        if software not in chosen(site)
    }


def unlisted(site: Site) -> Iterator[str]:
    """Yield a note for each release of other software that kubespray takes instead of its own."""
    for name, release in extra(site).items():
        if str(name).endswith("_version") and str(name).removesuffix("_version") not in NAMES:
            yield (
                f"{'.'.join(EXTRA)}.{name}: {release} replaces the release of kubespray: the matrix, the tables of "
                "vulnerabilities and the bundle do not have it"
            )
