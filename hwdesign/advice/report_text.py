"""Reports for people as plain text on a terminal and as Markdown for a pull request."""

import re
import textwrap

from hwdesign.advice.report_facts import MARKS, chapter
from hwdesign.advice.safe import code_span, markdown_text

COLOURS = {"fail": "1;31", "warn": "1;33", "ok": "32", "not applicable": "2", "not modelled": "2"}
LABEL = 11  # width of a mark or a label with its margin [character]


def text(reports, errors=(), *, width=100, colour=False):
    """Reports for a terminal.

    Parameters
    ----------
    reports : sequence of Report
        What to tell.
    errors : sequence of str
        Configs that could not be read, and why: told where there are several configs.
    width : int
        Longest line, but for an address [character].
    colour : bool
        Whether marks and titles carry ANSI colours; they say the same without.

    Returns
    -------
    str
        Lines without any control character but those of colours.

    Examples
    --------
    >>> from hwdesign.advice.report_facts import judge
    >>> print(text([judge("gpt2")]).splitlines()[0])
    gpt2 on GB300: FAIL
    """

    def paint(words, code):
        return f"\x1b[{code}m{words}\x1b[0m" if colour else words

    def row(label, words, code=None):
        start = f"  {label:<{LABEL - 3}} "
        whole = re.sub(
            " (=|%|->) ?", lambda found: found[0].replace(" ", "\xa0"), words
        )  # no new line before an equals sign
        lines = (
            words
            if words.startswith("https://")
            else textwrap.fill(whole, width - LABEL, break_on_hyphens=False)
        )
        lines = textwrap.indent(start + lines.replace("\xa0", " "), " " * LABEL)[LABEL:]
        return lines.replace(label, paint(label, code), 1) if code else lines

    def lines(report):
        name, rest = report.title
        yield paint(textwrap.fill(f"{name} {rest}: {MARKS[report.status]}", width), "1")
        for label, words in report.head:
            yield row(label, words, COLOURS["fail"] if label in report.loud else None)
        yield ""
        for verdict in report.facts["verdicts"]:
            mark = MARKS[verdict["status"]]
            words = f"{verdict['title']}{report.mark(verdict['guideline'])} - {report.why(verdict)}"
            yield row(f"{mark:<4} {verdict['guideline']}", words, COLOURS[verdict["status"]])
        for verdict in report.facts["verdicts"]:
            for finding in verdict["findings"]:
                mark = MARKS[finding["status"]]
                words = (
                    f"{finding['dimension']}: {finding['value']}{report.mark(verdict['guideline'])}"
                )
                yield "\n" + row(
                    f"{mark:<4} {verdict['guideline']}", words, COLOURS[finding["status"]]
                )
                yield from (
                    row(f"  {label}", words)
                    for label, words in report.details(finding, verdict["guideline"])
                )
                if address := verdict["chapter_url"]:
                    yield row("  read", address)
        mark = paint(MARKS[report.status], COLOURS[report.status])
        yield (
            f"\n{report.summary}".replace("FAIL", mark)
            if report.need
            else f"\n{mark}: {report.summary}"
        )

    def every():
        yield _count(reports, errors)
        for report in reports:
            words = f"{report.facts['config']}{', does not fit' * bool(report.need)}"
            yield row(MARKS[report.status], words, COLOURS[report.status])
        yield from (row("bad", error, COLOURS["fail"]) for error in errors)

    parts = ["\n".join(lines(report)) for report in reports]
    parts += ["\n".join(every())] if len(reports) + len(errors) > 1 else []
    return "\n\n\n".join(parts) + "\n"


def markdown(reports, errors=()):
    """Reports for a comment on a pull request or the summary of a job.

    Parameters
    ----------
    reports : sequence of Report
        What to tell.
    errors : sequence of str
        Configs that could not be read, and why.

    Returns
    -------
    str
        GitHub-flavoured Markdown.

    Examples
    --------
    >>> from hwdesign.advice.report_facts import judge
    >>> markdown([judge("gpt2")]).splitlines()[0]
    '### `gpt2` on GB300: **FAIL**'
    """
    parts = ["\n".join(_markdown_lines(report)) for report in reports]
    if len(reports) + len(errors) > 1 or errors:
        words = (
            f"{code_span(r.facts['config'])}{', does not fit' * bool(r.need)}" for r in reports
        )
        rows = [f"| {_mark(r.facts)} | {what} |" for r, what in zip(reports, words, strict=True)]
        rows += [f"| **bad** | {code_span(error, 600)} |" for error in errors]
        parts.insert(
            0, "\n".join([f"{_count(reports, errors)}\n", "| | config |", "| :-- | :-- |", *rows])
        )
    return "\n\n".join(parts) + "\n"


def _count(reports, errors):
    found = [*(report.status for report in reports), *(["not judged"] * len(errors))]
    counts = (
        f"{found.count(status)} {status}"
        for status in ("fail", "warn", "ok", "not judged")
        if status in found
    )
    return f"{len(found)} config{'s' * (len(found) > 1)}: {', '.join(counts)}"


def _markdown_lines(report):
    name, rest = report.title
    yield f"### {code_span(name)} {markdown_text(rest)}: **{MARKS[report.status]}**"
    yield f"\n{markdown_text(report.summary)}"
    yield "\n| | guideline | why |\n| :-- | :-- | :-- |"
    for verdict in report.facts["verdicts"]:
        title, address = f"{verdict['guideline']} {verdict['title']}", chapter(verdict["guideline"])
        linked = f"[{title}]({address})" if address else title
        yield (
            f"| {_mark(verdict)} | {linked}{report.mark(verdict['guideline'])} | "
            f"{markdown_text(report.why(verdict))} |"
        )
    yield ""
    for verdict in report.facts["verdicts"]:
        for finding in verdict["findings"]:
            what = markdown_text(f"{finding['dimension']}: {finding['value']}")
            yield (
                f"- {_mark(finding)} guideline {verdict['guideline']}: "
                f"**{what}**{report.mark(verdict['guideline'])}"
            )
            yield from (
                f"  - {label}: {markdown_text(words)}"
                for label, words in report.details(finding, verdict["guideline"])
            )
    yield "\nJudged:\n"
    yield from (
        f"- {label}: {code_span(words) if label == 'config' else markdown_text(words)}"
        for label, words in report.head
    )


def _mark(item):
    mark = MARKS[item["status"]]
    return f"**{mark}**" if mark.isupper() else mark
