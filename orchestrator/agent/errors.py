"""Sources that the agent cannot reach. The agent continues without them.

MusterError
├── NvmlUnavailable     the driver's library is not there, or does not answer
└── KubeletUnreachable  the kubelet's pod-resources socket does not answer
"""

from orchestrator.errors import MusterError


class NvmlUnavailable(MusterError):
    """The driver's library is not there, or does not answer."""


class KubeletUnreachable(MusterError):
    """The kubelet does not say which containers have which devices."""
