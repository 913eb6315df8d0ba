"""The fixture with the second verifier, which is a program in Go."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[3] / "validation" / "verifier" / "verify.go"


@pytest.fixture(scope="session")
def second_verifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the program, built by Go with a cache of its own."""
    if not shutil.which("go"):
        pytest.skip("there is no Go on this machine")
    program = tmp_path_factory.mktemp("verifier") / "verify"
    environment = os.environ | {"GO111MODULE": "off", "CGO_ENABLED": "0"}
    subprocess.run(["go", "build", "-o", program, SOURCE], check=True, env=environment)
    return program
