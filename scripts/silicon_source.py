"""The published tables: where they are, and which version of a row counts.

    pip download --no-deps --pre --only-binary :all: aisimulate==0.13.0.dev202610270000000085
    pip install pyarrow

The wheel (Apache-2.0, NVIDIA; the successor of aiconfigurator-core) and pyarrow are tools of the scripts, never dependencies of
the package. A table is `<device>/<family>/<framework>/<version>/<table>_perf.parquet`.
"""

import io
import re
import zipfile

import numpy as np

WHEEL = "aisimulate 0.13.0.dev202610270000000085"
ROOT = "aisimulate_core/systems/data"
SAMPLE = "aisimulate_core/systems/silicon_sample.csv"
DEVICES = {
    "GB300": "gb300",
    "B200": "b200_sxm",
    "H200": "h200_sxm",
    "H100_SXM": "h100_sxm",
    "A100_SXM": "a100_sxm",
    "GB200": "gb200",
    "B300": "b300_sxm",
    "L40S": "l40s",
    "RTX_PRO_6000": "rtx_pro_6000_server",
}
FRAMEWORKS = ("vllm", "sglang", "trtllm")
# The newest versions that the serving sample ran, by the label of constants from tables that are not newer (or the oldest that
# there are): kernels of the year before were slower, and the exam is about engines of their time.
SERVED_VERSIONS = {"vllm-2026-04": ("vllm", "0.19.0"), "sglang-2026-04": ("sglang", "0.5.10.post1")}


def version_key(version):
    """Sort key of a version such as 1.3.0rc20 or 0.5.6.post2: numbers as numbers, a pre-release below its release."""
    parts = re.findall(r"\d+|[a-z]+", version)
    return [(1, int(p)) if p.isdigit() else (0 if p in ("rc", "a", "b", "dev") else 2, 0) for p in parts] + [(1, -1)]


def released(version):
    """Whether a version was released: no build of a developer."""
    return "dev" not in version


class Source:
    """The tables of the wheel.

    Parameters
    ----------
    wheel : str or Path
        The file.
    """

    def __init__(self, wheel):
        self.archive = zipfile.ZipFile(wheel)
        self.found, self.read_before = {}, {}
        for name in self.archive.namelist():
            match = re.fullmatch(rf"{ROOT}/([^/]+)/([^/]+)/([^/]+)/([^/]+)/([^/]+)_perf\.parquet", name)
            if match:
                folder, family, framework, version, table = match.groups()
                self.found.setdefault((folder, family, table, framework), {})[version] = name

    def versions(self, device, family, table, framework):
        """{version: path} of a table, the newest first; builds of developers are left out."""
        found = self.found.get((DEVICES[device], family, table, framework), {})
        return {v: found[v] for v in sorted(filter(released, found), key=version_key, reverse=True)}

    def table(self, path):
        """Columns of one file as arrays."""
        import pyarrow.parquet as parquet

        if path not in self.read_before:
            table = parquet.read_table(io.BytesIO(self.archive.read(path)))
            columns = {name: table[name].to_numpy() for name in table.column_names}
            text = {name: values.astype(str) for name, values in columns.items() if values.dtype.kind == "O"}
            self.read_before = {path: columns | text}  # one at a time: some hold 200,000 rows
        return self.read_before[path]

    def rows(self, device, family, table, framework, shape, wanted=None, but=(), upto=None):
        """Rows of a table, each shape from the newest released version that holds it.

        Parameters
        ----------
        device, family, table, framework : str
            Which table.
        shape : sequence of str
            Columns that name what was timed, where the table has them: all rows of one combination come from one version.
        wanted : dict, optional
            Column and the value, or values, that it must have; one that the table lacks does not select.
        but : sequence of str
            Versions that are left out.
        upto : str, optional
            Newest version that is read, or the oldest that there is.

        Returns
        -------
        dict of str to ndarray
            The columns, `version` and `path` among them; "" or NaN where a version lacks one; empty where nothing was timed.
        """
        taken, pieces = set(), []
        versions = {v: path for v, path in self.versions(device, family, table, framework).items() if v not in but}
        if upto:
            old = {v: path for v, path in versions.items() if version_key(v) <= version_key(upto)}
            versions = old or dict(list(versions.items())[-1:])
        for version, path in versions.items():
            rows = self.table(path)
            keep = np.ones(len(rows["latency"]), bool)
            for name, values in (wanted or {}).items():
                if name in rows:
                    keep &= np.isin(rows[name], values)
            rows = {name: values[keep] for name, values in rows.items()}
            shapes = list(zip(*(rows[name].tolist() for name in shape if name in rows), strict=True))
            new = np.array([one not in taken for one in shapes], bool)
            taken.update(shapes)
            piece = {name: values[new] for name, values in rows.items()}
            pieces.append(piece | {"version": np.full(int(new.sum()), version), "path": np.full(int(new.sum()), path)})
        pieces = [piece for piece in pieces if len(piece["latency"])]
        if not pieces:
            return {name: np.zeros(0) for name in ("latency", "version", "path", *shape)}
        first = {name: piece[name] for piece in pieces[::-1] for name in piece}
        lacking = {name: "" if values.dtype.kind == "U" else np.nan for name, values in first.items()}
        return {
            name: np.concatenate([piece.get(name, np.full(len(piece["latency"]), lacking[name])) for piece in pieces])
            for name in first
        }


def versions_text(rows):
    """The versions of rows, the newest first, as one text."""
    return "; ".join(sorted(set(rows["version"].tolist()), key=version_key, reverse=True))
