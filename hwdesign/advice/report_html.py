"""Reports as one page of HTML that stands alone: no script, nothing fetched, statuses in words."""

import html
import string
from importlib import resources

from hwdesign import __version__
from hwdesign.advice.report_facts import MARKS


def page(reports, errors=()):
    """Reports as a page.

    Parameters
    ----------
    reports : sequence of Report
        What to tell.
    errors : sequence of str
        Configs that could not be read, and why.

    Returns
    -------
    str
        A whole document of ASCII characters, the rest as entities; HTML.

    Notes
    -----
    the frame is report.html.

    Examples
    --------
    >>> from hwdesign.advice.report_facts import judge
    >>> "<h2>gpt2 on GB300 " in page([judge("gpt2")])
    True
    """
    body = [_section(report) for report in reports]
    if errors:
        items = "".join(f"<li>{html.escape(error)}</li>" for error in errors)
        body.append(f"<section>\n<h2>Not judged</h2>\n<ul>{items}</ul>\n</section>")
    frame = resources.files("hwdesign.advice").joinpath("report.html").read_text(encoding="utf-8")
    names = [" ".join(report.title) for report in reports]
    shown = ", ".join([*names[:3], *(["..."] if names[3:] else [])])
    title = f"hwdesign check: {shown or 'nothing judged'}"
    filled = string.Template(frame).substitute(
        title=html.escape(title), version=__version__, body="\n".join(body)
    )
    return filled.encode("ascii", "xmlcharrefreplace").decode()


def _section(report):
    verdicts = report.facts["verdicts"]
    head = (
        f"<h2>{html.escape(' '.join(report.title))} "
        f"{_mark(report.facts)}</h2>\n<p>{html.escape(report.summary)}</p>"
    )
    columns = "".join(f'<th scope="col">{name}</th>' for name in ("Verdict", "Guideline", "Why"))
    body = "\n".join(_row(report, verdict) for verdict in verdicts)
    table = (
        "<table>\n<caption>Seven guidelines</caption>\n"
        f"<thead><tr>{columns}</tr></thead>\n<tbody>{body}</tbody>\n</table>"
    )
    found = [_article(report, finding, v) for v in verdicts for finding in v["findings"]]
    parts = [
        head,
        _list(report.head, "head", report.loud),
        table,
        *(["<h3>Findings</h3>", *found] if found else []),
    ]
    return "<section>\n" + "\n".join(parts) + "\n</section>"


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
