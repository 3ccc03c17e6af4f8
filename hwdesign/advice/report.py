"""Reports on the design checklist, written as text, Markdown, JSON, SARIF or HTML."""

import json

from hwdesign import __version__
from hwdesign._check import choice
from hwdesign.advice.report_html import page
from hwdesign.advice.report_sarif import sarif
from hwdesign.advice.report_text import markdown, text

FORMATS = ("text", "markdown", "json", "sarif", "html")


def as_object(reports, errors=()):
    """Reports as one plain object, described by report.schema.json.

    Parameters
    ----------
    reports : sequence of Report
        What to tell.
    errors : sequence of str
        Configs that could not be judged, and why.

    Returns
    -------
    dict
        Numbers with their units in the keys' names.

    Examples
    --------
    >>> from hwdesign.advice.report_facts import judge
    >>> as_object([judge("gpt2")])["reports"][0]["status"]
    'fail'
    """
    tool = {"name": "hwdesign", "version": __version__}
    return {
        "version": 1,
        "tool": tool,
        "reports": [report.facts for report in reports],
        "errors": list(errors),
    }


def render(reports, form, *, errors=(), width=100, colour=False):
    """Reports in one of `FORMATS`.

    Parameters
    ----------
    reports : sequence of Report
        What to tell, each by `hwdesign.advice.report_facts.judge`.
    form : str
        "text", "markdown", "json", "sarif" or "html".
    errors : sequence of str
        Configs that could not be judged, and why.
    width : int
        Longest line of text [character].
    colour : bool
        Whether text is coloured.

    Returns
    -------
    str
        A whole document that ends in a new line. JSON, SARIF and HTML are ASCII.

    Raises
    ------
    ValueError
        If there is no such format.

    Examples
    --------
    >>> from hwdesign.advice.report_facts import judge
    >>> render([judge("gpt2")], "json").count("cost_share")
    2
    """
    if choice("format", form, FORMATS) == "text":
        return text(reports, errors, width=width, colour=colour)
    if form in ("json", "sarif"):
        return (
            json.dumps(
                (sarif if form == "sarif" else as_object)(reports, errors),
                indent=1,
                allow_nan=False,
            )
            + "\n"
        )
    return (markdown if form == "markdown" else page)(reports, errors)
