"""Every possible answer of an API server has a verdict, and PASS is only for the right answers."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.validation.api_targets import HONEST
from validation.judge.api.api_checks import API_CHECKS, judge_api, only_judged
from validation.judge.api.api_request import Request
from validation.judge.check_verdict import Circumstances, Window
from validation.judge.events import Event, RequestAnswered
from validation.judge.evidence import NO_EVIDENCE
from validation.judge.timeline import Timeline
from validation.judge.verdict import Verdict

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def answers(name: str) -> list[RequestAnswered]:
    """Return all answers of an honest API server to the requests of the check."""
    requests = list(API_CHECKS[name].requests)
    requests += [Request("DELETE", request.created) for request in requests if request.created]
    events = []
    for request in requests:
        status, answer = HONEST[request.method, request.path]
        text = msgspec.json.encode(answer).decode()
        if isinstance(answer, str):
            text = "\n".join(line.strip() for line in answer.splitlines())
        events.append(RequestAnswered(0, name, request.method, request.path, status, text, request.body))
    return events


def verdict(name: str, events: list[RequestAnswered]) -> str:
    everything: list[Event] = [*events]
    window = Window(0, 0, len(everything), 0, 0)
    return judge_api(name, Circumstances(), Timeline(everything), window, least=NO_EVIDENCE).judgement.verdict


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values in a document."""
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    return [path, *(place for key, entry in entries for place in places(entry, (*path, key)))]


def replaced(document: Any, place: tuple[Any, ...], other: Any) -> Any:
    """Return the document with another value at this path."""
    if not place:
        return other
    copy = dict(document) if isinstance(document, dict) else list(document)
    copy[place[0]] = replaced(copy[place[0]], place[1:], other)
    return copy


@pytest.mark.parametrize("name", API_CHECKS)
def test_an_honest_one_passes_and_each_request_that_is_not_sent_is_missed(name: str) -> None:
    events = answers(name)
    assert verdict(name, events) == "PASS"
    count = len(API_CHECKS[name].requests)
    for number in range(count):
        assert verdict(name, events[:number]) == "INCONCLUSIVE"
        assert verdict(name, [*events[:number], *events[number + 1 :]]) != "PASS"
    for number in range(count, len(events)):
        assert verdict(name, [*events[:number], *events[number + 1 :]]) == "ERROR"


@pytest.mark.parametrize("name", API_CHECKS)
@given(data=st.data())
def test_there_is_a_verdict_for_any_answer(name: str, data: st.DataObject) -> None:
    events = answers(name)
    objects = [number for number, event in enumerate(events) if "/log?" not in event.path]
    number = data.draw(st.sampled_from(objects))
    document = msgspec.json.decode(events[number].answer)
    place = data.draw(st.sampled_from(places(document)))
    text = msgspec.json.encode(replaced(document, place, data.draw(JSON))).decode()
    events[number] = msgspec.structs.replace(
        events[number], answer=text, status=data.draw(st.sampled_from([200, 201, 404, 500]))
    )
    result = verdict(name, events)
    assert result in set(Verdict)
    assert verdict(name, [only_judged(event) for event in events]) == result


def test_a_node_whose_name_is_no_text_proves_nothing() -> None:
    events = answers("client")
    document = msgspec.json.decode(events[2].answer)
    text = msgspec.json.encode(replaced(document, ("items", 0, "spec", "nodeName"), {"": None})).decode()
    events[2] = msgspec.structs.replace(events[2], answer=text)
    assert verdict("client", events) == "FAIL"


@pytest.mark.parametrize(
    "place", [("spec", "containers", 1, "name"), ("status", "containerStatuses", 0, "name")]
)
def test_a_container_whose_name_is_no_text_proves_nothing(place: tuple[str | int, ...]) -> None:
    events = answers("pod")
    number = next(number for number, event in enumerate(events) if "Succeeded" in event.answer)
    text = msgspec.json.encode(replaced(msgspec.json.decode(events[number].answer), place, [])).decode()
    events[number] = msgspec.structs.replace(events[number], answer=text)
    assert verdict("pod", events) == "FAIL"


def test_another_claim_than_is_printed_is_no_evidence() -> None:
    events = answers("claim")
    events[1] = msgspec.structs.replace(events[1], body=events[1].body.replace("gpu.nvidia.com", "other"))
    assert verdict("claim", events) == "ERROR"
