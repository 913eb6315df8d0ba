"""The ways in which people sign in and out: with a token that they paste, or at an identity provider."""

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from musterweb.errors import NotBegun, NotThere, SignInNeeded, TooMany, status_of
from musterweb.person import Person, sign_in
from musterweb.provider_sign_in import CALLBACK, ProviderSignIn
from musterweb.security import cookie_name, drop_cookie, new_secret, read_form, set_cookie
from musterweb.sessions import Sessions
from musterweb.sights import Sights
from orchestrator.cluster.kubeconfig import Access
from orchestrator.errors import MusterError

MAX_TOKEN: Final = 16 << 10
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=:-]+")


class SignIn:
    """The endpoints of the sign-in. `html` renders a template."""

    def __init__(
        self,
        access: Access,
        html: Callable[..., str],
        *,
        sessions: Sessions,
        sights: Sights,
        is_secure: bool,
        provider: ProviderSignIn | None,
    ) -> None:
        self._access = access
        self._html = html
        self._sessions = sessions
        self._sights = sights
        self._is_secure = is_secure
        self._provider = provider
        self._session_cookie = cookie_name("session", is_secure=is_secure)
        self._form_cookie = cookie_name("form", is_secure=is_secure)
        self._provider_cookie = cookie_name("provider", is_secure=is_secure)

    def routes(self) -> list[Route]:
        """Return the addresses."""
        routes = [
            Route("/sign-in", self.sign_in, methods=["GET", "POST"]),
            Route("/sign-out", self.sign_out, methods=["POST"]),
        ]
        if self._provider is not None:
            routes += [
                Route("/sign-in/provider", self.leave, methods=["POST"]),
                Route(CALLBACK, self.come_back, methods=["GET"]),
            ]
        return routes

    def page(self, request: Request, problem: str = "", status: int = 200) -> Response:
        """Return the page on which people sign in, with a problem and a status."""
        token = request.cookies.get(self._form_cookie) or new_secret()
        response = HTMLResponse(
            self._html(
                "sign_in.html.j2",
                title="Sign in",
                form_token=token,
                problem=problem,
                cluster=self._access.server,
                provider="" if self._provider is None else self._provider.provider.settings.name,
                layout="bare.html.j2",
            ),
            status,
        )
        set_cookie(response, self._form_cookie, token, is_secure=self._is_secure)
        return response

    async def sign_in(self, request: Request) -> Response:
        """Show the form, or begin a session with the token in it."""
        if request.method != "POST":
            return self.page(request)
        fields = await read_form(request, request.cookies.get(self._form_cookie, ""))
        token, project = fields.get("token", "").strip(), fields.get("project", "").strip()
        try:
            if len(token) > MAX_TOKEN or not _TOKEN.fullmatch(token):
                raise SignInNeeded("that is no token: paste it whole, and nothing else")
            person = await sign_in(self._access, lambda: token, project or None, self._sights)
            response: Response = RedirectResponse("/", 303)
            await self._begin(request, response, person)
        except MusterError as error:
            return self._refused(request, error)
        return response

    async def leave(self, request: Request) -> Response:
        """Return a page that opens the identity provider.

        The Content-Security-Policy forbids a redirect of the form.
        """
        provider = self._the_provider()
        fields = await read_form(request, request.cookies.get(self._form_cookie, ""))
        try:
            cookie, url = await provider.begin(fields.get("project", "").strip())
        except MusterError as error:
            return self._refused(request, error)
        response = self._leading_on(url, f"Go on to {provider.provider.settings.name}")
        # end the earlier session now: the browser does not send its `SameSite=Strict` cookie to the callback
        if self._end_earlier(request):
            drop_cookie(response, self._session_cookie, is_secure=self._is_secure)
        set_cookie(response, self._provider_cookie, cookie, is_secure=self._is_secure, same_site="lax")
        return response

    async def come_back(self, request: Request) -> Response:
        """Begin a session with the identity provider's answer."""
        provider = self._the_provider()
        cookie = request.cookies.get(self._provider_cookie, "")
        try:
            renewal, project = await provider.finish(cookie, dict(request.query_params))
            try:
                person = await sign_in(self._access, renewal.token, project or None, self._sights)
            except MusterError:
                with suppress(MusterError):
                    await renewal.forget()
                raise
            person.renew_by(renewal)
            # a page, not a redirect: after a redirect from another site, the browser does not send
            # `SameSite=Strict` cookies
            response = self._leading_on("/", "Go on to the overview")
            await self._begin(request, response, person)
        except NotBegun as error:
            # any site can send a browser to this address: keep the cookie of a sign-in that is under way
            return self._refused(request, error)
        except MusterError as error:
            response = self._refused(request, error)
        drop_cookie(response, self._provider_cookie, is_secure=self._is_secure)
        return response

    async def sign_out(self, request: Request) -> Response:
        """End the session."""
        secret = request.cookies.get(self._session_cookie, "")
        session = self._sessions.find(secret, is_use=True)
        await read_form(request, session.form_token)
        self._sessions.remove(secret)
        response = RedirectResponse("/sign-in", 303)
        drop_cookie(response, self._session_cookie, is_secure=self._is_secure)
        return response

    async def _begin(self, request: Request, response: Response, person: Person) -> None:
        """Begin the session of a person in this browser, and end an earlier one. Raises TooMany."""
        self._end_earlier(request)
        try:
            secret = self._sessions.add(person)
        except TooMany:
            await person.close()
            raise
        set_cookie(response, self._session_cookie, secret, is_secure=self._is_secure)
        drop_cookie(response, self._form_cookie, is_secure=self._is_secure)

    def _end_earlier(self, request: Request) -> bool:
        """End the session of this browser's cookie; return whether it has the cookie."""
        secret = request.cookies.get(self._session_cookie, "")
        self._sessions.remove(secret)
        return bool(secret)

    def _refused(self, request: Request, error: MusterError) -> Response:
        return self.page(request, str(error), status_of(error))

    def _leading_on(self, url: str, words: str) -> Response:
        return HTMLResponse(
            self._html("leave.html.j2", title="Sign in", url=url, words=words, layout="bare.html.j2")
        )

    def _the_provider(self) -> ProviderSignIn:
        if self._provider is None:
            raise NotThere("people sign in here with a token")
        return self._provider
