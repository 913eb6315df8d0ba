"""The installed distribution of muster: its name, its version, and its installed extras.

The distribution is not called muster, because another project on PyPI has that name. Only the command has it.
`importlib.metadata` is slow to import, so it is imported at its first use.
"""

import re
from collections.abc import Iterator
from typing import Final

from orchestrator.errors import ConfigurationError

DISTRIBUTION: Final = "muster-gpu"

_REQUIREMENT: Final = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)\s*(?:\[(?P<extras>[^]]*)\])?[^;]*;.*\bextra\s*==\s*['\"](?P<extra>[^'\"]+)['\"]"
)


def installed_version() -> str:
    """Return the version of muster. Raises PackageNotFoundError if muster runs without being installed."""
    from importlib.metadata import version

    return version(DISTRIBUTION)


def install_command(*extras: str) -> str:
    """Return the command that installs muster with extras."""
    return f"pip install '{DISTRIBUTION}[{','.join(sorted(extras))}]'"


def require_extra(*extras: str) -> None:
    """Check that the packages of the extras are installed.

    If a package is missing, raises ConfigurationError with the command that installs the extras.
    """
    missing = sorted(set().union(*map(_missing_distributions, extras)))
    if missing:
        raise ConfigurationError(
            f"a package is missing: {', '.join(missing)}; install it with {install_command(*extras)}"
        )


def _missing_distributions(extra: str) -> set[str]:
    from importlib.metadata import PackageNotFoundError, distribution, requires

    try:
        requirements = requires(DISTRIBUTION) or []
    except PackageNotFoundError:  # muster runs from its sources: a missing package fails at its import
        return set()
    missing = set()
    for name in _names(extra, requirements):
        try:
            distribution(name)
        except PackageNotFoundError:
            missing.add(name)
    return missing


def _names(extra: str, requirements: list[str]) -> Iterator[str]:
    for requirement in requirements:
        match = _REQUIREMENT.match(requirement)
        if match is None or match["extra"] != extra:
            continue
        if match["name"] == DISTRIBUTION:
            for further in (match["extras"] or "").split(","):
                yield from _names(further.strip(), requirements)
        else:
            yield match["name"]
