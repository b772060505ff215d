"""Who is answered: the page itself, under a name of this machine, with its token for every change."""

import io
import struct
import zlib

import pytest
from PIL import Image

from lqf.serve import uploads
from lqf.serve.security import TOKEN_HEADER, Guard

CHANGES = ("/api/correct", "/api/undo", "/api/apply")


def jpeg(side: int = 40) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (side, side), (200, 30, 30)).save(out, "JPEG")
    return out.getvalue()


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few bytes that says it has this many pixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = chunk(b"IDAT", zlib.compress(b"\0" * 64))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + data + chunk(b"IEND", b"")


@pytest.mark.parametrize("host", ["evil.example:8765", "127.0.0.1:9999", "127.0.0.1", "127.0.0.1.evil.io:8765", ""])
@pytest.mark.parametrize("path", ["/", "/api/about", "/picture/train/0/160", "/static/page.js"])
def test_unknown_hosts_are_refused(client, host, path):
    answer = client.get(path, headers={"host": host})
    assert answer.status_code == 421
    assert "another name" in answer.json()["error"]


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost:8765", "LOCALHOST:8765", "[::1]:8765"])
def test_names_of_this_machine_are_known(client, host):
    assert client.get("/api/about", headers={"host": host}).status_code == 200


def test_bound_to_every_address_they_are_its_names_and_foreign_ones_are_not():
    guard = Guard(80, "0.0.0.0")
    assert guard.refusal("GET", [(b"host", b"192.168.1.7")]) is None
    assert guard.refusal("GET", [(b"host", b"evil.example")])[0] == 421
    assert Guard(80).refusal("GET", [(b"host", b"192.168.1.7")])[0] == 421


def test_two_hosts_are_refused():
    assert Guard(80).refusal("GET", [(b"host", b"localhost"), (b"host", b"evil.example")])[0] == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1:8765", "http://127.0.0.1:81"])
def test_other_origins_are_refused(client, origin):
    for answer in (
        client.get("/api/about", headers={"origin": origin}),
        client.post("/api/correct", json={"n": 0, "action": "exclude"}, headers={"origin": origin}),
    ):
        assert answer.status_code == 403
        assert "other pages" in answer.json()["error"]
    assert client.get("/api/about", headers={"origin": "http://127.0.0.1:8765"}).status_code == 200


def test_what_other_pages_embed_is_refused_and_a_link_is_followed(client):
    embedded = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    assert client.get("/picture/train/0/160", headers=embedded).status_code == 403
    assert client.get("/", headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}).status_code == 200


@pytest.mark.parametrize("path", [*CHANGES, "/api/what-if", "/api/own"])
@pytest.mark.parametrize("token", ["", "wrong", "ä"])
def test_every_change_needs_the_token(session, client_of, path, token):
    client = client_of(session, token="")
    answer = client.post(path, json={"n": 0, "action": "exclude"}, headers={TOKEN_HEADER: token.encode("latin-1")})
    assert answer.status_code == 403
    assert "token" in answer.json()["error"]
    assert not len(session.corrections)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_are_refused(client, method):
    assert client.request(method, "/api/about").status_code == 405


@pytest.mark.parametrize("path", CHANGES)
def test_read_only_refuses_every_change(opened, client_of, path):
    session = opened(read_only=True)
    client = client_of(session)
    answer = client.post(path, json={"n": 0, "action": "exclude"})
    assert answer.status_code == 403
    assert "--read-only" in answer.json()["error"]
    assert not len(session.corrections)
    assert not list(session.out.parent.iterdir())


@pytest.mark.parametrize(
    "path",
    [
        "/picture/train/../../secret.txt/160",
        "/picture/train/..%2f..%2fsecret.txt/160",
        "/picture/..%2f..%2fsecret/0/160",
        "/picture/train/0/161",
        "/picture/train/99999/160",
        "/picture/train/-1/160",
        "/picture/own/0/160",
        "/static/..%2f..%2fapp.py",
        "/static/%2e%2e/app.py",
        "/static/app.py",
        "/api/image/train/secret.txt",
        "/api/image/nothing/0",
        "/etc/passwd",
        "//etc/passwd",
    ],
)
def test_nothing_but_samples_by_number_is_served(client, path):
    answer = client.get(path)
    assert answer.status_code == 404
    assert "nobody's business" not in answer.text


def test_what_is_answered_may_load_nothing_from_elsewhere(client):
    for path in ("/", "/api/about", "/picture/train/0/160", "/nowhere"):
        headers = client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
        assert headers["x-content-type-options"] == "nosniff"


def test_an_upload_is_limited_in_size_kind_and_pixels(client, session, monkeypatch):
    def send(data: bytes, kind: str = "image/png") -> tuple[int, str]:
        answer = client.post("/api/own", content=data, headers={"content-type": kind})
        return answer.status_code, answer.json().get("error", "")

    assert send(jpeg(), "image/jpeg")[0] == 200
    assert send(jpeg(), "text/html")[0] == 415
    assert send(b"<svg onload='alert(1)'/>", "image/svg+xml")[0] == 415
    assert send(b"", "image/png")[0] == 415
    assert send(jpeg()[:200])[0] == 415
    assert send(bomb(60_000_000, 1))[0] == 413
    assert send(bomb(30_000, 30_000))[0] == 413
    monkeypatch.setattr("lqf.serve.app.MOST_BYTES", 500)
    assert send(b"\xff" * 501)[0] == 413
    chunked = client.post("/api/own", content=iter([b"\xff" * 300] * 3), headers={"content-type": "image/png"})
    assert chunked.status_code == 413
    assert len(session.uploads.kept) == 1


def test_few_uploads_are_kept(client, session):
    for _ in range(uploads.MOST_KEPT + 2):
        session.uploads.add(jpeg())
    assert list(session.uploads.kept) == list(range(2, uploads.MOST_KEPT + 2))
    assert client.get("/picture/own/0/160").status_code == 404
    assert client.get("/picture/own/5/160").headers["content-type"] == "image/jpeg"


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"nothing", b"[" * 100_000, b'{"n": true}', b'{"n": -1, "action": "exclude"}', b"x" * 300_000]
)
@pytest.mark.parametrize("path", ["/api/correct", "/api/what-if"])
def test_questions_that_are_none_are_refused_with_a_sentence(client, path, body):
    answer = client.post(path, content=body)
    assert answer.status_code in (400, 413)
    assert answer.json()["error"]
