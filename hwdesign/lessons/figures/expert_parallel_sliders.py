"""Sliders of chapter 5: how many GPUs share the experts, how popular the popular ones are, how many
copies there are.
"""

import numpy as np

from hwdesign.formulas.routing import (
    balanced_placement,
    device_loads,
    even_placement,
    imbalance,
    routed_tokens,
)
from hwdesign.lessons import style
from hwdesign.lessons.explore import Explorer, Frame
from hwdesign.lessons.figures.wide_deep import TERMS
from hwdesign.models.config import load
from hwdesign.models.steps import Plan
from hwdesign.timing.estimate import decode_step

WIDTHS = (4, 8, 16, 32, 64)
EXPONENTS = (0.0, 0.25, 0.5, 0.67, 0.85, 1.0)
SPARE = (None, 0, 32, 64, 96)
TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def _stacked(spent, tokens, top):
    """The terms of a step [ms] against the sequences of a GPU, one on the other; returns the
    axes.
    """
    terms = [term for term in TERMS if np.any(spent.terms[term])]
    times = [1e3 * np.asarray(spent.terms[term]) for term in terms]
    ax = style.axes(height=4.2)
    ax.stackplot(tokens, *times, colors=[TERMS[term] for term in terms], labels=terms)
    ax.set_xscale("log")
    style.plain_ticks(ax.xaxis, tokens)
    ax.set_ylim(0, top)
    ax.set_xlabel("sequences of each GPU")
    ax.set_ylabel("time of a step [ms]")
    ax.legend(fontsize=9, loc="upper left", ncols=2)
    return ax


def explore_width(device="GB300", recipe="nvfp4", *, widths=WIDTHS, tokens=TOKENS, context=4096):
    """Slider over the width of expert parallelism: what a decode step of DeepSeek-R1 spends its
    time on, against the tokens.

    Parameters
    ----------
    device, recipe : str
        Accelerator and formats.
    widths : sequence of int
        GPUs that share the experts; attention is data parallel over as many.
    tokens : sequence of int
        Sequences of each GPU.
    context : int
        Tokens of a sequence [token].

    Returns
    -------
    Explorer
        Frame data: ep, tokens, seconds [s].

    Notes
    -----
    Source: `hwdesign.timing.estimate`.

    Examples
    --------
    >>> explore_width(widths=(8, 16))
    <Explorer width: GPUs that share the experts over 8 to 16>
    """
    model, tokens = load("deepseek-r1"), np.asarray(tokens)

    def step(ep):
        return decode_step(
            model,
            device,
            recipe,
            batch=tokens * ep,
            context=context,
            attention=Plan(dp=ep),
            ffn=Plan(ep=ep),
        )

    top = 1.05e3 * max(np.max(step(ep).seconds) for ep in (widths[0], widths[-1]))

    @style.styled
    def draw(i):
        b = step(widths[i])
        ax = _stacked(b, tokens, top)
        at = [int(np.flatnonzero(tokens == t)[0]) for t in (32, 256) if t in tokens] or [
            len(tokens) - 1
        ]
        said = "; ".join(
            f"{tokens[j]} sequences {b.seconds[j] * 1e3:.1f} ms, experts "
            f"{b.share('experts')[j]:.0%}, "
            f"communication {b.share('communication')[j]:.0%}"
            for j in at
        )
        text = f"{widths[i]} GPUs: {said}."
        data = {
            "ep": int(widths[i]),
            "tokens": tokens.tolist(),
            "seconds": np.asarray(b.seconds).tolist(),
        }
        return Frame(
            ax=ax,
            alt=f"Time of a step [ms] against the sequences of each GPU, logarithmic. {text}",
            text=text,
            data=data,
        )

    caption = (
        f"A decode step of DeepSeek-R1 on {device} in {recipe.upper()}, {context} tokens "
        "of context: its terms, one on the other."
    )
    return Explorer(
        "width",
        "GPUs that share the experts",
        list(map(str, widths)),
        draw,
        caption=caption,
        kinds=["modelled"],
    )


def _load_bars(counts, placement, top):
    """Bars of the loads of the devices, sorted, and their imbalance [dimensionless]."""
    loads = np.sort(device_loads(counts, placement))[::-1]
    ax = style.axes(height=3.5)
    ax.bar(np.arange(1, loads.size + 1), loads / loads.mean(), color=style.BLUE, width=0.8)
    ax.axhline(1, color=style.INK, ls="--", lw=1.2)
    ax.set_ylim(0, top)
    ax.set_xlabel("GPUs, fullest first")
    ax.set_ylabel("load [mean = 1]")
    return ax, float(imbalance(loads)), float(loads[-1] / loads.mean())


def explore_skew(exponents=EXPONENTS, *, ep=32, tokens=4096, top_k=8, experts=256):
    """Slider over the exponent of the experts' popularity: the load of each GPU.

    Parameters
    ----------
    exponents : sequence of float
        Of `zipf_shares` [dimensionless].
    ep : int
        GPUs that share the experts.
    tokens : int
        Tokens of the group [token].
    top_k, experts : int
        Experts a token uses, and experts there are.

    Returns
    -------
    Explorer
        Frame data: exponent, imbalance of the GPUs and of the experts [dimensionless].

    Notes
    -----
    Source: `hwdesign.formulas.routing`.

    Examples
    --------
    >>> explore_skew((0, 1), tokens=64)
    <Explorer skew: exponent of the popularity over 0 to 1>
    """
    placement = even_placement(experts, ep, seed=2)

    @style.styled
    def draw(i):
        counts = routed_tokens(tokens, top_k, experts, exponent=exponents[i], seed=5)[0]
        ax, ratio, least = _load_bars(counts, placement, 5)
        each = float(imbalance(counts))
        text = (
            f"Exponent {exponents[i]:g}: the fullest GPU has {ratio:.2f} times the mean, the "
            f"emptiest {least:.2f}; the most "
            f"popular expert has {each:.1f} times the mean expert."
        )
        data = {"exponent": float(exponents[i]), "imbalance": ratio, "experts": each}
        return Frame(
            ax=ax, alt=f"Load [mean = 1] of {ep} GPUs, fullest first. {text}", text=text, data=data
        )

    caption = (
        f"{tokens} tokens, each with {top_k} of {experts} experts that lie at random on {ep} GPUs."
    )
    values = [f"{x:g}" for x in exponents]
    return Explorer(
        "skew", "exponent of the popularity", values, draw, caption=caption, kinds=["modelled"]
    )


def explore_copies(spare=SPARE, *, exponent=0.67, ep=32, tokens=4096, top_k=8, experts=256):
    """Slider over the spare slots of the balancer: the load of each GPU.

    Parameters
    ----------
    spare : sequence of int or None
        Slots beyond one an expert, multiples of `ep`; None for experts that lie at random.
    exponent : float
        Of `zipf_shares` [dimensionless].
    ep : int
        GPUs that share the experts.
    tokens : int
        Tokens of the group [token].
    top_k, experts : int
        Experts a token uses, and experts there are.

    Returns
    -------
    Explorer
        Frame data: slots, imbalance of the GPUs [dimensionless], most copies of an expert.

    Notes
    -----
    Source: `hwdesign.formulas.routing`.

    Examples
    --------
    >>> explore_copies((None, 32), tokens=64)
    <Explorer copies: spare slots over no balancer to 32>
    """
    counts = routed_tokens(tokens, top_k, experts, exponent=exponent, seed=5)[0]
    expected = routed_tokens(tokens, top_k, experts, exponent=exponent, draws=4, seed=6).sum(axis=0)

    @style.styled
    def draw(i):
        extra = spare[i]
        if extra is None:
            placement, kind = even_placement(experts, ep, seed=2), "Experts at random"
        else:
            placement = balanced_placement(expected, ep, slots=experts + extra)
            kind = f"{extra} spare slots, {placement.shape[1]} on each GPU"
        ax, ratio, least = _load_bars(counts, placement, 3)
        most = int(np.bincount(placement.ravel()).max())
        text = (
            f"{kind}: the fullest GPU has {ratio:.2f} times the mean, the emptiest "
            f"{least:.2f}; an expert has at most "
        )
        text += f"{most} copies." if most > 1 else "one copy."
        data = {"slots": placement.size, "imbalance": ratio, "copies": most}
        return Frame(
            ax=ax, alt=f"Load [mean = 1] of {ep} GPUs, fullest first. {text}", text=text, data=data
        )

    caption = (
        f"{tokens} tokens, {top_k} of {experts} experts each, {ep} GPUs; popularity falls with "
        "the rank to the power of "
        f"{exponent:g}. The balancer has seen other tokens."
    )
    values = ["no balancer" if x is None else str(x) for x in spare]
    return Explorer("copies", "spare slots", values, draw, caption=caption, kinds=["modelled"])
