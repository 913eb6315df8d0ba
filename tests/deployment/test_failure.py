"""Known failures are recognised by their message, and get a cause and a fix."""

import sys
from pathlib import Path

import pytest

from deployment.failure import Failure, message_of
from tests.deployment.running import play

SEEN = {
    "Ansible must be between 2.18.0 and 2.19.0 exclusive - you have 2.17.14": "window of Ansible releases",
    "the role 'kubespray_defaults' was not found in /x/roles": "submodule with kubespray",
    "rmtree failed: [Errno 16] Device or resource busy: '/var/lib/containerd'": "mount point",
    "ansible-core requires Python 3.9 or newer on the target": "older than this ansible-core",
    "Missing sudo password": "may not become root",
    "Host key verification failed.": "host's key",
    "admin@10.0.0.1: Permission denied (publickey,password).": "does not accept the key",
    '[FATAL] plugin/loop: Loop (127.0.0.1:52890 -> :53) detected for zone "."': "DNS asks itself",
    "plugin/forward: no nameservers found": "no server to ask",
    "REST requires ONTAP 9.7 or later": "management LIF does not answer",
    "rpc error: context deadline exceeded": "waited for ONTAP or for the API server",
    "SVM svm_ai has no assigned aggregates": "no aggregate is assigned",
    "kubeadm can upgrade only 1 minor version at a time": "one minor release at a time",
    "mount.nfs: access denied by server while mounting 10.0.0.1:/x": "export policy",
    "mount failed: exit status 32": "no NFS client",
    "invalid dataLIF “10.0.0.1”": "typographic quotation mark",
    "illegal base64 data at input byte 4": "stringData",
    "gpuResourcesEnabledOverride must be set": "no device plugin",
    "E: Packages were downgraded and -y was used": "pins a Docker",
    "No devices were found": "wrong flavour",
    "tls: certificate verify failed: unknown authority": "not signed by an authority",
    "write /var/lib/x: No space left on device": "disk is full",
    "Max retries exceeded with url: /version": "API server of Kubernetes",
    "Failed to connect to the host via ssh: Connection timed out": "was not reached",
}


@pytest.mark.parametrize("message", SEEN)
def test_a_known_failure_gets_its_own_cause(message: str) -> None:
    cause, fix = Failure("dgx01", "task", "x.yml:1", message).known()
    assert SEEN[message] in cause
    assert fix


def test_an_unknown_failure_gets_none() -> None:
    failure = Failure("dgx01", "Do it", "x.yml:1", "something new")
    assert failure.known() == ("", "")
    assert failure.lines() == ["host    dgx01", "task    Do it", "at      x.yml:1", "error   something new"]


LOOP = """
- hosts: all
  gather_facts: false
  tasks:
    - name: Look
      ansible.builtin.assert: {that: item == "a", fail_msg: "there is no {{ item }}"}
      loop: [a, b]
"""


def test_the_message_is_of_the_item_that_failed_and_of_its_output() -> None:
    items = {
        "msg": "One or more items failed",
        "results": [{"item": "a"}, {"item": "b", "failed": True, "msg": "no b"}],
    }
    assert message_of(items) == "b: no b"
    nested = {"msg": "non-zero return code", "stdout": "PLAY [x]\nfatal: [n1]: FAILED! => no\nPLAY RECAP\n"}
    assert message_of(nested) == "non-zero return code: fatal: [n1]: FAILED! => no"
    assert message_of({}) == "the module gave no message"


def test_the_item_of_a_loop_is_named_by_the_ansible_at_hand(tmp_path: Path) -> None:
    playbook = tmp_path / "play.yml"
    playbook.write_text(LOOP)
    done = play(
        playbook, tmp_path, "-i", "here,", "-c", "local", "-e", f"ansible_python_interpreter={sys.executable}"
    )
    (result,) = (result for _, _, result in done.tasks)
    assert message_of(result) == "b: there is no b"


def test_the_error_of_kubeadm_is_not_lost_behind_its_warnings() -> None:
    """Output of `kubeadm upgrade apply` v1.35.4."""
    logged = (
        "W1128 08:57:27.735754   39076 upgradeconfiguration.go:42] [config] WARNING: Ignored " + "x" * 700
    )
    error = (
        '[ERROR CreateJob]: Job "upgrade-health-check" in the namespace "kube-system" did not complete in 15s'
    )
    failed = {
        "msg": "non-zero return code",
        "stderr": f"{logged}\n[preflight] Some fatal errors occurred:\n\t{error}",
    }
    assert error in message_of(failed)
    assert message_of({"msg": "non-zero return code", "stderr": logged}).startswith(
        "non-zero return code: W1128"
    )
