"""Sliders of chapter 2: the tiles of an output as N grows, and the map of efficiency by number of
processors.
"""

import numpy as np

from hwdesign.formulas.tiling import tile_efficiency, wave_efficiency, waves
from hwdesign.lessons.explore import Explorer, Frame
from hwdesign.lessons.figures.tile_alignment import efficiency_map, tile_map

PAINTED_N = (3840, 3841, 4096, 4097, 4352, 4353, 4864, 5120)
PROCESSORS = {"A100": 108, "H100": 132, "B200": 148, "GB300": 152, "full Blackwell chip": 160}


def explore_tiles(m=1088, *, sizes=PAINTED_N, tile_m=128, tile_n=256, sms=152):
    """Slider over N: the tiles of an output, their waves and their padding.

    Parameters
    ----------
    m : int
        Rows [element].
    sizes : sequence of int
        Columns N [element].
    tile_m, tile_n : int
        Tile [element].
    sms : int
        Processors [SM].

    Returns
    -------
    Explorer
        Frame data: n [element], tiles, waves, efficiency [dimensionless].

    Raises
    ------
    ValueError
        If a size is below 1.

    Notes
    -----
    Source: NVIDIA, matrix multiplication guide, tile and wave quantization.

    Examples
    --------
    >>> explore_tiles(sizes=(256, 257))
    <Explorer tiles: columns N [element] over N = 256 to N = 257>
    """
    shape = {"tile_m": tile_m, "tile_n": tile_n}
    span = (np.ceil(m / tile_m) * tile_m, np.ceil(max(sizes) / tile_n) * tile_n)

    def draw(i):
        n = sizes[i]
        tiles = int(np.ceil(m / tile_m) * np.ceil(n / tile_n))
        rounds = int(waves(m, n, **shape, sms=sms))
        fill, slots = (
            float(tile_efficiency(m, n, **shape)),
            float(wave_efficiency(m, n, **shape, sms=sms)),
        )
        text = (
            f"N = {n}: {tiles} tiles, {rounds} wave{'s' if rounds > 1 else ''} of {sms}. The "
            f"tiles are filled to {fill:.1%}, the "
            f"places of the waves to {slots:.1%}: together {fill * slots:.1%}."
        )
        alt = (
            f"Output rows against columns [element]: tiles of {tile_m} x {tile_n} coloured "
            f"by wave, padding hatched. {text}"
        )
        data = {"n": int(n), "tiles": tiles, "waves": rounds, "efficiency": fill * slots}
        return Frame(ax=tile_map(m, n, **shape, sms=sms, span=span), alt=alt, text=text, data=data)

    caption = (
        f"An output of {m} rows in tiles of {tile_m} x {tile_n} on {sms} processors, as N grows."
    )
    values = [f"N = {n}" for n in sizes]
    return Explorer(
        "tiles", "columns N [element]", values, draw, caption=caption, kinds=["modelled"]
    )


def explore_processors(counts=None, *, tile_m=128, tile_n=256):
    """Slider over the number of processors: tile times wave efficiency of all outputs up to 4096 x
    8192.

    Parameters
    ----------
    counts : mapping of str to int, optional
        Label to processors [SM]; by default those of five GPUs.
    tile_m, tile_n : int
        Tile [element].

    Returns
    -------
    Explorer
        Frame data: processors [SM], the share of the outputs with an efficiency of at least 0.9
        [dimensionless].

    Raises
    ------
    ValueError
        If a number is below 1.

    Notes
    -----
    Source: `hwdesign.formulas.tiling`.

    Examples
    --------
    >>> explore_processors({"A100": 108, "H100": 132})
    <Explorer processors: processors [SM] over 108 (A100) to 132 (H100)>
    """
    counts = counts or PROCESSORS
    m, n, shape = (
        np.arange(128, 4097, 64),
        np.arange(1024, 8193, 64),
        {"tile_m": tile_m, "tile_n": tile_n},
    )

    def draw(i):
        name, sms = list(counts.items())[i]
        value = tile_efficiency(m[:, None], n, **shape) * wave_efficiency(
            m[:, None], n, **shape, sms=sms
        )
        good = float((value >= 0.9).mean())
        last = sms // -(-1024 // tile_m) * tile_n  # the last N whose tiles fit into one wave
        text = (
            f"{sms} processors ({name}): {good:.0%} of these outputs reach 90 %. With M = "
            f"1024 one wave reaches to N = {last}."
        )
        alt = (
            f"Efficiency as colour, M against N [element], in tiles of {tile_m} x {tile_n}. {text}"
        )
        return Frame(
            ax=efficiency_map(sms, m, n, **shape),
            alt=alt,
            text=text,
            data={"sms": int(sms), "good": good},
        )

    caption = f"Tile times wave efficiency of M x N outputs in tiles of {tile_m} x {tile_n}."
    values = [f"{sms} ({name})" for name, sms in counts.items()]
    return Explorer(
        "processors", "processors [SM]", values, draw, caption=caption, kinds=["modelled"]
    )
