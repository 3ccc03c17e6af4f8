import nbformat, sys, importlib.util, os
SAY={'cellView':'form','jupyter':{'source_hidden':True},'tags':['remove-input']}
FIG={'tags':['hide-input']}
one=nbformat.read('/work/main/notebooks/01_near_square.ipynb',4)
cells=[]
def md(id,src): cells.append((id,'markdown',{},src.strip('\n')))
def code(id,src,meta=None): cells.append((id,'code',meta or {},src.strip('\n')))
def say(id,src): code(id,src,SAY)
def fig(id,src): code(id,src,FIG)

md('title',r'''
# The design checklist: seven verdicts for any model, and a game

**What it does.** One command reads a `config.json`, a device, number formats and a way to spread the model over GPUs. It says which of the seven guidelines the model breaks there, what that costs, and which other design or plan avoids it.

After this chapter you can

- judge a model of your own by all seven guidelines, here, on the command line, and in the tests of its repository;
- read a verdict: what was compared with what, and what it costs in time;
- tell a rule that is broken for free from one that costs a quarter of the step;
- say when a verdict can be trusted, and when published servers contradict it;
- design a model under a budget so that little is left to gain.

You need the seven chapters before, or the courage to look things up in them. No GPU is needed. Reading takes about 60 minutes, the game and the exercises as long as you like. *The post* is the article by NVIDIA that this book explains. Figures and tables carry a label: *modelled* is a formula's result, *published* has a source, *measured* was timed by us on a machine that we can name. The rocket at the top of the page opens this chapter in Colab or Binder.
''')
boot=next(c for c in one.cells if c.id=='bootstrap'); code('bootstrap',boot.source,dict(boot.metadata))
fig('imports','''
from dataclasses import replace

import numpy as np

import hwdesign as hw
from hwdesign import Plan
from hwdesign.advice.rules import decoupled, regular_layers
from hwdesign.lessons import figures, game, practice, tables, verdicts
from hwdesign.lessons.show import say, show
''')
md('predict',r'''
## 1. Predict

Each of these four models breaks a guideline. The device is a GB300, the formats are those of the checkpoints, all matrices are tensor parallel over eight GPUs, and 64 users have 8192 tokens each. **Which breach costs most?** Compare each with the better design in brackets.

- (a) gpt-oss-120b: the hidden size 2880 is 22.5 times 128 (better: 2944)
- (b) DeepSeek-R1 on four pipeline stages of eight GPUs: 61 layers, the first three unlike the others, do not fall into four equal stages (better: stages that all take the same time, for a prompt)
- (c) Qwen3-235B, the FP8 checkpoint: tensor parallelism cuts its experts into slices of 192 columns (better: whole experts on the same GPUs)
- (d) Gemma-3-27B: its weights are in BF16, and the GPU multiplies NVFP4 six times as fast (better: NVFP4)

Write down an order from the dearest to the cheapest, and for each how many per cent of a step you think it costs; for (b), of the time of a prompt.
''')
md('words',r'''
### Words

A **case** is what the checklist looks at: a model, a device, a *recipe* (the number formats of weights, activations, outputs and cache), two *plans* and a load. The plans say how attention and the feed-forward part are spread over the same GPUs: `tp` splits every matrix, `dp` gives each group of GPUs sequences of its own, `kvp` cuts the cache of each sequence, `ep` spreads experts, `pp` makes pipeline stages of the layers. With *gather* all GPUs collect all tokens instead of sending each to its experts. The load is a number of sequences in flight, the *batch*, and the tokens that each new token sees, the *context*.

A **step** makes one token for every sequence in flight. A **verdict** is what one guideline says about a case: *ok*, *warn*, *fail*, *not applicable* (n/a), or *not modelled* (?), where the plans cannot run the model at all. A verdict holds **findings**: the dimension or plan that is blamed, its cost, and a **fix**, which is another case. Times are *uncalibrated* where their constants come from another device or format.
''')
md('list',r'''
## 2. The list

| | guideline | about | in the post's closing list |
|---|---|---|---|
| 1 | matrices near to square, no tiny N or K | the model | yes |
| 2 | dimensions in multiples of 128, better 256 or 512 | the model, and how it is cut | yes, in one point with 1 |
| 3 | wide over deep | the model | yes |
| 4 | low precision | the formats | yes |
| 5 | wide expert parallelism | the deployment | **no** |
| 6 | regular, repeatable layer patterns | the model | yes |
| 7 | attention and feed-forward part decoupled | the deployment | **no** |

The number of a guideline is that of its chapter. The post ends with a list of four points for those who design a model, and they cover five of its seven guidelines. The two that are missing are mostly about how a model is *served*; the post's last sentence names them again, with the software that does it. Both need no other weights, so a running server can follow them. The checklist has all seven.
''')
md('derive',r'''
## 3. Derive

### What a cost is

"Is this dimension good?" has no answer in milliseconds. "What would the step take with that one instead?" has. So each rule builds a real alternative: a sibling of the model, another format or another plan, on the same GPUs and at the same load. The cost is the share of the step that the alternative saves:

$$c = 1 - \frac{t_{\text{after}}}{t_{\text{before}}} \tag{8.1}$$

Both times come from the model of a step that chapters 1 to 7 have built. What remains is to choose the alternative:

| | blamed | compared with |
|---|---|---|
| 1 | the width of experts | half as many experts of twice the width, a token using half as many; again, as long as that saves 5 % |
| | a dense feed-forward width beyond four times the hidden size, or below a quarter | twice or half the hidden size, the width changed so that the layer's parameters stay |
| 2 | a width, the vocabulary, the number of heads | the next multiple of 128 on each GPU, see (8.2) |
| 3 | the number of layers | fewer and wider layers of about as many parameters |
| 4 | the recipe | the lowest precision that the device multiplies; weights alone in four bits are tried only where it multiplies neither FP8 nor FP4 |
| 5 | the plan of the experts | the fastest plan of them on the same GPUs |
| 6 | the layers | pipeline stages that all take the mean time |
| 7 | the plan of attention | the fastest plan of it on the same GPUs |

Three of them need a word more.

**Guideline 2.** A wider matrix has more parameters and so takes longer in any case. So the rule compares the time for each parameter. Take the part $p$ of the step to which the matrix belongs. It has $P_p$ parameters and takes $t_p$; with the good width it has $P_p'$ and takes $t_p'$. The cost is the time that the old parameters would save at the new time for each:

$$c_2 = \frac{t_p - t_p'\,P_p / P_p'}{t_{\text{before}}} \tag{8.2}$$

**Guideline 3.** A model with fewer layers also has a smaller cache. That is another change, so the time of attention's scores is left out of both steps. And which shape is *not* deep? The time model alone would go on to a single layer. So the rule stops at a shape that somebody has trained. Chapter 3 drew the band of hidden size over layers of the nine dense models in this book with 7 billion parameters or more. The rule asks for the lower edge of that band and for nothing beyond. Where mixers (attention or Mamba) and feed-forward parts are layers of their own, only the mixers are counted.

**Guideline 6.** Its cost is no share of a decode step: it is the share of time that the GPUs of a pipeline wait for the slowest stage, in the first 8192 tokens of a prompt. The layers are cut as vLLM cuts them by default, equally many to a stage, and one more in the middle where that does not come out.

A cost from 5 % on is a *warn*, from 20 % on a *fail*. Both are our choice and can be set.

Some breaches are reported *whatever they cost*. A *warn* is a dimension of which each GPU gets no multiple of 128, and stages that hold different layers where equal stages would wait less. A *fail* is what engines refuse: heads that the GPUs do not divide, a block of numbers with one scale that would be cut, rows that are not made of whole pieces of 16 bytes (chapter 2). Experts in four bits are an exception, for engines pad them: *warn*.
''')
code('hand',r'''
r1, eight = hw.Model.from_config("deepseek-r1"), {"attention": Plan(tp=8), "ffn": Plan(tp=8)}
load = {"batch": 64, "context": 8192}
before = hw.decode_step(r1, "GB300", "fp8_block", **load, **eight).seconds
after = hw.decode_step(r1, "GB300", "fp8_block", **load, attention=Plan(tp=8), ffn=Plan(ep=8)).seconds
by_hand = 1 - after / before                                  # (8.1) for guideline 5

found = hw.checklist(hw.Case(model=r1, device="GB300", recipe="fp8_block", **load, **eight))
assert by_hand == next(f.cost for f in found.findings if f.guideline == 5)

share, multiple = 29568 / 8, 128 * 8                          # guideline 2: Qwen2.5-72B over 8 GPUs
good = -(-29568 // multiple) * multiple
assert share % 128 == 112 and good == 29696
''')
say('hand-say',r'''
say(f"With tensor parallelism alone a step of DeepSeek-R1 takes {before * 1e3:.1f} ms, with experts spread whole over the same eight GPUs {after * 1e3:.1f}: guideline 5 costs **{by_hand:.1%}**. The package says the same. The width of Qwen2.5-72B leaves {share % 128:.0f} columns over on each of 8 GPUs; the next width that leaves none is {good}, {good - 29568} more.")
''')
md('model',r'''
## 4. Model: three real models

### A dense one

Qwen2.5-72B in FP8 on eight H100s. The scales of its weights cover blocks of 128 x 128.
''')
fig('dense',r'''
h100 = {"device": "H100_SXM", "recipe": "fp8_block", **load, **eight}
dense = hw.checklist(hw.Case(model=hw.Model.from_config("qwen2.5-72b"), **h100))
verdicts.checklist_table(dense, "Qwen2.5-72B on 8 H100s, FP8 in blocks, tensor parallel, 64 sequences of 8192 tokens")
''')
say('dense-say',r'''
two, seven = (next(f for f in dense.findings if f.guideline == n) for n in (2, 7))
say(f"**Read the table.** Guideline 2 *fails*, and its cost is {two.cost:.1%}: the tiles of 3696 columns are those of 3712, so {good} columns take as long as 29568. It fails because an engine refuses. A block of 128 columns that shares one scale would have to be cut, and 3696 is {3696 / 128:.3f} of them; users met it with this width in INT4, whose scales cover 128 numbers. For the next model the way out is {good} columns, {two.fix.parameters:+.2%} parameters. For this one it is a format without such blocks: 29568 columns are 231 blocks, and no even number of GPUs divides them.\n\n"
    f"Guideline 7 finds {seven.cost:.1%}: two groups of four GPUs, each with half of the sequences, exchange less than one group of eight. For 64 users that is so; for one it is not. (vLLM offers no such plan for a dense model, see the end of part 6.)")
assert two.status == "fail" and two.cost < 0.005 and two.fix.case.model.blocks[0].ffn.width == good and seven.cost > 0.05
''')
md('experts-head',r'''
### One with experts

DeepSeek-R1 as its checkpoint comes, in FP8 blocks, on 32 GB300s: four pipeline stages of eight GPUs, tensor parallel. A decode pipeline cuts the batch into as many parts as it has stages, so each stage works on 16 sequences at a time. (That is why guideline 5 finds less here than in part 3.)
''')
fig('experts',r'''
staged = {"attention": Plan(tp=8, pp=4), "ffn": Plan(tp=8, pp=4)}
sparse = hw.checklist(hw.Case(model=r1, device="GB300", **load, **staged))
verdicts.checklist_table(sparse, "DeepSeek-R1 on 4 x 8 GB300s, FP8 in blocks, tensor parallel, 64 sequences of 8192 tokens")
''')
say('experts-say',r'''
by = {f.guideline: f for f in sparse.findings}
spread = hw.checklist(by[5].fix.case)
times, head = hw.block_times(r1, "GB300", "fp8_block", context=8192, batch=1, **eight)

def idle(cut):                                         # share of the time that GPUs wait for the slowest stage
    stages = np.array([t.sum() for t in np.split(times, np.cumsum(cut)[:-1])]) + np.eye(len(cut))[-1] * head
    return 1 - stages.mean() / stages.max()

cuts = {name: idle(cut) for name, cut in (("middle", (15, 15, 16, 15)), ("first", (16, 15, 15, 15)), ("last", (15, 15, 15, 16)))}
say(f"**Read the table.** Guideline 6 warns: 61 layers do not fall into four equal stages, and only the first stage has the three dense layers, which take {times[0] / times[-1]:.2f} of the time of the others. vLLM gives the 61st layer to the third stage, and GPUs wait {cuts['middle']:.1%} of the time; with the last stage it would be {cuts['last']:.1%}. Give it to the *first* stage, and {cuts['first']:.1%} is left: one layer more, three cheaper ones. Here a good cut is free, and the report names it. The fix in the table, one dense layer in each of four equal stages, is for the next model, if its training allows dense layers there. "
    f"\n\nThe dearest row is guideline 4: NVFP4 instead of FP8 saves {by[4].cost:.0%}. Guideline 7 is *ok* although eight GPUs hold each cache: with 16 sequences to a stage the copies cost less than 5 %.\n\nGuideline 1 finds {by[1].cost:.1%}: experts of 2048 columns, cut into eight. Guideline 5 finds {by[5].cost:.1%} and asks for whole experts. Follow it, and look again: guideline 1 says *{spread.verdicts[0].status}*. **A plan repaired a shape.** It is the cut, not the width of 2048, that makes these matrices thin.")
assert abs(cuts["middle"] - by[6].cost) < 1e-9 and cuts["first"] < 0.01 and by[1].status == "warn" and spread.verdicts[0].status == "ok"
''')
md('hybrid-head',r'''
### A hybrid

Nemotron-3-Nano has layers of three kinds: Mamba-2, attention, experts. Here it runs in NVFP4, each of four stages on one GB300.
''')
fig('hybrid',r'''
nano, four = hw.Model.from_config("nemotron-3-nano-30b-a3b"), {"attention": Plan(pp=4), "ffn": Plan(pp=4)}
hybrid = hw.checklist(hw.Case(model=nano, device="GB300", recipe="nvfp4", **load, **four))
verdicts.checklist_table(hybrid, "Nemotron-3-Nano on 4 x 1 GB300, NVFP4, 64 sequences of 8192 tokens")
''')
say('hybrid-say',r'''
by = {f.guideline: f for f in hybrid.findings}
kinds = [[type(b.mixer).__name__ if b.mixer else "experts" for b in nano.blocks[i : i + 13]] for i in range(0, 52, 13)]
held = [f"{row.count('Mamba2')} + {row.count('experts')} + {row.count('SelfAttention')}" for row in kinds]
say(f"**Read the table.** 52 layers fall into four stages of 13, and still guideline 6 warns. The stages hold {', '.join(held)} layers of Mamba-2, experts and attention. The third has two of attention *and* six of experts, the most of both, and the others wait for it, {by[6].cost:.1%} of the time. Guideline 3 is content: 52 layers, but experts are layers of their own here, and the mixers are 29.\n\n"
    f"The width of 1856 is 14.5 times 128 and loses {by[2].cost:.1%}. And guideline 1 finds {by[1].cost:.1%} on *one* GPU, where nothing is cut: 128 experts with 1856 columns make many small products.")
assert held[2] == "5 + 6 + 2" and by[6].status == "warn" and 3 not in by
''')
md('gallery-head',r'''
### The gallery

All twenty models that ship with this book, in one setting: eight GB300s, tensor parallel, each in the format of its checkpoint, 64 sequences of 8192 tokens. Guideline 6 is judged with four such stages, 32 GPUs. One setting cannot suit twenty models; it makes them comparable.
''')
code('gallery',r'''
judged = verdicts.gallery()
models = {name: hw.Model.from_config(name) for name in judged}
unsure = [name for name, m in models.items()           # whose constants are those of another device or format
          if hw.decode_step(m, "GB300", m.quantization or "bf16", batch=1, context=1).notes]
''')
fig('fig-gallery',r'''
count = {s: sum(v.status == s for row in judged.values() for v in row) for s in ("ok", "warn", "fail")}
show(figures.verdict_map({f"{name} *" if name in unsure else name: row for name, row in judged.items()}),
     alt=f"Twenty models as rows, seven guidelines as columns, a verdict in each cell with its cost in per cent of a step. {count['ok']} ok, {count['warn']} warn, {count['fail']} fail; no model is ok throughout.",
     caption="Verdicts of the seven guidelines over twenty models, and the largest cost in per cent of a step (column 6: of a prompt's time). A cost of 0 is one below 0.5 %: the rule is broken all the same. A fail without a number cannot be timed. n/a: not applicable; ?: the plans cannot run the model; *: some times are uncalibrated.", kinds=["modelled"])
''')
say('gallery-say',r'''
worst_of = {n: max((verdicts.verdict_cost(row[n - 1]) or 0, name) for name, row in judged.items()) for n in range(1, 8)}
priced = [verdicts.verdict_cost(row[1]) for row in judged.values() if row[1].status in ("warn", "fail")]
broken, timed = len(priced), [cost for cost in priced if cost is not None]
cheap = sum(cost < 0.05 for cost in timed)
few = {name: sum(v.status in ("warn", "fail") for v in row) for name, row in judged.items() if name not in ("gpt2", "qwen2.5-7b")}
clean = [name for name, row in judged.items() if all(v.status in ("ok", "not applicable") for v in row)]
say(f"**Read the figure by columns.** Guideline 4 is the widest red: most checkpoints are in BF16, on a device that multiplies four bits. Guideline 2 is broken by {broken} of 20. Of the {len(timed)} of them with a cost, {cheap} lose less than 5 % of the step: **a rule that is often broken and mostly cheap**, until an engine refuses. Two models cannot be timed at all on eight tensor-parallel GPUs: GPT-2 has 12 heads and Qwen2.5-7B has 28. (Phi-4's ten key-value heads and the slices of Qwen3-235B's FP8 experts would be refused, too, but have a time.) \n\nGuideline 5 costs every model with many small experts a tenth to a quarter; Mixtral, with 8 large ones, is *ok*. Of these {sum(row[4].status in ('warn', 'fail') for row in judged.values())} costs, {sum(judged[name][4].status in ('warn', 'fail') for name in unsure)} carry the star, and part 5 will say what that means. Guideline 6 fails for one model, Nemotron-Super-49B ({worst_of[6][0]:.0%} of the time spent waiting): a search chose each of its layers separately, and no two stages hold the same.")
say(f"**By rows.** {'No model' if not clean else ', '.join(clean)} is ok throughout. The Qwen3 models with experts, fine-grained and deep, break the most guidelines, up to {max(few.values())}. Of the models that can be timed, {', '.join(sorted(n for n, c in few.items() if c == 1))} break one each, always guideline 4: they are judged in BF16.")
cannot = sorted(name for name, row in judged.items() if row[0].status == "not modelled")
assert cannot == ["gpt2", "qwen2.5-7b"] and {len(set(x)) for x in (worst_of, judged)} == {7, 20}
assert not clean and worst_of[6][1] == "llama-3.3-nemotron-super-49b" and judged["mixtral-8x7b"][4].status == "ok" and broken > 8
''')
say('answer-say',r'''
options = {"(a) gpt-oss-120b's 2880": max(f.cost for f in judged["gpt-oss-120b"][1].findings if f.dimension == "hidden size"),
           "(b) DeepSeek-R1's 61 layers": verdicts.verdict_cost(judged["deepseek-r1"][5]),
           "(c) Qwen3-235B's slices": verdicts.verdict_cost(judged["qwen3-235b-a22b-fp8"][4]),
           "(d) Gemma's BF16": verdicts.verdict_cost(judged["gemma-3-27b"][3])}
order = sorted(options, key=options.get, reverse=True)
gemma = {form: hw.decode_step(hw.Model.from_config("gemma-3-27b"), "GB300", form, **load, **eight) for form in ("bf16", "nvfp4")}
spent = {form: {term: float(v) * 1e3 for term, v in step.terms.items()} for form, step in gemma.items()}
alone = [hw.decode_step(hw.Model.from_config("gemma-3-27b"), "GB300", form, **load).seconds for form in ("bf16", "nvfp4")]
gemma_one = 1 - alone[1] / alone[0]
say("**The answer to the first question:** " + ", then ".join(f"{name}, {options[name]:.1%}" for name in order) + f". The cost of (b) is a share of a prompt's time, the others are shares of a decode step, so between (b) and (d) the order means little.\n\nIf you put (d) first, you trusted the ratio of two peaks. Of Gemma's {gemma['bf16'].seconds * 1e3:.2f} ms, {spent['bf16']['communication']:.2f} are exchanges, {spent['bf16']['attention']:.2f} scores and cache, {spent['bf16']['small kernels']:.2f} small kernels; none of these cares about the format of the weights. The feed-forward part falls from {spent['bf16']['ffn']:.2f} to {spent['nvfp4']['ffn']:.2f}, and the projections of attention, cut into eight, do not fall at all. "
    f"And part 5 will show servers on which the gain of eight GPUs is gone. On one GPU NVFP4 would save {gemma_one:.0%} of Gemma's step.\n\nIf you put (a) first, you took the rule for its price. (SGLang, and vLLM before 0.33, refuse the slices of (c); where they run, they cost what is said here. The gallery shows 2 for gpt-oss-120b: that is its other finding, the width of its experts.)")
assert [name[1] for name in order] == ["c", "b", "d", "a"] and options[order[0]] > 0.15 and options[order[-1]] < 0.02
''')
md('measure',r'''
## 5. Measure: do servers agree?

A cost compares two times of one model. Published benchmarks of servers hold pairs that differ in a single choice: the same model, device, engine, load and number of GPUs, but experts whole instead of sliced, or weights in another format. So verdicts of guideline 4, of guideline 5, and of 5 and 7 together can be put beside silicon; of guideline 7 alone no pair is published, and no pair ran on a GB300. No constant of the model was fitted on a serving point.

Each pair is taken in the direction in which the *model* sees a gain: the plan that it prefers over the other one, NVFP4 over FP8. Then the published ratio of the two times should be below 1, too.
''')
code('pairs',r'''
plans, formats = verdicts.served_pairs("plans"), verdicts.served_pairs("precision")

def by_model(pairs):
    kept = {name: pairs["model"] == name for name in dict.fromkeys(pairs["model"].tolist())}
    return {name: (pairs["modelled"][keep], pairs["published"][keep]) for name, keep in kept.items()}

agree = {name: (int((p < 1).sum()), len(p)) for name, (_, p) in by_model(plans).items()}
points = hw.served_points(matched=True)
ways = {"tp": points["tp"][formats["second"]], "dp": points["dp"][plans["second"]]}
''')
fig('fig-pairs',r'''
r1_model, r1_served = by_model(plans)["deepseek-r1"]
to_data = (plans["model"] == "deepseek-r1") & (ways["dp"] > 1)
split = {"DeepSeek-R1, to data-parallel attention": to_data, "DeepSeek-R1, experts alone": (plans["model"] == "deepseek-r1") & ~to_data,
         "gpt-oss-120b": plans["model"] == "gpt-oss-120b", "Qwen3-235B": plans["model"] == "qwen3-235b-a22b"}
show(figures.pair_scatter({name: (plans["modelled"][k], plans["published"][k]) for name, k in split.items()}),
     alt=f"Published time under the plan that the model prefers, over that under the other plan, against the same ratio by the model, for {len(plans['model'])} pairs. All {agree['deepseek-r1'][1]} crosses of DeepSeek-R1 lie below 1, most above the diagonal; {agree['gpt-oss-120b'][1] - agree['gpt-oss-120b'][0]} of {agree['gpt-oss-120b'][1]} of gpt-oss-120b lie above 1.",
     caption="Pairs of published servers that differ in their plans alone. Both axes: the time under the plan that the model prefers (the second) over the time under the other (the first), modelled to the right, published upwards; below 1 is a gain. Line: the published gain is the modelled one. Shaded: the model calls the slower plan faster.", kinds=["modelled", "published"])
''')
say('pairs-say',r'''
gain, real = 1 - np.median(r1_model), 1 - np.median(r1_served)
jump = {name: (1 - np.median(plans["modelled"][k]), 1 - np.median(plans["published"][k])) for name, k in split.items()}
to_dp, alone_ = list(jump.values())[:2]
error = points["modelled"] / points["tpot"]
slow, quick = error[plans["first"][to_data]].max(), error[plans["second"][to_data]].min()
hopper = (plans["model"] == "gpt-oss-120b") & (plans["device"] == "H200")
say(f"**Read the figure.** For DeepSeek-R1 the model picks the faster plan in {agree['deepseek-r1'][0]} of {agree['deepseek-r1'][1]} pairs, on B200s with SGLang and TensorRT-LLM. That proves less than it sounds. They are six changes of plan at several loads, and the rule *spread the experts* would have won all of them, too. And the model promises too much. Where experts alone change, servers gain {alone_[1]:.0%} in the median and the model says {alone_[0]:.0%}. Where attention becomes data parallel, servers gain {to_dp[1]:.0%} and the model says {to_dp[0]:.0%}: its times are up to {slow - 1:.0%} too long before the change and up to {1 - quick:.0%} too short after it. The one pair of Qwen3-235B gains nothing, where the model says {jump['Qwen3-235B'][0]:.0%}.")
say(f"For gpt-oss-120b the model is wrong in {agree['gpt-oss-120b'][1] - agree['gpt-oss-120b'][0]} of {agree['gpt-oss-120b'][1]} pairs: it prefers experts that are less cut, and the servers are faster with slices. {hopper.sum()} of these pairs ran on H200s, and there it is wrong in all. An H200 has no 4-bit math; the engine unpacks MXFP4 weights and multiplies in BF16, by a kernel that none of our tables times, and the model takes the constants of another one. On B200s it is wrong in {(~hopper & (plans['model'] == 'gpt-oss-120b') & (plans['published'] > 1)).sum()} of {agree['gpt-oss-120b'][1] - hopper.sum()}. For these we have no explanation, and chapter 0 has none for the same model among its worst points. A report says *uncalibrated* there: **then do not choose a plan by its verdict**, whatever the percentage.")
assert agree["deepseek-r1"][0] == agree["deepseek-r1"][1] == 18 and agree["gpt-oss-120b"][0] < agree["gpt-oss-120b"][1] / 4 and real < 0.75 * gain
assert (plans["published"][hopper] > 1).all() and hopper.sum() == 16 and to_dp[1] < 0.5 * to_dp[0]
''')
fig('pairs-table',r'''
llama = formats["model"] == "llama-3.1-70b"
groups = [("NVFP4 for FP8", "DeepSeek-R1", formats["model"] == "deepseek-r1")]
groups += [("NVFP4 for FP8", f"Llama-3.1-70B, tp = {t:.0f}", llama & (ways["tp"] == t)) for t in np.unique(ways["tp"][llama])]
rows = [[what, name, f"{(formats['published'][k] < 1).sum()} of {k.sum()}", *(f"{100 * (1 - np.median(formats[side][k])):.0f}" for side in ("modelled", "published"))] for what, name, k in groups]
tables.Table(["change", "model", "published agrees", "gain, modelled [%]", "gain, published [%]"], rows,
             caption="NVFP4 instead of FP8 on B200s: in how many published pairs NVFP4 is faster, as the model says for all of them, and the median share of the time saved; negative: slower", kinds=["modelled", "published"])
''')
say('formats-say',r'''
pay = {t: (1 - np.median(formats["modelled"][k]), 1 - np.median(formats["published"][k])) for t in (1, 2, 4, 8) for k in [llama & (ways["tp"] == t)]}
off = {t: int((formats["published"][llama & (ways["tp"] == t)] > 1).sum()) for t in pay}
m, p = (1 - np.median(formats[side][llama]) for side in ("modelled", "published"))
say(f"**Read the table.** On one GPU NVFP4 brings Llama-3.1-70B {pay[1][1]:.0%}, where the model says {pay[1][0]:.0%}. The more GPUs cut the matrices, the less is left: on eight, the model still promises {pay[8][0]:.0%}, and the servers get slower in {off[8]} of {(llama & (ways['tp'] == 8)).sum()} pairs. The direction is that of chapter 4: thin slices gain less from low precision. The model sees part of the fall, the servers fall further; the table does not say why. DeepSeek-R1 gains {1 - np.median(formats['published'][formats['model'] == 'deepseek-r1']):.0%}, where the model says {1 - np.median(formats['modelled'][formats['model'] == 'deepseek-r1']):.0%}.")
say(f"So read a cost like this. Where the model is calibrated and the change is large, its sign is mostly right. Its size is mostly too large. With R1's plans servers gained {real:.0%} where the model says {gain:.0%}, with Llama's formats {p:.0%} where it says {m:.0%} (medians over all pairs).\n\nA *warn* of 5 to 15 % is a place to measure, no more. And in the gallery, where everything is cut over eight GPUs, column 4 deserves the most doubt.")
assert pay[1][1] > 0.15 and pay[8][1] < 0 < pay[8][0] and off[1] == off[2] == 0
''')
md('trial',r'''
## 6. On trial

### A verdict belongs to a setting

The same model, the same plans, other loads. DeepSeek-R1 in NVFP4 on 16 GB300s, attention tensor parallel over all of them, experts spread.
''')
code('loads',r'''
wide = {"attention": Plan(tp=16), "ffn": Plan(ep=16)}
settings = [(batch, context) for context in (8192, 131072, 524288) for batch in (1, 4, 8, 64)]
at_load = {}
for batch, context in settings:
    case = hw.Case(model=r1, device="GB300", recipe="nvfp4", batch=batch, context=context, **wide)
    at_load[batch, context] = decoupled(case, hw.Limits()), case.breakdown.feasible
''')
fig('loads-table',r'''
def told(verdict, fits):
    fix = verdict.findings[0].fix.text.split(" --ffn")[0].removeprefix("--attention ") if verdict.findings else "–"
    cost = verdicts.verdict_cost(verdict)
    return [verdict.status, "–" if cost is None else f"{cost:.0%}", fix]

tables.Table(["context", "sequences", "verdict of 7", "cost", "attention plan of the fix"], [[c, b, *told(*at_load[b, c])] for b, c in settings if at_load[b, c][1]],
             caption="Guideline 7 over DeepSeek-R1, attention tp = 16, experts ep = 16, NVFP4 on GB300; loads that do not fit into memory are left out", kinds=["modelled"])
''')
say('loads-say',r'''
one, four_, eight_, long_ = (at_load[key][0] for key in ((1, 131072), (4, 524288), (8, 131072), (1, 524288)))
cut = replace(hw.Case(model=r1, device="GB300", recipe="nvfp4", batch=1, context=131072, **wide), attention=Plan(tp=4, kvp=4))
whole = replace(cut, attention=Plan(tp=16))
say(f"**Read the table.** The plan is the same in all rows: 16 GPUs hold 16 copies of each latent. With one user and 128K tokens that is *{one.status}*. The cache could be cut, but its exchanges would cost more than they save ({cut.seconds * 1e3:.2f} against {whole.seconds * 1e3:.2f} ms). At half a million tokens the same user loses {verdicts.verdict_cost(long_):.0%}, and four users {verdicts.verdict_cost(four_):.0%}; the way out is to cut the cache ({four_.findings[0].fix.text.split(' --ffn')[0].removeprefix('--attention ')}). With eight users at 128K the cost is {verdicts.verdict_cost(eight_):.0%}, and the way out is mostly data parallel. **A config has no verdict. A config in a deployment has one.** So every report of the checklist begins with its setting.")
assert one.status == "ok" and "kvp=16" in four_.findings[0].fix.text and "dp=8" in eight_.findings[0].fix.text and four_.status == "fail" and cut.seconds > whole.seconds
''')
md('sum',r'''
### Costs do not add

Each cost compares with *one* change. Two changes can repair the same fault, or make room for each other. Take Qwen3-235B in FP8 blocks on eight GB300s (in a plan that some engines refuse, see above), and apply the dearest fix, look again, apply the dearest, until nothing of 5 % is left. First what can be changed on the server, guidelines 4, 5 and 7; then the model itself, 1 to 3.
''')
code('walk',r'''
def dearest(found, among):
    open_ = [f for f in found.findings if f.guideline in among and f.fix and (f.cost or 0) >= 0.05]
    return max(open_, key=lambda f: f.cost, default=None)

def walk(case):
    steps = [("as released", hw.checklist(case))]
    for among in ((4, 5, 7), (1, 2, 3)):
        while finding := dearest(steps[-1][1], among):
            steps.append((f"{finding.guideline}: {finding.fix.text}", hw.checklist(finding.fix.case)))
    return steps

qwen = hw.Case(model=hw.Model.from_config("qwen3-235b-a22b-fp8"), device="GB300", **load, **eight)
steps = walk(qwen)
assert dearest(steps[-1][1], range(1, 8)) is None
''')
fig('fig-walk',r'''
names = [name.replace("--attention ", "").replace(" --ffn ", " / ") for name, _ in steps]
seconds = [found.case.seconds for _, found in steps]
served_last = max(i for i, (_, f) in enumerate(steps) if f.case.model == qwen.model)
show(figures.change_steps(dict(zip(names, seconds)), split=served_last + 1),
     alt=f"Time of a step [ms] of Qwen3-235B after each change, as bars: {seconds[0] * 1e3:.1f} as released, {seconds[served_last] * 1e3:.1f} after all changes of the deployment, {seconds[-1] * 1e3:.1f} after those of the model.",
     caption="Time of a step of Qwen3-235B [ms] after each fix, the dearest first; in brackets the change from the bar above. Labels: the guideline and its fix. Blue: on the server; orange: in the next model.", kinds=["modelled"])
''')
say('walk-say',r'''
first = steps[0][1]
total, product = sum(f.cost for f in first.findings), np.prod([1 - f.cost for f in first.findings])
reached, model = seconds[-1] / seconds[0], steps[-1][1].case.model
as_is = hw.checklist(steps[1][1].case).verdicts[6].findings[0].fix.case.seconds   # whole experts and the fix of 7, still in FP8
at_first, last = {f.guideline: f.cost for f in first.findings}, steps[-1][1].case
in_turn = dearest(steps[-2][1], (3,))
say("Its first report: " + ", ".join(f"guideline {g} {c:.1%}" for g, c in at_first.items()) + ".")
say(f"**Read the figure.** The six costs sum to {total:.0%} of the step. If they were independent, {product:.0%} of it would be left. The walk ends with **{reached:.0%}**, {1 / reached:.1f} times as fast, after {len(steps) - 1} changes. That the two are close is luck, for the costs are not independent.\n\nThe fix of 5 repaired guidelines 1 and 2, too: once experts are whole, their width is fine. And guideline 7 was worth {at_first[7]:.0%} at first and {1 - seconds[served_last] / seconds[served_last - 1]:.0%} in its turn. Eight ways over four key-value heads read every cache twice; two groups of four read it once. That saves about {1e3 * (seconds[served_last - 1] - seconds[served_last]):.1f} ms each time, and the same milliseconds weigh more in a shorter step. (The last bar falls by {1 - seconds[-1] / seconds[-2]:.0%}, more than the cost of {in_turn.cost:.0%}: fewer layers have a smaller cache, too.)\n\n"
    f"On the server, {seconds[0] / seconds[served_last]:.1f} times are to be had with a checkpoint in NVFP4, and {seconds[0] / as_is:.1f} with the weights as they are. The last bar is another model: {len(model.blocks)} layers of {model.hidden_size}, {model.parameters / 1e9:.0f} billion parameters. Whether it answers as well, somebody has to train it to know.")
say(f"And remember part 5: what servers gained there was {real / gain:.0%} of the modelled gain for R1's plans and {p / m:.0%} for Llama's formats.")
assert 0.3 < reached < 0.5 and total > 0.7 and served_last == 3
''')
md('conflict',r'''
### One fix makes another verdict worse

Four bits ask for more of a width than eight or sixteen: the pieces of 16 bytes hold more elements. So the fix of guideline 4 can break guideline 2. The checklist judges each fix anew and says what it makes worse.
''')
fig('conflicts',r'''
rows = []
for name, row in judged.items():
    for f in (f for v in row for f in v.findings if f.fix):
        rows += [[name, f"{f.guideline}: {f.fix.text}", f"{g}: {before} → {after}"] for g, before, after in f.fix.worsens if before != "not modelled"]
tables.Table(["model", "fix", "makes worse"], rows, caption="Fixes of the gallery that make another verdict worse", kinds=["modelled"])
''')
say('conflict-say',r'''
two_worse = sorted({name for name, fix, worse in rows if worse.startswith("2:") and fix.startswith("4:")})
say(f"**Read the table.** For {' and '.join(two_worse)} the change from BF16 to NVFP4 turns guideline 2 from a warning into a failure: their slices on eight GPUs are no multiples of 32 elements, and a kernel for four bits wants rows in pieces of 16 bytes. With 15 layers, qwen3-0.6b would have a feed-forward width of 4224, and 528 on a GPU is no multiple of 128. In the other rows the faster format makes depth or a plan cost more, by Amdahl's law: what stays weighs more.")
assert len(rows) >= 3 and two_worse
''')
md('limits',r'''
### What no verdict knows

- **Quality.** Fewer layers, coarser experts, four bits: each changes what the model can say. Guidelines 1, 3 and 4 point one way, and the training curves may point the other. Chapters 3 and 4 collect what is published.
- **The other loads.** A model serves many. Judge it at two or three; the slider below shows how much moves.
- **What the time model leaves out**, such as uneven loads of experts, overlap of exchanges with math, and several tokens a step. The page *What is not modelled* has the list.
- **Better alternatives.** A cost compares with one family of changes. A cost of zero says that this family holds nothing, not that nothing better exists. Guideline 1 looks at decode alone, where a tiny K is often free; in prefill it is not (chapter 1).
- **More users.** All alternatives get the same load. Wide experts and data-parallel attention also leave room for more sequences, which is half of what chapters 5 and 7 praise them for.
- **What your engine offers.** vLLM's data parallelism, for one, makes whole copies of a dense model; a plan with data-parallel attention before a sliced feed-forward part is not there.
- **Our limits.** 5 and 20 % are round numbers.
''')
say('limits-say',r'''
costs = [cost for row in judged.values() for v in row if (cost := verdicts.verdict_cost(v)) is not None]
by_limit = {limit: sum(c >= limit for c in costs) for limit in (0.05, 0.1, 0.2, 0.3)}
say(f"How much hangs on the limits? Of {len(costs)} verdicts of the gallery that have a cost, {by_limit[0.05]} reach 5 %, {by_limit[0.1]} reach 10 %, {by_limit[0.2]} reach 20 % and {by_limit[0.3]} reach 30 %. With 30 % as the limit of a failure, {by_limit[0.3]} of {by_limit[0.2]} would be left, beside the refusals; the order of the costs would be the same.")
''')
md('explore',r'''
## 7. Explore

DeepSeek-R1 in the format of its checkpoint, tensor parallel over eight GB300s, 8192 tokens of context, from one user to many. Which guideline matters for one user, and which for five hundred? Guess before you drag.
''')
fig('slider',r'''
figures.explore_load([replace(found.case, batch=batch) for batch in (1, 4, 16, 64, 256, 512)])
''')
say('slider-say',r'''
ends = {batch: {v.guideline: verdicts.verdict_cost(v) for v in hw.checklist(replace(found.case, batch=batch)).verdicts if v.findings} for batch in (1, 512)}
dear = {batch: max(costs, key=costs.get) for batch, costs in ends.items()}
say(f"For one user guideline {dear[1]} is the dearest ({ends[1][dear[1]]:.0%}), and {'nothing else is found' if len(ends[1]) == 1 else 'little else is found'}. For 512 it is guideline {dear[512]} ({ends[512][dear[512]]:.0%}), and {dear[1]} has fallen to {ends[512].get(dear[1], 0):.0%}: attention's scores and cache are then {float(replace(found.case, batch=512).breakdown.terms['attention']) / replace(found.case, batch=512).seconds:.0%} of the step, its largest part, and each of the eight GPUs reads every cache.")
assert dear == {1: 4, 512: 7}
''')
md('apply',r'''
## 8. Apply

### Your model

Put the path of a `config.json`, the name of a shipped model or the parsed config itself into the first line, choose device, formats, plans and load, and run the cell. A key that the reader does not understand is refused by name: nothing is guessed.
''')
code('own',r'''
config = "gpt-oss-120b"                # or "path/to/config.json", or json.loads(text)
recipe = None                          # or "nvfp4", ...; None: the formats of the checkpoint, else BF16
case = hw.Case(model=hw.Model.from_config(config), device="GB300", recipe=recipe,
               attention=Plan(), ffn=Plan(), batch=64, context=8192)
mine = hw.checklist(case)
''')
fig('own-table',r'''
verdicts.checklist_table(mine, f"{case.model.name}, {case.recipe.name} on {case.device.name}, {hw.plan_text(case.attention, case.ffn)}, {case.batch} sequences of {case.context} tokens")
''')
say('own-say',r'''
if config == "gpt-oss-120b":
    hidden = next(f for f in mine.findings if f.dimension == "hidden size")
    say(f"On one GPU, gpt-oss-120b breaks guideline 2 with its hidden size and its experts' width, both 2880. A multiple of 128 would be {hidden.fix.case.model.hidden_size}. By (8.2) the cost is {hidden.cost:.1%}: the wider model has {hidden.fix.parameters:+.1%} parameters and its step takes {hidden.fix.step:+.1%}, a little less than its parameters ask for. A warning, then, and a small one. Its 80 elements of hidden size for a layer lie below the band, too, but on one GPU its 36 layers cost nothing that fewer would save.")
    assert hidden.status == "warn" and 0 < hidden.cost < 0.05
''')
md('command',r'''
### On the command line, and in a model's repository

```bash
hwdesign check config.json --device GB300 --recipe nvfp4 --tp 8 --ep 8
hwdesign check config.json --attention tp=8,kvp=4 --ffn ep=32 --batch 8 --context 131072 --format html --output report.html
```

It needs NumPy and nothing else. `--format` also knows `markdown` for a pull request, `json`, and `sarif`, which code hosts show beside the changed line. The exit code is 0 if all is well, 1 if a verdict reaches `--fail-on` (by default *fail*), and 2 if the input is bad. So a repository of a model can test its own config, as it tests its code; the page *Checking a model in CI* has a workflow and a hook to copy.
''')
md('game-head',r'''
## 9. The design game

You have eight GB300s for answers and four more for prompts. Design a language model of experts and its deployment, so that users and GPUs get as many tokens as possible. The score is the area under the front of chapter 0, tokens/s of a GPU against tokens/s of a user, from 25 tokens/s of a user on.
''')
say('game-rules',r'''
b, bands = game.BUDGET, game.shipped_bands()
say(f"""**The budget.**

| what | limit | why |
|---|---|---|
| parameters | {b.parameters[0]:g} to {b.parameters[1]:g} billion | a smaller model would be faster, and another model |
| active parameters of a token | at least {b.active:g} billion | a floor for quality |
| experts of a token; experts over those | at least {b.top_k}; {bands["sparsity"][0]:g} to {bands["sparsity"][1]:g} | as in shipped models |
| hidden size over layers | {bands["aspect"][0]:.0f} to {bands["aspect"][1]:.0f} | as in shipped models: depth is worth something |
| width of a token's experts over the hidden size | {bands["spread"][0]:.1f} to {bands["spread"][1]:.1f} | as in shipped models |
| key-value heads; width of all query heads | at least {b.kv_heads}; at least the hidden size | a floor for quality |
| each user | at least {b.user_rate:g} tokens/s | a promise |
| time to the first token | at most {b.first_token:g} s | another |
| memory | {b.reserve:.0%} stay free | as engines do |

Prompts have {game.PROMPT:,} tokens, answers {game.ANSWER:,}. One layer in {game.PERIOD} must see all tokens, the others see the last {game.WINDOW:,}; their order is your choice. The floors stand for quality, which the score does not see.""")
''')
md('game-play',r'''
### Play

You choose the hidden size, layers, heads and key-value heads (each of 128 elements), the experts, how many a token visits and their width, the recipe (`bf16`, `fp8`, `nvfp4`), the order of the layers that see all tokens (`full first`, `full last`, `repeated`: every fourth), both plans over eight GPUs, and the stages of prefill (1, 2 or 4; a stage's GPUs are tensor parallel). Change the second line of the cell, as in `replace(game.START, recipe="nvfp4")`. A design that breaks the budget is refused, with the reason. The start is feasible, and bad.

A layer with hidden size $H$, $n$ heads over $n_{kv}$ and $E$ experts of width $H'$ has about $3EHH' + 256\,H(n + n_{kv})$ parameters; the vocabulary of 131,072 takes $2 \cdot 131072\,H$ more. A token's active parameters count only the experts that it visits, and the vocabulary once.
''')
code('game-mine',r'''
start = game.START
my_design = replace(start, ffn=Plan(ep=8))           # your turn
complaints = game.refusals(my_design)
my_score = None if complaints else game.score(my_design)
''')
say('game-mine-say',r'''
table = ", ".join(f"{name} {getattr(start, name)}" for name in ("hidden_size", "layers", "heads", "kv_heads", "experts", "top_k", "expert_width", "recipe"))
say(f"The start: {table}, order *{start.order}*, attention tp = {start.attention.tp}, ffn tp = {start.ffn.tp}, {start.stages} stage of prefill. It scores {game.score(start):,.0f} tokens²/s². " + (f"Yours scores {my_score:,.0f}, **{my_score / game.score(start):.2f} times as much** and {my_score / game.score(game.reference()):.0%} of what a search reaches." if not complaints else "Yours is refused: " + "; ".join(complaints) + "."))
''')
say('game-hints',r'''
say("Seven hints, one for each guideline. Take them one by one, and only when you need them.\n\n" + "\n\n".join(f"<details>\n<summary>Hint {n}: {name}</summary>\n\n{hint}\n\n</details>" for n, (name, hint) in enumerate(game.HINTS.items(), 1)))
''')
md('game-reference',r'''
### What a search finds

Stop here if you want to play on; the percentage above tells you how far there is to go. The next cell changes one or two choices at a time, keeps what helps, and ends where no change helps any more. It does so from the start and from a random design.
''')
code('game-search',r'''
best = game.reference()
steps_to_it = game.walk(best)                         # from the start, by the guidelines in their order
lines = {name: game.front(design) for name, design, _ in steps_to_it}
kept = {name: game.score(design) / game.score(best) for name, design in game.broken(best).items()}
off_grid = replace(best, hidden_size=3040, experts=104, expert_width=5216)  # found by a reader of the draft
assert max(kept.values()) < 1 and not game.refusals(best)
''')
fig('fig-game',r'''
ends = {name: (p["user_rate"], p["total_rate"]) for name, p in lines.items()}
first_, last_ = lines["start"], list(lines.values())[-1]
show(figures.fronts(ends, graded=True),
     alt=f"Tokens/s of a GPU against tokens/s of a user, eight fronts from the start to the reference. The start reaches {first_['total_rate'].max():.0f} of a GPU and {first_['user_rate'].max():.0f} of a user, the reference {last_['total_rate'].max():.0f} and {last_['user_rate'].max():.0f}.",
     caption="Fronts of the game: tokens/s of a GPU (logarithmic) against tokens/s of a user, for the start and after each guideline in turn, up to the reference. The front of the multiples almost covers that of the near-square experts.", kinds=["modelled"])
''')
fig('game-table',r'''
BROKEN = dict(zip(game.GUIDELINES, ("four times the experts, a quarter of the width", "hidden size 3000, which only BF16 takes",
                                    "twice the layers", "BF16", "slices of all experts", "full layers last", "attention tp = 8")))
rows = []
for (name, _, value), (_, _, was) in zip(steps_to_it[1:], steps_to_it):
    rows.append([name, f"{value / was:.2f}", f"{1 / kept[name]:.2f}", BROKEN[name]])
tables.Table(["guideline", "score, after / before", "reference / broken", "broken how"], rows,
             caption="What each guideline brings in the game. After / before: the guidelines added one by one to the start, in this order. Reference / broken: the reference's score over that of the reference with this one guideline broken as the last column says", kinds=["modelled"])
''')
say('game-say',r'''
gain_all = steps_to_it[-1][2] / steps_to_it[0][2]
by_step = {name: value / was for (name, _, value), (_, _, was) in zip(steps_to_it[1:], steps_to_it)}
fast = {name: p["user_rate"].max() for name, p in lines.items()}
dispatch = game.score(replace(best, ffn=Plan(ep=8))) / game.score(best)
say(f"The reference: hidden size {best.hidden_size}, {best.layers} layers, {best.heads} heads over {best.kv_heads}, {best.experts} experts of {best.expert_width}, {best.top_k} for a token, {best.recipe}, order *{best.order}*; `{hw.plan_text(best.attention, best.ffn)}`, {best.stages} stages of prefill. It scores {game.score(best):,.0f}, {gain_all:.0f} times the start, which is as much a word about the start. None of 10,000 random designs that the tests draw beats it. But a reader of the draft found a better one: off the grid that the search walks, hidden size 3040 with 104 experts of 5216 scores {game.score(off_grid) / game.score(best):.3f} times as much. Can you find more?")
say(f"**Read figure and table.** *Multiples for kernels* bring {by_step['multiples for kernels']:.2f}, nothing, when they come second. But NVFP4's kernels want multiples of 32 and take no hidden size of 3000, so without them the {by_step['NVFP4']:.1f} times of NVFP4 cannot be had. **A guideline can be worth nothing by itself and open the door for another.** Beyond 32, in this game, 128 and 256 bring nothing: the reader's design is no multiple of either, and the kernel of experts in our model knows no tiles. "
    f"\n\nFewer and wider layers bring most on the way, {by_step['wide, not deep']:.1f} times. They go to the edge of the band ({best.hidden_size / best.layers:.0f}): only the budget stops them, and the budget is our stand-in for quality. The experts are {best.expert_width / best.hidden_size:.1f} times as wide as the hidden size, wider than square, because a token must use {game.BUDGET.active:g} billion parameters in {best.top_k} of them. Attention takes tp = {best.attention.tp}, the number of key-value heads, and two groups, as guideline 7 has it. And whole experts alone are not enough: with the tokens sent to them instead of gathered, the reference would keep {dispatch:.0%}.")
say(f"The last lever is worth {by_step['decoupled attention']:.2f} in area, and yet its front *loses* at the right end: the fastest answer falls from {fast['regular pipeline']:.0f} to {fast['decoupled attention']:.0f} tokens/s. For one user, eight GPUs on one sequence are faster than four. An area hides such a thing; chapter 0 warned of it.")
assert gain_all > 10 and by_step["multiples for kernels"] < 1.02 and best.attention.tp == best.kv_heads and game.score(off_grid) > game.score(best)
assert fast["decoupled attention"] < fast["regular pipeline"] and dispatch < 0.9
''')
code('game-judged',r'''
plans_of = {"attention": best.attention, "ffn": best.ffn}
served = hw.Case(model=best.model, device="GB300", recipe=best.recipe, batch=64, context=game.CONTEXT, **plans_of)
stage = replace(best.prefill_plan, pp=best.stages)
of_reference = list(hw.checklist(served).verdicts)
of_reference[5] = regular_layers(replace(served, attention=stage, ffn=stage), hw.Limits())
''')
say('game-judged-say',r'''
six = of_reference[5]
say(f"And the checklist about the reference? {', '.join(f'{v.guideline} {v.status}' for v in of_reference)}. The search broke guideline 6: {best.layers} layers, every fourth of which sees all tokens, do not fall into {best.stages} equal stages, and GPUs wait {verdicts.verdict_cost(six):.1%} of the time in the first chunk of a prompt. 16 or 32 layers would be regular, four or eight to a stage, with one or two that see everything. 16 would be wider than any model that ships, and 32 deeper, which costs every token, where unequal stages cost prompts alone. One guideline paid for another. No list of seven points tells you such a price; a search over your own budget does.")
assert [v.status for v in of_reference] == ["ok"] * 5 + ["warn", "ok"]
''')
md('exercises',r'''
## 10. Exercises

Try each before you open its solution. The solutions are executed with the page. In Colab, Binder or on your machine, write your answer into the cell below an exercise and run it: `practice.check` says whether it is right, and gives one hint more at each new answer.
`practice.question("8.1", seed=7)` asks the same with other numbers, and `practice.check("8.1", ..., seed=7)` checks that.
''')
if os.path.exists('/root/ch8/ex8_cells.py'):
    spec=importlib.util.spec_from_file_location('ex8','/root/ch8/ex8_cells.py'); ex=importlib.util.module_from_spec(spec); spec.loader.exec_module(ex)
    for cell in ex.CELLS: cells.append(tuple(cell))
md('takeaways','## 11. Takeaways')
say('takeaways-say',r'''
say(f"""1. A verdict is a comparison of two times, in a setting. One plan for DeepSeek-R1 is *ok* for a user with 128K tokens, costs {verdicts.verdict_cost(long_):.0%} with 512K and {verdicts.verdict_cost(four_):.0%} with four such users. On published servers the sign of a cost is mostly right where the model is calibrated, and its size mostly too large.
2. A broken rule and a cost are two things. Of the {len(timed)} models of the gallery that break guideline 2 and have a time, {cheap} lose less than 5 % of a step. A refusal by the engine is a cost of another kind.
3. Costs do not add: findings of {total:.0%} in sum brought {1 - reached:.0%}. Change one thing, look again, and change on the server first: {seconds[0] / seconds[served_last]:.1f} of the {1 / reached:.1f} times needed no other model, only another plan and a checkpoint in four bits.""")
''')
md('sources',r"""
**Sources.** The post this chapter explains: NVIDIA, *Hardware-friendly dimensioning of linear layers in LLMs*; its closing list is in *Next steps*. Pairs of servers: `hwdesign/timing/data/serving.csv`, extracted from aiconfigurator-core, matched as in chapter 0. That engines refuse: Qwen3 issue 578 (29568 and blocks of 128), vLLM issues 17569 (FP8 blocks under tensor parallelism) and 11797 (28 heads), vLLM pull request 31099 (multiples of 32 in NVFP4). vLLM 0.33 (November 2026) pads or refines the scales of experts whose slices cut a block and no longer refuses all of them; SGLang 0.5.23 does. Vocabularies are padded to multiples of 64 by both.

**The end.** If you find a config that the checklist judges wrongly, tell us: the button with the mark of GitHub at the top of the page leads to the issues.
""")
nb=nbformat.v4.new_notebook(); nb.metadata=one.metadata
for id,kind,meta,src in cells:
    c=(nbformat.v4.new_markdown_cell if kind=='markdown' else nbformat.v4.new_code_cell)(src.strip('\n')); c['id']=id; c['metadata']=dict(meta); nb.cells.append(c)
nb.nbformat,nb.nbformat_minor=one.nbformat,one.nbformat_minor
nbformat.validate(nb)
out=sys.argv[1] if len(sys.argv)>1 else '/work/main/notebooks/08_design_checklist.ipynb'
nbformat.write(nb,out)
ids=[c[0] for c in cells]; assert len(set(ids))==len(ids)
print('cells',len(cells),'long',[(c[0],len(c[3].splitlines())) for c in cells if c[1]=='code' and len(c[3].strip().splitlines())>20], 'wide',[(c[0],max(map(len,c[3].splitlines()))) for c in cells if c[1]=='code' and not c[2] and max(map(len,c[3].splitlines()))>108])
