"""The Containerfile and `image.build` make the same content, so their settings must agree."""

import json
import re

from image import build

CONTAINERFILE = (build.ROOT / "Containerfile").read_text().replace("\\\n", " ")
INSTRUCTIONS = [line.split(maxsplit=1) for line in CONTAINERFILE.splitlines() if re.match(r"[A-Z]+ ", line)]
LAST_STAGE = INSTRUCTIONS[max(n for n, words in enumerate(INSTRUCTIONS) if words[0] == "FROM") :]
CONFIG = build.CONFIG


def last(instruction: str) -> str:
    return next(text for word, text in reversed(LAST_STAGE) if word == instruction)


def test_both_are_of_one_release_of_debian_and_install_its_packages_of_one_python() -> None:
    (release,) = re.findall(
        r"^ARG BASE=docker.io/library/debian:(\d+)-slim@sha256:[0-9a-f]{64}$", CONTAINERFILE, re.M
    )
    assert f"{release} ({build.SUITE})" in build.RELEASE
    first = next(text for word, text in INSTRUCTIONS if word == "RUN")
    (packages,) = re.findall(r"apt-get install -y --no-install-recommends ([^&]+?) *&&", first)
    assert set(packages.split()) == set(build.DEBIAN_PACKAGES)


def test_both_install_the_packages_of_the_lock_file_by_one_function_into_one_directory() -> None:
    copied = [text.split() for word, text in LAST_STAGE if word == "COPY"]
    assert ["--from=packages", "/packages", f"/{build.SITE_PACKAGES}"] in copied
    assert ["--from=packages", "--chmod=0755", "/src/image/muster", "/usr/local/bin/muster"] in copied
    assert "python3 -m image.build --packages /packages " in CONTAINERFILE
    assert build.COMPILED in CONTAINERFILE
    assert "--require-hashes" in CONTAINERFILE
    assert "uv.lock" in CONTAINERFILE


def test_both_have_the_library_that_limits_device_memory_in_one_place() -> None:
    copied = [text.split() for word, text in LAST_STAGE if word == "COPY"]
    name = build.LIBRARY.rpartition("/")[2]
    assert ["--from=packages", f"/library/{name}", f"/{build.LIBRARY}"] in copied
    assert "make -C gpumemory OUT=/library" in CONTAINERFILE


def test_both_start_the_same_program_as_the_same_user_in_the_same_environment() -> None:
    assert last("USER") == CONFIG["User"]
    assert json.loads(last("ENTRYPOINT")) == CONFIG["Entrypoint"]
    assert json.loads(last("CMD")) == CONFIG["Cmd"]
    assert last("WORKDIR") == CONFIG["WorkingDir"]
    assert last("ENV").split() == CONFIG["Env"]
