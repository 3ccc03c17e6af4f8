"""Catalogue: every number has source, date and status, is dense and one-way, and equals what was published."""

import copy
import datetime
import json
import pickle
import warnings

import numpy as np
import pytest

import hwdesign as hw
from hwdesign.catalogue.device import rows
from hwdesign.catalogue.engine import rows as engine_rows
from hwdesign.timing.silicon import slices
from hwdesign.units import fmt

# Published figures as their sources print them: (device, field, format) -> text. Peaks in FLOP/s, links one way, memories as the
# driver's tool reports them.
PUBLISHED = """
A100_SXM   fp32 19.5T tf32 156T bf16 312T fp16 312T int8 624T | 2.039T 81920MiB 300G 8 108 41.94M 400
H100_SXM   fp32 67T tf32 494.5T bf16 989T fp16 989T fp8 1.979P int8 1.979P | 3.35T 81559MiB 450G 8 132 52.43M 700
H100_PCIE  fp32 51T tf32 378T bf16 756.5T fp16 756.5T fp8 1.513P int8 1.513P | 2T 81559MiB 64G 8 - 52.43M 350
H200       fp32 67T tf32 494.5T bf16 989T fp16 989T fp8 1.979P int8 1.979P | 4.8T 143771MiB 450G 8 132 52.43M 700
B200       fp32 80T tf32 1.125P bf16 2.25P fp16 2.25P fp8 4.5P fp4 9P int8 4.5P | 7.7T 183359MiB 900G 8 148 132.6M 1k
GB200      fp32 80T tf32 1.25P bf16 2.5P fp16 2.5P fp8 5P fp4 10P int8 5P | 8T 189471MiB 900G 72 152 132.6M 1.2k
B300       fp32 80T tf32 1.125P bf16 2.25P fp16 2.25P fp8 4.5P fp4 14P int8 153.5T | 7.75T 275040MiB 900G 8 148 - 1.1k
GB300      fp32 80T tf32 1.25P bf16 2.5P fp16 2.5P fp8 5P fp4 15P int8 165T | 8T 284208MiB 900G 72 152 132.6M 1.4k
MI300X     fp32 163.4T tf32 653.7T bf16 1.307P fp16 1.307P fp8 2.615P int8 2.615P | 5.3T 196592MiB 448G 8 304 268.4M -
L4         fp32 30.3T tf32 60T bf16 121T fp16 121T fp8 242T int8 242T | 300G 23034MiB 32G 8 58 50.33M 72
T4         fp32 8.1T fp16 65T int8 130T | 320G 15360MiB 16G - 40 4.194M -
L40S       fp32 91.6T tf32 183T bf16 362.1T fp16 362.1T fp8 733T int8 733T | 864G 46068MiB 32G 8 142 100.7M 350
RTX_4090   fp32 82.6T tf32 82.6T bf16 165.2T fp16 165.2T fp8 330.3T int8 660.6T | 1.008T 24564MiB - - 128 75.5M -
RTX_5090   fp32 104.8T bf16 209.5T fp16 209.5T fp8 419T fp4 1.676P int8 838T | 1.792T 32607MiB - - 170 100.7M -
RTX_PRO_6000 bf16 467.8T fp16 467.8T fp8 935.6T fp4 1.871P int8 935.6T | 1.597T 97887MiB 64G 8 188 134.2M 600
"""
FIELDS = ("memory_bandwidth", "memory_capacity", "link_bandwidth", "link_domain", "sms", "l2", "power_limit")
TEXTS = ("form_factor", "reported_name")  # fields that are no numbers
UNITS = {
    "dense_peak": "FLOP/s",
    "sparse_peak": "FLOP/s",
    "memory_bandwidth": "byte/s",
    "memory_capacity": "byte",
    "link_bandwidth": "byte/s",
    "link_latency": "s",
    "link_domain": "GPU",
    "sms": "SM",
    "l2": "byte",
    "power_limit": "W",
    "form_factor": "text",
    "reported_name": "pattern",
}
BOUNDS = {
    "dense_peak": (1e12, 2e16),
    "sparse_peak": (1e13, 3e16),
    "memory_bandwidth": (1e11, 1e13),
    "memory_capacity": (8e9, 5e11),
    "link_bandwidth": (1e10, 1e12),
    "link_latency": (1e-6, 1e-4),
    "link_domain": (2, 72),
    "sms": (30, 400),
    "l2": (2e6, 3e8),
    "power_limit": (50, 2000),
}


def published():
    """(device, field, format) -> printed text."""
    out = {}
    for line in PUBLISHED.strip().splitlines():
        peaks, rest = (part.split() for part in line.split("|"))
        out |= {(peaks[0], "dense_peak", f): v for f, v in zip(peaks[1::2], peaks[2::2], strict=True)}
        out |= {(peaks[0], f, ""): v for f, v in zip(FIELDS, rest, strict=True) if v != "-"}
    return out


def printed(field, value):
    if field == "memory_capacity":
        return f"{value / 2**20:.10g}MiB"
    return fmt(value, "").replace(" ", "") if value < 1000 else fmt(value, "x", digits=4).replace(" ", "").replace("x", "")


def catalogue_errors(values):
    """Rows whose value is not what was published: dense peaks, sizes, sparse peaks by their ratio, latencies."""
    wrong = [key for key, text in published().items() if printed(key[1], values.get(key, 0.0)) != text]
    ratio = {("GB300", "fp4"): 4 / 3, ("B300", "fp4"): 9 / 7}
    for (device, field, form), value in values.items():
        if field == "sparse_peak":
            want = ratio.get((device, form), 2.0) * values[device, "dense_peak", form]
            wrong += [(device, field, form)] * (abs(value / want - 1) > 0.003)
        if field == "link_latency":
            wrong += [(device, field, form)] * (fmt(value, "s") != "10 µs")
    return wrong


def values():
    return {(r["device"], r["field"], r["precision"]): float(r["value"]) for r in rows() if r["field"] not in TEXTS}


def test_every_number_equals_its_published_figure():
    assert catalogue_errors(values()) == []


def test_no_number_is_unpublished():
    free = {key for key in values() if key[1] not in ("sparse_peak", "link_latency")} - set(published())
    assert not free, f"rows without an anchor in PUBLISHED: {sorted(free)}"


def test_a_change_of_5_percent_in_any_number_is_caught():
    base = values()
    for key in base:
        for factor in (0.95, 1.05):
            assert catalogue_errors({**base, key: base[key] * factor}), f"{key} x {factor} passes unnoticed"


@pytest.mark.parametrize("row", rows(), ids=lambda r: f"{r['device']}-{r['field']}-{r['precision']}")
def test_every_row_has_unit_source_date_status(row):
    assert row["unit"] == UNITS[row["field"]] and len(row["source"]) > 8
    assert row["status"] in ("datasheet", "derived", "reported", "unverified")
    assert datetime.date.fromisoformat(row["accessed"]) <= datetime.date.today()
    if row["field"] not in TEXTS:
        low, high = BOUNDS[row["field"]]
        assert low <= float(row["value"]) <= high


def test_no_row_stands_twice():
    keys = [(r["device"], r["field"], r["precision"]) for r in rows()]
    assert len(keys) == len(set(keys))


def test_memories_are_what_devices_report_and_say_who_reports_it():
    known = {"H100_SXM": 85_520_809_984, "H200": 150_754_820_096, "B200": 192_265_846_784, "GB300": 298_013_687_808}
    assert {name: hw.device(name).memory_capacity for name in known} == known
    rounded = {"A100_SXM": 80, "H100_SXM": 80, "H100_PCIE": 80, "H200": 141, "B200": 180, "GB200": 186, "B300": 288, "GB300": 288,
               "MI300X": 192, "L4": 24, "T4": 16, "L40S": 48, "RTX_4090": 24, "RTX_5090": 32, "RTX_PRO_6000": 96}  # fmt: skip
    for row in (r for r in rows() if r["field"] == "memory_capacity"):
        tool = "rocm-smi" if row["device"] == "MI300X" else "nvidia-smi"
        assert row["status"] == "reported" and row["source"].startswith(f"{tool} prints ") and "https://" in row["source"]
        told = float(row["source"].split()[2]) * (1 if tool == "rocm-smi" else 2**20)
        assert told == float(row["value"]) and "e" not in row["value"]  # to the byte
        # makers round in GB or in GiB, down or up: never by more than the 7.4 % between both
        assert 1 / 1.0738 < float(row["value"]) / 1e9 / rounded.pop(row["device"]) < 1.0738
    assert not rounded


def test_sparse_is_kept_apart_and_never_used():
    assert hw.H100_SXM.peak_flops("bf16") == 989e12 and hw.H100_SXM.sparse_peak["bf16"] == 1978e12
    assert hw.B200.peak_flops("bf16") == 2.25e15 and hw.B200.sparse_peak["bf16"] == 4.5e15
    rate = 0.485 * 989e12  # fms-fsdp issue 89: 48.5 % of dense, not 24.3 % of sparse
    assert round(rate / hw.H100_SXM.peak_flops("bf16"), 3) == 0.485
    assert hw.GB300.sparse_peak["fp4"] / hw.GB300.peak_flops("nvfp4") == pytest.approx(4 / 3)


def test_b200_and_gb200_are_two_parts():
    assert (hw.B200.peak_flops("bf16"), hw.GB200.peak_flops("bf16")) == (2.25e15, 2.5e15)


def test_ambiguous_name_says_what_it_took():
    with pytest.warns(UserWarning, match=r"'H100' does not name a form factor: taking H100_SXM"):
        assert hw.device("H100") is hw.H100_SXM
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert hw.device("h100-pcie") is hw.H100_PCIE and hw.device(" gb300 ") is hw.GB300


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: hw.device("GB30"), "did you mean 'GB300'?"),
        (lambda: hw.device("TPU"), "device must be one of A100_SXM"),
        (lambda: hw.A100_SXM.peak_flops("fp8"), "A100_SXM has a dense peak for (fp32, tf32, bf16, fp16, int8), got 'fp8'"),
        (lambda: hw.GB300.ridge("fp5"), "precision must be one of fp32"),
        (lambda: hw.recipe("fp9"), "recipe must be one of bf16"),
        (lambda: hw.recipe(None), "got None"),
        (lambda: hw.device(None), "got None"),
        (lambda: hw.recipe(hw.NVFP4), "recipe must be one of bf16"),
        (lambda: hw.precision("nvfp"), "did you mean 'nvfp4'?"),
    ],
)
def test_bad_names_list_the_good_ones(call, says):
    with pytest.raises(ValueError, match="must be one") as error:
        call()
    assert says in str(error.value)


# Bits of storage of a whole block, from the format's specification: values x bits + one scale.
BLOCKS = {
    "fp32": (32, 1), "tf32": (32, 1), "bf16": (16, 1), "fp16": (16, 1), "fp8": (8, 1), "int8": (8, 1),
    "fp8_1x128": (128 * 8 + 32, 128), "fp8_128x128": (16384 * 8 + 32, 16384), "mxfp8": (32 * 8 + 8, 32),
    "mxfp4": (32 * 4 + 8, 32), "nvfp4": (16 * 4 + 8, 16), "int4": (4, 1),
    "int4_g32": (32 * 4 + 16, 32), "int4_g64": (64 * 4 + 16, 64), "int4_g128": (128 * 4 + 16, 128),
    "int8_g32": (32 * 8 + 16, 32), "int8_g64": (64 * 8 + 16, 64), "int8_g128": (128 * 8 + 16, 128),
}  # fmt: skip


WEIGHTS_ALONE = {
    "fp8_w8a16": "fp8", "fp8_block_w8a16": "fp8_128x128", "nvfp4_w4a16": "nvfp4", "mxfp4_w4a16": "mxfp4", "w4a16_row": "int4",
    "w4a16_g32": "int4_g32", "w4a16_g64": "int4_g64", "w8a16_row": "int8", "w8a16_g32": "int8_g32", "w8a16_g64": "int8_g64",
    "w8a16_g128": "int8_g128", "mxfp8_w8a16": "mxfp8", "mxfp6_w6a16": "mxfp6", "bnb4": "bnb4", "bnb4_dq": "bnb4_dq",
}  # fmt: skip


def test_bytes_include_the_block_scales():
    for name, (bits, count) in BLOCKS.items():
        assert hw.PRECISIONS[name].bytes == bits / count / 8, name
    assert set(BLOCKS) == set(hw.PRECISIONS)
    assert (hw.NVFP4.bytes, hw.MXFP4.bytes, hw.MXFP8.bytes) == (0.5625, 0.53125, 1.03125)


def test_a_change_of_5_percent_in_any_format_is_caught():
    from dataclasses import replace

    for name, (bits, count) in BLOCKS.items():
        form = hw.PRECISIONS[name]
        for field in ("bits", "scale_bits") if form.block else ("bits",):
            assert replace(form, **{field: getattr(form, field) * 1.05}).bytes != bits / count / 8
        if form.block:
            assert replace(form, block=tuple(side * 1.05 for side in form.block)).bytes != bits / count / 8


def test_recipes_and_rates():
    parts = {n: tuple(p.name for p in (r.weights, r.activations, r.outputs, r.kv_cache, r.math)) for n, r in hw.RECIPES.items()}
    assert parts == {
        "bf16": ("bf16", "bf16", "bf16", "bf16", "bf16"),
        "fp8": ("fp8", "fp8", "bf16", "fp8", "fp8"),
        "fp8_block": ("fp8_128x128", "fp8_1x128", "bf16", "fp8", "fp8"),
        "nvfp4": ("nvfp4", "nvfp4", "bf16", "fp8", "nvfp4"),
        "mxfp4": ("mxfp4", "mxfp4", "bf16", "fp8", "mxfp4"),
        "w4a16": ("int4_g128", "bf16", "bf16", "bf16", "bf16"),
        "table2": ("nvfp4", "nvfp4", "fp8", "fp8", "nvfp4"),
        "mxfp4_w4a8": ("mxfp4", "mxfp8", "bf16", "fp8", "mxfp8"),
        "mxfp8": ("mxfp8", "mxfp8", "bf16", "fp8", "mxfp8"),
        "int8": ("int8", "int8", "bf16", "bf16", "int8"),
        "w4a8": ("int4_g128", "int8", "bf16", "bf16", "int8"),
        "w4afp8": ("int4_g128", "fp8", "bf16", "fp8", "fp8"),
        "nvfp4_w4a8": ("nvfp4", "fp8", "bf16", "fp8", "fp8"),
        "mxfp6": ("mxfp6", "mxfp8", "bf16", "fp8", "mxfp8"),
        **{name: (weights, *["bf16"] * 4) for name, weights in WEIGHTS_ALONE.items()},
    }
    assert {n: p.rate for n, p in hw.PRECISIONS.items() if p.rate != n} == {
        "fp8_1x128": "fp8", "fp8_128x128": "fp8", "mxfp8": "fp8", "mxfp4": "fp4", "nvfp4": "fp4",
        **{f"int{bits}_g{size}": f"int{bits}" for bits in (4, 8) for size in (32, 64, 128)},
    }  # fmt: skip


def test_devices_can_be_copied_pickled_hashed_and_made_by_hand():
    for clone in (pickle.loads(pickle.dumps(hw.GB300)), copy.deepcopy(hw.GB300)):
        assert clone == hw.GB300 and clone.ridge("nvfp4") == 1875
    assert {hw.GB300: 1}[hw.device("gb300")] == 1
    mine = hw.Device(name="mine", form_factor="PCIe", dense_peak={"bf16": 1e14}, sparse_peak={}, memory_bandwidth=1e12,
                     memory_capacity=16e9)  # fmt: skip
    assert mine.ridge("bf16") == 100
    with pytest.raises(TypeError):
        hw.GB300.dense_peak["bf16"] = 0
    with pytest.raises(TypeError):
        slices()[0]["device"] = "mine"


def test_recipes_write_bf16_except_table_2():
    assert {name: r.outputs.name for name, r in hw.RECIPES.items()} == {
        name: "fp8" if name == "table2" else "bf16" for name in hw.RECIPES
    }
    assert hw.recipe("w4a16").math is hw.BF16 and hw.recipe("w4a16").weights.bytes < 0.52
    assert hw.recipe("fp8_block").operand_bytes == {"a": 1.03125, "b": 1 + 4 / 16384, "c": 2.0}


def test_every_peak_of_a_recipe_is_found_or_refused():
    for name in hw.device_names():
        for recipe in hw.RECIPES.values():
            try:
                assert np.isfinite(hw.device(name).ridge(recipe.math))
            except ValueError as error:
                assert name in str(error)


SHEET = {"name": "my card", "form_factor": "PCIe", "dense_peak": {"bf16": 2e14, "fp8": 4e14}, "memory_bandwidth": 1.5e12,
         "memory_capacity": 48e9}  # fmt: skip


def device_file(folder, text):
    path = folder / "my.json"
    path.write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")
    return str(path)


def test_a_device_that_the_catalogue_lacks_is_read_from_a_file(tmp_path):
    more = {"link_bandwidth": 64e9, "link_latency": 1e-5, "link_domain": 8, "sms": 142, "l2": 96e6, "reported_name": "My Card.*",
            "sparse_peak": {"bf16": 4e14}}  # fmt: skip
    found = hw.device(device_file(tmp_path, SHEET | more))
    assert found == hw.Device(**SHEET, **more) and type(found.sms) is int
    assert found.ridge("fp8") == 4e14 / 1.5e12 and {found: 1}[pickle.loads(pickle.dumps(found))] == 1
    small = hw.device(tmp_path / "my.json")
    assert small == found
    bare = hw.device(device_file(tmp_path, SHEET | {"sms": None, "l2": None}))
    assert (bare.sms, bare.l2, bare.link_bandwidth, dict(bare.sparse_peak)) == (None, None, None, {})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"memory_bandwith": 1e12}, "my.json: a key must be one of .*got 'memory_bandwith'; did you mean 'memory_bandwidth'"),
        ({"measured": {}}, "my.json: a key must be one of name, "),
        ({"memory_bandwidth": 1500}, r"memory_bandwidth must be a number from 1e\+09 to 1e\+15 \[byte/s\], got 1500"),
        ({"memory_bandwidth": "1.5e12"}, r"memory_bandwidth must be a number .*got '1.5e12'"),
        ({"memory_capacity": 48}, r"memory_capacity must be a number from 1e\+08 .*got 48"),
        ({"memory_capacity": float("inf")}, "memory_capacity must be a number .*got inf"),
        ({"memory_capacity": float("nan")}, "memory_capacity must be a number .*got nan"),
        ({"memory_capacity": True}, "memory_capacity must be a number .*got True"),
        ({"memory_capacity": None}, r"memory_capacity must be given, a number \[byte\], got nothing"),
        ({"dense_peak": None}, "dense_peak must be given, an object of format to FLOP/s"),
        ({"name": None}, "name must be given, text, got nothing"),
        ({"dense_peak": {}}, "dense_peak must be an object of format to FLOP/s, got {}"),
        ({"dense_peak": {"nvfp4": 1e15}}, "dense_peak: a format must be one of fp32, .*got 'nvfp4'; did you mean 'fp4'"),
        ({"dense_peak": {"bf16": 200}}, r"dense_peak of bf16 must be a number .*\[FLOP/s\], got 200"),
        ({"sms": 1.5}, "sms must be a whole number, got 1.5"),
        ({"name": "h100 sxm"}, "name must be none of the catalogue's.*got 'h100 sxm'"),
        ({"name": "H100"}, "name must be none of the catalogue's"),
        ({"name": "a\x1b[31m"}, "name must be text of 1 to 60 printable characters"),
        ({"form_factor": ""}, "form_factor must be text of 1 to 60"),
        ({"reported_name": "("}, "reported_name must be a regular expression, got '\\('"),
    ],
)
def test_a_device_file_that_is_none_says_key_value_and_what_is_accepted(tmp_path, change, says):
    with pytest.raises(ValueError, match=says):
        hw.device(device_file(tmp_path, SHEET | change))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "my.json must be JSON"),
        ("[1]", r"my.json must hold one JSON object, got \[1.0\]"),
        ("[" * 100_000, "my.json must be JSON"),
        (json.dumps(SHEET)[:-1] + ', "name": "twice"}', "my.json: key 'name' must stand once"),
        (json.dumps(SHEET | {"sms": 1})[:-2] + "9" * 5000 + "}", "sms must be a number from 1 to"),
        (" " * 1_000_001, "my.json must be at most 1000000 bytes"),
    ],
)
def test_a_file_that_is_no_device_is_refused(tmp_path, text, says):
    with pytest.raises(ValueError, match=says):
        hw.device(device_file(tmp_path, text))


def test_a_device_file_that_cannot_be_read_is_refused(tmp_path):
    (tmp_path / "folder.json").mkdir()
    for path in (tmp_path / "none.json", tmp_path / "folder.json", "a\0.json"):
        with pytest.raises(ValueError, match="device must be a name or a JSON file that can be read, got"):
            hw.device(path)


@pytest.mark.parametrize("row", engine_rows(), ids=lambda row: f"{row['engine']} {row['field']} {row['from_capacity']}")
def test_every_fact_about_an_engine_has_a_source_a_date_and_a_status(row):
    assert len(row["source"]) > 20 and row["unit"] in ("", "1", "byte")
    assert datetime.date(2026, 1, 1) <= datetime.date.fromisoformat(row["accessed"]) <= datetime.date(2027, 1, 1)
    assert row["status"] in ("code", "documented", "checkpoints", "reported", "estimate")
    release = {"vllm": "v0.33.0", "sglang": "v0.5.23"}.get(row["engine"])  # that of the row `version`
    assert "/blob/v" not in row["source"] or f"/blob/{release}/" in row["source"]
