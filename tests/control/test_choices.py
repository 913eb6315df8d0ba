"""What an administrator chooses reaches the operator, from `muster operator-yaml` through the Deployment."""

from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from orchestrator.cli.main import muster


def arguments(*options: str) -> list[str]:
    result = CliRunner().invoke(muster, ["operator-yaml", "--cluster", "c", *options])
    assert result.exit_code == 0, result.stderr
    objects: list[dict[str, Any]] = list(yaml.safe_load_all(result.stdout))
    (deployment,) = (each for each in objects if each["kind"] == "Deployment")
    found: list[str] = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    return found


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), []),
        (("--max-evictions", "5"), ["--max-evictions=5"]),
        (("--max-evictions", "0"), ["--max-evictions=0"]),
        (("--not-ready-grace", "1h1m"), ["--not-ready-grace=3660s"]),
        (("--longest-checkpoint-grace", "1m"), ["--longest-checkpoint-grace=60s"]),
    ],
)
def test_choices_become_arguments_of_the_operator(options: tuple[str, ...], expected: list[str]) -> None:
    assert arguments(*options) == ["operator", "--health-port=8080", *expected]


def test_a_choice_that_is_none_is_refused() -> None:
    result = CliRunner().invoke(muster, ["operator-yaml", "--cluster", "c", "--not-ready-grace", "soon"])
    assert result.exit_code != 0
