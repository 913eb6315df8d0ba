"""The hosts of a site file: addresses, roles, and marks of maintenance that do not fit together."""

from collections.abc import Iterator

from deployment.site import Finding, Site


def problems(site: Site) -> Iterator[Finding]:
    """Yield hosts with one address, and roles and marks by which a cluster cannot be."""
    owners: dict[str, str] = {}
    for name, host in site.hosts.items():
        other = owners.setdefault(f"{host['address']}:{host.get('port', 22)}", name)
        if other != name and host.get("connection", "ssh") == "ssh":
            yield Finding(("hosts", name, "address"), f"{name} has the address of {other}")
    yield from _maintenance(site)
    members = [name for name, host in site.hosts.items() if "etcd" in host["roles"]]
    if members and len(members) % 2 == 0:
        yield Finding(
            ("hosts", members[-1], "roles"),
            f"etcd has {len(members)} members: an even number survives no more failures than one less; "
            "take the role from one host or give it to one more",
        )


def _maintenance(site: Site) -> Iterator[Finding]:
    """Yield marks that leave a cluster without a control plane, or etcd without most of its members."""
    for role in ("control_plane", "etcd"):
        members = [name for name, host in site.hosts.items() if role in host["roles"]]
        away = [name for name in members if "maintenance" in site.hosts[name]]
        enough = len(members) // 2 + 1 if role == "etcd" else 1
        if away and len(members) - len(away) < enough:
            yield Finding(
                ("hosts", away[-1], "maintenance"),
                f"{' and '.join(away)} in maintenance: {len(members) - len(away)} of {len(members)} hosts with the "
                f"role {role} would be left, and {enough} must be: take the mark away, or give the role to another "
                "host first",
            )
