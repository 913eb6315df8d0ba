"""Random arguments: never a traceback, always a documented exit code, and no half-done change.

The words come from the commands themselves, so that new flags are tried too.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from orchestrator.cli.main import COMMANDS, EXIT_CODES, INTERRUPTED, main, muster
from tests.cli.conftest import write_kubeconfig
from tests.cli.memory_api_server import namespace_of, node, project_of, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.memory_api_server import MemoryApiServer

SERVES = {"operator", "agent"}
"""Commands that run until they are stopped, if their arguments are valid."""
WAITS = {"--watch", "-w", "--attach", "--jupyter", "-f", "--follow", "--kubeconfig", "--context"}
"""Options with which a command waits for ever, or leaves the test's server."""
JUNK = [
    "",
    "-",
    "--",
    "=",
    "-1",
    "0",
    "x y",
    "NaN",
    "\n",
    "'",
    "$(id)",
    "é",
    "\x00",
    "9" * 40,
    "a" * 300,
    "--x",
]
VALUES = [
    *("1", "0.5", "2", "4Gi", "4G", "5s", "image", "x", "team-a", "team-b", "A=B", "A=SECRET:s,k", "8888"),
    *(
        "30080:8888",
        "/a:/b",
        "claim:/c",
        ":1Gi:/d",
        "user:x",
        "json",
        "wide",
        "name",
        "true",
        "ingress",
        "job",
    ),
    *(
        "node",
        "template",
        "jobs",
        "dgx1-1",
        "base",
        "source=https://example.org/x.git",
        "key=value:NoSchedule",
    ),
]


def commands() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command, with the words that call it."""
    root = click.Context(muster, info_name="muster")
    for name in COMMANDS:
        command = muster.get_command(root, name)
        assert command is not None
        if isinstance(command, click.Group):
            for below, each in command.commands.items():
                yield (name, below), each
        else:
            yield (name,), command


def options(command: click.Command) -> list[click.Option]:
    return [each for each in command.params if isinstance(each, click.Option)]


ALL = {words: command for words, command in commands() if words[0] not in SERVES}
NAMES = {
    words: [n for each in options(command) for n in each.opts if n not in WAITS]
    for words, command in ALL.items()
}


@st.composite
def vectors(draw: st.DrawFn) -> list[str]:
    words = draw(st.sampled_from(sorted(ALL)))
    flag = st.sampled_from(NAMES[words] or ["-h"])
    value = st.sampled_from([*VALUES, *JUNK]) | st.text(max_size=8).filter(
        lambda text: not text.startswith("-")
    )
    joined = st.tuples(flag, value).map("=".join)
    rest = draw(st.lists(flag | value | joined, max_size=10))
    place = draw(st.integers(0, len(rest)))
    return [*rest[:place], *words, *rest[place:]] if draw(st.booleans()) else [*words, *rest]


@pytest.fixture(autouse=True, scope="module")
def _folder_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Run commands in a folder outside the repository, because some write into a folder with a given name."""
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("random"))
    try:
        yield
    finally:
        os.chdir(before)


@pytest.fixture(scope="module")
def cluster() -> Iterator[MemoryApiServer]:
    with serving() as server, tempfile.TemporaryDirectory() as folder:
        server.add(node("dgx1-1", 8), project_of("team-a", 4), namespace_of("team-a"))
        file = Path(folder) / "config"
        write_kubeconfig(file, server.url)
        before, os.environ["KUBECONFIG"] = os.environ.get("KUBECONFIG"), str(file)
        try:
            yield server
        finally:
            os.environ.pop("KUBECONFIG")
            if before is not None:
                os.environ["KUBECONFIG"] = before


@given(vectors())
@example(["list", "\x00"])
@example(["submit", "x", "-i", "image", "--gpu="])
@example(["--as", "", "list"])
@example(["get", "-p", "--", "x"])
@example(["-p", "completion", "--", "-p"])
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_arguments_give_a_traceback_or_leave_anything_half_done(
    cluster: MemoryApiServer, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    cluster.requests.clear()
    objects = {
        each["metadata"]["uid"] for kind in ("jobs", "statefulsets", "services") for each in cluster.all(kind)
    }
    sys.stdin = io.TextIOWrapper(io.BytesIO())
    try:
        code = main(arguments)
    finally:
        sys.stdin = sys.__stdin__
    captured = capsys.readouterr()
    assert code in EXIT_CODES
    assert code != INTERRUPTED
    assert "Traceback" not in captured.out + captured.err
    assert "defect of muster" not in captured.err
    if code and "Usage:" not in captured.err:
        errors = [line for line in captured.err.splitlines() if not line.startswith(("Warning: ", "Note: "))]
        assert errors
        assert all(line.startswith("Error: ") for line in errors)
    if code == 2:
        assert cluster.writes() == []
    if code:
        made = {
            each["metadata"]["uid"]
            for kind in ("jobs", "statefulsets", "services")
            for each in cluster.all(kind)
        }
        assert made <= objects


def wrong_values() -> Iterator[Any]:
    """Yield every option of every command whose values can be invalid, with invalid values."""
    for words, command in ALL.items():
        for option in options(command):
            if option.is_flag or not option.expose_value:
                continue
            name = option.opts[-1] if option.opts[-1] not in WAITS else None
            if name and isinstance(
                option.type, click.Choice | click.types.IntParamType | click.types.FloatParamType
            ):
                for value in ("nonsense", "1e3", ""):
                    yield pytest.param(words, name, value, id=f"{'-'.join(words)}{name}={value}")


@pytest.mark.parametrize(("words", "name", "value"), list(wrong_values()))
def test_a_wrong_value_is_one_line_that_names_the_flag_and_the_allowed_values(
    words: tuple[str, ...],
    name: str,
    value: str,
    cluster: MemoryApiServer,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster.requests.clear()
    code = main([*words, *_required(words), f"{name}={value}" if name.startswith("--") else name + value])
    error = capsys.readouterr().err
    assert (code, error.count("\n")) == (2, 1)
    assert name in error
    assert cluster.requests == []


def _required(words: tuple[str, ...]) -> list[str]:
    """Return the other required arguments, so that only the tested value is wrong."""
    command = ALL[words]
    needed = [each for each in command.params if each.required]
    given = [
        word
        for each in needed
        for word in ([each.opts[-1], "1"] if isinstance(each, click.Option) else ["x"])
    ]
    return [*given, "-i", "image"] if words[0].startswith("submit") else given


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (("submit", "x", "-i", "image", "--gpu", "1.5"), "--gpu"),
        (("submit", "x", "-i", "image", "--gpu-memory", "lots"), "--gpu-memory"),
        (("submit", "x", "-i", "image", "--memory", "-1"), "--memory"),
        (("submit", "x", "-i", "image", "--port", "http"), "--port"),
        (("submit", "x", "-i", "image", "-e", "=x"), "--environment"),
        (("submit", "x", "-i", "image", "-v", "relative:/x"), "--volume"),
        (("submit", "x", "-i", "image", "--ttl-after-finish", "soon"), "--ttl-after-finish"),
        (("submit", "x", "-i", "image", "--node-type", "a b"), "--node-type"),
        (("submit", "x", "-i", "image", "--interactive=maybe"), "--interactive"),
        (("project", "create", "p", "-g", "much"), "--gpu"),
        (("project", "create", "p", "-g", "1", "--limit", "-1"), "--limit"),
        (
            ("project", "create", "p", "-g", "1", "--interactive-time-limit", "long"),
            "--interactive-time-limit",
        ),
        (("project", "create", "p", "-g", "1", "--member", "ann"), "--member"),
        (("project", "create", "p", "-g", "1", "--cpu", "fast"), "--cpu"),
        (("list", "-A=perhaps"), "-A"),
        (("list", "nodes", "-A"), "-A"),
        (("list", "--loglevel", "loud"), "--loglevel"),
        (("what-if", "--quota", "team-a"), "--quota"),
        (("completion", "tcsh"), "bash"),
        (("list", "things"), "jobs"),
        (("get", "thing", "x"), "job"),
    ],
)
def test_a_text_that_a_flag_cannot_take_is_one_line_that_names_it(
    words: tuple[str, ...], flag: str, cluster: MemoryApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.requests.clear()
    code = main(words)
    captured = capsys.readouterr()
    assert (code, captured.out, captured.err.count("\n")) == (2, "", 1)
    assert flag in captured.err
    assert cluster.writes() == []


def test_the_kubeconfig_is_not_changed_by_a_failed_command(
    cluster: MemoryApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    before = Path(os.environ["KUBECONFIG"]).read_text()
    for words in (("project", "set", "nobody"), ("config", "cluster", "nowhere"), ("cluster", "set", "\n")):
        assert main(words) == 1
    assert Path(os.environ["KUBECONFIG"]).read_text() == before
    assert yaml.safe_load(before)["current-context"] == "lab"
