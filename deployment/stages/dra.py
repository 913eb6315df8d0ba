"""The stage dra: NVIDIA's DRA driver for GPUs."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from deployment import matrix
from deployment.site import Finding, Site
from deployment.stages import helm
from deployment.stages.definition import Variables
from deployment.stages.steps import Step, component_steps
from deployment.variable_checks import extra

OFF, AUTO = "off", "auto"
_NO_WAY_BACK: Final = "the driver keeps checkpoints on the nodes that an older one cannot read"


class Dra(helm.ChartStage):
    """The stage that installs the driver's Helm chart, and labels nodes with GPUs for the DaemonSet of the chart."""

    name: ClassVar[str] = "dra"

    def not_applicable(self, site: Site, *, bundle: bool) -> str:
        number, why = release(site)
        return "" if number else why

    def matrix_findings(self, site: Site) -> Iterator[Finding]:
        if site.get("deepops", "gpu_operator") and comes(site):
            yield Finding(
                ("deepops", "gpu_operator"),
                "deepops.gpu_operator announces the GPUs, and the DRA driver would announce them again: "
                "set versions.dra to off, or leave gpu_operator out",
            )
        number = site.versions.get("dra", AUTO)
        if number in {OFF, AUTO} or not self.is_in(site):
            return
        row = _row(number)
        why = _hindrance(site, row) if row else f"DRA driver {number} is not in the matrix"
        if why:
            yield Finding(("versions", "dra"), why)

    def notes(self, site: Site) -> Iterator[str]:
        number = site.versions.get("dra", AUTO)
        row = _row(number)
        why = _without_whole(site, row) if row else ""
        if why and not _has_gate(site):
            yield (
                f"versions.dra names {number}, and {why}: jobs with -g wait for ever, and no device plugin is "
                "installed. Write auto, or set the feature gates (docs/explanation/devices.md)"
            )

    def variables(self, site: Site) -> Variables:
        number, _ = release(site)
        return {
            "dra_version": number,
            "dra_consumable_shares": "memory" if _shares(site) else "disabled",
        }

    def sentence(self, site: Site) -> str:
        number, why = release(site)
        return f"NVIDIA's DRA driver {number}, {why}; there is no way back to an older one"

    def steps(self, site: Site, installed: Mapping[str, str]) -> Iterator[Step]:
        before = installed.get(self.name, "")
        yield from component_steps(
            self.name, "DRA driver", before, release(site)[0] or "", no_way_back=_NO_WAY_BACK, minor=3
        )


def release(site: Site) -> tuple[str | None, str]:
    """Return the DRA driver's release for the site, and the reason. None: the driver is not installed.

    With `auto`, the driver is installed only if its default feature gates let jobs get GPUs.
    """
    number = site.versions.get("dra", AUTO)
    if number == OFF:
        return None, "the site file says off"
    if number != AUTO:
        return number, "the site file names it"
    why = ""
    for row in matrix.tables()["dra"]:
        why = _hindrance(site, row) or _without_whole(site, row)
        if not why:
            return str(row["release"]), f"the newest that fits ({row['source']})"
    return None, why


def comes(site: Site) -> bool:
    """Return whether the site installs the DRA driver."""
    return STAGE.is_in(site) and release(site)[0] is not None


def _shares(site: Site) -> bool:
    """Return whether ResourceClaims can have GPU fractions: the driver's release supports them, and Kubernetes enables
    them by default.
    """
    row = _row(release(site)[0]) or {}
    return "shares" in row and matrix.within(site.versions["kubernetes"], row["shares"])


def _row(number: str | None) -> dict[str, Any] | None:
    return next((row for row in matrix.tables()["dra"] if row["release"] == number), None)


def _hindrance(site: Site, row: dict[str, Any]) -> str:
    kubernetes, branch = site.versions["kubernetes"], site.versions.get("driver")
    if not matrix.within(kubernetes, row["kubernetes"]):
        return f"DRA driver {row['release']} needs Kubernetes {row['kubernetes']}, this is {kubernetes}"
    if branch and not matrix.within(branch, row["driver"]):
        return f"DRA driver {row['release']} needs driver branch {row['driver']}, this is {branch}"
    for name, host in site.hosts.items():
        capable = any(
            host_row["dra"] for host_row in matrix.tables()["hosts"]
            if host.get("model") in host_row["models"] and host["os"] == host_row["os"]
        )  # fmt: skip
        if "gpu" in host["roles"] and not capable:
            return f"there is no driver for DRA on {host['model']} with {host['os']} ({name})"
    return ""


def _has_gate(site: Site) -> bool:
    """Return whether the site file enables DRAExtendedResource, the feature gate that lets jobs get GPUs of the DRA
    driver.
    """
    return "DRAExtendedResource=true" in str(extra(site).get("kube_feature_gates", ""))


def _without_whole(site: Site, row: dict[str, Any]) -> str:
    """Return the reason if jobs would get no GPU from the running driver, or an empty string."""
    kubernetes = site.versions["kubernetes"]
    if matrix.within(kubernetes, row["whole"]):
        return ""
    return f"jobs get GPUs by claims with Kubernetes {row['whole']}, this is {kubernetes}, where that is alpha and off"


STAGE: Final = Dra()
