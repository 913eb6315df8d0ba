"""The Ansible that a task has started reports its plays, tasks, hosts and failures immediately."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deployment.nested import NestedEvents, failure_of, log_line
from tests.deployment.running import ROOT, program

pytestmark = pytest.mark.lab

PLAY = """---
- name: Work
  hosts: all
  gather_facts: false
  tasks:
    - name: Look
      ansible.builtin.command: echo {{ inventory_hostname }}
      changed_when: false
    - name: Take it easy
      ansible.builtin.fail: {msg: never mind}
      ignore_errors: true
    - name: Recover
      block:
        - name: Stumble
          ansible.builtin.fail: {msg: stumbled}
      rescue:
        - name: Get up
          ansible.builtin.debug: {msg: up}
    - name: Keep a secret
      ansible.builtin.fail: {msg: canary}
      no_log: true
      when: inventory_hostname == "one"
    - name: Do each
      ansible.builtin.command: "{{ item }}"
      loop: ["true", "false"]
"""


def test_events_are_read_while_they_are_written_and_name_hosts_and_tasks(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    events = NestedEvents(path)
    assert events.read() == [], "nothing has begun"
    (tmp_path / "play.yml").write_text(PLAY)
    settings = {
        "HOME": str(tmp_path), "LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"], "MUSTER_NESTED_EVENTS": str(path),
        "ANSIBLE_CALLBACK_PLUGINS": str(ROOT / "roles" / "deepops" / "files"),
        "ANSIBLE_CALLBACKS_ENABLED": "nested_events",
    }  # fmt: skip
    words = [str(program("ansible-playbook")), "-c", "local", "-i", "one,two", "play.yml"]
    words += ["-e", f"ansible_python_interpreter={sys.executable}"]
    done = subprocess.run(words, cwd=tmp_path, env=settings, capture_output=True, text=True, check=False)
    assert "nested_events" not in done.stdout + done.stderr, "the callback itself failed"

    whole = path.read_bytes()
    half = whole.index(b"\n") + 20
    path.write_bytes(whole[:half])
    assert [event["kind"] for event in events.read()] == ["play"], "half a line is left for the next time"
    path.write_bytes(whole)
    rest = events.read()
    assert rest[0] == {"kind": "task", "name": "Look"}
    assert events.read() == []
    with path.open("a") as file:
        file.write('{"kind": "ta{"kind": "task", "name": "cut"}\n[]\n{"kind": "task", "name": "whole"}\n')
    assert events.read() == [{"kind": "task", "name": "whole"}], "its writer was killed, another went on"

    lines = [log_line(event).strip() for event in rest]
    assert "ok: [one]" in lines
    assert "ignored: [two]: never mind" in lines
    assert "canary" not in whole.decode()
    failures = [failure_of(event) for event in rest if event["kind"] == "failed"]
    assert {(failure.host, failure.task) for failure in failures} == {
        ("one", "Stumble"), ("two", "Stumble"), ("one", "Keep a secret"), ("two", "Do each"),
    }  # fmt: skip
    (secret,) = (failure for failure in failures if failure.task == "Keep a secret")
    assert secret.message == "the output of the module ansible.builtin.fail is hidden (no_log)"
    (last,) = (failure for failure in failures if failure.task == "Do each")
    assert last.place.startswith(f"{tmp_path / 'play.yml'}:")
    assert "non-zero" in last.message
