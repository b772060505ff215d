"""The routes: pictures by number, answers as JSON, and the page with its files."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

from lqf.errors import LQFError, MissingDependency
from lqf.reports.html.environment import load_template
from lqf.serve import answers
from lqf.serve.ahead import Ahead
from lqf.serve.apply import Applying
from lqf.serve.refused import Refused
from lqf.serve.security import Guard, Guarded
from lqf.serve.session import Session
from lqf.serve.uploads import MOST_BYTES

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

T = TypeVar("T")
HERE = "lqf.serve"
SCRIPTS = ("page.js", "pieces.js", "images.js", "labels.js", "more.js")
STATIC = {"page.css": "text/css", **dict.fromkeys(SCRIPTS, "text/javascript")}
MOST_JSON = 2**18
"""Bytes of a question."""


def application(
    session: Session, guard: Guard, applying: Applying | None = None, ahead: Ahead | None = None
) -> Guarded:
    """The page's ASGI application."""
    try:
        from starlette.applications import Starlette
        from starlette.routing import Route
    except ImportError as e:
        raise MissingDependency("starlette and uvicorn", "`lqf serve`", "pip install 'lqf-torch[serve]'") from e
    pages = Pages(session, guard.token, applying or Applying(session), ahead or Ahead(session))
    questions = {
        "/api/about": lambda query, path: answers.about(session),
        "/api/images/{set}": lambda query, path: answers.images(session, path["set"], query),
        "/api/image/{set}/{n:int}": lambda query, path: answers.image(session, path["set"], path["n"]),
        "/api/suggested": lambda query, path: answers.suggested(session),
        "/api/summary": lambda query, path: answers.summary(session),
        "/api/decays": lambda query, path: answers.decays(session),
        "/api/labels": lambda query, path: answers.labels(session, query),
    }
    changes = {
        "/api/what-if": pages.what_if,
        "/api/correct": pages.correct,
        "/api/undo": pages.undo,
        "/api/apply": pages.apply,
    }
    routes = [
        Route("/", pages.page),
        Route("/static/{name}", pages.static),
        Route("/picture/{set}/{n:int}/{side:int}", pages.picture),
        Route("/api/progress", pages.progress),
        Route("/api/own", pages.own, methods=["POST"]),
        *(Route(path, pages.get(answer)) for path, answer in questions.items()),
        *(Route(path, pages.post(answer), methods=["POST"]) for path, answer in changes.items()),
    ]
    return Guarded(Starlette(routes=routes), guard)


class Pages:
    """Requests to answers; what takes long is done in a thread."""

    def __init__(self, session: Session, token: str, applying: Applying, ahead: Ahead) -> None:
        self.session, self.applying, self.ahead = session, applying, ahead
        template = load_template("templates/page.html.jinja", HERE)
        self._page = template.render(name=session.name, token=token, read_only=session.read_only)

    # --- the page -----------------------------------------------------------------------------------------------------

    async def page(self, request: Request) -> Response:
        """The only HTML."""
        from starlette.responses import HTMLResponse

        return HTMLResponse(self._page, headers={"cache-control": "no-store"})

    async def static(self, request: Request) -> Response:
        """The style, or a script."""
        from starlette.responses import Response

        name = request.path_params["name"]
        if name not in STATIC:
            return _json({"error": "there is no such file"}, 404)
        return Response(static_file(name), media_type=STATIC[name], headers={"cache-control": "no-store"})

    async def picture(self, request: Request) -> Response:
        """A JPEG of a sample."""
        from starlette.responses import Response

        path = request.path_params
        jpeg = await _in_thread(lambda: self.session.picture(path["set"], path["n"], path["side"]))
        if not isinstance(jpeg, bytes):
            return jpeg
        return Response(jpeg, media_type="image/jpeg", headers={"cache-control": "private, max-age=3600"})

    async def progress(self, request: Request) -> Response:
        """How far what is computed now is, the corrected model, and what is made ahead."""
        question, ahead = self.session.progress.now(), self.ahead.now()
        return _json({"question": question, "apply": self.applying.now(), "ahead": ahead})

    # --- questions ----------------------------------------------------------------------------------------------------

    def get(self, answer: Callable[[dict[str, str], dict[str, Any]], dict[str, Any]]) -> Callable[..., Any]:
        """A route for a question with words in its address."""

        async def route(request: Request) -> Response:
            return await self._answered(lambda: answer(dict(request.query_params), request.path_params))

        return route

    def post(self, answer: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[..., Any]:
        """A route for a question of JSON."""

        async def route(request: Request) -> Response:
            try:
                given = _read_json(await _body(request, MOST_JSON))
            except Refused as no:
                return _json({"error": str(no)}, no.status)
            return await self._answered(lambda: answer(given))

        return route

    async def own(self, request: Request) -> Response:
        """An image of the person at the page: the body is the file."""
        try:
            kind = request.headers.get("content-type", "")
            if not kind.startswith("image/") and kind != "application/octet-stream":
                raise Refused(415, "drop an image file here")
            data = await _body(request, MOST_BYTES)
        except Refused as no:
            return _json({"error": str(no)}, no.status)

        def answer() -> dict[str, Any]:
            return answers.image(self.session, "own", self.session.uploads.add(data))

        return await self._answered(answer)

    def what_if(self, given: dict[str, Any]) -> dict[str, Any]:
        """Without some training images."""
        which, n, without = given.get("set"), given.get("n"), given.get("without")
        if not (
            isinstance(which, str) and _is_number(n) and isinstance(without, list) and all(map(_is_number, without))
        ):
            raise Refused(400, "say which image, and the numbers of the training images to leave out")
        wanted = given.get("test") is not False
        waits = wanted and self.ahead.state == "running" and not self.session.test_prepared
        found = answers.what_if(self.session, which, n, without, wanted and not waits)
        return {**found, "ahead": self.ahead.now() if waits else None}

    def correct(self, given: dict[str, Any]) -> dict[str, Any]:
        """Relabel, exclude or keep a training image."""
        n, action, label = given.get("n"), given.get("action"), given.get("label")
        if not (_is_number(n) and isinstance(action, str) and isinstance(label, str | None)):
            raise Refused(400, "say which training image, and what is to become of it")
        self.session.correct(n, action, label)
        return answers.corrections(self.session)

    def undo(self, given: dict[str, Any]) -> dict[str, Any]:
        """Take the last correction back."""
        self.session.check_changes()
        return {"undone": self.session.corrections.undo(), **answers.corrections(self.session)}

    def apply(self, given: dict[str, Any]) -> dict[str, Any]:
        """Begin to fit on the corrected data."""
        self.applying.start()
        return self.applying.now()

    async def _answered(self, answer: Callable[[], dict[str, Any]]) -> Response:
        if self.applying.state == "running":
            return _json({"error": "the corrected model is being fitted; ask again when it is done"}, 409)

        def one_at_a_time() -> dict[str, Any]:
            with self.session.turns:
                return answer()

        found = await _in_thread(one_at_a_time)
        return _json(found) if isinstance(found, dict) else found


async def _in_thread(work: Callable[[], T]) -> T | Response:
    """What work gives, or the sentence that says why there is nothing."""
    from starlette.concurrency import run_in_threadpool

    try:
        return await run_in_threadpool(work)
    except Refused as no:
        return _json({"error": str(no)}, no.status)
    except LQFError as reason:
        return _json({"error": str(reason)}, 422)
    except MemoryError:
        return _json({"error": "the memory did not suffice for this question"}, 503)
    except Exception as e:  # a fault of ours: the page says so, and goes on
        if os.environ.get("LQF_DEBUG") == "1":
            traceback.print_exc()
        return _json({"error": f"stopped by {type(e).__name__}: {e}; LQF_DEBUG=1 shows where"}, 500)


def static_file(name: str) -> str:
    """A file of the page; the style begins with that of the reports."""
    text = files(HERE).joinpath("static", name).read_text(encoding="utf-8")
    if name.endswith(".css"):
        text = files("lqf.reports.html").joinpath("style.css").read_text(encoding="utf-8") + text
    return text


async def _body(request: Request, most: int) -> bytes:
    """The body, never more than ``most`` bytes of it in memory."""
    too_large = Refused(413, f"more than {f'{most >> 20} MB' if most >> 20 else f'{most >> 10} KB'}; give less")
    said = request.headers.get("content-length", "")
    if said.isdigit() and int(said) > most:
        raise too_large
    parts, n = [], 0
    async for part in request.stream():
        n += len(part)
        if n > most:
            raise too_large
        parts.append(part)
    return b"".join(parts)


def _read_json(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Refused(400, "the question is not a JSON object")
    return found


def _is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _json(value: dict[str, Any], status: int = 200) -> Response:
    from starlette.responses import Response

    from lqf.utils.json_values import dump_json

    return Response(
        dump_json(value, indent=None), status, media_type="application/json", headers={"cache-control": "no-store"}
    )
