"""Quick passes through a linearised network: narrow types, merged layers, recorded or compiled.

`linearization` is the body that PCG's products are made with, `engine` makes it for a problem; `shared` is the one for
steps of mini-batch training, which are recorded as a whole. The rest are their parts: `convert` copies the network,
`vectors` turns v into tangents and gradients into a vector; `norm`, `layer_norm`, `softmax`, `pointwise`, `products`
and `depthwise` have derivatives of their own (`quick_ops` puts some where a network calls those of PyTorch), computed
on a GPU by `…_kernels` and `…_triton`, which `compile_ahead` compiles; `replay` records passes, `capture` compiles
them, `kept` and `kept_batch` free them of what never changes, `keeping` does so for as many batches as fit.
`directional` is for predictions, J·δ for one δ: on a CPU as the `two_streams` of a captured graph (`derivatives`).
"""

from lqf.fast.linearization import FastLinearization

__all__ = ["FastLinearization"]
