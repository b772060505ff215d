"""What a browser would make of a page, without one."""

from __future__ import annotations

import re
from html.parser import HTMLParser

VOID = {"meta", "link", "img", "br", "wbr"}


class Reader(HTMLParser):
    """Tags, attributes and text; fails where a tag is not closed by its own."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.text = ""
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text += data


def assert_needs_nothing_else(html: str) -> list[str]:
    """No script, no frame, nothing from a network or a file; returns all sources and links, which lie in the page."""
    assert "//" not in re.sub(r"base64,[A-Za-z0-9+/=]+", "", html)  # no http://, no //host
    assert not re.search(r"<script|@import|url\(|<iframe|<object", html)
    found = [value or "" for _, name, value in Reader(html).attributes if name in ("src", "href", "srcset")]
    assert all(value.startswith(("data:", "#")) for value in found)
    return found
