"""A small model on coloured noise whose names have HTML in them, opened for a page."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fits import convnet, photos
from lqf import LQFClassifier
from lqf.serve.app import application
from lqf.serve.security import TOKEN_HEADER, Guard
from lqf.serve.session import Session

HOSTILE = "<img src=x onerror=alert(1)>"
CLASSES = (HOSTILE, "blue")
PORT = 8765


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`train` with one label turned, `test`, and a file beside them that is nobody's business."""
    folder = tmp_path_factory.mktemp("served")
    photos(folder / "train", 8, classes=CLASSES)
    photos(folder / "test", 3, seed=1, classes=CLASSES)
    photos(folder / "pool", 2, seed=2, classes=CLASSES)
    shutil.move(folder / "train" / HOSTILE / "3.png", folder / "train" / "blue" / "<b>turned.png")
    (folder / "secret.txt").write_text("nobody's business")
    return folder


@pytest.fixture(scope="session")
def model(folders: Path) -> LQFClassifier:
    network = convnet()
    fixed: dict[str, Any] = {"solver": "head", "pooling": "avg", "size": 32, "device": "cpu", "dtype": "float64"}
    return LQFClassifier(network, **fixed).fit(str(folders / "train"))


@pytest.fixture
def opened(model: LQFClassifier, folders: Path, tmp_path: Path) -> Callable[..., Session]:
    """Opens the model."""
    test, pool = str(folders / "test"), str(folders / "pool")
    return lambda **how: Session.open(model, "run", tmp_path / "run-corrected", test=test, pool=pool, **how)


@pytest.fixture
def session(opened: Callable[..., Session]) -> Session:
    return opened()


@pytest.fixture
def client_of() -> Callable[..., Any]:
    """A client of a session's page, which has its token unless ``token`` is another one."""
    testclient = pytest.importorskip("starlette.testclient")

    def make(session: Session, token: str | None = None, ahead: Any = None, **guard: Any) -> Any:
        guarded = Guard(PORT, **guard)
        headers = {TOKEN_HEADER: guarded.token if token is None else token}
        return testclient.TestClient(
            application(session, guarded, ahead=ahead), f"http://127.0.0.1:{PORT}", headers=headers
        )

    return make


@pytest.fixture
def client(session: Session, client_of: Callable[..., Any]) -> Any:
    return client_of(session)
