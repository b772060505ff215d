"""Many clients of one page, over loopback: every request is answered as it should be, and the memory stays bounded."""

from __future__ import annotations

import http.client
import json
import random
import resource
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fits import convnet, photos
from lqf import LQFClassifier
from lqf.serve.ahead import Ahead
from lqf.serve.app import application
from lqf.serve.run import listen
from lqf.serve.security import TOKEN_HEADER, Guard
from lqf.serve.session import Session

CLIENTS = 16
GROWTH = 64 << 20
"""Bytes by which the process may grow after its first requests: stores of pictures and of asked images fill up."""
N, TESTS = 24, 9


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Session, int, str]]:
    """A head on coloured noise, its port and token."""
    uvicorn = pytest.importorskip("uvicorn")
    photos(tmp_path / "train", N // 3, classes=("blue", "green", "red"))
    photos(tmp_path / "test", TESTS // 3, seed=1, classes=("blue", "green", "red"))
    fixed: dict[str, Any] = {"solver": "head", "pooling": "avg", "size": 32, "device": "cpu", "verbose": 0}
    model = LQFClassifier(convnet(), **fixed).fit(str(tmp_path / "train"))
    session = Session.open(model, "run", tmp_path / "out", test=str(tmp_path / "test"))
    bound, ahead = listen("127.0.0.1", 0), Ahead(session)
    guard = Guard(bound.getsockname()[1])
    config = uvicorn.Config(application(session, guard, ahead=ahead), log_level="warning", ws="none", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    ahead.start()
    yield session, bound.getsockname()[1], guard.token
    server.should_exit = True
    thread.join(20)
    assert not thread.is_alive()


def requests(draw: random.Random, picture: bytes) -> tuple[str, str, bytes | None, int]:
    """One of all kinds: method, path, body, and the status that it must have."""
    i, j, side = draw.randrange(N), draw.randrange(TESTS), draw.choice([160, 480])
    without = json.dumps({"set": "test", "n": j, "without": draw.sample(range(N), 3)}).encode()
    correct = json.dumps({"n": i, "action": draw.choice(["exclude", "keep"])}).encode()
    order = draw.choice(["given", "doubtful", "uncertain"])
    return draw.choice(
        [
            ("GET", "/", None, 200),
            ("GET", "/static/page.js", None, 200),
            ("GET", "/api/about", None, 200),
            ("GET", f"/api/images/train?order={order}", None, 200),
            ("GET", f"/api/images/test?order={order}&wrong=1", None, 200),
            ("GET", f"/api/image/test/{j}", None, 200),
            ("GET", f"/api/image/train/{i}", None, 200),
            ("GET", f"/picture/train/{i}/{side}", None, 200),
            ("GET", f"/picture/test/{j}/{side}", None, 200),
            ("GET", "/api/labels", None, 200),
            ("GET", "/api/progress", None, 200),
            ("POST", "/api/what-if", without, 200),
            ("POST", "/api/correct", correct, 200),
            ("POST", "/api/undo", b"{}", 200),
            ("POST", "/api/own", picture, 200),
            ("POST", "/api/own", b"no image", 415),
            ("POST", "/api/what-if", b"{", 400),
            ("GET", f"/api/image/train/{N + i}", None, 404),
            ("GET", "/picture/train/../../secret", None, 404),
            ("GET", "/api/images/test?order=x", None, 400),
        ]
    )


def load(served: tuple[Session, int, str], number: int, count: Callable[..., None], tmp_path: Path) -> None:
    """So many requests from all clients."""
    _, port, token = served
    picture, wrong, seen = next(tmp_path.rglob("*.png")).read_bytes(), list[Any](), Counter[str]()
    sizes = [0]

    def one_client(seed: int) -> None:
        draw, line = random.Random(seed), http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        for k in range(number // CLIENTS):
            method, path, body, expected = requests(draw, picture)
            kind = {"content-type": "image/png"} if path == "/api/own" else {}
            line.request(method, path, body, {TOKEN_HEADER: token, **kind})
            answer = line.getresponse()
            text = answer.read()
            seen[f"{answer.status}"] += 1
            if answer.status != expected:
                wrong.append((method, path, answer.status, text[:200]))
            if seed == 0 and k == number // CLIENTS // 4:
                sizes[0] = held()
        line.close()

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(one_client, range(CLIENTS)))
    assert not wrong, wrong[:5]
    grown = held() - sizes[0]
    for status, n in seen.items():
        count(f"requests of {CLIENTS} clients", f"status {status}", n)
    count("megabytes that the process grew after a quarter of them", n=max(0, grown >> 20))
    assert grown < GROWTH


def held() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_some_requests(served: tuple[Session, int, str], count: Callable[..., None], tmp_path: Path) -> None:
    load(served, 20 * CLIENTS, count, tmp_path)


@pytest.mark.faults
def test_ten_thousand_requests(served: tuple[Session, int, str], count: Callable[..., None], tmp_path: Path) -> None:
    load(served, 10_000, count, tmp_path)
