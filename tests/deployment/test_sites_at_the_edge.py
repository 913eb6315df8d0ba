"""Rare values of a site file: each is refused with its line, noted in the plan, or accepted without a note."""

from pathlib import Path

import pytest
import yaml

from tests.deployment.conftest import SiteUnderTest
from tests.deployment.test_sites_that_cannot_work import (
    ENVIRONMENT,
    HEALTHY,
    Case,
    dns,
    exported,
    extra,
    host,
    image,
    judged,
    node,
    pods,
    variable,
)

NETWORKS = "host_networks: {s: {cidr: 192.168.11.0/24}, t: {cidr: 172.20.5.0/24}}"
ODD = yaml.safe_load((Path(__file__).parent / "odd_sites.yaml").read_text())
LIF = "address: 192.168.11.11, netmask: 255.255.255.0"


def network(text: str, says: str = "", at: str = "") -> Case:
    return Case("mtu: 9000", f"mtu: 9000\n  {text}", says, at)


def interfaces(text: str, says: str = "") -> Case:
    return Case(
        "model: dgx-h100, roles: [gpu]}",
        f"model: dgx-h100, roles: [gpu], interfaces: {{{text}}}}}",
        says,
        "dgx02:" if says else "",
    )


def ontap(text: str, says: str) -> Case:
    return Case("nfs_versions", f"{text}\n    nfs_versions", says, text.partition(":")[0])


def lif(text: str, says: str = "") -> Case:
    return Case(LIF, text, says, "nfs_01")


def option(text: str, says: str = "", *, refused: bool = True) -> Case:
    return Case("[nfsvers=4.1]", f"[{text}]", says, "mount_options" if refused else "")


def manager(text: str, says: str) -> Case:
    return Case("address: 10.61.1.11,", f"address: {text},", says, "svm_management_lif")


def vip(text: str, says: str, at: str = "kube_vip_address") -> Case:
    return Case("", f"vars:\n  deepops_extra_variables:\n    kube_vip_address: {text}\n", says, at)


def server(text: str, says: str) -> Case:
    return Case("", f"bundle: {text}\n", says, text)


def backend(text: str, says: str = "") -> Case:
    return Case("192.168.11.11}", f"192.168.11.11, defaults: {{{text}}}}}", says, "defaults" if says else "")


CASES = {
    "a name that a resolver reads as a number": host("'42'", "is a number, a date or a truth"),
    "a name that YAML reads as a number": host("0x1f", "is a number, a date or a truth"),
    "a name that YAML reads as a truth": host("'on'", "is a number, a date or a truth"),
    "a name with digits": Case("  dgx01:", "  42a:"),
    "a name of this machine": host("localhost4", "is a reserved name"),
    "a DNS server among the pods": dns("[10.233.70.5]", "the cluster's DNS asks 10.233.70.5"),
    "a DNS server at no address in particular": dns("[0.0.0.0]", "the cluster's DNS asks 0.0.0.0"),
    "a DNS server of the node": dns("[169.254.25.10]", "169.254.25.10 is link-local"),
    "a DNS server on a link of IPv6": dns("['fe80::53']", "fe80::53 is link-local"),
    "a DNS server at loopback in IPv6": dns("['::ffff:127.0.0.53']", "the cluster's DNS asks ::ffff:127.0.0.53"),
    "one DNS name in two spellings": Case(
        "10.61.1.31, os: dgx-os-6, model: dgx-a100, roles: [gpu]}\n  dgx02: {address: 10.61.1.32",
        "dgx.example.com, os: dgx-os-6, model: dgx-a100, roles: [gpu]}\n  dgx02: {address: DGX.example.com.",
        "dgx02 has the address of dgx01", "dgx02:"),
    "a virtual address": vip("10.61.1.200", "", ""),
    "a virtual address of a host": vip("10.61.1.21", "mgmt01 has 10.61.1.21 already"),
    "a virtual address among the services": vip("10.233.0.9", "is in the network of the services", "kubernetes:\n"),
    "a virtual address in IPv6": vip("'fd00::5'", "is no IPv4 address"),
    "a load balancer at no address": extra("loadbalancer_apiserver: {address: 10.61.1.999}", "is no IPv4 address"),
    "a node of one address": extra("kube_network_node_prefix: 32", "no IPv4 network has such a prefix"),
    "a list of kubespray as a mapping": extra("kube_feature_gates: {a: 1}", "should be a list"),
    "a variable without a default": extra("kubelet_cpu_manager_policy: static", refused=False),
    "labels of nodes": extra("node_labels: {a: b}", refused=False),
    "a misspelt backend of Calico": extra("calico_network_backend: vxlann", "is none of bird, vxlan, none"),
    "another pool of Calico": extra("calico_pool_cidr: 10.99.0.0/16", "write it as kubernetes.pod_subnet"),
    "another runtime for the toolkit": extra("containerd_default_runtime: runc", "muster sets it"),
    "the operator by a variable": extra("deepops_gpu_operator_enabled: true", "write it as deepops.gpu_operator"),
    "a variable of the connection for kubespray": extra("ansible_become: false", "a matter of the connection"),
    "all variables from the vault": variable("deepops_extra_variables: '{{ all }}'", "name each variable here"),
    "a number with a zero in front": variable("verify_volume_seconds: 0240", "should be a whole number"),
    "another address by a variable": node(
        "connection_vars: {ansible_host: 10.61.1.99}", "write it as hosts.NAME.address"),
    "a password of a connection": node("connection_vars: {ansible_ssh_pass: a}", "a secret is never written here"),
    "a password that is a number": node("connection_vars: {ansible_password: 12}", "a secret is never written here"),
    "a password of a connection in the vault": node(
        "connection_vars: {ansible_become_password: '{{ become }}'}", refused=False),
    "a token of Docker": Case("", "docker: {daemon: {token: abc}}\n", "a secret is never written here", "docker:"),
    "a value of ansible-vault": Case(
        "username: admin", "username: |-\n      $ANSIBLE_VAULT;1.1;AES256", "stands in vault.yml", "username:"),
    "a user that is an option": Case("{user: muster}", "{user: -oProxyCommand=a}", "does not begin with -", "access:"),
    "a user with a line end": Case("username: admin", "username: |\n      admin", "it has a line end", "username:"),
    "a user with a space that is not seen": Case(
        "username: admin", 'username: "ad\\u200bmin"', "an invisible one", "username:"),
    "a description of two lines": Case("name: healthy", "name: healthy\ndescription: |\n  One.\n  Two.\n"),
    "a Trident without its zero": Case('"26.06.0"', '"26.6.0"', "as 26.06.0", "trident:"),
    "a toolkit with a zero in front": Case('"1.20.0"', '"01.20.0"', "three numbers", "container_toolkit:"),
    "a Docker that kubespray does not know": Case(
        "dra: auto", 'dra: auto\n  docker: "99.9"', "kubespray does not install Docker 99.9", "docker:"),
    "another commit of the tag": Case(
        "", f"deepops: {{commit: {'a' * 40}}}\n", "another one than the matrix has checked", "deepops: {"),
    "a fork of DeepOps": Case(
        "", f"deepops: {{commit: {'a' * 40}, repository: 'https://git.example.com/deepops'}}\n"),
    "more GPUs than the model": node("gpus: 16", "dgx-h100 has 8 GPUs"),
    "fewer GPUs than the model": node("gpus: 7", refused=False),
    "GPUs without the role": Case(
        "10.61.1.21, ", "10.61.1.21, gpus: 8, ", "and not the role gpu", "mgmt01:"),
    "proprietary modules for Blackwell": Case(
        "dgx-os-7, model: dgx-h100, roles: [gpu]}\n",
        "dgx-os-7, model: dgx-b200, roles: [gpu]}\ndriver: {kernel_modules: proprietary}\n",
        "there are no proprietary modules", "driver:"),
    "a package that is an option": Case(
        "", "driver: {extra_packages: [--force]}\n", "the name of a package", "driver: {"),
    "an interface of Calico": interfaces("vxlan.calico: {mtu: 1500}", "is an interface of Docker, Kubernetes"),
    "LACP where it is not spoken": interfaces(
        "b: {members: [a, c], mode: active-backup, lacp_rate: fast}", "does not speak LACP"),
    "ECN that ends before it begins": network(
        "roce: {ecn_minimum_kbytes: 4000}", "the first is the smaller one", "roce:"),
    "a mask of hosts": lif(LIF.replace("255.255.255.0", "0.0.0.255"), "0.0.0.255 is no mask"),
    "a mask of one host": lif(LIF.replace("255.255.255.0", "255.255.255.255"), "no host is in the network of 192"),
    "a mask of one host in bits": lif(LIF.replace("255.255.255.0", "'32'"), "no host is in the network of 192"),
    "a mask of all hosts": lif(LIF.replace("255.255.255.0", "'0'"), "no host is in the network of 192.168.11.11"),
    "a mask of two hosts": Case(LIF, LIF.replace("255.255.255.0", "255.255.255.254")),
    "an export that no interface reaches": exported(
        "192.168.11.0/24\n      - 172.16.0.0/16",
        "site.yml:34: storage.ontap.export_cidrs.1: the SVM has no interface and no route to 172", refused=False),
    "an export that a route reaches": Case(
        "export_cidrs:\n      - 192.168.11.0/24", "export_cidrs: [192.168.11.0/24, 172.16.0.0/16]\n    "
        "routes: [{destination: 172.16.0.0/12, gateway: 10.61.1.1}]"),
    "a certificate that is not checked": Case(
        "svm: svm_ai", "svm: svm_ai\n    validate_certs: false", "site.yml:27: any machine that answers at 10.61.1.10"),
    "a certificate that a variable does not check": variable(
        "ontap_validate_certs: 'No'", "site.yml:45: any machine that answers at 10.61.1.10", refused=False),
    "a certificate that a variable checks": variable("ontap_validate_certs: 'yes'", refused=False),
    "host keys that ssh does not check": node(
        "connection_vars: {ansible_ssh_common_args: '-o StrictHostKeyChecking=no'}",
        "site.yml:9: hosts.dgx02.connection_vars.ansible_ssh_common_args accepts unknown host keys", refused=False),
    "host keys that ssh accepts at first": node(
        "connection_vars: {ansible_ssh_args: '-oStrictHostKeyChecking accept-new'}",
        "ansible_ssh_args accepts unknown host keys", refused=False),
    "host keys that ssh forgets": node(
        "connection_vars: {ansible_ssh_extra_args: '-o userknownhostsfile=/dev/null'}",
        "ansible_ssh_extra_args accepts unknown host keys", refused=False),
    "host keys that Ansible does not check": node(
        "connection_vars: {ansible_host_key_checking: false}", "accepts unknown host keys", refused=False),
    "host keys that are checked": node(
        "connection_vars: {ansible_ssh_args: '-o StrictHostKeyChecking=yes -o UserKnownHostsFile=/etc/known'}",
        refused=False),
    "no file of host keys": Case(
        "{user: muster}", "{user: muster, known_hosts: /dev/null}", "site.yml:3: access.known_hosts keeps no host key"),
    "an interface at the broadcast address": manager("10.61.1.255", "is the first or the last of 10.61.1.0/24"),
    "an interface at a name": manager("svm.example.com", "an address, not a name"),
    "a route over an own interface": ontap(
        "routes: [{destination: 0.0.0.0/0, gateway: 10.61.1.11}]", "is an interface of the SVM"),
    "a route to another family": ontap("routes: [{destination: '::/0', gateway: 10.61.1.1}]", "of another family"),
    "two routes to one network": ontap(
        "routes: [{destination: 0.0.0.0/0, gateway: 10.61.1.1}, {destination: 0.0.0.0/0, gateway: 10.61.1.2}]",
        "two routes to 0.0.0.0/0"),
    "a port in two groups": ontap(
        "interface_groups: [{node: a, ports: [e1]}, {node: a, ports: [e1]}]", "is in two interface groups"),
    "a VLAN twice": ontap(
        "vlans: [{node: a, parent: a0a, id: 5}, {node: a, parent: a0a, id: 5}]", "VLAN 5 of a0a is there twice"),
    "Trident without NFS": ontap("trident_protocols: [iscsi]", "a backend serves over NFS"),
    "a protocol that ONTAP does not know": Case(
        "export_cidrs:\n      - 192.168.11.0/24", "export_rules: [{clients: [192.168.11.0/24], protocols: [nfs5]}]",
        "nfs5 is none of any", "export_rules"),
    "options of mount in one text": option("'nfsvers=4.1,hard'", refused=False),
    "another version in short": option("v4.2", "class fast mounts with v4.2"),
    "an option of mount in capitals": option("NFSVERS=3", "does not have the form"),
    "two options of mount in one": option("'rsize=1 wsize=1'", "does not have the form"),
    "an unknown option of mount": option("turbo", "nfs(5) and mount(8) do not have it", refused=False),
    "an image without a registry": image("muster:0.1.0", "nodes pull docker.io/library/muster:0.1.0", refused=False),
    "a key that does not exist": Case("{user: muster}", "{user: muster, key_file: /nowhere/id}",
        "access.key_file: there is no file /nowhere/id"),
    "a certificate that does not exist": Case(
        "svm: svm_ai", "svm: svm_ai\n    ca_file: /nowhere.pem", "ca_file: there is no file /nowhere.pem"),
    "a misspelt option of mount": option("nfsver=4.1", "is nfsvers meant?", refused=False),
    "a misspelt setting of volumes": backend("snapshotPolcy: none", "unknown key"),
    "a setting of volumes as a number": backend("snapshotReserve: 10", "write it in quotes"),
    "a setting of volumes": backend("snapshotReserve: '10', unixPermissions: '0777'"),
    "an image in a registry of each host": image("localhost:5000/muster:1", "is another machine", refused=False),
    "an image that is a digest alone": image("0a" * 32, "it is a digest without a name"),
    "a registry of the bundle on each host": server("{registry: '127.0.0.1:5000'}", "is another machine on each host"),
    "files of the bundle at no port": server("{files_url: 'http://f.example.com:99999/'}", "a port is between 1 and"),
    "a proxy at no port": network("proxy: {http: 'http://p.example.com:99999'}", "a port is between 1 and", "proxy:"),
    "a URL without the proxy": network(
        "proxy: {http: 'http://p.example.com:1', no_proxy: ['http://a']}", "is no name, no domain", "proxy:"),
    "a jump host among the pods": Case(
        "{user: muster}", "{user: muster, jump: {address: 10.233.64.9}}", "the jump host has 10.233.64.9",
        "kubernetes:\n"),
}  # fmt: skip

STORED = "interfaces: {e1: {network: s, address: 192.168.11.31, mtu: 9000}}"
TOGETHER = {
    "two hosts at one address of the storage network": (
        [network(NETWORKS), Case("model: dgx-a100", f"model: dgx-a100, {STORED}"),
         Case("model: dgx-h100", f"model: dgx-h100, {STORED}", "e1 of dgx02 has the address of e1 of dgx01", "dgx02:")],
        2),
    "pods over a network of hosts": (
        [pods("172.20.0.0/16", "network.host_networks.t (172.20.5.0/24) and the pods"), network(NETWORKS)], 0),
    "an interface above what the switches carry": (
        [Case("mtu: 9000", "mtu: 1500\n  switch_mtu: 4000\n  switches: {n1: {address: 10.61.1.2, model: nexus-3232c}}"),
         interfaces("e1: {mtu: 9000}", "packets of 9000 bytes do not go")], 1),
    "an interface below what the storage sends": (
        [interfaces("e1: {network: s, address: 192.168.11.32}", "e1 has the MTU 1500 in 192.168.11.0/24"),
         network(NETWORKS)], 0),
    "an interface as large as what the storage sends": (
        [network(NETWORKS), interfaces("e1: {network: s, address: 192.168.11.32, mtu: 9000}")], 0),
    "a data interface on a port of a group": (
        [Case("home_port: e5a}", "home_port: e5a}", "a port of an interface group", "- {name: nfs_01"),
         ontap("interface_groups: [{node: a800-01, ports: [e5a]}]", "")], 0),
    "more pods than the network of a node has": (
        [Case("plugin: calico", "plugin: flannel"), extra("kubelet_max_pods: 400", "no addresses for 400 pods")], 1),
    "more pods than a block of Calico has": ([extra("kubelet_max_pods: 400", refused=False)], 0),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_rare_value_is_refused_noted_or_accepted(site: SiteUnderTest, name: str) -> None:
    case = CASES[name]
    assert not case.before or HEALTHY.count(case.before) == 1
    judged(site, changed(HEALTHY, case), case.says, case.at)


@pytest.mark.parametrize("name", TOGETHER)
def test_two_values_that_do_not_fit_are_refused(site: SiteUnderTest, name: str) -> None:
    cases, of = TOGETHER[name]
    text = HEALTHY
    for case in cases:
        text = changed(text, case)
    judged(site, text, cases[of].says, cases[of].at)


@pytest.mark.parametrize("name", ODD)
def test_an_odd_file_is_refused_with_line_and_cause(site: SiteUnderTest, name: str) -> None:
    case = ODD[name]
    before, after = case.get("before", ""), case["after"]
    assert not before or HEALTHY.count(before) == 1
    site.environment |= ENVIRONMENT
    site.write(HEALTHY.replace(before, after) if before else f"{HEALTHY}{after}\n")
    done = site.call("plan")
    assert done.returncode == 2
    problems = [line.removeprefix("Error: ") for line in done.stderr.splitlines()]
    assert any(
        line.startswith(f"{site.file}:{case['line']}: ") and case["says"] in line for line in problems
    ), done.stderr


def changed(text: str, case: Case) -> str:
    return text.replace(case.before, case.after) if case.before else text + case.after


@pytest.mark.parametrize("hosts", ["", " "])
def test_no_host_to_add_is_refused_instead_of_all(site: SiteUnderTest, hosts: str) -> None:
    site.write(HEALTHY)
    done = site.call("plan", "--add", hosts)
    assert done.returncode == 2
    assert "--add names no host" in done.stderr


def test_the_last_host_in_service_with_gpus_is_not_removed(site: SiteUnderTest) -> None:
    text = HEALTHY.replace("model: dgx-h100", "model: dgx-h100, maintenance: broken")
    site.write(text)
    line = text[: text.index("dgx01:")].count("\n") + 1
    done = site.call("node remove dgx01", "--plan")
    assert f"{site.file}:{line}: dgx01 is the last host with the role gpu in service" in done.stderr
    line += 1
    assert (
        f"{site.file}:{line}: dgx02: every host of it is in maintenance"
        in site.call("node remove dgx02", "--plan").stderr
    )
