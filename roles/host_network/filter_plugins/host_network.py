"""Turns the interfaces of a site file into files of netplan or NetworkManager, and a change of files into a script."""

import base64
import ipaddress
import json
import shlex
from pathlib import PurePosixPath
from typing import Any

import yaml

Files = dict[str, str]
Interfaces = dict[str, dict[str, Any]]
Network = dict[str, dict[str, dict[str, Any]]]

OURS = "/etc/netplan/90-muster.yaml"
CONNECTIONS = "/etc/NetworkManager/system-connections"
ROCE = "/etc/systemd/system/muster-roce.service"
HASHED = ("802.3ad", "balance-xor")
"""Modes of a bond that choose the member by a hash of the packet."""


def files_of(interfaces: Interfaces, networks: dict[str, Any], manager: str, present: Files) -> Files:
    """Return the content of each file that configures the interfaces. An empty content stands for an absent file."""
    if manager != "netplan":
        wanted = keyfiles(interfaces, networks)
        left = [path for path in present if path.startswith(f"{CONNECTIONS}/muster-") and path not in wanted]
        return dict.fromkeys(left, "") | wanted
    return {OURS: _text({"network": {"version": 2, **netplan(interfaces, networks)}})}


def netplan(interfaces: Interfaces, networks: dict[str, Any]) -> dict[str, Any]:
    """Return the interfaces as netplan describes them. Bond members have the MTU of the bond."""
    found: dict[str, Any] = {}
    for name, entry in interfaces.items():
        mtu = {"mtu": entry["mtu"]} if "mtu" in entry else {}
        values: dict[str, Any] = dict(mtu)
        address, gateway = _address(entry, networks)
        values |= {"dhcp4": False, "addresses": [address]} if address else {}
        values |= {"routes": [{"to": "0.0.0.0/0", "via": gateway}]} if gateway else {}
        if "members" in entry:
            mode = entry.get("mode", "802.3ad")
            parameters = {"mode": mode, "mii-monitor-interval": 100}
            parameters |= {"lacp-rate": entry.get("lacp_rate", "fast")} if mode == "802.3ad" else {}
            parameters |= {"transmit-hash-policy": "layer3+4"} if mode in HASHED else {}
            values |= {"interfaces": entry["members"], "parameters": parameters}
            port = {"dhcp4": False, "dhcp6": False} | mtu
            found.setdefault("ethernets", {}).update(dict.fromkeys(entry["members"], port))
            found.setdefault("bonds", {})[name] = values
        elif "parent" in entry:
            found.setdefault("vlans", {})[name] = values | {"id": entry["vlan"], "link": entry["parent"]}
        else:
            found.setdefault("ethernets", {})[name] = values
    return found


def keyfiles(interfaces: Interfaces, networks: dict[str, Any]) -> Files:
    """Return the connections of NetworkManager by path. Their priority is above that of other connections."""
    found = {}
    for name, entry in interfaces.items():
        kind = "bond" if "members" in entry else "vlan" if "parent" in entry else "ethernet"
        mtu = {"ethernet": {"mtu": entry["mtu"]}} if "mtu" in entry else {}
        more: dict[str, Any] = dict(mtu)
        if kind == "bond":
            mode = entry.get("mode", "802.3ad")
            more["bond"] = {"mode": mode, "miimon": 100}
            more["bond"] |= {"lacp_rate": entry.get("lacp_rate", "fast")} if mode == "802.3ad" else {}
            more["bond"] |= {"xmit_hash_policy": "layer3+4"} if mode in HASHED else {}
            for member in entry["members"]:
                found[_path(member)] = _keyfile(
                    member, "ethernet", {"master": name, "slave-type": "bond"}, mtu
                )
        elif kind == "vlan":
            more["vlan"] = {"id": entry["vlan"], "parent": entry["parent"]}
        address, gateway = _address(entry, networks)
        more["ipv4"] = {"method": "manual", "address1": address} if address else {"method": "disabled"}
        more["ipv4"] |= {"gateway": gateway} if gateway else {}
        more["ipv6"] = {"method": "link-local"}
        found[_path(name)] = _keyfile(name, kind, {}, more)
    return found


def with_roce(files: Files, interfaces: Interfaces, priority: int, dscp: int) -> Files:
    """Return the files with the unit that makes RoCE lossless at each boot; mlnx_qos keeps no settings itself."""
    lossless = ",".join(str(int(number == priority)) for number in range(8))
    lines = []
    for name in roce_ports(interfaces):
        ecn = f"/sys/class/net/{name}/ecn"
        lines += [
            f"ExecStart=/bin/sh -c 'exec mlnx_qos -i {name} --trust dscp'",
            f"ExecStart=/bin/sh -c 'exec mlnx_qos -i {name} --dscp2prio set,{dscp},{priority}'",
            f"ExecStart=/bin/sh -c 'exec mlnx_qos -i {name} --pfc {lossless}'",
            f"ExecStart=/bin/sh -c 'echo 1 > {ecn}/roce_np/enable/{priority}'",
            f"ExecStart=/bin/sh -c 'echo 1 > {ecn}/roce_rp/enable/{priority}'",
        ]
    head = "[Unit]\nDescription=Make RoCE lossless, as muster was told\nAfter=network.target\n\n[Service]\nType=oneshot"
    foot = "RemainAfterExit=yes\n\n[Install]\nWantedBy=multi-user.target\n"
    return files | {ROCE: "\n".join([head, *lines, foot]) if lines else ""}


def members(interfaces: Interfaces) -> list[str]:
    """Return the members of all bonds."""
    return [member for entry in interfaces.values() for member in entry.get("members", [])]


def physical(interfaces: Interfaces) -> list[str]:
    """Return the interfaces that the host must have before the change."""
    plain = [name for name, entry in interfaces.items() if not {"members", "parent"} & set(entry)]
    return plain + members(interfaces)


def roce_ports(interfaces: Interfaces) -> list[str]:
    """Return the ports for lossless RoCE: an interface itself, or the members of a bond."""
    return [
        port
        for name, entry in interfaces.items()
        if entry.get("roce")
        for port in entry.get("members", [name])
    ]


def differing(wanted: Files, present: Files) -> Files:
    """Return the wanted files that are not as on the host."""
    return {path: text for path, text in wanted.items() if present.get(path, "") != text}


def former(changed: Files, present: Files) -> Files:
    """Return the present content of the files that a change replaces."""
    return {path: present.get(path, "") for path in changed}


def recorded_files(present: Files, originals: Files) -> Files:
    """Return the files to restore later: those of others as they are without the role, and the role's own."""
    return originals | {path: text for path, text in present.items() if _is_ours(path)}


def before(recorded: Files, present: Files, originals: Files) -> Files:
    """Return the files as they are without the role. A file that others have changed since the record stays."""
    own_files = {path: recorded.get(path, "") for path in (*recorded, *present) if _is_ours(path)}
    return originals | own_files


def owned(present: Files, network: Network) -> list[str]:
    """Return the interfaces that the role has configured on the host, by its files."""
    names = {name for entries in network.values() for name in entries}
    prefix = f"{CONNECTIONS}/muster-"
    stems = {PurePosixPath(path).stem for path in present if path.startswith(prefix)}
    return sorted(names | {stem.removeprefix("muster-") for stem in stems})


def script_of(
    files: Files, manager: str, added: list[str], links: dict[str, int], *, to_the_end: bool = False
) -> str:
    """Return a shell script that writes the files, deletes the added interfaces, sets the MTU of links, and applies.

    It ends at the first error, or with `to_the_end` after the last line: a way back restores as much as it can.
    """
    lines = []
    if not files.get(ROCE, "-"):
        lines.append(f"systemctl disable --now --quiet {PurePosixPath(ROCE).name} || true")
    for path, text in files.items():
        target = shlex.quote(path)
        content = base64.b64encode(text.encode()).decode()
        mode = "0644" if path == ROCE else "0600"
        written = [f"(umask 077; echo {content} | base64 -d > {target})", f"chmod {mode} {target}"]
        lines += written if text else [f"rm -f {target}"]
    lines += [f"ip link delete dev {shlex.quote(name)} 2>&- || true" for name in sorted(added)]
    lines += [f"ip link set dev {shlex.quote(name)} mtu {mtu} || true" for name, mtu in links.items()]
    if manager == "netplan":
        lines.append("netplan apply")
    else:
        lines.append("nmcli connection reload")
        profiles = [path for path, text in files.items() if text and path.startswith(CONNECTIONS)]
        lines += [f"nmcli connection up id {shlex.quote(PurePosixPath(path).stem)}" for path in profiles]
    if files.get(ROCE):
        lines += ["systemctl daemon-reload", f"systemctl enable --quiet {PurePosixPath(ROCE).name}"]
        lines.append(f"systemctl restart {PurePosixPath(ROCE).name}")
    if to_the_end:
        return "\n".join(["failed=0", *(f"{line} || failed=1" for line in lines), "exit $failed", ""])
    return "\n".join(["set -e", *lines, ""])


def _is_ours(path: str) -> bool:
    return path in {OURS, ROCE} or path.startswith(f"{CONNECTIONS}/muster-")


def _address(entry: dict[str, Any], networks: dict[str, Any]) -> tuple[str, str]:
    """Return the address with its prefix and the gateway; empty if the interface has none."""
    if "address" not in entry:
        return "", ""
    network = networks[entry["network"]]
    prefix = ipaddress.ip_network(network["cidr"]).prefixlen
    return f"{entry['address']}/{prefix}", network.get("gateway", "")


def _path(name: str) -> str:
    return f"{CONNECTIONS}/muster-{name}.nmconnection"


def _keyfile(name: str, kind: str, controller: dict[str, str], more: dict[str, Any]) -> str:
    connection = {"id": f"muster-{name}", "type": kind, "interface-name": name, "autoconnect-priority": 100}
    sections = {"connection": connection | controller} | more
    return "\n".join(
        f"[{section}]\n" + "".join(f"{key}={value}\n" for key, value in values.items())
        for section, values in sections.items()
    )


def _text(data: dict[str, Any]) -> str:
    # Ansible's strings are of types of its own, which YAML cannot represent.
    plain = json.loads(json.dumps(data))
    return f"# Written by muster, role host_network\n{yaml.safe_dump(plain, sort_keys=True)}"


class FilterModule:
    """The filters of this role."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {
            "interface_files": files_of,
            "netplan_interfaces": netplan,
            "with_roce": with_roce,
            "roce_ports": roce_ports,
            "physical_links": physical,
            "bond_members": members,
            "differing_files": differing,
            "former_files": former,
            "recorded_files": recorded_files,
            "files_before": before,
            "owned_links": owned,
            "change_script": script_of,
        }
