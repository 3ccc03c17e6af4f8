"""The slider of chapter 0: along the front."""

import numpy as np

from hwdesign.lessons import style
from hwdesign.lessons.explore import Explorer, Frame
from hwdesign.lessons.figures.landscape import fronts, share_bars
from hwdesign.timing.search import candidate_text


@style.styled
def _both(front, at, breakdown):
    """A front with one point marked, and the shares of that point's step below."""
    first = style.axes(height=5.4)
    figure = first.figure
    first.remove()
    above, below = figure.subplots(2, 1, height_ratios=(4, 1))
    fronts({"front": front}, ax=above)
    above.plot(*at, "o", color=style.INK, ms=9)
    above.get_legend().remove()
    share_bars([""], [breakdown], ax=below)
    return above


def explore_front(candidates, front, breakdowns):
    """Slider over the batch that walks along a front, from the fastest answers to the fullest GPUs.

    Parameters
    ----------
    candidates : dict
        From `hwdesign.timing.search.decode_candidates`.
    front : array_like of int
        Indices of its Pareto front, by falling user rate; up to 6 positions are taken, evenly.
    breakdowns : mapping of int to Breakdown
        Index to the step of each point of the front.

    Returns
    -------
    Explorer
        Frame data: user_rate and gpu_rate [token/s], batch, gpus and shares of the step
        [dimensionless].

    Notes
    -----
    Source: `hwdesign.timing.search`.

    Examples
    --------
    >>> from hwdesign.models import config
    >>> from hwdesign.timing.estimate import decode_step
    >>> from hwdesign.formulas.frontier import pareto_front
    >>> from hwdesign.timing.search import decode_candidates
    >>> m = config.load("llama-3.1-8b")
    >>> c = decode_candidates(
    ...     m, "H100_SXM", "fp8", gpus=1, batch=[1, 8], input_tokens=1000, output_tokens=100
    ... )
    >>> steps = {
    ...     i: decode_step(m, "H100_SXM", "fp8", batch=c["batch"][i], context=1050) for i in (0, 1)
    ... }
    >>> explore_front(c, pareto_front(c["user_rate"], c["gpu_rate"]), steps)
    <Explorer front: sequences in flight over 1 on 1 GPU to 8 on 1 GPU>
    """
    front = np.asarray(front)
    rates = candidates["user_rate"][front], candidates["gpu_rate"][front]
    chosen = front[
        np.unique(np.linspace(0, len(front) - 1, min(6, len(front))).round().astype(int))
    ]

    def draw(i):
        at, step = chosen[i], breakdowns[int(chosen[i])]
        user, gpu = (float(candidates[rate][at]) for rate in ("user_rate", "gpu_rate"))
        shares = {term: float(step.share(term)) for term in step.terms}
        largest = max(shares, key=shares.get)
        text = (
            f"{candidate_text(candidates, at)}. A user sees {user:.3g} tokens/s, a GPU "
            f"makes {gpu:.3g}."
        )
        alt = (
            f"The front with one point marked. {text} Largest part of a step: {largest}, "
            f"{shares[largest]:.0%}."
        )
        data = {
            "user_rate": user,
            "gpu_rate": gpu,
            "batch": float(candidates["batch"][at]),
            "gpus": int(candidates["gpus"][at]),
        }
        return Frame(ax=_both(rates, (user, gpu), step), alt=alt, text=text, data=data | shares)

    count = [(f"{candidates['batch'][at]:.0f}", int(candidates["gpus"][at])) for at in chosen]
    values = [f"{batch} on {gpus} GPU{'s' * (gpus > 1)}" for batch, gpus in count]
    caption = (
        "Above: the front, the dot is one candidate of it. Below: where the time of its step goes."
    )
    return Explorer(
        "front", "sequences in flight", values, draw, caption=caption, kinds=["modelled"]
    )
