"""Reading configs: every refusal names key, value and what is accepted; nesting, windows, quantization; hostile files."""

import copy
import json
import math
import time
from pathlib import Path

import pytest

import hwdesign as hw
from hwdesign.models import config

LLAMA = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 8,
         "num_key_value_heads": 2, "vocab_size": 100}  # fmt: skip
MLA = {"model_type": "deepseek_v3", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
       "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8, "vocab_size": 100,
       "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 16,
       "first_k_dense_replace": 1}  # fmt: skip
QWEN = {**LLAMA, "model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
HYBRID = {**LLAMA, "model_type": "nemotron_h", "hybrid_override_pattern": "M*-", "mamba_num_heads": 4, "mamba_head_dim": 8,
          "n_groups": 2, "ssm_state_size": 16, "conv_kernel": 4}  # fmt: skip
NAS = {**LLAMA, "model_type": "nemotron-nas", "num_hidden_layers": 1, "block_configs": [
    {"attention": {"n_heads_in_group": 4, "no_op": False}, "ffn": {"ffn_mult": 1.5, "no_op": False}}]}  # fmt: skip
GEMMA = {**LLAMA, "model_type": "gemma3_text", "sliding_window": 8}
TYPES = ["sliding_attention", "full_attention", "full_attention"]


def changed(base, **keys):
    return {**base, **keys}


def quantized(**keys):
    return {**LLAMA, "quantization_config": keys}


def refusal(source):
    """The one line that a refusal says, after well under a second of work."""
    start = time.process_time()
    with pytest.raises(ValueError, match=r"\A[^\n]{20,900}\Z") as error:
        config.load(source)
    assert type(error.value) is ValueError and time.process_time() - start < 1
    return str(error.value)


NO_SIZES = [None, True, 64.0, 64.5, "64", -64, 0, 10**9, 10**400, math.nan, math.inf, [64], {"n": 64}, (), b"8"]


@pytest.mark.parametrize("value", NO_SIZES, ids=lambda v: repr(v)[:12])
@pytest.mark.parametrize("base", [LLAMA, MLA, QWEN, HYBRID], ids=lambda c: c["model_type"])
def test_a_size_that_is_no_size(base, value):
    for key in ("hidden_size", "num_hidden_layers", "vocab_size"):
        text = refusal({**base, key: value})
        assert f"config key '{key}' must be a whole number" in text
        assert ("got nothing" if value is None else f"got {repr(value)[:80]}") in text.replace("got None", "got nothing")
        assert f"config key '{key}' must be a whole number" in refusal({k: v for k, v in base.items() if k != key})


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, "model types that are read, as "),
        (changed(LLAMA, model_type="gemma5"), "'model_type' must be one of the "),
        (changed(LLAMA, model_type="gemma5"), "model types that are read, as gemma, gemma4, gemma3, gemma2, got 'gemma5'"),
        (changed(LLAMA, model_type=["llama"]), "got ['llama']"),
        (changed(LLAMA, num_key_value_heads=3), "'num_key_value_heads' must be a divisor of num_attention_heads 8, got 3"),
        (changed(LLAMA, num_key_value_heads=16), "'num_key_value_heads' must be a divisor of num_attention_heads 8, got 16"),
        (changed(LLAMA, hidden_size=65), "'head_dim' must be given, since hidden_size 65 is not a multiple"),
        (changed(LLAMA, n_layer=4), "'num_hidden_layers' = 3 and 'n_layer' = 4 contradict each other"),
        (changed(LLAMA, head_dim=8, attention_head_dim=16), "'head_dim' = 8 and 'attention_head_dim' = 16 contradict"),
        (changed(LLAMA, attention_bias="no"), "'attention_bias' must be true or false, got 'no'"),
        (changed(LLAMA, tie_word_embeddings=1), "'tie_word_embeddings' must be true or false, got 1"),
        (changed(LLAMA, num_local_experts=8), "'num_local_experts' must be absent: the reader of 'llama' does not know this key"),
        (changed(LLAMA, qk_rope_head_dim=64), "'qk_rope_head_dim' must be absent"),
        (changed(LLAMA, hybrid_override_pattern="M*M"), "'hybrid_override_pattern' must be absent"),
        (changed(LLAMA, sliding_window=8, layer_types=TYPES[:2]), "'layer_types' must be 3 entries out of full_attention, sl"),
        (changed(LLAMA, sliding_window=8, layer_types=["linear"] * 3), "'layer_types' must be 3 entries"),
        (changed(LLAMA, layer_types=TYPES), "'sliding_window' must be given, since layer_types names sliding layers"),
        (changed(LLAMA, layer_types="full"), "'layer_types' must be a list of layer names, got 'full'"),
        (changed(LLAMA, sliding_window=8, layer_types=TYPES, sliding_window_pattern=3), "since layer_types says otherwise"),
        (changed(LLAMA, sliding_window_pattern=6), "'sliding_window' must be a whole number, since only each layer 6"),
        (changed(GEMMA, sliding_window=None), "'sliding_window' must be a whole number"),
        (changed(LLAMA, model_type="mistral", attention_bias=True), "'attention_bias' must be absent"),
        (changed(LLAMA, model_type="qwen2", attention_bias=False), "'attention_bias' must be true or absent"),
        (changed(LLAMA, model_type="qwen3", mlp_bias=True), "'mlp_bias' must be absent"),
        (changed(QWEN, num_experts_per_tok=5), "'num_experts_per_tok' must be a whole number from 1 to 4, got 5"),
        (changed(QWEN, mlp_only_layers=[3]), "'mlp_only_layers' must be layer numbers from 0 to 2, got [3]"),
        (changed(QWEN, mlp_only_layers=[True]), "'mlp_only_layers' must be a list of layer numbers"),
        (changed(QWEN, n_routed_experts=8), "'num_experts' = 4 and 'n_routed_experts' = 8 contradict"),
        (changed(QWEN, shared_expert_intermediate_size=8), "'shared_expert_intermediate_size' must be absent"),
        (changed(QWEN, model_type="qwen2_moe"), "'shared_expert_intermediate_size' must be a whole number"),
        (changed(LLAMA, model_type="mixtral", num_local_experts=4, num_experts_per_tok=2, decoder_sparse_step=2),
         "'decoder_sparse_step' must be absent"),
        (changed(MLA, first_k_dense_replace=5), "'first_k_dense_replace' must be a whole number from 0 to 4, got 5"),
        (changed(MLA, moe_layer_freq=[0, 1]), "'moe_layer_freq' must be a whole number or a list of 4 zeros and ones"),
        (changed(MLA, moe_layer_freq=[0, 1, True, 1]), "'moe_layer_freq' must be"),
        (changed(MLA, topk_method="best"), "'topk_method' must be noaux_tc, greedy or group_limited_greedy, got 'best'"),
        (changed(MLA, index_head_dim=128), "'index_head_dim' must be absent"),
        (changed(HYBRID, hybrid_override_pattern="M*"), "'hybrid_override_pattern' must be 3 letters out of M * - E, got 'M*'"),
        (changed(HYBRID, hybrid_override_pattern="M*X"), "'hybrid_override_pattern' must be 3 letters"),
        (changed(HYBRID, hybrid_override_pattern=["M"]), "'hybrid_override_pattern' must be 3 letters"),
        (changed(HYBRID, mlp_hidden_act="silu"), "'mlp_hidden_act' must be relu2, whose two matrices are counted, got 'silu'"),
        (changed(HYBRID, use_bias=True, mamba_proj_bias=False), "'mamba_proj_bias' must be true or absent"),
        (changed(HYBRID, moe_latent_ways=8), "'moe_latent_ways' must be absent"),
        (changed(NAS, num_hidden_layers=2), "'block_configs' must be a list of 2 objects, one a layer"),
        (changed(NAS, block_configs=[{"attention": None, "ffn": {}}]), "'block_configs[0].attention' must be an object"),
        (changed(NAS, block_configs=[{"attention": {"n_heads_in_group": 3}, "ffn": {}}]),
         "'block_configs[0].attention.n_heads_in_group' must be a divisor of num_attention_heads 8, got 3"),
        (changed(NAS, block_configs=[{"attention": {"no_op": True}, "ffn": {"ffn_mult": math.nan}}]),
         "'block_configs[0].ffn.ffn_mult' must be a number from 0.01 to 100, got nan"),
        (changed(NAS, block_configs=[{"attention": {"no_op": True, "replace_with_linear": True}, "ffn": {"no_op": True}}]),
         "'block_configs[0].attention.replace_with_linear' must be absent"),
        (changed(LLAMA, model_type="gpt_bigcode", num_key_value_heads=8), "'num_key_value_heads' must be 1 or absent"),
        (changed(LLAMA, decoder={"num_hidden_layers": 40}), "'decoder' must be one of text_config, language_config"),
        ({"text_config": LLAMA, "llm_config": LLAMA}, "must nest one language model, got 'text_config' and 'llm_config'"),
        (changed(LLAMA, text_config="x"), "'text_config' must be an object, got 'x'"),
        ({"text_config": changed(LLAMA, num_experts=4)}, "'text_config.num_experts' must be absent"),
        ({"tie_word_embeddings": True, "text_config": changed(LLAMA, tie_word_embeddings=False)}, "contradict each other"),
        ({"quantization": {"bits": 4}, "text_config": LLAMA}, "'text_config.quantization.group_size' must be a whole number"),
        ({1: 2}, "config keys must be text, got 1"),
        (quantized(quant_method=6), "'quantization_config.quant_method' must be one of fp8, fbgemm_fp8, mxfp4, mxfp8, modelopt"),
        (quantized(), "'quantization_config.quant_method' must be"),
        (quantized(quant_method="bitsandbytes"), "load_in_4bit' must be true where load_in_8bit is not; neither is set"),
        (quantized(quant_method="bitsandbytes", load_in_4bit=True, load_in_8bit=True), "both is set, got True"),
        (quantized(quant_method="modelopt", quant_algo=3), "'quantization_config.quant_algo' must be MIXED_PRECISION or one of"),
        (quantized(quant_method="modelopt", quant_algo="NVFP4", group_size=32), "group_size' must be 16 or absent for NVFP4"),
        (quantized(quant_method="fp8", weight_block_size="64"), "weight_block_size' must be two whole numbers or absent"),
        (quantized(quant_method="awq", bits=9, group_size=128), "config.bits' must be a whole number from 2 to 8, got 9"),
        (quantized(quant_method="awq", bits=True, group_size=128), "config.bits' must be a whole number from 2 to 8, got True"),
        (quantized(quant_method="gptq", bits=4, group_size=0), "config.group_size' must be a whole number from 1 to 65536"),
        (quantized(quant_method="gptq", bits=4), "config.group_size' must be a whole number from 1 to 65536, or -1"),
        (quantized(quant_method="fp8", ignore="all"), "'quantization_config.ignore' must be a list of names of modules"),
        (changed(LLAMA, quantization_config="fp8"), "'quantization_config' must be an object, got 'fp8'"),
        (changed(LLAMA, compression_config={"format": "int4"}), "'compression_config' must be absent"),
        (None, "source must be a dict, a path or a name, got None"),
        ([1], "source must be a dict, a path or a name, got [1]"),
    ],
)  # fmt: skip
def test_a_refusal_names_key_value_and_what_is_accepted(values, says):
    assert says in refusal(values)


# What is read, by another name, at another place, or by default.


@pytest.mark.parametrize("key", config.NESTED)
def test_a_nested_language_model_wins_over_the_dimensions_outside(key):
    outer = {"model_type": "any_vlm", "num_hidden_layers": 33, "hidden_size": 8, "vision_config": {"num_hidden_layers": 27}}
    model = config.load({**outer, key: {**LLAMA, "num_hidden_layers": 40}})  # omlx pull 1448: 40, not 33
    assert len(model.blocks) == 40
    talker = {"text_config": {"num_hidden_layers": 5}}
    deeper = {**outer, "thinker_config": {**outer, "text_config": LLAMA}, "talker_config": talker}
    assert config.load(deeper).parameters == config.load(LLAMA).parameters


def test_what_a_wrapper_says_holds_inside():
    fp8 = {"quant_method": "fp8"}
    model = config.load({"tie_word_embeddings": True, "quantization_config": fp8, "text_config": LLAMA})
    assert model.tied_embeddings and model.quantization == "fp8"


@pytest.mark.parametrize(("kind", "tied"), [("gpt2", True), ("gpt_bigcode", True), ("gemma3_text", True), ("llama", False),
                                            ("qwen3", False), ("gpt_neox", False)])  # fmt: skip
def test_embeddings_are_tied_where_the_type_says_so(kind, tied):
    values = changed(LLAMA, model_type=kind, max_position_embeddings=64, num_key_value_heads=None)
    values |= {"sliding_window": 8} if kind == "gemma3_text" else {}
    assert config.load(values).tied_embeddings is tied
    assert config.load({**values, "tie_word_embeddings": None}).tied_embeddings is tied
    assert config.load({**values, "tie_word_embeddings": not tied}).tied_embeddings is not tied


def windows(values):
    return [block.mixer.window for block in config.load(values).blocks]


def test_windows():
    assert windows(LLAMA) == [None] * 3 and windows(changed(LLAMA, sliding_window=8)) == [8] * 3
    assert windows(changed(LLAMA, sliding_window=8, layer_types=TYPES)) == [8, None, None]
    assert windows(changed(LLAMA, sliding_window=8, sliding_window_pattern=2)) == [8, None, 8]
    assert windows(changed(GEMMA, num_hidden_layers=7)) == [8] * 5 + [None, 8]
    assert windows(changed(LLAMA, model_type="mistral")) == [4096] * 3  # what its configuration says where the key is missing
    assert windows(changed(LLAMA, model_type="mistral", sliding_window=None)) == [None] * 3
    qwen = changed(LLAMA, model_type="qwen3", sliding_window=8, max_window_layers=1)
    assert windows(qwen) == [None] * 3 and windows({**qwen, "use_sliding_window": True}) == [None, 8, 8]


def test_which_layers_have_experts():
    def sparse(values):
        return [isinstance(block.ffn, hw.MoE) for block in config.load(values).blocks]

    assert sparse(MLA) == [False, True, True, True]
    assert sparse(changed(MLA, moe_layer_freq=2)) == [False, False, True, False]
    assert sparse(changed(MLA, first_k_dense_replace=0, moe_layer_freq=[0, 1, 0, 1])) == [False, True, False, True]
    assert sparse(QWEN) == [True] * 3 and sparse(changed(QWEN, decoder_sparse_step=2)) == [False, True, False]
    assert sparse(changed(QWEN, interleave_moe_layer_step=3)) == [False, False, True]
    assert sparse(changed(QWEN, mlp_only_layers=[0, 2])) == [False, True, False]


def test_one_key_value_head_where_multi_query_is_on():
    values = changed(LLAMA, model_type="gpt_bigcode", n_positions=64, num_key_value_heads=None)
    assert config.load(values).blocks[0].mixer.kind == "MQA"  # the default of that type
    assert config.load({**values, "multi_query": False}).blocks[0].mixer.kind == "MHA"
    assert config.load(changed(LLAMA, multi_query=True, num_key_value_heads=1)).blocks[0].mixer.num_kv_heads == 1


def test_a_config_invented_on_the_spot():
    """A 7B model with latent attention and three dense layers before its experts; then the same as a hybrid."""
    values = {**MLA, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 24, "num_attention_heads": 16,
              "q_lora_rank": None, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
              "vocab_size": 102400, "n_routed_experts": 48, "num_experts_per_tok": 4, "n_shared_experts": 2,
              "moe_intermediate_size": 1024, "first_k_dense_replace": 3}  # fmt: skip
    model = config.load(values)
    attention = 2048 * 16 * 192 + 2048 * 576 + 512 * 16 * 256 + 512 + 16 * 128 * 2048 + 2 * 2048
    experts = (48 + 2) * 3 * 2048 * 1024 + 48 * 2048 + 48
    assert model.parameters == 2 * 102400 * 2048 + 2048 + 24 * attention + 3 * 3 * 2048 * 8192 + 21 * experts == 7_508_933_616
    assert model.kv_bytes_per_token() == 24 * 576 * 2
    hybrid = refusal({**values, "hybrid_override_pattern": "M*" * 12, "mamba_num_heads": 32})
    assert "'hybrid_override_pattern' must be absent: the reader of 'deepseek_v3' does not know this key" in hybrid


# Files.


def test_names_paths_and_dicts_give_the_same(tmp_path):
    file = tmp_path / "tiny-model" / "config.json"
    file.parent.mkdir()
    file.write_text(json.dumps(LLAMA), encoding="utf-8")
    before = copy.deepcopy(LLAMA)
    for source in (LLAMA, file, str(file)):
        assert config.load(source).parameters == hw.Model.from_config(source).parameters == config.load(LLAMA).parameters
    assert before == LLAMA and config.load(file).name == "tiny-model" and config.load("gpt2").name == "gpt2"
    for name in config.names():
        values = json.loads((Path(config.__file__).parent / "configs" / f"{name}.json").read_text(encoding="utf-8"))
        assert len(values["_source"]) > 20 and config.load(values).parameters == config.load(name).parameters


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "'x.json' must be JSON, got an error at line 1: Expecting value"),
        (b"{\n'a': 1}", "'x.json' must be JSON, got an error at line 2: Expecting property name"),
        (b'{"a": 1', "must be JSON, got an error at line 1"),
        (b"[1, 2]", "'x.json' must hold a JSON object, got [1, 2]"),
        (b"null", "must hold a JSON object, got None"),
        (b'"' + b"a" * 500 + b'"', "must hold a JSON object, got 'aaa"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b'{"hidden_size":' + b"[" * 900 + b"]" * 900 + b"}", "'model_type' must be one of"),
        (json.dumps(LLAMA).replace("64", "[" * 400 + "]" * 400).encode(), "'hidden_size' must be a whole number"),
        (json.dumps(LLAMA).replace("64", "9" * 10_000).encode(), "'hidden_size' must be a whole number from 1 to 2000000, got i"),
        (json.dumps(LLAMA).encode("utf-16"), "'x.json' must be UTF-8 text, got byte 0xff at 0"),
        (b'{"a": "\xe9"}', "'x.json' must be UTF-8 text, got byte 0xe9 at 7"),
        (json.dumps(LLAMA).replace("64", "NaN").encode(), "'hidden_size' must be a whole number from 1 to 2000000, got nan"),
        (json.dumps(LLAMA)[:-1].encode() + b', "hidden_size": 128}', "config key 'hidden_size' stands twice, as 64 and 128"),
        (b"\x00" * 1000, "must be JSON"),
        (b"\x7fELF\x02\x01", "must be JSON"),
    ],
    ids=lambda x: repr(x)[:24],
)
def test_a_file_that_is_no_config(tmp_path, content, says):
    (tmp_path / "x.json").write_bytes(content)
    assert says in refusal(tmp_path / "x.json")


def test_a_byte_order_mark_equal_duplicates_and_infinity_are_fine(tmp_path):
    text = json.dumps({**LLAMA, "time_limit": [0.0, math.inf]})[:-1] + ', "hidden_size": 64}'
    assert "Infinity" in text
    (tmp_path / "x.json").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert config.load(tmp_path / "x.json").parameters == config.load(LLAMA).parameters


@pytest.mark.alone
def test_files_too_large_to_be_a_config(tmp_path):
    with (tmp_path / "x.json").open("wb") as file:
        file.truncate(100_000_000)
    assert "'x.json' must be at most 16000000 bytes, as a config is; got 100000000" in refusal(tmp_path / "x.json")
    crowded = {**LLAMA, **{f"key_{i}_of_many": i for i in range(60_000)}}
    (tmp_path / "x.json").write_text(json.dumps(crowded))
    start = time.process_time()
    assert config.load(tmp_path / "x.json").parameters == config.load(LLAMA).parameters
    assert time.process_time() - start < 4  # about 0.7 s, on a busy machine more


@pytest.mark.parametrize("name", ["nothing.json", ".", "a" * 5000, "null\0byte", json.dumps(LLAMA), ""], ids=lambda n: n[:12])
def test_a_file_that_is_not_there(tmp_path, name):
    source = str(tmp_path / name) if name.endswith("json") else name
    says = r"\Asource must be a model's folder, a config.json or one of deepseek-r1, [^\n]* no file [^\n]*\Z"
    with pytest.raises(FileNotFoundError, match=says):
        config.load(source)


def test_values_that_refer_to_themselves_end():
    loop = dict(LLAMA)
    loop["text_config"] = loop
    assert config.load(loop).parameters == config.load(LLAMA).parameters
    circle = []
    circle.append(circle)
    assert "'hidden_size' must be a whole number" in refusal({**LLAMA, "hidden_size": circle})


def test_a_model_type_that_is_another_by_name_is_read_as_that(tmp_path):
    r1 = json.loads((Path(config.__file__).parent / "configs" / "deepseek-r1.json").read_text(encoding="utf-8"))
    # Kimi-K2-Instruct's sizes (its config.json); Moonshot publishes 1 trillion, 32 billion of them active.
    k2 = {**r1, "model_type": "kimi_k2", "vocab_size": 163840, "num_attention_heads": 64, "n_routed_experts": 384,
          "first_k_dense_replace": 1}  # fmt: skip
    assert config.load(k2).parameters == 1_026_408_232_448
