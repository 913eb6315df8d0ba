"""The patterns of the style in CONTRIBUTING.md that a program can count, each with the words to write instead."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.style.passages import CODE, Passage

WORD_LIMIT_OF_A_SENTENCE = 25
WORD_LIMIT_OF_A_PARAGRAPH = 60
WORD_LIMIT_OF_A_PAGE = 1500
STEP_OF_A_PAGE = 500
"""Words above the limit for which a long page counts once more. A few words do not change its count."""


@dataclass(frozen=True)
class Finding:
    """A passage that a pattern matches."""

    file: str
    line: int
    kind: str
    pattern: str
    text: str
    instead: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.kind}, {self.pattern}: {self.text}\n    {self.instead}"


@dataclass(frozen=True)
class Pattern:
    """Words that the style avoids, in lower case.

    `stems` are parts of these words: a text without any of them is not searched. A match that follows `after` is
    allowed. `questions` says whether the pattern also counts in questions.
    """

    name: str
    stems: tuple[str, ...]
    expression: re.Pattern[str]
    instead: str
    questions: bool = True
    after: re.Pattern[str] | None = None


def _pattern(
    name: str,
    stems: str,
    expression: str,
    instead: str,
    *,
    questions: bool = True,
    after: re.Pattern[str] | None = None,
) -> Pattern:
    return Pattern(name, tuple(stems.split()), re.compile(expression), instead, questions, after)


_NOT_EVICTED = r"(?! (?:with|together|through|to|into|from|beyond|back)\b)"
_PEOPLE = re.compile(
    r"\b(?:users?|person|people|administrators?|researchers?|maintainers?|members?|readers?|engineers?|contributors?"
    r"|authors?|teams?),? $"
)

WORDS = (
    _pattern(
        "what",
        "what",
        r"\bwhat(?:ever)?\b(?!-if)",
        "write the term instead of a clause: 'terminating pods', not 'what leaves'",
        questions=False,
    ),
    _pattern(
        "who",
        "who",
        r"\b(?:who|whom|whoever|whomever)\b",
        "name the actor: 'the preempting workload', not 'who room is made for'",
        questions=False,
        after=_PEOPLE,
    ),
    _pattern(
        "nobody",
        "body someone anyone everyone",
        r"\b(?:nobody|somebody|anybody|everybody|someone|anyone|everyone|no one)\b",
        "name the actor: the operator, the scheduler, the API server, the kubelet, the user, the role",
    ),
    _pattern(
        "so-many",
        "so",
        r"\bso (?:many|much|long|few|often)\b",
        "write 'at most N', 'at least N' or 'up to N seconds'",
    ),
    _pattern(
        "go",
        "go way went",
        r"\bma(?:kes?|king|de) way\b"
        rf"|\b(?:goes|going|gone|went)\b{_NOT_EVICTED}"
        rf"|\b(?:may|must|would|could|can|cannot|should|not|that|who|which|they|ones|to) go\b{_NOT_EVICTED}",
        "write 'is preempted', 'is evicted', 'is deleted', 'continues'; the preemptor and its victims",
    ),
    _pattern(
        "room",
        "room spot",
        r"\b(?:rooms?|spots?)\b",
        "write 'placement' (node and devices), 'nomination', 'free GPUs' or 'free space'",
    ),
    _pattern(
        "place",
        "place",
        r"\b(?:a|its|their|own|no|other|another|promised|kept|whose|any|the|of|those|found|find|has|had) places?\b",
        "write 'placement' (node and devices), 'node' or 'nomination'",
    ),
    _pattern("promise", "promis", r"\bpromis(?:e[sd]?|ing)\b", "write 'nominated' or 'nomination'"),
    _pattern(
        "turn",
        "turn",
        r"\b(?:an?|the|its|their|whose|another|each|every|first|last|next|later|of|in|had|has|have|one) turns?\b"
        r"(?! (?:in|on|off|out|over|up)to\b)",
        "write 'priority order' or 'queue order'",
    ),
    _pattern("leave", "leav", r"\bleaving\b|\bstill leaves?\b", "write 'terminating'"),
    _pattern(
        "wait",
        "wait",
        r"\b(?:workloads?|jobs?|pods?|gangs?|it|they|one|that|which|still) (?:still )?waits?\b"
        r"(?! (?:for|until|up|at most)\b)",
        "write 'is pending'; a wait has an object: 'waits for a GPU'",
    ),
    _pattern(
        "lend",
        "lend lent cover",
        r"\b(?:lent|lends?|lending|covered|uncovered)\b|\b(?:quotas?|shares?|claims?) covers?\b",
        "write 'borrowed', 'within quota' or 'over quota'",
    ),
    _pattern(
        "move",
        "mov",
        r"\b(?:is|are|was|were|be|been|being|pods?|work|workloads?|jobs?|victims?) moved\b"
        r"|\b(?:moves? (?:for|of|within|work|pods?|jobs?)|moving (?:work|pods?|jobs?))\b",
        "write 'reschedule', or 'migrate' where a pod is evicted for it",
    ),
    _pattern(
        "surplus",
        "surplus growth",
        r"\b(?:surplus|growth)\b",
        "write 'elastic pods' (above the gang minimum)",
    ),
    _pattern(
        "hold",
        "held hold",
        r"\bheld (?:to|against)\b|\bholds? against\b"
        r"|\b(?:must|always|still) holds?\b(?= (?:at|for|of|true|in|when)\b|[.,;:])",
        "write 'pass', 'fail' or 'not run'; a test 'compares' or 'checks'",
    ),
    _pattern(
        "witness",
        "witness",
        r"\bwitness(?:'s|es)? (?:words?|says?|said)\b",
        "write 'evidence' or 'observation'",
    ),
    _pattern(
        "work",
        "work piece",
        r"\b(?:borrowed|covered|preemptible|urgent|interactive|younger|older|larger|smaller|large|lost|more|least"
        r"|running|other|alike) work\b|\bwork (?:that|of (?:an)?other|of the same|is|moved)\b|\bpieces?\b",
        "write 'workload', 'job' or 'pod'",
    ),
    _pattern(
        "part",
        "part",
        r"\bparts? of (?:an? |one |the |its )?(?:gpu|device)s?\b",
        "write 'GPU fraction'",
    ),
    _pattern(
        "claim",
        "claim founded",
        r"\b(?:better|worse|best|worst|weak(?:er|est)?|strong(?:er|est)?) claims?\b|\bfounded\b"
        r"|\bclaims? (?:within|beyond) (?:the |its |their )?(?:project's |projects' )?quotas?\b",
        "write 'entitlement' or 'entitled workload'; a claim is a ResourceClaim",
    ),
)

_INLINE = re.compile(
    r"``.+?``|`[^`]+`|<[^<>\s][^<>]*>|https?://\S+|\{[^{}]*\}|(?<![\w\"])\"[^\"\n]{1,80}\"(?!\w)|“[^”]{1,80}”",
    re.DOTALL,
)
_LINK = re.compile(r"\]\([^()\s]*\)")
_END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\bcf)(?<!\bvs)([.!?])[\"')\]*_]*\s+(?=[A-Z0-9`\"'(\[*_]|$)")
_WORD = re.compile(r"[\w`][\w`'./:=%-]*")


def plain(text: str) -> str:
    """Return the prose of a passage. Each piece of code, address and quotation becomes one word; lines are kept."""
    text = _INLINE.sub(lambda found: CODE + "\n" * found[0].count("\n"), text)
    return _LINK.sub("]", text)


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Yield the sentences of a plain paragraph with their offset in it."""
    start = 0
    for end in _END.finditer(text):
        yield start, text[start : end.end(1)]
        start = end.end()
    if text[start:].strip():
        yield start, text[start:]


def words(text: str) -> int:
    """Return the number of words of a plain text; a piece of code is one."""
    return len(_WORD.findall(text))


def findings(passage: Passage, banned: frozenset[str]) -> Iterator[Finding]:
    """Yield a finding for each pattern that matches in a passage. `banned` are words that must not be in names."""
    if passage.kind in ("name", "test-name"):
        yield from _in_name(passage, banned)
        return
    text = plain(passage.text)
    if passage.measured and (length := words(text)) > WORD_LIMIT_OF_A_PARAGRAPH:
        yield _finding(
            passage,
            0,
            text,
            "paragraph",
            f"{length} words; at most {WORD_LIMIT_OF_A_PARAGRAPH} in a paragraph",
        )
    lower = text.lower()
    patterns = [each for each in WORDS if any(stem in lower for stem in each.stems)]
    for offset, sentence in sentences(text):
        line = text.count("\n", 0, offset)
        if passage.measured and (length := words(sentence)) > WORD_LIMIT_OF_A_SENTENCE:
            advice = (
                f"{length} words; at most {WORD_LIMIT_OF_A_SENTENCE} in a sentence, one statement in each"
            )
            yield _finding(passage, line, sentence, "sentence", advice)
        for pattern in patterns:
            for start in matches(pattern, sentence):
                at = line + sentence.count("\n", 0, start)
                yield _finding(passage, at, sentence, pattern.name, pattern.instead)


def matches(pattern: Pattern, sentence: str) -> Iterator[int]:
    """Yield where a pattern matches in a plain sentence."""
    if pattern.questions or not sentence.endswith("?"):
        lower = sentence.lower()
        for found in pattern.expression.finditer(lower):
            if pattern.after is None or not pattern.after.search(lower, 0, found.start()):
                yield found.start()


def page_finding(file: str, length: int) -> Iterator[Finding]:
    """Yield a finding for each step by which a page of this length is above the limit."""
    for excess in range(0, length - WORD_LIMIT_OF_A_PAGE, STEP_OF_A_PAGE):
        text = f"{length} words of running text"
        advice = f"at most {WORD_LIMIT_OF_A_PAGE + excess} words; divide the page by its kinds of text"
        yield Finding(file, 1, "page", "page", text, advice)


def _finding(passage: Passage, line: int, text: str, pattern: str, instead: str) -> Finding:
    return Finding(passage.file, passage.line + line, passage.kind, pattern, " ".join(text.split()), instead)


_PART_OF_NAME = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_COMMAND = re.compile(r"what_?if", re.IGNORECASE)


def _in_name(passage: Passage, banned: frozenset[str]) -> Iterator[Finding]:
    parts = {part.lower() for part in _PART_OF_NAME.findall(_COMMAND.sub("", passage.text))}
    if found := sorted(parts & banned):
        advice = f"{', '.join(found)}: docs/reference/glossary.md has the words for names"
        yield _finding(passage, 0, passage.text, "word", advice)
