"""Numbers in prose: written in the text, and held to the code by a hidden cell beside it."""

import re
from dataclasses import dataclass, replace

from hwdesign._check import numbers as as_numbers

POWERS = {"P": 1e15, "T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3, "": 1.0}
POWERS |= {"m": 1e-3, "µ": 1e-6, "n": 1e-9}
BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
LARGE = {"thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
PARTS = {"third": 3, "quarter": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8, "ninth": 9}
PARTS |= {"tenth": 10, "sixteenth": 16}
COUNTS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
COUNTS += ["eleven", "twelve"]
WORDS = {word: float(count) for count, word in enumerate(COUNTS, 1)}
WORDS |= {"a": 1.0, "an": 1.0, "sixteen": 16.0}
WORDS |= {"half": 0.5, "halves": 0.5, "twice": 2.0, "double": 2.0, "doubles": 2.0, "doubled": 2.0}
# Shares of the number printed that a value may lie below and above it, by the words before it.
ROUNDED = {
    "about": (0.1, 0.1), "roughly": (0.1, 0.1), "around": (0.1, 0.1),
    "nearly": (0.1, 0.0), "almost": (0.1, 0.0), "just under": (0.1, 0.0), "just over": (0.0, 0.1),
    "less than": (1 / 3, 0.0), "more than": (0.0, 0.5),
}  # fmt: skip
WORD_ERROR = 0.05  # a number word is held within this share

_DIGITS = r"\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?"
_UNIT = r"(?:[PTGMkmµn]|[KMGT]i)?(?:FLOP|bytes?|bits?|B|s|W|J|Hz)"
_FIGURE = re.compile(rf"""
    (?P<version>\d+(?:\.\d+){{2,}}) | (?P<sign>(?<![\w)'\]])[-−+])? (?P<digits>{_DIGITS})
    (?: [ ]?[×·x][ ]?10\^(?P<ten>-?\d+) | \^(?P<power>-?\d+) | /(?P<below>\d+(?:\.\d+)?)(?!\w) )?
    (?: [ -]? (?: (?P<percent>%|per[ ]?cent) | (?P<large>{"|".join(LARGE)})
      | (?P<top>{_UNIT})(?:/(?P<bottom>{_UNIT}))? ) (?![A-Za-z]) )?""", re.X)  # fmt: skip
_WORD = re.compile(
    rf"""\b(?:(?P<count>an?|{"|".join(COUNTS)})[ -](?P<part>{"|".join(PARTS)})s?
    |(?P<word>{"|".join(word for word in WORDS if len(word) > 2)}))\b""",
    re.X | re.I,
)
_NAME = re.compile(r"(?<![\w.])[A-Za-z][A-Za-z_-]*\d(?:[\w-]|\.\d)*")  # GB300, FP8, Llama-3.1-70B
_HEDGE = re.compile(rf"\b({'|'.join(ROUNDED)}) $", re.I)
_SAME_UNIT = re.compile(r",? (?:to|and|or) |, |–")
_POWER = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")


@dataclass(frozen=True)
class Number:
    """A number as a text prints it: where, how exactly, and in which unit."""

    text: str
    start: int
    end: int
    printed: float  # in the unit printed
    step: float  # worth of the last digit
    unit: str = ""
    scale: float = 1.0  # SI base units in the unit printed
    off: tuple | None = None  # of `ROUNDED`

    def holds(self, value):
        """Whether a value in SI base units prints as this number."""
        rounding, size = self.step / 2, abs(self.printed)
        low, high = rounding, rounding
        if self.off:
            low, high = (max(share * size, rounding) if share else 0.0 for share in self.off)
        tiny = 1e-9 * size
        return -low - tiny <= value / self.scale - self.printed <= high + tiny

    def corrected(self, value):
        """What the text should say: the value at the precision printed."""
        shown = value / self.scale
        if not re.fullmatch(_DIGITS, self.text):
            return f"{shown:.4g}"
        return f"{shown:{',' if ',' in self.text else ''}.{len(self.text.partition('.')[2])}f}"


def claims(held):
    """Hold the numbers of the text beside this cell to the code; says nothing while they agree.

    A snippet is text as it stands in the Markdown before this cell: a number with its unit or
    noun. It agrees when the value, rounded to the digits printed, prints the same. A number word is
    held within 5 %. The words before a number loosen it: "about" to 10 %, "nearly" to 10 % below,
    "just over" to 10 % above, "less than" and "more than" to half as much again on their side. In
    "4.9 to 5.3 PFLOP/s" both numbers have the unit.

    Parameters
    ----------
    held : dict of str to number or tuple of numbers
        For each snippet the value that the code computes, in SI base units: 0.14 for 14 %,
        2.3e-5 for 23 µs; a tuple where a snippet has several numbers.

    Raises
    ------
    AssertionError
        If a value prints differently; the message says for each what the text should say.
    ValueError
        If a snippet has no number or not as many as values, or a value is no finite number.

    Notes
    -----
    Source: design choice of this book. `tests/test_claims.py` holds the other half: every number
    of a chapter's text has a claim, and every claim stands in the text.

    Examples
    --------
    >>> import hwdesign as hw
    >>> ridge = hw.GB300.ridge("nvfp4")
    >>> claims({"1875 FLOP/byte": ridge, "15 PFLOP/s": hw.GB300.peak_flops("nvfp4")})
    >>> claims({"1900 FLOP/byte": ridge})
    Traceback (most recent call last):
    AssertionError: text and code differ:
      '1900 FLOP/byte': the code gives 1875.0, the text should say 1875
    """
    wrong = [line for snippet, value in held.items() for line in _differences(snippet, value)]
    if wrong:
        raise AssertionError("text and code differ:\n  " + "\n  ".join(wrong))


def _differences(snippet, value):
    """One line for each number of a snippet that the code does not give."""
    found = numbers(plain(snippet))
    values = as_numbers(f"value of {snippet!r}", value).ravel().tolist()
    if len(found) != len(values) or not found:
        names = ", ".join(number.text for number in found) or "none"
        counts = f"{len(found)} numbers ({names}), but {len(values)} values"
        raise ValueError(f"{snippet!r} has {counts}: take a shorter snippet, or a tuple of values")
    for number, one in zip(found, values, strict=True):
        if not abs(one) < float("inf"):
            raise ValueError(f"value of {snippet!r} must be finite, got {one}")
        if not number.holds(one):
            should = number.corrected(one)
            yield f"{snippet!r}: the code gives {one!r}, the text should say {should}"


def plain(text):
    """Markdown as a reader sees it: no marks of emphasis or maths, single blanks, ``^`` for powers.

    Parameters
    ----------
    text : str
        Markdown; no unit.

    Returns
    -------
    str
        The text.

    Notes
    -----
    Source: design choice of this book.

    Examples
    --------
    >>> plain(r"**K\\* = 1002**, $15 \\times 10^{15}$ FLOP/s")
    'K = 1002, 15 × 10^15 FLOP/s'
    """
    text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+", lambda power: f"^{power[0].translate(_POWER)}", text)
    text = text.replace(r"\times", "×").replace(r"\cdot", "·").replace("μ", "µ")
    text = re.sub(r"\\[,;: ]|[\s\u00a0\u2009\u202f]", " ", text)
    return re.sub(" +", " ", re.sub(r"[*$\\{}]", "", text))


def numbers(text):
    """Every number of a text, in figures or in words, in order; names such as GB300 are none.

    Parameters
    ----------
    text : str
        Text as `plain` returns it.

    Returns
    -------
    list of Number
        Each with its place and its scale to SI base units.

    Notes
    -----
    Source: design choice of this book.

    Examples
    --------
    >>> [(n.text, n.scale) for n in numbers("two thirds of 4.9 to 5.3 PFLOP/s on a GB300")]
    [('two thirds', 1.0), ('4.9', 1000000000000000.0), ('5.3', 1000000000000000.0)]
    """
    text = _NAME.sub(lambda name: "_" * len(name[0]), text)
    found = [_figure(match) for match in _FIGURE.finditer(text)]
    found += [_word(match) for match in _WORD.finditer(text)]
    found.sort(key=lambda number: number.start)
    for i in range(len(found) - 2, -1, -1):  # "4.9 to 5.3 PFLOP/s"
        one, following = found[i : i + 2]
        if not one.unit and _SAME_UNIT.fullmatch(text[one.end : following.start]):
            found[i] = replace(one, unit=following.unit, scale=following.scale)
    return [replace(number, off=_off(text[: number.start])) for number in found]


def _off(before):
    """What a number may be off by the words before it, None without such a word."""
    hedge = _HEDGE.search(before)
    return ROUNDED[hedge[1].lower()] if hedge else None


def _figure(match):
    """A number written in figures."""
    part = match.groupdict(default="")
    if part["version"]:
        return Number(part["version"], match.start(), match.end("version"), float("nan"), 0.0)
    printed, step, last = _value(part)
    sign = -1.0 if part["sign"] in ("-", "−") else 1.0
    unit = part["percent"] or part["large"] or part["top"]
    scale = _scale(part) * 10.0 ** int(part["ten"] or 0)
    text = match.string[match.start("digits") : match.end(last)]
    return Number(text, match.start(), match.end(), sign * printed, step, unit, scale)


def _value(part):
    """Value, worth of the last digit and last group of a number, a power or a fraction."""
    value, step = float(part["digits"].replace(",", "")), _step(part["digits"])
    if part["power"]:
        return value ** int(part["power"]), 0.0, "power"
    if part["below"]:
        below = float(part["below"])
        half = _step(part["below"]) / 2 if "." in part["below"] else 0.0  # 1/16 is exact
        return value / below, 2 * value * (1 / (below - half) - 1 / below), "below"
    return value, step, "digits"


def _step(digits):
    """Worth of the last digit."""
    return 10.0 ** -len(digits.partition(".")[2])


def _scale(part):
    """SI base units in the unit of a match."""
    if part["percent"]:
        return 0.01
    return LARGE.get(part["large"], 1.0) * _prefix(part["top"]) / _prefix(part["bottom"])


def _prefix(unit):
    """Worth of the prefix of a unit; 1 without one."""
    if unit[:2] in BINARY:
        return BINARY[unit[:2]]
    return POWERS[re.fullmatch(r"(.?)(?:FLOP|bytes?|bits?|B|s|W|J|Hz)", unit)[1]] if unit else 1.0


def _word(match):
    """A number written in words."""
    count = WORDS[(match["count"] or match["word"]).lower()]
    printed = count / PARTS[match["part"].lower()] if match["part"] else count
    return Number(match[0], match.start(), match.end(), printed, 2 * WORD_ERROR * printed)
