"""Write what comes from code: the hardware catalogue, the gallery of models, kinds of blocks, designs, accuracy, the exam, measured machines, the API reference,
and their figures; beside them the schema of the JSON report.

    python scripts/generate_pages.py [--out book] [--only accuracy exam]

The Markdown is committed, so that it can be read without building; a test compares it with what this script writes.
"""

import argparse
import importlib
import inspect
import json
import re
from pathlib import Path

import accuracy_page as accuracy
import design_page
import exam_page as exam
import machine_page as machine
from blocks_page import blocks_page
from gallery_page import gallery_page, listed, strip

import hwdesign
from hwdesign.advice.report import schema
from hwdesign.catalogue.device import TEXTS, device, device_names, rows
from hwdesign.catalogue.precision import PRECISIONS
from hwdesign.models import config
from hwdesign.units import GIB, GIGA, TERA, fmt

ROOT = Path(__file__).parents[1]
SCHEMA = ROOT / "hwdesign" / "advice" / "report.schema.json"
PUBLISHED = '<span class="hw-label hw-published">published</span>'
FORMATS = {"16 bit": "16 bit", "FP8": "fp8", "FP4": "fp4"}


def table(header, body, numbers=0):
    """A Markdown table; so many columns at the end hold numbers, which stand at the right."""
    line = lambda cells: "| " + " | ".join(str(c) for c in cells) + " |"  # noqa: E731
    rule = ["---"] * (len(header) - numbers) + ["---:"] * numbers
    return "\n".join([line(header), line(rule), *map(line, body)])


def quantity(row):
    """The value of a catalogue row with its unit, as text."""
    if row["field"] in TEXTS:
        return f"`{row['value']}`" if row["field"] == "reported_name" else row["value"]
    told = fmt(float(row["value"]), row["unit"], digits=4)
    return f"{told}, {float(row['value']) / GIB:.2f} GiB" if row["field"] == "memory_capacity" else told


def rates(d):
    """Dense peaks of a device by printed format [FLOP/s]; the 16-bit one is BF16, or FP16 where there is no BF16 (T4)."""
    found = {"16 bit": d.dense_peak.get("bf16") or d.dense_peak.get("fp16"), **d.dense_peak}
    return {label: found.get(key) for label, key in FORMATS.items()}


def overview():
    """One row a device: peaks, bandwidth, capacity in decimal and binary units, link."""
    body = []
    for d in map(device, device_names()):
        peaks = [f"{rate / TERA:g}" if rate else "–" for rate in rates(d).values()]
        link = f"{d.link_bandwidth / GIGA:.0f}" if d.link_bandwidth else "–"
        capacity = [f"{d.memory_capacity / GIGA:.1f}", f"{d.memory_capacity / GIB:.1f}"]
        body.append([f"`{d.name}`", *peaks, f"{d.memory_bandwidth / TERA:g}", *capacity, link])
    peaks = [f"{label} [TFLOP/s]" for label in FORMATS]
    return table(["device", *peaks, "memory [TB/s]", "capacity [GB]", "capacity [GiB]", "link [GB/s]"], body)


def ridge_table():
    """One row a device: ridge points by format."""
    body = [
        [f"`{d.name}`", *(f"{rate / d.memory_bandwidth:.0f}" if rate else "–" for rate in rates(d).values())]
        for d in map(device, device_names())
    ]
    return table(["device", *(f"{label} [FLOP/byte]" for label in FORMATS)], body)


def factors_of_two():
    """The classic errors by a factor of about two, each with numbers from the catalogue."""
    h100 = device("H100_SXM")
    dense, sparse = h100.dense_peak["bf16"], h100.sparse_peak["bf16"]
    rate = 0.485 * dense  # a run at 48.5 % of the dense peak, the case of fms-fsdp issue 89
    memory = h100.memory_capacity  # nvidia-smi prints it in MiB
    body = [
        ["dense or sparse", f"H100 SXM BF16: {fmt(dense, 'FLOP/s')} or {fmt(sparse, 'FLOP/s', digits=4)}",
         f"a kernel at {fmt(rate, 'FLOP/s')} uses {rate / dense:.1%} of the math; divided by the sparse peak it seems {rate / sparse:.1%}"],
        ["one way or both ways", f"NVLink of an H100: {fmt(h100.link_bandwidth, 'byte/s')} or {fmt(2 * h100.link_bandwidth, 'byte/s')}",
         "an exchange that sends 450 GB each way takes 1 s, not 0.5 s"],
        ["GB or GiB", f"an H100 reports {memory / 2**20:.0f} MiB: {memory / GIB:.2f} GiB, or {memory / GIGA:.2f} GB",
         f"{GIB / GIGA - 1:.1%} more or less room; its {memory / GIB:.1f} GiB, read as GB, are {(memory - memory / GIB * GIGA) / GIGA:.1f} GB of cache that nobody uses"],
        ["FLOP or MAC", f"1024 x 1024 x 1024: {2 * 1024**3:,} FLOP, {1024**3:,} multiply-adds",
         "a count of multiply-adds divided by a peak in FLOP/s halves every time"],
    ]  # fmt: skip
    return table(["confusion", "the two numbers", "what goes wrong"], body)


def device_section(name):
    """Heading, numbers and numbered sources of one device."""
    mine = [r for r in rows() if r["device"] == name]
    sources = list(dict.fromkeys(f"{r['source']}; read {r['accessed']}" for r in mine))
    number = {source: i for i, source in enumerate(sources, 1)}
    label = {"sms": "SMs", "l2": "last-level cache"}
    body = [
        [
            label.get(r["field"], r["field"].replace("_", " ")),
            r["precision"].upper(),
            quantity(r).replace(" ", "\u00a0"),
            r["status"],
            number[f"{r['source']}; read {r['accessed']}"],
        ]
        for r in mine
    ]
    listed = "\n".join(f"{i}. {source}" for source, i in number.items())
    return [
        f"### {name.replace('_', ' ')}",
        table(["field", "format", "value", "status", "source"], body),
        f"Sources:\n\n{listed}",
    ]


def ridge_range():
    """((ridge, device, format) of the lowest, the same of the highest) ridge point of the catalogue."""
    at = [
        (d.dense_peak[f] / d.memory_bandwidth, d.name.replace("_", " "), f.upper())
        for d in map(device, device_names())
        for f in ("bf16", "fp8", "fp4")
        if f in d.dense_peak
    ]
    return min(at), max(at)


def formats_table():
    """Number formats: bits, scale, bytes, rate."""
    body = []
    for p in PRECISIONS.values():
        scale = f"{p.scale_bits} bits per {' x '.join(map(str, p.block))}" if p.block else "none counted"
        body.append([p.label, p.bits, scale, f"{p.bytes:g}", p.rate.upper()])
    return table(["format", "bits", "scale", "bytes per value", "math rate of"], body)


def hardware_page():
    """The hardware catalogue."""
    (low, low_device, low_format), (high, high_device, high_format) = ridge_range()
    parts = [
        "# Hardware catalogue",
        "<!-- written by scripts/generate_pages.py from hwdesign/catalogue/devices.csv; do not edit -->",
        "Every device constant of the book, with its source and the date it was read. Peaks are dense, links are one-way, prefixes are decimal. "
        f"A number that nobody published is absent. A memory is as large as the driver's tool reports it; programs get up to 1 % less from the CUDA runtime. {PUBLISHED}",
        "## At a glance",
        overview(),
        "## Ridge points",
        "The ridge is the peak rate over the memory bandwidth, in FLOP/byte: the intensity a computation needs to keep the math units busy.",
        "```{figure} ridges.svg\n"
        f":alt: Ridge point in FLOP/byte on a logarithmic axis for {len(device_names())} devices in 16 bits, FP8 and FP4: from {low:.0f} for "
        f"{low_device} in {low_format} to {high:.0f} for {high_device} in {high_format}.\n:class: hw-opening\n\n{PUBLISHED} Ridge points worked out from the dense peaks below.\n```",
        f"**Read the figure.** From left to right a computation needs more operations per byte. {low_device} in {low_format} is satisfied with {low:.0f}; {high_device} in "
        f"{high_format} asks for {high:.0f}, {high / low:.0f} times as many. In every device with more than one format the ridge grows as the number format shrinks, because the "
        "math rate grows and the bandwidth does not.",
        ridge_table(),
        "## Number formats",
        "The size of a value includes its share of the block scale. A scale for a whole matrix (FP8, NVFP4) is not counted.",
        formats_table(),
        "## Four errors by a factor of two",
        factors_of_two(),
        "## Names",
        "`hwdesign.device(name)` accepts these names in any case, with blank, hyphen or underscore. \"H100\" and \"A100\" do not say which form factor is meant: "
        "they give the SXM module, with a warning that says so. A name that ends in `.json` is a file with the datasheet of a device that is not here; the "
        "docstring of [`device`](api.md) says what it holds.",
        "## What the status means",
        table(["status", "meaning"], [
            ["datasheet", "a figure of the vendor, quoted by the named source"],
            ["derived", "worked out from other figures"],
            ["reported", "read off a device or a tool by somebody, or a planning value of a tool"],
            ["unverified", "one weak source, or from memory: do not build on it"],
        ]),
        "## All numbers",
    ]  # fmt: skip
    parts += [section for name in device_names() for section in device_section(name)]
    return "\n\n".join(parts) + "\n"


def docstring(text):
    """A NumPy-style docstring as Markdown: paragraphs, lists for the sections, code for the examples."""
    out, section = [], None
    lines = inspect.cleandoc(text).splitlines()
    for i, line in enumerate(lines):
        following = lines[i + 1] if i + 1 < len(lines) else ""
        if following and set(following) == {"-"} and line:
            if section == "Examples":
                out.append("```")
            section = line
            out += ["", f"**{section}**", ""] + (["```python"] if section == "Examples" else [])
        elif line and set(line) == {"-"}:
            continue
        elif section in ("Parameters", "Returns", "Raises") and line:
            name, colon, kind = line.partition(" : ")
            if line.startswith("    "):
                out.append(f"  {line.strip()}")
            elif colon:
                out.append(f"- `{name}` ({kind}):")
            else:
                out.append(f"- *{line}*:" if section == "Returns" else f"- `{line}`:")
        else:
            text = re.sub(r"``([^`]+)``", r"`\1`", line)
            out.append(line if section == "Examples" else re.sub("::$", ":", text))
    return "\n".join(out + (["```"] if section == "Examples" else []))


ROOMS = ("formulas", "catalogue", "models", "timing", "advice", "measure")


def names_of(module):
    """Functions and classes that a module defines and does not hide, by name."""
    for name, item in sorted(vars(module).items()):
        own = getattr(item, "__module__", "").startswith(module.__name__)
        if own and not name.startswith("_") and (inspect.isfunction(item) or inspect.isclass(item)):
            yield name, item


def names_table(modules, known=()):
    """Functions and classes by module with the first sentence of their docstrings, but for those in `known`."""
    body = []
    for module in map(importlib.import_module, modules):
        for name, item in names_of(module):
            if name not in known:
                first = " ".join(inspect.getdoc(item).split("\n\n")[0].split()).replace("|", "/")
                body.append([f"`{name}`", f"`{module.__name__}`", re.sub("``([^`]+)``", r"`\1`", first)])
    return table(["name", "module", "what it is"], body)


def library_modules():
    """Modules of the library, room by room."""
    for room in ROOMS:
        for path in sorted((ROOT / "hwdesign" / room).glob("*.py")):
            if path.stem != "__init__":
                yield f"hwdesign.{room}.{path.stem}"


def lessons_modules():
    """Modules of what the notebooks draw and ask."""
    lessons = ROOT / "hwdesign" / "lessons"
    yield from ("hwdesign.lessons.figures", "hwdesign.lessons.exercises")
    for folder in (lessons, lessons / "studies"):
        for path in sorted(folder.glob("*.py")):
            if path.stem != "__init__":
                yield ".".join(path.relative_to(ROOT).with_suffix("").parts)


def bare_signature(item):
    """Parameters and defaults without types, which the docstring gives."""
    found = inspect.signature(item)
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in found.parameters.values()]
    return str(found.replace(parameters=plain, return_annotation=inspect.Signature.empty))


def api_page():
    """The API reference: every public name by module, from its docstring."""
    homes = {}
    for name, home in hwdesign._HOME.items():
        homes.setdefault(home, []).append(name)
    parts = [
        "# API reference",
        "<!-- written by scripts/generate_pages.py from the docstrings; do not edit -->",
        "The names of the first part are imported from `hwdesign`. Dimensions accept a number, a list or an array and broadcast; a scalar gives a scalar. Quantities are in "
        "SI base units: second, byte, FLOP. Constants (`GB300`, `NVFP4`, ...) are listed in the {doc}`hardware`.",
    ]
    others = [
        "## The rest, by module",
        "What the chapters and the checker use besides; import these names from their module.",
        names_table(library_modules(), known=hwdesign._HOME),
        "## lessons",
        "What the notebooks draw and ask; most of it needs the extra `book`.",
        names_table(lessons_modules()),
    ]
    for home, names in homes.items():
        module = importlib.import_module(f"hwdesign.{home}")
        parts += [f"## {home}", docstring(module.__doc__)]
        for name in names:
            item = getattr(module, name)
            if not (inspect.isfunction(item) or inspect.isclass(item)):
                continue
            signature = bare_signature(item)
            parts += [f"### {name}", f"```python\n{name}{signature}\n```", docstring(item.__doc__)]
    return "\n\n".join(parts + others) + "\n"


def pictures(out):
    """Figures of pages without code: the opening figure and the ridges."""
    from hwdesign.lessons import figures
    from hwdesign.lessons.show import save_svg

    (out / "gallery").mkdir(exist_ok=True)
    for name in (given["name"] for given in listed()):
        (out / "gallery" / f"{name}.svg").write_text(strip(config.load(name)), encoding="utf-8")
    save_svg(figures.opening(), out / "opening.svg")
    for module in DRAWN.values():
        save_all(module.pictures(), out)
    save_svg(figures.ridges([device(d) for d in device_names()]), out / "ridges.svg")


def save_all(figures, out):
    """Write figures, {file name: axes}."""
    from hwdesign.lessons.show import save_svg

    for name, ax in figures.items():
        save_svg(ax, out / name)


PAGES = {
    "hardware": hardware_page,
    "api": api_page,
    "accuracy": lambda: accuracy.accuracy_page(table),
    "exam": lambda: exam.exam_page(table),
    "your_machine": lambda: machine.machine_page(table),
    "gallery": lambda: gallery_page(table),
    "blocks": lambda: blocks_page(table),
    "designing": lambda: design_page.design_page(table),
}
DRAWN = {"accuracy": accuracy, "exam": exam, "your_machine": machine, "designing": design_page}  # pages whose figures can be made alone


def main(out, only=()):
    out.mkdir(parents=True, exist_ok=True)
    for name in only or PAGES:
        (out / f"{name}.md").write_text(PAGES[name](), encoding="utf-8")
        if only and name in DRAWN:
            save_all(DRAWN[name].pictures(), out)
    if not only:
        pictures(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "book", help="folder to write to")
    parser.add_argument("--only", nargs="+", choices=PAGES, help="write these pages alone")
    arguments = parser.parse_args()
    folder = arguments.out
    main(folder, arguments.only)
    if folder == ROOT / "book" and not arguments.only:
        SCHEMA.write_text(json.dumps(schema(), indent=1) + "\n", encoding="utf-8")
