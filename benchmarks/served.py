"""How soon the page of `lqf serve` answers: ticks at the server, and frames while one scrolls through thumbnails.

    python benchmarks/served.py DATA --size 64 --limit-per-class 20 --solvers head dense --scroll

DATA is a folder with train/ and test/. A tick leaves out training images that pushed one test image: its prediction,
the leave-one-out error and the test error come back. Every picture of the training set is scrolled past in Chromium,
whose frames are counted (`--scroll`, which needs Playwright and a browser).
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import threading
import time
from pathlib import Path
from typing import Any

from common.hardware import hardware, write
from common.options import Options

from lqf import LQFClassifier
from lqf.runtime.device import resolve_device
from lqf.serve import answers
from lqf.serve.app import application
from lqf.serve.run import listen
from lqf.serve.security import Guard
from lqf.serve.session import Session

NAMES = ("backbone", "weights", "size", "limit_per_class", "device", "seed", "views", "pooling", "linearize")
"""Settings."""
TICKS = (1, 2, 5, 10, 20)
"""Images that are left out at once."""
REPEATS = 5
SCROLL = """async () => {
  const gaps = [], sleep = (ms) => new Promise((done) => setTimeout(done, ms));
  let last = performance.now(), going = true;
  const frame = (now) => { gaps.push(now - last); last = now; if (going) requestAnimationFrame(frame); };
  requestAnimationFrame(frame);
  for (let still = 0; still < 200; ) {
    const before = window.scrollY;
    window.scrollBy({ top: 300, behavior: "instant" });
    await sleep(30);
    still = window.scrollY === before ? still + 1 : 0;
  }
  going = false;
  return { frames: gaps.slice(1), tiles: document.querySelectorAll(".tiles li").length };
}"""


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "DATA --size 32 --limit-per-class 6 --solvers head --pooling avg")
    out.add_data()
    out.add_settings(*NAMES)
    out.add_argument("--solvers", nargs="+", default=["head", "dense"], help="models that are asked")
    out.add_argument("--scroll", action="store_true", help="also scroll through the pictures in Chromium")
    return out


def opened(data: Path, solver: str, args: argparse.Namespace) -> Session:
    """A model fitted and opened as the page does."""
    given = {name: getattr(args, name) for name in NAMES}
    model = LQFClassifier(**given, solver=solver, verbose=0).fit(data / "train")
    return Session.open(model, data.name, Path("nowhere"), test=str(data / "test"))


def ticks(session: Session) -> dict[str, Any]:
    """Milliseconds of an image's page, of what is made behind it, and of ticks by how many images they leave out."""
    began = time.perf_counter()
    found = answers.image(session, "test", 0)
    page = time.perf_counter() - began
    gone = [n for p in found["towards"] + found["away"] for n in p["samples"]]
    began = time.perf_counter()
    session.prepare_test()
    ahead = time.perf_counter() - began
    first = answers.what_if(session, "test", 0, gone[:1])["seconds"]
    later = {}
    for k in TICKS:
        took = [answers.what_if(session, "test", 0, gone[:k])["seconds"] for _ in range(REPEATS)]
        later[str(k)] = {"median": 1e3 * statistics.median(took), "worst": 1e3 * max(took)}
    return {
        "image": 1e3 * page,
        "made_ahead": 1e3 * ahead,
        "first_tick": 1e3 * first,
        "tick": later,
        "level": found["level"],
    }


def scrolled(session: Session) -> dict[str, Any]:
    """Frames of a browser that scrolls from the first picture to the last."""
    import uvicorn
    from playwright.sync_api import sync_playwright

    bound = listen("127.0.0.1", 0)
    port = bound.getsockname()[1]
    app = application(session, Guard(port))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    with sync_playwright() as p:
        program = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))))
        page = p.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"]).new_page()
        page.set_default_timeout(300_000)
        page.goto(f"http://127.0.0.1:{port}/")
        page.wait_for_selector(".tiles li")
        seen = page.evaluate(SCROLL)
    server.should_exit = True
    thread.join(10)
    frames = sorted(seen["frames"])
    share = {f"{q}": frames[int(q * (len(frames) - 1))] for q in (0.5, 0.95, 0.99)}
    return {"tiles": seen["tiles"], "frames": len(frames), "milliseconds": share, "longest": frames[-1]}


def main() -> None:
    """Measure and write."""
    args = options().parse()
    rows = []
    for solver in args.solvers:
        session = opened(args.data, solver, args)
        row = {"solver": solver, "n": len(session.labels), "classes": len(session.classes), **ticks(session)}
        if args.scroll:
            row["scroll"] = scrolled(session)
        rows.append(row)
        print(row)
    name = f"served-{args.data.name}-{rows[0]['n']}-{args.backbone}-{resolve_device(args.device).type}"
    write(name, {"hardware": hardware(resolve_device(args.device)), "rows": rows}, args.out)


if __name__ == "__main__":
    main()
