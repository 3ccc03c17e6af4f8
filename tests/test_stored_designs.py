"""What the page From verdict to design prints from stored searches is what the time model says today."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from hwdesign.advice.case import parse_plan
from hwdesign.catalogue.precision import RECIPES, precision
from hwdesign.models import config
from hwdesign.models.model import Model
from hwdesign.timing.serving import time_per_output_token

SCRIPTS = Path(__file__).parents[1] / "scripts"


def stored(name):
    return list(csv.DictReader((SCRIPTS / f"{name}.csv").open(encoding="utf-8")))


def gpu_rate(model, device, gpus, recipe, cache, plans, load, batch):
    """Tokens per second that a GPU makes."""
    attention, ffn = (parse_plan("plan", plan) for plan in plans)
    prompt, answer = map(int, load)
    tokens = {"concurrency": int(batch), "input_tokens": prompt, "output_tokens": answer}
    form = replace(RECIPES[recipe], kv_cache=precision(cache))
    return int(batch) / time_per_output_token(model, device, form, **tokens, attention=attention, ffn=ffn) / gpus


@pytest.mark.parametrize("row", stored("worked_designs"), ids=lambda row: f"{row['device']} {row['speed']} {row['name'][:24]}")
def test_a_design_of_the_page_makes_what_it_says(row):
    model = Model.from_config(json.loads(row["config"])) if row["config"] else config.load(row["name"])
    where = row["device"], int(row["gpus"]), row["recipe"], row["cache"], (row["attention"], row["ffn"])
    rate = gpu_rate(model, *where, (row["prompt"], row["answer"]), row["batch"])
    assert rate == pytest.approx(float(row["gpu_rate"]), rel=1e-3)
    assert float(row["user_rate"]) >= float(row["speed"]) and float(row["low"]) < rate < float(row["high"])
    if row["config"]:
        assert abs(model.parameters / 30e9 - 1) <= 0.03
        assert abs(model.active_parameters(include_embedding=True) / 3e9 - 1) <= 0.03


@pytest.mark.parametrize("row", stored("retrodiction"), ids=lambda row: f"{row['model']} {row['user_rate']}")
def test_a_published_model_makes_what_the_page_says(row):
    told = re.fullmatch(r"(\w+), cache (\w+); --attention (\S+) --ffn (\S+); batch (\d+)", row["model_deployment"])
    recipe, cache, *plans, batch = told.groups()
    rate = gpu_rate(config.load(row["model"]), "H200", 8, recipe, cache, plans, (8192, 1024), batch)
    assert rate == pytest.approx(float(row["model_rate"]), rel=1e-3, abs=0.06)
    assert float(row["share"]) == pytest.approx(float(row["model_rate"]) / float(row["design_rate"]), abs=1e-3)
    assert float(row["share"]) <= 1 and rate / int(batch) * 8 >= float(row["user_rate"]) * 0.999


def test_ten_models_at_three_speeds():
    rows = stored("retrodiction")
    assert len({row["model"] for row in rows}) == 10 and {row["user_rate"] for row in rows} == {"25", "50", "100"}
