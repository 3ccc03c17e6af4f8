"""The sheet of a model: what is in it, where its parameters sit, and what a token costs; as data
and as text.
"""

from itertools import groupby

from hwdesign._check import count
from hwdesign.models.model import need_model
from hwdesign.models.steps import step
from hwdesign.safe import visible
from hwdesign.units import fmt

CONTEXT = 8192  # of the FLOP and cache figures [token]
TOLD = 300  # of a name or of what is left out [character]


def sheet(model):
    """All figures of a model as plain data.

    Parameters
    ----------
    model : Model
        What to describe.

    Returns
    -------
    dict
        Counts in [element], sizes in [byte], work in [FLOP]; every key says its unit or convention.

    Notes
    -----
    Source: sums over `Model.weights`; work by `hwdesign.models.steps.step`.

    Examples
    --------
    >>> from hwdesign.models import config
    >>> sheet(config.load("llama-3.1-8b"))["parameters"]
    8030261248
    """
    decode = step(need_model(model), batch=1, context=CONTEXT)
    mixers = [b.mixer for b in model.blocks if b.mixer]
    heads = sorted({mixer.head_counts for mixer in mixers})
    return {
        "name": model.name,
        "hidden_size": model.hidden_size,
        "vocab_size": model.vocab_size,
        "tied_embeddings": model.tied_embeddings,
        "blocks": [
            {"count": len(list(run)), "kind": kind}
            for kind, run in groupby(b.kind for b in model.blocks)
        ],
        "heads": [{"query": q, "key_value": kv} for q, kv in heads],
        "parameters": model.parameters,
        "active_parameters_with_input_embedding": model.active_parameters(include_embedding=True),
        "active_parameters_without_input_embedding": model.active_parameters(
            include_embedding=False
        ),
        "parameters_by_part": model.parameters_by_part(),
        "checkpoint_format": None if model.bytes_unknown else model.quantization or "bf16",
        "checkpoint_formats": {part: dict(shares) for part, shares in model.formats},
        "weight_bytes": None if model.bytes_unknown else sum(model.weight_bytes().values()),
        "weight_bytes_unknown": model.bytes_unknown,
        "kv_bytes_per_token_bf16": model.kv_bytes_per_token(),
        "indexer_bytes_per_token_bf16": model.indexer_bytes_per_token(),
        "growth_bytes_per_token_bf16": model.growth_bytes_per_token(),
        "kv_bytes_bf16": {
            "context": CONTEXT,
            "needed": model.kv_bytes(CONTEXT),
            "reserved": model.kv_bytes(CONTEXT, reserved=True),
        },
        "kv_cache_format": model.kv_cache,
        "max_positions": model.max_positions,
        "state_bytes": model.state_bytes(),
        "flop_per_token": {
            "context": CONTEXT,
            "matmul": decode.gemm_flops,
            "attention": decode.attention_flops,
        },
        "left_out": list(model.left_out),
    }


def sheet_text(model, width=28):
    """The sheet for people: a line a figure, and a bar for each part of the parameters.

    Parameters
    ----------
    model : Model
        What to describe.
    width : int
        Longest bar [character], at most 1000.

    Returns
    -------
    str
        Text; counts in parameters, sizes with decimal prefixes (GB is 10**9 byte).

    Notes
    -----
    Source: `sheet`.

    Examples
    --------
    >>> from hwdesign.models import config
    >>> print(sheet_text(config.load("qwen3-0.6b")).splitlines()[2])
    parameters                          596,049,920
    """
    s, width = sheet(model), count("width", width, 1000)
    cache, work = s["kv_bytes_bf16"], s["flop_per_token"]
    tied = "tied embeddings" if s["tied_embeddings"] else "separate head"
    tied = tied if model.lm_head else "no LM head"
    lines = [
        visible(s["name"], TOLD),
        f"hidden size {s['hidden_size']}, vocabulary {s['vocab_size']}, {tied}, "
        f"{len(model.blocks)} blocks",
    ]
    lines.append(f"parameters{s['parameters']:>37,}")
    most = max(s["parameters_by_part"].values())
    for part, n in s["parameters_by_part"].items():
        bar = "#" * max(1, round(width * n / most))
        lines.append(f"  {part:<18}{n:>27,}  {n / s['parameters']:7.2%}  {bar}")
    lines += [
        f"active, with input embedding   {s['active_parameters_with_input_embedding']:>16,}",
        f"active, without input embedding{s['active_parameters_without_input_embedding']:>16,}",
        *_stored(s),
        f"KV cache a token (BF16): {s['kv_bytes_per_token_bf16']:,.0f} byte",
        *_indexers(s),
        *_growth(s),
        f"KV cache of {CONTEXT} tokens: {fmt(cache['needed'], 'byte', digits=4)}",
    ]
    if cache["reserved"] != cache["needed"]:
        lines[-1] += (
            f" needed, {fmt(cache['reserved'], 'byte', digits=4)} if an engine reserves the "
            "full context in every layer"
        )
    if s["state_bytes"]:
        lines.append(f"constant state a sequence: {fmt(s['state_bytes'], 'byte', digits=4)}")
    parts = ", ".join(
        f"{fmt(work[key], 'FLOP', digits=4)} in {name}"
        for key, name in (("matmul", "matrices"), ("attention", "scores"))
    )
    lines.append(f"FLOP a token at {CONTEXT} tokens: {parts}")
    lines.append("blocks: " + _runs(s["blocks"]))
    if s["left_out"]:
        lines.append("left out: " + ", ".join(visible(words, TOLD) for words in s["left_out"]))
    return "\n".join(lines)


def _growth(s):
    """A line about the cache of a long sequence, where windows make a difference."""
    grows = s["growth_bytes_per_token_bf16"]
    if grows == s["kv_bytes_per_token_bf16"] + s["indexer_bytes_per_token_bf16"]:
        return []
    return [f"grows by {grows:,.0f} byte a token once windows are full"]


def _indexers(s):
    """A line about the caches of indexers, as a list."""
    kept = s["indexer_bytes_per_token_bf16"]
    return [f"indexer cache a token (BF16): {kept:,.0f} byte"] if kept else []


def _stored(s):
    """Lines about the weights as they are stored, as a list."""
    if s["weight_bytes_unknown"]:
        return [f"weights as stored: not known, {s['weight_bytes_unknown']}"]
    size = fmt(s["weight_bytes"], "byte", digits=4)
    return [f"weights as stored ({s['checkpoint_format']}): {size}", *_stored_otherwise(s)]


def _stored_otherwise(s):
    """A line about the parts that are not wholly in the checkpoint's format, as a list."""
    found = []
    for part, shares in s["checkpoint_formats"].items():
        if set(shares) != {s["checkpoint_format"]}:
            said = " and ".join(
                name if share == 1 else f"{100 * share:.0f} % {name}"
                for name, share in shares.items()
            )
            found.append(f"{part} {said}")
    return ["of them " + ", ".join(found)] if found else []


def _runs(blocks, most=12):
    """Runs of equal blocks; a pattern of many runs is summed by kind."""
    if len(blocks) <= most:
        return ", ".join(f"{b['count']} x {b['kind']}" for b in blocks)
    total = {}
    for b in blocks:
        total[b["kind"]] = total.get(b["kind"], 0) + b["count"]
    return ", ".join(f"{n} x {kind}" for kind, n in total.items()) + f" (in {len(blocks)} runs)"
