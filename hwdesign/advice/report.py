"""Reports on the design checklist, written as text, Markdown, JSON, SARIF or HTML."""

import json
from importlib import resources

from hwdesign import __version__
from hwdesign._check import choice
from hwdesign.advice.guidelines import GUIDELINES
from hwdesign.advice.report_html import page
from hwdesign.advice.report_sarif import sarif
from hwdesign.advice.report_text import markdown, text
from hwdesign.catalogue.precision import INTEGERS, PRECISIONS, RECIPES
from hwdesign.models.parts import SIZE_NAMES
from hwdesign.timing.bounds import BOUNDS
from hwdesign.timing.spent import TERMS

VERSION = 2  # of the JSON report
FORMATS = ("text", "markdown", "json", "sarif", "html")


def as_object(reports, errors=()):
    """Reports as one plain object, described by report.schema.json.

    `errors` are configs that could not be judged, and why.

    >>> from hwdesign.advice.judge import judge
    >>> as_object([judge("gpt2")])["reports"][0]["status"]
    'warn'
    """
    return {
        "version": VERSION,
        "tool": {"name": "hwdesign", "version": __version__},
        "reports": [report.facts for report in reports],
        "errors": list(errors),
    }


def schema():
    """The schema of `as_object`: report.schema.json, in which all that the table of guidelines
    and the sizes of blocks decide is written anew.

    >>> schema()["$defs"]["guideline"]["maximum"]
    7
    """
    file = resources.files("hwdesign.advice").joinpath("report.schema.json")
    found = json.loads(file.read_text(encoding="utf-8"))
    parts = found["$defs"]
    parts["guideline"]["maximum"] = max(GUIDELINES)
    verdicts = parts["load"]["properties"]["verdicts"]
    verdicts["minItems"] = verdicts["maxItems"] = len(GUIDELINES)
    dimensions = []
    for guideline in GUIDELINES.values():
        for dimension in guideline.blames:
            if dimension not in dimensions:
                dimensions.append(dimension)
    parts["finding"]["properties"]["dimension"]["enum"] = dimensions
    change = parts["fix"]["properties"]["change"]["properties"]
    change |= {name: {"$ref": "#/$defs/sizes_change"} for name in SIZE_NAMES}
    sizes = parts["model"]["properties"]
    sizes |= {name: {"$ref": "#/$defs/sizes"} for name in SIZE_NAMES}
    parts["model"]["required"] = list(sizes)
    parts["recipe"]["anyOf"] = [{"enum": list(RECIPES)}, {"pattern": f"^{INTEGERS.pattern}$"}]
    parts["cache"]["enum"] = list(PRECISIONS)
    parts["term"]["properties"]["name"]["enum"] = list(TERMS)
    parts["term"]["properties"]["bound"]["enum"] = list(BOUNDS)
    return found


def render(reports, form, *, errors=(), width=100, colour=False):
    """Reports in one of `FORMATS`.

    Parameters
    ----------
    reports : sequence of Report
        What to tell, each by `hwdesign.advice.judge.judge`.
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
    >>> from hwdesign.advice.judge import judge
    >>> render([judge("gpt2")], "json").count("cost_share")
    2
    """
    choice("format", form, FORMATS)
    if form == "text":
        return text(reports, errors, width=width, colour=colour)
    if form == "markdown":
        return markdown(reports, errors)
    if form == "html":
        return page(reports, errors)
    whole = sarif(reports, errors) if form == "sarif" else as_object(reports, errors)
    return json.dumps(whole, indent=1, allow_nan=False) + "\n"
