"""Builds programs from the Go module proxy, as `go.mod` and `go.sum` pin them.

There are six sets here:

- the control plane
- the control planes of the lowest and the newest Kubernetes for muster
- the programs of real nodes
- Kubernetes' own scheduler, for comparison
- an ingress controller

`musterlab.gpus` has two more, `musterlab.storage` one. All but the first are built only when they are needed.

The lowest and the newest Kubernetes, containerd, Traefik and the storage's sidecars have their own modules. So their
dependencies do not change those of Kubernetes.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import selectors
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from musterlab import pdeathsig_exec
from musterlab.errors import BinariesError, StateError
from orchestrator.names import LOWEST_KUBERNETES
from orchestrator.progress import Reporter

MINIMUM_GO = (1, 26)

_MODULE = Path(__file__).parent
_VERSION = "k8s.io/component-base/version"


def _flags(kubernetes: str) -> tuple[str, ...]:
    """Return the flags of `go build` for programs of this release of Kubernetes, without the v."""
    major, minor, _ = kubernetes.split(".")
    version = f"-X {_VERSION}.gitVersion=v{kubernetes} -X {_VERSION}.gitMajor={major} -X {_VERSION}.gitMinor={minor}"
    return ("-trimpath", "-ldflags", f"-s -w {version}")


_FLAGS = _flags("1.36.3")
NEWEST_KUBERNETES = "1.37.2"
_CONTAINERD_VERSION = "github.com/containerd/containerd/v2/version.Version"
_CONTAINERD_FLAGS = ("-trimpath", "-ldflags", f"-s -w -X {_CONTAINERD_VERSION}=v2.2.2")
_ENVIRONMENT = {"CGO_ENABLED": "0", "GOGC": "off", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
_INSTALL_GO = "install Go 1.26 or newer (https://go.dev/dl), or point KUBEBUILDER_ASSETS at the programs"
_TICK_SECONDS = 0.25
_MAX_LINES = 40

_CAUSES: tuple[tuple[str, str], ...] = (
    (
        r"no space left on device",
        "the disk is full: the build needs 5 GiB in Go's caches and the cache directory",
    ),
    (r"requires go >= |toolchain not available", "Go is too old; " + _INSTALL_GO),
    (
        r"dial tcp|no such host|i/o timeout|connection refused|proxyconnect|unreachable|lookup disabled",
        "the Go module proxy cannot be reached: check the network and GOPROXY",
    ),
    (
        r"C compiler .* not found",
        "there is no C compiler, which NVIDIA's device plugin needs (Debian: gcc and libc6-dev)",
    ),
    (
        r"SECURITY ERROR|checksum mismatch",
        "a module differs from its checksum in go.sum: do not use this proxy",
    ),
    (r"signal: killed|cannot allocate memory", "the compiler ran out of memory: the build needs 5 GiB"),
)


class Buildable(Protocol):
    """The inputs of a recipe."""

    def identity(self) -> bytes:
        """Return everything that determines the programs."""

    def build(self, workspace: Path, output: Path, go: "Go", reporter: Reporter) -> int:
        """Build into `output`; `workspace` is an empty directory. Returns how many packages were compiled."""


@dataclass(frozen=True)
class Part:
    """Packages of one Go module. The package name `tool` stands for all tools in its go.mod."""

    module: Path
    packages: tuple[str, ...]
    flags: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)

    def identity(self) -> bytes:
        """Return the pinned files, flags and environment."""
        pinned = b"".join((self.module / name).read_bytes() + b"\0" for name in ("go.mod", "go.sum"))
        return pinned + repr((self.flags, sorted({**_ENVIRONMENT, **self.environment}.items()))).encode()

    def build(self, workspace: Path, output: Path, go: "Go", reporter: Reporter) -> int:
        """Build from a copy of the module."""
        for name in ("go.mod", "go.sum"):
            shutil.copyfile(self.module / name, workspace / name)
        inside = Go(go.program, workspace, self.environment)
        inside.check_version()
        return inside.build(self.packages, self.flags, output, reporter)


@dataclass(frozen=True)
class Recipe:
    """A set of programs that belong together. Its directory in the cache has a name that begins with `prefix`.

    With `only_built`, programs of the machine are not used, because the version matters.
    """

    subject: str
    prefix: str
    programs: tuple[str, ...]
    parts: tuple[Buildable, ...]
    minutes: str
    only_built: bool = False


CONTROL_PLANE = Recipe(
    subject="the control plane",
    prefix="",
    programs=("etcd", "kube-apiserver", "kube-controller-manager", "kubectl", "kwok"),
    parts=(Part(_MODULE, ("tool",), _FLAGS),),
    minutes="about 10 minutes",
)
LOWEST_CONTROL_PLANE = Recipe(
    subject="the control plane of the lowest Kubernetes that muster runs with",
    prefix="lowest-",
    programs=CONTROL_PLANE.programs,
    parts=(
        Part(_MODULE / "lowest", ("tool",), _flags(LOWEST_KUBERNETES)),
        Part(
            _MODULE,
            ("go.etcd.io/etcd/server/v3", "k8s.io/kubernetes/cmd/kubectl", "sigs.k8s.io/kwok/cmd/kwok"),
            _FLAGS,
        ),
    ),
    minutes="5 to 30 minutes",
    only_built=True,
)
NEWEST_CONTROL_PLANE = Recipe(
    subject="the control plane of the newest Kubernetes",
    prefix="newest-",
    programs=CONTROL_PLANE.programs,
    parts=(
        Part(_MODULE / "newest", ("tool",), _flags(NEWEST_KUBERNETES)),
        Part(_MODULE, ("go.etcd.io/etcd/server/v3", "sigs.k8s.io/kwok/cmd/kwok"), _FLAGS),
    ),
    minutes="5 to 30 minutes",
    only_built=True,
)
REAL_NODES = Recipe(
    subject="kubelet and containerd",
    prefix="nodes-",
    programs=("containerd", "containerd-shim-runc-v2", "kubelet"),
    parts=(
        Part(_MODULE, ("k8s.io/kubernetes/cmd/kubelet",), _FLAGS),
        Part(_MODULE / "containerd", ("tool",), _CONTAINERD_FLAGS),
    ),
    minutes="2 to 8 minutes",
)

KUBE_SCHEDULER = Recipe(
    subject="kube-scheduler",
    prefix="scheduler-",
    programs=("kube-scheduler",),
    parts=(Part(_MODULE, ("k8s.io/kubernetes/cmd/kube-scheduler",), _FLAGS),),
    minutes="1 to 8 minutes",
)

INGRESS_CONTROLLER = Recipe(
    subject="Traefik",
    prefix="ingress-",
    programs=("traefik",),
    parts=(Part(_MODULE / "traefik", ("tool",), ("-trimpath", "-ldflags", "-s -w")),),
    minutes="5 to 30 minutes",
)


class BuildUnavailable(BinariesError):
    """This machine cannot build: there is no Go, or it is too old."""


def cache_key(recipe: Recipe = CONTROL_PLANE) -> str:
    """Return the name of the recipe's directory in the cache: a hash of everything that determines the programs."""
    digest = hashlib.sha256()
    for part in recipe.parts:
        digest.update(part.identity())
    return recipe.prefix + digest.hexdigest()[:16]


def build(target: Path, reporter: Reporter, recipe: Recipe = CONTROL_PLANE) -> None:
    """Build all programs in a temporary directory, and rename it to `target` at the end. If another build was faster,
    do nothing.

    Raises:
        BuildUnavailable: there is no Go, or it is too old.
        BinariesError: the build failed; the message names a known cause.
        StateError: the cache directory cannot be written.
    """
    go = shutil.which("go")
    if go is None:
        raise BuildUnavailable(f"there is no 'go' on PATH; {_INSTALL_GO}")
    fill_once(target, reporter, lambda partial: _build_into(partial, go, reporter, recipe))


def fill_once(target: Path, reporter: Reporter, fill: Callable[[Path], None]) -> None:
    """Move the directory `bin` that `fill` writes to `target`, unless another process was faster.

    Raises BinariesError if the disk is full, StateError if the cache directory cannot be written.
    """
    partial = target.with_name(f"{target.name}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _locked(target.with_name(f"{target.name}.lock"), reporter):
            if target.is_dir():
                return
            shutil.rmtree(partial, ignore_errors=True)
            try:
                fill(partial)
                (partial / "bin").rename(target)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise BinariesError(f"the disk of {target.parent} is full: the build needs 5 GiB") from error
        raise StateError(
            f"the cache directory {target.parent} cannot be written ({error.strerror}): "
            "set XDG_CACHE_HOME to a directory that can"
        ) from error


@contextlib.contextmanager
def _locked(path: Path, reporter: Reporter) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            reporter("waiting for another build of the same programs")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build_into(partial: Path, program: str, reporter: Reporter, recipe: Recipe) -> None:
    output = partial / "bin"
    output.mkdir(parents=True, mode=0o700)
    go = Go(program, partial)
    go.check_version()
    reporter(f"building {recipe.subject}, once: {recipe.minutes} on 2 cores")
    done = 0
    for number, part in enumerate(recipe.parts):
        workspace = partial / f"part-{number}"
        workspace.mkdir()
        done += part.build(workspace, output, go, reporter)
    if (output / "server").exists():  # Go names etcd's program after its directory, which is `server`
        (output / "server").rename(output / "etcd")
    reporter(f"built {len(recipe.programs)} programs, {done} packages compiled")


@dataclass(frozen=True)
class Go:
    """The program `go`, run in `directory` with additional variables of the environment."""

    program: str
    directory: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def build(
        self, packages: tuple[str, ...], flags: tuple[str, ...], output: Path, reporter: Reporter
    ) -> int:
        """Build packages into the directory `output`, or a single package as the file `output`.

        Returns how many packages were compiled. Raises BinariesError if it fails.
        """
        downloads = 0

        def downloading(line: str) -> None:
            nonlocal downloads
            downloads += line.startswith("go: downloading")
            reporter.update(f"resolving modules: {downloads} downloaded")

        listed = self._run(["list", "-deps", *packages], downloading)
        total = sum(1 for line in listed if line)
        done = 0

        def compiling(line: str) -> None:
            nonlocal done
            done += bool(re.fullmatch(r"[A-Za-z0-9._~/+-]+", line))
            reporter.update(f"compiled {done} of at most {total} packages")

        target = f"{output}/" if output.is_dir() else str(output)
        self._run(["build", "-v", *flags, "-o", target, *packages], compiling)
        return done

    def module_folder(self, module: str) -> Path:
        """Return the directory with the sources of a module of the build list. Raises BinariesError."""
        lines = self._run(["list", "-m", "-f", "{{.Dir}}", module], lambda _line: None)
        return Path(lines[0])

    def check_version(self) -> None:
        """Raise BuildUnavailable if this Go is too old."""
        lines = self._run(["env", "GOVERSION"], lambda _line: None)
        version = lines[-1] if lines else ""
        match = re.match(r"go(\d+)\.(\d+)", version)
        if match is None or (int(match[1]), int(match[2])) < MINIMUM_GO:
            raise BuildUnavailable(
                f"{self.program} is {version or 'of unknown version'}, too old; {_INSTALL_GO}"
            )

    def _run(self, arguments: list[str], on_line: Callable[[str], None]) -> list[str]:
        environment = {**os.environ, **_ENVIRONMENT, **self.environment}
        return _run([self.program, *arguments], self.directory, environment, on_line)


def _run(
    command: list[str], directory: Path, environment: Mapping[str, str], on_line: Callable[[str], None]
) -> list[str]:
    """Run Go and return the lines of its output.

    `on_line` gets each line of stderr, and "" regularly while Go is silent.

    Raises:
        BuildUnavailable: Go is too old for the module.
        BinariesError: it failed.
    """
    command_line = [sys.executable, "-I", "-S", str(pdeathsig_exec.__file__), str(os.getpid()), *command]
    process = subprocess.Popen(
        command_line, cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    with process:
        try:
            output, messages = _drain(process, on_line)
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise _failure(command, messages)
    return output


def _drain(process: "subprocess.Popen[bytes]", on_line: Callable[[str], None]) -> tuple[list[str], list[str]]:
    output: list[str] = []
    messages: deque[str] = deque(maxlen=_MAX_LINES)
    rests = {"output": b"", "messages": b""}
    with selectors.DefaultSelector() as selector:
        for name, pipe in (("output", process.stdout), ("messages", process.stderr)):
            assert pipe is not None  # noqa: S101 - asked for by PIPE
            selector.register(pipe, selectors.EVENT_READ, name)
        ticked = time.monotonic()
        while selector.get_map():
            for key, _ in selector.select(_TICK_SECONDS):
                chunk = os.read(key.fd, 65536)
                if not chunk:
                    selector.unregister(key.fileobj)
                *lines, rests[key.data] = (rests[key.data] + chunk).split(b"\n")
                for line in lines:
                    text = line.decode(errors="replace")
                    if key.data == "output":
                        output.append(text)
                    else:
                        messages.append(text)
                        on_line(text)
            if time.monotonic() - ticked >= _TICK_SECONDS:
                ticked = time.monotonic()
                on_line("")
    if rests["messages"]:
        messages.append(rests["messages"].decode(errors="replace"))
    return output, list(messages)


def _failure(command: list[str], messages: list[str]) -> BinariesError:
    text = "\n".join(messages)
    last = next((line.strip() for line in reversed(messages) if line.strip()), "no message")
    for pattern, cause in _CAUSES:
        match = re.search(f"[^\n]*({pattern})[^\n]*", text)
        if match:
            kind = BuildUnavailable if cause.startswith("Go is too old") else BinariesError
            return kind(f"{cause} ('go {command[1]}' says: {match[0].strip()})")
    return BinariesError(f"'go {' '.join(command[1:3])}' failed: {last}")
