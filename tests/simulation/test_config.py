from __future__ import annotations

from typing import Any

import pytest

from tesseract_fl.data.partition import ByWriter, Consecutive, Iid, LabelBiased, Partition
from tesseract_fl.rules.krum import Krum
from tesseract_fl.rules.tesseract import ReputationFilter, Tesseract
from tesseract_fl.rules.transforms import Bucketing, NearestNeighbourMixing
from tesseract_fl.simulation.config import Config
from tesseract_fl.simulation.run import title_of
from tesseract_fl.types import ConfigError


def test_f_is_the_number_of_malicious_clients_unless_set() -> None:
    assert Config.from_table({"malicious": 7}).rule == Tesseract(f=7)
    assert Config.from_table({"malicious": 7, "rule": {"f": 9}}).rule == Tesseract(f=9)
    assert Config.from_table({"malicious": 7, "participation": 0.5}).rule == Tesseract(f=4)


def test_rules_nest() -> None:
    table = {
        "malicious": 3,
        "rule": {"name": "reputation_filter", "inner": {"name": "tesseract", "decay": 0.5}},
    }
    rule = Config.from_table(table).rule
    assert rule == ReputationFilter(f=3, inner=Tesseract(f=3, decay=0.5))


def test_composition_reads_naturally() -> None:
    short = Config.from_table({"malicious": 3, "rule": {"name": "nnm+bucketing+krum", "inner": {"size": 3}}}).rule
    assert short == NearestNeighbourMixing(f=3, inner=Bucketing(size=3, inner=Krum(f=3)))
    assert title_of(Config.from_table({"rule": "nnm+krum"})) == "nnm+krum + none"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"clents": 3}, "no setting 'clents'; did you mean 'clients'"),
        ({"rule": "tesserakt"}, "no rule named 'tesserakt'; did you mean 'tesseract'"),
        ({"attack": "trim"}, "no attack named 'trim'; "),
        ({"rule": {"decai": 1}}, "tesseract has no parameter 'decai'; did you mean 'decay'"),
        ({"rule": "reputation_filter"}, "goes around another one of the rules: name it, as in reputation_filter+NAME"),
        ({"attack": {"name": "mimic", "victim": 1.5}}, "mimic: victim must be a whole number, got 1.5"),
        ({"attack": {"name": "backdoor", "size": True}}, "backdoor: size must be a whole number, got True"),
        ({"rule": {"decay": "slow"}}, "tesseract: decay must be a number, got 'slow'"),
        ({"knowledge": {"updates": "own", "defence": "rule"}}, 'defence = "rule" needs updates = "all"'),
        ({"knowledge": {"name": ["full"]}}, "knowledge"),
        ({"rule": {"name": "dnc", "f": 2, "drop": float("inf")}}, "drop above 0 and finite"),
        ({"attack": "gaussian", "knowledge": "partial", "malicious": 1}, "Gaussian measures how far"),
        ({"rule": 3}, "rule must be a name or a table"),
        ({"clients": 0}, "clients must be a whole number of at least 1"),
        ({"rounds": 1.5}, "rounds must be a whole number"),
        ({"malicious": 100}, "malicious must be below clients"),
        ({"participation": 0.0}, "participation must be above 0"),
        ({"lr": float("nan")}, "lr must be a positive finite number"),
        ({"gradients": "fast"}, "gradients must be one of auto, stacked, vmap, loop, got 'fast'"),
        ({"rule": {"f": 50}}, "2f < n, but f = 50 and n = 100: with 100 clients f may be at most 49"),
        (
            {"clients": 10, "malicious": 4, "rule": {"f": 1}, "attack": "full_krum", "lr": "high"},
            "lr must be",
        ),
        ({"clients": 10, "malicious": 5, "rule": {"f": 1}, "attack": "full_krum"}, "full_krum needs n ≥ 2c"),
        ({"rule": "bucketing+tesseract"}, "bucketing can't stand in front of Tesseract"),
        (
            {"rule": "bucketing+krum", "clients": 20, "malicious": 4},
            "20 clients in buckets of 2: krum needs n ≥ 2f + 3",
        ),
        ({"local_epochs": 1, "local_steps": 2}, "not both"),
        ({"schedule": "cosine"}, "schedule must be one of constant, cifar, got 'cosine'"),
        ({"optimiser": "Adam"}, "optimiser must be one of sgd, adam, got 'Adam'"),
        ({"eval_samples": -1}, "eval_samples must be a whole number of at least 0"),
        ({"gate": 5}, "gate must be a table"),
        ({"gate": {"quorum": "a"}}, "gate: "),
        ({"clients": 0, "participation": 0.5}, "clients must be a whole number of at least 1"),
        ({"rule": {"name": "nnm", "inner": "krumm"}}, "no rule named 'krumm'; did you mean 'krum'"),
        ({"gate": {"quorun": 1}}, "gate has no parameter 'quorun'; did you mean 'quorum'"),
    ],
)
def test_a_mistake_is_answered_with_what_would_be_right(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.from_table(table)
    assert message in str(caught.value)


def test_shares_mean_what_was_written() -> None:
    assert Config.from_table({"participation": 0.07, "malicious": 3}).clients_per_round == 7
    assert Config.from_table({"clients": 22, "malicious": 8, "participation": 0.5}).rule == Tesseract(f=4)


def test_a_table_round_trips() -> None:
    config = Config.from_table({"malicious": 5, "gate": {"max_norm_ratio": 3.0}, "partition": {"bias": 0.8}})
    assert Config.from_table(config.to_table()) == config


@pytest.mark.parametrize(
    ("data", "partition"),
    [
        ("mnist", LabelBiased()),
        ("femnist", ByWriter()),
        ("shakespeare", Consecutive()),
        ({"name": "shakespeare", "source": "roles"}, ByWriter()),
    ],
)
def test_a_data_set_knows_how_it_is_dealt_out_unless_you_say(data: Any, partition: Partition) -> None:
    assert Config.from_table({"data": data}).partition == partition
    assert Config.from_table({"data": data, "partition": "iid"}).partition == Iid()
    assert Config.from_table({"data": data}).to_table()["partition"]["name"]


def test_a_table_from_before_a_setting_means_its_default() -> None:
    assert "schedule" not in Config.from_table({}).to_table()
    changed = Config.from_table({"schedule": "cifar", "optimiser": "adam", "eval_samples": 50})
    assert Config.from_table(changed.to_table()) == changed
