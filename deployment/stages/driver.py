"""The stage driver: NVIDIA's driver on the hosts with GPUs."""

from collections.abc import Iterator
from typing import Any, ClassVar, Final

from deployment import matrix
from deployment.site import Finding, Site
from deployment.stages import dra
from deployment.stages.definition import StageDefinition, Variables
from deployment.stages.words import hosts_on_removal

_NVLINK_5: Final = frozenset({"dgx-b200", "hgx-b200"})
"""Models whose fabric manager does not start without NVIDIA's subnet manager (nvlsm)."""

_WITHOUT: Final = {
    "dgx-1": "open", "dgx-2": "open", "dgx-b200": "proprietary", "hgx-b200": "proprietary", "gb200": "proprietary",
}  # fmt: skip
"""The kernel modules that a model cannot have: the open ones begin with Turing, the proprietary ones end before
Blackwell.
"""


class Driver(StageDefinition):
    """The stage that installs a branch of the driver. The matrix must list it for the model and the system of each
    host.
    """

    name: ClassVar[str] = "driver"
    needs: ClassVar[tuple[str, ...]] = ("versions", "driver")

    def problems(self, site: Site) -> Iterator[Finding]:
        modules = self.value(site, "driver_kernel_modules")
        for name, host in site.hosts.items():
            model = host.get("model")
            if "gpus" in host and "gpu" not in host["roles"]:
                yield Finding(
                    ("hosts", name, "gpus"), f"{name} has gpus, and not the role gpu: add it, or remove gpus"
                )
            most = matrix.gpus_of({"model": model})
            if most and host.get("gpus", 0) > most:
                yield Finding(
                    ("hosts", name, "gpus"),
                    f"{name}: {model} has {most} GPUs, not {host['gpus']}: correct one",
                )
            if "gpu" in host["roles"] and modules == _WITHOUT.get(str(model)):
                yield Finding(
                    ("driver", "kernel_modules"),
                    f"there are no {modules} modules for the GPUs of {model} ({name}): leave driver.kernel_modules "
                    "out, and the role takes those that fit",
                )

    def matrix_findings(self, site: Site) -> Iterator[Finding]:
        if self.name in site.declared_not_applicable:
            return
        branch = site.versions.get("driver")
        for name, host in site.hosts.items():
            if "gpu" not in host["roles"]:
                continue
            rows = [row for row in matrix.tables()["hosts"] if host["model"] in row["models"]]
            fitting = [row for row in rows if row["os"] == host["os"]]
            if not rows:
                yield Finding(
                    ("hosts", name, "model"),
                    f"muster does not install the driver of {host['model']}: add not_applicable: {{driver: REASON}}",
                )
            elif not fitting:
                systems = ", ".join(sorted({row["os"] for row in rows}))
                yield Finding(
                    ("hosts", name, "os"),
                    f"{host['os']} does not run on {host['model']}: take one of {systems}",
                )
            elif branch and not any(branch in row["driver"] for row in fitting):
                branches = ", ".join(fitting[0]["driver"])
                yield Finding(
                    ("versions", "driver"),
                    f"there is no driver branch {branch} for {host['model']} with {host['os']} ({name}): "
                    f"take one of {branches} ({fitting[0]['source']})",
                )

    def notes(self, site: Site) -> Iterator[str]:
        more = " ".join(site.get("driver", "extra_packages", default=[]))
        hosts = {name: host for name, host in site.hosts.items() if "gpu" in host["roles"]}
        unknown = [name for name, host in hosts.items() if host["model"] == "generic"]
        linked = [name for name, host in hosts.items() if host["model"] in _NVLINK_5]
        if unknown and "fabricmanager" not in more:
            yield (
                f"{', '.join(unknown)}: model generic does not say whether the board has NVSwitch. The PCI bus of the "
                "host decides whether it gets a fabric manager; HGX boards need one for CUDA"
            )
        if linked and "nvlsm" not in more:
            yield (
                f"{', '.join(linked)}: the fabric manager of NVLink 5 needs nvlsm beside it, and the stage installs "
                "it. The archive of Ubuntu does not have nvlsm: the hosts, or the mirror, need NVIDIA's repository"
            )

    def variables(self, site: Site) -> Variables:
        driver = site.get("driver", default={})
        return {
            "driver_branch": site.versions.get("driver"),
            "driver_dra": dra.comes(site),
            "driver_kernel_modules": driver.get("kernel_modules"),
            "driver_reboot": driver.get("reboot"),
            "driver_reboot_seconds": driver.get("reboot_seconds"),
            "driver_extra_packages": driver.get("extra_packages"),
            "driver_skip_packages": driver.get("skip_packages"),
        }

    def host_variables(self, host: dict[str, Any]) -> Variables:
        if "gpu" not in host["roles"]:
            return {}
        return {
            "driver_os": host["os"],
            "driver_model": host.get("model"),
            "driver_gpus": matrix.gpus_of(host),
        }

    def sentence(self, site: Site) -> str:
        reboot = "rebooted" if self.value(site, "driver_reboot") else "named, and stops the run"
        modules = self.value(site, "driver_kernel_modules")
        flavour = "the modules that fit the GPUs" if modules == "auto" else f"{modules} modules"
        return (
            f"driver branch {site.versions['driver']} with {flavour}; a host that needs a reboot is {reboot}"
        )

    def removal_sentence(self, site: Site) -> str:
        return hosts_on_removal(site)


STAGE: Final = Driver()
