"""Every scenario through Molecule: create, prepare, check, converge, idempotence, verify, destroy."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from tests.deployment.hosts import bases, controllers, guests
from tests.deployment.hosts.scenarios import SCENARIOS, key
from tests.deployment.running import ROOT, inherited
from tests.deployment.test_run import until

pytestmark = pytest.mark.installer
HERE = Path(__file__).parent


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_bare_host_becomes_the_host_of_its_site(
    name: str, packages: Callable[[str], Path], tmp_path: Path
) -> None:
    scenario = SCENARIOS[name]
    variables = tmp_path / "variables.yml"
    variables.write_text(yaml.safe_dump(scenario.variables | key(packages(scenario.suite))))
    changes = tmp_path / "changes"
    programs = controllers.programs(scenario.ansible)
    guest = f"molecule-{name.replace('.', '-')}-{os.getpid()}"
    before = surroundings(guest)
    environment = {
        "GUEST_NAME": guest,
        "GUEST_SUITE": scenario.suite,
        "GUEST_GPUS": ",".join(scenario.gpus),
        "GUEST_OWNER": str(os.getpid()),
        "GUEST_PACKAGES": str(packages(scenario.suite)),
        "GUEST_PYTHON": sys.executable,
        "GUEST_VARIABLES": str(variables),
        "GUEST_CHANGES": str(changes),
        "MUSTER_ROLES": str(ROOT / "roles"),
        "MUSTER_ROOT": str(ROOT),
        "MOLECULE_EPHEMERAL_DIRECTORY": str(tmp_path / "molecule"),
        "ANSIBLE_HOME": str(tmp_path / "ansible-home"),
        "NO_COLOR": "1",
        "PATH": f"{programs}:{os.environ['PATH']}",
    }
    finished = subprocess.run(
        [str(programs / "molecule"), "test", "--scenario-name", name],
        cwd=HERE,
        env=inherited() | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout[-6000:]
    lines = [json.loads(line) for line in changes.read_text().splitlines()]
    predicted = [each["task"] for each in lines if each["check"]]
    done = [each["task"] for each in lines if not each["check"]]
    assert predicted
    assert predicted == done, (
        "the check tells what the first run will change, and the second run changes nothing"
    )
    until(lambda: surroundings(guest) == before, seconds=30)  # shorter than ssh keeps a connection open
    assert list(guests.folder().glob(f"*{guest}*")) == []


def surroundings(guest: str) -> dict[str, set[str]]:
    """Return the things that a guest could leave on this machine: mounts, interfaces, and processes that contain its
    name.

    Other tests may run guests and make root file systems at the same time, with mounts below two folders.
    """
    mounts = {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    others = {
        mount
        for mount in mounts
        if Path(mount).is_relative_to(bases.cache())
        or (Path(mount).is_relative_to(guests.folder()) and guest not in mount)
    }
    return {
        "mounts": mounts - others,
        "interfaces": {path.name for path in Path("/sys/class/net").iterdir()},
        "processes": {repr(line) for line in _command_lines() if guest.encode() in line},
    }


def _command_lines() -> Iterator[bytes]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(FileNotFoundError, ProcessLookupError):
            yield path.read_bytes()
