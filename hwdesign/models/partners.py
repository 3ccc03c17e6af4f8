"""Which tensors hold which weights of a block: what is left over on either side is what differs.

Tensors and weights are first put together by the words that their names have in common, then by
their sizes. A weight may be cut (q, k and v; a gate and a way up; each expert for itself), and a
tensor may hold several weights.
"""

import math
import re
from collections import defaultdict
from itertools import combinations

# (in the name of a tensor, in the name of a weight); the first whose weight the block has holds.
ALIKE = tuple(
    (re.compile(tensor), re.compile(f"(?:{weight})$"))
    for tensor, weight in (
        (r"indexer.*(?:wq_b|q_proj)|index_q_proj", "indexer q"),
        (r"indexer.*(?:wk\b|k_proj)|index_k_proj", "indexer k"),
        (r"indexer.*weights_proj", "indexer weights"),
        (r"(?:indexer.*|index_\w*)norm", "indexer norm"),
        (r"layer_?norm|norm_\d|\bln_|(?:^|[._])norm|norm[._]|rmsnorm", "norm"),
        (r"correction|expert_bias", "router correction"),
        (r"per_expert_scale", "expert scale"),
        (r"router\.scale", "router scale"),
        (r"shared_expert_gate", "shared gate"),
        (r"shared.*(?:down|w2\b|output_linear)", "shared down"),
        (r"shared", "(?:gate and )?shared up"),
        (r"experts.*(?:down|w2\b|output_linear)", "expert down"),
        (r"experts", "(?:gate and )?expert up"),
        (r"(?:^|\.)(?:gate|router)(?:\.|$)", "router"),
        (r"latent_proj|routed_expert_\w+_proj", "latent (?:down|up)"),
        (r"q_a_proj|wq_a", "q down"),
        (r"q_b_proj|wq_b", "q up"),
        (r"kv_a_proj|wkv_a", "kv down"),
        (r"kv_b_proj|wkv_b", "kv up"),
        (r"wo_a|o_a_proj", "output down"),
        (r"wkv|kv_proj", "kv"),
        (r"A_log", "A"),
        (r"(?:^|\.)D$", "D"),
        (r"dt_bias", "dt bias"),
        (r"conv1d\.bias|conv\.bias", "convolution bias"),
        (r"conv", "(?:mamba )?convolution"),
        (r"in_proj|out_proj", "(?:mamba|linear) (?:in|out|qkv|z|a|b)"),
        (r"sink", "sinks"),
        (r"o_proj|out_proj|attn.*c_proj|attention.*dense|wo_b|\bwo\b", "attention output"),
        (r"attn.*g_proj|attn.*gate", "attention gate"),
        (r"q_proj|k_proj|v_proj|qkv|c_attn|query_key_value|Wqkv", "qkv|q|linear qkv"),
        (r"down|c_proj|w2\b|4h_to_h|fc2|fc_out|output_linear", "down"),
        (r"gate|up|c_fc|w1\b|w3\b|h_to_4h|fc1|fc_in|fc_\w|input_linear", "(?:gate and )?up"),
        (r"lm_head|embed_out|(?:^|\.)output|(?:^|\.)head", "lm_head"),
        (r"wpe|embed_positions|position", "positions"),
        (r"embed|wte", "embedding"),
    )
)
SHOWN = 6  # tensors that a line about a weight names
MOST = 14  # left-overs of which sums are tried


def partners(shapes, weights, where, name):
    """What tensors and weights do not share, as lines of text.

    `shapes` counts (name, shape) of tensors, `weights` are the model's; `where` says what place
    that is, and `name` gives the whole name of a tensor.
    """
    pools = defaultdict(lambda: ([], []))
    plain = sorted({_pool(weight.name) for weight in weights})
    for weight in weights:
        size = weight.stored * weight.elements
        pools[_pool(weight.name)][1].append((size, _weight(weight), _pool(weight.name)))
    for (tensor, shape), copies in shapes.items():
        size = copies * math.prod(shape)
        item = (size, _tensor(name(tensor), shape, copies), "")
        pools[_belongs(tensor, plain)][0].append(item)
    gate = pools.get("attention gate")
    if gate and not gate[0]:  # Qwen keeps it in the matrix of the queries
        pools["qkv"][1].extend(pools.pop("attention gate")[1])
    left = {}
    for key, (tensors, needed) in pools.items():
        if _sum(tensors) != _sum(needed):
            left[key] = _without_pairs(tensors, needed)
    _between(left)
    return [line for key, sides in left.items() for line in _lines(key, *sides, where)]


def _pool(weight):
    """What weights are put together: all norms, and each other kind of weight for itself."""
    return "norm" if weight.endswith("norm") and "indexer" not in weight else weight


def _belongs(tensor, names):
    """The pool of weights that a tensor belongs to by its name; '' where none is like it."""
    bias = tensor.endswith(("bias", "_bias")) and not tensor.endswith("dt_bias")
    for words, weight in ALIKE:
        if words.search(tensor):
            for name in names:
                own = bias and name not in ("norm", "router correction", "convolution bias")
                bare = name.removesuffix(" bias") if own else name
                if weight.match(bare) and own == (bare != name):
                    return name
    return ""


def _sum(items):
    return sum(size for size, *_ in items)


def _without_pairs(tensors, weights):
    """Both sides without what is of one size on both, or a sum of a few on one of them."""
    tensors, weights = list(tensors), list(weights)
    for tensor in list(tensors):
        same = [weight for weight in weights if weight[0] == tensor[0]]
        if same:
            tensors.remove(tensor)
            weights.remove(max(same, key=lambda weight: _initial(weight) in tensor[1]))
    _drop_sums(weights, tensors)
    _drop_sums(tensors, weights)
    return tensors, weights


def _initial(weight):
    """The first word of a weight as it begins a word of a tensor: q_, k_."""
    return weight[1].strip("'").partition(" ")[0] + "_"


def _drop_sums(whole, parts):
    """Take away what is the sum of two or three of the other side, and these."""
    for one in list(whole) if len(whole) <= MOST else ():
        if len(parts) <= MOST:
            sums = (some for many in (2, 3, 4) for some in combinations(parts, many))
            if some := next((some for some in sums if _sum(some) == one[0]), None):
                whole.remove(one)
                for part in some:
                    parts.remove(part)


def _between(left):
    """Take away what different pools have left of one size."""
    for key, (tensors, _) in left.items():
        for other, (_, weights) in left.items():
            for tensor in list(tensors) if other != key else ():
                same = next((weight for weight in weights if weight[0] == tensor[0]), None)
                if same:
                    tensors.remove(tensor)
                    weights.remove(same)
    tensors = [item for key in left for item in left[key][0]]
    weights = [item for key in left for item in left[key][1]]
    rest = [set(side) for side in _without_pairs(tensors, weights)]
    for key, (mine, needed) in left.items():
        left[key] = [t for t in mine if t in rest[0]], [w for w in needed if w in rest[1]]


def _lines(key, tensors, weights, where):
    """What is left of a pool in words."""
    if tensors and weights and key:
        names = ", ".join(text for _, text, _ in tensors[:SHOWN])
        names += f" and {len(tensors) - SHOWN} more" if tensors[SHOWN:] else ""
        wanted = ", ".join(text for _, text, _ in weights)
        held, needed = _sum(tensors), _sum(weights)
        yield f"{where}: weight {wanted} has {needed:,} parameters, in {names} are {held:,}"
        return
    for size, text, _ in tensors:
        yield f"{where}: {text} in the files, not in the model ({size:,} parameters)"
    for size, text, _ in weights:
        yield f"{where}: weight {text} has no tensor ({size:,} parameters)"


def _weight(weight):
    shape = f"[{weight.n}, {weight.k}]" if weight.k > 1 else f"[{weight.n}]"
    return f"'{weight.name}' {shape}" + (f" x {weight.stored}" if weight.stored > 1 else "")


def _tensor(name, shape, copies):
    return f"{name} {list(shape)}" + (f" x {copies}" if copies > 1 else "")
