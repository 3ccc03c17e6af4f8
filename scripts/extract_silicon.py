"""Extract the published GEMM measurements the book uses from the aiconfigurator-core wheel.

    pip download --no-deps aiconfigurator-core==0.12.0 -d DIR
    pip install pyarrow
    python scripts/extract_silicon.py DIR/aiconfigurator_core-0.12.0-*.whl

Writes `hwdesign/timing/data/gemm_<device>_<framework>_<precision>.npz` and `manifest.csv`; the same wheel gives the same
bytes. The wheel (Apache-2.0, NVIDIA) is a tool of this script and never a dependency of the package.

Which slices: the newest version of each table, never a minimum or mean over versions. Rows are left out where the
numbers are not measurements of what they say: vLLM BF16 and FP8 (constant or uninitialised weights) and vLLM block FP8
(timed without CUDA graphs) are not taken; of vLLM only NVFP4 on GB300 is.
"""

import argparse
import csv
import hashlib
import io
import re
import sys
import zipfile
from pathlib import Path

import numpy as np

WHEEL = "aiconfigurator-core 0.12.0"
ROOT = "aiconfigurator_core/systems/data"
OUT = Path(__file__).parents[1] / "hwdesign" / "timing" / "data"
DEVICES = {"GB300": "gb300", "B200": "b200_sxm", "H200": "h200_sxm", "H100_SXM": "h100_sxm", "A100_SXM": "a100_sxm"}
PRECISIONS = {"bf16": "bfloat16", "fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4"}
COLUMNS = ("device", "framework", "precision", "version", "kernel", "gpu", "rows", "file", "sha256", "source")


def wanted(device, framework, precision):
    """Whether the book uses this slice."""
    return framework in ("sglang", "trtllm") or (device, framework, precision) == ("GB300", "vllm", "nvfp4")


def version_key(version):
    """Sort key of a version such as 1.3.0rc20 or 0.5.6.post2: numbers as numbers, a pre-release below its release."""
    parts = re.findall(r"\d+|[a-z]+", version)
    return [(1, int(p)) if p.isdigit() else (0 if p in ("rc", "a", "b", "dev") else 2, 0) for p in parts] + [(1, -1)]


def newest_tables(names):
    """{(folder, framework): newest path} among the GEMM tables of the wheel."""
    best = {}
    for name in names:
        match = re.fullmatch(rf"{ROOT}/(\w+)/gemm/(\w+)/([^/]+)/gemm_perf\.parquet", name)
        if match:
            folder, framework, version = match.groups()
            key = (folder, framework)
            if key not in best or version_key(version) > version_key(best[key][0]):
                best[key] = (version, name)
    return best


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
        tables = newest_tables(archive.namelist())
        for device, folder in DEVICES.items():
            for framework in ("sglang", "trtllm", "vllm"):
                version, path = tables[folder, framework]
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
    with open(out / "manifest.csv", "w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerows([COLUMNS, *manifest])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", help=f"the wheel of {WHEEL}")
    main(parser.parse_args().wheel)
