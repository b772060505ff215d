"""Quick passes through a linearised network: narrow types, merged layers, recorded or compiled.

`linearization` is the body that PCG's products are made with, `engine` makes it for a problem; `shared` is the one for
steps of mini-batch training, which are recorded as a whole. The rest are their parts: `norm`, `layer_norm`, `softmax`,
`pointwise` and `depthwise` have derivatives of their own (`quick_ops` puts some of them where a network calls those of
PyTorch), `norm_kernels`, `depthwise_kernels` and the `_triton` files compute them on a GPU, `replay` records passes,
`capture` compiles them, `kept` and `kept_batch` free them of what never changes, `keeping` does so for as many batches
as fit.
"""

from lqf.fast.linearization import FastLinearization

__all__ = ["FastLinearization"]
