"""What the last chapter shows: the gallery of verdicts, pairs of published servers, and its figures."""

import numpy as np
import pytest

import hwdesign as hw
from hwdesign.advice.case import Case
from hwdesign.advice.guidelines import GUIDELINES
from hwdesign.lessons import figures
from hwdesign.lessons.studies.verdicts import SHORT, checklist_table, gallery, served_pairs, verdict_cost
from hwdesign.models import config
from hwdesign.timing.served import SHOWN, SURE_GAIN, expected_gain, sure_gain

EIGHT = {"attention": hw.Plan(tp=8), "ffn": hw.Plan(tp=8)}
SOME = ("deepseek-r1", "gpt2", "llama-3.1-8b", "llama-3.3-nemotron-super-49b")


@pytest.fixture(scope="module")
def judged():
    return gallery(SOME)


def test_the_gallery_is_the_checklist_with_guideline_6_in_stages(judged):
    assert tuple(judged) == SOME
    for name, verdicts in judged.items():
        found = hw.checklist(Case(model=config.load(name), **EIGHT)).verdicts
        assert [v.guideline for v in verdicts] == list(SHORT) == list(GUIDELINES)
        assert all(mine == theirs for mine, theirs in zip(verdicts, found, strict=True) if mine.guideline != 6)
    staged = {"attention": hw.Plan(tp=8, pp=4), "ffn": hw.Plan(tp=8, pp=4)}
    six = hw.checklist(Case(model=config.load("deepseek-r1"), **staged)).verdicts[5]
    assert judged["deepseek-r1"][5].findings[0].cost == six.findings[0].cost
    assert judged["llama-3.3-nemotron-super-49b"][5].status == "fail"  # chapter 6: no two of its stages are alike
    assert judged["gpt2"][1].status == "break"  # 12 heads over 8 GPUs
    assert [f.dimension for f in judged["deepseek-r1"][3].findings] == ["recipe", "cache"]


def test_cost_of_a_verdict_is_its_largest(judged):
    for verdict in (v for row in judged.values() for v in row):
        costs = [f.cost for f in verdict.findings if f.cost is not None]
        assert verdict_cost(verdict) == (max(costs) if costs else None)


def test_table_has_a_row_for_each_finding_and_each_quiet_guideline():
    found = hw.checklist(Case(model=config.load("gpt-oss-120b")))
    rows = checklist_table(found, "gpt-oss").rows
    # Two widths, and two formats: that of the products and that of the cache.
    assert [row[0][0] for row in rows] == [str(n) for n in sorted([2, 4, *GUIDELINES])]
    assert [row[1] for row in rows].count("n/a") == 3
    # Of the multiples of 128 beside it, 64 away both, the smaller: the larger makes the step longer.
    assert rows[1][3] == "hidden size 2880" and rows[1][4] == "hidden size 2816"


def test_a_break_is_drawn_with_its_word_and_no_cost():
    """vLLM refuses 12 query heads over 8 GPUs: that is no share of a step."""
    found = hw.checklist(Case(model="gpt2", **EIGHT))
    assert found.verdicts[1].status == "break" and verdict_cost(found.verdicts[1]) is None
    (text,) = [t for t in figures.verdict_map({"gpt2": found.verdicts}).texts if t.get_text().startswith("break")]
    assert text.get_text() == "break" and text.get_weight() == "bold"
    assert "break" in [t.get_text() for t in figures.cost_bars(found).texts]
    assert checklist_table(found, "GPT-2").rows[1][1:3] == ["break", "–"]


@pytest.mark.parametrize("differ", ["experts", "plans", "precision"])
def test_pairs_are_all_that_differ_in_one_choice(differ):
    """Against a plain search through all pairs of points."""
    points, pairs = hw.served_points(matched=True), served_pairs(differ)
    experts = {"moe_tp", "moe_ep"}
    formats = {"precision", "moe_precision", "wide"}
    free = {"experts": experts, "plans": experts | {"tp", "dp"}, "precision": formats}[differ]
    gone = {"ttft", "tpot", "modelled", "waiting", "matched", "runs", "speculative"}
    text = {name: values.astype(str) for name, values in points.items() if name not in gone | free}
    gpus, count = points["tp"] * points["dp"], 0
    for i in range(len(gpus)):
        same = (gpus == gpus[i]) & np.logical_and.reduce([column == column[i] for column in text.values()])
        if differ == "precision":
            same &= points["precision"] != points["precision"][i]
        count += int(same[i + 1 :].sum())
    assert len(pairs["model"]) == count > 10
    first, second = pairs["first"], pairs["second"]
    assert (pairs["published"] == points["tpot"][second] / points["tpot"][first]).all()
    assert (pairs["modelled"] <= 1).all() and (first != second).all()


def test_the_sign_of_a_sure_gain_is_that_of_published_pairs():
    """Pairs of two plans or two formats that differ in nothing else; the rule knows no model."""
    pairs = [served_pairs(differ) for differ in ("plans", "precision")]
    gain = 1 - np.concatenate([each["modelled"] for each in pairs])
    shown = 1 - np.concatenate([each["published"] for each in pairs])
    sure = np.array([sure_gain(g) for g in gain])
    assert len(gain) == 72 + 219 and 1 - sure.mean() <= 0.27
    assert ((shown[sure] > 0).mean().round(2), (shown[~sure] > 0).mean().round(2)) == (0.94, 0.46)
    below = [each["published"][1 - each["modelled"] >= SURE_GAIN - 0.01] < 1 for each in pairs]
    assert min(each.mean() for each in below) < 0.9  # a per cent less, and one of the two kinds is right too rarely
    for each, differ, count in zip(pairs, ("plan", "format"), (21, 194), strict=True):
        mine = (1 - each["modelled"]) >= SURE_GAIN
        assert mine.sum() == count and (each["published"][mine] < 1).mean() >= 0.9
        ratio = (1 - each["published"][mine]) / (1 - each["modelled"][mine])
        assert tuple(np.quantile(ratio, [0.25, 0.75]).round(2)) == SHOWN[differ]
        low, high = SHOWN[differ]
        assert expected_gain(0.5, differ) == (0.5 * low, 0.5 * high) and expected_gain(0.9, differ)[1] <= 1
        assert expected_gain(SURE_GAIN - 1e-9, differ) is None


def test_what_to_compare_is_one_of_three():
    with pytest.raises(ValueError, match="differ must be one of experts, plans, precision, got 'device'"):
        served_pairs("device")


def test_map_writes_each_verdict_with_its_cost(judged):
    texts = [t.get_text() for t in figures.verdict_map(judged).texts]
    assert len(texts) == len(GUIDELINES) * len(SOME)
    for text, verdict in zip(texts, (v for row in judged.values() for v in row), strict=True):
        cost = verdict_cost(verdict)
        word = {"not applicable": "n/a", "not modelled": "?"}.get(verdict.status, verdict.status)
        cache = any(f.dimension == "cache" and f.cost == cost for f in verdict.findings)
        assert text == (word if cost is None else f"{word}\n{100 * cost:.0f}{' c' if cache else ''}")
    assert any(text.endswith(" c") for text in texts)  # the cache of llama-3.1-8b, whose recipe is no finding


def test_bars_are_as_long_as_the_costs():
    found = hw.checklist(Case(model=config.load("deepseek-r1"), **EIGHT))
    ax = figures.cost_bars(found)
    assert [bar.get_width() for bar in ax.patches] == [100 * (verdict_cost(v) or 0) for v in found.verdicts]
    assert sorted(line.get_xdata()[0] for line in ax.lines) == pytest.approx([5, 20])


def test_pairs_are_drawn_where_they_are():
    ax = figures.pair_scatter({"a": ([0.8, 0.9], [0.95, 1.2]), "b": ([0.7], [0.7])})
    drawn = {line.get_label(): line.get_xydata().tolist() for line in ax.lines}
    assert drawn["a"] == [[0.8, 0.95], [0.9, 1.2]] and drawn["b"] == [[0.7, 0.7]]
    low, high = ax.get_ylim()
    assert low < 0.7 and high > 1.2 and ax.get_xlim()[0] < 0.7


def test_changes_are_told_against_the_step_before():
    ax = figures.change_steps({"start": 4e-3, "half": 2e-3, "more": 3e-3}, split=2)
    assert [bar.get_width() for bar in ax.patches] == pytest.approx([4, 2, 3])
    assert [t.get_text() for t in ax.texts] == ["4.0", "2.0  (-50%)", "3.0  (+50%)"]
    assert len({bar.get_facecolor() for bar in ax.patches}) == 3  # start, deployment, model


def test_slider_tells_the_costs_of_each_load():
    cases = [Case(model=config.load("deepseek-r1"), batch=batch, **EIGHT) for batch in (1, 512)]
    explorer = figures.explore_load(cases)
    for i, case in enumerate(cases):
        frame = explorer.draw(i)
        costs = {str(v.guideline): verdict_cost(v) for v in hw.checklist(case).verdicts}
        assert frame.data == {"batch": case.batch} | costs
        assert all(f"{g} " in frame.text for g, cost in costs.items() if cost is not None)
        assert f"{case.batch} sequence" in frame.alt
