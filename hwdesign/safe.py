"""Text of others made harmless: visible escapes for what a terminal obeys or does not show, and
Markdown that stays text.
"""

import re

# Printable by Unicode, yet nothing is seen: fillers, joiners, blanks, selectors of a glyph.
INVISIBLE = re.compile(
    "[\\u034f\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u2800\\u3164"
    "\\ufe00-\\ufe0f\\uffa0\\U000e0100-\\U000e01ef]"
)


def visible(text, limit=80):
    r"""Text in which everything can be seen, on one line.

    Parameters
    ----------
    text : str
        From a file, a path or an argument.
    limit : int
        Longest result, but for a note about the length [character].

    Returns
    -------
    str
        Control, bidirectional and invisible characters and lone surrogates as escapes.
        "::" and "##", by which a log of GitHub Actions, Azure or TeamCity takes a line for a
        command, are broken.

    Notes
    -----
    Source: `str.isprintable`; Unicode's Default_Ignorable_Code_Point.

    Examples
    --------
    >>> print(visible("a\x1b[31m\u202eb\n::error::c"))
    a\x1b[31m\u202eb\x0a:\x3aerror:\x3ac
    """
    seen = "".join(map(_seen, text[:limit]))
    seen = seen.replace("::", r":\x3a").replace("##", r"#\x23")
    if len(text) <= limit and len(seen) <= limit:
        return seen
    return f"{seen[:limit]}... ({len(text)} characters)"


def _seen(character):
    """A character, or its escape where nobody could see it."""
    if character.isprintable() and not INVISIBLE.match(character):
        return character
    return _escape(ord(character))


def _escape(code):
    if code < 0x100:
        return rf"\x{code:02x}"
    if code < 0x10000:
        return rf"\u{code:04x}"
    return rf"\U{code:08x}"


def code_span(text, limit=200):
    """Text as a code span of Markdown: no link, mention, tag or cell can begin in it.

    Parameters
    ----------
    text : str
        From a file, a path or an argument.
    limit : int
        Longest text that is shown whole [character].

    Returns
    -------
    str
        Between more backticks than stand in a row inside.

    Notes
    -----
    Source: CommonMark 0.31, code spans; GitHub's tables end a cell at a bar even there, so a bar is
    shown as an escape.

    Examples
    --------
    >>> print(code_span("@everyone `x` | y"))
    `` @everyone `x` \\x7c y ``
    """
    inside = visible(text, limit).replace("|", r"\x7c") or " "
    fence = "`" * (1 + max(map(len, re.findall("`+", inside)), default=0))
    pad = " " if "`" in inside else ""
    return f"{fence}{pad}{inside}{pad}{fence}"


def markdown_text(text, limit=500):
    """Text as plain text of Markdown, also inside a table.

    Parameters
    ----------
    text : str
        Words of this package, into which a name may have come.
    limit : int
        Longest text that is shown whole [character].

    Returns
    -------
    str
        With entities and backslashes.

    Notes
    -----
    Source: CommonMark 0.31, backslash escapes. A mention begins at an at sign all the same, but not
    at one in a code span.

    Examples
    --------
    >>> print(markdown_text("*a* <b> [c](d)"))
    \\*a\\* &lt;b&gt; \\[c\\](d)
    """
    import html  # few need it

    escaped = re.sub(r"([\\`*_\[\]!~#|$])", r"\\\1", html.escape(visible(text, limit), quote=False))
    return escaped.replace("@", "`@`")
