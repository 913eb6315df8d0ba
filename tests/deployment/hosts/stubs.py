"""Doubles of packages that need NVIDIA's hardware or repositories, and a repository of them.

A driver package has a module that the real `modinfo` reads, and a `nvidia-smi` that shows the GPUs on the PCI bus. This
`nvidia-smi` fails if its version differs from that of the first module loaded since the boot, and shows no Volta with
open modules. A toolkit package has a `nvidia-ctk` that writes the same files as the real one.
"""

import atexit
import hashlib
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

DRIVERS = {"450": "450.248.02", "550": "550.163.01", "570": "570.195.03", "580": "580.95.05"}
PADDING_BYTES = 16 << 20
"""Size of a driver package on the disk, so that a disk can be too small for it."""

GATE = "/srv/gate"
WAIT_AT_THE_GATE = f"""[ ! -e {GATE} ] || touch {GATE}.reached
while [ -e {GATE} ]; do sleep 0.1; done"""
"""A shell fragment at which a test can stop dpkg in the middle of its work."""

NVIDIA_SMI = """#!/bin/sh
# Answers as nvidia-smi does; the module counts as loaded from its first use after the boot on.
library=@version@
state=/run/nvidia-stub
mkdir -p $state
[ -e $state/loaded ] || modinfo -F version nvidia > $state/loaded
if [ "$(cat $state/loaded)" != "$library" ]; then
    echo "Failed to initialize NVML: Driver/library version mismatch"
    echo "NVML library version: ${library%.*}"
    exit 18
fi
license=$(modinfo -F license nvidia)
index=0
for device in /sys/bus/pci/devices/*; do
    [ -e "$device/vendor" ] && [ "$(cat "$device/vendor")" = 0x10de ] || continue
    [ ! -e "$state/lost-${device##*/}" ] || continue
    case "$(cat "$device/device")" in
        0x1db5) name="Tesla V100-SXM2-32GB"; memory=32768; [ "$license" = NVIDIA ] || continue ;;
        0x2330) name="NVIDIA H100 80GB HBM3"; memory=81559 ;;
        *) continue ;;
    esac
    case "$*" in
        *compute-apps*) exit 0 ;;
        *fabric.state*)
            systemctl is-active --quiet nvidia-fabricmanager && fabric=Completed || fabric="In Progress"
            echo "0000${device##*/}, $fabric, Success" ;;
        *driver_version,memory*) echo "$index, $name, $library, $memory MiB, 0000${device##*/}" ;;
        *driver_version*) echo "$library" ;;
        *) echo "GPU $index: $name (UUID: GPU-00000000-0000-0000-0000-00000000000$index)" ;;
    esac
    index=$((index + 1))
done
[ $index -gt 0 ] || { echo "No devices were found"; exit 6; }
"""

FABRIC_MANAGER = """#!/bin/sh
# Runs as NVIDIA's fabric manager does: it refuses a driver of another version.
[ "$1" != --version ] || { echo "Fabric Manager version is : @version@"; exit 0; }
driver=$(modinfo -F version nvidia)
if [ "$driver" != @version@ ]; then
    echo "fabric manager NVIDIA GPU driver interface version @version@ don't match with driver version $driver."
    exit 1
fi
exec sleep infinity
"""
FABRIC_MANAGER_UNIT = "nvidia-fabricmanager.service"
FABRIC_MANAGER_SERVICE = """[Unit]
Description=NVIDIA fabric manager service
[Service]
ExecStart=/usr/bin/nv-fabricmanager -c /usr/share/nvidia/nvswitch/fabricmanager.cfg
[Install]
WantedBy=multi-user.target
"""

NVIDIA_CTK = """#!/bin/sh
# Answers as nvidia-ctk does, for the calls that the roles make.
set -e
case "$1 $2" in
    "--version "*)
        echo "NVIDIA Container Toolkit CLI version @version@"
        echo "commit: 0000000000000000000000000000000000000000" ;;
    "runtime configure")
        drop_in=/etc/containerd/conf.d/99-nvidia.toml
        for argument; do
            case $argument in --drop-in-config=*) drop_in=${argument#*=} ;; esac
        done
        mkdir -p "$(dirname "$drop_in")"
        cat > "$drop_in" <<'END'
version = 2

[plugins]

  [plugins."io.containerd.grpc.v1.cri"]

    [plugins."io.containerd.grpc.v1.cri".containerd]
      default_runtime_name = "nvidia"

      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes]

        [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
          runtime_type = "io.containerd.runc.v2"

          [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
            BinaryName = "/usr/bin/nvidia-container-runtime"
END
        config=/etc/containerd/config.toml
        [ -e $config ] || echo 'version = 2' > $config
        sed -i '/^#/d' $config
        grep -q '^imports' $config || sed -i '1i imports = []' $config
        grep -q 'conf.d/[*]' $config ||
            sed -i 's#^imports = .#&"/etc/containerd/conf.d/*.toml", #; s#, ]#]#' $config
        echo 'level=info msg="It is recommended that containerd daemon be restarted."' >&2 ;;
    "cdi generate")
        for argument; do
            case $argument in --output=*) output=${argument#*=} ;; esac
        done
        mkdir -p "$(dirname "$output")"
        { echo 'cdiVersion: 0.5.0'; echo 'kind: nvidia.com/gpu'; echo 'devices:'
          nvidia-smi -L | sed -n 's/^GPU \\([0-9]*\\):.*/- name: "\\1"/p'; echo '- name: all'; } > "$output" ;;
    "cdi list")
        found=$(cat /etc/cdi/*.yaml /var/run/cdi/*.yaml 2>/dev/null |
            sed -n 's/^- name: "*\\([^"]*\\)"*$/nvidia.com\\/gpu=\\1/p')
        echo "level=info msg=\\"Found $(echo "$found" | grep -c .) CDI devices\\"" >&2
        echo "$found" ;;
    *) echo "nvidia-ctk: unknown call: $*" >&2; exit 1 ;;
esac
"""

NVIDIA_RUNTIME = """#!/usr/bin/python3
# Gives a container the GPUs that its environment names, as NVIDIA's runtime does, and calls runc. The library of the
# driver and the state of its GPUs are in /srv/nvidia, on a host that has some.
import json, os, sys

MAJOR, CONTROL, UVM_MAJOR = 195, 255, 510


def folder(words):
    if "create" not in words and "run" not in words:
        return ""
    for number, word in enumerate(words):
        if word in ("-b", "--bundle"):
            return words[number + 1]
        if word.startswith("--bundle="):
            return word.partition("=")[2]
    return "."


def add(spec, wanted):
    with open("/srv/nvidia/config/gpus.json") as file:
        gpus = json.load(file)
    by_name = {str(index): gpu for index, gpu in enumerate(gpus)} | {gpu["uuid"]: gpu for gpu in gpus}
    names = list(map(str, range(len(gpus)))) if wanted == "all" else [] if wanted == "none" else wanted.split(",")
    for name in names:
        if name not in by_name:
            sys.exit(f"nvidia-container-cli: device error: {name}: unknown device")
    devices = {f"nvidia{by_name[name]['minor']}": (MAJOR, by_name[name]["minor"]) for name in names}
    devices |= {"nvidiactl": (MAJOR, CONTROL), "nvidia-uvm": (UVM_MAJOR, 0)}
    linux = spec.setdefault("linux", {})
    rules = linux.setdefault("resources", {}).setdefault("devices", [])
    for name, (major, minor) in devices.items():
        device = {"path": f"/dev/{name}", "type": "c", "major": major, "minor": minor, "fileMode": 0o666}
        linux.setdefault("devices", []).append(device)
        rules.append({"allow": True, "type": "c", "major": major, "minor": minor, "access": "rwm"})
    options = ["bind", "ro", "nosuid", "nodev"]
    for source, target in (
        ("/srv/nvidia/libnvidia-ml.so.1", "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"),
        ("/srv/nvidia/config", "/config"),
    ):
        spec.setdefault("mounts", []).append(
            {"destination": target, "type": "bind", "source": source, "options": options}
        )


bundle = folder(sys.argv[1:])
if bundle and os.path.exists("/srv/nvidia/config/gpus.json"):
    path = os.path.join(bundle, "config.json")
    with open(path) as file:
        spec = json.load(file)
    environment = dict(word.partition("=")[::2] for word in spec["process"].get("env", ()))
    wanted = environment.get("NVIDIA_VISIBLE_DEVICES", "void")
    if wanted not in ("", "void"):
        add(spec, wanted)
        with open(path, "w") as file:
            json.dump(spec, file)
os.execvp("runc", ["runc", *sys.argv[1:]])
"""

CDI_SERVICE = """[Unit]
Description=Refresh the CDI specification of NVIDIA devices
[Service]
Type=oneshot
ExecStart=/usr/bin/nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml
[Install]
WantedBy=multi-user.target
"""
CDI_PATH = """[Unit]
Description=Refresh the CDI specification when the driver changes
[Path]
PathChanged=/usr/bin/nvidia-smi
Unit=nvidia-cdi-refresh.service
[Install]
WantedBy=multi-user.target
"""
PERSISTENCE_UNIT = "nvidia-persistenced.service"
PERSISTENCE = """[Unit]
Description=Keep the NVIDIA driver loaded
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/true
[Install]
WantedBy=multi-user.target
"""


def module(version: str, license_: str) -> bytes:
    """Return a kernel module with only the data that modinfo reads: an ELF file with a section .modinfo."""
    fields = {"license": license_, "version": version, "name": "nvidia"}
    information = b"".join(f"{key}={value}\0".encode() for key, value in fields.items())
    names = b"\0.modinfo\0.shstrtab\0"
    header, row = 64, 64
    start_names = header + len(information)
    start_rows = (start_names + len(names) + 7) // 8 * 8
    identity = b"\x7fELF\x02\x01\x01" + bytes(9)
    elf = struct.pack("<16sHHIQQQIHHHHHH", identity, 1, 62, 1, 0, 0, start_rows, 0, header, 0, 0, row, 3, 2)
    rows = bytes(row)
    rows += struct.pack("<IIQQQQIIQQ", 1, 1, 2, 0, header, len(information), 0, 0, 1, 0)
    rows += struct.pack("<IIQQQQIIQQ", 10, 3, 0, 0, start_names, len(names), 0, 0, 1, 0)
    return (elf + information + names).ljust(start_rows, b"\0") + rows


@dataclass
class Package:
    """A package to build: files by path. A file with an executable mode is a program."""

    name: str
    version: str
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    depends: str = ""
    postinst: str = ""
    postrm: str = ""
    units: str = ""
    """Units of the package. They start with the package and with the host, and stop at its removal."""
    stands_for: str = ""
    """Names that packages of all branches provide, so that apt removes the old branch when it installs a new one.
    NVIDIA's apt-packaging-fabric-manager (debian/templates/control.in) does so with Provides, Replaces and Conflicts.
    """

    def build(self, target: Path) -> None:
        """Write the package into a folder."""
        with tempfile.TemporaryDirectory() as temporary:
            root = Path(temporary) / "root"
            control = {"Package": self.name, "Version": self.version, "Architecture": "amd64"}
            control |= {
                "Maintainer": "tests <tests@example.com>",
                "Description": "stands in for the real one in tests",
            }
            if self.depends:
                control["Depends"] = self.depends
            if self.stands_for:
                control |= dict.fromkeys(("Provides", "Replaces", "Conflicts"), self.stands_for)
            self._write(
                root, "DEBIAN/control", "".join(f"{key}: {value}\n" for key, value in control.items())
            )
            for script, text in self._scripts().items():
                self._write(root, f"DEBIAN/{script}", f"#!/bin/sh\nset -e\n{text}\n")
            for path, content in self.files.items():
                self._write(root, path, content)
            root.chmod(0o755)
            file = target / f"{self.name}_{self.version}_amd64.deb"
            build = ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", str(root), str(file)]
            subprocess.run(build, check=True, capture_output=True)

    def _scripts(self) -> dict[str, str]:
        """Return the maintainer scripts. For units, they do what Debian's helpers do."""
        started = f"systemctl daemon-reload; systemctl enable --quiet --now {self.units}"
        stopped = f'[ "$1" != remove ] || systemctl disable --quiet --now {self.units}'
        found = {
            "postinst": [self.postinst, started if self.units else ""],
            "prerm": [stopped if self.units else ""],
            "postrm": [self.postrm, "systemctl daemon-reload" if self.units else ""],
        }
        return {script: "\n".join(filter(None, lines)) for script, lines in found.items() if any(lines)}

    @staticmethod
    def _write(root: Path, path: str, content: str | bytes) -> None:
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        program = file.parent.name == "bin" or file.name in {"postinst", "prerm", "postrm"}
        file.chmod(0o755 if program else 0o644)


def drivers() -> list[Package]:
    """Return the packages of all drivers that scenarios install."""
    kernel = os.uname().release
    depmod = f"depmod {kernel} 2>/dev/null"
    packages = [
        Package("nvidia-modprobe", "580.95.05-1", postinst=WAIT_AT_THE_GATE),
        Package("nv-persistence-mode", "22.04-1"),
        Package(f"linux-headers-{kernel}", "1.0-1"),
    ]
    units = {f"lib/systemd/system/{PERSISTENCE_UNIT}": PERSISTENCE}
    for branch, version in DRIVERS.items():
        tools: dict[str, str | bytes] = {
            "usr/bin/nvidia-smi": NVIDIA_SMI.replace("@version@", version),
            **units,
        }
        for open_ in (False, True):
            license_ = "Dual MIT/GPL" if open_ else "NVIDIA"
            modules: dict[str, str | bytes] = {
                f"lib/modules/{kernel}/updates/dkms/nvidia.ko": module(version, license_),
                f"usr/lib/nvidia-{branch}/padding": bytes(PADDING_BYTES),
            }
            suffix = "-open" if open_ else ""
            headless = f"nvidia-headless-{branch}-server{suffix}"
            packages.append(
                Package(
                    headless,
                    f"{version}-0ubuntu1",
                    modules,
                    postinst=depmod,
                    postrm=depmod,
                    stands_for="nvidia-kernel-common",
                )
            )
            if not open_:
                whole = f"nvidia-driver-{branch}"
                files = modules | tools
                packages.append(
                    Package(
                        whole,
                        f"{version}-0ubuntu1",
                        files,
                        postinst=depmod,
                        postrm=depmod,
                        units=PERSISTENCE_UNIT,
                        stands_for="nvidia-kernel-common, nvidia-utils",
                    )
                )
        needs = f"nvidia-headless-{branch}-server"
        packages += [
            Package(
                f"nvidia-utils-{branch}-server",
                f"{version}-0ubuntu1",
                tools,
                units=PERSISTENCE_UNIT,
                stands_for="nvidia-utils",
            ),
            Package(
                f"nvidia-driver-{branch}-server",
                f"{version}-0ubuntu1",
                depends=f"{needs}, nvidia-utils-{branch}-server",
            ),
            Package(f"linux-modules-nvidia-{branch}-server-nvidia", f"{version}-0ubuntu1"),
            Package(f"libnvidia-nscq-{branch}", f"{version}-0ubuntu1"),
            Package(
                f"nvidia-fabricmanager-{branch}",
                f"{version}-0ubuntu1",
                {
                    "usr/bin/nv-fabricmanager": FABRIC_MANAGER.replace("@version@", version),
                    f"lib/systemd/system/{FABRIC_MANAGER_UNIT}": FABRIC_MANAGER_SERVICE,
                },
                units=FABRIC_MANAGER_UNIT,
                stands_for="nvidia-fabricmanager",
            ),
        ]
    return packages


def toolkits() -> list[Package]:
    """Return the four packages of the container toolkit in three versions. The requested
    version is not the newest one.
    """
    packages = []
    for version in ("1.13.5", "1.19.1", "1.20.0"):
        revision = f"{version}-1"
        files: dict[str, str | bytes] = {"usr/bin/nvidia-ctk": NVIDIA_CTK.replace("@version@", version)}
        units = ""
        if version > "1.18":
            files["lib/systemd/system/nvidia-cdi-refresh.service"] = CDI_SERVICE
            files["lib/systemd/system/nvidia-cdi-refresh.path"] = CDI_PATH
            units = "nvidia-cdi-refresh.path nvidia-cdi-refresh.service"
        runtime: dict[str, str | bytes] = {"usr/bin/nvidia-container-runtime": NVIDIA_RUNTIME}
        packages += [
            Package("libnvidia-container1", revision),
            Package("libnvidia-container-tools", revision, depends=f"libnvidia-container1 (>= {revision})"),
            Package("nvidia-container-toolkit-base", revision, files, units=units),
            Package(
                "nvidia-container-toolkit",
                revision,
                runtime,
                depends=f"nvidia-container-toolkit-base (= {revision}), libnvidia-container-tools (>= {revision})",
            ),
        ]
    return packages


def repository(target: Path, archive: Path) -> None:
    """Write apt repositories: `driver`, which also has the archive's packages, and `toolkit`, signed by
    `toolkit/gpgkey`.
    """
    driver, toolkit = target / "driver", target / "toolkit" / "deb" / "amd64"
    for place, packages in ((driver, drivers()), (toolkit, toolkits())):
        place.mkdir(parents=True)
        for package in packages:
            package.build(place)
    for file in archive.glob("*.deb"):
        shutil.copy(file, driver)
    for place in (driver, toolkit):
        index(place)
    _sign(toolkit, target / "toolkit" / "gpgkey")


def index(place: Path) -> None:
    """Write the index of the packages in a folder for apt."""
    entries = []
    for file in sorted(place.glob("*.deb")):
        control = subprocess.run(
            ["dpkg-deb", "-f", str(file)], check=True, capture_output=True, text=True
        ).stdout
        content = file.read_bytes()
        found = {
            "Filename": f"./{file.name}",
            "Size": len(content),
            "SHA256": hashlib.sha256(content).hexdigest(),
        }
        entries.append(control.strip() + "\n" + "".join(f"{key}: {value}\n" for key, value in found.items()))
    packages = "\n".join(entries).encode()
    (place / "Packages").write_bytes(packages)
    digest = hashlib.sha256(packages).hexdigest()
    dated = "Date: Sat, 21 Nov 2026 00:00:00 UTC"
    (place / "Release").write_text(f"{dated}\nSHA256:\n {digest} {len(packages)} Packages\n")


def _sign(place: Path, key: Path) -> None:
    home = _signer()
    _gpg(home, "--clearsign", "--output", str(place / "InRelease"), str(place / "Release"))
    _gpg(home, "--armor", "--output", str(key), "--export")


@cache
def _signer() -> str:
    """Return the home of this process's key. Like NVIDIA, one key signs all repositories of a site."""
    home = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    _gpg(home, "--quick-generate-key", "tests <tests@example.com>", "rsa2048", "sign", "never")
    return home


def _gpg(home: str, *arguments: str) -> None:
    quiet = ("--batch", "--quiet", "--yes", "--pinentry-mode", "loopback", "--passphrase", "")
    subprocess.run(["gpg", "--homedir", home, *quiet, *arguments], check=True, capture_output=True)
    subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=False, capture_output=True)
