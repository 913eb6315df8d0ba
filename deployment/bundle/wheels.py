"""The Python wheels of two locks: muster's own lock, and the lock of the environment in which DeepOps runs."""

import json
import re
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email import message_from_bytes
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urljoin

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import canonicalize_name, parse_wheel_filename

from deployment.bundle.fetch import Fetcher
from deployment.bundle.manifest import Item
from deployment.errors import BundleError, FetchFailed
from orchestrator.distribution import DISTRIBUTION

INDEX: Final = "https://pypi.org/simple"
DIRECTORY: Final = "wheels"
EXTRAS: Final = ("auth-provider", "deployment", "validation")
"""The extras that a controller needs to install a site, reach its cluster and validate it."""

_NEWEST_GLIBC: Final = 35
_ACCEPT: Final = "application/vnd.pypi.simple.v1+json, text/html;q=0.1"
_LICENCE_CHARACTERS: Final = 80
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True)
class Target:
    """The Python that the wheels are for: (3, 12) on x86_64 Linux, with glibc."""

    python: tuple[int, int]
    machine: str = "x86_64"

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment in which markers are evaluated."""
        version = ".".join(map(str, self.python))
        return {
            "python_version": version, "python_full_version": f"{version}.99", "sys_platform": "linux",
            "platform_system": "Linux", "platform_machine": self.machine, "os_name": "posix", "extra": "",
            "implementation_name": "cpython", "platform_python_implementation": "CPython", "platform_release": "",
            "platform_version": "", "implementation_version": f"{version}.99",
        }  # fmt: skip

    @property
    def tags(self) -> list[Tag]:
        """The tags of wheels that fit, the best first."""
        platforms = [f"manylinux_2_{minor}_{self.machine}" for minor in range(_NEWEST_GLIBC, 4, -1)]
        platforms += [f"manylinux{old}_{self.machine}" for old in ("2014", "2010", "1")] + [
            f"linux_{self.machine}"
        ]
        interpreter = "cp" + "".join(map(str, self.python))
        return [
            *cpython_tags(self.python, platforms=platforms),
            *compatible_tags(self.python, interpreter=interpreter, platforms=platforms),
        ]


@dataclass(frozen=True)
class Wheel:
    """One file of a lock. `url` is empty if it must be looked up in the package index."""

    name: str
    version: str
    sha256: tuple[str, ...]
    url: str = ""


def of_uv_lock(path: Path, target: Target) -> list[Wheel]:
    """Return the wheels that muster needs on a controller, by its own lock. Raises BundleError."""
    try:
        packages = tomllib.loads(path.read_text())["package"]
    except (OSError, ValueError, KeyError) as error:
        raise BundleError(f"{path}: the lock of muster cannot be read: {error}") from error
    by_name: dict[str, list[dict[str, Any]]] = {}
    for package in packages:
        by_name.setdefault(package["name"], []).append(package)
    root = by_name[DISTRIBUTION][0]
    waiting = [
        *root["dependencies"],
        *(dependency for extra in EXTRAS for dependency in root["optional-dependencies"][extra]),
    ]
    chosen: dict[tuple[str, str], dict[str, Any]] = {}
    done: set[tuple[str, str, str]] = set()
    while waiting:
        entry = waiting.pop()
        if "marker" in entry and not Marker(entry["marker"]).evaluate(target.environment):
            continue
        package = next(
            candidate
            for candidate in by_name[entry["name"]]
            if entry.get("version", candidate["version"]) == candidate["version"]
        )
        chosen[package["name"], package["version"]] = package
        for extra in ("", *entry.get("extra", ())):
            key = (package["name"], package["version"], extra)
            if key not in done:
                done.add(key)
                waiting += (
                    package.get("optional-dependencies", {}).get(extra, [])
                    if extra
                    else package.get("dependencies", [])
                )
    return [_of_lock(package, target) for _, package in sorted(chosen.items())]


def of_requirements(path: Path, target: Target) -> list[Wheel]:
    """Return the entries of a lock of the form `name==version --hash=sha256:…`. Raises BundleError with the line."""
    wheels = []
    try:
        lines = path.read_text().replace("\\\n", " ").splitlines()
    except OSError as error:
        raise BundleError(f"{path}: {error.strerror}") from error
    for number, line in enumerate(lines, 1):
        text, hashes = line.partition(" --hash")[0].partition(" #")[0].strip(), _HASH.findall(line)
        if not text or text.startswith("#"):
            continue
        requirement = Requirement(text)
        versions = [clause.version for clause in requirement.specifier if clause.operator == "=="]
        if not versions or not hashes:
            raise BundleError(f"{path}: entry {number}, `{text}`, has no == or no --hash=sha256")
        if requirement.marker is None or requirement.marker.evaluate(target.environment):
            wheels.append(Wheel(canonicalize_name(requirement.name), versions[0], tuple(hashes)))
    return wheels


async def fetch(fetcher: Fetcher, wheel: Wheel, target: Target) -> Item:
    """Fetch a wheel. Raises FetchFailed."""
    url, sha256 = wheel.url, wheel.sha256[0]
    if not url:
        url, sha256 = await _find_on_index(fetcher, wheel, target)
    name = unquote(urldefrag(url).url.rpartition("/")[2])
    file = await fetcher.file(url, f"{DIRECTORY}/{name}", sha256=sha256)
    return Item("wheel", wheel.name, wheel.version, (file,), licence=_licence(fetcher.root / file.path))


def _licence(path: Path) -> str:
    """Return the licence in a wheel's metadata.

    Empty if there is none, or if the field has the full text instead of a name.
    """
    if path.suffix != ".whl":
        return ""
    try:
        with zipfile.ZipFile(path) as archive:
            name = next(
                (member for member in archive.namelist() if member.endswith(".dist-info/METADATA")), ""
            )
            metadata = message_from_bytes(archive.read(name) if name else b"")
    except (OSError, zipfile.BadZipFile) as error:
        raise FetchFailed(f"{path}: it is no wheel: {error}") from error
    licence = str(metadata.get("License-Expression") or metadata.get("License") or "")
    return licence if 0 < len(licence) <= _LICENCE_CHARACTERS and "\n" not in licence else ""


def _of_lock(package: Mapping[str, Any], target: Target) -> Wheel:
    names = {wheel["url"].rpartition("/")[2]: wheel for wheel in package.get("wheels", [])}
    best = _best(names, target)
    entry = names[best] if best else package.get("sdist")
    if entry is None:
        raise BundleError(f"{package['name']} {package['version']} has no wheel for {target} and no source")
    return Wheel(package["name"], package["version"], (entry["hash"].removeprefix("sha256:"),), entry["url"])


def _best(names: Mapping[str, Any], target: Target) -> str:
    """Return the file whose tags fit best; empty if there is none."""
    ranks = {tag: rank for rank, tag in enumerate(target.tags)}
    fitting = [
        (min((ranks[tag] for tag in parse_wheel_filename(unquote(name))[3] if tag in ranks), default=-1), name)
        for name in names if name.endswith(".whl")
    ]  # fmt: skip
    return min((candidate for candidate in fitting if candidate[0] >= 0), default=(0, ""))[1]


async def _find_on_index(fetcher: Fetcher, wheel: Wheel, target: Target) -> tuple[str, str]:
    page = f"{INDEX}/{wheel.name}/"
    content, headers = await fetcher.text(page, {"Accept": _ACCEPT})
    files = dict(_index_entries(content, headers, page))
    ours = {name: entry for name, entry in files.items() if entry[1] in wheel.sha256}
    best = _best(ours, target) or next((name for name in ours if not name.endswith(".whl")), "")
    if not best:
        raise FetchFailed(
            f"{page}: no file of {wheel.name} {wheel.version} has a digest of the lock and fits {target}"
        )
    return ours[best]


def _index_entries(
    content: bytes, headers: Mapping[str, str], page: str
) -> Iterator[tuple[str, tuple[str, str]]]:
    if "json" in headers.get("Content-Type", ""):
        for file in json.loads(content)["files"]:
            yield file["filename"], (urljoin(page, file["url"]), file["hashes"].get("sha256", ""))
        return
    links = _Links()
    links.feed(content.decode(errors="replace"))
    for link in links.urls:
        url, fragment = urldefrag(urljoin(page, link))
        yield unquote(url.rpartition("/")[2]), (url, fragment.removeprefix("sha256="))


class _Links(HTMLParser):
    """The links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Add the link of an `a` element to `urls`."""
        self.urls += [value for name, value in attrs if tag == "a" and name == "href" and value]
