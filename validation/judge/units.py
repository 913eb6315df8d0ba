"""Formats quantities for the sentences of verdicts and reports."""


def gpus(milli: int) -> str:
    """Return thousandths of a GPU as GPUs: `2`, `0.5`.

    Example: `gpus(500)` returns `'0.5'`.
    """
    return f"{milli / 1000:g}"


def seconds(milliseconds: int) -> str:
    """Return milliseconds as seconds: `12.3 s`.

    Example: `seconds(12345)` returns `'12.3 s'`.
    """
    return f"{milliseconds / 1000:.1f} s"


def spell(seconds: int) -> str:
    """Return an approximate duration for people: `60 s`, `3 minutes`.

    Example: `spell(150)` returns `'2 minutes'`.
    """
    return f"{seconds} s" if seconds < 90 else f"{round(seconds / 60)} minutes"
