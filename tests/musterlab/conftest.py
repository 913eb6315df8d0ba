"""A double of `go` as a program, the real command line, and waiting for a condition."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from musterlab.build import CONTROL_PLANE
from musterlab.cluster import Lab, start
from tests.cluster.waiting import poll

FAKE_GO = r"""#!/bin/sh
case "$1" in
env) echo "${FAKE_GO_VERSION:-go1.26.8}" ;;
list) printf 'one\ntwo\nthree\n' ;;
build)
    echo run >>"$FAKE_GO_RUNS"
    printf 'example.org/one\nexample.org/two\n' >&2
    if [ -n "$FAKE_GO_WAITS_FOR" ]; then cat "$FAKE_GO_WAITS_FOR"; fi
    if [ -n "$FAKE_GO_SAYS" ]; then echo "$FAKE_GO_SAYS" >&2; exit 1; fi
    while [ "$1" != -o ]; do shift; done
    for program in ${FAKE_GO_PROGRAMS:-server kube-apiserver kube-controller-manager kubectl kwok}; do
        printf '#!/bin/sh\necho containerd v2.2.2\n' >"$2$program"
        chmod +x "$2$program"
    done ;;
esac
"""

COMMAND = [sys.executable, "-c", "from musterlab.command import lab; lab(prog_name='muster lab')"]


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool], str], None]:
    return poll


def processes_naming(directory: Path) -> list[str]:
    """Return command lines of running processes that contain the directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if str(directory) in text and path.parent.name != str(os.getpid()):
            found.append(text)
    return found


@pytest.fixture
def processes_of() -> Callable[[Path], list[str]]:
    return processes_naming


def write_programs(directory: Path, names: tuple[str, ...] = CONTROL_PLANE.programs) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        (directory / name).write_text("#!/bin/sh\nexit 1\n")
        (directory / name).chmod(0o755)
    return directory


@pytest.fixture
def programs_in() -> Callable[..., Path]:
    return write_programs


class World:
    """Directories of a machine without a lab, and the environment that names them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cache = root / "cache"
        self.state = root / "state"
        self.tools = root / "tools"
        self.runs = root / "runs"
        self.tools.mkdir()
        self.environment = {
            "HOME": str(root),
            "PATH": f"{self.tools}:/usr/bin:/bin",
            "MUSTER_LAB_ARCHIVES": "none",
            "XDG_CACHE_HOME": str(self.cache),
            "XDG_STATE_HOME": str(self.state),
            "FAKE_GO_RUNS": str(self.runs),
        }

    def install_go(self) -> None:
        (self.tools / "go").write_text(FAKE_GO)
        (self.tools / "go").chmod(0o755)

    def builds(self) -> int:
        return len(self.runs.read_text().splitlines()) if self.runs.exists() else 0

    def cached(self) -> list[str]:
        directory = self.cache / "muster" / "lab"
        return sorted(path.name for path in directory.glob("*") if path.suffix != ".lock")

    def labs(self) -> list[Path]:
        return list((self.state / "muster" / "labs").glob("*"))

    def spawn(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*COMMAND, *arguments],
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def lab(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *arguments],
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def command(
    *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )


@pytest.fixture
def muster_lab() -> Callable[..., subprocess.CompletedProcess[str]]:
    return command


@pytest.fixture(scope="module")
def running_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Yield a lab of two DGX-1 that tests share. They leave no pods in it."""
    lab = start("shared", nodes=2, detach=True, state_dir=tmp_path_factory.mktemp("labs"))
    yield lab
    lab.stop()
