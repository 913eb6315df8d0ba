"""Interrupted runs, simultaneous runs and damaged journals lose nothing, and the same command continues."""

import asyncio
import base64
import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import pytest
from ansible.parsing.vault import VaultLib, VaultSecret

import musterlab.cluster
from orchestrator.cli.main import main
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.resources import CONFIG_MAPS
from orchestrator.cluster.transport import Transport
from tests.deployment.conftest import SiteUnderTest
from tests.deployment.running import inherited

pytestmark = pytest.mark.lab

DEADLINE_SECONDS = 240.0
CANARY = "canary-7f3a9c51"
VAULT_CANARY = "canary-5be0d2"
VAULT_PASSWORD = "canary-91cc07"
SECRET = """network:
  switches:
    nexus-1: {address: 10.0.0.2, model: nexus-3232c, user: admin, password: {env: CANARY}}
    nexus-2: {address: 10.0.0.3, model: nexus-3232c, user: admin, password: {vault: switch_password}}
"""
STAGE = """---
- name: {title}
  hosts: controller
  gather_facts: false
  tasks:
    - name: Work on {name}
      ansible.builtin.shell: echo {name} >> {work}/done
      changed_when: true
"""
WAIT = """
    - name: Wait for the gate
      ansible.builtin.shell: timeout 600 sh -c 'until test -e {work}/gate; do sleep 0.1; done'
      changed_when: true
"""


class Content:
    """Content with stages of the first of these names. Each adds its name to a file."""

    def __init__(self, root: Path, stages: int) -> None:
        self.root = root
        self.names = ("one", "two", "three")[:stages]
        self.work = root / "work"
        for name in ("playbooks", "roles", "work"):
            (root / name).mkdir(parents=True)
        imports = [
            f"- name: Do the {name}\n  ansible.builtin.import_playbook: {name}.yml\n" for name in self.names
        ]
        (root / "playbooks" / "site.yml").write_text("---\n" + "".join(imports))
        (root / "playbooks" / "teardown.yml").write_text("---\n" + "".join(reversed(imports)))
        for name in self.names:
            self.stage(name)

    def stage(self, name: str, more: str = "") -> None:
        text = (STAGE + more).format(title=f"Do the {name}", name=name, work=self.work)
        (self.root / "playbooks" / f"{name}.yml").write_text(text)

    @property
    def done(self) -> list[str]:
        path = self.work / "done"
        return path.read_text().split() if path.exists() else []

    def open_gate(self) -> None:
        (self.work / "gate").touch()


THREE = pytest.mark.parametrize("content", [3], indirect=True)


@pytest.fixture
def content(request: pytest.FixtureRequest, tmp_path: Path, site: SiteUnderTest) -> Content:
    """Return the content of the site, with two stages or the requested number: each costs a start of Ansible."""
    made = Content(tmp_path / "content", getattr(request, "param", 2))
    site.environment["MUSTER_INSTALLER_CONTENT"] = str(made.root)
    return made


@pytest.fixture
def waiting(site: SiteUnderTest, content: Content, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Yield a run that waits in its second stage."""
    content.stage("two", WAIT)
    site.environment["TMPDIR"] = str(tmp_path)
    running = site.start("install")
    until(lambda: content.done == ["one", "two"], running)
    yield running
    if running.poll() is None:
        running.kill()
    running.communicate(timeout=DEADLINE_SECONDS)


def until(
    reached: Callable[[], bool],
    running: subprocess.Popen[str] | None = None,
    seconds: float = DEADLINE_SECONDS,
) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert running is None or running.poll() is None, running.communicate()[0]
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)


def journal(site: SiteUnderTest) -> Path:
    return site.state / "here" / "journal.jsonl"


def test_a_second_run_does_nothing_again_but_a_changed_stage(site: SiteUnderTest, content: Content) -> None:
    first = site.muster("install")
    assert first.returncode == 0, first.stderr
    assert site.muster("install").returncode == 0
    assert content.done == ["one", "two"]
    content.stage(
        "one", "    - name: Do more\n      ansible.builtin.command: 'true'\n      changed_when: false\n"
    )
    planned = json.loads(site.call("plan", "--json").stdout)["stages"]
    assert [each["decision"] for each in planned] == ["run", "done"]
    assert "changed since" in planned[0]["reason"]
    assert "playbook and role" in planned[0]["reason"]
    assert site.muster("install").returncode == 0
    assert content.done == ["one", "two", "one"]


GATE = """
    - name: Require the gate
      ansible.builtin.command: test -e {work}/gate
      changed_when: false
"""


@THREE
def test_a_removal_is_resumed_where_it_failed_and_removes_nothing_twice(
    site: SiteUnderTest, content: Content
) -> None:
    assert site.muster("install").returncode == 0
    (content.work / "done").unlink()
    content.stage("two", GATE)
    failed = site.muster("teardown", "--yes")
    assert failed.returncode == 1
    assert content.done == ["three", "two"]
    content.open_gate()
    resumed = site.muster("resume")
    assert resumed.returncode == 0, resumed.stderr
    assert "three: done: removed" in resumed.stderr
    assert content.done == ["three", "two", "two", "one"]
    assert site.muster("teardown", "--yes").returncode == 0
    assert content.done == ["three", "two", "two", "one"]
    with site.file.open("a") as file:
        file.write("vars:\n  teardown_hosts: true\n")
    assert site.muster("teardown", "--yes").returncode == 0
    assert content.done[4:] == ["three", "two", "one"]
    assert site.muster("install").returncode == 0
    assert content.done[7:] == ["one", "two", "three"]


def processes(content: Content) -> list[str]:
    """Return the command lines of all processes of this test, found by an environment variable that they inherit."""
    mark = f"MUSTER_INSTALLER_CONTENT={content.root}".encode()
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (each / "environ").read_bytes():
                found.append((each / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return [command for command in found if command]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_run_leaves_nothing_running_and_continues_where_it_stopped(
    site: SiteUnderTest,
    content: Content,
    waiting: subprocess.Popen[str],
    tmp_path: Path,
    how: signal.Signals,
) -> None:
    until(lambda: any(name.startswith("timeout") for name in processes(content)), waiting)
    waiting.send_signal(how)
    said = waiting.communicate(timeout=DEADLINE_SECONDS)[0]
    if how == signal.SIGKILL:
        until(lambda: processes(content) == [])
        assert list(tmp_path.glob("muster-install-*")) == []
    else:
        assert processes(content) == []
        assert waiting.returncode == 1
        assert "stage two was interrupted; continue with: muster resume -i" in said
    planned = site.call("plan")
    assert "two  run: interrupted" in planned.stdout
    content.open_gate()
    resumed = site.muster("resume")
    assert resumed.returncode == 0, resumed.stderr
    assert "continuing `muster install`" in resumed.stderr
    assert content.done == ["one", "two", "two"]
    assert "nothing is to be resumed" in site.call("resume").stdout


@THREE
def test_a_resumed_run_has_the_options_of_the_first(site: SiteUnderTest, content: Content) -> None:
    content.stage("two", "    - name: Break\n      ansible.builtin.fail: {{msg: broken}}\n")
    assert site.muster("install", "--from", "one", "--until", "two").returncode == 1
    content.stage("two")
    resumed = site.muster("resume")
    assert resumed.returncode == 0, resumed.stderr
    assert content.done == ["one", "two", "two"], "what the run had done is not done again"
    for words in ((), ("train-1", "-i", str(site.directory)), ("--all", "-i", str(site.directory))):
        assert main(["resume", *words]) == 2


@THREE
def test_a_resumed_run_leaves_out_the_stages_that_the_first_left_out(
    site: SiteUnderTest, content: Content
) -> None:
    content.stage("three", "    - name: Break\n      ansible.builtin.fail: {{msg: broken}}\n")
    assert site.muster("install", "--from", "two").returncode == 1
    content.stage("three")
    resumed = site.muster("resume")
    assert resumed.returncode == 0, resumed.stderr
    assert "one: left out: before --from two" in resumed.stderr
    assert content.done == ["two", "three", "three"]


def test_two_runs_at_once_are_refused(
    site: SiteUnderTest, content: Content, waiting: subprocess.Popen[str]
) -> None:
    second = site.call("install")
    assert second.returncode == 1
    assert f"`muster install` (process {waiting.pid}" in second.stderr
    assert "is running at this site" in second.stderr
    content.open_gate()
    assert waiting.wait(timeout=DEADLINE_SECONDS) == 0
    assert content.done == ["one", "two"]


def test_an_ansible_that_cannot_start_is_told(site: SiteUnderTest, content: Content, tmp_path: Path) -> None:
    moved = tmp_path / "moved" / "bin" / "ansible-playbook"
    moved.parent.mkdir(parents=True)
    moved.write_text("#!/nowhere/bin/python\n")
    moved.chmod(0o755)
    site.write(f"{site.file.read_text()}controller:\n  ansible_bin: {moved.parent}\n")
    failed = site.muster("install")
    assert failed.returncode == 1
    assert (
        f"{moved} cannot be started: No such file or directory: make its environment again" in failed.stderr
    )
    assert content.done == []


def test_a_muster_without_its_ansible_says_how_to_get_it(
    site: SiteUnderTest, content: Content, tmp_path: Path
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    alone = programs / "python"
    alone.symlink_to(sys.executable)
    site.environment |= {"PATH": str(programs), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    words = [str(alone), *site.arguments("install")[1:]]
    failed = subprocess.run(
        words, env=inherited() | site.environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert failed.returncode == 1
    assert (
        "there is no ansible-playbook: install muster again with `pip install 'muster-gpu[deployment]'`"
        in (failed.stderr)
    )
    assert content.done == []


def test_nothing_begins_beside_the_remains_of_a_killed_run(site: SiteUnderTest, content: Content) -> None:
    directory = journal(site).parent
    directory.mkdir(parents=True)
    with (directory / "ansible.lock").open("w") as remains:
        fcntl.flock(remains, fcntl.LOCK_EX)
        refused = site.muster("install")
    assert refused.returncode == 1
    assert "the Ansible of a run that was killed still works at this site" in refused.stderr
    assert content.done == []
    assert site.muster("install", "--until", "one").returncode == 0


def test_a_journal_that_was_cut_costs_its_end_and_no_more(site: SiteUnderTest, content: Content) -> None:
    assert site.muster("install").returncode == 0
    whole = journal(site).read_bytes()
    for length in (len(whole) - 2, len(whole) // 2, 10):
        journal(site).write_bytes(whole[:length])
        planned = site.call("plan")
        assert planned.returncode == 0
        assert "cannot be read; those stages run again" in planned.stderr
    journal(site).write_bytes(whole[: len(whole) // 2])
    resumed = site.muster("install")
    assert resumed.returncode == 0, resumed.stderr
    assert (journal(site).parent / "journal.torn").read_bytes() == whole[: len(whole) // 2]
    assert {each["decision"] for each in json.loads(site.call("plan", "--json").stdout)["stages"]} == {"done"}
    assert set(content.done) == {"one", "two"}


def test_a_failure_says_where_why_and_how_to_go_on(site: SiteUnderTest, content: Content) -> None:
    said = "mount.nfs access denied by server while mounting"
    fault = f"    - name: Break\n      ansible.builtin.fail:\n        msg: {said}\n"
    content.stage("two", fault)
    failed = site.muster("install")
    assert failed.returncode == 1
    line = (content.root / "playbooks" / "two.yml").read_text().splitlines().index("    - name: Break") + 1
    for text in (
        "host    controller",
        "task    Break",
        f"at      {content.root}/playbooks/two.yml:{line}",
        "error   mount.nfs access denied by server while mounting",
        "cause   the export policy does not let the node in",
        "fix     add the node's network to storage.ontap.export_cidrs",
        "continue with: muster resume -i",
    ):
        assert text in failed.stderr, failed.stderr
    content.stage("two")
    assert site.muster("install").returncode == 0
    assert content.done == ["one", "two", "two"]


def test_a_check_changes_nothing(site: SiteUnderTest, content: Content) -> None:
    checked = site.muster("install", "--check")
    assert checked.returncode == 0, checked.stderr
    assert "nothing was changed" in checked.stdout
    assert content.done == []
    assert not journal(site).exists()


def test_from_and_until_choose_the_stages(site: SiteUnderTest, content: Content) -> None:
    assert site.muster("install", "--until", "one").returncode == 0
    assert content.done == ["one"]
    for _ in range(2):
        assert site.muster("install", "--from", "two", "--until", "two").returncode == 0
    assert content.done == ["one", "two", "two"]
    refused = site.call("install", "--from", "two", "--until", "one")
    assert refused.returncode == 2
    assert "there is no such stage" in site.call("install", "--from", "four").stderr


SPY = """
    - name: Need the secrets
      ansible.builtin.command: 'true'
      environment:
        PASSWORD: "{{ lookup('ansible.builtin.env', 'CANARY') }} {{ switch_password }}"
      no_log: true
      changed_when: false
    - name: Look at all command lines, and at what Ansible was started with
      ansible.builtin.shell: |
        cat /proc/[0-9]*/cmdline | tr '\\0' ' ' > WORK/command-lines
        cp -r "$TMPDIR"/muster-install-* WORK/seen
      changed_when: false
    - name: Say them by mistake
      ansible.builtin.fail:
        msg: "login with {{ lookup('ansible.builtin.env', 'CANARY') }} and {{ switch_password | b64encode }} failed"
"""


def secrets(site: SiteUnderTest, content: Content) -> Path:
    """Give the site a secret in the environment and one in a vault; return the file with the vault's password."""
    content.stage("two", SPY.replace("{{", "{{{{").replace("}}", "}}}}").replace("WORK", str(content.work)))
    site.write(site.file.read_text() + SECRET)
    key = VaultSecret(VAULT_PASSWORD.encode())
    plain = f"switch_password: {VAULT_CANARY}\n".encode()
    (site.directory / "vault.yml").write_bytes(VaultLib([("default", key)]).encrypt(plain, key))
    password = site.directory.parent.parent / f"{site.directory.parent.name}-vault-password"
    password.write_text(f"{VAULT_PASSWORD}\n")
    return password


def record(kubeconfig: Path, site: str) -> str:
    """Return the record of a run in the cluster, read from the API server."""

    async def get() -> str:
        async with Transport(load_access(kubeconfig)) as transport:
            return await transport.text(CONFIG_MAPS.path("kube-system", f"muster-install-{site}"))

    return asyncio.run(get())


@pytest.mark.parametrize("how", ["file", "environment", "terminal"])
def test_no_secret_leaves_the_task_that_needs_it(
    site: SiteUnderTest, content: Content, tmp_path: Path, shared_lab: musterlab.cluster.Lab, how: str
) -> None:
    site.write(site.file.read_text().replace("name: here", f"name: canary-{how}"))
    site.environment["KUBECONFIG"] = str(shared_lab.kubeconfig)
    password = secrets(site, content)
    refused = site.call("install")
    assert refused.returncode == 2
    assert "the environment variable CANARY is not set" in refused.stderr
    site.environment |= {"CANARY": CANARY, "TMPDIR": str(tmp_path)}
    if how == "terminal":
        arguments = site.arguments("install")
        run = pexpect.spawn(
            arguments[0],
            arguments[1:],
            env={**os.environ, **site.environment},
            encoding="utf-8",
            timeout=DEADLINE_SECONDS,
        )
        run.expect("Password of .*vault.yml: ")
        run.sendline(VAULT_PASSWORD)
        output = str(run.read())
        run.close()
        code = run.exitstatus
    else:
        unopened = site.call("install")
        assert unopened.returncode == 1
        assert "is encrypted: set ANSIBLE_VAULT_PASSWORD_FILE" in unopened.stderr
        given = {"file": {"ANSIBLE_VAULT_PASSWORD_FILE": str(password)}}
        site.environment |= given.get(how, {"MUSTER_VAULT_PASSWORD": VAULT_PASSWORD})
        failed = site.muster("install")
        output, code = failed.stdout + failed.stderr, failed.returncode
    password.unlink()
    assert code == 1
    assert "login with *** and *** failed" in output, output
    assert list((content.work / "seen").glob("artifacts/*/command")), (
        "the artifacts of the run were looked at"
    )
    recorded = record(shared_lab.kubeconfig, f"canary-{how}")
    assert '\\"stage\\": \\"two\\"' in recorded, recorded
    for canary in (CANARY, VAULT_CANARY, VAULT_PASSWORD):
        assert canary not in output
        assert canary not in recorded
        assert base64.b64encode(canary.encode()).decode() not in recorded
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert content.work / "command-lines" in files
        assert [path for path in files if canary.encode() in path.read_bytes()] == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "small"
    path.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(path)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("this user may not mount a small disk")
    yield path
    subprocess.run(["umount", str(path)], check=True)


def test_a_full_disk_is_refused_before_anything_is_done(
    site: SiteUnderTest, content: Content, small_disk: Path
) -> None:
    (small_disk / "ballast").write_bytes(b"x" * (3 << 19))
    site.state = small_disk
    refused = site.call("install")
    assert refused.returncode == 1
    assert "are free and 1024 KiB are needed" in refused.stderr
    assert content.done == []
    (small_disk / "ballast").unlink()
    assert site.muster("install", "--until", "one").returncode == 0


def test_a_state_directory_that_cannot_be_written_is_refused(
    site: SiteUnderTest, content: Content, small_disk: Path
) -> None:
    site.state = small_disk / "state"
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for words in (["install"], ["install", "--check"], ["verify"]):
        refused = site.call(*words)
        assert refused.returncode == 1
        (line,) = refused.stderr.splitlines()
        assert f"{site.state}/here: the journal cannot be used (Read-only file system)" in line
        assert "give another directory with --state-dir" in line
    assert site.call("plan").returncode == 0
    assert content.done == []


def test_a_disk_that_fills_in_a_stage_damages_nothing(
    site: SiteUnderTest, content: Content, small_disk: Path
) -> None:
    site.state = small_disk
    fill = f"""
    - name: Fill the disk
      ansible.builtin.shell: cd {content.work}; test -e full || cat /dev/zero > {small_disk}/ballast; touch full
      changed_when: true
      failed_when: false
"""
    content.stage("two", fill)
    failed = site.muster("install")
    assert failed.returncode == 1
    assert "stage two was cut short" in failed.stderr.splitlines()[-1], failed.stderr
    assert (
        "No space left on device); after you have removed the cause, continue with: muster resume -i"
        in failed.stderr
    )
    (small_disk / "ballast").unlink()
    for line in journal(site).read_text().splitlines():
        json.loads(line)
    resumed = site.muster("install")
    assert resumed.returncode == 0, resumed.stderr
    assert content.done == ["one", "two", "two"]
    assert os.statvfs(small_disk).f_bavail > 0
