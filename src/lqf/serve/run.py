"""Serving the page until somebody stops it."""

from __future__ import annotations

import socket
from typing import Any

from lqf.errors import LQFError, MissingDependency
from lqf.serve.ahead import Ahead
from lqf.serve.app import application
from lqf.serve.apply import Applying
from lqf.serve.security import Guard, Guarded
from lqf.serve.session import Session
from lqf.utils.progress import Progress


def listen(host: str, port: int) -> socket.socket:
    """A bound socket; port 0 is any free one."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except (OSError, OverflowError) as e:
        reason = getattr(e, "strerror", None) or str(e)
        raise LQFError(f"cannot serve at {host}:{port} ({reason}); choose another --port, or 0 for a free one") from e
    return bound


def serve(session: Session, bound: socket.socket, host: str, progress: Progress) -> dict[str, Any]:
    """Answer until interrupted; the address, and what was written."""
    port = bound.getsockname()[1]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
    applying, ahead = Applying(session), Ahead(session)
    app = application(session, Guard(port, host), applying, ahead)
    progress.say(f"{session.name}: {address} (Ctrl-C stops it)")
    ahead.start()
    _run(app, bound)
    ahead.stop()
    if applying.state == "running":
        progress.say("The corrected model is still being fitted; Ctrl-C again gives it up.")
        try:
            applying.wait()
        except KeyboardInterrupt:
            applying.give_up()
            raise
    return {"address": address, "written": applying.written}


def check_installed() -> None:
    """Say what is missing before a model is loaded."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as e:
        raise MissingDependency("starlette and uvicorn", "`lqf serve`", "pip install 'lqf-torch[serve]'") from e


def _run(app: Guarded, bound: socket.socket) -> None:
    import uvicorn

    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        ws="none",
        lifespan="off",
        server_header=False,
        limit_concurrency=256,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=2,
    )
    try:
        uvicorn.Server(config).run(sockets=[bound])
    except KeyboardInterrupt:  # the way to stop it
        return
