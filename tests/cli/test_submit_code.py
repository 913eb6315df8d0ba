"""`submit --code`: the files of a working tree in the archive, and the objects that bring them (client/working_tree.py,
submit/code.py).
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import threading
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from uv import find_uv_bin

from orchestrator.client import Client, InvalidField, Submission, pack_code
from tests.submit.test_git_sync import git

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Outcome
    from tests.cli.memory_api_server import MemoryApiServer

    Muster = Callable[..., Outcome]

NAMESPACE = "muster-team-a"
TARS = (["tar"], ["busybox", "tar"])
NOISE = bytes(range(256))


def write(folder: Path, **files: Any) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def unpacked(server: MemoryApiServer, target: Path, tar: list[str] = TARS[0], name: str = "x") -> Path:
    """Run the command of the init container of a job, with the Secret as the kubelet mounts it."""
    (workload,) = (each for each in server.all("jobs") if each["metadata"]["name"] == name)
    (container,) = workload["spec"]["template"]["spec"]["initContainers"]
    secret = server.find("secrets", f"{name}-code", NAMESPACE)
    assert secret is not None
    target.mkdir(parents=True)
    mounted = target.with_name(f"{target.name}-archive")
    mounted.mkdir()
    for key, value in secret["data"].items():
        (mounted / key).write_bytes(b64decode(value))
    words = [word.replace("/muster-code", str(mounted)) for word in container["command"][1:]]
    words[-1] = str(target)
    subprocess.run([*tar, *words], check=True)
    return target


def contents(folder: Path) -> dict[str, bytes | str]:
    """Return the contents of the files, and the targets of the links, by path."""
    return {
        str(path.relative_to(folder)): str(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


@pytest.mark.parametrize("tar", TARS, ids=lambda words: words[0])
def test_every_kind_of_file_arrives_as_it_is(
    tar: list[str], tmp_path: Path, muster: Muster, server: MemoryApiServer
) -> None:
    if shutil.which(tar[0]) is None:
        pytest.skip(f"needs {tar[0]}")
    deep = "/".join(["d" * 60] * 3) + "/größe 𝄞.py"
    tree = write(
        tmp_path / "tree", **{"a b.py": "1", "net/w.bin": NOISE * 99, deep: "x", "-rf": "", "empty": ""}
    )
    write(tree, **{"run.sh": "#!/bin/sh\n", os.fsdecode(b"latin-\xe9"): "y"})
    (tree / "run.sh").chmod(0o700)
    (tree / "net/link").symlink_to("../a b.py")
    (tree / "folder").symlink_to("net")
    assert muster("submit", "x", "-i", "python", "--code", str(tree)).code == 0
    arrived = unpacked(server, tmp_path / "code", tar)
    assert contents(arrived) == contents(tree)
    assert (arrived / "folder/w.bin").read_bytes() == NOISE * 99
    assert ((arrived / "run.sh").stat().st_mode & 0o777, (arrived / "empty").stat().st_mode & 0o777) == (
        0o755,
        0o644,
    )
    assert int((arrived / "empty").stat().st_mtime) == int((tree / "empty").stat().st_mtime)


def test_the_job_owns_its_code_and_starts_in_it(
    tmp_path: Path, muster: Muster, server: MemoryApiServer
) -> None:
    write(tmp_path / "tree", **{"train.py": "1"})
    words = (
        "--code",
        str(tmp_path / "tree"),
        "--image-pull-policy",
        "Never",
        "--prevent-privilege-escalation",
    )
    assert muster("submit", "x", "-i", "python", *words).code == 0
    (job,) = server.all("jobs")
    (secret,) = server.all("secrets")
    assert secret["metadata"]["ownerReferences"] == [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "x", "uid": job["metadata"]["uid"]}
    ]
    assert secret["immutable"] is True
    spec = job["spec"]["template"]["spec"]
    (unpacking,), (container,) = spec["initContainers"], spec["containers"]
    assert container["workingDir"] == "/code"
    assert (unpacking["image"], unpacking["imagePullPolicy"]) == ("python", "Never")
    assert unpacking["securityContext"] == {"allowPrivilegeEscalation": False}
    assert unpacking["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounted == {"code": "/code"}
    assert {volume["name"] for volume in spec["volumes"]} == {"code", "code-archive"}


@pytest.mark.parametrize(
    "words",
    [
        "submit x --interactive",
        "submit x --nodes 2",
        "submit x --array 0-3",
        "submit-dist mpi x",
        "submit x --working-dir /a",
    ],
)
def test_every_kind_of_job_gets_the_code(
    words: str, tmp_path: Path, muster: Muster, server: MemoryApiServer
) -> None:
    write(tmp_path / "tree", **{"train.py": "1"})
    assert muster(*words.split(), "-i", "python", "--code", str(tmp_path / "tree")).code == 0
    (workload,) = (*server.all("jobs"), *server.all("statefulsets"))
    spec = workload["spec"]["template"]["spec"]
    assert [container["name"] for container in spec["initContainers"]] == ["x-code"]
    assert spec["containers"][0]["workingDir"] == ("/a" if "--working-dir" in words else "/code")
    assert server.find("secrets", "x-code", NAMESPACE) is not None


def test_in_a_git_work_tree_git_chooses_the_files(
    tmp_path: Path, muster: Muster, server: MemoryApiServer
) -> None:
    tree = write(
        tmp_path / "tree",
        **{
            ".gitignore": "*.ckpt\ndata/\n", ".env.example": "tracked", ".env": "secret", "train.py": "old",
            "gone.py": "", "net/a.py": "", "new.py": "", "best.ckpt": "", "data/x": "", "__pycache__/a.pyc": "",
            "net/.cache/y": "",
        },
    )  # fmt: skip
    git(tree, "init", "-q")
    git(tree, "add", ".gitignore", ".env.example", "train.py", "gone.py", "net/a.py")
    write(tree, **{"train.py": "changed and not committed"})
    (tree / "gone.py").unlink()
    git(write(tree / "other", **{"inner.py": ""}), "init", "-q")
    assert muster("submit", "x", "-i", "python", "--code", str(tree)).code == 0
    arrived = contents(unpacked(server, tmp_path / "code"))
    assert set(arrived) == {".gitignore", ".env.example", "train.py", "net/a.py", "new.py", "other/inner.py"}
    assert arrived["train.py"] == b"changed and not committed"
    assert muster("submit", "y", "-i", "python", "--code", str(tree / "net")).code == 0
    assert set(contents(unpacked(server, tmp_path / "net", name="y"))) == {"a.py"}


def test_a_repository_in_the_variables_of_a_hook_is_not_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, muster: Muster, server: MemoryApiServer
) -> None:
    git(write(tmp_path / "tree", **{"train.py": ""}), "init", "-q")
    git(write(tmp_path / "other", **{"other.py": ""}), "init", "-q")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other/.git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path / "other"))
    assert muster("submit", "x", "-i", "python", "--code", str(tmp_path / "tree")).code == 0
    assert set(contents(unpacked(server, tmp_path / "code"))) == {"train.py"}


def test_elsewhere_hidden_files_are_left_out(tmp_path: Path, muster: Muster, server: MemoryApiServer) -> None:
    names = ("train.py", ".env", ".ssh/key", "net/__pycache__/a.pyc", "net/a.py", ".gitignore")
    write(tmp_path / "tree", **dict.fromkeys(names, ""))
    assert muster("submit", "x", "-i", "python", "--code", str(tmp_path / "tree")).code == 0
    assert set(contents(unpacked(server, tmp_path / "code"))) == {"train.py", "net/a.py"}


def test_a_link_to_a_part_of_a_git_work_tree_is_that_part(
    tmp_path: Path, muster: Muster, server: MemoryApiServer
) -> None:
    tree = write(tmp_path / "tree", **{".gitignore": "*.key\n", "net/a.py": "", "net/b.key": "secret"})
    git(tree, "init", "-q")
    (tmp_path / "link").symlink_to(tree / "net")
    assert muster("submit", "x", "-i", "python", "--code", str(tmp_path / "link")).code == 0
    assert set(contents(unpacked(server, tmp_path / "code"))) == {"a.py"}


def test_a_tracked_directory_that_became_a_link_is_packed_as_a_link(
    tmp_path: Path, muster: Muster, server: MemoryApiServer
) -> None:
    tree = write(tmp_path / "tree", **{"net/a.py": "old", "model/a.py": "new"})
    git(tree, "init", "-q")
    git(tree, "add", ".")
    shutil.rmtree(tree / "net")
    (tree / "net").symlink_to("model")
    assert muster("submit", "x", "-i", "python", "--code", str(tree)).code == 0
    assert contents(unpacked(server, tmp_path / "code")) == {"net": "model", "model/a.py": b"new"}
    with tarfile.open(fileobj=io.BytesIO(pack_code(tree))) as archive:
        assert sorted(archive.getnames()) == ["model/a.py", "net"]


def test_the_configuration_of_a_repository_runs_no_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, muster: Muster
) -> None:
    tree = write(tmp_path / "tree", **{"train.py": ""})
    git(tree, "init", "-q")
    git(tree, "add", ".")
    write(tmp_path, monitor=f"#!/bin/sh\ntouch {tmp_path}/ran\n").joinpath("monitor").chmod(0o755)
    git(tree, "config", "core.fsmonitor", str(tmp_path / "monitor"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "none"))
    assert muster("submit", "x", "-i", "python", "--code", str(tree)).code == 0
    assert not (tmp_path / "ran").exists()


def test_directories_deeper_than_calls_of_python_are_packed(tmp_path: Path) -> None:
    depth = 1_900  # the longest path that Linux takes has 4,096 bytes
    below = tmp_path / "tree"
    below.mkdir()
    with contextlib.chdir(below):
        for _ in range(depth):
            Path("d").mkdir()
            os.chdir("d")
        Path("a.py").touch()
    try:
        packed = pack_code(below)
    finally:
        subprocess.run(["rm", "-r", str(below)], check=True)  # pytest would call itself for each directory
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        (name,) = archive.getnames()
    assert name.count("/") == depth


def large(tree: Path) -> None:
    write(tree, **{"a.bin": os.urandom(700 << 10), "b.bin": os.urandom(600 << 10), "c.py": "", "d.py": "x"})


def huge(tree: Path) -> None:
    write(tree, **{"data.csv": b""})
    with (tree / "data.csv").open("r+b") as file:
        file.truncate(5 << 30)


def linked(target: str) -> Callable[[Path], None]:
    def make(tree: Path) -> None:
        write(tree, **{"a.py": "", ".hidden": ""})
        write(tree.parent, outside="")
        (tree / "link").symlink_to(target)

    return make


def linked_twice(tree: Path) -> None:
    write(tree, **{"net/a.py": ""})
    (tree / ".short").symlink_to("net")
    (tree / "link").symlink_to(".short/a.py")


def many(tree: Path) -> None:
    for number in range(10_001):
        (tree / str(number)).touch()


REFUSED: list[tuple[str, Callable[[Path], Any], str]] = [
    ("too large", large, (
        "has 1.3 MiB when compressed, and at most 1.0 MiB when compressed are possible. The largest: "
        "a.bin (700.0 KiB), b.bin (600.0 KiB), d.py (1 bytes); exclude files by .gitignore")),
    ("too large to compress", huge, (
        "has 5120.0 MiB of files, and at most 1.0 MiB when compressed are possible. The largest: data.csv "
        "(5120.0 MiB); exclude files by .gitignore of a Git work tree, or use --git-sync, --pvc or an image")),
    ("no file", lambda tree: write(tree, **{".env": ""}), "has no files for the archive"),
    ("a link out of the tree", linked("../outside"), "the link 'link' leads to '../outside', which is not in the arch"),
    ("an absolute link", linked("/etc/passwd"), "the link 'link' leads to '/etc/passwd', which is not in the archive"),
    ("an absolute link into the tree", lambda tree: (write(tree, **{"a.py": ""}) / "b").symlink_to(tree / "a.py"),
     "the link 'b' leads to '/"),
    ("a link to a hidden file", linked(".hidden"), "the link 'link' leads to '.hidden', which is not in the archive"),
    ("a link to nothing", linked("nothing"), "the link 'link' leads to 'nothing', which is not in the archive"),
    ("a link to itself", linked("link"), "the link 'link' leads to 'link', which is not in the archive"),
    ("a link through a hidden link", linked_twice, "the link 'link' leads to '.short/a.py', which is not"),
    ("a link above the tree and back", linked("../tree/a.py"), "the link 'link' leads to '../tree/a.py', which"),
    ("too many files", many, "has more than 10000 files:"),
    ("a pipe", lambda tree: os.mkfifo(tree / "pipe"), "'pipe' is neither a file nor a link"),
    ("a broken repository", lambda tree: write(tree, **{".git": "gitdir: x"}), "Git cannot list the files: fatal:"),
    ("no directory", lambda tree: tree.rmdir(), "is not a directory"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "message"), [each[1:] for each in REFUSED], ids=[each[0] for each in REFUSED]
)
def test_a_tree_that_cannot_be_packed_is_refused_in_one_line_before_any_request(
    make: Callable[[Path], Any], message: str, tmp_path: Path, muster: Muster, server: MemoryApiServer
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    make(tree)
    outcome = muster("submit", "x", "-i", "python", "--code", str(tree))
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"Error: --code {tree}: {message}")
    assert outcome.err.count("\n") == 1
    assert server.writes() == []


def test_an_empty_path_is_not_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, muster: Muster, server: MemoryApiServer
) -> None:
    monkeypatch.chdir(write(tmp_path, **{"a.py": ""}))
    outcome = muster("submit", "x", "-i", "python", "--code", "")
    assert (outcome.code, outcome.err) == (2, "Error: --code '': is not a directory\n")
    assert server.writes() == []


def test_the_code_needs_its_path_alone(tmp_path: Path, muster: Muster, server: MemoryApiServer) -> None:
    write(tmp_path, **{"a.py": ""})
    words = ("submit", "x", "-i", "python", "--code", str(tmp_path))
    for more in (("--git-sync", "source=https://git.example.com/a.git"), ("-v", "/a:/code")):
        outcome = muster(*words, *more)
        assert outcome.code == 2
        assert "/code is mounted twice" in outcome.err
    assert muster(*words, "--git-sync", "source=https://git.example.com/a.git,target=/other").code == 0
    assert server.find("secrets", "x-code", NAMESPACE) is not None


def test_nothing_is_left_when_the_code_or_a_later_object_is_refused(
    tmp_path: Path, muster: Muster, server: MemoryApiServer
) -> None:
    write(tmp_path, **{"a.py": ""})
    words = (
        "submit",
        "x",
        "-i",
        "python",
        "--code",
        str(tmp_path),
        "--interactive",
        "-s",
        "nodeport",
        "--port",
        "80",
    )
    for path in (f"/api/v1/namespaces/{NAMESPACE}/services", f"/api/v1/namespaces/{NAMESPACE}/secrets"):
        server.refuse("POST", path, 422, "Invalid")
        assert muster(*words).code == 1
        assert [each for kind in ("statefulsets", "services", "secrets") for each in server.all(kind)] == []


def test_a_secret_of_another_with_the_name_is_kept_and_no_job_is_left(
    tmp_path: Path, muster: Muster, server: MemoryApiServer
) -> None:
    write(tmp_path, **{"a.py": ""})
    server.add(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "x-code", "namespace": NAMESPACE},
            "data": {"a": ""},
        }
    )
    outcome = muster("submit", "x", "-i", "python", "--code", str(tmp_path))
    assert outcome.code == 1
    assert "x-code" in outcome.err
    assert server.all("jobs") == []
    assert [secret["data"] for secret in server.all("secrets")] == [{"a": ""}]


def test_two_submissions_at_once_have_their_own_code(
    tmp_path: Path, kubeconfig: Path, server: MemoryApiServer
) -> None:
    def submit(name: str) -> None:
        code = pack_code(write(tmp_path / name, **{"a.py": name}))
        with Client(kubeconfig) as client:
            client.submit(Submission(name=name, image="python", user="ann", code=code))

    threads = [threading.Thread(target=submit, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in ("one", "two"):
        assert contents(unpacked(server, tmp_path / f"code-{name}", name=name)) == {"a.py": name.encode()}


def test_a_dry_run_prints_the_code_and_creates_nothing(
    tmp_path: Path, muster: Muster, server: MemoryApiServer
) -> None:
    write(tmp_path, **{"a.py": ""})
    for form in ("--dry-run", "--dry-run=server"):
        made = muster("submit", "x", "-i", "python", "--code", str(tmp_path), form, "-o", "json").json[
            "items"
        ]
        assert [each["kind"] for each in made] == ["Job", "Secret"]
        assert set(made[1]["data"]) == {"code.tar.gz"}
    assert (server.all("jobs"), server.all("secrets")) == ([], [])


def test_an_edit_keeps_the_code_or_is_refused(
    tmp_path: Path, muster: Muster, server: MemoryApiServer
) -> None:
    """The Secret would be deleted with the Job that an edit replaces; the StatefulSet of an interactive job stays."""
    write(tmp_path, **{"a.py": ""})
    assert muster("submit", "x", "-i", "python", "--code", str(tmp_path)).code == 0
    refused = muster("edit", "x", "-i", "other")
    assert refused.code == 1
    assert (
        "x has the secret x-code (--git-sync, --code), which would be deleted with the old Job" in refused.err
    )
    assert [job["metadata"]["name"] for job in server.all("jobs")] == ["x"]


def test_uv_runs_the_command_in_the_environment_of_the_working_tree(
    tmp_path: Path, muster: Muster, server: MemoryApiServer
) -> None:
    """The words of the container are run by uv itself, without a network."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    tree = write(
        tmp_path / "tree",
        **{
            "pyproject.toml": f'[project]\nname = "a"\nversion = "1"\nrequires-python = ">={version}"\n',
            "train.py": "import sys; print(sys.prefix, sys.version_info[:2], sys.argv[1:])",
        },
    )
    words = ("--code", str(tree), "--python", version)
    assert muster("submit", "x", "-i", "python", *words, "--", "python", "train.py", "--epochs").code == 0
    (job,) = server.all("jobs")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    command = [*container["command"], *container["args"]]
    assert command[0] == "uv"
    done = subprocess.run(
        [find_uv_bin(), *command[1:]],
        cwd=tree,
        env={
            "HOME": str(tmp_path),
            "PATH": f"{sys.base_prefix}/bin",
            "UV_OFFLINE": "1",
            "UV_PYTHON_DOWNLOADS": "never",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"{tree}/.venv {sys.version_info[:2]} ['--epochs']\n", done.stderr


def test_an_archive_above_the_limit_is_no_submission() -> None:
    made = Submission(name="x", image="python", user="ann", code=b"x" * (1 << 20))
    assert "xxx" not in repr(made)
    with pytest.raises(
        InvalidField, match="code: the archive has 1048577 bytes, and at most 1048576 are possible"
    ):
        Submission(name="x", image="python", user="ann", code=b"x" * ((1 << 20) + 1))
