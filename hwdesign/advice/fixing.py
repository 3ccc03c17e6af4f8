"""The smallest changes of a model, or of its server, that clear the findings of its checklist."""

import json
import math
import os
from dataclasses import dataclass, replace
from typing import NamedTuple

from hwdesign._check import choice, count, every, flag, instance, listed, shown, single
from hwdesign.advice.alternatives import (
    DIMENSIONS,
    compensated,
    distance,
    model_siblings,
    moved,
    server_changes,
)
from hwdesign.advice.breaks import loads
from hwdesign.advice.case import Case, config_path
from hwdesign.advice.checklist import verdicts
from hwdesign.advice.fixed import (
    ORIGINAL,
    PROVENANCE,
    TRAIL,
    Change,
    Fixed,
    Left,
    badness,
    change_words,
    left_label,
)
from hwdesign.advice.guidelines import GUIDELINES
from hwdesign.advice.report_facts import load_name
from hwdesign.advice.verdict import MOST, RANK, SLOWER, Limits, percent
from hwdesign.models.reading import LIMIT
from hwdesign.models.rewrite import nearest

# How far a candidate came before it was refused.
KEPT, BUDGET, WRITTEN, RUNS, FAST, CLEARS, WORSENS, WORTH = range(8)
BREAK = 100.0  # what a break counts, beside shares of a step
SHAPE = 2 * SLOWER  # what a warning for the shape alone counts, in shares of a step
ON_SERVER = ("recipe", "cache", "ffn plan", "attention plan")  # dimensions that a server sets
MOST_CHANGES = 24
MOST_REASONS = 2  # that are told of a finding that is left
MOST_NOTES = 200  # of earlier changes that a config may tell
LEAST = 1e-9  # by which a change must improve
LOAD_FIELDS = ("batch", "context", "prompt", "answer")  # in which the cases may differ
A_CONFIG = "a parsed config, the path of a config.json or a shipped name"


def fix(
    cases, config=None, *, guidelines=None, budget=0.02, keep=(), server_only=False, limits=None
):
    """The smallest changes that clear the findings of a case at all its loads.

    One change after the other: the finding that is worst, and of the siblings that clear it, or
    else ease it, the nearest that makes nothing worse. A sibling that would have too many or too
    few parameters is also tried with another feed-forward or expert width, or number of experts.

    Parameters
    ----------
    cases : Case or sequence of Case
        What is judged; several differ in their load alone.
    config : dict, str or path, optional
        The config of the model: then only what it can say is changed, and it is written anew.
    guidelines : sequence of int, optional
        Whose findings are to be cleared; by default all.
    budget : float
        Share of the original parameters by which they may change [dimensionless], at most 0.15. A
        config that was fixed before says how many they were.
    keep : sequence of str
        What must not move: heads, kv_heads, layers, hidden, width, experts, vocabulary.
    server_only : bool
        Whether to change plans, recipe and cache instead of the model.
    limits : Limits, optional
        From which cost on a verdict is a warning and a failure [dimensionless].

    Returns
    -------
    Fixed
        What was changed at which price, what each load takes before and after [s], and what is
        left, and why.

    Raises
    ------
    ValueError
        If an argument is out of range, the cases differ in more than their load, or the config is
        not that of their model.

    Notes
    -----
    No change makes a guideline a break, or a failure of what was ok, at any load; one that mends a
    cost slows no load by more than 0.1 %; and none adds as much as it clears, in other findings or
    in time. In that sum a finding counts as the limit that its cost exceeds, one for the shape
    alone as 0.2 % of the step, and one that the server alone can clear not at all. Source:
    `checklist`, whose fixes and times these are.

    Examples
    --------
    >>> from hwdesign.models.steps import Plan
    >>> eight = {"attention": Plan(tp=8), "ffn": Plan(tp=8), "recipe": "fp8_block"}
    >>> fixed = fix(Case(model="qwen2.5-72b", device="H200", **eight), guidelines=[2])
    >>> fixed.changes[0].what
    'feed-forward width 29568 -> 29696'
    """
    return fix_watched(
        cases,
        config,
        guidelines=guidelines,
        budget=budget,
        keep=keep,
        server_only=server_only,
        limits=limits,
    )


def fix_watched(cases, config=None, *, watch=None, **options):
    """`fix` with a function that is called with the name of each finding that is looked at."""
    cases = _same_but_loads(cases)
    rules = _rules(**options)
    values = None if config is None else _values(config)
    original = cases[0].model.parameters
    if values is not None:
        original = _provenance(values).get(ORIGINAL, original)
        nearest(values, cases[0].model, cases[0].model)  # refuses the config of another model
    start = _State(cases, values, tuple(verdicts(case, rules.limits) for case in cases))
    if cases[0].refusal and not any(verdict.findings for verdict in start.verdicts[0]):
        raise ValueError(f"cases must have plans that can run the model: {cases[0].refusal}")
    search = _Search(rules, original, values is not None, watch)
    end, changes, left = search.best(start)
    written, added = values, ()
    if values is not None and changes and not rules.server_only:
        written = _noted(end.config, original, changes)
        added = tuple(_new_keys(values, end.config))
    return Fixed(
        started=cases,
        cases=end.cases,
        limits=rules.limits,
        changes=tuple(changes),
        left=tuple(left),
        config=written,
        added=added,
        original=original,
        server_only=rules.server_only,
    )


def _new_keys(before, after):
    """Keys of the second that the first has not, also inside."""
    for key, value in after.items():
        if key not in before:
            yield key
        elif isinstance(value, dict) and isinstance(before[key], dict):
            yield from _new_keys(before[key], value)


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What was asked for, checked."""

    guidelines: tuple
    budget: float
    keep: tuple
    server_only: bool
    limits: Limits


def _rules(*, guidelines=None, budget=0.02, keep=(), server_only=False, limits=None):
    """The options of `fix`, checked."""

    def guideline(name, value):
        return count(name, value, max(GUIDELINES))

    def kept(name, value):
        return choice(name, value, tuple(DIMENSIONS))

    numbers = tuple(GUIDELINES)
    if guidelines is not None:
        numbers = tuple(dict.fromkeys(every("guidelines", guidelines, guideline)))
    share = single("budget", budget)
    if not 0 <= share <= MOST:
        raise ValueError(f"budget must be a share from 0 to {MOST}, got {share:g}")
    instance("limits", limits, Limits | None, "Limits, as in Limits(warn=0.05, fail=0.2)")
    return _Asked(
        guidelines=numbers,
        budget=share,
        keep=tuple(every("keep", keep, kept)),
        server_only=flag("server_only", server_only),
        limits=limits or Limits(),
    )


def _same_but_loads(cases):
    """The cases as a tuple, all of one model, device, engine, plans and formats."""
    like = "a Case or several that differ in their load, as in Case(model='gpt2')"
    cases = (cases,) if isinstance(cases, Case) else listed("cases", cases, Case, like)
    if not cases:
        raise ValueError(f"cases must be {like}, got none")
    first = {name: getattr(cases[0], name) for name in LOAD_FIELDS}
    for case in cases[1:]:
        if replace(case, **first) != cases[0]:
            raise ValueError(f"cases must be {like}, got others that differ in more")
    return tuple(dict.fromkeys(cases))


def _values(config):
    """A parsed config."""
    if isinstance(config, dict):
        return config
    if not isinstance(config, str | os.PathLike):
        raise ValueError(f"config must be {A_CONFIG}, got {shown(config)}")
    try:
        found = json.loads(config_path(config).read_text(encoding="utf-8-sig"))
    except (OSError, ValueError):
        raise ValueError(f"config must be {A_CONFIG}, got {shown(config)}") from None
    return instance("config", found, dict, A_CONFIG)


def _provenance(values):
    """What an earlier run wrote into a config, an empty dict where none did."""
    noted = values.get(PROVENANCE)
    if noted is None:
        return {}
    most = LIMIT**2 * 10
    fits = (
        isinstance(noted, dict)
        and type(noted.get(ORIGINAL)) is int
        and 0 < noted[ORIGINAL] <= most
        and isinstance(noted.get(TRAIL), list)
        and len(noted[TRAIL]) <= MOST_NOTES
    )
    if not fits:
        raise ValueError(
            f"config key {PROVENANCE!r} must be an object with {ORIGINAL}, a whole number, and "
            f"{TRAIL}, a list, as hwdesign fix writes it, or absent; got {shown(noted)}"
        )
    return noted


def _noted(values, original, changes):
    """A config that says what was changed, after what an earlier run said."""
    told = list(_provenance(values).get(TRAIL, ()))
    told += [f"guideline {change.guideline}: {change.what}" for change in changes]
    return {**values, PROVENANCE: {ORIGINAL: original, TRAIL: told}}


class _State(NamedTuple):
    """Cases at all loads, the config of their model or None, and their verdicts, one tuple a
    load.
    """

    cases: tuple
    config: dict | None
    verdicts: tuple

    @property
    def model(self):
        """Model of all cases."""
        return self.cases[0].model


class _Refused(NamedTuple):
    """Why a candidate was not taken: how far it came, in words, by how much it exceeds the budget,
    None where it does not, and which one it was.
    """

    stage: int
    why: str
    beyond: float | None = None
    case: Case | None = None


class _Search:
    """The search for changes under given rules."""

    def __init__(self, asked, original, has_config, watch):
        self.asked, self.original, self.has_config = asked, original, has_config
        self.watch = watch  # told what is looked at

    def best(self, start):
        """The end state, its changes and what is left: one change after the other; where a single
        fix of the checklist saves more than all of them, that one first.
        """
        end, changes, left = self.run(start, [])
        for saved, finding in self._single_fixes(start):
            if saved <= self._saved(start, end) + SLOWER * max(1, len(changes)):
                break
            new = self._first(start, finding, only_fixes=True)
            if isinstance(new, _State):
                other = self.run(new, [self._change(finding, start, new)])
                if self._saved(start, other[0]) > self._saved(start, end):
                    end, changes, left = other
                break
        return end, changes, left

    def _single_fixes(self, start):
        """(saving, finding) for each finding by its fix that saves most, the most first, as a list;
        without fixes that cannot be timed.
        """
        found = []
        for finding in self._findings(start):
            saved = [-f.step for f in finding.fixes if f.step is not None and self._place(f)]
            if saved:
                found.append((max(saved), finding))
        return sorted(found, key=lambda item: -item[0])

    def _place(self, fix):
        return fix.place == ("server" if self.asked.server_only else "model")

    @staticmethod
    def _saved(start, end):
        """Share of the first load's step that is saved [dimensionless]."""
        old, new = start.cases[0].seconds, end.cases[0].seconds
        return 0.0 if None in (old, new) else 1 - new / old

    def run(self, state, changes):
        """Changes one by one, until none is acceptable."""
        while len(changes) < MOST_CHANGES:
            left, new = [], None
            for finding in self._findings(state):
                if self.watch:
                    self.watch(left_label(finding))
                new = self._first(state, finding)
                if isinstance(new, _State):
                    changes = [*changes, self._change(finding, state, new)]
                    break
                left.append(Left(finding=finding, why=new.why, beyond=new.beyond))
                new = None
            if new is None:
                return state, changes, left
            state = new
        return state, changes, left

    def _change(self, finding, old, new):
        worse = {}
        for before, after in zip(old.verdicts, new.verdicts, strict=True):
            for was, now in zip(before, after, strict=True):
                if was.status != "not modelled" and RANK[now.status] > RANK[was.status]:
                    worse.setdefault(was.guideline, (was.guideline, was.status, now.status))
        return Change(
            finding=finding,
            what=change_words(old.cases[0], new.cases[0]),
            before=old.cases,
            after=new.cases,
            worsens=tuple(worse.values()),
        )

    def _findings(self, state):
        """What is to be cleared, each once where it is worst, breaks first, as a list."""
        found = {}
        for judged in state.verdicts:
            for verdict in judged:
                if verdict.guideline in self.asked.guidelines:
                    for finding in verdict.findings:
                        key = _key(finding)
                        if key not in found or badness(finding) < badness(found[key]):
                            found[key] = finding
        return sorted(found.values(), key=badness)

    def _first(self, state, finding, *, only_fixes=False):
        """The state after the nearest change that clears a finding, else after the nearest that
        eases it; a `_Refused` where there is none.
        """
        eased, reasons = None, []
        for changes in self._candidates(state, finding, only_fixes, reasons):
            made = self._made(state, finding, changes)
            if isinstance(made, _Refused):
                tried = replace(state.cases[0], **{**changes, "split": changes.get("split")})
                reasons.append(made._replace(case=tried))
            elif len(self._same(made, finding)) < len(self._same(state, finding)):
                return made
            else:
                eased = eased or made
        return eased or _reason(state.cases[0], finding, reasons, self.asked.server_only)

    def _same(self, state, finding):
        """Findings about the same dimension of a guideline, each once."""
        kind = finding.guideline, finding.dimension
        return {_key(f) for f in self._findings(state) if (f.guideline, f.dimension) == kind}

    def _candidates(self, state, finding, only_fixes, reasons):
        """Changes of the cases that may clear a finding, the nearest first, as dicts; those that
        are refused at once are told in `reasons`.
        """
        if self.asked.server_only:
            return self._server_candidates(state, finding)
        case, models = state.cases[0], []
        for load in self._everywhere(state, finding):
            if only_fixes:
                models += [f.case.model for f in load.fixes if f.place == "model"]
            else:
                models += model_siblings(case, load)
        wanted = []
        for model in dict.fromkeys(models):
            wanted.append(model)
            if self._beyond(model) > 0 and not only_fixes:
                wanted += compensated(case, model, self.original, finding.dimension)
        allowed = []
        for model in dict.fromkeys(wanted):
            if len(model.blocks) < case.attention.pp:
                continue  # some stage would hold nothing
            refused = self._outside(state, model)
            if refused:
                reasons.append(refused._replace(case=replace(case, model=model, split=None)))
            elif model != state.model:
                allowed.append((distance(state.model, model), -model.parameters, model))
        return [{"model": model} for *_, model in sorted(allowed, key=lambda item: item[:2])]

    def _server_candidates(self, state, finding):
        """Settings of the server that may clear a finding, each once, those of few changes first,
        as a list of dicts.
        """
        unique = []
        for load in self._everywhere(state, finding):
            unique += [changes for changes in server_changes(load) if changes not in unique]
        return sorted(unique, key=len)

    def _everywhere(self, state, finding):
        """A finding as it is at each load that has it, as a list."""
        found = [f for judged in state.verdicts for v in judged for f in v.findings]
        return [other for other in found if _key(other) == _key(finding)]

    def _beyond(self, model):
        """By how much the parameters of a model exceed the budget [dimensionless]."""
        return abs(model.parameters / self.original - 1) - self.asked.budget

    def _outside(self, state, model):
        """Why a model is not allowed, None where it is."""
        kept = [name for name in moved(state.model, model) if name in self.asked.keep]
        if kept:
            return _Refused(KEPT, f"kept: {', '.join(kept)}")
        beyond = self._beyond(model)
        if beyond > 1e-12:
            share = _share(abs(model.parameters / self.original - 1))
            told = f"over the budget by {_share(beyond)}: it changes the parameters by {share}"
            return _Refused(BUDGET, told, beyond)
        return None

    def _made(self, state, finding, changes):
        """The state after a change, or why it is not acceptable."""
        config = state.config
        if self.has_config and "model" in changes:
            try:
                config, model = nearest(config, state.model, changes["model"])
            except ValueError as error:
                return _Refused(WRITTEN, f"cannot be written: {error}")
            if refused := self._outside(state, model):
                return refused
            changes = {**changes, "model": model}
        if "model" in changes:
            changes = {**changes, "split": None}
        cases = tuple(replace(case, **changes) for case in state.cases)
        return self._runs(state, cases, finding) or self._judged(state, cases, config, finding)

    def _runs(self, state, cases, finding):
        """Why cases do not run or are too slow, None where they do."""
        for old, new in zip(state.cases, cases, strict=True):
            where = f" at {load_name(new)}" if len(cases) > 1 else ""
            if new.refusal:
                return _Refused(RUNS, f"the plans could not run it: {new.refusal}")
            if new.engine_refusal and not old.engine_refusal:
                return _Refused(RUNS, f"{new.engine.label} does not run these plans")
            fitted = old.breakdown is None or old.breakdown.feasible
            if fitted and not new.breakdown.feasible:
                return _Refused(RUNS, f"does not fit into memory{where}")
            if self.asked.server_only and loads(old) and not loads(new):
                return _Refused(RUNS, f"{new.engine.label} does not load it")
            if finding.status != "break" and old.seconds:
                slower = new.seconds / old.seconds - 1
                if slower > SLOWER:
                    return _Refused(FAST, f"would slow the step by {_share(slower)}{where}")
        return None

    def _judged(self, state, cases, config, finding):
        """The state of cases, or what they make worse; the finding's own guideline is asked
        first.
        """
        limits, own = self.asked.limits, finding.guideline
        mine = [GUIDELINES[own].judge(case, limits) for case in cases]
        before = self._weight(state, [own])
        partly = _State(cases, config, tuple((verdict,) for verdict in mine))
        if self._weight(partly, [own]) >= before:
            return _Refused(CLEARS, "the finding stays")
        every_verdict = tuple(
            tuple(
                verdict if guideline.number == own else guideline.judge(case, limits)
                for guideline in GUIDELINES.values()
            )
            for case, verdict in zip(cases, mine, strict=True)
        )
        new = _State(cases, config, every_verdict)
        for old, now, case in zip(state.verdicts, new.verdicts, cases, strict=True):
            for was, verdict in zip(old, now, strict=True):
                if _worse(was.status, verdict.status):
                    told = f"{was.status} -> {verdict.status} at {load_name(case)}"
                    return _Refused(WORSENS, f"would make guideline {was.guideline} worse: {told}")
        if self._weight(new) >= self._weight(state) - LEAST:
            return _Refused(
                WORTH, "it would cost as much as it clears, in other findings or in time"
            )
        return new

    def _weight(self, state, guidelines=None):
        """What is wrong with a state, in shares of a step over all loads: its findings, and the
        time of its steps where all can be timed [dimensionless].
        """
        numbers, weight = guidelines or self.asked.guidelines, 0.0
        for case, judged in zip(state.cases, state.verdicts, strict=True):
            for verdict in judged:
                if verdict.guideline in numbers:
                    weight += sum(map(self._price, verdict.findings))
            if case.refusal:
                weight += BREAK**2  # until it runs, what else is wrong is not known
            elif guidelines is None:
                weight += math.log(case.seconds)
        return weight

    def _price(self, finding):
        """What a finding counts, in shares of a step [dimensionless]; what a server alone mends
        nothing where the model is changed, since it may lie a hair from a limit.
        """
        limits = self.asked.limits
        if finding.status == "break":
            return BREAK
        if finding.dimension in ON_SERVER and not self.asked.server_only:
            return 0.0
        if finding.status == "fail":
            return limits.fail
        costly = finding.cost is not None and finding.cost >= limits.warn
        return limits.warn if costly else SHAPE


def _share(value):
    """A share in words; below one per cent with two digits, since limits lie there."""
    return percent(value) if value >= 0.01 else f"{100 * value:.2g} %"


def _key(finding):
    return finding.guideline, finding.dimension, finding.value


def _worse(before, after):
    """Whether a verdict became a break, or a failure of what was no finding; what could not be
    judged before is not worse.
    """
    if before == "not modelled":
        return False
    if after == "break":
        return before != "break"
    return after == "fail" and RANK[before] == 0


def _reason(case, finding, reasons, server_only):
    """Why a finding is left: what stopped the candidate that came furthest, and the next one that
    was stopped by something else; a `_Refused`.
    """
    best = {}
    for reason in sorted(reasons, key=lambda reason: (-reason.stage, reason.beyond or 0.0)):
        best.setdefault(reason.stage, reason)
    told = list(best.values())[:MOST_REASONS]
    if told:
        beyond = [reason.beyond for reason in best.values() if reason.beyond is not None]
        words = [f"{change_words(case, reason.case)}: {reason.why}" for reason in told]
        why = "; ".join(words)
        return _Refused(told[0].stage, why, min(beyond, default=None))
    wanted = "model" if server_only else "server"
    other = [fix.text for fix in finding.fixes if fix.place == wanted]
    if other:
        place = "the next model" if server_only else "the server"
        return _Refused(KEPT, f"only {place} can clear it: {other[0]}")
    return _Refused(KEPT, "no fix is known")
