"""The exercises of chapter 2. As in chapter 1, the numbers of a question are typed and everything
else is computed.
"""

import math

import numpy as np

from hwdesign.catalogue.device import device as as_device
from hwdesign.catalogue.precision import precision as as_precision
from hwdesign.formulas.tiling import pad, tile_efficiency, wave_efficiency, waves
from hwdesign.lessons.exercises.base import ELEMENT, Exercise, unless, variants, with_article
from hwdesign.models.sharding import Neighbours, Tier, width_tiers

TILE = {"tile_m": 128, "tile_n": 256}  # [element]
TURNED = {"tile_m": 256, "tile_n": 128}  # [element]
# SMs of the whole chip, of which a product has some switched off: NVIDIA CUTLASS 7107b05,
# tile_scheduler_params.h; `devices.csv`
FULL_CHIP = {"H100_SXM": 144, "H200": 144, "B200": 160, "GB300": 160}
OTHER = {"B200": "GB300", "GB300": "B200"}


# 2.1
# --------------------------------------------------------------------------------------------------

_NUMBERS_1 = variants(
    "device m n",
    ("B200", 1800, 5000),
    ("GB300", 1800, 5000),
    ("B200", 2200, 6500),
    ("GB300", 2500, 7500),
    ("H100_SXM", 1000, 4400),
    ("H200", 3000, 2900),
    ("A100_SXM", 1900, 3700),
)


def _text_tiles(device, m, n):
    return (
        f"On {with_article(device)}, a kernel computes tiles of 128 rows x 256 columns. Each "
        "SM takes one tile a wave. The "
        f"output has $M = {m}$ rows and $N = {n}$ columns. How many tiles are launched, in how "
        "many waves, and which share of "
        "what these waves could compute is outputs (tile efficiency times wave efficiency)? "
        "The catalogue has the number of SMs."
    )


def _tiles(device, m, n, *, tile=TILE, sms=None):
    """(tiles, waves, efficiency); `tile` and `sms` stand in for the right ones."""
    sms = sms or as_device(device).sms
    tiles = pad(m, tile["tile_m"]) * pad(n, tile["tile_n"]) / math.prod(tile.values())
    share = tile_efficiency(m, n, **tile) * wave_efficiency(m, n, **tile, sms=sms)
    return float(tiles), float(waves(m, n, **tile, sms=sms)), float(share)


def _counted(tiles, device, m, n):
    """The answer with another number of tiles."""
    slots = math.ceil(tiles / as_device(device).sms) * as_device(device).sms
    return tiles, slots / as_device(device).sms, m * n / (slots * math.prod(TILE.values()))


def _not_rounded(m, n, **given):
    """The counts seem not to be rounded up. A tile at the edge is launched whole: round rows and
    columns up, each on its own.
    """
    return _counted(m / TILE["tile_m"] * n / TILE["tile_n"], m=m, n=n, **given)


def _rounded_down(m, n, **given):
    """The counts seem to be rounded down. The rows and columns that are left over need tiles
    too.
    """
    return _counted(m // TILE["tile_m"] * (n // TILE["tile_n"]), m=m, n=n, **given)


def _tile_turned(**given):
    """The tile seems to be turned. It has 128 rows, for M, and 256 columns, for N."""
    return _tiles(**given, tile=TURNED)


def _tile_efficiency_alone(m, n, **given):
    """This is the efficiency of the tiles alone. The last wave leaves SMs idle: multiply by the
    wave efficiency.
    """
    return *_tiles(m=m, n=n, **given)[:2], float(tile_efficiency(m, n, **TILE))


def _wave_efficiency_alone(device, m, n):
    """This is the efficiency of the waves alone. The tiles at the edge are partly empty: multiply
    by the tile efficiency.
    """
    return *_tiles(device, m, n)[:2], float(
        wave_efficiency(m, n, **TILE, sms=as_device(device).sms)
    )


def _another_device(device, **given):
    """B200 and GB300 differ in their number of SMs. `hw.B200.sms` and `hw.GB300.sms` have them."""
    return _tiles(OTHER[device], **given) if device in OTHER else None


def _full_chip(device, **given):
    """This counts the SMs of the full chip. A product has some of them switched off: the catalogue
    has those that run.
    """
    return _tiles(device, **given, sms=FULL_CHIP[device]) if device in FULL_CHIP else None


def _percent_without_sign(**given):
    """The efficiency seems to be in percent. Write it as a share, or with the sign: 0.78 or "78
    %".
    """
    tiles, rounds, share = _tiles(**given)
    return tiles, rounds, 100 * share


_WAVES = Exercise(
    id="2.1",
    variants=_NUMBERS_1,
    text=_text_tiles,
    solve=_tiles,
    parts=("Tile count", "Wave count", "Efficiency"),
    units=("tile", "tiles", "wave", "waves"),
    asks='three numbers (tiles, waves, efficiency), the efficiency as 0.78 or "78 %"',
    tolerance=0.01,
    why="Hardware launches whole tiles in whole waves, and what is not output in them takes "
    "its time all the same.",
    hints=(
        "A tile at the edge is launched whole, and so is the last wave. Where does each of the "
        "two lose work?",
        "Tiles: ceil(M / 128) times ceil(N / 256). Waves: tiles over SMs, rounded up. "
        "Efficiency: M N over the outputs that all SMs could compute in all waves.",
    ),
    mistakes=(
        _not_rounded,
        _rounded_down,
        _tile_turned,
        _tile_efficiency_alone,
        _wave_efficiency_alone,
        _another_device,
        _full_chip,
        _percent_without_sign,
    ),
)


# 2.2 ----------------------------------------------------------------------------------------------

_NUMBERS_2 = variants(
    "vocabulary ways hidden",
    (49954, 16, 4096),
    (50257, 8, 2048),
    (32001, 8, 4096),
    (151669, 16, 5120),
    (128259, 8, 8192),
    (152064, 8, 8192),
    (201088, 8, 2880),
)


def _text_vocabulary(vocabulary, ways, hidden):
    return (
        f"A vocabulary of {vocabulary} tokens is split over {ways} GPUs, and each shall hold a "
        "multiple of 128 rows. What is the "
        "smallest size to pad it to, and how many parameters do embedding and head gain "
        f"together at $H = {hidden}$? "
        "The two are separate matrices."
    )


def _vocabulary(vocabulary, ways, hidden, *, multiple=128, rounded=pad, matrices=2):
    """(padded vocabulary, gained parameters) [element]; the keywords stand in for the right
    rule.
    """
    padded = float(rounded(vocabulary, multiple * ways))
    return padded, matrices * (padded - vocabulary) * hidden


def _ways_forgotten(ways, **given):
    """This is a multiple of 128, but its shards are not. The number of GPUs belongs into the
    multiple.
    """
    return _vocabulary(ways=1, **given)


def _ways_alone(**given):
    """This splits evenly over the GPUs, but the shards are no multiples of 128."""
    return _vocabulary(**given, multiple=1)


def _default_of_engines(**given):
    """This pads to 64 rows on each GPU. Engines pad to 64 by default; the question asks for 128."""
    return _vocabulary(**given, multiple=64)


def _vocabulary_cut(**given):
    """This size lies below the vocabulary. Padding rounds up: no token may lose its row."""
    return _vocabulary(**given, rounded=lambda size, multiple: size // multiple * multiple)


def _counted_once(**given):
    """This counts one matrix, as if the two were tied. Embedding and head both gain the rows."""
    return _vocabulary(**given, matrices=1)


def _all_rows(hidden, **given):
    """This counts all rows of the two matrices. The question asks for what the padding adds."""
    padded = _vocabulary(hidden=hidden, **given)[0]
    return padded, 2 * padded * hidden


_VOCABULARY = Exercise(
    id="2.2",
    variants=_NUMBERS_2,
    text=_text_vocabulary,
    solve=_vocabulary,
    parts=("Padded vocabulary", "Gain in parameters"),
    units=("row", "rows", "parameter", "parameters", "token", "tokens"),
    asks="two whole numbers (padded vocabulary in rows, gained parameters), all digits",
    tolerance=0.0,
    why="The added rows cost memory that no token uses, and with them the head of each GPU "
    "fills its tiles.",
    hints=(
        "Each shard shall be a multiple of 128. What must the whole vocabulary be a multiple of?",
        "Round up to a multiple of 128 times the number of GPUs. The rows added, times H, come "
        "in two matrices.",
    ),
    mistakes=(
        _ways_forgotten,
        _ways_alone,
        _default_of_engines,
        _vocabulary_cut,
        _counted_once,
        _all_rows,
    ),
)


# 2.3 ----------------------------------------------------------------------------------------------

_NUMBERS_3 = variants(
    "width precision",
    (1856, "nvfp4"),
    (1536, "fp8_128x128"),
    (768, "fp8_128x128"),
    (768, "nvfp4"),
    (29568, "int4_g128"),
    (2880, "mxfp4"),
    (1408, "mxfp4"),
    (7168, "nvfp4"),
)


def _text_shards(width, precision):
    return (
        f"Tensor parallelism splits a feed-forward width of $H' = {width}$ with weights in "
        f"{as_precision(precision).label}. What "
        "is the largest number of ways among 1, 2, 4, 8 and 16 (a) that cuts no scale block, "
        "(b) whose shards are multiples of "
        "128? Write 0 where there is none."
    )


def _fits(width, ways, multiple):
    return Tier(name="shard", width=width, ways=ways, multiple=multiple).ok


def _shards(width, precision, *, block=None, fits=_fits):
    """(most ways by the scale block, most ways by 128), 0 where none; the keywords stand in for the
    right rule.
    """
    rules = block or width_tiers(width, 1, precision)["format"].multiple, 128
    return tuple(
        float(max((w for w in (1, 2, 4, 8, 16) if fits(width, w, rule)), default=0))
        for rule in rules
    )


def _any_even_split(**given):
    """These ways divide the width evenly. Each shard must also be a multiple, of the scale block or
    of 128.
    """
    return _shards(**given, fits=lambda width, ways, _: width % ways == 0)


def _whole_width(**given):
    """The rule seems to be applied to the whole width. It holds for the shard: divide by the ways
    first.
    """
    return _shards(
        **given, fits=lambda width, ways, multiple: width % multiple == width % ways == 0
    )


def _block_of_another_format(width, precision):
    """The scale block seems to be that of another format: 16 elements in NVFP4, 32 in MXFP4."""
    other = {"nvfp4": "mxfp4", "mxfp4": "nvfp4"}.get(precision)
    value = _shards(width, precision, block=as_precision(other).block[-1]) if other else None
    return unless(_shards(width, precision), value)


def _parts_exchanged(**given):
    """The two parts seem to be exchanged: (a) is the scale block, (b) the multiple of 128."""
    return unless(_shards(**given), _shards(**given)[::-1])


_SHARDS = Exercise(
    id="2.3",
    variants=_NUMBERS_3,
    text=_text_shards,
    solve=_shards,
    parts=("Part (a)", "Part (b)"),
    units=("GPU", "GPUs", "way", "ways"),
    asks="two numbers of ways (a, b), 0 where there is none",
    tolerance=0.0,
    why="A width is chosen once, and with it the numbers of GPUs that can share it for as long "
    "as the model is served.",
    hints=(
        "Divide the width by the ways first. Then ask whether that shard is a multiple.",
        "`hw.precision(name).block` has the scale block, its last number along the width. "
        "`hw.good_ways` lists the ways that pass a tier.",
    ),
    mistakes=(_any_even_split, _whole_width, _block_of_another_format, _parts_exchanged),
)


# 2.4 ----------------------------------------------------------------------------------------------

_NUMBERS_4 = variants(
    "device n rounds",
    ("B200", 5120, 1),
    ("B200", 2560, 2),
    ("B200", 4096, 3),
    ("B200", 7168, 3),
    ("B200", 10240, 3),
    ("GB300", 2560, 1),
    ("GB300", 10240, 4),
    ("GB300", 12288, 3),
)


def _text_step(device, n, rounds):
    return (
        "TensorRT-LLM's default NVFP4 kernel on Blackwell takes tiles of 128 rows x 256 columns. "
        f"At $N = {n}$ on {with_article(device)}, what is the largest number of rows $M$ that "
        "still fits into "
        f"{rounds} wave{'s' * (rounds > 1)}? Predict first, then look at the published times "
        "with $K = 8192$."
    )


def _rows(device, n, rounds, *, tile=TILE, sms=None, whole=math.floor):
    """Most rows of so many waves [element]; the keywords stand in for the right ones."""
    columns = pad(n, tile["tile_n"]) / tile["tile_n"]
    return float(whole(rounds * (sms or as_device(device).sms) / columns) * tile["tile_m"])


def _turned_step(**given):
    """The tile seems to be turned. It has 128 rows, which M fills, and 256 columns, which N
    fills.
    """
    return _rows(**given, tile=TURNED)


def _first_row_beyond(**given):
    """This is the first number of rows that does not fit. The question asks for the last that
    does.
    """
    return _rows(**given) + 1


def _rounded_up(**given):
    """The rows of tiles seem to be rounded up. The last of them opens another wave: round down."""
    return _rows(**given, whole=math.ceil)


def _area_alone(device, n, rounds):
    """This divides the outputs of a wave by N. Tiles come whole: count the rows of tiles, and 128
    rows for each.
    """
    return float(rounds * as_device(device).sms * math.prod(TILE.values()) // n)


def _rows_of_tiles(**given):
    """These are rows of tiles. Each of them holds 128 rows of the output."""
    return _rows(**given) / TILE["tile_m"]


def _step_elsewhere(device, **given):
    """B200 and GB300 differ in their number of SMs, and the step moves with it.
    `hw.device(name).sms` has it.
    """
    return unless(_rows(device, **given), _rows(OTHER[device], **given))


_STEP = Exercise(
    id="2.4",
    variants=_NUMBERS_4,
    text=_text_step,
    solve=_rows,
    units=("row", "rows", "token", "tokens"),
    asks="a whole number of rows",
    tolerance=0.0,
    why="The next row opens a wave of its own, so a batch of this size is the best that these "
    "waves can serve.",
    hints=(
        "How many tiles fit into the waves, and how many of them stand in one row of tiles?",
        "A row of tiles has ceil(N / 256) of them. Divide the tiles of all waves by that, "
        "round down, and multiply by 128 rows.",
    ),
    mistakes=(
        _turned_step,
        _first_row_beyond,
        _rounded_up,
        _area_alone,
        _rows_of_tiles,
        _step_elsewhere,
    ),
)


# 2.5 ----------------------------------------------------------------------------------------------

_NUMBERS_5 = variants(
    "device ways tokens wish",
    ("GB300", 8, 1920, 11000),
    ("GB300", 8, 1408, 14000),
    ("GB300", 4, 2432, 14000),
    ("GB300", 4, 640, 14000),
    ("GB300", 2, 1408, 6000),
    ("B200", 4, 1408, 7000),
    ("B200", 2, 1920, 6000),
    ("B200", 8, 2432, 25000),
)
RANGE = 20  # how far from the wish a width may lie [percent]


def _text_design(device, ways, tokens, wish):
    return (
        f"A gated feed-forward block is served in NVFP4 on {ways} {device.replace('_', ' ')} "
        "with tensor parallelism. The batch "
        f"has $M = {tokens}$ tokens, the wish is $H' = {wish}$. On the way up each GPU "
        f"computes $N = 2H'/{ways}$ columns in "
        f"tiles of 128 rows x 256 columns. Take the widths within {RANGE} % of the wish whose "
        f"shards $H'/{ways}$ are multiples "
        "of 128. Which has the highest tile efficiency times wave efficiency? Of equal ones, "
        "name the nearest to the wish."
    )


def _design(device, ways, tokens, wish, *, gate=2, tile=TILE, sms=None, waves_count=True):
    """H' with the highest efficiency [element]; the keywords stand in for the right way."""
    step = Neighbours(wish=wish, ways=ways, multiple=128).step
    low, high = (wish * (100 + side) / 100 / step for side in (-RANGE, RANGE))
    widths = step * np.arange(math.ceil(low), math.floor(high) + 1)
    output = tokens, gate * widths / ways
    share = tile_efficiency(*output, **tile)
    if waves_count:
        share = share * wave_efficiency(*output, **tile, sms=sms or as_device(device).sms)
    return float(widths[np.lexsort((abs(widths - wish), -share.round(9)))[0]])


def _gate_forgotten(**given):
    """The gate seems to be missing. Gate and up-projection are computed together: N = 2 H' / TP."""
    return _design(**given, gate=1)


def _ways_left_out(ways, **given):
    """The split seems to be missing. Each GPU computes its share of the columns, and the shard must
    be a multiple of 128.
    """
    return _design(ways=1, **given)


def _waves_left_out(**given):
    """This is the good width nearest to the wish. All of them fill their tiles equally: the waves
    tell them apart.
    """
    return _design(**given, waves_count=False)


def _turned_design(**given):
    """The tile seems to be turned. It has 128 rows, for the tokens, and 256 columns, for the
    width.
    """
    return _design(**given, tile=TURNED)


def _design_elsewhere(device, **given):
    """This width is the best for another number of SMs: B200 and GB300 differ in it.
    `hw.device(name).sms` has it.
    """
    return unless(_design(device, **given), _design(OTHER[device], **given))


_DESIGN = Exercise(
    id="2.5",
    variants=_NUMBERS_5,
    text=_text_design,
    solve=_design,
    units=ELEMENT,
    asks="a width H' in elements",
    tolerance=0.0,
    why="Multiples of 128 fill the tiles; which of them fills the waves depends on the batch "
    "and on the device.",
    hints=(
        "List the multiples of 128 times the number of GPUs around the wish, and the tiles of "
        "each.",
        "Rows of tiles: ceil(M / 128). Columns of tiles: N / 256. Compare tiles over waves "
        "times SMs.",
    ),
    mistakes=(_gate_forgotten, _ways_left_out, _waves_left_out, _turned_design, _design_elsewhere),
)

EXERCISES = (_WAVES, _VOCABULARY, _SHARDS, _STEP, _DESIGN)
