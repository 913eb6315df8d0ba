"""The settings of an administrator reach the operator, from `muster operator-yaml` through the Deployment."""

from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from orchestrator.cli.main import muster

LONGEST = ".".join(["a" * 63] * 3 + ["com1"])
"""A domain of 196 characters: with a project's name of 56 characters and a dot it has the
maximum length of a DNS name.
"""


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
        (
            ("--not-ready-grace", "1h1m", "--max-unhealthy-nodes", "2"),
            ["--not-ready-grace=3660s", "--max-unhealthy-nodes=2"],
        ),
        (("--reservation-after", "1h"), ["--reservation-after=3600s"]),
        (("--reservation-after", "never"), ["--reservation-after=never"]),
        (("--stale-grace", "2m", "--max-moves", "0"), ["--stale-grace=120s", "--max-moves=0"]),
        (
            ("--spread", "--topology-level", "zone", "--topology-level", "example.com/rack"),
            ["--spread", "--topology-level=zone", "--topology-level=example.com/rack"],
        ),
        (("--max-checkpoint-grace", "1m"), ["--max-checkpoint-grace=60s"]),
        (
            ("--out-of-service-after", "10m", "--max-out-of-service", "2", "--start-timeout", "never"),
            ["--start-timeout=never", "--out-of-service-after=600s", "--max-out-of-service=2"],
        ),
        (("--gpu-memory-limits", "enforce"), ["--gpu-memory-limits=enforce"]),
        (("--no-network-policy",), ["--no-network-policy"]),
        (("--ingress-class", "nginx", "--ingress-domain", ""), []),
        (
            ("--ingress-class", "traefik", "--ingress-domain", "gpus.example.com"),
            ["--ingress-class=traefik", "--ingress-domain=gpus.example.com"],
        ),
        (("--ingress-domain", LONGEST), [f"--ingress-domain={LONGEST}"]),
    ],
)
def test_choices_become_arguments_of_the_operator(options: tuple[str, ...], expected: list[str]) -> None:
    assert arguments(*options) == ["operator", "--health-port=8080", *expected]


@pytest.mark.parametrize(
    "options",
    [
        ("--not-ready-grace", "soon"),
        ("--reservation-after", "sometimes"),
        ("--max-moves", "-1"),
        ("--gpu-memory-limits", "enforce", "--policies", "off"),
        ("--topology-level", "a rack"),
        ("--topology-level", "rack", "--topology-level", "rack"),
        ("--ingress-class", ""),
        ("--ingress-class", "a class"),
        *(
            ("--ingress-domain", domain)
            for domain in (
                "*.example.com",
                "GPUs.example.com",
                "example.com.",
                ".example.com",
                "a..b",
                "a-.b",
                "-a.b",
                "a_b.c",
                "http://a.b",
                "a.b:80",
                "a.b/c",
                "a b.c",
                "10.0.0.5",
                "fd00::5",
                "bücher.de",
                "a.b\n",
                "x" * 64,
                f"a{LONGEST}",
            )
        ),
    ],
)
def test_a_choice_that_is_none_is_refused(options: tuple[str, ...]) -> None:
    result = CliRunner().invoke(muster, ["operator-yaml", "--cluster", "c", *options])
    assert result.exit_code != 0
