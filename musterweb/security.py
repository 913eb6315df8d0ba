"""Headers of every answer and checks of every request, so that no other site can read or change anything."""

import hmac
import ipaddress
import re
import secrets
from collections.abc import Mapping
from typing import Final, Literal
from urllib.parse import parse_qsl

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from musterweb.errors import Refused

MAX_BODY_BYTES: Final = 64 << 10
MAX_FIELDS: Final = 100
FORM_TOKEN: Final = "form_token"  # noqa: S105 - the name of a field
_HOST: Final = re.compile(r"(?P<name>[a-zA-Z0-9.-]+|\[(?P<address>[0-9a-fA-F:.]+)\])(:[0-9]{1,5})?")

HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    # not `no-referrer`: browsers would then send `Origin: null` with the forms of these pages
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
STRICT_TRANSPORT: Final = "Strict-Transport-Security"
STRICT_TRANSPORT_SECONDS: Final = 180 * 86400
"""Seconds from the last answer for which a browser connects to this host only over TLS."""


class Guard:
    """Puts headers on every answer and, on loopback, refuses requests that name another host.

    Otherwise a site could let its DNS name resolve to 127.0.0.1, and its scripts could read these pages.
    """

    def __init__(self, application: ASGIApp, *, is_secure: bool) -> None:
        self._application = application
        self._is_secure = is_secure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return

        host = Request(scope).headers.get("host", "")
        added = headers_of(host, is_secure=self._is_secure)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in added.items():
                    headers.setdefault(name, value)
            await send(message)

        if not self._is_secure and not is_loopback(host):
            response: Response = PlainTextResponse("This server answers on loopback only.\n", 421)
            await response(scope, receive, send_guarded)
            return
        await self._application(scope, receive, send_guarded)


def headers_of(host: str, *, is_secure: bool) -> Mapping[str, str]:
    """Return the headers of an answer to a request with this `Host`.

    With TLS, they tell the browser to use only TLS for this host.

    A loopback name, as with a port-forward, is exempt: the browser would refuse plain HTTP of other servers at this
    name.
    """
    if is_secure and not is_loopback(host):
        return {**HEADERS, STRICT_TRANSPORT: f"max-age={STRICT_TRANSPORT_SECONDS}"}
    return HEADERS


def is_loopback(host: str) -> bool:
    """Return whether a `Host` header is `localhost` or an address of loopback, with a port or without.

    Example: `is_loopback("127.0.0.1:8080")` returns `True`.
    """
    match = _HOST.fullmatch(host)
    if match is None:
        return False
    name = match["address"] or match["name"]
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def cookie_name(word: str, *, is_secure: bool) -> str:
    """Return the name of a cookie. With TLS, it has a prefix for which browsers accept only this host and TLS.

    Example: `cookie_name("session", is_secure=True)` returns `'__Host-muster-session'`.
    """
    return f"__Host-muster-{word}" if is_secure else f"muster-{word}"


def set_cookie(
    response: Response,
    name: str,
    value: str,
    *,
    is_secure: bool,
    same_site: Literal["strict", "lax"] = "strict",
) -> None:
    """Set a session cookie that scripts and other sites cannot read.

    With `same_site` `lax`, the browser also sends it after a redirect from another site, such as an identity provider.
    """
    response.set_cookie(name, value, path="/", secure=is_secure, httponly=True, samesite=same_site)


def drop_cookie(response: Response, name: str, *, is_secure: bool) -> None:
    """Let the browser delete a cookie."""
    response.delete_cookie(name, path="/", secure=is_secure, httponly=True, samesite="strict")


def new_secret() -> str:
    """Return a random text that cannot be guessed."""
    return secrets.token_urlsafe(32)


def check_origin(request: Request) -> None:
    """Raise Refused unless the browser says that a page of this server sent the request."""
    expected = f"{request.url.scheme}://{request.headers.get('host', '')}"
    if not hmac.compare_digest(request.headers.get("origin", "").encode(), expected.encode()):
        raise Refused("this form was not sent by a page of this server: open the page anew and try again")


async def read_form(request: Request, form_token: str) -> dict[str, str]:
    """Return the fields of a form. Raises Refused unless a page of this server sent it, with its form token."""
    check_origin(request)
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                raise Refused("that is too much for a form")
    except ClientDisconnect as error:
        raise Refused("that form did not come to its end") from error
    try:
        fields = dict(
            parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
        )
    except ValueError as error:  # not UTF-8, or too many fields
        raise Refused("that is no form of these pages") from error
    shown = fields.pop(FORM_TOKEN, "")
    if not form_token or not hmac.compare_digest(shown.encode(), form_token.encode()):
        raise Refused("this form is of an earlier session: open the page anew and try again")
    return fields
