"""The page in a real browser, end to end: looking, asking, correcting, undoing, applying, one's own image."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from browser import PROGRAM
from lqf.serve.app import application
from lqf.serve.run import listen
from lqf.serve.security import Guard

pytestmark = pytest.mark.browser
TURNED = "blue/<b>turned.png"
UNNAMED = """[...document.querySelectorAll('button, select, input, a')].filter(
    e => !(e.ariaLabel || e.textContent.trim() || e.labels?.length)).length"""
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def address(session) -> Iterator[str]:
    """The page, served on a free port until the test ends."""
    uvicorn = pytest.importorskip("uvicorn")
    bound = listen("127.0.0.1", 0)
    port = bound.getsockname()[1]
    config = uvicorn.Config(application(session, Guard(port)), log_level="warning", lifespan="off", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{port}/"
    server.should_exit = True
    thread.join(10)
    bound.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=PROGRAM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def page(address, chromium) -> Iterator[Any]:
    """A browser's page that shows it; it ends with no complaint, and has asked nobody else."""
    complaints: list[str] = []
    asked: list[str] = []
    page = chromium.new_page(viewport={"width": 1100, "height": 900})
    page.set_default_timeout(20_000)
    page.on("pageerror", lambda e: complaints.append(str(e)))
    page.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
    page.on("dialog", lambda d: complaints.append("a script of a name has run") or d.dismiss())
    page.on("request", lambda r: asked.append(r.url))
    page.goto(address)
    yield page
    page.close()
    refused = "status of 415"  # which Chromium writes to its console, too
    assert [c for c in complaints if refused not in c] == []
    assert all(url.startswith((address, "data:")) for url in asked)


def test_from_looking_to_a_corrected_model(page, session, folders):
    page.wait_for_selector(".tiles li")
    assert page.locator(".tiles li").count() == 16
    assert page.locator(".tiles").inner_text().count(HOSTILE)  # as text
    page.get_by_label("wrong ones only").check()
    page.locator(".tiles li", has_text="labelled").first.wait_for()
    assert page.locator(".tiles li:not(.wrong)").count() == 0

    page.get_by_role("link", name="test images").click()
    page.locator(".tiles a").first.click()
    page.wait_for_selector(".pushes li")
    assert page.get_by_text("Pushed it away").is_visible()
    page.locator(".pushes input").first.check()
    page.wait_for_selector(".without dl")
    assert "leave-one-out error" in page.locator(".without").inner_text()
    page.locator(".without dt", has_text="test error").wait_for()
    assert "exact" in page.locator(".without").inner_text()

    page.get_by_role("link", name="wrong labels").click()
    page.wait_for_selector(".answers li")
    first = page.locator(".answers a").first
    assert TURNED in first.inner_text()
    first.focus()
    page.keyboard.press("x")
    page.wait_for_selector(".answers li.excluded")
    page.keyboard.press("u")
    page.wait_for_selector(".answers li.excluded", state="detached")
    page.get_by_role("button", name=f"relabel {TURNED}").click()
    page.wait_for_selector(".answers li.relabelled")
    assert "→" in page.get_by_label("corrections").inner_text()
    assert not list(session.out.parent.iterdir())
    page.get_by_role("button", name="apply").click()
    page.locator("#status", has_text="is written").wait_for()
    assert (session.out / "model.json").is_file()

    page.get_by_role("link", name="weight decay").click()
    slider = page.get_by_role("slider")
    slider.focus()
    page.keyboard.press("End")
    assert "now" in page.locator(".pairs-of").inner_text()
    assert page.locator("svg.plot .kept").count() == 1
    page.get_by_role("link", name="to label next").click()
    page.locator("a[href^='#/image/pool/']").first.click()
    page.wait_for_selector(".pushes li")

    page.get_by_role("link", name="your own image").click()
    page.get_by_label("an image file").set_input_files(folders / "test" / "blue" / "0.png")
    page.wait_for_selector(".pushes li")
    page.get_by_label("an image file").set_input_files(
        {"name": "x.png", "mimeType": "image/png", "buffer": b"this is no picture"}
    )
    page.wait_for_selector("[role=alert]")
    assert "is not an image" in page.locator("[role=alert]").inner_text()


def test_the_keyboard_skips_to_the_content_and_moves_among_pictures(page):
    page.wait_for_selector(".tiles li")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    assert page.locator(".tiles li").count() == 16  # the view is still there
    assert page.title().startswith("training images · ")
    page.evaluate("location.hash = '#/labels'")
    page.wait_for_selector(".answers li")
    assert page.title().startswith("wrong labels · ")
    only = page.locator(".answers a").first
    only.focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp"):  # there is no other
        page.keyboard.press(key)
        assert only.evaluate("a => a === document.activeElement")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_every_control_has_a_name(page, scheme):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 375, "height": 800})
    for view in ("images/train", "labels", "own", "decays", "summary", "suggested", "image/test/0"):
        page.evaluate(f"location.hash = '#/{view}'")
        page.wait_for_selector("#content h2")
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
        unnamed = page.evaluate(UNNAMED)
        assert unnamed == 0
        assert page.evaluate("[...document.images].every(i => i.alt)")
