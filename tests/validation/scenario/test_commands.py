"""The requests of command lines in scenarios, parsed without running the commands."""

import pytest

from validation.scenario.commands import Delete, Submit, parse


def test_the_notebook_of_the_paper() -> None:
    line = (
        "muster submit a-1-1-jupyter -i jupyter/base-notebook -g 1 --interactive --service-type=ingress --port 8888 "
        '--args="--NotebookApp.base_url=team-a-test-ingress" --command=start-notebook.sh -p team-a'
    )
    assert parse(line) == Submit("team-a", "a-1-1-jupyter", 1000, False, 1, 1, True, "jupyter/base-notebook")


def test_a_gang() -> None:
    line = "muster submit g -i x -g 4 --parallelism 4 --completions=4 --min-member 3 -p p"
    assert parse(line) == Submit("p", "g", 4000, True, 4, 3, False, "x")


def test_preemptible_interactive_work() -> None:
    action = parse("muster submit n -g 0.5 --interactive --preemptible=true -p p")
    assert isinstance(action, Submit)
    assert action.preemptible
    assert action.interactive


def test_several_deletions() -> None:
    assert parse("muster delete -p team-d d-1-gggg d-2-gg") == Delete("team-d", ("d-1-gggg", "d-2-gg"))


@pytest.mark.parametrize(
    "line",
    [
        "muster list",
        "muster submit -p p -g 1",
        "muster submit a b -p p",
        "muster submit a -p p --parallelism 0",
        "muster submit a -p p -g",
        "muster submit a -p p -g -1",
        "muster delete -p p",
        "muster submit 'a -p p",
    ],
)
def test_a_line_that_cannot_be_meant_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse(line)
