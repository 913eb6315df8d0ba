"""Command lines on real nodes: those of the papers and of scripts for Run:AI, unchanged, with `runai`, and any bytes as
their values.

User input arrives in the container byte for byte, or is refused with the reason, and then nothing is created. One file,
so that all use one lab.
"""

import json
import re
import shlex
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.cli_table.table import Scenario, Site, carry_out, load

pytestmark = [pytest.mark.lab, pytest.mark.real_nodes]

HERE = Path(__file__).parent
SCENARIOS = [scenario for path in sorted(HERE.glob("*.yaml")) for scenario in load(path)]
PIPELINES = sorted((HERE / "pipelines").glob("*.sh"))
VALUES = {
    "EMPTY": "",
    "SPACES": "  two  spaces ",
    "QUOTES": """it's "quoted" `and` \\back\\slashed\\""",
    "LINES": "two\nlines\r\nand a half\n",
    "REFERENCE": "$(JOB_NAME) $(EMPTY) $(UNKNOWN) $$(JOB_NAME) $$ $ ${JOB_NAME} $JOB_NAME $(",
    "SHELL": "$(touch /tmp/x); `id` | cat > /tmp/y && !! *.* ~ #{a,b}[c]",
    "YAML": "{a: [1, *b]} # & - no %TAG ! | >",
    "TEMPLATE": "{{ .Values.x }} ${{ x }} %s %(x)s",
    "NOT_TEXT": "null",
    "ASSIGNMENT": "=a==b=",
    "DASHES": "--gpu=8",
    "SECRET_LIKE": "secret:a,b",
    "ACCENTS": "größe ñandú e\u0301 Ⅷ",
    "SCRIPTS": "東京 العربية עברית \u202eright to left\u202c 🚀👩\u200d🚀",
    "CONTROL": "\x01\x07\x1b[31m\x7f\t",
    "LONG": "0123456789abcdef" * 4096,
}
MAX_BYTES = 128 * 1024  # the kernel's limit for one argument or variable, MAX_ARG_STRLEN


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: re.sub(r"\W+", "-", each.name))
def test_a_scenario_does_as_its_table_says(
    scenario: Scenario, site: Site, with_quotas: Callable[[Mapping[str, int]], None]
) -> None:
    with_quotas(scenario.quotas)
    carry_out(scenario, site)


@pytest.mark.parametrize("script", PIPELINES, ids=lambda path: path.stem)
def test_a_pipeline_of_researchers_works(script: Path, site: Site) -> None:
    done = site.shell(f"bash -eu -o pipefail {script}")
    assert done.returncode == 0, f"{script.name}\n{done.stdout}{done.stderr}"


def submit(site: Site, *arguments: str | bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["runai", "submit", *arguments], env=site.environment, capture_output=True, check=False, timeout=300
    )


def read(site: Site, job: str, path: str) -> bytes:
    """Return a file in /proc of the process in the job's container."""
    pods = f"pod -n muster-team-a -l muster.dev/workload={job} --timeout=180s"
    site.must(f"kubectl wait {pods} --for=create && kubectl wait {pods} --for=condition=Ready")
    command = ["runai", "exec", job, "-p", "team-a", "--", "cat", path]
    return subprocess.run(command, env=site.environment, capture_output=True, check=True, timeout=300).stdout


def submit_and_read(site: Site, job: str, path: str, *arguments: str) -> list[bytes]:
    done = submit(site, job, "-p", "team-a", *arguments)
    assert done.returncode == 0, done.stderr
    return read(site, job, path).split(b"\0")[:-1]


def test_environment_values_arrive(site: Site) -> None:
    given = [word for name, value in VALUES.items() for word in ("-e", f"{name}={value}")]
    entries = submit_and_read(
        site, "environment", "/proc/1/environ", "-i", "ubuntu", *given, "--", "sh", "-c", "sleep 1000; :"
    )
    arrived = dict(entry.partition(b"=")[::2] for entry in entries)
    assert {name: arrived.get(name.encode()) for name in VALUES} == {
        name: value.encode() for name, value in VALUES.items()
    }


def test_arguments_arrive(site: Site) -> None:
    words = ["sh", "-c", "sleep 1000; :", *VALUES.values()]
    assert submit_and_read(site, "arguments", "/proc/1/cmdline", "-i", "ubuntu", "--", *words) == [
        word.encode() for word in words
    ]


def test_arguments_of_the_older_form_arrive(site: Site) -> None:
    words = ["sleep 1000; :", *VALUES.values()]
    given = [word for argument in ("-c", *words) for word in ("--args", argument)]
    command = submit_and_read(site, "older", "/proc/1/cmdline", "-i", "ubuntu", "--command", "sh", *given)
    assert command == [b"sh", b"-c", *(word.encode() for word in words)]


def test_annotations_arrive(site: Site) -> None:
    given = [word for name, value in VALUES.items() for word in ("-a", f"example.org/{name}={value}")]
    done = submit(site, "annotated", "-p", "team-a", "-i", "ubuntu", *given, "--", "sleep", "1000")
    assert done.returncode == 0, done.stderr
    job = json.loads(site.must("kubectl get job annotated -n muster-team-a -o json"))
    expected = {f"example.org/{name}": value for name, value in VALUES.items()}
    for metadata in (job["metadata"], job["spec"]["template"]["metadata"]):
        assert {name: metadata["annotations"].get(name) for name in expected} == expected


def test_the_command_line_is_shown_as_it_can_be_typed_again(site: Site) -> None:
    words = [
        "-i",
        "ubuntu",
        "-e",
        f"Q={VALUES['QUOTES']}",
        "-e",
        f"L={VALUES['LINES']}",
        "--",
        "echo",
        VALUES["SHELL"],
    ]
    done = submit(site, "typed", "-p", "team-a", *words)
    assert done.returncode == 0, done.stderr
    job = json.loads(site.must("kubectl get job typed -n muster-team-a -o json"))
    typed = shlex.split(job["metadata"]["annotations"]["muster.dev/command-line"])
    assert typed[1:] == ["submit", "typed", "-p", "team-a", *words]


NO_NAMES = ["it's", "two\nlines", "$(id)", "größe", "x" * 65536, " ", "-x", "a/b", "..", "UPPER"]
CANNOT_ARRIVE: list[list[str | bytes]] = [
    ["-e", b"BYTES=\xff\xfe"],
    ["-a", b"example.org/bytes=\xff"],
    ["-e", "=value"],
    ["-e", "no value"],
    ["-a", "example.org/a b=c"],
    ["-a", "x" * 400 + "=c"],
    ["-l", "team=größe"],
    ["-l", "team=two\nlines"],
    ["--working-dir", "relative/path"],
]


def test_a_name_that_is_no_name_is_refused(site: Site) -> None:
    for name in NO_NAMES:
        assert_refused(submit(site, f"--name={name}", "-p", "team-a", "-i", "ubuntu"))
    assert_no_job(site)


def test_text_that_cannot_arrive_is_refused(site: Site) -> None:
    for arguments in CANNOT_ARRIVE:
        assert_refused(submit(site, "refused", "-p", "team-a", "-i", "ubuntu", *arguments))
    assert_no_job(site)


def test_a_value_that_is_too_long_for_a_process_is_refused(site: Site) -> None:
    longest = "x" * (MAX_BYTES - len("V=") - 1)
    (site.directory / "fits").write_text(f"V={longest}\n")
    (site.directory / "exceeds").write_text(f"V={longest}x\n")
    entries = submit_and_read(
        site, "longest", "/proc/1/environ", "-i", "ubuntu", "--env-file", str(site.directory / "fits"), "--",
        "sh", "-c", "sleep 1000; :",
    )  # fmt: skip
    assert f"V={longest}".encode() in entries
    site.must("runai delete longest -p team-a")
    exceeding = submit(
        site, "refused", "-p", "team-a", "-i", "ubuntu", "--env-file", str(site.directory / "exceeds")
    )
    assert_refused(exceeding)
    assert_no_job(site)


def assert_refused(done: subprocess.CompletedProcess[bytes]) -> None:
    assert done.returncode == 2, done
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("Error: ")
    assert "Traceback" not in line


def assert_no_job(site: Site) -> None:
    assert json.loads(site.must("kubectl get jobs -n muster-team-a -o json"))["items"] == []
