"""Many clients at once: every request is answered, pictures come from a bounded store, corrections are not lost."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from lqf.serve import thumbnails
from lqf.serve.ahead import Ahead


def test_mixed_requests_of_many_clients(client, session, monkeypatch):
    monkeypatch.setattr(thumbnails, "ROOM", 20_000)

    def one(k: int) -> int:
        read = ["/api/images/test", "/api/labels", "/api/progress"]
        read += [f"/picture/train/{k % 16}/160", f"/api/image/test/{k % 6}"]
        if k % 6 == 5:
            return client.post("/api/correct", json={"n": k % 16, "action": "exclude"}).status_code
        return client.get(read[k % 6 % 5]).status_code

    with ThreadPoolExecutor(8) as pool:
        codes = list(pool.map(one, range(240)))
    assert set(codes) == {200}
    assert len(session.corrections) == len({k % 16 for k in range(240) if k % 6 == 5})
    assert session.thumbnails._bytes <= 20_000


def test_a_large_list_comes_in_parts(client, session):
    first = client.get("/api/images/train?most=5").json()
    rest = client.get("/api/images/train?start=5&most=200").json()
    assert [r["n"] for r in first["rows"] + rest["rows"]] == list(range(16))
    assert len(client.get("/api/images/train?most=100000000").json()["rows"]) == 16


def test_questions_pass_what_is_made_ahead(session, client_of, monkeypatch):
    """The test images' kernel is made behind the page: a tick says how far it is, and is complete afterwards."""
    ahead, reached, go_on = Ahead(session), threading.Event(), threading.Event()
    real = session.analysis.method._make_kernel

    def slow(queries):
        with session.progress.stage("kernel", total=4) as stage:
            stage.advance(3)
            if len(queries) > 1:
                reached.set()
                while not go_on.is_set():
                    stage.advance(0)
                    time.sleep(0.001)
        return real(queries)

    monkeypatch.setattr(session.analysis.method, "_make_kernel", slow)
    client = client_of(session, ahead=ahead)
    ahead.start()
    assert reached.wait(20)
    question = {"set": "test", "n": 1, "without": [2]}
    soon = client.post("/api/what-if", json=question).json()
    assert soon["test"] is None
    assert soon["ahead"] == {"state": "running", "stage": "kernel", "done": 3, "total": 4}
    assert client.get("/api/progress").json()["question"]["stage"] == ""
    go_on.set()
    ahead.wait(20)
    whole = client.post("/api/what-if", json=question).json()
    assert whole["ahead"] is None
    assert whole["test"] == session.changed_test_error({"without": [2]})
    assert whole["probability"] == soon["probability"]


def test_what_is_made_ahead_ends_with_the_page(session, monkeypatch):
    ahead, reached = Ahead(session), threading.Event()

    def endless():
        with session.progress.stage("kernel") as stage:
            while True:
                stage.advance()
                reached.set()

    monkeypatch.setattr(session, "prepare_test", endless)
    ahead.start()
    assert reached.wait(20)
    ahead.stop()
    assert ahead.state == "ended"
    with session.turns:
        pass
