"""The role preflight names each host whose clock is not synchronised."""

import os
import sys
from pathlib import Path

import yaml

from tests.deployment.running import play


def test_a_host_whose_clock_is_not_synchronised_is_named_with_the_fix(tmp_path: Path) -> None:
    program = tmp_path / "programs" / "timedatectl"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\n[ "$*" = "show --property=NTPSynchronized --value" ] || exit 1\n$SAYS\n')
    program.chmod(0o755)
    hosts = {"right": {"says": "echo yes"}, "wrong": {"says": "echo no"}, "old": {"says": "exit 1"}}
    values = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    tasks = [{"ansible.builtin.include_role": {"name": "preflight", "tasks_from": "clock"}}]
    environment = {"SAYS": "{{ says }}"}
    one = {"hosts": "all", "gather_facts": False, "environment": environment, "tasks": tasks}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([one]))
    (tmp_path / "inventory.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts, "vars": values}}))
    path = f"{program.parent}:{os.environ['PATH']}"
    result = play(
        tmp_path / "play.yml",
        tmp_path,
        "-i",
        str(tmp_path / "inventory.yml"),
        environment={"PATH": path},
    )
    assert result.code == 0, result.output
    notes = {host: str(task["msg"]) for _, host, task in result.tasks if "NOTE" in str(task.get("msg", ""))}
    assert notes.keys() == {"wrong"}
    assert "the clock of wrong is not synchronised" in notes["wrong"]
    assert "systemctl enable --now chrony" in notes["wrong"]
