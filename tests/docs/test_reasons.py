"""Every reason code that muster shows has a row in the tables of reasons."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from orchestrator.observe.pod_status import NotDecided
from orchestrator.observe.stuck_pods import NODE_NOT_READY, STUCK
from orchestrator.planner.model import Waiting
from orchestrator.views import containers

ROOT: Final = Path(__file__).parent.parent.parent
WORD: Final = re.compile(r"`([A-Za-z]+)`")

OF_KUBELETS: Final = (
    # k8s.io/kubernetes v1.36.3, pkg/kubelet/images/types.go and k8s.io/cri-api/pkg/errors/errors.go
    "ErrImagePull",
    "ImagePullBackOff",
    "ImageInspectError",
    "ErrImageNeverPull",
    "InvalidImageName",
    "RegistryUnavailable",
    "SignatureValidationFailed",
    # pkg/kubelet/kuberuntime/kuberuntime_container.go and pkg/kubelet/container/sync_result.go
    "CreateContainerConfigError",
    "CreateContainerError",
    "PreCreateHookError",
    "PreStartHookError",
    "PostStartHookError",
    "RunContainerError",
    "CrashLoopBackOff",
    *sorted(containers.NORMAL_WAITS - {""}),
)
OURS: Final = (
    *(code.value for code in Waiting),
    *(code.value for code in NotDecided),
    containers.SCHEDULING_GATED,
    containers.VOLUME_UNBOUND,
    NODE_NOT_READY,
    containers.NODE_DELETED,
    STUCK,
    containers.TERMINATING,
)


def explained() -> frozenset[str]:
    """Return the words in the first cells of the tables of reasons."""
    rows = (ROOT / "docs" / "reference" / "reasons.md").read_text(encoding="utf-8").splitlines()
    return frozenset(word for row in rows if row.startswith("|") for word in WORD.findall(row.split("|")[1]))


@pytest.mark.parametrize("word", [*OURS, *OF_KUBELETS])
def test_every_reason_has_a_row(word: str) -> None:
    assert word in explained()
