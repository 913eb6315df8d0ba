"""Users with tokens at the API server in memory: their names, and their rights as RBAC would grant them."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.cluster.waiting import DEADLINE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.memory_api_server import MemoryApiServer

JSON = dict[str, Any]


@dataclass
class Someone:
    """A user with a token. Without `namespaces` they may see everything, otherwise only these namespaces.

    They may also see all objects of `kinds`, named by their plurals.
    """

    name: str
    namespaces: tuple[str, ...] | None = None
    is_admin: bool = False
    is_valid: bool = True
    kinds: tuple[str, ...] = ()

    def may(self, verb: str, namespace: str, kind: str) -> bool:
        if verb not in ("get", "list", "watch") and not self.is_admin:
            return False
        return self.namespaces is None or namespace in self.namespaces or kind in self.kinds


class People:
    """All users with tokens. The server calls `admit`."""

    def __init__(self, server: MemoryApiServer, **by_token: Someone) -> None:
        self.by_token = by_token
        self.tokens: list[str] = []
        self.is_down = False
        self.unanswered = threading.Semaphore(0)
        self._answers = threading.Event()
        self._answers.set()
        self._unheard: str | None = None
        server.admit = self.admit

    @contextmanager
    def keeping_silent_about_rights(self, of: str | None = None) -> Iterator[None]:
        """During the block, do not answer questions about rights, of any user or of the user with this name."""
        self._unheard = of
        self._answers.clear()
        try:
            yield
        finally:
            self._answers.set()

    def admit(self, token: str, method: str, path: str, body: JSON | None) -> tuple[int, JSON] | None:
        """Return an error for a forbidden request, the answer to a question about the user or rights, else None."""
        self.tokens.append(token)
        someone = self.by_token.get(token)
        if self.is_down:
            return failure(503, "ServiceUnavailable", "the test says that it is down")
        if someone is None or not someone.is_valid:
            return failure(401, "Unauthorized", "Unauthorized")
        return self._answer(someone, method, path, body)

    def _answer(self, someone: Someone, method: str, path: str, body: JSON | None) -> tuple[int, JSON] | None:
        if path.endswith("/selfsubjectreviews"):
            return 201, {"status": {"userInfo": {"username": someone.name, "groups": []}}}
        if path.endswith("/selfsubjectaccessreviews"):
            if self._unheard in (None, someone.name):
                if not self._answers.is_set():
                    self.unanswered.release()
                self._answers.wait(DEADLINE_SECONDS)
            wanted = (body or {})["spec"]["resourceAttributes"]
            allowed = someone.may(wanted["verb"], wanted.get("namespace", ""), wanted["resource"])
            return 201, {"status": {"allowed": allowed}}
        if len(path.split("/")) < 5 and path.startswith("/apis/"):
            return None  # discovery is permitted
        parts = path.split("/")
        namespace = parts[parts.index("namespaces") + 1] if "namespaces" in parts[:-1] else ""
        if not someone.may("get" if method == "GET" else "change", namespace, parts[-1]):
            where = f" in the namespace {namespace}" if namespace else " at the cluster scope"
            return failure(403, "Forbidden", f'User "{someone.name}" cannot {method} {path}{where}')
        return None


def failure(code: int, reason: str, message: str) -> tuple[int, JSON]:
    return code, {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
