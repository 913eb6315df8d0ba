"""The report of a failed task: its file and line, its message, the known cause and the fix."""

import re
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from typing import Any

from orchestrator.bounded_yaml import fast_yaml
from orchestrator.progress import printable

_MAX_CHARACTERS = 600
_LOGGED = re.compile(r"[IW]\d{4} \d\d:\d\d:")
"""The prefix of klog, with which programs of Kubernetes begin log lines of the levels info and warning."""


@dataclass(frozen=True)
class Failure:
    """A task that failed on one host. `place` is file:line of the task."""

    host: str
    task: str
    place: str
    message: str
    unreachable: bool = False

    def known(self) -> tuple[str, str]:
        """Return cause and fix of a known message, or two empty strings."""
        for pattern, cause, fix in _signatures():
            if pattern.search(self.message):
                return cause, fix
        return "", ""

    def lines(self) -> list[str]:
        """Return the failure as lines for people, most important first."""
        cause, fix = self.known()
        texts = [
            f"host    {self.host}{' (unreachable)' if self.unreachable else ''}",
            f"task    {self.task}",
            f"at      {self.place}",
            f"error   {self.message}",
        ]
        return [*texts, *([f"cause   {cause}", f"fix     {fix}"] if cause else [])]

    def record(self) -> dict[str, Any]:
        """Return the failure for the journal, without the message: a module may repeat secrets in it."""
        return {key: value for key, value in asdict(self).items() if key != "message"}


def is_failed(item: dict[str, Any]) -> bool:
    """Return whether an item of a loop failed.

    In a callback of ansible-core 2.21, only the item's `exception` says so.
    """
    return bool(item.get("failed") or item.get("unreachable") or "exception" in item)


def message_of(result: dict[str, Any]) -> str:
    """Return the message of the first failed item.

    Without one, return the message of the task or the output of its command.
    """
    for item in result.get("results", ()):
        if isinstance(item, dict) and is_failed(item):
            name = item.get("item")
            inner = message_of(item)
            return f"{name}: {inner}" if isinstance(name, str) else inner
    parts = [
        result.get("msg"),
        _unlogged(str(result.get("stderr", ""))),
        _error_lines(str(result.get("stdout", ""))),
        result.get("module_stderr"),
        result.get("reason"),
    ]
    messages = [" ".join(str(part).split()) for part in parts if part]
    text = messages[0] if messages else "the module gave no message"
    if len(messages) > 1 and ("non-zero" in text or "MODULE FAILURE" in text or len(text) < 20):
        text = ": ".join([text, *messages[1:]])
    text = printable(text)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 1]}…"


def _unlogged(output: str) -> str:
    """Return the output without log lines, or the whole output if it has only log lines.

    Otherwise the log lines would hide the error in a short message.
    """
    lines = output.splitlines()
    return "\n".join([line for line in lines if not _LOGGED.match(line)] or lines)


def _error_lines(output: str) -> str:
    """Return the lines with the cause of a command's failure: the `fatal` lines if it was Ansible, otherwise the last
    two lines.
    """
    lines = [line for line in output.splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith(("fatal:", "failed:", "ERROR", "[ERROR]"))]
    return "\n".join(fatal[:3] or lines[-2:])


@cache
def _signatures() -> list[tuple[re.Pattern[str], str, str]]:
    text = (resources.files("deployment") / "data" / "signatures.yaml").read_text()
    return [
        (re.compile(signature["match"], re.IGNORECASE), signature["cause"], signature["fix"])
        for signature in fast_yaml(text)
    ]
