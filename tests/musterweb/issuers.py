"""A double of an identity provider on loopback, which can lie, with the messages of OpenID Connect Core 1.0.

`test_real_provider.py` has the answers of a real provider.
"""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CLIENT = "muster"
JSON = dict[str, Any]


@dataclass
class Issuer:
    """Gives tokens of `subject` for any code. `claims` change the next tokens; None removes a claim."""

    port: int
    host: str = "127.0.0.1"
    subject: str = "ada"
    key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "first"}))
    signing_key: RSAKey | None = None
    claims: JSON = field(default_factory=dict)
    life_seconds: int = 3600
    token: str = ""
    metadata: JSON = field(default_factory=dict)
    answers: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    cookie: str = ""
    nonce: str = ""
    number: int = 0
    renews: bool = True
    on_token: Callable[[str], Any] = field(default=lambda _token: None)
    intercept: Callable[[str, dict[str, str]], tuple[int, bytes] | None] = field(default=lambda *_: None)

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def answer(self, path: str, form: dict[str, str]) -> tuple[int, bytes]:
        self.requests.append((path, form))
        if special := self.intercept(path, form):
            return special
        if path in self.answers:
            return self.answers[path]
        if path == "/.well-known/openid-configuration":
            return self._json(self._metadata())
        if path == "/keys":
            return self._json({"keys": [self.key.as_dict(private=False)]})
        if path == "/token":
            self.number += 1
            token = self.token or self.id_token()
            self.on_token(token)
            return self._json({"id_token": token, "refresh_token": f"r{self.number}" if self.renews else ""})
        return (200, b"") if path == "/revoke" else (404, b"")

    def id_token(self) -> str:
        now = int(time.time())
        claims: JSON = {
            "iss": self.url,
            "aud": CLIENT,
            "sub": self.subject,
            "iat": now,
            "exp": now + self.life_seconds,
            "nonce": self.nonce,
            "jti": str(self.number),
            **self.claims,
        }
        claims = {name: value for name, value in claims.items() if value is not None}
        key = self.signing_key or self.key
        return jwt.encode({"alg": "RS256", "kid": key.kid}, claims, key)

    def _metadata(self) -> JSON:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
            "revocation_endpoint": f"{self.url}/revoke",
            "scopes_supported": ["openid", "offline_access", "email", "address"],
            **self.metadata,
        }

    @staticmethod
    def _json(content: JSON) -> tuple[int, bytes]:
        return 200, json.dumps(content).encode()


@contextmanager
def issuing() -> Iterator[Issuer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            form = {name: values[0] for name, values in parse_qs(self.rfile.read(length).decode()).items()}
            issuer.headers.append({name.lower(): value for name, value in self.headers.items()})
            status, body = issuer.answer(urlsplit(self.path).path, form)
            self.send_response(status)
            if status == 302:
                self.send_header("Location", body.decode())
            if issuer.cookie:
                self.send_header("Set-Cookie", issuer.cookie)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815 - as the library calls it

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    issuer = Issuer(server.server_port)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield issuer
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
