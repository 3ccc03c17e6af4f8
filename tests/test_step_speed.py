"""Single decode steps, another load in every call: as fast as promised, and the same numbers, notes, errors and warnings."""

import itertools
import json
import random
import threading
import time
import warnings
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest

import hwdesign as hw
from hwdesign.models import config
from hwdesign.models.blocks import SelfAttention
from hwdesign.models.model import Same
from hwdesign.models.steps import Plan
from hwdesign.timing import clock, estimate, one_step
from hwdesign.timing.spent import TERMS

EIGHT = Plan(tp=8)
PLANS = [
    (None, None),
    (EIGHT, EIGHT),
    (Plan(dp=8), Plan(ep=8)),
    (EIGHT, Plan(ep=8)),
    (Plan(tp=2, kvp=2), Plan(tp=4)),
    (Plan(tp=2, pp=2), Plan(tp=2, pp=2)),
    (Plan(dp=2, tp=2, pp=3), Plan(ep=4, pp=3)),
    (Plan(dp=4), Plan(ep=4, gather=True)),
]
SILICON = [("H200", "fp8"), ("GB300", "nvfp4"), ("A100_SXM", "bf16"), ("B200", "fp8_block")]
WAYS = [{}, {"ideal": True}, {"engine": "sglang"}, {"engine": "trtllm"}, {"wide": ["attention"]}, {"framework": "sglang"}]
AMOUNTS = ("memory", "cache", "activations", "capacity", "seconds", "usable", "feasible")


@pytest.fixture(autouse=True)
def nothing_remembered():
    """Each test starts without steps of another."""
    estimate._one_steps.cache_clear()


@pytest.fixture
def whole(monkeypatch):
    """The loads that are timed whole, as a list."""
    found, timed = [], estimate.StepTimer.time

    def noted(self, attention, ffn, batch, context, new):
        found.append((batch, context))
        return timed(self, attention, ffn, batch, context, new)

    monkeypatch.setattr(estimate.StepTimer, "time", noted)
    return found


def loads(count, seed, most=1024, longest=100_000):
    """Random loads: some with neighbouring batches, as a server has them, some with equal ones."""
    rng = random.Random(seed)
    batches = [rng.randint(65, 128) for _ in range(count // 2)] + [rng.randint(1, most) for _ in range(count - count // 2 - 2)]
    pairs = [(batch, rng.randint(1, longest)) for batch in batches]
    return [*pairs, (pairs[0][0], 1), (1, pairs[0][1])]


def check(one, many, i):
    """That a step is that of an array of them: every field, every term."""
    assert type(one) is type(many) and list(one.terms) == list(many.terms) == list(TERMS)
    for name, seconds in many.terms.items():
        assert type(one.terms[name]) is np.float64
        assert one.terms[name] == pytest.approx(seconds[i], rel=1e-12, abs=0), name
    for name in AMOUNTS:
        whole = np.broadcast_to(getattr(many, name), np.shape(many.seconds))
        assert np.ndim(getattr(one, name)) == 0
        assert getattr(one, name) == pytest.approx(whole[i], rel=1e-12, abs=0), name
    seen = {"terms", "joules", *AMOUNTS}
    assert (one.joules.plans, one.joules.note) == (many.joules.plans, many.joules.note)
    if i == 0:  # worked out on demand
        whole = many.energy
        assert one.energy is whole is None or one.energy == pytest.approx(whole[i], rel=1e-12, abs=0)
    for field in fields(many):
        if field.name not in seen:
            whole, own = getattr(many, field.name), getattr(one, field.name)
            if isinstance(whole, np.ndarray):
                assert own == pytest.approx(whole[i], rel=1e-12, abs=0), field.name
            else:
                assert own == whole, field.name
    assert str(one)


def same(pairs, *what, **how):
    """That steps one by one are those of the array; how many were compared."""
    batch, context = np.array(pairs).T
    many = hw.decode_step(*what, batch=batch, context=context, **how)
    for i, (b, c) in enumerate(pairs):
        check(hw.decode_step(*what, batch=b, context=c, **how), many, i)
    return len(pairs)


@pytest.mark.parametrize("name", config.names())
def test_a_step_is_that_of_an_array(name, whole):
    model, number, compared = config.load(name), config.names().index(name), 0
    for i, (attention, ffn) in enumerate(PLANS):
        (device, recipe), way = SILICON[(i + number) % len(SILICON)], WAYS[(i + 5 * number) % len(WAYS)]
        how = {"attention": attention, "ffn": ffn, **way}
        try:
            hw.decode_step(model, device, recipe, batch=[1, 2], context=5, **how)
        except ValueError:  # this model has no such plan, this device no such format
            continue
        whole.clear()
        compared += same(loads(10, number), model, device, recipe, **how)
        assert len(whole) == 1 + one_step.FEW, "the array and the first steps alone are timed whole"
    assert compared >= 20


def test_long_and_many_sequences_are_right_too():
    r1 = config.load("deepseek-r1")
    same(loads(12, 1, most=10**7, longest=10**8), r1, "H200", "fp8_block", attention=EIGHT, ffn=EIGHT)
    far = [(2**40, 2**30), (2**40 + 1, 2**30 + 1), (64, 1024), (65, 1025), (128, 2048)]
    same(far, config.load("llama-3.1-70b"), "H200", "fp8", attention=EIGHT, ffn=EIGHT)


def test_numbers_of_any_kind_are_one_load():
    llama, kinds = config.load("llama-3.1-8b"), (int, float, np.int64, np.float64, np.int32, np.asarray)
    hw.decode_step(llama, "H200", "fp8", batch=1, context=1)
    found = [hw.decode_step(llama, "H200", "fp8", batch=kind(7), context=kind(999)) for kind in kinds]
    assert len({float(step.seconds) for step in found}) == 1 and {type(step.memory) for step in found} == {np.float64}


def test_what_one_call_gives_belongs_to_the_caller():
    llama, load = config.load("llama-3.1-8b"), {"batch": 3, "context": 50}
    for _ in range(3):
        step = hw.decode_step(llama, "H200", "fp8", **load)
        assert step.terms["head"] < 1
        step.terms["head"] = 9.0
        hw.decode_step(llama, "H200", "fp8", batch=3, context=51).terms["head"] = 9.0


def test_models_and_devices_that_are_equal_or_nearly_so_are_kept_apart():
    llama, card = config.load("llama-3.1-8b"), hw.device("H200")
    half = replace(card, memory_bandwidth=card.memory_bandwidth / 2)
    peaks = replace(card, dense_peak={**card.dense_peak, "bf16": card.dense_peak["bf16"] / 2})
    short = replace(llama, blocks=llama.blocks[:16])
    for batch, context in loads(6, 3):
        for model, device in itertools.product((llama, short), (card, "H200", half, peaks)):
            many = hw.decode_step(model, device, "bf16", batch=[batch], context=context)
            check(hw.decode_step(model, device, "bf16", batch=batch, context=context), many, 0)


def test_a_device_file_that_changes_is_read_again(tmp_path):
    file, llama = tmp_path / "card.json", config.load("llama-3.1-8b")
    card = {"name": "my card", "form_factor": "PCIe", "dense_peak": {"bf16": 2e14}, "memory_capacity": 48e9}

    def seconds(bandwidth):
        file.write_text(json.dumps({**card, "memory_bandwidth": bandwidth}))
        return [float(hw.decode_step(llama, str(file), "bf16", batch=b, context=99, ideal=True).seconds) for b in (1, 2, 3)]

    slow, fast, again = seconds(1e12), seconds(2e12), seconds(1e12)
    assert slow == again == pytest.approx([2 * second for second in fast])


def test_a_warning_comes_with_every_call():
    llama = config.load("llama-3.1-8b")
    for batch in (1, 2, 3, 70):
        with pytest.warns(UserWarning, match="does not name a form factor: taking H100_SXM") as seen:
            hw.decode_step(llama, "H100", "fp8", batch=batch, context=10)
        assert len(seen) == 1


def test_a_mistake_is_named_after_good_calls_as_before_them():
    llama = config.load("llama-3.1-8b")
    good = {"batch": 3, "context": 50, "attention": EIGHT, "ffn": EIGHT, "ideal": True, "wide": ("ffn",), "framework": "vllm"}
    wrong = [
        {"batch": 0}, {"batch": 1.5}, {"context": -1}, {"context": None}, {"batch": True}, {"ideal": 1},
        {"wide": ["x"]}, {"wide": [[]]}, {"wide": 3}, {"attention": 8}, {"ffn": {}}, {"ffn": Plan(tp=4)},
        {"framework": "x"}, {"framework": []}, {"engine": "x"},
        {"engine": {}}, {"attention": Plan(tp=3), "ffn": Plan(tp=3)},
    ]  # fmt: skip
    what = [("llama", "H200", "fp8"), (llama, "H2000", "fp8"), (llama, {}, "fp8"), (llama, "H200", "fp9"), (llama, "H200", [])]
    what.append((llama, "H200", "nvfp4"))

    def said():
        for arguments, how in [*(((llama, "H200", "fp8"), how) for how in wrong), *((given, {}) for given in what)]:
            with pytest.raises(ValueError) as error:
                hw.decode_step(*arguments, **good | how)
            yield type(error.value).__name__, str(error.value)

    before = list(said())
    for batch, context in loads(6, 2):
        hw.decode_step(llama, "H200", "fp8", **good | {"batch": batch, "context": context})
    assert list(said()) == before


def test_a_walk_through_names_is_taken_once():
    llama = config.load("gpt-oss-20b")
    for batch in (1, 2, 3):
        names = iter(["attention"])
        found = hw.decode_step(llama, "H200", "fp8", batch=batch, context=9, wide=names)
        check(found, hw.decode_step(llama, "H200", "fp8", batch=[batch], context=9, wide=("attention",)), 0)


@dataclass(frozen=True, kw_only=True)
class Odd(SelfAttention):
    """Attention in which the context sizes more than the scores."""

    how: str

    def operations(self, run):
        super().operations(run)
        if self.how == "gemm":
            run.gemm("odd", run.tokens * np.sqrt(run.context), 128, run.hidden, "attention")
        elif self.how == "small":
            run.small(1, run.tokens * run.context)
        elif self.how == "hold":
            run.hold("attention", 100 * run.context + 0 * run.tokens)
        elif self.how == "work":
            run.work.append(replace(run.work[-1], cache_elements=run.batch * run.context))
        elif self.how == "change":
            run.work[-1] = replace(run.work[-1], flops=2 * run.work[-1].flops)
        elif self.how == "look":
            run.hold("attention", sum(work.batch for work in run.work) + 0 * run.context)
        else:
            run.score(heads=4, size=64, cached=64 * run.tokens, kind="odd")


@pytest.mark.parametrize("how", ["gemm", "small", "hold", "work", "change", "look", "arguments"])
def test_what_depends_on_more_is_timed_whole(how, whole):
    llama = config.load("llama-3.1-8b")
    own = {f.name: getattr(llama.blocks[0].mixer, f.name) for f in fields(SelfAttention)}
    odd = replace(llama, blocks=(replace(llama.blocks[0], mixer=Odd(how=how, **own)),) * 4 + llama.blocks[4:])
    pairs = loads(8, 4)
    same(pairs, odd, "H200", "fp8", attention=Plan(tp=2), ffn=Plan(tp=2))
    assert len(whole) == 1 + len(pairs)


def test_notes_and_times_of_another_clock_pass_through(monkeypatch):
    """New notes and other models of single operations need no word here, also where a note depends on the load."""
    attention, small = clock.Clock.attention, clock.Clock.small

    def noted(self, work):
        timed = attention(self, work)
        far = ("beyond the table",) if np.any(np.asarray(work.context) > 30_000) else ()
        return clock.Timed(timed.seconds * 1.5 + 1e-6, (*timed.notes, "another model", *far))

    monkeypatch.setattr(clock.Clock, "attention", noted)
    monkeypatch.setattr(clock.Clock, "small", lambda self, done: clock.Timed(small(self, done).seconds, ("small ones",)))
    model = config.load("deepseek-v3.2")
    for batch, context in loads(12, 5):
        one, many = (hw.decode_step(model, "B200", "fp8", batch=b, context=context) for b in (batch, [batch]))
        check(one, many, 0)
        assert one.notes.index("another model") < one.notes.index("small ones")
        assert ("beyond the table" in one.notes) == (context > 30_000)


def test_what_is_remembered_has_bounds(monkeypatch):
    monkeypatch.setattr(one_step, "MOST_BLOCKS", 3)
    llama, card = config.load("llama-3.1-8b"), hw.device("H200")
    for batch, context in loads(60, 6):
        hw.decode_step(llama, card, "fp8", batch=batch, context=context)
    steps = estimate._one_steps(Same(llama), card, "fp8", None, None, (), False, None, "vllm")
    assert len(steps.blocks) <= 3 and len(steps.singles) <= 3 and len(steps.lengths) <= 3 and not steps.timer.parts
    assert len(steps.timer.clock.known) <= one_step.MOST_SCORES
    for share in range(40):
        other = replace(card, memory_bandwidth=card.memory_bandwidth * (1 + share / 100))
        hw.decode_step(llama, other, "fp8", batch=1, context=1)
    assert estimate._one_steps.cache_info().currsize <= estimate.MOST_SETTINGS


def test_plans_share_what_is_remembered(monkeypatch):
    r1, plans = config.load("deepseek-r1"), [(EIGHT, Plan(ep=8)), (Plan(dp=8), Plan(ep=8)), (EIGHT, EIGHT)]
    asked = {"batch": 64, "context": 999}
    estimate._one_timer.cache_clear()
    found = estimate.decode_steps(r1, "H200", "fp8_block", plans, **asked)
    estimate._one_timer.cache_clear()
    monkeypatch.setattr(estimate, "MOST_PARTS", 2)
    again = estimate.decode_steps(r1, "H200", "fp8_block", plans[::-1], **asked)[::-1]
    assert len(estimate._one_timer(Same(r1), "H200", "fp8_block", (), False, None, "vllm").parts) <= 2
    alone = [hw.decode_step(r1, "H200", "fp8_block", attention=a, ffn=f, **asked) for a, f in plans]
    for steps in zip(found, again, alone, strict=True):
        assert len({float(step.seconds) for step in steps}) == len({step.notes for step in steps}) == 1


def test_threads_share_what_is_remembered(monkeypatch):
    monkeypatch.setattr(one_step, "MOST_SCORES", 2)
    model, pairs, wrong = config.load("gpt-oss-20b"), loads(40, 7), []
    many = hw.decode_step(model, "H200", "fp8", batch=[b for b, _ in pairs], context=[c for _, c in pairs])

    def walk(seed):
        try:
            for i in random.Random(seed).sample(range(len(pairs)), len(pairs)):
                check(hw.decode_step(model, "H200", "fp8", batch=pairs[i][0], context=pairs[i][1]), many, i)
        except BaseException as error:  # a thread's own error is seen by nobody else
            wrong.append(error)

    threads = [threading.Thread(target=walk, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def spent(run):
    """Least time of several rounds [s]: others may keep the machine busy."""
    rounds = []
    for _ in range(7):
        start = time.process_time()
        run()
        rounds.append(time.process_time() - start)
    return min(rounds)


@pytest.mark.parametrize(
    ("name", "device", "recipe", "attention", "ffn", "times"),
    [
        ("deepseek-r1", "H200", "fp8_block", EIGHT, EIGHT, 5),
        ("deepseek-r1", "H200", "fp8_block", Plan(dp=8), Plan(ep=8), 5),
        ("llama-3.1-70b", "H100_SXM", "fp8", Plan(tp=2), Plan(tp=2), 3),
        ("llama-3.1-70b", "H100_SXM", "fp8", EIGHT, EIGHT, 3),
    ],
)
def test_a_step_is_fast_with_another_load_in_each_call(name, device, recipe, attention, ffn, times):
    """At least 5,000 a second on an idle machine; here half of it, and several times as many as whole steps."""
    model, pairs = config.load(name), loads(600, 8)
    how = {"attention": attention, "ffn": ffn}
    hw.decode_step(model, device, recipe, batch=1, context=1, **how)
    for batch in range(1, 1025, 16):
        hw.decode_step(model, device, recipe, batch=batch, context=100 * batch - 99, **how)
    turn = itertools.cycle([pairs[:200], pairs[200:400], pairs[400:]])

    def fast():
        for batch, context in next(turn):
            hw.decode_step(model, device, recipe, batch=batch, context=context, **how)

    def slow():
        for batch, context in pairs[:20]:
            estimate._timer(model, device, recipe, (), False, None, "vllm").time(attention, ffn, batch, context, 1)

    one, whole = spent(fast) / 200, spent(slow) / 20
    assert one < 1 / 2500 and one * times < whole, f"{1 / one:.0f} a second, {whole / one:.1f} times as many as whole steps"


def test_the_first_steps_cost_little_more_than_whole_ones():
    def first(count):
        model = config.load("deepseek-r1")
        start = time.process_time()
        for batch in range(1, count + 1):
            hw.decode_step(model, "H200", "fp8_block", batch=batch, context=9 * batch, attention=EIGHT, ffn=EIGHT)
        return time.process_time() - start

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert min(first(1) for _ in range(5)) < 0.05 and min(first(3) for _ in range(5)) < 0.15
