"""The options of `ssh` for the hosts of a site: known host keys are required, and the jump host is used, if any."""

import shlex
from pathlib import Path
from typing import Any, Final

from deployment.site import Site

DIRECT: Final = "none"
"""The value of a host's `jump` for a direct connection, although `access.jump` names a jump host for the site."""

CHECKED: Final = ("-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes")
"""Options of every connection: `ssh` asks nothing on the terminal, and refuses an unknown host key."""


def connection(site: Site, host: dict[str, Any]) -> dict[str, Any]:
    """Return the variables by which Ansible reaches a host over SSH."""
    user = host.get("user", site.get("access", "user"))
    key = site.get("access", "key_file")
    options = common_arguments(site, host)
    return {
        "ansible_host": host["address"],
        "ansible_port": host.get("port", site.get("access", "port", default=22)),
        **({"ansible_user": user} if user else {}),
        **({"ansible_ssh_private_key_file": _expanded(key)} if key else {}),
        **({"ansible_ssh_common_args": shlex.join(options)} if options else {}),
    }


def common_arguments(site: Site, host: dict[str, Any]) -> list[str]:
    """Return the options of `ssh` for a host, without address, port, user and key. kubespray's `ssh` gets the same.

    The jump host is a ProxyCommand. A ProxyJump would get neither the key nor the file of host keys.
    """
    known = site.get("access", "known_hosts")
    options = ["-o", f"UserKnownHostsFile={_expanded(known)}"] if known else []
    command = jump_command(site, host)
    return [*options, "-o", f"ProxyCommand={command}"] if command else options


def jump_command(site: Site, host: dict[str, Any]) -> str:
    """Return the ProxyCommand for the jump host of a host; empty if it has none."""
    jump = host.get("jump", site.get("access", "jump", default=DIRECT))
    if jump == DIRECT:
        return ""
    known = site.get("access", "known_hosts")
    options = ["-o", f"UserKnownHostsFile={_expanded(known)}"] if known else []
    user = jump.get("user", site.get("access", "user"))
    key = jump.get("key_file", site.get("access", "key_file"))
    words = [
        "ssh", *CHECKED, *options, *(["-i", _expanded(key)] if key else []), *(["-l", user] if user else []),
        "-p", str(jump.get("port", 22)),
    ]  # fmt: skip
    # `ssh` replaces %h by the host and %p by its port, so a percent sign in a path must be doubled.
    command = [*(word.replace("%", "%%") for word in words), "-W", "[%h]:%p", "--", jump["address"]]
    return shlex.join(command)


def _expanded(path: str) -> str:
    return str(Path(path).expanduser())
