"""The contract of the double of libcuda: its scenarios also succeed on this machine's driver."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from tests.gpu.conftest import Findings, MakeContainer
from tests.gpumemory.scenarios import LIMIT, NEED_THE_DOUBLE, SCENARIOS
from tests.gpumemory.test_hooks import DRIVER

pytestmark = pytest.mark.gpu

AT_ONCE: Final = 8
SECONDS: Final = 60
HOOKS: Final = sorted(set(SCENARIOS) - set(NEED_THE_DOUBLE))


def look_ups(make_container: MakeContainer, limit_bytes: int | None) -> dict[str, str]:
    environment = make_container("look-ups", limit_bytes).environment
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "tests.gpu.programs.look_ups"],
        input="".join(f"{' '.join(words)}\n" for words in DRIVER),
        env=environment, check=False, capture_output=True, text=True, timeout=SECONDS,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    found: dict[str, str] = json.loads(ended.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="session")
def forms(make_container: MakeContainer, findings: Findings) -> dict[str, str]:
    """Return the addresses of each function in the driver: by its symbol and by cuGetProcAddress."""
    found = look_ups(make_container, None)
    findings.write("look-ups/driver", found)
    return found


def test_the_driver_gives_every_form_of_a_function_for_its_first_version(forms: dict[str, str]) -> None:
    assert {form for form in forms.values() if form != "absent"} == {"driver driver"}


def test_every_lookup_of_a_function_is_led_to_the_library(
    forms: dict[str, str], make_container: MakeContainer, findings: Findings
) -> None:
    ours = look_ups(make_container, LIMIT)
    findings.write("look-ups/library", ours)
    there = {name for name, form in forms.items() if form != "absent"}
    assert {name: ours[name] for name in there} == dict.fromkeys(there, "library library")


@pytest.fixture(scope="session")
def ended(make_container: MakeContainer, findings: Findings, forms: dict[str, str]) -> dict[str, str]:
    """Return the output of each scenario on this driver; empty if it succeeds. Several run at the same time with their
    own limits.
    """
    hooks = [hook for hook in HOOKS if forms[hook] != "absent"]
    containers = {hook: make_container(hook, LIMIT) for hook in hooks}

    def run(hook: str) -> str:
        container = containers[hook]
        command = [sys.executable, "-P", "-m", "tests.gpumemory.scenarios", hook, str(container.state)]
        try:
            process = subprocess.run(
                command,
                env=container.environment,
                check=False,
                capture_output=True,
                text=True,
                timeout=SECONDS,
            )
        except subprocess.TimeoutExpired:
            return f"no end after {SECONDS} s"
        return "" if process.returncode == 0 else (process.stdout + process.stderr)[-2000:] or "no word"

    with ThreadPoolExecutor(AT_ONCE) as threads:
        words = dict(zip(hooks, threads.map(run, hooks), strict=True))
    findings.write("scenarios", words)
    return words


@pytest.mark.parametrize("hook", HOOKS)
def test_the_scenario_of_the_double_holds_on_the_driver(
    hook: str, ended: dict[str, str], forms: dict[str, str]
) -> None:
    if forms[hook] == "absent":
        pytest.skip(f"this driver is older than {hook}")
    assert ended[hook] == ""
