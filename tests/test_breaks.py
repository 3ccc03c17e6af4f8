"""What engines refuse: public cases of 2025 and 2026 by engine, the table of rules, the plans that each runs."""

import csv
import datetime
from dataclasses import replace

import pytest
from conftest import ROOT, fastest

import hwdesign as hw
from hwdesign.advice.breaks import Rule, broken, loading_engines, loads, nearest_ways, refused_by, rules, sides
from hwdesign.advice.case import Case, short_plans
from hwdesign.advice.checklist import checklist
from hwdesign.advice.guidelines import GUIDELINES
from hwdesign.advice.plan_rules import fewer_gpus
from hwdesign.advice.verdict import Limits
from hwdesign.catalogue.device import device_names
from hwdesign.catalogue.engine import engine, engine_names
from hwdesign.catalogue.precision import PRECISIONS
from hwdesign.models import config
from hwdesign.models.blocks import Block, DenseFFN, MoE, SelfAttention
from hwdesign.models.engine_plans import engine_plan_refusal
from hwdesign.models.parts import SIDES, Side

ENGINES = ("vllm", "sglang", "trtllm")


def model(ffn, *, heads=32, kv=8, head_dim=128, hidden=4096, vocab=128256, layers=4, **more):
    mixer = SelfAttention(num_heads=heads, num_kv_heads=kv, head_dim=head_dim, **more)
    return hw.Model(name="made up", hidden_size=hidden, vocab_size=vocab, blocks=(Block(mixer=mixer, ffn=ffn),) * layers)


def case_of(of, recipe=None, device="H200", engine="vllm", **ways):
    attention, ffn = short_plans(**ways)
    return Case(model=of, device=device, recipe=recipe, engine=engine, attention=attention, ffn=ffn)


MINIMAX = model(MoE(num_experts=256, top_k=8, width=1536), heads=48, kv=8, hidden=3072, vocab=200064)
MELLUM = model(MoE(num_experts=64, top_k=8, width=896), heads=32, kv=4, hidden=2304, vocab=98304)  # JetBrains, 896 = 7 x 128
SHARED = model(MoE(num_experts=256, top_k=8, width=512, shared_width=512), heads=16, kv=2, head_dim=256, hidden=2048)
LITE = model(DenseFFN(width=10944), heads=16, kv=16, hidden=2048)  # the dense layer of DeepSeek-V2-Lite, 85.5 x 128
SMALL = model(DenseFFN(width=8192), heads=48, kv=8, vocab=49954)
WIDE = model(DenseFFN(width=9216), heads=48, kv=6, hidden=6144, vocab=248320)  # the vocabulary of Qwen3.5

# Each case, and the engines of ENGINES that refuse it in the versions of engines.csv.
CASES = [
    ("C06 group 128, TP1", case_of("qwen3-30b-a3b", "w4a16"), ""),
    ("C06 32 heads, TP3", case_of("qwen3-30b-a3b", "w4a16", tp=3), "vllm sglang trtllm"),
    ("C06 768 / 4, AWQ: vLLM halves the groups", case_of("qwen3-30b-a3b", "w4a16", tp=4), ""),
    ("C08 768 / 4 in FP8 blocks", case_of("qwen3-30b-a3b", "fp8_block", tp=4), "sglang trtllm"),
    ("C08 with ep", case_of("qwen3-30b-a3b", "fp8_block", tp=4, ep=4), ""),
    ("B32 768 / 2", case_of("qwen3-30b-a3b", "fp8_block", tp=2), ""),
    ("C09 1536 / 8 in FP8 blocks", case_of("qwen3-235b-a22b-fp8", tp=8), "sglang trtllm"),
    ("C09 with ep", case_of("qwen3-235b-a22b-fp8", tp=8, ep=8), ""),
    ("C09 1536 / 4", case_of("qwen3-235b-a22b-fp8", tp=4), ""),
    ("C17 128 heads over 14", case_of("deepseek-v3", tp=14), "vllm sglang trtllm"),
    ("C18 28 heads over 8", case_of("qwen2.5-7b", tp=8), "vllm sglang trtllm"),
    ("B37 28 heads over 4", case_of("qwen2.5-7b", tp=4), ""),
    ("B37 28 heads, 4 key-value heads over 7", case_of("qwen2.5-7b", tp=7), "vllm sglang"),
    ("C21 1536 / 8 of MiniMax-M2.5", case_of(MINIMAX, "fp8_block", tp=8), "sglang trtllm"),
    ("C28 8 groups of Mamba on 16", case_of("nemotron-3-nano-30b-a3b", "bf16", tp=16), ""),
    ("B31 29568, group 128, TP2", case_of("qwen2.5-72b", "w4a16", tp=2), "vllm sglang"),
    ("B31 29568, group 128, TP8", case_of("qwen2.5-72b", "w4a16", tp=8), "vllm sglang"),
    ("B31 29568, group 128, TP1", case_of("qwen2.5-72b", "w4a16"), ""),
    ("B72 29568 in BF16, TP8", case_of("qwen2.5-72b", "bf16", tp=8), ""),
    ("B34 1856 in NVFP4, TP2", case_of("nemotron-3-nano-30b-a3b", "nvfp4", "B200", tp=2), ""),
    ("B34 1856 in NVFP4, TP4", case_of("nemotron-3-nano-30b-a3b", "nvfp4", "B200", tp=4), ""),
    ("B34 1856 in NVFP4, TP8", case_of("nemotron-3-nano-30b-a3b", "nvfp4", "B200", tp=8), "vllm"),
    ("B35 shared 512 / 8 in FP8 blocks", case_of(SHARED, "fp8_block", tp=8, ep=8), "vllm sglang"),
    ("B39 4 key-value heads, TP8", case_of("qwen3-235b-a22b", "bf16", tp=8), ""),
    ("B40 vocabulary 49954, TP16", case_of(SMALL, "bf16", tp=16), ""),
    ("vocabulary 248320, TP6", case_of(WIDE, "bf16", tp=6), "vllm"),
    ("C02 2880 in MXFP4 on H100", case_of("gpt-oss-120b", device="H100_SXM"), ""),
    ("C02 2880 / 8", case_of("gpt-oss-120b", device="H100_SXM", tp=8), ""),
    ("448 in BF16 on Blackwell", case_of(MELLUM, "bf16", "B200", tp=2), ""),
    ("448 in BF16 on Hopper", case_of(MELLUM, "bf16", "H200", tp=2), ""),
    ("448 in FP8 blocks on Blackwell", case_of(MELLUM, "fp8_block", "B200", tp=2), "sglang trtllm"),
    ("10944 whole in FP8 blocks", case_of(LITE, "fp8_block"), "sglang"),
    ("10944 in BF16", case_of(LITE, "bf16"), ""),
    ("10944 / 8 in BF16: no 16 bytes x 8", case_of(LITE, "bf16", tp=8), ""),
    ("vLLM 47990: N = 576 on SM12x", case_of("deepseek-r1", "fp8_block", "RTX_PRO_6000"), "vllm"),
    ("N = 576 elsewhere", case_of("deepseek-r1", "fp8_block", "H200"), ""),
    ("180 experts over 8", case_of(model(MoE(num_experts=180, top_k=6, width=2048)), "bf16", tp=8, ep=8), "sglang trtllm"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "refuse"), [row[1:] for row in CASES], ids=[row[0] for row in CASES])
def test_each_engine_refuses_what_it_does(case, refuse):
    found = {rule.engine for rules in broken(case).values() for rule in rules if not rule.version}
    assert found == set(refuse.split())
    for name in ENGINES:
        own = replace(case, engine=name)
        assert loads(own) == (name not in found) == (name in loading_engines(own))
        told = [f for number in (2, 5) for f in GUIDELINES[number].judge(own, Limits()).findings]
        assert ("break" in {f.status for f in told}) == (name in found)
        for finding in told:
            now = {r.engine for r in finding.refused_by if "before" not in r.engine}
            assert now <= {engine(name).title for name in found}
            if finding.status == "break":
                assert finding.refused_by[0].engine == own.engine.title and finding.cost is None


def test_what_older_versions_refused_is_told_and_no_break():
    new, old = (case_of(MELLUM, "bf16", device, tp=2) for device in ("B200", "H200"))
    (finding,) = [f for f in checklist(new).verdicts[1].findings if f.dimension == "expert width"]
    assert finding.status == "warn" and finding.value == "896 / 2 = 448"
    assert [refusal.engine for refusal in finding.refused_by] == ["vLLM 0.22 and before"]
    assert not broken(old) and loads(new) and loads(old)


def test_a_shape_that_another_engine_refuses_is_named_and_no_break():
    found = checklist(case_of("qwen3-235b-a22b-fp8", tp=8))
    (finding,) = found.verdicts[1].findings
    assert finding.status == "warn" and finding.cost is not None
    assert [refusal.engine.split()[0] for refusal in finding.refused_by] == ["SGLang", "TensorRT-LLM"]
    assert found.verdicts[1].reason == "engines refuse some shares"


def test_a_refusal_speaks_with_the_numbers_of_the_shape():
    case = case_of("qwen2.5-72b", "fp8_block", tp=8)
    first = refused_by(case, broken(case))[0]
    assert first.says == "Weight input_size_per_partition = 3696 is not divisible by weight quantization block_k = 128"
    assert first.engine == case.engine.title and first.source.startswith("https://github.com/vllm-project/vllm/blob/v0.33.0/")
    six = refused_by(case_of(WIDE, "bf16", tp=6), broken(case_of(WIDE, "bf16", tp=6)))
    assert six[0].says == "pads to a multiple of 64, then asserts: 248320 is not divisible by 6"


# The table ----------------------------------------------------------------------------------------------------------------


def test_every_row_has_a_source_a_date_and_known_words():
    text = (ROOT / "hwdesign" / "advice" / "refusals.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    assert 25 <= len(rows) < len(rules())  # a row of groups is a rule for each of their sizes
    assert all(None not in row and None not in row.values() for row in rows)
    assert {(row["engine"], row["says"]) for row in rows} == {(rule.engine, rule.says) for rule in rules()}
    for rule in rules():
        assert rule.source.startswith("https://github.com/") and rule.says
        assert datetime.date(2026, 1, 1) <= datetime.date.fromisoformat(rule.accessed) <= datetime.date(2027, 1, 1)
        assert set(rule.formats) <= set(PRECISIONS) and set(rule.devices) <= set(device_names())
        assert rule.multiple >= 1 and rule.padded >= 1
        release = {"vllm": "v0.33.0", "sglang": "v0.5.23"}.get(rule.engine)
        assert "/blob/v" not in rule.source or f"/blob/{release}/" in rule.source
    assert {rule.engine for rule in rules()} == set(engine_names())
    assert len({(r.engine, r.version, r.side, r.split, r.formats, r.devices, r.multiple) for r in rules()}) == len(rules())


@pytest.mark.parametrize("word", [{"engine": "llm"}, {"side": "width"}, {"split": "never"}])
def test_a_rule_of_unknown_words_is_refused(word):
    given = {"engine": "vllm", "side": "input", "split": "any", "multiple": 16, "says": "no", "source": "x", "accessed": "x"}
    assert Rule(**given).refuses(Side(kind="input", name="x", size=24, ways=1, part="ffn"), "bf16", "H200")
    with pytest.raises(ValueError, match=next(iter(word))):
        Rule(**given | word)


@pytest.mark.parametrize(
    ("more", "ways", "form", "device", "refuses"),
    [
        ({}, 1, "bf16", "H200", True),  # 24 is no multiple of 16
        ({"split": "split"}, 1, "bf16", "H200", False),
        ({"split": "whole"}, 1, "bf16", "H200", True),
        ({"split": "whole"}, 2, "bf16", "H200", False),
        ({"split": "split"}, 2, "bf16", "H200", True),
        ({"formats": ("fp8",)}, 1, "bf16", "H200", False),
        ({"formats": ("fp8",)}, 1, "fp8", "H200", True),
        ({"devices": ("B200",)}, 1, "bf16", "H200", False),
        ({"devices": ("B200",)}, 1, "bf16", "B200", True),
        ({"padded": 32}, 2, "bf16", "H200", False),  # 32 / 2 = 16
        ({"padded": 32}, 4, "bf16", "H200", True),
        ({"side": "output"}, 1, "bf16", "H200", False),
    ],
)
def test_a_rule_tests_shares_of_its_sides_alone(more, ways, form, device, refuses):
    given = {"engine": "vllm", "side": "input", "split": "any", "multiple": 16, "says": "no", "source": "x", "accessed": "x"}
    side = Side(kind="input", name="x", size=24, ways=ways, part="ffn")
    assert Rule(**given | more).refuses(side, form, device) is refuses


def test_sides_are_those_of_the_matrices_that_a_model_has():
    """By hand: Llama-3.1-8B over four GPUs."""
    found = {(s.kind, s.name, s.size, s.ways) for s in sides(case_of("llama-3.1-8b", "fp8", tp=4))}
    assert found == {
        ("input", "hidden size", 4096, 1), ("output", "hidden size", 4096, 1), ("vocabulary", "vocabulary", 128256, 4),
        ("query heads", "query heads", 32, 4), ("key-value heads", "key-value heads", 8, 4),
        ("input", "query heads", 4096, 4), ("merged output", "query heads", 4096, 4), ("merged output", "heads", 1024, 4),
        ("input", "feed-forward width", 14336, 4), ("merged output", "feed-forward width", 14336, 4),
    }  # fmt: skip
    assert {kind for kind, *_ in found} < set(SIDES)


# Plans that engines run ---------------------------------------------------------------------------------------------------

P = hw.Plan
PLANS = [  # attention, feed-forward part, model, engines that run them
    (P(tp=8), P(tp=8), "llama-3.1-8b", "vllm sglang trtllm"),
    (P(dp=8), P(tp=8), "llama-3.1-8b", ""),  # Llama has no data-parallel attention in SGLang either
    (P(dp=8), P(dp=8), "llama-3.1-8b", "vllm sglang trtllm"),  # eight servers
    (P(tp=4, dp=2), P(tp=4, dp=2), "llama-3.1-8b", "vllm sglang trtllm"),
    (P(dp=8), P(tp=8), "qwen3-0.6b", "sglang"),
    (P(tp=8), P(ep=8), "qwen3-30b-a3b", "vllm sglang trtllm"),
    (P(tp=8), P(tp=2, ep=4), "qwen3-30b-a3b", "sglang trtllm"),  # vLLM mixes neither
    (P(dp=8), P(ep=8), "deepseek-r1", "vllm sglang trtllm"),
    (P(tp=2, dp=4), P(ep=8), "deepseek-r1", "vllm sglang"),  # TensorRT-LLM: data over all, or none
    (P(tp=2, dp=4), P(ep=8), "mixtral-8x7b", "vllm"),
    (P(tp=2, kvp=4), P(ep=8), "deepseek-r1", "vllm sglang trtllm"),
    (P(kvp=4, dp=2), P(ep=8), "deepseek-r1", "vllm"),
    (P(tp=4, kvp=2), P(tp=8), "qwen3-235b-a22b", "vllm trtllm"),  # four key-value heads: one on each
    (P(tp=2, kvp=4), P(tp=8), "qwen3-235b-a22b", "trtllm"),  # vLLM cuts no cache of two heads on a GPU
    (P(tp=8, kvp=2), P(tp=16), "llama-3.1-8b", "vllm trtllm"),  # 32 / 8 = 4 query heads a key-value head
    (P(tp=8, kvp=8), P(tp=64), "llama-3.1-8b", ""),  # 32 heads over 64
    (P(tp=8), P(tp=4, dp=2), "llama-3.1-8b", ""),  # copies of the feed-forward part alone
]


@pytest.mark.parametrize(("attention", "ffn", "name", "run"), PLANS)
def test_engines_run_the_plans_that_they_have_options_for(attention, ffn, name, run):
    of = config.load(name)
    assert [name for name in engine_names() if engine_plan_refusal(name, of, attention, ffn) is None] == run.split()
    for one in ENGINES:
        why = engine_plan_refusal(one, of, attention, ffn)
        assert (why is None) == (one in run.split()) and (why is None or (why and "\n" not in why))
    case = Case(model=of, device="GB300", recipe="bf16", attention=attention, ffn=ffn)
    assert (case.engine_refusal is None) == ("vllm" in run)


def test_a_cost_is_not_that_of_a_plan_that_nobody_runs():
    """Llama over eight GPUs: data-parallel attention before a cut feed-forward part is not there."""
    case = Case(model="phi-4", device="GB300", attention=P(tp=8), ffn=P(tp=8), engine="trtllm")
    verdict = checklist(case).verdicts[6]
    assert verdict.status == "ok" and "; a plan that no named engine runs would save 12" in verdict.reason
    other = fastest(case, [(a, f) for a, f in case.layouts()])
    assert all(engine_plan_refusal(name, case.model, other.attention, other.ffn) for name in engine_names())
    assert case.gain(other) > 0.05


def test_a_plan_that_only_another_engine_runs_is_a_warning():
    """Llama over sixteen: vLLM cuts a cache of keys and values, SGLang one of latents."""
    ways = {"attention": P(tp=16), "ffn": P(tp=16), "batch": 8, "context": 131_072}
    own, other = (Case(model="llama-3.1-8b", engine=name, **ways) for name in ("vllm", "sglang"))
    (mine,), (theirs,) = (checklist(case).verdicts[6].findings for case in (own, other))
    assert mine.fix.case.attention == theirs.fix.case.attention == P(tp=8, kvp=2)
    assert mine.fix.engines == theirs.fix.engines == ("vllm", "trtllm") and mine.cost == pytest.approx(theirs.cost, rel=0.02)
    assert mine.rule.endswith(" with vLLM") and theirs.rule.endswith(" with vLLM or TensorRT-LLM")
    strict = Limits(warn=0.05, fail=0.10)
    assert [checklist(case, strict).verdicts[6].status for case in (own, other)] == ["fail", "warn"]


# Fixes of breaks ----------------------------------------------------------------------------------------------------------


def test_the_nearest_numbers_of_gpus_are_those_that_the_engine_takes():
    assert nearest_ways(case_of("qwen2.5-7b", tp=8), "query heads", 8) == "; nearest: tp=4"
    assert nearest_ways(case_of("qwen2.5-7b", engine="trtllm", tp=8), "query heads", 8) == "; nearest: tp=7 or tp=14"
    experts = case_of(model(MoE(num_experts=180, top_k=6, width=2048)), "bf16", tp=8, ep=8)
    assert nearest_ways(experts, "expert set", 8) == "; nearest: ep=4"


def test_180_experts_over_eight_gpus_become_176_or_184():
    case = case_of(model(MoE(num_experts=180, top_k=6, width=2048)), "bf16", engine="sglang", tp=8, ep=8)
    (finding,) = checklist(case).verdicts[4].findings
    server, near = finding.fixes
    assert finding.status == "break" and near.text == "184 experts (or 176)" and near.large
    assert {b.ffn.num_experts for b in near.case.model.blocks} == {184} and near.engines == ENGINES
    assert server.case.ffn.ep in (1, 2, 4) and "sglang" in server.engines and server.text.endswith("nearest: ep=4")


def test_a_width_that_a_vocabulary_is_refused_for_grows_to_one_that_divides():
    case = case_of(WIDE, "bf16", tp=6)
    (finding,) = [f for f in checklist(case).verdicts[1].findings if f.dimension == "vocabulary"]
    assert finding.value == "248320 / 6 = 41386.7" and finding.rule == "the 6 GPUs divide it"
    grown = finding.fixes[-1].case.model.vocab_size
    assert grown % (128 * 3) == 0 and 248320 < grown < 248320 + 3 * 128 + 1 and finding.fixes[-1].engines == ENGINES


# GPUs that are wasted -----------------------------------------------------------------------------------------------------


def test_a_small_model_on_eight_gpus_wastes_them():
    mixer, ffn = SelfAttention(num_heads=24, num_kv_heads=8, head_dim=128), DenseFFN(width=8192)
    small = hw.Model(name="3B", hidden_size=3072, vocab_size=128256, blocks=(Block(mixer=mixer, ffn=ffn),) * 28)
    case = Case(model=small, device="GB300", attention=P(tp=8), ffn=P(tp=8))
    gpus, times = fewer_gpus(case)
    one = Case(model=small, device="GB300")
    assert gpus == 1 and times == pytest.approx(8 * case.seconds / one.seconds) and 2 < times < 8
    assert fewer_gpus(one) is None


def test_gpus_that_a_model_needs_are_not_wasted():
    assert fewer_gpus(case_of("llama-3.1-70b", "bf16", "H100_SXM", tp=4)) is None  # 141 GB: two do not hold it and a cache
    assert fewer_gpus(case_of("qwen2.5-7b", tp=8)) is None  # 28 heads: cannot run
    assert fewer_gpus(case_of("llama-3.1-8b", "bf16", tp=3)) is None
    fewer = fewer_gpus(case_of("gpt-oss-20b", "mxfp4", "GB300", dp=8, ep=8))
    assert fewer and fewer[0] < 8


@pytest.mark.parametrize(("recipe", "group"), [("w4a16", 128), ("w4a16_g64", 64), ("w8a16_g64", 64)])
def test_a_group_of_any_size_must_not_be_cut(recipe, group):
    """Qwen2.5-72B over 8 GPUs: 29568 / 8 = 3696 = 28.875 groups of 128, 57.75 of 64, 115.5 of 32."""
    case = case_of("qwen2.5-72b", tp=8, recipe=recipe)
    finding = next(f for f in checklist(case).findings if f.dimension == "feed-forward width")
    assert finding.status == "break" and f"group_size={group}" in finding.refused_by[0].says
    assert 29696 % (8 * group) == 0 and "29696" in finding.fixes[-1].text


@pytest.mark.parametrize(
    ("method", "bits", "size", "ways", "engine"),
    [("awq", 4, 128, 4, "vllm"), ("gptq", 8, 64, 8, "sglang"), ("auto-round", 3, 256, 2, "vllm"), ("gptq", 4, 96, 4, "sglang")],
)
def test_a_group_of_any_size_with_a_zero_point_must_not_be_cut(method, bits, size, ways, engine):
    """A width of 3 groups a share but one fails by the words about groups; the next multiple passes."""
    said = {"quant_method": method, "bits": bits, "group_size": size, "sym": False}
    for groups, refused in ((3 * ways + 1, True), (3 * ways, False)):
        values = {"model_type": "llama", "hidden_size": 16 * size, "intermediate_size": groups * size, "num_hidden_layers": 2,
                  "num_attention_heads": 16, "num_key_value_heads": 8, "vocab_size": 6144}  # fmt: skip
        plans = dict.fromkeys(("attention", "ffn"), hw.Plan(tp=ways))
        case = Case(model=config.load({**values, "quantization_config": said}), device="H200", engine=engine, **plans)
        found = [r for side, rules in broken(case).items() for r in rules if r.engine == engine and r.multiple == size]
        assert bool(found) is refused and (not found or "size" in found[0].says)
