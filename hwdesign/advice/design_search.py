"""Searches shapes, plans and formats: every triple of them at every batch, added up from the times
of its parts.

For one pair of plans and one format the parts of all shapes are timed once, and the shapes are rows
of arrays that are summed block by block.
"""

import functools
from dataclasses import dataclass, replace

import numpy as np

from hwdesign.advice.breaks import rules_about
from hwdesign.advice.design_families import FAMILIES
from hwdesign.catalogue.device import Device
from hwdesign.catalogue.engine import Engine
from hwdesign.catalogue.precision import BF16, FP8, RECIPES
from hwdesign.models.blocks import Block, MoE, SelfAttention
from hwdesign.models.engine_plans import engine_plan_refusal
from hwdesign.models.model import Model
from hwdesign.models.parts import QUANTIZED, Side
from hwdesign.models.steps import Plan
from hwdesign.timing.layouts import layouts
from hwdesign.timing.part_times import NOTHING, PartTimes, Times
from hwdesign.units import fmt

ROWS = 2048  # shapes that are summed at a time, so that the arrays stay in the cache
WEIGHTS = ("bf16", "fp8", "fp8_block", "nvfp4")
CACHES = (BF16, FP8)
NO_LIMIT = 1e9  # [s]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Where a design serves: a device, some GPUs of it, an engine, a load and targets.

    Parameters
    ----------
    device : Device
        Accelerator.
    engine : Engine
        Whose kernels are taken, and which refuses what it does not run.
    gpus : int
        GPUs over all copies of a model.
    prompt, answer : int
        Length of a prompt and of an answer [token].
    tpot : float
        Longest time per output token [s].
    ttft : float
        Longest time of a prompt alone [s]; `NO_LIMIT` where nothing was asked.

    Examples
    --------
    >>> from hwdesign.catalogue.device import device
    >>> from hwdesign.catalogue.engine import engine
    >>> where = {"device": device("H200"), "engine": engine("vllm"), "gpus": 2}
    >>> [r.name for r in Setting(**where, prompt=1000, answer=100, tpot=0.02, ttft=1.0).recipes[:3]]
    ['bf16', 'bf16', 'fp8']
    """

    device: Device
    engine: Engine
    gpus: int
    prompt: int  # [token]
    answer: int  # [token]
    tpot: float  # [s]
    ttft: float  # [s]

    @functools.cached_property
    def recipes(self):
        """Formats that the device multiplies, each with both formats of the cache, as a tuple."""
        peaks = self.device.dense_peak
        kept = [RECIPES[name] for name in WEIGHTS if RECIPES[name].math.rate in peaks]
        return tuple(replace(recipe, kv_cache=cache) for recipe in kept for cache in CACHES)

    @property
    def context(self):
        """Tokens that a new one sees in the middle of an answer [token]."""
        return int(np.ceil(self.prompt + self.answer / 2))

    def meets(self, served):
        """Whether designs, as a `Served`, fit and keep to the targets at each batch."""
        return served.fits & (served.token <= self.tpot) & (served.first <= self.ttft)

    @property
    def title(self):
        """Where and what, in words."""
        where = f"{self.gpus} x {self.device.name}, {self.engine.title}"
        load = f"{self.prompt} tokens in, {self.answer} out"
        targets = f"tpot {fmt(self.tpot, 's')}"
        if self.ttft < NO_LIMIT:
            targets += f", ttft {fmt(self.ttft, 's')}"
        return f"{where}, {load}, {targets}"


def plan_pairs(gpus, routed):
    """Pairs of plans over these GPUs, whole copies of a model among them, that some model takes.

    Parameters
    ----------
    gpus : int
        GPUs over all copies [GPU].
    routed : bool
        Whether there are experts.

    Returns
    -------
    list of (Plan, Plan)
        For attention and the feed-forward part, without stages.

    Examples
    --------
    >>> [(a.tp, a.dp, f.dp) for a, f in plan_pairs(2, routed=False)]
    [(1, 1, 1), (1, 2, 1), (2, 1, 1), (1, 2, 2)]
    """
    heads = {"num_heads": gpus, "num_kv_heads": gpus, "head_dim": 1}
    feed = MoE(num_experts=gpus, top_k=1, width=gpus) if routed else None
    block = Block(mixer=SelfAttention(**heads), ffn=feed)
    model = Model(name="divides", hidden_size=1, vocab_size=1, blocks=(block,))
    found = []
    for copies in (n for n in range(1, gpus + 1) if gpus % n == 0):
        for attention, ffn in layouts(model, gpus // copies):
            found.append((replace(attention, dp=attention.dp * copies), replace(ffn, dp=copies)))
    return found


class Loader:
    """Says which parts an engine loads, side by side, as `hwdesign.advice.breaks.loads` does for a
    whole case.
    """

    def __init__(self, engine, device):
        self.engine, self.device, self.known, self.rules = engine, device, {}, {}

    def takes(self, sides, recipe):
        """Whether it takes sides of matrices under a recipe."""
        return all(self._side(side, recipe) for side in sides)

    def _side(self, side, recipe):
        form = recipe.weights if side.part in QUANTIZED else BF16
        key = side.kind, side.size, side.ways, form.name
        if key not in self.known:
            if form.name not in self.rules:
                name, tests = rules_about(form)
                own = [rule for rule in tests if rule.engine == self.engine.name]
                self.rules[form.name] = name, [rule for rule in own if not rule.version]
            name, tests = self.rules[form.name]
            refused = any(rule.refuses(side, name, self.device.name) for rule in tests)
            self.known[key] = not refused
        return self.known[key]

    def outside(self, hidden, vocabulary, plan, recipe):
        """Whether it takes the hidden size and the vocabulary; the hidden size in the format of the
        attention.
        """
        ways = plan.tp * plan.kvp
        sizes = {"name": "hidden size", "size": hidden, "ways": 1, "part": "attention"}
        found = [Side(kind="input", **sizes), Side(kind="output", **sizes)]
        whole = {"name": "vocabulary", "size": vocabulary, "ways": ways, "part": "head"}
        return self.takes([*found, Side(kind="vocabulary", **whole)], recipe)

    def model(self, model, attention, ffn, recipe):
        """Whether it takes a whole model under two plans."""
        found = [s for b in model.block_counts for p in b.parts for s in p.sides(attention, ffn)]
        outside = self.outside(model.hidden_size, model.vocab_size, attention, recipe)
        return outside and self.takes(found, recipe)


class Front:
    """The points that no other beats in both rates, kept while points come in.

    `user` and `gpu` are rates [token/s], `user` descending; `keys` say what each point is.

    Examples
    --------
    >>> front = Front()
    >>> front.add(np.array([1.0, 2.0, 1.5]), np.array([3.0, 2.0, 1.0]), np.arange(3)[:, None])
    >>> front.keys.ravel().tolist()
    [1, 0]
    """

    def __init__(self):
        self.user, self.gpu, self.keys = np.empty(0), np.empty(0), None

    def add(self, user, gpu, keys):
        """Some more points: rates of shape (n,) and keys of shape (n, columns)."""
        if self.keys is not None and len(self.user):
            # of the points that are as fast for a user the last has most tokens a GPU
            place = np.searchsorted(-self.user, -user, side="right")
            best = np.concatenate([[-np.inf], self.gpu])[place]
            user, gpu, keys = (each[gpu > best] for each in (user, gpu, keys))
        if not len(user):
            return
        if self.keys is not None:
            user, gpu = np.concatenate([self.user, user]), np.concatenate([self.gpu, gpu])
            keys = np.concatenate([self.keys, keys])
        order = np.lexsort((-gpu, -user))
        user, gpu, keys = user[order], gpu[order], keys[order]
        before = np.concatenate([[-np.inf], np.maximum.accumulate(gpu)[:-1]])
        kept = gpu > before
        self.user, self.gpu, self.keys = user[kept], gpu[kept], keys[kept]


class Search:
    """A search of one setting over the shapes of a space.

    Parameters
    ----------
    space : Space
        Shapes.
    setting : Setting
        Where they serve.
    batches : ndarray of int
        Sequences in flight over all GPUs, B of them.

    Examples
    --------
    >>> from hwdesign.catalogue.device import device
    >>> from hwdesign.catalogue.engine import engine
    >>> from hwdesign.advice.design_space import Bounds, Space
    >>> where = {"device": device("H200"), "engine": engine("vllm"), "gpus": 1}
    >>> setting = Setting(**where, prompt=1000, answer=100, tpot=0.02, ttft=1.0)
    >>> space = Space(["llama"], Bounds(parameters=1.5e9, active=1.5e9))
    >>> search = Search(space, setting, np.array([1, 8]))
    >>> _ = [None for _ in search.run()]
    >>> search.triples > 0, len(search.front.user) > 0
    (True, True)
    """

    def __init__(self, space, setting, batches):
        self.space, self.setting, self.batches = space, setting, batches
        load = {"prompt": setting.prompt, "answer": setting.answer}
        self.times = PartTimes(setting.device, **load, batches=batches, engine=setting.engine)
        self.loader = Loader(setting.engine, setting.device)
        self.front, self.triples, self.fastest = Front(), 0, np.inf
        self.best = np.zeros(len(space))  # tokens of a GPU of each shape [token/s]
        self.best_keys = np.zeros((len(space), 3), int)  # pair of plans, recipe and batch of these
        self.routed = {FAMILIES[family].experts for family, _, _ in space.origin}
        self.pairs = [(r, p) for r in sorted(self.routed) for p in plan_pairs(setting.gpus, r)]
        kinds = [(family, mixer[:2]) for family, mixer, _ in space.origin]
        self.kinds = list(dict.fromkeys(kinds))
        places = {kind: place for place, kind in enumerate(self.kinds)}
        self.kind = np.array([places[kind] for kind in kinds], int)
        self.known = {}  # parts that were timed under plans of the groups at hand

    def run(self):
        """Searches, and yields the share that is done after each pair of plans [dimensionless]."""
        order = sorted(range(len(self.pairs)), key=lambda i: self.pairs[i][1][0].dp)
        groups = None
        for done, number in enumerate(order):
            routed, (attention, ffn) = self.pairs[number]
            if attention.dp != groups:
                groups = attention.dp
                self.known.clear()
            runs = self._runs(routed, attention, ffn)
            if runs.any():
                for place, recipe in enumerate(self.setting.recipes):
                    self._add(runs, (number, place), attention, ffn, recipe)
            yield (done + 1) / len(order)

    def _runs(self, routed, attention, ffn):
        """Whether the engine runs the plans with the mixers of each shape, shape (N,)."""
        found = np.zeros(len(self.kinds), bool)
        for place, (family, pair) in enumerate(self.kinds):
            if FAMILIES[family].experts == routed and all(
                _spreads(m, attention) for m in pair if m
            ):
                model = _sample(pair, routed)
                refused = engine_plan_refusal(self.setting.engine, model, attention, ffn)
                found[place] = refused is None
        return found[self.kind]

    def _once(self, key, make):
        if key not in self.known:
            self.known[key] = make()
        return self.known[key]

    def _table(self, name, key, collect, sides, recipe):
        """(`Times` of all parts of a table, a row each and one of zeros; whether each is divided
        and loaded). Operations, by a function of a hidden size and its parts, and what engines
        test of a part are collected once for all recipes.
        """
        parts, size = self.space.tables[name], len(self.batches)
        rows = [np.zeros((len(parts) + 1, n)) for n in (size, size, 1, 1, 1, size, 1)]
        divided = np.zeros(len(parts) + 1, bool)
        for places, collected in self._once(key, lambda: self._collected(name, collect)):
            for row, values in zip(rows, self.times.times(collected, recipe), strict=True):
                row[places] = values
            divided[places] = True
        tested = self._once(("sides", key), lambda: [sides(part) for _, part in parts])
        loaded = self._once(
            ("loaded", key, recipe.weights.name),
            lambda: np.array([self.loader.takes(each, recipe) for each in tested] + [True]),
        )
        divided[-1] = True  # no part at all
        return Times(*rows), divided & loaded

    def _collected(self, name, collect):
        """(places, `Collected`) of the parts of a table, a hidden size each."""
        by_hidden, found = {}, []
        for (hidden, part), place in self.space.tables[name].items():
            by_hidden.setdefault(hidden, []).append((place, part))
        for hidden, parts in by_hidden.items():
            collected = collect(hidden, [part for _, part in parts])
            places = np.array([parts[place][0] for place in collected.kept], int)
            if len(places):
                found.append((places, collected))
        return found

    def _mixers(self, attention, recipe):
        def collect(hidden, parts):
            blocks = [Block(mixer=part, ffn=None) for part in parts]
            return self.times.mixers(hidden, blocks, attention)

        def sides(part):
            return part.sides(attention, Plan(tp=attention.gpus))

        return self._table("mixer", ("mixers", attention), collect, sides, recipe)

    def _feeds(self, attention, ffn, recipe):
        def collect(hidden, parts):
            return self.times.feeds(hidden, parts, ffn, attention.dp)

        def sides(part):
            return part.sides(attention, ffn)

        return self._table("feed", ("feeds", ffn), collect, sides, recipe)

    def _rests(self, attention, recipe):
        """`Times` of what lies outside the layers, a row a hidden size; whether it loads."""
        vocabulary, found, good = self.space.bounds.vocabulary, [], []
        for hidden in self.space.tables["rest"]:
            model = Model(name="rest", hidden_size=hidden, vocab_size=vocabulary, blocks=NOTHING)
            found.append(self.times.times(self.times.rest(model, attention), recipe))
            good.append(self.loader.outside(hidden, vocabulary, attention, recipe))
        return Times(*map(np.concatenate, zip(*found, strict=True))), np.array(good)

    def _add(self, runs, key, attention, ffn, recipe):
        """The points of one pair of plans and one format."""
        space, plain = self.space, replace(recipe, kv_cache=BF16)
        mixers, mixed = self._once(
            ("mixer", attention, recipe), lambda: self._mixers(attention, recipe)
        )
        feeds, fed = self._once(("feed", ffn, plain), lambda: self._feeds(attention, ffn, plain))
        rests, whole = self._once(("rest", attention, plain), lambda: self._rests(attention, plain))
        good = runs & mixed[space.mixer] & mixed[space.linear] & whole[space.rest]
        places = np.flatnonzero(good & fed[space.feed] & fed[space.first])
        self.triples += len(places)
        for start in range(0, len(places), ROWS):
            some = places[start : start + ROWS]
            self._points(some, key, attention.dp, self._sum(some, mixers, feeds, rests))

    def _sum(self, some, mixers, feeds, rests):
        """Sums over the layers of some shapes, as `Times` of a row each."""
        space = self.space
        layers, full = space.layers[some, None], space.full[some, None]
        firsts = space.firsts[some, None]
        total = rests.rows(space.rest[some]).plus(mixers.rows(space.mixer[some]).times(full))
        if (space.linear[some] >= 0).any():
            total = total.plus(mixers.rows(space.linear[some]).times(layers - full))
        total = total.plus(feeds.rows(space.feed[some]).times(layers - firsts))
        if firsts.any():
            total = total.plus(feeds.rows(space.first[some]).times(firsts))
        return total

    def _points(self, some, key, groups, total):
        """Adds what some shapes give to the front."""
        space, setting = self.space, self.setting
        sizes = space.layers[some, None], space.hidden[some, None]
        found = self.times.served(total, *sizes, groups)
        timely = found.fits & (found.first <= setting.ttft)
        self.fastest = min(self.fastest, found.token.min(where=timely, initial=np.inf))
        good = setting.meets(found)
        if not good.any():
            return
        rate = np.where(good, self.batches / found.token / setting.gpus, 0.0)
        column = rate.argmax(axis=1)
        most = rate[np.arange(len(some)), column]
        better = most > self.best[some]
        self.best[some[better]] = most[better]
        self.best_keys[some[better], :2] = key
        self.best_keys[some[better], 2] = column[better]
        rows, columns = np.nonzero(good)
        user = 1 / found.token[rows, columns]
        keys = np.empty((len(rows), 4), np.int32)
        keys[:, 0], keys[:, 1:3], keys[:, 3] = some[rows], key, columns
        self.front.add(user, rate[rows, columns], keys)


def _spreads(mixer, plan):
    """Whether the heads of a mixer divide among the ways of a plan."""
    counts = mixer.head_counts if any(mixer.state_elements) else mixer.head_counts[:1]
    return all(count % mixer.head_ways(plan) == 0 for count in counts)


@functools.lru_cache(maxsize=4096)
def _sample(pair, routed):
    """A small model of a pair of mixers, with experts or without."""
    feed = MoE(num_experts=1, top_k=1, width=1) if routed else None
    blocks = tuple(Block(mixer=mixer, ffn=feed) for mixer in pair if mixer)
    return Model(name="sample", hidden_size=1, vocab_size=1, blocks=blocks)
