"""Run one function of `Client.map` in its container: `python3 function.pyz MESSAGE-FILE`.

This module is `__main__.py` of the archive function.pyz. It needs nothing but Python 3.8 or later. The outcome is JSON
in the termination message of the container. The caller unpickles nothing that comes from a container.
"""

import json
import os
import pickle
import sys
import traceback
import zipfile
from pathlib import Path
from typing import Any

MESSAGE_BYTES = 4096
"""The limit of Kubernetes for the termination message of a container."""


def main() -> int:
    """Write the outcome of one index, and return the exit code."""
    with zipfile.ZipFile(sys.argv[0]) as archive:
        outcome = _outcome(archive, int(os.environ["JOB_COMPLETION_INDEX"]))
    Path(sys.argv[1]).write_text(outcome, encoding="ascii")
    sys.stdout.write(f"{outcome}\n")
    return 0 if outcome.startswith('{"result"') else 1


def _outcome(archive: zipfile.ZipFile, index: int) -> str:
    found = list(sys.version_info[:2])
    if found != json.loads(archive.read("python.json")):
        return json.dumps({"python": f"{found[0]}.{found[1]}"})
    sys.path.insert(1, str(Path.cwd()))  # the working tree of the job
    try:
        function = pickle.loads(archive.read("function.pickle"))  # noqa: S301 - the user's own function
        lengths = json.loads(archive.read("lengths.json"))
        begin = sum(lengths[:index])
        content = archive.read("parameters.pickles")[begin : begin + lengths[index]]
        return _result(function(pickle.loads(content)))  # noqa: S301 - the user's own parameter
    except BaseException as error:  # noqa: BLE001, RUF100 - the caller gets every error
        return _failure(error)


def _result(value: Any) -> str:
    _check(value, "the result")
    text = json.dumps({"result": value})
    if len(text) > MESSAGE_BYTES:
        raise ValueError(
            f"the result has {len(text)} bytes of JSON, and at most {MESSAGE_BYTES} are possible: write it to a volume"
        )
    return text


def _check(value: Any, where: str) -> None:
    """Raise TypeError for a value that JSON would change or refuse."""
    if type(value) in (list, tuple):
        for place, item in enumerate(value):
            _check(item, f"{where}[{place}]")
    elif type(value) is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise TypeError(f"{where} has the key {key!r}: use str")
            _check(item, f"{where}[{key!r}]")
    elif type(value) not in (type(None), bool, int, float, str):
        raise TypeError(
            f"{where} is a {type(value).__name__}: return None, bool, int, float, str, list or dict"
        )


def _failure(error: BaseException) -> str:
    text = ""
    name = type(error).__name__[:100]
    try:
        message = str(error)
    except Exception:  # noqa: BLE001, RUF100 - a class of the user
        message = "the error has no text"
    whole = traceback.format_exc()  # it takes any error of str(error) itself
    sys.stderr.write(whole.encode("ascii", "backslashreplace").decode())
    for length, said in ((2000, 500), (500, 200), (0, 200)):
        lines = whole[-length:] if length else ""
        text = json.dumps({"error": name, "message": message[:said], "traceback": lines})
        if len(text) <= MESSAGE_BYTES:
            break
    return text


if __name__ == "__main__":
    sys.exit(main())
