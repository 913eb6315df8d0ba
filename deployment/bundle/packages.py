"""Copies Debian packages with all dependencies into a partial mirror of their repositories.

The mirror has the index and the signature of the origin.

apt itself resolves the dependencies for a host without any installed package, so the packages are enough for every
host. The bundle stores the packages under their paths in the repository.
"""

import asyncio
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import unquote, urldefrag, urlsplit

from deployment.bundle.fetch import Fetcher
from deployment.bundle.manifest import File, Item
from deployment.errors import BundleError, FetchFailed

_SOURCE: Final = re.compile(
    r"deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<url>\S+)\s+(?P<suite>\S+)\s*(?P<components>.*)"
)
_CHOSEN: Final = re.compile(r"^'(?P<url>[^']+)' (?P<name>\S+) \d+ SHA256:(?P<sha256>[0-9a-f]{64})$")
_KEY: Final = re.compile(r"/\S+|[a-z]+://\S+#sha256=(?P<sha256>[0-9a-f]{64})")
_SUFFIXES: Final = (".xz", ".gz", "")
_SECONDS: Final = 300
_QUIET: Final = "; is apt-get there, and is the name right?"


@dataclass(frozen=True)
class Source:
    """One repository: its URL, its suite (`./` or a directory if it is flat), its components, and its key.

    `key` is a keyring of the host, or a URL with the digest of the key: `https://…/key.asc#sha256=…`.
    """

    url: str
    suite: str
    components: tuple[str, ...]
    key: str
    text: str = ""
    variable: str = ""

    @property
    def flat(self) -> bool:
        """Whether the repository is flat: its packages are in the directory of the index."""
        return self.suite.endswith("/")

    @property
    def base(self) -> str:
        """The URL of the directory of the suite's index."""
        return "/".join(part for part in (self.url.rstrip("/"), self.below) if part)

    @property
    def below(self) -> str:
        """The directory of the suite's index, relative to the repository's URL.

        Empty if the index is at the URL itself.
        """
        return self.suite.strip("./") if self.flat else f"dists/{self.suite}"

    @property
    def place(self) -> str:
        """Where a bundle keeps the repository, below the directory of its system."""
        parts = urlsplit(self.url)
        return f"{parts.netloc}{parts.path}".strip("/").replace(":", "_")

    @property
    def key_sha256(self) -> str:
        """The digest of a key that is fetched; empty for a keyring of the host."""
        match = _KEY.fullmatch(self.key)
        return (match and match["sha256"]) or ""

    def line(self, root: str, option: str) -> str:
        """Return the line of sources.list, with one option, for a copy of the repository below the directory `root`."""
        return f"deb [{option}] file:{root}/{self.place} {self.suite} {' '.join(self.components)}".rstrip()


def source(line: str) -> Source:
    """Read a line as in sources.list; `signed-by` may be a URL with a digest. Raises BundleError."""
    match = _SOURCE.fullmatch(line.strip())
    if match is None:
        raise BundleError(f"`{line}` is no line of a sources.list: deb [options] URL SUITE COMPONENTS")
    options = dict(option.partition("=")[::2] for option in (match["options"] or "").split())
    key = options.get("signed-by", "")
    if not _KEY.fullmatch(key):
        raise BundleError(
            f"`{line}` does not name its key. Write [signed-by=/usr/share/keyrings/NAME.gpg] for a "
            "keyring that the hosts have, or [signed-by=URL#sha256=DIGEST] for one that is fetched"
        )
    return Source(match["url"], match["suite"], tuple(match["components"].split()), key, line.strip())


@dataclass(frozen=True)
class PackageSet:
    """Packages for the hosts of one system.

    Each entry of `choices` lists the packages of one host as NAME or NAME=VERSION.
    """

    system: str
    sources: tuple[Source, ...]
    choices: tuple[tuple[str, ...], ...]


async def fetch(
    fetcher: Fetcher, package_set: PackageSet, architecture: str
) -> tuple[list[Item], list[FetchFailed]]:
    """Fetch the indices, then every package. A package that cannot be fetched does not stop the others."""
    directory = f"packages/{package_set.system}"
    items = [
        await _repository(fetcher, repository, directory, architecture) for repository in package_set.sources
    ]
    chosen: dict[str, tuple[str, str]] = {}
    failures: list[FetchFailed] = []
    for names in package_set.choices:
        try:
            chosen |= await asyncio.to_thread(_solve, fetcher.root, package_set, names, architecture)
        except FetchFailed as error:
            failures.append(error)
    tasks = [_package(fetcher, package_set, path, *entry) for path, entry in sorted(chosen.items())]
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, FetchFailed):
            failures.append(outcome)
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            items.append(outcome)
    return items, failures


def sources_list(repositories: Sequence[Source], directory: str, keys: Mapping[str, str]) -> str:
    """Return the sources.list for a copy of the repositories in `directory`; `keys` has the file of each key.

    Without the key of a repository, apt lists its packages but refuses to install them.
    """
    return "".join(
        repository.line(
            directory, f"signed-by={keys[repository.key]}" if repository.key in keys else "allow-insecure=yes"
        )
        + "\n"
        for repository in repositories
    )


async def _repository(fetcher: Fetcher, repository: Source, directory: str, architecture: str) -> Item:
    place = "/".join(part for part in (directory, repository.place, repository.below) if part)
    files = await _release(fetcher, repository, place)
    listed = _checksums((fetcher.root / files[0].path).read_text(errors="replace"))
    indices: list[str] = []
    for part in repository.components or ("",):
        paths = [f"{part}/binary-{one}/Packages" for one in (architecture, "all")] if part else ["Packages"]
        names = [next((name + end for end in _SUFFIXES if name + end in listed), "") for name in paths]
        if not any(names):
            raise FetchFailed(
                f"{repository.base}: the repository has no packages for {architecture} in `{part or '.'}`"
            )
        indices += filter(None, names)
    for name in indices:
        files.append(await fetcher.file(f"{repository.base}/{name}", f"{place}/{name}", sha256=listed[name]))
    if repository.key_sha256:
        path = f"{directory}/keys/{key_name(repository.key)}"
        url = urldefrag(repository.key).url
        files.append(await fetcher.file(url, path, sha256=repository.key_sha256))
    return Item(
        "apt-repository", repository.text, repository.suite, tuple(files), variable=repository.variable
    )


def key_files(repositories: Sequence[Source], directory: Path) -> dict[str, str]:
    """Return the file of each key, by key. `directory` is where a bundle or host keeps the system's repositories."""
    return {
        key: str(directory / "keys" / key_name(key)) if "://" in key else key
        for key in (repository.key for repository in repositories)
    }


def key_name(key: str) -> str:
    """Return the name of the file in which a bundle keeps a key, below `keys`.

    Example: `key_name("https://example.com:8443/repo/key")` returns `'example.com_8443-key.asc'`.
    """
    parts = urlsplit(key)
    name = PurePosixPath(parts.path).name
    suffix = "" if name.endswith((".gpg", ".asc")) else ".asc"
    return f"{parts.netloc.replace(':', '_')}-{name}{suffix}"


async def _release(fetcher: Fetcher, repository: Source, place: str) -> list[File]:
    try:
        return [await fetcher.file(f"{repository.base}/InRelease", f"{place}/InRelease", fresh=True)]
    except FetchFailed as first:
        try:
            release = await fetcher.file(f"{repository.base}/Release", f"{place}/Release", fresh=True)
        except FetchFailed:
            raise first from None
        return [
            release,
            await fetcher.file(f"{repository.base}/Release.gpg", f"{place}/Release.gpg", fresh=True),
        ]


def _checksums(release: str) -> dict[str, str]:
    """SHA-256 by name, from a Release file."""
    digests: dict[str, str] = {}
    inside = False
    for line in release.splitlines():
        if not line.startswith(" "):
            inside = line.strip() == "SHA256:"
        elif inside and len(words := line.split()) == 3:
            digests[words[2]] = words[0]
    return digests


def _solve(
    root: Path, package_set: PackageSet, names: tuple[str, ...], architecture: str
) -> dict[str, tuple[str, str]]:
    """Return the file name and the SHA-256 of each package that apt would install, by its path in the bundle."""
    directory = (root / "packages" / package_set.system).absolute()
    # Signatures are not checked here, because this machine may lack the keyrings of the hosts' system. apt
    # only lists the files to fetch. The digest of the bundle proves the files, and apt on the host checks the
    # signature before it installs them.
    keys = {
        key: path for key, path in key_files(package_set.sources, directory).items() if Path(path).is_file()
    }
    with tempfile.TemporaryDirectory(prefix="muster-apt-") as name:
        private = Path(name)
        options = private_apt(private, sources_list(package_set.sources, str(directory), keys), architecture)
        _apt([*options, "-qq", "update"], package_set)
        words = ["-qq", "--print-uris", "--no-install-recommends", "install", *names]
        return dict(_parse_uris(_apt([*options, *words], package_set), root))


def private_apt(private: Path, sources: str, architecture: str) -> list[str]:
    """Options by which apt-get ignores the sources, packages and settings of the machine on which it runs."""
    for directory in ("lists/partial", "cache/archives/partial", "empty"):
        (private / directory).mkdir(parents=True)
    (private / "status").touch()
    (private / "sources.list").write_text(sources)
    values = {
        "Dir::Etc": str(private / "empty"), "Dir::Etc::sourcelist": str(private / "sources.list"),
        "Dir::Etc::sourceparts": str(private / "empty"), "Dir::State": str(private),
        "Dir::State::lists": str(private / "lists"), "Dir::State::status": str(private / "status"),
        "Dir::Cache": str(private / "cache"), "APT::Architecture": architecture, "APT::Architectures": architecture,
        "APT::Sandbox::User": "", "Acquire::Languages": "none", "Acquire::ForceHash": "SHA256",
        "Acquire::Check-Valid-Until": "false", "APT::Update::Error-Mode": "any",
    }  # fmt: skip
    return [word for name, value in values.items() for word in ("-o", f"{name}={value}")]


def _apt(words: list[str], package_set: PackageSet) -> str:
    try:
        done = subprocess.run(
            ["apt-get", *words], capture_output=True, text=True, timeout=_SECONDS, check=False,
            stdin=subprocess.DEVNULL, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"},
        )  # fmt: skip
    except FileNotFoundError as error:
        raise BundleError(
            "apt-get is not installed: build the bundle on Ubuntu or Debian, any release"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise FetchFailed(f"packages of {package_set.system}: apt-get did not end in {_SECONDS} s") from error
    if done.returncode:
        message = (
            " ".join(line for line in done.stderr.splitlines() if line.startswith(("E:", "W:")))
            or done.stdout
        )
        raise FetchFailed(
            f"packages of {package_set.system}: {' '.join(message.split()) or 'apt-get failed' + _QUIET}"
        )
    return done.stdout


def _parse_uris(output: str, root: Path) -> Iterator[tuple[str, tuple[str, str]]]:
    for line in output.splitlines():
        match = _CHOSEN.match(line)
        if match is None:
            raise BundleError(f"the output of apt-get has an unknown format: {line}")
        path = Path(unquote(match["url"].removeprefix("file:")))
        yield str(path.relative_to(root.absolute())), (unquote(match["name"]), match["sha256"])


async def _package(fetcher: Fetcher, package_set: PackageSet, path: str, name: str, sha256: str) -> Item:
    below = path.removeprefix(f"packages/{package_set.system}/")
    origin = next(
        repository for repository in package_set.sources if below.startswith(repository.place + "/")
    )
    url = f"{origin.url.rstrip('/')}/{below.removeprefix(origin.place + '/')}"
    package, _, rest = name.removesuffix(".deb").partition("_")
    file = await fetcher.file(url, path, sha256=sha256)
    return Item("package", package, rest.rpartition("_")[0], (file,))
