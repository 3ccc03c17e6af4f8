"""Routing and placements against enumeration, brute force, dealing tokens one by one, and DeepSeek's own example."""

import functools
import itertools
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import hwdesign as hw
from hwdesign.formulas import routing
from hwdesign.formulas.collectives import remote_copies
from hwdesign.formulas.experts import distinct_experts, expert_ranks
from hwdesign.formulas.routing import (
    balanced_placement,
    device_loads,
    even_placement,
    imbalance,
    routed_tokens,
    touched_slots,
    zipf_shares,
)

MODELS = {"deepseek-r1": (8, 256), "mixtral-8x7b": (2, 8), "gpt-oss-120b": (4, 128), "qwen3-30b-a3b": (8, 128)}
EPLB = [[90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86], [20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27]]


# Uniform routing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tokens", "top_k", "num_experts"), [(3, 2, 4), (3, 2, 5), (4, 1, 4), (2, 3, 6), (2, 3, 3), (1, 2, 7)])
def test_distinct_experts_are_the_mean_over_all_choices(tokens, top_k, num_experts):
    choices = itertools.product(itertools.combinations(range(num_experts), top_k), repeat=tokens)
    sizes = [len(set().union(*choice)) for choice in choices]
    assert len(sizes) == comb(num_experts, top_k) ** tokens
    assert distinct_experts(tokens, top_k, num_experts) == pytest.approx(sum(sizes) / len(sizes), rel=1e-12)


@pytest.mark.parametrize(("top_k", "num_experts", "ep"), [(3, 8, 4), (2, 6, 3), (4, 8, 2), (5, 6, 6), (1, 4, 4), (3, 9, 1)])
def test_expert_ranks_and_remote_copies_are_the_mean_over_all_choices(top_k, num_experts, ep):
    visited = [{e // (num_experts // ep) for e in choice} for choice in itertools.combinations(range(num_experts), top_k)]
    assert expert_ranks(top_k, num_experts, ep) == pytest.approx(sum(map(len, visited)) / len(visited), rel=1e-12)
    sent = [len(ranks - {home}) for ranks in visited for home in range(ep)]
    assert remote_copies(top_k, num_experts, ep) == pytest.approx(sum(sent) / len(sent), rel=1e-12)
    most = max(map(len, visited))  # balanced routing: as many GPUs as the experts of a token can lie on
    at_most = [len(ranks - {home}) for ranks in visited if len(ranks) == most for home in range(ep)]
    assert remote_copies(top_k, num_experts, ep, balanced=True) == pytest.approx(sum(at_most) / len(at_most), rel=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_a_simulation_uses_as_many_experts_as_the_formula_says(name):
    ffn = next(b.ffn for b in reversed(hw.Model.from_config(name).blocks) if b.ffn)
    assert (ffn.top_k, ffn.num_experts) == MODELS[name]
    for tokens in (1, 8, 32, 128):
        drawn = (routed_tokens(tokens, *MODELS[name], draws=600, seed=tokens) > 0).sum(axis=1).mean()
        assert drawn == pytest.approx(distinct_experts(tokens, *MODELS[name]), rel=0.01)


@given(st.data())
def test_each_token_takes_different_experts(data):
    num_experts, tokens = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 40))
    top_k, draws = data.draw(st.integers(1, num_experts)), data.draw(st.integers(1, 3))
    exponent, seed = data.draw(st.floats(0, 3)), data.draw(st.integers(0, 2**32))
    counts = routed_tokens(tokens, top_k, num_experts, exponent=exponent, draws=draws, seed=seed)
    assert counts.shape == (draws, num_experts) and counts.dtype.kind == "i"
    assert (counts.sum(axis=1) == tokens * top_k).all() and counts.min() >= 0 and counts.max() <= tokens
    assert np.array_equal(counts, routed_tokens(tokens, top_k, num_experts, exponent=exponent, draws=draws, seed=seed))
    if top_k == num_experts:
        assert (counts == tokens).all()


def test_draws_and_seeds_differ():
    drawn = routed_tokens(64, 4, 32, draws=3, seed=1)
    assert len({tuple(row) for row in drawn.tolist()} | {tuple(routed_tokens(64, 4, 32, seed=2)[0].tolist())}) == 4


def test_uniform_routing_spreads_as_chance_does():
    tokens, top_k, num_experts = 20_000, 8, 256
    counts, share = routed_tokens(tokens, top_k, num_experts, draws=3, seed=5), top_k / num_experts
    spread = np.square(counts - tokens * share).sum(axis=1) / (tokens * share * (1 - share)) * (num_experts - 1) / num_experts
    assert np.abs(spread - 255).max() < 4 * np.sqrt(2 * 255)  # chi-square with 255 degrees of freedom
    assert abs(np.corrcoef(counts.sum(axis=0), np.arange(256))[0, 1]) < 4 / np.sqrt(256)  # no expert is favoured by its number


def exact_sets(weights, top_k):
    """Probability of each set of experts when one is taken after the other, by its weight among those that are left."""
    found = {}
    for order in itertools.permutations(range(len(weights)), top_k):
        left, chance = sum(weights), Fraction(1)
        for e in order:
            chance, left = chance * weights[e] / left, left - weights[e]
        found[frozenset(order)] = found.get(frozenset(order), 0) + chance
    assert sum(found.values()) == 1
    return {chosen: float(chance) for chosen, chance in found.items()}


@pytest.mark.parametrize(("num_experts", "top_k", "exponent"), [(5, 2, 1), (4, 3, 2), (6, 1, 1), (5, 3, 0)])
def test_experts_are_taken_one_after_the_other_by_their_share(num_experts, top_k, exponent):
    exact = exact_sets([Fraction(1, r**exponent) for r in range(1, num_experts + 1)], top_k)
    rows = routed_tokens(1, top_k, num_experts, exponent=exponent, draws=8000, seed=3)  # one token: a row is its set
    for chosen, chance in exact.items():
        seen = (rows[:, sorted(chosen)].sum(axis=1) == top_k).mean()
        assert abs(seen - chance) < 4.5 * np.sqrt(chance * (1 - chance) / 8000)
    many = routed_tokens(200_000, top_k, num_experts, exponent=exponent, seed=4)[0] / 200_000
    for e in range(num_experts):
        chance = sum(p for chosen, p in exact.items() if e in chosen)
        assert abs(many[e] - chance) < 4.5 * np.sqrt(chance * (1 - chance) / 200_000) + 1e-12


def test_large_batches_are_drawn_in_pieces_of_one_stream(monkeypatch):
    whole = routed_tokens(100, 3, 10, exponent=0.5, draws=3, seed=4)
    monkeypatch.setattr(routing, "CHUNK", 7)
    assert np.array_equal(routed_tokens(100, 3, 10, exponent=0.5, draws=3, seed=4), whole)
    monkeypatch.undo()
    beyond = routed_tokens(2 * routing.CHUNK + 1, 2, 4, seed=1)
    assert beyond.sum() == 2 * (2 * routing.CHUNK + 1) and beyond.max() <= 2 * routing.CHUNK + 1


def test_shares_by_hand():
    assert zipf_shares(4, 0).tolist() == [0.25] * 4 and zipf_shares(1, 7).tolist() == [1]
    assert np.allclose(zipf_shares(3, 1), [6 / 11, 3 / 11, 2 / 11], rtol=1e-12)
    assert np.allclose(zipf_shares(2, 2), [0.8, 0.2], rtol=1e-12)
    assert np.allclose(zipf_shares(4, 0.5) / zipf_shares(4, 0.5)[3], [2, np.sqrt(2), 2 / np.sqrt(3), 1], rtol=1e-12)
    shares = zipf_shares(256, 0.67)
    assert shares.sum() == pytest.approx(1) and (np.diff(shares) < 0).all()
    assert shares[0] / shares[-1] == pytest.approx(256**0.67)


# Imbalance ----------------------------------------------------------------------------------------------------------------

loads_of = st.lists(st.integers(0, 1000), min_size=1, max_size=12).filter(any)


@given(loads_of, st.integers(1, 1000), st.randoms())
def test_imbalance_has_no_unit_and_no_order(loads, scale, random):
    ratio = float(imbalance(loads))
    assert 1 - 1e-12 < ratio <= len(loads) * (1 + 1e-12)
    shuffled = random.sample(loads, len(loads))
    assert float(imbalance(np.multiply(shuffled, scale))) == pytest.approx(ratio, rel=1e-12)
    assert (ratio < 1 + 1e-12) == (len(set(loads)) == 1)
    assert sum(loads) * ratio == pytest.approx(len(loads) * max(loads))  # the mean times the ratio is the largest


def test_imbalance_by_hand():
    assert imbalance([4, 2, 2, 0]) == 2 and imbalance([7, 7, 7]) == 1 and imbalance([1, 0, 0, 0]) == 4
    assert imbalance([[3, 1], [0, 5], [2, 2]]).tolist() == [1.5, 2, 1] and np.ndim(imbalance([5])) == 0
    assert imbalance(np.ones((2, 3, 4))).shape == (2, 3)


# Placements ---------------------------------------------------------------------------------------------------------------


@given(st.integers(1, 8), st.integers(1, 8), st.integers(0, 99) | st.none())
def test_even_placements_hold_each_expert_once(devices, each, seed):
    placement = even_placement(devices * each, devices, seed=seed)
    assert placement.shape == (devices, each) and sorted(placement.ravel().tolist()) == list(range(devices * each))
    assert seed is not None or placement.ravel().tolist() == list(range(devices * each))
    assert np.array_equal(placement, even_placement(devices * each, devices, seed=seed))


def test_shuffled_experts_lie_anywhere():
    at = np.array([np.argwhere(even_placement(64, 8, seed=i) == 0)[0, 0] for i in range(400)])
    assert np.bincount(at, minlength=8).min() > 25  # 50 each are expected, with a spread of 6.6
    assert len({tuple(even_placement(64, 8, seed=i).ravel()) for i in range(20)}) == 20


@st.composite
def balanced(draw, max_devices=4, max_room=4, max_load=60):
    """Loads, devices and slots that fit."""
    devices, room = draw(st.integers(1, max_devices)), draw(st.integers(1, max_room))
    experts = draw(st.integers(1, devices * room))
    return draw(st.lists(st.integers(0, max_load), min_size=experts, max_size=experts)), devices, devices * room


def placed(loads, devices, slots):
    placement = balanced_placement(loads, devices, slots=slots)
    return placement, np.bincount(placement.ravel(), minlength=len(loads))


@given(balanced())
@example(([6, 2, 1], 2, 4))
@example(([0, 0, 0], 2, 4))
def test_balanced_placements_fill_each_slot_and_keep_each_expert(case):
    loads, devices, slots = case
    placement, copies = placed(*case)
    assert placement.shape == (devices, slots // devices) and copies.size == len(loads) and copies.min() >= 1
    on = device_loads(loads, placement)
    assert on.sum() == pytest.approx(sum(loads)) and on.min() >= 0
    hottest = max(np.divide(loads, copies))
    assert on.max() - on.min() <= hottest * (1 + 1e-9)  # a GPU that is ahead by more would not have been given its last copy
    assert on.max() <= sum(loads) / devices + hottest * (1 - 1 / devices) + 1e-9  # Graham's bound follows


@given(balanced(max_devices=3, max_room=3))
def test_no_other_numbers_of_copies_make_the_hottest_copy_cooler(case):
    loads, _, slots = case
    _, copies = placed(*case)
    spare = itertools.combinations_with_replacement(range(len(loads)), slots - len(loads))
    best = min(max(load / (1 + extra.count(i)) for i, load in enumerate(loads)) for extra in spare)
    assert max(np.divide(loads, copies)) == pytest.approx(best, rel=1e-12)


@functools.cache
def partitions(devices, room):
    """All ways to deal numbered items to devices of equal room."""
    def deal(items):
        if not items:
            yield ()
        else:
            for others in itertools.combinations(items[1:], room - 1):
                for rest in deal(tuple(i for i in items[1:] if i not in others)):
                    yield ((items[0], *others), *rest)

    return np.array(list(deal(tuple(range(devices * room)))))


@pytest.mark.parametrize(("devices", "room", "ways"), [(2, 2, 3), (3, 2, 15), (4, 2, 105), (2, 3, 10), (3, 3, 280)])
@given(data=st.data())
def test_devices_are_loaded_nearly_as_evenly_as_any_placement_can(devices, room, ways, data):
    loads = np.array(data.draw(st.lists(st.integers(1, 50), min_size=devices * room, max_size=devices * room)))
    every = partitions(devices, room)
    best = loads[every].sum(axis=2).max(axis=1).min()
    found = device_loads(loads, balanced_placement(loads, devices)).max()
    assert len(every) == ways and found >= best
    # The largest with the smallest is optimal for two slots; Kellerer and Woeginger 1993 for three.
    assert found <= best * (1 if room == 2 else 4 / 3 - 1 / (3 * devices)) + 1e-9


@pytest.mark.parametrize(("layer", "ratio", "hierarchical"), [(0, 1.073, 1.208), (1, 1.190, 1.242)])
def test_deepseeks_example_is_balanced_better_than_by_its_hierarchical_policy(layer, ratio, hierarchical):
    # README of deepseek-ai/EPLB: 12 experts, 16 slots, 8 GPUs; printed is the output of the policy for two nodes.
    printed = [[5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1], [7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1]]
    theirs = device_loads(EPLB[layer], np.reshape(printed[layer], (8, 2)))
    by_hand = [[121.5, 86.5, 125, 113, 147.5, 131.5, 156, 152], [173, 179.5, 120.5, 172, 123, 152, 118.5, 117.5]]
    assert theirs.tolist() == by_hand[layer] and round(float(imbalance(theirs)), 3) == hierarchical
    placement, copies = placed(EPLB[layer], 8, 16)
    assert round(float(imbalance(device_loads(EPLB[layer], placement))), 3) == ratio
    # Both policies have the same four hottest experts twice in the first layer; one of the second differs by node.
    assert np.flatnonzero(copies == 2).tolist() == [[1, 4, 5, 10], [5, 6, 7, 8]][layer] and copies.max() == 2


def test_without_spare_slots_nothing_is_copied():
    placement = balanced_placement([5, 4, 3, 3, 2, 1], 3)
    assert placement.tolist() == [[0, 5], [1, 4], [2, 3]] and device_loads([5, 4, 3, 3, 2, 1], placement).tolist() == [6, 6, 6]
    assert placed([9, 1], 1, 5)[1].tolist() == [4, 1]  # 9 / 4 is still more than 1


# Loads and slots in use ---------------------------------------------------------------------------------------------------


@st.composite
def anywhere(draw):
    """Tokens of each expert and a placement with copies anywhere."""
    experts, devices = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    room = draw(st.integers(-(-experts // devices), -(-experts // devices) + 2))
    extra = draw(st.lists(st.integers(0, experts - 1), min_size=devices * room - experts, max_size=devices * room - experts))
    slots = draw(st.permutations([*range(experts), *extra]))
    return draw(st.lists(st.integers(0, 9), min_size=experts, max_size=experts)), np.reshape(slots, (devices, room))


def dealt(tokens, placement, spread):
    """Tokens of each slot when those of an expert are dealt to its copies in turn, or all to its first."""
    found = np.zeros(placement.size, int)
    for expert, count in enumerate(tokens):
        slots = [i for i, e in enumerate(placement.ravel()) if e == expert]
        for token in range(count):
            found[slots[token % len(slots) if spread else 0]] += 1
    return found.reshape(placement.shape)


@given(anywhere())
@example(([6, 0, 1], np.array([[0, 1], [0, 2]])))
def test_slots_in_use_are_those_that_get_a_token_when_they_are_dealt_out(case):
    tokens, placement = case
    spread, single = (touched_slots(tokens, placement, spread=how) for how in (True, False))
    assert spread.tolist() == (dealt(*case, True) > 0).sum(axis=1).tolist()
    assert single.tolist() == (dealt(*case, False) > 0).sum(axis=1).tolist()
    assert (single <= spread).all() and (spread <= placement.shape[1]).all() and single.sum() == np.count_nonzero(tokens)
    copies = np.bincount(placement.ravel())
    whole = (np.array(tokens) * copies).tolist()  # so that each copy gets the same number
    assert device_loads(whole, placement).tolist() == pytest.approx(dealt(whole, placement, True).sum(axis=1).tolist())
    assert device_loads(tokens, placement).sum() == pytest.approx(sum(tokens))


def test_loads_and_slots_by_hand():
    tokens, placement = [[12, 3, 1, 0], [0, 0, 2, 1]], [[0, 1, 2], [0, 3, 0]]
    assert device_loads(tokens, placement).tolist() == [[8, 8], [2, 1]]
    assert touched_slots(tokens, placement).tolist() == [[3, 2], [1, 1]]
    assert touched_slots(tokens, placement, spread=False).tolist() == [[3, 0], [1, 1]]
    assert touched_slots([2, 0, 0, 0], placement).tolist() == [1, 1]  # two tokens, three copies
    stacked = device_loads(np.ones((5, 2, 4)), placement)
    assert stacked.shape == (5, 2, 2) and touched_slots(np.ones((5, 2, 4)), placement).shape == (5, 2, 2)


def test_without_copies_the_slots_in_use_are_the_experts_with_tokens():
    drawn, placement = routed_tokens(20, 4, 64, draws=5, seed=8), even_placement(64, 8, seed=1)
    wanted = [[sum(row[e] > 0 for e in device) for device in placement] for row in drawn]
    for how in (True, False):
        assert touched_slots(drawn, placement, spread=how).tolist() == wanted
    assert device_loads(drawn, placement).tolist() == [[sum(row[e] for e in device) for device in placement] for row in drawn]


def test_spare_slots_repair_what_popularity_unbalances():
    seen, now = (routed_tokens(4096, 8, 256, exponent=0.67, draws=4, seed=s) for s in (1, 2))
    packed, spare = (
        imbalance(device_loads(now, balanced_placement(seen.sum(axis=0), 32, slots=n))).mean() for n in (256, 288)
    )
    at_random = np.mean([imbalance(device_loads(now, even_placement(256, 32, seed=i))) for i in range(10)])
    hottest = now.max(axis=1).mean() / 1024  # of 32 GPUs each has 1024 pairs on average; one expert alone has more
    assert at_random > packed > 1.9 and hottest > 1.3 and spare < 1.1


# Errors -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: zipf_shares(0, 1), "num_experts must be >= 1, got 0"),
        (lambda: zipf_shares(2.5, 1), "num_experts must be a whole number, got 2.5"),
        (lambda: zipf_shares(4, -0.1), "exponent must be one number >= 0, got -0.1"),
        (lambda: zipf_shares(4, [0, 1]), "exponent must be one number >= 0"),
        (lambda: zipf_shares(4, np.inf), "exponent must be finite, got inf"),
        (lambda: routed_tokens(0, 1, 4), "tokens must be >= 1, got 0"),
        (lambda: routed_tokens([1, 2], 1, 4), "tokens must be one number"),
        (lambda: routed_tokens(4, 5, 4), "top_k must be <= num_experts = 4, got 5"),
        (lambda: routed_tokens(4, 0, 4), "top_k must be >= 1, got 0"),
        (lambda: routed_tokens(4, 1, 4.5), "num_experts must be a whole number, got 4.5"),
        (lambda: routed_tokens(4, 1, 4, draws=0), "draws must be >= 1, got 0"),
        (lambda: routed_tokens(4, 1, 4, exponent=np.nan), "exponent must be finite, got nan"),
        (lambda: imbalance([1, -1]), "loads must be a list of numbers >= 0"),
        (lambda: imbalance([[1, 1], [0, 0]]), "loads must be .* with a positive sum"),
        (lambda: imbalance(3.0), "loads must be a list"),
        (lambda: imbalance([]), "loads must be a list"),
        (lambda: imbalance([1, np.nan]), "loads must be finite, got nan"),
        (lambda: even_placement(10, 4), "devices must divide num_experts = 10, got 4"),
        (lambda: even_placement(10, 0), "devices must be >= 1, got 0"),
        (lambda: balanced_placement([1, -2], 1), "loads must be a list of numbers >= 0"),
        (lambda: balanced_placement([[1, 2]], 1), "loads must be a list of numbers >= 0"),
        (lambda: balanced_placement([], 1), "loads must be a list of numbers >= 0"),
        (lambda: balanced_placement([1, 2, 3], 2), "slots must be at least 3 and a multiple of devices = 2, got 3"),
        (lambda: balanced_placement([1, 2, 3], 2, slots=2), "slots must be at least 3 .* got 2"),
        (lambda: balanced_placement([1, 2, 3], 2, slots=5), "slots must be .* a multiple of devices = 2, got 5"),
        (lambda: balanced_placement([1, 2], 0), "devices must be >= 1, got 0"),
        (lambda: device_loads([1, 2, 3], [[0, 1]]), "placement must be a table that holds each of the 3 experts"),
        (lambda: device_loads([1, 2], [[0, 1, 2]]), "placement must be a table that holds each of the 2 experts"),
        (lambda: device_loads([1, 2], [[0, 1, -1]]), "placement must be a table"),
        (lambda: device_loads([1, 2], [[0, 1, 0.5]]), "placement must be a table"),
        (lambda: device_loads([1, 2], [0, 1]), "placement must be a table"),
        (lambda: device_loads(5, [[0]]), "tokens must be a list of numbers >= 0, got 5"),
        (lambda: touched_slots([1, -2], [[0, 1]]), "tokens must be a list of numbers >= 0"),
        (lambda: touched_slots([1, np.inf], [[0, 1]]), "tokens must be finite, got inf"),
        (lambda: touched_slots([1, 2], [["a", "b"]]), "placement must be a number or an array of numbers"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(call, says):
    with pytest.raises(ValueError, match=says):
        call()
