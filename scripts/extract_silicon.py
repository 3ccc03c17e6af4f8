"""Extract the published measurements that the book draws, and the serving points, from the wheel of `silicon_source.py`.

    python scripts/extract_silicon.py WHEEL

Writes `hwdesign/timing/data/gemm_<device>_<framework>_<precision>.npz` with `manifest.csv`, and the long tables
`<operation>_<device>.npz` and `<operation>.csv` with `tables.csv`; units are SI. The same wheel gives the same bytes. Much more
is in the wheel than is drawn: `fit_calibration.py` reads it there.

Which rows: of each shape those of the newest released version, never a minimum or mean over versions (`gemm_versions.csv`, for
chapter 3, holds two on purpose). Rows are left out where the numbers are not measurements of what they say:

- GEMMs as `cases_gemm.py` says: vLLM's BF16 and FP8, and versions of its block FP8;
- GEMM sizes that were timed with few others: the grids hold the sizes of n and k that most of the grid has;
- TensorRT-LLM decode attention on A100 (above peak bandwidth); attention is SGLang's everywhere, but for one kernel:
- SGLang's latent attention on an FP8 cache on Hopper, which first turns the whole cache into BF16 (`LEFT_OUT` of
  `silicon_tables.py`); TensorRT-LLM's FP8 kernel is taken (`mla_decode_trtllm`);
- MoE layers of SGLang with EP > 1: their tokens stay on the measured rank, so the rows are not one rank's share of a batch
  (with EP = 1 they are taken as `moe_fused`; their routing touches half of the experts, see the page Accuracy);
- serving points whose plan cannot be read: more than eight GPUs in aggregated mode, where the ways were multiplied twice, ways
  of 0, a concurrency that is not that of one server (its batch times its ways of data parallelism),
  or different numbers of GPUs for attention and experts, or an unknown number of workers in disaggregated mode;
- the copies of a serving point: the sample gathers three collections of largely the same runs.

Which serving points used multi-token prediction is not in the sample but in `SPECULATIVE` of `silicon_tables.py`, with source.

"""

import argparse
import hashlib
import io
import sys
from pathlib import Path

import numpy as np
from cases_gemm import FORMATS, gemm_rows
from silicon_source import WHEEL, Source, versions_text
from silicon_tables import TABLE_COLUMNS, csv_bytes, extract_serving, extract_tables, extract_versions

OUT = Path(__file__).parents[1] / "hwdesign" / "timing" / "data"
DRAWN = ("GB300", "B200", "H200", "H100_SXM", "A100_SXM")  # devices whose grids the chapters draw
ALSO = (("GB300", "vllm", "nvfp4"),)  # beside those of SGLang and TensorRT-LLM
COMMON = 0.5  # share of the largest number of rows of a size from which on a grid holds the size
COLUMNS = ("device", "framework", "precision", "version", "kernel", "gpu", "rows", "file", "sha256", "source")


def wanted(device, framework, precision):
    """Whether the book draws this slice."""
    return framework in ("sglang", "trtllm") or (device, framework, precision) in ALSO


def common(sizes):
    """True where a size is one of those that most of the grid has."""
    values, index, counts = np.unique(sizes, return_inverse=True, return_counts=True)
    return (counts >= COMMON * counts.max())[index.ravel()]


def grid(m, n, k, milliseconds):
    """Axes and dense grid [s] of scattered rows [ms]; shapes that were not measured are NaN."""
    axes = [np.unique(x) for x in (m, n, k)]
    cube = np.full([len(a) for a in axes], np.nan, dtype=np.float32)
    index = tuple(np.searchsorted(axis, x) for axis, x in zip(axes, (m, n, k), strict=True))
    if not np.isnan(cube[index]).all() or len(set(zip(*index, strict=True))) != len(m):
        raise ValueError("two rows for one shape: pick one version, never a mean")
    cube[index] = np.asarray(milliseconds) * 1e-3
    return axes, cube


def npz_bytes(axes, cube):
    """A compressed npz as bytes; members carry a fixed date, so equal arrays give equal bytes."""
    buffer = io.BytesIO()
    names = dict(zip("mnk", (a.astype(np.int32) for a in axes), strict=True))
    np.savez_compressed(buffer, **names, seconds=cube)
    return buffer.getvalue()


def extract_grids(source, out):
    """Write every GEMM grid; returns the rows of `manifest.csv`."""
    manifest = []
    for device in DRAWN:
        for framework in ("sglang", "trtllm", "vllm"):
            for precision in FORMATS:
                rows = gemm_rows(source, device, precision, framework)
                if not wanted(device, framework, precision) or not len(rows["latency"]):
                    continue
                keep = common(rows["n"]) & common(rows["k"])
                rows = {name: values[keep] for name, values in rows.items()}
                data = npz_bytes(*grid(*(rows[name] for name in ("m", "n", "k", "latency"))))
                file = f"gemm_{device}_{framework}_{precision}.npz"
                (out / file).write_bytes(data)
                kernel, gpu, path = ("; ".join(sorted(set(rows[c].tolist()))) for c in ("kernel_source", "device", "path"))
                what = (device, framework, precision, versions_text(rows), kernel, gpu, len(rows["latency"]))
                manifest.append((*what, file, hashlib.sha256(data).hexdigest(), path))
                print(f"{file}: {len(rows['latency'])} rows of {what[3]}, {len(data) / 1e3:.0f} kB", file=sys.stderr)
    return manifest


def main(wheel, out=OUT):
    out.mkdir(parents=True, exist_ok=True)
    source = Source(wheel)
    manifest = extract_grids(source, out)
    tables = [*extract_tables(source, out), *extract_versions(source, out), *extract_serving(source.archive, out)]
    (out / "manifest.csv").write_bytes(csv_bytes(COLUMNS, manifest))
    (out / "tables.csv").write_bytes(csv_bytes(TABLE_COLUMNS, tables))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", help=f"the wheel of {WHEEL}")
    main(parser.parse_args().wheel)
