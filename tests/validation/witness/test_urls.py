"""The SERVICE URL of a job is opened on a server at loopback."""

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from validation.witness.urls import Opened, open_url

MOVED = {"/note": "/note/lab", "/far": "http://other.example.com/", "/circle": "/circle"}


class Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        target = MOVED.get(self.path)
        self.send_response(302 if target else 200 if self.path == "/note/lab" else 404)
        if target:
            self.send_header("Location", target)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return None


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(
    ("path", "opened"),
    [
        ("/note/lab", Opened(200)),
        ("/note", Opened(200)),
        ("/none", Opened(404)),
        ("/far", Opened(302)),
        ("/circle", Opened(0, "more than 5 redirects")),
    ],
)
def test_redirects_are_followed_at_the_same_host_only(port: int, path: str, opened: Opened) -> None:
    assert open_url(f"http://127.0.0.1:{port}{path}") == opened


def test_every_host_is_reached_through_a_given_connection(port: int) -> None:
    def connect() -> socket.socket:
        return socket.create_connection(("127.0.0.1", port))

    assert open_url("http://team-a.gpus.example.com/note", connect) == Opened(200)


def test_a_port_that_is_closed_is_a_problem() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        opened = open_url(f"http://127.0.0.1:{taken.getsockname()[1]}/")
    assert (opened.status, "refused" in opened.problem) == (0, True)
