"""The fixture with two hosts over SSH."""

from tests.validation.test_hosts_over_ssh import site

__all__ = ["site"]
