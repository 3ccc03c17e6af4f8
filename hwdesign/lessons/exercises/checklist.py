"""The exercises of chapter 8. As in chapter 1, the numbers of a question are typed and everything
else is computed.
"""

import itertools

import numpy as np

from hwdesign.advice.verdict import Limits
from hwdesign.formulas.tiling import pad
from hwdesign.lessons.exercises.base import Exercise, unless, variants
from hwdesign.models.sharding import width_tiers

# 8.1
# --------------------------------------------------------------------------------------------------

# Times in ms, limits in per cent. No wrong way leads to a cost near the right one, and none of the
# costs is near a limit.
_NUMBERS_1 = variants(
    "before scores after scores_after warn fail",
    (5.106, 4.372, 2.856, 2.349, 5, 35),
    (15.76, 8.14, 12.52, 5.62, 5, 20),
    (24, 6, 18, 4.2, 5, 20),
    (16, 2.4, 11.6, 1.6, 5, 20),
    (30, 12, 22.2, 7.5, 10, 20),
    (9.4, 6.5, 6.1, 3.9, 5, 25),
    (42, 9, 30.6, 6.3, 10, 30),
    (12.5, 7.5, 9.5, 5.5, 4, 20),
)


def _text_cost(before, scores, after, scores_after, **_):
    return (
        "Guideline 3 sets a model beside a sibling with fewer and wider layers. A step takes "
        f"{before:g} ms with the model, "
        f"{scores:g} of them for attention's scores and cache, and {after:g} ms with the "
        f"sibling, {scores_after:g} of them for "
        "these. A smaller cache is another change, so the cost leaves scores and cache out of "
        "the time that is saved. It is a "
        "share of the whole step. (a) Which share of the step does the sibling save in all? "
        "(b) Which share is the cost of the "
        "depth? Answer (a) first, then (b)."
    )


def _cost(before, scores, after, scores_after, **_):
    """(share of the step that is saved in all, share that is the cost)."""
    saved = before - scores - (after - scores_after)
    return float(1 - after / before), float(saved / before)


def _attention_counted(**given):
    """The second share counts what attention saves. Take scores and cache out of both times before
    you compare them.
    """
    return 2 * _cost(**given)[:1]


def _attention_alone(**given):
    """The second share is what scores and cache save. The cost is what everything else saves."""
    total, cost = _cost(**given)
    return total, total - cost


def _share_of_the_rest(before, scores, **given):
    """The second share is that of a step without attention. The user waits for the whole step:
    divide by all of it.
    """
    total, cost = _cost(before=before, scores=scores, **given)
    return total, cost * before / (before - scores)


def _new_time_below(before, after, **given):
    """These are divided by the time of the sibling. (8.1) divides by the time of the step as it
    is.
    """
    return tuple(share * before / after for share in _cost(before=before, after=after, **given))


def _gain_in_speed(before, scores, after, scores_after, **_):
    """These say how much faster it gets, the old time over the new one less 1. The cost is the
    share of the time saved.
    """
    return before / after - 1, (before - scores) / (after - scores_after) - 1


def _what_is_left(**given):
    """These are the shares that are left. The cost is what is saved."""
    return tuple(1 - share for share in _cost(**given))


def _answers_exchanged(**given):
    """The two shares seem to be exchanged. First comes all that is saved."""
    return _cost(**given)[::-1]


def _per_cent_without_a_sign(**given):
    """The shares seem to be in per cent. Write 20 % or 0.2."""
    return tuple(100 * share for share in _cost(**given))


_COST = Exercise(
    id="8.1",
    variants=_NUMBERS_1,
    text=_text_cost,
    solve=_cost,
    parts=("Saved in all", "Cost"),
    units=("share", "shares"),
    asks="two shares: (a) saved in all, (b) the cost",
    why="A cost blames one dimension, so whatever else the alternative changes has to stay out "
    "of it.",
    hints=(
        "How long does the step take without scores and cache, before and after? What is the "
        "cost a share of?",
        "For (a) put the times of the whole step into (8.1). For (b) take scores and cache out "
        "of both times, subtract, and "
        "divide by the whole step as it is.",
    ),
    mistakes=(
        _attention_counted,
        _attention_alone,
        _share_of_the_rest,
        _new_time_below,
        _gain_in_speed,
        _what_is_left,
        _answers_exchanged,
        _per_cent_without_a_sign,
    ),
)


def _text_status(before, scores, after, scores_after, warn, fail):
    return (
        f"A step takes {before:g} ms with a model (scores and cache: {scores:g}) and {after:g} "
        "ms with a wider sibling "
        f"({scores_after:g}). From {warn} % of the step on a cost is a *warn*, from {fail} % "
        "on a *fail*. What is the verdict of "
        "guideline 3: ok, warn or fail?"
    )


def _graded(cost, warn, fail, **_):
    return Limits(warn=warn / 100, fail=fail / 100).grade(cost)


def _status(**given):
    """The verdict."""
    return _graded(_cost(**given)[1], **given)


def _other_status(way, given):
    """The verdict by a wrong way to the cost, None where it is the right one."""
    found = _graded(way(**given)[1], **given)
    return None if found == _status(**given) else found


def _judged_with_attention(**given):
    """This judges all that the sibling saves. Scores and cache stay out of the cost of the
    depth.
    """
    return _other_status(_attention_counted, given)


def _judged_without_attention(**given):
    """This judges a step without attention. The cost is a share of the whole step."""
    return _other_status(_share_of_the_rest, given)


def _judged_by_attention(**given):
    """This judges what scores and cache save. They stay out of the cost of the depth."""
    return _other_status(_attention_alone, given)


_STATUS = Exercise(
    id="8.1b",
    variants=_NUMBERS_1,
    text=_text_status,
    solve=_status,
    options=("ok", "warn", "fail"),
    asks='"ok", "warn" or "fail"',
    why="The same step could be called a failure or ok; it depends on what the verdict is about.",
    hints=(
        "A verdict looks at the cost of what it blames. Does that contain all that the sibling "
        "saves?",
        "Put the share of (b) beside the two limits.",
    ),
    mistakes=(_judged_with_attention, _judged_without_attention, _judged_by_attention),
)


# 8.2 ----------------------------------------------------------------------------------------------

_NUMBERS_2 = variants(
    "width hidden layers ways form tile",
    (18944, 3584, 28, 8, "fp8_128x128", 256),
    (29568, 8192, 80, 8, "nvfp4", 256),
    (11008, 4096, 32, 8, "nvfp4", 256),
    (17920, 5120, 40, 16, "mxfp4", 256),
    (10944, 2048, 27, 4, "nvfp4", 512),
    (22016, 8192, 48, 16, "fp8_128x128", 256),
    (13696, 4096, 40, 4, "fp8_128x128", 256),
    (13696, 4096, 40, 8, "nvfp4", 512),
)
_FORMS = {
    "fp8_128x128": "in FP8 with one scale for each block of 128 x 128, and no block may be cut",
    "mxfp4": "in MXFP4 with one scale for each 32 values of a row, and no such block may be cut",
    "nvfp4": "in NVFP4, half a byte a value, and the rows of each GPU must come in whole "
    "pieces of 16 bytes",
}


def _text_width(width, hidden, layers, ways, form, tile):
    return (
        f"Each of the {layers} layers of a model with $H = {hidden}$ has a gated feed-forward "
        f"part of width {width}. Tensor "
        f"parallelism splits the width over {ways} GPUs. The weights are {_FORMS[form]}. (a) "
        "Which is the smallest width from "
        f"{width} on that keeps to this? (b) Which is the smallest from {width} on whose "
        f"shares are multiples of {tile}? (c) "
        "How many parameters does the width of (b) add to the model? Answer (a), (b) and (c) "
        "in this order."
    )


def _least(form):
    """What each share must be a multiple of for an engine [element]."""
    tiers = width_tiers(1, 1, form)
    return tiers.get("kernel", tiers.get("format")).multiple


def _width(
    width,
    hidden,
    layers,
    ways,
    form,
    tile,
    *,
    multiple=None,
    split=None,
    rounded=pad,
    matrices=3,
    priced=1,
):
    """(width for an engine, width in whole tiles, parameters of the width `priced`) [element]; the
    keywords stand in.
    """
    split = ways if split is None else split
    found = [float(rounded(width, split * m)) for m in (multiple or _least(form), tile)]
    return *found, matrices * (found[priced] - width) * hidden * layers


def _ways_forgotten(**given):
    """These are multiples, but their shares are not. The number of GPUs belongs into the
    multiple.
    """
    return _width(**given, split=1)


def _tile_of_128(**given):
    """The shares of the second width are multiples of 128 alone. The question asks for larger
    tiles.
    """
    return _width(**given | {"tile": 128})


def _tiles_for_the_engine(**given):
    """The first width has shares in multiples of 128. The engine takes smaller pieces than a
    tile.
    """
    return unless(_width(**given), (_width(**given, multiple=128)[0], *_width(**given)[1:]))


def _bytes_for_values(form, **given):
    """The pieces seem to have 16 values. They have 16 bytes, and a value takes half of one."""
    right = _width(form=form, **given)
    return (
        unless(right, (_width(form=form, **given, multiple=16)[0], *right[1:]))
        if form == "nvfp4"
        else None
    )


def _rounded_down(**given):
    """These widths lie below the old one. The question asks for the smallest from there on."""
    return _width(**given, rounded=lambda size, multiple: size // multiple * multiple)


def _share_of_a_gpu(ways, **given):
    """These are the shares of one GPU. The question asks for the whole widths."""
    engine, tiles, price = _width(ways=ways, **given)
    return engine / ways, tiles / ways, price


def _gate_forgotten(**given):
    """The last number counts two matrices a layer. A gated part has three: gate, up and down."""
    return _width(**given, matrices=2)


def _one_layer(layers, **given):
    """The last number is that of one layer. All layers get the new width."""
    return _width(layers=1, **given)


def _of_one_gpu(ways, **given):
    """The last number is what one GPU gets. The question asks for the whole model."""
    *widths, price = _width(ways=ways, **given)
    return *widths, price / ways


def _price_of_the_first(**given):
    """The last number is the price of the first width. The question asks for that of the second."""
    return unless(_width(**given), _width(**given, priced=0))


def _all_columns(width, **given):
    """The last number counts all columns of the new width. The question asks for what is added."""
    *widths, _ = _width(width=width, **given)
    return *widths, 3 * widths[1] * given["hidden"] * given["layers"]


_WIDTH = Exercise(
    id="8.2",
    variants=_NUMBERS_2,
    text=_text_width,
    solve=_width,
    parts=("Engine", "Tiles", "Parameters"),
    units=("column", "columns", "parameter", "parameters"),
    asks="three whole numbers: (a) columns, (b) columns, (c) parameters, all digits",
    tolerance=0.0,
    why="Plan and format together say what a width must be a multiple of; the width alone says "
    "nothing.",
    hints=(
        "Of what must the share of one GPU be a multiple? And then the whole width?",
        "Round up to a multiple of GPUs times the block, the piece or the tile. A piece of 16 "
        "bytes has 32 values of 4 bits. A "
        "new column has H values in each of three matrices of a layer. `hw.width_tiers` checks "
        "the widths.",
    ),
    mistakes=(
        _ways_forgotten,
        _tile_of_128,
        _tiles_for_the_engine,
        _bytes_for_values,
        _rounded_down,
        _share_of_a_gpu,
        _gate_forgotten,
        _one_layer,
        _of_one_gpu,
        _price_of_the_first,
        _all_columns,
    ),
)


# 8.3 ----------------------------------------------------------------------------------------------

# Costs in per cent of the first step.
_NUMBERS_3 = variants(
    "five one seven",
    (20, 11, 8),
    (40, 20, 9),
    (30, 25, 10),
    (35, 15, 8),
    (28, 10, 12),
    (45, 18, 7),
    (24, 32, 11),
)


def _text_sum(five, one, seven):
    return (
        f"Three findings of a report: guideline 5 costs {five} % of the step, guideline 1 "
        f"costs {one} % and guideline 7 costs "
        f"{seven} %. (a) Which share of the step would be left after all three fixes if they "
        "were independent, that is, if each "
        "took its share off what the others leave? In truth the fix of guideline 5 repairs "
        "guideline 1, too, and the fix of "
        "guideline 7 saves the same milliseconds before and after it. (b) Which share of the "
        "step is left after the fixes of 5 "
        "and 7? (c) Which share of the step does guideline 7 cost in a new report, made after "
        "the fix of 5 alone? Answer (a), "
        "(b) and (c) in this order."
    )


def _sum(five, one, seven):
    """(share left if independent, share left, cost of guideline 7 after the fix of 5)."""
    five, one, seven = five / 100, one / 100, seven / 100
    return (1 - five) * (1 - one) * (1 - seven), 1 - five - seven, seven / (1 - five)


def _costs_added(**given):
    """The costs seem to be added. The second fix finds a shorter step, and its share of that is
    less time.
    """
    left = 1 - sum(given.values()) / 100
    return left, left, _sum(**given)[2]


def _repaired_twice(**given):
    """The second share seems to count the cost of guideline 1 as well. The fix of guideline 5 has
    saved that time already.
    """
    independent, left, cost = _sum(**given)
    return independent, left - given["one"] / 100, cost


def _independent_throughout(**given):
    """The second share is the first one again. Guideline 1 is no finding any more, so nothing is
    left for it to save.
    """
    independent, _, cost = _sum(**given)
    return independent, independent, cost


def _same_share(**given):
    """Guideline 7 seems to cost the same share of a shorter step. It is the milliseconds that stay
    the same.
    """
    cost = given["seven"] / 100
    return _sum(**given)[0], (1 - given["five"] / 100) * (1 - cost), cost


def _seven_left_out(**given):
    """The second share seems to be that after the fix of guideline 5 alone. The fix of guideline 7
    is made, too.
    """
    independent, _, cost = _sum(**given)
    return independent, 1 - given["five"] / 100, cost


def _share_of_the_end(**given):
    """The last share is one of the step after both fixes. (8.1) divides by the time before the fix
    that is judged.
    """
    independent, left, _ = _sum(**given)
    return independent, left, given["seven"] / 100 / left


def _shrunk(**given):
    """The cost of guideline 7 seems to shrink with the step. The same milliseconds are a larger
    share of a shorter step.
    """
    return *_sum(**given)[:2], given["seven"] / 100 * (1 - given["five"] / 100)


def _saved_for_left(**given):
    """The first two shares are what is saved. The question asks for what is left."""
    independent, left, cost = _sum(**given)
    return 1 - independent, 1 - left, cost


def _in_per_cent(**given):
    """The shares seem to be in per cent. Write 20 % or 0.2."""
    return tuple(100 * share for share in _sum(**given))


_SUM = Exercise(
    id="8.3",
    variants=_NUMBERS_3,
    text=_text_sum,
    solve=_sum,
    parts=("Independent", "Left", "Cost"),
    units=("share", "shares"),
    asks="three shares: (a) left, (b) left, (c) a cost",
    tolerance=0.01,
    why="Neither the sum nor the product of the first report is what a walk of fixes brings; "
    "look again after each change.",
    hints=(
        "Write the step as 100 ms. How many ms are left after each fix, and of which step is "
        "the next share?",
        "(a) is the product of what each fix leaves. For (b) subtract milliseconds; guideline "
        "1 has none left to save. For (c) "
        "divide the milliseconds of guideline 7 by the step after the fix of 5.",
    ),
    mistakes=(
        _costs_added,
        _repaired_twice,
        _independent_throughout,
        _same_share,
        _seven_left_out,
        _share_of_the_end,
        _shrunk,
        _saved_for_left,
        _in_per_cent,
    ),
)


# 8.4 ----------------------------------------------------------------------------------------------

# One sibling is the best. At least as many layers of each kind as stages.
_NUMBERS_4 = variants(
    "local whole window stages tokens",
    (52, 10, 1024, 8, 131072),
    (52, 10, 1024, 4, 131072),
    (41, 13, 4096, 6, 131072),
    (29, 13, 1024, 8, 65536),
    (50, 17, 4096, 8, 262144),
    (47, 22, 2048, 8, 65536),
    (43, 21, 1024, 8, 32768),
    (25, 9, 512, 6, 131072),
)


def _text_pattern(local, whole, window, stages, tokens):
    return (
        f"A model has {local + whole} layers with equally many parameters. {local} of them "
        f"attend to a window of {window} "
        f"tokens, {whole} to all tokens. A sibling shall fall into {stages} equal pipeline "
        "stages: the number of layers of each "
        f"kind becomes the next multiple of {stages} below or above it, and a multiple stays "
        "as it is. Take the sibling whose "
        "parameters change least, up or down; of two that change equally the one with the "
        "smaller cache. How many layers has it "
        "(a) with the window, (b) without? (c) How large is the cache of a sequence with "
        f"{tokens} tokens then, as a share of "
        "what it was? Answer (a), (b) and (c) in this order."
    )


def _next(count, stages):
    """The next multiples below and above, one where they are the same."""
    return sorted({count // stages * stages, -(-count // stages) * stages})


def _cached(counts, window, tokens):
    return counts[0] * min(window, tokens) + counts[1] * tokens


def _change(pair, local, whole, **_):
    return abs(sum(pair) - local - whole)


def _siblings(local, whole, window, stages, tokens):
    """Pairs of layers, the best first: smallest change, then smallest cache."""
    pairs = itertools.product(_next(local, stages), _next(whole, stages))
    return sorted(
        pairs, key=lambda pair: (_change(pair, local, whole), _cached(pair, window, tokens))
    )


def _told(counts, local, whole, window, stages, tokens):
    """A sibling as an answer: its layers and the share of the cache."""
    return *map(float, counts), _cached(counts, window, tokens) / _cached(
        (local, whole), window, tokens
    )


def _pattern(**given):
    """(layers with a window, layers without, share of the cache)."""
    return _told(_siblings(**given)[0], **given)


def _other_pattern(counts, given):
    return unless(_pattern(**given), _told(counts, **given))


def _larger_cache(**given):
    """This sibling changes as little, but it caches more. Of two equal ones the smaller cache
    wins.
    """
    best, second, *_ = _siblings(**given)
    return (
        _other_pattern(second, given)
        if _change(best, **given) == _change(second, **given)
        else None
    )


def _both_below(**given):
    """Both kinds seem to go down. Look at all pairs: with one kind up and the other down less
    changes in sum.
    """
    return _other_pattern(min(_siblings(**given), key=sum), given)


def _both_above(**given):
    """Both kinds seem to go up. Look at all pairs: with one kind down less changes in sum."""
    best, most = _siblings(**given)[0], max(_siblings(**given), key=sum)
    return _other_pattern(most, given) if _change(most, **given) > _change(best, **given) else None


def _sum_alone(local, whole, stages, **given):
    """The sum of the layers divides by the stages, but a stage needs as many of each kind as the
    others.
    """
    total = int(np.floor((local + whole) / stages + 0.5)) * stages
    given = {"local": local, "whole": whole, "stages": stages, **given}
    return (
        None
        if (total - whole) % stages == whole % stages == 0
        else _other_pattern((total - whole, whole), given)
    )


def _layers_of_a_stage(stages, **given):
    """These are the layers of one stage. The question asks for those of the model."""
    local, whole, share = _pattern(stages=stages, **given)
    return local / stages, whole / stages, share


def _kinds_exchanged(**given):
    """The two kinds seem to be exchanged. First come the layers with the window."""
    local, whole, share = _pattern(**given)
    return whole, local, share


def _all_cached_everywhere(local, whole, **given):
    """Every layer seems to cache all tokens. A layer with a window keeps those in it."""
    found = _pattern(local=local, whole=whole, **given)
    return *found[:2], sum(found[:2]) / (local + whole)


def _windows_for_free(whole, **given):
    """The layers with a window seem to cache nothing. Each keeps as many tokens as its window
    has.
    """
    found = _pattern(whole=whole, **given)
    return unless(found, (*found[:2], found[1] / whole), 0.01)


def _cache_saved(**given):
    """The last number is the share of the cache by which it changes. The question asks for what
    there is then.
    """
    *counts, share = _pattern(**given)
    return *counts, abs(1 - share)


def _upside_down(**given):
    """The last number is upside down. Divide the cache of the sibling by that of the model."""
    *counts, share = _pattern(**given)
    return unless((share,), (*counts, 1 / share), 0.01)


_PATTERN = Exercise(
    id="8.4",
    variants=_NUMBERS_4,
    text=_text_pattern,
    solve=_pattern,
    parts=("With the window", "Without", "Cache"),
    units=("layer", "layers", "share", "of the cache"),
    asks="three numbers: (a) layers, (b) layers, (c) a share",
    tolerance=0.01,
    why="Equal stages ask for a multiple of each kind, and what a kind keeps in the cache "
    "decides between equal changes.",
    hints=(
        "Which two numbers of layers may each kind have? How many pairs are that, and how many "
        "layers has each in sum?",
        "Take the pair whose sum is nearest to the number of layers. A layer with a window "
        "keeps the tokens of the window, one "
        "without keeps all. `hwdesign.advice.shapes.regular` changes as little, but does not "
        "look at the cache.",
    ),
    mistakes=(
        _larger_cache,
        _both_below,
        _both_above,
        _sum_alone,
        _layers_of_a_stage,
        _kinds_exchanged,
        _all_cached_everywhere,
        _windows_for_free,
        _cache_saved,
        _upside_down,
    ),
)

EXERCISES = (_COST, _STATUS, _WIDTH, _SUM, _PATTERN)
