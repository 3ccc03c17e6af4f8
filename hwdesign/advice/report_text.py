"""Reports for people as plain text on a terminal and as Markdown for a pull request."""

import re
import textwrap

from hwdesign.advice import report_words as words_of
from hwdesign.advice.report_facts import REPORT_STATUSES
from hwdesign.advice.report_words import MARKS
from hwdesign.safe import code_span, markdown_text

COLOURS = {
    "break": "1;35",
    "fail": "1;31",
    "warn": "1;33",
    "ok": "32",
    "not judged": "1;36",
    "not applicable": "2",
    "not modelled": "2",
}
LABEL = 11  # width of a mark or a label with its margin [character]
MARK = max(map(len, MARKS.values()))  # width of a mark [character]
GAP = 2  # between two columns of a table [character]


def text(reports, errors=(), *, width=100, colour=False):
    """Reports for a terminal, in lines without any control character but those of colours.

    `errors` are configs that could not be judged, and why: told where there are several configs.
    No line is longer than `width` [character], but for an address. With `colour`, marks and titles
    carry ANSI colours; they say the same without.

    Examples
    --------
    >>> from hwdesign.advice.judge import judge
    >>> print(text([judge("gpt2")]).splitlines()[0])
    gpt2 on GB300: WARN
    """
    paper = _Paper(width, colour)
    parts = ["\n".join(_text_lines(report, paper)) for report in reports]
    if len(reports) + len(errors) > 1:
        parts.append("\n".join(_list_lines(reports, errors, paper)))
    return "\n\n\n".join(parts) + "\n"


class _Paper:
    """How wide lines are, and whether they are coloured."""

    def __init__(self, width, colour):
        self.width, self.colour = width, colour

    def paint(self, words, code):
        """Words in a colour."""
        return f"\x1b[{code}m{words}\x1b[0m" if self.colour else words

    def title(self, words):
        """A heading."""
        return self.paint(textwrap.fill(words, self.width), "1")

    def row(self, label, words, code=None):
        """A label, which may be coloured, and words beside it on as many lines as they need."""
        if not words.startswith("https://"):
            # No new line before an equals sign, a per cent sign or an arrow.
            tied = re.sub(" (=|%|->) ?", lambda found: found[0].replace(" ", "\xa0"), words)
            words = textwrap.fill(tied, self.width - LABEL, break_on_hyphens=False)
            words = words.replace("\xa0", " ")
        start = f"  {label:<{LABEL - 3}} "
        lines = textwrap.indent(start + words, " " * LABEL)[LABEL:]
        return lines.replace(label, self.paint(label, code), 1) if code else lines

    def table(self, rows):
        """Lines of a table whose first row holds the heads of its columns; columns that find no
        room stand below the others.
        """
        wide = max(len(label) for label, _ in rows)
        columns = list(zip(*(cells for _, cells in rows), strict=True))
        while columns:
            shown, room = [], self.width - GAP - wide
            while columns and (not shown or room >= GAP + max(map(len, columns[0]))):
                column = columns.pop(0)
                size = max(map(len, column))
                room -= GAP + size
                shown.append([f"{cell:<{size}}" for cell in column])
            for (label, _), *cells in zip(rows, *shown, strict=True):
                yield (" " * GAP).join([f"  {label:<{wide}}", *cells]).rstrip()
            if columns:
                yield ""


def _text_lines(report, paper):
    """Lines of one report: where the step goes, the findings, the rest, and what was judged."""
    title = " ".join(words_of.title(report))
    yield paper.title(f"{title}: {MARKS[report.status]}")
    for label, words in words_of.alarms(report):
        yield paper.row(label, words, COLOURS["fail"])
    table = words_of.where(report)
    if table:
        yield from paper.table(table)
    for note in report.facts["notes"]:
        yield paper.row("note", note)
    for blame in report.blames:
        yield from _finding_lines(report, blame, paper)
    rest = words_of.rest(report)
    if rest:
        yield ""
    for verdict in rest:
        ignored = words_of.mark(report, verdict["guideline"])
        words = f"{verdict['title']}{ignored} - {words_of.why(report, verdict)}"
        yield paper.row(_label(verdict, verdict), words, COLOURS[verdict["status"]])
    yield ""
    for label, words in words_of.head(report):
        yield paper.row(label, words)
    mark = MARKS[report.status]
    end = textwrap.fill(f"{mark}: {words_of.summary(report)}", paper.width)
    yield ""
    yield paper.paint(mark, COLOURS[report.status]) + end.removeprefix(mark)


def _finding_lines(report, blame, paper):
    """Lines about one finding."""
    verdict, finding = blame.verdict, blame.finding
    ignored = words_of.mark(report, verdict["guideline"])
    yield ""
    what = f"{finding['dimension']}: {finding['value']}{ignored}"
    yield paper.row(_label(verdict, finding), what, COLOURS[finding["status"]])
    for label, words in words_of.details(report, blame):
        yield paper.row(f"  {label}", words)
    if verdict["chapter_url"]:
        yield paper.row("  read", verdict["chapter_url"])


def _label(verdict, item):
    """The mark of a verdict or finding, and the number of the guideline."""
    return f"{MARKS[item['status']]:<{MARK}} {verdict['guideline']}"


def _list_lines(reports, errors, paper):
    """Lines about all configs."""
    yield _count(reports, errors)
    for report in reports:
        yield paper.row(MARKS[report.status], _config(report), COLOURS[report.status])
    for error in errors:
        yield paper.row("bad", error, COLOURS["fail"])


def _config(report, quote=str):
    """A config, and whether it does not fit."""
    config = quote(report.facts["config"])
    return f"{config}, does not fit" if words_of.unfit(report) else config


def markdown(reports, errors=()):
    """Reports for a comment on a pull request or the summary of a job: GitHub-flavoured Markdown.

    `errors` are configs that could not be judged, and why.

    Examples
    --------
    >>> from hwdesign.advice.judge import judge
    >>> markdown([judge("gpt2")]).splitlines()[0]
    '### `gpt2` on GB300: **WARN**'
    """
    parts = []
    if errors or len(reports) > 1:
        rows = [f"{_count(reports, errors)}\n", "| | config |", "| :-- | :-- |"]
        rows += [f"| {_mark(report.facts)} | {_config(report, code_span)} |" for report in reports]
        rows += [f"| **bad** | {code_span(error, 600)} |" for error in errors]
        parts.append("\n".join(rows))
    parts += ["\n".join(_markdown_lines(report)) for report in reports]
    return "\n\n".join(parts) + "\n"


def _count(reports, errors):
    """How many configs have which status, in words."""
    found = [report.status for report in reports] + ["bad"] * len(errors)
    counts = []
    for status in (*reversed(REPORT_STATUSES), "bad"):
        if status in found:
            counts.append(f"{found.count(status)} {status}")
    noun = "configs" if len(found) > 1 else "config"
    return f"{len(found)} {noun}: {', '.join(counts)}"


def _markdown_lines(report):
    """Lines of one report, as the text has them."""
    name, where = words_of.title(report)
    yield f"### {code_span(name)} {markdown_text(where)}: **{MARKS[report.status]}**"
    yield f"\n{markdown_text(words_of.summary(report))}"
    for _, words in words_of.alarms(report):
        yield f"\n**{markdown_text(words)}**"
    table = words_of.where(report)
    if table:
        yield ""
        yield from _markdown_table(table)
    for note in report.facts["notes"]:
        yield f"\nNote: {markdown_text(note)}"
    yield ""
    for blame in report.blames:
        yield from _markdown_finding(report, blame)
    rest = words_of.rest(report)
    if rest:
        yield "\n| | guideline | why |\n| :-- | :-- | :-- |"
    for verdict in rest:
        title = f"{verdict['guideline']} {verdict['title']}"
        if verdict["chapter_url"]:
            title = f"[{title}]({verdict['chapter_url']})"
        title += words_of.mark(report, verdict["guideline"])
        told = markdown_text(words_of.why(report, verdict))
        yield f"| {_mark(verdict)} | {title} | {told} |"
    yield "\nJudged:\n"
    for label, words in words_of.head(report):
        shown = code_span(words) if label == "config" else markdown_text(words)
        yield f"- {label}: {shown}"


def _markdown_table(rows):
    """Lines of a table whose first row holds the heads of its columns."""
    for i, (label, cells) in enumerate(rows):
        yield f"| {' | '.join(map(markdown_text, (label, *cells)))} |"
        if i == 0:
            yield "| :-- |" + " --: |" * len(cells)


def _markdown_finding(report, blame):
    """Lines about one finding."""
    guideline, finding = blame.verdict["guideline"], blame.finding
    what = markdown_text(f"{finding['dimension']}: {finding['value']}")
    ignored = words_of.mark(report, guideline)
    address = blame.verdict["chapter_url"]
    number = f"[guideline {guideline}]({address})" if address else f"guideline {guideline}"
    yield f"- {_mark(finding)} {number}: **{what}**{ignored}"
    for label, words in words_of.details(report, blame):
        shown = f"<{words}>" if label == "source" else markdown_text(words)
        yield f"  - {label}: {shown}"


def _mark(item):
    mark = MARKS[item["status"]]
    return f"**{mark}**" if mark.isupper() else mark
