"""A submission reads and parses each of its inputs once (cli/submit_request.py)."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from orchestrator.submit import mount_parsing, parsing
from tests.cli.conftest import write_kubeconfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from tests.cli.conftest import Outcome
    from tests.cli.memory_api_server import MemoryApiServer

    Muster = Callable[..., Outcome]

IMAGE = ("-i", "image")
VARIABLES = b"A=1\nB=two words\nC=\xc3\xa4$(X)\n" + b"".join(b"V%d=%s\n" % (n, b"x" * 99) for n in range(900))
NAMES = ["A", "B", "C", *(f"V{number}" for number in range(900))]
PARSERS = {parsing.__file__, mount_parsing.__file__}


def user_variables(server: MemoryApiServer) -> dict[str, str]:
    (job,) = server.all("jobs")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return {variable["name"]: variable.get("value", "") for variable in container["env"]}


def test_a_named_pipe_is_read_once_and_whole(muster: Muster, server: MemoryApiServer, tmp_path: Path) -> None:
    pipe = tmp_path / "variables"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(VARIABLES,))
    writer.start()
    outcome = muster("submit", "x", *IMAGE, "--env-file", str(pipe))
    writer.join()
    assert (outcome.code, outcome.err) == (0, "")
    variables = user_variables(server)
    assert [name for name in variables if name in set(NAMES)] == NAMES
    assert (variables["B"], variables["C"], variables["V899"]) == ("two words", "ä$$(X)", "x" * 99)


@pytest.mark.parametrize("how", ["--env-file <(cat variables)", "--env-file /dev/stdin < <(cat variables)"])
def test_a_shell_hands_variables_over_in_a_pipe(how: str, server: MemoryApiServer, tmp_path: Path) -> None:
    write_kubeconfig(tmp_path / "config", server.url)
    (tmp_path / "variables").write_bytes(VARIABLES)
    command = Path(sys.executable).with_name("muster")
    done = subprocess.run(
        ["bash", "-c", f'"$0" submit x -i image {how}', str(command)],
        cwd=tmp_path,
        env={**os.environ, "KUBECONFIG": str(tmp_path / "config")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [name for name in user_variables(server) if name in set(NAMES)] == NAMES


def test_a_pipe_of_a_template_is_read_once(muster: Muster, server: MemoryApiServer, tmp_path: Path) -> None:
    pipe = tmp_path / "variables"
    os.mkfifo(pipe)
    assert muster("template", "create", "base", "--set", f"env-file={pipe}", "--default").code == 0
    writer = threading.Thread(target=pipe.write_bytes, args=(b"FROM=template\n",))
    writer.start()
    assert muster("submit", "x", *IMAGE).code == 0
    writer.join()
    assert user_variables(server)["FROM"] == "template"


def test_no_value_is_parsed_twice_on_the_way_of_a_submit(muster: Muster, server: MemoryApiServer) -> None:
    template = {"environment": ["FROM=template"], "toleration": ["maintenance"], "cpu": "3"}
    server.add(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": "base",
                "namespace": "muster-team-a",
                "labels": {"muster.dev/template": "true"},
                "annotations": {"muster.dev/default": "true"},
            },
            "data": {"values": yaml.safe_dump(template)},
        }
    )
    line = (
        "-g 0.5 --cpu-limit 4 --memory 1Gi --memory-limit 2Gi -e A=1 -e B=2 -v /a:/a --pvc :1Gi:/b -l a=b -a c=d "
        "--toleration spot --git-sync source=https://example.com/a.git --extended-resource rdma/hca=1 "
        "--ttl-after-finish 1h --backoff-limit 2 --run-as-uid 7 --supplemental-groups 8 --add-capability NET_ADMIN "
        "--node-type dgx --required-pod-topology-key rack --completions 4 --parallelism 2 --min-member 2"
    )
    calls: Counter[tuple[Any, ...]] = Counter()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename in PARSERS and code.co_name.startswith("parse_"):
            arguments = [frame.f_locals[name] for name in code.co_varnames[: code.co_argcount]]
            if arguments[-1] is not None:
                calls[code.co_name, *map(repr, arguments)] += 1

    sys.setprofile(note)
    threading.setprofile(note)
    try:
        outcome = muster("submit", *IMAGE, *line.split(), "--dry-run=client")
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert (outcome.code, outcome.err) == (0, "")
    assert "FROM" in outcome.out
    assert len(calls) > 20
    assert [call for call, count in calls.items() if count > 1] == []
