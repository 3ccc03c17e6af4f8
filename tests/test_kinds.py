"""A kind of block knows itself: a made-up mixer goes through sheet, step, time and verdicts; half a kind is refused."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

import hwdesign as hw
from hwdesign.models.parts import Mixer, linear, scaled_size


@dataclass(frozen=True, kw_only=True)
class LinearAttention(Mixer):
    """Made up: q, k, v and a gate, no cache, a state of key x value size for each head."""

    num_heads: int
    key_dim: int
    value_dim: int

    kind = "linear attention"
    state_elements = property(lambda self: (self.num_heads * self.key_dim * self.value_dim, 0))
    sizes = property(lambda self: {"query_heads": self.num_heads})

    def weights(self, hidden):
        width = self.num_heads * (2 * self.key_dim + 2 * self.value_dim)
        return linear("in", "attention", width, hidden) + linear("out", "attention", hidden, self.num_heads * self.value_dim)

    def operations(self, run):
        heads = self.local_heads(run.plan)
        run.gemm("in", run.tokens, heads * (2 * self.key_dim + 2 * self.value_dim), run.hidden, "attention")
        run.gemm("out", run.tokens, run.hidden, heads * self.value_dim, "attention")
        run.keep_state(self.state_elements[0], self.head_ways(run.plan))
        run.exchange("all-reduce", run.tokens * run.hidden, run.plan.tp)

    def shards(self, attention, ffn):
        return []

    def scaled(self, factor, ways):
        return replace(self, num_heads=scaled_size(self.num_heads, factor, ways))


@pytest.fixture(scope="module")
def mixed():
    """16 layers, three of four with the made-up mixer, the fourth with self-attention."""
    ffn = hw.DenseFFN(width=14336)
    made_up = hw.Block(mixer=LinearAttention(num_heads=32, key_dim=128, value_dim=128), ffn=ffn)
    full = hw.Block(mixer=hw.SelfAttention(num_heads=32, num_kv_heads=8, head_dim=128), ffn=ffn)
    return hw.Model(name="mixed", hidden_size=4096, vocab_size=128256, blocks=(made_up, made_up, made_up, full) * 4)


def test_it_is_counted(mixed):
    layer = 3 * 14336 * 4096 + 2 * 4096
    made_up, full = 4096 * 32 * 512 + 32 * 128 * 4096, 4096 * (4096 + 2 * 1024) + 4096 * 4096
    assert mixed.parameters == 16 * layer + 12 * made_up + 4 * full + 2 * 128256 * 4096 + 4096
    assert mixed.kv_bytes_per_token() == 4 * 2 * 8 * 128 * 2  # four layers of keys and values
    assert mixed.state_bytes() == 12 * 32 * 128 * 128 * 4
    assert "3 x linear attention + dense" in hw.sheet_text(mixed)
    assert hw.sheet(mixed)["heads"] == [{"query": 32, "key_value": 8}, {"query": 32, "key_value": 32}]


def test_its_step_is_timed_and_its_state_takes_memory_on_each_gpu(mixed):
    plan = hw.Plan(tp=4)
    load = {"batch": 64, "context": 8192, "attention": plan, "ffn": plan}
    done = hw.step(mixed, **load)
    assert done.state_elements == 12 * 2 * 64 * 32 * 128 * 128 / 4  # read and written
    assert {gemm.name for gemm in done.gemms} >= {"in", "out", "qkv"}
    bound = hw.decode_step(mixed, "H200", "bf16", **load, ideal=True)
    device = hw.device("H200")
    kept = 4 * 64 * 8192 * 2 * 2 * 128 * 2 / device.memory_bandwidth  # two of eight heads, in four layers
    state = done.state_elements * 4 / device.memory_bandwidth
    assert bound.terms["attention"] == pytest.approx(kept + state, rel=1e-6)
    one = hw.decode_step(mixed, "H200", "bf16", batch=64, context=8192, ideal=True)
    assert one.memory - 4 * bound.memory < 0 < one.memory - 3 * bound.memory


def test_its_state_is_split_like_its_heads(mixed):
    cut = hw.Plan(tp=2, kvp=2)  # its heads over 2 GPUs, as the class says; those of Mamba-2 over 4
    assert mixed.state_bytes_per_gpu(cut) == mixed.state_bytes() / 2
    nano = hw.Model.from_config("nemotron-3-nano-30b-a3b")
    assert nano.state_bytes_per_gpu(cut) == nano.state_bytes() / 4


def test_it_is_judged_and_its_heads_must_divide(mixed):
    plan = hw.Plan(tp=4, pp=2)
    found = hw.checklist(hw.Case(model=mixed, device="H200", attention=plan, ffn=plan))
    assert all(verdict.status != "not modelled" for verdict in found.verdicts)
    odd = hw.Plan(tp=3)
    refused = hw.checklist(hw.Case(model=mixed, device="H200", attention=odd, ffn=odd))
    assert refused.findings[0].value == "32 query heads over 3 GPUs"


@pytest.mark.parametrize("left_out", ["weights", "operations", "shards", "scaled", "sizes"])
def test_a_kind_that_leaves_something_out_cannot_be_made(left_out):
    methods = {name: item for name, item in vars(LinearAttention).items() if name != left_out and not name.startswith("__")}
    half = type("Half", (Mixer,), methods)
    with pytest.raises(TypeError, match=f"abstract.*{left_out}"):
        half()


def test_what_is_no_kind_is_refused_where_the_block_is_made():
    with pytest.raises(ValueError, match="mixer must be a Mixer, as SelfAttention, or None, got 'attention'"):
        hw.Block(mixer="attention", ffn=None)
    with pytest.raises(ValueError, match="ffn must be a FeedForward, as DenseFFN, or None, got SelfAttention"):
        hw.Block(mixer=None, ffn=hw.SelfAttention(num_heads=1, num_kv_heads=1, head_dim=np.int64(8)))


ODD = {"num_heads": 64, "num_kv_heads": 8, "head_dim": 192}


@pytest.mark.parametrize(("extra", "rows", "cached", "merged"), [
    ({"value_dim": 128}, 16 * 192 + 2 * 192 + 2 * 128, 8 * (192 + 128), 16 * 128),  # MiMo-V2-Flash over 4 GPUs
    ({"value_weight": False}, 16 * 192 + 2 * 192, 8 * 2 * 192, 16 * 192),  # Gemma 4: no matrix for values, but their cache
    ({"output_gate": "head"}, 16 * 192 + 4 * 192 + 16, 8 * 2 * 192, 16 * 192),  # Step-3.5: a number a head
    ({"output_gate": "element", "value_dim": 128}, 16 * 192 + 2 * 320 + 16 * 128, 8 * 320, 16 * 128),
])  # fmt: skip
def test_values_of_another_size_without_a_matrix_and_gates(extra, rows, cached, merged):
    mixer = hw.SelfAttention(**ODD, **extra)
    block = hw.Block(mixer=mixer, ffn=hw.DenseFFN(width=4096))
    model = hw.Model(name="odd", hidden_size=4096, vocab_size=1024, blocks=(block,))
    plan = hw.Plan(tp=4)
    done = {gemm.name: gemm for gemm in hw.step(model, batch=1, context=64, attention=plan, ffn=plan).gemms}
    assert (done["qkv"].n, done["attention output"].k, mixer.cache_elements) == (rows, merged, cached)
    attention = sum(w.elements for w in mixer.weights(4096))
    assert attention == 4096 * (4 * rows + 4 * merged)  # eight key-value heads over four GPUs: nothing is copied
    assert {side.size for side in mixer.sides(plan, plan) if side.kind == "input"} == {4 * merged}


def test_without_a_matrix_values_are_as_wide_as_keys():
    with pytest.raises(ValueError, match="value_dim must be None without value_weight, got 128"):
        hw.SelfAttention(**ODD, value_dim=128, value_weight=False)
    with pytest.raises(ValueError, match="output_gate must be one of"):
        hw.SelfAttention(**ODD, output_gate="layer")


def test_experts_that_compute_nothing_take_their_share_of_the_tokens():
    moe = hw.MoE(num_experts=512, top_k=12, width=2048, zero_experts=256, router_correction=True, router_scale=True)
    assert (moe.used, moe.choices, moe.kind) == (8, 768, "MoE 12 of 512 + 256 zero-computation experts")
    sizes = {w.name: (w.elements, w.stored, w.used) for w in moe.weights(6144)}
    assert sizes["router"] == (768 * 6144, 1, 1) and sizes["router correction"] == (768, 1, 1)
    assert sizes["router scale"] == (6144, 1, 1) and sizes["expert scale"] == (512, 1, 1)
    assert sizes["expert down"] == (6144 * 2048, 512, 8)
    model = hw.Model(name="zero", hidden_size=6144, vocab_size=1024, blocks=(hw.Block(mixer=None, ffn=moe),))
    done = {gemm.name: gemm for gemm in hw.step(model, batch=64, context=64).gemms}
    assert done["router"].n == 768 and done["expert up"].m * done["expert up"].count == pytest.approx(64 * 8)
