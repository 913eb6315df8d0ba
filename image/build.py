"""Builds the operator's image without a container engine: `python -m image.build DIRECTORY`, or `make image`.

One layer has four parts:

- Debian's packages, by mmdebstrap
- the base dependencies and the extra `web`, by uv with the hashes of uv.lock
- muster's own wheel
- the library that limits GPU memory, by this machine's C compiler

The layer contains no time or path of the build, so the same inputs give the same digest. With `--packages DIRECTORY`
the program stops after the Python packages, and the Containerfile continues. Standard library only.
"""

import argparse
import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from musterlab import oci

ROOT: Final = Path(__file__).parents[1]
REPOSITORY: Final = "docker.io/library/muster"
"""The full name of `muster:VERSION`, the image in the output of `muster operator-yaml`."""

EPOCH: Final = int(os.environ.get("SOURCE_DATE_EPOCH", "1580601600"))
"""The time of every file, in seconds; by default the time that the build backend uses."""

ARCHIVES: Final = ("http://deb.debian.org/debian", "http://deb.debian.org/debian-security")
SUITE: Final = "bookworm"
RELEASE: Final = "Debian GNU/Linux 12 (bookworm)"
PYTHON: Final = "3.11"
DEBIAN_PACKAGES: Final = (
    f"python{PYTHON}-minimal", f"libpython{PYTHON}-stdlib", "libstdc++6", "ca-certificates",
)  # fmt: skip
EXTRAS: Final = ("web",)
"""The extras of muster in the image: a cluster needs one image."""
LIBRARY: Final = "usr/lib/muster/libmuster-gpu-memory.so"
"""The library for containers with a GPU fraction; docs/explanation/fractions.md describes it."""
SITE_PACKAGES: Final = f"usr/local/lib/python{PYTHON}/dist-packages"
CONFIG: Final = {
    "User": "65532:65532",
    "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/", "LANG=C.UTF-8"],
    "Entrypoint": ["muster"],
    "Cmd": ["operator"],
    "WorkingDir": "/",
}
"""How containers start; the Containerfile says the same."""
TRUST: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

AUTHORITIES: Final = "etc/ssl/certs/ca-certificates.crt"
"""The web's certificate authorities in one file. The pages verify an identity provider's certificate with them."""
_AUTHORITY_FILES: Final = "usr/share/ca-certificates"

_LINKS: Final = {"usr/bin/python3": f"python{PYTHON}", "usr/lib/ssl/cert.pem": f"/{AUTHORITIES}"}
_FILES: Final = {
    "etc/passwd": b"root:x:0:0:root:/root:/usr/sbin/nologin\nmuster:x:65532:65532:muster:/:/usr/sbin/nologin\n",
    "etc/group": b"root:x:0:\nmuster:x:65532:\n",
    "etc/os-release": f'PRETTY_NAME="{RELEASE}"\nID=debian\nVERSION_ID="12"\n'.encode(),
}
_EMPTY: Final = {"proc": 0o755, "sys": 0o755, "dev": 0o755, "run": 0o755, "tmp": 0o1777}
_LEFT_OUT: Final = (
    "boot", "dev", "home", "media", "mnt", "opt", "root", "run", "sbin", "srv", "tmp",
    "etc/alternatives", "etc/apt", "etc/cron.daily", "etc/dpkg", "etc/fstab", "etc/hostname", "etc/logrotate.d",
    "etc/resolv.conf", "etc/rmt", "lib/systemd",
    "usr/games", "usr/include", "usr/lib/binfmt.d", "usr/lib/mime", "usr/lib/systemd", "usr/lib/tmpfiles.d",
    "usr/lib/x86_64-linux-gnu/gconv", "usr/libexec", "usr/sbin", "usr/src",
    "usr/share/bash-completion", "usr/share/binfmts", "usr/share/bug", "usr/share/dpkg", "usr/share/info",
    "usr/share/lintian", "usr/share/locale", "usr/share/man", "usr/share/polkit-1", "usr/share/readline",
    f"usr/lib/python{PYTHON}/__phello__", f"usr/lib/python{PYTHON}/ensurepip", f"usr/lib/python{PYTHON}/lib2to3",
    f"usr/lib/python{PYTHON}/pydoc_data",
    "var/backups", "var/cache", "var/lib/apt", "var/lib/dpkg/alternatives", "var/lib/dpkg/info",
    "var/lib/dpkg/parts", "var/lib/dpkg/triggers", "var/lib/dpkg/updates", "var/log", "var/tmp",
)  # fmt: skip
_UNUSED_PACKAGES: Final = {  # files of packages that only the installation of other packages needs
    "debconf": (
        "etc/debconf.conf",
        "usr/bin/deb",
        "usr/share/debconf",
        "usr/share/perl5",
        "usr/share/pixmaps",
    ),
    "dpkg": ("usr/bin/dpkg", "usr/bin/update-alternatives"),
    "openssl": ("usr/bin/c_rehash", "usr/bin/openssl", "usr/lib/ssl/misc"),
    "tar": ("bin/tar",),
}
COMPILED: Final = "--invalidation-mode unchecked-hash"
_MADE_BY_UV: Final = ("INSTALLER", "RECORD", "REQUESTED", "direct_url.json", "uv_build.json", "uv_cache.json")


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the image, print its digest and sizes."""
    parser = argparse.ArgumentParser(prog="image.build", description=__doc__, allow_abbrev=False)
    parser.add_argument("directory", type=Path, help="the directory that gets the archive, or the packages")
    parser.add_argument("--packages", action="store_true", help="only the Python packages")
    parser.add_argument(
        "--archive", action="append", metavar="URL",
        help="archives of Debian and its security updates, in this order, instead of deb.debian.org",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    try:
        if options.packages:
            install_packages(options.directory)
            return 0
        build(options.directory, options.archive or ARCHIVES)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"image: {error}", file=sys.stderr)
        return 1
    return 0


def build(directory: Path, archives: Sequence[str] = ARCHIVES) -> Path:
    """Write the image as an OCI archive into `directory` and return the archive."""
    with tempfile.TemporaryDirectory(prefix="muster-image-") as name:
        work = Path(name)
        install_packages(work / "packages")
        library = build_library(work / "library")
        _bootstrap(work / "root.tar", work / "packages", library, archives)
        layer = layer_of(work / "root.tar")
        layout = oci.Layout(work / "layout")
        version = _version(work / "packages")
        descriptor = _add_image(layout, layer, version)
        layout.write_index({f"{REPOSITORY}:{version}": descriptor})
        directory.mkdir(parents=True, exist_ok=True)
        archive = directory / f"muster-{version}.oci.tar"
        oci.write_archive(work / "layout", archive, EPOCH)
    print(f"{archive}: {REPOSITORY}:{version} {descriptor['digest']} {archive.stat().st_size / 1e6:.1f} MB")
    return archive


def install_packages(directory: Path) -> None:
    """Install muster, its base dependencies and those of `EXTRAS`: exactly the files whose hashes are in uv.lock."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="muster-packages-") as name:
        requirements = Path(name) / "requirements.txt"
        extras = [f"--extra={extra}" for extra in EXTRAS]
        _uv(
            "export", "--frozen", "--no-dev", "--no-emit-project", *extras, "--output-file", str(requirements)
        )
        _uv("build", "--wheel", "--out-dir", name)
        (wheel,) = Path(name).glob("*.whl")
        install = (
            "pip", "install", "--no-deps", "--link-mode", "copy", "--target", str(directory),
            "--python", sys.executable, "--python-version", PYTHON, "--python-platform", "x86_64-manylinux_2_28",
        )  # fmt: skip
        _uv(*install, "--only-binary", ":all:", "--require-hashes", "--requirements", str(requirements))
        _uv(*install, str(wheel))
    shutil.rmtree(directory / "bin", ignore_errors=True)  # these programs name the Python of this machine
    for record in directory.glob("*.dist-info"):
        for name_by_uv in _MADE_BY_UV:
            (record / name_by_uv).unlink(missing_ok=True)
    (directory / ".lock").unlink(missing_ok=True)


def build_library(directory: Path) -> Path:
    """Compile the library that limits device memory into `directory`, and return it."""
    subprocess.run(
        ["make", "--silent", "-C", str(ROOT / "gpumemory"), f"OUT={directory}"], check=True, stdout=sys.stderr
    )
    return directory / Path(LIBRARY).name


def find_uv() -> str | None:
    """Return uv: that of the PATH, or the one beside this Python; None if there is neither."""
    return shutil.which("uv") or shutil.which("uv", path=Path(sys.executable).parent)


def _uv(*arguments: str) -> None:
    environment = {**os.environ, "UV_PYTHON_DOWNLOADS": "never", "SOURCE_DATE_EPOCH": str(EPOCH)}
    subprocess.run(
        [find_uv() or "uv", "--quiet", *arguments], cwd=ROOT, env=environment, check=True, stdout=sys.stderr
    )


def _bootstrap(target: Path, packages: Path, library: Path, archives: Sequence[str]) -> None:
    """Write a root file system with Debian's packages and ours; its own Python compiles all modules."""
    main_archive, security = archives
    options = [f"signed-by={TRUST}"] if TRUST.exists() else []
    options += ["check-valid-until=no"] if archives != ARCHIVES else []  # a snapshot of an archive is old
    trust = f"[{' '.join(options)}] " if options else ""
    sources = [
        f"deb {trust}{main_archive} {SUITE} main",
        f"deb {trust}{main_archive} {SUITE}-updates main",
        f"deb {trust}{security} {SUITE}-security main",
    ]
    unneeded = " ".join(f'"$1"/{path}' for path in _LEFT_OUT if path.startswith("usr/lib/python"))
    hooks = (
        # scanners read one file for each package, because the image has no dpkg
        """mkdir -p "$1"/var/lib/dpkg/status.d
for file in "$1"/var/cache/apt/archives/*.deb; do
    dpkg-deb -f "$file" > "$1"/var/lib/dpkg/status.d/$(dpkg-deb -f "$file" Package)
done""",
        f"rm -rf {unneeded}",
        f'mkdir -p "$1"/{SITE_PACKAGES}',
        f"sync-in {packages} /{SITE_PACKAGES}",
        f'mkdir -p "$1"/{Path(LIBRARY).parent}',
        f"copy-in {library} /{Path(LIBRARY).parent}",
        # compiled now: a container cannot compile modules, because its root file system is read-only
        f'chroot "$1" /usr/bin/python{PYTHON} -I -m compileall -q {COMPILED} /usr/lib/python{PYTHON} /{SITE_PACKAGES}',
    )
    subprocess.run(
        [
            "mmdebstrap", "--quiet", "--variant=extract", "--architectures=amd64",
            f"--include={','.join(DEBIAN_PACKAGES)}", *(f"--extract-hook={hook}" for hook in hooks),
            SUITE, str(target), *sources,
        ],
        env={**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH), "PYTHONHASHSEED": "0"}, check=True, stdout=sys.stderr,
    )  # fmt: skip


def layer_of(root: Path) -> bytes:
    """Return the root file system as a layer, with required paths, in one order, at one time, for root."""
    buffer = io.BytesIO()
    with (
        tarfile.open(root) as source,
        tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as target,
    ):
        entries = {entry.name: (entry, content) for entry, content in _needed(source)}
        entries = _with_one_file_of_authorities(entries)
        for entry, content in _added():
            entries[entry.name] = (entry, content)
        for _, (entry, content) in sorted(entries.items()):
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = EPOCH
            entry.pax_headers = {}
            target.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _with_one_file_of_authorities(
    entries: dict[str, tuple[tarfile.TarInfo, bytes]],
) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
    """Return the entries with the certificate authorities joined into one file, as update-ca-certificates does."""
    names = sorted(name for name in entries if name.startswith(_AUTHORITY_FILES) and name.endswith(".crt"))
    bundle = b"".join(entries[name][1].rstrip(b"\n") + b"\n" for name in names)
    others = {name: entry for name, entry in entries.items() if not name.startswith(_AUTHORITY_FILES)}
    return {**others, AUTHORITIES: (_entry(AUTHORITIES, tarfile.REGTYPE, 0o644, len(bundle)), bundle)}


def _needed(source: tarfile.TarFile) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    for entry in source:
        entry.name = entry.name.removeprefix("./").rstrip("/")
        if not entry.name or entry.name == "." or _left_out(entry.name):
            continue
        content = b""
        if entry.isreg() or entry.islnk():  # a hard link becomes a file: it may precede its target
            file = source.extractfile(entry)
            content = file.read() if file else b""
            entry.type, entry.linkname, entry.size = tarfile.REGTYPE, "", len(content)
        if entry.isreg() or entry.issym() or entry.isdir():
            yield entry, content


def _left_out(name: str) -> bool:
    if name.startswith("usr/share/doc/"):
        return name.count("/") > 3 and not name.endswith("/copyright")  # the licences stay
    programs = [path for paths in _UNUSED_PACKAGES.values() for path in paths]
    records = [f"var/lib/dpkg/status.d/{package}" for package in _UNUSED_PACKAGES]
    return (
        name in records
        or any(name.startswith(path) for path in programs)
        or any(name == path or name.startswith(f"{path}/") for path in _LEFT_OUT)
    )


def _added() -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    for path, mode in _EMPTY.items():
        yield _entry(path, tarfile.DIRTYPE, mode), b""
    for path, content in _FILES.items():
        yield _entry(path, tarfile.REGTYPE, 0o644, len(content)), content
    program = (Path(__file__).parent / "muster").read_bytes()
    yield _entry("usr/local/bin/muster", tarfile.REGTYPE, 0o755, len(program)), program
    for path, link in _LINKS.items():
        entry = _entry(path, tarfile.SYMTYPE, 0o777)
        entry.linkname = link
        yield entry, b""


def _entry(path: str, kind: bytes, mode: int, size: int = 0) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path)
    entry.type, entry.mode, entry.size = kind, mode, size
    return entry


def _add_image(layout: oci.Layout, layer: bytes, version: str) -> Mapping[str, Any]:
    labels = {
        "org.opencontainers.image.title": "muster",
        "org.opencontainers.image.description": "Operator of muster: shares the GPUs of a cluster between teams",
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.licenses": "Apache-2.0",
    }
    created = datetime.fromtimestamp(EPOCH, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return layout.add_image(
        {"created": created, "config": {**CONFIG, "Labels": labels}},
        [(oci.sha256(layer), gzip.compress(layer, 9, mtime=0))],
        compressed=True,
    )


def _version(packages: Path) -> str:
    (metadata,) = packages.glob("muster_gpu-*.dist-info")
    return metadata.name.removeprefix("muster_gpu-").removesuffix(".dist-info")


if __name__ == "__main__":
    sys.exit(main())
