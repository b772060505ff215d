"""Commands that come next can be typed as they are shown."""

import shlex
from pathlib import Path

import pytest

from lqf.cli.app import COMMANDS, make_parser
from lqf.cli.next_steps import audit_command, fit_command, typed
from lqf.settings import Setup


@pytest.mark.parametrize(
    "setup",
    [
        Setup(),
        Setup(backbone="timm:resnet18.a1", weights="my weights/w.safetensors", leaky=False, size=96, squash=True),
        Setup(device="cuda:1", strict=True, limit_per_class=3, crop_area=0.4),
    ],
)
def test_a_fit_repeats_the_network_and_how_images_are_opened(setup):
    command = shlex.split(fit_command(Path("my found/cleaned.csv"), setup))
    args = vars(make_parser(COMMANDS).parse_args(command[1:]))
    assert (args["train"], args["output"]) == ("my found/cleaned.csv", "RUN2")
    for name in ("backbone", "weights", "leaky", "size", "squash", "crop_area", "crop_ratio"):
        assert args.get(name, getattr(Setup(), name)) == getattr(setup, name)
    assert not {"device", "strict", "limit_per_class"} & set(args)


def test_an_audit_has_the_place_of_the_training_data_where_it_was_given():
    assert audit_command("run") == "lqf audit run -o OUT"
    assert audit_command("my run", "new place") == "lqf audit 'my run' --train 'new place' -o OUT"


def test_a_long_command_takes_several_lines_of_a_shell(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    command = fit_command(Path("a folder/with a long name/cleaned.csv"), Setup("mobilenet_v2", "my own/w.pth", size=32))
    lines = typed(command).splitlines()
    assert len(lines) == 2
    assert max(map(len, lines)) <= 80
    assert lines[0].endswith(" \\")
    assert shlex.split(typed(command).replace("\\\n", "")) == shlex.split(command)  # as a shell reads it
    assert typed("lqf audit run -o OUT") == "  lqf audit run -o OUT"


@pytest.mark.parametrize("weights", ["balanced", {"crack": 3.0, "ok": 0.5}])
def test_weights_of_classes_are_given_again(weights: str | dict[str, float]) -> None:
    words = shlex.split(fit_command(Path("cleaned.csv"), Setup(), weights))
    expected = weights if isinstance(weights, str) else "crack=3,ok=0.5"
    assert words[-2:] == ["--class-weight", expected]
