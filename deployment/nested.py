"""The events of an Ansible that a task of muster has started, read from the file into which it writes them."""

import json
from pathlib import Path
from typing import Any, Final

from deployment.failure import Failure, message_of

VARIABLE: Final = "MUSTER_NESTED_EVENTS"
"""The environment variable with the path of the file for the events. A role sets it for the Ansible that it starts."""


class NestedEvents:
    """Reads the lines of a file as they come; the callback `nested_events` of the role deepops writes them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0

    def read(self) -> list[dict[str, Any]]:
        """Return the events since the last call. An incomplete last line is left for the next call."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                content = file.read()
        except FileNotFoundError:
            return []
        whole = content[: content.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [event for line in whole.splitlines() if (event := _event(line))]


def _event(line: bytes) -> dict[str, Any]:
    """Return the event of a line; empty for a line that was cut because its writer was killed."""
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) and "kind" in event else {}


def log_line(event: dict[str, Any]) -> str:
    """Return an event as a line of a log, in the form of Ansible's own."""
    kind = event["kind"]
    if kind in {"play", "task"}:
        return f"    {kind.upper()} [{event['name']}]"
    message = f": {message_of(event['message'])}" if "message" in event else ""
    return f"    {kind}: [{event['host']}]{message}"


def failure_of(event: dict[str, Any]) -> Failure:
    """Return the event of a failure as the failure of a task."""
    return Failure(
        host=event["host"],
        task=event["task"],
        place=event["place"],
        message=message_of(event["message"]),
        unreachable=event["kind"] == "unreachable",
    )
