"""Random numbers shaped like the weights and activations of a model: Gaussian, with heavy tails, with outlier channels."""

import numpy as np

from hwdesign._check import choice, positive, whole

KINDS = ("Gaussian", "heavy tails", "outlier channels")
EVERY = 128  # one channel in so many is an outlier
SPREAD = 0.02  # standard deviation of the ordinary numbers


def samples(kind, *, rows=128, columns=2048, strength=20.0, seed=0):
    """A matrix of random numbers; columns are channels and run along K.

    Parameters
    ----------
    kind : str
        "Gaussian"; "heavy tails", Student's t with 4 degrees of freedom; or "outlier channels", Gaussian with each 128th column
        `strength` times as large.
    rows, columns : int
        Shape [element].
    strength : float
        Size of the outlier channels [times the others].
    seed : int
        Of the generator.

    Returns
    -------
    ndarray of float, shape (rows, columns)
        Numbers [dimensionless].

    Raises
    ------
    ValueError
        If the kind is unknown, a side below 1 or the strength not positive.

    Notes
    -----
    Source: own choice. Weights of trained layers are close to normal; activations have outlier channels (arXiv 2208.07339).

    Examples
    --------
    >>> x = samples("outlier channels", rows=4, columns=256, strength=50)
    >>> x.shape, np.flatnonzero(np.abs(x).max(0) > 0.2).tolist()
    ((4, 256), [64, 192])
    """
    choice("kind", kind, {name: name for name in KINDS})
    (rows, columns), (strength,) = whole(rows=rows, columns=columns), positive(strength=strength)
    draw = np.random.default_rng(seed)
    if kind == "heavy tails":
        return SPREAD * draw.standard_t(4, (rows, columns)) / np.sqrt(2)  # its variance is 2
    x = SPREAD * draw.standard_normal((rows, columns))
    if kind == "outlier channels":
        x[:, outlier_channels(columns)] *= strength
    return x


def outlier_channels(columns):
    """Which columns are outliers in `samples`.

    Parameters
    ----------
    columns : int
        Columns of the matrix [element].

    Returns
    -------
    ndarray of bool, shape (columns,)
        True for each 128th, from the middle of the first 128 on [dimensionless].

    Notes
    -----
    Source: own choice.

    Examples
    --------
    >>> np.flatnonzero(outlier_channels(256)).tolist()
    [64, 192]
    """
    return np.arange(columns) % EVERY == EVERY // 2
