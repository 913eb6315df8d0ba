"""The guests themselves: the next test removes the remains of a killed test on this machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deployment.hosts import guests
from tests.deployment.hosts.conftest import Boot
from tests.deployment.hosts.scenarios import SCENARIOS
from tests.deployment.hosts.test_molecule import surroundings
from tests.deployment.running import ROOT

pytestmark = pytest.mark.installer


def test_a_guest_whose_owner_was_killed_is_removed_by_the_next_one(boot: Boot, tmp_path: Path) -> None:
    name = f"left-{os.getpid()}"
    before = surroundings(name)
    with subprocess.Popen(["sleep", "600"]) as owner:
        create = [sys.executable, "-m", guests.__name__, "create", SCENARIOS["ubuntu-24.04"].suite, name]
        where = [f"--owner={owner.pid}", f"--inventory={tmp_path / 'inventory.yml'}"]
        subprocess.run([*create, *where], cwd=ROOT, check=True)
        assert surroundings(name)["mounts"] > before["mounts"]
        assert surroundings(name)["processes"]
        owner.kill()
    boot("ubuntu-24.04")
    assert surroundings(name) == before
    assert list(guests.folder().glob(f"*{name}*")) == []
