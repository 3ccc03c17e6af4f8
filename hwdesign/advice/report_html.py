"""Reports as one page of HTML that stands alone: no script, nothing fetched, statuses in words."""

import html
import string
from importlib import resources

from hwdesign import __version__
from hwdesign.advice import report_words as words_of
from hwdesign.advice.report_words import MARKS

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
    names = [" ".join(words_of.title(report)) for report in reports[:3]]
    if len(reports) > 3:
        names.append("...")
    return ", ".join(names)


def _section(report):
    title = html.escape(" ".join(words_of.title(report)))
    parts = [
        "<section>",
        f"<h2>{title} {_mark(report.facts)}</h2>",
        f"<p>{html.escape(words_of.summary(report))}</p>",
    ]
    for _, words in words_of.alarms(report):
        parts.append(f'<p class="loud">{html.escape(words)}</p>')
    table = words_of.where(report)
    if table:
        parts.append(_where(table, title))
    for note in report.facts["notes"]:
        parts.append(f"<p>Note: {html.escape(note)}</p>")
    if report.blames:
        parts.append("<h3>Findings</h3>")
        parts += [_article(report, blame) for blame in report.blames]
    verdicts = words_of.rest(report)
    if verdicts:
        parts.append(_table(report, verdicts))
    parts += ["<h3>Judged</h3>", _list(words_of.head(report), "head"), "</section>"]
    return "\n".join(parts)


def _where(rows, title):
    """The table of loads, which scrolls by itself where it is too wide."""
    (label, loads), *rest = rows
    heads = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in (label, *loads))
    lines = []
    for name, cells in rest:
        told = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
        lines.append(f'<tr><th scope="row">{html.escape(name)}</th>{told}</tr>')
    body = "\n".join(lines)
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="Where the step goes: {title}">'
        "<table>\n<caption>Where the step goes</caption>\n"
        f"<thead><tr>{heads}</tr></thead>\n<tbody>{body}</tbody>\n</table></div>"
    )


def _table(report, verdicts):
    columns = "".join(f'<th scope="col">{name}</th>' for name in COLUMNS)
    rows = "\n".join(_row(report, verdict) for verdict in verdicts)
    return (
        "<table>\n<caption>Guidelines without a finding</caption>\n"
        f"<thead><tr>{columns}</tr></thead>\n<tbody>{rows}</tbody>\n</table>"
    )


def _row(report, verdict):
    why = html.escape(words_of.why(report, verdict))
    linked = _linked(verdict, words_of.mark(report, verdict["guideline"]))
    return f"<tr><td>{_mark(verdict)}</td>{linked}<td>{why}</td></tr>"


def _article(report, blame):
    verdict, finding = blame.verdict, blame.finding
    number = verdict["guideline"]
    ignored = words_of.mark(report, number)
    what = html.escape(f"Guideline {number}: {finding['dimension']} {finding['value']}{ignored}")
    read = f"<dt>read</dt><dd>{_link(verdict)}</dd>" if verdict["chapter_url"] else ""
    return (
        f"<article>\n<h4>{_mark(finding)} {what}</h4>\n"
        f"{_list(words_of.details(report, blame), more=read)}\n</article>"
    )


def _linked(verdict, mark):
    return f'<th scope="row">{verdict["guideline"]} {_link(verdict)}{mark}</th>'


def _link(verdict):
    title, address = html.escape(verdict["title"]), verdict["chapter_url"]
    return f'<a href="{html.escape(address)}">{title}</a>' if address else title


def _mark(item):
    status = item["status"]
    return f'<span class="mark {status.replace(" ", "-")}">{MARKS[status]}</span>'


def _list(pairs, name="details", more=""):
    """Labels and what they say."""
    cells = "".join(f"<dt>{label}</dt><dd>{html.escape(words)}</dd>" for label, words in pairs)
    return f'<dl class="{name}">{cells}{more}</dl>'
