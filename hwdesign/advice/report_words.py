"""Words that all formats for people share: what a fix changes, why cost and price differ, how many
GPUs would hold a model.
"""

import re
from collections import Counter
from dataclasses import replace

LABELS = {"vocab_size": "vocabulary"}
PUZZLES = {  # why a cost is not the step saved, by guideline
    2: "the cost counts the time for a parameter, the step also the parameters that are added",
    3: "the cost leaves out the scores of attention, the step also gains from a smaller cache",
}
MOST_WAYS = 64


def changes(fix):
    """What a fix changes besides plans, where its own text does not name all of it.

    Parameters
    ----------
    fix : dict
        A fix as in report.schema.json.

    Returns
    -------
    str
        Each size before and after; empty where the text of the fix names them all.

    Notes
    -----
    Each number in the text stands for one change, so that equal numbers hide nothing.

    Examples
    --------
    >>> sizes = {
    ...     "layers": {"before": 48, "after": 29},
    ...     "query_heads": {"before": [32], "after": [40]},
    ... }
    >>> (
    ...     changes({"text": "29 layers", "change": sizes}),
    ...     changes({"text": "29 layers, 40 heads", "change": sizes}),
    ... )
    ('layers 48 -> 29, query heads 32 -> 40', '')
    """
    told, words, named = Counter(re.findall(r"\w+", fix["text"])), [], True
    for name, change in fix["change"].items():
        if name in ("attention", "ffn", "layer_kinds"):
            continue
        before, after = (
            x if isinstance(x, list) else [x] for x in (change["before"], change["after"])
        )
        new = Counter(str(x) for x in after if x not in before)
        named = named and bool(new) and new <= told
        told -= new
        shown = (" and ".join(map(str, values)) or "none" for values in (before, after))
        words.append(f"{LABELS.get(name, name.replace('_', ' '))} {' -> '.join(shown)}")
    return "" if named else ", ".join(words)


def enough(case):
    """The same kind of plan over the fewest GPUs that hold a model which does not fit.

    Parameters
    ----------
    case : Case
        What does not fit.

    Returns
    -------
    Case or None
        With more ways of tensor parallelism for attention, doubled up to 64, and of what the
        feed-forward part is cut by; None where no such plan holds it.

    Examples
    --------
    >>> from hwdesign.advice.case import Case
    >>> enough(Case(model="deepseek-r1", recipe="nvfp4")).gpus
    2
    """
    way, times = "ep" if case.ffn.ep > case.ffn.tp else "tp", 2
    while case.attention.tp * times <= MOST_WAYS:
        plans = {
            "attention": replace(case.attention, tp=case.attention.tp * times),
            "ffn": replace(case.ffn, **{way: getattr(case.ffn, way) * times}),
        }
        try:
            new = replace(case, **plans)
        except ValueError:  # a device without a link
            return None
        if new.breakdown and new.breakdown.feasible:
            return new
        times *= 2
    return None
