"""Cut caches against plain softmax, counts by hand and what was published; their rows in the catalogue; a cache that is read."""

import csv
import itertools
import math
import types
import warnings
from dataclasses import replace
from importlib import resources

import numpy as np
import pytest

from hwdesign.catalogue.published import cache_cuts
from hwdesign.formulas import cache_parallel
from hwdesign.formulas.attention import cache_read_bytes
from hwdesign.formulas.cache_parallel import break_even_tokens, merge_bytes, merge_partials, partial_attention
from hwdesign.lessons import live, live_parallel
from hwdesign.measure.runs import Skipped, load_run, shipped_runs

LOG3 = np.log(3.0)


# Partial softmax and its merge --------------------------------------------------------------------------------------------


def softmax_mean(scores, values):
    """Attention in FP64, one row after the other and over the keys that are seen alone; zeros where there is none."""
    found = np.zeros((*scores.shape[:-1], values.shape[-1]))
    for at in np.ndindex(*scores.shape[:-1]):
        seen = np.isfinite(scores[at])
        if seen.any():
            weights = np.exp(scores[at][seen] - scores[at][seen].max())
            found[at] = weights / weights.sum() @ values[at[:-1]][seen]
    return found


def in_pieces(scores, values, ends):
    """The three of the whole, from those of the pieces between these ends."""
    cuts = itertools.pairwise((0, *ends, scores.shape[-1]))
    found = [partial_attention(scores[..., a:b], values[..., a:b, :]) for a, b in cuts]
    return merge_partials(*(np.stack(x) for x in zip(*found, strict=True)))


def drawn(seed):
    """Random scores, values and ends of pieces in FP32: rows and pieces are hidden in all the ways that occur."""
    rng = np.random.default_rng(seed)
    lead = tuple(rng.integers(1, 4, rng.integers(0, 3)).tolist())
    queries, keys, width, pieces = (int(rng.integers(1, high)) for high in (6, 300, 20, 65))
    scores = (rng.normal(0, rng.choice([0.1, 1, 10]), (*lead, queries, keys)) + rng.normal(0, 30)).astype(np.float32)
    values = rng.normal(size=(*lead, keys, width)).astype(np.float32)
    ends = np.sort(rng.integers(0, keys + 1, pieces - 1)).tolist()  # equal ends: a piece without a key
    scores[rng.random(scores.shape) < rng.choice([0, 0.3, 0.95])] = -np.inf
    if seed % 3 == 0:
        scores[..., 0, :] = -np.inf  # a row that sees nothing
    if seed % 3 == 1:
        only = int(rng.integers(keys))
        kept = scores[..., -1, only].copy()
        scores[..., -1, :] = -np.inf  # one that sees a single key
        scores[..., -1, only] = np.where(np.isinf(kept), 2, kept)
    if seed % 2 and ends:
        scores[..., : ends[0]] = -np.inf  # a piece that nobody sees
    return scores, values, ends


@pytest.mark.parametrize("start", range(0, 200, 20))
def test_merged_pieces_are_the_softmax_of_the_whole(start):
    for seed in range(start, start + 20):
        scores, values, ends = drawn(seed)
        top, total, output = in_pieces(scores, values, ends)
        assert output.dtype == total.dtype == top.dtype == np.float32 and output.shape == (*scores.shape[:-1], values.shape[-1])
        assert np.abs(output - softmax_mean(scores.astype(float), values.astype(float))).max() < 1e-6, seed
        assert np.array_equal(top, scores.max(axis=-1))
        seen = np.isfinite(top)
        weight = np.exp(scores.astype(float) - np.where(seen, top, 0)[..., None]).sum(axis=-1)
        assert np.allclose(total, weight, rtol=1e-6, atol=0) and (total[seen] >= 1).all() and not total[~seen].any()


def test_the_seeds_hide_rows_pieces_and_all_but_one_key():
    rows = pieces = lone = empty = ways = 0
    for seed in range(200):
        scores, _, ends = drawn(seed)
        seen = np.isfinite(scores)
        rows, lone = rows + (~seen.any(-1)).any(), lone + (seen.sum(-1) == 1).any()
        cuts = list(itertools.pairwise((0, *ends, scores.shape[-1])))
        empty, ways = empty + any(a == b for a, b in cuts), max(ways, len(cuts))
        pieces += any(a < b and not seen[..., a:b].any() for a, b in cuts)
    assert min(rows, pieces, lone, empty) > 20 and ways > 60


def test_merged_pieces_are_what_torch_computes():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    for pieces in (1, 2, 8, 64):
        scores, values = (rng.normal(0, 4, shape).astype(np.float32).astype(float) for shape in ((2, 5, 96), (2, 96, 7)))
        mask = rng.random(scores.shape) < 0.6
        mask[..., 3] = True
        eye = torch.eye(96, dtype=torch.float64).expand(2, 96, 96)  # queries times these keys are the scores themselves
        wanted = torch.nn.functional.scaled_dot_product_attention(
            torch.tensor(scores), eye, torch.tensor(values), attn_mask=torch.tensor(mask), scale=1.0
        ).numpy()
        hidden, ends = np.where(mask, scores, -np.inf), np.sort(rng.integers(0, 97, pieces - 1)).tolist()
        assert np.allclose(in_pieces(hidden, values, ends)[2], wanted, rtol=0, atol=1e-12)
        narrow = in_pieces(hidden.astype(np.float32), values.astype(np.float32), ends)[2]
        assert np.allclose(narrow, wanted, rtol=1e-6, atol=1e-6) and narrow.dtype == np.float32


def test_a_merge_by_hand():
    top, total, output = partial_attention([[0, LOG3], [-np.inf, 5]], [[1.0, 0], [5.0, 8]])
    assert np.allclose(top, [LOG3, 5]) and np.allclose(total, [4 / 3, 1]) and np.allclose(output, [[4, 6], [5, 8]])
    top, total, output = merge_partials([[0], [LOG3], [-np.inf]], [[2], [2], [0]], [[[1]], [[5]], [[0]]])
    assert np.allclose([top[0], total[0], output[0, 0]], [LOG3, 2 + 2 / 3, 4])  # weights 1 and 3
    none = merge_partials([[-np.inf]] * 2, [[0]] * 2, [[[0, 0]]] * 2)
    assert none[0].tolist() == [-np.inf] and none[1].tolist() == [0] and none[2].tolist() == [[0, 0]]


def test_a_piece_without_keys_has_no_weight():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        top, total, output = partial_attention(np.zeros((3, 2, 0)), np.zeros((3, 0, 4)))
        assert (top == -np.inf).all() and not total.any() and output.shape == (3, 2, 4) and not output.any()
        one = partial_attention(np.ones((3, 2, 5)), np.arange(60.0).reshape(3, 5, 4))
        merged = merge_partials(*(np.stack(x) for x in zip((top, total, output), one, strict=True)))
        assert all(np.array_equal(a, b) for a, b in zip(merged, one, strict=True))
        assert all(np.array_equal(a, b) for a, b in zip(merge_partials(*(x[None] for x in one)), one, strict=True))


def test_merges_can_be_merged_in_any_grouping_and_order():
    rng = np.random.default_rng(2)
    for seed in range(40):
        scores, values, ends = drawn(seed)
        cuts = itertools.pairwise((0, *ends, scores.shape[-1]))
        parts = [partial_attention(scores[..., a:b].astype(float), values[..., a:b, :].astype(float)) for a, b in cuts]
        whole = merge_partials(*(np.stack(x) for x in zip(*parts, strict=True)))
        while len(parts) > 1:
            rng.shuffle(order := list(range(len(parts))))
            parts = [parts[i] for i in order]
            taken = int(rng.integers(2, len(parts) + 1))
            merged = merge_partials(*(np.stack(x) for x in zip(*parts[:taken], strict=True)))
            parts = [*parts[taken:], merged]
        for found, wanted in zip(parts[0], whole, strict=True):
            assert np.allclose(found, wanted, rtol=1e-12, atol=1e-12), seed


def test_scores_may_be_shifted():
    rng = np.random.default_rng(3)
    scores = (rng.integers(-512, 512, (4, 3, 80)) / 64).astype(np.float32)  # exact in FP32, shifted too
    values, ends = rng.normal(size=(4, 80, 5)).astype(np.float32), [10, 11, 50]
    top, total, output = in_pieces(scores, values, ends)
    for shift in (-1000, 3.5, 4096):
        moved = in_pieces(scores + np.float32(shift), values, ends)
        assert np.array_equal(moved[0], top + np.float32(shift))
        assert np.array_equal(moved[1], total) and np.array_equal(moved[2], output)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_large_scores_do_not_overflow(dtype):
    rng = np.random.default_rng(4)
    scores, values = rng.choice([-1e4, 0, 9999, 1e4], (6, 90)).astype(dtype), rng.normal(size=(90, 3)).astype(dtype)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        found = in_pieces(scores, values, [1, 30, 30, 77])
    assert np.isfinite(found[2]).all() and np.abs(found[2] - softmax_mean(scores.astype(float), values)).max() < 1e-6
    lone = in_pieces(np.array([[1e4, -1e4]], dtype), np.array([[2.0], [3.0]], dtype), [1])[2]
    assert lone.tolist() == [[2.0]]


def test_fp32_stays_and_everything_else_becomes_fp64():
    for given, kept in (("f4", "f4"), ("f8", "f8"), ("f2", "f8"), ("i4", "f8")):
        parts = partial_attention(np.ones((2, 3), given), np.ones((3, 4), given))
        assert [x.dtype for x in parts] == [np.dtype(kept)] * 3
        assert [x.dtype for x in merge_partials(*(x[None] for x in parts))] == [np.dtype(kept)] * 3


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: partial_attention([1.0], [[1.0]]), r"scores and values must be .* got shapes \(1,\) and \(1, 1\)"),
        (lambda: partial_attention([[1.0]], [1.0]), r"scores and values must be .* got shapes \(1, 1\) and \(1,\)"),
        (lambda: partial_attention([[1.0, 2]], [[1.0]]), r"scores and values must be .* got shapes \(1, 2\) and \(1, 1\)"),
        (lambda: partial_attention([[np.nan]], [[1.0]]), "scores must be finite or -inf"),
        (lambda: partial_attention([[np.inf]], [[1.0]]), "scores must be finite or -inf"),
        (lambda: partial_attention([["1"]], [[1.0]]), "scores must be a number or an array of numbers"),
        (lambda: partial_attention([[1.0]], [[1j]]), "values must be a number or an array of numbers"),
        (lambda: merge_partials([[0.0]], [[1.0, 1]], [[[1.0]]]), r"tops, totals and outputs must be .* \(1, 1\), \(1, 2\)"),
        (lambda: merge_partials([[0.0]], [[1.0]], [[1.0]]), "tops, totals and outputs must be"),
        (lambda: merge_partials(0.0, 1.0, [1.0]), "tops, totals and outputs must be"),
        (lambda: merge_partials([], [], np.zeros((0, 1))), "tops, totals and outputs must be"),
        (lambda: merge_partials([[True]], [[1.0]], [[[1.0]]]), "tops must be a number or an array of numbers"),
        (lambda: merge_bytes(0, 128, 512, 8), "tokens must be > 0, got 0"),
        (lambda: merge_bytes(1, 0, 512, 8), "num_heads must be >= 1, got 0"),
        (lambda: merge_bytes(1, 128, 51.5, 8), "value_size must be a whole number, got 51.5"),
        (lambda: merge_bytes(1, 128, 512, 0), "kvp must be >= 1, got 0"),
        (lambda: merge_bytes(1, 128, 512, 8, 0), "element_bytes must be > 0, got 0"),
        (lambda: break_even_tokens(0, 1, 1, 2), "exchange must be > 0, got 0"),
        (lambda: break_even_tokens(1, -1, 1, 2), "cache_bytes must be > 0, got -1"),
        (lambda: break_even_tokens(1, 1, 0, 2), "bandwidth must be > 0, got 0"),
        (lambda: break_even_tokens(1, 1, 1, [2, 1]), "kvp must be >= 2, got 1"),
        (lambda: break_even_tokens(1, 1, 1, 2.5), "kvp must be a whole number, got 2.5"),
    ],
)
def test_bad_input_is_named(call, says):
    with pytest.raises(ValueError, match="^" + says):
        call()


def test_ragged_lists_and_axes_in_front_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match="^scores must be a number or an array of numbers"):
        partial_attention([[1, 2], [3]], [[1.0]])
    with pytest.raises(ValueError, match="^tops must be a number or an array of numbers"):
        merge_partials([[0, 1], [2]], [[1, 1]], [[[1.0]]])
    with pytest.raises(ValueError, match="scores.* values"):
        partial_attention(np.zeros((2, 3, 4)), np.zeros((3, 4, 5)))


# What is sent, and when it pays -------------------------------------------------------------------------------------------


def test_what_one_gpu_sends_for_a_layer_of_deepseek_r1():
    assert merge_bytes(1, 128, 512, [4, 8, 64]).tolist() == [99_072, 115_584, 130_032]
    assert merge_bytes([1, 16], 64, 128, 1).tolist() == [0, 0]
    assert isinstance(merge_bytes(1, 1, 1, 2), float) and 2 * np.float32().nbytes == cache_parallel.STATISTICS_BYTES


@pytest.mark.parametrize(("heads", "size", "kvp", "element"), [(128, 512, 8, 2), (64, 128, 4, 2), (8, 64, 8, 4), (6, 128, 3, 1)])
def test_messages_counted_one_by_one_are_what_is_sent(heads, size, kvp, element):
    owner = [h * kvp // heads for h in range(heads)]  # who merges a head
    for me in range(kvp):
        message = [size * element + 2 * 4 for token in range(5) for h in range(heads) if owner[h] != me]
        assert merge_bytes(5, heads, size, kvp, element) == pytest.approx(sum(message), rel=1e-12)


def test_published_break_even():
    assert round(float(break_even_tokens(35e-6, 576, 8e12, 8))) == 555_556
    found = break_even_tokens([35e-6, 176e-6], 576, 8e12, 8)
    assert found[1] / found[0] == pytest.approx(176 / 35)


@pytest.mark.parametrize("kvp", [2, 3, 8, 64])
def test_a_cut_pays_from_the_break_even_on(kvp):
    exchange, kept, bandwidth = 20e-6, 1152, 4.8e12
    tokens = float(break_even_tokens(exchange, kept, bandwidth, kvp))

    def saved(n):
        return float(cache_read_bytes(n, kept, 1) - cache_read_bytes(n, kept, 1 / kvp)) / bandwidth

    assert saved(math.floor(tokens * 0.999)) < exchange < saved(math.ceil(tokens * 1.001))


# The catalogue ------------------------------------------------------------------------------------------------------------

GAINS = {"interactivity", "concurrency", "throughput", "speed"}  # over 1
TIMES = {"exchange [ms]", "time per token [ms]", "step [ms]"}
RATES = {"output [token/s]", "total [token/s of a GPU]", "cache used [%]", "requests [1/s]", "cached tokens [million]"}
OTHERS = {"whole run [s]", "weights of queries [GiB]", "collectives [ms]", "score [%]"}


def test_published_rows_have_sources_and_positive_numbers():
    found = cache_cuts()
    assert found is cache_cuts() and isinstance(found, tuple) and len(found) == 45
    for row in found:
        assert row["quantity"] in GAINS | TIMES | RATES | OTHERS | {"crossing"} and row["system"]
        assert len(row["source"]) > 10 and row["source"] != "same"
        numbers = {k: row[k] for k in ("ways", "context", "concurrency", "before", "after")}
        may_be_0 = row["quantity"] in ("score [%]", "weights of queries [GiB]")
        assert all(isinstance(v, float) and (v > 0 or np.isnan(v) or may_be_0) for v in numbers.values())
        assert np.isnan(row["ways"]) or row["ways"] in (2, 4, 8)
        assert row["before"] > 0 or row["after"] > 0  # one may be unknown
        if row["quantity"] in GAINS:
            assert row["before"] == 1 and 0.5 < row["after"] <= 32
        if row["quantity"] in TIMES:
            assert 0.01 < row["before"] < 200 and 0.01 < row["after"] < 200
        if row["quantity"] == "crossing":
            assert row["after"] == 2 * row["before"] or (row["context"], row["after"]) == (2**18, 1)
        if row["quantity"] == "cache used [%]":
            assert row["after"] < 100
    with pytest.raises(TypeError):
        found[0]["after"] = 2


def test_the_same_source_is_the_one_above():
    text = resources.files("hwdesign.catalogue").joinpath("decoupled.csv").read_text(encoding="utf-8")
    plain, above, same = list(csv.DictReader(text.splitlines())), None, 0
    for read, row in zip(cache_cuts(), plain, strict=True):
        same += row["source"] == "same"
        above = above if row["source"] == "same" else row["source"]
        assert read["source"] == above and list(read) == list(row)
    assert same > 10
    kinds = {(r["system"], r["quantity"], r["context"]): (r["before"], r["after"]) for r in cache_cuts() if r["ways"] == 8}
    assert kinds["SGLang", "crossing", 2**15] == (8, 16) and kinds["SGLang", "throughput", 2**17] == (1, 1.68)
    assert [r["after"] for r in cache_cuts() if r["system"] == "FlashInfer"] == [0.035, 0.034, 0.033, 0.032]
    assert [(r["before"], r["after"]) for r in cache_cuts() if r["system"] == "ATOM"] == [
        (59.43, 76.48), (167.17, 141.54), (139.45, 93.21)
    ]  # fmt: skip


# A cache is read ----------------------------------------------------------------------------------------------------------


def stored_read():
    found = [m for m in load_run(shipped_runs()[0]).measurements if m.operation == "attention_decode" and m.shape["batch"] == 1]
    return found[0]


def test_the_stored_read_of_a_cache(monkeypatch):
    monkeypatch.setattr(live_parallel, "measure_attention", lambda *_, **__: pytest.fail("timed"))
    monkeypatch.setenv("HWDESIGN_STATIC", "1")
    found = live.cache_reads()
    assert found == live.cache_reads(stored=True) == stored_read()
    assert found.shape == {"batch": 1, "context": 4096, "heads": 32, "kv_heads": 8, "head_dim": 128}
    assert found.nbytes / 4096 == pytest.approx(2 * 8 * 128 * 2, rel=0.01)  # keys and values, and the queries' little
    assert found.bandwidth == pytest.approx(found.nbytes / found.seconds) and 1e9 < found.bandwidth < 1e12


def test_of_several_reads_the_one_of_a_single_sequence_is_taken(monkeypatch):
    run = load_run(shipped_runs()[0])
    assert {m.shape["batch"] for m in run.measurements if m.operation == "attention_decode"} > {1}
    backwards = sorted(run.measurements, key=lambda m: -m.shape.get("batch", 0))
    monkeypatch.setattr(live_parallel, "load_run", lambda path: replace(run, measurements=backwards))
    assert live.cache_reads(stored=True).shape["batch"] == 1


def fake(monkeypatch, result):
    asked = []
    monkeypatch.delenv("HWDESIGN_STATIC", raising=False)
    monkeypatch.setattr(live_parallel, "as_backend", lambda name: types.SimpleNamespace(name="numpy", precisions=("fp32",)))
    monkeypatch.setattr(live_parallel, "measure_attention", lambda *a, **k: asked.append((a, k["precision"])) or result)
    return asked


def test_a_kernel_times_the_read_of_a_cache(monkeypatch, capsys):
    mine = types.SimpleNamespace(**vars(stored_read()) | {"device": "my machine"})
    monkeypatch.setattr(live_parallel, "Measurement", types.SimpleNamespace)
    asked = fake(monkeypatch, mine)
    assert live.cache_reads() is live.cache_reads(stored=False) is mine
    assert asked == [((1, 4096, 32, 8), "fp32")] * 2 and capsys.readouterr().out == ""


def test_where_no_cache_can_be_read_the_stored_one_is_shown_and_said_to_be(monkeypatch, capsys):
    fake(monkeypatch, Skipped(operation="attention_decode", reason="no memory"))
    assert live.cache_reads() == stored_read()
    (line,) = capsys.readouterr().out.splitlines()
    assert "no memory" in line and "stored run" in line and stored_read().device in line
