"""Data that `muster data` clones, snapshots and restores on the real nodes of a lab.

The API server, the kubelets, external-provisioner and external-snapshotter are the real programs. The CSI driver
(tested with csi-sanity in `test_storage_driver.py`), the registrar and the operator are muster's.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import musterlab.cluster
from musterlab.errors import BinariesError
from musterlab.storage.serving import CLASS, storage
from orchestrator.progress import Reporter
from tests.cluster.waiting import DEADLINE_SECONDS, poll
from tests.control.operators import must, muster, operator, prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from musterlab.cluster import Lab

pytestmark = [pytest.mark.lab, pytest.mark.real_nodes]

PROJECT = "datasets"
TOOLKIT = "3.1.0"
"""The tested version of NetApp's netapp-dataops-k8s. It cannot clone with a client of Kubernetes 36 or newer."""
IMAGE = ("-i", "busybox")
WRITE = "head -c 3000000 /dev/urandom > /data/bytes; mkdir /data/folder; echo kept > /data/folder/note"
DIGEST = "cd /data; sha256sum bytes folder/note"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Yield a lab with two real nodes with storage, an operator, and a default project."""
    folder = tmp_path_factory.mktemp("storage")
    running = musterlab.cluster.start(
        "storage", nodes=0, real_nodes=2, detach=False, state_dir=folder / "labs"
    )
    try:
        try:
            stored = storage(running, Reporter(print))
            stored.__enter__()
        except BinariesError as error:
            pytest.skip(str(error))
        try:
            account = asyncio.run(prepare(running.kubeconfig, folder / "operator-kubeconfig"))
            with operator(account, folder / "operator.log"):
                must(running.kubeconfig, "project", "create", PROJECT, "-g", "16")
                must(running.kubeconfig, "project", "set", PROJECT)
                yield running
        finally:
            stored.__exit__(None, None, None)
    finally:
        running.stop()


def data(lab: Lab, *words: str) -> str:
    return must(lab.kubeconfig, "data", *words)


def claims(lab: Lab) -> set[str]:
    return {volume["name"] for volume in json.loads(data(lab, "volume", "list", "--json"))}


def run(lab: Lab, name: str, script: str, *options: str) -> dict[str, Any]:
    """Run a job, which must succeed. Returns the output of `muster get`, with its log under `log`."""
    config = lab.kubeconfig
    words = (*IMAGE, *options, "--backoff-limit", "0", "--command", "--", "sh", "-ec", script)
    must(config, "submit", name, *words)
    job = until(lab, name, {"Succeeded", "Failed"})
    job["log"] = must(config, "logs", name)
    assert job["status"] == "Succeeded", job["log"]
    return job


def until(lab: Lab, name: str, statuses: set[str]) -> dict[str, Any]:
    job: dict[str, Any] = {}

    def is_reached() -> bool:
        job.update(json.loads(must(lab.kubeconfig, "get", name, "-o", "json")))
        return job["status"] in statuses

    poll(is_reached, f"{name} is {statuses}")
    return job


def until_deleted(lab: Lab, claim: str) -> None:
    poll(lambda: claim not in claims(lab), f"{claim} is deleted")


def until_done(command: Callable[[], subprocess.CompletedProcess[str]]) -> None:
    """Repeat a command that is refused while pods of deleted jobs still exist."""

    def is_done() -> bool:
        done = command()
        assert done.returncode == 0 or "it is used by" in done.stderr
        return done.returncode == 0

    poll(is_done, "no pod uses it")


def digest(lab: Lab, name: str, *options: str) -> str:
    """Return the text that a job reads in the volume mounted at /data."""
    log: str = run(lab, name, DIGEST, *options)["log"]
    assert len(log.splitlines()) == 2
    return log


def test_the_content_of_a_snapshot_is_restored_after_a_damage(lab: Lab) -> None:
    data(lab, "volume", "create", "images", "--size", "64Mi", "--access-mode", "ReadWriteMany")
    run(lab, "write", WRITE, "--pvc", "images:/data")
    written = digest(lab, "read", "--pvc", "images:/data")
    data(lab, "snapshot", "create", "images", "monday")
    data(lab, "volume", "clone", "images", "copy")
    run(lab, "damage", "echo broken > /data/bytes; rm -r /data/folder", "--pvc", "images:/data")
    assert run(lab, "look", "ls /data", "--pvc", "images:/data")["log"].split() == ["bytes"]

    assert digest(lab, "read-copy", "--pvc", "copy:/data") == written
    data(lab, "snapshot", "restore", "monday", "back")
    assert digest(lab, "read-back", "--pvc", "back:/data") == written
    refused = muster(lab.kubeconfig, "data", "snapshot", "restore", "monday", "--replace")
    assert (
        "it is used by job damage (ended), job look (ended), job read (ended), job write (ended)"
        in refused.stderr
    )
    must(lab.kubeconfig, "delete", "damage", "look", "read", "write")
    until_done(lambda: muster(lab.kubeconfig, "data", "snapshot", "restore", "monday", "--replace"))
    assert digest(lab, "read-replaced", "--pvc", "images:/data") == written

    refused = muster(lab.kubeconfig, "data", "snapshot", "delete", "monday")
    assert refused.returncode == 1
    assert "back" in refused.stderr
    assert "images" in refused.stderr


def test_a_job_of_another_node_reads_the_files_of_the_first_while_it_runs(lab: Lab) -> None:
    data(lab, "volume", "create", "shared", "--size", "16Mi", "--access-mode", "ReadWriteMany")
    config = lab.kubeconfig
    words = ("-g", "8", *IMAGE, "--pvc", "shared:/data", "--command", "--", "sh", "-ec")
    must(config, "submit", "writer", *words, f"{WRITE}; {DIGEST}; touch /data/done; sleep 600")
    waits = "while [ ! -e /data/done ]; do sleep 0.2; done; "
    reader = run(lab, "reader", waits + DIGEST, "-g", "8", "--pvc", "shared:/data")
    writer = until(lab, "writer", {"Running"})
    assert must(config, "logs", "writer") == reader["log"]
    assert {node for job in (writer, reader) for node in job["nodes"]} == {"dgx1-real-1", "dgx1-real-2"}
    must(config, "delete", "writer")


def test_a_clone_for_a_job_is_its_own_and_is_deleted_with_it(lab: Lab) -> None:
    data(lab, "volume", "create", "source", "--size", "16Mi")
    run(lab, "fill", WRITE, "--pvc", "source:/data")
    before = digest(lab, "before", "--pvc", "source:/data")
    changed = f"{DIGEST}; echo changed > /data/bytes"
    assert run(lab, "train", changed, "--clone-of", "source:/data")["log"] == before
    assert digest(lab, "after", "--pvc", "source:/data") == before

    refused = muster(lab.kubeconfig, "data", "volume", "delete", "source")
    assert refused.returncode == 1
    assert "it has clones: pvc-train-0" in refused.stderr
    must(lab.kubeconfig, "delete", "train", "fill", "before", "after")
    until_deleted(lab, "pvc-train-0")
    until_done(lambda: muster(lab.kubeconfig, "data", "volume", "delete", "source"))
    until_deleted(lab, "source")


def test_a_result_is_kept_when_its_job_has_succeeded(lab: Lab) -> None:
    data(lab, "volume", "create", "results", "--size", "16Mi")
    run(lab, "good", WRITE, "--pvc", "results:/data", "--snapshot-on-success")
    result = digest(lab, "read-results", "--pvc", "results:/data")
    run(lab, "worse", "echo worse > /data/bytes", "--pvc", "results:/data")
    taken: list[str] = []

    def is_taken() -> bool:
        taken[:] = json.loads(must(lab.kubeconfig, "get", "good", "-o", "json"))["snapshots"]
        return bool(taken)

    poll(is_taken, "a snapshot is taken")
    data(lab, "snapshot", "restore", taken[0], "as-it-was")
    assert digest(lab, "read-kept", "--pvc", "as-it-was:/data") == result


def test_a_notebook_opens_on_a_clone_of_a_dataset(lab: Lab) -> None:
    data(lab, "volume", "create", "notes", "--size", "16Mi")
    run(lab, "fill-notes", WRITE, "--pvc", "notes:/data")
    written = digest(lab, "read-notes", "--pvc", "notes:/data")
    data(lab, "workspace", "create", "note", "--clone-of", "notes", "-g", "1")
    until(lab, "note", {"Running"})
    script = "cd /home/jovyan/work; sha256sum bytes folder/note"
    assert must(lab.kubeconfig, "exec", "note", "--", "sh", "-c", script) == written
    data(lab, "workspace", "delete", "note")
    until_deleted(lab, "pvc-note-0")
    assert "note" not in data(lab, "workspace", "list", "--no-headers")


def toolkit() -> str:
    """Return the command of NetApp's DataOps Toolkit, in a separate environment because of its dependencies."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    program = cache / "muster" / f"netapp-dataops-k8s-{TOOLKIT}" / "bin" / "netapp_dataops_k8s_cli.py"
    if not program.exists():
        folder = program.parents[1]
        pytest.skip(
            f"{program} is not there: uv venv {folder} && "
            f"uv pip install --python {folder}/bin/python netapp-dataops-k8s=={TOOLKIT} kubernetes==35.0.0"
        )
    return str(program)


@pytest.mark.rare  # takes 40 seconds; the toolkit has one version, and muster's volumes are tested above
def test_the_dataops_toolkit_works_on_the_same_volumes(lab: Lab) -> None:
    program = toolkit()

    def run_toolkit(*words: str) -> str:
        done = subprocess.run(
            [program, *words, "-n", f"muster-{PROJECT}"],
            env={**os.environ, "KUBECONFIG": str(lab.kubeconfig)},
            capture_output=True, text=True, check=False, timeout=DEADLINE_SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        return done.stdout + done.stderr  # the toolkit prints its tables as log lines

    data(lab, "volume", "create", "ours", "--size", "16Mi")
    run(lab, "fill-ours", WRITE, "--pvc", "ours:/data")
    written = digest(lab, "read-ours", "--pvc", "ours:/data")
    data(lab, "snapshot", "create", "ours", "by-muster")
    run_toolkit("clone", "volume", "-v", "ours", "-p", "theirs", "-c", CLASS)
    run_toolkit("create", "volume-snapshot", "-p", "ours", "-s", "by-toolkit", "-c", CLASS)

    assert "ours" in run_toolkit("list", "volumes")
    assert "by-muster" in run_toolkit("list", "volume-snapshots")
    assert "theirs" in claims(lab)
    assert digest(lab, "read-theirs", "--pvc", "theirs:/data") == written
    data(lab, "snapshot", "restore", "by-toolkit", "restored")
    assert digest(lab, "read-restored", "--pvc", "restored:/data") == written
