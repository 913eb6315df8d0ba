"""Builds OCI archives of images from the files of this installation: Python, with TensorFlow and the training workload,
or alone.
"""

import gzip
import io
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from musterlab import oci

NAME = "docker.io/netapp/tensorflow-tf1-py3:20.01.0"
ROOT = Path(__file__).parents[2]
PACKAGES = ("validation", "hostfacts", "orchestrator")
NEEDED = ("tensorflow-cpu", "msgspec", "pyyaml", "click")
LEFT_OUT = {"__pycache__", "test", "idlelib", "site-packages"}
"""Folders of Python's own library that the image does not need."""
HEADERS = {"__pycache__", "include"}
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": "/muster:/packages", "HOME": "/"}


def build(directory: Path) -> Path:
    """Write the archive of the image with TensorFlow into the directory, and return it."""
    return _archive(directory, NAME, _layer(PACKAGES, NEEDED))


def build_python(directory: Path, name: str, modules: Sequence[Path] = ()) -> Path:
    """Write the archive of an image of this name into the directory, and return it.

    The image has Python alone, and the shared libraries of the system that `modules` load.
    """
    return _archive(directory, name, _layer((), (), modules))


def _archive(directory: Path, name: str, layer: bytes) -> Path:
    layout = oci.Layout(directory / "layout")
    config = {"config": {"Env": [f"{key}={value}" for key, value in _ENVIRONMENT.items()], "Cmd": ["python"]}}
    packed = gzip.compress(layer, compresslevel=1)
    layout.write_index({name: layout.add_image(config, [(oci.sha256(layer), packed)], compressed=True)})
    archive = directory / "training.oci.tar"
    with tarfile.open(archive, "w") as target:
        target.add(directory / "layout", arcname=".")
    return archive


def _layer(packages: Sequence[str], needed: Sequence[str], loading: Sequence[Path] = ()) -> bytes:
    buffer = io.BytesIO()
    interpreter = Path(sys.base_prefix)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        for name in ("tmp", "mnt", "proc", "sys", "dev", "etc"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            layer.addfile(entry)
        binary = interpreter / "bin" / version
        layer.add(binary, arcname=str(binary))
        _add_tree(layer, interpreter / "lib" / version, str(interpreter / "lib" / version))
        for package in packages:
            _add_tree(layer, ROOT / package, f"muster/{package}")
        for path, inside in _installed(needed):
            layer.add(path, arcname=f"packages/{inside}")
        for library in _libraries(binary, loading):
            layer.add(library.resolve(), arcname=str(library))
        _add_link(layer, "usr/local/bin/python", str(binary))
        _add_link(layer, "usr/local/bin/python3", str(binary))
        _add_link(layer, "netapp/scripts/run.py", "/muster/validation/workloads/resnet50/run.py")
    return buffer.getvalue()


def _add_tree(layer: tarfile.TarFile, path: Path, name: str) -> None:
    def keep(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if Path(entry.name).name in LEFT_OUT else entry

    layer.add(path, arcname=name, filter=keep)


def _add_link(layer: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    layer.addfile(entry)


def _installed(needed: Sequence[str]) -> Iterator[tuple[Path, str]]:
    """Yield the files of the required distributions, with their paths below site-packages."""
    waiting, seen = list(needed), set[str]()
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name in seen:
            continue
        seen.add(name)
        distribution = metadata.distribution(name)
        for line in distribution.requires or ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name)
        for file in distribution.files or ():
            inside = str(file)
            if not inside.startswith("..") and not HEADERS & set(file.parts[1:]):
                yield Path(str(distribution.locate_file(file))), inside


def _libraries(binary: Path, loading: Sequence[Path]) -> list[Path]:
    """Return the shared libraries of the system that the interpreter, its modules, TensorFlow and `loading` load."""
    packages = Path(sysconfig.get_paths()["platlib"])
    modules = (Path(sys.base_prefix) / "lib").rglob("lib-dynload/*.so")
    programs = [binary, *modules, *packages.glob("tensorflow/*.so*"), *packages.glob("*/*.so"), *loading]
    done = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False)
    words = {word for line in done.stdout.splitlines() for word in line.split() if word.startswith("/")}
    places = ("/lib", "/usr/lib", f"{sys.base_prefix}/lib/libpython")
    paths = (Path(word) for word in words if word.startswith(places))
    return sorted(path for path in paths if path.is_file())
