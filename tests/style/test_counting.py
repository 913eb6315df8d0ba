"""The counter of `tests.style` finds each pattern of the style, and nothing in prose that follows the style."""

import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.style.counts import Key, counted, dump, fallen, load, lowered, moved, risen, words_not_in_names
from tests.style.passages import Passage, ansible, module, names_of_tests, page
from tests.style.patterns import Finding, findings, page_finding, plain, sentences

EXAMPLES = yaml.safe_load(Path(__file__).with_name("examples.yaml").read_text(encoding="utf-8"))
NOT_IN_NAMES = frozenset({"who", "room", "what", "robbed"})


def patterns(text: str, kind: str = "docstring") -> list[str]:
    return [each.pattern for each in findings(Passage("a.py", 1, kind, text), NOT_IN_NAMES)]


def of_module(text: str) -> list[tuple[str, int, str]]:
    passages = module("a.py", textwrap.dedent(text))
    return [(each.kind, each.line, each.text) for each in passages if each.kind != "name"]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: each["before"][:30])
def test_an_example_has_its_patterns_before_and_none_after(example: dict[str, Any]) -> None:
    assert sorted(patterns(example["before"])) == sorted(example["patterns"])
    assert patterns(example["after"]) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What is a gang?", []),
        ("Which flags does it take?", []),
        ("See what-if and `what` in ``who``.", []),
        ('It prints "what is left" and goes on.', ["go"]),
        ("Users who submit jobs, people who read them.", []),
        ("The team lead, who submits.", ["who"]),
        ("`-t` goes with `-i`.", []),
        ("Written in Go.", []),
        ("Wait for the pod; it waits for a GPU.", []),
        ("The job waits.", ["wait"]),
        ("So far, so good.", []),
        ("It takes so much.", ["so-many"]),
        ("Place the pod first.", []),
        ("The scheduler turns it into a pod.", []),
        ("It has its turn later.", ["turn"]),
        ("Move the file to another folder.", []),
        ("Pods moved for a job.", ["move"]),
        ("The quota covers it.", ["lend"]),
        ("A ResourceClaim within the quota of its project.", []),
        ("A weaker claim.", ["claim"]),
        ("A part of a GPU.", ["part"]),
        ("NVIDIA's WHO and What.", ["what", "who"]),
        ("", []),
        ("\n \n", []),
    ],
)
def test_only_the_idiom_is_counted(text: str, expected: list[str]) -> None:
    assert patterns(text) == expected


@pytest.mark.parametrize(
    ("words", "expected"), [(25, []), (26, ["sentence"]), (61, ["paragraph", "sentence"])]
)
def test_long_sentences_and_paragraphs_are_counted(words: int, expected: list[str]) -> None:
    assert patterns("word " * (words - 1) + "end.") == expected


def test_a_paragraph_of_short_sentences_can_be_too_long() -> None:
    assert patterns("One two three four five. " * 12) == []
    assert patterns("One two three four five. " * 13) == ["paragraph"]


def test_columns_and_diagrams_have_no_length() -> None:
    table = "NoProject   " + "word " * 40
    assert not any(
        each.measured for each in module("a.py", f'"""Say it.\n\n{table}\n"""\n') if "NoProject" in each.text
    )


def test_sentences_end_at_full_stops_alone() -> None:
    text = "Use 1.5 of it, e.g. NVIDIA's (v1.2). Then: `a. B` stays; see docs/a.md. End"
    assert [each for _, each in sentences(plain(text))] == [
        "Use 1.5 of it, e.g. NVIDIA's (v1.2).",
        "Then: ` stays; see docs/a.md.",
        "End",
    ]


def test_a_finding_has_its_line() -> None:
    text = 'X = 1\n"""First line.\n\nA sentence\nover lines has what it has.\n"""\n'
    (passage,) = [each for each in module("a.py", text) if "over lines" in each.text]
    (finding,) = findings(passage, NOT_IN_NAMES)
    assert (finding.line, finding.pattern) == (5, "what")


def test_a_python_file_has_docstrings_comments_help_and_messages() -> None:
    text = '''
        """Module."""

        import click  # why this # is here

        # one
        # passage
        TEXT = "no # comment, and no comment here"  # noqa: S105

        @click.command(short_help="Short.")
        @click.option("--a", help="An "
                                  "option.")
        def run(a: str) -> None:
            """Run it."""
            raise ValueError(f"{a} is none of these: {'a'}")

        def other() -> str:
            """Return SQL."""
            return "SELECT a FROM these words"
    '''
    assert sorted(of_module(text)) == [
        ("comment", 4, "why this # is here"),
        ("comment", 6, "one\npassage"),
        ("docstring", 2, "Module."),
        ("docstring", 18, "Return SQL."),
        ("help", 10, "Short."),
        ("help", 11, "An option."),
        ("help", 14, "Run it."),
        ("message", 8, "no # comment, and no comment here"),
        ("message", 15, "`_` is none of these: `_`"),
    ]


def test_the_words_between_two_values_of_a_message_are_counted() -> None:
    text = 'raise ValueError(f"{url}: nobody says what it must be: {fix}, {sum}")'
    found = [each for passage in module("a.py", text) for each in findings(passage, NOT_IN_NAMES)]
    assert [each.pattern for each in found] == ["what", "nobody"]


def test_names_are_those_that_a_file_defines() -> None:
    text = "class WhoIs:\n    room_of: int\n\ndef f(robbed: int, what_if: int) -> None:\n    makes_room()\n"
    names = [each for each in module("roomy.py", text) if each.kind == "name"]
    assert [(each.line, each.text) for passage in names for each in findings(passage, NOT_IN_NAMES)] == [
        (1, "WhoIs"),
        (2, "room_of"),
        (4, "robbed"),
    ]


def test_names_of_tests_are_counted() -> None:
    text = "def test_who_waits() -> None: ...\n\nasync def test_room() -> None: ...\n\ndef helper_who() -> None: ...\n"
    assert [(each.line, each.text) for each in names_of_tests("tests/test_a.py", text)] == [
        (1, "test_who_waits"),
        (3, "test_room"),
    ]


def test_a_page_has_paragraphs_items_and_cells_but_no_code() -> None:
    text = "# Title\nText of\ntwo lines.\n- item\n- [other](what.md)\n\n```\nwhat\n```\n| a | what |\n|---|---|\n"
    passages = list(page("a.md", text))
    assert [(each.line, each.text.strip()) for each in passages if each.text.strip()] == [
        (1, "# Title"),
        (2, "Text of\ntwo lines."),
        (4, "- item"),
        (5, "- [other](what.md)"),
        (10, "a"),
        (10, "what"),
    ]
    assert [each.line for passage in passages for each in findings(passage, frozenset())] == [10]


@pytest.mark.parametrize(("words", "expected"), [(1500, 0), (1501, 1), (2000, 1), (2001, 2), (0, 0)])
def test_a_page_counts_for_each_step_above_the_limit(words: int, expected: int) -> None:
    assert len(list(page_finding("a.md", words))) == expected


def test_ansible_has_names_descriptions_and_comments() -> None:
    text = '# Why.\n- name: Say what changed # here\n  short_description: "Who runs"\n  name: pkg\n'
    assert [(each.kind, each.line, each.text) for each in ansible("roles/a/tasks/main.yml", text)] == [
        ("task", 2, "Say what changed"),
        ("task", 3, "Who runs"),
        ("comment", 1, "Why."),
        ("comment", 2, "here"),
    ]


A, B, C = Key("p/a.py", "docstring.what"), Key("p/b.py", "docstring.what"), Key("q/c.py", "docstring.what")


def test_counts_survive_the_file() -> None:
    assert load(dump({B: 2, A: 1, C: 0})) == {A: 1, B: 2}
    assert dump({B: 2, A: 1}) == "p/a.py docstring.what 1\np/b.py docstring.what 2\n"


def test_a_conflict_is_read_with_the_higher_counts() -> None:
    text = "<<<<<<< HEAD\np/a.py docstring.what 1\n=======\np/a.py docstring.what 3\n>>>>>>> other\n"
    assert load(text) == {A: 3}


@pytest.mark.parametrize("text", ["p/a.py docstring.what many\n", "one\n"])
def test_a_line_that_is_no_count_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="no count"):
        load(text)


def test_a_new_file_starts_at_zero() -> None:
    assert risen({A: 1}, {A: 1, B: 1}) == [B]
    assert lowered({A: 1}, {A: 1, B: 1}) == {A: 1}


def test_counts_are_lowered_and_never_raised() -> None:
    assert fallen({A: 3, B: 1}, {A: 2, B: 2}) == [A]
    assert lowered({A: 3, B: 1, C: 1}, {A: 2, B: 2}) == {A: 2, B: 1, C: 0}


def test_a_moved_file_takes_its_counts_along() -> None:
    assert lowered({A: 2}, {B: 2}) == {A: 2}, "the counts wait for --moved"
    assert moved({A: 2, C: 1}, {B: 2, C: 1}) == ({B: 2, C: 1}, [])


def test_a_package_with_more_than_before_keeps_its_counts() -> None:
    assert moved({A: 2, C: 1}, {B: 3, C: 1}) == ({A: 2, C: 1}, ["p: docstring.what 2 -> 3"])


def test_every_finding_counts() -> None:
    finding = Finding("p/a.py", 1, "docstring", "what", "what it is", "")
    assert counted([finding, finding]) == {A: 2}


def test_the_glossary_names_the_words_that_no_name_has() -> None:
    header = "| write | not | not in names | pattern |\n|---|---|---|---|\n"
    rows = "| a | `b` | c, d | `b` |\n| e | `f` | | `f` |\n\n| g | h | i | j |\n"
    assert words_not_in_names(header + rows) == {"c", "d"}
