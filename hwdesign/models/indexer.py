"""The indexer of sparse attention: small heads score every cached token, and a query sees the best.

Sources: DeepSeek-V3.2, arXiv 2512.02556; `modeling_deepseek_v32.py`, `modeling_glm_moe_dsa.py`,
`modeling_glm5_next.py` and `modeling_minimax_m3_vl.py` of transformers 5.24.
"""

from dataclasses import dataclass

from hwdesign._check import check_fields
from hwdesign.models.parts import linear, vector


@dataclass(frozen=True, kw_only=True)
class Indexer:
    """Picks `top_k` tokens for a query: `num_heads` heads of `head_dim` against one key a token.

    A `shared` one takes the choice of a layer before it, and has neither weights nor cache.
    `weighted` heads are summed with weights of their own. With `pool` above 1, so many tokens are
    pooled into one key. With `averaged` above 1 it scores the averages of so many keys, all of
    which are kept.

    Examples
    --------
    >>> Indexer(num_heads=64, head_dim=128, top_k=2048).cache_elements
    128
    """

    num_heads: int
    head_dim: int  # [element]
    top_k: int  # [token]
    shared: bool = False
    weighted: bool = True
    pool: int = 1  # [token]
    averaged: int = 1  # [token]

    def __post_init__(self):
        sizes, flags = ("num_heads", "head_dim", "top_k"), ("shared", "weighted")
        check_fields(self, sizes=sizes, flags=flags, whole=("pool", "averaged"))

    @property
    def cache_elements(self):
        """Elements that a token leaves in its cache [element]: a key, or its share of a pooled
        one.
        """
        if self.shared:
            return 0
        whole = self.head_dim % self.pool == 0
        return self.head_dim // self.pool if whole else self.head_dim / self.pool

    def weights(self, hidden, query):
        """Its weights for a hidden size and the width that its queries are made from [element]."""
        if self.shared:
            return []
        part, size = "attention", self.head_dim
        out = linear("indexer q", part, self.num_heads * size, query)
        out += linear("indexer k", part, size, hidden)
        out += [vector("indexer norm", "norm", 2 * size)]  # weight and bias, or one of q, one of k
        out += linear("indexer weights", part, self.num_heads, hidden) if self.weighted else []
        if self.pool > 1:
            out += linear("indexer pool", part, size, hidden)
            out += [vector("indexer pool bias", part, self.pool * size)]
        return out

    def operations(self, run, query, kernel=""):
        """Adds its projections, which no plan cuts, its scores and its choice, of the indexer of a
        fitted `kernel`.
        """
        if self.shared:
            return
        part, size = "attention", self.head_dim
        run.gemm("indexer q", run.tokens, self.num_heads * size, query, part)
        width = size * (1 + (self.pool > 1)) + self.num_heads * self.weighted
        run.gemm("indexer k", run.tokens, width, run.hidden, part)
        every = self.pool * self.averaged
        found = {"kernel": kernel and f"{kernel} index", "top": self.top_k}
        run.score(
            heads=self.num_heads, size=size, cached=size, kind="an indexer", every=every, **found
        )


def picked(name, mixer):
    """Name of attention, with how many tokens its indexer picks."""
    if not mixer.indexer:
        return name
    name = f"{name}, top {mixer.indexer.top_k}"
    return f"{name} (shared)" if mixer.indexer.shared else name


def sparse(mixer, run, query, kernel=""):
    """Most tokens that a query sees, the name of the kind and its kernel, in the words of
    `AttentionRun.attend`, after the operations of the indexer, whose queries are made from so many
    elements. A fitted `kernel` is one of an indexer that scores single tokens.
    """
    found = mixer.indexer
    if not found:
        return {"window": mixer.window, "kind": ""}
    kernel = kernel if found.pool * found.averaged == 1 else ""
    found.operations(run, query, kernel)
    many = {"window": found.top_k, "top": found.top_k}
    return many | {"kind": "sparse attention", "kernel": kernel}
