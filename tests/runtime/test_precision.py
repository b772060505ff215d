"""TF32 allowed and forbidden, whatever the caller has set before."""

import pytest
import torch

from lqf.runtime.precision import matmul_precision, tf32
from processes import python

NEWER = hasattr(torch.backends, "fp32_precision")
SETTINGS = [
    "pass",
    "torch.set_float32_matmul_precision('high')",
    "torch.set_float32_matmul_precision('medium')",
    "torch.backends.cuda.matmul.allow_tf32 = True",
    "torch.backends.cudnn.allow_tf32 = False",
]
NEWER_SETTINGS = [
    "torch.backends.cuda.matmul.fp32_precision = 'tf32'",
    "torch.backends.cudnn.conv.fp32_precision = 'ieee'",
    "torch.backends.fp32_precision = 'tf32'",
    "torch.backends.fp32_precision = 'ieee'",
]
CHECK = """
import torch
from lqf.runtime.precision import matmul_precision, tf32

def state():
    answers = []
    for ask in (torch.get_float32_matmul_precision, lambda: torch.backends.cuda.matmul.allow_tf32,
                lambda: torch.backends.cudnn.allow_tf32, tf32):
        try:
            answers.append(ask())
        except RuntimeError as error:
            answers.append(str(error))
    return answers

def check():
    before = state()
    with matmul_precision(True):
        assert tf32() == (True, True)
        with matmul_precision(False):
            assert tf32() == (False, False)
        assert tf32() == (True, True)
    assert state() == before, (state(), before)

"""


@pytest.mark.parametrize("settings", [SETTINGS, NEWER_SETTINGS] if NEWER else [SETTINGS], ids=lambda s: s[-1])
def test_what_the_caller_has_set_is_there_again(settings: list[str]) -> None:
    """In a process of its own: the newer settings cannot be taken back."""
    script = CHECK + "\n".join(f"{setting}\ncheck()" for setting in settings)
    done = python("-c", script)
    assert done.returncode == 0, done.stderr


def test_an_error_inside_restores_the_callers_precision() -> None:
    before = tf32()
    with pytest.raises(KeyError), matmul_precision(not before[0]):
        raise KeyError
    assert tf32() == before
