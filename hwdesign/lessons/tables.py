"""Tables as accessible HTML with a plain-text twin, and the tables of the post recomputed."""

import html
import re

from hwdesign.catalogue.device import device as as_device
from hwdesign.catalogue.precision import recipe as as_recipe
from hwdesign.formulas import roofline
from hwdesign.lessons.show import badge
from hwdesign.models.layers import transformer_gemms

SENTENCE = 42  # text longer than this wraps [character]
_NUMBER = re.compile(r"[-+]?[\d.,]+ ?[%x]?|–")  # a dash stands for a number that is not there


class Table:
    """A table with a caption that scrolls inside its own box on a narrow screen.

    Parameters
    ----------
    header : sequence of str
        Column heads, units in brackets.
    rows : sequence of sequence
        Cells, already formatted; text or numbers.
    caption : str
        What the table shows, plain text.
    kinds : sequence of str
        Kinds of number, shown as labels.

    Raises
    ------
    ValueError
        If a row has not as many cells as the header, or a head is empty.

    Examples
    --------
    >>> Table(["M", "time [µs]"], [[256, "0.14"]], caption="Example")
    Example
    M    time [µs]
    256  0.14
    """

    def __init__(self, header, rows, *, caption, kinds=()):
        self.header, self.caption, self.kinds = list(map(str, header)), caption, tuple(kinds)
        self.rows = [list(map(str, row)) for row in rows]
        if not all(self.header):
            raise ValueError(f"header must name every column, got {self.header}")
        for row in self.rows:
            if len(row) != len(self.header):
                raise ValueError(
                    f"rows must have {len(self.header)} cells each, got {len(row)}: {row}"
                )

    def __repr__(self):
        lines = [self.header, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.header))]
        text = [
            "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip()
            for line in lines
        ]
        return "\n".join([self.caption, *text])

    def _repr_html_(self):
        labels = " ".join(badge(kind) for kind in self.kinds)
        numeric = [
            all(_NUMBER.fullmatch(row[i]) for row in self.rows) for i in range(len(self.header))
        ]
        head = "".join(
            _cell("th", c, number, ' scope="col"')
            for c, number in zip(self.header, numeric, strict=True)
        )
        body = "".join(f"<tr>{_cells(row, numeric)}</tr>" for row in self.rows)
        return (
            '<div class="hw-table-wrap" tabindex="0" role="region" '
            f'aria-label="{html.escape(self.caption)}">'
            f'<table class="hw-table"><caption>{labels} {html.escape(self.caption)}</caption>'
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        )


def _cells(row, numeric):
    first = _cell("th", row[0], numeric[0], ' scope="row"')
    return first + "".join(
        _cell("td", cell, number) for cell, number in zip(row[1:], numeric[1:], strict=True)
    )


def _cell(tag, text, number, scope=""):
    """One cell; numbers are aligned right, a sentence may take several lines."""
    align = ' class="hw-num"' if number else ' class="hw-text"' if len(text) > SENTENCE else ""
    return f"<{tag}{scope}{align}>{html.escape(text)}</{tag}>"


def table1(tokens, hidden_size, intermediate_size):
    """Table 1 of the post: the GEMMs of a dense block, as N and K in elements.

    Parameters
    ----------
    tokens, hidden_size, intermediate_size : int
        M, H and H' [element].

    Returns
    -------
    Table
        Layer, M, N, K [element].

    Raises
    ------
    ValueError
        If a dimension is below 1 or not whole.

    Notes
    -----
    Source: Table 1 of the post, by `transformer_gemms`.

    Examples
    --------
    >>> len(table1(256, 8192, 512).rows)
    4
    """
    gemms = transformer_gemms(tokens, hidden_size=hidden_size, intermediate_size=intermediate_size)
    rows = [[g.name, f"{g.m:.0f}", f"{g.n:.0f}", f"{g.k:.0f}"] for g in gemms]
    caption = f"Table 1 with {tokens} tokens, H = {hidden_size}, H' = {intermediate_size}"
    return Table(["layer", "M", "N", "K"], rows, caption=caption, kinds=["modelled"])


def table2_times(tokens, n, k, device, recipe):
    """Times of Table 2: math at the dense peak, reading and writing at the full bandwidth.

    Parameters
    ----------
    tokens, n, k : array_like of int, broadcastable
        M, N, K [element].
    device : str or Device
        Accelerator.
    recipe : str or Recipe
        Formats of the operands.

    Returns
    -------
    tuple of ndarray
        Math, read and write time [s].

    Raises
    ------
    ValueError
        If a dimension is below 1 or not whole.

    Notes
    -----
    Source: Table 2 of the post.

    Examples
    --------
    >>> [round(float(t) * 1e6, 2) for t in table2_times(256, 8192, 512, "GB300", "table2")]
    [0.14, 0.3, 0.26]
    """
    device, recipe = as_device(device), as_recipe(recipe)
    size = recipe.operand_bytes
    math = roofline.gemm_flops(tokens, n, k) / device.peak_flops(recipe.math)
    read = (
        roofline.gemm_read_bytes(tokens, n, k, a=size["a"], b=size["b"]) / device.memory_bandwidth
    )
    write = roofline.gemm_write_bytes(tokens, n, c=size["c"]) / device.memory_bandwidth
    return math, read, write + 0 * math
