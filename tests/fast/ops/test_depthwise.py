"""Depthwise convolutions: derivatives, the convolutions of a network that are given them, and the GPU's kernels."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from closeness import relative
from lqf.backbones import load_backbone
from lqf.fast import FastLinearization
from lqf.fast.compile_ahead import depthwise_launches
from lqf.fast.ops import depthwise as ours
from lqf.fast.ops.depthwise import Depthwise, _plain, _tangent, _vjp, as_depthwise, window_of
from lqf.fast.triton.depthwise import Kernels, _kernels, kernels_for
from lqf.linear.linearize import Linearization
from needs import needs_triton

LAST = torch.channels_last
WINDOWS = [(3, 1, 1), (3, 2, 1), (5, 1, 2), (5, 2, 2), (7, 1, 3), (7, 2, 0), (3, 1, 0), (2, 2, 1), (4, 3, 3), (3, 1, 4)]
"""Kernel, stride, padding."""


def operands(
    k: int, shape: tuple[int, ...] = (2, 3, 9, 7), dtype: torch.dtype = torch.float64, device: str = "cpu"
) -> tuple[Tensor, Tensor, Tensor]:
    c = shape[1]
    x, w, b = torch.randn(shape), torch.randn(c, 1, k, k), torch.randn(c)
    return x.to(device, dtype, memory_format=LAST), w.to(device, dtype, memory_format=LAST), b.to(device, dtype)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("k", "stride", "pad"), WINDOWS)
def test_value_and_both_derivatives(k: int, stride: int, pad: int, bias: bool) -> None:
    args = operands(k)[: 3 if bias else 2]
    theirs = lambda x, w, b=None: F.conv2d(x, w, b, stride, pad, groups=3)  # noqa: E731
    mine = lambda x, w, b=None: Depthwise.apply(x, w, b, (stride, pad))  # noqa: E731
    tangents = tuple(torch.randn_like(a) for a in args)
    y, dy = torch.func.jvp(theirs, args, tangents)
    ours_y, ours_dy = torch.func.jvp(mine, args, tangents)
    torch.testing.assert_close(ours_y, y, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(ours_dy, dy, rtol=1e-10, atol=1e-10)
    g = torch.randn_like(y)
    for a, b in zip(torch.func.vjp(mine, *args)[1](g), torch.func.vjp(theirs, *args)[1](g), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("moved", ["x", "w", "b", "xw", "xb", "wb"])
def test_tangents_of_some_operands(moved: str) -> None:
    args, at = operands(3), tuple("xwb".index(m) for m in moved)

    def of(f, *some: Tensor) -> Tensor:
        full = list(args)
        for i, t in zip(at, some, strict=True):
            full[i] = t
        return f(*full)

    some = tuple(args[i] for i in at)
    tangents = tuple(torch.randn_like(t) for t in some)
    mine = torch.func.jvp(lambda *s: of(lambda x, w, b: Depthwise.apply(x, w, b, (2, 1)), *s), some, tangents)[1]
    theirs = torch.func.jvp(lambda *s: of(lambda x, w, b: F.conv2d(x, w, b, 2, 1, 1, 3), *s), some, tangents)[1]
    torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_an_absent_tangent_is_not_made_up(moved: int, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[Tensor | None, ...]] = []
    monkeypatch.setattr(ours, "_tangent", lambda *args: given.append(args[3:]) or _tangent(*args))
    args = list(operands(3))
    with torch.no_grad(), torch.autograd.forward_ad.dual_level():
        args[moved] = torch.autograd.forward_ad.make_dual(args[moved], torch.randn_like(args[moved]))
        Depthwise.apply(*args, (1, 1))
    assert [t is not None for t in given[0]] == [i == moved for i in range(3)]


@pytest.mark.parametrize(
    ("conv", "window"),
    [
        (nn.Conv2d(8, 8, 7, padding=3, groups=8), (1, 3)),
        (nn.Conv2d(8, 8, 3, 2, 1, groups=8, bias=False), (2, 1)),
        (nn.Conv2d(8, 8, 5, padding="same", groups=8), (1, 2)),
        (nn.Conv2d(8, 8, 5, padding="valid", groups=8), (1, 0)),
        (nn.Conv2d(8, 8, 4, padding="same", groups=8), None),  # not symmetric
        (nn.Conv2d(8, 8, 9, padding=4, groups=8), None),
        (nn.Conv2d(8, 8, 1, groups=8), None),
        (nn.Conv2d(8, 16, 3, groups=8), None),
        (nn.Conv2d(8, 8, 3, groups=4), None),
        (nn.Conv2d(8, 8, (3, 5), groups=8), None),
        (nn.Conv2d(8, 8, 3, (1, 2), groups=8), None),
        (nn.Conv2d(8, 8, 3, padding=(1, 0), groups=8), None),
        (nn.Conv2d(8, 8, 3, dilation=2, groups=8), None),
        (nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect", groups=8), None),
        (nn.Conv2d(1, 1, 3), None),
        (nn.ReLU(), None),
    ],
    ids=str,
)
def test_which_convolutions_are_meant(conv: nn.Module, window: tuple[int, int] | None) -> None:
    assert window_of(conv) == window
    x = torch.randn(2, getattr(conv, "in_channels", 8), 11, 10)
    before = conv(x)
    assert as_depthwise(conv) == (window is not None)
    torch.testing.assert_close(conv(x), before)


def agree(exact: Linearization, x: Tensor, rounding: float, dtype: torch.dtype = torch.float64) -> FastLinearization:
    """The merged products of a body, checked against the exact ones, with and without kept activations."""
    fast = FastLinearization(exact, dtype, x, merges=True)
    assert fast.format == LAST
    v = 1e-2 * torch.randn(exact.size, dtype=x.dtype)
    dz = exact.jvp(x, v)[1]
    pulled = exact.vjp(x, dz)
    for kept in (False, True):
        assert not kept or fast.keep(x) > 0
        for mine, theirs in ((fast.jvp(x, v)[1], dz), (fast.vjp(x, dz), pulled)):
            assert relative(mine, theirs) < rounding
    primal = fast._kept[id(x)].primal
    assert primal.hits == 2 * len(primal._values)
    return fast


def count(module: nn.Module) -> int:
    return sum(window_of(m) is not None and "forward" in vars(m) for m in module.modules())


def test_a_built_in_network_is_exact() -> None:
    body = load_backbone("mobilenet_v2", weights="random").body.double()
    fast = agree(Linearization(body), torch.randn(2, 3, 64, 64).double(), 1e-9)
    assert count(fast.module) == 17


class Layouts(Kernels):
    """Plain operations that note whether all they are given has channels last."""

    def __init__(self) -> None:
        self.last: list[bool] = []

    def _note(self, *tensors: Tensor | None) -> None:
        self.last += [t.is_contiguous(memory_format=LAST) for t in tensors if t is not None]

    def value(self, x, weight, bias, window):
        self._note(x)
        return _plain(x, weight, bias, window).contiguous(memory_format=LAST)

    def tangent(self, x, weight, window, dx, dweight, dbias):
        self._note(x, dx)
        return _tangent(x, weight, window, dx, dweight, dbias).contiguous(memory_format=LAST)

    def pull_input(self, x, weight, window, g):
        self._note(x, g)
        return _vjp(x, weight, window, g, (True, False, False))[0].contiguous(memory_format=LAST)

    def pull_weight(self, x, weight, window, g, *, bias):
        return _vjp(x, weight, window, g, (False, True, bias))[1:]


@pytest.mark.timm
def test_convnext_is_exact_and_its_activations_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    import timm

    exact, x = Linearization(timm.create_model("convnext_atto", num_classes=0).eval()), torch.randn(2, 3, 64, 64)
    by = Layouts()
    monkeypatch.setattr(ours, "kernels_for", lambda x, _: by)
    fast = agree(exact, x, 1e-4, torch.float32)
    assert count(fast.module) == fast.merged == 12
    assert len(by.last) > 12 * 5
    assert all(by.last)
    monkeypatch.undo()
    agree(Linearization(exact.module.double()), torch.randn(2, 3, 32, 32).double(), 1e-9)


# --- the kernels --------------------------------------------------------------------------------------------------


def check_kernels(by: Kernels, x: Tensor, w: Tensor, b: Tensor | None, window: tuple[int, int], error: float) -> None:
    """Every kernel against plain operations in float64."""
    assert _plain(x, w, b, window).numel() > 0

    def close(mine: Tensor, theirs: Tensor, like: Tensor) -> None:
        assert mine.dtype == like.dtype
        assert mine.shape == theirs.shape
        assert relative(mine.double(), theirs) <= error

    wide = [None if t is None else t.double() for t in (x, w, b)]
    y = _plain(*wide, window)
    mine = by.value(x, w, b, window)
    assert mine.is_contiguous(memory_format=LAST)
    close(mine, y, x)
    dx, dw, db = torch.randn_like(x), torch.randn_like(w), None if b is None else torch.randn_like(b)
    theirs = _tangent(*wide[:2], window, dx.double(), dw.double(), None if db is None else db.double())
    close(by.tangent(x, w, window, dx, dw, db), theirs, x)
    g = torch.randn_like(mine)
    gx, gw, gb = _vjp(*wide[:2], window, g.double(), (True, True, True))
    close(by.pull_input(x, w, window, g), gx, x)
    mw, mb = by.pull_weight(x, w, window, g, bias=b is not None)
    close(mw, gw, w)
    assert (mb is None) == (b is None)
    if mb is not None:
        close(mb, gb, w)


@needs_triton
@pytest.mark.parametrize(
    ("shape", "k", "stride", "pad"),
    [
        ((1, 70, 3, 5), 3, 1, 1),  # several tiles of channels, the last not full
        ((2, 16, 5, 18), 5, 1, 2),  # strips, the last narrower
        ((2, 16, 18, 17), 3, 2, 1),
        ((130, 2, 1, 1), 3, 1, 1),  # more images in a program than one
    ],
)
def test_kernels_of_many_shapes(shape: tuple[int, ...], k: int, stride: int, pad: int) -> None:
    check_kernels(_kernels(), *operands(k, shape, torch.float32), (stride, pad), 1e-5)


@needs_triton
@pytest.mark.parametrize(("case", "window"), list(enumerate(WINDOWS)), ids=str)
def test_kernels_of_all_windows(case: int, window: tuple[int, int, int]) -> None:
    k, stride, pad = window
    x, w, b = operands(k, (1, 12, 7, 8), torch.float32)
    check_kernels(_kernels(), x, w, b if case % 2 else None, (stride, pad), 1e-5)


@needs_triton
@pytest.mark.parametrize("moved", ["x", "w", "b", "xw", "xb", "wb", ""])
def test_kernels_with_absent_tangents(moved: str) -> None:
    x, w, _ = operands(3, dtype=torch.float32)
    tangents = [torch.randn(t.shape) if m in moved else None for m, t in zip("xwb", operands(3), strict=True)]
    args = (x, w, (2, 1), *tangents)
    torch.testing.assert_close(_kernels().tangent(*args), _tangent(*args), rtol=1e-5, atol=1e-5)


@needs_triton
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_kernels_of_narrow_types(dtype: torch.dtype) -> None:
    check_kernels(_kernels(), *operands(3, (1, 40, 5, 7), dtype), (1, 1), 8 * torch.finfo(dtype).eps)


@needs_triton
@pytest.mark.parametrize("stride", [1, 2])
def test_tangents_and_gradients_are_adjoint(stride: int) -> None:
    by, window = _kernels(), (stride, 2)
    x, w, _ = operands(5, (2, 33, 6, 7), torch.float32)
    dx, dw, db = torch.randn_like(x), torch.randn_like(w), torch.randn(33)
    dy = by.tangent(x, w, window, dx, dw, db)
    g = torch.randn_like(dy)
    gw, gb = by.pull_weight(x, w, window, g, bias=True)
    pairs = ((dx, by.pull_input(x, w, window, g)), (dw, gw), (db, gb))
    there, back = (dy.double() * g).sum(), sum((a.double() * b).sum() for a, b in pairs)
    torch.testing.assert_close(there, back, rtol=1e-5, atol=1e-3)


@needs_triton
def test_sums_over_many_programs_are_the_same_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, _ = operands(3, (4, 8, 10, 13), torch.float32)
    g, by = torch.randn_like(x), _kernels()
    monkeypatch.setattr("lqf.fast.triton.depthwise.WEIGHT_PROGRAMS", 12)
    first = by.pull_weight(x, w, (1, 1), g, bias=True)
    again = by.pull_weight(x, w, (1, 1), g, bias=True)
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    theirs = _vjp(x.double(), w.double(), (1, 1), g.double(), (True, True, True))
    torch.testing.assert_close(first[0].double(), theirs[1], rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(first[1].double(), theirs[2], rtol=1e-4, atol=1e-3)


class Small(nn.Module):
    """Depthwise layers with and without bias, of both strides, with a frozen part before them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.first, self.mix = nn.Conv2d(16, 16, 5, padding=2, groups=16), nn.Conv2d(16, 24, 1)
        self.second, self.act = nn.Conv2d(24, 24, 3, 2, 1, groups=24, bias=False), nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.second(self.act(self.mix(self.first(self.stem(x)))))).mean((2, 3))


class Unseen(Kernels):
    """PyTorch does not see what a launch writes; the interpreter copies all its arguments, which is seen."""

    launched = 0

    def _launch(self, name: str, grid: tuple[int, ...], *args: object) -> None:
        self.launched += 1
        with torch.utils._python_dispatch._disable_current_modes():
            super()._launch(name, grid, *args)


@needs_triton
@pytest.mark.parametrize("names", [None, ["first.bias", "second.weight"]], ids=str)
def test_a_network_by_the_kernels(names: list[str] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, with kept activations: the interpreter stands for it."""
    by = Unseen(_kernels().jit)
    monkeypatch.setattr(ours, "kernels_for", lambda x, _: by if x.is_contiguous(memory_format=LAST) else None)
    agree(Linearization(Small().eval(), names), torch.randn(1, 3, 5, 5), 1e-4, torch.float32)
    assert by.launched


def test_on_a_cpu_there_are_no_kernels() -> None:
    assert kernels_for(*operands(3, dtype=torch.float32)[:2]) is None


@needs_triton
def test_kernels_compiled_ahead_are_given_as_many_arguments_as_they_take() -> None:
    from lqf.fast.triton import depthwise_kernels

    net = nn.Sequential(*(nn.Conv2d(c, c, k, s, groups=c) for c, k, s in ((64, 7, 1), (64, 7, 1), (24, 3, 2))))
    given = list(depthwise_launches(net, [torch.float32, torch.float16]))
    assert [n for n, _ in given].count("pull_weight") == 4
    assert [n for n, _ in given].count("pull_input") == 2
    for name, args in given:
        assert len(args) == len(getattr(depthwise_kernels, name).arg_names), name


class Asked(Kernels):
    """Notes what would be launched: the types of tensors, and all numbers but the sizes of images."""

    def __init__(self) -> None:
        self.seen: set[tuple[object, ...]] = set()

    def _launch(self, name: str, grid: tuple[int, ...], *args: object) -> None:
        self.seen.add((name, *kinds(args)))


def kinds(args: tuple[object, ...]) -> tuple[object, ...]:
    tensors = [a.dtype if isinstance(a, Tensor) else a for a in args if isinstance(a, Tensor | torch.dtype)]
    return (*tensors, *args[len(tensors) + 7 :])


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
def test_what_is_compiled_ahead_is_what_is_launched(stride: int, bias: bool) -> None:
    by, window, dtype = Asked(), (stride, 1), torch.float16
    x, w, b = operands(3, (2, 48, 9, 7), dtype)
    y = by.value(x, w, b if bias else None, window)
    by.tangent(x, w, window, x, w, b if bias else None)
    by.pull_input(x, w, window, y)
    by.pull_weight(x, w, window, y, bias=bias)
    conv = nn.Conv2d(48, 48, 3, stride, 1, groups=48, bias=bias)
    assert by.seen == {(name, *kinds(args)) for name, args in depthwise_launches(conv, [dtype])}


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(8, 96, 56, 56), (3, 100, 17, 19), (2, 24, 9, 7)], ids=str)
@pytest.mark.parametrize(("k", "stride", "pad"), [(3, 1, 1), (3, 2, 1), (5, 2, 2), (5, 1, 2), (7, 1, 3)])
def test_kernels_on_a_gpu(dtype: torch.dtype, shape: tuple[int, ...], k: int, stride: int, pad: int) -> None:
    x, w, b = operands(k, shape, dtype, "cuda")
    by = kernels_for(x, w)
    assert by is not None
    check_kernels(by, x, w, b, (stride, pad), 1e-5 if dtype == torch.float32 else 8 * torch.finfo(dtype).eps)
    assert kernels_for(x.double(), w.double()) is None
    assert kernels_for(x.contiguous(), w) is None
