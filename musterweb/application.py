"""The routes of the pages, the sign-in that they require, and the answers to failed requests."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route, compile_path
from starlette.staticfiles import StaticFiles

from musterweb import cluster_pages, job_pages, node_pages, project_forms, report_pages
from musterweb.analytics import analytics_page
from musterweb.computing import compute
from musterweb.errors import Refused, SignInNeeded, TooMany, status_of
from musterweb.events import follow, state_of
from musterweb.history_model import History
from musterweb.new_cluster import cluster_yaml, new_cluster_page
from musterweb.oidc import Provider
from musterweb.page import Page, Visit
from musterweb.provider_sign_in import ProviderSignIn
from musterweb.reports import Reports
from musterweb.security import MAX_FIELDS, Guard, cookie_name, read_form
from musterweb.sessions import Session, Sessions
from musterweb.sights import Sights
from musterweb.sign_in import SignIn
from musterweb.table import csv_text
from orchestrator.cluster.errors import ClusterError, Unauthorized
from orchestrator.cluster.kubeconfig import Access
from orchestrator.distribution import installed_version
from orchestrator.errors import MusterError

log = logging.getLogger(__name__)

PageFunction = Callable[[Visit], Awaitable[Page]]

LIVE: Final[dict[str, PageFunction]] = {
    "/": cluster_pages.overview,
    "/projects": cluster_pages.projects_page,
    "/jobs": cluster_pages.jobs_page,
    "/nodes": node_pages.nodes_page,
    "/jobs/{project}/{name}": job_pages.job_page,
}
"""Pages that update themselves in the browser."""
OF_SIGHT: Final = frozenset({"/", "/projects", "/jobs", "/nodes"})
"""Pages that show only the sight (`musterweb.sights`), the data of the person's watches.

Other pages also read from the API server.
"""
STILL: Final[dict[str, PageFunction]] = {
    "/analytics": analytics_page,
    "/reports": report_pages.reports_page,
    "/reports/{name}": report_pages.report_page,
    "/cluster": cluster_pages.health_page,
    "/new-cluster": new_cluster_page,
    "/jobs/{project}/{name}/explain": job_pages.explain_page,
    "/jobs/{project}/{name}/logs": job_pages.logs_page,
}
FILES: Final[dict[str, tuple[PageFunction, str]]] = {
    "/holding.csv": (cluster_pages.overview, "holding"),
    "/jobs.csv": (cluster_pages.jobs_page, "jobs"),
    "/jobs/{project}/{name}/pods.csv": (job_pages.job_page, "pods"),
    "/jobs/{project}/{name}/gpus.csv": (job_pages.job_page, "gpus"),
    "/jobs/{project}/{name}/events.csv": (job_pages.job_page, "events"),
    "/jobs/{project}/{name}/evictions.csv": (job_pages.job_page, "evictions"),
    "/jobs/{project}/{name}/entitlement.csv": (job_pages.explain_page, "entitlement"),
    "/jobs/{project}/{name}/holders.csv": (job_pages.explain_page, "holders"),
    "/nodes.csv": (node_pages.nodes_page, "nodes"),
    "/gpus.csv": (node_pages.nodes_page, "gpus"),
    "/projects.csv": (cluster_pages.projects_page, "projects"),
    "/analytics.csv": (analytics_page, "summary"),
    "/analytics-over-time.csv": (analytics_page, "over-time"),
    "/evictions.csv": (analytics_page, "evictions"),
    "/reports.csv": (report_pages.reports_page, "reports"),
    "/reports/{name}/failed.csv": (report_pages.report_page, "failed"),
    "/reports/{name}/requirements.csv": (report_pages.report_page, "requirements"),
    "/cluster.csv": (cluster_pages.health_page, "skipped"),
}
MENU: Final = (
    ("/", "Overview"),
    ("/projects", "Projects"),
    ("/jobs", "Jobs"),
    ("/nodes", "Nodes"),
    ("/analytics", "Analytics"),
    ("/reports", "Reports"),
    ("/cluster", "Cluster"),
    ("/new-cluster", "New cluster"),
)
_NEVER_SIGNED_IN: Final = "Sign in first"


class Web:
    """The application's own state: the cluster, the sessions, and the rendering of pages."""

    def __init__(
        self,
        access: Access,
        *,
        is_secure: bool,
        sessions: Sessions,
        sights: Sights,
        history: History | None,
        reports: Reports | None,
        provider: ProviderSignIn | None,
    ) -> None:
        self.access = access
        self.sights = sights
        self.history = history
        self.reports = reports
        self.is_secure = is_secure
        self.sessions = sessions
        self.session_cookie = cookie_name("session", is_secure=is_secure)
        self.sign_in = SignIn(
            access, self.html, sessions=sessions, sights=sights, is_secure=is_secure, provider=provider
        )
        self._live = [(compile_path(path)[0], function) for path, function in LIVE.items()]
        self._files = [compile_path(path)[0] for path in FILES]
        self._templates = Environment(
            loader=PackageLoader("musterweb", "templates"),
            undefined=StrictUndefined,
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.globals |= {"menu": MENU, "version": installed_version()}

    def html(self, template: str, **content: Any) -> str:
        """Return a template filled in; every value is escaped."""
        return self._templates.get_template(template).render(content)

    def session(self, request: Request, *, is_use: bool = True) -> Session:
        """Return the session of the request's cookie. Raises SignInNeeded."""
        return self.sessions.find(request.cookies.get(self.session_cookie, ""), is_use=is_use)

    async def visit(self, request: Request, session: Session) -> Visit:
        """Return the argument of the page functions."""
        sight = await session.person.ready()
        return Visit(
            session.person,
            sight,
            request.path_params,
            dict(request.query_params),
            history=self.history,
            reports=self.reports,
        )

    def whole(self, request: Request, session: Session, page: Page, *, status: int = 200) -> Response:
        """Return a page with its body in the common layout."""
        is_live = any(pattern.match(request.url.path) for pattern, _ in self._live) and status == 200
        text = self.html(
            page.template,
            **page.content,
            title=page.title,
            here=request.url.path,
            user=session.person.user,
            cluster=self.access.server,
            form_token=session.form_token,
            stream=_target(request) if is_live else "",
            state=state_of(session.person),
            layout="layout.html.j2",
        )
        return HTMLResponse(text, status)

    async def shared_body(self, session: Session, target: str) -> str:
        """Return the body of a page that updates itself. It is rendered once for all people with the same sight."""
        return await session.person.body(
            target,
            lambda: self.body(session, target),
            is_shared=urlsplit(target).path in OF_SIGHT,
        )

    async def body(self, session: Session, target: str) -> str:
        """Return only the body of a page that updates itself. Raises Refused for any other address."""
        try:
            url = urlsplit(target)
            query = dict(parse_qsl(url.query, max_num_fields=MAX_FIELDS))
        except ValueError as error:  # an invalid address, or too many fields
            raise Refused("that is no address of these pages") from error
        for pattern, function in self._live:
            match = pattern.match(url.path)
            if match:
                sight = await session.person.ready()
                page = await function(Visit(session.person, sight, match.groupdict(), query))
                return self.html(page.template, **page.content, layout="body.html.j2")
        raise Refused("there is no page of that address that keeps itself current")

    # --- endpoints --------------------------------------------------------------------------------------

    def page(self, function: PageFunction) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of a page."""

        async def endpoint(request: Request) -> Response:
            session = self.session(request)
            return self.whole(request, session, await function(await self.visit(request, session)))

        return endpoint

    async def page_of_sight(self, request: Request) -> Response:
        """Return a page of `OF_SIGHT`: the shared body in a layout for this person."""
        session = self.session(request)
        await session.person.ready()
        body = Markup(await self.shared_body(session, _target(request)))  # noqa: S704 - of our own templates
        page = Page(dict(MENU)[request.url.path], "whole.html.j2", {"body": body})
        return self.whole(request, session, page)

    def file(self, function: PageFunction, name: str) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of a table as a file. It answers 503 if the data is not current."""

        async def endpoint(request: Request) -> Response:
            session = self.session(request)
            visit = await self.visit(request, session)
            if not session.person.is_live:
                return PlainTextResponse(f"Not current, and so no file: {session.person.problem}\n", 503)
            page = await function(visit)
            table = next((table for table in page.tables if table.name == name), None)
            if table is None:
                return PlainTextResponse("There is nothing for this table, or you may not see it.\n", 404)
            headers = {"Content-Disposition": f'attachment; filename="muster-{name}.csv"'}
            text = await compute(lambda: csv_text(table))
            return Response(text, media_type="text/csv; charset=utf-8", headers=headers)

        return endpoint

    async def events(self, request: Request) -> Response:
        """Return the stream of events of a page that updates itself."""
        session = self.session(request, is_use=False)
        target = request.query_params.get("page", "")
        secret = request.cookies.get(self.session_cookie, "")

        def is_over() -> bool:
            try:
                self.sessions.find(secret, is_use=False)
            except SignInNeeded:
                return True
            return False

        async def stream() -> AsyncIterator[bytes]:
            # without a free slot the stream ends immediately; the browser asks again and gets the reason
            with suppress(TooMany), self.sessions.streaming(session):
                async with aclosing(
                    follow(session.person, lambda: self.shared_body(session, target), is_over)
                ) as events:
                    async for event in events:
                        yield event

        self.sessions.require_stream(session)
        await self.body(session, target)
        return StreamingResponse(
            stream(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
        )

    async def form(self, request: Request) -> Response:
        """Take the sent form of a project: return its preview, or save it and redirect."""
        session = self.session(request)
        fields = await read_form(request, session.form_token)
        result = await project_forms.take_form(await self.visit(request, session), fields)
        if isinstance(result, str):
            return RedirectResponse(result, 303)
        return self.whole(request, session, result)

    async def yaml(self, request: Request) -> Response:
        """Return the YAML of a new cluster as a file."""
        self.session(request)
        text = cluster_yaml(request.query_params.get("name", "") or "cluster")
        headers = {"Content-Disposition": 'attachment; filename="muster-operator.yaml"'}
        return Response(text, media_type="application/yaml", headers=headers)

    # --- errors ----------------------------------------------------------------------------------------

    async def failed(self, request: Request, error: Exception) -> Response:
        """Return the answer to a failed request: the sign-in page, a page with the error, or text for programs."""
        path = request.url.path
        is_read_by_programs = path == "/events" or any(pattern.match(path) for pattern in self._files)
        try:
            session: Session | None = self.session(request, is_use=False)
        except SignInNeeded:
            session = None
        if isinstance(error, Unauthorized) and session is not None:
            session.person.end()
        if isinstance(error, (SignInNeeded, Unauthorized)):
            is_page = request.method == "GET" and not is_read_by_programs
            said = "" if str(error) == _NEVER_SIGNED_IN or isinstance(error, Unauthorized) else str(error)
            return self.sign_in.page(request, said, 200 if is_page else 401)
        message = str(error)
        if isinstance(error, ClusterError) and session is not None:
            message = str(session.person.client.with_hint(error))
        status = status_of(error)
        if session is None or is_read_by_programs:
            return PlainTextResponse(f"{message}\n", status)
        page = Page("This cannot be shown", "problem.html.j2", {"message": message})
        return self.whole(request, session, page, status=status)


def make_application(
    access: Access,
    *,
    is_secure: bool,
    sessions: Sessions | None = None,
    sights: Sights | None = None,
    history: History | None = None,
    reports: Reports | None = None,
    provider: Provider | None = None,
) -> Guard:
    """Return the application for the cluster. It uses everything in `access` except the credentials.

    It starts and closes `history`, which may share the `sights`. `reports` are the records of acceptance tests. People
    sign in at `provider`, which the application closes.
    """
    web = Web(
        access,
        is_secure=is_secure,
        sessions=Sessions() if sessions is None else sessions,
        sights=Sights() if sights is None else sights,
        history=history,
        reports=reports,
        provider=None if provider is None else ProviderSignIn(provider),
    )
    pages = [
        Route(path, web.page_of_sight if path in OF_SIGHT else web.page(function))
        for path, function in (LIVE | STILL).items()
    ]
    files = [Route(path, web.file(function, name)) for path, (function, name) in FILES.items()]
    forms = [
        Route(path, web.page(project_forms.show_form), methods=["GET"])
        for path in ("/projects/new", "/projects/{name}")
    ]
    posts = [Route(path, web.form, methods=["POST"]) for path in ("/projects/new", "/projects/{name}")]

    @asynccontextmanager
    async def lifespan(_application: Starlette) -> AsyncIterator[None]:
        if history is not None:
            await history.start()
        sweeping = asyncio.create_task(web.sessions.sweep())
        try:
            yield
        finally:
            sweeping.cancel()
            await web.sessions.close()
            if provider is not None:
                await provider.close()
            if history is not None:
                await history.close()

    application = Starlette(
        routes=[
            Route("/healthz", _healthy),
            *web.sign_in.routes(),
            Route("/events", web.events),
            Route("/new-cluster.yaml", web.yaml),
            *files,
            *pages,
            *forms,
            *posts,
            Mount("/static", StaticFiles(packages=[("musterweb", "static")])),
        ],
        exception_handlers={MusterError: web.failed, Exception: _mistake},
        lifespan=lifespan,
    )
    # the outermost layer, so that answers to errors in muster itself have the headers too
    return Guard(application, is_secure=is_secure)


def _target(request: Request) -> str:
    """Return the path and query of a request."""
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


async def _healthy(_request: Request) -> Response:
    """Answer 200. The API server is not checked: if it is away, the pages say so, and a new pod would not help."""
    return PlainTextResponse("ok\n")


async def _mistake(_request: Request, error: Exception) -> Response:
    log.error("a page failed: %r", error)
    return PlainTextResponse("This is a mistake in muster, please report it; its log says more.\n", 500)
