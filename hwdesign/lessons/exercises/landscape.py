"""The exercises of chapter 0. As in chapter 1, the numbers of a question are typed and everything
else is computed.
"""

import functools

import numpy as np

from hwdesign.formulas.frontier import matched_rate
from hwdesign.formulas.roofline import amdahl_speedup
from hwdesign.lessons.exercises.base import Exercise, unless, variants
from hwdesign.models import config
from hwdesign.timing.search import decode_candidates

# 0.1
# --------------------------------------------------------------------------------------------------

# A number that stands twice is a step of two tokens. Mean, median, and mean of the steps are far
# apart.
_NUMBERS_1 = variants(
    "request times prompt users gpus",
    (5100, (5340, 5352, 5364, 5376, 5376, 5388, 5500, 5512, 5524), 200, 24, 8),
    (800, (950, 970, 990, 990, 1010, 1030, 1050, 1130), 150, 16, 4),
    (2000, (2410, 2418, 2426, 2434, 2502, 2510, 2518), 90, 12, 8),
    (300, (480, 495, 510, 590, 605, 605, 620, 635, 650, 730), 64, 32, 16),
    (7400, (7720, 7729, 7738, 7747, 7756, 7845, 7854), 140, 6, 4),
    (1200, (1500, 1525, 1525, 1550, 1575, 1700, 1725, 1750), 80, 48, 8),
)


def _text_log(request, times, prompt, users, gpus):
    double = " (one step made two of them)" * (len(set(times)) < len(times))
    return (
        f"A request with a prompt of {prompt} tokens comes in at {request} ms on a server's "
        "clock. The tokens of its answer come "
        f"at {', '.join(map(str, times[:-1]))} and {times[-1]} ms{double}. {users} such "
        f"requests are in flight on {gpus} GPUs. "
        "(a) How many ms is the first-token latency, (b) the mean inter-token latency? How "
        "many output tokens/s (c) does the "
        "user get, by (0.2), (d) does a GPU make? Answer (a), (b), (c) and (d) in this order."
    )


def _log(request, times, prompt, users, gpus, *, itl=None, tokens=1.0):
    """(FTL and mean ITL [ms], rates of a user and of a GPU [token/s]); `itl` stands in, `tokens`
    are counted for each token.
    """
    itl = (times[-1] - times[0]) / (len(times) - 1) if itl is None else itl
    return (
        float(times[0] - request),
        float(itl),
        float(1e3 / itl),
        float(1e3 * tokens * users / itl / gpus),
    )


def _median_for_mean(times, **given):
    """This is the median of the gaps. The user waits for the long gap, too, so (0.1) needs the
    mean.
    """
    return _log(times=times, **given, itl=np.median(np.diff(times)))


def _as_many_gaps_as_tokens(times, **given):
    """The time from the first to the last token seems to be divided by n. There are n - 1 gaps
    between n tokens.
    """
    return _log(times=times, **given, itl=(times[-1] - times[0]) / len(times))


def _wait_counted(request, times, **given):
    """The wait for the first token seems to be in the mean. It is a latency of its own; ITL begins
    with the first token.
    """
    return _log(request=request, times=times, **given, itl=(times[-1] - request) / len(times))


def _steps_for_tokens(times, **given):
    """The steps seem to be counted, not the tokens. A step that makes two tokens counts twice."""
    itl = (times[-1] - times[0]) / (len(set(times)) - 1)
    return unless(_log(times=times, **given), _log(times=times, **given, itl=itl))


def _time_of_the_clock(request, times, **given):
    """The first-token latency begins with the request. The clock of the server began earlier."""
    return float(times[0]), *_log(request=request, times=times, **given)[1:]


def _prompt_counted(times, prompt, **given):
    """The last number seems to count the tokens of the prompt, too. The question asks for output
    tokens.
    """
    return _log(times=times, prompt=prompt, **given, tokens=1 + prompt / len(times))


def _gpus_forgotten(gpus, **given):
    """The last number is that of all GPUs together. Divide it by their number."""
    return _log(gpus=1, **given)


def _users_forgotten(users, **given):
    """The last number is what a single request makes of a GPU. A decode step makes a token for each
    request in flight.
    """
    return _log(users=1, **given)


def _all_for_one_user(users, **given):
    """The third number is the rate of all users together. One user gets the tokens of one
    request.
    """
    first, itl, rate, gpu = _log(users=users, **given)
    return first, itl, users * rate, gpu


_LOG = Exercise(
    id="0.1",
    variants=_NUMBERS_1,
    text=_text_log,
    solve=_log,
    parts=("FTL", "ITL", "User", "GPU"),
    units=("token/s", "tokens/s", "ms", "millisecond", "milliseconds"),
    slips=("factor 1000",),
    asks="four numbers: (a) and (b) ms, (c) and (d) tokens/s",
    why="One long gap may cost a user half of the rate, and no median of the gaps shows it.",
    hints=(
        "How long does the user wait for the first token? How long from there to the last, and "
        "how many gaps are that?",
        "ITL is the time from the first to the last token over n - 1, with every token "
        "counted. Then use (0.2), with ITL in "
        "seconds.",
    ),
    mistakes=(
        _median_for_mean,
        _as_many_gaps_as_tokens,
        _wait_counted,
        _steps_for_tokens,
        _time_of_the_clock,
        _prompt_counted,
        _gpus_forgotten,
        _users_forgotten,
        _all_for_one_user,
    ),
)


# 0.2 ----------------------------------------------------------------------------------------------

# The batch at the promised rate is a little above a whole number below 60: one sequence too many is
# seen.
_NUMBERS_2 = variants(
    "gpus few first many second speed",
    (8, 8, 9.2, 72, 18.8, 65),
    (16, 16, 15.2, 64, 24.8, 48),
    (8, 4, 7.5, 48, 18.5, 70),
    (2, 2, 9.6, 60, 27, 45),
    (4, 8, 14.2, 56, 33.4, 38),
    (8, 8, 4.92, 64, 9.96, 125),
)


def _text_line(gpus, few, first, many, second, speed):
    return (
        f"A decode step of a layout on {gpus} GPUs takes {first:g} ms with {few} sequences in "
        f"flight and {second:g} ms with "
        f"{many}. (0.3) holds, and the sequences fit into memory. (a) How many ms is $t_0$? "
        "(b) With how many "
        f"sequences at most does every user get {speed} tokens/s? (c) How many tokens/s does a "
        "GPU make with them? Answer (a), "
        "(b) and (c) in this order."
    )


def _line(gpus, few, first, many, second, speed, *, constant=None, slope=None, ends=np.floor):
    """(t0 [ms], sequences, tokens/s of a GPU); `constant` and `slope` stand in for the two times
    [ms], `ends` rounds.
    """
    slope = (second - first) / (many - few) if slope is None else slope
    constant = first - few * slope if constant is None else constant
    batch = ends(round((1e3 / speed - constant) / slope, 9))
    return float(constant), float(batch), float(1e3 * batch / (constant + batch * slope) / gpus)


def _through_the_origin(many, second, **given):
    """The step seems to grow in proportion to the sequences. Weights are read once for any number
    of them: that is t0.
    """
    return _line(many=many, second=second, **given, constant=0.0, slope=second / many)


def _first_point_for_t0(first, **given):
    """This t0 is the step of the first point, which has sequences in it. Follow the line down to
    none.
    """
    return _line(first=first, **given, constant=first)


def _weights_for_free(gpus, speed, **given):
    """The sequences seem to have the whole step for themselves. Reading the weights takes t0 of
    it.
    """
    constant, _, end = _end_of_the_line(gpus=gpus, speed=speed, **given)
    return constant, float(np.floor(end * gpus / speed)), end


def _one_too_many(**given):
    """With this many the users get a little less than they were promised. Round down."""
    return _line(**given, ends=np.ceil)


def _end_of_the_line(gpus, **given):
    """The last number is the left end of the line, 1 over G t1. At the promised rate a GPU makes
    less.
    """
    return *_line(gpus=gpus, **given)[:2], 1e3 / gpus * (given["many"] - given["few"]) / (
        given["second"] - given["first"]
    )


def _rate_on_a_straight_line(gpus, few, first, many, second, speed):
    """Between the points the rate of a user seems to be a straight line. The time of a step is one,
    and the rate its inverse.
    """
    batch = np.interp(-speed, [-1e3 / first, -1e3 / second], [few, many])
    return (
        _line(gpus, few, first, many, second, speed)[0],
        float(np.floor(batch)),
        float(np.floor(batch) * speed / gpus),
    )


def _of_each_gpu(gpus, **given):
    """The second number is for each GPU. The question asks for all that are in flight."""
    constant, batch, rate = _line(gpus=gpus, **given)
    return constant, batch / gpus, rate


def _rate_of_all_gpus(gpus, **given):
    """The last number is the rate of all GPUs together. Divide it by their number."""
    return _line(gpus=1, **given)


_LINE = Exercise(
    id="0.2",
    variants=_NUMBERS_2,
    text=_text_line,
    solve=_line,
    parts=("t0", "Sequences", "Rate"),
    units=(
        "sequence",
        "sequences",
        "user",
        "users",
        "ms",
        "millisecond",
        "milliseconds",
        "token/s",
        "tokens/s",
    ),
    slips=("factor 1000",),
    asks="three numbers: (a) ms, (b) sequences, (c) tokens/s",
    tolerance=0.01,
    why="Two measured points give the whole line, and with it the batch for any promise, as "
    "long as the sequences fit.",
    hints=(
        "How much does the step grow from one point to the other, and for how many more "
        "sequences? What is left at none?",
        "A step may take 1 over the promised rate. Take t0 from it and divide by t1. Then use "
        "(0.2) or (0.4).",
    ),
    mistakes=(
        _through_the_origin,
        _first_point_for_t0,
        _weights_for_free,
        _one_too_many,
        _end_of_the_line,
        _rate_on_a_straight_line,
        _of_each_gpu,
        _rate_of_all_gpus,
    ),
)


# 0.3 ----------------------------------------------------------------------------------------------

# Each offer is the better one in one of the two deployments.
_NUMBERS_3 = variants(
    "attention fixed other_attention other_fixed gain fixed_gain",
    (78, 9, 18, 24, 2, 4),
    (70, 12, 20, 35, 1.5, 3),
    (25, 50, 60, 15, 3, 2),
    (64, 10, 12, 40, 2.5, 2),
    (15, 45, 80, 5, 1.6, 5),
    (55, 20, 22, 44, 2, 3),
)


def _text_offers(attention, fixed, other_attention, other_fixed, gain, fixed_gain):
    return (
        f"In one deployment attention takes {attention} % of a step, communication and small "
        f"kernels take {fixed} %; in another "
        f"they take {other_attention} % and {other_fixed} %. Two offers cost the same: one "
        f"makes attention {gain:g} times as "
        f"fast, the other makes communication and small kernels {fixed_gain:g} times as fast. "
        "How many times as fast does a step "
        "become with the better offer (a) in the first deployment, (b) in the second? (c) And "
        "with both offers in the second? "
        "Answer (a), (b) and (c) in this order."
    )


def _gains(
    attention, fixed, other_attention, other_fixed, gain, fixed_gain, *, speed_up=amdahl_speedup
):
    """Speed-ups by each offer, in both deployments; `speed_up` of a share and a gain stands in."""
    shares = (
        ((attention, gain), (fixed, fixed_gain)),
        ((other_attention, gain), (other_fixed, fixed_gain)),
    )
    return [[float(speed_up(share / 100, by)) for share, by in pair] for pair in shares]


def _offers(**given):
    """Speed-ups (by the better offer in the first and in the second deployment, by both in the
    second).
    """
    first, second = _gains(**given)
    return max(first), max(second), 1 / (1 / second[0] + 1 / second[1] - 1)


def _speeds_averaged(**given):
    """The speeds of the parts seem to be averaged, each with its share. Shares are times, and it is
    the times that add up.
    """
    first, second = _gains(**given, speed_up=lambda share, by: 1 - share + share * by)
    return max(first), max(second), sum(second) - 1


def _the_other_offer(**given):
    """This is the other offer. Look which of the two takes more time off the step, share and factor
    together.
    """
    first, second = _gains(**given)
    return min(first), min(second), _offers(**given)[2]


def _same_offer_twice(**given):
    """The second deployment seems to get the offer of the first. Its shares differ, and so does
    what it should buy.
    """
    first, second = _gains(**given)
    return max(first), second[int(np.argmax(first))], _offers(**given)[2]


def _part_gone(**given):
    """The part that is sped up seems to take no time at all. Of its share, 1/s is left."""
    first, second = _gains(**given, speed_up=lambda share, by: 1 / (1 - share))
    return max(first), max(second), 1 / (1 / second[0] + 1 / second[1] - 1)


def _left_for_saved(**given):
    """The share over the factor seems to be taken off the step. That is what is left of the
    part.
    """
    first, second = _gains(**given, speed_up=lambda share, by: 1 / (1 - share / by))
    return max(first), max(second), 1 / (1 / second[0] + 1 / second[1] - 1)


def _time_left(**given):
    """These are the times of a step, as shares of the old one. How many times as fast it becomes is
    the inverse.
    """
    return tuple(1 / value for value in _offers(**given))


def _time_saved(**given):
    """These are the shares of a step that are saved. How many times as fast it becomes is 1 over
    what is left.
    """
    return tuple(1 - 1 / value for value in _offers(**given))


def _gains_multiplied(**given):
    """The gains of both offers seem to be multiplied. The first shortens the step, so the share of
    the other part grows.
    """
    return *_offers(**given)[:2], float(np.prod(_gains(**given)[1]))


def _gains_added(**given):
    """The gains of both offers seem to be added. What adds up is the time that they save."""
    return *_offers(**given)[:2], float(sum(_gains(**given)[1]) - 1)


_OFFERS = Exercise(
    id="0.3",
    variants=_NUMBERS_3,
    text=_text_offers,
    solve=_offers,
    parts=("First", "Second", "Both"),
    units=("time", "times", "x"),
    asks="three numbers: how many times as fast (a), (b), (c)",
    tolerance=0.01,
    why="What to buy depends on the shares where you are; a large factor on a small share is "
    "worth little.",
    hints=(
        "Which share of the step does each offer save, in each of the two deployments?",
        "An offer saves p (1 - 1/s). How many times as fast the step becomes is 1 over what is "
        "left, (0.6). Two offers for "
        "different parts save the sum.",
    ),
    mistakes=(
        _speeds_averaged,
        _the_other_offer,
        _same_offer_twice,
        _part_gone,
        _left_for_saved,
        _time_left,
        _time_saved,
        _gains_multiplied,
        _gains_added,
    ),
)


# 0.4 ----------------------------------------------------------------------------------------------

# Whole workers reach at least 3 % less than matched pools.
_NUMBERS_4 = variants(
    "prefill_gpus prompts decode_gpus tokens answer rack",
    (4, 6, 8, 8192, 1024, 32),
    (2, 5, 8, 12000, 1000, 24),
    (4, 3, 16, 40000, 2000, 64),
    (8, 5, 4, 1600, 800, 40),
    (2, 1.5, 4, 3600, 1000, 20),
    (1, 4, 4, 2400, 400, 16),
)


def _text_pools(prefill_gpus, prompts, decode_gpus, tokens, answer, rack):
    return (
        f"A prefill worker of {prefill_gpus} GPU{'s' * (prefill_gpus > 1)} takes {prompts:g} "
        "prompts a second. A decode worker "
        f"of {decode_gpus} GPUs makes {tokens} tokens/s. An answer has {answer} tokens. (a) "
        "How many tokens/s does a GPU make, "
        "those of both pools counted, if neither waits for the other? (b) How many prefill "
        "GPUs are then needed for each decode "
        "GPU? "
        f"(c) A rack has {rack} GPUs and runs whole workers. How many tokens/s does one of its "
        "GPUs make at most, idle ones "
        "counted? Answer (a), (b) and (c) in this order."
    )


def _pools(prefill_gpus, prompts, decode_gpus, tokens, answer, rack, *, cost=1.0):
    """(tokens/s of a GPU, prefill GPUs for each decode GPU, tokens/s of a GPU with whole workers);
    `cost` scales a prompt's.
    """
    rate, cost = tokens / decode_gpus, cost * prefill_gpus / prompts
    made, *_ = _rack(prefill_gpus, prompts, decode_gpus, tokens, answer, rack)
    return float(matched_rate(rate, cost, answer)), float(cost * rate / answer), made / rack


def _rack(prefill_gpus, prompts, decode_gpus, tokens, answer, rack):
    """(most tokens/s, GPUs of either pool) of whole workers in a rack; of equal ones the fewest
    GPUs.
    """
    p, d = np.meshgrid(np.arange(1, rack), np.arange(1, rack))
    used, made = p * prefill_gpus + d * decode_gpus, np.minimum(p * prompts * answer, d * tokens)
    best = np.lexsort((used.ravel(), -np.where(used <= rack, made, -1.0).ravel()))[0]
    return float(made.flat[best]), int(prefill_gpus * p.flat[best]), int(decode_gpus * d.flat[best])


def _decode_gpus_alone(**given):
    """The decode GPUs alone seem to be counted. The prompts need GPUs, too."""
    made, _, decode = _rack(**given)
    return given["tokens"] / given["decode_gpus"], _pools(**given)[1], made / decode


def _upside_down(**given):
    """The ratio seems to be upside down: decode GPUs for each prefill GPU. The pool with the larger
    cost needs more.
    """
    total, ratio, whole = _pools(**given)
    return total, 1 / ratio, whole


def _share_for_ratio(**given):
    """The second number is the share of prefill in all GPUs. The question asks for prefill over
    decode.
    """
    total, ratio, whole = _pools(**given)
    return total, ratio / (1 + ratio), whole


def _workers_for_gpus(**given):
    """The second number counts workers. Multiply by the GPUs of each."""
    total, ratio, whole = _pools(**given)
    return unless((ratio,), (total, ratio * given["decode_gpus"] / given["prefill_gpus"], whole))


def _prefill_worker_for_gpu(prefill_gpus, **given):
    """A prompt seems to cost the seconds of a worker. In GPU seconds, each GPU of the worker
    counts.
    """
    total, ratio, _ = _pools(prefill_gpus=prefill_gpus, **given, cost=1 / prefill_gpus)
    right = _pools(prefill_gpus=prefill_gpus, **given)
    return unless(right, (total, ratio, right[2]))


def _prompt_for_each_token(answer, **given):
    """Each token seems to pay for a whole prompt. All tokens of an answer share it, so divide
    by n.
    """
    return *_pools(answer=answer, **given, cost=answer)[:2], _pools(answer=answer, **given)[2]


def _mean_of_the_pools(**given):
    """This is the mean of the rates of both pools. Each token needs both pools, so its GPU seconds
    add up.
    """
    _, ratio, whole = _pools(**given)
    rate = given["tokens"] / given["decode_gpus"]
    return (rate + rate / ratio) / 2, ratio, whole


def _parts_of_workers(**given):
    """The last number needs parts of workers. Try the whole numbers: the slower pool sets the
    rate.
    """
    total, ratio, _ = _pools(**given)
    return total, ratio, total


def _idle_left_out(**given):
    """The last number leaves out the GPUs that no worker uses. The rack has them all the same."""
    made, *used = _rack(**given)
    return unless(_pools(**given), (*_pools(**given)[:2], made / sum(used)), 0.01)


_POOLS = Exercise(
    id="0.4",
    variants=_NUMBERS_4,
    text=_text_pools,
    solve=_pools,
    parts=("Rate", "Ratio", "Whole workers"),
    units=("token/s", "tokens/s", "GPU", "GPUs"),
    asks="three numbers: (a) tokens/s, (b) a ratio, (c) tokens/s",
    why="GPU seconds of prefill and decode add up; in a small rack whole workers never quite "
    "match.",
    hints=(
        "How many GPU seconds does a prompt cost? How many does a token cost in the decode "
        "pool? How many tokens share a prompt?",
        "For (a) and (b) use (0.7): c is the GPUs of a prefill worker over its prompts a "
        "second. For (c) go through the whole "
        "numbers of decode workers and fill up with prefill workers.",
    ),
    mistakes=(
        _decode_gpus_alone,
        _upside_down,
        _share_for_ratio,
        _workers_for_gpus,
        _prefill_worker_for_gpu,
        _prompt_for_each_token,
        _mean_of_the_pools,
        _parts_of_workers,
        _idle_left_out,
    ),
)


# 0.5 ----------------------------------------------------------------------------------------------

NAMES = {
    "qwen3-235b-a22b": "Qwen3-235B-A22B",
    "llama-3.1-70b": "Llama-3.1-70B",
    "phi-4": "Phi-4",
    "gpt-oss-120b": "gpt-oss-120b",
    "qwen2.5-72b": "Qwen2.5-72B",
}
SEARCHED = {"gpus": (1, 2, 4, 8, 16), "batch": 2 ** np.arange(11)}
# At the lower promise memory decides, at the higher one the promise. No candidate that matters is
# near a promise.
_NUMBERS_5 = variants(
    "model device form prompt answer low high",
    ("qwen3-235b-a22b", "B200", "nvfp4", 32768, 2048, 20, 48),
    ("llama-3.1-70b", "H100_SXM", "fp8", 8192, 1024, 15, 50),
    ("phi-4", "H100_SXM", "bf16", 8192, 1024, 20, 55),
    ("phi-4", "H100_SXM", "bf16", 32768, 2048, 20, 90),
    ("gpt-oss-120b", "H100_SXM", "fp8", 32768, 2048, 15, 45),
    ("qwen2.5-72b", "H100_SXM", "fp8", 8192, 1024, 15, 45),
)


def _text_design(model, device, form, prompt, answer, low, high):
    return (
        f"{NAMES[model]} decodes in {form.upper()} on at most 16 {device.split('_')[0]}s; "
        "other GPUs prefill. With `model = "
        f'hw.Model.from_config("{model}")`, `c = hw.decode_candidates(model, "{device}", '
        f'"{form}", gpus=(1, 2, 4, 8, 16), '
        f"batch=2 ** np.arange(11), input_tokens={prompt}, output_tokens={answer})` has every "
        "layout with 1 to 1024 sequences in "
        "flight. (a) How many tokens/s does a GPU make at most if every user gets at least "
        f"{low} tokens/s? (b) And at least "
        f"{high}? (c) How many GPUs has the candidate of (b), and (d) how many sequences in "
        "flight? Answer (a), (b), (c) and (d) "
        "in this order."
    )


@functools.cache
def _found(model, device, form, prompt, answer):
    return decode_candidates(
        config.load(model), device, form, input_tokens=prompt, output_tokens=answer, **SEARCHED
    )


def _design(
    low,
    high,
    *,
    fits=True,
    promised=True,
    best="gpu_rate",
    told=lambda c, i, promise: c["gpu_rate"][i],
    **given,
):
    """(rates with the lower and the higher promise [token/s], GPUs and sequences of the second);
    the keywords stand in.
    """
    c, chosen = _found(**given), []
    c = c | {"worker_rate": c["gpu_rate"] * c["gpus"]}
    for promise in (low, high):
        good = (c["fits"] | (not fits)) & (c["user_rate"] >= promise * promised)
        chosen.append(int(np.argmax(np.where(good, c[best], -1.0))))
    rates = (float(told(c, i, promise)) for i, promise in zip(chosen, (low, high), strict=True))
    return *rates, float(c["gpus"][chosen[1]]), float(c["batch"][chosen[1]])


def _fits_forgotten(**given):
    """This does not fit into memory. Look at `fits` before you compare."""
    return unless(_design(**given), _design(**given, fits=False))


def _fastest_user(**given):
    """This is the fastest candidate for a user. The promise is kept already; now look for the most
    tokens/s of a GPU.
    """
    return _design(**given, best="user_rate")


def _promise_forgotten(**given):
    """This makes the most tokens with a GPU and does not look at its users. Keep those that get
    what was promised.
    """
    return unless(_design(**given), _design(**given, promised=False))


def _largest_worker(**given):
    """This is the best candidate if all tokens of a worker are compared. Count them for each of its
    GPUs.
    """
    return unless(_design(**given), _design(**given, best="worker_rate"))


def _rate_of_the_worker(**given):
    """These are the tokens/s of all GPUs of the worker. Divide each by its own number of GPUs."""
    return _design(**given, told=lambda c, i, promise: c["worker_rate"][i])


def _promise_for_rate(**given):
    """The users seem to get no more than the promise. The candidate is faster than that, so its
    GPUs make more.
    """
    return _design(**given, told=lambda c, i, promise: promise * c["batch"][i] / c["gpus"][i])


def _rate_of_a_user(**given):
    """These are the rates of a user. The question asks for those of a GPU."""
    return _design(**given, told=lambda c, i, promise: c["user_rate"][i])


_DESIGN = Exercise(
    id="0.5",
    variants=_NUMBERS_5,
    text=_text_design,
    solve=_design,
    parts=("Rate (a)", "Rate (b)", "GPUs", "Sequences"),
    units=("token/s", "tokens/s", "GPU", "GPUs", "sequence", "sequences"),
    asks="four numbers: (a) and (b) tokens/s, (c) GPUs, (d) sequences",
    tolerance=0.01,
    why="With slow users memory decides how many run at a time, with fast ones the promise does.",
    hints=(
        "Which candidates may be chosen at all? Which two columns tell? Among those, which "
        "column is to be as large as possible?",
        '`good = c["fits"] & (c["user_rate"] >= promise)`, then `i = np.where(good, '
        'c["gpu_rate"], -1).argmax()`. '
        "`hw.candidate_text(c, i)` says which candidate it is.",
    ),
    mistakes=(
        _fits_forgotten,
        _fastest_user,
        _promise_forgotten,
        _largest_worker,
        _rate_of_the_worker,
        _promise_for_rate,
        _rate_of_a_user,
    ),
)

EXERCISES = (_LOG, _LINE, _OFFERS, _POOLS, _DESIGN)
