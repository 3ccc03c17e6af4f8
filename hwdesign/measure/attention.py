"""Attention of a decode step, timed on this machine: one new token a sequence reads the whole
cache.
"""

import numpy as np

from hwdesign._check import choice, whole
from hwdesign.measure.backends import as_backend
from hwdesign.measure.runs import ELEMENT_BYTES


def measure_attention(
    batch,
    context,
    heads,
    kv_heads,
    head_dim=128,
    precision="bf16",
    backend=None,
    *,
    rounds=5,
    rotate=True,
):
    """Time softmax attention of one new token a sequence, without projections.

    Parameters
    ----------
    batch, context : int
        Sequences, and tokens in the cache of each [token].
    heads, kv_heads, head_dim : int
        Query heads, key-value heads, size of a head [element].
    precision : str
        "bf16" or "fp16" with torch on CUDA, "bf16" or "fp32" with torch on a CPU, "fp32" or "fp64"
        with NumPy.
    backend : str or Backend, optional
        One of `available()`; by default the fastest.
    rounds : int
        Rounds of 9 to 60 repeats, at most 1000; the best one counts, see `runs.combine`.
    rotate : bool
        Whether each call finds its cache in memory; False leaves it in the device's cache if it
        fits, and a flag says so.

    Returns
    -------
    Measurement or Skipped
        Time and spread [s]; or the reason why there is none.

    Raises
    ------
    ValueError
        If a dimension is not valid or `kv_heads` does not divide `heads`.

    Notes
    -----
    Source: own machine; torch's `scaled_dot_product_attention` chooses the kernel. The queries that
    share a key-value head stand in the place of a sequence, which computes the same and needs no
    copy of keys and values.

    Examples
    --------
    >>> measure_attention(1, 64, 4, 2, 16, "fp32", "numpy", rounds=1, rotate=False).flops
    16384.0
    """
    sizes = whole(batch=batch, context=context, heads=heads, kv_heads=kv_heads, head_dim=head_dim)
    batch, context, heads, kv_heads, head_dim = sizes
    if heads % kv_heads:
        raise ValueError(f"kv_heads must divide heads = {heads}, got {kv_heads}")
    if choice("precision", precision, tuple(ELEMENT_BYTES)) in ("fp8", "nvfp4"):
        raise ValueError(
            f"precision must be one of fp64, fp32, bf16, fp16 for attention, got {precision!r}"
        )
    backend = as_backend(backend)

    def check(q, k, v, result):
        i, j = batch - 1, kv_heads // 2
        x, y, z = (backend.double(t[i, j], precision) for t in (q, k, v))
        scores = x @ y.T / np.sqrt(head_dim)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return backend.compare(
            precision,
            backend.double(result[i, j], precision),
            weights @ z,
            np.sqrt(weights**2 @ z**2),
        )

    queries, cache = (
        (batch, kv_heads, heads // kv_heads, head_dim),
        (batch, kv_heads, context, head_dim),
    )
    return backend.measure(
        "attention_decode",
        {
            "batch": batch,
            "context": context,
            "heads": heads,
            "kv_heads": kv_heads,
            "head_dim": head_dim,
        },
        precision,
        inputs=[queries, cache, cache],
        outputs=[queries],
        call=backend.attention,
        check=check,
        rounds=rounds,
        rotate=rotate,
    )
