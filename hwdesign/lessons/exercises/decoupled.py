"""The exercises of chapter 7. As in chapter 1, the numbers of a question are typed and everything
else is computed.
"""

import functools

import numpy as np

from hwdesign.catalogue.precision import precision as as_precision
from hwdesign.formulas.cache_parallel import (
    STATISTICS_BYTES,
    break_even_tokens,
    merge_bytes,
    merge_partials,
)
from hwdesign.formulas.tiling import head_sharding
from hwdesign.lessons.exercises.base import Exercise, unless, variants
from hwdesign.models import config
from hwdesign.timing.layouts import best_steps, decode_sweep


def _form(name):
    """A format and its bytes, for the text of a question."""
    form = as_precision(name)
    return f"{form.label} ({form.bytes:g} byte{'' if form.bytes == 1 else 's'} a number)"


# 7.1
# --------------------------------------------------------------------------------------------------

# No key-value heads: a latent of that size. As many query heads share a key-value head as there are
# copies in no variant.
_NUMBERS_1 = variants(
    "layers heads kv_heads size ways tokens form",
    (48, 32, 4, 128, 16, 262144, "bf16"),
    (94, 64, 4, 128, 32, 131072, "fp8"),
    (61, 128, 0, 576, 16, 262144, "fp8"),
    (80, 64, 8, 128, 4, 131072, "fp8"),
    (36, 32, 2, 64, 8, 1048576, "bf16"),
    (126, 128, 8, 128, 32, 524288, "fp8"),
    (60, 64, 0, 288, 8, 500000, "bf16"),
)


def _text_copies(layers, heads, kv_heads, size, ways, tokens, form):
    heads_told = (
        f"{kv_heads} key-value heads of {size} numbers",
        "keys and values",
        "each key-value head",
    )
    latent_told = (
        f"one latent of {size} numbers for all of them",
        "the latents",
        "the latent of a token",
    )
    whose, kept, it = heads_told if kv_heads else latent_told
    return (
        f"A model has {layers} layers with {heads} query heads and {whose}. It keeps {kept} in "
        f"{_form(form)}. {ways} GPUs share "
        f"attention by tensor parallelism alone. (a) On how many GPUs does {it} lie? (b) How "
        "many gigabytes of a sequence of "
        f"{tokens} tokens does each GPU keep? Answer (a) first, then (b)."
    )


def _copies(layers, heads, kv_heads, size, ways, tokens, form, *, held=None, factor=1.0):
    """(copies, gigabytes on a GPU); `held` stands in for the key-value heads of a GPU, `factor` for
    lost or doubled bytes.
    """
    held = np.ceil(max(kv_heads, 1) / ways) if held is None else held
    a_token = layers * held * size * (2 if kv_heads else 1) * as_precision(form).bytes
    return head_sharding(heads, max(kv_heads, 1), ways)[1], float(factor * a_token * tokens / 1e9)


def _divided_evenly(kv_heads, ways, **given):
    """The cache seems to be divided by all GPUs. Half a head cannot be given away: where heads run
    out, copies begin.
    """
    value = 1.0, _copies(kv_heads=kv_heads, ways=ways, **given, held=max(kv_heads, 1) / ways)[1]
    return unless(_copies(kv_heads=kv_heads, ways=ways, **given), value)


def _all_heads(kv_heads, ways, **given):
    """Each GPU seems to keep all key-value heads. It needs those that its query heads look at."""
    value = float(ways), _copies(kv_heads=kv_heads, ways=ways, **given, held=max(kv_heads, 1))[1]
    return unless(_copies(kv_heads=kv_heads, ways=ways, **given), value)


def _query_heads(heads, kv_heads, ways, **given):
    """Keys and values seem to be kept for each query head. Several query heads share one key-value
    head.
    """
    return (
        (1.0, _copies(heads=heads, kv_heads=kv_heads, ways=ways, **given, held=heads / ways)[1])
        if kv_heads
        else None
    )


def _group_for_copies(heads, kv_heads, **given):
    """So many query heads share one. The question asks on how many GPUs it lies."""
    return heads / max(kv_heads, 1), _copies(heads=heads, kv_heads=kv_heads, **given)[1]


def _half_of_the_bytes(**given):
    """These are half of the gigabytes. Count a key and a value for a head, and the bytes of a
    number.
    """
    return _copies(**given, factor=0.5)


def _twice_the_bytes(**given):
    """These are twice the gigabytes. Look at the bytes of a number; and a latent serves as key and
    as value at once.
    """
    return _copies(**given, factor=2.0)


def _one_layer(layers, **given):
    """This is the cache of one layer. Every layer keeps its own."""
    return _copies(layers=1, **given)


def _of_all_gpus(ways, **given):
    """This is what all GPUs keep together, copies included. The question asks for one of them."""
    return _copies(ways=ways, **given, factor=ways)


_COPIES = Exercise(
    id="7.1",
    variants=_NUMBERS_1,
    text=_text_copies,
    solve=_copies,
    parts=("Copies", "Cache"),
    units=("GB", "GB", "gigabyte", "gigabytes", "GPU", "GPUs", "copy", "copies"),
    slips=("factor 1000",),
    asks="two numbers: (a) GPUs, (b) GB",
    why="From one key-value head a GPU on, more GPUs keep more copies, and each of them keeps "
    "as much as before.",
    hints=(
        "Which query heads has one GPU? Which keys and values do they look at?",
        "There are as many copies as GPUs over key-value heads, and at least one; a latent is "
        "on all GPUs. (7.1) and (7.2) have "
        "the bytes that a GPU keeps of a token in a layer.",
    ),
    mistakes=(
        _divided_evenly,
        _all_heads,
        _query_heads,
        _group_for_copies,
        _half_of_the_bytes,
        _twice_the_bytes,
        _one_layer,
        _of_all_gpus,
    ),
)


# 7.2 ----------------------------------------------------------------------------------------------

# Whole sums, so that each piece can be thought of as that many tokens with equal scores.
_NUMBERS_2 = variants(
    "pieces",
    (((6, 1, 80), (4, 12, 30), (3, 40, 12)),),
    (((1, 4, 40), (3, 2, 16)),),
    (((4, 2, 64), (-np.inf, 0, 0), (2, 10, 16)),),
    (((5, 2, 60), (3, 20, 16), (4, 3, 120)),),
    (((-1, 9, 15), (-3, 50, 70)),),
    (((3, 1, 20), (0, 15, 100), (1, 8, 44)),),
    (((2, 5, 24), (5, 1, 75), (3, 4, 6)),),
    (((2, 3, 10), (4, 1, 45)),),
)


def _text_merge(pieces):
    named = [f"({', '.join(map(str, piece))})".replace("-inf", r"$-\infty$") for piece in pieces]
    empty = r" The query sees no token of the piece with $m_i = -\infty$." * any(
        np.isinf(piece[0]) for piece in pieces
    )
    return (
        f"{('Two', 'Three')[len(pieces) - 2]} GPUs hold pieces of a sequence, and a query "
        "attends to each. By (7.4) they find "
        rf"$(m_i, l_i, o_i)$ = {', '.join(named[:-1])} and {named[-1]}, "
        f"where $o_i$ is one number of the output.{empty} "
        "What is "
        "this number after the merge?"
    )


def _merge(pieces):
    """The merged number."""
    tops, totals, outputs = np.array(pieces, float).T
    return float(merge_partials(tops[:, None], totals[:, None], outputs[:, None, None])[2][0, 0])


def _mean(pieces, weight):
    """Mean of the outputs under other weights, a function of maximum and sum; None where it is no
    number.
    """
    tops, totals, outputs = np.array(pieces, float).T
    with np.errstate(over="ignore", invalid="ignore"):
        weights = weight(tops, totals)
        value = float((weights * outputs).sum() / weights.sum())
    return value if np.isfinite(value) else None


def _plain_mean(pieces):
    """This is the plain mean of the outputs. Each piece counts with its weight."""
    return _mean(pieces, lambda tops, totals: np.ones_like(tops))


def _sums_alone(pieces):
    """The weights seem to be the sums alone. Each sum is relative to the maximum of its own
    piece.
    """
    return _mean(pieces, lambda tops, totals: totals)


def _maxima_alone(pieces):
    """The weights seem to be powers of the maxima alone. A piece with many tokens near its maximum
    weighs more.
    """
    return _mean(pieces, lambda tops, totals: np.exp(tops))


def _largest_alone(pieces):
    """This is the output of the piece with the largest maximum. The others have some weight,
    too.
    """
    return float(max(pieces)[2])


def _sign_of_the_difference(pieces):
    """The difference of the maxima seems to have the other sign. A piece with a lower maximum
    weighs less for it.
    """
    return _mean(pieces, lambda tops, totals: totals * np.exp(-tops))


def _base_2(pieces):
    """The weights seem to be powers of 2. These sums were made with powers of e."""
    return _mean(pieces, lambda tops, totals: totals * 2.0**tops)


def _weighted_sum(pieces):
    """This is the weighted sum of the outputs. Divide it by the sum of the weights."""
    tops, totals, outputs = np.array(pieces, float).T
    return float((totals * np.exp(tops - tops.max()) * outputs).sum())


def _outputs_taken_for_sums(pieces):
    """The outputs seem to be taken for sums over a piece. They are means within it, so each counts
    with its whole weight.
    """
    return _mean(
        [(m, n, o / max(n, 1)) for m, n, o in pieces], lambda tops, totals: totals * np.exp(tops)
    )


_MERGE = Exercise(
    id="7.2",
    variants=_NUMBERS_2,
    text=_text_merge,
    solve=_merge,
    units=("number", "numbers"),
    asks="a number",
    tolerance=0.01,
    why="A piece weighs what all its tokens weigh together, so many tokens with low scores can "
    "outweigh one with a high score.",
    hints=(
        "How much would one token of each piece weigh, beside a token with the largest of all "
        "scores?",
        "Subtract the largest maximum from each maximum, take powers of e, and multiply by the "
        "sums: these are the weights of "
        "(7.5). `merge_partials` checks the result.",
    ),
    mistakes=(
        _plain_mean,
        _sums_alone,
        _maxima_alone,
        _largest_alone,
        _sign_of_the_difference,
        _base_2,
        _weighted_sum,
        _outputs_taken_for_sums,
    ),
)


# 7.3 ----------------------------------------------------------------------------------------------

# No key-value heads: a latent, of which `size` numbers stand for values, and 64 more. Floor and
# wire both count.
_NUMBERS_3 = variants(
    "heads kv_heads size ways pieces users tokens layers floor rate",
    (64, 4, 128, 2, 4, 64, 131072, 94, 25, 50),
    (64, 8, 128, 8, 4, 96, 262144, 80, 20, 25),
    (32, 2, 128, 2, 8, 96, 1048576, 52, 18, 50),
    (128, 0, 512, 1, 8, 32, 131072, 61, 22, 200),
    (64, 8, 64, 4, 2, 256, 65536, 36, 15, 40),
    (128, 8, 128, 4, 16, 48, 524288, 126, 36, 100),
)


def _text_exchange(heads, kv_heads, size, ways, pieces, users, tokens, layers, floor, rate):
    values = f"{kv_heads} key-value heads of {size} numbers"
    values = (
        values
        if kv_heads
        else f"one latent of {size + 64} numbers, of which {size} stand for values"
    )
    shared = f" and share the heads {ways} ways" if ways > 1 else ""
    return (
        f"A model has {layers} layers with {heads} query heads over {values}. {pieces * ways} "
        "GPUs cut each sequence into "
        f"{pieces} pieces{shared}. {users} users with {tokens} tokens each are in flight. "
        "Outputs are exchanged in BF16, and "
        "$m_i$ and $l_i$ in FP32. (a) How many kilobytes does a GPU send in the exchange of "
        "one layer? (b) An exchange takes "
        f"{floor} µs plus the time to send these bytes at {rate} GB/s. How many milliseconds "
        "do the exchanges of a step "
        "take? Answer (a) first, then (b)."
    )


def _exchange(
    heads,
    kv_heads,
    size,
    ways,
    pieces,
    users,
    tokens,
    layers,
    floor,
    rate,
    *,
    element=2.0,
    factor=1.0,
):
    """(kilobytes sent in a layer, milliseconds in a step); the keywords stand in."""
    sent = factor * merge_bytes(users, heads // ways, size, pieces, element)
    return float(sent / 1e3), float(layers * (floor * 1e-6 + sent / (rate * 1e9)) * 1e3)


def _statistics_forgotten(size, **given):
    """The maxima and sums seem to be forgotten. Without them, 8 bytes a head, nothing can be
    merged.
    """
    value = _exchange(size=size, **given, factor=2 * size / (2 * size + STATISTICS_BYTES))
    return unless(_exchange(size=size, **given), value, 0.02)


def _own_share_sent(pieces, **given):
    """All that a GPU has computed seems to be sent. It keeps the share of the heads that it merges
    itself.
    """
    return _exchange(pieces=pieces, **given, factor=pieces / (pieces - 1))


def _one_receiver(pieces, **given):
    """This goes to one receiver. Each of the other pieces of these heads gets as much."""
    return unless(
        _exchange(pieces=pieces, **given),
        _exchange(pieces=pieces, **given, factor=1 / (pieces - 1)),
    )


def _all_query_heads(ways, **given):
    """A GPU seems to have all query heads. Tensor parallelism gives it some of them."""
    return unless(_exchange(ways=ways, **given), _exchange(ways=ways, **given, factor=ways))


def _key_value_heads(heads, kv_heads, **given):
    """There seems to be an output for each key-value head. Each query head has one of its own."""
    return (
        _exchange(heads=heads, kv_heads=kv_heads, **given, factor=kv_heads / heads)
        if kv_heads
        else None
    )


def _whole_latent(kv_heads, size, **given):
    """The whole latent seems to be sent. Only the part that stands for values is averaged; the rest
    serves the scores.
    """
    factor = (2 * size + 128 + STATISTICS_BYTES) / (2 * size + STATISTICS_BYTES)
    return None if kv_heads else _exchange(kv_heads=kv_heads, size=size, **given, factor=factor)


def _outputs_in_fp32(**given):
    """The outputs seem to have 4 bytes a number. They are sent in BF16; FP32 are the maxima and
    sums alone.
    """
    return _exchange(**given, element=4.0)


def _one_user(users, **given):
    """This is the exchange for one user. Each user adds a token in every step."""
    return _exchange(users=1, **given)


def _context_counted(tokens, **given):
    """The cached tokens seem to be counted. A piece has one output a head and user, however many
    tokens it holds.
    """
    return _exchange(tokens=tokens, **given, factor=tokens)


def _exchange_of_one_layer(layers, **given):
    """The time is that of one layer. Each layer of the step has an exchange."""
    kilobytes, time = _exchange(layers=layers, **given)
    return kilobytes, time / layers


def _bytes_alone(**given):
    """The fixed time of an exchange seems to be left out. It passes in every layer, however little
    is sent.
    """
    return _exchange(**given)[0], _exchange(**given | {"floor": 0})[1]


def _floor_alone(**given):
    """The bytes seem to take no time. Here they take a part of it that counts."""
    return _exchange(**given)[0], _exchange(**given | {"rate": np.inf})[1]


_EXCHANGE = Exercise(
    id="7.3",
    variants=_NUMBERS_3,
    text=_text_exchange,
    solve=_exchange,
    parts=("Bytes", "Time"),
    units=("kB", "kB", "KB", "kilobyte", "kilobytes", "ms", "millisecond", "milliseconds"),
    slips=("factor 1000",),
    asks="two numbers: (a) kB, (b) ms",
    tolerance=0.01,
    why="The context is not in it: a user with a million cached tokens costs no more to merge "
    "than one with a thousand.",
    hints=(
        "How many outputs has a GPU computed when it is done with its piece? Which of them "
        "does it merge itself?",
        "(7.6) has the bytes, with the query heads of one GPU. The time of an exchange is the "
        "fixed time and bytes over rate; a "
        "step has one in each layer.",
    ),
    mistakes=(
        _statistics_forgotten,
        _own_share_sent,
        _one_receiver,
        _all_query_heads,
        _key_value_heads,
        _whole_latent,
        _outputs_in_fp32,
        _one_user,
        _context_counted,
        _exchange_of_one_layer,
        _bytes_alone,
        _floor_alone,
    ),
)


# 7.4 ----------------------------------------------------------------------------------------------

# At least 3 copies, so that the share that is saved is not the one that is left. No key-value
# heads: a latent of that size.
_NUMBERS_4 = variants(
    "kv_heads size form gpus bandwidth micro users tokens",
    (4, 128, "fp8", 16, 8, 30, 3, 1048576),
    (0, 576, "fp8", 8, 8, 35, 6, 262144),
    (1, 256, "bf16", 8, 4.8, 45, 3, 131072),
    (8, 128, "fp8", 64, 8, 36, 6, 524288),
    (4, 128, "bf16", 32, 3.35, 50, 7, 131072),
    (0, 288, "bf16", 4, 1.8, 120, 3, 262144),
)


def _text_pays(kv_heads, size, form, gpus, bandwidth, micro, users, tokens):
    heads = f"{kv_heads} key-value head{'s' if kv_heads > 1 else ''} of {size} numbers"
    whose, share = (
        (heads, "one head of one piece")
        if kv_heads
        else (f"one latent of {size} numbers for all heads", "one piece")
    )
    return (
        f"A model has {whose}, cached in {_form(form)}. {gpus} GPUs read their memory at "
        f"{bandwidth} TB/s. With tensor "
        "parallelism alone they store copies. Now they cut each sequence, so that each GPU "
        f"has {share} and nothing is stored "
        f"twice. Each layer then has an exchange of {micro} µs, and all else takes as long as "
        "before. (a) From how many tokens "
        "in flight on does the cut pay? (b) By how many microseconds does it shorten a layer "
        f"with {users} users of {tokens} "
        "tokens each? Answer (a) first, then (b)."
    )


def _pays(
    kv_heads, size, form, gpus, bandwidth, micro, users, tokens, *, saved=None, cache=1.0, cost=1.0
):
    """(tokens in flight, microseconds saved); the keywords stand in for the share saved, the bytes
    and the exchange in (b).
    """
    pieces = gpus // max(kv_heads, 1)
    a_token = cache * size * (2 if kv_heads else 1) * as_precision(form).bytes
    least = break_even_tokens(micro * 1e-6, a_token, bandwidth * 1e12, pieces)
    least *= 1.0 if saved is None else (1 - 1 / pieces) / saved
    return float(least), float(micro * (users * tokens / least - cost))


def _pieces(kv_heads, gpus, **_):
    return gpus // max(kv_heads, 1)


def _all_is_saved(**given):
    """The cut seems to save the whole time of the cache. Each GPU still reads its own piece."""
    return _pays(**given, saved=1.0)


def _left_for_saved(**given):
    """This share is what a GPU still reads. The cut saves the rest."""
    return _pays(**given, saved=1 / _pieces(**given))


def _gpus_for_pieces(gpus, **given):
    """There seem to be as many pieces as GPUs. The key-value heads are still shared: a sequence has
    one piece for each copy.
    """
    return unless(_pays(gpus=gpus, **given), _pays(gpus=gpus, **given, saved=1 - 1 / gpus))


def _all_heads_read(kv_heads, **given):
    """A GPU seems to read all key-value heads. Without the cut it has one of them, and with it one,
    too.
    """
    return _pays(kv_heads=kv_heads, **given, cache=kv_heads) if kv_heads > 1 else None


def _no_copies(**given):
    """Tensor parallelism seems to divide the cache by all GPUs already. Then there were no copies
    and nothing to save.
    """
    return _pays(**given, cache=1 / _pieces(**given))


def _half_of_a_token(**given):
    """A token seems to take half of its bytes. Count a key and a value for a head, and the bytes of
    a number.
    """
    return _pays(**given, cache=0.5)


def _tokens_of_each(users, **given):
    """The first number is for each user. The question asks for all tokens in flight."""
    least, time = _pays(users=users, **given)
    return least / users, time


def _exchange_for_free(**given):
    """The second number is the time that reading saves. The exchange takes some of it back."""
    return _pays(**given, cost=0.0)


def _time_of_the_cut(**given):
    """The second number is what reading and the exchange take with the cut. The question asks for
    the time saved.
    """
    least, read = _pays(**given, cost=0.0)
    return least, read / (_pieces(**given) - 1) + given["micro"]


_PAYS = Exercise(
    id="7.4",
    variants=_NUMBERS_4,
    text=_text_pays,
    solve=_pays,
    parts=("Tokens", "Time"),
    units=("token", "tokens", "µs", "microsecond", "microseconds"),
    slips=("factor 1000",),
    asks="two numbers: (a) tokens, (b) µs",
    why="What counts is the product of users and context: few users need long contexts, many "
    "are content with short ones.",
    hints=(
        "How many copies are there without the cut, so how many pieces with it? Which share of "
        "its reading does a GPU save?",
        "(7.7), with the bytes of one key-value head or of the latent. For (b) take the time "
        "to read the bytes of all tokens in "
        "flight, times the share that is saved, less the exchange.",
    ),
    mistakes=(
        _all_is_saved,
        _left_for_saved,
        _gpus_for_pieces,
        _all_heads_read,
        _no_copies,
        _half_of_a_token,
        _tokens_of_each,
        _exchange_for_free,
        _time_of_the_cut,
    ),
)


# 7.5 ----------------------------------------------------------------------------------------------

NAMES = {
    "deepseek-r1": "DeepSeek-R1",
    "qwen3-235b-a22b": "Qwen3-235B-A22B",
    "llama-3.1-70b": "Llama-3.1-70B",
}
USERS = np.arange(1, 65)
# No step, with as many users as can be served or one more, is within 2 % of the limit.
_NUMBERS_5 = variants(
    "model gpus context speed",
    ("deepseek-r1", 8, 1048576, 75),
    ("deepseek-r1", 8, 524288, 88),
    ("qwen3-235b-a22b", 8, 1048576, 57),
    ("qwen3-235b-a22b", 16, 1048576, 77),
    ("llama-3.1-70b", 16, 1048576, 66),
    ("llama-3.1-70b", 16, 524288, 116),
)


def _text_design(model, gpus, context, speed):
    return (
        f"{NAMES[model]} decodes in NVFP4 with an FP8 cache on {gpus} GB300s. Each user has "
        f"{context} tokens in the cache and "
        f'must get at least {speed} tokens/s. With `model = hw.Model.from_config("{model}")`, '
        "`sweep = hw.decode_sweep(model, "
        f'"GB300", "nvfp4", batch=np.arange(1, 65), context={context}, gpus=({gpus},), '
        'engine="trtllm")` has every layout for 1 to 64 users, and '
        "`hw.best_steps(sweep, allowed)` gives the fastest one that fits, and its time, for "
        "each number of users; `allowed` says "
        'yes or no to each layout. `sweep["kinds"]` is "cache" where sequences are cut. How '
        "many users can be served at most (a) "
        "without a cut, (b) with any layout? Answer (a) first, then (b)."
    )


@functools.cache
def _sweep(model, gpus, context):
    return decode_sweep(
        config.load(model),
        "GB300",
        "nvfp4",
        batch=USERS,
        context=context,
        gpus=(gpus,),
        engine="trtllm",
    )


def _served(model, gpus, context, speed, *, free=(), only=None):
    """(most users without a cut, with any layout); `free` terms take no time, `only` some layouts
    are tried.
    """
    sweep, found = _sweep(model, gpus, context), []
    sweep = sweep | {
        "seconds": np.array(
            [s.seconds - sum(s.terms.get(term, 0.0) for term in free) for s in sweep["steps"]]
        )
    }
    for allowed in (sweep["kinds"] != "cache", sweep["kinds"] != ""):
        allowed = allowed if only is None else allowed & only(sweep)
        found.append(
            float(np.max(USERS, where=best_steps(sweep, allowed)[1] * speed <= 1, initial=0))
        )
    return tuple(found)


def _exchanges_left_out(**given):
    """Without the exchanges this would be right. They are a term of the steps, "communication"."""
    return unless(_served(**given), _served(**given, free=("communication",)))


def _memory_alone(speed, **given):
    """So many fit into memory. With fewer users each of them is served faster; look at the times,
    too.
    """
    value = _served(speed=0.0, **given)
    return value if max(value) < USERS[-1] else None


def _one_too_many(**given):
    """With one user more than can be served, every step is too slow. Look at the last number that
    is within the limit.
    """
    return tuple(value + 1 for value in _served(**given))


def _tensor_parallel_alone(**given):
    """Without a cut this is tensor parallelism alone. Groups of GPUs with users of their own are no
    cut, and serve more.
    """
    tensor, served = (
        _served(**given, only=lambda sweep: sweep["kinds"] == "tensor")[0],
        _served(**given),
    )
    return unless(served, (tensor, served[1]))


def _cut_not_tried(**given):
    """The second number is without a cut, too. With a cut more users can be served."""
    return unless(_served(**given), 2 * _served(**given)[:1])


def _always_cut(**given):
    """The second number is of cut layouts alone. Any layout may be taken, and here one without a
    cut is better.
    """
    cut, served = (
        _served(**given, only=lambda sweep: sweep["kinds"] == "cache")[1],
        _served(**given),
    )
    return unless(served, (served[0], cut))


def _answers_exchanged(**given):
    """The two numbers are exchanged. (a) is the one without a cut."""
    return unless(_served(**given), _served(**given)[::-1])


_DESIGN = Exercise(
    id="7.5",
    variants=_NUMBERS_5,
    text=_text_design,
    solve=_served,
    parts=("Without a cut", "Any layout"),
    units=("user", "users", "sequence", "sequences"),
    asks="two numbers of users: (a) without a cut, (b) with any layout",
    tolerance=0.0,
    why="A cut serves more where few users want a high speed at long contexts, and where a GPU "
    "would keep copies without it.",
    hints=(
        "How long may a step take at this speed? For each number of users, how long does the "
        "fastest layout take?",
        '`hw.best_steps(sweep, np.isin(sweep["kinds"], ["tensor", "data"]))[1]` are the times '
        "without a cut. Look for the most "
        "users whose time is at most 1 over the speed. Then allow all layouts.",
    ),
    mistakes=(
        _exchanges_left_out,
        _memory_alone,
        _one_too_many,
        _tensor_parallel_alone,
        _cut_not_tried,
        _always_cut,
        _answers_exchanged,
    ),
)

EXERCISES = (_COPIES, _MERGE, _EXCHANGE, _PAYS, _DESIGN)
