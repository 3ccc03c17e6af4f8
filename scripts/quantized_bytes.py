"""Quantizes small matrices and models with the libraries themselves and writes down what they store, byte by byte.

The tests compare the counts of `hwdesign` with the file; they need none of these libraries. Run it in an environment of its own:
python scripts/quantized_bytes.py tests/data/quantized_bytes.json (compressed-tensors, bitsandbytes, torchao, torch, mlx, mlx-lm)
"""

import contextlib
import importlib.metadata
import io
import json
import sys

ROWS, COLUMNS = 256, 512  # of a matrix; MODELS are of similar size
DENSE = {"hidden_size": 256, "intermediate_size": 384, "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 2,
         "head_dim": 64, "vocab_size": 512, "rms_norm_eps": 1e-5, "rope_theta": 1e6, "max_position_embeddings": 4096}  # fmt: skip
MOE = {**DENSE, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 128, "decoder_sparse_step": 1,
       "mlp_only_layers": [], "norm_topk_prob": True}  # fmt: skip
LINEAR = {"full_attention_interval": 3, "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 64,
          "linear_value_head_dim": 64, "linear_conv_kernel_dim": 4, "partial_rotary_factor": 0.25}  # fmt: skip
MODELS = [  # what is quantized with MLX
    {**DENSE, "model_type": "llama", "tie_word_embeddings": False},
    {**DENSE, "model_type": "llama", "tie_word_embeddings": True, "attention_bias": True},
    {**DENSE, "model_type": "qwen3", "tie_word_embeddings": True},
    {**MOE, "model_type": "qwen3_moe", "tie_word_embeddings": False},
    {**MOE, **LINEAR, "model_type": "qwen3_next", "tie_word_embeddings": False, "shared_expert_intermediate_size": 128},
    {**DENSE, "model_type": "mixtral", "head_dim": 32, "num_local_experts": 4, "num_experts_per_tok": 2,
     "tie_word_embeddings": False},
    {**DENSE, "model_type": "phi3", "head_dim": 32, "tie_word_embeddings": False},
    {**DENSE, "model_type": "olmo2", "head_dim": 32, "tie_word_embeddings": False},
    {**DENSE, "model_type": "starcoder2", "head_dim": 32, "tie_word_embeddings": True, "norm_epsilon": 1e-5, "use_bias": True},
    {**DENSE, "model_type": "gpt_oss", "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 128,
     "tie_word_embeddings": False, "rope_scaling": None, "layer_types": ["sliding_attention", "full_attention"] * 2,
     "num_hidden_layers": 4},
    {**DENSE, "model_type": "deepseek_v3", "num_key_value_heads": 8, "head_dim": None, "q_lora_rank": 128, "kv_lora_rank": 128,
     "qk_nope_head_dim": 64, "qk_rope_head_dim": 64, "v_head_dim": 64, "n_routed_experts": 4, "num_experts_per_tok": 2,
     "moe_intermediate_size": 128, "n_shared_experts": 1, "first_k_dense_replace": 1, "moe_layer_freq": 1, "n_group": 1,
     "topk_group": 1, "routed_scaling_factor": 1.0, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "norm_topk_prob": True,
     "tie_word_embeddings": False, "num_nextn_predict_layers": 0},
]


def version(name):
    return importlib.metadata.version(name)


def sizes(tensors):
    """Bytes of each tensor that a state dict holds."""
    return {name: t.numel() * t.element_size() for name, t in tensors.items() if hasattr(t, "numel")}


def compressed_tensors():
    """Every preset scheme in the format that the library chooses for it, and integers packed by force."""
    import torch
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.compressors.format import infer_module_format
    from compressed_tensors.quantization import quant_scheme
    from compressed_tensors.quantization.lifecycle import initialize_module_for_quantization

    for name in quant_scheme.PRESET_SCHEMES:
        for forced in (None, "pack-quantized"):
            scheme = quant_scheme.preset_name_to_scheme(name, ["Linear"])
            integers = scheme.weights is not None and scheme.weights.type == "int"
            if scheme.weights is None or (forced and (not integers or scheme.input_activations is None)):
                continue
            linear = torch.nn.Linear(COLUMNS, ROWS, bias=False, dtype=torch.bfloat16)
            linear.quantization_scheme = scheme
            initialize_module_for_quantization(linear, scheme)
            for parameter in linear.parameters():
                if parameter.shape != linear.weight.shape:
                    parameter.data.fill_(1)
            form = forced or infer_module_format(type(linear), scheme).value
            stored = BaseCompressor.get_value_from_registry(form).compress(dict(linear.state_dict()), scheme)
            scheme.format = form
            said = {"config_groups": {"group_0": json.loads(scheme.model_dump_json())}, "format": form, "ignore": ["lm_head"],
                    "quant_method": "compressed-tensors", "quantization_status": "compressed"}  # fmt: skip
            yield matrix("compressed-tensors", name, said, sizes(stored))
    for size in (32, 64, -1):
        scheme = quant_scheme.preset_name_to_scheme("W4A16", ["Linear"])
        own = {"num_bits": 4, "type": "int", "symmetric": size == 64, "strategy": "channel" if size == -1 else "group"}
        scheme.weights = type(scheme.weights)(**own, group_size=None if size == -1 else size)
        linear = torch.nn.Linear(COLUMNS, ROWS, bias=False, dtype=torch.bfloat16)
        linear.quantization_scheme = scheme
        initialize_module_for_quantization(linear, scheme)
        stored = BaseCompressor.get_value_from_registry("pack-quantized").compress(dict(linear.state_dict()), scheme)
        said = {"config_groups": {"group_0": json.loads(scheme.model_dump_json())}, "format": "pack-quantized",
                "ignore": ["lm_head"], "quant_method": "compressed-tensors"}  # fmt: skip
        yield matrix("compressed-tensors", f"W4A16 in groups of {size}", said, sizes(stored))


def matrix(library, scheme, said, stored):
    return {"library": library, "version": version(library), "scheme": scheme, "quantization_config": said, "rows": ROWS,
            "columns": COLUMNS, "bytes": stored}  # fmt: skip


def bitsandbytes():
    """Linear layers in 4 and 8 bits."""
    import torch
    from bitsandbytes.nn import Linear4bit, Linear8bitLt, Params4bit

    weights = torch.randn(ROWS, COLUMNS, dtype=torch.bfloat16, generator=torch.Generator().manual_seed(0))
    for kind in ("nf4", "fp4"):
        for twice in (False, True):
            linear = Linear4bit(COLUMNS, ROWS, bias=False, compress_statistics=twice, quant_type=kind)
            linear.weight = Params4bit(weights, requires_grad=False, compress_statistics=twice, quant_type=kind)
            said = {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False, "bnb_4bit_quant_type": kind,
                    "bnb_4bit_use_double_quant": twice, "llm_int8_skip_modules": None}  # fmt: skip
            yield matrix("bitsandbytes", f"{kind}{' twice' * twice}", said, sizes(linear.to("cpu").state_dict()))
    linear = Linear8bitLt(COLUMNS, ROWS, bias=False, has_fp16_weights=False)
    linear.load_state_dict({"weight": weights.half()}, strict=False)
    said = {"quant_method": "bitsandbytes", "load_in_4bit": False, "load_in_8bit": True}
    yield matrix("bitsandbytes", "8 bits", said, sizes(linear.to("cpu").state_dict()))


def torchao():
    """The configs that run without a GPU."""
    import torch
    from torchao import quantization as ao
    from torchao.core.config import config_to_dict

    for name in ("Int8WeightOnlyConfig", "Int8DynamicActivationInt8WeightConfig", "Float8WeightOnlyConfig"):
        own = getattr(ao, name)()
        model = torch.nn.Sequential(torch.nn.Linear(COLUMNS, ROWS, bias=False, dtype=torch.bfloat16))
        ao.quantize_(model, own)
        inner = model[0].weight
        parts = {part: getattr(inner, part) for part in inner.__tensor_flatten__()[0]}
        said = {"quant_method": "torchao", "quant_type": {"default": config_to_dict(own)}, "modules_to_not_convert": None,
                "include_input_output_embeddings": False}  # fmt: skip
        yield matrix("torchao", name, said, sizes(parts))


def mlx():
    """A matrix in every mode, number of bits and size of a group that MLX takes."""
    import mlx.core as mx
    import mlx.nn as nn

    sides = [("affine", bits, size) for bits in (2, 3, 4, 5, 6, 8) for size in (32, 64, 128)]
    for mode, bits, size in [*sides, ("mxfp4", 4, 32), ("nvfp4", 4, 16), ("mxfp8", 8, 32)]:
        linear = nn.Linear(COLUMNS, ROWS, bias=False)
        linear.set_dtype(mx.bfloat16)
        stored = nn.QuantizedLinear.from_linear(linear, size, bits, mode=mode).parameters()
        said = {"group_size": size, "bits": bits, "mode": mode}
        yield matrix("mlx", f"{mode} {bits} {size}", said, {name: array.nbytes for name, array in stored.items()})


def mlx_models():
    """Whole models quantized with MLX LM, and the config that it writes."""
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_lm.utils import _get_classes, quantize_model

    for values in MODELS:
        for mode, size, bits in (("affine", 64, 4), ("affine", 32, 3), ("mxfp4", 32, 4)):
            kind, arguments = _get_classes(config=values)
            model = kind(arguments.from_dict(values))
            model.set_dtype(mx.bfloat16)
            with contextlib.redirect_stdout(io.StringIO()):
                model, written = quantize_model(model, dict(values), size, bits, mode=mode)
            stored = sum(array.nbytes for _, array in tree_flatten(model.parameters()))
            yield {"library": "mlx-lm", "version": version("mlx-lm"), "config": written, "bytes": stored}


def main():
    matrices = [*compressed_tensors(), *bitsandbytes(), *torchao(), *mlx()]
    text = json.dumps({"date": "2026-12-01", "matrices": matrices, "models": list(mlx_models())}, separators=(",", ":"))
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write(text.replace('{"library"', '\n{"library"') + "\n")


if __name__ == "__main__":
    main()
