"""The linear layers of a block as GEMMs: Table 1, and what it leaves out."""

from dataclasses import dataclass

import numpy as np

from hwdesign._check import dims, flag, positive, text
from hwdesign.catalogue.precision import recipe as as_recipe
from hwdesign.models.blocks import Block, DenseFFN, SelfAttention


@dataclass(frozen=True, kw_only=True)
class Gemm:
    """One matrix multiplication ``C[m, n] = A[m, k] @ B[k, n]``, run `count` times.

    Parameters
    ----------
    name : str
        Name of the linear layer.
    m : float or ndarray
        Tokens [element], > 0; a mean over experts need not be whole.
    n, k : float or ndarray
        Output and input features [element], whole, >= 1.
    count : float or ndarray
        How often it runs [dimensionless]; the mean number of experts touched need not be whole.
    part : str
        Part of the model it belongs to, as in `Model.parameters_by_part`; it decides the number
        format.
    stored : bool
        Whether its weights are stored for it, and not for another product that has them, too.

    Raises
    ------
    ValueError
        If a dimension is out of range.

    Examples
    --------
    >>> float(Gemm(name="down", m=256, n=8192, k=512).flops)
    2147483648.0
    """

    name: str
    m: np.ndarray  # [element]
    n: np.ndarray  # [element]
    k: np.ndarray  # [element]
    count: float = 1.0
    part: str = "ffn"
    stored: bool = True

    def __post_init__(self):
        text("name", self.name)
        text("part", self.part)
        flag("stored", self.stored)
        (m, count), (n, k) = positive(m=self.m, count=self.count), dims(n=self.n, k=self.k)
        for name, value in (("m", m), ("n", n), ("k", k), ("count", count)):
            object.__setattr__(self, name, value[()])

    @property
    def weights(self):
        """Elements of B that are read [element]."""
        return self.count * self.n * self.k

    @property
    def flops(self):
        """Operations [FLOP]."""
        return 2 * self.count * self.m * self.n * self.k

    def bytes(self, recipe):
        """Bytes that must move through memory under a recipe [byte]."""
        size = as_recipe(recipe).operand_bytes
        moved = (
            self.m * self.k * size["a"] + self.k * self.n * size["b"] + self.m * self.n * size["c"]
        )
        return self.count * moved


def transformer_gemms(
    tokens,
    *,
    hidden_size,
    intermediate_size,
    num_heads=None,
    num_kv_heads=None,
    head_dim=None,
    gated=False,
):
    """The linear layers of one dense transformer block as GEMMs: Table 1, and what it leaves out.

    Parameters
    ----------
    tokens : array_like of int
        GEMM-M [element]: concurrency x length in prefill, concurrency in decode.
    hidden_size, intermediate_size : int
        H and H' [element].
    num_heads, num_kv_heads, head_dim : int, optional
        Query heads, key-value heads, features per head [element]. Without them attention is
        multi-head with ``num_heads * head_dim = hidden_size``, the case of Table 1.
    gated : bool
        Whether the up-projection is a fused gate and up pair, N = 2 H'.

    Returns
    -------
    list of Gemm
        QKV, attention output, up, down; dimensions in elements.

    Raises
    ------
    ValueError
        If a dimension is below 1, only some of the head arguments are given, or the heads do not
        divide evenly.

    Notes
    -----
    Source: Table 1 of NVIDIA's post on hardware-friendly model design; grouped-query attention
    after Ainslie et al. 2023.

    Examples
    --------
    >>> for g in transformer_gemms(1, hidden_size=4096, intermediate_size=16384):
    ...     print(g.name, int(g.n), int(g.k))
    qkv 12288 4096
    attention output 4096 4096
    up 16384 4096
    down 4096 16384
    """
    if not isinstance(gated, bool):
        raise ValueError(f"gated must be True or False, got {gated!r}")
    heads = (num_heads, num_kv_heads, head_dim)
    if any(h is None for h in heads) and any(h is not None for h in heads):
        raise ValueError(
            f"num_heads, num_kv_heads and head_dim must be given together, got {heads}"
        )
    tokens, hidden_size, intermediate_size = dims(
        tokens=tokens, hidden_size=hidden_size, intermediate_size=intermediate_size
    )
    if num_heads is None:
        num_heads, num_kv_heads, head_dim = 1, 1, hidden_size
    num_heads, num_kv_heads, head_dim = dims(
        num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim
    )
    if (num_heads % num_kv_heads).any():
        raise ValueError(
            f"num_heads must be a multiple of num_kv_heads, got {heads[0]} and {heads[1]}"
        )
    mixer = SelfAttention(num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim)
    block = Block(mixer=mixer, ffn=DenseFFN(width=intermediate_size, gated=gated))
    matrices = [weight for weight in block.weights(hidden_size) if weight.matmul]
    names = ("qkv", "attention output", "up", "down")
    return [
        Gemm(name=name, m=tokens, n=w.n, k=w.k) for name, w in zip(names, matrices, strict=True)
    ]
