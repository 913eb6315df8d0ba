"""The same cluster in memory as the command line's tests have."""

from tests.cli.conftest import kubeconfig, server

__all__ = ["kubeconfig", "server"]
