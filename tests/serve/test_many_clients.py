"""Many clients at once: every request is answered, pictures come from a bounded store, corrections are not lost."""

from concurrent.futures import ThreadPoolExecutor

from lqf.serve import thumbnails


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
