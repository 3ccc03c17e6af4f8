"""The exercises of chapter 6. As in chapter 1, the numbers of a question are typed and everything
else is computed.
"""

import numpy as np

from hwdesign.formulas.chunks import best_chunks, chunk_times
from hwdesign.formulas.collectives import all_reduce_bytes
from hwdesign.formulas.pipeline import bubble_overhead, pipeline_time, split_layers
from hwdesign.lessons.exercises.base import Exercise, unless, variants

# 6.1
# --------------------------------------------------------------------------------------------------

# Fewer than 40 steps, so that one step more is seen.
_NUMBERS_1 = variants(
    "stages chunks seconds",
    (4, 16, 32),
    (8, 24, 48),
    (16, 20, 90),
    (6, 18, 24),
    (4, 8, 12),
    (12, 24, 60),
    (3, 10, 15),
)


def _text_equal(stages, chunks, seconds):
    return (
        f"One GPU needs {seconds} s until the first token of a long prompt. Now {stages} GPUs "
        "form a pipeline of equal stages, "
        f"and the prompt comes in {chunks} equal chunks. Handing a chunk over takes no time. "
        "(a) After how many seconds does the "
        "first token come? (b) Which share of that time does each GPU idle? Answer (a) first, "
        "then (b)."
    )


def _equal(stages, chunks, seconds, *, idle=None):
    """(time to first token [s], share of it that a stage idles); `idle` stands in for the steps in
    which a stage waits.
    """
    idle = stages - 1 if idle is None else idle
    return float(seconds / (stages * chunks) * (chunks + idle)), float(idle / (chunks + idle))


def _overhead_for_share(**given):
    """This is idle time over working time, the bubble overhead. The question asks for a share of
    all time, (6.2) on the left.
    """
    time, idle = _equal(**given)
    return time, idle / (1 - idle)


def _no_bubble(**given):
    """This is a pipeline that never waits. The last stage has no chunk until the stages before it
    have handed one over.
    """
    return _equal(**given, idle=0)


def _one_step_too_many(stages, **given):
    """The last stage seems to wait P steps for its first chunk. It waits for the P - 1 stages
    before it.
    """
    return _equal(stages, **given, idle=stages)


def _filled_and_drained(stages, **given):
    """The bubble seems to be counted at the start and at the end. A stage waits P - 1 steps in all,
    some before, some after.
    """
    return _equal(stages, **given, idle=2 * (stages - 1))


def _all_layers_in_a_step(stages, **given):
    """A step seems to take as long as a chunk in all layers. A stage has one part in P of them."""
    time, idle = _equal(stages, **given)
    return stages * time, idle


def _one_chunk_at_a_time(stages, chunks, seconds):
    """A chunk seems to enter when the one before has left the pipeline. It enters when the first
    stage is free.
    """
    return _equal(stages, chunks, seconds, idle=(stages - 1) * chunks)


def _per_cent_without_a_sign(**given):
    """The share seems to be in per cent. Write 20 % or 0.2."""
    time, idle = _equal(**given)
    return time, 100 * idle


_EQUAL = Exercise(
    id="6.1",
    variants=_NUMBERS_1,
    text=_text_equal,
    solve=_equal,
    parts=("Time", "Share"),
    units=("second", "seconds", "s"),
    slips=("factor 1000",),
    asks="two numbers: (a) seconds, (b) a share",
    why="The bubble is as long as P - 1 steps, and a step gets shorter with each chunk more.",
    hints=(
        "How long does one stage work on one chunk? And how many such steps pass until the "
        "last chunk leaves the last stage?",
        "The last stage waits P - 1 steps and then works C. A step is the time of one GPU over "
        "P times C. The share is (6.2), on "
        "the left. `bubble_share` checks it.",
    ),
    mistakes=(
        _overhead_for_share,
        _no_bubble,
        _one_step_too_many,
        _filled_and_drained,
        _all_layers_in_a_step,
        _one_chunk_at_a_time,
        _per_cent_without_a_sign,
    ),
)


# 6.2 ----------------------------------------------------------------------------------------------

_NUMBERS_2 = variants(
    "micro nano tokens chunks stages",
    (40, 1.5, 120000, 8, 4),
    (35, 1.5, 262144, 10, 8),
    (45, 5.7, 131072, 10, 8),
    (30, 1.2, 65536, 6, 4),
    (20, 2, 100000, 8, 6),
    (50, 0.6, 200000, 9, 8),
    (60, 3, 50000, 5, 3),
)


def _text_growing(micro, nano, tokens, chunks, stages):
    return (
        f"In all layers together a token takes $a$ = {micro} µs, and $b$ = {nano} ns for each "
        "token that it sees. A prompt of "
        f"{tokens} tokens passes a pipeline of {stages} equal stages in {chunks} chunks. "
        "Handing a chunk over takes no time. "
        "After how many seconds does the first token come (a) with chunks of equal size, (b) "
        "with chunks of equal time? (c) How "
        "many tokens has the last of the chunks of equal time? Answer (a), (b) and (c) in this "
        "order."
    )


def _growing(micro, nano, tokens, chunks, stages, *, idle=None, late=0.0, end=None):
    """(times with equal sizes and equal times [s], tokens of a chunk of equal time); the keywords
    stand in.

    `idle` is the stages that the bubble counts, `late` the part of a chunk that its tokens seem to
    see besides, `end` the chunk.
    """
    a, b, size, end = micro * 1e-6, nano * 1e-9, tokens / chunks, end or chunks
    times = chunk_times(np.full(chunks, size), a, b)
    idle = stages - 1 if idle is None else idle
    done = np.array([end - 1, end]) / chunks * times.sum()
    first, last = 2 * done / (a + np.sqrt(a * a + 2 * b * done))  # (6.7)
    longest = times.max() + late * b * size**2
    return (
        float((times.sum() + idle * longest) / stages),
        float((times.sum() + idle * times.mean()) / stages),
        float(last - first),
    )


def _mean_chunk(**given):
    """The bubble of equal sizes seems to be that of the mean chunk. All stages wait for the last
    chunk, which takes longest.
    """
    _, even, tokens = _growing(**given)
    return even, even, tokens


def _all_the_prompt_for_the_last(**given):
    """All tokens of the last chunk seem to see the whole prompt. On average they see half a chunk
    less.
    """
    return _growing(**given, late=0.5)


def _own_chunk_not_seen(**given):
    """A token seems to see the chunks before alone. It also sees half of its own chunk on
    average.
    """
    return _growing(**given, late=-0.5)


def _attention_twice(nano, **given):
    """Each token seems to see the whole prompt. On average it sees half of it."""
    return _growing(nano=2 * nano, **given)


def _attention_left_out(nano, **given):
    """Attention seems to be left out. Late tokens see many others, so they take longer than the
    first ones.
    """
    return _growing(nano=0.0, **given)


def _attention_alone(micro, **given):
    """Only attention seems to be counted. Each token also takes the time a, whatever it sees."""
    return _growing(micro=1e-9, **given)


def _bubble_left_out(**given):
    """These times have no bubble. The last stage waits until the first chunk has passed the stages
    before it.
    """
    return _growing(**given, idle=0)


def _first_for_last(**given):
    """The third number is the first chunk of equal time. The last one is shorter, as its tokens see
    more.
    """
    return _growing(**given, end=1)


def _equal_size_for_last(tokens, chunks, **given):
    """The third number is a chunk of equal size. Of equal times, the last has fewer tokens, as each
    of them takes longer.
    """
    equal, even, _ = _growing(tokens=tokens, chunks=chunks, **given)
    return equal, even, tokens / chunks


_GROWING = Exercise(
    id="6.2",
    variants=_NUMBERS_2,
    text=_text_growing,
    solve=_growing,
    parts=("Equal size", "Equal time", "Last chunk"),
    units=("second", "seconds", "s", "token", "tokens"),
    asks="three numbers: (a) seconds, (b) seconds, (c) tokens",
    tolerance=0.01,
    why="Only the bubble changes with the cut: the longest chunk sets it, and chunks of equal "
    "time make that the mean.",
    hints=(
        "How long does the whole prompt take in one stage? Which chunk do all stages wait for?",
        "(6.6) with the last chunk of (6.5) gives (a), with the mean chunk it gives (b). For "
        "(c) solve (6.7) with i = C - 1: "
        "after that token the last chunk begins.",
    ),
    mistakes=(
        _mean_chunk,
        _all_the_prompt_for_the_last,
        _own_chunk_not_seen,
        _attention_twice,
        _equal_size_for_last,
        _attention_left_out,
        _attention_alone,
        _bubble_left_out,
        _first_for_last,
    ),
)


# 6.3 ----------------------------------------------------------------------------------------------

# The mean, layers in any order, the best split, equal counts and both ways to fill one after the
# other all differ.
_NUMBERS_3 = variants(
    "costs chunks",
    ((6, 6, 8, 3, 6, 3, 6, 3, 3, 3), 12),
    ((2, 2, 4, 7, 7, 2, 2, 7, 2), 10),
    ((4, 4, 7, 7, 1, 1, 4, 7, 1, 4), 11),
    ((9, 9, 4, 2, 2, 2, 2, 4), 8),
    ((7, 5, 5, 3, 7, 3, 5, 5, 3), 10),
    ((2, 2, 8, 2, 2, 3, 8, 8), 14),
    ((8, 8, 2, 2, 2, 2, 8, 2, 1), 16),
)


def _text_split(costs, chunks):
    named = ", ".join(map(str, costs[:-1])) + f" and {costs[-1]}"
    return (
        f"A chunk takes {named} ms in the {len(costs)} layers of a model, in this order. Three "
        "stages hold whole layers that "
        "follow each other, and the layers are split as well as possible. (a) How many "
        "milliseconds does the slowest stage take "
        f"for a chunk? (b) How many milliseconds do {chunks} such chunks take to pass the "
        "pipeline? Handing a chunk over takes "
        "no time. Answer (a) first, then (b)."
    )


def _sums(costs, counts):
    """Time of each stage that holds so many layers."""
    return np.add.reduceat(costs, np.cumsum([0, *counts[:-1]]))


def _split(costs, chunks, *, slowest=None):
    """(slowest stage [ms], time of all chunks [ms]); `slowest` stands in for that of the best
    split.
    """
    slowest = (
        float(_sums(costs, split_layers(costs, 3)).max()) if slowest is None else float(slowest)
    )
    return slowest, float(sum(costs) + (chunks - 1) * slowest)


def _equal_counts(costs, **given):
    """The stages seem to have equally many layers. These layers differ, so count their times."""
    return _split(costs, **given, slowest=_sums(costs, split_layers(np.ones(len(costs)), 3)).max())


def _filled(costs, is_full):
    """Largest stage if one is filled after the other; the last takes what is left."""
    stages = [0]
    for cost in costs:
        if len(stages) < 3 and is_full(stages[-1], cost):
            stages.append(0)
        stages[-1] += cost
    return max(stages)


def _filled_up_to_the_mean(costs, **given):
    """Each stage seems to be closed before it exceeds the mean, and the rest is left to the last.
    Try one layer more in front.
    """
    return _split(
        costs, **given, slowest=_filled(costs, lambda held, cost: held + cost > sum(costs) / 3)
    )


def _filled_beyond_the_mean(costs, **given):
    """Each stage seems to take layers until it has reached the mean. A stage below the mean may
    help the next one more.
    """
    return _split(costs, **given, slowest=_filled(costs, lambda held, cost: held >= sum(costs) / 3))


def _mean_for_slowest(costs, **given):
    """This is the mean of the stages. Layers are whole, and no split in this order reaches it."""
    return _split(costs, **given, slowest=sum(costs) / 3)


def _layers_in_any_order(costs, **given):
    """The layers seem to be sorted into the stages freely. A chunk passes them in order, so a stage
    holds neighbours.
    """
    ways = {(0, 0, 0)}
    for cost in costs:
        ways = {
            tuple(sorted(np.add(way, cost * unit).tolist()))
            for way in ways
            for unit in np.eye(3, dtype=int)
        }
    return _split(costs, **given, slowest=min(map(max, ways)))


def _slowest_everywhere(costs, chunks):
    """All stages seem to take as long as the slowest. The first chunk passes each stage in that
    stage's own time.
    """
    return _split(costs, chunks)[0], (chunks + 2) * _split(costs, chunks)[0]


def _other_stages_left_out(costs, chunks):
    """This is the work of the slowest stage alone. One chunk must also pass the other two."""
    return _split(costs, chunks)[0], chunks * _split(costs, chunks)[0]


def _one_beat_too_many(costs, chunks):
    """The slowest stage seems to be counted once too often. The first chunk's way through all
    stages includes it.
    """
    return _split(costs, chunks)[0], _split(costs, chunks + 1)[1]


def _one_after_the_other(costs, chunks):
    """The chunks seem to pass one after the other. While one is in the second stage, the next is in
    the first.
    """
    return _split(costs, chunks)[0], float(chunks * sum(costs))


_SPLIT = Exercise(
    id="6.3",
    variants=_NUMBERS_3,
    text=_text_split,
    solve=_split,
    parts=("Slowest stage", "All chunks"),
    units=("ms", "ms", "millisecond", "milliseconds"),
    slips=("factor 1000",),
    asks="two numbers of milliseconds: (a) the slowest stage, (b) all chunks",
    tolerance=0.01,
    why="The sum of the stages is the same for all splits; the slowest one counts once for "
    "each further chunk.",
    hints=(
        "No split can beat the mean of the three stages. What is the next larger sum that a "
        "run of neighbours can have?",
        "Choose a limit and fill the stages in order, each as full as the limit allows. If "
        "three suffice, lower the limit. Then "
        "use (6.3). `split_layers` checks the split.",
    ),
    mistakes=(
        _equal_counts,
        _filled_up_to_the_mean,
        _filled_beyond_the_mean,
        _mean_for_slowest,
        _layers_in_any_order,
        _slowest_everywhere,
        _other_stages_left_out,
        _one_beat_too_many,
        _one_after_the_other,
    ),
)


# 6.4 ----------------------------------------------------------------------------------------------

_NUMBERS_4 = variants(
    "layers hidden gpus tokens chunks milliseconds",
    (80, 8192, 8, 8192, 16, 1150),
    (80, 8192, 4, 16384, 16, 2500),
    (32, 4096, 4, 16384, 32, 330),
    (62, 5376, 4, 16384, 8, 810),
    (126, 16384, 16, 32768, 32, 24000),
    (64, 5120, 8, 8192, 8, 520),
)


def _text_link(layers, hidden, gpus, tokens, chunks, milliseconds):
    return (
        f"A model has {layers} layers and $H = {hidden}$ features. A prompt of {tokens} tokens "
        f"takes {milliseconds} ms of work "
        f"on one GPU. {gpus} GPUs share the work equally, by tensor parallelism or in a "
        f"pipeline of {gpus} equal stages with "
        f"{chunks} equal chunks. With tensor parallelism they wait for the sums of (6.9), two "
        "a layer in BF16, and for nothing "
        "else; in the pipeline they wait in the bubble alone. (a) How many gigabytes does a "
        "GPU send for the prompt with tensor "
        "parallelism? (b) At how many GB/s, sent by each GPU, are both equally fast? Answer "
        "(a) first, then (b)."
    )


def _link(
    layers,
    hidden,
    gpus,
    tokens,
    chunks,
    milliseconds,
    *,
    size=all_reduce_bytes,
    bubble=bubble_overhead,
):
    """(gigabytes that a GPU sends, rate at which they take as long as the bubble [GB/s]); the
    keywords stand in.
    """
    sent = 2 * layers * size(2 * hidden, gpus) * tokens / 1e9
    return float(sent), float(sent / (milliseconds * 1e-3 / gpus * bubble(gpus, chunks)))


def _half_of_the_bytes(**given):
    """This is half of the bytes. A layer has two sums, a number has 2 bytes, and a ring sends
    nearly each number twice.
    """
    return _link(**given, size=lambda size, gpus: all_reduce_bytes(size, gpus) / 2)


def _full_ring(**given):
    """Each number seems to be sent twice. In a ring of G GPUs each sends only G - 1 of G parts,
    twice.
    """
    return _link(**given, size=lambda size, gpus: 2 * size)


def _of_all_gpus(gpus, **given):
    """This is what all GPUs send together. They send at the same time, each on its own link."""
    return tuple(gpus * value for value in _link(gpus=gpus, **given))


def _one_layer(layers, **given):
    """These are the sums of one layer. Every layer has two."""
    return _link(layers=1, **given)


def _one_token(tokens, **given):
    """The first number is for one token. The question asks for the whole prompt."""
    sent, rate = _link(tokens=tokens, **given)
    return sent / tokens, rate


def _handed_over(layers, **given):
    """This is what a stage of a pipeline hands over. Tensor parallelism sums up in every layer."""
    return _link(layers=1, **given, size=lambda size, gpus: size / 2)


def _bubble_of_one_gpu(**given):
    """The bubble seems to be that of all the work on one GPU. Each of G GPUs has one part in G of
    it.
    """
    return _link(**given, bubble=lambda gpus, chunks: gpus * bubble_overhead(gpus, chunks))


def _share_for_overhead(**given):
    """The bubble share seems to be taken of the working time. It is a share of all time; of working
    time the overhead is.
    """
    return _link(**given, bubble=lambda gpus, chunks: (gpus - 1) / (chunks + gpus - 1))


def _all_time_for_the_sums(**given):
    """The sums seem to have the whole time of the pipeline. Both ways do the same work; only the
    bubble is left for sums.
    """
    return _link(**given, bubble=lambda gpus, chunks: 1 + bubble_overhead(gpus, chunks))


_LINK = Exercise(
    id="6.4",
    variants=_NUMBERS_4,
    text=_text_link,
    solve=_link,
    parts=("Bytes", "Rate"),
    units=("GB", "GB", "gigabyte", "gigabytes", "GB/s"),
    slips=("factor 1000", "factor 10^6"),
    asks="two numbers: (a) GB, (b) GB/s",
    why="The number of GPUs cancels in the rate: what counts is the time of a token, the "
    "chunks, and layers times features.",
    hints=(
        "Both ways do the same work in the same time. For what does each of them wait besides?",
        "(6.9) has the bytes of a token. The bubble lasts as long as the work of a GPU times "
        "(6.2), on the right. Divide the "
        "bytes by it.",
    ),
    mistakes=(
        _half_of_the_bytes,
        _full_ring,
        _of_all_gpus,
        _one_layer,
        _one_token,
        _handed_over,
        _bubble_of_one_gpu,
        _share_for_overhead,
        _all_time_for_the_sums,
    ),
)


# 6.5 ----------------------------------------------------------------------------------------------

# The next smaller number of stages misses the limit by at least 5 %.
_NUMBERS_5 = variants(
    "layers work fixed limit",
    (60, 60, 150, 10),
    (64, 40, 60, 5.2),
    (80, 24, 20, 2.5),
    (48, 90, 200, 11.3),
    (96, 120, 100, 7.8),
    (36, 16, 80, 3),
    (61, 61, 185, 12),
)


def _text_design(layers, work, fixed, limit):
    return (
        f"A long prompt takes $W$ = {work} s of work on one GPU, and each chunk takes $f$ = "
        f"{fixed} ms besides, in all layers "
        f"together. The {layers} equal layers of the model form a pipeline, one GPU a stage, "
        "and each stage holds equally many. "
        "The prompt comes in any number of chunks that take equal times, and handing over "
        "takes no time. The first token must "
        f"come within {limit:g} s. (a) How many GPUs are needed at least? (b) Which number of "
        "chunks is the best for them? "
        "Answer (a) first, then (b)."
    )


def _wait(work, fixed, stages, chunks):
    """Time to first token [s], (6.8); `fixed` in ms."""
    return float(pipeline_time(np.full(stages, (work / chunks + fixed * 1e-3) / stages), chunks))


def _best(work, fixed, stages):
    """The whole number of chunks that is the best."""
    near = int(best_chunks(work, fixed * 1e-3, stages))
    return min((near, near + 1), key=lambda chunks: _wait(work, fixed, stages, chunks))


def _design(layers, work, fixed, limit, *, wait=None, even=True):
    """(fewest stages within the limit, best number of chunks); the keywords stand in for the right
    ones.
    """
    wait = wait or (lambda stages: _wait(work, fixed, stages, _best(work, fixed, stages)))
    stages = next(p for p in range(1, layers + 1) if not (even and layers % p) and wait(p) <= limit)
    return float(stages), float(_best(work, fixed, stages))


def _work_alone(work, **given):
    """For the work alone this would be enough. The bubble and the fixed times of the chunks come on
    top of it.
    """
    return unless(
        _design(work=work, **given), _design(work=work, **given, wait=lambda stages: work / stages)
    )


def _uneven_stages(**given):
    """This many stages cannot hold equally many layers. The largest one would set the beat for
    all.
    """
    return unless(_design(**given), _design(**given, even=False))


def _too_many(layers, work, fixed, limit):
    """This many GPUs meet the limit. So do fewer, with equally many layers in each stage."""
    larger = (
        p
        for p in range(int(_design(layers, work, fixed, limit)[0]) + 1, layers + 1)
        if layers % p == 0
    )
    return next(((float(p), float(_best(work, fixed, p))) for p in larger), None)


def _fewest_chunks(layers, work, fixed, limit):
    """This many chunks meet the limit. The question asks for the number that brings the first token
    soonest.
    """
    stages = int(_design(layers, work, fixed, limit)[0])
    return float(stages), float(
        next(c for c in range(1, 10**4) if _wait(work, fixed, stages, c) <= limit)
    )


def _other_chunks(factor, given):
    """The right stages, with the best chunks of another formula."""
    stages, chunks = _design(**given)
    return unless((stages, chunks), (stages, float(chunks * factor(stages, chunks))), 0.02)


def _all_stages_wait(**given):
    """The root seems to have P in it. A stage waits for the P - 1 others."""
    return _other_chunks(lambda stages, chunks: np.sqrt(stages / (stages - 1)), given)


def _stages_forgotten(**given):
    """The number of stages seems to be missing under the root. A longer pipeline waits longer, so
    it wants more chunks.
    """
    return _other_chunks(lambda stages, chunks: 1 / np.sqrt(stages - 1), given)


def _root_forgotten(**given):
    """The square root seems to be missing. The bubble falls with the chunks, the fixed times rise:
    they balance at the root.
    """
    return _other_chunks(lambda stages, chunks: chunks, given)


def _fixed_in_each_stage(**given):
    """Each stage seems to pay the whole fixed time of a chunk. It is that of all layers; a stage
    has one part in P.
    """
    return _other_chunks(lambda stages, chunks: 1 / np.sqrt(stages), given)


def _milliseconds_for_seconds(**given):
    """The fixed time seems to be taken in seconds. It is given in milliseconds."""
    return _other_chunks(lambda stages, chunks: 1 / np.sqrt(1000), given)


_DESIGN = Exercise(
    id="6.5",
    variants=_NUMBERS_5,
    text=_text_design,
    solve=_design,
    parts=("GPUs", "Chunks"),
    units=("GPU", "GPUs", "stage", "stages", "chunk", "chunks"),
    asks="two numbers: (a) GPUs, (b) chunks",
    why="The layers decide which pipelines there are: between two divisors of their number, "
    "more GPUs do not help.",
    hints=(
        "Which numbers of stages divide the layers evenly? How long does the first token take "
        "with each, at the best number of "
        "chunks?",
        "(6.8) gives the best number of chunks of each pipeline, and the time. Go through the "
        "divisors in order, and stop at the "
        "first that meets the limit.",
    ),
    mistakes=(
        _work_alone,
        _uneven_stages,
        _too_many,
        _fewest_chunks,
        _all_stages_wait,
        _stages_forgotten,
        _root_forgotten,
        _fixed_in_each_stage,
        _milliseconds_for_seconds,
    ),
)

EXERCISES = (_EQUAL, _GROWING, _SPLIT, _LINK, _DESIGN)
