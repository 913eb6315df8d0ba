"""Guests of this test session. They are removed however it ends."""

import atexit
import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

from tests.deployment.hosts import bases, controllers, guests, stubs
from tests.deployment.hosts.guests import Guest
from tests.deployment.hosts.scenarios import SCENARIOS, Scenario, key
from tests.deployment.running import Result, play

collect_ignore = ["molecule"]  # Molecule runs these tests in the environment of a guest


@pytest.fixture(scope="session", autouse=True)
def _guests_end_with_the_session() -> Iterator[None]:
    missing = guests.missing()
    if missing:
        pytest.skip(missing)
    atexit.register(guests.sweep, os.getpid())
    yield
    guests.sweep(os.getpid())


Packages = Callable[[str], Path]


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    """Return the function that gives the folder with the repositories for an Ubuntu release."""

    @cache
    def packages(suite: str) -> Path:
        target = tmp_path_factory.mktemp(f"packages-{suite}")
        stubs.repository(target, bases.base(suite).packages)
        return target

    return packages


class Host:
    """A guest, and the site for it."""

    def __init__(self, guest: Guest, scenario: Scenario, folder: Path) -> None:
        self.guest = guest
        self.scenario = scenario
        self.folder = folder

    def play(
        self, *roles: str, part: str = "main", arguments: tuple[str, ...] = (), **changes: object
    ) -> Result:
        """Run roles, or one part of each; keywords change the site."""
        tasks = [
            {
                "name": f"Include {role}",
                "ansible.builtin.include_role": {"name": role, "tasks_from": part},
            }
            for role in roles
        ]
        one = {
            "hosts": "all",
            "gather_facts": False,
            "vars": self.scenario.variables | key(Path(self.guest.repository)) | changes,
            "tasks": tasks,
        }
        playbook = self.folder / "play.yml"
        playbook.write_text(yaml.safe_dump([one]))
        return self.run(playbook, *arguments)

    def run(self, playbook: Path, *arguments: str) -> Result:
        """Run a playbook on the guest."""
        inventory = self.folder / "inventory.yml"
        inventory.write_text(self.guest.inventory())
        programs = controllers.programs(self.scenario.ansible)
        return play(playbook, self.folder, "-i", str(inventory), *arguments, programs=programs)


Boot = Callable[[str], Host]


@pytest.fixture
def boot(packages: Packages, tmp_path: Path) -> Iterator[Boot]:
    """Yield the function that boots the host of a scenario, prepared or bare."""
    made: list[Guest] = []

    def boot(name: str) -> Host:
        scenario = SCENARIOS[name]
        guest = Guest(
            f"{name.replace('.', '-')}-{os.getpid()}",
            os.getpid(),
            repository=str(packages(scenario.suite)),
            gpus=scenario.gpus,
            product=scenario.product,
        )
        made.append(guest)
        guests.create(scenario.suite, guest)
        guest.run("apt-get", "update", "-qq", check=True)
        return Host(guest, scenario, tmp_path)

    yield boot
    for guest in made:
        guest.destroy()
