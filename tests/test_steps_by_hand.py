"""Small kernels and memory of a step, counted by hand: each sum is written out."""

import pytest

import hwdesign as hw
from hwdesign.models import config
from hwdesign.models.steps import step

# Small kernels: each reads its elements once and writes as many, so it moves twice its size.


def moved(kernels):
    """Elements that kernels read and write; each row is (layers, kernels a layer, elements)."""
    return sum(2 * layers * each * elements for layers, each, elements in kernels)


def test_small_kernels_of_llama_by_hand():
    found = step(config.load("llama-3.1-8b"), batch=5, context=1000)
    kernels = [
        (32, 2, 5 * 4096),  # 32 layers: norms before attention and before feed-forward
        (32, 1, 5 * (32 + 8 + 8) * 128),  # rotation, with the write of keys and values
        (32, 1, 5 * 14336),  # SiLU of the gate times up
        (1, 1, 5 * 4096),  # embedding
        (1, 1, 5 * 4096),  # final norm
        (1, 1, 5 * 128256),  # sampling: one of the whole vocabulary for each sequence
    ]
    assert found.small_kernels == 32 * (2 + 1 + 1) + 3
    assert found.small_elements == moved(kernels)


def test_small_kernels_of_a_prefill_are_per_token_but_one_token_of_each_prompt_is_sampled():
    found = step(config.load("llama-3.1-8b"), batch=2, context=100, new_tokens=100)
    layer = 2 * 4096 + 48 * 128 + 14336  # norms, rotation, activation
    assert found.small_kernels == 131
    assert found.small_elements == 2 * (200 * (32 * layer + 2 * 4096) + 2 * 128256)


def test_small_kernels_of_mixtral_over_eight_gpus_by_hand():
    plans = {"attention": hw.Plan(tp=2, dp=4), "ffn": hw.Plan(ep=8)}
    found = step(config.load("mixtral-8x7b"), batch=40, context=1000, **plans)
    own = 10  # sequences of a group of two GPUs
    kernels = [
        (32, 2, own * 4096),  # norms
        (32, 1, own * (16 + 4 + 4) * 128),  # half of 32 query, 8 key and 8 value heads
        (32, 1, own * 8),  # the choice among 8 experts: 40 tokens of 4 groups of 2 GPUs
        (1, 2, own * 4096),  # embedding, final norm
        (1, 1, own * 16000),  # sampling from half of 32000
    ]
    assert found.small_kernels == 32 * (2 + 1 + 1) + 3
    assert found.small_elements == moved(kernels)


def test_small_kernels_of_a_cache_cut_in_four_by_hand():
    plans = {"attention": hw.Plan(tp=2, kvp=4), "ffn": hw.Plan(tp=8)}
    found = step(config.load("llama-3.1-8b"), batch=6, context=10_000, **plans)
    kernels = [
        (32, 2, 6 * 4096),  # norms
        (32, 1, 6 * (16 + 4 + 4) * 128),  # rotation
        (32, 1, 6 * 16 * (128 + 4)),  # merge: a head's part in BF16, two statistics in FP32
        (32, 1, 6 * 14336 / 8),  # activation
        (1, 2, 6 * 4096),  # embedding, final norm
        (1, 1, 6 * 128256 / 8),  # sampling
    ]
    assert found.small_kernels == 32 * (2 + 1 + 1 + 1) + 3
    assert found.small_elements == moved(kernels)


def test_small_kernels_of_deepseek_by_hand():
    plans = {"attention": hw.Plan(dp=8), "ffn": hw.Plan(ep=8)}
    found = step(config.load("deepseek-r1"), batch=64, context=1000, **plans)
    kernels = [
        (61, 2, 8 * 7168),  # norms
        (61, 1, 8 * (128 + 1 + 1) * 512),  # 128 queries; the latent is key and value
        (3, 1, 8 * 18432),  # activation of the dense layers: 64 tokens over 8 GPUs
        (58, 1, 8 * 256),  # choice of the experts
        (58, 1, 8 * 2048),  # activation of the shared expert
        (1, 2, 8 * 7168),  # embedding, final norm
        (1, 1, 8 * 129280),  # sampling
    ]
    assert found.small_kernels == 61 * 3 + 3 + 58 * 2 + 3
    assert found.small_elements == moved(kernels)


def test_small_kernels_of_a_state_space_model_by_hand():
    found = step(config.load("nemotron-3-nano-30b-a3b"), batch=3, context=1000)
    mamba, attention, experts = 23, 6, 23
    kernels = [
        (mamba + attention + experts, 1, 3 * 2688),  # each layer has one part and one norm
        (mamba, 1, 3 * 64 * 64),  # gated norm of 64 heads of 64: the scan has its convolution inside
        (attention, 1, 3 * (32 + 2 + 2) * 128),  # rotation and the write of the cache
        (experts, 1, 3 * 128),  # choice of the experts
        (experts, 1, 3 * 3712),  # activation of the shared expert
        (1, 2, 3 * 2688),  # embedding, final norm
        (1, 1, 3 * 131072),  # sampling
    ]
    assert found.small_kernels == 52 + 23 + 6 + 2 * 23 + 3
    assert found.small_elements == moved(kernels)
    assert found.state_elements == 2 * 23 * 3 * 64 * 64 * 128  # 128 states each, read and written


def test_kernels_of_a_step_are_those_that_a_trace_would_show():
    llama = config.load("llama-3.1-8b")
    found = step(llama, batch=5, context=1000)
    gemms, attention, small = 32 * 4 + 1, 32, 131  # qkv, output, gate and up, down; head
    assert found.kernels == gemms + attention + small
    two = step(llama, batch=5, context=1000, attention=hw.Plan(tp=2), ffn=hw.Plan(tp=2))
    assert two.kernels == gemms + attention + small + 64  # two all-reduces a layer
    mixtral = step(config.load("mixtral-8x7b"), batch=5, context=1000)
    gemms = 32 * 3 + 1  # qkv, output, router; head
    assert mixtral.kernels == gemms + 32 + 32 * 2 + (32 * 4 + 3)  # two a layer of experts


# Memory of the fullest GPU.

MATRICES = 80 * ((64 + 2 * 8) * 128 * 8192 + 64 * 128 * 8192 + 3 * 28672 * 8192)
MATRICES += 2 * 128256 * 8192  # embedding and head
NORMS = (2 * 80 + 1) * 8192
TOKEN = 2 * 8 * 128 * 80  # keys and values of a token in all layers


@pytest.mark.parametrize(("tp", "pp"), [(8, 1), (4, 2), (2, 4), (1, 8)])
def test_stages_hold_as_much_as_slices_do(tp, pp):
    """A stage has all sequences, but the cache of its own layers alone; the first has the embedding, the last the head."""
    llama, plan = config.load("llama-3.1-70b"), hw.Plan(tp=tp, pp=pp)
    given = {"context": 16384, "attention": plan, "ffn": plan}
    found = hw.decode_step(llama, "B200", "bf16", batch=256, **given)
    vectors = NORMS / pp  # on every GPU of a stage
    table = 128256 * 8192
    matrices = (MATRICES - 2 * table) / 8 + (2 * table / 8 if pp == 1 else table / tp)
    by_hand = 2 * (matrices + vectors + 256 * 16384 * TOKEN / 8)
    assert found.memory == pytest.approx(by_hand, rel=1e-12 if pp == 1 else 1e-4)
    assert 189 < found.memory / 1e9 < 191.3 and not found.feasible  # vLLM uses 176 GB of a B200
    half = hw.decode_step(llama, "B200", "bf16", batch=128, **given)
    cache = 128 * 16384 * TOKEN / 8 * 2
    assert half.feasible and found.memory - half.memory == pytest.approx(cache)


def test_state_and_cache_of_a_stage_are_those_of_its_layers():
    model, memory = config.load("nemotron-3-nano-30b-a3b"), {}
    for batch in (64, 128):
        for plan in (hw.Plan(), hw.Plan(pp=2)):
            given = {"batch": batch, "context": 8192, "attention": plan, "ffn": plan}
            memory[batch, plan.pp] = hw.decode_step(model, "GB300", "bf16", **given).memory
    cache = 6 * 2 * 2 * 128 * 8192 * 2  # six layers, keys and values of two heads, BF16
    states = 23 * 64 * 64 * 128 * 4  # FP32
    states += 23 * 3 * (4096 + 2 * 8 * 128) * 2  # last three inputs of the convolution, BF16
    assert memory[128, 1] - memory[64, 1] == pytest.approx(64 * (cache + states))
    # The second half of the pattern is the fuller one: 12 of the 23 layers of experts, and the head; 11 of Mamba.
    pattern = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
    half = pattern[26:]
    assert (half.count("E"), half.count("M"), half.count("*")) == (12, 11, 3)
    grown = half.count("*") / 6 * cache + half.count("M") / 23 * states
    assert memory[128, 2] - memory[64, 2] == pytest.approx(64 * grown, rel=1e-3)
    assert 0.5 < memory[64, 2] / memory[64, 1] < 0.56
