"""The values of the options that every command has."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(slots=True)
class Settings:
    """The common options: the cluster, the project, the user and the level of messages."""

    kubeconfig: Path | None = None
    context: str | None = None
    project: str | None = None
    loglevel: str | None = None
    as_user: str | None = None
    as_groups: tuple[str, ...] = ()
