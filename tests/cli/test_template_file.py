"""`submit --template FILE`: the options of a submission in a file (cli/template_values.py, submit/templates.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Outcome
    from tests.cli.memory_api_server import MemoryApiServer

    Muster = Callable[..., Outcome]

TRAIN = """\
# the nightly training
image: python
gpu: 2
job-name-prefix: night
environment: [A=file, B=file]
command: [python, train.py, --epochs, 90]
backoff-limit: 0
large-shm: true
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make an empty folder the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def container(server: MemoryApiServer) -> dict[str, Any]:
    (workload,) = (*server.all("jobs"), *server.all("statefulsets"))
    (found,) = workload["spec"]["template"]["spec"]["containers"]
    return dict(found)


@pytest.mark.parametrize("name", ["train.yaml", "train.yml", "./train", "{}/train"])
def test_a_file_has_the_options_of_a_submission(
    name: str, folder: Path, muster: Muster, server: MemoryApiServer
) -> None:
    path = name.format(folder)
    (folder / path).write_text(TRAIN)
    assert muster("submit", "--template", path, "-o", "name").out == "night-0\n"
    made = container(server)
    assert (made["image"], made["resources"]["limits"]) == ("python", {"nvidia.com/gpu": "2"})
    assert made["command"] == ["python", "train.py", "--epochs", "90"]
    (job,) = server.all("jobs")
    assert job["spec"]["backoffLimit"] == 0


def test_the_command_line_wins_then_the_file_then_the_defaults_of_the_project(
    folder: Path, muster: Muster, server: MemoryApiServer
) -> None:
    settings = (
        "--set",
        "image=of-project",
        "--set",
        "environment=C=project",
        "--set",
        "environment=B=project",
    )
    assert muster("template", "create", "base", *settings, "--set", "cpu=3", "--default").code == 0
    (folder / "a.yaml").write_text("image: of-file\nenvironment: [A=file, B=file]\nmemory: 1Gi\n")
    assert muster("submit", "x", "--template", "a.yaml", "--memory", "2Gi", "-e", "A=line").code == 0
    made = container(server)
    assert (made["image"], made["resources"]["requests"]) == ("of-file", {"cpu": "3", "memory": "2Gi"})
    variables = {each["name"]: each.get("value") for each in made["env"]}
    assert {name: variables[name] for name in "ABC"} == {"A": "line", "B": "file", "C": "project"}


def test_the_words_after_the_dashes_replace_the_arguments_of_the_file(
    folder: Path, muster: Muster, server: MemoryApiServer
) -> None:
    (folder / "a.yaml").write_text("image: python\nargs: [train.py]\n")
    assert muster("submit", "x", "--template", "a.yaml", "--", "eval.py").code == 0
    assert container(server)["args"] == ["eval.py"]


def test_a_file_works_without_a_cluster_and_for_distributed_jobs(
    folder: Path, muster: Muster, server: MemoryApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "a.yaml").write_text("image: python\nworkers: 3\nno-master: true\n")
    assert muster("submit-dist", "pytorch", "x", "--template", "a.yaml").code == 0
    (job,) = server.all("jobs")
    assert job["spec"]["completions"] == 3
    monkeypatch.setenv("KUBECONFIG", str(folder / "none"))
    (folder / "b.yaml").write_text("image: python\n")
    shown = muster("submit", "x", "--template", "b.yaml", "--dry-run", "-p", "team-a")
    assert shown.code == 0
    assert "image: python" in shown.out


def test_a_number_counts_as_it_is_written(folder: Path, muster: Muster, server: MemoryApiServer) -> None:
    (folder / "a.yaml").write_text("image: python\nargs: [010, 1_000, 12:30, 0x10, 1.50, 2026-01-02, 1e3]\n")
    assert muster("submit", "x", "--template", "a.yaml").code == 0
    assert container(server)["args"] == ["010", "1_000", "12:30", "0x10", "1.50", "2026-01-02", "1e3"]


REFUSED = [
    ("image: a\n\n# more\ngpus: 2\n", "a.yaml, line 4, sets gpus, which is no flag of submit"),
    ("image: a\ngpu: [1]\n", "a.yaml, line 2, sets gpu to another kind of value: it takes text"),
    (
        "image: a\nlarge_shm: 1\n",
        "a.yaml, line 2, sets large-shm to another kind of value: it takes true or false",
    ),
    (
        "backoff-limit: 010\n",
        "a.yaml, line 1, sets backoff-limit to another kind of value: it takes a whole number",
    ),
    (f"backoff-limit: {'9' * 5000}\n", "a.yaml, line 1, sets backoff-limit to another kind of value"),
    (
        "environment: [TOKEN=secret, true]\n",
        "a.yaml, line 1, sets environment to another kind of value: it takes a",
    ),
    ("image: !file b\n", "a.yaml, line 1, cannot be used: image takes a text, a number"),
    ("image: !!binary YQ==\n", "a.yaml, line 1, cannot be used: image takes a text, a number"),
    ("environment: [[A=1]]\n", "a.yaml, line 1, cannot be used: environment takes a text, a number"),
    ("? [image]\n: b\n", "a.yaml cannot be used: its values must be a mapping"),
    (
        "image: {required: true, required: false}\n",
        "a.yaml, line 1, cannot be used: image takes a value, or required",
    ),
    ("image: {value: a, else: b}\n", "a.yaml, line 1, cannot be used: image takes a value, or required"),
    (
        "image: " + "[" * 40_000 + "]" * 40_000,
        "a.yaml is no YAML: there are entries in entries more than 100 deep",
    ),
    ("image: &a [*a]\n", "a.yaml is no YAML: there are entries in entries without an end"),
    ("image: a\n" + "#" * (1 << 20), "--template a.yaml: has more than 1048576 bytes"),
    ("image: a\nenvironment: {A: 1}\n", "a.yaml, line 2, cannot be used: environment takes a value"),
    ("image: a\nuser: $NO_SUCH_VARIABLE\n", "a.yaml, line 2, uses $NO_SUCH_VARIABLE in user"),
    (
        "output: json\n",
        "a.yaml, line 1, sets output, which is no flag of submit for templates: give it on the",
    ),
    ("image: {required: true}\n", "--image is missing: a.yaml, line 1, requires it"),
    (
        "name: x\n",
        "a.yaml, line 1, sets name, which is no flag of submit for templates: give it on the command line",
    ),
    ("image: a\ngpu: 1\nimage: b\n", "a.yaml cannot be used: it sets image twice"),
    ("backoff-limit: 1\nbackoff_limit: 2\n", "a.yaml cannot be used: it sets backoff-limit twice"),
    ("- image\n", "a.yaml cannot be used: its values must be a mapping"),
    ("image: a\n---\nimage: b\n", "a.yaml is no YAML:"),
    ("image: [a\n", "a.yaml is no YAML:"),
    (b"image: \xff\n", "--template a.yaml: is no text in UTF-8"),
    (None, "--template a.yaml: cannot be read: No such file or directory"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_a_wrong_file_is_refused_with_its_line_before_any_request(
    text: str | bytes | None, message: str, folder: Path, muster: Muster, server: MemoryApiServer
) -> None:
    if text is not None:
        (folder / "a.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    outcome = muster("submit", "x", "--template", "a.yaml")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"Error: {message}")
    assert outcome.err.count("\n") == 1
    assert server.requests == []


def test_a_template_for_all_is_made_from_the_same_file_and_its_errors_have_lines(
    folder: Path, muster: Muster, server: MemoryApiServer
) -> None:
    (folder / "a.yaml").write_text("image: python\ngpus: 2\n")
    refused = muster("template", "create", "nightly", "-f", "a.yaml")
    assert refused.err == "Error: a.yaml, line 2, sets gpus, which is no flag of submit\n"
    (folder / "a.yaml").write_text("image: python\ngpu: 2\n")
    assert muster("template", "create", "nightly", "-f", "a.yaml").code == 0
    assert muster("submit", "x", "--template", "nightly").code == 0
    assert container(server)["image"] == "python"
