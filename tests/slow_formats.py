"""NVFP4 and MXFP4 number by number, in fractions, as their descriptions say it: what the package's encoder is compared with."""

import struct
from fractions import Fraction

E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]  # place in the list = code
E4M3 = [m / 8 * 2**-6 for m in range(8)] + [(1 + m / 8) * 2.0 ** (e - 7) for e in range(1, 16) for m in range(8)][:-1]  # NaN last


def nearest(x, values):
    """The value of a list next to a fraction; of two as near the one with the even code. Beyond the last: the last."""
    gap = min(abs(x - Fraction(v)) for v in values)
    near = [i for i, v in enumerate(values) if abs(x - Fraction(v)) == gap]
    return values[next(i for i in near if len(near) == 1 or i % 2 == 0)]


def slow_nvfp4(rows, size=16):
    """Elements, scales and tensor scale; a block has so many numbers."""
    top = max(abs(x) for row in rows for x in row)
    (tensor_scale,) = struct.unpack("f", struct.pack("f", top / 2688))  # 448 x 6, rounded to FP32
    elements, scales = [], []
    for row in rows:
        scales.append([])
        elements.append([])
        for first in range(0, len(row), size):
            block = [Fraction(x) / Fraction(tensor_scale) for x in row[first : first + size]]
            scale = nearest(max(map(abs, block)) / 6, E4M3) or 2.0**-9
            scales[-1].append(scale)
            elements[-1] += [(1 if x >= 0 else -1) * nearest(abs(x) / Fraction(scale), E2M1) for x in block]
    return elements, scales, tensor_scale


def slow_mxfp4(rows):
    """Elements and scales: the largest power of two that is not above a quarter of the largest number of the block."""
    elements, scales = [], []
    for row in rows:
        scales.append([])
        elements.append([])
        for first in range(0, len(row), 32):
            block = list(map(Fraction, row[first : first + 32]))
            exponent = 127
            while exponent > -127 and Fraction(2) ** exponent > max(map(abs, block)) / 4:
                exponent -= 1
            scales[-1].append(2.0**exponent)
            elements[-1] += [(1 if x >= 0 else -1) * nearest(abs(x) / Fraction(2) ** exponent, E2M1) for x in block]
    return elements, scales
