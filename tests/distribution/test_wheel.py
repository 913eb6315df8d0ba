"""The shipped wheel, in an environment with only the packages that it requires."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

import pytest

from image.build import find_uv
from orchestrator.distribution import DISTRIBUTION

ROOT: Final = Path(__file__).parents[2]
MAX_DISTRIBUTIONS: Final = 25
PACKAGES: Final = {"deployment", "hostfacts", "musterlab", "musterweb", "orchestrator", "validation"}
ALL_HELPS: Final = """
import contextlib, io, json, sys
from orchestrator.cli.main import main, muster
codes = {}
for name in muster.list_commands(None):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        codes[name] = main([name, "--help"])
loaded = sorted(module for module in ("pytest", "rich", "ansible", "cryptography") if module in sys.modules)
print(json.dumps({"codes": codes, "loaded": loaded}))
"""
COMMANDS_WITHOUT_AN_EXTRA: Final = {
    ("validate", "--target", "cluster"): "validation",
    ("validate",): "deployment,validation",
    ("report", "verify", "."): "validation",
    ("lab", "status"): "lab",
    ("matrix",): "deployment",
    ("new-site", "site"): "deployment",
    ("web",): "web",
}


def _uv(*arguments: str) -> str:
    """Run uv with its cache; only if that is not enough, with the network."""
    for offline in ("1", "0"):
        ended = subprocess.run(
            [find_uv() or "uv", *arguments],
            env={**os.environ, "UV_OFFLINE": offline, "UV_PYTHON_DOWNLOADS": "never"},
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if ended.returncode == 0:
            return ended.stdout
    raise AssertionError(f"uv {' '.join(arguments)}: {ended.stderr}")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_uv() is None:
        pytest.skip(
            "uv is neither on the PATH nor beside this Python: it builds the wheel and the environment"
        )
    directory = tmp_path_factory.mktemp("wheel")
    _uv("build", "--quiet", "--wheel", "--out-dir", str(directory))
    (built,) = directory.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the `bin` of an environment with the wheel, without extras, with the versions of the lock."""
    directory = tmp_path_factory.mktemp("installed")
    constraints = directory / "constraints.txt"
    constraints.write_text(
        _uv("export", "--quiet", "--frozen", "--no-dev", "--no-hashes", "--no-emit-project")
    )
    environment = directory / "environment"
    _uv("venv", "--quiet", "--no-project", "--python", sys.executable, str(environment))
    python = environment / "bin" / "python"
    _uv("pip", "install", "--quiet", "--python", str(python), "--constraints", str(constraints), str(wheel))
    return environment / "bin"


def _run(program: Path, *arguments: str, directory: Path) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(directory), "COLUMNS": "110"}
    return subprocess.run(
        [program, *arguments], cwd=directory, env=environ, capture_output=True, text=True, check=False
    )


def test_the_wheel_holds_our_packages_and_no_name_of_another_project(wheel: Path) -> None:
    assert wheel.name.startswith("muster_gpu-")
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == PACKAGES


def test_the_wheel_without_extras_brings_few_distributions(installed: Path, tmp_path: Path) -> None:
    listed = json.loads(_uv("pip", "list", "--python", str(installed / "python"), "--format", "json"))
    names = {each["name"] for each in listed}
    assert DISTRIBUTION in names
    assert not names & {"pytest", "rich", "cryptography", "kubernetes", "ansible", "ansible-core"}
    assert len(names) <= MAX_DISTRIBUTIONS, sorted(names)


def test_every_command_shows_its_help_without_any_extra(installed: Path, tmp_path: Path) -> None:
    answer = _run(installed / "python", "-I", "-c", ALL_HELPS, directory=tmp_path)
    assert answer.returncode == 0, answer.stderr
    result = json.loads(answer.stdout)
    assert {"submit", "operator", "validate", "lab", "install", "bundle"} <= set(result["codes"])
    assert {name for name, code in result["codes"].items() if code != 0} == set()
    assert result["loaded"] == []


def test_the_command_is_muster_and_lists_all_commands(installed: Path, tmp_path: Path) -> None:
    answer = _run(installed / "muster", "--help", directory=tmp_path)
    assert answer.returncode == 0, answer.stderr
    for name in ("submit", "validate", "install"):
        assert f"\n  {name} " in answer.stdout
    assert _run(installed / "muster", "version", directory=tmp_path).stdout.startswith("Version: ")


@pytest.mark.parametrize("command", COMMANDS_WITHOUT_AN_EXTRA, ids=" ".join)
def test_a_command_without_its_extra_says_in_one_line_how_to_get_it(
    installed: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    answer = _run(installed / "muster", *command, directory=tmp_path)
    assert answer.returncode == 1
    assert answer.stdout == ""
    (line,) = answer.stderr.splitlines()
    assert line.endswith(f"pip install '{DISTRIBUTION}[{COMMANDS_WITHOUT_AN_EXTRA[command]}]'")


def test_the_operator_yaml_is_rendered_without_any_extra(installed: Path, tmp_path: Path) -> None:
    answer = _run(installed / "muster", "operator-yaml", "--cluster", "a", directory=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert "kind: Deployment" in answer.stdout
