"""Reports in a real browser: nothing is requested, nothing complains, nothing sticks out on a phone."""

import pytest

from browser import browser
from reports.html.synthetic import page

pytestmark = pytest.mark.browser
CLASSES = {
    "few": ("NORMAL", "PNEUMONIA"),
    "many": tuple(f"{k:03d}.A_rather_long_name_of_a_bird_{k}" for k in range(60)),
    "unbroken": ("x" * 70, "y" * 90, "z"),
}


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.mark.parametrize("classes", CLASSES)
def test_a_report_opens_from_disk_in_light_and_dark_on_a_phone_and_on_a_screen(chromium, tmp_path, classes):
    file = tmp_path / "report.html"
    file.write_text(page(180, CLASSES[classes], n_test=90), encoding="utf-8")
    grounds = set()
    for width in (390, 1280):
        for dark in (False, True):
            chromium.show(file, width, dark=dark)
            assert chromium.requested() == [file.resolve().as_uri()]
            assert chromium.complaints() == []
            assert chromium.value("document.documentElement.scrollWidth") <= width
            assert chromium.value("[...document.images].every(i => i.complete && i.naturalWidth > 0)")
            assert chromium.value("document.images.length") > 30
            grounds.add(chromium.value("getComputedStyle(document.body).backgroundColor"))
    assert len(grounds) == 2  # light and dark differ
    chromium.show(file, 390)
    sizes = "[...document.querySelectorAll('p, td, li span')].map(e => parseFloat(getComputedStyle(e).fontSize))"
    assert chromium.value(f"Math.min(...{sizes})") >= 11.5
    assert len(chromium.picture(0, 800)) > 5_000
