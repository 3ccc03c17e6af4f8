"""Tables of published numbers: CSV files beside this one whose rows name their sources."""

import csv
from importlib import resources


def rows(file, text):
    """Rows of a table of published numbers.

    Parameters
    ----------
    file : str
        Name of a CSV file of the catalogue.
    text : sequence of str
        Columns that are no numbers.

    Yields
    ------
    dict
        Column to value: numbers as floats in the units of the file, NaN where there is none; "same" as the source repeats the
        one above.

    Raises
    ------
    FileNotFoundError
        If there is no such file.

    Notes
    -----
    Source: the `source` column of each file.

    Examples
    --------
    >>> next(rows("chunked_pipeline.csv", ("model", "device", "cut", "quantity", "note", "source")))["tokens"]
    131072.0
    """
    source = ""
    content = resources.files("hwdesign.catalogue").joinpath(file).read_text(encoding="utf-8")
    for row in csv.DictReader(content.splitlines()):
        source = source if row["source"] == "same" else row["source"]
        yield {key: value if key in text else float(value or "nan") for key, value in row.items()} | {"source": source}
