"""The contexts of the kubeconfig, and the choice of the current context."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import yaml

from orchestrator.cluster.kubeconfig_files import Merged, kubeconfig_files, read_document, replace_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Context:
    """One context: its name, the API server's URL, the user's name, and the default namespace ("" if none is set)."""

    name: str
    server: str
    user: str
    namespace: str
    is_current: bool


def contexts(
    path: Path | None = None, *, environ: Mapping[str, str] | None = None, home: Path | None = None
) -> list[Context]:
    """Return the contexts of the kubeconfig in the order of the file. Raises ConfigurationError."""
    merged = _merged(path, environ, home)
    servers = {entry.name: entry.text("server") for entry in merged.entries("clusters")}
    return [
        Context(
            name=entry.name,
            server=servers.get(entry.text("cluster"), ""),
            user=entry.text("user"),
            namespace=entry.text("namespace"),
            is_current=entry.name == merged.current_context,
        )
        for entry in merged.entries("contexts")
    ]


def set_current_context(
    name: str,
    path: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    home: Path | None = None,
) -> Path:
    """Make a context the current one; return the file that was changed.

    The file is replaced whole or not at all, and keeps its mode. If there is no context of that name, raises
    ConfigurationError with the names of the contexts.
    """
    merged = _merged(path, environ, home)
    merged.entry("contexts", name)
    file = merged.file_of_current_context()
    document = {**read_document(file), "current-context": name}
    replace_file(file, yaml.safe_dump(document, sort_keys=False))
    return file


def _merged(path: Path | None, environ: Mapping[str, str] | None, home: Path | None) -> Merged:
    return Merged(kubeconfig_files(path, os.environ if environ is None else environ, home))
