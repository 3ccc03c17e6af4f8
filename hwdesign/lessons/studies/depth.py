"""Siblings of equal parameters, from deep to wide, and the published time of the GEMMs of a plain
layer.
"""

from hwdesign._check import dims, whole
from hwdesign.models.layers import transformer_gemms
from hwdesign.models.model import Model, same_parameters

LAYERS = (8, 16, 32, 64, 128, 256)


def siblings(base="llama-3.1-8b", layers=LAYERS):
    """A model and its siblings with about the same parameters in their blocks.

    Parameters
    ----------
    base : str or Model
        A uniform dense model, or the name of its config.
    layers : sequence of int
        Numbers of layers.

    Returns
    -------
    dict of int to Model
        Layers to model; hidden sizes in [element].

    Raises
    ------
    ValueError
        If the blocks of the model are not all equal, it has experts, or `layers` is no list of
        whole numbers >= 1.

    Notes
    -----
    Source: `hwdesign.models.model.same_parameters`.

    Examples
    --------
    >>> {layers: model.hidden_size for layers, model in siblings(layers=(8, 32, 128)).items()}
    {8: 8192, 32: 4096, 128: 2048}
    """
    (numbers,) = dims(layers=layers)
    if numbers.ndim != 1 or not numbers.size:
        raise ValueError(f"layers must be a list of numbers, got {layers!r}")
    model = base if isinstance(base, Model) else Model.from_config(base)
    return {int(n): same_parameters(model, layers=int(n)) for n in numbers}


def layer_gemm_seconds(grid, m, hidden):
    """Published time of the four GEMMs of one plain layer.

    Parameters
    ----------
    grid : GemmGrid
        A measured slice.
    m : array_like of int
        Tokens [element], on the grid.
    hidden : int
        Hidden size H; the feed-forward width is 4 H [element].

    Returns
    -------
    float or ndarray of float
        Time [s].

    Raises
    ------
    ValueError
        If a shape is not on the grid.

    Notes
    -----
    Source: Table 1 of the post; `hwdesign.timing.silicon`.

    Examples
    --------
    >>> from hwdesign.timing.silicon import gemm_grid
    >>> round(
    ...     float(32 * layer_gemm_seconds(gemm_grid("GB300", "nvfp4", "trtllm"), 1, 4096)) * 1e3, 2
    ... )
    2.5
    """
    (hidden,) = whole(hidden=hidden)
    layer = transformer_gemms(1, hidden_size=hidden, intermediate_size=4 * hidden)
    return sum(grid.at(m, int(g.n), int(g.k)) for g in layer)
