"""Finds, reads and merges kubeconfig files, and replaces a file atomically."""

from __future__ import annotations

import base64
import binascii
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.bounded_yaml import small_yaml
from orchestrator.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping


def kubeconfig_files(path: Path | None, environ: Mapping[str, str], home: Path | None) -> list[Path]:
    """Return the kubeconfig files to merge.

    If several files have an entry of the same name, the first file's entry counts.
    """
    if path is not None:
        if not path.is_file():
            raise ConfigurationError(f"{path}: there is no such kubeconfig; check --kubeconfig")
        return [path]
    listed = [Path(part).expanduser() for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    if listed:
        existing = [file for file in listed if file.is_file()]
        if not existing:
            raise ConfigurationError(f"KUBECONFIG={environ['KUBECONFIG']}: there is no such file")
        return existing
    default = (home or Path.home()) / ".kube" / "config"
    return [default] if default.is_file() else []


def read_document(file: Path) -> dict[str, Any]:
    """Return the content of a file. Raises ConfigurationError with its name."""
    try:
        document = small_yaml(file.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"{file}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigurationError(f"{file}: is no YAML: {' '.join(str(error).split())}") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigurationError(
            f"{file}: is no kubeconfig; it must be a mapping with clusters, users, contexts"
        )
    return document


def replace_file(file: Path, text: str) -> None:
    """Replace a file atomically. It keeps its mode. Raises ConfigurationError."""
    target = file.resolve()
    try:
        mode = target.stat().st_mode & 0o7777
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise ConfigurationError(f"{file}: cannot be changed: {error.strerror}") from error
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            os.fchmod(stream.fileno(), mode)
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ConfigurationError(f"{file}: cannot be changed: {error.strerror}") from error


@dataclass(frozen=True)
class Entry:
    """A named cluster, user or context, and the file that it is written in."""

    name: str
    fields: dict[str, Any]
    file: Path

    def text(self, key: str) -> str:
        """Return the text of a key, or "" if there is none."""
        value = self.fields.get(key)
        return value if isinstance(value, str) else ""

    def data(self, key: str) -> bytes | None:
        """Return the bytes of `key`-data, else of the file that `key` names; None if neither is set."""
        encoded = self.text(f"{key}-data")
        if encoded:
            try:
                return base64.b64decode("".join(encoded.split()), validate=True)
            except binascii.Error as error:
                raise ConfigurationError(f"{self.file}: {key}-data of {self.name!r} is no base64") from error
        path = self.text(key)
        if not path:
            return None
        file = self.beside(path)
        try:
            return file.read_bytes()
        except OSError as error:
            raise ConfigurationError(
                f"{self.file}: {key} of {self.name!r} is {file}, which cannot be read: {error.strerror}"
            ) from error

    def beside(self, path: str) -> Path:
        """Return a path that the file names, relative to the file's own folder."""
        return self.file.parent / Path(path).expanduser()


class Merged:
    """Several kubeconfig files seen as one."""

    def __init__(self, files: list[Path]) -> None:
        if not files:
            raise ConfigurationError(
                "there is no kubeconfig; name one with --kubeconfig or KUBECONFIG, or put it at ~/.kube/config"
            )
        self.files = files
        self._documents = [(file, read_document(file)) for file in files]

    def context_name(self, context: str | None) -> str:
        """Return `context`, or the current context if None. Raises ConfigurationError if no context is current."""
        if context:
            return context
        current = (document.get("current-context") for _, document in self._documents)
        name = next((name for name in current if name), None)
        if not name:
            raise ConfigurationError(
                f"{self.files[0]}: no current-context; set one with `kubectl config use-context` or name one"
            )
        return str(name)

    def entry(self, section: str, name: str) -> Entry:
        """Return the entry of `clusters`, `users` or `contexts` of that name. Raises ConfigurationError without one."""
        known = []
        for file, document in self._documents:
            for item in document.get(section) or []:
                if not isinstance(item, dict):
                    raise ConfigurationError(f"{file}: {section} must be a list of named mappings")
                if item.get("name") == name:
                    return Entry(name, item.get(section[:-1]) or {}, file)
                known.append(str(item.get("name")))
        listed = ", ".join(known) or "none"
        raise ConfigurationError(f"{self.files[0]}: there is no {section[:-1]} {name!r}; it has: {listed}")

    def entries(self, section: str) -> list[Entry]:
        """Return all entries of `clusters`, `users` or `contexts`. Of entries with equal names, return the first."""
        entries: dict[str, Entry] = {}
        for file, document in self._documents:
            for item in document.get(section) or []:
                if isinstance(item, dict) and isinstance(item.get("name"), str):
                    fields = item.get(section[:-1])
                    entry = Entry(item["name"], fields if isinstance(fields, dict) else {}, file)
                    entries.setdefault(entry.name, entry)
        return list(entries.values())

    @property
    def current_context(self) -> str:
        """The name of the current context, "" where none is set."""
        return next(
            (str(name) for _, document in self._documents if (name := document.get("current-context"))), ""
        )

    def file_of_current_context(self) -> Path:
        """Return the file that sets the current context; the first file if none does."""
        return next(
            (file for file, document in self._documents if document.get("current-context")), self.files[0]
        )
