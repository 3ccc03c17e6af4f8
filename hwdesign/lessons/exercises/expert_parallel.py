"""The exercises of chapter 5. As in chapter 1, the numbers of a question are typed and everything
else is computed.
"""

import functools

import numpy as np

from hwdesign.catalogue.device import device as as_device
from hwdesign.catalogue.precision import BF16
from hwdesign.catalogue.precision import precision as as_precision
from hwdesign.formulas.collectives import remote_copies
from hwdesign.formulas.experts import distinct_experts, expert_ranks, expert_tokens
from hwdesign.formulas.roofline import critical_dimension
from hwdesign.formulas.routing import balanced_placement, device_loads, even_placement, imbalance
from hwdesign.lessons.exercises.base import Exercise, unless, variants, with_article
from hwdesign.models import config
from hwdesign.models.steps import Plan
from hwdesign.timing.estimate import decode_step
from hwdesign.units import fmt


def _size(form, what):
    """Bytes of a number in a format, for the text of a question."""
    return f"{form.bytes:g} byte{'' if form.bytes == 1 else 's'} a {what}"


def _wrong(solve, given, way):
    """The answer of another way, or None where it leads to the right one."""
    return unless(solve(**given), solve(**given | way))


# 5.1
# --------------------------------------------------------------------------------------------------

# Fewer than 60 GPUs, so that one GPU more or less is seen.
_NUMBERS_1 = variants(
    "experts top_k device precision sequences",
    (384, 8, "H200", "fp8", 256),
    (128, 8, "GB300", "nvfp4", 192),
    (128, 4, "GB200", "nvfp4", 300),
    (64, 6, "B200", "fp8", 128),
    (256, 8, "GB200", "fp8", 320),
    (512, 10, "H100_SXM", "fp8", 384),
    (160, 6, "MI300X", "fp8", 160),
)


def _text_group(experts, top_k, device, precision, sequences):
    d, form = as_device(device), as_precision(precision)
    peak, memory = (
        fmt(d.peak_flops(form), "FLOP/s", digits=4),
        fmt(d.memory_bandwidth, "byte/s", digits=4),
    )
    return (
        f"A mixture of experts uses {top_k} of {experts} experts for each token, all equally "
        "popular. A group of GPUs decodes "
        f"with it in {form.label} ({_size(form, 'weight')}). One GPU is {with_article(device)} "
        f"({memory}; dense peak of {peak} "
        f"in {form.label}) and holds {sequences} sequences. (a) From how many tokens in a step "
        "on does reading the "
        "weights of the experts take no longer than the math? (b) How many GPUs must the group "
        "have at least, if experts need "
        "not divide evenly among them? Answer (a) first, then (b)."
    )


def _group(
    experts, top_k, device, precision, sequences, *, rows=1.0, seen=expert_tokens, whole=np.ceil
):
    """(tokens, GPUs) from which an expert has enough rows; the keywords stand in for the right
    ones.
    """
    least = rows * critical_dimension(
        as_device(device).ridge(precision), as_precision(precision).bytes
    )
    tokens = least / seen(1, top_k, experts)  # an expert sees this share of the tokens
    return float(tokens), float(whole(tokens / sequences))


def _dense(**given):
    """This is what a dense model needs. An expert sees few of the tokens, so the step must have
    more of them.
    """
    return _group(**given, seen=lambda tokens, top_k, experts: tokens)


def _share_inverted(**given):
    """The rows seem to be multiplied by k / E. An expert sees that share of the tokens, so divide
    by it.
    """
    return _group(**given, seen=lambda tokens, top_k, experts: experts / top_k)


def _one_expert_a_token(**given):
    """A token seems to use one expert. It uses k of them, so each expert sees k times as many
    tokens.
    """
    return _group(**given, seen=lambda tokens, top_k, experts: tokens / experts)


def _ridge_for_rows(precision, **given):
    """The ridge seems to stand for the rows. An expert needs the ridge times b / 2, with b bytes a
    weight.
    """
    return _group(precision=precision, **given, rows=2 / as_precision(precision).bytes)


def _twice(**given):
    """The tokens are twice the answer. A weight takes 2 FLOP for each row, and peaks count without
    sparsity.
    """
    return unless(_ridge_for_rows(**given), _group(**given, rows=2))


def _peak_of_bf16(device, precision, **given):
    """The peak seems to be that of BF16. The products run in the narrow format, which has a higher
    one.
    """
    peak = as_device(device).peak_flops
    return _group(device=device, precision=precision, **given, rows=peak(BF16) / peak(precision))


def _rounded_down(**given):
    """The tokens over the sequences seem to be rounded down. This many GPUs do not hold enough
    sequences.
    """
    return _group(**given, whole=np.floor)


def _one_sequence_a_gpu(**given):
    """Each GPU seems to hold one sequence. It holds as many as the question says, and makes a token
    for each.
    """
    return _group(**given | {"sequences": 1})


_GROUP = Exercise(
    id="5.1",
    variants=_NUMBERS_1,
    text=_text_group,
    solve=_group,
    parts=("Tokens", "GPUs"),
    units=("token", "tokens", "GPU", "GPUs"),
    asks="two numbers: (a) tokens, (b) GPUs",
    tolerance=0.01,
    why="Sparsity multiplies the tokens that must be in flight, and only many GPUs together "
    "hold so many.",
    hints=(
        "How many rows must one expert have? And which share of the tokens does it see?",
        "The rows are the ridge times b / 2, as in chapter 1. By (5.1) the step has E / k "
        "times as many tokens. Divide them by "
        "the sequences of a GPU, and round up.",
    ),
    mistakes=(
        _dense,
        _share_inverted,
        _one_expert_a_token,
        _ridge_for_rows,
        _twice,
        _peak_of_bf16,
        _rounded_down,
        _one_sequence_a_gpu,
    ),
)


# 5.2 ----------------------------------------------------------------------------------------------

_NUMBERS_2 = variants(
    "tokens experts top_k gpus hidden width precision device",
    (24, 256, 8, 8, 7168, 2048, "nvfp4", "GB300"),
    (8, 128, 8, 4, 4096, 1536, "nvfp4", "GB300"),
    (12, 64, 6, 4, 2048, 1408, "fp8", "H200"),
    (48, 256, 8, 16, 7168, 2048, "fp8", "H200"),
    (16, 128, 4, 8, 2880, 2880, "mxfp4", "B200"),
    (64, 384, 8, 32, 7168, 2048, "nvfp4", "GB200"),
    (4, 8, 2, 2, 4096, 14336, "fp8", "H100_SXM"),
)


def _text_reading(tokens, experts, top_k, gpus, hidden, width, precision, device):
    form, memory = (
        as_precision(precision),
        fmt(as_device(device).memory_bandwidth, "byte/s", digits=4),
    )
    scales = ", scales included" if form.bytes > form.bits / 8 else ""
    return (
        f"A layer has {experts} experts, of which a token uses {top_k}, all equally popular. "
        "An expert is three matrices of "
        f"{hidden} x {width} weights in {form.label} ({_size(form, 'weight')}{scales}). {gpus} "
        "GPUs share the experts by expert "
        f"parallelism, and a step has {tokens} tokens in all. (a) How many experts does a GPU "
        "read on average? (b) How many "
        f"microseconds does that take, at the full bandwidth, on {with_article(device)} "
        f"({memory})? Answer (a) first, then (b)."
    )


def _reading(
    tokens,
    experts,
    top_k,
    gpus,
    hidden,
    width,
    precision,
    device,
    *,
    used=distinct_experts,
    matrices=3,
    nbytes=None,
):
    """(experts that a GPU reads, time [µs]); the keywords stand in for the right ones."""
    mine = used(tokens, top_k, experts) / gpus
    size = matrices * hidden * width * (nbytes or as_precision(precision).bytes)
    return float(mine), float(mine * size / as_device(device).memory_bandwidth * 1e6)


def _all_experts(**given):
    """Every expert seems to be read. With so few tokens some experts get none."""
    return _reading(**given, used=lambda tokens, top_k, experts: experts)


def _all_different(**given):
    """The tokens seem to use different experts, as under round-robin routing. At random they share
    some.
    """
    value = _reading(**given, used=lambda tokens, top_k, experts: min(experts, top_k * tokens))
    return unless(_all_experts(**given), value)


def _whole_group(gpus, **given):
    """This is what the whole group reads. Its GPUs share the experts, and each reads its own."""
    return _reading(gpus=1, **given)


def _tokens_of_one_gpu(tokens, gpus, **given):
    """The tokens seem to be those of one GPU. Tokens from the whole group come to the experts of a
    GPU.
    """
    return _reading(tokens / gpus, gpus=gpus, **given)


def _with_repetition(**given):
    """A token seems to draw each expert anew, so that it may take one twice. Its k experts differ:
    it misses one by 1 - k / E.
    """
    value = _reading(
        **given, used=lambda tokens, top_k, experts: distinct_experts(tokens * top_k, 1, experts)
    )
    return unless(_reading(**given), value, 0.025)


def _two_matrices(**given):
    """The time seems to count two matrices. A gated expert has three: gate, up and down."""
    return _reading(**given, matrices=2)


def _scales_forgotten(precision, **given):
    """The time seems to leave out the scales. They are read with the weights."""
    return _wrong(
        _reading, given | {"precision": precision}, {"nbytes": as_precision(precision).bits / 8}
    )


_READING = Exercise(
    id="5.2",
    variants=_NUMBERS_2,
    text=_text_reading,
    solve=_reading,
    parts=("Experts", "Time"),
    units=("µs", "µs", "us", "microsecond", "microseconds", "expert", "experts"),
    slips=("factor 1000", "factor 10^6"),
    asks="two numbers: (a) experts, (b) microseconds",
    why="A step with few tokens reads most of the experts, and more tokens then read hardly more.",
    hints=(
        "What is the chance that one token misses a given expert? And that all tokens miss it?",
        "(5.2) has the experts that the group reads. A GPU reads one part in G of them. Time: "
        "experts times bytes of one, over "
        "the bandwidth, times 10^6 for microseconds.",
    ),
    mistakes=(
        _all_experts,
        _all_different,
        _whole_group,
        _tokens_of_one_gpu,
        _with_repetition,
        _two_matrices,
        _scales_forgotten,
    ),
)


# 5.3 ----------------------------------------------------------------------------------------------

_NUMBERS_3 = variants(
    "tokens experts top_k gpus hidden precision floor rate",
    (512, 128, 8, 16, 4096, "nvfp4", 46, 660),
    (256, 256, 8, 16, 7168, "fp8", 46, 660),
    (96, 256, 8, 32, 7168, "nvfp4", 53, 640),
    (1024, 128, 4, 8, 2880, "nvfp4", 43, 670),
    (128, 384, 8, 64, 7168, "fp8", 90, 40),
    (64, 160, 6, 8, 5120, "fp8", 60, 45),
    (300, 128, 8, 4, 4096, "nvfp4", 32, 670),
)


def _text_exchange(tokens, experts, top_k, gpus, hidden, precision, floor, rate):
    form = as_precision(precision)
    return (
        f"A model has $H = {hidden}$ features, and a token uses {top_k} of {experts} experts, "
        f"drawn uniformly. {gpus} GPUs share "
        f"the experts, and each holds {tokens} tokens. The dispatch travels in {form.label} "
        f"({_size(form, 'feature')}), the "
        "combine in BF16. (a) How many megabytes does a GPU send in one layer, in both "
        "exchanges together? (b) The two exchanges "
        f"together have a floor of {floor} µs. To this their bytes add a time: each GPU sends "
        f"{rate} GB/s. At how many tokens on "
        "each GPU do the bytes take as long as the floor? Answer (a) first, then (b)."
    )


def _exchange(
    tokens,
    experts,
    top_k,
    gpus,
    hidden,
    precision,
    floor,
    rate,
    *,
    copies=remote_copies,
    out=None,
    back=2.0,
):
    """(bytes a GPU sends [MB], tokens of a GPU at which they take as long as the floor); the
    keywords stand in.
    """
    each = (
        copies(top_k, experts, gpus)
        * hidden
        * ((as_precision(precision).bytes if out is None else out) + back)
    )
    return float(tokens * each / 1e6), float(floor * 1e-6 * rate * 1e9 / each)


def _copy_for_each_expert(**given):
    """A token seems to be sent once for each of its experts. It goes to a GPU once, even if two of
    its experts live there.
    """
    return _exchange(**given, copies=lambda top_k, experts, gpus: top_k)


def _experts_never_meet(**given):
    """The experts of a token seem to lie on different GPUs, as under round-robin routing. At
    random, some share a GPU.
    """
    return _exchange(**given, copies=lambda top_k, experts, gpus: top_k * (1 - 1 / gpus))


def _own_gpu_counted(**given):
    """The token's own GPU seems to be counted. What stays there is not sent."""
    return unless(_exchange(**given), _exchange(**given, copies=expert_ranks), 0.02)


def _to_every_gpu(**given):
    """Each token seems to go to all other GPUs. It goes to those that hold one of its experts."""
    return _exchange(**given, copies=lambda top_k, experts, gpus: gpus - 1)


def _both_in_bf16(**given):
    """Both exchanges seem to travel in BF16. The dispatch has the narrow format of the inputs."""
    return _exchange(**given, out=2.0)


def _both_narrow(precision, **given):
    """This is both exchanges in the narrow format, or in FP8 the combine alone. The dispatch is
    narrow, the combine in BF16.
    """
    return _exchange(precision=precision, **given, back=as_precision(precision).bytes)


def _dispatch_alone(**given):
    """This is the dispatch alone. The combine sends the results back, in BF16."""
    return _exchange(**given, back=0.0)


def _combine_alone(**given):
    """This is the combine alone. The dispatch goes before it, in the narrow format."""
    return unless(_both_narrow(**given), _exchange(**given, out=0.0))


def _of_the_group(gpus, **given):
    """This is for the whole group. The question asks for one GPU."""
    return tuple(gpus * value for value in _exchange(gpus=gpus, **given))


_EXCHANGE = Exercise(
    id="5.3",
    variants=_NUMBERS_3,
    text=_text_exchange,
    solve=_exchange,
    parts=("Bytes", "Tokens"),
    units=("MB", "MB", "megabyte", "megabytes", "token", "tokens"),
    slips=("bits for bytes", "factor 1000", "factor 10^6"),
    asks="two numbers: (a) megabytes, (b) tokens",
    why="Below that many tokens the floor is the larger part of an exchange, and a faster link "
    "helps little.",
    hints=(
        "How many other GPUs does one token visit? A GPU is missed if all k experts lie on the "
        "others.",
        "(5.4) has the bytes, and `remote_copies` the GPUs that a token visits. Divide what "
        "the rate sends during the floor "
        "by the bytes of one token.",
    ),
    mistakes=(
        _copy_for_each_expert,
        _experts_never_meet,
        _own_gpu_counted,
        _to_every_gpu,
        _both_in_bf16,
        _both_narrow,
        _dispatch_alone,
        _combine_alone,
        _of_the_group,
    ),
)


# 5.4 ----------------------------------------------------------------------------------------------

# Ties of the two rules may be broken either way, and each mistake ends at another ratio.
_NUMBERS_4 = variants(
    "loads gpus slots",
    ((5, 1, 18, 8, 4, 9), 3, 9),
    ((1, 3, 15, 3, 8, 1), 3, 9),
    ((24, 4, 18, 1, 5, 5), 3, 9),
    ((2, 9, 16, 2, 9, 24), 3, 9),
    ((6, 20, 1, 1, 1, 8), 2, 10),
    ((8, 18, 1, 1, 8, 6), 3, 9),
    ((3, 6, 16, 3, 24, 18, 5, 5), 4, 12),
    ((5, 6, 1, 3, 4, 15, 8, 9), 4, 12),
)


def _text_balance(loads, gpus, slots):
    named = ", ".join(map(str, loads[:-1])) + f" and {loads[-1]}"
    return (
        f"The {len(loads)} experts of a layer have the loads {named}. (a) {gpus} GPUs hold "
        f"{len(loads) // gpus} each, in this "
        rf"order. What is $\lambda$ of (5.5), the load of the fullest GPU over the mean? (b) Now "
        f"each GPU has {slots // gpus} "
        r"slots. Place the experts and copies of the popular ones by the two greedy rules of "
        "part 2; two copies may "
        r"share a GPU. What is $\lambda$ then? Answer (a) first, then (b)."
    )


def _copies(loads, count):
    """Loads of the copies, for so many of each expert."""
    return np.repeat(np.divide(loads, count), count)


def _by_the_rule(loads, gpus, slots):
    return _copies(loads, np.bincount(balanced_placement(loads, gpus, slots=slots).ravel()))


def _balance(loads, gpus, slots, *, ratio=imbalance, copies=_by_the_rule):
    """(ratio in order, ratio by the two rules) [dimensionless]; the keywords stand in for the right
    ones.
    """
    each = copies(loads, gpus, slots)
    before = device_loads(loads, even_placement(len(loads), gpus))
    return float(ratio(before)), float(ratio(device_loads(each, balanced_placement(each, gpus))))


def _excess(**given):
    """This is how much the fullest GPU has above the mean, as TensorRT-LLM prints it. The ratio
    itself is 1 more.
    """
    return tuple(value - 1 for value in _balance(**given))


def _mean_over_fullest(**given):
    """This is the mean over the fullest, as SGLang and vLLM print it. The question asks for the
    fullest over the mean.
    """
    return tuple(1 / value for value in _balance(**given))


def _fullest_over_emptiest(**given):
    """This seems to compare the fullest GPU with the emptiest. Compare it with the mean."""
    return _balance(**given, ratio=lambda loads: loads.max() / loads.min())


def _fullest_alone(**given):
    """This is the load of the fullest GPU. Divide it by the mean load of the GPUs."""
    return _balance(**given, ratio=np.max)


def _of_the_slots(loads, gpus, slots):
    """These seem to be ratios of experts and of slots. Add up what a GPU holds first."""
    return float(imbalance(loads)), float(imbalance(_by_the_rule(loads, gpus, slots)))


def _packed_without_copies(**given):
    """The second number seems to have no copies in it. The additional slots take copies of the
    popular experts.
    """
    return _balance(**given, copies=lambda loads, gpus, slots: np.array(loads))


def _all_copies_of_one(loads, gpus, slots):
    """All spare slots seem to go to the most popular expert. After each copy look again which load
    per copy is largest.
    """
    count = np.where(np.arange(len(loads)) == np.argmax(loads), 1 + slots - len(loads), 1)
    return _balance(loads, gpus, slots, copies=lambda *_: _copies(loads, count))


def _one_copy_each(loads, gpus, slots):
    """The spare slots seem to go to different experts. One expert may get several, if its load per
    copy is still the largest.
    """
    count = np.ones(len(loads), dtype=int)
    count[np.argsort(np.negative(loads), kind="stable")[: slots - len(loads)]] = 2
    return _balance(loads, gpus, slots, copies=lambda *_: _copies(loads, count))


def _dealt_in_turn(loads, gpus, slots):
    """The copies seem to be dealt out in turn. Each goes to the GPU with the least load that still
    has a free slot.
    """
    each = np.sort(_by_the_rule(loads, gpus, slots))[::-1]
    return _balance(loads, gpus, slots)[0], float(imbalance(each.reshape(-1, gpus).sum(axis=0)))


_BALANCE = Exercise(
    id="5.4",
    variants=_NUMBERS_4,
    text=_text_balance,
    solve=_balance,
    parts=("In order", "With copies"),
    units=("time", "times", "x"),
    asks="two ratios: (a) in order, (b) with copies",
    tolerance=0.01,
    why="All GPUs wait for the fullest, so copies of a few popular experts speed up the whole "
    "layer.",
    hints=(
        "Which expert has the largest load after each copy? Write down the loads of all copies "
        "before you place them.",
        "Sort the copies by load. Each goes to the GPU with the least load that has a free "
        "slot. The largest sum over the mean "
        "sum is the ratio. `balanced_placement` and `device_loads` check it.",
    ),
    mistakes=(
        _excess,
        _mean_over_fullest,
        _fullest_over_emptiest,
        _fullest_alone,
        _of_the_slots,
        _packed_without_copies,
        _all_copies_of_one,
        _one_copy_each,
        _dealt_in_turn,
    ),
)


# 5.5 ----------------------------------------------------------------------------------------------

GROUPS = (4, 8, 16, 32, 64)
NAMES = {"deepseek-r1": "DeepSeek-R1", "qwen3-235b-a22b": "Qwen3-235B-A22B"}
# Each width is at least 5 % above or below what is asked.
_NUMBERS_5 = variants(
    "model device context milliseconds wanted",
    ("deepseek-r1", "GB300", 8192, 20, 3000),
    ("deepseek-r1", "GB300", 2048, 15, 3400),
    ("deepseek-r1", "GB300", 4096, 12, 300),
    ("deepseek-r1", "GB300", 4096, 30, 6000),
    ("qwen3-235b-a22b", "GB300", 4096, 14, 1000),
    ("deepseek-r1", "GB200", 16384, 60, 3450),
    ("qwen3-235b-a22b", "GB300", 8192, 20, 1800),
)


def _text_design(model, device, context, milliseconds, wanted):
    return (
        f"{NAMES[model]} decodes in NVFP4 on a group of $G$ = 4, 8, 16, 32 or 64 {device}s, "
        f"with {context} tokens of context. "
        "Attention is data parallel, the group shares the experts, and loads are even. Each "
        "GPU may hold any whole number $c$ of "
        f"sequences that fits into its memory. A user waits at most {milliseconds} ms for a "
        "token, and a GPU must make at least "
        f'{wanted} tokens/s. With `model = hw.Model.from_config("{model}")`, '
        f'`hw.decode_step(model, "{device}", "nvfp4", '
        f"batch=c * G, context={context}, attention=Plan(dp=G), ffn=Plan(ep=G))` gives the "
        "`seconds` of a step, its `terms` and whether it is `feasible`; `c` may be an array. "
        "Which is the smallest such group?"
    )


@functools.cache
def _step(model, device, context, gpus, ideal=False):
    """(sequences of a GPU, step) for all numbers of sequences that matter."""
    c, plan = np.arange(1, 3001), {"attention": Plan(dp=gpus), "ffn": Plan(ep=gpus)}
    step = decode_step(
        config.load(model), device, "nvfp4", batch=c * gpus, context=context, ideal=ideal, **plan
    )
    return c, step


def _smallest(model, device, context, milliseconds, wanted, *, ideal=False, free=(), fits=True):
    """Smallest group of which a GPU makes enough tokens within the limit, None if there is none;
    the keywords stand in.
    """
    for gpus in GROUPS:
        c, step = _step(model, device, context, gpus, ideal)
        seconds = sum(value for term, value in step.terms.items() if term not in free)
        if (
            c / seconds * (seconds <= milliseconds * 1e-3) * (step.feasible if fits else 1)
        ).max() >= wanted:
            return float(gpus)
    return None


def _exchanges_left_out(**given):
    """Without the exchanges this would be right. They are a term of the step, "communication"."""
    return _wrong(_smallest, given, {"free": ("communication",)})


def _memory_left_out(**given):
    """Without a look at memory this would be right. A step that does not fit is not `feasible`."""
    return _wrong(_smallest, given, {"fits": False})


def _bound_or_one_condition(**given):
    """This group falls short. It may be the choice of the plain bound, or meet one of the two
    conditions without the other.
    """
    ways = {"ideal": True}, {"milliseconds": np.inf}, {"wanted": 0.1}
    return next(
        (value for value in (_wrong(_smallest, given, way) for way in ways) if value is not None),
        None,
    )


def _half_as_many(**given):
    """On this many GPUs no number of sequences meets both conditions. Try several for each
    group.
    """
    return _smallest(**given) / 2 if _smallest(**given) > min(GROUPS) else None


def _twice_as_many(**given):
    """This many can do it. So can half as many, and the question asks for the smallest group."""
    return _smallest(**given) * 2 if _smallest(**given) < max(GROUPS) else None


_DESIGN = Exercise(
    id="5.5",
    variants=_NUMBERS_5,
    text=_text_design,
    solve=_smallest,
    units=("GPU", "GPUs", "way", "ways"),
    asks="a number of GPUs",
    tolerance=0.0,
    why="A tight limit on time asks for a wide group: it reads the experts faster, so that "
    "more sequences fit into a step.",
    hints=(
        "How many sequences does a GPU hold when the step takes as long as the limit allows? "
        "Then how many tokens does it make "
        "in a second?",
        "For each group take c from 1 to 3000. Keep those with `seconds` within the limit and "
        "`feasible`. The largest of "
        "`c / seconds` is the rate of a GPU.",
    ),
    mistakes=(
        _memory_left_out,
        _exchanges_left_out,
        _bound_or_one_condition,
        _half_as_many,
        _twice_as_many,
    ),
)

EXERCISES = (_GROUP, _READING, _EXCHANGE, _BALANCE, _DESIGN)
