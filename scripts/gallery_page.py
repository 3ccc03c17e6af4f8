"""The gallery of models: one row and one small picture a model, for `generate_pages.py`."""

from collections import Counter

from hwdesign.models import config

PART_COLORS = {
    "embedding": "#9aa5b1",
    "attention": "#0b5fa5",
    "mamba": "#7a4fa3",
    "ffn": "#1b7f5c",
    "experts": "#b34a06",
    "shared experts": "#e0a36f",
    "router": "#1f2933",
    "norm": "#5a6572",
    "head": "#c9d1d9",
}
OTHER = "#c2185b"  # a part that has no colour of its own yet
INTRODUCTION = """# Gallery of models

<!-- written by scripts/generate_pages.py from the configs in hwdesign/models/configs; do not edit -->

Every model below is read from its `config.json`, which ships with the package, and counted exactly. The total is an integer; published figures are often rounded
or follow another convention. `hwdesign show NAME` prints the sheet of one model, `hwdesign show path/to/config.json` that of yours.
<span class="hw-label hw-modelled">modelled</span>

## Where the parameters sit"""
COUNTED = """## What is counted

- Blocks (`num_hidden_layers`), embeddings, head, norms, biases, attention sinks, routers and router corrections.
- Not the layers that predict more than the next token, nor vision and audio towers. Left out so: {left_out}. A report of `hwdesign check` says what it leaves out.
- *Active* parameters are those one token uses. DeepSeek and Qwen count the input embedding, gpt-oss does not; both are given. A tied embedding works as
  the head and always counts.
- Rows of the vocabulary that only pad it are counted, as the config has them.

## Blocks"""


def strip(model, width=240, height=18):
    """A small picture of where a model's parameters sit: one stacked bar, as SVG."""
    left, bars = 0.0, []
    for part, n in model.parameters_by_part().items():
        wide = width * n / model.parameters
        bars.append(f'<rect x="{left:.2f}" width="{wide:.2f}" height="{height}" fill="{PART_COLORS.get(part, OTHER)}"/>')
        left += wide
    size = f'width="{width}" height="{height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width} {height}"><rect {size} fill="#ffffff"/>{"".join(bars)}</svg>\n'


def row(model):
    """Cells of one model: name, picture with its alt text, exact total, active parameters both ways, cache."""
    shares = {part: n / model.parameters for part, n in model.parameters_by_part().items()}
    top = ", ".join(f"{part} {shares[part]:.1%}" for part in sorted(shares, key=shares.get, reverse=True)[:3])
    picture = f"![Parameters of {model.name} by part: {top}](gallery/{model.name}.svg)"
    active = [f"{model.active_parameters(include_embedding=both) / 1e9:.2f}" for both in (True, False)]
    return [model.name, picture, f"{model.parameters:,}", *active, f"{model.kv_bytes_per_token():,.0f}"]


def gallery_page(table):
    """The page as Markdown; `table` makes a table of a header and rows."""
    models = [config.load(name) for name in config.names()]
    square = '<span style="display:inline-block;width:0.9em;height:0.9em;border:1px solid #8a949e;background:{}"></span> {}'
    key = "Colours: " + ", ".join(square.format(color, part) for part, color in PART_COLORS.items()) + "."
    factors = {m.name: m.parameters / m.active_parameters(include_embedding=True) for m in models}
    sparsest = max(factors, key=factors.get)
    small = min(models, key=lambda m: m.parameters)
    told = (
        "**Read the pictures.** In a mixture of experts nearly all parameters are experts, of which a token uses a few: the total is up to "
        f"{factors[sparsest]:.0f} times the active parameters ({sparsest}). In small models the embedding takes a large part: "
        f"{small.parameters_by_part()['embedding'] / small.parameters:.0%} of {small.name}. The cache in the last column is in BF16, all layers counted, "
        "before any window is full."
    )
    head = ["model", "parameters by part", "parameters", "active [billion]", "without input embedding", "KV cache [byte/token]"]
    kinds = [[m.name, ", ".join(f"{n} x {kind}" for kind, n in Counter(b.kind for b in m.blocks).items())] for m in models]
    left_out = "; ".join(f"{', '.join(m.left_out)} of {m.name}" for m in models if m.left_out)
    parts = [INTRODUCTION, table(head, map(row, models)), key, told, COUNTED.format(left_out=left_out), table(["model", "blocks"], kinds)]
    return "\n\n".join(parts) + "\n"
