"""What the page is told is what the model says."""

import csv

import numpy as np
import pytest

from lqf import LQFClassifier
from lqf.linear.targets import error_rate
from lqf.serve.app import SCRIPTS

HOSTILE = "<img src=x onerror=alert(1)>"


def get(client, path):
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def post(client, path, **body):
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_model_and_its_errors(client, session, model):
    about = get(client, "/api/about")
    assert about["train"] == 16
    assert about["test"] == 6
    assert about["classes"] == list(model.fitted_.classes)
    assert about["error"] == pytest.approx(model.leave_one_out().error)
    assert about["level"] == "exact"
    assert not about["read_only"]


def test_images_by_class_order_and_error(client, session, model):
    every = get(client, "/api/images/train")["rows"]
    assert [r["n"] for r in every] == list(range(16))
    assert [r["predicted"] for r in every] == [model.fitted_.classes[k] for k in session.loo.predicted]
    wrong = get(client, "/api/images/train?wrong=1")
    assert wrong["n"] == sum(r["wrong"] for r in every)
    blue = get(client, "/api/images/train?class=blue")
    assert {r["label"] for r in blue["rows"]} == {"blue"}
    sure = [r["probability"] for r in get(client, "/api/images/test?order=uncertain")["rows"]]
    assert sure == sorted(sure)
    informed = [r["n"] for r in get(client, "/api/images/train?order=information")["rows"]]
    assert informed == model.analysis_.information().samples().argsort(descending=True, stable=True).tolist()
    part = get(client, "/api/images/train?start=10&most=4")
    assert (part["n"], [r["n"] for r in part["rows"]]) == (16, [10, 11, 12, 13])
    doubted = get(client, "/api/images/train?order=doubtful")["rows"][0]
    assert doubted["id"] == "blue/<b>turned.png"


@pytest.mark.parametrize("query", ["order=x", "class=x", "start=-1", "most=1e9", "start=٣", "order=information"])
def test_questions_about_images_that_are_none(client, query):
    answer = client.get(f"/api/images/test?{query}")
    assert answer.status_code in (400, 404)
    assert answer.json()["error"]


def test_an_image_and_what_pushed_it(client, session, model, folders):
    found = get(client, "/api/image/test/2")
    images = session.test.images.samples
    path = folders / "test" / images.ids[2]
    assert found["predicted"] == model.predict(str(path))[0]
    assert dict(found["probabilities"]).values() == pytest.approx(sorted(model.predict_proba(str(path))[0])[::-1])
    expected = model.explain(str(path), top=12)[0]
    assert [p["name"] for p in found["towards"]] == [p.name for p in expected.towards]
    assert [p["change"] for p in found["away"]] == pytest.approx([p.change for p in expected.away])
    assert found["level"] == "exact"
    assert all(p["samples"] == [p["n"]] for p in found["towards"])


def test_without_some_training_images(client, session, model):
    one = get(client, "/api/image/test/2")
    gone = [p["n"] for p in one["towards"][:2]]
    found = post(client, "/api/what-if", set="test", n=2, without=gone)
    expected = session.analysis.what_if(session.test.images.samples, without=gone)
    assert found["probability"] == pytest.approx(float(expected.probabilities[2].max()))
    assert found["level"] == "exact"
    loo = found["leave_one_out"]
    stays = np.setdiff1d(np.arange(16), gone)
    after = session.analysis.changed_leave_one_out(without=gone)
    assert loo["after"] == pytest.approx(error_rate(after.outputs[stays], after.labels[stays], after.weights[stays]))
    assert loo["level"] == "exact"
    predicted = expected.probabilities.argmax(1).numpy()
    assert found["test"]["after"] == pytest.approx(np.mean(predicted != session.test.labels))
    assert not len(session.corrections)  # a question changes nothing
    soon = post(client, "/api/what-if", set="test", n=2, without=gone, test=False)
    assert (soon["test"], soon["probability"]) == (None, found["probability"])


def test_one_s_own_image(client, model, folders):
    file = folders / "test" / "blue" / "1.png"
    answer = client.post("/api/own", content=file.read_bytes(), headers={"content-type": "image/png"})
    found = answer.json()
    assert answer.status_code == 200
    assert found["label"] is None
    assert found["probability"] == pytest.approx(model.predict_proba(str(file))[0].max())
    again = post(client, "/api/what-if", set="own", n=found["n"], without=[0])
    assert again["probability"] != found["probability"]


def test_prediction_sets_are_those_of_the_model(client, session, model):
    found = get(client, "/api/image/test/2")["prediction_set"]
    sets = model.predict_set(session.test.images.samples, 0.9)
    expected = [name for name, inside in zip(model.fitted_.classes, sets.included[2], strict=True) if inside]
    assert (found["classes"], found["coverage"]) == (expected, 0.9)
    assert get(client, "/api/image/train/2")["prediction_set"] is None


def test_other_weight_decays(client, model):
    found = get(client, "/api/decays")
    assert found["current"]["error"] == pytest.approx(model.leave_one_out().error)
    assert found["current"] in found["grid"]
    assert len(found["grid"]) > 2
    assert found["level"] == "exact"


def test_fewer_training_images(client, session):
    found = get(client, "/api/summary")
    whole = session.test.evaluation.error.value
    assert [found[name][0] for name in ("least", "most", "random")] == pytest.approx([whole] * 3)
    assert len(found["least"]) == len(found["shares"])
    assert found["level"] == "exact"
    session.test = None
    del session.summary
    assert client.get("/api/summary").status_code == 404


def test_what_to_label_next(client, session, model, folders):
    found = get(client, "/api/suggested")
    assert [r["id"] for r in found["rows"]] == list(model.suggest(str(folders / "pool"), 4).ids)
    one = get(client, f"/api/image/pool/{found['rows'][0]['n']}")
    assert one["predicted"] == found["rows"][0]["predicted"]
    assert one["label"] is None
    session.pool = None
    del session.suggested
    assert client.get("/api/suggested").status_code == 404


def test_corrections_their_error_and_undo(client, session):
    turned = get(client, "/api/labels")["rows"][0]
    assert turned["id"] == "blue/<b>turned.png"
    n = turned["n"]
    one = post(client, "/api/correct", n=n, action="relabel", label=HOSTILE)
    assert one["corrections"] == [{"n": n, "action": "relabel", "label": HOSTILE}]
    after = session.analysis.changed_leave_one_out(relabel={n: HOSTILE})
    assert one["leave_one_out"]["after"] == pytest.approx(after.error)
    assert one["leave_one_out"]["after"] < one["leave_one_out"]["before"]
    two = post(client, "/api/correct", n=n, action="exclude")
    assert (two["steps"], two["corrections"][0]["action"]) == (2, "exclude")
    assert post(client, "/api/undo")["corrections"] == one["corrections"]
    assert post(client, "/api/undo")["corrections"] == []
    assert post(client, "/api/undo")["undone"] is None
    assert client.post("/api/correct", json={"n": n, "action": "relabel", "label": "x"}).status_code == 400
    assert client.post("/api/correct", json={"n": 99, "action": "exclude"}).status_code == 404
    assert post(client, "/api/correct", n=n, action="relabel", label="blue")["corrections"] == []


def test_apply_writes_a_model_and_the_corrections_and_nothing_before(session, client_of, model, folders):
    client = client_of(session)
    assert client.post("/api/apply", json={}).status_code == 409
    turned = get(client, "/api/labels")["rows"][0]["n"]
    post(client, "/api/correct", n=turned, action="relabel", label=HOSTILE)
    post(client, "/api/correct", n=0, action="exclude")
    assert not list(session.out.parent.iterdir())
    post(client, "/api/apply")
    while (now := get(client, "/api/progress")["apply"])["state"] == "running":
        pass
    assert now["state"] == "done", now
    written = {p.name for p in session.out.parent.iterdir()}
    assert written == {"run-corrected", "run-corrected.csv", "run-corrected-corrections.csv"} == set(now["written"])
    with (session.out.parent / "run-corrected-corrections.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [r["action"] for r in rows] == ["exclude", "relabel"]
    assert (rows[1]["was"], rows[1]["label"]) == ("blue", HOSTILE)
    again = LQFClassifier.load(session.out, backbone=model.backbone, device="cpu")
    assert len(again.fitted_.train.ids) == 15
    assert again.fitted_.train.source == str(session.out.parent / "run-corrected.csv")
    assert now["sentence"].startswith("changed exactly")
    wanted = session.analysis.what_if(session.test.images.samples, without=[0], relabel={turned: HOSTILE})
    np.testing.assert_allclose(again.decision_function(str(folders / "test")), wanted.value[:, 0], atol=1e-8)
    changed = session.analysis.changed_leave_one_out(without=[0], relabel={turned: HOSTILE})
    assert again.leave_one_out().error == pytest.approx(changed.error)  # its images are found by the manifest
    expected = model.predict_proba(str(folders / "test"))
    assert again.predict_proba(str(folders / "test")).shape == expected.shape
    post(client, "/api/apply")
    while get(client, "/api/progress")["apply"]["state"] == "running":
        pass
    assert (session.out.parent / "run-corrected-2" / "model.json").is_file()


def test_what_goes_wrong_in_a_fit_is_said_and_leaves_nothing(client, session):
    blue = [r["n"] for r in get(client, "/api/images/train?class=blue")["rows"]]
    for n in blue:
        post(client, "/api/correct", n=n, action="exclude")
    post(client, "/api/apply")
    while (now := get(client, "/api/progress")["apply"])["state"] == "running":
        pass
    assert now["state"] == "failed"
    assert "class" in now["sentence"]
    assert not list(session.out.parent.iterdir())


def test_names_with_html_stay_text(client, opened, client_of):
    session = opened()
    session.name = "<script>alert(1)</script>"
    page = client_of(session).get("/").text
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)" in page
    answer = client.get("/api/images/train")
    assert answer.headers["content-type"] == "application/json"  # HTML in it is never read as a page
    assert HOSTILE in answer.text
    for name in SCRIPTS:
        script = client.get(f"/static/{name}").text
        assert "innerHTML" not in script
        assert "insertAdjacentHTML" not in script


def test_a_fault_of_ours_is_said_and_the_page_goes_on(client, session, monkeypatch):
    def fault(*_):
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(session.analysis.method, "what_if", fault)
    answer = client.post("/api/what-if", json={"set": "test", "n": 0, "without": [1]})
    assert answer.status_code == 500
    assert "ZeroDivisionError" in answer.json()["error"]
    assert client.get("/api/about").status_code == 200
