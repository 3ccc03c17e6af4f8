"""Lists of modules, looked at quickly, mean what they mean looked at one by one."""

import fnmatch
import random
from itertools import product

import pytest
from conftest import configs_2026

from hwdesign.models import config, module_rules

CONFIGS = list(configs_2026().values())
LLAMA = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 23, "num_attention_heads": 8,
         "num_key_value_heads": 2, "vocab_size": 100}  # fmt: skip
MOE = {**LLAMA, "model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
       "mlp_only_layers": [0, 3, 14]}  # fmt: skip
ENTRIES = ["lm_head", "model.layers.{i}.self_attn", "model.layers.{i}.self_attn*", "model.layers.{i}.mlp", "model.layers.{i}*",
           "layers.{i}.self_attn.o_proj", "*.mlp.*", "re:.*layers.{i}[.].*", "re:.*self_attn.*", "*.{i}.mlp*", "self_attn.q_proj",
           "model.layers.{i}.mlp.experts.1", "model.layers.{i}.mlp.experts*", "model.layers.{i}.mlp.down_proj", "mtp.layers.{i}*",
           "model.layers.{i}.attention", "model.layers.[{i}-9]*", "re:model[.]layers...mlp[.].*"]  # fmt: skip


def found(values):
    try:
        model = config.load(values)
    except ValueError as error:
        return str(error)
    return model.quantization, model.formats, model.left_out, model.bytes_unknown


def one_by_one(monkeypatch):
    """Each layer by itself, and each entry of each list, as a regular expression where it has a *."""

    def patterns_for(self, layer):
        return [p[:3] for p in self.patterns if not (p[3] and layer and p[3] != layer)]

    def wildcard(text):
        texts = (f"{before}{text}{after}" for before, after in product(("", "*."), ("", ".*")))
        return module_rules.re.compile("|".join(map(fnmatch.translate, texts))).match

    monkeypatch.setattr(module_rules.Rules, "likeness", lambda self, number: (number, object()))
    monkeypatch.setattr(module_rules.Rules, "_patterns_for", patterns_for)
    monkeypatch.setattr(module_rules, "_wildcard", wildcard)


def lists(seed, count):
    rng = random.Random(seed)
    for _ in range(count):
        layers = rng.sample(range(25), rng.randrange(1, 12)) + [rng.choice([1, 2])]
        templates = rng.sample(ENTRIES, rng.randrange(1, 4))
        named = [template.format(i=i) for i in layers for template in templates]
        rng.shuffle(named)
        yield {**rng.choice([LLAMA, MOE]), "quantization_config": {"quant_method": "fp8", "ignore": list(dict.fromkeys(named))}}


def groups(seed, count):
    """Of compressed-tensors: two formats, so that the order of entries matters."""
    eight = {"num_bits": 8, "type": "float", "strategy": "tensor"}
    rng, always = random.Random(seed), ["re:.*self_attn.*", "model.layers.4.self_attn*", "model.layers.9.self_attn*"]
    four = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}
    for _ in range(count):
        made = {}
        for name in ("a", "b", "c"):
            named = [rng.choice(ENTRIES[1:]).format(i=rng.randrange(23)) for _ in range(rng.randrange(1, 5))]
            named = rng.choice([named, rng.sample(always, 1)])
            weights = rng.choice([eight, four])
            inputs = {"num_bits": 8, "type": "float"} if weights is eight else None
            made[name] = {"targets": named, "weights": weights, "input_activations": inputs}
        yield {**rng.choice([LLAMA, MOE]), "quantization_config": {"quant_method": "compressed-tensors", "config_groups": made}}


@pytest.mark.parametrize("configs", [lists(1, 120), groups(2, 120), CONFIGS], ids=["lists", "groups", "published"])
def test_layers_alike_are_looked_at_once_and_mean_the_same(monkeypatch, configs):
    configs = list(configs)
    quick = [found(values) for values in configs]
    one_by_one(monkeypatch)
    for values, told in zip(configs, quick, strict=True):
        assert told == found(values), values
    read = [told for told in quick if not isinstance(told, str) and told[1]]
    assert len(read) > len(configs) / 10


@pytest.mark.parametrize("text", ["lm*", "layers.3.self_attn*", "*.mlp.*", "layers.*.mlp", "a[bc]*", "a?*", "*", "a.*"])
def test_a_name_with_stars_matches_as_fnmatch_says(text):
    rng, match = random.Random(5), module_rules._wildcard(text)
    for _ in range(2000):
        name = ".".join(rng.choice(["lm", "lm_head", "layers", "3", "33", "self_attn", "mlp", "a", "ab", "ax", "x"])
                        for _ in range(rng.randrange(1, 6)))  # fmt: skip
        texts = [f"{before}{text}{after}" for before, after in product(("", "*."), ("", ".*"))]
        assert bool(match(name)) == any(fnmatch.fnmatchcase(name, one) for one in texts), name
