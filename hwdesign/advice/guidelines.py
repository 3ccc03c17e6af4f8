"""The guidelines: one table, from which all else about them derives.

To add one, write its rule and its entry here; then `scripts/generate_pages.py` brings the schema of
the JSON report up to date.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from hwdesign.advice import plan_rules, rules
from hwdesign.advice.widths import multiples

COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
          "eleven", "twelve")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Guideline:
    """A guideline of the book and its rule.

    Parameters
    ----------
    number : int
        By which `--ignore` and reports know it.
    chapter : str
        Name of its notebook, "01_near_square"; what follows the number names its rule in SARIF.
    title, short : str
        As a heading, and as a word of a table.
    about : str
        What it asks for, in a sentence or two.
    rule : callable
        From a case and limits to a `Verdict` without a number.
    blames : tuple of str
        Dimensions that its findings may have.
    share_of : str
        What its cost is a share of.
    puzzle : str
        Why its cost is not the step that its fix saves; empty where it is.

    Examples
    --------
    >>> GUIDELINES[2].slug, GUIDELINES[6].share_of
    ('tile-alignment', "the stages' time, in which GPUs wait")
    """

    number: int
    chapter: str
    title: str
    short: str
    about: str
    rule: Callable
    blames: tuple
    share_of: str = "the step"
    puzzle: str = ""

    @property
    def slug(self):
        """Words of the chapter's name after its number, joined by hyphens."""
        return "-".join(self.chapter.split("_")[1:])

    def judge(self, case, limits):
        """The verdict of the rule about a case, with the number of the guideline."""
        verdict = self.rule(case, limits)
        findings = tuple(replace(f, guideline=self.number) for f in verdict.findings)
        return replace(verdict, guideline=self.number, findings=findings)


_TABLE = (
    Guideline(
        number=1,
        chapter="01_near_square",
        title="Near-square matrices, no tiny N or K",
        short="near-square",
        about="A product of matrices is fastest when N and K are near each other and neither is "
        "tiny: no narrow experts, no feed-forward width far above the hidden size.",
        rule=rules.near_square,
        blames=("expert width", "feed-forward width"),
    ),
    Guideline(
        number=2,
        chapter="02_tile_alignment",
        title="Dimensions in multiples of 128, better 256 or 512",
        short="multiples of 128",
        about="Widths are multiples of 128 after the split over GPUs, no scale block or row is "
        "cut, and the heads divide.",
        rule=multiples,
        blames=(
            "hidden size",
            "vocabulary",
            "feed-forward width",
            "expert width",
            "shared expert width",
            "latent",
            "query latent",
            "query heads",
            "heads",
        ),
        puzzle="the cost counts the time for a parameter, the step also the parameters that are "
        "added",
    ),
    Guideline(
        number=3,
        chapter="03_wide_over_deep",
        title="Wide over deep",
        short="wide over deep",
        about="At the same number of parameters a wider model with fewer layers needs fewer and "
        "larger operations.",
        rule=rules.wide_over_deep,
        blames=("layers",),
        puzzle="the cost leaves out the scores of attention, the step also gains from a smaller "
        "cache",
    ),
    Guideline(
        number=4,
        chapter="04_low_precision",
        title="Low precision",
        short="low precision",
        about="The lowest precision that the device multiplies moves fewer bytes and multiplies "
        "faster, and so does a cache of fewer bits; what they cost in accuracy is not judged here.",
        rule=rules.low_precision,
        blames=("recipe", "cache"),
    ),
    Guideline(
        number=5,
        chapter="05_expert_parallelism",
        title="Wide expert parallelism",
        short="wide experts",
        about="Experts spread whole over many GPUs see more tokens each than experts that are cut.",
        rule=plan_rules.wide_experts,
        blames=("ffn plan",),
    ),
    Guideline(
        number=6,
        chapter="06_pipeline_patterns",
        title="Regular layer patterns for pipelines",
        short="regular layers",
        about="Layers that fall into equal stages keep every GPU of a pipeline busy.",
        rule=rules.regular_layers,
        blames=("layers", "last stage"),
        share_of="the stages' time, in which GPUs wait",
    ),
    Guideline(
        number=7,
        chapter="07_decoupled_attention",
        title="Attention and feed-forward part decoupled",
        short="decoupled",
        about="Attention and the feed-forward part may be spread over the same GPUs in different "
        "ways, so that the cache is not copied.",
        rule=plan_rules.decoupled,
        blames=("attention plan",),
    ),
)
GUIDELINES = {guideline.number: guideline for guideline in _TABLE}


def counted():
    """How many guidelines there are, as a word.

    >>> counted()
    'seven'
    """
    return COUNTS[len(GUIDELINES)]
