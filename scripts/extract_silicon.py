"""Extract the published measurements the book uses from the aiconfigurator-core wheel.

    pip download --no-deps aiconfigurator-core==0.12.0 -d DIR
    pip install pyarrow
    python scripts/extract_silicon.py DIR/aiconfigurator_core-0.12.0-*.whl

Writes `hwdesign/timing/data/gemm_<device>_<framework>_<precision>.npz` with `manifest.csv`, and the long tables
`<operation>_<device>.npz` and `<operation>.csv` with `tables.csv`; units are SI. The same wheel gives the same bytes.
The wheel (Apache-2.0, NVIDIA) is a tool of this script and never a dependency of the package.

Which slices: the newest version of each table, never a minimum or mean over versions (`gemm_versions.csv`, for chapter 3, holds
two on purpose). Rows are left out where the
numbers are not measurements of what they say:

- vLLM BF16 and FP8 GEMMs (constant or uninitialised weights) and vLLM block FP8 (timed without CUDA graphs);
- TensorRT-LLM decode attention on A100 (above peak bandwidth); attention is SGLang's everywhere, but for one kernel:
- SGLang's latent attention on an FP8 cache on Hopper, which first turns the whole cache into BF16 (`LEFT_OUT` of
  `silicon_tables.py`); TensorRT-LLM's FP8 kernel is taken (`mla_decode_trtllm`);
- MoE layers of SGLang with EP > 1: their tokens stay on the measured rank, so the rows are not one rank's share of a batch
  (with EP = 1 they are taken as `moe_fused`; their routing touches half of the experts, see the page Accuracy);
- serving points whose plan cannot be read: more than eight GPUs in aggregated mode, where the ways were multiplied twice,
  or different numbers of GPUs for attention and experts, or an unknown number of workers in disaggregated mode;
- the copies of a serving point: the sample gathers three collections of largely the same runs.

Which serving points used multi-token prediction is not in the sample but in `SPECULATIVE` of `silicon_tables.py`, with source.

A shape measured with two kernels keeps the one the framework takes by default.
"""

import argparse
import hashlib
import io
import sys
import zipfile
from pathlib import Path

import numpy as np
from silicon_tables import DEVICES, TABLE_COLUMNS, csv_bytes, extract_serving, extract_tables, extract_versions, newest

WHEEL = "aiconfigurator-core 0.12.0"
OUT = Path(__file__).parents[1] / "hwdesign" / "timing" / "data"
PRECISIONS = {"bf16": "bfloat16", "fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4"}
COLUMNS = ("device", "framework", "precision", "version", "kernel", "gpu", "rows", "file", "sha256", "source")


def wanted(device, framework, precision):
    """Whether the book uses this slice."""
    return framework in ("sglang", "trtllm") or (device, framework, precision) == ("GB300", "vllm", "nvfp4")


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


def main(wheel, out=OUT):
    import pyarrow.parquet as parquet

    out.mkdir(parents=True, exist_ok=True)
    manifest = []
    with zipfile.ZipFile(wheel) as archive:
        for device, folder in DEVICES.items():
            for framework in ("sglang", "trtllm", "vllm"):
                version, path = newest(archive.namelist(), folder, "gemm", "gemm", framework)[0]
                table = parquet.read_table(io.BytesIO(archive.read(path)))
                for precision, name in PRECISIONS.items():
                    rows = table.filter(np.asarray(table["gemm_dtype"].to_pylist()) == name)
                    if not wanted(device, framework, precision) or rows.num_rows == 0:
                        continue
                    m, n, k, ms = (rows[c].to_numpy() for c in ("m", "n", "k", "latency"))
                    data = npz_bytes(*grid(m, n, k, ms))
                    file = f"gemm_{device}_{framework}_{precision}.npz"
                    (out / file).write_bytes(data)
                    kernel, gpu = ("; ".join(sorted(set(rows[c].to_pylist()))) for c in ("kernel_source", "device"))
                    digest = hashlib.sha256(data).hexdigest()
                    manifest.append((device, framework, precision, version, kernel, gpu, rows.num_rows, file, digest, path))
                    print(f"{file}: {rows.num_rows} rows, {len(data) / 1e3:.0f} kB", file=sys.stderr)
        tables = [*extract_tables(archive, out), *extract_versions(archive, out), *extract_serving(archive, out)]
    (out / "manifest.csv").write_bytes(csv_bytes(COLUMNS, manifest))
    (out / "tables.csv").write_bytes(csv_bytes(TABLE_COLUMNS, tables))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", help=f"the wheel of {WHEEL}")
    main(parser.parse_args().wheel)
