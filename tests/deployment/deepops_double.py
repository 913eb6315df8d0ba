"""Makes a git repository with the layout of DeepOps and a submodule, and a wheel with its ansible-playbook."""

import base64
import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

_GIT = ["git", "-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "protocol.file.allow=always"]
_PLAY = """---
- hosts: k8s_cluster
  gather_facts: false
  tasks:
    - name: Refuse when told to
      ansible.builtin.fail:
        msg: Ansible must be between 2.18.0 and 2.19.0 exclusive - you have 2.17.14
      when: lookup('ansible.builtin.fileglob', '{work}/broken') | length > 0
    - name: Install
      ansible.builtin.shell: >-
        echo {playbook} {{{{ kube_version }}}} {{{{ container_manager }}}} etcd={{{{ etcd_deployment_type }}}}
        {{{{ groups.etcd | join('+') }}}} {{{{ containerd_default_runtime | default('runc') }}}}
        helm={{{{ helm_enabled }}}} >> {work}/runs
      run_once: true
    - name: Leave the access
      ansible.builtin.copy:
        src: {kubeconfig}
        dest: "{{{{ artifacts_dir }}}}/admin.conf"
        mode: "0600"
      run_once: true
"""
_DEVICES = """---
- hosts: muster_gpu
  gather_facts: false
  tasks:
    - name: Announce GPUs
      ansible.builtin.shell: echo {what} on {{{{ inventory_hostname }}}} >> {work}/runs
"""
_UPGRADE = """---
- hosts: k8s_cluster
  gather_facts: false
  serial: "{{{{ serial | default('20%') }}}}"
  tasks:
    - name: Drain
      ansible.builtin.command: sh {work}/node.sh {{{{ inventory_hostname }}}} drain
    - name: Refuse when told to
      ansible.builtin.fail:
        msg: the kubelet of {{{{ inventory_hostname }}}} does not start
      when: lookup('ansible.builtin.fileglob', '{work}/broken-' ~ inventory_hostname) | length > 0
    - name: Upgrade
      ansible.builtin.command: >-
        sh {work}/node.sh {{{{ inventory_hostname }}}} {{{{ kube_version }}}}
        {{{{ container_manager }}}} etcd={{{{ etcd_deployment_type }}}}
"""
_FACTS = """---
- hosts: k8s_cluster:etcd
  gather_facts: false
  tasks:
    - name: Read the facts
      ansible.builtin.raw: echo facts {{{{ inventory_hostname }}}} >> {work}/runs
"""
_SCALE = """---
- hosts: kube_node
  gather_facts: false
  tasks:
    - name: Refuse when told to
      ansible.builtin.fail:
        msg: the kubelet of {{{{ inventory_hostname }}}} does not start
      when: lookup('ansible.builtin.fileglob', '{work}/broken-' ~ inventory_hostname) | length > 0
    - name: Join
      ansible.builtin.raw: sh {work}/node.sh {{{{ inventory_hostname }}}} {{{{ kube_version }}}} join
    - name: Make a token
      ansible.builtin.raw: "true"
      delegate_to: "{{{{ groups.kube_control_plane | first }}}}"
"""
_REMOVE = """---
- hosts: "{{{{ node }}}}"
  gather_facts: false
  tasks:
    - name: Reset
      ansible.builtin.raw: echo reset {{{{ inventory_hostname }}}} >> {work}/runs
      when: reset_nodes | default(True) | bool
    - name: Refuse when told to
      ansible.builtin.fail:
        msg: the API server does not answer
      when: lookup('ansible.builtin.fileglob', '{work}/broken-' ~ inventory_hostname) | length > 0
    - name: Delete node
      ansible.builtin.raw: sh {work}/node.sh {{{{ node }}}} delete
      delegate_to: "{{{{ groups.kube_control_plane | first }}}}"
      when: skip_confirmation | default(false) | bool
"""
_NODE = """#!/bin/sh
# node.sh NODE drain, NODE delete, or NODE RELEASE SETTINGS: what kubespray does to a node object
export KUBECONFIG={kubeconfig}
if [ "$2" = drain ]; then
  rm -f {work}/closed-"$1"
  if [ -z "$({kubectl} get node "$1" -o jsonpath='{{.spec.unschedulable}}')" ]; then
    {kubectl} cordon "$1" >/dev/null
    : > {work}/closed-"$1"
  fi
  closed=$({kubectl} get nodes -o jsonpath='{{.items[?(@.spec.unschedulable==true)].metadata.name}}')
  echo "drain $1, closed $closed" >> {work}/runs
elif [ "$2" = delete ]; then
  {kubectl} delete node "$1" --ignore-not-found >/dev/null
  echo "delete $1" >> {work}/runs
else
  if [ "$3" = join ]; then
    echo '{{"apiVersion":"v1","kind":"Node","metadata":{{"name":"'"$1"'"}}}}' | {kubectl} apply -f - >/dev/null
  fi
  info='{{"kubeletVersion":"v'"$2"'","containerRuntimeVersion":"containerd://2.2.3"}}'
  {kubectl} patch node "$1" --subresource=status -p '{{"status":{{"nodeInfo":'"$info"'}}}}' >/dev/null
  if [ "$3" != join ] && [ -e {work}/closed-"$1" ]; then {kubectl} uncordon "$1" >/dev/null; fi
  node=$1 release=$2
  shift 2
  echo "upgrade $node $release, $*" >> {work}/runs
fi
"""
_CFG = (
    "[defaults]\ninventory = ./config/inventory\nfact_caching_connection = /nowhere\n"
    f"connection_plugins = {Path(__file__).parent / 'connections'}\nforks = 25\n"
    "[counted]\ncalls = {work}/calls\n"
)


def repository(
    directory: Path, kubeconfig: Path, work: Path, kubectl: Path | None = None
) -> tuple[Path, str]:
    """Make both repositories; return the path of the outer one and the commit of its tag.

    With a `kubectl`, its upgrade cordons, changes and uncordons node objects, batch by batch.
    """
    kubespray, deepops = directory / "kubespray", directory / "deepops"
    gpus = deepops / "playbooks" / "k8s-cluster"
    files = {
        kubespray / "cluster.yml": _play("install", kubeconfig, work),
        kubespray / "upgrade-cluster.yml": _play("upgrade", kubeconfig, work),
        kubespray / "reset.yml": _play("reset", kubeconfig, work),
        kubespray / "playbooks" / "facts.yml": _FACTS.format(work=work),
        kubespray / "scale.yml": _SCALE.format(work=work),
        kubespray / "remove-node.yml": _REMOVE.format(work=work),
        deepops / "ansible.cfg": _CFG.format(work=work),
        **{
            gpus / f"nvidia-k8s-gpu-{name}.yml": _DEVICES.format(work=work, what=name)
            for name in ("feature-discovery", "device-plugin")
        },
    }
    if kubectl:
        files[kubespray / "upgrade-cluster.yml"] = _UPGRADE.format(work=work)
        files[work / "node.sh"] = _NODE.format(kubeconfig=kubeconfig, work=work, kubectl=kubectl)
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    _commit(kubespray)
    _git(deepops, "init", "-q")
    _git(deepops, "submodule", "add", "-q", str(kubespray), "submodules/kubespray")
    _commit(deepops)
    _git(deepops, "tag", "26.07")
    return deepops, _git(deepops, "rev-parse", "26.07^{commit}")


def lock(directory: Path) -> Path:
    """Make a lock of one wheel, whose ansible-playbook is that of this test run."""
    made = _wheel(directory)
    path = directory / "requirements.txt"
    digest = hashlib.sha256(made.read_bytes()).hexdigest()
    path.write_text(f"pinned-ansible @ file://{made} --hash=sha256:{digest}\n")
    return path


def environment(deepops: Path, lock: Path) -> None:
    """Make the virtual environment of a checkout, as an earlier run with this lock would have left it."""
    programs = Path(f"{deepops}-venv") / "bin"
    programs.mkdir(parents=True)
    program = programs / "ansible-playbook"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m ansible playbook "$@"\n')
    program.chmod(0o755)
    (programs.parent / "requirements.txt").write_bytes(lock.read_bytes())


def _wheel(directory: Path) -> Path:
    path = directory / "pinned_ansible-1.0-py3-none-any.whl"
    info = "pinned_ansible-1.0.dist-info"
    files = {
        "pinned_ansible.py": "import os, sys\ndef main():\n"
        f"    os.execv({sys.executable!r}, [{sys.executable!r}, '-m', 'ansible', 'playbook', *sys.argv[1:]])\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: pinned-ansible\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\nansible-playbook = pinned_ansible:main\n",
    }
    records = [f"{name},sha256={_digest(text)},{len(text)}" for name, text in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*records, f"{info}/RECORD,,"]) + "\n"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def _play(playbook: str, kubeconfig: Path, work: Path) -> str:
    return _PLAY.format(playbook=playbook, kubeconfig=kubeconfig, work=work)


def _commit(directory: Path) -> None:
    _git(directory, "init", "-q")
    _git(directory, "add", "-A")
    _git(directory, "commit", "-q", "-m", "all")


def _git(directory: Path, *arguments: str) -> str:
    done = subprocess.run([*_GIT, *arguments], cwd=directory, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
