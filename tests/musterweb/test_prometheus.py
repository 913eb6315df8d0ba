"""History from Prometheus: which figures each user sees, and the remarks about wrong or missing answers."""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from musterweb.errors import HistoryAway
from musterweb.history_model import OTHERS, Span
from musterweb.prometheus import (
    CLUSTER_QUERIES,
    MAX_ANSWER_BYTES,
    MAX_SERIES,
    NEWEST_QUERY,
    PROJECT_QUERIES,
    PrometheusHistory,
    _matcher,
)
from tests.cli.test_monitoring import NAME, known

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

NOW = 1_700_000_000.0
SPAN = Span.last(1, NOW)
POINTS = len(SPAN.times)

Json = dict[str, Any]


class FakePrometheus:
    """Answers every range query with the same series, in the form of
    https://prometheus.io/docs/prometheus/latest/querying/api/.
    """

    def __init__(self) -> None:
        self.series: dict[str, list[tuple[float, str]]] = {}
        self.newest: str | None = str(NOW - 10)
        self.queries: list[str] = []
        self.answer: Callable[[Json], web.StreamResponse | None] = lambda _document: None
        self.silence: asyncio.Event | None = None

    def constant(self, project: str, value: str) -> None:
        self.series[project] = [(float(at), value) for at in SPAN.times]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        words = {name: values[0] for name, values in parse_qs(await request.text()).items()}
        self.queries.append(words["query"])
        if self.silence is not None:
            await self.silence.wait()
        document = self._newest() if words["query"] == NEWEST_QUERY else self._range(words["query"])
        return self.answer(document) or web.json_response(document)

    def _newest(self) -> Json:
        result = [] if self.newest is None else [{"metric": {}, "value": [NOW, self.newest]}]
        return {"status": "success", "data": {"resultType": "vector", "result": result}}

    def _range(self, query: str) -> Json:
        if query.startswith("avg_over_time(cluster:"):
            result: list[Json] = [{"metric": {}, "values": [[at, "0.5"] for at in SPAN.times]}]
        else:
            result = [
                {"metric": {"project": name}, "values": [list(pair) for pair in pairs]}
                for name, pairs in self.series.items()
            ]
        return {"status": "success", "data": {"resultType": "matrix", "result": result}}


@asynccontextmanager
async def connected(
    fake: FakePrometheus, *, clock: Callable[[], float] = lambda: NOW, limit_seconds: float = 10
) -> AsyncIterator[PrometheusHistory]:
    app = web.Application()
    app.router.add_post("/api/v1/{call}", fake.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    history = PrometheusHistory(
        f"http://127.0.0.1:{runner.addresses[0][1]}/", clock=clock, limit_seconds=limit_seconds
    )
    await history.start()
    try:
        yield history
    finally:
        if fake.silence is not None:
            fake.silence.set()
        await history.close()
        await runner.cleanup()


def test_every_query_names_series_of_the_rules_and_the_operator() -> None:
    for text in (*PROJECT_QUERIES.values(), *CLUSTER_QUERIES.values(), NEWEST_QUERY):
        names = set(NAME.findall(text))
        assert names
        assert names <= known()


async def test_windows_of_sums_are_one_step_long() -> None:
    fake = FakePrometheus()
    async with connected(fake) as history:
        await history.read(SPAN, None)
    summed = [query for query in fake.queries if "muster_project_wait_seconds_" in query]
    assert len(summed) == 2
    for query in summed:
        assert set(re.findall(r"(?:increase|resets)\([^[]+\[(\d+)s\]", query)) == {str(SPAN.step)}
        assert set(re.findall(r"offset (\d+)s", query)) == {str(SPAN.step)}


async def test_a_user_with_all_rights_gets_all_projects_and_the_cluster() -> None:
    fake = FakePrometheus()
    fake.constant("team-a", "0.75")
    fake.constant(OTHERS, "0.25")
    async with connected(fake) as history:
        record = await history.read(SPAN, None)
    assert set(record.projects) == {"team-a", OTHERS}
    assert record.projects["team-a"].allocated == [0.75] * POINTS
    assert record.cluster is not None
    assert record.cluster.utilization == [0.5] * POINTS
    assert (record.as_of, record.problems) == (NOW - 10, ())


async def test_a_member_gets_the_own_projects_for_any_answer() -> None:
    fake = FakePrometheus()
    for name in ("team-a", "team-b", OTHERS, "", "__proto__", "team-a\n"):
        fake.constant(name, "0.5")
    async with connected(fake) as history:
        record = await history.read(SPAN, frozenset({"team-a"}))
        nobody = await history.read(SPAN, frozenset())
    assert set(record.projects) == {"team-a"}
    assert record.cluster is None
    assert any("projects that it was not asked for" in problem for problem in record.problems)
    assert not any("team-b" in problem for problem in record.problems)
    assert not any("cluster:" in query for query in fake.queries)
    assert all('{project=~"team-a"}' in query for query in fake.queries if query != NEWEST_QUERY)
    assert (nobody.projects, nobody.cluster) == ({}, None)


@given(st.frozensets(st.text(alphabet=st.sampled_from("ab-.\"\\|*(){}=~\n'")), min_size=1))
def test_no_name_leaves_the_quotes_of_the_selector(names: frozenset[str]) -> None:
    inner = _matcher(names).removeprefix('{project=~"').removesuffix('"}')
    assert set(inner) <= set("ab-.|[]")


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1", "1e300", "many", ""])
async def test_a_missing_figure_is_a_gap(value: str) -> None:
    fake = FakePrometheus()
    fake.constant("team-a", "0.5")
    fake.series["team-a"][3] = (fake.series["team-a"][3][0], value)
    async with connected(fake) as history:
        record = await history.read(SPAN, frozenset({"team-a"}))
    line = record.projects["team-a"].allocated
    assert (line[2], line[3], line[4]) == (0.5, None, 0.5)
    assert bool(record.problems) == (value != "NaN"), "that says itself that there is no figure"


async def test_a_utilization_beyond_all_of_a_gpu_is_left_out_and_said() -> None:
    fake = FakePrometheus()
    fake.constant("team-a", "37")
    async with connected(fake) as history:
        record = await history.read(SPAN, None)
    assert record.projects["team-a"].allocated == [37] * POINTS
    assert record.projects["team-a"].utilization == [None] * POINTS
    assert any("figures that cannot be" in problem for problem in record.problems)


async def test_figures_of_other_times_and_of_a_project_twice_are_left_out_and_said() -> None:
    fake = FakePrometheus()
    fake.series["team-a"] = [(SPAN.start - 60.0, "1"), (SPAN.start + 0.5, "1"), (SPAN.start + 60.0, "0.5")]

    def twice(document: Json) -> None:
        data = document["data"]
        if data["resultType"] == "matrix":
            data["result"] += data["result"]

    fake.answer = twice
    async with connected(fake) as history:
        record = await history.read(SPAN, None)
    assert [value for value in record.projects["team-a"].allocated if value is not None] == [0.5]
    said = " ".join(record.problems)
    assert "figures of times that it was not asked for" in said
    assert "several answers for one project" in said


@pytest.mark.parametrize(
    ("newest", "words"),
    [
        (None, "has no figures of muster's operator"),
        ("NaN", "has no figures of muster's operator"),
        ("1e300", "has no figures of muster's operator"),
        ("-1e18", "has no figures of muster's operator"),
        (str(NOW - 660), "11 minutes old: nothing here is current"),
        (str(NOW + 3600), "a time that has not come yet"),
    ],
)
async def test_old_figures_are_never_called_current(newest: str | None, words: str) -> None:
    fake = FakePrometheus()
    fake.constant("team-a", "0.5")
    fake.newest = newest
    async with connected(fake) as history:
        record = await history.read(SPAN, None)
    assert any(words in problem for problem in record.problems)
    assert record.as_of is None or datetime.fromtimestamp(record.as_of, UTC).year < 10_000


def series(*pairs: list[object], count: int = 1) -> web.StreamResponse:
    result = [{"metric": {"project": f"p{number}"}, "values": list(pairs)} for number in range(count)]
    return web.json_response({"status": "success", "data": {"resultType": "matrix", "result": result}})


def large(_document: Json) -> web.StreamResponse:
    return web.Response(body=b"x" * (MAX_ANSWER_BYTES + 1))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda _document: web.Response(text="<html>welcome"), "nothing that can be read"),
        (lambda _document: web.Response(text="[" * 100_000), "nothing that can be read"),
        (lambda _document: web.Response(text="null"), "nothing that can be read"),
        (lambda _document: web.Response(status=503, text="{}"), "refused the question"),
        (lambda _document: web.json_response({"status": "error", "error": "boom"}, status=422), "refused the question"),
        (lambda _document: web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"}), "nothing that can"),
        (lambda document: web.json_response({**document, "data": {"resultType": "scalar", "result": []}}), "refused"),
        (
            lambda _document: web.json_response(
                {"status": "success", "data": {"resultType": "matrix", "result": [{"metric": None}]}}
            ),
            "refused|no series",
        ),
        (lambda _document: series([10**400, "1"]), "refused|no series"),
        (lambda _document: series(count=MAX_SERIES + 1), "refused|more than 2000 projects"),
        (large, "answers with more than"),
    ],
)  # fmt: skip
async def test_a_strange_answer_of_a_prometheus_is_one_clear_line(
    answer: Callable[[Json], web.StreamResponse], words: str
) -> None:
    fake = FakePrometheus()
    fake.answer = answer
    async with connected(fake) as history:
        with pytest.raises(HistoryAway, match=words) as refused:
            await history.read(SPAN, frozenset({"team-a"}))
    assert "\n" not in str(refused.value)


async def test_one_that_does_not_answer_costs_no_more_than_the_limit() -> None:
    fake = FakePrometheus()
    fake.silence = asyncio.Event()
    async with connected(fake, limit_seconds=0.2) as history:
        started = time.monotonic()
        with pytest.raises(HistoryAway, match="not answer"):
            await history.read(SPAN, None)
        assert time.monotonic() - started < 5


async def test_one_that_is_away_is_named_without_the_password_in_its_address() -> None:
    history = PrometheusHistory("http://ann:secret@127.0.0.1:1/")
    await history.start()
    with pytest.raises(HistoryAway, match=r"Prometheus at 127\.0\.0\.1 does not answer") as refused:
        await history.read(SPAN, None)
    assert "secret" not in str(refused.value)
    await history.close()


def test_periods_have_points_enough_and_no_more() -> None:
    for hours in (1, 6, 24, 168, 720, 8760):
        span = Span.last(hours, NOW)
        assert 50 < len(span.times) <= 401
        assert span.end <= NOW
        assert span.end % span.step == span.start % span.step == 0
        assert math.isclose(span.end - span.start, hours * 3600, rel_tol=0.1)
    assert json.dumps(list(Span.last(1, NOW).times))
