"""Work and traffic of attention beyond its projections: scores, values and the cache.

Source of the formulas: A. Vaswani et al., "Attention is all you need", 2017 (scores and values);
DeepSeek-AI, DeepSeek-V2, arXiv 2405.04434 (latent attention, absorbed form).
"""

import numpy as np

from hwdesign._check import dims, numbers, scalar_or_array


def attention_flops(
    queries, context, num_heads, head_dim, v_dim=None, *, causal=False, window=None
):
    """FLOP of scores and values: ``2 * pairs * num_heads * (head_dim + v_dim)``, pairs of a query
    and a token it sees.

    Without `causal` each query sees the whole context. With it, the queries are the last tokens of
    the context and each sees only what stands before it and itself: for a whole prompt about half
    of the pairs. A window limits that to the last tokens.

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
    window : array_like of int, optional
        Most tokens a query sees, itself included [token]; only with `causal`.

    Returns
    -------
    float or ndarray of float, broadcast shape
        Operations of one layer and sequence [FLOP].

    Raises
    ------
    ValueError
        If a dimension is below 1, there are more queries than context, or a window comes without
        `causal`.

    Notes
    -----
    Source: Vaswani et al. 2017; softmax and masks are not counted.

    Examples
    --------
    >>> float(attention_flops(4, 4, 1, 1)), float(attention_flops(4, 4, 1, 1, causal=True))
    (64.0, 40.0)
    """
    queries, context, num_heads, head_dim = dims(
        queries=queries, context=context, num_heads=num_heads, head_dim=head_dim
    )
    (v_dim,) = dims(v_dim=head_dim if v_dim is None else v_dim)
    if (queries > context).any():
        raise ValueError(
            f"queries must be <= context, got {queries.max():g} queries in a context of "
            f"{np.min(context):g}"
        )
    if not causal:
        if window is not None:
            raise ValueError(f"window must come with causal=True, got {window}")
        return scalar_or_array(2 * queries * context * num_heads * (head_dim + v_dim))
    (window,) = dims(window=context if window is None else window)
    pairs = _seen(context, window) - _seen(context - queries, window)
    return scalar_or_array(2 * pairs * num_heads * (head_dim + v_dim))


def _seen(tokens, window):
    """Tokens that the first `tokens` queries see in all: 1 + 2 + ... up to the window, then the
    window each.
    """
    short = np.minimum(tokens, window)
    return short * (short + 1) / 2 + (tokens - short) * window


def cache_read_bytes(context, cache_elements, element_bytes):
    """Bytes of cache a decode step reads for one sequence and layer:
    ``context * cache_elements * element_bytes``.

    Parameters
    ----------
    context : array_like of int
        Tokens in the cache [token].
    cache_elements : array_like of float
        Elements a token leaves there [element]: ``2 * kv_heads * head_dim``, or rank + rotary size
        of a latent.
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
    cache_elements, element_bytes = (
        numbers("cache_elements", cache_elements),
        numbers("element_bytes", element_bytes),
    )
    if (cache_elements < 0).any() or (element_bytes < 0).any():
        raise ValueError(
            f"cache_elements and element_bytes must be >= 0, got {cache_elements} and "
            f"{element_bytes}"
        )
    return scalar_or_array(context * cache_elements * element_bytes)
