"""An object that several users may see is kept once, and no user is shown an object that only another may see."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from musterweb.sights import ReadingSlots, Sights, are_same
from orchestrator.cluster.kubeconfig import load_server
from tests.cluster.waiting import DEADLINE_SECONDS
from tests.musterweb.conftest import Site, add_job, fill
from tests.musterweb.people import People, Someone
from tests.musterweb.running import serving
from tests.musterweb.test_events import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.memory_api_server import MemoryApiServer


def test_each_person_sees_on_the_same_page_the_objects_of_their_rights(site: Site) -> None:
    people = {name: site.browser(name, "team-a" if name == "vic" else "") for name in ("ada", "sue", "vic")}
    for path, word, who in (("/jobs", "b-secret", "ada sue"), ("/projects", "/projects/new", "ada")):
        for _ in range(2):
            for name, browser in people.items():
                with browser.events(path) as events:
                    page = until(events, lambda kind, _: kind == "page")
                assert (word in page["html"]) == (name in who), (path, name)


def test_objects_shown_to_one_are_not_shown_to_the_other_after_a_change(site: Site) -> None:
    sue, vic = site.browser("sue"), site.browser("vic", "team-a")
    with sue.events("/jobs") as all_jobs, vic.events("/jobs") as own_jobs:
        until(all_jobs, lambda kind, _: kind == "page")
        until(own_jobs, lambda kind, _: kind == "page")
        add_job(site.server, "people-of-b", "b-new", gpus=1, why="no GPU is free")
        add_job(site.server, "muster-team-a", "a-new", gpus=1, why="no GPU is free")
        until(all_jobs, lambda kind, event: kind == "page" and "b-new" in event["html"])
        page = until(own_jobs, lambda kind, event: kind == "page" and "a-new" in event["html"])
    assert "b-new" not in page["html"]


def test_an_object_of_two_people_is_there_once_and_is_dropped_with_the_last(
    server: MemoryApiServer, people: People, kubeconfig: Path
) -> None:
    fill(server)
    people.by_token["token-of-sam"] = Someone("sam")
    sights = Sights()
    with serving(load_server(kubeconfig), sights=sights) as port:
        sue, sam = (Site(port, server, people).browser(name) for name in ("sue", "sam"))
        sue.get("/jobs")
        alone = len(sights.objects)
        sam.get("/jobs")
        assert len(sights.objects) == alone > 5
    assert len(sights.objects) == 0


def test_people_signing_in_at_the_same_moment_are_not_each_sent_all_lists(site: Site) -> None:
    names = [f"s{number}" for number in range(12)]
    site.people.by_token |= {f"token-of-{name}": Someone(name) for name in names}
    barrier = threading.Barrier(len(names))

    def open_jobs(name: str) -> str:
        browser = site.browser(name)
        barrier.wait()
        return browser.get("/jobs").text

    with ThreadPoolExecutor(len(names)) as pool:
        texts = list(pool.map(open_jobs, names))
    assert all("b-secret" in text and name in text for name, text in zip(names, texts, strict=True))
    assert site.server.requests.count(("GET", "/api/v1/pods")) < len(names) // 2


def test_a_person_whose_rights_are_not_answered_delays_no_other(
    server: MemoryApiServer, people: People, kubeconfig: Path
) -> None:
    fill(server)
    sights = Sights()
    sights.asking = ReadingSlots(count=1, seconds=0.01)
    with serving(load_server(kubeconfig), sights=sights) as port, ThreadPoolExecutor(1) as pool:
        sue, vic = (
            Site(port, server, people).browser("sue"),
            Site(port, server, people).browser("vic", "team-a"),
        )
        with people.keeping_silent_about_rights(of="vic"):
            waits = pool.submit(vic.get, "/jobs")
            assert people.unanswered.acquire(timeout=DEADLINE_SECONDS)
            assert "b-secret" in sue.get("/jobs").text
            assert not waits.done()
        assert "a-train" in waits.result().text


def test_a_member_of_one_team_begins_with_nothing_of_those_with_all_rights(site: Site) -> None:
    sue, vic = site.browser("sue"), site.browser("vic", "team-a")
    assert "b-secret" in sue.get("/jobs").text
    for path in ("/", "/jobs", "/projects", "/nodes"):
        assert "b-secret" not in vic.get(path).text
    assert "a-train" in vic.get("/jobs").text


def test_caches_are_the_same_only_with_the_same_objects() -> None:
    assert are_same([{"u": "one"}, {}], [{"u": "one"}, {}])
    for other in ([{"u": "two"}, {}], [{"v": "one"}, {}], [{"u": "one"}], [{}, {"u": "one"}]):
        assert not are_same([{"u": "one"}, {}], other)
