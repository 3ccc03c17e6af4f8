"""Chapter 6: a pipeline on this machine's processor, timed; the stored one; what it should take; the figure."""

import dataclasses
import json
import queue
import re
import subprocess
import types

import numpy as np
import pytest

pytest.importorskip("matplotlib")
from hwdesign.formulas.pipeline import pipeline_time
from hwdesign.lessons import live, live_parallel
from hwdesign.lessons.figures.pipeline_own import own_pipeline
from hwdesign.lessons.show import webp_uri
from hwdesign.measure import pipeline
from hwdesign.measure.pipeline import measure_pipeline, timed_split
from hwdesign.measure.runs import Measurement, Run, Skipped, load_run, save_run, shipped_runs

SMALL = {"tokens": 64, "hidden": 48, "layers": 4}
ONE, EVEN, UNEVEN = "1 stage: 16 layers", "2 stages: 8 + 8 layers", "2 stages: 12 + 4 layers"


@pytest.fixture
def cores(monkeypatch):
    """Sets how many cores the process may use."""

    def give(n):
        monkeypatch.setattr(pipeline.os, "sched_getaffinity", lambda pid: set(range(n)), raising=False)

    give(64)
    return give


def pipelines(run):
    return [m for m in run.measurements if m.operation == "pipeline"]


# Timing -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stages", "layers", "largest"), [(2, 4, (4, 2, 3)), (3, 9, (9, 3, 4))])
def test_every_split_is_timed_in_every_number_of_chunks(cores, tmp_path, stages, layers, largest):
    found = measure_pipeline(stages, (1, 8, 64), **SMALL | {"layers": layers}, rounds=2)
    assert all(isinstance(m, Measurement) and m.operation == "pipeline" and not m.flags for m in found), found
    assert [(m.shape["stages"], m.shape["largest"], m.shape["chunks"]) for m in found] == [
        (n, most, c) for n, most in zip((1, stages, stages), largest, strict=True) for c in (1, 8, 64)
    ]
    for m in found:
        assert m.shape["layers"] == layers and (m.shape["tokens"], m.shape["hidden"]) == (64, 48)
        assert 0 < m.seconds < 5 and m.spread >= 0 and m.repeats == 2
        assert m.software["threads"] == "1" and m.backend == "numpy"
        assert m.flops == 2 * 64 * 48 * 48 * layers and m.nbytes == 4 * (layers * 48 * 48 + 2 * 64 * 48)
        assert f"{m.shape['largest']}/{layers} layers" in str(m) and "FLOP/s" in str(m)
    save_run(tmp_path / "run.json", found, machine="a laptop")
    assert [m.shape for m in load_run(tmp_path / "run.json").measurements] == [m.shape for m in found]


def test_one_number_of_chunks_will_do(cores):
    assert [m.shape["chunks"] for m in measure_pipeline(2, 16, **SMALL, rounds=1)] == [16] * 3


def test_libraries_are_held_to_one_thread_whatever_is_set(cores, monkeypatch):
    seen = {}
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("KEPT", "yes")
    ended = subprocess.CompletedProcess([], 0, stdout="[]", stderr="")
    monkeypatch.setattr(pipeline.subprocess, "run", lambda command, **options: seen.update(options["env"]) or ended)
    assert measure_pipeline(2, **SMALL | {"tokens": 128}) == [] and seen["KEPT"] == "yes"
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
        assert seen[name] == "1"


@pytest.mark.parametrize("spoil", ["a product", "nothing is written", "a layer is left out"])
def test_a_wrong_result_is_flagged(monkeypatch, spoil):
    right, splits = np.matmul, [[4], [2, 2], [3, 1]]

    def wrong(a, b, out):
        if spoil != "nothing is written":
            right(a, b, out=out)
        if spoil == "a product":
            out[-1] *= 1.001  # in one row of a chunk
        if spoil == "a layer is left out":
            out[...] = a

    assert not any(m.flags for m in pipeline._inside(splits, [1, 64], 64, 48, 2))
    monkeypatch.setattr(pipeline.np, "matmul", wrong)
    found = pipeline._inside(splits, [1, 64] if spoil != "a product" else [64], 64, 48, 1)
    assert all(m.flags and m.flags[0].startswith("wrong result: ") for m in found)


def test_a_chunk_that_a_stage_loses_is_flagged(monkeypatch):
    class Line(queue.SimpleQueue):
        """Hands the first chunk out again instead of the third."""

        taken = 0

        def get(self):
            rows, self.taken = super().get(), self.taken + 1
            self.first = rows if self.taken == 1 else self.first
            return self.first if self.taken == 3 else rows

    monkeypatch.setattr(pipeline, "queue", types.SimpleNamespace(SimpleQueue=Line))  # not that of the pool of threads
    for m in pipeline._inside([[4], [2, 2]], [4], 64, 48, 1):
        assert m.flags[0].startswith("wrong result: ")


@pytest.mark.alone
def test_stages_work_at_the_same_time_and_in_order(monkeypatch):
    """With products that take a known time, however many cores there are, the time is that of the formula."""
    nap = 4e-3

    def slow(a, b, out):
        pipeline.time.sleep(nap)
        out[...] = a @ b

    monkeypatch.setattr(pipeline.np, "matmul", slow)
    for _ in range(8):  # a busy machine wakes a stage late: once in a while it is not busy
        late = []
        for m in pipeline._inside([[4], [2, 2], [3, 1]], [1, 8], 64, 48, 4):
            split, c = timed_split(*(m.shape[x] for x in ("stages", "layers", "largest"))), m.shape["chunks"]
            wanted = pipeline_time(nap * np.array(split), c)
            assert wanted <= m.seconds and not m.flags
            late += [f"{split} in {c} chunks: {m.seconds / wanted:.2f} times"] if m.seconds >= 1.6 * wanted else []
        if not late:
            break
    assert not late


def test_with_fewer_cores_than_stages_nothing_is_timed(cores, monkeypatch):
    monkeypatch.setattr(pipeline.subprocess, "run", lambda *_, **__: pytest.fail("started"))
    cores(1)
    assert measure_pipeline() == [Skipped(operation="pipeline", reason="2 stages need 2 cores, this machine has 1")]
    monkeypatch.delattr(pipeline.os, "sched_getaffinity")
    monkeypatch.setattr(pipeline.os, "cpu_count", lambda: 3)
    (skipped,) = measure_pipeline(4)
    assert skipped.reason == "4 stages need 4 cores, this machine has 3"


def test_a_process_that_fails_is_skipped_with_its_last_words(cores):
    (skipped,) = measure_pipeline(2, 1, hidden=2**24)
    assert isinstance(skipped, Skipped) and "Unable to allocate" in skipped.reason and "\n" not in skipped.reason
    (skipped,) = measure_pipeline(2, 1, timeout=1e-3)
    assert skipped.reason == "the stages did not finish within 0.001 s"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ({"stages": 1}, "stages must be >= 2 and layers 2, 3, ... times as many, got stages 1 and layers 16"),
        ({"stages": 3}, "stages must be >= 2 and layers 2, 3, ... times as many, got stages 3 and layers 16"),
        ({"layers": 2}, "stages must be >= 2 and layers 2, 3, ... times as many, got stages 2 and layers 2"),
        ({"stages": "2"}, "stages must be a number or an array of numbers, got '2'"),
        ({"chunks": [1, 3]}, "chunks must be numbers that divide tokens = 1024, got [1, 3]"),
        ({"chunks": []}, "chunks must be numbers that divide tokens = 1024, got []"),
        ({"chunks": [2048]}, "chunks must be numbers that divide tokens = 1024, got [2048]"),
        ({"chunks": [0]}, "chunks must be >= 1, got 0"),
        ({"chunks": 1.5}, "chunks must be a whole number, got 1.5"),
        ({"tokens": [8, 16]}, "tokens must be one number, got [8, 16]"),
        ({"hidden": 0}, "hidden must be >= 1, got 0"),
        ({"rounds": 0}, "rounds must be >= 1, got 0"),
    ],
)
def test_bad_input_is_named(call, says):
    with pytest.raises(ValueError, match="^" + re.escape(says)):
        measure_pipeline(**call)


@pytest.mark.parametrize(("stages", "layers"), [(2, 4), (2, 16), (3, 9), (4, 16), (8, 80), (5, 10)])
def test_a_split_holds_all_layers_and_no_stage_is_empty(stages, layers):
    for largest in (layers // stages, 3 * layers // (2 * stages)):
        split = timed_split(stages, layers, largest)
        assert len(split) == stages and sum(split) == layers and min(split) >= 1
        assert max(split) == split[0] == largest and max(split[1:]) - min(split[1:]) <= 1
    assert timed_split(1, layers, layers) == (layers,)


# The stored run and live ones ----------------------------------------------------------------------------------------------


def test_the_stored_run_shows_what_the_chapter_says():
    run = load_run(shipped_runs()[0])
    assert len(pipelines(run)) == 21 and not any(m.flags for m in pipelines(run))
    found, wanted = live.pipelines_of(run), live.pipelines_predicted(run)
    assert list(found) == list(wanted) == [ONE, EVEN, UNEVEN]
    for name, (chunks, seconds) in found.items():
        assert chunks.tolist() == [1, 2, 4, 8, 16, 32, 64] and seconds.shape == wanted[name].shape
        assert (abs(seconds / wanted[name] - 1) < 0.15).all(), name
    one, even, uneven = (found[name][1] for name in (ONE, EVEN, UNEVEN))
    assert (np.diff(one) > 0).all()  # small chunks are less efficient
    assert 0 < np.argmin(even) < 6 and even.min() < 0.8 * one.min()  # so there is a best number of them
    assert (even[1:] < uneven[1:]).all() and (uneven[1:] < one[1:]).all()


def test_predictions_are_shares_of_one_stage():
    run = load_run(shipped_runs()[0])
    found, wanted = live.pipelines_of(run), live.pipelines_predicted(run)
    (chunks, one) = found[ONE]
    assert wanted[ONE] == pytest.approx(one)
    assert wanted[EVEN] == pytest.approx(one * (1 + 1 / chunks) / 2)
    assert wanted[UNEVEN] == pytest.approx(one * (0.75 + 0.25 / chunks))


def test_pipelines_are_put_in_order_and_a_run_without_them_is_refused():
    run = load_run(shipped_runs()[0])
    found = live.pipelines_of(dataclasses.replace(run, measurements=run.measurements[::-1]))
    for name, pair in live.pipelines_of(run).items():
        assert np.array_equal(found[name], pair)
    others = tuple(m for m in run.measurements if m not in pipelines(run))
    for read in (live.pipelines_of, live.pipelines_predicted):
        with pytest.raises(ValueError, match=f"run must hold pipelines, got none in {len(others)} measurements of "):
            read(dataclasses.replace(run, measurements=others))
    lone = tuple(m for m in pipelines(run) if m.shape["stages"] == 2 or m.shape["chunks"] != 4)
    with pytest.raises(ValueError, match=r"run must hold 1 stage: 16 layers in \[4(\.0)?\] chunks, got none on "):
        live.pipelines_predicted(dataclasses.replace(run, measurements=lone))


def test_while_the_site_is_built_the_stored_pipelines_are_shown(monkeypatch):
    monkeypatch.setattr(live_parallel, "measure_pipeline", lambda stages: pytest.fail("timed"))
    monkeypatch.setenv("HWDESIGN_STATIC", "1")
    assert live.pipelines() == live.pipelines(stored=True) == load_run(shipped_runs()[0])


def test_a_kernel_times_a_pipeline(monkeypatch, capsys):
    monkeypatch.delenv("HWDESIGN_STATIC", raising=False)
    mine = [dataclasses.replace(m, device="my machine") for m in pipelines(load_run(shipped_runs()[0]))]
    asked = []
    monkeypatch.setattr(live_parallel, "measure_pipeline", lambda stages: asked.append(stages) or mine)
    assert live.pipelines() == Run(machine="my machine", measurements=tuple(mine)) == live.pipelines(stored=False)
    said = capsys.readouterr()
    assert asked == [2, 2] and said.out == "" and "two threads" in said.err


def test_where_no_pipeline_can_be_timed_the_stored_one_is_shown_and_said_to_be(monkeypatch, capsys, cores):
    monkeypatch.delenv("HWDESIGN_STATIC", raising=False)
    cores(1)
    run = live.pipelines()
    assert run == load_run(shipped_runs()[0])
    (line,) = capsys.readouterr().out.splitlines()
    assert "2 stages need 2 cores" in line and run.machine in line and "stored run" in line


def test_what_the_process_says_is_one_list(capsys, monkeypatch):
    """`measure_pipeline` reads all of its output."""
    found = pipeline._inside([[4], [2, 2]], [2], 64, 48, 1)
    assert capsys.readouterr().out == ""
    assert [Measurement(**row) for row in json.loads(json.dumps([vars(m) for m in found], default=dict))] == found


# Figure -------------------------------------------------------------------------------------------------------------------


def draw():
    run = load_run(shipped_runs()[0])
    return own_pipeline([1, 2, 4, 8, 16, 32, 64], live.pipelines_of(run), live.pipelines_predicted(run))


def test_measured_times_are_crosses_on_the_lines_of_the_model():
    ax, run = draw(), load_run(shipped_runs()[0])
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title()) == ("chunks", "time [ms]", "")
    assert ax.get_xscale() == "log" and ax.get_ylim()[0] == 0
    assert [t.get_text() for t in ax.xaxis.get_ticklabels()] == ["1", "2", "4", "8", "16", "32", "64"]
    assert [t.get_text() for t in ax.get_legend().get_texts()] == [ONE, EVEN, UNEVEN, "measured"]
    curves = {line.get_label(): line for line in ax.lines}
    crosses = [line for line in ax.lines if line.get_marker() == "x" and len(line.get_xdata())]
    assert len(crosses) == 3
    for (name, (chunks, seconds)), cross in zip(live.pipelines_of(run).items(), crosses, strict=True):
        assert np.allclose(cross.get_data(), [chunks, 1e3 * seconds]) and cross.get_linestyle() == "None"
        assert cross.get_color() == curves[name].get_color()
        assert np.allclose(curves[name].get_ydata(), 1e3 * live.pipelines_predicted(run)[name])
        assert max(1e3 * seconds) < ax.get_ylim()[1]
    assert webp_uri(ax) == webp_uri(draw())


def test_nothing_measured_is_left_out_in_silence():
    with pytest.raises(ValueError, match=r"measured must hold only labels of predicted \(a\), got b"):
        own_pipeline([1, 2], {"b": ([1, 2], [0.1, 0.2])}, {"a": [0.1, 0.2]})
