"""Names of modules in checkpoints of models with states, indexers and latent experts."""

import re

# Names of modules in towers and prediction layers, whose layers count from 0 as well.
OUTSIDE = re.compile(
    r"(?:\w+\.)*(?:mtp|visual|vision\w*|audio\w*|talker)\.(?:\w+\.)*(?:layers|blocks|h)\.", re.A
)
NEW_STYLES = {  # as STYLES of hwdesign.models.checkpoint
    "deepseek_v4": ("model.layers", "attn", "ffn"),
    "minimax": ("model.layers", "self_attn", "block_sparse_moe"),
    "minimax_m3": ("model.layers", "self_attn", "block_sparse_moe"),
    "granitemoehybrid": ("model.layers", "self_attn", "block_sparse_moe"),
    "jamba": ("model.layers", "self_attn", "feed_forward"),
    "falcon_h1": ("model.layers", "self_attn", "feed_forward"),
    "bamba": ("model.layers", "self_attn", "feed_forward"),
    "lfm2": ("model.layers", "self_attn", "feed_forward"),
    "lfm2_moe": ("model.layers", "self_attn", "feed_forward"),
    **dict.fromkeys(("bailing_hybrid", "bailing_moe_linear"), ("model.layers", "attention", "mlp")),
}
NEW_LEAVES = {  # as LEAVES there
    "mamba in": ("in_proj",),
    "mamba x": ("x_proj",),
    "mamba dt": ("dt_proj",),
    "mamba out": ("out_proj",),
    "linear in": ("in_proj",),
    "linear qkv": ("in_proj_qkv", "in_proj_qkvz"),
    "linear z": ("in_proj_z", "in_proj_qkvz"),
    "linear b": ("in_proj_b", "in_proj_ba", "b_proj"),
    "linear a": ("in_proj_a", "in_proj_ba"),
    "linear f": ("f_proj",),
    "linear f down": ("f_a_proj",),
    "linear f up": ("f_b_proj",),
    "linear gate": ("g_proj", "output_gate"),
    "linear gate down": ("g_a_proj",),
    "linear gate up": ("g_b_proj",),
    "linear out": ("out_proj", "o_proj"),
    "indexer q": ("indexer.wq_b", "indexer.q_proj", "index_q_proj"),
    "indexer k": ("indexer.wk", "indexer.k_proj", "index_k_proj"),
    "indexer weights": ("indexer.weights_proj",),
    "latent down": ("fc1_latent_proj", "routed_expert_down_proj"),
    "latent up": ("fc2_latent_proj", "routed_expert_up_proj"),
    "kv": ("wkv", "kv_proj"),
    "output down": ("wo_a", "o_a_proj"),
}
# Model type -> part -> where its modules stand in a layer with experts, if not where `modules`
# looks; the same of its other layers.
PLACES = {
    **dict.fromkeys(
        ("gemma4", "gemma4_text"),
        {"experts": ("experts", "moe.experts"), "shared experts": ("mlp",)},
    ),
    "longcat_flash": {"attention": ("self_attn.0",), "shared experts": ("mlps.0",)},
    "step3p5": {
        "experts": ("moe", "moe.experts", "mlp.experts"),
        "shared experts": ("share_expert", "mlp.shared_experts"),
    },
    "granitemoeshared": {"shared experts": ("shared_mlp",)},
    "hunyuan_v1_moe": {"shared experts": ("mlp.shared_mlp",)},
}
PLACES_DENSE = {"longcat_flash": {"attention": ("self_attn.1",), "ffn": ("mlps.1",)}}
PER_LAYER = {"longcat_flash": 2}  # blocks that a layer is counted as
