"""The recorder of muster's own history: which figures it records, with which token, and the remark if it cannot
record.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from musterweb.history_store import Store
from musterweb.recorder import RecordedHistory
from musterweb.sights import Sights
from orchestrator.cluster.kubeconfig import load_server
from tests.cluster.waiting import DEADLINE_SECONDS
from tests.musterweb.conftest import Site, add_job, fill
from tests.musterweb.people import Someone
from tests.musterweb.running import serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cli.conftest import Outcome
    from tests.cli.memory_api_server import MemoryApiServer
    from tests.musterweb.people import People
    from tests.musterweb.running import Answer

ROBOT = "token-of-the-recorder"


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(ROBOT + "\n")
    return path


@pytest.fixture
def site(
    server: MemoryApiServer, people: People, kubeconfig: Path, tmp_path: Path, token_file: Path
) -> Iterator[Site]:
    fill(server)
    people.by_token[ROBOT] = Someone("recorder")
    access = load_server(kubeconfig)
    history = RecordedHistory(
        Store(tmp_path / "history.db"), access, token_file, Sights(), record_seconds=0.2, retry_seconds=0.2
    )
    with serving(access, history=history) as port:
        yield Site(port, server, people)


def until_page(site: Site, name: str, project: str, condition: Callable[[Answer], Any]) -> Answer:
    browser = site.browser(name, project)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        answer = browser.get("/analytics?hours=1")
        assert answer.status == 200, answer.words
        if condition(answer):
            return answer
        assert time.monotonic() < deadline, answer.words


def test_the_accounts_view_is_recorded_while_no_user_looks_and_shown_by_ones_own_rights(
    site: Site,
) -> None:
    everything = until_page(
        site, "sue", "", lambda answer: "team-b" in answer.text and "as of" in answer.words
    )
    # columns PROJECT, NOW, MEAN, MOST, QUOTA
    assert everything.row("team-a")[:5] == ["team-a", "3", "3", "3", "4"]
    assert everything.row("team-b")[:5] == ["team-b", "1", "1", "1", "2"]
    assert everything.row("team-a")[6] == "37%"
    assert 'data-current="yes"' in everything.text
    own = until_page(site, "vic", "team-a", lambda answer: "as of" in answer.words)
    assert own.row("team-a")[2] == "3"
    for word in ("team-b", "people-of-b", "chart-cluster"):
        assert word not in own.text
    tokens = set(site.people.tokens)
    assert {ROBOT, "token-of-sue", "token-of-vic"} == tokens


def test_a_job_that_starts_is_counted_with_its_wait(site: Site) -> None:
    until_page(site, "sue", "", lambda answer: "as of" in answer.words)
    pod = add_job(site.server, "muster-team-a", "a-later", gpus=1, why="full")
    until_page(site, "sue", "", lambda answer: "a-later" in site.browser("sue").get("/jobs").text)
    time_of_start = "2099-01-01T00:00:00Z"
    pod["spec"]["nodeName"] = "dgx1-2"
    pod["status"] = {"phase": "Running", "startTime": time_of_start, "conditions": []}
    site.server.add(pod)
    answer = until_page(site, "sue", "", lambda answer: answer.row("team-a")[8] == "1")
    assert answer.row("team-b")[8] == "0"


@pytest.mark.parametrize(
    ("token", "words"),
    [
        ("token-of-vic\n", "may not see all jobs, nodes and projects: bind muster-viewer"),
        ("nobody\n", "does not accept this token"),
        ("\xff", "cannot be read"),
    ],
)
def test_why_nothing_is_recorded_is_on_the_page(site: Site, token_file: Path, token: str, words: str) -> None:
    token_file.write_text(token, encoding="latin-1")
    site.people.by_token[ROBOT].is_valid = False
    answer = until_page(site, "sue", "", lambda answer: words in answer.words)
    assert "Nothing is recorded at present" in answer.words
    assert 'data-current="yes"' not in answer.text


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--history", "file"), "give both"),
        (
            ("--history", "f", "--history-token", "t", "--prometheus", "http://h:9090"),
            "exclude each other",
        ),
        (("--prometheus", "prometheus:9090"), "give a URL such as"),
        (("--prometheus", "http://user:word@host:9090"), "give a URL such as"),
        (("--history", "/missing/file", "--history-token", "t"), "cannot be written"),
    ],
)
def test_impossible_options_are_refused_in_one_line(
    muster: Callable[..., Outcome], flags: tuple[str, ...], words: str
) -> None:
    outcome = muster("web", "--listen", "127.0.0.1:0", *flags)
    assert outcome.code != 0
    assert (words in outcome.err, outcome.err.count("\n")) == (True, 1)
