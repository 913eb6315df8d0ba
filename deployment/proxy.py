"""The proxy of a site: downloads use it, connections to addresses of the site do not."""

import ipaddress
import re
from collections.abc import Iterator
from typing import Final

from deployment.addresses import POD_SUBNET, SERVICE_SUBNET, is_loopback, servers
from deployment.site import Finding, Site

_URL: Final = re.compile(r"https?://(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9][A-Za-z0-9.-]*):[0-9]{1,5}/?")


def problems(site: Site) -> Iterator[Finding]:
    """Yield the errors in the URLs. No message repeats a URL, because a refused one may contain a password."""
    yield from _servers(site)
    for index, text in enumerate(site.get("network", "proxy", "no_proxy", default=[])):
        if ("/" in text and not _is_network(text)) or "://" in text:
            yield Finding(
                ("network", "proxy", "no_proxy", index),
                f"network.proxy.no_proxy: {text} is no name, no domain, no address and no network: correct it",
            )
        if text == "*":
            yield Finding(
                ("network", "proxy", "no_proxy", index),
                "network.proxy.no_proxy: with * nothing is fetched by the proxy: remove it, or remove network.proxy",
            )
    for key in ("http", "https"):
        url = site.get("network", "proxy", key)
        if url is None or _URL.fullmatch(url):
            continue
        place = ("network", "proxy", key)
        if "@" in url:
            yield Finding(
                place,
                f"network.proxy.{key}: it has a user or a password. kubespray writes the proxy into files that every "
                "user of a host may read. Let the proxy know the hosts by their addresses, or name one on this "
                "network that logs in for them",
            )
        else:
            yield Finding(
                place, f"network.proxy.{key}: write a URL with its port: http://proxy.example.com:3128"
            )


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return True


def _servers(site: Site) -> Iterator[Finding]:
    """Yield servers for all hosts at an impossible port, or at an address that is another machine on each host."""
    remote = any(host.get("connection", "ssh") == "ssh" for host in site.hosts.values())
    for place, url in servers(site):
        where = ".".join(map(str, place))
        try:
            possible = url.port != 0
        except ValueError:
            possible = False
        if not possible:
            yield Finding(place, f"{where}: a port is between 1 and 65535")
        elif remote and is_loopback(url.hostname or ""):
            yield Finding(
                place,
                f"{where}: {url.hostname} is another machine on each host: write the address by "
                "which the hosts reach it",
            )


def direct(site: Site) -> list[str]:
    """Return the hosts and networks that programs reach without the proxy: those of the site and of the cluster, and
    `no_proxy` of the site file.
    """
    ontap = site.get("storage", "ontap", default={})
    lifs = [*ontap.get("data_lifs", []), ontap.get("svm_management_lif", {})]
    addresses = [
        *(host["address"] for host in site.hosts.values()),
        *(host.get("node_address") for host in site.hosts.values()),
        *(switch["address"] for switch in site.get("network", "switches", default={}).values()),
        ontap.get("management_lif"),
        *(lif.get("address") for lif in lifs),
    ]
    networks = [
        site.get("kubernetes", "pod_subnet", default=POD_SUBNET),
        site.get("kubernetes", "service_subnet", default=SERVICE_SUBNET),
    ]
    named = site.get("network", "proxy", "no_proxy", default=[])
    names = ["localhost", "127.0.0.1", *site.hosts, *filter(None, addresses), *networks, *named]
    return list(dict.fromkeys(names))


def environment(site: Site) -> dict[str, str]:
    """Return the environment of programs that download through the proxy; empty for a site without one."""
    http = site.get("network", "proxy", "http")
    if http is None:
        return {}
    values = {
        "http_proxy": http,
        "https_proxy": site.get("network", "proxy", "https", default=http),
        "no_proxy": ",".join(direct(site)),
    }
    return values | {name.upper(): value for name, value in values.items()}
