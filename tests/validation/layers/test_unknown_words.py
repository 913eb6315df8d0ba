"""Unknown elements and lines in the output of healthy hosts always cause a finding."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.validation import host_doubles as doubles
from tests.validation.host_doubles import NAMES, FakeHosts
from validation.judge.check_verdict import Circumstances, Judgement, Window
from validation.judge.events import ToolRan
from validation.judge.verdict import Verdict
from validation.layers.checks import LAYERS, judge_layer
from validation.layers.tools import TOOLS

WORDS = """Yes True Active Pending Reset Reboot Failure Failed Degraded Unhealthy Exceeded Faulty frobnicated ERR!
Unknown-Error In-Progress"""
SICK_WORDS = st.sampled_from([word.replace("-", " ") for word in WORDS.split()])
NAMES_OF_ELEMENTS = st.from_regex(r"[a-z]{3,8}(_[a-z]{3,8}){1,2}", fullmatch=True)
LINES = st.from_regex(r"[A-Z][a-z]{2,8}( [a-z]{2,8}){1,3}", fullmatch=True)
OF_GPUS = ("state", "memory", "fabric", "pcie")


def judge(layers: tuple[str, ...], tool: str, text: str) -> dict[str, Judgement]:
    """Return the judgements on two healthy DGX-1; on the second, the tool prints this text."""
    hosts = FakeHosts({(NAMES[1], tool): doubles.Output(text)})
    site = hosts.scope.site
    events = [hosts.ran(TOOLS[name], host.name, "") for _ in (1, 2) for host in site.hosts for name in TOOLS]
    window = Window(0, 0, len(events), 0, 10)
    assert all(isinstance(event, ToolRan) for event in events)
    return {layer: judge_layer(layer, hosts.scope, Circumstances(), events, window)[0] for layer in layers}


def passes(judgements: dict[str, Judgement]) -> bool:
    return all(judgement.verdict == Verdict.PASS for judgement in judgements.values())


def test_healthy_hosts_pass_every_layer_that_has_a_subject() -> None:
    found = judge(tuple(set(LAYERS) - {"fabric", "kubelets", "nccl-nodes", "drift"}), "remove", "")
    assert {layer: judged.reason for layer, judged in found.items() if judged.verdict != Verdict.PASS} == {}


@settings(max_examples=25, deadline=None)
@given(name=NAMES_OF_ELEMENTS, word=SICK_WORDS, place=st.integers(0, 10**6))
def test_an_element_that_is_not_known_is_named(name: str, word: str, place: int) -> None:
    text = doubles.nvidia_smi(NAMES[1])
    ends = [match.start() for match in re.finditer(r"</|<(?=\w)", text[text.index("<driver_version>") :])]
    at = text.index("<driver_version>") + ends[place % (len(ends) - 1)]
    before, after = text[:at], text[at:]
    element = f"<{name}>{word}</{name}>"
    if re.search(
        r">[^<>\s][^<>]*$", before
    ):  # not between a start tag and its end tag, where the element would cut a value
        return
    found = judge(("state",), "nvidia-smi", before + element + after)
    assert not passes(found)
    assert name in found["state"].reason or word in found["state"].reason


@settings(max_examples=12, deadline=None)
@given(
    name=st.sampled_from(["errors", "failed_links", "row_faults", "pending_repairs", "lost_lanes"]),
    count=st.integers(1, 10**9),
)
def test_a_number_of_errors_that_is_not_known_is_named(name: str, count: int) -> None:
    text = doubles.nvidia_smi(NAMES[1]).replace("</gpu>", f"<new_{name}>{count}</new_{name}></gpu>", 1)
    assert f"new_{name} is '{count}'" in judge(("state",), "nvidia-smi", text)["state"].reason


LINE_TOOLS = {
    "kernel-log": "faults",
    "counters": "links",
    "nvlink": "nvlink",
    "nvlink-errors": "nvlink-errors",
    "topology": "nvlink",
    "ibstat": "rails",
    "ethtool": "interfaces",
    "lspci": "access-control",
    "lsmod": "peer-memory",
    "clock-source": "clock-source",
    "frames": "mtu",
    "write": "written",
    "read": "written",
    "nccl": "nccl",
    "fio": "fio",
    "burn-in": "burn-in",
    "samples": "load",
    "nccl-nodes": "nccl-nodes",
    "fabric-manager": "fabric",
}
"""The tools that print lines, each with a check that reads them."""
JSON_TOOLS = {"interfaces": "mtu", "mounts": "mounts", "fio": "fio"}
OTHERS = {"nvidia-smi", "remove"}
"""The XML has tests of its own; the output of rm is not read."""


def test_unknown_text_is_inserted_into_the_output_of_every_tool() -> None:
    assert {*LINE_TOOLS, *JSON_TOOLS, *OTHERS} == set(TOOLS)


@pytest.mark.parametrize("tool", LINE_TOOLS)
@settings(max_examples=12, deadline=None)
@given(words=LINES, place=st.integers(0, 10**6))
def test_a_line_that_is_not_known_is_not_passed(tool: str, words: str, place: int) -> None:
    lines = doubles.outputs(NAMES[1])[tool].text.splitlines(keepends=True)
    line = f"[ 7.0] NVRM: {words}\n" if tool == "kernel-log" else f"{words}\n"
    at = 1 if tool == "fio" else place % len(lines) + 1
    text = line + "".join(lines) if tool == "fio" else "".join([*lines[:at], line, *lines[at:]])
    assert not passes(judge((LINE_TOOLS[tool],), tool, text))


@pytest.mark.parametrize("tool", JSON_TOOLS)
@settings(max_examples=12, deadline=None)
@given(name=NAMES_OF_ELEMENTS, word=SICK_WORDS, place=st.integers(0, 10**6))
def test_a_text_in_json_that_is_not_known_is_named(tool: str, name: str, word: str, place: int) -> None:
    text = doubles.outputs(NAMES[1])[tool].text
    starts = [match.end() for match in re.finditer(r"\{(?=\s*\")", text)]
    at = starts[place % len(starts)]
    found = judge((JSON_TOOLS[tool],), tool, f'{text[:at]}"{name}": "{word}", {text[at:]}')
    assert f"{name} is {word}" in found[JSON_TOOLS[tool]].reason
    assert not passes(found)


@settings(max_examples=12, deadline=None)
@given(
    word=st.sampled_from(["error", "failed", "timed out", "degraded", "unhealthy", "lost", "fatal", "not responding"]),
    who=st.sampled_from(["EDAC MC0: ", "mce: ", "mlx5_core 0000:a1:00.0: ", "pcieport 0000:b0:02.0: ", "NFS: "]),
    words=LINES,
)  # fmt: skip
def test_a_line_of_hardware_with_the_word_of_a_fault_is_not_passed(word: str, who: str, words: str) -> None:
    found = judge(("faults",), "kernel-log", f"[ 0.0] Linux version 6.8\n[ 7.0] {who}{words} {word}\n")
    assert not passes(found)


def test_a_failure_that_a_test_program_prints_is_not_passed() -> None:
    for tool, layer in (("nccl", "nccl"), ("burn-in", "burn-in"), ("fio", "fio")):
        text = doubles.outputs(NAMES[1])[tool].text
        found = judge((layer,), tool, f"2 tests FAILED\n{text}")
        assert found[layer].verdict == Verdict.FAIL
        assert NAMES[1] in found[layer].reason
