"""The researcher's command line on real containers."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import signal
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

import musterlab.cluster
from orchestrator.client import Client, ForwardedPort, PortInUse
from orchestrator.cluster.errors import NotExecutable
from tests.cli.terminals import terminal
from tests.cluster.waiting import DEADLINE_SECONDS, poll
from tests.control.operators import MUSTER, must, muster, operator, prepare

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.lab, pytest.mark.real_nodes]

FOREVER = ("--command", "sleep", "--args", "infinity")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[musterlab.cluster.Lab]:
    """Yield a lab with one real node and a running operator; team-a is the default project."""
    folder = tmp_path_factory.mktemp("containers")
    running = musterlab.cluster.start(
        "containers", nodes=0, real_nodes=1, detach=False, state_dir=folder / "labs"
    )
    try:
        own = asyncio.run(prepare(running.kubeconfig, folder / "operator-kubeconfig"))
        with operator(own, folder / "operator.log"):
            must(running.kubeconfig, "project", "create", "team-a", "--gpu", "4")
            must(running.kubeconfig, "project", "set", "team-a")
            must(running.kubeconfig, "submit", "box", "-i", "busybox", "--interactive", *FOREVER)
            must(running.kubeconfig, "exec", "box", "true")
            yield running
    finally:
        running.stop()


@pytest.fixture
def config(cluster: musterlab.cluster.Lab) -> Path:
    return cluster.kubeconfig


def fed(config: Path, given: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run the command line with these bytes on standard input."""
    return subprocess.run(
        [*MUSTER, *arguments],
        env={**os.environ, "KUBECONFIG": str(config)},
        input=given,
        capture_output=True,
        timeout=300,
        check=False,
    )


@contextmanager
def staying(config: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command that does not end by itself, and end it after the block."""
    environment = {**os.environ, "KUBECONFIG": str(config), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen([*MUSTER, *arguments], env=environment, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE_SECONDS)


def test_a_command_keeps_its_streams_apart_and_its_exit_code(config: Path) -> None:
    done = muster(config, "exec", "box", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\n")


@pytest.mark.parametrize("words", [("-i", "box"), ("box", "-i", "--"), ("box", "--stdin")])
def test_a_command_reads_every_byte_and_the_end(words: tuple[str, ...], config: Path) -> None:
    given = bytes(range(256)) * 8192
    done = fed(config, given, "exec", *words, "cat")
    assert done.returncode == 0
    assert done.stdout == given


def test_flags_of_the_command_are_the_commands(config: Path) -> None:
    assert must(config, "exec", "box", "echo", "-i", "--pod", "x", "-p") == "-i --pod x -p\n"


def test_a_command_that_is_not_there_has_the_exit_code_of_a_shell(config: Path) -> None:
    done = muster(config, "exec", "box", "no-such-thing")
    assert done.returncode == 127
    assert done.stderr.splitlines() == [
        'Error: the container cannot run "no-such-thing": executable file not found in $PATH'
    ]


def test_a_shell_takes_a_script_from_a_pipe(config: Path) -> None:
    done = fed(config, b"echo $((6 * 7))\nexit 3\n", "bash", "box")
    assert (done.returncode, done.stdout, done.stderr) == (3, b"42\n", b"")


def test_a_terminal_has_a_size_takes_ctrl_c_and_is_set_back(config: Path) -> None:
    with terminal(config, "exec", "box", "-it", "--", "sh", columns=97, rows=31) as screen:
        before = screen.modes()
        screen.see(b"# ")
        assert screen.modes() != before
        screen.type(b"stty size; tty\r")
        screen.see(b"31 97")
        screen.see(b"/dev/pts/")
        screen.resize(64, 20)
        screen.type(b"until stty size | grep -q '20 64'; do sleep 0.1; done; echo re''sized\r")
        screen.see(b"resized")
        screen.type(b"echo sle''eps; sleep 1000\r")
        screen.see(b"sleeps")
        screen.type(b"\x03")
        screen.see(b"# ")
        screen.type(b"echo code''=$?; exit 5\r")
        screen.see(b"code=130")
        assert screen.exit_code() == 5
        assert screen.modes() == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_terminal_is_set_back_when_the_command_line_is_ended(number: signal.Signals, config: Path) -> None:
    with terminal(config, "bash", "box") as screen:
        before = screen.modes()
        screen.see(b"# ")
        assert screen.modes() != before
        screen.process.send_signal(number)
        assert screen.exit_code() == 128 + number
        assert screen.modes() == before


def test_a_log_is_followed_from_before_the_start_to_the_end(config: Path) -> None:
    words = ("-i", "gcr.io/run-ai-demo/quickstart", "-g", "1", "-e", "EPOCHS=1", "-e", "STEP_SECONDS=0.1")
    must(config, "submit", "train", *words)
    followed = muster(config, "logs", "-f", "train")
    assert followed.returncode == 0
    lines = followed.stdout.splitlines()
    assert lines[0] == "Running on 1 GPU(s)"
    assert lines[-1].startswith("loss:")
    assert must(config, "logs", "train") == followed.stdout
    assert must(config, "logs", "train", "--tail", "2").splitlines() == lines[-2:]
    assert must(config, "logs", "train", "--tail=1", "--timestamps").split()[1:] == lines[-1].split()
    for late in (("exec", "train", "ls"), ("attach", "train"), ("port-forward", "train", "80")):
        refused = muster(config, *late)
        assert refused.returncode == 1
        assert "has ended (Succeeded)" in refused.stderr


def test_submit_attaches_and_ends_as_the_container_does(config: Path) -> None:
    script = "read line; echo got $line; cat; exit 5"
    done = fed(
        config, b"one\ntwo\n", "submit", "attached", "-i", "busybox", "--attach", "--", "sh", "-c", script
    )
    assert done.returncode == 5
    assert done.stdout.endswith(b"got one\ntwo\n")


def test_attach_joins_the_terminal_of_a_job(config: Path) -> None:
    must(config, "submit", "shell", "-i", "busybox", "--interactive", "--stdin", "--tty", "--", "sh")
    with terminal(config, "attach", "shell") as screen:
        screen.see(b"press Enter")
        screen.type(b"\r")
        screen.see(b"# ")
        screen.type(b"echo $((6*7))\r")
        screen.see(b"42")
        screen.type(b"exit 9\r")
        assert screen.exit_code() == 9


def test_a_notebook_tells_its_token_and_is_reached_through_its_port(config: Path) -> None:
    with staying(config, "submit", "note", "--jupyter", "--port", "18888:8888") as process:
        assert process.stdout is not None
        said = [process.stdout.readline().rstrip() for _ in range(4)]
        assert said[2].startswith("Jupyter notebook token: ")
        assert said[3] == "Open access point(s) to service from localhost:18888"
        assert "note-0" in page(18888)
    with staying(config, "port-forward", "note", ":8888") as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().split(":")[1].split()[0])
        for _ in range(3):
            assert "note-0" in page(port)


def test_programs_do_the_same_through_the_client(config: Path) -> None:
    must(config, "submit", "web", "--jupyter", "--no-port-forward")
    given = bytes(range(256)) * 1000
    with Client(config) as client:
        done = client.execute("box", ["sh", "-c", "cat; echo err >&2; exit 4"], stdin=given)
        assert (done.exit_code, done.stdout, done.stderr) == (4, given, b"err\n")
        with pytest.raises(NotExecutable):
            client.execute("box", ["no-such-thing"])
        with client.port_forward("web", ForwardedPort(0, 8888)) as (address,):
            assert "web-0" in page(address.local)
            with pytest.raises(PortInUse), client.port_forward("web", ForwardedPort(address.local, 8888)):
                pass


def page(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_SECONDS)
    connection.request("GET", "/")
    return connection.getresponse().read().decode()


TEXTS = {
    "QUOTES": 'it\'s "quoted" \\ and `ticked`',
    "LINES": "one\ntwo\r\n\n\tthree ",
    "EXPANDED": "$(JOB_NAME) $$(JOB_NAME) $$ $HOME ${HOME} $",
    "LETTERS": "größe → 𝄞 $é",
    "LONG": "x" * 65536,
    "EQUALS": "a=b=c",
    "EMPTY": "",
}


def test_variables_arguments_and_annotations_arrive_byte_for_byte(config: Path) -> None:
    variables = [word for name, text in TEXTS.items() for word in ("-e", f"{name}={text}")]
    arguments = [text for text in TEXTS.values() if text]
    annotation = ("-a", f"example.com/note={TEXTS['EXPANDED']}{TEXTS['LETTERS']}{TEXTS['LINES']}")
    command = ("sh", "-c", "while :; do sleep 1; done", "sh", *arguments)
    must(config, "submit", "bytes", "-i", "busybox", *variables, *annotation, "--command", "--", *command)
    given = fed(config, b"", "exec", "bytes", "--", "cat", "/proc/1/environ").stdout.decode().split("\0")
    arrived = dict(each.split("=", 1) for each in given if each)
    assert {name: arrived.get(name) for name in TEXTS} == TEXTS
    words = fed(config, b"", "exec", "bytes", "--", "cat", "/proc/1/cmdline").stdout.decode().split("\0")
    assert words == [*command, ""]
    job = objects(config, "jobs", "bytes")
    assert job["metadata"]["annotations"]["example.com/note"] == annotation[1].partition("=")[2]


def test_the_processes_of_a_gang_know_their_number_and_each_other(config: Path) -> None:
    script = "echo $RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT as $(hostname)"
    must(
        config, "submit-dist", "pytorch", "gang", "-i", "busybox", "--workers", "2", "--", "sh", "-c", script
    )
    names = sorted(each["metadata"]["name"] for each in pods_of(config, "gang", 3))
    said = [must(config, "logs", "-f", "gang", "--pod", name).strip() for name in names]
    assert said == [f"{rank} of 3 at gang-0.gang:29500 as gang-{rank}" for rank in range(3)]
    service = objects(config, "services", "gang")
    assert service["spec"]["clusterIP"] == "None"


def test_the_logs_of_a_sweep_are_read_by_index_and_all_together(config: Path) -> None:
    script = "echo run $JOB_COMPLETION_INDEX; printf end; test $JOB_COMPLETION_INDEX != 2"
    words = ("-i", "busybox", "--array", "0-3%2", "--backoff-limit", "0", "--", "sh", "-c", script)
    must(config, "submit", "sweep", *words)
    assert muster(config, "wait", "sweep", "--timeout", "2m").returncode == 0
    assert must(config, "logs", "sweep", "--index", "3") == "run 3\nend"
    newest = muster(config, "logs", "sweep")
    assert re.fullmatch("The log of pod sweep-[0-3]-[a-z0-9]{5}, one of 4; see --all-pods\n", newest.stderr)
    lines = sorted(must(config, "logs", "sweep", "--all-pods").splitlines())
    assert [re.sub("-[a-z0-9]{5}/", "/", line) for line in lines] == [
        f"[pod/sweep-{index}/sweep] {text}" for index in range(4) for text in ("end", f"run {index}")
    ]
    assert sorted(must(config, "logs", "sweep", "--all-pods", "-f").splitlines()) == lines
    job = json.loads(must(config, "get", "sweep", "-o", "json"))
    indexes = {"count": 4, "succeededCount": 3, "succeededIndexes": "0,1,3", "failedIndexes": "2"}
    assert (job["status"], job["indexes"]) == ("Failed", indexes)


def test_the_code_of_a_working_tree_runs_in_every_pod(config: Path, tmp_path: Path) -> None:
    """The user is not root, and writes beside the files; a gang of two has them in both pods."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/a b.bin").write_bytes(bytes(range(256)))
    script = "#!/bin/sh\nwc -c < 'lib/a b.bin'; touch lib/log && pwd && id -u; stat -c %a train.sh\n"
    (tmp_path / "train.sh").write_text(script)
    (tmp_path / "train.sh").chmod(0o755)
    words = ("-i", "busybox", "--code", str(tmp_path), "--run-as-uid", "1234", "--", "./train.sh")
    must(config, "submit", "tree", *words[:-2], "--nodes", "2", *words[-2:])
    assert muster(config, "wait", "tree", "--for", "succeeded", "--timeout", "2m").returncode == 0
    names = sorted(each["metadata"]["name"] for each in pods_of(config, "tree", 2))
    said = [must(config, "logs", "tree", "--pod", name).splitlines() for name in names]
    assert said == [["256", "/code", "1234", "755"]] * 2
    must(config, "delete", "tree")
    poll(lambda: not [name for name in everything(config) if "tree" in name], "it is gone")


def test_a_server_side_dry_run_creates_nothing(config: Path) -> None:
    words = ("-i", "busybox", "--interactive", "-s", "ingress", "--port", "80", "--pvc", ":1Gi:/data")
    made = json.loads(must(config, "submit", "dry", *words, "--dry-run=server", "-o", "json"))["items"]
    kinds = [each["kind"] for each in made]
    assert kinds == ["StatefulSet", "PersistentVolumeClaim", "Service", "Ingress"]
    assert made[0]["spec"]["updateStrategy"]  # only the API server fills this field in
    assert muster(config, "get", "dry").returncode == 1


def test_a_submission_that_the_server_refuses_leaves_nothing_behind(config: Path) -> None:
    words = ("-i", "busybox", "--interactive", "--pvc", ":1Gi:/data", "-s", "nodeport", "--port", "99:80")
    refused = muster(config, "submit", "half", *words)
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1
    assert "nodePort" in refused.stderr
    poll(lambda: not [name for name in everything(config) if "half" in name], "it is gone")


def test_a_notebook_waits_until_the_deleted_one_whose_quota_it_needs_has_ended(config: Path) -> None:
    """The first container ends after SIGTERM once a file exists. Other GPUs of the node are free."""
    must(config, "project", "create", "team-q", "--gpu", "1")
    slow = "trap 'until [ -e /tmp/end ]; do sleep 0.1; done; exit 0' TERM; while :; do sleep 0.1; done"
    notebook = ("-i", "busybox", "-g", "1", "--interactive", "-p", "team-q")
    must(config, "submit", "first", *notebook, "--", "sh", "-c", slow)
    must(config, "exec", "first", "-p", "team-q", "true")
    (first,) = [
        each["metadata"]["name"] for each in objects(config, "pods", namespace="muster-team-q")["items"]
    ]
    must(config, "delete", "first", "-p", "team-q")
    must(config, "submit", "second", *notebook, *FOREVER)

    words = "quota of team-q: 1 GPU is still held by terminating pods"
    poll(lambda: words in must(config, "explain", "second", "-p", "team-q"), words)
    pods = {
        each["metadata"]["name"]: each for each in objects(config, "pods", namespace="muster-team-q")["items"]
    }
    assert "deletionTimestamp" in pods.pop(first)["metadata"]
    ((second, waiting),) = pods.items()
    assert "nodeName" not in waiting["spec"]
    assert waiting["status"]["nominatedNodeName"]
    kubectl(config, "exec", first, "--", "touch", "/tmp/end", namespace="muster-team-q")  # noqa: S108
    must(config, "exec", "second", "-p", "team-q", "true")
    assert objects(config, "pods", second, namespace="muster-team-q")["spec"]["nodeName"]


def everything(config: Path) -> list[str]:
    """Return the names of all objects of a submission."""
    kinds = ("statefulsets", "persistentvolumeclaims", "services", "secrets", "ingresses")
    return [each["metadata"]["name"] for each in objects(config, ",".join(kinds))["items"]]


def objects(config: Path, plural: str, *names: str, namespace: str = "muster-team-a") -> Any:
    """Read objects with kubectl, without muster's code."""
    return json.loads(kubectl(config, "get", plural, *names, "-o", "json", namespace=namespace))


def kubectl(config: Path, *arguments: str, namespace: str) -> bytes:
    cluster = musterlab.cluster.find("containers", state_dir=config.parents[1])
    program = cluster.kubectl_directory / "kubectl"
    command = [str(program), f"--kubeconfig={config}", "-n", namespace, *arguments]
    return subprocess.run(command, capture_output=True, check=True, timeout=300).stdout


def pods_of(config: Path, name: str, count: int) -> list[Any]:
    """Return the pods of a job once there are `count`."""
    found: list[Any] = []

    def enough() -> bool:
        found[:] = objects(config, "pods", "-l", f"muster.dev/workload={name}")["items"]
        return len(found) == count

    poll(enough, f"{name} has {count} pods")
    return found
