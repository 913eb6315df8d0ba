"""The site file: read, checked against the schema and for what a schema cannot say, before anything runs."""

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from deployment import addresses, host_checks, proxy
from deployment.errors import SiteError
from orchestrator.document import Document
from orchestrator.errors import MusterError

SITE_FILE: Final = "site.yml"
VAULT_FILE: Final = "vault.yml"
ANSIBLE_FOR_OLD_HOSTS: Final = "ansible==9.13.0"
"""The last with ansible-core 2.16, which still manages a host with Python 3.6; it runs on Python 3.10 to 3.12."""

CHECKSUM_OF_TRIDENT: Final = "the page of a release shows the SHA-256 beside trident-installer"

_VAULT_HEADER: Final = "$ANSIBLE_VAULT;"
_SECRET_WORDS: Final = re.compile(r"(^|_)(password|passphrase|secret|token|license_codes)$")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_TEMPLATE: Final = re.compile(r"\{[{%#]")
_REFERENCE: Final = re.compile(r"\{\{ [a-z][a-z0-9_]* \}\}")
_NEEDS: Final[dict[str, tuple[str, ...]]] = {
    "driver": ("versions", "driver"),
    "container_toolkit": ("versions", "container_toolkit"),
    "deepops": ("versions", "deepops"),
    "nexus": ("network", "switches"),
    "ontap": ("storage", "ontap"),
    "nfs_client": ("versions", "trident"),
    "trident": ("versions", "trident"),
}
"""The entry of the site file that a stage needs."""

_ONTAP_NEEDS: Final = {
    "aggregates": "without aggregates the SVM has no room",
    "data_lifs": "without an interface no node can mount",
    "svm_management_lif": "the account of Trident lives in the SVM, and the cluster's management LIF does not know it",
    "trident_password": "the account of Trident gets it",
}

_WORDS: Final = {
    "object": "keys with values (`key: value`)", "array": "a list", "string": "a text", "integer": "a whole number",
    "boolean": "true or false",
}  # fmt: skip
"""The schema's types in words for error messages."""

_MAX_CHARACTERS: Final = 60
_LOGIN: Final = re.compile(r"://[^/\s@]*@")
"""User and password in a URL, which no message repeats."""
_PASSWORD_IN_URL: Final = re.compile(r"://[^/\s@:]*:[^/\s@]*@")

Place = tuple[str | int, ...]


class SiteDocument(Document):
    """A site file as data, with the line of every entry."""

    error_type: ClassVar[type[MusterError]] = SiteError


@dataclass(frozen=True)
class Site:
    """A checked site. `data` is the file as plain data; `directory` also holds vault.yml, where there is one."""

    document: SiteDocument
    directory: Path

    @property
    def data(self) -> dict[str, Any]:
        """The file as plain data, valid by the schema."""
        data: dict[str, Any] = self.document.data
        return data

    @property
    def name(self) -> str:
        """The site's name: it also names its state directory and its ConfigMap."""
        return str(self.data["name"])

    @property
    def vault(self) -> Path | None:
        """The encrypted variables, if the site has any."""
        path = self.directory / VAULT_FILE
        return path if path.exists() else None

    @property
    def versions(self) -> dict[str, str]:
        """The releases to install, by component."""
        return dict(self.data["versions"])

    @property
    def hosts(self) -> dict[str, dict[str, Any]]:
        """The hosts by name."""
        return dict(self.data.get("hosts", {}))

    @property
    def maintenance(self) -> dict[str, str]:
        """The hosts that are out of service, with the reasons."""
        return {name: host["maintenance"] for name, host in self.hosts.items() if "maintenance" in host}

    @property
    def declared_not_applicable(self) -> dict[str, str]:
        """The stages that the file declares not applicable, with the reasons."""
        return dict(self.data.get("not_applicable", {}))

    @property
    def container_runtime(self) -> str:
        """The container runtime of Kubernetes: containerd or docker."""
        return str(self.get("kubernetes", "container_runtime", default="containerd"))

    @property
    def upgrade_batch(self) -> str:
        """How many hosts are out of service at once in an upgrade: a number, or a part of them, as 20%."""
        return str(self.get("upgrade", "batch", default=1))

    @property
    def nfs_versions(self) -> list[str]:
        """The versions of NFS that the SVM serves."""
        return list(self.get("storage", "ontap", "nfs_versions", default=["3", "4.1"]))

    def has_stage(self, name: str) -> bool:
        """Return whether the file has the stage's entry and does not declare the stage not applicable."""
        return not self.missing_entry(name) and name not in self.declared_not_applicable

    def missing_entry(self, stage: str) -> str:
        """Return the entry that a stage needs and the file does not have; empty if it has it."""
        needed = _NEEDS.get(stage, ())
        return ".".join(needed) if needed and self.get(*needed) is None else ""

    @property
    def ansible_bin(self) -> Path | None:
        """The directory of another ansible-playbook than muster's own, if the file names one."""
        configured = self.get("controller", "ansible_bin")
        return (self.directory / Path(configured).expanduser()).absolute() if configured else None

    @property
    def missing_ansible(self) -> str:
        """How to install the Ansible that the file names; empty where it is installed."""
        path = self.ansible_bin
        if path is None or os.access(path / "ansible-playbook", os.X_OK):
            return ""
        environment = path.parent if path.name == "bin" else path
        return (
            f"controller.ansible_bin: there is no ansible-playbook in {path}: correct the path, or make it with "
            f"`python3.11 -m venv {environment} && {environment}/bin/pip install {ANSIBLE_FOR_OLD_HOSTS}`"
        )

    def get(self, *path: str, default: Any = None) -> Any:
        """Return the value at `path`, or the default where the file has none."""
        value: Any = self.data
        for key in path:
            if not isinstance(value, dict) or key not in value:
                return default
            value = value[key]
        return value

    def problem(self, place: Place, message: str) -> str:
        """Return a message about one entry, with file and line number in front."""
        return f"{self.document.path}:{self.document.line(place)}: {_LOGIN.sub('://***@', message)}"

    def secrets(self) -> Iterator[tuple[Place, dict[str, str]]]:
        """Yield every reference to a secret and its place in the file."""
        yield from _secrets(self.data, ())


def load(inventory: Path) -> Site:
    """Read and check `inventory`, a site's directory or its file. Raises SiteError with every problem."""
    path = inventory / SITE_FILE if inventory.is_dir() else inventory
    document = SiteDocument(path)
    site = Site(document, path.parent)
    problems = _schema_problems(site)
    if not problems:
        problems = [*_reference_problems(site), *_vault_problems(site)]
    if problems:
        raise site_error(path, problems)
    return site


def site_error(path: Path, problems: Sequence[str]) -> SiteError:
    """Return one error with all the problems of a file."""
    count = f"{len(problems)} problems" if len(problems) > 1 else "1 problem"
    return SiteError(f"{path}: {count}; nothing was done", problems)


@cache
def _validator() -> Draft202012Validator:
    text = (resources.files("deployment") / "data" / "site.schema.json").read_text()
    return Draft202012Validator(json.loads(text))


def _schema_problems(site: Site) -> list[str]:
    messages: dict[Place, str] = {}
    for error in sorted(
        _validator().iter_errors(site.document.data), key=lambda violation: list(map(str, violation.path))
    ):
        place: Place = tuple(error.absolute_path)
        for where, message in _describe_error(place, error):
            messages.setdefault(where, site.problem(where, message))
    return sorted(
        messages.values(), key=lambda text: int(text.removeprefix(f"{site.document.path}:").split(":")[0])
    )


def _describe_error(place: Place, error: ValidationError) -> Iterator[tuple[Place, str]]:
    """Yield a schema error as messages for people, with their places."""
    value: Any = error.instance
    expected: Any = error.validator_value
    where = ".".join(map(str, place)) or "the file"
    schema: dict[str, Any] = error.schema if isinstance(error.schema, dict) else {}
    if error.validator == "additionalProperties":
        known = schema.get("properties", {})
        for key in value:
            if key not in known:
                yield (*place, key), f"unknown key `{key}` (known here: {', '.join(sorted(known))})"
    elif error.validator == "dependentRequired":
        missing = [
            other
            for key, others in expected.items()
            if key in value
            for other in others
            if other not in value
        ]
        yield place, f"{where}: `{missing[0]}` is missing"
    elif error.validator == "required":
        missing = [key for key in expected if key not in value]
        yield place, f"{where}: `{missing[0]}` is missing"
    elif error.validator == "type" and schema.get("type") == "string" and not isinstance(value, dict | list):
        yield place, f"{where}: write it in quotes: YAML reads {value} as a number or a truth value"
    elif error.validator == "enum":
        yield place, f"{where}: {value} is none of {', '.join(map(str, expected))}"
    elif place and _SECRET_WORDS.search(str(place[-1])):
        yield place, f"{where}: a secret is never written here; write {{env: NAME}} or {{vault: name}}"
    elif error.validator in {"pattern", "minLength"}:
        meaning = f" ({schema['description']})" if "description" in schema else ""
        yield (
            place,
            f"{where}: {value!r} does not have the form {schema.get('pattern', 'of a text')}{meaning}",
        )
    elif error.validator == "type":
        yield (
            place,
            f"{where}: should be {_WORDS.get(str(expected), expected)}, not {_describe_value(value, place)}",
        )
    elif error.validator == "const":
        yield place, f"{where}: write {expected}, not {_describe_value(value, place)}"
    else:
        meant = (
            f"this should be: {schema.get('description')}" if error.validator == "anyOf" else error.message
        )
        yield place, f"{where}: {meant}"


def _describe_value(value: Any, place: Place) -> str:
    """Describe a value for an error message; a whole file that is one text is not shown, it may be any file."""
    for kind, words in ((dict, "keys with values"), (list, "a list"), (type(None), "nothing")):
        if isinstance(value, kind):
            return words
    if not place:
        return "one text"
    return f"`{value}`" if len(str(value)) <= _MAX_CHARACTERS else f"`{str(value)[:_MAX_CHARACTERS]}…`"


def _reference_problems(site: Site) -> Iterator[str]:
    """Yield the problems between entries, which a schema cannot express."""
    yield from host_checks.problems(site)
    yield from _class_problems(site)
    yield from _ontap_problems(site)
    yield from _switch_problems(site)
    yield from addresses.problems(site)
    yield from proxy.problems(site)
    yield from _text_problems(site)
    for place in _plain_secrets(site.get("vars", default={}), ("vars",)):
        yield site.problem(
            place, f"{'.'.join(map(str, place))}: a secret is never written here; use vault.yml"
        )


def _text_problems(site: Site) -> Iterator[str]:
    """Yield texts that a terminal would obey or Ansible would run, and URLs with a password in them.

    All is data, but for a name of vault.yml.
    """
    for place, text in _texts(site.data, ()):
        if _PASSWORD_IN_URL.search(text) and place[:2] != ("network", "proxy"):
            yield site.problem(
                place,
                f"{'.'.join(map(str, place))}: it has a password in its URL: a secret is never written here; give the "
                "login to the program that fetches (git: a credential helper; registries: `docker login`)",
            )
        if _CONTROL.search(text):
            yield site.problem(
                place, f"{'.'.join(map(str, place))}: it has a control character: write it again"
            )
        may_refer = place[0] == "vars" or "connection_vars" in place
        if _TEMPLATE.search(text) and not (may_refer and _REFERENCE.fullmatch(text)):
            hint = (
                "write `{{ name }}` and nothing else for a variable of vault.yml"
                if may_refer
                else "write it out"
            )
            yield site.problem(
                place, f"{'.'.join(map(str, place))}: values are data, never templates of Ansible: {hint}"
            )


def _texts(value: Any, place: Place) -> Iterator[tuple[Place, str]]:
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict):
        for key, nested in value.items():
            yield (*place, key), key
            yield from _texts(nested, (*place, key))
    elif isinstance(value, list):
        for index, nested in enumerate(value):
            yield from _texts(nested, (*place, index))


def _class_problems(site: Site) -> Iterator[str]:
    backends = {entry["name"] for entry in site.get("storage", "backends", default=[])}
    classes = site.get("storage", "classes", default=[])
    served = site.nfs_versions
    for index, storage_class in enumerate(classes):
        if storage_class["backend"] not in backends:
            backend: Place = ("storage", "classes", index, "backend")
            yield site.problem(backend, f"there is no backend {storage_class['backend']} in storage.backends")
        for option in storage_class.get("mount_options", []):
            name, _, version = option.partition("=")
            if name in {"vers", "nfsvers"} and version not in served:
                yield site.problem(
                    ("storage", "classes", index, "mount_options"),
                    f"class {storage_class['name']} mounts with {option}, and storage.ontap.nfs_versions "
                    f"has {', '.join(served)} alone",
                )
    defaults = [index for index, storage_class in enumerate(classes) if storage_class.get("default")]
    if classes and len(defaults) != 1:
        surplus: Place = ("storage", "classes", defaults[1] if defaults else 0)
        yield site.problem(surplus, f"{len(defaults)} of the classes are the default: exactly one must be")


def _ontap_problems(site: Site) -> Iterator[str]:
    """Yield what the stage ontap needs and the file does not have."""
    if not site.has_stage("ontap"):
        return
    ontap = site.get("storage", "ontap")
    for key, why in _ONTAP_NEEDS.items():
        if key not in ontap:
            yield site.problem(
                ("storage", "ontap"),
                f"storage.ontap: `{key}` is missing: {why}; where the SVM is prepared by hand, declare ontap under "
                "not_applicable",
            )
    lifs = [
        *ontap.get("data_lifs", []),
        *([ontap["svm_management_lif"]] if "svm_management_lif" in ontap else []),
    ]
    for field in ("name", "address"):
        values = [lif[field] for lif in lifs]
        for value in sorted({item for item in values if values.count(item) > 1}):
            yield site.problem(
                ("storage", "ontap"), f"storage.ontap: two interfaces have the {field} {value}"
            )


def _switch_problems(site: Site) -> Iterator[str]:
    """Yield ports used twice, channels on one switch only, and VLANs that are not declared."""
    network = site.get("network", default={})
    switches: dict[str, Any] = network.get("switches", {})
    vpc = network.get("vpc")
    known = {vlan["id"] for vlan in network.get("vlans", [])}
    channels = {
        name: {link["channel"] for link in switch.get("links", []) if "channel" in link}
        for name, switch in switches.items()
    }
    if vpc and len(switches) != 2:
        yield site.problem(
            ("network", "vpc"), f"a vPC domain has two switches, network.switches has {len(switches)}"
        )
    for name, switch in switches.items():
        used = dict.fromkeys(vpc["ports"], "the peer link") if vpc else {}
        for index, link in enumerate(switch.get("links", [])):
            place: Place = ("network", "switches", name, "links", index)
            for port in link["ports"]:
                if port in used:
                    yield site.problem(place, f"{port} of {name} leads to {used[port]} and to {link['to']}")
                used[port] = link["to"]
            for vlan in sorted(set(link["vlans"]) - known):
                yield site.problem(place, f"VLAN {vlan} is not in network.vlans")
            if "channel" in link and not vpc:
                yield site.problem(
                    place, f"channel {link['channel']} goes over two switches: network.vpc is missing"
                )
            elif "channel" in link and any(link["channel"] not in numbers for numbers in channels.values()):
                yield site.problem(
                    place, f"channel {link['channel']} is on {name} alone: give the other switch its half"
                )


def _vault_problems(site: Site) -> Iterator[str]:
    vault = site.vault
    if vault is not None:
        try:
            if not vault.read_text(errors="replace").startswith(_VAULT_HEADER):
                yield f"{vault}:1: it is not encrypted: run `ansible-vault encrypt {vault}`"
        except OSError as error:
            yield f"{vault}:1: cannot be read: {error.strerror}"
    for place, secret in site.secrets():
        if "vault" in secret and vault is None:
            yield site.problem(
                place, f"there is no {site.directory / VAULT_FILE} to take {secret['vault']} from"
            )


def _secrets(value: Any, place: Place) -> Iterator[tuple[Place, dict[str, str]]]:
    if isinstance(value, dict):
        if place and _SECRET_WORDS.search(str(place[-1])) and set(value) <= {"env", "vault"}:
            yield place, value
            return
        for key, nested in value.items():
            yield from _secrets(nested, (*place, key))
    elif isinstance(value, list):
        for index, nested in enumerate(value):
            yield from _secrets(nested, (*place, index))


def _plain_secrets(value: Any, place: Place) -> Iterator[Place]:
    if isinstance(value, dict):
        for key, nested in value.items():
            plain = isinstance(nested, str) and "{{" not in nested
            if plain and _SECRET_WORDS.search(key):
                yield (*place, key)
            yield from _plain_secrets(nested, (*place, key))
