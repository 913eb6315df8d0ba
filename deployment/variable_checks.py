"""Checks the variables that a site file passes to roles and to kubespray.

Reports unknown names, wrong types, and variables that must be set by another key.
"""

import difflib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from zoneinfo import available_timezones

from deployment import upstream
from deployment.content import role_options
from deployment.site import Finding, Place, Site

EXTRA: Final = ("vars", "deepops_extra_variables")

_KEYS: Final = {
    "container_toolkit_version": "versions.container_toolkit",
    "deepops_commit": "deepops.commit",
    "deepops_docker_version": "versions.docker",
    "deepops_gpu_operator_enabled": "deepops.gpu_operator",
    "deepops_kubernetes": "versions.kubernetes",
    "deepops_network_plugin": "kubernetes.network_plugin",
    "deepops_node_address": "hosts.NAME.node_address",
    "deepops_pod_subnet": "kubernetes.pod_subnet",
    "deepops_release": "versions.deepops",
    "deepops_runtime": "kubernetes.container_runtime",
    "deepops_served": "bundle.files_url and bundle.registry",
    "deepops_service_subnet": "kubernetes.service_subnet",
    "deepops_upstream_dns": "kubernetes.upstream_dns",
    "device_plugin_version": "versions.device_plugin",
    "dra_version": "versions.dra",
    "driver_branch": "versions.driver",
    "trident_backends": "storage.backends",
    "trident_classes": "storage.classes",
    "trident_version": "versions.trident",
}
"""Variables of roles that the site file must set by its own key, because muster checks that key."""

_CONNECTION_KEYS: Final = {
    "ansible_host": "hosts.NAME.address",
    "ansible_port": "hosts.NAME.port",
    "ansible_ssh_host": "hosts.NAME.address",
    "ansible_ssh_port": "hosts.NAME.port",
}
"""Variables of connections that the site file must set by its own key, because muster checks that key."""

_WORDS: Final = {
    "bool": "true or false", "int": "a whole number", "float": "a number", "str": "a text", "list": "a list",
    "dict": "keys with values",
}  # fmt: skip
_FORMS: Final = {
    "bool": re.compile("yes|no|on|off|true|false|y|n|t|f|1|0"),
    "int": re.compile("[+-]?(0|[1-9][0-9]*)"),
    "float": re.compile("[+-]?[0-9]*[.]?[0-9]+"),
}
"""The strings that Ansible converts to each type, in lower case."""
FALSE: Final = frozenset({"false", "no", "off", "n", "f", "0"})
TRUE: Final = frozenset({"true", "yes", "on", "y", "t", "1"})
"""The strings that Ansible converts to false and true, in lower case."""


_ARGUMENTS: Final = frozenset(
    f"ansible_{name}_args" for name in ("ssh", "ssh_common", "ssh_extra", "scp_extra", "sftp_extra")
)
_CHECKS: Final = frozenset({"ansible_host_key_checking", "ansible_ssh_host_key_checking"})
_UNCHECKED: Final = re.compile(
    r"StrictHostKeyChecking[\s=\"']+(no|off|accept-new)\b|KnownHostsFile[\s=\"']+/dev/null", re.IGNORECASE
)
"""Options of ssh_config(5) with which `ssh` accepts an unknown host key."""

_DNS_NAME: Final = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*"
_LABEL: Final = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_TEXTS: Final = {
    "_sha256": ("[0-9a-f]{64}", "a SHA-256: 64 hexadecimal digits in lower case"),
    "_namespace": (_LABEL, "a name of Kubernetes: lower-case letters, digits and -"),
    "_chart": (r"\S.*", "a URL or a path"),
    "_archive": (r"\S.*", "a URL or a path"),
    "device_plugin_release": (_LABEL, "a name of Kubernetes: lower-case letters, digits and -"),
    "dra_release": (_LABEL, "a name of Kubernetes: lower-case letters, digits and -"),
}
"""The forms of texts, and their words, by the end of the variable's name."""
_TEXTS_OF_EXTRA: Final = {
    "calico_mtu": ("[1-9][0-9]{3}", "a number of bytes"),
    "cluster_name": (_DNS_NAME, "a DNS name in lower case"),
    "dns_domain": (_DNS_NAME, "a DNS name in lower case"),
}


def problems(site: Site) -> Iterator[Finding]:
    """Yield the variables whose names or values a role or kubespray does not accept."""
    options = role_options()
    for name, value in site.get("vars", default={}).items():
        place: Place = ("vars", name)
        if name in _KEYS:
            yield Finding(place, f"vars.{name}: it is checked as {_KEYS[name]}: write it there")
        elif name not in options:
            yield Finding(place, f"vars.{name}: no role has this variable{_nearest(name, options)}")
        else:
            yield from _of_value(place, value, options[name])
            yield from _of_text(place, value, _TEXTS, name.endswith)
    whole = site.get(*EXTRA)
    if isinstance(whole, str) and "{{" in whole:
        yield Finding(
            EXTRA, f"{'.'.join(EXTRA)}: name each variable here; only a value may come from vault.yml"
        )
    yield from _of_extra(extra(site))


def extra(site: Site) -> dict[Any, Any]:
    """Return the variables that the site file passes to kubespray. Empty if the entry is not a mapping."""
    named = site.get(*EXTRA, default={})
    return named if isinstance(named, dict) else {}


def connection_problems(site: Site) -> Iterator[Finding]:
    """Yield variables of a connection that Ansible does not have."""
    known = upstream.names()["connection"].split()
    for host, entry in site.hosts.items():
        for name, value in entry.get("connection_vars", {}).items():
            place: Place = ("hosts", host, "connection_vars", name)
            where = f"hosts.{host}.connection_vars.{name}"
            if name in {"ip", "access_ip"}:
                yield Finding(
                    place,
                    f"{where}: the address of the node is no matter of the connection: hosts.{host}.node_address",
                )
            elif name in _CONNECTION_KEYS:
                yield Finding(
                    place,
                    f"{where}: it would override a checked setting: write it as {_CONNECTION_KEYS[name]}",
                )
            elif not re.fullmatch(r"ansible_[a-z0-9_]+", name):
                yield Finding(
                    place,
                    f"{where}: variables of a connection begin with ansible_. Write a variable of a role under vars, "
                    "one of kubespray under vars.deepops_extra_variables",
                )
            elif name not in known:
                yield Finding(
                    place, f"{where}: Ansible's connections do not have this variable{_nearest(name, known)}"
                )
            elif value is None or isinstance(value, dict | list):
                yield Finding(place, f"{where}: should be a text, not {_shown(value)}")


def unchecked_host_keys(site: Site) -> Iterator[Finding]:
    """Yield the entries by which `ssh` accepts any host key."""
    where = "a machine with another host key gets the login and the secrets of the stages"
    fix = "store the keys with `ssh-keyscan` in the file of access.known_hosts"
    if site.get("access", "known_hosts") == os.devnull:
        yield Finding(("access", "known_hosts"), f"access.known_hosts keeps no host key: {where}; {fix}")
    for host, entry in site.hosts.items():
        for name, value in entry.get("connection_vars", {}).items():
            is_off = name in _CHECKS and str(value).lower() in FALSE
            if is_off or (name in _ARGUMENTS and _UNCHECKED.search(str(value))):
                place: Place = ("hosts", host, "connection_vars", name)
                yield Finding(
                    place,
                    f"{'.'.join(map(str, place))} accepts unknown host keys: {where}. Remove it, and {fix}",
                )


def _of_extra(named: Mapping[Any, Any]) -> Iterator[Finding]:
    """Yield unknown variables for kubespray, values of a wrong type, and variables that override a checked one."""
    keys = upstream.names()["keys"]
    for name, value in named.items():
        place: Place = (*EXTRA, name)
        where = ".".join(map(str, place))
        if name in keys:
            yield Finding(place, f"{where}: it would override a checked setting: write it as {keys[name]}")
        elif name in upstream.names()["ipv4_only"]:
            yield Finding(
                place, f"{where}: muster sets up IPv4 alone, and has checked the networks for it: remove it"
            )
        elif name in upstream.names()["own"]:
            yield Finding(place, f"{where}: muster sets it, and its stages depend on it: remove it")
        elif str(name).startswith("ansible_"):
            yield Finding(
                place, f"{where}: it is a matter of the connection: write it under hosts.NAME.connection_vars"
            )
        elif name not in upstream.variables():
            yield Finding(
                place,
                f"{where}: neither kubespray nor DeepOps has this variable{_nearest(str(name), upstream.variables())}",
            )
        else:
            kind = upstream.variables()[name]
            choices = (upstream.names()["choices"] | upstream.names()["choices_of_calico"]).get(name, [])
            yield from _of_value(place, value, {"type": kind or "any", "choices": choices})
            yield from _of_text(place, value, _TEXTS_OF_EXTRA, str(name).__eq__)
            is_path = str(name).endswith("_dir") and kind != "bool" and isinstance(value, str)
            if is_path and value[:1] not in {"/", "{"}:
                yield Finding(place, f"{where}: should be a path from /, not {_shown(value)}")
            zones = available_timezones()
            if name == "ntp_timezone" and zones and value not in zones and "{{" not in str(value):
                yield Finding(place, f"{where}: {value} is no time zone{_nearest(str(value), zones)}")


def _of_text(
    place: Place, value: Any, forms: Mapping[str, tuple[str, str]], is_of: Callable[[str], bool]
) -> Iterator[Finding]:
    """Yield a text without the form of its variable."""
    for name, (form, words) in forms.items():
        is_plain = isinstance(value, str | int) and "{{" not in str(value)
        if is_of(name) and is_plain and not re.fullmatch(form, str(value)):
            yield Finding(place, f"{'.'.join(map(str, place))}: should be {words}, not {_shown(value)}")


def _nearest(name: str, known: Any) -> str:
    near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.8)
    return f": is {near[0]} meant?" if near else ": correct it, or remove it"


def _of_value(place: Place, value: Any, option: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the parts of a value that violate `option`, its entry in the argument specification of the role."""
    where, kind = ".".join(map(str, place)), str(option.get("type", "str"))
    if isinstance(value, str) and "{{" in value:
        return  # a template uses values of vault.yml, which are known only at run time
    if not _fits(value, kind):
        yield Finding(place, f"{where}: should be {_WORDS.get(kind, kind)}, not {_shown(value)}")
        return
    if place[:2] != EXTRA and kind in {"int", "float"} and float(value) < 0:
        yield Finding(place, f"{where}: {value} is less than 0")
    choices = option.get("choices")
    if choices and value not in choices:
        yield Finding(place, f"{where}: {value} is none of {', '.join(map(str, choices))}")
    nested = option.get("options", {})
    entries: list[tuple[Place, Any]] = [(place, value)]
    if isinstance(value, list):
        entries = [((*place, index), entry) for index, entry in enumerate(value)]
        if "elements" in option and not nested:
            for inner, entry in entries:
                yield from _of_value(inner, entry, {"type": option["elements"]})
    for inner, entry in entries if nested else ():
        yield from _of_entry(inner, entry, nested)


def _of_entry(place: Place, entry: Any, options: Mapping[str, Any]) -> Iterator[Finding]:
    where = ".".join(map(str, place))
    if not isinstance(entry, dict):
        yield Finding(place, f"{where}: should be keys with values, not {_shown(entry)}")
        return
    for key, value in entry.items():
        if key in options:
            yield from _of_value((*place, key), value, options[key])
        else:
            yield Finding(
                (*place, key), f"{where}: unknown key `{key}` (known here: {', '.join(sorted(options))})"
            )
    for key, option in options.items():
        if option.get("required") and key not in entry and set(entry) <= set(options):
            yield Finding(place, f"{where}: `{key}` is missing")


def _fits(value: Any, kind: str) -> bool:
    """Return whether Ansible accepts the value for this type."""
    if kind in _FORMS:
        return bool(not isinstance(value, dict | list) and _FORMS[kind].fullmatch(str(value).lower()))
    if kind in {"list", "dict"}:
        return isinstance(value, list if kind == "list" else dict)
    return kind == "any" or (value is not None and (kind == "raw" or not isinstance(value, dict | list)))


def _shown(value: Any) -> str:
    for kind, words in ((dict, "keys with values"), (list, "a list"), (type(None), "nothing")):
        if isinstance(value, kind):
            return words
    return f"`{str(value)[:60]}`"
