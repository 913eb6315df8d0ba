"""`muster validate --site` on real OpenSSH servers, whose programs print recorded output of the tools of hosts."""

import contextlib
import dataclasses
import io
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.cli.main import main
from tests.control.operators import MUSTER
from tests.deployment.sshd import Sshd, sshd
from tests.validation.host_defects import XID, without_a_gpu
from tests.validation.host_doubles import NAMES, outputs
from tests.validation.replay import assert_second_judge_agrees, run_pytest
from validation.judge.events import ToolRan
from validation.layers.tools import TOOLS
from validation.report import log, record
from validation.report.assemble import rejudge
from validation.report.redact import redact
from validation.report.verify import verify
from validation.run.session import Settings
from validation.scenario.loaded import SHIPPED

PROGRAMS = {
    "nvidia-smi": 'case "$*" in -q*) f=nvidia-smi;; *-e) f=nvlink-errors;; *) f="$1";; esac; exec cat {d}/"$f"',
    "dmesg": "exec cat {d}/kernel-log",
    "systemctl": "cat {d}/fabric-manager; exit 3",
    "ip": "exec cat {d}/interfaces",
    "ping": "for a; do :; done; exec cat {d}/frames-$(echo $a | tr -d .)",
    "grep": "exec cat {d}/counters",
    "ibstat": "exec cat {d}/ibstat",
    "ethtool": "exec cat {d}/ethtool",
    "lsmod": "exec cat {d}/lsmod",
    "cat": 'case "$1" in */current_clocksource) set -- {d}/clock-source;; esac; exec /bin/cat "$@"',
    "lspci": "exec cat {d}/lspci",
    "findmnt": "exec cat {d}/mounts",
    "all_reduce_perf": "exec cat {d}/nccl",
    "python3": "exec cat {d}/nccl-nodes",
    "gpu_burn": "exec cat {d}/burn-in",
}
SYSTEM = ("sh", "id", "timeout", "uname", "dd", "rm", "mkdir", "tail", "tr", "sleep", "sed", "env")


class Host:
    """A host: a directory with its programs and their outputs."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        self.programs = directory / "bin"
        self.output = directory / "out"
        self.programs.mkdir(parents=True)
        self.output.mkdir()
        for tool, whole in outputs(name).items():
            (self.output / tool).write_text(whole.text)
        (self.output / "topology").rename(self.output / "topo")
        frames = (self.output / "frames").read_text().split("PING ")[1:]
        for text in frames:
            address = text.split()[0].replace(".", "")
            (self.output / f"frames-{address}").write_text(f"PING {text}")
        for program, script in PROGRAMS.items():
            self.install(program, script.format(d=self.output))
        for program in SYSTEM:
            (self.programs / program).symlink_to(shutil.which(program) or f"/bin/{program}")

    def install(self, program: str, script: str) -> None:
        """Put a program on the host's PATH."""
        path = self.programs / program
        path.unlink(missing_ok=True)  # a link could lead into the system
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IEXEC)

    def remove(self, program: str) -> None:
        """Remove a program from the host's PATH."""
        (self.programs / program).unlink()


class Site:
    """Two hosts, and the site file that names them."""

    def __init__(self, directory: Path, hosts: dict[str, Host], servers: dict[str, Sshd]) -> None:
        self.hosts = hosts
        self.servers = servers
        self.directory = directory
        self.known = directory / "known_hosts"
        self.known.write_text("".join(server.known_host for server in servers.values()))
        base = yaml.safe_load((Path(__file__).parents[2] / "inventories/tr4858/site.yml").read_text())
        base["network"]["vlans"] = base["network"]["vlans"][:1]
        del base["network"]["switches"], base["network"]["vpc"], base["network"]["roce"]
        self.content: dict[str, Any] = base
        base["access"] = {"known_hosts": str(self.known)}
        base["hosts"] = {"mgmt01": base["hosts"]["mgmt01"]}
        for name, server in servers.items():
            base["hosts"][name] = {
                "address": "127.0.0.1",
                "port": server.port,
                "user": server.user,
                "os": "dgx-os-6",
                "model": "dgx-1",
                "roles": ["gpu"],
            }
        self.use_key(next(iter(servers.values())).key_file)

    def use_key(self, key: Path) -> None:
        """Let the site file name this key, which all servers accept."""
        for name, server in self.servers.items():
            (self.directory / name / "id_ed25519.pub").write_text(key.with_suffix(".pub").read_text())
            server.key_file = key
        self.content["access"]["key_file"] = str(key)

    def write(self) -> Path:
        """Write the site file, and return its directory."""
        (self.directory / "site.yml").write_text(yaml.safe_dump(self.content))
        return self.directory

    def settings(self, out: Path, **more: Any) -> Settings:
        """Return the settings of a run on the hosts alone."""
        return Settings(target="cluster", parts=["hosts"], out=out, site=self.write(), **more)

    def command(self, out: Path, *arguments: str) -> list[str]:
        """Return the arguments of `muster` for a run on the hosts alone."""
        return ["validate", "--site", str(self.write()), "--part", "hosts", "--out", str(out), *arguments]

    def validate(self, out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `muster validate` on the hosts alone, in this process: the start of another costs more than the run."""
        command = self.command(out, *arguments)
        output, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            code = main(command)
        return subprocess.CompletedProcess(command, code, output.getvalue(), errors.getvalue())


@contextlib.contextmanager
def hosts_over_ssh(directory: Path, names: Sequence[str] = NAMES, variables: str = "") -> Iterator[Site]:
    """Start the servers of these hosts, whose files are in the directory; each sets these variables for commands."""
    with ExitStack() as stack:
        hosts = {name: Host(directory / "hosts" / name, name) for name in names}
        servers = {}
        for name, host in hosts.items():
            (directory / name).mkdir()
            servers[name] = stack.enter_context(sshd(directory / name, f"{host.programs}{variables}"))
        yield Site(directory, hosts, servers)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with hosts_over_ssh(tmp_path) as site:
        yield site


def steps(out: Path) -> dict[str, tuple[str, str]]:
    return {step.id.rpartition("/")[2]: (step.verdict, step.reason) for step in record.read(out).steps}


def test_whole_hosts_pass_and_the_record_can_be_judged_again(site: Site, tmp_path: Path) -> None:
    out = tmp_path / "r"
    done = site.validate(out, "--mount", "/mnt/mount_0", "--mount", "/mnt/mount_1", "--golden", "dgx1-1")
    # INCONCLUSIVE: loads were not chosen, and some requirements have no check
    assert done.returncode == 1, done.stderr
    verdicts = {name: verdict for name, (verdict, _) in steps(out).items()}
    assert {name for name, verdict in verdicts.items() if verdict == "PASS"} == {
        "gpus", "equality", "state", "memory", "faults", "nvlink", "nvlink-errors", "rails", "interfaces",
        "access-control", "peer-memory", "clock-source", "pcie", "mtu", "mounts", "links", "faults-after",
        "memory-after",
    }, steps(out)  # fmt: skip
    assert (
        "as it puts a load on the hosts for about 61 minutes: --host-test burn-in" in steps(out)["burn-in"][1]
    )
    source = log.read_log(out)
    ran = [event for event in source.events if isinstance(event, ToolRan)]
    assert {event.host for event in ran} == set(NAMES)
    assert all(event.exit_code == 0 and event.output for event in ran), ran
    assert rejudge(record.read(out), source) == []
    assert verify(out).problems == []


def test_the_sick_gpu_is_in_the_headline_and_pytest_ends_the_same(site: Site, tmp_path: Path) -> None:
    (site.hosts["dgx1-2"].output / "kernel-log").write_text(XID)
    (site.hosts["dgx1-2"].output / "nvidia-smi").write_text(without_a_gpu())
    done = site.validate(tmp_path / "r", "--host-test", "nccl")
    assert done.returncode == 1
    assert "dgx1-2 has 7 of 8 GPUs" in done.stdout, done.stdout
    assert steps(tmp_path / "r")["faults"] == (
        "FAIL",
        "dgx1-2: Xid 79 on 0000:05:00 (1 times) -> reboot the host",
    )
    assert steps(tmp_path / "r")["nccl"][0] == "BLOCKED"
    again = run_pytest(
        [SHIPPED / "hosts", SHIPPED / "hosts-after"], site.settings(tmp_path / "p", host_tests=["nccl"])
    )
    assert again == 1
    assert steps(tmp_path / "p") == steps(tmp_path / "r")


def test_groups_of_hosts_are_joined_over_ssh(site: Site, tmp_path: Path) -> None:
    plan = site.validate(tmp_path / "p", "--collect-only", "--host-test", "nccl-nodes").stdout
    assert "- 1 test if all works, at most 3 tests and 10 minutes; all pairs are 1" in plan, plan
    site.validate(tmp_path / "r", "--host-test", "nccl-nodes")
    assert steps(tmp_path / "r")["nccl-nodes"] == ("PASS", "1 of at most 3 tests")
    joined = [
        e for e in log.read_log(tmp_path / "r").events if isinstance(e, ToolRan) and e.tool == "nccl-nodes"
    ]
    assert {event.host for event in joined} == set(NAMES)
    assert all(len(event.command) < 400 and "127.0.0.1:" in event.command for event in joined)
    (site.hosts["dgx1-2"].output / "nccl-nodes").write_text("")
    site.hosts["dgx1-1"].install("python3", "kill -ALRM $$")
    site.validate(tmp_path / "s", "--host-test", "nccl-nodes")
    verdict, reason = steps(tmp_path / "s")["nccl-nodes"]
    assert verdict == "FAIL"
    assert reason.startswith("one of dgx1-1, dgx1-2, or the network between them: exit code 142, "), reason
    assert rejudge(record.read(tmp_path / "s"), log.read_log(tmp_path / "s")) == []


def test_a_tool_that_is_missing_is_inconclusive_with_the_host(site: Site, tmp_path: Path) -> None:
    site.hosts["dgx1-2"].remove("nvidia-smi")
    site.hosts["dgx1-1"].remove("dmesg")
    site.validate(tmp_path / "r")
    after = steps(tmp_path / "r")
    assert after["memory"] == ("INCONCLUSIVE", "dgx1-2 has no nvidia-smi")
    assert after["faults"] == ("INCONCLUSIVE", "dgx1-2 has no nvidia-smi; dgx1-1 has no dmesg")


@pytest.mark.parametrize("how", ["unknown key", "other key", "odd line", "refused", "no key file", "gone"])
def test_a_host_that_cannot_be_reached_is_an_error_that_names_the_fix(
    site: Site, tmp_path: Path, how: str
) -> None:
    server = site.servers["dgx1-2"]
    good = site.servers["dgx1-1"].known_host
    match how:
        case "unknown key":
            site.known.write_text(good)
        case "other key":
            site.known.write_text(good + server.another_key(tmp_path))
        case "odd line":
            site.known.write_text(good + "dgx1-2 ssh-ed25519 AAAAB3\n")
        case "refused":
            (tmp_path / "dgx1-2" / "id_ed25519.pub").write_text("")
        case "no key file":
            site.content["access"]["key_file"] = str(tmp_path / "none")
        case _:
            site.content["hosts"]["dgx1-2"]["port"] = 9
    words = {
        "unknown key": "is not known: compare it at the console",
        "other key": "is not the known one",
        "odd line": "has a line that cannot be read",
        "refused": "does not accept the key",
        "no key file": "there is no key file",
        "gone": "cannot be reached",
    }[how]
    done = site.validate(tmp_path / "r")
    assert done.returncode == 1
    verdict, reason = steps(tmp_path / "r")["gpus"]
    assert (verdict, reason[:8]) == (
        "ERROR", "dgx1-1: " if how in ("no key file", "odd line") else "dgx1-2: ",
    ), reason  # fmt: skip
    assert words in reason
    assert verify(tmp_path / "r").problems == []


def test_hosts_are_reached_over_the_jump_host(site: Site, tmp_path: Path) -> None:
    (tmp_path / "jump").mkdir()
    with sshd(tmp_path / "jump") as jump:
        site.known.write_text(site.known.read_text() + jump.known_host)
        (tmp_path / "jump" / "id_ed25519.pub").write_text(
            site.servers["dgx1-1"].key_file.with_suffix(".pub").read_text()
        )
        site.content["access"]["jump"] = {"address": "127.0.0.1", "port": jump.port, "user": jump.user}
        # a process of its own: paramiko does not wait for the process of a ProxyCommand
        subprocess.run([*MUSTER, *site.command(tmp_path / "r")], capture_output=True, check=False)
        assert steps(tmp_path / "r")["gpus"] == ("PASS", "")
        assert {server.port for server in site.servers.values()} <= jump.forwarded


def test_a_tool_that_hangs_is_ended_and_named(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.hosts["dgx1-2"].install("dmesg", "exec sleep 3600")
    monkeypatch.setitem(TOOLS, "kernel-log", dataclasses.replace(TOOLS["kernel-log"], seconds=1))
    site.validate(tmp_path / "r")
    assert steps(tmp_path / "r")["faults"] == ("ERROR", "dgx1-2: it did not end within 1 s")


def test_tools_on_a_host_end_with_the_run(site: Site, tmp_path: Path) -> None:
    marker = tmp_path / "running"
    site.hosts["dgx1-2"].install("all_reduce_perf", f"echo $$ > {marker}; exec sleep 3600")
    # a background job of a shell can ignore SIGINT
    start = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    muster = [sys.executable, "-P", "-c", f"{start}; {MUSTER[-1]}"]
    command = [*muster, *site.command(tmp_path / "r", "--host-test", "nccl")]
    running = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (marker.exists() and marker.read_text().strip()):
        assert time.monotonic() < deadline
        assert running.poll() is None
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    assert running.wait(60) == 130
    pid = int(marker.read_text())
    while Path(f"/proc/{pid}").exists() and "sleep" in Path(f"/proc/{pid}/cmdline").read_text():
        assert time.monotonic() < deadline + 60
        time.sleep(0.05)
    assert record.read(tmp_path / "r").interrupted == "interrupted by SIGINT"


def test_every_host_writes_into_every_mount_and_reads_the_files_of_the_others(
    site: Site, tmp_path: Path
) -> None:
    for name, host in site.hosts.items():
        host.remove("uname")
        host.install("uname", f"echo {name}")
    shared = tmp_path / "shared"
    shared.mkdir()
    arguments = ("--host-test", "mounts", "--mount", str(shared))
    for host in site.hosts.values():
        text = (host.output / "mounts").read_text()
        (host.output / "mounts").write_text(text.replace("/mnt/mount_0", str(shared)))
    site.validate(tmp_path / "r", *arguments)
    assert steps(tmp_path / "r")["written"] == ("PASS", "")
    assert list(shared.iterdir()) == []  # the run leaves no file
    site.hosts["dgx1-2"].install("cat", f'case "$1" in {shared}/*) echo gone;; *) exec /bin/cat "$@";; esac')
    site.validate(tmp_path / "s", *arguments)
    verdict, reason = steps(tmp_path / "s")["written"]
    assert verdict == "FAIL"
    assert f"dgx1-2 does not read the file of dgx1-1 in {shared}" in reason


def test_a_redacted_record_has_other_names_and_the_same_verdicts(site: Site, tmp_path: Path) -> None:
    (site.hosts["dgx1-2"].output / "kernel-log").write_text(XID)
    site.validate(tmp_path / "r")
    redact(tmp_path / "r", tmp_path / "public")
    before, after = steps(tmp_path / "r"), steps(tmp_path / "public")
    assert {name: verdict for name, (verdict, _) in before.items()} == {
        name: verdict for name, (verdict, _) in after.items()
    }
    text = (tmp_path / "public" / "events.jsonl").read_text() + (
        tmp_path / "public" / "report.json"
    ).read_text()
    assert "dgx1-2" not in text
    assert verify(tmp_path / "public").problems == []


def test_the_plan_names_the_commands_and_their_duration(site: Site) -> None:
    done = site.validate(site.directory / "r", "--collect-only", "--host-test", "nccl", "--json")
    assert any(entry["id"] == "hosts/layer/nccl" for entry in json.loads(done.stdout))
    plan = site.validate(site.directory / "r", "--collect-only", "--host-test", "nccl").stdout
    assert "- on dgx1-1, dgx1-2, for about 3 minutes" in plan
    assert "dgx1-1$ all_reduce_perf -b 1G -e 8G -f 2 -g 8" in plan
    assert "not run, as it puts a load on the hosts for about 61 minutes: --host-test burn-in" in plan
    proven, others = plan.split("## Requirements that stay open")
    assert "- hosts.nccl:" in proven
    assert "- hosts.burn-in:" in others


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--golden", "dgx9"), "--golden dgx9: no such host; there are: dgx1-1, dgx1-2"),
        (("--target", "lab"), "--site is for --target cluster"),
        (("--mount", "data"), "--mount data: not the path of a directory"),
        (("--host-test", "everything"), "'everything' is not one of"),
    ],
)
def test_impossible_options_are_refused(site: Site, arguments: tuple[str, ...], message: str) -> None:
    done = site.validate(site.directory / "r", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert not (site.directory / "r").exists()


def test_loads_without_a_site_are_refused() -> None:
    done = subprocess.run(
        [*MUSTER, "validate", "--target", "cluster", "--host-test", "nccl"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "KUBECONFIG": "/none"},
    )
    assert done.returncode == 2
    assert "--site names it" in done.stderr


def test_every_reading_has_the_boot_id_and_another_one_is_a_failure(site: Site, tmp_path: Path) -> None:
    site.validate(tmp_path / "r")
    ran = [event for event in log.read_log(tmp_path / "r").events if isinstance(event, ToolRan)]
    assert {event.boot_id for event in ran} == {Path("/proc/sys/kernel/random/boot_id").read_text().strip()}
    assert not any("boot id" in event.error_output for event in ran)
    booted = tmp_path / "booted"
    site.hosts["dgx1-2"].install(
        "cat",
        f'case "$1" in /proc/sys/*) [ -e {booted} ] && echo second || echo first;; *) exec /bin/cat "$@";; esac',
    )
    site.hosts["dgx1-2"].install(
        "findmnt", f": > {booted}; exec cat {site.hosts['dgx1-2'].output}/mounts"
    )  # the host reboots after that
    site.validate(tmp_path / "s", "--mount", "/mnt/mount_0")
    after = steps(tmp_path / "s")
    assert after["gpus"] == ("PASS", "")
    assert after["links"] == ("FAIL", "booted anew between two readings: dgx1-2")
    assert verify(tmp_path / "s").problems == []
    assert_second_judge_agrees(tmp_path / "s")


def test_a_load_that_ends_early_is_a_failure_for_any_output(site: Site, tmp_path: Path) -> None:
    site.validate(tmp_path / "r", "--host-test", "burn-in")
    verdict, reason = steps(tmp_path / "r")["burn-in"]
    assert verdict == "FAIL"
    assert "dgx1-1: the load ended after 0 of 3600 s; dgx1-2: the load ended" in reason
    assert_second_judge_agrees(tmp_path / "r")


def test_secrets_that_tools_print_do_not_enter_the_record(site: Site, tmp_path: Path) -> None:
    host = site.hosts["dgx1-2"]
    (host.output / "kernel-log").write_text(
        "[    0.000000] Linux version 5.15.0\n"
        "[    0.000000] Command line: BOOT_IMAGE=/vmlinuz registry.password=hunter2 quiet\n"
        "[    1.000000] cloud-init: proxy http://joe:s3cr%23t@proxy:3128/ Authorization: Bearer abc.def\n"
    )
    host.install("dmesg", f"echo 'api_key: nocturne' >&2; exec cat {host.output}/kernel-log")
    site.validate(tmp_path / "r")
    assert steps(tmp_path / "r")["faults"] == ("PASS", "")
    words = b"".join(path.read_bytes() for path in (tmp_path / "r").rglob("*") if path.is_file())
    assert not [secret for secret in (b"hunter2", b"s3cr", b"abc.def", b"nocturne") if secret in words]
    assert b"registry.password=***" in words
    assert verify(tmp_path / "r").problems == []
