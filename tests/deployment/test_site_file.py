"""A wrong site file is refused before anything is changed: each problem is reported with its line."""

import json
from pathlib import Path

import pytest

from tests.deployment.conftest import SiteUnderTest

STAGES = {
    "ontap", "driver", "container_toolkit", "docker", "deepops", "trident", "device_plugin", "dra", "orchestrator",
}  # fmt: skip
INVENTORIES = Path(__file__).parents[2] / "inventories"
HOST = "  {name}: {{address: {address}, os: {os}, model: {model}, roles: [{roles}]}}\n"
ON = "schema: 1\nname: here\nversions:\n  kubernetes: "
HEAD = ON + '"1.34.2"\n'


def host(
    name: str, address: str, os: str = "ubuntu-24.04", model: str = "generic", roles: str = "gpu"
) -> str:
    return HOST.format(name=name, address=address, os=os, model=model, roles=roles)


ONTAP = (
    HEAD
    + "storage:\n  ontap:\n    management_lif: n0\n    svm: svm_ai\n    username: admin\n    password: {env: X}\n"
    "    trident_password: {env: Y}\n    aggregates: [aggr1]\n"
)
LIF = "{{name: {0}, address: {1}, netmask: 255.255.255.0, home_node: n1, home_port: e0a}}"
LIFS = f"    data_lifs: [{LIF.format('one', '10.0.0.1')}]\n    svm_management_lif: {LIF.format('two', '10.0.0.2')}\n"
AWAY = HEAD + "hosts:\n  a: {{address: n1, os: ubuntu-24.04, roles: [worker],\n    maintenance: {}}}\n"
NEVER = "a secret is never written here"
REFUSED = {
    "an unknown key": (HEAD + "hostz: {}\n", 5, "unknown key `hostz`"),
    "a key that is missing": ("schema: 1\nname: here\n", 1, "`versions` is missing"),
    "a version without quotes": ("schema: 1\nname: here\nversions:\n  kubernetes: 1.30\n", 4, "write it in quotes"),
    "a secret in clear": (
        HEAD + "network:\n  switches:\n    nexus-1: {address: n1, model: nexus-3232c,\n      password: hunter2}\n",
        8,
        NEVER,
    ),
    "a secret among the variables": (HEAD + "vars:\n  trident_password: hunter2\n", 6, NEVER),
    "an empty reason": (HEAD + "not_applicable:\n  driver: because\n", 6, "not_applicable.driver"),
    "a stage that cannot be left out": (HEAD + "not_applicable:\n  verify: we trust it all\n", 6, "verify"),
    "a variable of no role": (HEAD + "vars:\n  colour: blue\n", 6, "colour"),
    "two hosts at one address": (
        HEAD + "hosts:\n" + host("a", "n1") + host("b", "n1"), 7, "b has the address of a"),
    "an even etcd": (
        HEAD + "hosts:\n" + host("a", "n1", roles="etcd") + host("b", "n2", roles="etcd"), 7, "even number"),
    "a mark of maintenance without a reason": (AWAY.format("yes"), 7, "in quotes"),
    "the only control plane in maintenance": (
        AWAY.format("a disk").replace("worker", "control_plane"), 7,
        "0 of 1 hosts with the role control_plane would be left, and 1 must be"),
    "most members of etcd in maintenance": (
        AWAY.format("moved").replace("worker", "etcd") + host("b", "n2", roles="etcd")
        + host("c", "n3", roles="etcd").replace("}\n", ", maintenance: moved}\n"), 9,
        "a and c in maintenance: 1 of 3 hosts with the role etcd would be left, and 2 must be"),
    "a jump host that is an option of ssh": (
        HEAD + "access:\n  jump: {address: -oProxyCommand=id}\n", 6, "access.jump"),
    "a jump host without its address": (
        AWAY.format("moved").replace("maintenance: moved", "jump: {user: me}"), 7, "hosts.a.jump"),
    "a proxy without its port": (
        HEAD + "network:\n  proxy: {http: 'http://proxy'}\n", 6, "a URL with its port"),
    "a proxy with a password": (
        HEAD + "network:\n  proxy: {http: 'http://me:pw@proxy:1'}\n", 6, "a user or a password"),
    "a password in a URL": (
        HEAD + "deepops:\n  repository: https://me:pw@git.example.com/deepops\n", 6,
        "deepops.repository: it has a password in its URL"),
    "a password in the URL of a variable": (
        HEAD + "vars:\n  deepops_http_proxy: http://me:pw@proxy:3128\n", 6, "it has a password in its URL"),
    "a Kubernetes without what keeps projects apart": (
        ON + '"1.29.9"\n', 4, "the orchestrator needs Kubernetes >=1.30"),
    "a GPU host without a model": (HEAD + "hosts:\n  a: {address: a, os: ubuntu-24.04, roles: [gpu]}\n", 6, "`model`"),
    "a class without its backend": (
        HEAD + "storage:\n  classes:\n  - {name: fast, backend: a800,\n     default: true}\n", 7, "no backend a800"),
    "two default classes": (
        HEAD + "storage:\n  backends: [{name: b, driver: ontap-nas}]\n  classes:\n"
        "  - {name: one, backend: b, default: true}\n  - {name: two, backend: b, default: true}\n",
        9, "exactly one must be"),
    "a vault that is not there": (
        HEAD + "network:\n  switches:\n    n1: {address: n1, model: nexus-3232c, password: {vault: x}}\n", 7, "vault"),
    "a DGX-1 with DGX OS 7": (
        HEAD + "hosts:\n" + host("dgx01", "n1", os="dgx-os-7", model="dgx-1"), 6, "does not run on dgx-1"),
    "a driver branch after Volta": (
        ON + '"1.34.2"\n  driver: "590"\nhosts:\n'
        + host("dgx01", "n1", os="dgx-os-6", model="dgx-1"), 5, "no driver branch 590"),
    "a Kubernetes that DeepOps does not bring": (
        ON + '"1.30.1"\n  deepops: "26.07"\nhosts:\n' + host("a", "n1", roles="control_plane, etcd"), 4,
        "does not install"),
    "a Trident that is too old": (
        ON + '"1.34.2"\n  trident: "20.04.0"\n', 5, "is not in the matrix"),
    "an ONTAP without REST": (
        ON + '"1.34.2"\n  trident: "26.06.0"\n  ontap: "9.6P4"\n', 6,
        "needs ONTAP >=9.12.1"),
    "an ONTAP that the role cannot prepare": (
        ONTAP.replace(HEAD, HEAD + '  ontap: "9.6P4"\n') + LIFS, 5, "the stage ontap needs ONTAP >=9.12.1"),
    "an SVM without interfaces": (
        ONTAP + "    svm_management_lif: " + LIF.format("two", "10.0.0.2") + "\n", 6, "`data_lifs` is missing"),
    "an SVM where Trident cannot log in": (
        ONTAP + f"    data_lifs: [{LIF.format('one', '10.0.0.1')}]\n", 6, "`svm_management_lif` is missing"),
    "two interfaces with one address": (ONTAP + LIFS.replace("0.2", "0.1"), 6,
        "two interfaces have the address 10.0.0.1"),
    "an interface without its port": (
        ONTAP + "    data_lifs:\n    - {name: a, address: n1, netmask: 255.0.0.0, home_node: n1}\n", 14,
        "`home_port` is missing"),
    "a VLAN that cannot be": (
        ONTAP + "    vlans:\n    - {node: n1, parent: a0a,\n       id: 4095}\n" + LIFS, 15, "4095 is greater"),
    "a licence code in clear": (ONTAP + "    license_codes: [ABCDEFGH]\n" + LIFS, 13, NEVER),
    "an NFS that is not served": (
        ONTAP + LIFS + '    nfs_versions: ["3"]\n  backends: [{name: b, driver: ontap-nas}]\n  classes:\n'
        "  - {name: one, backend: b, default: true,\n     mount_options: [nfsvers=4.1]}\n", 19,
        "mounts with nfsvers=4.1"),
    "a flavour of the driver that is none": (HEAD + "driver:\n  kernel_modules: closed\n", 6,
        "none of auto, open, proprietary"),
    "a reboot that is neither yes nor no": (HEAD + "driver:\n  reboot: sometimes\n", 6, "driver.reboot"),
    "a repository that is no URL": (HEAD + "container_toolkit:\n  repository: here\n", 6,
        "container_toolkit.repository"),
    "a Docker that is no release": (ON + '"1.23.1"\n  docker: newest\n', 5, "versions.docker"),
    "a stage that is none": (HEAD + "not_applicable:\n  dokcer: there is no Docker here\n", 6, "dokcer"),
    "a template": (
        HEAD + "vars:\n  dra_version: \"{{ lookup('pipe', 'id') }}\"\n", 6, "values are data, never templates"),
    "a template in a list": (
        HEAD + "bundle:\n  images:\n  - a\n  - 'b{% raw %}'\n", 8, "bundle.images.1: values are data"),
    "a reference where none may be": (HEAD + "orchestrator:\n  image: '{{ image }}'\n", 6, "write it out"),
    "a wildcard as the domain of ingresses": (
        HEAD + "orchestrator:\n  ingress:\n    domain: '*.gpus.example.com'\n", 7,
        "orchestrator.ingress.domain: '*.gpus.example.com' does not have the form"),
    "a domain in capitals": (HEAD + "orchestrator:\n  ingress: {domain: GPUs.example.com}\n", 6, "in lower case"),
    "a domain that leaves no room for a project": (
        HEAD + f"orchestrator:\n  ingress: {{domain: {'a.' * 98}a}}\n", 6, "is too long"),
    "an address as the domain": (
        HEAD + "orchestrator:\n  ingress: {domain: 10.0.0.5}\n", 6, "orchestrator.ingress.domain"),
    "a class of ingresses that is no name": (
        HEAD + "orchestrator:\n  ingress: {class: Traefik}\n", 6, "orchestrator.ingress.class"),
    "a DRA driver on an old Kubernetes": (
        ON + '"1.33.1"\n  dra: "0.4.1"\n', 5, "needs Kubernetes"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_names_the_error_and_its_line(site: SiteUnderTest, case: str) -> None:
    text, line, message = REFUSED[case]
    site.write(text)
    done = site.call("plan")
    assert done.returncode == 2
    assert f"{site.file}:{line}: " in done.stderr, done.stderr
    assert message in done.stderr
    assert not site.state.exists()


def test_a_variable_may_be_the_name_of_one_in_the_vault(site: SiteUnderTest) -> None:
    site.write(HEAD + "vars:\n  trident_password: '{{ of_trident }}'\n")
    assert site.call("plan").returncode == 0


GARBAGE = {
    "nothing": (b"", 1, "the file is empty"),
    "bytes": (b"schema: 1\nname: \xff\xfe\n", 2, "byte 16 is no text in UTF-8"),
    "a control character": (b"schema: 1\nname: a\nversions: \x00\n", 3, "control characters are not allowed"),
    "a bracket that stays open": (b"schema: 1\nname: [a\nversions: b\n", 3, "expected ',' or ']'"),
    "a tab": (b"schema: 1\n\tname: a\n", 2, "tab character"),
    "a list": (b"- schema: 1\n", 1, "should be keys with values (`key: value`), not a list"),
    "the wrong file": (b"hunter2\n", 1, "should be keys with values (`key: value`), not one text"),
    "a key without its values": (b"schema: 1\nname: a\nversions:\n", 3, "should be keys with values"),
    "a wrong number": (
        b"schema: 2\nname: a\nversions: {kubernetes: '1.34'}\n",
        1,
        "schema: write 1, not `2`",
    ),
    "two documents": (b"schema: 1\n---\nschema: 1\n", 2, "another document"),
    "a key that is there twice": (b"schema: 1\nname: a\nname: b\n", 3, "`name` is there twice"),
    "a list as a key": (b"schema: 1\n? [a, b]\n: c\n", 2, "a key is a text, not a list or keys with values"),
    "keys with values as a key": (b"schema: 1\n? {a: b}\n: c\n", 2, "a key is a text"),
    "a tag of Ansible": (b"schema: 1\nname: !vault a\n", 2, "the tag !vault is not supported: remove it"),
    "a tag of Python": (b"schema: 1\nname: !!python/none a\n", 2, "the tag !!python/none is not supported"),
    "a tag of a list": (b"schema: 1\nname: !!set {a}\n", 2, "the tag !!set is not supported"),
    "a tag of a key": (b"schema: 1\n!mine name: a\n", 2, "the tag !mine is not supported"),
    "a merge": (b"schema: 1\na: &a {b: c}\nd:\n  <<: *a\n", 4, "a merge (<<) is not supported"),
    "a truth by its tag": (
        b"schema: 1\nname: a\nversions: {kubernetes: '1.34.2'}\ndriver: {reboot: !!bool maybe}\n",
        4,
        "driver.reboot: should be true or false, not `maybe`",
    ),
    "an alias of nothing": (b"schema: 1\nname: *b\n", 2, "undefined alias"),
    "an alias that holds itself": (b"schema: 1\nname: &a [*a]\n", 2, "does an alias (*) hold itself?"),
    "aliases of aliases": (
        b"schema: 1\na: &a [x, x, x, x, x, x, x, x]\n"
        + b"".join(b"%c: &%c [%s]\n" % (n + 1, n + 1, b", ".join([b"*%c" % n] * 8)) for n in b"abcdefghijk"),
        7,
        "stands for more than 200000 entries",
    ),
    "an escape for the terminal": (
        b'schema: 1\nname: a\ndescription: "\\e]0;x\\a"\nversions: {kubernetes: "1.34.2"}\n',
        3,
        "control character",
    ),
    "brackets that end libyaml": (b"schema: " + b"[" * 40_000 + b"]" * 40_000, 1, "entries in entries"),
}


@pytest.mark.parametrize("case", GARBAGE)
def test_garbage_is_refused_with_its_line(site: SiteUnderTest, case: str) -> None:
    content, line, message = GARBAGE[case]
    site.file.write_bytes(content)
    done = site.call("plan")
    assert done.returncode == 2
    assert f"{site.file}:{line}: " in done.stderr, done.stderr
    assert message in done.stderr
    assert "hunter2" not in done.stderr
    assert len(done.stderr.splitlines()) <= 2


def test_a_site_file_that_is_none_is_refused(site: SiteUnderTest) -> None:
    site.file.unlink()
    assert f"{site.file}: cannot be read: No such file" in site.call("plan").stderr
    site.file.mkdir()
    assert f"{site.file}: cannot be read: Is a directory" in site.call("plan").stderr
    site.file.rmdir()
    site.write(HEAD)
    (site.directory / "vault.yml").mkdir()
    done = site.call("plan")
    assert done.returncode == 2
    assert f"{site.directory / 'vault.yml'}:1: cannot be read: Is a directory" in done.stderr


def test_everything_that_a_run_lacks_is_told_at_once_and_the_plan_says_it_too(site: SiteUnderTest) -> None:
    for name, missing in (
        ("tr4858", ("31: storage.ontap.password: the environment variable MUSTER_ONTAP_PASSWORD is not set",
                    "47: storage.ontap.trident_password")),
        ("example", ("25: storage.ontap.password", "47: storage.ontap.trident_pass")),
        ("lab", ("7: no stage here installs Kubernetes, and KUBECONFIG is not set: name the access",)),
    ):  # fmt: skip
        site.directory = INVENTORIES / name
        site.environment = {"HOME": str(site.state), "KUBECONFIG": ""}
        done = site.call("install", "--check")
        assert done.returncode == 2
        planned = site.call("plan")
        assert planned.returncode == 0
        for each in missing:
            assert f"{site.file}:{each}" in done.stderr, done.stderr
            assert f"NOTE  {each.partition(': ')[2]}" in planned.stdout
        assert not site.state.exists()


def test_the_plan_names_an_archive_and_an_image_that_could_be_any(site: SiteUnderTest) -> None:
    image = "NOTE  orchestrator.image is missing, and there is no published image; build it with `make image`"
    missing = (
        "NOTE  storage.trident.sha256 is missing, and no other digest of the archive of the release is known"
    )
    site.directory = INVENTORIES / "example"
    planned = site.call("plan").stdout
    assert missing in planned
    assert image in planned
    text = site.file.read_text().replace("  # trident:\n", "  trident:\n")
    site.directory = site.state.parent / "site"
    for known in (
        "orchestrator: {image: registry.example.com/muster:0.1.0}\n",
        "vars: {orchestrator_image: ''}\n",
    ):
        site.write(text + known)
        assert image not in site.call("plan").stdout
    for known in (f"    sha256: {'0' * 64}\n", "    archive: ~/trident-installer.tar.gz\n"):
        site.write(text.replace("  trident:\n", f"  trident:\n{known}"))
        assert missing.partition(",")[0] not in site.call("plan").stdout


def test_a_cluster_that_is_not_there_is_told_before_the_run(site: SiteUnderTest) -> None:
    site.environment["KUBECONFIG"] = "/nowhere/config"
    message = "4: KUBECONFIG names /nowhere/config, and there is no such file"
    assert message in site.call("install").stderr
    site.write(HEAD + "kubernetes:\n  kubeconfig: mine.conf\n")
    message = f"6: kubernetes.kubeconfig: there is no file {site.directory / 'mine.conf'}"
    assert message in site.call("verify").stderr
    (site.directory / "mine.conf").touch()
    assert "NOTE  kube" not in site.call("plan").stdout
    brought = '  deepops: "26.07"\nhosts:\n' + host("a", "n1", roles="control_plane, etcd")
    site.write(ON + '"1.35.4"\n' + brought)
    assert "NOTE  kube" not in site.call("plan").stdout
    site.environment["KUBECONFIG"] = str(site.directory / "mine.conf")
    later = site.call("install", "--from", "orchestrator")
    assert (
        f"5: the stage deepops leaves the access to the cluster in {site.state}/here/artifacts"
        in later.stderr
    )
    assert "run `muster install --from deepops`" in later.stderr


def test_tells_every_problem_at_once(site: SiteUnderTest) -> None:
    site.write("schema: 1\nname: Here\nversions: {kubernetes: 1.30}\nhostz: {}\n")
    done = site.call("install")
    assert done.returncode == 2
    assert [line.split(":")[1] for line in done.stderr.splitlines()[:-1]] == ["2", "3", "4"]
    assert "3 problems" in done.stderr.splitlines()[-1]


def test_a_vault_in_clear_is_refused(site: SiteUnderTest) -> None:
    (site.directory / "vault.yml").write_text("password: hunter2\n")
    done = site.call("plan")
    assert done.returncode == 2
    assert "ansible-vault encrypt" in done.stderr
    assert "hunter2" not in done.stderr + done.stdout


@pytest.mark.parametrize("name", sorted(each.name for each in INVENTORIES.iterdir()))
def test_the_sites_that_come_with_muster_can_be_planned(site: SiteUnderTest, name: str) -> None:
    site.directory = INVENTORIES / name
    for action in ("install", "upgrade", "teardown"):
        done = site.call(action, "--plan", "--json")
        assert done.returncode == 0, done.stderr
        stages = {each["stage"]: each for each in json.loads(done.stdout)["stages"]}
        assert {each["decision"] for each in stages.values()} <= {"run", "not applicable"}
        assert set(stages) >= STAGES
        running = [each for each in stages.values() if each["decision"] == "run"]
        assert [each["stage"] for each in running if not each["hosts"]] == []


def test_the_stages_come_in_the_order_of_their_needs(site: SiteUnderTest) -> None:
    site.directory = INVENTORIES / "current"
    names = [each["stage"] for each in json.loads(site.call("plan", "--json").stdout)["stages"]]
    for before, after in (
        ("ontap", "trident"), ("nfs_client", "trident"),
        ("driver", "container_toolkit"), ("container_toolkit", "docker"), ("docker", "deepops"),
        ("deepops", "trident"), ("trident", "device_plugin"), ("device_plugin", "orchestrator"), ("trident", "dra"),
        ("dra", "orchestrator"),
    ):  # fmt: skip
        assert names.index(before) < names.index(after)
    upgrade = [
        each["stage"] for each in json.loads(site.call("upgrade", "--plan", "--json").stdout)["stages"]
    ]
    assert upgrade.index("trident") < upgrade.index("deepops") < upgrade.index("dra")
    assert sorted(upgrade) == sorted([*names, "snapshot"])
    removal = [
        each["stage"] for each in json.loads(site.call("teardown", "--plan", "--json").stdout)["stages"]
    ]
    assert removal[1:] == [each for each in reversed(names) if each in removal[1:]]


PLAN = """\
deepops            run: never run on this site
                     does  the kubespray of DeepOps 26.07, in its own Python environment, installs Kubernetes 1.35.4 \
with containerd and calico on 5 hosts; the stage device_plugin announces the GPUs. \
ON EACH HOST: swap is turned off, also in /etc/fstab, \
SELinux becomes permissive, DNS is set, NetworkManager ignores the interfaces of the network plugin, sysctls are set, \
packages are installed, another container runtime is removed, the users kube and etcd are created
                     on    controller
"""


def test_the_plan_names_the_effects_the_hosts_and_the_missing_parts(site: SiteUnderTest) -> None:
    site.directory = INVENTORIES / "current"
    planned = site.call("plan").stdout
    assert PLAN in planned
    assert planned.endswith("10 of 15 stages would run; a plan asks no host and changes nothing.\n")


def test_the_plan_says_when_nothing_announces_gpus(site: SiteUnderTest) -> None:
    text = (INVENTORIES / "tr4858" / "site.yml").read_text()
    site.write(text.replace('dra: "off"', 'dra: "off"\n  device_plugin: "off"'))
    assert "on 3 hosts; nothing announces GPUs. ON EACH HOST" in " ".join(site.call("plan").stdout.split())


DELETES = "vars:\n  ontap_uninstall_svm: true\n  ontap_uninstall_data: true\n  deepops_reset_nodes: true\n"


def test_the_plan_of_a_removal_names_the_kept_parts_and_shouts_the_lost_ones(site: SiteUnderTest) -> None:
    text = (INVENTORIES / "current" / "site.yml").read_text()
    site.write(text)
    plan = site.call("teardown", "--plan").stdout
    assert "SVM svm_ai and its volumes are kept" in plan
    assert "Kubernetes stays on the hosts" in plan
    site.write(text + DELETES)
    lost = site.call("teardown", "--plan").stdout
    assert "SVM svm_ai IS DELETED WITH ALL ITS VOLUMES" in lost
    assert "KUBERNETES IS RESET ON EVERY HOST" in lost
