"""The connection `local` that writes down for which host each command runs: one machine as many hosts."""

from pathlib import Path
from typing import Any

from ansible.plugins.connection.local import Connection as Local

DOCUMENTATION = """
    name: counted
    short_description: run locally, and count for each host
    description: [Runs each command on the controller.]
    options:
      calls:
        description: File to which the address of the host is appended for each command and each copied file.
        env: [{name: COUNTED_CALLS}]
        ini: [{section: counted, key: calls}]
      address:
        description: Address of the host. For a delegated task it is that of the other host.
        vars: [{name: inventory_hostname}, {name: ansible_host}]
    extends_documentation_fragment: [connection_pipelining]
"""


class Connection(Local):  # type: ignore[misc] # Ansible has no types
    """Runs on this machine for a host of the inventory."""

    transport = "counted"

    def exec_command(self, *arguments: Any, **options: Any) -> Any:
        self._count()
        return super().exec_command(*arguments, **options)

    def put_file(self, *arguments: Any) -> Any:
        self._count()
        return super().put_file(*arguments)

    def _count(self) -> None:
        with Path(self.get_option("calls")).open("a") as calls:
            calls.write(self.get_option("address") + "\n")
