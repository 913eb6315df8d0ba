"""The rendered configuration of the switches: one golden file, and properties for every site."""

import re
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from deployment import site_file, variables
from deployment.stages import nexus
from tests.deployment.conftest import SiteUnderTest

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden" / "nexus-1.cfg"
ROLE = ROOT / "roles" / "nexus"


def rendered(values: dict[str, Any], name: str) -> str:
    """Return the template as Ansible renders it."""
    environment = jinja2.Environment(  # noqa: S701 - no HTML
        trim_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined
    )
    template = environment.from_string((ROLE / "templates" / "switch.cfg.j2").read_text())
    defaults = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text())
    switch = next(each for each in values["nexus_switches"] if each["name"] == name)
    return template.render({**defaults, **values, "nexus_switch": switch, "muster_site": "tr4858"})


def interfaces(text: str) -> dict[str, list[str]]:
    """Return the lines of each interface by its name. Fails if a name occurs twice."""
    found: dict[str, list[str]] = {}
    current = None
    for line in text.splitlines():
        if line.startswith("interface "):
            current = line.removeprefix("interface ")
            assert current not in found, f"{current} twice"
            found[current] = []
        elif current and line.startswith("  "):
            found[current].append(line.strip())
        else:
            current = None
    return found


def test_the_switches_of_the_document_get_the_reviewed_lines() -> None:
    values = variables.of_roles(site_file.load(ROOT / "inventories" / "tr4858"))
    assert rendered(values, "nexus-1") == GOLDEN.read_text()
    other = rendered(values, "nexus-2")
    assert "peer-keepalive destination 10.61.1.2 source 10.61.1.3" in other
    assert set(interfaces(other)) == set(interfaces(GOLDEN.read_text()))


VLANS = [{"id": 3100 + number, "name": f"v{number}"} for number in range(6)]
NUMBERS = st.sets(st.integers(3100, 3105), min_size=1)
LINKS = st.lists(st.tuples(st.integers(1, 3), NUMBERS, st.booleans()), max_size=8)


@settings(max_examples=60, deadline=None)
@given(links=LINKS, roce=st.booleans(), vpc=st.booleans(), queues=st.sampled_from(["8q", ""]))
def test_every_port_gets_the_settings_of_its_cable(
    links: list[tuple[int, set[int], bool]], *, roce: bool, vpc: bool, queues: str
) -> None:
    port = iter(range(1, 100))
    plugged: list[dict[str, Any]] = [
        {"to": f"host{index}", "ports": [f"Ethernet1/{next(port)}" for _ in range(count)], "vlans": sorted(vlans)}
        | ({"channel": 10 + index} if vpc and joined else {})
        for index, (count, vlans, joined) in enumerate(links)
    ]  # fmt: skip
    switches = [{"name": name, "address": f"10.0.0.{name}", "links": plugged} for name in ("1", "2")]
    values = {
        "nexus_switches": switches, "nexus_vlans": VLANS, "nexus_queues": queues,
        "nexus_vpc": {"domain": 1, "channel": 1, "ports": ["Ethernet1/100"]} if vpc else {},
        "nexus_roce": nexus.ROCE if roce else {},
    }  # fmt: skip
    text = rendered(values, "1")
    assert "\n\n" not in text
    found = interfaces(text)
    for link in plugged:
        edge = [f"port-channel{link['channel']}"] if "channel" in link else link["ports"]
        for name in {*edge, *link["ports"]}:
            allowed = next(line for line in found[name] if "allowed vlan" in line).rpartition(" ")[2]
            assert [int(each) for each in allowed.split(",")] == link["vlans"]
            assert "mtu 9216" in found[name]
        for name in edge:
            assert ("priority-flow-control mode on" in found[name]) is roce
        for name in link["ports"]:
            assert "no shutdown" in found[name]
            assert (f"channel-group {link.get('channel')} mode active" in found[name]) is ("channel" in link)
    assert ("pause pfc-cos 3" in text) is roce
    assert ("vpc peer-link" in text) is vpc
    shares = [int(each) for each in re.findall(r"remaining percent (\d+)", text)]
    assert sum(shares) == (100 if roce else 0)


HEAD = 'schema: 1\nname: here\nversions:\n  kubernetes: "1.34.2"\nnetwork:\n'
SWITCH = "    {0}:\n      address: {0}\n      model: nexus-3232c\n"
LINK = "      - {{to: a, ports: [{0}], vlans: [{1}]{2}}}\n"
VPC = "  vpc: {domain: 1, channel: 1, ports: [Ethernet1/9]}\n"
KNOWN = "  vlans: [{id: 10, name: nfs}]\n"


def switch(name: str, port: str, vlan: int = 10, more: str = "", times: int = 1) -> str:
    return SWITCH.format(name) + "      links:\n" + LINK.format(port, vlan, more) * times


ONE, TWO = "Ethernet1/1", "Ethernet1/9"
HALF = ", channel: 5"
REFUSED = {
    "a port with two cables": ("", [switch("n1", ONE, times=2)], 13, "Ethernet1/1 of n1 leads to a and to a"),
    "a port of the peer link": (
        VPC,
        [switch("n1", TWO), SWITCH.format("n2")],
        13,
        "leads to the peer link and to a",
    ),
    "an unknown VLAN": ("", [switch("n1", ONE, 11)], 12, "VLAN 11 is not in network.vlans"),
    "a channel without a domain": ("", [switch("n1", ONE, more=HALF)], 12, "network.vpc is missing"),
    "half a channel": (
        VPC,
        [switch("n1", ONE, more=HALF), switch("n2", ONE)],
        13,
        "channel 5 is on n1 alone",
    ),
    "a domain of one": (VPC, [switch("n1", ONE)], 7, "a vPC domain has two switches"),
    "a port of another kind": ("", [switch("n1", "eth1")], 12, "'eth1' does not have the form"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_cables_that_cannot_be_are_refused_with_their_line(site: SiteUnderTest, case: str) -> None:
    vpc, switches, line, message = REFUSED[case]
    site.write(HEAD + KNOWN + vpc + "  switches:\n" + "".join(switches))
    done = site.call("plan")
    assert done.returncode == 2
    assert message in done.stderr, done.stderr
    assert f"{site.file}:{line}: " in done.stderr, done.stderr


def test_the_password_of_a_switch_is_not_in_the_inventory(site: SiteUnderTest) -> None:
    site.environment["X"] = "canary"
    site.write(HEAD + "  switches:\n    n1: {address: n1, model: nexus-3232c, password: {env: X}}\n")
    from deployment import inventory, site_file

    built = inventory.build(site_file.load(site.directory))
    assert built["all"]["hosts"]["n1"]["ansible_password"] == "{{ lookup('ansible.builtin.env', 'X') }}"
    assert inventory.groups(built)["switches"] == ["n1"]
    assert "n1" not in inventory.groups(built)["controller:cluster"]
