"""`muster sbatch`: scripts of Slurm as sites write them. Each becomes a job, or is refused by its lines.

The scripts were written after the public documentation of Slurm and of computing centres; `slurm/expected.yaml` has
the results.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import UsageError
from orchestrator.submit import slurm_values
from orchestrator.submit.slurm_job import Request, translate
from orchestrator.submit.slurm_options import ADVICE, COMMAND_ADVICE, LETTERS, NO_EFFECT, OPTIONS
from orchestrator.submit.slurm_script import read_script
from tests.cli.memory_api_server import node

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Outcome
    from tests.cli.memory_api_server import MemoryApiServer

    Muster = Callable[..., Outcome]

SCRIPTS: Final = Path(__file__).parent / "slurm"
EXPECTED: Final = yaml.safe_load((SCRIPTS / "expected.yaml").read_text(encoding="utf-8"))
ACCEPTED: Final = [name for name, result in EXPECTED.items() if "refused" not in result]
HOW_TO: Final = Path(__file__).parents[2] / "docs" / "how-to" / "from-slurm.md"


def test_every_script_has_an_expected_result() -> None:
    assert {path.name for path in SCRIPTS.glob("*.sbatch")} == EXPECTED.keys()
    assert len(EXPECTED) >= 12


@pytest.fixture
def dgx(server: MemoryApiServer) -> MemoryApiServer:
    """The cluster has nodes of the type that a script names."""
    made = node("dgx-a100", 8)
    made["metadata"]["labels"] = {"run.ai/type": "dgx-a100"}
    server.add(made, node("dgx1-3", 8))
    return server


@pytest.mark.parametrize("name", sorted(set(EXPECTED) - set(ACCEPTED)))
def test_a_script_that_cannot_run_is_refused_by_each_of_its_lines(
    name: str, muster: Muster, server: MemoryApiServer
) -> None:
    outcome = muster("sbatch", str(SCRIPTS / name))
    assert (outcome.code, outcome.out, server.writes()) == (2, "", [])
    lines = [
        f"Error: {name}{', ' if line.startswith('line ') else ': '}{line}"
        for line in EXPECTED[name]["refused"]
    ]
    assert outcome.err.splitlines() == lines


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_script_becomes_the_job_that_it_asks_for(
    name: str, muster: Muster, dgx: MemoryApiServer, tmp_path: Path
) -> None:
    expected = EXPECTED[name]
    outcome = muster("sbatch", str(SCRIPTS / name), "one", "two three")
    assert outcome.code == 0
    assert outcome.err.splitlines() == [f"Warning: {note}" for note in expected["notes"]]
    (job,) = dgx.all("jobs")
    assert job["metadata"]["name"] == expected["name"]
    assert (
        job["metadata"]["namespace"]
        == {"team-b": "people-of-b", None: "muster-team-a"}[expected.get("project")]
    )
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    found = spec | {
        "activeDeadlineSeconds": pod.get("activeDeadlineSeconds"),
        "shell": container["command"][:2],
    }
    assert {key: found.get(key) for key in expected["job"]} == expected["job"]
    resources = container["resources"]
    assert resources["requests"] | resources["limits"] == expected["resources"]
    assert container["command"][3:] == [name, "one", "two three"]
    assert [each["mountPath"] for each in container["volumeMounts"]] == ["/dev/shm"]  # noqa: S108
    seen = _run(job, tmp_path)
    assert {key: seen.variables.get(key) for key in expected["variables"]} == expected["variables"]
    assert sorted(seen.tasks, key=lambda task: int(task.split()[0])) == expected["tasks"]
    label = job["spec"]["template"]["metadata"]["labels"]["slurm-job-id"]
    assert int(seen.variables["SLURM_JOB_ID"]) - int(label) in (0, (spec.get("completions") or 1) - 1)


class _Seen:
    """The variables of a script and the ranks of the tasks of `srun`, in the last pod of the job."""

    def __init__(self, variables: str, tasks: str) -> None:
        self.variables = dict(line.partition("=")[::2] for line in variables.splitlines() if "=" in line)
        self.tasks = tasks.splitlines()


def _run(job: dict[str, Any], directory: Path) -> _Seen:
    """Run the first line of the job's script by its shell, as the last pod would, and then commands that show it."""
    (container,) = job["spec"]["template"]["spec"]["containers"]
    last = str((job["spec"].get("completions") or 1) - 1)
    environment = {"PATH": "/usr/bin:/bin", "HOSTNAME": "pod", "JOB_COMPLETION_INDEX": last}
    for variable in container["env"]:
        environment[variable["name"]] = variable.get("value", last)
    shell, minus_c, script = (word.replace("$$", "$") for word in container["command"][:3])
    shown = []
    for commands in ("env", "srun sh -c 'echo $SLURM_PROCID $SLURM_LOCALID'"):
        probe = f"{script.splitlines()[0]}\n{commands}\n"
        done = subprocess.run(
            [shell, minus_c, probe],
            env=environment,
            cwd=directory,
            check=True,
            capture_output=True,
            text=True,
        )
        shown.append(done.stdout)
    return _Seen(*shown)


@pytest.mark.parametrize("shell", ["/bin/bash", "/bin/sh"])
def test_srun_runs_each_task_and_fails_if_one_does(shell: str, muster: Muster, tmp_path: Path) -> None:
    script = tmp_path / "tasks.sh"
    script.write_text(
        f"#!{shell}\n#SBATCH --ntasks=3 --gpus-per-task=1\n"
        "srun sh -c 'echo $SLURM_LOCALID $RANK $WORLD_SIZE $CUDA_VISIBLE_DEVICES; exit $SLURM_PROCID' || echo $?\n"
        'set -eu; srun true; echo $? $0 "$1"\n'
    )
    printed = muster("sbatch", "--image=busybox", "--dry-run", str(script), "a  b")
    command = yaml.safe_load(printed.out)["spec"]["template"]["spec"]["containers"][0]["command"]
    words = [word.replace("$$", "$") for word in command]
    done = subprocess.run(words, env={"PATH": "/usr/bin:/bin"}, check=True, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert sorted(lines[:3]) == ["0 0 3 0", "1 1 3 1", "2 2 3 2"]
    assert lines[3:] == ["2", "0 tasks.sh a  b"]


def _translated(*lines: str, **request: Any) -> Any:
    """Translate a script of bash with these lines after the first."""
    script = read_script("\n".join(("#!/bin/bash", *lines, "")).encode())
    return translate(script, Request("job.sh", **request))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800), ("30:20", 1860), ("1:00:00", 3600), ("1-0", 86400), ("1-12", 129600), ("0-01:00", 3600),
        ("2-03:04:05", 183900), ("0", 0), ("00:00:01", 60), ("100:00:00", 360000),
        ("", None), ("1-", None), ("1:2:3:4", None), ("one", None), ("1.5", None), ("-1", None), ("\u0663", None),
    ],
)  # fmt: skip
def test_a_time_has_six_forms(text: str, seconds: int | None) -> None:
    _agrees(slurm_values.parse_time_seconds, text, seconds)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("4096", 4096 << 20), ("64G", 64 << 30), ("64gb", 64 << 30), ("1T", 1 << 40), ("2K", 2048), ("512M", 512 << 20),
        ("0", None), ("1.5G", None), ("G", None), ("4Gi", None), ("", None),
    ],
)  # fmt: skip
def test_memory_is_in_megabytes_without_a_unit(text: str, size_bytes: int | None) -> None:
    _agrees(slurm_values.parse_memory_bytes, text, size_bytes)


@pytest.mark.parametrize(
    ("text", "tasks", "at_once"),
    [
        ("0-3", (0, 1, 2, 3), 4), ("7", (7,), 1), ("1,3,5-7", (1, 3, 5, 6, 7), 5), ("0-15:4%2", (0, 4, 8, 12), 2),
        ("3,1,3", (1, 3), 2), ("1-3%9", (1, 2, 3), 3),
        ("3-1", None, 0), ("", None, 0), ("1-", None, 0), ("1-9:0", None, 0), ("1-9%0", None, 0), ("a", None, 0),
        ("0-100000", None, 0), ("0-99999,100001", None, 0), ("1,,2", None, 0),
    ],
)  # fmt: skip
def test_an_array_is_numbers_ranges_and_steps(text: str, tasks: tuple[int, ...] | None, at_once: int) -> None:
    _agrees(slurm_values.parse_array, text, tasks and slurm_values.Array(tasks, at_once))


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("gpu:2", ("", 2)), ("gpu", ("", 1)), ("gpu:a100:4", ("a100", 4)), ("gpu:a100", ("a100", 1)),
        ("gpu:h100-80", ("h100-80", 1)), ("gpu:0", None), ("gpu:", None), ("gpu:2,shard:1", None), ("shard:1", None),
        ("gpu:a100:4:8", None), ("gpu=2", None),
    ],
)  # fmt: skip
def test_generic_resources_are_gpus(text: str, gpus: tuple[str, int] | None) -> None:
    _agrees(slurm_values.parse_gres, text, gpus)


@pytest.mark.parametrize(
    ("text", "states"),
    [
        ("afterok:a-0", ("a-0:succeeded",)), ("afterany:a:b,afternotok:c", ("a:ended", "b:ended", "c:failed")),
        ("afterok:a?afterok:b", None), ("after:a", None), ("aftercorr:a", None), ("singleton", None), ("afterok", None),
        ("afterok:", None), ("afterok:12", None), ("afterok:a+5", None), ("", None), ("expand:a", None),
    ],
)  # fmt: skip
def test_a_dependency_is_a_state_of_each_job(text: str, states: tuple[str, ...] | None) -> None:
    _agrees(slurm_values.parse_dependency, text, states)


def test_a_chain_of_scripts_waits_by_name(muster: Muster, server: MemoryApiServer) -> None:
    first = muster("sbatch", "--image=a", "--parsable", "--wrap", "true").out.strip()
    made = muster(
        "sbatch", "--image=a", "--dependency", f"afterok:{first}", "--wrap", "echo $SLURM_JOB_DEPENDENCY"
    )
    assert made.code == 0, made.err
    job = server.find("jobs", "wrap-1", "muster-team-a")
    assert job is not None
    assert job["spec"]["suspend"] is True
    script = job["spec"]["template"]["spec"]["containers"][0]["command"][2]
    assert "SLURM_JOB_DEPENDENCY=afterok:wrap-0;" in script


def _agrees(parse: Callable[[str], object], text: str, value: object) -> None:
    if value is None:
        with pytest.raises(UsageError):
            parse(text)
    else:
        assert parse(text) == value


SIZES = [
    ("-N 2 --gpus=8", (2, 4, None)),
    ("-n 8 --ntasks-per-node=4 --gres=gpu:4", (2, 4, 4)),
    ("-n4 -c2 -G4", (1, 4, 8)),
    ("--nodes=2-4 --gpus-per-node=a:1", "GPUs of type a are not known here"),
    ("--gpus=6 --gpus-per-task=2", "--gpus-per-task with several tasks on a node"),
    ("--gpus=6 --gpus-per-task=1 --nodes=2", (2, 3, 3)),
    ("--nodes=2 --gpus=3", "--gpus 3 is not the same on 2 nodes"),
    ("--nodes=2 --ntasks=3", "--ntasks 3 is not the same on 2 nodes"),
    ("--nodes=1 --ntasks=8 --ntasks-per-node=4", "--ntasks 8 is not the same on 1 nodes"),
    ("--nodes=4-2", "--nodes '4-2' is not possible; the second number is smaller"),
    ("--mem=1G --mem-per-cpu=1G", "exclude each other"),
    ("--array=0-3 --nodes=2", "--array is not possible with several nodes"),
]


@pytest.mark.parametrize(("options", "size"), SIZES, ids=lambda each: each if isinstance(each, str) else "")
def test_the_spellings_of_a_size(options: str, size: tuple[int, int, int | None] | str) -> None:
    """Nodes, GPUs of a node and CPUs of a node, or why the options cannot go together."""
    result = _translated(f"#SBATCH {options}")
    if isinstance(size, str):
        assert len(result.problems) == 1
        assert size in result.problems[0]
        return
    assert result.problems == ()
    words = dict(zip(result.words, result.words[1:], strict=False))
    found = (
        int(words.get("--nodes", 1)),
        int(words["--gpu"]),
        int(words["--cpu"]) if "--cpu" in words else None,
    )
    assert found == size


@pytest.mark.parametrize("name", sorted(ADVICE))
def test_an_option_without_a_meaning_is_refused_with_advice(name: str) -> None:
    (problem,) = _translated("", f"#SBATCH --{name}=1").problems
    assert problem == f"job.sh, line 3: --{name} is not possible; {ADVICE[name]}"


@pytest.mark.parametrize("name", sorted(NO_EFFECT))
def test_an_option_that_changes_no_result_is_named(name: str) -> None:
    result = _translated(f"#SBATCH --{name}=1")
    assert result.notes == (f"job.sh, line 2: --{name} has no effect: {NO_EFFECT[name]}",)
    assert result.words


@pytest.mark.parametrize("word", ["--no-such=1", "--no-such", "-s", "-k", "-", "--", "stray", "--cpus=4"])
def test_an_unknown_option_is_never_ignored(word: str) -> None:
    (problem,) = _translated(f"#SBATCH --ntasks=1 {word}").problems
    assert problem.startswith(f"job.sh, line 2: {word.partition('=')[0]}")
    assert "no option of sbatch" in problem


@pytest.mark.parametrize("program", ["scontrol", "sbatch", "ml", "singularity"])
@pytest.mark.parametrize(
    "line", ["{}", "a && {} b", "x=$({} y | head)", 'echo "$({} y)"', "if {}; then", "A=1 {} x", "echo `{} x`",
             "/usr/bin/{} x", ">out {} x", "2> err A=1 {} x", "x=$'it\\'s'\n{} x", "# don't\n{} x", "a \\\" b; {} x",
     "a |\\\n  {} x", 'echo "a\nb $({} z)"', "f() { {}; }", "! {} x", "a; time {} b"]
)  # fmt: skip
def test_a_command_that_the_container_lacks_is_found_wherever_it_stands(program: str, line: str) -> None:
    body = line.replace("{}", program, 1) if line != "f() { {}; }" else f"f() {{ {program}; }}"
    problems = _translated(*body.split("\n")).problems
    assert any(f": {program} is not possible; {COMMAND_ADVICE[program]}" in problem for problem in problems)


@pytest.mark.parametrize(
    "line",
    ["echo module load", "# sbatch next.sh", "echo \"a # b\" # scancel x", "python scontrol.py", "ls $HOME/squeue",
     "cat <<'EOF'\nmodule load x\nEOF", "cat <<-EOF\nmodule load x\n\tEOF", "echo a\\#b", "echo ${#SLURM_JOB_ID}"],
)  # fmt: skip
def test_a_name_that_is_no_command_is_not_refused(line: str) -> None:
    assert _translated(*line.split("\n")).problems == ()


@pytest.mark.parametrize("line", ["echo $((1<<EOF))", "cat <<< EOF", "echo '<<EOF'", "# <<EOF", "cat <<EOF"])
def test_text_like_a_document_hides_no_command(line: str) -> None:
    assert len(_translated(line, "module load x").problems) == 1


@pytest.mark.parametrize(
    ("export", "words"),
    [
        ("NONE", []), ("A=1,B", ["A=1", "B=two"]), ("NIL,A=", ["A="]), ("ALL,A=x=y", ["A=x=y"]),
        ("C", "C is not set in this shell; give C=VALUE"), ("1A=x", "'1A=x' is not possible"), ("", "'' is not"),
    ],
)  # fmt: skip
def test_variables_of_the_shell_travel_by_name(export: str, words: list[str] | str) -> None:
    result = _translated(f"#SBATCH --export={export}", environment={"B": "two"})
    if isinstance(words, str):
        assert words in result.problems[0]
    else:
        found = zip(result.words, result.words[1:], strict=False)
        assert [value for flag, value in found if flag == "--environment"] == words


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("eval 'scontrol show'", "scontrol"), ("nohup sbatch next.sh", "sbatch"), ("a | xargs scancel", "scancel"),
        ("trap 'squeue' USR1", "squeue"), ("bash <<E\nsinfo\nE", "sinfo"),
        ("echo $((SLURM_RESTART_COUNT + 1))", "SLURM_RESTART_COUNT"), ("printenv SLURM_CONF", "SLURM_CONF"),
    ],
)  # fmt: skip
def test_a_name_that_may_be_used_is_said(line: str, name: str) -> None:
    result = _translated(*line.split("\n"))
    assert result.problems == ()
    assert [name in note for note in result.notes] == [True]


def test_a_quotation_that_never_ends_is_refused_because_it_hides_commands() -> None:
    assert _translated("echo 'a", "module load x").problems == (
        "job.sh: line 2: a quotation mark has no partner; add it",
    )


@pytest.mark.parametrize("options", ["--nodes=999999999", "--ntasks=99999999", "--gpus=99999999", "-c 10001"])
def test_a_number_that_no_cluster_has_is_refused_at_once(options: str) -> None:
    assert "is not possible; give" in _translated(f"#SBATCH {options}").problems[0]


def test_a_variable_is_refused_unless_it_is_set_or_has_a_default() -> None:
    body = (
        "echo $SLURM_JOB_ID ${SLURM_NODEID} ${SLURM_TMPDIR:-/tmp}",
        "# $SLURM_A",
        "echo out-$SLURM_B-x '${SLURM_C}'",
    )
    assert [problem.split()[2:4] for problem in _translated(*body).problems] == [
        ["4:", "SLURM_B"],
        ["4:", "SLURM_C"],
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"echo a\n", "does not begin with #!"),
        (b"#!/bin/bash\r\n", "line ends of DOS"),
        (b"#!\n", "begin with #!"),
        (b"#!/bin/bash\n\x00", "NUL"),
        (b"#!/bin/bash\n\xff", "UTF-8"),
        (b"", "does not begin with #!"),
        (b"#!/bin/bash\n#PBS -l nodes=1\n", "line 2: #PBS is an option of another system"),
        (b"#!/bin/bash\n#SBATCH --comment 'a\n", "line 2: has a quotation mark without its partner"),
        (b"#!/bin/bash\n#SBATCH --time\n", "line 2: --time needs a value"),
        (b"#!/bin/csh\n", "/bin/csh is no shell"),
        (b"#!/bin/bash\n#MUSTER --no-such=1\n", "No such option"),
    ],
)
def test_a_script_that_slurm_would_refuse_is_refused(
    content: bytes, message: str, muster: Muster, server: MemoryApiServer, tmp_path: Path
) -> None:
    (tmp_path / "bad.sh").write_bytes(content)
    outcome = muster("sbatch", "--image=busybox", str(tmp_path / "bad.sh"))
    assert (outcome.code, server.writes(), outcome.err.count("\n")) == (2, [], 1)
    assert message in outcome.err


def test_the_command_line_has_precedence_over_the_script(
    muster: Muster, server: MemoryApiServer, tmp_path: Path
) -> None:
    """Options of Slurm, long options of submit, and arguments that look like options."""
    script = tmp_path / "train"
    script.write_text("#!/bin/bash\n#SBATCH -G 1 -J one\n#MUSTER --image=a\n\necho\n#SBATCH --hold\n")
    words = (
        "sbatch",
        "--parsable",
        "-G2",
        "--job-name",
        "2 x",
        "--image=b",
        "-t",
        "5",
        str(script),
        "-t",
        "--gpu",
        "9",
    )
    outcome = muster(*words)
    assert (outcome.code, outcome.out) == (0, "job-2-x-0\n")
    assert (
        outcome.err == "Warning: train, line 6: #SBATCH after the first command has no effect, as in Slurm\n"
    )
    (job,) = server.all("jobs")
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert (container["image"], pod["activeDeadlineSeconds"]) == ("b", 300)
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert container["command"][4:] == ["-t", "--gpu", "9"]


def test_a_command_is_wrapped_in_a_script(muster: Muster, server: MemoryApiServer) -> None:
    assert muster("sbatch", "--image=busybox", "--wrap", "srun hostname | sort").code == 0
    (job,) = server.all("jobs")
    assert job["metadata"]["name"] == "wrap-0"
    assert job["spec"]["template"]["spec"]["containers"][0]["command"][2].endswith("\nsrun hostname | sort\n")
    assert muster("sbatch", "--image=busybox", "--wrap=true", "script").code == 2
    assert muster("sbatch", "/no/such/script").code == 2


@pytest.mark.parametrize("option", ["--image", "--wrap", "--time"])
def test_an_option_at_the_end_of_the_command_line_needs_its_value(
    option: str, muster: Muster, server: MemoryApiServer
) -> None:
    outcome = muster("sbatch", option)
    assert (outcome.code, server.writes()) == (2, [])
    assert outcome.err == f"Error: {option} needs a value\n"


def test_the_image_can_come_from_the_template_of_the_project(muster: Muster, server: MemoryApiServer) -> None:
    missing = muster("sbatch", "--wrap", "true")
    assert (missing.code, server.writes()) == (2, [])
    assert "--image must be set" in missing.err
    assert muster("template", "create", "team", "--default", "--set", "image=python:3.12").code == 0
    assert muster("sbatch", "--wrap", "true").code == 0
    (job,) = server.all("jobs")
    assert job["spec"]["template"]["spec"]["containers"][0]["image"] == "python:3.12"


@pytest.mark.parametrize("options", ["-A gpu", "-J x -p gpu", "-J x --partition=gpu"])
def test_a_partition_or_an_account_is_the_project_and_said(
    options: str, muster: Muster, server: MemoryApiServer
) -> None:
    outcome = muster("sbatch", "--image=a", *options.split(), "--wrap", "true")
    assert (outcome.code, server.writes()) == (1, [])
    warning, error = outcome.err.splitlines()
    assert warning.endswith(" gpu is the project")
    assert "project gpu was not found" in error


def test_variables_of_sbatch_in_this_shell_are_named() -> None:
    assert _translated("true", environment={"SBATCH_QOS": "long", "HOME": "/"}).notes == (
        "job.sh: SBATCH_QOS of this shell has no effect; give the option instead",
    )


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from([*"\"'`$(){}\\;&|#<> \n", "<<E\n", "E\n", "srun", "$SLURM_X", "#SBATCH -", "-", "a="])
    )
)
def test_any_script_is_translated_or_refused(parts: list[str]) -> None:
    result = _translated("".join(parts))
    assert bool(result.words) != bool(result.problems)


def test_the_tables_are_disjoint_and_documented() -> None:
    assert not OPTIONS.keys() & ADVICE.keys()
    assert not OPTIONS.keys() & NO_EFFECT.keys()
    assert not ADVICE.keys() & NO_EFFECT.keys()
    assert set(LETTERS.values()) <= {*OPTIONS, *ADVICE, *NO_EFFECT}
    named = set(re.findall(r"`--([a-z-]+)`", HOW_TO.read_text(encoding="utf-8")))
    assert named >= {*OPTIONS, *NO_EFFECT}
