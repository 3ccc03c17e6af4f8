"""Energy of a kernel and of a step, from measured power.

A kernel draws idle power, and joules for each byte through memory and for each operation, those on
the unfilled rows of its tiles included. Near the limit of the device the clock falls, and the power
bends below the limit:

    wanted = (byte * bytes + flop * flops * max(1, tile / rows)) / seconds
    watts = idle + wanted / (1 + (wanted / (limit - idle))**knee)**(1 / knee)

The constants were fitted on TensorRT-LLM's kernels on B200 (`data/energy.csv`). How much of the
published readings is the kernel's power is in `scripts/cases_energy.py`. Blackwell parts for data
centres take B200's joules with a limit of their own, other devices B200's shares of limit, peak and
bandwidth: nobody measured those.
"""

import csv
import functools
from dataclasses import dataclass, field
from importlib import resources

import numpy as np

from hwdesign._check import scalar_or_array
from hwdesign.catalogue.device import device as as_device
from hwdesign.catalogue.precision import BF16, FP32
from hwdesign.models.parts import TERM_OF
from hwdesign.timing.calibration import STAND_INS

MEASURED = "B200"
PLAIN = "the plain bound has no power"
SENT = {"all-reduce": 2.0}  # bytes that a GPU sends for each byte of the tensor; else 1


def watts(flops, nbytes, seconds, rows, c, sent=0.0):
    """Mean power of a kernel while it runs.

    Parameters
    ----------
    flops, nbytes : array_like of float
        Operations [FLOP] and bytes through memory [byte].
    seconds : array_like of float
        Time [s], > 0.
    rows : array_like of float
        Rows that meet each weight, or query rows each key [row]; the kernel multiplies `c["tile"]`
        at least.
    c : mapping of str to float
        idle, limit [W]; byte, link [J/byte]; flop [J/FLOP]; tile [row]; knee [dimensionless].
    sent : array_like of float
        Bytes over the link [byte].

    Returns
    -------
    float or ndarray of float, broadcast shape
        Power [W], between idle and limit.

    Notes
    -----
    Source: form and constants fitted on measured power, see the head of this module.

    Examples
    --------
    >>> c = energy_constants("B200") | {"flop": 0.0, "knee": 50.0}
    >>> round(float(watts(0.0, 4e9, 1e-3, 1.0, c | {"byte": 1e-10})))
    644
    """
    tiled = flops * np.maximum(1, c["tile"] / rows)
    wanted = (c["byte"] * nbytes + c["flop"] * tiled + c["link"] * sent) / seconds
    room = c["limit"] - c["idle"]
    return c["idle"] + wanted / (1 + (wanted / room) ** c["knee"]) ** (1 / c["knee"])


@functools.cache
def _fitted():
    """Constants of the shipped file: {name: value}, those of formats under (flop, format)."""
    path = resources.files("hwdesign.timing").joinpath("data", "energy.csv")
    rows = csv.DictReader(path.read_text(encoding="utf-8").splitlines())
    return {
        (row["constant"], row["precision"]) if row["precision"] else row["constant"]: float(
            row["value"]
        )
        for row in rows
    }


def energy_note(device):
    """Where the joules of a device come from, in words; empty where they were measured on it.

    Parameters
    ----------
    device : str or Device
        Accelerator.

    Returns
    -------
    str
        Words.

    Examples
    --------
    >>> energy_note("B200"), energy_note("H100_SXM")
    ('', 'energy scaled from B200: not measured')
    """
    device = as_device(device)
    if device.name == MEASURED:
        return ""
    if not device.power_limit:
        return f"no energy: no power limit of {device.name} in the catalogue"
    return f"energy scaled from {MEASURED}: not measured"


def energy_constants(device, form="bf16", *, small=False):
    """Constants of `watts` on a device.

    Parameters
    ----------
    device : str or Device
        Accelerator, with a `power_limit`.
    form : str
        "bf16", "fp8", "fp8_block" or "nvfp4".
    small : bool
        Whether the kernel has the small tiles of experts and attention, and not those of GEMMs.

    Returns
    -------
    dict of str to float
        As for `watts`.

    Raises
    ------
    ValueError
        If the power limit of the device is not known.

    Notes
    -----
    Source: `hwdesign/timing/data/energy.csv`. GB200, B300 and GB300 have B200's joules and their
    own limit. Elsewhere every power is the same share of the limit as on B200, every energy the
    same share of what the device could spend at its limit on a byte or an operation: powers scale
    with the limit, J/byte with limit over bandwidth, J/FLOP with limit over peak.

    Examples
    --------
    >>> b200, gb200, h100 = map(energy_constants, ("B200", "GB200", "H100_SXM"))
    >>> gb200["limit"], gb200["byte"] == b200["byte"], h100["byte"] > b200["byte"]
    (1200.0, True, True)
    """
    device, base, found = as_device(device), as_device(MEASURED), _fitted()
    if not device.power_limit:
        raise ValueError(
            f"device must have a power_limit [W] for its energy, got {device.name} without one"
        )
    c = {name: value for name, value in found.items() if isinstance(name, str)}
    c["flop"], tile = found["flop", form], c.pop("small tile")
    c["tile"] = tile if small else c["tile"]
    share = device.power_limit / c["limit"]
    c["limit"] = device.power_limit
    if device.name == MEASURED or device.name in STAND_INS:
        return c
    rate = "fp4" if form == "nvfp4" else form.removesuffix("_block")
    peak = device.dense_peak.get(rate) or min(device.dense_peak.values())
    slower = base.dense_peak[rate] / peak
    links = base.link_bandwidth / (device.link_bandwidth or base.link_bandwidth)
    c["byte"] *= share * base.memory_bandwidth / device.memory_bandwidth
    return c | {
        "idle": c["idle"] * share,
        "link": c["link"] * share * links,
        "flop": c["flop"] * share * slower,
    }


@dataclass(frozen=True, kw_only=True)
class StepEnergy:
    """Energy of one step on one GPU, worked out when it is asked for.

    Parameters
    ----------
    timer : object
        Lists the operations, with the clock that times them and the formats of each part.
    load : tuple of array_like
        Batch, context and new tokens.
    plans : tuple of Plan
        Of attention and feed-forward.

    Examples
    --------
    >>> from hwdesign.models import config
    >>> from hwdesign.timing.estimate import decode_step
    >>> step = decode_step(config.load("llama-3.1-8b"), "B200", "fp8", batch=8, context=1000)
    >>> bool(1 < step.energy < 5), max(step.energy_terms, key=step.energy_terms.get)
    (True, 'ffn')
    """

    timer: object = field(repr=False)
    load: tuple
    plans: tuple

    @property
    def clock(self):
        """The clock of the step."""
        return self.timer.clock

    @property
    def parts(self):
        """The operations, as two `Step`s."""
        attention, ffn = self.plans
        load = tuple(map(np.asarray, self.load))
        outer = self.timer.attention_run(load, attention).step()
        return outer, self.timer.feed_forward_step(load, ffn, attention)

    @property
    def note(self):
        """Why there is no energy, or that it was not measured on this device; else empty."""
        return PLAIN if self.clock.ideal else energy_note(self.clock.device)

    @functools.cached_property
    def terms(self):
        """Energy by what it is spent on [J], as the terms of a `Breakdown`; None without a power
        limit and for the plain bound.
        """
        if self.clock.ideal or not self.clock.device.power_limit:
            return None
        spent = {}
        for done in self.parts:
            for name, joules in self._operations(done):
                spent[name] = spent.get(name, 0.0) + joules
        zeros = np.zeros(np.broadcast_shapes(*map(np.shape, self.load)))
        return {name: scalar_or_array(value + zeros) for name, value in spent.items()}

    def _operations(self, done):
        """(term, energy of all runs [J]) of each operation of a part."""
        clock, routed = self.clock, self.timer.formats["experts"]
        for gemm in done.gemms:
            if gemm.part != "experts":
                for recipe, share in self.timer.formats[gemm.part]:
                    timed = clock.gemm(gemm, recipe)
                    load = gemm.flops, gemm.bytes(recipe), gemm.m
                    yield TERM_OF[gemm.part], share * self._joules(timed, clock.form(recipe), *load)
        for work in done.work:
            yield "attention", work.count * self._attention(work)
        for scan in done.scans:
            load = scan.flops, scan.state * FP32.bytes, np.inf
            yield "attention", scan.count * self._joules(clock.scan(scan), ("bf16",), *load)
        for experts in done.experts:
            for recipe, share in routed:
                yield "experts", share * experts.count * self._experts(experts, recipe)
        for exchange in done.exchanges:
            yield "communication", exchange.count * self._exchange(exchange, routed[0][0])
        load = 0.0, done.small_elements * BF16.bytes, 1.0
        yield "small kernels", self._joules(clock.small(done), ("bf16",), *load)

    def _joules(self, timed, form, flops, nbytes, rows, sent=0.0, small=False):
        """Energy of a kernel that was timed [J]; nothing where it takes no time."""
        c, seconds = self._constants(form[0], small), np.asarray(timed.seconds, float)
        some = np.maximum(seconds, 1e-12)
        return np.where(seconds > 0, watts(flops, nbytes, some, rows, c, sent) * seconds, 0.0)

    @functools.cached_property
    def _known(self):
        return {}

    def _constants(self, form, small):
        key = form, small
        if key not in self._known:
            self._known[key] = energy_constants(self.clock.device, form, small=small)
        return self._known[key]

    def _attention(self, work):
        cache = self.clock.recipe.kv_cache
        low = cache.bits <= 8 and cache.rate in self.clock.device.dense_peak
        ends = 2.0 * work.batch * work.queries * work.heads * work.size
        nbytes = work.cache_elements * cache.bytes + ends
        rows = work.queries * work.heads / work.kv_heads
        timed, form = self.clock.attention(work), ("fp8" if low else "bf16",)
        return self._joules(timed, form, work.flops, nbytes, rows, small=True)

    def _experts(self, experts, recipe):
        size = recipe.operand_bytes
        pair = experts.hidden * (6 + size["a"]) + experts.width * (2 * experts.gate + 2 + size["a"])
        nbytes = experts.elements * size["b"] + experts.pairs * pair
        timed = self.clock.experts(experts, recipe)
        rows = np.maximum(experts.pairs / np.maximum(experts.touched, 1e-9), 1e-9)
        load = experts.flops, nbytes, rows
        return self._joules(timed, self.clock.form(recipe), *load, small=True)

    def _exchange(self, exchange, recipe):
        size = recipe.activations.bytes if exchange.kind == "dispatch" else BF16.bytes
        nbytes = exchange.elements * size
        timed, sent = self.clock.exchange(exchange, recipe), SENT.get(exchange.kind, 1.0) * nbytes
        return self._joules(timed, ("bf16",), 0.0, 2 * nbytes, 1.0, sent)
