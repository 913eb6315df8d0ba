"""The cluster in memory of the command line's tests, for tests of the client."""

from tests.cli.conftest import kubeconfig, server

__all__ = ["kubeconfig", "server"]
