"""Reports as one page of HTML that stands alone: no script, nothing fetched, statuses in words."""

import html
import string
from importlib import resources

from hwdesign import __version__
from hwdesign.advice.guidelines import counted
from hwdesign.advice.report_facts import MARKS

COLUMNS = ("Verdict", "Guideline", "Why")


def page(reports, errors=()):
    """Reports as a page: a whole document of ASCII characters, the rest as entities.

    `errors` are configs that could not be judged, and why. The frame is report.html.

    Examples
    --------
    >>> from hwdesign.advice.judge import judge
    >>> "<h2>gpt2 on GB300 " in page([judge("gpt2")])
    True
    """
    body = [_section(report) for report in reports]
    if errors:
        items = "".join(f"<li>{html.escape(error)}</li>" for error in errors)
        body.append(f"<section>\n<h2>Not judged</h2>\n<ul>{items}</ul>\n</section>")
    frame = resources.files("hwdesign.advice").joinpath("report.html").read_text(encoding="utf-8")
    title = html.escape(f"hwdesign check: {_names(reports)}")
    filled = string.Template(frame).substitute(
        title=title, version=__version__, body="\n".join(body)
    )
    return filled.encode("ascii", "xmlcharrefreplace").decode()


def _names(reports):
    """The first three of what was judged."""
    if not reports:
        return "nothing judged"
    names = [" ".join(report.title) for report in reports[:3]]
    if len(reports) > 3:
        names.append("...")
    return ", ".join(names)


def _section(report):
    verdicts = report.facts["verdicts"]
    title = html.escape(" ".join(report.title))
    parts = [
        "<section>",
        f"<h2>{title} {_mark(report.facts)}</h2>",
        f"<p>{html.escape(report.summary)}</p>",
        _list(report.head, "head", report.loud),
        _table(report, verdicts),
    ]
    found = []
    for verdict in verdicts:
        for finding in verdict["findings"]:
            found.append(_article(report, finding, verdict))
    if found:
        parts += ["<h3>Findings</h3>", *found]
    parts.append("</section>")
    return "\n".join(parts)


def _table(report, verdicts):
    columns = "".join(f'<th scope="col">{name}</th>' for name in COLUMNS)
    rows = "\n".join(_row(report, verdict) for verdict in verdicts)
    return (
        f"<table>\n<caption>{counted().capitalize()} guidelines</caption>\n"
        f"<thead><tr>{columns}</tr></thead>\n<tbody>{rows}</tbody>\n</table>"
    )


def _row(report, verdict):
    why = html.escape(report.why(verdict))
    linked = _linked(verdict, report.mark(verdict["guideline"]))
    return f"<tr><td>{_mark(verdict)}</td>{linked}<td>{why}</td></tr>"


def _article(report, finding, verdict):
    number = verdict["guideline"]
    what = html.escape(
        f"Guideline {number}: {finding['dimension']} {finding['value']}{report.mark(number)}"
    )
    read = f"<dt>read</dt><dd>{_link(verdict)}</dd>" if verdict["chapter_url"] else ""
    return (
        f"<article>\n<h4>{_mark(finding)} "
        f"{what}</h4>\n{_list(report.details(finding, number), more=read)}\n</article>"
    )


def _linked(verdict, mark):
    return f'<th scope="row">{verdict["guideline"]} {_link(verdict)}{mark}</th>'


def _link(verdict):
    title, address = html.escape(verdict["title"]), verdict["chapter_url"]
    return f'<a href="{html.escape(address)}">{title}</a>' if address else title


def _mark(item):
    status = item["status"]
    return f'<span class="mark {status.replace(" ", "-")}">{MARKS[status]}</span>'


def _list(pairs, name="details", loud=(), more=""):
    """Labels and what they say; what is loud in a colour of its own besides its capitals."""
    kinds = dict.fromkeys(loud, ' class="loud"')
    cells = "".join(
        f"<dt>{label}</dt><dd{kinds.get(label, '')}>{html.escape(words)}</dd>"
        for label, words in pairs
    )
    return f'<dl class="{name}">{cells}{more}</dl>'
