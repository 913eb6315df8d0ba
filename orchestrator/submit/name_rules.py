"""The rules for names of objects and labels.

Shell completion imports this module, so it imports little, and compiles patterns only when they are used.
"""

import re
from typing import Final

MAX_NAME_LENGTH: Final = 52
"""A StatefulSet adds `-` and a revision hash to the name in a label, and a label has at most 63 characters."""
NAME_RULE: Final = (
    f"use at most {MAX_NAME_LENGTH} lower case letters, digits and '-', "
    "starting with a letter and not ending with '-'"
)

_DNS_LABEL: Final = r"[a-z]([-a-z0-9]*[a-z0-9])?"
LABEL_VALUE: Final = r"([a-zA-Z0-9]([-._a-zA-Z0-9]{0,61}[a-zA-Z0-9])?)?"
_QUALIFIED_NAME: Final = (
    r"([a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?/)?[a-zA-Z0-9]([-._a-zA-Z0-9]{0,61}[a-zA-Z0-9])?"
)
OBJECT_NAME: Final = r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?"
DOMAIN: Final = r"([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\.)*[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
"""A DNS name in lower case, without a wildcard; its last label begins with a letter, so that no address matches."""
MAX_DOMAIN_LENGTH: Final = 253 - len(".") - 56
"""Maximum length of a domain: a DNS name has 253 characters, and a project's name of at most 56 precedes it."""


def is_workload_name(text: str) -> bool:
    """Return whether the text is a valid name of a workload or project, which DNS names and labels contain.

    Example: `is_workload_name("Train_1")` returns `False`.
    """
    return len(text) <= MAX_NAME_LENGTH and re.fullmatch(_DNS_LABEL, text) is not None


def is_object_name(text: str) -> bool:
    """Return whether the text is a valid object name. Paths and selectors must contain no other text.

    Example: `is_object_name("data.v1")` returns `True`.
    """
    return re.fullmatch(OBJECT_NAME, text) is not None


def is_label_value(text: str) -> bool:
    """Return whether the text is a valid value of a label."""
    return re.fullmatch(LABEL_VALUE, text) is not None


def is_qualified_name(text: str) -> bool:
    """Return whether the text is a valid key of a label, annotation, taint or resource: `[prefix/]name`.

    Example: `is_qualified_name("example.com/rack")` returns `True`.
    """
    return re.fullmatch(_QUALIFIED_NAME, text) is not None
