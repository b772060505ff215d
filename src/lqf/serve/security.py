"""Who may ask: the page itself, under a name of this machine, and for every change with the page's token.

A browser sends requests to 127.0.0.1 for any page that it shows. So every request is looked at before it reaches a
route: its Host (a foreign name that resolves to this machine is not ours), its Origin and Sec-Fetch-Site (another
page's request is not ours either), and, for all but reading, a token that only the page knows.
"""

from __future__ import annotations

import ipaddress
import json
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

TOKEN_HEADER = "x-lqf-token"
LOCAL = ("127.0.0.1", "localhost", "[::1]")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Nothing from elsewhere, and no script but the page's own file: a name with HTML in it stays text."""
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)


@dataclass(frozen=True)
class Guard:
    """Which requests are answered.

    Attributes:
        port: at which the page is served.
        host: the address it is bound to.
        token: which every request but reading needs.
    """

    port: int
    host: str = LOCAL[0]
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)

    def refusal(self, method: str, headers: list[tuple[bytes, bytes]]) -> tuple[int, str] | None:
        """Status and sentence for a request that is not answered; None: it may go on."""
        given = [(k.decode("latin-1").lower(), v.decode("latin-1")) for k, v in headers]
        one = dict(given)
        hosts = [v for k, v in given if k == "host"]
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            return 421, "this page is served under another name; open the address that `lqf serve` has printed"
        if method not in ("GET", "HEAD", "POST"):
            return 405, "only GET, HEAD and POST are answered"
        origin, site = one.get("origin"), one.get("sec-fetch-site", "none")
        if origin is not None and origin.lower() != f"http://{hosts[0]}".lower():
            return 403, "requests from other pages are not answered"
        opened = method == "GET" and one.get("sec-fetch-mode") == "navigate"
        if site not in ("none", "same-origin") and not opened:
            return 403, "requests from other pages are not answered"
        if method == "POST" and not secrets.compare_digest(one.get(TOKEN_HEADER, "").encode(), self.token.encode()):
            return 403, "the page's token is missing or from an earlier start; load the page again"
        return None

    def _is_ours(self, host: str) -> bool:
        name, colon, port = host.rpartition(":")
        if not colon or port.endswith("]"):
            name, port = host, "80"
        if port != str(self.port):
            return False
        return name.lower() in (*LOCAL, self.host.lower()) or (self._everywhere and _is_address(name))

    @property
    def _everywhere(self) -> bool:
        """Whether it is bound to all addresses of the machine, which then are its names."""
        return self.host in ("0.0.0.0", "::")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


class Guarded:
    """An ASGI application behind a guard; what it answers carries `HEADERS`."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], guard: Guard) -> None:
        self._app, self._guard = app, guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        refusal = self._guard.refusal(scope["method"], scope["headers"])
        if refusal is None:
            await self._app(scope, receive, with_headers)
            return
        status, sentence = refusal
        body = json.dumps({"error": sentence}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await with_headers({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
