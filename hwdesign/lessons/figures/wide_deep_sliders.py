"""Sliders of chapter 3: siblings from deep to wide, and the tokens at which depth costs most."""

import itertools

import numpy as np

from hwdesign.catalogue.device import device as as_device
from hwdesign.catalogue.precision import precision as as_precision
from hwdesign.lessons import style
from hwdesign.lessons.explore import Explorer, Frame
from hwdesign.lessons.figures.wide_deep import stacked_terms
from hwdesign.lessons.studies.depth import LAYERS, layer_gemm_seconds, siblings
from hwdesign.timing.estimate import decode_step
from hwdesign.timing.silicon import gemm_grid
from hwdesign.units import fmt

BATCHES = (1, 16, 64, 256, 1024, 4096)
PLAIN = (
    (512, 2048),
    (1024, 512),
    (2048, 128),
    (4096, 32),
)  # H, L of 12 L H^2 = 6.4 billion weights
TOKENS = (1, 16, 64, 256, 512, 1024, 2048, 4096, 8192)


def explore_layers(device="GB300", recipe="nvfp4", *, context=256, layers=LAYERS, batches=BATCHES):
    """Slider over the batch: a step of the siblings, stacked by what it is spent on.

    Parameters
    ----------
    device, recipe : str
        Accelerator and formats.
    context : int
        Tokens a new token sees [token].
    layers : sequence of int
        Numbers of layers of the siblings.
    batches : sequence of int
        Sequences in flight.

    Returns
    -------
    Explorer
        Frame data: batch, time of each sibling [s] by layers.

    Raises
    ------
    ValueError
        If a name is unknown.

    Notes
    -----
    Source: `hwdesign.timing.estimate`.

    Examples
    --------
    >>> explore_layers(layers=(8, 32), batches=(1, 64))
    <Explorer siblings: sequences in flight over 1 to 64>
    """
    models = siblings(layers=sorted(layers, reverse=True))
    setting = {"batch": np.array(batches), "context": context}
    real = {
        n: [decode_step(m, device, recipe, batch=b, context=context) for b in batches]
        for n, m in models.items()
    }
    bound = {
        n: decode_step(m, device, recipe, **setting, ideal=True).seconds for n, m in models.items()
    }

    @style.styled
    def draw(i):
        steps = [real[n][i] for n in models]
        labels = [f"{n} x\n{m.hidden_size}" for n, m in models.items()]
        ax = stacked_terms(labels, steps, ideal=[bound[n][i] for n in models])
        ax.set_xlabel("layers x hidden size")
        first, last = list(models)[0], list(models)[-1]
        seconds = {n: float(step.seconds) for n, step in zip(models, steps, strict=True)}
        shares = [float(step.share("attention")) for step in steps]
        text = (
            f"{batches[i]} sequence{'s' if batches[i] > 1 else ''}: {fmt(seconds[first], 's')} "
            f"with {first} layers, "
            f"{fmt(seconds[last], 's')} with {last}, a factor of "
            f"{seconds[first] / seconds[last]:.1f}. "
            f"Attention takes {shares[0]:.0%} of the deepest and {shares[-1]:.0%} of the widest."
        )
        alt = (
            f"Time of a step [ms], stacked by term, for {len(models)} siblings by layers and "
            f"hidden size. {text}"
        )
        return Frame(
            ax=ax,
            alt=alt,
            text=text,
            data={"batch": int(batches[i]), "seconds": {str(n): t for n, t in seconds.items()}},
        )

    what = f"{as_device(device).name} in {as_precision(recipe).label}"
    caption = (
        f"A decode step of siblings of Llama-3.1-8B on one {what}, {context} tokens of "
        "context. Black marks: the plain bound."
    )
    return Explorer(
        "siblings",
        "sequences in flight",
        list(map(str, batches)),
        draw,
        caption=caption,
        kinds=["modelled"],
    )


def _siblings(seconds, top):
    """Times of siblings relative to the widest, one line a name; returns the axes."""
    ax = style.axes(height=3.9)
    colors = itertools.cycle((style.ORANGE, style.GREEN, style.INK, style.PURPLE))
    for (name, times), color in zip(seconds.items(), colors, strict=False):
        ax.plot(
            range(len(PLAIN)), times / times[-1], "x-", lw=0.8, mew=1.8, color=color, label=name
        )
    ax.axhline(1, color=style.INK, ls="--", lw=1)
    ax.set_xticks(range(len(PLAIN)), [f"{n} x\n{h}" for h, n in PLAIN])
    ax.set_yscale("log")
    style.plain_ticks(ax.yaxis, (1, 2, 5, 10, 20))
    ax.set_ylim(0.8, top)
    ax.set_xlabel("layers x hidden size")
    ax.set_ylabel("time [widest = 1]")
    ax.legend(fontsize=9)
    return ax


def explore_depth(
    slices=(
        ("GB300", "nvfp4", "trtllm"),
        ("GB300", "bf16", "sglang"),
        ("H100_SXM", "bf16", "sglang"),
    ),
    *,
    tokens=TOKENS,
):
    """Slider over the tokens: published time of all layers of plain siblings, relative to the
    widest.

    Parameters
    ----------
    slices : sequence of (str, str, str)
        Device, format and framework.
    tokens : sequence of int
        M [element], on the measured grids.

    Returns
    -------
    Explorer
        Frame data: m [element], time of each sibling [s] by slice.

    Raises
    ------
    ValueError
        If a shape or a slice was not measured.

    Notes
    -----
    Source: `hwdesign.timing.silicon`.

    Examples
    --------
    >>> explore_depth(tokens=(1, 8192))
    <Explorer depth: tokens M [element] over M = 1 to M = 8192>
    """
    grids = {key: gemm_grid(*key) for key in slices}
    names = {
        key: f"{key[0].removesuffix('_SXM')} {as_precision(key[1]).label}, "
        f"{style.FRAMEWORK[key[2]][1]}"
        for key in slices
    }
    seconds = {
        key: np.array([[n * layer_gemm_seconds(grid, m, h) for h, n in PLAIN] for m in tokens])
        for key, grid in grids.items()
    }
    top = 1.08 * max(float((t / t[:, -1:]).max()) for t in seconds.values())

    @style.styled
    def draw(i):
        ax = _siblings({names[key]: seconds[key][i] for key in slices}, top)
        told = "; ".join(
            f"{names[key]} {seconds[key][i][2] / seconds[key][i][3]:.2f}" for key in slices
        )
        text = (
            f"M = {tokens[i]}: {PLAIN[2][1]} layers of {PLAIN[2][0]} against {PLAIN[3][1]} "
            f"of {PLAIN[3][0]}: {told}."
        )
        alt = (
            f"Time of all layers [widest = 1] of siblings with {PLAIN[0][1]} to "
            f"{PLAIN[3][1]} layers. {text}"
        )
        data = {
            "m": int(tokens[i]),
            "seconds": {names[key]: seconds[key][i].tolist() for key in slices},
        }
        return Frame(ax=ax, alt=alt, text=text, data=data)

    caption = (
        "Published times of the four GEMMs of every layer, 12 L H² = 6.4 billion "
        "weights, relative to 32 layers of 4096."
    )
    values = [f"M = {m}" for m in tokens]
    return Explorer(
        "depth", "tokens M [element]", values, draw, caption=caption, kinds=["published"]
    )
