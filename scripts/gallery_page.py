"""The gallery of models: one row and one small picture a model, for `generate_pages.py`.

gallery.csv lists the models: `providers` of 149 offer one of the `family` (models.dev, July 2026; families told apart by
their names, so approximate); models under `same` have the same counts of the text part.
"""

import csv
import re
from collections import Counter
from pathlib import Path

from hwdesign.models import config

# Every colour keeps 3:1 on white and on the dark ground of the site.
COLORS = {
    "embedding": "#8a94a0",
    "attention": "#0072b2",
    "linear attention": "#1f9db5",
    "Mamba": "#9a5fc0",
    "feed-forward": "#009e73",
    "experts": "#d55e00",
    "shared experts": "#b98200",
    "head": "#66717d",
    "the rest": "#c4699b",
}
SHOWN_AS = {
    "mamba": "Mamba",
    "ffn": "feed-forward",
    **dict.fromkeys(("router", "norm", "residual"), "the rest"),
}
MIXERS = ("attention", "linear attention", "Mamba")
NONE = "–"
INTRODUCTION = """# Gallery of models

<!-- written by scripts/generate_pages.py from scripts/gallery.csv and the configs in hwdesign/models/configs; do not edit -->

The {count} models that people ask for most, each read from its `config.json`, which ships with the package, and counted
exactly. The total is an integer; published figures are often rounded or follow another convention. `hwdesign show NAME`
prints the sheet of one model, `hwdesign show path/to/config.json` that of yours.
<span class="hw-label hw-modelled">modelled</span>

## Where the parameters sit

Under each name the upper bar shows what all parameters are, the lower what those of one token are: {key} (routers, norms,
residual streams).

The order is that of how many of 149 providers offer a model of the family in July 2026 ([models.dev](https://models.dev);
families told apart by their names, so approximate)."""
COUNTED = """## What is counted

- Blocks (`num_hidden_layers`), embeddings, head, norms, biases, attention sinks, routers and router corrections, indexers,
  the weights of residual streams.
- Not the layers that predict more than the next token, nor vision and audio towers. Prediction layers that a config
  names, with their parameters where its keys tell them: {prediction}. Vision towers: {towers}. A report of
  `hwdesign check` says what it leaves out.
- *Active* parameters are those one token uses. DeepSeek and Qwen count the input embedding, gpt-oss does not; both are
  given, the second in the last table. A tied embedding works as the head and always counts.
- Rows of the vocabulary that only pad it are counted, as the config has them.
- *KV cache* is what one more token takes in all layers in BF16, before any window is full and without the keys of an
  indexer, as `hwdesign show` has it. *Grows by* is what one more token adds to a long sequence: a layer whose window is
  full adds nothing, and the keys of an indexer count.
- *State* is what a sequence keeps at any length: matrices of linear attention or Mamba in FP32, convolutions in BF16.

## What each is made of"""


def listed():
    """Rows of gallery.csv, as dicts."""
    with Path(__file__).with_name("gallery.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def parts(model, *, active=False):
    """{part as the gallery names it: parameters}, in the order of COLORS, of all or of those one token uses; attention with a state stands apart."""
    found = Counter()
    for part, n in model.parameters_by_part(active=active).items():
        found[SHOWN_AS.get(part, part)] += n
    for block in model.blocks:
        if block.mixer and any(block.mixer.state_elements):
            linear = sum(w.stored * w.elements for w in block.mixer.weights(model.hidden_size) if w.part == "attention")
            found["attention"] -= linear
            found["linear attention"] += linear
    assert found.keys() <= COLORS.keys(), f"no colour for {found.keys() - COLORS.keys()} of {model.name}"
    return {part: found[part] for part in COLORS if found[part]}


def shares(model, *, active=False):
    """{part: its share of the parameters}, as `parts` has them."""
    found = parts(model, active=active)
    return {part: n / sum(found.values()) for part, n in found.items()}


def strip(model, width=240, height=12):
    """A small picture without a ground, as SVG: a stacked bar of where a model's parameters sit, and one of those a token uses."""
    bars = []
    for top, active in ((0, False), (height + 2, True)):
        left = 0.0
        for part, share in shares(model, active=active).items():
            bars.append(f'<rect x="{left:.2f}" y="{top}" width="{width * share:.2f}" height="{height}" fill="{COLORS[part]}"/>')
            left += width * share
    high = 2 * height + 2
    size = f'width="{width}" height="{high}" viewBox="0 0 {width} {high}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} preserveAspectRatio="none">{"".join(bars)}</svg>\n'


def largest(found, count):
    """The largest shares in words."""
    return ", ".join(f"{part} {found[part]:.1%}" for part in sorted(found, key=found.get, reverse=True)[:count])


def row(model, providers):
    """Cells of one model: name over its picture with alt text, exact total, caches, state, active parameters, providers."""
    alt = f"Parameters of {model.name}: {largest(shares(model), 3)}; of a token: {largest(shares(model, active=True), 3)}"
    name = f"{model.name} ![{alt}](gallery/{model.name}.svg)"
    caches = [model.kv_bytes_per_token(), model.growth_bytes_per_token(), model.state_bytes()]
    active = f"{model.active_parameters(include_embedding=True) / 1e9:.2f}"
    return [name, f"{model.parameters:,}", *(f"{size:,.0f}" if size else NONE for size in caches), active, providers or NONE]


def told(models):
    """What the table shows, in words."""
    factors = {m: m.parameters / m.active_parameters(include_embedding=True) for m in models}
    grows, states = {m: m.growth_bytes_per_token() for m in models}, [m for m in models if m.state_bytes()]
    sparsest, large = max(factors, key=factors.get), max(models, key=lambda m: shares(m)["embedding"])
    mixing = {m: sum(shares(m, active=True).get(part, 0) for part in MIXERS) for m in models if factors[m] > 2}
    few, much = min(mixing, key=mixing.get), max(mixing, key=mixing.get)
    least, most = sorted(grows, key=grows.get)[:3], max(grows, key=grows.get)
    near, heavy = max(models, key=lambda m: m.kv_bytes_per_token() / grows[m]), max(states, key=lambda m: m.state_bytes())
    return (
        "**Read the bars.** In a mixture of experts nearly all parameters are experts, of which a token uses a few: the total is up to "
        f"{factors[sparsest]:.0f} times the active parameters ({sparsest.name}). Of those that one token uses, attention, linear attention and Mamba "
        f"together are {mixing[few]:.0%} ({few.name}) to {mixing[much]:.0%} ({much.name}) in the {len(mixing)} mixtures. The embedding takes "
        f"at most {shares(large)['embedding']:.0%} of all parameters ({large.name}).\n\n"
        f"**Read the caches.** A long sequence grows least in {', '.join(f'{m.name} ({grows[m]:,.0f} byte a token)' for m in least)}, most in "
        f"{most.name} ({grows[most]:,.0f}, {grows[most] / grows[least[0]]:.0f} times as much). Windows make the largest difference in {near.name}: "
        f"{near.kv_bytes_per_token():,.0f} byte a token at first, {grows[near]:,.0f} once they are full. {len(states)} of the {len(models)} keep "
        f"a state instead of a cache in most layers that mix tokens; none has no cache at all. The largest state is that of {heavy.name}: "
        f"{heavy.state_bytes() / 1e6:,.0f} MB a sequence, as much as the cache of {heavy.state_bytes() / grows[heavy]:,.0f} of its tokens."
    )


def left_out(models):
    """What is not counted, as texts: models with prediction layers, with the parameters of these, and models with a vision tower."""
    said = [(model.name, text) for model in models for text in model.left_out]
    sizes = {name: re.search(r"[0-9,]{4,}", text) for name, text in said if "prediction layer" in text}
    towers = [name for name, text in said if text == "vision tower"]
    assert len(sizes) + len(towers) == len(said), said
    return {
        "prediction": ", ".join(f"{name} ({size[0]})" if size else name for name, size in sizes.items()),
        "towers": ", ".join(towers),
    }


def made_of(models, rows):
    """Rows about what each model is made of: maker, active parameters without the input embedding, kinds of blocks, the same elsewhere."""
    for model, given in zip(models, rows, strict=True):
        kinds = ", ".join(f"{n} x {kind}" for kind, n in Counter(block.kind for block in model.blocks).items())
        same = f"; same counts: {given['same'].replace(';', ',')}" if given["same"] else ""
        active = f"{model.active_parameters(include_embedding=False) / 1e9:.2f}"
        yield [f"{model.name} ({given['vendor']})", active, kinds + same]


def gallery_page(table):
    """The page as Markdown; `table` makes a table of a header and rows."""
    rows = listed()
    models = [config.load(given["name"]) for given in rows]
    assert all(any(block.mixer and block.mixer.cache_elements for block in model.blocks) for model in models)  # as `told` says
    square = '<span style="white-space:nowrap"><span style="display:inline-block;width:0.9em;height:0.9em;background:{}"></span> {}</span>'
    key = ", ".join(square.format(color, part) for part, color in COLORS.items())
    head = [
        "model",
        "parameters",
        "KV cache [byte/token]",
        "grows by [byte/token]",
        "state a sequence [byte]",
        "active [billion]",
        "providers",
    ]
    body = [row(model, given["providers"]) for model, given in zip(models, rows, strict=True)]
    wide = f"```{{table}}\n:class: hw-sortable hw-gallery\n\n{table(head, body, numbers=6)}\n```"
    made = table(["model", "active without input embedding [billion]", "blocks"], made_of(models, rows))
    made = f"```{{table}}\n:class: hw-made-of\n\n{made}\n```"
    others = ", ".join(name for name in config.names() if name not in {given["name"] for given in rows})
    also = f"The chapters use these besides, whose configs ship as well: {others}."
    intro = INTRODUCTION.format(count=len(models), key=key)
    return "\n\n".join([intro, wide, told(models), COUNTED.format(**left_out(models)), made, also]) + "\n"
