"""Names of other projects in muster's own files, read from the files so that no name can be missing in a list."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
ROLES = ROOT / "roles"
_FOLDERS = (
    "deployment",
    "docs",
    "inventories",
    "musterlab",
    "musterweb",
    "orchestrator",
    "playbooks",
    "roles",
    "validation",
    "hostfacts",
)
_SUFFIXES = {".j2", ".json", ".md", ".py", ".sh", ".yaml", ".yml"}


@cache
def product() -> dict[str, str]:
    """Return the text of each product file by its path."""
    paths = (path for name in _FOLDERS for path in sorted((ROOT / name).rglob("*")))
    return {
        path.relative_to(ROOT).as_posix(): path.read_text()
        for path in paths
        if path.suffix in _SUFFIXES and path.is_file()
    }


def found(pattern: str) -> dict[str, str]:
    """Return each name in the product that matches the pattern, with the first file that has the name."""
    names: dict[str, str] = {}
    for path, text in product().items():
        for name in re.findall(pattern, text):
            names.setdefault(name, path)
    return names


def texts(value: Any) -> Iterator[str]:
    """Yield each text in a document."""
    if isinstance(value, str):
        yield value
    for nested in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from texts(nested)


def keys(value: Any) -> Iterator[str]:
    """Yield each key in a document."""
    for nested in value if isinstance(value, list) else ():
        yield from keys(nested)
    for key, nested in value.items() if isinstance(value, dict) else ():
        yield str(key)
        yield from keys(nested)


def tasks(role: str) -> Iterator[dict[str, Any]]:
    """Yield the tasks of a role."""
    for path in sorted((ROLES / role / "tasks").glob("*.yml")):
        yield from yaml.safe_load(path.read_text())


def task_text(role: str) -> str:
    """Return the text of all tasks of a role."""
    return "\n".join(path.read_text() for path in sorted((ROLES / role / "tasks").glob("*.yml")))


def role_file(role: str, path: str) -> Any:
    """Return a YAML file of a role."""
    return yaml.safe_load((ROLES / role / path).read_text())
