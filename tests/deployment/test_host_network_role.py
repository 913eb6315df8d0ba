"""The role host_network on hosts with programs of a test: its way back, and the refusals of preflight and verify.

Each host has a folder. Its `netplan` shows the interfaces of `after` once the file of muster is there, else those of
`before`. Its `systemd-run` runs the change at once, and no timer ever elapses.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deployment.running import ROOT, Result, play

PROGRAMS = {
    "ip": """\
case "$*" in
"-json -details address show") cat $HOST/links ;;
"-4 route show default") cat $HOST/routes ;;
esac
""",
    "netplan": """\
if [ -e $HOST/etc/netplan/90-muster.yaml ]; then
    [ ! -e $HOST/refusing ] || { echo eth1 is refused; exit 78; }
    cp $HOST/after $HOST/links
else
    [ ! -e $HOST/broken ] || exit 78
    cp $HOST/before $HOST/links
fi
""",
    "systemctl": """\
case "$*" in
*is-active*-return.timer) [ -e $HOST/timer ] ;;
*is-active*muster-roce.service) [ -e $HOST/lossless ] ;;
esac
""",
    "systemd-run": """\
cd $HOST/way-back
case "$*" in
*-return*)
    sed -i "s#/etc/netplan#$HOST/etc/netplan#g" change former
    touch $HOST/timer
    cp -r $HOST/way-back $HOST/copy ;;
*-apply*) sh $HOST/way-back/apply ;;
esac
""",
    # the vendor of the port eth1, which this machine does not have
    # the settings of its driver
    "ls": '[ "$*" != /sys/class/net/eth1/ecn/roce_np/enable/3 ] || exec [ ! -e $HOST/inbox ]\nexec /bin/ls "$@"\n',
    "cat": '[ "$*" != /sys/class/net/eth1/device/vendor ] || exec /bin/cat $HOST/vendor\nexec /bin/cat "$@"\n',
}
FACTS = {"os_family": "Debian", "pkg_mgr": "apt"}  # else each host learns them, in a second of processor time
NETWORKS = {"data": {"cidr": "10.77.0.0/24"}}
OTHERS = {"/etc/netplan/50-x.yaml": "network: {ethernets: {eth1: {dhcp4: true, optional: true}}}\n"}
INTERFACES: dict[str, Any] = {"eth1": {"network": "data", "address": "10.77.0.2", "mtu": 9000}}


def shown(mtu: int, *addresses: str) -> str:
    inet = [{"family": "inet", "local": each, "prefixlen": 24, "scope": "global"} for each in addresses]
    link = {"ifname": "eth1", "mtu": mtu, "flags": ["UP"], "operstate": "UP", "link_type": "ether"}
    return json.dumps([link | {"addr_info": inet}])


class Hosts:
    """Hosts with folders of their own on this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.inventory: dict[str, dict[str, Any]] = {}
        for name, text in PROGRAMS.items():
            path = folder / "programs" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(f'#!/bin/sh\n[ {name} = cat ] || echo {name} "$*" >> $HOST/calls\n{text}')
            path.chmod(0o755)

    def add(self, name: str, *marks: str, **variables: Any) -> Path:
        """Add a host with these files in its folder, and with variables of the role. Return its folder."""
        folder = self.folder / name
        (folder / "etc" / "netplan").mkdir(parents=True)
        for file, text in {
            "before": shown(1500),
            "links": shown(1500),
            "after": shown(9000, "10.77.0.2"),
        }.items():
            (folder / file).write_text(text)
        for mark in ("routes", "vendor", *marks):
            (folder / mark).touch()
        values = {"host_network_interfaces": INTERFACES, "host_network_networks": NETWORKS, "present": {}}
        self.inventory[name] = values | {"folder": str(folder)} | variables
        return folder

    def run(self, one: dict[str, Any]) -> Result:
        """Run a play on the hosts."""
        values = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        inventory = {"all": {"hosts": self.inventory, "vars": values}}
        (self.folder / "inventory.yml").write_text(yaml.safe_dump(inventory, sort_keys=False))
        path = f"{{{{ folder }}}}/bin:{self.folder / 'programs'}:{os.environ['PATH']}"
        added = {
            "hosts": "all",
            "gather_facts": False,
            "environment": {"HOST": "{{ folder }}", "PATH": path},
            "pre_tasks": [{"ansible.builtin.set_fact": FACTS | {"cacheable": True}}],
        }
        (self.folder / "play.yml").write_text(yaml.safe_dump([one | added]))
        own = {
            "__host_network_directory": "{{ folder }}/way-back",
            "__host_network_manager": "netplan",
            "__host_network_present": "{{ present }}",
            "__packages_record_path": "{{ folder }}/record.json",
        }
        return play(
            self.folder / "play.yml",
            self.folder,
            "-i",
            str(self.folder / "inventory.yml"),
            "-e",
            json.dumps(own),
        )

    def part(self, name: str) -> Result:
        """Run a part of the role on every host, whether or not it fails on others."""
        included = {"ansible.builtin.include_role": {"name": "host_network", "tasks_from": name}}
        ignored = [{"ansible.builtin.meta": "noop"}]
        return self.run({"tasks": [{"block": [included], "rescue": ignored}]})


def messages(result: Result, host: str) -> str:
    """Return the messages of the failed tasks of a host."""
    failed = [task for _, name, task in result.tasks if name == host and task.get("failed")]
    texts = [str(each) for task in failed for each in [task.get("msg"), *task.get("results", [])]]
    return "\n".join(texts)


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """Return the folder of hosts that the role has changed, or has not."""
    hosts = Hosts(tmp_path_factory.mktemp("hosts"))
    for name, marks in {
        "good": [],
        "refused": ["refusing"],
        "unrestored": ["refusing", "broken"],
    }.items():
        hosts.add(name, *marks, present=OTHERS if name == "good" else {})
    # left by an earlier change that the host took back
    earlier = hosts.folder / "good" / "way-back" / "applied"
    earlier.parent.mkdir()
    earlier.touch()
    return hosts.folder, hosts.part("configure")


def environment(folder: Path) -> dict[str, str]:
    return {"PATH": f"{folder.parent / 'programs'}:{os.environ['PATH']}", "HOST": str(folder)}


def calls(folder: Path) -> list[str]:
    return [each for each in (folder / "calls").read_text().splitlines() if not each.startswith("ip ")]


def test_a_change_is_confirmed_after_its_way_back_was_armed(changed: tuple[Path, Result]) -> None:
    folder, result = changed[0] / "good", changed[1]
    assert messages(result, "good") == ""
    units = [each for each in calls(folder) if "systemd-run" in each or "netplan" in each or "stop" in each]
    stop = "systemctl stop muster-host-network-return.timer"
    assert [each.partition(" --on-active")[0] for each in units] == [
        f"{stop} muster-host-network-apply.timer",
        "systemd-run --collect --unit=muster-host-network-return",
        "systemd-run --collect --unit=muster-host-network-apply",
        "netplan apply",
        stop,
    ]
    assert sorted(each.name for each in (folder / "copy").iterdir()) == [
        *("apply", "applying", "armed", "change", "former", "return"),
    ]
    written = folder / "etc" / "netplan" / "90-muster.yaml"
    assert yaml.safe_load(written.read_text())["network"]["ethernets"]["eth1"]["addresses"] == [
        "10.77.0.2/24"
    ]
    assert written.stat().st_mode & 0o777 == 0o600
    assert not (folder / "way-back").exists()
    recorded = json.loads((folder / "record.json").read_text())["more"]
    assert recorded == {"files": OTHERS, "links": {"eth1": 1500}}
    other = written.with_name("50-x.yaml")
    assert other.read_text() == "network: {ethernets: {eth1: {optional: true}}}\n"
    subprocess.run(["sh", folder / "copy" / "former"], env=environment(folder), check=True)
    assert {str(each): each.read_text() for each in written.parent.iterdir()} == {
        str(other): OTHERS[f"/etc/netplan/{other.name}"]
    }
    assert "ip link set dev eth1 mtu 1500" in (folder / "calls").read_text().splitlines()


def test_a_refused_change_is_taken_back_at_once(changed: tuple[Path, Result]) -> None:
    folder, result = changed[0] / "refused", changed[1]
    assert "It has restored its former network by itself" in messages(result, "refused")
    assert "(eth1 is refused)" in messages(result, "refused")
    assert not list((folder / "etc" / "netplan").iterdir())
    assert (folder / "links").read_text() == shown(1500)
    assert "apply.service" not in "\n".join(calls(folder))  # the change itself called the way back


def test_a_way_back_with_an_error_is_not_reported_as_restored(changed: tuple[Path, Result]) -> None:
    folder, result = changed[0] / "unrestored", changed[1]
    assert "A part of its former network could not be restored: read" in messages(result, "unrestored")
    assert "by itself" not in messages(result, "unrestored")
    assert not list((folder / "etc" / "netplan").iterdir())


@pytest.fixture
def host(changed: tuple[Path, Result]) -> Path:
    """Return the folder of a host whose change is written and armed, but not applied."""
    folder = changed[0] / "good"
    shutil.rmtree(folder / "way-back", ignore_errors=True)
    shutil.copytree(folder / "copy", folder / "way-back")
    (folder / "etc" / "netplan" / "90-muster.yaml").unlink(missing_ok=True)
    (folder / "timer").touch()
    (folder / "calls").write_text("")
    return folder


def sh(folder: Path, script: str) -> list[str]:
    """Run a script of the way back, and return the calls of programs until now."""
    subprocess.run(["sh", folder / "way-back" / script], env=environment(folder), check=True)
    return calls(folder)


STOPPED = "systemctl stop muster-host-network-apply.timer muster-host-network-apply.service"
ACTIVE = "systemctl is-active --quiet muster-host-network-return.timer"


def test_the_way_back_is_taken_once_and_ends_a_running_change(host: Path) -> None:
    assert sh(host, "apply") == [ACTIVE, "netplan apply"]
    assert (host / "way-back" / "applied").exists()
    assert sh(host, "return")[2:] == [STOPPED, "netplan apply"]
    assert (host / "way-back" / "restored").exists()
    assert sh(host, "return")[4:] == []


def test_nothing_is_applied_after_the_way_back(host: Path) -> None:
    sh(host, "return")
    assert sh(host, "apply").count("netplan apply") == 1  # the way back
    assert (host / "links").read_text() == shown(1500)
    assert not (host / "etc" / "netplan" / "90-muster.yaml").exists()


def test_a_confirmed_change_is_not_taken_back(host: Path) -> None:
    sh(host, "apply")
    (host / "way-back" / "armed").rename(host / "way-back" / "confirmed")
    assert sh(host, "return") == [ACTIVE, "netplan apply"]
    assert (host / "etc" / "netplan" / "90-muster.yaml").exists()


def test_a_change_whose_timer_does_not_run_is_not_applied(host: Path) -> None:
    (host / "timer").unlink()
    assert sh(host, "apply") == [ACTIVE]
    assert not (host / "way-back" / "applied").exists()


def playbook() -> dict[str, Any]:
    """Return the keywords of the play for host networks, without its role."""
    (one, _) = yaml.safe_load((ROOT / "playbooks" / "host_network.yml").read_text())
    return {key: value for key, value in one.items() if key != "roles"}


def test_a_host_is_confirmed_while_another_does_not_answer(tmp_path: Path) -> None:
    hosts = Hosts(tmp_path)
    ssh = tmp_path / "ssh"
    ssh.write_text(f"""#!/bin/sh
case "$*" in *-O*) exit 0 ;; esac
for last; do :; done
second=0
while [ -e {tmp_path}/good/way-back ]; do
    [ $second -lt 120 ] || {{ touch {tmp_path}/good-waits; break; }}
    second=$((second + 1))
    sleep 1
done
exec sh -c "$last"
""")
    ssh.chmod(0o755)
    silent = {"ansible_connection": "ssh", "ansible_ssh_executable": str(ssh), "ansible_pipelining": True}
    for name in ("first", "good", "silent"):
        folder = hosts.add(name, **(silent if name == "silent" else {})) / "way-back"
        folder.mkdir()
        for mark in ("armed", "applied"):
            (folder / mark).touch()
    expected: dict[str, Any] = {"__host_network_expected": {}}
    included = {
        "ansible.builtin.include_role": {"name": "host_network", "tasks_from": "confirm"},
        "vars": expected,
    }
    result = hosts.run(playbook() | {"tasks": [included]})
    assert result.code == 0, result.output
    assert not (tmp_path / "good-waits").exists()
    forks = (ROOT / "deployment" / "data" / "ansible.cfg").read_text()
    assert f"forks = {playbook()['serial'][-1]}\n" in forks


def test_no_host_begins_after_another_has_failed(tmp_path: Path) -> None:
    configure = yaml.safe_load((ROOT / "roles" / "host_network" / "tasks" / "configure.yml").read_text())
    assert configure[0]["ansible.builtin.import_tasks"] == "begin.yml"
    hosts = Hosts(tmp_path)
    good, bad, last = (hosts.add(name) for name in ("good", "bad", "last"))
    (bad / "links").unlink()
    tasks = [
        {"ansible.builtin.include_role": {"name": "host_network", "tasks_from": "begin"}},
        {"ansible.builtin.command": "ip -json -details address show"},
    ]
    result = hosts.run(playbook() | {"serial": 2, "tasks": tasks})
    assert result.code != 0
    assert [(each / "calls").exists() for each in (good, bad, last)] == [True, True, False]


BROKEN = {"present": {"/etc/netplan/50-x.yaml": "network: {ethernets: {all: {match: {name: 'eth*'}}}}\n"}}
ROCE = {"eth1": INTERFACES["eth1"] | {"roce": True}}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "unknown": (
        {"host_network_interfaces": {"eth9": {"mtu": 9000}}},
        "unknown has no eth9: name in hosts.unknown",
    ),
    "broken": (BROKEN, "/etc/netplan/50-x.yaml:1: `all` is also for eth1"),
    "loopback": (
        {"host_network_interfaces": {"eth1": {"parent": "eth2", "vlan": 7}}},
        "eth1 is an interface of the",
    ),
    "hasty": ({"host_network_seconds": 29}, "host_network_seconds is 29: set it to at least 30"),
    "vendor": ({"host_network_interfaces": ROCE}, "eth1 is no NIC of NVIDIA"),
    "tool": ({"host_network_interfaces": ROCE}, "has no mlnx_qos"),
    "inbox": ({"host_network_interfaces": ROCE}, "the driver of eth1 has no settings of ECN"),
    "ready": ({"host_network_interfaces": ROCE}, ""),
}


def test_preflight_refuses_interfaces_that_the_role_cannot_configure(tmp_path: Path) -> None:
    hosts = Hosts(tmp_path)
    for name, (variables, _) in REFUSED.items():
        folder = hosts.add(name, **variables)
        (folder / "vendor").write_text("0x8086\n" if name == "vendor" else "0x15b3\n")
        if name == "inbox":
            (folder / "inbox").touch()
        if name != "tool":
            (folder / "bin").mkdir()
            (folder / "bin" / "mlnx_qos").write_text("#!/bin/sh\n")
            (folder / "bin" / "mlnx_qos").chmod(0o755)
    result = hosts.part("preflight")
    for name, (_, says) in REFUSED.items():
        assert says in messages(result, name)
        assert bool(says) == bool(messages(result, name)), messages(result, name)


def test_verify_names_each_difference_from_the_site(tmp_path: Path) -> None:
    hosts = Hosts(tmp_path)
    wrong = {
        "mtu": "eth1 has the MTU 1500, not 9000",
        "dead": "eth1 has no link",
        "lossy": "RoCE is not lossless",
    }
    for name in (*wrong, "right"):
        folder = hosts.add(name, *([] if name == "lossy" else ["lossless"]), host_network_interfaces=ROCE)
        whole = shown(9000, "10.77.0.2")
        links = {
            "mtu": shown(1500, "10.77.0.2"),
            "dead": whole.replace('"operstate": "UP"', '"operstate": "DOWN"'),
        }
        (folder / "links").write_text(links.get(name, whole))
    result = hosts.part("verify")
    for name, says in wrong.items():
        assert f"{name}: {says}" in messages(result, name)
    assert messages(result, "right") == ""
