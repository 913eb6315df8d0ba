"""Files and commands on the pages, parsed by one module for the generator and the tests.

A YAML block that begins with `# NAME.yaml` is a file. A `console` block begins with `$ muster …`. The lines below are
the output of the command in a folder with the files of the page.
"""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
CONSOLE = re.compile(r"```console\n\$ muster (?P<command>[^\n]*)\n(?P<printed>.*?)```", re.DOTALL)
_FILE = re.compile(r"```yaml\n# (?P<name>[\w-]+\.yaml)\n(?P<text>.*?)```", re.DOTALL)
_BLOCK = re.compile(r"^```[a-z]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^ *(?:\$ )?(muster [a-z][^\n]*)$", re.MULTILINE)
_END = re.compile(r"\s+#|\s[|>&]|\s&&|$", re.MULTILINE)


def files(text: str) -> dict[str, str]:
    """Return the files of a page by name."""
    return {found["name"]: found["text"] for found in _FILE.finditer(text)}


def commands(text: str) -> list[str]:
    """Return the command lines of muster in the blocks of a page, without comments and pipes."""
    lines = [line for block in _BLOCK.findall(text) for line in _COMMAND.findall(block.replace("\\\n", " "))]
    return [_END.split(line, maxsplit=1)[0].strip() for line in lines]
