"""Writes the tasks of converge.yml that changed a host, or would have, so that check mode can
be compared with the run.
"""

import json
import os
from pathlib import Path
from typing import Any

from ansible import context
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: changes
type: aggregate
short_description: writes the names of tasks that changed something into the file $GUEST_CHANGES
description: [One line of JSON for each task and host.]
"""


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """A callback plugin of Ansible."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "changes"
    _counts = False

    def v2_playbook_on_start(self, playbook: Any) -> None:
        self._counts = Path(playbook._file_name).name == "converge.yml"

    def v2_runner_on_ok(self, result: Any) -> None:
        if self._counts and result._result.get("changed"):
            line = {"task": result._task.get_name().rpartition(" : ")[2], "check": context.CLIARGS["check"]}
            with Path(os.environ["GUEST_CHANGES"]).open("a") as file:
                file.write(json.dumps(line) + "\n")
