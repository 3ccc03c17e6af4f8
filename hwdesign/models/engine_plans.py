"""Which engines run a pair of plans: what each accepts for attention and the feed-forward part.

Each rule names its source: a file of the version that `engines.csv` names, or a commit. Read
2026-12-01. What the shapes of a model refuse is in `hwdesign.advice.breaks`.
"""

from dataclasses import dataclass, replace

from hwdesign.catalogue.engine import engine as as_engine
from hwdesign.models.blocks import SelfAttention
from hwdesign.models.latent import LatentAttention
from hwdesign.models.model import Model
from hwdesign.models.steps import Plan


def engine_plan_refusal(engine, model, attention, ffn):
    """Why an engine does not run a model under these plans.

    Parameters
    ----------
    engine : str or Engine
        Which one.
    model : Model
        What is served.
    attention, ffn : Plan
        Plans of the two parts over the same GPUs.

    Returns
    -------
    str or None
        In words; None where it runs them.

    Notes
    -----
    A plan of whole copies is judged inside one copy: engines are started several times. Source:
    the rules of `PLANS`, each with its own [GPU].

    Examples
    --------
    >>> from hwdesign.models import config
    >>> from hwdesign.models.steps import Plan
    >>> llama = config.load("llama-3.1-8b")
    >>> engine_plan_refusal("vllm", llama, Plan(tp=8), Plan(tp=8)) is None
    True
    >>> engine_plan_refusal("vllm", llama, Plan(dp=8), Plan(tp=8))
    'data-parallel groups of a dense model are whole copies of it'
    """
    copies = ffn.dp
    served = _Served(
        model=model,
        tp=attention.tp,
        kvp=attention.kvp,
        groups=attention.dp // copies if attention.dp % copies == 0 else 0,
        ffn=replace(ffn, dp=1),
    )
    for refuses in PLANS.get(as_engine(engine).name, ()):
        why = refuses(served)
        if why:
            return why
    return None


@dataclass(frozen=True, kw_only=True)
class _Served:
    """A pair of plans as an engine meets it: inside one of the whole copies of a model, for which
    any engine is started several times.

    `groups` of `tp` x `kvp` GPUs with tokens of their own; the feed-forward part in `ffn` ways.
    """

    model: Model
    tp: int
    kvp: int
    groups: int
    ffn: Plan

    @property
    def routed(self):
        """Whether there are experts."""
        return any(block.routed for block in self.model.block_counts)

    @property
    def mixers(self):
        """The kinds of mixers that keep a cache."""
        found = dict.fromkeys(block.mixer for block in self.model.block_counts if block.mixer)
        return [mixer for mixer in found if mixer.cache_elements]

    @property
    def latent(self):
        """Whether all caches are of latents."""
        return all(isinstance(mixer, LatentAttention) for mixer in self.mixers)


def _no_own_copies(served):
    """Copies of the feed-forward part alone, inside one group of attention."""
    if served.groups < 1:
        return "no engine keeps more copies of the feed-forward part than of attention"
    return None


def _vllm_groups(served):
    """vLLM 0.33.0, vllm/v1/engine/core.py L1546-L1555."""
    if served.groups > 1 and not served.routed:
        return "data-parallel groups of a dense model are whole copies of it"
    return None


def _vllm_experts(served):
    """vLLM 0.33.0, vllm/model_executor/layers/fused_moe/config.py L1105-L1245."""
    if served.routed and served.ffn.ep > 1 and served.ffn.tp > 1:
        return "experts are spread over all GPUs or sliced over all, not both"
    return None


def _vllm_cache(served):
    """Decode context parallelism: vLLM 0.33.0, vllm/config/model.py L1577-L1607; its GPUs are those
    of tensor parallelism.
    """
    if served.kvp == 1:
        return None
    ways = served.tp * served.kvp
    for mixer in served.mixers:
        heads, keys = mixer.head_counts
        if heads % ways:
            return f"cache-parallel GPUs split the heads, too: {ways} do not divide {heads}"
        if isinstance(mixer, LatentAttention):
            continue
        if served.tp < keys:
            return f"a cache is cut only where each GPU is left with one of {keys} key-value heads"
        if heads // keys % served.kvp:
            return f"the ways of the cache must divide {heads // keys} query heads a key-value head"
    return None


def _sglang_groups(served):
    """SGLang 0.5.23: families whose attention takes the group of attn_tp; models/llama.py L181,
    qwen2.py, mixtral.py and gemma3 take that of tp, so that data-parallel attention fails.
    """
    if served.groups == 1:
        return None
    mixers = [mixer for mixer in served.mixers if isinstance(mixer, SelfAttention)]
    plain = any(not (mixer.qk_norm or mixer.sinks or mixer.qkv_bias) for mixer in mixers)
    hybrid = len(served.mixers) < len({b.mixer for b in served.model.block_counts if b.mixer})
    if plain and not hybrid:
        return "its code of Llama and Mixtral has no data-parallel attention"
    dense = not served.routed and not served.latent and not hybrid
    if dense and any(mixer.qk_norm != "head" or mixer.window for mixer in mixers):
        return "of dense models only its code of Qwen3 has data-parallel attention"
    return None


def _sglang_experts(served):
    """Dispatch of each token to its experts: SGLang 0.5.23, server_args: an all-to-all backend sets
    ep = tp.
    """
    ffn = served.ffn
    if served.groups > 1 and ffn.ep > 1 and ffn.tp > 1 and not ffn.gather:
        return "tokens are sent to experts only where these are whole; else all are gathered"
    return None


def _sglang_cache(served):
    """Decode context parallelism: SGLang documentation, advanced_features/dcp.md: latents."""
    if served.kvp == 1:
        return None
    if not served.latent:
        return "only a cache of latents is cut"
    if served.groups > 1:
        return "a cache is not cut within data-parallel groups"
    return None


def _trtllm_groups(served):
    """TensorRT-LLM 00547a25ac61, tensorrt_llm/_torch/modules/attention.py; dense models that have
    attention DP keep whole copies of their feed-forward part (pull 7618).
    """
    if served.groups == 1:
        return None
    if not served.routed:
        return "data-parallel attention of a dense model is whole copies of it"
    if served.tp * served.kvp > 1:
        return "attention is data parallel over all GPUs or tensor parallel over all"
    return None


def _trtllm_cache(served):
    """Helix: TensorRT-LLM 04c8822cc42f, docs/source/features/helix.md; pull 11570 for keys and
    values.
    """
    if served.kvp == 1:
        return None
    ways = served.tp * served.kvp
    for mixer in served.mixers:
        if mixer.head_counts[0] % ways:
            return f"{ways} GPUs do not divide {mixer.head_counts[0]} query heads"
    return None


PLANS = {
    "vllm": (_no_own_copies, _vllm_groups, _vllm_experts, _vllm_cache),
    "sglang": (_no_own_copies, _sglang_groups, _sglang_experts, _sglang_cache),
    "trtllm": (_no_own_copies, _trtllm_groups, _trtllm_cache),
}
