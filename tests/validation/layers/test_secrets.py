"""Secrets in the output of tools are concealed, and no text on which a verdict depends."""

import time

import pytest

from tests.validation.host_doubles import NAMES, outputs
from validation.layers.secrets import conceal


@pytest.mark.parametrize(
    ("text", "concealed"),
    [
        ("rw,username=joe,password=hunter2,vers=3", "rw,username=joe,password=***,vers=3"),
        ('{"password": "a b", "mtu": 1}', '{"password": "***", "mtu": 1}'),
        ("token='a b' c", "token='***' c"),
        (r'{"secret": "a\"b c"}', '{"secret": "***"}'),
        ("NGC_API_KEY=abc123 next", "NGC_API_KEY=*** next"),
        ("pr\u0130vate_key=abc123", "pr\u0130vate_key=***"),
        ("pr\u0131vate_key=abc123", "pr\u0131vate_key=***"),
        ("https://joe:p%40ss@host/x", "https://***@host/x"),
        ("Authorization: Bearer abc.def-9", "Authorization: Bearer ***"),
        (
            "a\n-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\nBBBB\n-----END OPENSSH PRIVATE KEY-----\nb",
            "a\n-----BEGIN OPENSSH PRIVATE KEY-----***-----END OPENSSH PRIVATE KEY-----\nb",
        ),
        ("-----BEGIN PRIVATE KEY-----\nAAAA", "-----BEGIN PRIVATE KEY-----***"),
        ("ghp_0123456789abcdefghijABCDEFGHIJ012345", "***"),
        ("eyJhbGciOiJIUzI1.eyJzdWIiOiIx.c2lnbmF0dXJl", "***"),
    ],
)
def test_a_secret_is_concealed(text: str, concealed: str) -> None:
    assert conceal(text) == concealed
    assert conceal(concealed) == concealed


@pytest.mark.parametrize("tool", outputs(NAMES[0]))
def test_lines_that_verdicts_follow_from_are_kept(tool: str) -> None:
    text = outputs(NAMES[0])[tool].text
    assert conceal(text) == text


@pytest.mark.parametrize("text", ["a" * 4_000_000, "token" * 400_000, "://" * 600_000, "eyJ" * 600_000])
def test_long_words_do_not_hold_it_up(text: str) -> None:
    began = time.process_time()
    conceal(text)
    assert time.process_time() - began < 20
