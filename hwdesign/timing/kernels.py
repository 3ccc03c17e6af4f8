"""Times of the kernels that are no GEMM: attention, a layer of experts, collectives. Small physical
models, few constants.

Each function takes the `Work`, `Experts` or bytes of `hwdesign.models.steps`, a device and a
mapping of fitted constants. Shares are of the datasheet's numbers, so constants carry over to a
device nobody measured; times are seconds. Where two things overlap, the time is the root of the sum
of squares: never less than the longer one, 1.41 of it where they are equal; in decode attention the
cube root of the sum of cubes, 1.26.
"""

import numpy as np

from hwdesign.formulas.collectives import (
    all_gather_bytes,
    all_reduce_bytes,
    one_shot_bytes,
    transfer_time,
)

TRAY = 4  # GPUs of one host in a rack that one link domain joins
BLOCK = 128  # keys, or query rows, of one tile of the attention kernels
ROWS = 64  # query heads of one tile on a latent in decode
STEP_BYTES = 65536  # of a block of 128 keys and values of size 128 in BF16
HOT = (
    0.72  # share of the L2 cache at which half of a tensor that is read again and again still hits
)
L2_RATE = 64e9  # of an SM, from the L2 cache [byte/s]: 32 bytes a cycle


def cold_share(nbytes, device):
    """Share of a tensor's reads that go to memory, when it is read again and again: 0 well within
    the L2 cache, 1 beyond it.

    Parameters
    ----------
    nbytes : array_like of float
        Size of what is read [byte].
    device : Device
        Its `l2` [byte]; without one everything is cold.

    Returns
    -------
    float or ndarray of float
        Share [dimensionless].

    Notes
    -----
    Source: ``r**8 / (1 + r**8)`` with ``r = nbytes / (0.72 l2)``, fitted on the attention tables of
    five devices: from all hot to all cold within a factor of two in size.

    Examples
    --------
    >>> from hwdesign.catalogue.device import device
    >>> h100 = device("H100_SXM")
    >>> np.round(cold_share(np.array([0.2, 0.72, 1.2]) * h100.l2, h100), 2).tolist()
    [0.0, 0.5, 0.98]
    """
    if not device.l2:
        return np.ones_like(nbytes)
    full = np.square(np.square(np.square(nbytes / (HOT * device.l2))))
    return np.where(np.isinf(full), 1.0, full / (1 + np.minimum(full, 1e300)))


def decode_attention_seconds(work, element_bytes, device, peak_flops, c):
    """Time of scores and values for one new token a sequence.

    ``fixed + cube root of cubes(memory + math, rounds) + merge``. Memory is the cache, hot or cold.
    Rounds: the (sequence, key-value head) pairs run on the SMs in rounds; each starts, takes its
    time for every row of its group, and for each block of 128 keys one that grows with the bytes of
    the block. Merge: where SMs would idle, a sequence is split among them; each doubling of the
    pieces costs one more step.

    Parameters
    ----------
    work : Work
        Of a step with one new token.
    element_bytes : float
        Size of a cached element [byte].
    device : Device
        Bandwidth, L2 and SMs.
    peak_flops : float
        Dense peak of the format that is multiplied [FLOP/s].
    c : mapping of str to float
        fixed [s]; bandwidth, share of the datasheet's; wave, time of one more round [s]; row, time
        of a query row [s]; and where a kernel has them, l2, how much faster the L2 cache is; step,
        time of a block of 64 KiB [s]; merge, time of a doubling of the pieces [s]; fill, rounds
        that a split fills; edge, keys read beyond a window [token].

    Returns
    -------
    float or ndarray of float
        Time of one layer [s].

    Notes
    -----
    Source: form and constants fitted on the tables of three engines; see the page Accuracy.

    Examples
    --------
    >>> from hwdesign.catalogue.device import device
    >>> from hwdesign.models.steps import Work
    >>> ideal = {"fixed": 0, "bandwidth": 1, "wave": 0, "row": 0}
    >>> w = Work(flops=0.0, cache_elements=4e9, batch=1, context=1e6, heads=1, kv_heads=1, size=256)
    >>> round(float(decode_attention_seconds(w, 2.0, device("GB300"), 1e15, ideal)) * 1e3, 2)
    1.0
    """
    sms, seen = device.sms or 132, work.context
    if work.window and "edge" in c:  # a window is read in whole blocks, from wherever it begins
        seen = np.where(seen * work.pieces >= work.window, seen + c["edge"] / work.pieces, seen)
    cache = work.cache_elements * element_bytes * (seen / work.context)
    ends = 2.0 * work.batch * work.heads * work.size  # queries and outputs in BF16
    cold = cold_share(cache + ends, device)
    memory = (
        cache / (c["bandwidth"] * device.memory_bandwidth) * (cold + (1 - cold) / c.get("l2", 1))
        + ends / device.memory_bandwidth
    )
    group = work.heads / work.kv_heads
    tiles = np.ceil(group / ROWS) if work.latent else 1
    pairs, blocks = work.batch * work.kv_heads * tiles, np.maximum(seen / BLOCK, 1)
    pieces = np.clip(c.get("fill", 1) * sms / pairs, 1, blocks)
    step = c.get("step", 0) * cache / (work.batch * work.kv_heads * seen / BLOCK) / STEP_BYTES
    rounds = np.where(pieces > 1, np.maximum(1, pairs * pieces / sms), np.ceil(pairs / sms))
    turns = c["wave"] * (rounds - 1) + rounds * (c["row"] * group / tiles + step * blocks / pieces)
    merge = c.get("merge", 0) * np.log2(pieces)
    both = np.cbrt((memory + work.flops / peak_flops) ** 3 + turns**3)
    return c["fixed"] + both + merge


def prefill_attention_seconds(work, element_bytes, device, peak_flops, c):
    """Time of causal scores and values for many new tokens a sequence:
    ``fixed + math + tiles + chain + memory``.

    A tile is 128 query rows against blocks of 128 keys. Math is the tiles' share of an SM, at a
    reachable rate, and the softmax of a block, which does not shrink with the size of a head;
    `tiles` what an SM spends on each besides; chain, the blocks by which the longest tile exceeds
    the shortest, one after the other. What all tiles have behind a long cache ends with their last,
    unfilled wave. FlashAttention packs the query heads of a key-value head into one tile, and works
    on the latent; the kernels of Blackwell and those of TensorRT-LLM take a tile a head and expand
    it.

    Parameters
    ----------
    work : Work
        Of a step with many new tokens.
    element_bytes : float
        Size of a cached element [byte].
    device : Device
        Bandwidth and SMs.
    peak_flops : float
        Dense peak of the format that is multiplied [FLOP/s].
    c : mapping of str to float
        fixed [s]; rate, share of peak inside a tile; tile, time of a tile besides its math [s];
        chain, latency of the longest tile in units of its math; bandwidth, share of the
        datasheet's; and where a kernel has them, softmax, time of a block's [s]; write, share of
        the bandwidth at which new keys and values are quantized and cached; mask, time of a block
        under a window in units of one without; alone, 1 where a tile holds one query head though
        the device has no FP4.

    Returns
    -------
    float or ndarray of float
        Time of one layer [s].

    Notes
    -----
    Source: form and constants fitted on the tables of three engines; see the page Accuracy.

    Examples
    --------
    >>> from hwdesign.catalogue.device import device
    >>> from hwdesign.models.steps import Work
    >>> ideal = {"fixed": 0, "rate": 1, "tile": 0, "chain": 0, "bandwidth": 1}
    >>> size = {"heads": 64, "kv_heads": 8, "size": 256, "queries": 8192.0, "context": 8192.0}
    >>> w = Work(flops=4 * 128 * 64 * 8192 * 8193 / 2, cache_elements=0.0, batch=1, **size)
    >>> round(float(prefill_attention_seconds(w, 2.0, device("H100_SXM"), 989e12, ideal)) * 1e3, 2)
    1.21
    """
    packed = "fp4" not in device.dense_peak and "alone" not in c  # FlashAttention before Blackwell
    latent, sms = packed and work.latent, device.sms or 132
    size, kv_heads = (work.latent, 1) if latent else (work.size, work.kv_heads)
    rows = work.queries * work.heads / kv_heads
    tiles = (
        kv_heads * np.ceil(rows / BLOCK) if packed else work.heads * np.ceil(work.queries / BLOCK)
    )
    on_sm = work.batch * tiles / sms
    block = np.hypot(
        BLOCK * BLOCK * 2.0 * size * sms / (c["rate"] * peak_flops), c.get("softmax", 0)
    )
    if work.window:
        block = block * c.get("mask", 1)
    first, last, mean = _blocks_of_tiles(work)
    ends = 2.0 * work.batch * work.queries * work.heads * size
    cache = ends if work.latent and not latent else work.cache_elements * element_bytes
    memory = (ends + cache) / (c["bandwidth"] * device.memory_bandwidth)
    if "write" in c:
        new = work.batch * work.queries * work.kv_heads * work.size * (2 + element_bytes)
        memory = memory + new / (c["write"] * device.memory_bandwidth)
    blocks = on_sm * mean + c["chain"] * (last - first + 1) + (np.ceil(on_sm) - on_sm) * (first - 1)
    return c["fixed"] + block * blocks + c["tile"] * on_sm + memory


def _blocks_of_tiles(work):
    """Blocks of 128 keys behind the first tile of a sequence, the last, and one in the mean."""
    before = work.context - (work.queries - 1) / work.pieces  # keys that the first query sees
    if not work.window:
        first, last = np.ceil(before / BLOCK), np.ceil(work.context / BLOCK)
        return first, last, (first + last) / 2
    reach = np.minimum(work.context, (work.window + BLOCK) / work.pieces)
    first, last = np.ceil(np.minimum(reach, before) / BLOCK), np.ceil(reach / BLOCK)
    full = np.minimum(work.context, work.window / work.pieces)  # beyond it no tile grows
    growing = np.clip((full - before + 1) / (work.context - before + 1), 0, 1)
    return first, last, last - growing * (last - first) / 2


def expert_seconds(experts, weight_bytes, activation_bytes, device, peak_flops, c, *, cold=1.0):
    """Time of the routed experts of one layer: ``fixed + doubling log2(1 + tokens)
    + chain (hidden + width) + root of squares(weights, math) + pairs + tokens + slots + local
    + touched``.

    Doubling: the choice of the experts and the sorting of the tokens by expert, in trees. Chain:
    the loop along the reduced dimension of both matrices, which no other tile shortens. Weights are
    read once for each expert touched. Pairs: each pair of a token and an expert is gathered,
    quantized, written between the two matrices and combined. Tokens: each token that arrives is
    read and written once more. Slots: a token's outputs are summed over all experts it chose, zeros
    where an expert lives elsewhere. Local and touched: bookkeeping for each expert that lives here
    and for each that has work.

    Parameters
    ----------
    experts : Experts
        Of a step.
    weight_bytes, activation_bytes : float
        Size of a weight and of a quantized activation [byte].
    device : Device
        Bandwidth.
    peak_flops : float
        Dense peak of the format that is multiplied [FLOP/s].
    c : mapping of str to float
        fixed and doubling [s]; chain [s for each element]; bandwidth, rate, pairs, tokens and
        slots, shares of the datasheet's bandwidth, peak and bandwidths: those of pairs exceed 1
        where a fused kernel keeps on the chip what is counted here; many, share by which weights
        take longer where more tokens arrive than experts live here, for which Triton's kernels
        without a tuned configuration take other tiles; local and touched [s for each expert]. A
        constant that is absent has no effect: no kernel has all.
    cold : array_like of float
        Share of the weights that come from memory, the rest from the L2 cache: all in a step, where
        the weights of other layers came in between; less in a table, whose rows read the same ones.

    Returns
    -------
    float or ndarray of float
        Time of one layer [s].

    Notes
    -----
    Source: form and constants fitted on the tables of vLLM, SGLang and TensorRT-LLM over up to 21
    layers each; see the page Accuracy.

    Examples
    --------
    >>> from hwdesign.catalogue.device import device
    >>> from hwdesign.models.steps import Experts
    >>> e = Experts(tokens=128.0, pairs=1024.0, touched=256.0, local=256, hidden=7168, width=2048)
    >>> shares = dict.fromkeys(("bandwidth", "rate", "pairs", "tokens"), 1)
    >>> ideal = {"fixed": 0, "local": 0, "touched": 0} | shares
    >>> round(float(expert_seconds(e, 0.5625, 0.5625, device("GB300"), 15e15, ideal)) * 1e6)
    801
    """
    b, bandwidth = activation_bytes, device.memory_bandwidth
    weights = experts.elements * weight_bytes
    hot = (1 - cold) / (L2_RATE * device.sms) if device.sms else 0.0
    weights = weights * (cold / (c["bandwidth"] * bandwidth) + hot)
    weights = weights * (1 + c.get("many", 0) * (experts.tokens > np.asarray(experts.local)))
    math = experts.flops / (c["rate"] * peak_flops)
    up = experts.gate * experts.width
    pair_bytes = experts.hidden * (2 + b) + 2 * up + experts.width * (2 + b) + 4 * experts.hidden
    pairs = experts.pairs * pair_bytes / (c.get("pairs", np.inf) * bandwidth)
    token_bytes = experts.tokens * experts.hidden * (4 + b)
    tokens = token_bytes / (c.get("tokens", np.inf) * bandwidth)
    slot_bytes = 2 * np.maximum(experts.slots, experts.pairs) * experts.hidden
    slots = slot_bytes / (c.get("slots", np.inf) * bandwidth)
    kept = c.get("local", 0) * experts.local + c.get("touched", 0) * experts.touched
    start = c.get("doubling", 0) * np.log2(1 + np.asarray(experts.tokens, float))
    start = c["fixed"] + start + c.get("chain", 0) * (experts.hidden + experts.width)
    return start + np.sqrt(np.square(weights) + np.square(math)) + pairs + tokens + slots + kept


def all_reduce_seconds(nbytes, ranks, link_bandwidth, c):
    """Time of an all-reduce inside a link domain: the fastest of one shot, two (reduce-scatter,
    then all-gather) and a sum in the switch.

    One shot sends the tensor to every other rank. Two send twice the share of the others, one more
    latency later; a switch that sums lets a rank send the tensor once. Where an engine's own
    kernels end, with a tray or a size, it takes a library's, which add up a latency for each rank.

    Parameters
    ----------
    nbytes : array_like of float
        Size of the tensor on each rank [byte].
    ranks : array_like of int
        Ranks, >= 2.
    link_bandwidth : float
        One way [byte/s].
    c : mapping of str to float
        latency [s]; doubling, more latency for each doubling of the ranks [s]; second, latency of a
        second exchange [s]; bandwidth, share of the link's. Where they are known: near, how much
        faster one shot is, and switched, how much faster the switch, both of bandwidth; far and
        step, latency of the library and of each rank there but the first [s]; reach, size times
        ranks at which one shot ends, two take the time of at least half that size [byte]; without
        it the library starts beyond a tray of 4.

    Returns
    -------
    float or ndarray of float
        Time [s].

    Notes
    -----
    Source: form and constants fitted on the engines' tables; see the page Accuracy.

    Examples
    --------
    >>> c = {"latency": 2e-6, "doubling": 0, "second": 4e-6, "bandwidth": 1}
    >>> [round(float(all_reduce_seconds(b, 8, 450e9, c)) * 1e6, 1) for b in (4096, 2**28)]
    [2.1, 1049.9]
    """
    latency, rate = c["latency"] + c["doubling"] * np.log2(ranks), c["bandwidth"] * link_bandwidth

    def moved(nbytes):
        sent = all_reduce_bytes(nbytes, ranks) / rate
        return np.minimum(sent, nbytes / (c["switched"] * rate)) if "switched" in c else sent

    once = transfer_time(one_shot_bytes(nbytes, ranks), latency, c.get("near", 1) * rate)
    twice = latency + c["second"] + moved(np.maximum(nbytes, c.get("reach", 0) / 2))
    if "far" not in c:
        return np.minimum(once, twice)
    library = c["far"] + c["step"] * (ranks - 1) + moved(nbytes)
    if "reach" not in c:
        return np.where(np.asarray(ranks) <= TRAY, np.minimum(once, twice), library)[()]
    once = np.where(np.asarray(nbytes) * ranks < c["reach"], once, np.inf)
    return np.minimum(np.minimum(once, twice), library)


def pipelined_seconds(nbytes, latency, bandwidth, fill):
    """Time of a transfer in pieces that follow each other through a pipeline:
    ``latency + wire + sqrt(fill * wire)`` with ``wire = nbytes / bandwidth``.

    Of n pieces the first takes n-th parts of the wire's time to arrive, and each costs a latency of
    its own; the best n leaves a time that grows with the root of the size.

    Parameters
    ----------
    nbytes : array_like of float
        What is sent [byte].
    latency : array_like of float
        Time of an empty transfer [s].
    bandwidth : float
        Of a long one [byte/s].
    fill : float
        Four times the latency of a piece [s].

    Returns
    -------
    float or ndarray of float
        Time [s].

    Notes
    -----
    Source: minimum over n of ``(n + 1) (piece + wire / n)`` without its constant terms.

    Examples
    --------
    >>> round(float(pipelined_seconds(900e3, 1e-6, 900e9, 4e-6)) * 1e6, 2)
    4.0
    """
    wire = nbytes / bandwidth
    return latency + wire + np.sqrt(fill * wire)


def ring_seconds(nbytes, ranks, link_bandwidth, c):
    """Time of an all-gather or reduce-scatter: ``latency + step (ranks - 1)`` and what
    `pipelined_seconds` says of the bytes sent.

    Parameters
    ----------
    nbytes : array_like of float
        Size of the whole tensor [byte].
    ranks : int
        Ranks, >= 2.
    link_bandwidth : float
        One way [byte/s].
    c : mapping of str to float
        latency [s]; step, latency of one more rank [s]; bandwidth, share of the link's; fill, four
        times the latency of a piece, where it is known [s].

    Returns
    -------
    float or ndarray of float
        Time [s].

    Notes
    -----
    Source: form and constants fitted on NCCL's tables; see the page Accuracy.

    Examples
    --------
    >>> round(
    ...     float(ring_seconds(800e6, 8, 450e9, {"latency": 0, "step": 1e-6, "bandwidth": 1}))
    ...     * 1e3,
    ...     3,
    ... )
    1.563
    """
    latency = c["latency"] + c["step"] * (ranks - 1)
    sent, rate = all_gather_bytes(nbytes, ranks), c["bandwidth"] * link_bandwidth
    return pipelined_seconds(sent, latency, rate, c.get("fill", 0))


def all_to_all_seconds(nbytes, ranks, link_bandwidth, c):
    """Time of a dispatch or a combine: ``latency + doubling log2(ranks) + sent / bandwidth``.

    Parameters
    ----------
    nbytes : array_like of float
        Bytes one GPU sends [byte].
    ranks : int
        GPUs that exchange, >= 2.
    link_bandwidth : float
        One way [byte/s].
    c : mapping of str to float
        latency [s]; doubling, more latency for each doubling of the ranks, where it is known [s];
        bandwidth, share of the link's.

    Returns
    -------
    float or ndarray of float
        Time [s].

    Notes
    -----
    Source: form and constants fitted on TensorRT-LLM's one-sided all-to-all on GB200 and on
    SGLang's tables of DeepEP; see the page Accuracy.

    Examples
    --------
    >>> fitted = {"latency": 10e-6, "doubling": 2e-6, "bandwidth": 1}
    >>> round(float(all_to_all_seconds(9e6, 8, 900e9, fitted)) * 1e6, 1)
    26.0
    """
    latency = c["latency"] + c.get("doubling", 0) * np.log2(ranks)
    return transfer_time(nbytes, latency, c["bandwidth"] * link_bandwidth)


def small_seconds(kernels, nbytes, device, c):
    """Time of kernels that work element by element: ``fixed kernels + bytes / bandwidth``.

    Parameters
    ----------
    kernels : array_like of float
        How many [dimensionless].
    nbytes : array_like of float
        What they read and write together [byte].
    device : Device
        Bandwidth.
    c : mapping of str to float
        fixed, time of one that does almost nothing, in a CUDA graph [s]; bandwidth, share of the
        datasheet's, where it is known.

    Returns
    -------
    float or ndarray of float
        Time [s].

    Notes
    -----
    Source: fitted on the engines' tables of one quantization to FP8, for SGLang on its smallest
    GEMMs; see the page Accuracy.

    Examples
    --------
    >>> from hwdesign.catalogue.device import device
    >>> ideal = {"fixed": 2e-6, "bandwidth": 1}
    >>> round(float(small_seconds(3, 3.35e6, device("H100_SXM"), ideal)) * 1e6, 2)
    7.0
    """
    rate = c.get("bandwidth", 1) * device.memory_bandwidth
    return c["fixed"] * kernels + nbytes / rate
