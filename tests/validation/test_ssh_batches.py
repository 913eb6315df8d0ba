"""The commands of a host share a channel of SSH: a fault of one costs only its own output. On real OpenSSH servers."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.validation.replay import run_pytest
from tests.validation.test_hosts_over_ssh import Site, hosts_over_ssh, steps
from validation.judge.events import ToolRan
from validation.layers.tools import TOOLS
from validation.report import log
from validation.report.verify import verify
from validation.scenario.loaded import SHIPPED

SICK = "dgx1-2"
END_SERVER = """
p=$$; servers=; n={servers}
while [ "$p" -gt 1 ]; do
  read -r name < /proc/$p/comm
  case $name in sshd*) [ $n -gt 0 ] && servers="$p $servers"; n=$((n-1));; esac
  p=$(sed -n 's/^PPid:.//p' /proc/$p/status)
done
kill -KILL $servers; sleep 60
"""
"""A program that ends the SSH server of its connection, and with `servers=9` the listening server too."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with hosts_over_ssh(tmp_path) as site:
        yield site


def ran(out: Path, tool: str, host: str = SICK) -> ToolRan:
    """Return the first run of a tool on a host."""
    events = log.read_log(out).events
    return next(e for e in events if isinstance(e, ToolRan) and (e.tool, e.host) == (tool, host))


def assert_rest_is_read(out: Path, *lost: str) -> None:
    """Assert that only these tools have no output of the sick host, and no tool of the other."""
    every = [event for event in log.read_log(out).events if isinstance(event, ToolRan)]
    assert {(e.host, e.tool) for e in every if e.problem} == {(SICK, tool) for tool in lost}
    assert verify(out).problems == []


def test_each_host_has_two_channels_for_all_its_tools(site: Site, tmp_path: Path) -> None:
    site.validate(tmp_path / "r")
    assert len([e for e in log.read_log(tmp_path / "r").events if isinstance(e, ToolRan)]) > 30
    for name in site.hosts:
        opened = (tmp_path / name / "log").read_text().count("session_new: session")
        assert opened == 2, name  # before and after the scenarios on the cluster


def test_a_tool_that_hangs_costs_only_itself(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.hosts[SICK].install("lsmod", "while echo FAILED; do sleep 0.1; done & exec sleep 3600")
    monkeypatch.setitem(TOOLS, "lsmod", dataclasses.replace(TOOLS["lsmod"], seconds=1))
    site.validate(tmp_path / "r")
    assert steps(tmp_path / "r")["peer-memory"] == ("ERROR", "dgx1-2: it did not end within 1 s")
    assert_rest_is_read(tmp_path / "r", "lsmod")


def test_remains_of_a_tool_that_hung_do_not_print_into_the_next_output(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = site.hosts[SICK]
    (host.programs / "setsid").symlink_to("/usr/bin/setsid")  # `timeout` does not end other sessions
    host.install("lsmod", "setsid sh -c 'while echo FAILED; do sleep 0.05; done' & exec sleep 3600")
    host.install("ip", f"sleep 1; exec cat {host.output}/interfaces")
    monkeypatch.setitem(TOOLS, "lsmod", dataclasses.replace(TOOLS["lsmod"], seconds=1))
    site.validate(tmp_path / "r")
    assert_rest_is_read(tmp_path / "r", "lsmod")
    assert "FAILED" not in ran(tmp_path / "r", "interfaces").output


def test_a_tool_without_an_answer_costs_only_itself(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = site.hosts[SICK]
    host.remove("timeout")  # as with a process that no signal ends
    host.install("timeout", 'shift 3; exec "$@"')
    host.install("lsmod", "exec sleep 3600")
    monkeypatch.setattr("validation.targets.ssh_batch.GRACE_SECONDS", 1.0)
    monkeypatch.setitem(TOOLS, "lsmod", dataclasses.replace(TOOLS["lsmod"], seconds=1))
    site.validate(tmp_path / "r")
    assert steps(tmp_path / "r")["peer-memory"] == ("ERROR", "dgx1-2: no answer within 1 s")
    assert_rest_is_read(tmp_path / "r", "lsmod")


def test_a_connection_that_breaks_costs_the_running_tool(site: Site, tmp_path: Path) -> None:
    site.hosts[SICK].install("lsmod", END_SERVER.format(servers=1))
    site.validate(tmp_path / "r")
    verdict, reason = steps(tmp_path / "r")["peer-memory"]
    assert verdict == "ERROR"
    assert reason.startswith("dgx1-2: the connection broke"), reason
    assert_rest_is_read(tmp_path / "r", "lsmod")


def test_a_host_that_shuts_down_is_not_read_from_then_on(site: Site, tmp_path: Path) -> None:
    site.hosts[SICK].install("lsmod", END_SERVER.format(servers=9))
    site.validate(tmp_path / "r")
    after = steps(tmp_path / "r")
    assert after["rails"] == ("PASS", "")
    names = [*SHORT[SHORT.index("clock-source") :], "links", "faults-after", "memory-after"]
    for name in names:
        verdict, reason = after[name]
        assert verdict == "ERROR", (name, reason)
        assert f"127.0.0.1 port {site.servers[SICK].port} cannot be reached" in reason, (name, reason)
        assert "dgx1-1: " not in reason
    assert verify(tmp_path / "r").problems == []


SHORT = ["rails", "peer-memory", "clock-source", "mtu", "mounts"]
"""Layers in their order; the tool of `peer-memory` is lsmod."""


def test_output_and_errors_and_exit_code_are_those_of_the_tool(site: Site, tmp_path: Path) -> None:
    site.hosts[SICK].install("lsmod", "printf 'a\\n\\n\\377\\000no end'; printf 'two\\nlines' >&2; exit 3")
    site.hosts[SICK].install("ibstat", "exit 0")
    site.validate(tmp_path / "r")
    lsmod, ibstat, after = (ran(tmp_path / "r", tool) for tool in ("lsmod", "ibstat", "clock-source"))
    assert (lsmod.exit_code, lsmod.output, lsmod.error_output) == (3, "a\n\n\ufffd\0no end", "two\nlines")
    assert (ibstat.exit_code, ibstat.output, ibstat.error_output) == (0, "", "")
    assert (after.exit_code, after.output, after.error_output) == (0, "tsc\n", "")
    assert_rest_is_read(tmp_path / "r")


def test_a_tool_that_prints_without_end_costs_only_itself(site: Site, tmp_path: Path) -> None:
    site.hosts[SICK].install(
        "lsmod", "while :; do cat {0}/lspci {0}/nvidia-smi; done".format(site.hosts[SICK].output)
    )
    site.validate(tmp_path / "r")
    assert steps(tmp_path / "r")["peer-memory"] == ("ERROR", "dgx1-2: it printed more than 8 MiB")
    assert_rest_is_read(tmp_path / "r", "lsmod")


def test_words_of_the_login_shell_are_in_no_output(tmp_path: Path) -> None:
    words = tmp_path / "words"
    words.write_text("echo FAILED: quota exceeded; echo FAILED >&2\n")
    with hosts_over_ssh(tmp_path, variables=f" BASH_ENV={words}") as site:
        site.validate(tmp_path / "r")
    every = [event for event in log.read_log(tmp_path / "r").events if isinstance(event, ToolRan)]
    assert not [event for event in every if "FAILED" in event.output + event.error_output]
    assert steps(tmp_path / "r")["gpus"] == ("PASS", "")


def test_a_host_without_a_shell_is_not_read(tmp_path: Path) -> None:
    words = tmp_path / "words"
    words.write_text("echo This account is not available.; exit 1\n")
    with hosts_over_ssh(tmp_path, variables=f" BASH_ENV={words}") as site:
        site.validate(tmp_path / "r")
    reason = "dgx1-1: the shell of the host ended with exit code 1: This account is not available."
    assert steps(tmp_path / "r")["peer-memory"][0] == "ERROR"
    assert reason in steps(tmp_path / "r")["peer-memory"][1]


def test_only_the_tools_of_chosen_layers_run(site: Site, tmp_path: Path) -> None:
    run_pytest([SHIPPED / "hosts"], site.settings(tmp_path / "r"), "-k", "clock-source")
    assert {e.tool for e in log.read_log(tmp_path / "r").events if isinstance(e, ToolRan)} == {"clock-source"}
