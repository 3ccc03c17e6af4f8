"""A staircase seen in times: each wave of tiles costs the same, so time rises in steps with the
number of waves.

``seconds = fixed + per_row * m + per_wave * waves(m, n)``, fitted by least squares of the relative
error. `per_row` holds what grows with every row: reading and quantizing the inputs, writing the
outputs. Without a tile there is no third term, and the line is left.
"""

from dataclasses import dataclass

import numpy as np

from hwdesign._check import dims, numbers, positive, same_shape, scalar_or_array, whole
from hwdesign.formulas.tiling import waves


@dataclass(frozen=True, kw_only=True)
class Staircase:
    """What a fit found: `fixed` and `per_wave` [s], `per_row` [s/element], and its root mean square
    relative `error`.

    Examples
    --------
    >>> float(
    ...     Staircase(
    ...         fixed=1.0, per_row=0.0, per_wave=2.0, tile=(128, 256), sms=10, error=0.0
    ...     ).seconds(128, 512)
    ... )
    3.0
    """

    fixed: float  # [s]
    per_row: float  # [s/element]
    per_wave: float  # [s]
    tile: tuple | None  # rows, columns [element]
    sms: int | None
    error: float  # [dimensionless]

    def seconds(self, m, n):
        """Time of ``m`` rows and ``n`` columns [s], broadcast."""
        m, n = same_shape(**dict(zip("mn", dims(m=m, n=n), strict=True)))
        parts = self.fixed, self.per_row, self.per_wave
        return scalar_or_array(
            sum(part * x for part, x in zip(parts, self._terms(m, n), strict=True))
        )

    def _terms(self, m, n):
        steps = (
            waves(m, n, tile_m=self.tile[0], tile_n=self.tile[1], sms=self.sms)
            if self.tile
            else 0 * (m * n)
        )
        return np.ones_like(m), m, steps


def _tile(tile):
    try:
        rows, columns = tile
    except (TypeError, ValueError):
        raise ValueError(
            f"tile must be two whole numbers, rows and columns, got {tile!r}"
        ) from None
    return tuple(whole(tile_m=rows, tile_n=columns))


def fit_staircase(m, n, seconds, *, tile=None, sms=None):
    """The staircase that fits measured times best.

    Parameters
    ----------
    m, n : array_like of int, shape (s,) or broadcastable to it
        Rows and columns of the outputs [element]; the inner dimension is fixed.
    seconds : array_like of float, shape (s,)
        Measured times [s]; NaN is skipped.
    tile : (int, int), optional
        Rows and columns of a tile [element]; without it the waves are left out, and a straight line
        remains.
    sms : int, optional
        Processors of the device [SM]; needed with `tile`.

    Returns
    -------
    Staircase
        Fitted times [s] and error [dimensionless].

    Raises
    ------
    ValueError
        If fewer than four times are measured, one is not positive and finite, the shapes have only
        one number of rows or of waves, a size is below 1, or only one of `tile` and `sms` is given.

    Notes
    -----
    Source: NVIDIA, matrix multiplication guide, wave quantization, for the waves; the fit is this
    book's.

    Examples
    --------
    >>> m = np.array([128, 256, 384, 512, 640])
    >>> found = fit_staircase(m, 1024, [3.0, 3.0, 5.0, 5.0, 7.0], tile=(128, 256), sms=8)
    >>> round(found.per_wave, 6), round(found.error, 6)
    (2.0, 0.0)
    """
    if (tile is None) != (sms is None):
        raise ValueError(f"tile and sms must be given together, got tile = {tile} and sms = {sms}")
    tile = None if tile is None else _tile(tile)
    m, n, seconds = same_shape(
        **dict(zip("mn", dims(m=m, n=n), strict=True)), seconds=numbers("seconds", seconds)
    )
    kept = ~np.isnan(seconds)
    if kept.sum() < 4:
        raise ValueError(f"seconds must hold at least 4 measured times, got {kept.sum()}")
    m, n, (seconds,) = m[kept], n[kept], positive(seconds=seconds[kept])
    if np.isinf(seconds).any():
        raise ValueError("seconds must be finite, got inf")
    empty = Staircase(fixed=0.0, per_row=0.0, per_wave=0.0, tile=tile, sms=sms, error=0.0)
    terms = np.stack(empty._terms(m, n)[: 3 if tile else 2], axis=1) / seconds[:, None]
    scale = np.abs(terms).max(axis=0)  # columns of one size, so that none is taken for zero
    if np.linalg.matrix_rank(terms / scale) < terms.shape[1]:
        raise ValueError(
            "m and n must tell rows and waves apart: several numbers of rows, and at least two "
            "numbers of waves"
        )
    found = np.linalg.lstsq(terms / scale, np.ones(len(seconds)), rcond=None)[0] / scale
    error = float(np.sqrt(np.mean((terms @ found - 1) ** 2)))
    fixed, per_row, per_wave = (float(x) for x in (*found, 0.0)[:3])
    return Staircase(
        fixed=fixed, per_row=per_row, per_wave=per_wave, tile=tile, sms=sms, error=error
    )
