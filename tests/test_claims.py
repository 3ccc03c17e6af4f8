"""Numbers in a chapter's prose: each is held by a claim beside it or listed free.

A *claims cell* is a hidden code cell with ``claims({...})``. Its text is what stands in the
Markdown cells between the claims cell before it and itself: there each of its snippets must occur,
and each number of that text must lie in one of them. Numbers that nothing computes stand in the
notebook's metadata, ``hwdesign.free_numbers``, as ``{text: reason}``. A claim's value must come
from the package: it contains a name that was imported from `hwdesign` or was computed from one. A
variable bound to plain numbers, sizes that the author chose and the code computes with, is a value
only if the metadata name it in ``hwdesign.inputs``.
"""

import ast
import json
import re

import pytest
from conftest import ROOT

from hwdesign.lessons.claims import claims, numbers, plain

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
# Chapters whose prose still stands in `say`. One leaves when it is rewritten; none is added.
NOT_YET = {
    "00_landscape",
    "02_tile_alignment",
    "03_wide_over_deep",
    "04_low_precision",
    "05_expert_parallelism",
    "06_pipeline_patterns",
    "07_decoupled_attention",
    "08_design_checklist",
}
CONVERTED = [pytest.param(path, id=path.stem) for path in NOTEBOOKS if path.stem not in NOT_YET]
REASONS = {
    "date": "a year or a day",
    "name": "a version or a part of a name",
    "quoted": "printed by the source that the sentence names",
    "choice": "set by the author: an answer offered, a threshold, minutes of reading",
    "definition": "true by convention: the bits of a format, a prefix, a count of things listed",
    "reference": "points to a page, an item or a volume",
}
MOST_FREE, MOST_INPUTS = 20, 12
HIDDEN = {"hide-input", "hide-cell", "remove-input", "remove-cell"}

# What is no number of the prose.
NO_PROSE = [
    r"```[\s\S]*?```",
    r"`[^`]*`",
    r"\]\([^)]*\)",
    r"https?://\S+",
    r"</?[A-Za-z][^>]*>",
    r"(?m)^#+ .*$",
    r"\\tag\{.*?\}",
    r"(?m)^\d+\. ",
    r"(?i)\b(?:figure|table|chapter|exercise|equation|guideline|solution|section|step|candidate)s?"
    r" \(?\d+(?:\.\d+)?\)?(?:(?:,| and| to| or|–)+ ?\(?\d+(?:\.\d+)?\)?)*",
]
MATHS = re.compile(r"\$\$.+?\$\$|\$[^$]+\$", re.S)
# In maths a number is a statement at the beginning or after a relation, unless a factor follows it:
# "N = 512", not "2MNK".
STATED = re.compile(
    r"""(?:^\$+|[=<>]|\\(?:approx|leq?|geq?|sim)\b) (?:\s|\\,)*
    (?P<number>\d[\d.,]*+ (?:/[\d.]++)? (?:\s*\\(?:times|cdot)\s*\d++)* (?:\^\{?-?\d++\}?)?)
    (?!(?:\s|\\[,;!])*(?:[A-Za-z(/'\[]|\\(?!text|%|leq?\b|geq?\b|approx|quad|qquad|ldots)))""",
    re.X,
)
UNITS = "times|fold|per cent|percent|GPUs|chips|racks|bytes|bits|tokens|\\w*seconds|minutes|hours"
NOUNS = rf"[ -]({UNITS})\b"


def load(path):
    return json.loads(path.read_text("utf8"))


def source(cell):
    return "".join(cell["source"])


def tree(cell):
    """A code cell as Python sees it: IPython's own lines become ``pass``."""
    return ast.parse(re.sub(r"^(\s*)[%!].*$", r"\1pass", source(cell), flags=re.M))


def code_cells(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def tags(cell):
    return set(cell["metadata"].get("tags", []))


def calls(node, name):
    """Calls of a plain function name anywhere below a node."""
    found = (call for call in ast.walk(node) if isinstance(call, ast.Call))
    return [call for call in found if isinstance(call.func, ast.Name) and call.func.id == name]


def held_by(cell):
    """``{snippet: expression}`` of a cell's claims; anything but a dict written out is refused."""
    held = {}
    top = [statement.value for statement in tree(cell).body if isinstance(statement, ast.Expr)]
    for call in calls(tree(cell), "claims"):
        table = call.args[0] if len(call.args) == 1 and not call.keywords else None
        keys = table.keys if isinstance(table, ast.Dict) else [None]
        written = all(isinstance(key, ast.Constant) and isinstance(key.value, str) for key in keys)
        assert written and any(ast.dump(call) == ast.dump(one) for one in top), (
            f"cell {cell['id']!r}: write claims({{'text': value, ...}}) as a line of its own, "
            "the texts as plain strings"
        )
        held |= {key.value: value for key, value in zip(keys, table.values, strict=True)}
    return held


def groups(notebook):
    """``(Markdown, claims cell or None)``: the text since the last claims cell and its claims."""
    texts = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            texts.append(source(cell))
        elif cell["cell_type"] == "code" and calls(tree(cell), "claims"):
            yield "\n\n".join(texts), cell
            texts = []
    yield "\n\n".join(texts), None


def blanked(found):
    """A match with another character for each letter and digit, but for names of LaTeX commands."""
    return re.sub(r"(\\[A-Za-z]+)|[^\W_]", lambda one: one[1] or "◦", found[0])


def stated(found):
    """Maths with its symbols' numbers blanked."""
    kept = {i for match in STATED.finditer(found[0]) for i in range(*match.span("number"))}
    return "".join(
        "◦" if char.isdigit() and i not in kept else char for i, char in enumerate(found[0])
    )


def equations(notebook):
    """Patterns of "(1.4)" for each equation of a chapter."""
    tagged = re.findall(r"\\tag\{(.*?)\}", "".join(map(source, notebook["cells"])))
    return [rf"\({re.escape(tag)}\)" for tag in tagged]


def prose_numbers(markdown, also_no_prose=()):
    """The numbers of the prose that need a claim, with their places in ``plain(markdown)``."""
    text = MATHS.sub(stated, markdown)
    for pattern in [*NO_PROSE, *also_no_prose]:
        text = re.sub(pattern, blanked, text)
    text = plain(text)
    assert len(text) == len(plain(markdown))
    for number in numbers(text):
        if any(char.isdigit() for char in number.text) or needs_claim(number, text):
            yield number


def needs_claim(number, text):
    """Whether a number word states a quantity: a share, "twice", "four times", "two GPUs"."""
    if re.search(r"half|halves|twice|double|[ -]", number.text, re.I):
        return True
    if text[number.start : number.end + 6].lower() == "two times":  # "the longer of two times"
        return False
    return bool(re.match(NOUNS, text[number.end :]))


def places(snippet, text):
    """Where a snippet stands in a text, as whole words."""
    pattern = rf"(?<![\w.])(?<!\d,){re.escape(plain(snippet).strip())}(?!\w|[.,]\d)"
    return [match.span() for match in re.finditer(pattern, text)]


def covered(number, spans):
    return any(
        start <= number.start and number.start + len(number.text) <= end for start, end in spans
    )


def free_numbers(notebook):
    return notebook["metadata"].get("hwdesign", {}).get("free_numbers", {})


def inputs(notebook):
    return notebook["metadata"].get("hwdesign", {}).get("inputs", [])


def snippets(cell, text):
    """Places of the claims of a cell in the text beside it; of no cell, none."""
    return [span for snippet in (held_by(cell) if cell else ()) for span in places(snippet, text)]


def unheld(notebook):
    """Numbers of the prose that neither a claim nor the free list answers for."""
    references = equations(notebook)
    for markdown, cell in groups(notebook):
        text = plain(markdown)
        spans = snippets(cell, text)
        for free in free_numbers(notebook):
            spans += places(free, text)
        for number in prose_numbers(markdown, references):
            if not covered(number, spans):
                yield advice(number, text, cell)


def advice(number, text, cell):
    """What to do with a number that nothing holds."""
    around = text[max(0, number.start - 40) : number.end + 30]
    where = f"claims({{...}}) of cell {cell['id']!r}" if cell else "a claims({...}) cell after it"
    return (
        f"nothing holds {number.text!r} in '...{around}...': add it with its unit or noun to {where} "
        f"or to hwdesign.free_numbers in the notebook's metadata with a reason of {sorted(REASONS)}"
    )


def stale(notebook):
    """Claims that no longer stand in the text beside them, and snippets found too easily."""
    for markdown, cell in groups(notebook):
        for snippet in held_by(cell) if cell else ():
            if not places(snippet, plain(markdown)):
                yield (
                    f"cell {cell['id']!r}: {snippet!r} does not stand in the Markdown between the "
                    "claims cell before it and itself: copy it from the text, or remove the claim"
                )
            if re.fullmatch(r"\d\d?", snippet):
                yield f"cell {cell['id']!r}: {snippet!r} is found too easily: add the unit or noun"


class Held:
    """Names computed from some first names, statement after statement, as the notebook runs."""

    def __init__(self, first, inputs=()):
        self.first, self.inputs, self.names = first, set(inputs), set(inputs)

    def uses(self, node):
        """Whether an expression, or a statement with all in it, contains a held name."""
        return any(isinstance(n, ast.Name) and n.id in self.names for n in ast.walk(node))

    def bind(self, target, held):
        """Note that the names of a target, `a`, `a, b` or `a[i]`, get a held value or another."""
        for node in ast.walk(target):
            if isinstance(node, ast.Name) and held:
                self.names.add(node.id)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self.names -= {node.id} - self.inputs

    def assign(self, target, value):
        """One target; a tuple of as many values is bound one by one."""
        both = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
        if both and len(target.elts) == len(value.elts):
            for one, its in zip(target.elts, value.elts, strict=True):
                self.assign(one, its)
        else:
            self.bind(target, self.uses(value))

    def take(self, statement):
        """Names that an import brings from where the first names come from."""
        origin = f"{getattr(statement, 'module', '')}.".lstrip(".")
        for alias in statement.names:
            if self.first(origin + alias.name):
                self.names.add(alias.asname or alias.name.split(".")[0])

    def follow(self, statement):
        """Take note of what one statement binds."""
        match statement:
            case ast.Import() | ast.ImportFrom():
                self.take(statement)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self.assign(target, value)
            case (
                ast.AugAssign(target=ast.Name(id=name), value=value)
                | ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name))) as value)
            ):  # `x |= ...`, `rows.append(...)`
                self.names |= {name} if self.uses(value) else set()
            case ast.FunctionDef(name=name):
                self.names |= {name} if self.uses(statement) else set()
            case ast.For(target=target, iter=values, body=body):
                self.bind(target, self.uses(values))
                for inner in body:
                    self.follow(inner)
            case ast.If(body=body) | ast.With(body=body):
                for inner in body:
                    self.follow(inner)


def from_package(name):
    return name.split(".")[0] == "hwdesign"


def constant(notebook):
    """Claims whose value the code does not compute."""
    held = Held(from_package, inputs(notebook))
    for cell in code_cells(notebook):
        for statement in tree(cell).body:
            for snippet, part in values(statement):
                if not held.uses(part):
                    yield (
                        f"cell {cell['id']!r}: the value of {snippet!r} is the constant "
                        f"{ast.unparse(part)!r}: compute it by the package; a size that the code "
                        "computes with may be named in hwdesign.inputs"
                    )
            held.follow(statement)


def values(statement):
    """``(snippet, expression)`` of each claim of a statement; of a tuple, each of its values."""
    for call in calls(statement, "claims"):
        for key, value in zip(call.args[0].keys, call.args[0].values, strict=True):
            for part in value.elts if isinstance(value, ast.Tuple | ast.List) else [value]:
                yield key.value, part


def wrong_free(notebook):
    """Entries of the free list that are too many, without a reason, or of no use."""
    free = free_numbers(notebook)
    if len(free) > MOST_FREE:
        yield f"{len(free)} free numbers, at most {MOST_FREE}: give others a claim, or drop them"
    for text, reason in free.items():
        if reason not in REASONS:
            yield f"free number {text!r} has the reason {reason!r}: take one of {sorted(REASONS)}"
        elif not text_is_used(notebook, text):
            yield f"free number {text!r} is not used, or a claim holds it: remove it from the list"
    if len(inputs(notebook)) > MOST_INPUTS:
        yield f"{len(inputs(notebook))} inputs, at most {MOST_INPUTS}: compute by the package"
    for name in inputs(notebook):
        if not input_is_used(notebook, name):
            yield f"input {name!r} needs a claim and a computation that have it: use or remove it"


def text_is_used(notebook, free):
    """Whether a free text stands over a number that no claim holds."""
    references = equations(notebook)
    for markdown, cell in groups(notebook):
        text = plain(markdown)
        mine, held = places(free, text), snippets(cell, text)
        for number in prose_numbers(markdown, references):
            if covered(number, mine) and not covered(number, held):
                return True
    return False


def input_is_used(notebook, name):
    """Whether a claim has this variable, and the code computes with it elsewhere."""
    claimed, computed = False, False
    for cell in code_cells(notebook):
        for statement in tree(cell).body:
            loads = [n for n in ast.walk(statement) if isinstance(n, ast.Name) and n.id == name]
            if all(isinstance(load.ctx, ast.Store) for load in loads):
                continue
            if calls(statement, "claims"):
                claimed = True
            elif not isinstance(statement, ast.Assert):
                computed = True
    return claimed and computed


def badly_shaped(notebook):
    """Cells too wide or too long to be read, claims that show, sentences that stand in Python."""
    live = Held(lambda name: name == "hwdesign.lessons.live")
    for cell in code_cells(notebook):
        if cell["id"] != "bootstrap":
            yield from too_large(cell)
        if calls(tree(cell), "claims") and "remove-cell" not in tags(cell):
            yield f"cell {cell['id']!r} holds claims: tag it remove-cell, so that no page shows it"
        for statement in tree(cell).body:
            if calls(statement, "say") and not live.uses(statement):
                yield (
                    f"cell {cell['id']!r}: `say` is for what the reader's machine measured; "
                    "write this as Markdown with claims"
                )
            live.follow(statement)


def too_large(cell):
    """A visible cell beyond 12 lines of 88 columns and 400 characters, a hidden one beyond 100."""
    columns, most, size = (100, None, None) if HIDDEN & tags(cell) else (88, 12, 400)
    rows, characters = source(cell).splitlines(), len(source(cell))
    widest = max(map(len, rows))
    if widest > columns or (most and (len(rows) > most or characters > size)):
        limits = (
            f"{most} lines, {columns} columns, {size} characters" if most else f"{columns} columns"
        )
        yield (
            f"cell {cell['id']!r} has {len(rows)} lines of up to {widest} columns, {characters} "
            f"characters, at most {limits}: split it, or hide what no reader needs"
        )


def prose_in_strings(notebook):
    """Words in strings of code against words in Markdown."""
    strings = [
        node.value
        for cell in code_cells(notebook)
        for node in ast.walk(tree(cell))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    text = [source(cell) for cell in notebook["cells"] if cell["cell_type"] == "markdown"]
    in_code, in_text = (len(" ".join(parts).split()) for parts in (strings, text))
    if in_code >= in_text:
        yield f"{in_code} words in strings of Python, {in_text} in Markdown: move the sentences"


CHECKS = [unheld, stale, constant, wrong_free, badly_shaped, prose_in_strings]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("path", CONVERTED)
def test_chapter_keeps_the_rules(path, check):
    complaints = list(check(load(path)))
    assert not complaints, "\n".join(complaints)


def test_the_list_of_chapters_still_to_convert_shrinks():
    assert {path.stem for path in NOTEBOOKS} >= NOT_YET, "remove from NOT_YET what is no notebook"
    converted = {
        path.stem
        for path in NOTEBOOKS
        if any(calls(tree(cell), "claims") for cell in code_cells(load(path)))
    }
    assert not converted & NOT_YET, (
        f"remove from NOT_YET what has claims: {sorted(converted & NOT_YET)}"
    )
    assert len(NOT_YET) <= 8


@pytest.mark.parametrize("path", CONVERTED)
def test_every_number_of_a_chapter_is_looked_at(path):
    bare = load(path)
    bare["cells"] = [cell for cell in bare["cells"] if cell["cell_type"] == "markdown"]
    bare["metadata"] = {}
    assert len(list(unheld(bare))) > 100


AGREE = {
    "2004": 2004.4,
    "14 %": 0.1449,
    "14%": 0.136,
    "12 per cent": 0.12,
    "1.9 times": 1.94,
    "1.46x": 1.456,
    "23 µs": 2.33e-5,
    "2,000 tokens": 2000.4,
    "15 PFLOP/s": 15e15,
    "4.53 MB": 4530176,
    "288 GB": 288e9,
    "16 GiB": 2**34,
    "336 ns": 3.364e-7,
    "0.98 byte/kFLOP": 0.000977,
    "GB300 at 8 TB/s": 8e12,
    "15 × 10^15": 15e15,
    "15 × 10¹⁵": 15e15,
    r"$15 \times 10^{15}$": 15e15,
    r"$HH' = 2^{24}$": 2**24,
    "10⁶": 1e6,
    "67 million": 67108864,
    "70.6 billion": 70.55e9,
    "4-bit": 4,
    "-3.5 %": -0.0352,
    "4.9 to 5.3 PFLOP/s": (4.9e15, 5.3e15),
    "101, 100 and 98 µs": (101e-6, 100e-6, 98e-6),
    "8192 × 10240": (8192, 10240),
    "1/3.5": 1 / 3.5,
    "937.5": 937.5,
    "938": 937.5,
    "half": 0.51,
    "twice": 1.97,
    "doubles": 2.04,
    "a third": 0.327,
    "two thirds": 0.68,
    "two-thirds": 2 / 3,
    "an eighth": 0.125,
    "Eight times": 8,
    "about 2000": 1850,
    "about a third": 0.353,
    "nearly 2000": 1850,
    "almost half": 0.47,
    "just over 3 times": 3.2,
    "more than half": 0.7,
    "less than a quarter": 0.22,
    "about 3 times": 3.4,
    "FP8 on 2 H100": 2,
    "Llama-3.1-70B has 80 layers": 80,
}
DIFFER = {
    "2004": (2004.6, "2005"),
    "14 %": (0.146, "15"),
    "1.9 times": (1.96, "2.0"),
    "23 µs": (23.0, "23000000"),
    "2,000": (2101, "2,101"),
    "15 PFLOP/s": (15e12, "0"),
    "4.53 MB": (4.53e9, "4530.00"),
    "15 × 10^15": (16e15, "16"),
    "2^24": (2**24 + 1, "1.678e+07"),
    "half": (0.53, "0.53"),
    "twice": (2.2, "2.2"),
    "about 2000": (2300, "2300"),
    "nearly 2000": (2003, "2003"),
    "more than half": (0.8, "0.8"),
    "more than a third": (0.32, "0.32"),
    "less than a quarter": (0.26, "0.26"),
    "just over 3": (2.9, "3"),
    "4.9 to 5.3 PFLOP/s": ((4.9e15, 5.6e15), "5.6"),
    "1/16": (0.0626, "0.0626"),
    "0.12.0": (0.12, "0.12"),
}


@pytest.mark.parametrize("snippet", AGREE)
def test_claim_agrees(snippet):
    assert claims({snippet: AGREE[snippet]}) is None


@pytest.mark.parametrize("snippet", DIFFER)
def test_claim_differs_and_says_what_to_write(snippet):
    value, should = DIFFER[snippet]
    with pytest.raises(
        AssertionError,
        match=rf"{re.escape(repr(snippet))}: the code gives .* should say {re.escape(should)}$",
    ):
        claims({snippet: value})


@pytest.mark.parametrize(
    "snippet, value, message",
    [
        ("no number", 1, "0 numbers"),
        ("N = 3 and 4", 3, "2 numbers"),
        ("3 tokens", (3, 4), "2 values"),
        ("3", "3", "value of '3'"),
        ("3", float("nan"), "finite"),
        ("3", None, "value of '3'"),
        ("a GB300", 300, "0 numbers"),
    ],
)
def test_claim_that_cannot_be_compared_is_refused(snippet, value, message):
    with pytest.raises(ValueError, match=message):
        claims({snippet: value})


def test_all_differences_are_told_at_once():
    with pytest.raises(AssertionError, match="'3 GB'(.|\\n)*'4 GB'"):
        claims({"3 GB": 1e9, "4 GB": 1e9, "5 GB": 5e9})


TEXT = (
    "On a GB300 (FP8) the ridge is **1875 FLOP/byte**, at $N = 512$, since 2009: $2MNK$ by "
    "(1.1), `x = 7`, "
    "Figure 3. $$x = 2y \\tag{1.1}$$" + " word" * 40
)
CODE = """import hwdesign as hw
from hwdesign.lessons.claims import claims
n = 512
ridge = hw.GB300.ridge('nvfp4')
work = 2 * n"""
HOLD = "claims({'1875 FLOP/byte': ridge, 'N = 512': n})"


def made(*cells, free=(), inputs=("n",)):
    """A notebook of Markdown and code; a cell is code if it imports or claims."""

    def cell(i, text):
        kind = "code" if re.match("import|claims|say|if 0", text) else "markdown"
        hidden = {"tags": ["remove-cell"] if "claims({" in text else []}
        return {"cell_type": kind, "id": f"c{i}", "metadata": hidden, "source": [text]}

    free = {"2009": "date"} | dict(free)
    return {
        "cells": [cell(i, text) for i, text in enumerate(cells)],
        "metadata": {"hwdesign": {"free_numbers": free, "inputs": list(inputs)}},
    }


def test_a_sound_notebook_passes():
    sound = made(CODE, TEXT, HOLD)
    assert [complaint for check in CHECKS for complaint in check(sound)] == []


BAD = [
    (
        "number that nothing holds",
        unheld,
        made(CODE, TEXT + " It takes 14 %.", HOLD),
        r"nothing holds '14' in .*claims\(.*'c2'",
    ),
    (
        "number in words",
        unheld,
        made(CODE, TEXT + " It takes twice as long.", HOLD),
        "nothing holds 'twice'",
    ),
    (
        "number stated in maths",
        unheld,
        made(CODE, TEXT + " Then $K = 2004$.", HOLD),
        "nothing holds '2004'",
    ),
    (
        "number after the last claims",
        unheld,
        made(CODE, TEXT, HOLD, "Then 66 GPUs."),
        "nothing holds '66'.*a claims.* cell after it",
    ),
    (
        "number beside a longer one",
        unheld,
        made(CODE, TEXT + " 18750 and 1.1875", HOLD),
        "nothing holds '18750'",
    ),
    (
        "claim of another cell",
        unheld,
        made(CODE, TEXT, HOLD, "Again 1875 FLOP/byte.", "claims({'66 GPUs': ridge})"),
        "'1875'",
    ),
    (
        "text edited",
        stale,
        made(CODE, TEXT.replace("1875", "1900"), HOLD),
        "'1875 FLOP/byte' does not stand .* copy it from the text",
    ),
    ("claim before its text", stale, made(CODE, HOLD, TEXT), "does not stand"),
    (
        "snippet found anywhere",
        stale,
        made(CODE, "It takes 8 of them.", "claims({'8': ridge})"),
        "add the unit or noun",
    ),
    (
        "literal",
        constant,
        made(CODE, TEXT, "claims({'1875 FLOP/byte': 1875.0})"),
        "the constant '1875.0': compute it",
    ),
    (
        "sum of literals",
        constant,
        made(CODE, TEXT, "claims({'1875 FLOP/byte': 15e15 / 8e12})"),
        "the constant",
    ),
    (
        "literal in a call",
        constant,
        made(CODE, TEXT, "claims({'1875 FLOP/byte': float(np.array([1875])[0])})"),
        "the constant",
    ),
    (
        "literal in a tuple",
        constant,
        made(CODE, TEXT, "claims({'1875 and 3': (ridge, 3)})"),
        "the constant '3'",
    ),
    (
        "name of a literal",
        constant,
        made(CODE + "\na = 1875\nb = a", TEXT, "claims({'1875 FLOP/byte': b})"),
        "the constant 'b'",
    ),
    (
        "rebound name",
        constant,
        made(CODE + "\nridge = 1875", TEXT, "claims({'1875 FLOP/byte': ridge})"),
        "the constant 'ridge'",
    ),
    (
        "loop over literals",
        constant,
        made(CODE + "\nfor a in (1, 2):\n    b = a", TEXT, "claims({'1875': b})"),
        "the constant 'b'",
    ),
    (
        "input that is not listed",
        constant,
        made(CODE, TEXT, HOLD, inputs=()),
        "the constant 'n'.*hwdesign.inputs",
    ),
    (
        "input that nothing computes with",
        wrong_free,
        made(CODE.replace("2 * n", "2"), TEXT, HOLD),
        "input 'n' needs",
    ),
    (
        "one free number too many",
        wrong_free,
        made(CODE, TEXT, HOLD, free={str(i): "date" for i in range(20)}),
        "21 free .*at most 20",
    ),
    (
        "too many inputs",
        wrong_free,
        made(CODE, TEXT, HOLD, inputs="abcdefghijklm"),
        "13 inputs, at most 12",
    ),
    (
        "free without a reason",
        wrong_free,
        made(CODE, TEXT, HOLD, free={"1875": "because"}),
        "take one of",
    ),
    (
        "free but held",
        wrong_free,
        made(CODE, TEXT, HOLD, free={"1875": "quoted"}),
        "'1875' is not used, or a claim holds it",
    ),
    (
        "free but gone",
        wrong_free,
        made(CODE, TEXT, HOLD, free={"66 GPUs": "quoted"}),
        "'66 GPUs' is not used",
    ),
    (
        "wide visible cell",
        badly_shaped,
        made(CODE + "\nx = " + "1 + " * 30 + "1", TEXT, HOLD),
        "at most 12 lines, 88 columns",
    ),
    ("long visible cell", badly_shaped, made(CODE + "\nx = 1" * 9, TEXT, HOLD), "14 lines"),
    (
        "wide hidden cell",
        badly_shaped,
        made(CODE, TEXT, HOLD + "  # " + "x" * 60),
        "at most 100 columns",
    ),
    (
        "visible claims",
        badly_shaped,
        made(CODE, TEXT, "import x\nclaims(held)"),
        "tag it remove-cell",
    ),
    (
        "sentence of no machine",
        badly_shaped,
        made(CODE, TEXT, HOLD, "say(f'{ridge}')"),
        "write this as Markdown",
    ),
    (
        "prose in strings",
        prose_in_strings,
        made(CODE, TEXT, HOLD, "say('" + "word " * 90 + "')"),
        "move the sentences",
    ),
]


@pytest.mark.parametrize(
    "check, bad, message", [pytest.param(*case, id=name) for name, *case in BAD]
)
def test_a_bad_notebook_fails_with_what_to_do(check, bad, message):
    assert re.search(message, "\n".join(check(bad))), list(check(bad))


def test_a_wrong_number_fails_when_the_notebook_runs():
    names = {}
    wrong = made(CODE, TEXT.replace("1875", "1900"), HOLD.replace("1875", "1900"))
    assert not list(stale(wrong)) and not list(
        unheld(wrong)
    )  # text and claim agree, the code does not
    with pytest.raises(
        AssertionError, match="'1900 FLOP/byte': the code gives 1875.0, the text should say 1875"
    ):
        for cell in code_cells(wrong):
            exec(source(cell), names)


@pytest.mark.parametrize(
    "call",
    [
        "claims(held)",
        "claims({key: 1})",
        "claims({f'{x}': 1})",
        "claims({**held})",
        "claims({}, x=1)",
        "if 0: claims({'3 GPUs': x})",
    ],
)
def test_claims_are_written_out(call):
    with pytest.raises(AssertionError, match="write claims"):
        list(unheld(made("3 GPUs", call)))


def test_a_sentence_about_the_readers_machine_may_stay():
    live = (
        "import x\nfrom hwdesign.lessons import live\nrun = live.machine_sweeps()\nspeed = run.rate"
    )
    assert list(badly_shaped(made(live, "say(f'{speed}')"))) == []


@pytest.mark.parametrize(
    "text, found",
    [
        ("On a GB300 in FP8, Llama-3.1-70B, GPT-2, H100s and NVFP4", []),
        ("`x = 3` and [text](page-3.html) and <b id=3>", []),
        ("# Chapter 3 of 4\n\ntext", []),
        ("Figures 3 and 4, Table 2.1, chapter 5, equation (1.4), exercises 1 to 3", []),
        ("1. one\n2. two", []),
        ("$2MNK$, $2\\,H H'$, $x^2$, $x_{10}$, $\\tfrac{1}{2} I$, $= 2 K / c$", []),
        ("```\n3\n```", []),
        ("$N = 512$ and $K > 3072$", ["512", "3072"]),
        ("$15 \\times 10^{15}$", ["15"]),
        ("$HH' = 2^{24}$", ["2^24"]),
        ("$\\ge 66$", ["66"]),
        ("$a = (4 + 8/16)/8 = 0.5625$", ["0.5625"]),
        ("$$t = 12 \\text{ µs} \\tag{1.1}$$", ["12"]),
        ("1.5 GB, 4-bit, 2,000", ["1.5", "4", "2,000"]),
        (
            "half, two thirds, twice, three times, two GPUs, five shapes, one",
            ["half", "two thirds", "twice", "three", "two"],
        ),
        ("the longer of two times", []),
        ("a table | 3 | 4 |", ["3", "4"]),
        ("version 0.12.0 of 2009", ["0.12.0", "2009"]),
    ],
)
def test_numbers_of_the_prose(text, found):
    assert [number.text for number in prose_numbers(text)] == found
