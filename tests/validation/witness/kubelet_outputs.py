"""A double of a kubelet's answers on an ended container. `test_outputs_of_a_kubelet` compares
it with a real kubelet.
"""

from dataclasses import dataclass
from typing import Any, Final

from tests.cluster.fake_api_server import Answer, status

NAMESPACE: Final = "default"
IMAGE_ID: Final = "docker.io/library/busybox@sha256:" + "0f3a" * 16


@dataclass(frozen=True)
class Ending:
    """A container: its shell script, its last line, and its exit code."""

    name: str
    script: str
    line: str
    exit_code: int = 0

    @property
    def phase(self) -> str:
        """Return the final phase of the pod."""
        return "Failed" if self.exit_code else "Succeeded"


ENDINGS: Final = (
    Ending("document", "echo first; echo '{\"café\": 1}'", '{"café": 1}'),
    Ending("failed", "printf 'no end of line'; exit 3", "no end of line", 3),
    Ending("silent", "true", ""),
)
NEVER_STARTED: Final = Answer(status(400, "BadRequest", "container is waiting to start"), 400)
NO_POD: Final = Answer(status(404, "NotFound", 'pods "gone" not found'), 404)


def printed(ending: Ending) -> Answer:
    """Return the last line of the log, as the API server returns it."""
    end = "" if ending.name == "failed" or not ending.line else "\n"
    return Answer(f"{ending.line}{end}".encode(), headers={"Content-Type": "text/plain"})


def ended_pod(ending: Ending) -> dict[str, Any]:
    """Return the pod after the end of its container."""
    terminated = {
        "exitCode": ending.exit_code,
        "reason": "Error" if ending.exit_code else "Completed",
        "startedAt": "2026-01-01T00:00:10Z",
        "finishedAt": "2026-01-01T00:01:15Z",
        "containerID": "containerd://" + "0f3a" * 16,
    }
    return {
        "metadata": {
            "name": ending.name,
            "namespace": NAMESPACE,
            "uid": f"uid-{ending.name}",
            "resourceVersion": "2",
            "labels": {"muster.dev/workload": ending.name},
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "resources": {}}]},
        "status": {
            "phase": ending.phase,
            "containerStatuses": [
                {"name": "main", "imageID": IMAGE_ID, "state": {"terminated": terminated}},
            ],
        },
    }
