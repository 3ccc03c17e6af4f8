"""Times of the kernels that keep a state: the recurrences of linear attention, token by token in
decode and in chunks in prefill, and the mixing of several residual streams.

As in `hwdesign.timing.kernels`, each function takes the `Scan` of `hwdesign.models.steps`, a device
and a mapping of fitted constants.
"""

import numpy as np

from hwdesign.catalogue.precision import BF16, FP32

CHUNK = 64  # tokens that a chunked recurrence works on at a time
SLOTS = 2  # states of heads that an SM works on at a time, one token each


def state_bytes(scan, element_bytes=FP32.bytes):
    """Bytes of a recurrence and its convolution: the states are read and written once, whatever the
    number of tokens.

    Parameters
    ----------
    scan : Scan
        With `ends` and `kept`, which are in BF16.
    element_bytes : float
        Size of an element of the state [byte].

    Returns
    -------
    float or ndarray of float
        Bytes of one layer [byte].

    Notes
    -----
    Source: counted on the kernels of flash-linear-attention: the convolution reads and writes its
    channels and its last rows, the recurrence reads them and writes its outputs.

    Examples
    --------
    >>> from hwdesign.models.steps import Scan
    >>> state_bytes(Scan(state=2.0e6, ends=1e3, kept=500.0))
    8004000.0
    """
    ends = scan.batch * scan.queries * scan.ends + 2 * scan.batch * scan.kept
    return scan.state * element_bytes + ends * BF16.bytes


def state_decode_seconds(scan, element_bytes, device, c):
    """Time of a recurrence and its convolution for one new token a sequence:
    ``fixed + root of squares(memory, waves)``.

    Memory is the states of all heads, read and written: no term depends on the context. Waves: the
    states run on the SMs in rounds, two on each.

    Parameters
    ----------
    scan : Scan
        Of a step with one new token.
    element_bytes : float
        Size of an element of the state [byte].
    device : Device
        Bandwidth and SMs.
    c : mapping of str to float
        fixed [s]; bandwidth, share of the datasheet's; wave, time of a round [s].

    Returns
    -------
    float or ndarray of float
        Time of one layer [s].

    Notes
    -----
    Source: form and constants fitted on the tables of SGLang, vLLM and TensorRT-LLM; see the page
    Accuracy.

    Examples
    --------
    >>> from hwdesign.catalogue.device import device
    >>> from hwdesign.models.steps import Scan
    >>> c = {"fixed": 0, "bandwidth": 1, "wave": 0}
    >>> scan = Scan(state=2.0 * 64 * 48 * 128**2, batch=64, heads=48)
    >>> round(float(state_decode_seconds(scan, 4.0, device("GB300"), c)) * 1e6, 1)
    50.3
    """
    memory = state_bytes(scan, element_bytes) / (c["bandwidth"] * device.memory_bandwidth)
    waves = c["wave"] * np.ceil(scan.batch * scan.heads / (SLOTS * (device.sms or 132)))
    return c["fixed"] + np.sqrt(np.square(memory) + np.square(waves))


def state_prefill_seconds(scan, element_bytes, device, c):
    """Time of a chunked recurrence and its convolution for many new tokens a sequence:
    ``fixed + fill + memory + root of squares(work, chain)``.

    Work: a chunk of a head takes an SM its time, and each of its tokens a little more. Chain: the
    chunks of a head follow one another, and the heads come in rounds of one an SM. Fill: what the
    first chunk takes until its triangle is solved.

    Parameters
    ----------
    scan : Scan
        Of a step with many new tokens.
    element_bytes : float
        Size of an element of the state [byte].
    device : Device
        Bandwidth and SMs.
    c : mapping of str to float
        fixed [s]; fill, of a full chunk [s]; bandwidth, share of the datasheet's; chunk, token and
        start, time that a chunk, a token and a head take an SM [s]; chain, time from a chunk to the
        next [s].

    Returns
    -------
    float or ndarray of float
        Time of one layer [s].

    Notes
    -----
    Source: form and constants fitted on the tables of SGLang, vLLM and TensorRT-LLM; see the page
    Accuracy.

    Examples
    --------
    >>> from hwdesign.catalogue.device import device
    >>> from hwdesign.models.steps import Scan
    >>> c = dict.fromkeys(("fixed", "fill", "chunk", "token", "start"), 0)
    >>> scan = Scan(state=0.0, batch=1, heads=48, queries=8192)
    >>> timed = state_prefill_seconds(
    ...     scan, 4.0, device("GB300"), c | {"bandwidth": 1, "chain": 1e-6}
    ... )
    >>> round(float(timed) * 1e6)
    128
    """
    memory = state_bytes(scan, element_bytes) / (c["bandwidth"] * device.memory_bandwidth)
    chunks = np.ceil(scan.queries / CHUNK)
    on_sm = scan.batch * scan.heads / (device.sms or 132)
    work = (c["chunk"] * chunks + c["token"] * scan.queries + c["start"]) * on_sm
    chain = c["chain"] * chunks * np.ceil(on_sm)
    fill = c["fill"] * np.minimum(scan.queries / CHUNK, 1)
    return c["fixed"] + fill + memory + np.sqrt(np.square(work) + np.square(chain))


def mixing_seconds(scan, device, c):
    """Time of the mixing of residual streams around the two parts of a layer, beside the product
    that makes its numbers: ``fixed + memory``.

    Parameters
    ----------
    scan : Scan
        With `ends`, what a token reads and writes in BF16.
    device : Device
        Bandwidth.
    c : mapping of str to float
        fixed [s]; bandwidth, share of the datasheet's.

    Returns
    -------
    float or ndarray of float
        Time of one layer [s].

    Notes
    -----
    Source: form and constants fitted on the tables of SGLang, vLLM and TensorRT-LLM; see the page
    Accuracy.

    Examples
    --------
    >>> from hwdesign.catalogue.device import device
    >>> from hwdesign.models.steps import Scan
    >>> scan = Scan(state=0.0, batch=64, queries=1, ends=28 * 4096.0)
    >>> mixed = mixing_seconds(scan, device("GB300"), {"fixed": 0, "bandwidth": 1})
    >>> round(float(mixed) * 1e6, 2)
    1.84
    """
    return c["fixed"] + state_bytes(scan) / (c["bandwidth"] * device.memory_bandwidth)
