"""Writes the outputs of the commands on the pages: `make docs`."""

import io
import os
import re
import shlex
import tempfile
from contextlib import chdir, redirect_stdout
from pathlib import Path

from orchestrator.cli.main import main
from tests.docs.pages import CONSOLE, PAGES, files


def with_outputs(text: str) -> str:
    """Return the page with the present output below each command."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        for name, content in files(text).items():
            Path(name).write_text(content, encoding="utf-8")
        return CONSOLE.sub(_run, text)


def _run(block: re.Match[str]) -> str:
    printed = io.StringIO()
    with redirect_stdout(printed):
        code = main(shlex.split(block["command"]))
    if code:
        raise SystemExit(f"muster {block['command']}: exit code {code}")
    return f"```console\n$ muster {block['command']}\n{printed.getvalue()}```"


if __name__ == "__main__":
    os.environ["COLUMNS"] = "140"
    for page in PAGES:
        before = page.read_text(encoding="utf-8")
        if CONSOLE.search(before):
            page.write_text(with_outputs(before), encoding="utf-8")
