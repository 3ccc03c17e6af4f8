"""Pipelines against published numbers, a simulation by events, all paths, all splits, exact fractions and bisection."""

import heapq
import itertools
import time
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwdesign.formulas.chunks import best_chunks, chunk_times, equal_time_chunks, fit_chunk_costs, smoothed_chunks
from hwdesign.formulas.pipeline import bubble_overhead, bubble_share, idle_share, pipeline_time, schedule, split_layers

# The bubble ---------------------------------------------------------------------------------------------------------------


def test_published_bubbles():
    assert round(float(bubble_share(4, 4)), 4) == 0.4286 and bubble_overhead(4, 4) == 0.75
    assert round(float(bubble_share(8, 32)), 4) == 0.1795  # 7 of 39, by SGLang's (P - 1) / (P - 1 + M)
    assert round(float(pipeline_time([1 / 256] * 8, 32)), 3) == 0.152  # of the time in one stage
    assert bubble_share([1, 1], [1, 9]).tolist() == bubble_overhead([1, 1], [1, 9]).tolist() == [0, 0]
    assert bubble_overhead(9, 2) == 4 and bubble_share(9, 2) == 0.8


def cells(times, send=()):
    """Idle and all cells of a chart with whole times, counted one by one."""
    starts, ends = simulate(times, send or [0] * len(times))
    last, stages = max(map(max, ends)), len(times[0])
    busy = {(s, t) for i, row in enumerate(starts) for s, start in enumerate(row) for t in range(start, ends[i][s])}
    assert len(busy) == sum(map(sum, times))  # a stage does one thing at a time
    return stages * last - len(busy), stages * last


@given(st.integers(1, 9), st.integers(1, 9))
def test_bubbles_are_idle_cells_over_all_and_over_busy_cells(stages, chunks):
    idle, every = cells([[1] * stages] * chunks)
    assert bubble_share(stages, chunks) == pytest.approx(idle / every, abs=1e-12)
    assert bubble_overhead(stages, chunks) == pytest.approx(idle / (every - idle), abs=1e-12)
    assert idle_share(np.full((chunks, stages), 0.37)) == pytest.approx(idle / every, abs=1e-12)


def test_idle_shares_of_whole_times_are_counted():
    rng = np.random.default_rng(1)
    for chunks, stages in itertools.product((1, 2, 5), (1, 2, 4)):
        times = rng.integers(1, 9, (chunks, stages)).tolist()
        for send in ([0] * chunks, rng.integers(0, 7, chunks).tolist()):
            idle, every = cells(times, send)
            assert idle_share(times, send=send) == pytest.approx(idle / every, abs=1e-12)
    assert idle_share([[1, 1], [1, 1]], send=1) == pytest.approx(0.5)  # 4 of 2 x 4 cells


# The schedule -------------------------------------------------------------------------------------------------------------


def simulate(times, send):
    """Starts and ends by a heap of events: a stage takes its next chunk once it is free and the chunk is there."""
    chunks, stages = len(times), len(times[0])
    starts, ends = ([[None] * stages for _ in range(chunks)] for _ in range(2))
    there, turn, busy = set(), [0] * stages, [False] * stages
    events, order = [], itertools.count()
    for i in range(chunks):
        heapq.heappush(events, (0, next(order), "arrives", i, 0))
    while events:
        now, _, kind, i, s = heapq.heappop(events)
        if kind == "arrives":
            there.add((i, s))
        else:
            busy[s], ends[i][s] = False, now
            if s + 1 < stages:
                heapq.heappush(events, (now + send[i], next(order), "arrives", i, s + 1))
        if not busy[s] and (turn[s], s) in there:
            i, turn[s], busy[s] = turn[s], turn[s] + 1, True
            starts[i][s] = now
            heapq.heappush(events, (now + times[i][s], next(order), "leaves", i, s))
    return starts, ends


@pytest.mark.parametrize("delay", ["none", "one", "each"])
def test_the_schedule_is_what_a_simulation_by_events_finds(delay):
    rng = np.random.default_rng(2)
    for _ in range(60):
        chunks, stages = rng.integers(1, 8, 2)
        times = rng.exponential(1, (chunks, stages)) * rng.integers(0, 2, (chunks, stages))  # some take no time
        send = {"none": 0.0, "one": rng.exponential(), "each": rng.exponential(2, chunks)}[delay]
        found = schedule(times, send=send)
        wanted = simulate(times.tolist(), np.broadcast_to(send, chunks).tolist())
        assert found[0].shape == found[1].shape == times.shape
        assert np.allclose(found, wanted, rtol=1e-12, atol=1e-12)


def paths(chunks, stages):
    """All ways from the first chunk in the first stage to the last in the last, by single steps along either axis."""
    for across in itertools.combinations(range(chunks + stages - 2), stages - 1):
        i = s = 0
        steps = [(0, 0)]
        for k in range(chunks + stages - 2):
            i, s = (i, s + 1) if k in across else (i + 1, s)
            steps.append((i, s))
        yield steps


@pytest.mark.parametrize(("chunks", "stages"), [(1, 1), (1, 4), (4, 1), (3, 3), (5, 2), (2, 5), (5, 4)])
def test_the_last_end_is_the_longest_way_through_the_grid(chunks, stages):
    rng = np.random.default_rng(3)
    for _ in range(5):
        times, send = rng.exponential(1, (chunks, stages)), rng.exponential(0.5, chunks)
        longest = max(
            sum(times[at] for at in steps) + sum(send[a[0]] for a, b in itertools.pairwise(steps) if b[1] > a[1])
            for steps in paths(chunks, stages)
        )
        assert schedule(times, send=send)[1][-1, -1] == pytest.approx(longest, rel=1e-12)


def test_a_schedule_by_hand():
    starts, ends = schedule([[1, 2], [3, 1], [1, 1]], send=[0.5, 0, 2])
    assert starts.tolist() == [[0, 1.5], [1, 4], [4, 7]] and ends.tolist() == [[1, 3.5], [4, 5], [5, 8]]
    assert schedule([[5]], send=9)[1].tolist() == [[5]]  # nobody to hand it to
    assert idle_share([[1, 2], [3, 1], [1, 1]], send=[0.5, 0, 2]) == pytest.approx(7 / 16)


def test_equal_stages_and_equal_chunks_have_closed_forms():
    rng = np.random.default_rng(4)
    for _ in range(40):
        chunks, stages = rng.integers(1, 12, 2)
        one = rng.exponential(1, stages)
        total = schedule(np.tile(one, (chunks, 1)))[1][-1, -1]
        assert pipeline_time(one, chunks) == pytest.approx(total, rel=1e-12)
        each = rng.exponential(1, chunks)
        total = schedule(np.repeat(each[:, None], stages, axis=1))[1][-1, -1]
        assert each.sum() + (stages - 1) * each.max() == pytest.approx(total, rel=1e-12)
        equal = np.full((chunks, stages), one[0])
        assert idle_share(equal) == pytest.approx(bubble_share(stages, chunks), abs=1e-12)
        ideal = chunks * one[0]
        assert schedule(equal)[1][-1, -1] / ideal - 1 == pytest.approx(bubble_overhead(stages, chunks), abs=1e-12)


def test_chunks_of_a_stage_neither_overlap_nor_overtake_nor_wait_for_nothing():
    rng = np.random.default_rng(5)
    times, send = rng.exponential(1, (4, 7, 5)), rng.exponential(0.3, (4, 7))
    starts, ends = schedule(times, send=send)
    assert np.allclose(ends - starts, times, rtol=1e-12, atol=1e-12) and (starts[:, 0, 0] == 0).all()
    free = starts[:, 1:] - ends[:, :-1]
    got = starts[..., 1:] - ends[..., :-1] - send[..., None]
    assert free.min() > -1e-12 and got.min() > -1e-12
    assert np.minimum(free[:, :, 1:], got[:, 1:]).max() < 1e-12  # and one of the two held it up
    assert (free[:, :, 0] == 0).all() and (np.abs(got[:, 0]) < 1e-12).all()


def test_axes_in_front_are_separate_pipelines():
    rng = np.random.default_rng(6)
    times, send = rng.exponential(1, (2, 3, 4, 5)), rng.exponential(1, (3, 1))
    starts, ends = schedule(times, send=send)
    shares = idle_share(times, send=send)
    assert starts.shape == times.shape and shares.shape == (2, 3)
    for a, b in np.ndindex(2, 3):
        alone = schedule(times[a, b], send=send[b])
        assert np.array_equal(starts[a, b], alone[0]) and np.array_equal(ends[a, b], alone[1])
        assert shares[a, b] == idle_share(times[a, b], send=send[b, 0])


# Chunks of a prompt -------------------------------------------------------------------------------------------------------


def work(x, linear, quadratic):
    """Time of the first x tokens: a rectangle and a triangle."""
    return linear * x + quadratic * x * x / 2


def root(wanted, function, high):
    """Where a growing function reaches a value, by halving."""
    low = 0.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) < wanted else (low, middle)
    return (low + high) / 2


def test_chunk_times_count_tokens_and_pairs():
    sizes = [3, 1, 5, 2]
    seen, total = 0, []
    for size in sizes:  # each token sees those before it and half of itself
        total.append(sum(Fraction(2) + Fraction(1, 4) * (seen + i + Fraction(1, 2)) for i in range(size)))
        seen += size
    assert chunk_times(sizes, 2.0, 0.25).tolist() == [float(t) for t in total]
    assert chunk_times([7.0], 1.0, 0.0).tolist() == [7]


def test_times_of_all_chunks_are_the_prompts_however_it_is_cut():
    rng = np.random.default_rng(7)
    for chunks in (1, 2, 9, 64):
        sizes = rng.integers(1, 5000, chunks)
        a, b = rng.exponential(1e-4), rng.exponential(1e-8)
        times = chunk_times(sizes, a, b)
        assert times.sum() == pytest.approx(work(int(sizes.sum()), a, b), rel=1e-12)
        equal = chunk_times([512] * chunks, a, b)
        assert equal == pytest.approx([a * 512 + b * 512**2 * (i - 0.5) for i in range(1, chunks + 1)], rel=1e-12)
    both = chunk_times([[1, 2, 3], [3, 2, 1]], 1.0, 1.0)
    assert both.shape == (2, 3) and both[1].tolist() == chunk_times([3, 2, 1], 1.0, 1.0).tolist()


@pytest.mark.parametrize(("tokens", "chunks"), [(131072, 16), (131072, 32), (100_000, 7), (4096, 8), (12, 1), (64, 4)])
@pytest.mark.parametrize("growth", [0, 1e-3, 1, 5, 40])
def test_chunks_of_equal_time_end_where_halving_finds_the_root(tokens, chunks, growth):
    a, b = 3e-5, 3e-5 * growth / tokens
    sizes = equal_time_chunks(tokens, chunks, a, b)
    assert sizes.dtype.kind == "i" and sizes.shape == (chunks,) and sizes.sum() == tokens and sizes.min() >= 1
    whole = work(tokens, a, b)
    for i, end in enumerate(np.cumsum(sizes), 1):
        assert abs(end - root(whole * i / chunks, lambda x: work(x, a, b), tokens)) <= 0.5 + 1e-6
    ends = np.cumsum(sizes)
    assert (np.abs(chunk_times(sizes, a, b) - whole / chunks) <= (a + b * ends) * (1 + 1e-9)).all()  # a token's time
    assert (np.diff(sizes) <= 1).all()  # they shrink, but for the rounding
    if growth >= 1 and chunks > 1:
        assert sizes[0] > 1.2 * sizes[-1]
    if growth == 0:
        assert np.ptp(sizes) <= 1


def test_chunks_of_equal_time_depend_on_the_ratio_of_the_costs_alone():
    first = equal_time_chunks(50_000, 9, 1.0, 1e-4)
    assert all(np.array_equal(first, equal_time_chunks(50_000, 9, f, f * 1e-4)) for f in (1e-9, 3e-5, 7.0, 1e6))
    assert equal_time_chunks(100, 4, 1.0, 1.0).tolist() == [50, 20, 16, 14]  # ends at 49.76, 70.42, 86.34
    assert equal_time_chunks(10, 10, 1.0, 0.0).tolist() == [1] * 10


@pytest.mark.parametrize(("tokens", "chunks", "multiple"), [(131072, 16, 64), (100_001, 7, 128), (4096, 8, 256), (1000, 3, 7)])
@pytest.mark.parametrize("growth", [0, 1, 3])
def test_chunks_of_equal_time_end_at_the_nearest_multiples(tokens, chunks, multiple, growth):
    a, b = 3e-5, 3e-5 * growth / tokens
    sizes = equal_time_chunks(tokens, chunks, a, b, multiple=multiple)
    assert sizes.dtype.kind == "i" and sizes.shape == (chunks,) and sizes.sum() == tokens
    whole = work(tokens, a, b)
    for i, end in enumerate(np.cumsum(sizes)[:-1], 1):
        exact = root(whole * i / chunks, lambda x: work(x, a, b), tokens)
        assert end % multiple == 0 and abs(end - exact) <= multiple / 2 + 1e-6
    ends = np.cumsum(sizes)
    assert (np.abs(chunk_times(sizes, a, b) - whole / chunks) <= multiple * (a + b * ends) * (1 + 1e-9)).all()


def test_equal_times_make_the_shortest_pipeline_of_as_many_chunks():
    tokens, stages, a, b = 8192, 4, 1e-4, 1e-7
    rng = np.random.default_rng(8)

    def total(sizes):
        return schedule(np.repeat(chunk_times(sizes, a, b)[:, None] / stages, stages, axis=1))[1][-1, -1]

    best = total(equal_time_chunks(tokens, 8, a, b))
    others = [np.diff(np.sort(np.r_[0, rng.choice(np.arange(1, tokens), 7, replace=False), tokens])) for _ in range(100)]
    assert best < min(map(total, others)) and best < total([1024] * 8) / 1.05


# Chunks as SGLang cuts them -----------------------------------------------------------------------------------------------

COSTS = [(1.0, 0.01), (3e-5, 2e-10), (0.11, 2e-6), (2e-4, 1e-7)]


def solution(first, done, a, b):
    """Next chunk that takes as long as the first one did, by halving."""
    return root(work(first, a, b), lambda d: work(done + d, a, b) - work(done, a, b), 2.0 * first)


@pytest.mark.parametrize("costs", COSTS)
@pytest.mark.parametrize("smooth", [0.3, 0.75, 1])
def test_smoothed_chunks_follow_the_equation_as_far_as_they_are_told_to(costs, smooth):
    tokens, first, multiple = 60_000, 4096, 64
    sizes = smoothed_chunks(tokens, first, *costs, smooth, multiple=multiple)
    assert sizes.sum() == tokens and (sizes[:-1] % multiple == 0).all() and 0 < sizes[-1] <= first
    checked = 0
    for i in range(1, len(sizes) - 1):
        exact = first + smooth * (solution(first, int(sizes[:i].sum()), *costs) - first)
        exact = max(exact, first / 4)
        if abs(exact / multiple - round(exact / multiple)) > 1e-6:  # not at the edge of the rounding
            assert sizes[i] == exact // multiple * multiple
            checked += 1
        else:
            assert exact == first / 4 == sizes[i]
            checked += 1
    assert checked == len(sizes) - 2 > 10 and (np.diff(sizes[:-1]) <= 0).all()


@pytest.mark.parametrize("costs", COSTS)
def test_without_smoothing_all_chunks_are_equal(costs):
    assert smoothed_chunks(10_000, 2048, *costs, 0).tolist() == [2048] * 4 + [1808]
    assert smoothed_chunks(4096, 2048, *costs, 0).tolist() == [2048, 2048]
    assert smoothed_chunks(100, 2048, *costs, 0.5).tolist() == [100]


def test_no_chunk_is_below_a_quarter_of_the_first():
    sizes = smoothed_chunks(2**20, 4096, 1e-9, 1.0, 1)  # all pairs: the equation falls below a quarter soon
    assert sizes[-2] == sizes[:-1].min() == 1024
    below = [solution(4096, int(sizes[:i].sum()), 1e-9, 1.0) < 1024 for i in range(1, len(sizes) - 1)]
    assert sum(below) > 900 and (sizes[1:-1][below] == 1024).all() and (sizes[1:-1][~np.array(below)] >= 1024).all()
    assert smoothed_chunks(2**16, 4096, 1e-9, 1.0, 0.5)[:-1].min() > 2048  # half of the way to it at most
    odd = smoothed_chunks(2000, 100, 1e-9, 1.0, 1, multiple=40)  # a quarter is below the unit: the unit
    assert set(odd[1:-1].tolist()) == {40}


@pytest.mark.parametrize("multiple", [1, 7, 64, 256])
def test_chunks_are_multiples_and_the_last_takes_what_is_left(multiple):
    sizes = smoothed_chunks(33_333, 3584, 1.0, 1e-4, 0.65, multiple=multiple)
    assert (sizes[:-1] % multiple == 0).all() and sizes.sum() == 33_333 and sizes.dtype.kind == "i"
    assert sizes[-1] == 33_333 - sizes[:-1].sum() and len(set(sizes.tolist())) > 3


def test_smoothed_chunks_of_the_docs():
    assert smoothed_chunks(1024, 512, 1.0, 0.01, 1.0).tolist() == [512, 192, 192, 128]
    default = smoothed_chunks(32768, 4096, 1.0, 1e-3)
    assert default.tolist() == smoothed_chunks(32768, 4096, 1.0, 1e-3, 0.75, multiple=64).tolist()
    assert default.tolist() != smoothed_chunks(32768, 4096, 1.0, 1e-3, 0.7).tolist()


def test_the_first_chunk_is_the_one_that_was_asked_for():
    """The first chunk solves its own equation: rounding errors must not cost it a unit."""
    rng = np.random.default_rng(9)
    for _ in range(300):
        first, a = 64 * int(rng.integers(1, 300)), 10 ** rng.uniform(-7, 0)
        b = a * 10 ** rng.uniform(-8, -2)
        assert smoothed_chunks(2 * first, first, a, b, 1)[0] == first, (first, a, b)


def test_chunks_without_attention_are_equal():
    rng = np.random.default_rng(10)
    for _ in range(300):
        first, a, smooth = 64 * int(rng.integers(1, 300)), 10 ** rng.uniform(-7, 0), rng.uniform()
        assert smoothed_chunks(3 * first, first, a, 0, smooth).tolist() == [first] * 3, (first, a, smooth)


# Costs from times, and how many chunks ------------------------------------------------------------------------------------

CUTS = {
    "one chunk": lambda n, a, b: [n],
    "equal chunks": lambda n, a, b: [n // 16] * 16,
    "fixed size": lambda n, a, b: [4096] * (n // 4096),
    "equal times": lambda n, a, b: equal_time_chunks(n, 16, a, b),
    "smoothed": lambda n, a, b: smoothed_chunks(n, 8192, a, b, 0.7),
}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("stages", [1, 4, 8])
@pytest.mark.parametrize("costs", [(4e-4, 1.2e-9), (2e-4, 6e-9)])
def test_costs_are_found_again_in_times_that_were_made_with_them(cut, stages, costs):
    lengths = [2**15, 2**16, 2**17, 2**18]
    seconds = []
    for n in lengths:
        times = chunk_times(CUTS[cut](n, *costs), *costs)[:, None] / stages
        seconds.append(schedule(np.repeat(times, stages, axis=1))[1][-1, -1])
    found = fit_chunk_costs(lengths, seconds, [1] * stages, CUTS[cut])
    # Where the cut depends on the costs and is rounded, an error can stay: of a token in 2048, of a unit of 64 in 8192.
    rel = {"equal times": 3e-4, "smoothed": 1e-2}.get(cut, 1e-9)
    assert found == pytest.approx(costs, rel=rel) and all(type(x) is float for x in found)


def test_costs_are_those_with_the_least_relative_errors():
    lengths, seconds = [100, 200, 400, 800], [1.0, 2.3, 5.0, 13.0]
    found = fit_chunk_costs(lengths, seconds, [1] * 3, lambda n, a, b: [n // 4] * 4)

    def error(a, b):
        modelled = [schedule(np.tile(chunk_times([n // 4] * 4, a, b) / 3, (3, 1)).T)[1][-1, -1] for n in lengths]
        return np.square(np.divide(modelled, seconds) - 1).sum()

    least = error(*found)
    assert 1e-5 < least < 0.05
    steps = [(f, g) for f in (0.99, 1, 1.01) for g in (0.99, 1, 1.01) if (f, g) != (1, 1)]
    assert all(error(f * found[0], g * found[1]) > least for f, g in steps)


def test_times_that_grow_too_slowly_give_costs_that_can_be_used_or_an_error_about_them():
    for cut in (CUTS["equal times"], lambda n, a, b: [n // 4] * 4):
        try:
            costs = fit_chunk_costs([100, 200, 400], [1, 1.8, 3.0], [1] * 4, cut)
        except ValueError as error:
            assert "seconds" in str(error)  # an argument of this function, not of the cut
        else:
            assert (chunk_times([100], *costs) > 0).all()


@pytest.mark.parametrize(("whole", "fixed", "stages"), [(7.0, 0.01, 8), (1.0, 0.013, 4), (55.5, 0.2, 16), (3.0, 0.7, 2)])
def test_the_best_number_of_chunks_beats_all_others(whole, fixed, stages):
    scan = {}
    for chunks in range(1, 200):
        times = np.full((chunks, stages), (whole / chunks + fixed) / stages)
        scan[chunks] = times.sum() / stages + (stages - 1) * times[0, 0]
    least = min(scan, key=scan.get)
    assert 1 < least < 199 and least - 1 < best_chunks(whole, fixed, stages) < least + 1
    for chunks in (1, 2, least):  # the scan is the schedule's
        once = np.full((chunks, stages), (whole / chunks + fixed) / stages)
        assert schedule(once)[1][-1, -1] == pytest.approx(scan[chunks], rel=1e-12)


def test_one_chunk_is_the_least():
    assert best_chunks(7.0, 0.01, 8) == pytest.approx(70)
    assert best_chunks(5.0, 3.0, 1) == best_chunks(1.0, 100.0, 8) == 1
    assert np.allclose(best_chunks([[1.0], [4.0]], [0.01, 0.04], 2), [[10, 5], [20, 10]], rtol=1e-12)


# Layers over stages -------------------------------------------------------------------------------------------------------


def brute(costs, stages, first=0, last=0):
    """The best of all splits: smallest largest stage, then least sum of squares, then more layers in front."""
    ways = []
    for cut in itertools.combinations(range(1, len(costs)), stages - 1):
        ends = (0, *cut, len(costs))
        sums = [sum(costs[a:b]) for a, b in itertools.pairwise(ends)]
        sums[0] += first
        sums[-1] += last
        counts = tuple(b - a for a, b in itertools.pairwise(ends))
        ways.append((max(sums), sum(x * x for x in sums), tuple(-n for n in counts)))
    return tuple(-n for n in min(ways)[2])


@pytest.mark.parametrize(("high", "ends"), [(2, 0), (3, 4), (10, 0), (10, 15), (1000, 900)])
def test_splits_are_the_best_of_all(high, ends):
    rng = np.random.default_rng(high + ends)
    for _ in range(60):
        n = int(rng.integers(1, 13))
        stages = int(rng.integers(1, n + 1))
        costs = rng.integers(0, high, n).tolist()
        first, last = rng.integers(0, ends + 1, 2).tolist()
        assert split_layers(costs, stages, first=first, last=last) == brute(costs, stages, first, last), (costs, stages)


@pytest.mark.parametrize("unit", [1, 0.1, 1 / 3, 1e-7, 123.456])
def test_equal_layers_are_spread_as_evenly_as_division_allows_with_more_in_front(unit):
    for n in (1, 2, 10, 30, 36, 61, 62):
        for stages in {1, 2, 3, 4, 7, 8, 16} & set(range(1, n + 1)):
            each, more = divmod(n, stages)
            assert split_layers([unit] * n, stages) == (each + 1,) * more + (each,) * (stages - more)


def test_published_splits():
    assert split_layers([1] * 30, 4) == (8, 8, 7, 7)  # Megatron-LM issue 1304
    assert split_layers([1] * 10, 3) == (4, 3, 3) and split_layers([0.1] * 61, 4) == (16, 15, 15, 15)
    assert split_layers([1, 1, 1, 5], 2) == (3, 1) and split_layers([5, 1, 1, 1], 2) == (1, 3)
    assert split_layers([7] * 3, 3) == (1, 1, 1) and split_layers([3, 0, 9], 1) == (3,)


def test_what_the_ends_cost_besides_moves_the_cuts():
    assert split_layers([1] * 12, 3, first=3) == (2, 5, 5) and split_layers([1] * 12, 3, last=3) == (5, 5, 2)
    assert split_layers([1] * 11, 3, first=1, last=3) == (4, 5, 2)  # five on each
    assert split_layers([1] * 4, 2, last=100) == (3, 1) and split_layers([1] * 4, 2, first=100) == (1, 3)
    assert split_layers([1] * 4, 1, first=5, last=5) == (4,)


def test_layers_that_cost_nothing():
    for n, stages in ((6, 3), (5, 5), (4, 1)):
        assert split_layers([0] * n, stages) == brute([0] * n, stages)
    assert split_layers([0, 0, 1, 0, 0], 3) == brute([0, 0, 1, 0, 0], 3)
    assert split_layers([0] * 4, 2, first=1) == brute([0] * 4, 2, 1)


def least_largest(costs, stages):
    """Smallest largest stage of whole costs: halve the limit, fill stages greedily."""
    low, high = max(costs), sum(costs)
    while low < high:
        limit, needed, load = (low + high) // 2, 1, 0
        for cost in costs:
            needed, load = (needed + 1, cost) if load + cost > limit else (needed, load + cost)
        low, high = (low, limit) if needed <= stages else (limit + 1, high)
    return low


@pytest.mark.parametrize(("n", "stages"), [(126, 16), (94, 8), (61, 4), (200, 3)])
def test_deep_models_are_split_quickly_and_well(n, stages):
    costs = np.random.default_rng(n).integers(1, 100, n).tolist()
    begin = time.perf_counter()
    split = split_layers(costs, stages)
    assert time.perf_counter() - begin < 2
    assert len(split) == stages and sum(split) == n and min(split) >= 1 and all(type(x) is int for x in split)
    loads = [sum(part) for part in np.split(costs, np.cumsum(split)[:-1])]
    assert max(loads) == least_largest(costs, stages)
    for s in range(stages - 1):  # no layer at a cut lies better on the other side
        for move in (-1, 1):
            other = list(split)
            other[s], other[s + 1] = split[s] + move, split[s + 1] - move
            moved = [sum(part) for part in np.split(costs, np.cumsum(other)[:-1])]
            assert min(other) < 1 or max(moved) > max(loads) or np.square(moved).sum() >= np.square(loads).sum()


def test_a_split_does_not_depend_on_the_unit():
    rng = np.random.default_rng(11)
    for _ in range(20):
        costs = rng.integers(1, 50, 11)
        splits = {split_layers(costs * unit, 4, first=7 * unit, last=3 * unit) for unit in (1, 1e-6, 0.1, 1e9)}
        assert len(splits) == 1


# Arguments ----------------------------------------------------------------------------------------------------------------


def test_scalars_give_scalars_and_arrays_broadcast():
    for found in (bubble_share(4, 8), bubble_overhead(4, 8), pipeline_time([1, 2], 3), idle_share([[1, 2]]),
                  best_chunks(1, 1, 2)):  # fmt: skip
        assert isinstance(found, np.float64)
    stages, chunks = np.array([[2], [4]]), np.array([1, 2, 4])
    for function in (bubble_share, bubble_overhead):
        found = function(stages, chunks)
        assert found.shape == (2, 3) and found[1, 2] == function(4, 4) and found[0, 1] == function(2, 2)
    found = pipeline_time(np.arange(12).reshape(2, 1, 6), chunks)
    assert found.shape == (2, 3) and found[1, 2] == pipeline_time(np.arange(6, 12), 4) == 51 + 3 * 11


def test_arguments_stay_as_they_were():
    times, send, sizes, costs = np.ones((3, 2)), np.ones(3), np.array([1.0, 2, 3]), np.array([1.0, 2, 3])
    schedule(times, send=send), idle_share(times, send=send), pipeline_time(times, 3)
    chunk_times(sizes, 1.0, 1.0), split_layers(costs, 2, first=1.0)
    lengths, seconds = np.array([100, 200]), np.array([1.0, 3])
    fit_chunk_costs(lengths, seconds, [1, 1], CUTS["one chunk"])
    assert (times == 1).all() and (send == 1).all() and sizes.tolist() == costs.tolist() == [1, 2, 3]
    assert lengths.tolist() == [100, 200] and seconds.tolist() == [1, 3]


ONE = CUTS["one chunk"]
REFUSED = [
    (lambda: bubble_share(0, 4), "stages must be >= 1, got 0"),
    (lambda: bubble_share(4, [4, 2.5]), "chunks must be a whole number, got 2.5"),
    (lambda: bubble_share("4", 4), "stages must be a number or an array of numbers, got '4'"),
    (lambda: bubble_share([1, 2], [1, 2, 3]), r"stages, chunks must broadcast .* stages \(2,\), chunks \(3,\)"),
    (lambda: bubble_overhead(2.5, 4), "stages must be a whole number, got 2.5"),
    (lambda: bubble_overhead(4, -1), "chunks must be >= 1, got -1"),
    (lambda: pipeline_time([], 2), r"stage_times must have an axis of stages, none of them empty, got shape \(0,\)"),
    (lambda: pipeline_time(3.0, 2), r"stage_times must have an axis of stages, none of them empty, got shape \(\)"),
    (lambda: pipeline_time([1, -2], 2), "stage_times must be >= 0, got -2"),
    (lambda: pipeline_time([1, np.nan], 2), "stage_times must be finite, got nan"),
    (lambda: pipeline_time([1, 2], 0), "chunks must be >= 1, got 0"),
    (lambda: pipeline_time([1, 2], 1.5), "chunks must be a whole number, got 1.5"),
    (lambda: schedule([1, 2]), r"times must have axes of chunks and of stages, none of them empty, got shape \(2,\)"),
    (lambda: schedule(np.ones((0, 2))), r"none of them empty, got shape \(0, 2\)"),
    (lambda: schedule([[1, 2], [3, -1]]), "times must be >= 0, got -1"),
    (lambda: schedule([[1, np.inf]]), "times must be finite, got inf"),
    (lambda: schedule([[1, 2]], send=-0.5), "send must be >= 0, got -0.5"),
    (lambda: schedule([[1, 2]], send=np.nan), "send must be finite, got nan"),
    (lambda: idle_share([[0, 0]]), "times must not all be 0, got 0"),
    (lambda: idle_share([[[1, 1]], [[0, 0]]]), "times must not all be 0, got 0"),
    (lambda: idle_share([[1, -2]]), "times must be >= 0, got -2"),
    (lambda: idle_share([[1, 2]], send=-1), "send must be >= 0, got -1"),
    (lambda: chunk_times([1, 0], 1, 1), "sizes must be > 0, got 0"),
    (lambda: chunk_times(5, 1, 1), "sizes must be a list of sizes, got 5"),
    (lambda: chunk_times([1, np.inf], 1, 1), "sizes must be finite, got inf"),
    (lambda: chunk_times([1], 0, 1), "linear must be > 0, got 0"),
    (lambda: chunk_times([1], np.inf, 1), "linear must be finite, got inf"),
    (lambda: chunk_times([1], 1, -1), "quadratic must be >= 0, got -1"),
    (lambda: equal_time_chunks(0, 1, 1, 1), "tokens must be >= 1, got 0"),
    (lambda: equal_time_chunks([8, 9], 1, 1, 1), r"tokens must be one number, got \[8, 9\]"),
    (lambda: equal_time_chunks(8, 1.5, 1, 1), "chunks must be a whole number, got 1.5"),
    (lambda: equal_time_chunks(8, 9, 1, 1), "chunks must be <= tokens = 8, got 9"),
    (lambda: equal_time_chunks(8, 8, 1, 9), "chunks must leave every chunk at least one token, got 8 for 8 tokens"),
    (lambda: equal_time_chunks(100, 4, 1, 0, multiple=64), "chunks must leave .* got 4 for 100 tokens in multiples of 64"),
    (lambda: equal_time_chunks(8, 2, 1, 0, multiple=0), "multiple must be >= 1, got 0"),
    (lambda: equal_time_chunks(8, 2, -1, 1), "linear must be > 0, got -1"),
    (lambda: equal_time_chunks(8, 2, 1, -3), "quadratic must be >= 0, got -3"),
    (lambda: best_chunks(0, 1, 2), "work must be > 0, got 0"),
    (lambda: best_chunks(1, -1, 2), "fixed must be > 0, got -1"),
    (lambda: best_chunks(1, 1, 0), "stages must be >= 1, got 0"),
    (lambda: best_chunks([1, 2], [1, 2, 3], 2), r"work, fixed, stages must broadcast .* fixed \(3,\)"),
    (lambda: smoothed_chunks(0, 64, 1, 1), "tokens must be >= 1, got 0"),
    (lambda: smoothed_chunks(64, 0, 1, 1), "first must be >= 1, got 0"),
    (lambda: smoothed_chunks(64, 64, 0, 1), "linear must be > 0, got 0"),
    (lambda: smoothed_chunks(64, 64, 1, -1), "quadratic must be >= 0, got -1"),
    (lambda: smoothed_chunks(64, 64, 1, 1, 1.01), "smooth must be from 0 to 1, got 1.01"),
    (lambda: smoothed_chunks(64, 64, 1, 1, -0.1), "smooth must be from 0 to 1, got -0.1"),
    (lambda: smoothed_chunks(64, 64, 1, 1, [0.5]), r"smooth must be one number, got \[0.5\]"),
    (lambda: smoothed_chunks(64, 64, 1, 1, np.nan), "smooth must be finite, got nan"),
    (lambda: smoothed_chunks(64, 64, 1, 1, multiple=0), "multiple must be >= 1, got 0"),
    (lambda: smoothed_chunks(64, 32, 1, 1), "multiple must be <= first = 32, got 64"),
    (lambda: fit_chunk_costs([8, 0], [1, 2], [1, 1], ONE), "tokens must be >= 1, got 0"),
    (lambda: fit_chunk_costs([8, 9], [1, 0], [1, 1], ONE), "seconds must be > 0, got 0"),
    (lambda: fit_chunk_costs([8, 9], [1, np.nan], [1, 1], ONE), "seconds must be finite, got nan"),
    (lambda: fit_chunk_costs([8, 9], [1, 2], [1, 0], ONE), "split must be > 0, got 0"),
    (lambda: fit_chunk_costs([8, 9], [1, 2, 3], [1, 1], ONE), "tokens and seconds must be lists of equal length"),
    (lambda: fit_chunk_costs([8, 8], [1, 2], [1, 1], ONE), r"with two different lengths, got \[8. 8.\]"),
    (lambda: fit_chunk_costs(8, 1.0, [1, 1], ONE), "tokens and seconds must be lists of equal length .* got 8"),
    (lambda: fit_chunk_costs([100, 200], [1, 100], [1], ONE), "seconds must allow a positive linear cost, got -0.24 s/token"),
    (lambda: split_layers([1, 2], 3), r"costs must list at least stages = 3 layers, got shape \(2,\)"),
    (lambda: split_layers([[1, 2]], 1), r"costs must list at least stages = 1 layers, got shape \(1, 2\)"),
    (lambda: split_layers([], 1), r"costs must list at least stages = 1 layers, got shape \(0,\)"),
    (lambda: split_layers([1, -2], 1), "costs must be >= 0, got -2"),
    (lambda: split_layers([1, np.nan], 1), "costs must be finite, got nan"),
    (lambda: split_layers([1, 2], 0), "stages must be >= 1, got 0"),
    (lambda: split_layers([1, 2], 2, first=np.inf), "first must be finite, got inf"),
    (lambda: split_layers([1, 2], 2, last="1"), "last must be a number or an array of numbers, got '1'"),
]


@pytest.mark.parametrize(("call", "says"), REFUSED, ids=[says.split(",")[0][:40] for _, says in REFUSED])
def test_errors_name_the_argument_and_its_value(call, says):
    with pytest.raises(ValueError, match=says):
        call()


NAMED = [  # what must be named, too
    (lambda: split_layers([1, 2], 2, first=-1), "first .*-1"),
    (lambda: split_layers([1, 2], 2, last=-3), "last .*-3"),
    (lambda: split_layers([1, 2], 2, last=[1, 2]), "last"),
    (lambda: schedule(np.ones((2, 3)), send=[1, 2, 3]), "send"),
    (lambda: pipeline_time(np.ones((2, 3)), [1, 2, 3]), "chunks"),
    (lambda: equal_time_chunks(10, 2, [1, 2], 0), "linear"),
    (lambda: equal_time_chunks(10, 2, 1, [0, 1]), "quadratic"),
    (lambda: smoothed_chunks(100, 50, [1, 2], 0, multiple=10), "linear"),
    (lambda: chunk_times([1, 2], [1, 2, 3], 0), "linear"),
]


@pytest.mark.parametrize(("call", "says"), NAMED, ids=[str(i) + " " + says.split()[0] for i, (_, says) in enumerate(NAMED)])
def test_errors_of_shapes_and_of_ends_name_the_argument(call, says):
    with pytest.raises(ValueError, match=says):
        call()
