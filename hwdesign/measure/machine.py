"""What this machine is: names of processors and GPUs, the last cache, free memory."""

import contextlib
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

from hwdesign.catalogue.device import device, device_names
from hwdesign.units import GIB

CACHE = 2.0**26  # of a processor, taken where nobody says how large it is [byte]
# Most of a cache that a machine of up to 4 cores can hold: it is a slice of a larger one [byte].
SHARE = 2.0**28


def catalogue_name(reported):
    """Catalogue name of a device.

    Parameters
    ----------
    reported : str
        The name the device reports.

    Returns
    -------
    str or None
        The name; None where the catalogue has no such device, or only a sister with other
        numbers.

    Notes
    -----
    Source: names as `nvidia-smi` prints them.

    Examples
    --------
    >>> (
    ...     catalogue_name("NVIDIA H200"),
    ...     catalogue_name("NVIDIA H200 NVL"),
    ...     catalogue_name("NVIDIA A100-SXM4-40GB"),
    ... )
    ('H200', None, None)
    """
    for name in device_names():
        if is_called(device(name), reported):
            return name
    return None


def is_called(device, reported):
    """Whether a driver's name, with or without the vendor, is that of this device.

    >>> is_called(device("H200"), "NVIDIA H200"), is_called(device("H200"), "NVIDIA H200 NVL")
    (True, False)
    """
    short = re.sub(r"^(NVIDIA|Tesla|AMD)\s+", "", str(reported).strip())
    return bool(device.reported_name and re.fullmatch(device.reported_name, short))


def cpu_name():
    """The processor's name and number of cores.

    Returns
    -------
    str
        For example "Intel(R) Xeon(R) Processor, 2 cores".

    Notes
    -----
    Source: /proc/cpuinfo, macOS's `sysctl`, or the platform's own word.

    Examples
    --------
    >>> cpu_name().endswith(("cores", "core"))
    True
    """
    name = said("sysctl", "-n", "machdep.cpu.brand_string") if sys.platform == "darwin" else ""
    with contextlib.suppress(OSError, IndexError):
        name = (
            name
            or re.findall(
                r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.M
            )[0]
        )
    name = name or platform.processor() or platform.machine() or "unknown CPU"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{' '.join(name.split())}, {cores} core{'s' if cores != 1 else ''}"


def cpu_cache(root="/sys/devices/system/cpu"):
    """Last-level caches of all cores together, and who says so.

    Parameters
    ----------
    root : str or Path
        Where Linux describes its caches.

    Returns
    -------
    (float, str)
        Size [byte], and "told by the system", the same "capped" or "assumed, unknown".

    Notes
    -----
    Source: /sys of Linux. A machine of up to four cores is a slice of a larger one and cannot hold
    the whole cache.

    Examples
    --------
    >>> cpu_cache("nowhere")
    (67108864.0, 'assumed, unknown')
    """
    caches = {}
    for index in Path(root).glob("cpu[0-9]*/cache/index*"):
        with contextlib.suppress(OSError, ValueError, KeyError, IndexError):
            level, size, shared = (
                (index / f).read_text().strip() for f in ("level", "size", "shared_cpu_list")
            )
            factor = {"K": 1024, "M": 1024**2, "G": 1024**3}[size[-1]]
            caches.setdefault(int(level), {})[shared] = int(size[:-1]) * factor
    if not caches:
        return CACHE, "assumed, unknown"
    told = float(sum(caches[max(caches)].values()))
    return (
        (SHARE, "told by the system, capped")
        if told > SHARE and (os.cpu_count() or 1) <= 4
        else (told, "told by the system")
    )


def cpu_free(root="/sys/fs/cgroup"):
    """Memory that is free and that a container's limit leaves.

    Parameters
    ----------
    root : str or Path
        Where Linux describes the limits of a container.

    Returns
    -------
    float
        Memory [byte]; 2 GiB where nobody says.

    Notes
    -----
    Source: /proc/meminfo and control groups of Linux, version 2 and 1.

    Examples
    --------
    >>> cpu_free() > 0
    True
    """
    free = 2 * GIB
    with contextlib.suppress(OSError, IndexError):
        text = Path("/proc/meminfo").read_text(encoding="utf-8")
        free = 1024.0 * int(re.findall(r"MemAvailable:\s+(\d+)", text)[0])
    for pair in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        with contextlib.suppress(OSError, ValueError):
            limit, used = (float((Path(root) / file).read_text()) for file in pair)
            free = min(free, max(0.0, limit - used))
    return free


def said(*command):
    """What a program prints.

    Parameters
    ----------
    *command : str
        Program and arguments.

    Returns
    -------
    str
        Its output; nothing where it is not there or fails.

    Notes
    -----
    Source: the program.

    Examples
    --------
    >>> said("no-such-program")
    ''
    """
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(
            command, capture_output=True, text=True, timeout=10, check=True
        ).stdout
    return ""
