"""Compares the entries of a redacted record with their sources: they are equal, except that a pseudonym replaces each
name.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

PSEUDONYM: Final = re.compile(r"(?:muster-)?(?:project|host|person)-\d+")
"""The form of a pseudonym."""
_WORD: Final = re.compile(r"[\w-]+")


class Pseudonyms:
    """The pairs of names (source, record) that were compared so far."""

    def __init__(self, *, is_exact: bool) -> None:
        self._is_exact = is_exact
        self._new: dict[str, str] = {}
        self._old: dict[str, str] = {}

    def matches(self, recorded: Any, source: Any) -> bool:
        """Return whether both are equal except for pseudonyms. Each name must always have the same pseudonym."""
        if self._is_exact or recorded is msgspec.UNSET or source is msgspec.UNSET:
            return bool(recorded == source)
        return self._same(msgspec.to_builtins(recorded), msgspec.to_builtins(source))

    def match_ids(self, recorded: Sequence[str], source: Sequence[str]) -> bool:
        """Return whether the ids are equal except for words that pseudonyms replace."""
        if self._is_exact:
            return list(recorded) == list(source)
        one_by_one = zip(recorded, source, strict=False)
        return len(recorded) == len(source) and all(_is_same_id(new, old) for new, old in one_by_one)

    def _same(self, recorded: Any, source: Any) -> bool:
        if isinstance(recorded, dict) and isinstance(source, dict):
            new, old = (
                [value for pair in sorted(one.items()) for value in pair] for one in (recorded, source)
            )
            return self._same(new, old)
        if isinstance(recorded, list | tuple) and isinstance(source, list | tuple):
            return len(recorded) == len(source) and all(map(self._same, recorded, source))
        if isinstance(recorded, str) and isinstance(source, str):
            return self._same_words(recorded, source)
        return type(recorded) is type(source) and bool(recorded == source)

    def _same_words(self, recorded: str, source: str) -> bool:
        """Return whether the texts are equal except for pseudonyms. Each name must always have the same pseudonym."""
        return _is_same_text(recorded, source, self._same_word)

    def _same_word(self, new: str, old: str) -> bool:
        if new != old and not PSEUDONYM.fullmatch(new):
            return False
        return self._new.setdefault(old, new) == new and self._old.setdefault(new, old) == old


def _is_same_id(recorded: str, source: str) -> bool:
    return _is_same_text(
        recorded, source, lambda new, old: new == old or PSEUDONYM.fullmatch(new) is not None
    )


def _is_same_text(recorded: str, source: str, is_same: Callable[[str, str], bool]) -> bool:
    """Return whether both have the same characters between their words, and `is_same` is true for each pair of
    words.
    """
    news, olds = _WORD.findall(recorded), _WORD.findall(source)
    same_rest = len(news) == len(olds) and _WORD.split(recorded) == _WORD.split(source)
    return same_rest and all(map(is_same, news, olds))
