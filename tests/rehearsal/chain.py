"""The steps of the rehearsal, from programs to the signed record. Each step leaves the inputs of the next step in
one folder.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from deployment.matrix import tables
from musterlab.gpus import built
from musterlab.realnodes import requirements
from musterlab.storage import driver
from orchestrator.distribution import installed_version
from orchestrator.progress import Reporter
from tests.deployment.hosts import bases, guests, stubs
from tests.deployment.hosts.bases import Unusable
from tests.rehearsal import downloads, gpus, images, machines, namespace, recipes, servers, site, storage
from tests.upstream import environments, facts, repository
from tests.upstream.stage import LOCAL_GIT

(RELEASE,) = (str(row["release"]) for row in tables()["deepops"])
ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = Path("/var/tmp/muster/rehearsal")  # noqa: S108 - a disk, not memory, and only root writes there
MUSTER: Final = (
    *(sys.executable, "-P", "-c"),
    "import sys; from orchestrator.cli.main import main; sys.exit(main())",
)
SIZE: Final = f"{len(site.WORKERS)}x{gpus.COUNT}"
GPU_SECONDS: Final = 120
STORAGE_SECONDS: Final = 60


class StepFailed(Exception):
    """A step did not come to its end; the message names its log."""


@dataclass(frozen=True)
class Step:
    """A step of the chain. One that is done is not repeated while its hosts run."""

    name: str
    act: Callable[["Chain"], None]


class Chain:
    """The rehearsal in its folder: state of the steps, hosts, and the programs that are called."""

    def __init__(self, reporter: Reporter, folder: Path = FOLDER) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder = folder
        self.report = reporter
        self._state_file = folder / "steps.json"
        self.state: dict[str, Any] = (
            json.loads(self._state_file.read_text()) if self._state_file.exists() else {}
        )

    @property
    def kubeconfig(self) -> Path:
        """Where the stage deepops leaves the access to the cluster."""
        return self.folder / "state" / "rehearsal" / "artifacts" / "admin.conf"

    @property
    def has_faults(self) -> bool:
        """Whether the run makes faults: it then begins with the older releases, and upgrades them."""
        return bool(self.state.get("faults"))

    @property
    def record(self) -> Path:
        """The directory of the validation record."""
        return self.folder / "record"

    def programs(self) -> dict[str, Path]:
        """Return the programs by `RECIPE/PROGRAM`."""
        return {name: Path(path) for name, path in self.state["programs"].items()}

    def run(self, steps: tuple[Step, ...]) -> None:
        """Run the steps that are not done. Raises StepFailed and Unusable."""
        times = self.state.setdefault("seconds", {})
        for step in steps:
            if step.name in times:
                self.report(f"{step.name}: done before, {times[step.name]} s")
                continue
            self.report(step.name)
            began = time.monotonic()
            step.act(self)
            times[step.name] = round(time.monotonic() - began)
            self.save()

    def save(self) -> None:
        """Write the names of the finished steps into the folder."""
        unfinished = self._state_file.with_suffix(".new")
        unfinished.write_text(json.dumps(self.state, indent=1))
        unfinished.rename(self._state_file)

    def call(self, log: str, *words: str, inside: bool = True, allowed: tuple[int, ...] = (0,)) -> str:
        """Run a program, in the namespace if `inside`; its output goes to a log. Returns its output."""
        path = self.log(log)
        done = self.popen(log, *words, inside=inside)
        while True:
            try:
                code = done.wait(10)
                break
            except subprocess.TimeoutExpired:
                self.report.update(f"{log}: {_last_line(path)}")
        if code not in allowed:
            raise StepFailed(f"{log} ended with {code}: {_last_line(path)}; the whole output is in {path}")
        return path.read_text(errors="replace")

    def log(self, name: str) -> Path:
        """Return the file for the output of a program."""
        path = self.folder / "logs" / f"{name}.log"
        path.parent.mkdir(exist_ok=True)
        return path

    def popen(self, log: str, *words: str, inside: bool = True) -> "subprocess.Popen[bytes]":
        """Start a program as `call` does, and do not wait for it."""
        environment = {**os.environ, **LOCAL_GIT, "KUBECONFIG": str(self.kubeconfig), "TERM": "dumb"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        with self.log(log).open("wb") as file:
            return subprocess.Popen(
                namespace.inside(*words) if inside else list(words),
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def muster(self, log: str, action: str, *more: str, allowed: tuple[int, ...] = (0,)) -> str:
        """Run a command of muster on the site, inside the namespace."""
        return self.call(log, *self.words(action, *more), allowed=allowed)

    def words(self, action: str, *more: str) -> tuple[str, ...]:
        """Return the words of a command of muster on the site."""
        options = ("-i", str(self.folder / "site"), "--state-dir", str(self.folder / "state"))
        return (*MUSTER, action, *options, *more)

    def kubectl(self, *words: str) -> str:
        """Run kubectl on the rehearsal's cluster."""
        return self.call("kubectl", str(self.programs()["kubernetes/kubectl"]), *words)

    def start(self, name: str, module: str, *arguments: Path) -> None:
        """Start a server in the namespace; it runs until `destroy`."""
        with (self.folder / f"{name}.log").open("a") as log:
            started = subprocess.Popen(
                namespace.inside(sys.executable, "-P", "-m", module, *map(str, arguments)),
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.state.setdefault("servers", {})[name] = started.pid
        self.save()

    def stop(self, name: str) -> None:
        """Kill a server and the processes that it started."""
        pid = self.state.get("servers", {}).pop(name, 0)
        if pid and guests.is_alive(pid):
            os.killpg(pid, signal.SIGKILL)
        self.save()

    def destroy(self) -> None:
        """Remove hosts, servers, network and folder: nothing of the rehearsal is left but its caches."""
        for name in list(self.state.get("servers", {})):
            self.stop(name)
        for machine in machines.load(self.folder / "hosts"):
            machine.destroy()
        namespace.destroy()
        subprocess.run(["rm", "-rf", str(self.folder)], check=True)


def missing() -> list[str]:
    """Return everything that the machine lacks for the rehearsal."""
    absent = [guests.missing()] if guests.missing() else []
    packages = namespace.missing()
    absent += [f"apt-get install {' '.join(packages)}"] if packages else []
    if not facts.folder(facts.TREES_VARIABLE):
        absent.append(
            f"{facts.TREES_VARIABLE}=DIR, a folder with plain checkouts of DeepOps and kubespray: "
            + ", ".join(facts.PROJECTS[name].checkout for name in ("deepops", "kubespray"))
        )
    else:
        absent += [
            f"the checkout {facts.checkout(name)}"
            for name in ("deepops", "kubespray")
            if not facts.checkout(name).is_dir()
        ]
    if not (environments.directory(RELEASE) / "bin" / "ansible-playbook").exists():
        absent.append("DeepOps' Python environment: python -m tests.upstream.environments")
    return absent


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines()
    return lines[-1].strip()[:200] if lines else "it said nothing"


def build_programs(chain: Chain) -> None:
    """Build the programs that the cache lacks."""
    wanted = recipes.RECIPES | (recipes.OLDER if chain.has_faults else {})
    chain.state["programs"] = {name: str(path) for name, path in recipes.built(chain.report, wanted).items()}


def build_image(chain: Chain) -> None:
    """Build the operator's image."""
    chain.call("image", sys.executable, "-m", "image.build", str(chain.folder / "dist"), inside=False)


def prepare_files(chain: Chain) -> None:
    """Write the files and images that kubespray will download, and the packages of the hosts."""
    programs, folder = chain.programs(), chain.folder
    (archive,) = (folder / "dist").glob("*.oci.tar")
    found = requirements.find()
    root = bases.base(machines.SUITE, machines.MORE_PACKAGES)
    chain.state["checksums"] = downloads.write(folder / "files", programs, root.root / "usr/sbin/runc")
    chain.state["checksums of Kubernetes"] = {
        recipe: downloads.write_kubernetes(folder / "files", programs, recipe, release)
        for recipe, release in recipes.RELEASES.items()
        if f"{recipe}/kubelet" in programs
    }
    images.build(folder / "images", programs, found.busybox, archive)
    stubs.repository(folder / "packages", root.packages)


def prepare_tree(chain: Chain) -> None:
    """Make repositories of the checkouts, and put DeepOps' Python environment where the stage would make it."""
    tree = repository.copied(chain.folder, RELEASE)
    chain.state["deepops"] = {"repository": str(tree.path), "commit": tree.commit}
    made = chain.folder / "state" / "rehearsal" / f"deepops-{RELEASE}-venv"
    made.mkdir(parents=True)
    for entry in environments.directory(RELEASE).iterdir():
        (made / entry.name).symlink_to(entry)
    (made / "requirements.txt").write_bytes(environments.lock(RELEASE).read_bytes())


def boot_hosts(chain: Chain) -> None:
    """Make the network, boot the hosts, start the servers and write the site file."""
    namespace.create()
    hosts = site.hosts(chain.folder / "hosts")
    volumes = chain.folder / storage.VOLUMES
    volumes.mkdir(mode=0o755, exist_ok=True)
    for machine in hosts:
        machine.create(chain.folder / "packages", volumes, chain.programs()[f"gpus/{built.LIBRARY}"])
        machine.run("apt-get", "-qq", "update", check=True)
        machine.remember_bare()
    start_servers(chain)
    write_site(chain, site.OLDER if chain.has_faults else site.NEWEST)


def start_servers(chain: Chain) -> None:
    """Start the file server and the registry."""
    chain.start("servers", servers.__name__, chain.folder / "files", chain.folder / "images")


def write_site(chain: Chain, releases: Mapping[str, str]) -> None:
    """Write the site file with a release of Kubernetes and of the driver."""
    bundle = {
        "files_url": servers.FILES_URL,
        "registry": servers.REGISTRY_URL,
        "images": images.names(chain.folder / "images"),
    }
    checksums = chain.state["checksums"] | chain.state["checksums of Kubernetes"][releases["kubernetes"]]
    site.write(
        chain.folder / "site", machines.load(chain.folder / "hosts"), chain.folder / "packages",
        deepops=chain.state["deepops"], bundle=bundle, extra=downloads.variables(checksums),
        version=installed_version(), releases=releases,
    )  # fmt: skip


def try_the_way_out(chain: Chain) -> None:
    """Prove that packets to another network are refused and counted. Raises Unusable."""
    before = namespace.refused_packets()
    words = ("timeout", "3", "bash", "-c", "exec 3<>/dev/tcp/192.0.2.1/443")
    for machine in machines.load(chain.folder / "hosts"):
        machine.run(*words)
    subprocess.run(namespace.inside(*words), capture_output=True, check=False)
    after = namespace.refused_packets()
    if any(after[origin] <= before[origin] for origin in after):
        raise Unusable(f"packets for another network were not refused: {before} before, {after} after")


def install(chain: Chain) -> None:
    """Take the hosts from bare to a cluster with the operator."""
    chain.muster("install", *installation(chain))


def installation(chain: Chain) -> tuple[str, ...]:
    """Return the words after `muster` that begin the installation, or go on with one that did not end."""
    begun = (chain.folder / "state" / "rehearsal" / "journal.jsonl").exists()
    return ("resume",) if begun else ("install", "--until", "orchestrator")


def announce_gpus(chain: Chain) -> None:
    """Install NVIDIA's device plugin, and label the workers as feature discovery does. Show processors for the jobs."""
    for machine in machines.load(chain.folder / "hosts"):
        machine.show_processors()
    labels = (f"{name}={value}" for name, value in gpus.labels().items())
    chain.kubectl("label", "node", *site.WORKERS, "--overwrite", *labels)
    manifest = chain.folder / "device-plugin.json"
    manifest.write_text(json.dumps(gpus.plugin()))
    chain.kubectl("apply", "-f", str(manifest))
    wait_for_gpus(chain)


def wait_for_gpus(chain: Chain) -> None:
    """Wait until each worker has its GPUs to give. Raises StepFailed."""
    there = f"jsonpath={{.status.allocatable.nvidia\\.com/gpu}}={gpus.COUNT}"
    nodes = (f"node/{name}" for name in site.WORKERS)
    chain.kubectl("wait", *nodes, f"--for={there}", f"--timeout={GPU_SECONDS}s")


def serve_storage(chain: Chain) -> None:
    """Start the CSI driver with its sidecars, and wait until each kubelet knows it. Raises StepFailed."""
    chain.start("storage", storage.__name__, chain.folder, chain.folder / "hosts", chain.kubeconfig)
    for machine in machines.load(chain.folder / "hosts"):
        known = "jsonpath={.spec.drivers[0].name}=" + driver.NAME
        chain.kubectl("wait", f"csinode/{machine.name}", f"--for={known}", f"--timeout={STORAGE_SECONDS}s")


def verify(chain: Chain) -> None:
    """Prove every layer."""
    print(chain.muster("verify", "verify"))


def validate(chain: Chain) -> None:
    """Write the validation record of the cluster."""
    site_options = ("--site", str(chain.folder / "site"), "--size", SIZE, "--profile", "rehearsal")
    words = ("validate", "--target", "cluster", *site_options, "--out", str(chain.record))
    chain.call("validate", *MUSTER, *words, allowed=(0, 1))


def sign(chain: Chain) -> None:
    """Sign the record with a key of this run, and verify it with the public key."""
    private, public = chain.folder / "key.pem", chain.folder / "key.pub"
    chain.call("key", "openssl", "genpkey", "-algorithm", "ed25519", "-out", str(private))
    chain.call("key", "openssl", "pkey", "-in", str(private), "-pubout", "-out", str(public))
    chain.call("sign", *MUSTER, "report", "sign", str(chain.record), "--key", str(private))
    chain.call("report-verify", *MUSTER, "report", "verify", str(chain.record), "--key", str(public))


TO_BARE_HOSTS: Final = (
    Step("programs", build_programs),
    Step("image of the operator", build_image),
    Step("files, images and packages", prepare_files),
    Step("DeepOps and kubespray", prepare_tree),
    Step("bare hosts", boot_hosts),
    Step("cut off", try_the_way_out),
)
INSTALL: Final = Step("muster install", install)
TO_CLUSTER: Final = (
    Step("GPUs", announce_gpus),
    Step("storage", serve_storage),
    Step("muster verify", verify),
)
RECORD: Final = (
    Step("muster validate", validate),
    Step("signed record", sign),
)
