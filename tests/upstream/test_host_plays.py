"""kubespray's plays for hosts, run on Ubuntu 22.04 and 24.04, make only the changes that the plan announces.

`muster install` renders the site and runs kubespray; the test adds tags that leave out downloads from the internet.
Packages come from a folder. The test reads the changes from the guests' disks, which are layers over a shared disk.
"""

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from deployment.effects import effects
from tests.deployment.conftest import SiteUnderTest
from tests.deployment.hosts import bases, guests, stubs
from tests.deployment.hosts.guests import Guest
from tests.upstream.repository import Tree
from tests.upstream.stage import LOCAL_GIT, write_program

pytestmark = [
    pytest.mark.rare,
    pytest.mark.parametrize("source", ["trees"], indirect=True, scope="session"),
]

SUITES = {"cp01": ("jammy", "ubuntu-22.04"), "gpu01": ("noble", "ubuntu-24.04")}
TAGS = "bootstrap_os,preinstall,validate-container-engine"
FSTAB = "/dev/sda1 / ext4 defaults 0 1\n/swap.img none swap sw 0 0\n"
_PROGRAM = '#!/bin/sh\nexec {program} --tags {tags} "$@"\n'
_SYSCTL = """#!/bin/sh
# A guest may not set what is the machine's: what would be set is written down.
case "$*" in -n*|*" -n "*) exec /usr/sbin/sysctl "$@" ;; esac
for file; do :; done
[ ! -f "$file" ] || cat "$file" > /srv/sysctls
"""
KUBERNETES = (
    *(
        "/etc/kubernetes",
        "/etc/cni",
        "/opt/cni",
        "/usr/libexec/kubernetes",
        "/usr/local/bin",
        "/var/lib/calico",
    ),
    *("/etc/bash_completion.d", "/root/.ansible"),
)
"""Paths of Kubernetes itself, and of files that Ansible writes besides those of its modules."""

PACKAGES = (
    *(
        "/bin.usr-is-merged",
        "/etc/alternatives",
        "/etc/apparmor.d",
        "/etc/ca-certificates.conf",
        "/etc/ld.so.cache",
    ),
    *("/etc/pam.d/common-", "/etc/rc", "/etc/sgml", "/etc/ssl/certs", "/etc/xml", "/usr/lib/python3"),
    *("/usr/local/share", "/usr/share", "/var/cache", "/var/lib/PackageKit", "/var/lib/apt", "/var/lib/dpkg"),
    *("/var/lib/pam", "/var/lib/sgml-base", "/var/lib/xml-core"),
)
"""Paths that dpkg, apt and the scripts of packages write."""

RUNNING = ("/run", "/srv", "/tmp", "/var/log", "/var/tmp", "/var/lib/systemd")  # noqa: S108 - of a guest
"""Paths that a running system and the test write."""


@dataclass(frozen=True)
class State:
    """Everything on a host that kubespray could have changed."""

    files: dict[str, tuple[object, ...]]
    packages: frozenset[str]
    chosen: frozenset[str]
    """Packages that were installed by name. All others are dependencies."""
    units: dict[str, str]
    owned: frozenset[str]
    """The files of packages, with a second name below /usr because /bin and /lib may be links into /usr."""


def state_of(guest: Guest) -> State:
    """Return the state of a host. Its files are those that differ from the shared disk."""
    listed = guest.run("systemctl", "list-unit-files", "--no-legend", "--no-pager", check=True).stdout
    owned = guest.run("sh", "-c", "cat /var/lib/dpkg/info/*.list", check=True).stdout
    packages = guest.run("dpkg-query", "-W", "-f", "${db:Status-Abbrev} ${Package}\n", check=True).stdout
    return State(
        {f"/{path.relative_to(_upper(guest))}": _describe(path) for path in _walk(_upper(guest))},
        frozenset(line.split()[1] for line in packages.splitlines() if line.startswith("ii ")),
        frozenset(guest.run("apt-mark", "showmanual", check=True).stdout.split()),
        {line.split()[0]: line.split()[1] for line in listed.splitlines()},
        frozenset(name for line in owned.splitlines() for name in (line, f"/usr{line}")),
    )


def _upper(guest: Guest) -> Path:
    return guest.changes / "upper"


def _walk(folder: Path) -> Iterator[Path]:
    for directory, names, files in os.walk(folder):
        yield from (Path(directory) / name for name in [*names, *files])


def _describe(path: Path) -> tuple[object, ...]:
    status = path.lstat()
    content: str = ""
    if stat.S_ISLNK(status.st_mode):
        content = str(path.readlink())
    elif stat.S_ISREG(status.st_mode):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
    return status.st_mode, status.st_uid, status.st_gid, content


def surprises(before: State, after: State) -> list[str]:
    """Return the changed files that belong neither to packages nor to Kubernetes, and that no
    announced effect covers.
    """
    changed = {
        path
        for path in before.files.keys() | after.files.keys()
        if before.files.get(path) != after.files.get(path)
    }
    owned = before.owned | after.owned
    units = {Path(path).name for path in owned if "/systemd/" in path}
    return [
        path
        for path in sorted(changed - owned)
        if not path.startswith(KUBERNETES + PACKAGES + RUNNING)
        and not (".wants/" in path and Path(path).name in units)
        and not str(after.files.get(path, ("",))[-1]).startswith("/etc/alternatives/")
        and not any(effect.covers(path) for effect in effects())
        and not any(other.startswith(f"{path}/") for other in changed)
    ]


@dataclass(frozen=True)
class Done:
    """The guests, with their states before and after the stage."""

    guests: dict[str, Guest]
    before: dict[str, State]
    after: dict[str, State]
    output: str


@pytest.fixture(scope="module")
def done(tree: Tree, programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Done]:
    """Run kubespray on two bare guests, one of which runs Docker."""
    if missing := guests.missing():
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp("hosts")
    running: dict[str, Guest] = {}
    try:
        for name, (suite, _) in SUITES.items():
            running[name] = boot(f"kubespray-{name}-{os.getpid()}", suite, folder / suite)
        running["gpu01"].run("apt-get", "install", "-qq", "-y", "docker.io", check=True)
        before = {name: state_of(guest) for name, guest in running.items()}
        output = install(tree, running, programs, folder)
        after = {name: state_of(guest) for name, guest in running.items()}
        yield Done(running, before, after, output)
    finally:
        for guest in running.values():
            guest.destroy()


def boot(name: str, suite: str, folder: Path) -> Guest:
    """Boot a bare guest with swap in its /etc/fstab and a repository of packages to install."""
    repository = folder / "driver"
    shutil.copytree(bases.base(suite).packages, repository)
    stubs.index(repository)
    guest = Guest(name, os.getpid(), repository=str(folder))
    guests.create(suite, guest)
    guest.run("apt-get", "update", "-qq", check=True)
    guest.run("apt-get", "install", "-qq", "-y", "iputils-ping", check=True)
    (guest.disk / "etc/fstab").write_text(FSTAB)
    sysctl = guest.disk / "usr/local/sbin/sysctl"
    sysctl.write_text(_SYSCTL)
    sysctl.chmod(0o755)
    return guest


def install(tree: Tree, running: dict[str, Guest], programs: Path, folder: Path) -> str:
    """Run the stage deepops of a site with these guests. Return its error output."""
    site = SiteUnderTest(folder / "site", folder / "state")
    site.directory.mkdir()
    known = folder / "known_hosts"
    known.write_text("".join(guest.known_hosts.read_text() for guest in running.values()))
    document = {
        "schema": 1,
        "name": "here",
        "access": {"user": "root", "become": False, "known_hosts": str(known)},
        "hosts": {name: describe(name, guest) for name, guest in running.items()},
        "versions": {
            "kubernetes": "1.35.4",
            "deepops": tree.release,
            "dra": "off",
            "driver": "580",
            "container_toolkit": "1.19.1",
        },
        "deepops": {"repository": str(tree.path), "commit": tree.commit},
        "not_applicable": {"orchestrator": "nothing can run here"},
        # its network interface needs a kernel module, which a guest may not load
        "vars": {"deepops_extra_variables": {"enable_nodelocaldns": False}},
    }
    site.write(yaml.safe_dump(document))
    checkout = site.state / "here" / f"deepops-{tree.release}"
    program = _PROGRAM.format(program=programs / "ansible-playbook", tags=TAGS)
    write_program(checkout, tree.release, program)
    site.environment |= LOCAL_GIT
    return site.muster("install", "--from", "deepops", "--until", "deepops", "--accept-runtime-purge").stderr


def describe(name: str, guest: Guest) -> dict[str, object]:
    """Return the entry of a guest in the site file. The stages before deepops are not part of the test."""
    return {
        "address": "127.0.0.1",
        "port": guest.port,
        "os": SUITES[name][1],
        "model": "generic",
        "roles": ["control_plane", "etcd"] if name == "cp01" else ["gpu"],
        "connection_vars": {"ansible_ssh_private_key_file": str(guest.key_file)},
    }


def test_stages_without_a_download_came_to_their_end(done: Done) -> None:
    assert "DeepOps did not come to its end" in " ".join(done.output.split()), done.output
    for guest in done.guests.values():
        assert (guest.disk / "etc/fstab").read_text() == FSTAB.splitlines(keepends=True)[0]
        sysctls = (guest.disk / "srv/sysctls").read_text()
        assert "net.ipv4.ip_forward=1" in sysctls
        assert "vm.overcommit_memory=1" in sysctls


@pytest.mark.parametrize("name", SUITES)
def test_no_file_changes_beside_those_of_the_plan(done: Done, name: str) -> None:
    assert surprises(done.before[name], done.after[name]) == []


@pytest.mark.parametrize("name", SUITES)
def test_no_package_is_installed_or_removed_beside_those_of_the_plan(done: Done, name: str) -> None:
    before, after = done.before[name], done.after[name]
    listed = {package for effect in effects() for package in effect.packages}
    assert after.chosen - before.chosen <= listed
    assert {"conntrack", "ipvsadm", "socat"} <= after.chosen - before.chosen
    gone = {"docker.io", "containerd"} if name == "gpu01" else set()
    assert before.packages - after.packages == gone


@pytest.mark.parametrize("name", SUITES)
def test_no_unit_is_enabled_or_disabled_beside_those_of_the_plan(done: Done, name: str) -> None:
    before, after = done.before[name].units, done.after[name].units
    listed = {unit for effect in effects() for unit in effect.units}
    assert {unit for unit in before if before[unit] != after.get(unit)} <= listed
    assert after["swap.target"] == "masked"


def test_a_docker_that_runs_is_removed_with_all_its_data(done: Done) -> None:
    disk = done.guests["gpu01"].disk
    assert "/var/lib/docker" in done.before["gpu01"].files
    assert not (disk / "var/lib/docker").exists()
    assert not (disk / "etc/docker").exists()
