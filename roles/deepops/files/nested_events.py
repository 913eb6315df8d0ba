"""Writes the events of an Ansible that a task has started, as lines of JSON, to the file in MUSTER_NESTED_EVENTS."""

import json
import os

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
    name: nested_events
    type: notification
    short_description: write what happens as lines of JSON
    description:
      - One line for each play, task and result. Results carry no more than the message of a failure.
    requirements:
      - the environment variable MUSTER_NESTED_EVENTS
"""


class CallbackModule(CallbackBase):  # type: ignore[misc] # Ansible has no types
    """Appends each event to the file. It is disabled if MUSTER_NESTED_EVENTS is not set."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "nested_events"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        """Read the path of the file from the environment."""
        super().__init__()
        self._path = os.environ.get("MUSTER_NESTED_EVENTS", "")
        self.disabled = not self._path

    def _write(self, kind, result=None, **values):  # type: ignore[no-untyped-def]
        if result is not None:
            values |= {
                "host": result._host.get_name(),
                "task": result._task.get_name(),
                "place": result._task.get_path() or "",
            }
        with open(self._path, "a") as file:
            file.write(json.dumps({"kind": kind, **values}, default=str) + "\n")

    def v2_playbook_on_play_start(self, play):  # type: ignore[no-untyped-def]
        self._write("play", name=play.get_name())

    def v2_playbook_on_task_start(self, task, is_conditional):  # type: ignore[no-untyped-def]
        self._write("task", name=task.get_name())

    def v2_runner_on_ok(self, result):  # type: ignore[no-untyped-def]
        self._write("changed" if result._result.get("changed") else "ok", result)

    def v2_runner_on_failed(self, result, ignore_errors=False):  # type: ignore[no-untyped-def]
        # Ansible takes its own marks from a hidden result before a callback sees it, but for this key.
        hidden = "censored" in result._result
        words = f"the output of the module {result._task.action} is hidden (no_log)"
        message = {"msg": words} if hidden else self._message(result._result)
        self._write("ignored" if ignore_errors else "failed", result, message=message)

    def v2_runner_on_unreachable(self, result):  # type: ignore[no-untyped-def]
        self._write("unreachable", result, message=self._message(result._result))

    def v2_runner_retry(self, result):  # type: ignore[no-untyped-def]
        self._write("retry", result)

    @staticmethod
    def _message(result):  # type: ignore[no-untyped-def]
        names = ("msg", "stderr", "stdout", "module_stderr", "reason")
        items = [item for item in result.get("results", ()) if isinstance(item, dict)]
        failed = [item for item in items if item.get("failed") or "exception" in item]
        return {name: str(value) for name in names if (value := (failed or [result])[0].get(name))}
