"""`muster list`: the table, its formats for programs, and the text if there is nothing to list."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.cli.memory_api_server import pod_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Outcome
    from tests.cli.memory_api_server import MemoryApiServer

HEADER = "NAME STATUS AGE NODE IMAGE TYPE PROJECT USER GPUs|CREATED BY CLI|SERVICE URL(S)"
COLUMNS = [*HEADER.split("|", maxsplit=1)[0].split(), *HEADER.split("|")[1:]]
NAMESPACE = "muster-team-a"
START = "2026-01-01T00:00:0{}Z"


def test_the_table_has_the_columns_that_scripts_expect(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    muster("submit", "hyper1", "-i", "image", "-g", "1", "-u", "yaron")
    job = _job(server, "hyper1")
    server.add(pod_of(job, "hyper1-abc", phase="Running", node_name="dgx1-1", startTime=START.format(1)))
    first, header, line = muster("list").lines
    assert first == "Showing jobs for project team-a"
    assert re.split(r" {2,}", header) == COLUMNS
    age = re.split(r" {2,}", line)[2]
    assert re.fullmatch(r"\d+[smhdy]", age)
    assert re.split(r" {2,}", line) == [
        "hyper1",
        "Running",
        age,
        "dgx1-1",
        "image",
        "Train",
        "team-a",
        "yaron",
        "1",
        "true",
    ]


def test_every_cell_but_the_last_is_filled_so_that_awk_can_count(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    muster("submit", "waiting", "-i", "image")
    assert muster("list").lines[2].split()[:5] == ["waiting", "Pending", "0s", "-", "image"]


def test_jobs_that_never_started_stand_on_top_then_the_newest_first(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    for number, name in enumerate(("older", "newer", "early-waits", "late-waits")):
        muster("submit", name, "-i", "image")
        if number < 2:
            status = {"phase": "Running", "node_name": "dgx1-1", "startTime": START.format(number)}
            server.add(pod_of(_job(server, name), f"{name}-0", **status))
    assert muster("list", "-o", "name").lines == ["late-waits", "early-waits", "newer", "older"]


def test_all_projects_are_listed_without_a_first_line(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    muster("submit", "one", "-i", "image")
    muster("submit", "two", "-i", "image", "-p", "team-b")
    lines = muster("list", "-A").lines
    assert lines[0].startswith("NAME")
    assert sorted((line.split()[0], line.split()[6]) for line in lines[1:]) == [
        ("one", "team-a"),
        ("two", "team-b"),
    ]


def test_no_headers_leaves_only_rows(muster: Callable[..., Outcome]) -> None:
    muster("submit", "one", "-i", "image")
    assert [line.split()[0] for line in muster("list", "--no-headers").lines] == ["one"]
    muster("delete", "one")
    assert muster("list", "--no-headers").out == ""


def test_json_and_yaml_say_the_same(muster: Callable[..., Outcome], server: MemoryApiServer) -> None:
    muster("submit", "frac05", "-i", "image", "-g", "0.5", "--interactive")
    (entry,) = muster("list", "-o", "json").json
    assert {key: entry[key] for key in ("name", "project", "type", "status", "gpus")} == {
        "name": "frac05",
        "project": "team-a",
        "type": "Interactive",
        "status": "Pending",
        "gpus": "0.5",
    }
    (other,) = yaml.safe_load(muster("list", "-o", "yaml").out)
    assert other.keys() == entry.keys()


def test_ingress_and_load_balancer_addresses_are_shown_once_they_are_known(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    muster("submit", "note", "-i", "image", "--interactive", "-s", "ingress", "--port", "8888")
    assert muster("list").lines[2].split()[-1] == "<pending>"
    ingress = server.find("ingresses", "note", NAMESPACE)
    assert ingress is not None
    ingress["status"] = {"loadBalancer": {"ingress": [{"ip": "10.61.218.134"}]}}
    urls = "http://10.61.218.134/team-a-note,https://10.61.218.134/team-a-note"
    assert muster("list").lines[2].split()[-1] == urls


def test_an_ingress_with_a_host_is_shown_by_it_once_a_controller_serves_it(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    space = server.find("namespaces", NAMESPACE)
    assert space is not None
    space["metadata"]["annotations"] = {"muster.dev/ingress-host": "team-a.gpus.example.com"}
    muster("submit", "note", "-i", "image", "--interactive", "-s", "ingress", "--port", "8888")
    assert muster("list").lines[2].split()[-1] == "<pending>"
    ingress = server.find("ingresses", "note", NAMESPACE)
    assert ingress is not None
    ingress["status"] = {"loadBalancer": {"ingress": [{"ip": "10.61.218.134"}, {"ip": "10.61.218.135"}]}}
    url = "://team-a.gpus.example.com/team-a-note"
    assert muster("list").lines[2].split()[-1] == f"http{url},https{url}"
    assert f"http{url}" in muster("describe", "job", "note").out


def test_several_nodes_are_shown_as_multiple(muster: Callable[..., Outcome], server: MemoryApiServer) -> None:
    muster("submit", "gang", "-i", "image", "--completions", "2", "--parallelism", "2", "-g", "2")
    job = _job(server, "gang")
    for name in ("dgx1-1", "dgx1-2"):
        server.add(pod_of(job, f"gang-{name}", phase="Running", node_name=name))
    cells = muster("list").lines[2].split()
    assert (cells[3], cells[8]) == ("<multiple>", "4")


def test_without_a_default_project_the_error_says_how_to_choose_one(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    namespace = server.find("namespaces", "muster-team-a")
    assert namespace is not None
    namespace["metadata"]["labels"].clear()
    outcome = muster("list")
    assert outcome.code == 1
    assert "muster project set" in outcome.err


def test_an_unknown_project_is_named(muster: Callable[..., Outcome]) -> None:
    outcome = muster("list", "-p", "nobody")
    assert (outcome.code, outcome.out) == (1, "")
    assert "project nobody was not found" in outcome.err
    assert "muster project list" in outcome.err


def _job(server: MemoryApiServer, name: str) -> dict[str, object]:
    job = server.find("jobs", name, NAMESPACE)
    assert job is not None
    return job


def test_the_list_is_asked_for_a_choice_of_jobs_columns_order_and_number(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    for name, user, label in (("bert", "ann", "nlp"), ("gpt", "bob", "nlp"), ("resnet", "ann", "vision")):
        muster("submit", name, "-i", "image", "-u", user, "-l", f"field={label}")
    server.add(pod_of(_job(server, "gpt"), "gpt-0", phase="Running", node_name="dgx1-1"))
    choices: list[tuple[tuple[str, ...], set[str]]] = [
        (("--user", "ann"), {"bert", "resnet"}),
        (("-l", "field=nlp", "--user", "ann"), {"bert"}),
        (("--status", "running,failed"), {"gpt"}),
        (("--node", "dgx1-1", "--node", "dgx1-2"), {"gpt"}),
        (("--since", "1h"), {"bert", "gpt", "resnet"}),
        (("--sort", "-name", "--limit", "1"), {"resnet"}),
    ]
    for words, names in choices:
        assert set(muster("list", "-o", "name", *words).lines) == names, words
    (shown,) = muster("list", "--columns", "priority,name", "--no-headers", "--user", "bob").lines
    assert shown.split() == ["muster-train", "gpt"]
    lines = muster("list", "--columns", "user,NAME", "--sort", "name", "--no-headers").lines
    assert [line.split() for line in lines] == [["ann", "bert"], ["bob", "gpt"], ["ann", "resnet"]]
    refused: list[tuple[tuple[str, ...], str]] = [
        (("--columns", "colour"), "--columns 'colour' is no column"),
        (("--columns", "name", "-o", "json"), "goes with a table"),
        (("--status", "Runing"), "did you mean Running?"),
        (("--sort", "colour"), "--sort 'colour'"),
        (("-l", "a in b"), "is no label selector"),
        (("nodes", "--user", "ann"), "goes with jobs only"),
        (("-w", "--limit", "2"), "not with -w/--watch"),
    ]
    for options, error in refused:
        outcome = muster("list", *options)
        assert (outcome.code, outcome.out) == (2, "")
        assert error in outcome.err


@pytest.mark.parametrize("command", ["list", "delete", "suspend", "resume", "requeue"])
def test_a_node_that_there_is_not_is_named_with_those_that_there_are(
    command: str, muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    muster("submit", "one", "-i", "image")
    server.add(pod_of(_job(server, "one"), "one-0", phase="Running", node_name="gone"))
    server.requests.clear()
    outcome = muster(command, "--node", "dgx1-2", "--node", "nosuch")
    assert (outcome.code, outcome.out) == (1, "")
    assert "--node nosuch: there is no such node; the nodes are dgx1-1, dgx1-2" in outcome.err
    assert server.writes() == []
    assert muster("list", "--node", "gone", "-o", "name").out == "one\n"
    server.refuse("GET", "/api/v1/nodes", 403, "Forbidden")
    outcome = muster("list", "--node", "nosuch")
    assert outcome.code == 0
    assert "you may not list nodes, so a node nosuch may not exist" in outcome.err
