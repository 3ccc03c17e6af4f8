"""Work and traffic of attention beyond its projections: scores, values and the cache.

Source of the formulas: A. Vaswani et al., "Attention is all you need", 2017 (scores and values); DeepSeek-AI, DeepSeek-V2,
arXiv 2405.04434 (latent attention, absorbed form).
"""

import numpy as np

from hwdesign._check import dims, numbers, scalar_or_array


def attention_flops(queries, context, num_heads, head_dim, v_dim=None, *, causal=False):
    """FLOP of scores and values: ``2 * queries * pairs * num_heads * (head_dim + v_dim)``.

    Without `causal` each query sees the whole context. With it, the queries are the last tokens of the context and each sees
    only what stands before it and itself: for a whole prompt about half of the pairs.

    Parameters
    ----------
    queries : array_like of int
        New tokens of one sequence [token]: the prompt in prefill, 1 in decode.
    context : array_like of int
        Tokens they can look at, themselves included [token].
    num_heads, head_dim : array_like of int
        Query heads and size of a key [element].
    v_dim : array_like of int, optional
        Size of a value [element]; by default that of a key.
    causal : bool
        Whether later tokens are masked.

    Returns
    -------
    float or ndarray of float, broadcast shape
        Operations of one layer and sequence [FLOP].

    Raises
    ------
    ValueError
        If a dimension is below 1, or there are more queries than context.

    Notes
    -----
    Source: Vaswani et al. 2017; softmax and masks are not counted.

    Examples
    --------
    >>> float(attention_flops(4, 4, 1, 1)), float(attention_flops(4, 4, 1, 1, causal=True))
    (64.0, 40.0)
    """
    queries, context, num_heads, head_dim = dims(queries=queries, context=context, num_heads=num_heads, head_dim=head_dim)
    (v_dim,) = dims(v_dim=head_dim if v_dim is None else v_dim)
    if (queries > context).any():
        raise ValueError(f"queries must be <= context, got {queries.max():g} queries in a context of {np.min(context):g}")
    pairs = queries * context - (queries * (queries - 1) / 2 if causal else 0)
    return scalar_or_array(2 * pairs * num_heads * (head_dim + v_dim))


def cache_read_bytes(context, cache_elements, element_bytes):
    """Bytes of cache a decode step reads for one sequence and layer: ``context * cache_elements * element_bytes``.

    Parameters
    ----------
    context : array_like of int
        Tokens in the cache [token].
    cache_elements : array_like of float
        Elements a token leaves there [element]: ``2 * kv_heads * head_dim``, or rank + rotary size of a latent.
    element_bytes : float
        Size of one element [byte].

    Returns
    -------
    float or ndarray of float, broadcast shape
        Bytes [byte].

    Raises
    ------
    ValueError
        If the context is below 1 or a size is negative.

    Notes
    -----
    Source: definition; each cached element is read once a step.

    Examples
    --------
    >>> float(cache_read_bytes(1000, 576, 2.0))
    1152000.0
    """
    (context,) = dims(context=context)
    cache_elements, element_bytes = numbers("cache_elements", cache_elements), numbers("element_bytes", element_bytes)
    if (cache_elements < 0).any() or (element_bytes < 0).any():
        raise ValueError(f"cache_elements and element_bytes must be >= 0, got {cache_elements} and {element_bytes}")
    return scalar_or_array(context * cache_elements * element_bytes)
