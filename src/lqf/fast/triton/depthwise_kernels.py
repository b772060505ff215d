"""The kernels that `depthwise` launches; imported on a machine with a GPU only."""

# mypy: ignore-errors
# ruff: noqa: D103  (Triton compiles the bodies; `depthwise` documents each)

import triton
import triton.language as tl

SIZES = ["B", "H", "W", "Ho", "Wo", "strip", "pad", "chunk"]
"""Whether these are multiples of 16 does not matter: one compiled kernel serves every size of image."""


@triton.jit
def _taps(ptr, i, j, col, C, K: tl.constexpr):
    """The weights of tap (i, j), a row of (K·K, C); zero where there is no such tap."""
    return tl.load(ptr + (i * K + j) * C + col, mask=(col < C) & (i >= 0) & (i < K), other=0.0)[None, :]


@triton.jit
def _place(q, B, H, W, strip):
    """Image, row and column of the q-th position; an image is gone through in strips, each from top to bottom."""
    area = tl.cdiv(W, strip) * H * strip
    r = q % area
    within = r % (H * strip)
    n, col = q // area, r // (H * strip) * strip + within % strip
    return n, within // strip, col, (n < B) & (col < W)


@triton.jit
def _sweep(y0, y1, at, w_ptr, h, w, inside, col, H, W, C, K: tl.constexpr, STRIDE: tl.constexpr, DOWN: tl.constexpr):
    """Add a correlation to a row of y and, if DOWN is 2, to the one below; what both see is read once."""
    for r in range(K + (DOWN - 1) * STRIDE):
        row = inside & (h + r >= 0) & (h + r < H)
        for j in tl.static_range(K):
            there = (row & (w + j >= 0) & (w + j < W))[:, None] & (col < C)[None, :]
            x = tl.load(at + (r * W + j) * C, mask=there, other=0.0).to(tl.float32)
            y0 += _taps(w_ptr, r, j, col, C, K) * x
            if DOWN == 2:
                y1 += _taps(w_ptr, r - STRIDE, j, col, C, K) * x
    return y0, y1


@triton.jit(do_not_specialize=SIZES)
def correlate(
    a_ptr,
    w_ptr,
    b_ptr,
    v_ptr,
    bias_ptr,
    y_ptr,
    B,
    H,
    W,
    Ho,
    Wo,
    strip,
    pad,
    C,
    FIRST: tl.constexpr,
    SECOND: tl.constexpr,
    BIAS: tl.constexpr,
    K: tl.constexpr,
    STRIDE: tl.constexpr,
    DOWN: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    q = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    n, ho, wo, inside = _place(q, B, tl.cdiv(Ho, DOWN), Wo, strip)
    ho *= DOWN
    col = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    h, w = ho * STRIDE - pad, wo * STRIDE - pad
    at = ((n * H + h) * W + w).to(tl.int64)[:, None] * C + col[None, :]
    y0 = tl.zeros((ROWS, WIDTH), tl.float32)
    if BIAS:
        y0 += tl.load(bias_ptr + col, mask=col < C, other=0.0)[None, :]
    y1 = y0
    if FIRST:
        y0, y1 = _sweep(y0, y1, a_ptr + at, w_ptr, h, w, inside, col, H, W, C, K, STRIDE, DOWN)
    if SECOND:
        y0, y1 = _sweep(y0, y1, b_ptr + at, v_ptr, h, w, inside, col, H, W, C, K, STRIDE, DOWN)
    to = y_ptr + ((n * Ho + ho) * Wo + wo).to(tl.int64)[:, None] * C + col[None, :]
    tl.store(to, y0, mask=inside[:, None] & (col < C)[None, :])
    if DOWN == 2:
        tl.store(to + Wo * C, y1, mask=(inside & (ho + 1 < Ho))[:, None] & (col < C)[None, :])


@triton.jit(do_not_specialize=SIZES)
def pull_input(
    g_ptr,
    w_ptr,
    dx_ptr,
    B,
    H,
    W,
    Ho,
    Wo,
    strip,
    pad,
    C,
    K: tl.constexpr,
    STRIDE: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    n, h, w, inside = _place(tl.program_id(0) * ROWS + tl.arange(0, ROWS), B, H, W, strip)
    col = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    dx = tl.zeros((ROWS, WIDTH), tl.float32)
    for i in range(K):
        down = h + pad - i
        ho = down // STRIDE
        row = inside & (down >= 0) & (down % STRIDE == 0) & (ho < Ho)
        for j in tl.static_range(K):
            across = w + pad - j
            wo = across // STRIDE
            there = row & (across >= 0) & (across % STRIDE == 0) & (wo < Wo)
            at = ((n * Ho + ho) * Wo + wo).to(tl.int64)[:, None] * C + col[None, :]
            g = tl.load(g_ptr + at, mask=there[:, None] & (col < C)[None, :], other=0.0).to(tl.float32)
            dx += _taps(w_ptr, i, j, col, C, K) * g
    to = ((n * H + h) * W + w).to(tl.int64)[:, None] * C + col[None, :]
    tl.store(dx_ptr + to, dx, mask=inside[:, None] & (col < C)[None, :])


@triton.jit
def _tap(g, x_at, w, row, col, W, C, J: tl.constexpr):
    """g times what lies J columns to the right."""
    there = (row & (w + J >= 0) & (w + J < W))[:, None] & (col < C)[None, :]
    return g * tl.load(x_at + J * C, mask=there, other=0.0).to(tl.float32)


@triton.jit
def _leave(into, sums, tap, col, C):
    tl.store(into + tap * C + col, tl.sum(sums, 0), mask=col < C)


@triton.jit(do_not_specialize=SIZES)
def pull_weight(
    x_ptr,
    g_ptr,
    partial_ptr,
    B,
    H,
    W,
    Ho,
    Wo,
    pad,
    chunk,
    C,
    BIAS: tl.constexpr,
    K: tl.constexpr,
    STRIDE: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    i = tl.program_id(0)
    col = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    first = tl.program_id(2) * chunk
    end = tl.minimum(first + chunk, B * Ho * Wo)
    q = first + tl.arange(0, ROWS)
    n, ho, wo, inside = _place(q, B, Ho, Wo, Wo)
    dn, dh, dw = ROWS // (Ho * Wo), ROWS // Wo % Ho, ROWS % Wo
    s0 = tl.zeros((ROWS, WIDTH), tl.float32)
    s1, s2, s3, s4, s5, s6, total = s0, s0, s0, s0, s0, s0, s0
    for start in range(first, end, ROWS):  # noqa: B007
        g_at = q.to(tl.int64)[:, None] * C + col[None, :]
        g = tl.load(g_ptr + g_at, mask=(q < end)[:, None] & (col < C)[None, :], other=0.0).to(tl.float32)
        h, w = ho * STRIDE - pad + i, wo * STRIDE - pad
        row = (q < end) & (h >= 0) & (h < H)
        x_at = x_ptr + ((n * H + h) * W + w).to(tl.int64)[:, None] * C + col[None, :]
        s0 += _tap(g, x_at, w, row, col, W, C, 0)
        s1 += _tap(g, x_at, w, row, col, W, C, 1)
        if K > 2:
            s2 += _tap(g, x_at, w, row, col, W, C, 2)
        if K > 3:
            s3 += _tap(g, x_at, w, row, col, W, C, 3)
        if K > 4:
            s4 += _tap(g, x_at, w, row, col, W, C, 4)
        if K > 5:
            s5 += _tap(g, x_at, w, row, col, W, C, 5)
        if K > 6:
            s6 += _tap(g, x_at, w, row, col, W, C, 6)
        if BIAS:
            total += g
        # the next positions without a division: columns carry into rows, rows into images
        wo += dw
        over = wo >= Wo
        wo, ho = tl.where(over, wo - Wo, wo), ho + dh + over.to(tl.int32)
        over = ho >= Ho
        ho, n = tl.where(over, ho - Ho, ho), n + dn + over.to(tl.int32)
        q += ROWS
    into = partial_ptr + tl.program_id(2).to(tl.int64) * (K * K + BIAS) * C
    _leave(into, s0, i * K, col, C)
    _leave(into, s1, i * K + 1, col, C)
    if K > 2:
        _leave(into, s2, i * K + 2, col, C)
    if K > 3:
        _leave(into, s3, i * K + 3, col, C)
    if K > 4:
        _leave(into, s4, i * K + 4, col, C)
    if K > 5:
        _leave(into, s5, i * K + 5, col, C)
    if K > 6:
        _leave(into, s6, i * K + 6, col, C)
    if BIAS:  # noqa: SIM102
        if i == 0:
            _leave(into, total, K * K, col, C)
