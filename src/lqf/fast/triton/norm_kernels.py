"""The kernels that `norm` launches; imported on a machine with a GPU only."""

# mypy: ignore-errors
# ruff: noqa: D103  (Triton compiles the bodies; `norm` documents each)

import triton
import triton.language as tl


@triton.jit
def _value(p, slope, KIND: tl.constexpr):
    if KIND == 1:
        return tl.where(p > 0, p, slope * p)
    if KIND == 2:
        return slope * p + (1 - slope) * tl.minimum(tl.maximum(p, 0.0), 6.0)
    if KIND == 3:
        return p * tl.sigmoid(p)
    return p


@triton.jit
def _slope(p, slope, KIND: tl.constexpr):
    if KIND == 1:
        return tl.where(p > 0, 1.0, slope)
    if KIND == 2:
        return tl.where((p > 0) & (p < 6), 1.0, slope)
    if KIND == 3:
        s = tl.sigmoid(p)
        return s * (1 + p * (1 - s))
    return tl.full(p.shape, 1.0, tl.float32)


@triton.jit
def _channel(ptr, col, C):
    return tl.load(ptr + col, mask=col < C, other=0.0)[None, :]


@triton.jit
def _place(row, col, M, C):
    return row[:, None].to(tl.int64) * C + col[None, :], (row < M)[:, None] & (col < C)[None, :]


@triton.jit
def _read(ptr, at, inside):
    return tl.load(ptr + at, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _scale(weight_ptr, var_ptr, eps, col, C):
    return _channel(weight_ptr, col, C) / tl.sqrt(_channel(var_ptr, col, C) + eps)


@triton.jit
def value(
    x_ptr,
    skip_ptr,
    y_ptr,
    weight_ptr,
    bias_ptr,
    mean_ptr,
    var_ptr,
    eps,
    M,
    C,
    slope,
    SKIP: tl.constexpr,
    KIND: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    col = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    at, inside = _place(row, col, M, C)
    a, mean = _scale(weight_ptr, var_ptr, eps, col, C), _channel(mean_ptr, col, C)
    p = a * (_read(x_ptr, at, inside) - mean) + _channel(bias_ptr, col, C)
    if SKIP:
        p += _read(skip_ptr, at, inside)
    tl.store(y_ptr + at, _value(p, slope, KIND), mask=inside)


@triton.jit
def tangent(
    x_ptr,
    dx_ptr,
    skip_ptr,
    dskip_ptr,
    dy_ptr,
    weight_ptr,
    bias_ptr,
    mean_ptr,
    var_ptr,
    dweight_ptr,
    dbias_ptr,
    eps,
    M,
    C,
    slope,
    DX: tl.constexpr,
    SKIP: tl.constexpr,
    DSKIP: tl.constexpr,
    DWEIGHT: tl.constexpr,
    DBIAS: tl.constexpr,
    KIND: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    col = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    at, inside = _place(row, col, M, C)
    x = _read(x_ptr, at, inside) - _channel(mean_ptr, col, C)
    a = _scale(weight_ptr, var_ptr, eps, col, C)
    dp = tl.zeros((ROWS, WIDTH), tl.float32)
    if DWEIGHT:
        dp += _scale(dweight_ptr, var_ptr, eps, col, C) * x
    if DBIAS:
        dp += _channel(dbias_ptr, col, C)
    if DX:
        dp += a * _read(dx_ptr, at, inside)
    if DSKIP:
        dp += _read(dskip_ptr, at, inside)
    if KIND != 0:
        p = a * x + _channel(bias_ptr, col, C)
        if SKIP:
            p += _read(skip_ptr, at, inside)
        dp *= _slope(p, slope, KIND)
    tl.store(dy_ptr + at, dp, mask=inside)


@triton.jit
def vjp(
    x_ptr,
    skip_ptr,
    g_ptr,
    dx_ptr,
    dskip_ptr,
    weight_ptr,
    bias_ptr,
    mean_ptr,
    var_ptr,
    partial_ptr,
    eps,
    M,
    C,
    slope,
    SKIP: tl.constexpr,
    KIND: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    first, step = tl.program_id(0), tl.num_programs(0)
    col = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    a, mean = _scale(weight_ptr, var_ptr, eps, col, C), _channel(mean_ptr, col, C)
    bias = _channel(bias_ptr, col, C)
    sums = tl.zeros((WIDTH,), tl.float32)
    moments = tl.zeros((WIDTH,), tl.float32)
    for start in range(first * ROWS, M, step * ROWS):
        row = start + tl.arange(0, ROWS)
        at, inside = _place(row, col, M, C)
        x = _read(x_ptr, at, inside) - mean
        g = _read(g_ptr, at, inside)
        if KIND != 0:
            p = a * x + bias
            if SKIP:
                p += _read(skip_ptr, at, inside)
            g *= _slope(p, slope, KIND)
        tl.store(dx_ptr + at, a * g, mask=inside)
        if SKIP:
            tl.store(dskip_ptr + at, g, mask=inside)
        sums += tl.sum(g, 0)
        moments += tl.sum(g * x, 0)
    into = partial_ptr + first * 2 * C + col
    deviation = 1 / tl.sqrt(tl.load(var_ptr + col, mask=col < C, other=1.0) + eps)
    tl.store(into, moments * deviation, mask=col < C)
    tl.store(into + C, sums, mask=col < C)


@triton.jit
def row_tangent(
    x_ptr,
    dx_ptr,
    weight_ptr,
    dweight_ptr,
    dbias_ptr,
    dy_ptr,
    eps,
    M,
    C,
    DX: tl.constexpr,
    WEIGHT: tl.constexpr,
    DWEIGHT: tl.constexpr,
    DBIAS: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    row, col = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    at, inside = _place(row, col, M, C)
    x = _read(x_ptr, at, inside)
    x = tl.where(inside, x - (tl.sum(x, 1) / C)[:, None], 0.0)
    rho = (1 / tl.sqrt(tl.sum(x * x, 1) / C + eps))[:, None]
    x = x * rho
    dy = tl.zeros((ROWS, WIDTH), tl.float32)
    if DX:
        dx = _read(dx_ptr, at, inside)
        dx = rho * (dx - (tl.sum(dx, 1) / C)[:, None] - x * (tl.sum(x * dx, 1) / C)[:, None])
        if WEIGHT:
            dx *= _channel(weight_ptr, col, C).to(tl.float32)
        dy += dx
    if DWEIGHT:
        dy += x * _channel(dweight_ptr, col, C).to(tl.float32)
    if DBIAS:
        dy += _channel(dbias_ptr, col, C).to(tl.float32)
    tl.store(dy_ptr + at, dy, mask=inside)
