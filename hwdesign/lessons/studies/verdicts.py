"""The checklist over many models at once, beside published servers, and as tables."""

import itertools
from dataclasses import replace

import numpy as np

from hwdesign._check import choice
from hwdesign.advice.case import Case, short_plans
from hwdesign.advice.checklist import checklist
from hwdesign.advice.guidelines import GUIDELINES
from hwdesign.advice.shapes import compared_models
from hwdesign.advice.verdict import Limits
from hwdesign.lessons.tables import Table
from hwdesign.models import config
from hwdesign.timing.served import served_points

PLANS = ("tp", "dp", "moe_tp", "moe_ep")
SETTING = (
    "model",
    "device",
    "framework",
    "precision",
    "moe_precision",
    "cache",
    "wide",
    *PLANS,
    "concurrency",
    "input_tokens",
    "output_tokens",
)
PAIRS = {
    "experts": ("moe_tp", "moe_ep"),
    "plans": PLANS,
    "precision": ("precision", "moe_precision", "wide"),
}  # what a pair may differ in
SHORT = {number: guideline.short for number, guideline in GUIDELINES.items()}
STAGED = 6  # the guideline that speaks of stages
WORDS = {"not applicable": "n/a", "not modelled": "?"}


def book_models():
    """Names of the models that the chapters compare: those of the checker's table of bands, so that
    a config which is added changes no chapter.
    """
    return tuple(row["model"] for row in compared_models())


def gallery(names=None, *, device="GB300", ways=8, stages=4, batch=64, context=8192):
    """The verdicts about many shipped models in one setting: tensor parallel over `ways` GPUs, in
    the checkpoint's formats, with the cache of the engine that a case takes by default.

    Parameters
    ----------
    names : sequence of str, optional
        Shipped configs; by default those of the book.
    device : str or Device
        Accelerator.
    ways : int
        GPUs, all of them tensor parallel.
    stages : int
        Pipeline stages that guideline 6 is judged with, each on as many GPUs.
    batch, context : int
        Sequences in flight; tokens that each sees [token].

    Returns
    -------
    dict of str to tuple of Verdict
        Name to its verdicts, in the order of the guidelines.

    Raises
    ------
    ValueError
        If a name is unknown or a number out of range.

    Notes
    -----
    Source: `hwdesign.advice.checklist`.

    Examples
    --------
    >>> [v.status for v in gallery(["llama-3.1-8b"])["llama-3.1-8b"]]
    ['ok', 'ok', 'ok', 'warn', 'not applicable', 'ok', 'ok']
    """
    found = {}
    for name in names or book_models():
        attention, ffn = short_plans(tp=ways)
        load = {"device": device, "batch": batch, "context": context}
        case = Case(model=config.load(name), attention=attention, ffn=ffn, **load)
        attention, ffn = short_plans(tp=ways, pp=stages)
        staged = replace(case, attention=attention, ffn=ffn)
        verdicts = []
        for verdict in checklist(case).verdicts:
            if verdict.guideline == STAGED:
                verdict = GUIDELINES[STAGED].judge(staged, Limits())
            verdicts.append(verdict)
        found[name] = tuple(verdicts)
    return found


def verdict_cost(verdict):
    """Largest cost among the findings of a verdict.

    Parameters
    ----------
    verdict : Verdict
        Of one guideline.

    Returns
    -------
    float or None
        Share of the step [dimensionless]; None without a cost.

    Notes
    -----
    Source: `hwdesign.advice.verdict`.

    Examples
    --------
    >>> verdict_cost(gallery(["gpt-oss-20b"])["gpt-oss-20b"][5]) is None
    True
    """
    return max((f.cost for f in verdict.findings if f.cost is not None), default=None)


def checklist_table(found, caption):
    """A checklist as a table, one row a finding, and one for each guideline without.

    Parameters
    ----------
    found : Checklist
        A verdict of each guideline.
    caption : str
        What it is about, plain text.

    Returns
    -------
    Table
        Guideline, verdict, cost [per cent of the step], what, the first of the fixes.

    Examples
    --------
    >>> from hwdesign.models import config
    >>> checklist_table(checklist(Case(model=config.load("gpt2"))), "GPT-2").rows[1]
    ['2 multiples of 128', 'warn', '0.0', 'vocabulary 50257', 'vocabulary 50304']
    """
    rows = []
    for verdict in found.verdicts:
        title = f"{verdict.guideline} {SHORT[verdict.guideline]}"
        for finding in verdict.findings:
            what = f"{finding.dimension} {finding.value}"
            cost, fix = _percent(finding.cost), _fix(finding)
            rows.append([title, finding.status, cost, what, fix])
        if not verdict.findings:
            status = WORDS.get(verdict.status, verdict.status)
            rows.append([title, status, "–", verdict.reason, "–"])
    return Table(
        ["guideline", "verdict", "cost [%]", "what", "fix"],
        rows,
        caption=caption,
        kinds=["modelled"],
    )


def _percent(cost):
    return "–" if cost is None else f"{100 * cost:.1f}"


def _fix(finding):
    if not finding.fix:
        return "–"
    worse = [f"{guideline} gets {after}" for guideline, _, after in finding.fix.worsens]
    if worse:
        return f"{finding.fix.text} ({'; '.join(worse)})"
    return finding.fix.text


def served_pairs(differ):
    """Pairs of published serving points that differ in one choice, beside the same two by the
    model.

    Parameters
    ----------
    differ : str
        "experts": how the experts are spread, all else equal; "plans": that or the attention plan,
        on the same number of GPUs; "precision": the format of the weights, with what their
        checkpoint leaves in BF16.

    Returns
    -------
    dict of str to ndarray, shape (pairs,)
        model; device; published and modelled, time of the second over that of the first
        [dimensionless]; first and second, indices into ``served_points(matched=True)``. The second
        is the one that the model calls faster.

    Raises
    ------
    ValueError
        If `differ` is none of the three.

    Notes
    -----
    Engine, load and everything else are the same in a pair; the runs may differ in version and
    date. Source: `served_points`.

    Examples
    --------
    >>> pairs = served_pairs("experts")
    >>> len(pairs["model"]), bool((pairs["modelled"] <= 1).all())
    (57, True)
    """
    free, points, groups = choice("differ", differ, PAIRS), served_points(matched=True), {}
    for i, key in enumerate(
        zip(
            *(points[name].astype(str).tolist() for name in SETTING if name not in free),
            strict=True,
        )
    ):
        groups.setdefault(key, []).append(i)
    modelled = points["modelled"]
    both = (pair for group in groups.values() for pair in itertools.combinations(group, 2))
    pairs = [
        sorted(pair, key=lambda i: -modelled[i]) for pair in both if _asked(points, *pair, differ)
    ]
    first, second = np.array(pairs).T
    found = {
        "published": points["tpot"][second] / points["tpot"][first],
        "modelled": modelled[second] / modelled[first],
    }
    return {
        "model": points["model"][first],
        "device": points["device"][first],
        **found,
        "first": first,
        "second": second,
    }


def _asked(points, i, j, differ):
    """Whether two points use equally many GPUs and, where formats are compared, weights of
    different ones.
    """
    same = points["tp"][i] * points["dp"][i] == points["tp"][j] * points["dp"][j]
    return same and (differ != "precision" or points["precision"][i] != points["precision"][j])
