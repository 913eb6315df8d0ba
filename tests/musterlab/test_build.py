import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from musterlab import build
from musterlab.build import (
    CONTROL_PLANE,
    KUBE_SCHEDULER,
    LOWEST_CONTROL_PLANE,
    NEWEST_CONTROL_PLANE,
    NEWEST_KUBERNETES,
    REAL_NODES,
    Part,
    Recipe,
)
from musterlab.gpus.built import EXAMPLE_PROGRAMS, GPU_PROGRAMS
from orchestrator.progress import Reporter
from tests.musterlab.conftest import World

Eventually = Callable[[Callable[[], bool], str], None]


@pytest.fixture(autouse=True)
def go_is_installed(world: World) -> None:
    world.install_go()


def recipe_copy(recipe: Recipe, directory: Path) -> Recipe:
    """Return the same recipe with copies of its modules in directories of the test: `0`, `1`, ..."""
    parts = []
    for number, part in enumerate(recipe.parts):
        assert isinstance(part, Part)
        module = directory / str(number)
        module.mkdir()
        for name in ("go.mod", "go.sum"):
            shutil.copyfile(part.module / name, module / name)
        parts.append(replace(part, module=module))
    return replace(recipe, parts=tuple(parts))


@pytest.mark.parametrize("name", ["go.mod", "go.sum"])
@pytest.mark.parametrize(
    ("recipe", "part"),
    [
        (CONTROL_PLANE, 0),
        (LOWEST_CONTROL_PLANE, 0),
        (LOWEST_CONTROL_PLANE, 1),
        (NEWEST_CONTROL_PLANE, 0),
        (REAL_NODES, 0),
        (REAL_NODES, 1),
        (KUBE_SCHEDULER, 0),
    ],
)
def test_the_cache_key_changes_with_every_pinned_file(
    recipe: Recipe, part: int, name: str, tmp_path: Path
) -> None:
    copied = recipe_copy(recipe, tmp_path)
    assert build.cache_key(copied) == build.cache_key(recipe)
    with (tmp_path / str(part) / name).open("a") as file:
        file.write("\n")
    assert build.cache_key(copied) != build.cache_key(recipe)


def test_the_cache_key_changes_with_the_flags() -> None:
    (part,) = CONTROL_PLANE.parts
    assert isinstance(part, Part)
    other = replace(CONTROL_PLANE, parts=(replace(part, flags=("-trimpath",)),))
    assert build.cache_key(other) != build.cache_key(CONTROL_PLANE)


def test_programs_of_real_nodes_are_built_only_when_requested(world: World) -> None:
    assert world.lab("build").returncode == 0
    assert world.cached() == [build.cache_key()]
    both = world.lab("build", "--real-nodes", FAKE_GO_PROGRAMS="kubelet containerd containerd-shim-runc-v2")
    assert both.returncode == 0, both.stderr
    assert world.cached() == sorted([build.cache_key(), build.cache_key(REAL_NODES)])
    assert world.builds() == 3  # the control plane, the kubelet, containerd


@pytest.mark.parametrize(
    ("option", "recipe"),
    [("--lowest-kubernetes", LOWEST_CONTROL_PLANE), ("--newest-kubernetes", NEWEST_CONTROL_PLANE)],
)
def test_another_kubernetes_is_built_only_when_asked_for(world: World, option: str, recipe: Recipe) -> None:
    assert world.lab("build", option).returncode == 0
    assert world.cached() == sorted([build.cache_key(), build.cache_key(recipe)])
    assert world.builds() == 3  # the control plane, the programs of the other release, and their companions


def test_the_newest_kubernetes_says_the_version_that_is_pinned() -> None:
    pinned = (NEWEST_CONTROL_PLANE.parts[0].module / "go.mod").read_text()  # type: ignore[attr-defined]
    assert f"\tk8s.io/kubernetes v{NEWEST_KUBERNETES} " in pinned
    flags = " ".join(NEWEST_CONTROL_PLANE.parts[0].flags)  # type: ignore[attr-defined]
    major, minor, _ = NEWEST_KUBERNETES.split(".")
    for words in (f"gitVersion=v{NEWEST_KUBERNETES}", f"gitMajor={major}", f"gitMinor={minor}"):
        assert words in flags


def test_programs_for_gpus_are_built_only_when_asked_for_and_nvidias_dra_driver_is_named(
    world: World,
) -> None:
    assert "not here" not in world.lab("build").stdout
    made = "nvidia-device-plugin nvidia-cdi-hook dra-example-kubeletplugin"
    result = world.lab("build", "--gpus", FAKE_GO_PROGRAMS=made)
    assert result.returncode == 0, result.stderr
    keys = (build.cache_key(), build.cache_key(GPU_PROGRAMS), build.cache_key(EXAMPLE_PROGRAMS))
    assert world.cached() == sorted(keys)
    last = result.stdout.splitlines()[-1]
    assert last.startswith(
        "not here: NVIDIA's DRA driver; MUSTER_PROGRAMS names no folder; put into it: gpu-kube"
    )
    (world.root / "gpu-kubelet-plugin").touch()
    again = world.lab("build", "--gpus", MUSTER_PROGRAMS=str(world.root))
    assert "not here" not in again.stdout
    assert world.builds() == 3  # the control plane, the plugin with its hook, the example driver


def test_each_set_of_programs_has_a_place_of_its_own_in_the_cache() -> None:
    recipes = (CONTROL_PLANE, LOWEST_CONTROL_PLANE, NEWEST_CONTROL_PLANE, REAL_NODES, KUBE_SCHEDULER)
    assert len({build.cache_key(recipe) for recipe in recipes}) == len(recipes)


def test_a_build_that_failed_leaves_neither_programs_nor_a_lab(world: World) -> None:
    result = world.lab("up", FAKE_GO_SAYS="# example.org/one: syntax error")
    assert result.returncode == 1
    assert "'go build -v' failed: # example.org/one: syntax error" in result.stderr
    assert world.cached() == []
    assert world.labs() == []


def let_go(pipe: Path) -> None:
    """Let the processes end that a killed compiler may have started: a process that opens a pipe for reading and
    writing does not wait for another process.
    """
    os.close(os.open(pipe, os.O_RDWR))


def test_a_killed_build_is_repeated_from_a_clean_start(world: World, eventually: Eventually) -> None:
    os.mkfifo(world.root / "never")
    killed = world.spawn("up", FAKE_GO_WAITS_FOR=str(world.root / "never"))
    eventually(lambda: world.builds() == 1, "the build runs")
    (partial,) = (world.cache / "muster" / "lab").glob("*.partial")
    (partial / "bin" / "kwok").write_text("half a program")
    killed.kill()
    killed.communicate()
    assert [name for name in world.cached() if not name.endswith(".partial")] == []
    world.lab("up")
    assert world.builds() == 2
    assert world.cached() == [build.cache_key()]
    let_go(world.root / "never")
    assert "half" not in (world.cache / "muster" / "lab" / build.cache_key() / "kwok").read_text()


def test_the_compiler_dies_with_a_killed_build(
    world: World, eventually: Eventually, processes_of: Callable[[Path], list[str]]
) -> None:
    os.mkfifo(world.root / "never")
    killed = world.spawn("up", FAKE_GO_WAITS_FOR=str(world.root / "never"))
    eventually(lambda: world.builds() == 1, "the build runs")
    assert any("build" in line for line in processes_of(world.tools))
    killed.kill()
    killed.communicate()
    eventually(lambda: processes_of(world.tools) == [], "no compiler runs")
    let_go(world.root / "never")


def test_a_second_build_waits_for_the_first_and_says_so(world: World, eventually: Eventually) -> None:
    gate = world.root / "gate"
    os.mkfifo(gate)
    first = world.spawn("up", FAKE_GO_WAITS_FOR=str(gate))
    eventually(lambda: world.builds() == 1, "the first build runs")
    second = world.spawn("up", "--name", "second")
    assert second.stderr is not None
    assert "waiting for another build" in second.stderr.readline()
    with gate.open("w"):
        pass
    first.communicate()
    second.communicate()
    assert world.builds() == 1
    assert world.cached() == [build.cache_key()]


def test_the_go_build_gets_a_module_of_its_own_and_etcd_its_name(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in world.environment.items():
        monkeypatch.setenv(name, value)
    target = world.cache / "programs"
    build.build(target, Reporter(lambda _line: None))
    assert sorted(path.name for path in target.iterdir()) == sorted(CONTROL_PLANE.programs)


def test_progress_counts_packages(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    class Every(Reporter):
        def update(self, text: str) -> None:
            self(text)

    for name, value in world.environment.items():
        monkeypatch.setenv(name, value)
    lines: list[str] = []
    build.build(world.cache / "programs", Every(lines.append))
    assert any(line.endswith("compiled 2 of at most 3 packages") for line in lines)


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        ("go: dial tcp: lookup proxy.example.org: no such host", "the network and GOPROXY"),
        ("write /tmp/x: no space left on device", "the disk is full"),
        ("go: go.mod requires go >= 1.26.0 (running go 1.22.1; GOTOOLCHAIN=local)", "Go is too old"),
        ("verifying module: checksum mismatch", "checksum in go.sum"),
        ('cgo: C compiler "gcc" not found: exec: "gcc": not on PATH', "no C compiler"),
        ("compile: signal: killed", "ran out of memory"),
    ],
)
def test_a_known_cause_of_failure_is_named(says: str, expected: str, world: World) -> None:
    result = world.lab("up", FAKE_GO_SAYS=says)
    assert result.returncode == 1
    assert expected in result.stderr
    assert says in result.stderr
    assert "Traceback" not in result.stderr


def test_a_go_that_is_too_old_is_refused_before_it_builds(world: World) -> None:
    result = world.lab("up", FAKE_GO_VERSION="go1.25.4")
    assert result.returncode == 1
    assert "go1.25.4, too old; install Go 1.26" in result.stderr
    assert world.builds() == 0


def test_a_cache_directory_that_cannot_be_written_is_named(world: World) -> None:
    world.cache.write_text("a file")
    result = world.lab("up")
    assert result.returncode == 1
    assert f"the cache directory {world.cache}/muster/lab cannot be written" in result.stderr
    assert "XDG_CACHE_HOME" in result.stderr
    assert world.labs() == []


def test_building_alone_fills_the_cache_and_starts_nothing(world: World) -> None:
    first = world.lab("build")
    assert first.returncode == 0, first.stderr
    assert "built 5 programs" in first.stderr
    assert world.lab("build").stdout == first.stdout
    assert first.stdout.startswith(f"5 programs, from cache: {world.cache}")
    assert world.builds() == 1
    assert world.labs() == []
