"""Removes secrets from the output of tools before it is recorded, because people share reports."""

import re
from typing import Final

CONCEALED: Final = "***"
_WORDS: Final = r"passw(?:or)?d|passphrase|secret|token|api[_-]?key|private[_-]?key|credentials?"
_NAMED: Final = rf"(?:{_WORDS})[\w.-]{{0,40}}\"?\s{{0,3}}[=:]\s{{0,3}}"
_NAMES: Final = ("passw", "passphrase", "secret", "token", "api", "private", "credential")
_PATTERNS: Final = (
    (("private key",), re.compile(r"(-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----).*?(?=-----END|\Z)", re.DOTALL)),
    (("://",), re.compile(r"(://)[^\s/]{1,512}(?=@)")),
    (
        ("authorization",),
        re.compile(r"(authorization\"?\s{0,3}:\s{0,3}\"?(?:bearer|basic)\s{1,3})[^\s\"']+", re.IGNORECASE),
    ),
    (_NAMES, re.compile(rf"({_NAMED}\")(?:[^\"\\\n]|\\.)+(?=\")", re.IGNORECASE)),
    (_NAMES, re.compile(rf"({_NAMED}')[^'\n]+(?=')", re.IGNORECASE)),
    (_NAMES, re.compile(rf"({_NAMED})(?!\*)[^\s\"',;<>&]+", re.IGNORECASE)),
    # Secrets with a known form: tokens of GitHub, AWS and NGC, and JSON Web Tokens (RFC 7519).
    (
        ("gh", "akia", "nvapi-", "eyj"),
        re.compile(
            r"(\b)(?:gh[pousr]_\w{20,}|AKIA[0-9A-Z]{16}|nvapi-[\w-]{20,}|eyJ[\w-]{10,}\.[\w-]+\.[\w-]+)"
        ),
    ),
)
"""Texts without which a pattern matches nothing, and the pattern. To look for these texts takes less time."""


def conceal(text: str) -> str:
    """Return the text without passwords, keys and tokens.

    They are recognized by a word before them, by their form or by a URL.

    Example: `conceal("password=abc")` returns `'password=***'`.
    """
    # re.IGNORECASE takes the dotless and the dotted i for an i
    folded = text.replace("\u0130", "i").replace("\u0131", "i").casefold()
    for needed, pattern in _PATTERNS:
        if any(one in folded for one in needed):
            text = pattern.sub(rf"\g<1>{CONCEALED}", text)
    return text
