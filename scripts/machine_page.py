"""The page Your machine: what was measured where, for `generate_pages.py`."""

from hwdesign.measure.runs import load_run, shipped_runs
from hwdesign.measure.suite import summary
from hwdesign.units import fmt

NAMES = {"gemm": "GEMM, M x N x K", "copy": "copy", "launch": "a kernel that does almost nothing", "attention_decode": "attention, decode", "all_reduce": "all-reduce", "all_gather": "all-gather",
         "reduce_scatter": "reduce-scatter", "all_to_all": "all-to-all", "pipeline": "pipeline of threads"}  # fmt: skip
MEASURED = '<span class="hw-label hw-measured">measured</span>'


def shape(m):
    """The shape of a measurement in words."""
    s = m.shape
    if m.operation == "gemm":
        return f"{s['m']} x {s['n']} x {s['k']}"
    if m.operation == "attention_decode":
        return f"{s['batch']} sequences, {s['context']:,} tokens, {s['heads']} heads over {s['kv_heads']}"
    if m.operation == "pipeline":
        of = f"{s['stages']} stages, the largest of {s['largest']}" if s["stages"] > 1 else "one stage"
        return f"{s['tokens']} tokens in {s['chunks']} chunks, {s['layers']} layers of {s['hidden']}, {of}"
    return f"{fmt(s['nbytes'], 'byte')}, {s['ranks']} processes" if "ranks" in s else f"{s['elements']:,} elements"


def row(m):
    """Cells of one measurement."""
    rate = "–" if m.operation == "launch" else fmt(m.rate, "FLOP/s") if m.operation in ("gemm", "pipeline") else fmt(m.bandwidth, "byte/s")
    return [
        NAMES[m.operation],
        f"`{m.precision}`",
        m.backend,
        shape(m),
        f"{fmt(m.seconds, 's')} ± {fmt(m.spread, 's')}",
        rate,
        "; ".join(m.flags) or "–",
    ]


def run_part(table, name):
    """One stored run: machine, software, summary, picture, every measurement."""
    run = load_run(name)
    found, first = summary(run.measurements), run.measurements[0]
    software = ", ".join(f"{key} {value}" for key, value in first.software.items())
    rates = [[f"`{form}`", fmt(rate, "FLOP/s"), f"{found['ridge'][form]:.0f}"] for form, rate in found["rate"].items()]
    flagged = sum(bool(m.flags) for m in run.measurements)
    best = max(found["ridge"], key=found["ridge"].get)
    skipped = "".join(f"\n- not measured: {s.operation}, {s.reason}" for s in run.skipped)
    return f"""## {run.machine}

Taken on {first.taken_on}; {software}. {len(run.measurements)} measurements, {flagged or "none"} of them with a flag. {MEASURED}

Copy in memory: {fmt(found["bandwidth"], "byte/s")}. A kernel that does almost nothing: {fmt(found["launch"], "s")}.

{table(["format", "fastest GEMM", "ridge [FLOP/byte]"], rates)}{skipped}

![Roofline of {run.machine}: rate against arithmetic intensity, measured GEMMs below the measured roofs; the highest ridge lies at {found["ridge"][best]:.0f} FLOP/byte]({name}.svg)

**Read the figure.** The sloped line is the copy, the flat ones are the fastest GEMM of each format. Products of low intensity lie along the slope, a few a little above it: a copy
writes as much as it reads, a GEMM mostly reads. The small ones stay below both.

:::{{dropdown}} Every measurement
{table(["operation", "format", "by", "shape", "time", "rate", "flags"], map(row, run.measurements))}
:::"""


def machine_page(table):
    """The page as Markdown; `table` makes a table of a header and rows."""
    parts = [
        f"""# Your machine

<!-- written by scripts/generate_pages.py from the runs in hwdesign/measure/data; do not edit -->

In your own kernel the chapters measure your machine. On this site they show stored runs of machines that we can name; this page lists them. {MEASURED}

```bash
hwdesign measure --picture roofline.svg
hwdesign measure --json run.json
torchrun --nproc-per-node 2 -m hwdesign.measure.collectives
```

The first draws the picture below for your machine: in under a minute on a CPU, and of the GPU where PyTorch finds one. The second keeps the run, with device, versions and date. The third
times exchanges between two processes or GPUs.

## How a time is taken

- Calls before the first reading are not counted. On a GPU the calls are replayed as a {{term}}`CUDA graph` between two events.
- The inputs are random numbers. Each call finds other copies of them, more than four times the size of the last cache, so that they come from memory. Where they cannot, a flag says so.
- A sample of the outputs is compared with a result in 64 bits.
- The list is walked through several times. The time is the smallest median of these rounds, the spread reaches to the largest.
- A rate above the datasheet is flagged as *impossible*, a low precision that is not faster as a *suspect slower path*.
- A run without device, versions and date is not loaded: the same product has changed threefold from one library version to the next.""",
        *(run_part(table, name) for name in shipped_runs()),
        """## Add a run

`python scripts/record_measurements.py` makes the run of a machine for this page: under a minute on a CPU, under eight on a GPU. Commit the file it writes, and run
`scripts/generate_pages.py`. No run of a GPU is stored yet.""",
    ]
    return "\n\n".join(parts) + "\n"


def pictures():
    """{file name: axes} of the page's figures."""
    from hwdesign.lessons import figures

    return {f"{name}.svg": figures.machine_roofline(load_run(name).measurements) for name in shipped_runs()}
