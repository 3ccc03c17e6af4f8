"""Figures of chapter 2 that show times: published cliffs and staircases, and N in fine steps on the
reader's machine.
"""

import itertools

import numpy as np

from hwdesign.lessons import style

STYLES = (
    (style.ORANGE, "-", "o"),
    (style.BLUE, "-", "s"),
    (style.GREEN, "--", "^"),
    (style.PURPLE, "--", "D"),
)


@style.styled
def cliffs(m, series, *, multiple=128, ax=None):
    """What one more row costs: median growth of time from m to m + 1, marked where m is a multiple
    of a tile.

    Parameters
    ----------
    m : array_like of int, shape (s,)
        Rows [element], increasing.
    series : mapping of str to array_like, shape (s,)
        Label to t(m + 1) / t(m) - 1 [dimensionless].
    multiple : int
        Multiples of it get a filled mark [element].
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: m [element] (log), y: growth of time [%].

    Examples
    --------
    >>> cliffs([96, 128], {"sglang": [0.0, 0.3]}).get_ylabel()
    'time of one more row [%]'
    """
    ax = ax or style.axes(height=4.0)
    m = np.asarray(m)
    on = m % multiple == 0
    for (label, growth), (color, _, marker) in zip(series.items(), itertools.cycle(STYLES)):
        percent = 100 * np.asarray(growth)
        ax.plot(m[on], percent[on], marker, color=color, label=label)
        ax.plot(m[~on], percent[~on], marker, color=color, mfc="white", ms=4.5)
    ax.set_xscale("log")
    style.plain_ticks(ax.xaxis, [16, 32, 64, 128, 256, 512, 1024, 2048, 4096])
    ax.set_xlabel("rows m before the step [element]")
    ax.set_ylabel("time of one more row [%]")
    ax.legend(fontsize=9)
    return ax


@style.styled
def staircase(m, seconds, fit, n, *, line=None, ax=None):
    """Published times against the rows, with the staircase and the straight line that fit them.

    Parameters
    ----------
    m : array_like of int, shape (s,)
        Rows [element], increasing.
    seconds : array_like of float, shape (s,)
        Times [s].
    fit : Staircase
        From `fit_staircase`, with a tile.
    n : int
        Columns [element].
    line : Staircase, optional
        The fit without waves.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: M [element], y: time [µs].

    Examples
    --------
    >>> from hwdesign.lessons.studies.staircase import Staircase
    >>> fit = Staircase(fixed=1e-5, per_row=0.0, per_wave=1e-5, tile=(128, 256), sms=152, error=0.0)
    >>> staircase([128, 256], [2e-5, 2e-5], fit, 4096).get_ylabel()
    'time [µs]'
    """
    ax = ax or style.axes(height=4.0)
    m = np.asarray(m)
    fine = np.arange(m[0], m[-1] + 1)
    ax.plot(
        fine,
        1e6 * fit.seconds(fine, n),
        color=style.INK,
        lw=1.4,
        label="model: fixed + rows + waves",
    )
    if line:
        ax.plot(
            fine,
            1e6 * line.seconds(fine, n),
            color=style.GREY,
            ls="--",
            lw=1.2,
            label="model without waves",
        )
    seconds, more = 1e6 * np.asarray(seconds), m % 2 == 1
    ax.plot(m[~more], seconds[~more], "x", color=style.BLUE, mew=1.6, label="published")
    if more.any():
        ax.plot(
            m[more],
            seconds[more],
            "o",
            color=style.ORANGE,
            mfc="none",
            ms=8,
            label="published, one row more",
        )
    style.plain_ticks(ax.xaxis, [x for x in m if x % 512 == 0])
    ax.set_ylim(bottom=0)
    ax.set_xlabel("M [element]")
    ax.set_ylabel("time [µs]")
    ax.legend(fontsize=9, loc="lower right")
    return ax


@style.styled
def processor_count(sms, errors, *, catalogue=None, ax=None):
    """Error of the staircase against the number of processors that it assumes: the silicon tells
    how many there are.

    Parameters
    ----------
    sms : array_like of int, shape (s,)
        Assumed processors [SM].
    errors : mapping of str to array_like, shape (s,)
        Device to mean error [dimensionless].
    catalogue : mapping of str to int, optional
        Device to the number in the catalogue [SM], drawn as a dotted line.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: processors [SM], y: error [%].

    Examples
    --------
    >>> processor_count([147, 148], {"B200": [0.02, 0.01]}).get_ylabel()
    'error of the staircase [%]'
    """
    ax = ax or style.axes(height=3.3)
    for (device, error), (color, _, marker) in zip(errors.items(), itertools.cycle(STYLES)):
        ax.plot(
            sms, 100 * np.asarray(error), marker=marker, ms=3, lw=1.2, color=color, label=device
        )
        if catalogue:
            ax.axvline(catalogue[device], color=color, ls=":", lw=1.3)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("assumed number of processors [SM]")
    ax.set_ylabel("error of the staircase [%]")
    ax.legend(fontsize=9)
    return ax


@style.styled
def odd_blocks(shares, *, ax=None):
    """What an odd multiple of 256 rows costs beside a multiple of 512, one mark a slice of the
    published times.

    Parameters
    ----------
    shares : mapping of (str, str) to float
        (Device and format, framework) to the extra time as a share of that of 256 rows
        [dimensionless].
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: extra time [share of 256 rows], y: device and format.

    Examples
    --------
    >>> odd_blocks({("GB300 BF16", "sglang"): 0.1}).get_xlabel()
    'extra time at odd multiples [share of 256 rows]'
    """
    names = list(dict.fromkeys(name for name, _ in shares))
    ax = ax or style.axes(height=1.2 + 0.27 * len(names))
    for shift, (framework, (color, label)) in zip(
        (-0.18, 0, 0.18), style.FRAMEWORK.items(), strict=True
    ):
        at = [
            (share, names.index(name) + shift)
            for (name, engine), share in shares.items()
            if engine == framework
        ]
        if at:
            ax.plot(*zip(*at, strict=True), "x", color=color, mew=1.8, label=label)
    ax.axvline(0, color=style.INK, lw=1)
    ax.set_xlim(-0.55, 1.05)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_yticks(range(len(names)), names)
    ax.set_xlabel("extra time at odd multiples [share of 256 rows]")
    ax.legend(fontsize=9, loc="upper right")
    return ax


@style.styled
def own_steps(sweeps, *, blocks, ax=None):
    """N in fine steps on one machine: rate of each format as a share of its best, marked at the
    multiples of its block.

    Parameters
    ----------
    sweeps : mapping of str to (array_like of int, array_like of float), shape (s,) each
        Format to N [element] and rate [FLOP/s].
    blocks : mapping of str to int
        Format to the block whose multiples are marked [element]; formats may be left out.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: N [element], y: rate as a share of the best.

    Examples
    --------
    >>> own_steps({"fp32": ([16, 20], [2.0, 1.0])}, blocks={"fp32": 16}).get_xlabel()
    'N [element]'
    """
    ax = ax or style.axes(height=3.7)
    for (name, (n, rate)), (color, _, marker) in zip(sweeps.items(), itertools.cycle(STYLES)):
        n, share = np.asarray(n), np.asarray(rate) / np.nanmax(rate)
        ax.plot(n, share, "x", color=color, mew=1.4, label=name.upper())
        if name in blocks:
            on = n % blocks[name] == 0
            ax.plot(
                n[on],
                share[on],
                marker,
                color=color,
                mfc="none",
                ms=9,
                label=f"multiples of {blocks[name]}",
            )
        ax.plot(n, share, color=color, lw=0.6, alpha=0.6)
    style.plain_ticks(ax.xaxis, n[:: max(1, len(n) // 8)])
    ax.set_ylim(0, 1.08)
    ax.set_xlabel("N [element]")
    ax.set_ylabel("rate [share of the best]")
    ax.legend(fontsize=9, loc="lower right", ncols=2)
    return ax
