"""The store: what is written is read again, other kinds and later formats are refused, earlier formats are migrated."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from leplanner.artifacts import (
    check_digest,
    digest_tensors,
    is_whole,
    load_modules,
    migration,
    read_artifact,
    store,
    write_artifact,
)


def module(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Linear(3, 2)


def rewrite(folder, **values) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.fixture
def migrations(monkeypatch):
    """The declared migrations, as they were before when the test is over."""
    monkeypatch.setattr(store, "_migrations", dict(store._migrations))


def test_what_is_written_is_read_again(tmp_path):
    weights = module(0)
    assert not is_whole(tmp_path)
    write_artifact(tmp_path, "gadget", {"size": (3, 2)}, {"gadget": weights}, {"steps": 5}, data="abc")
    assert is_whole(tmp_path)
    config = read_artifact(tmp_path, "gadget")
    assert (config["size"], config["format"]) == ([3, 2], store.FORMAT)
    assert config["training"] == {"steps": 5}
    assert config["provenance"]["inputs"] == {"data": "abc"}
    other = module(1)
    load_modules(tmp_path, {"gadget": other})
    assert digest_tensors(other.state_dict()) == digest_tensors(weights.state_dict())


def test_weights_are_written_before_the_config_that_declares_the_folder_whole(tmp_path):
    class Broken(nn.Linear):
        def state_dict(self, *arguments, **options):
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        write_artifact(tmp_path, "gadget", {}, {"gadget": Broken(1, 1)})
    assert not is_whole(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_artifact_and_one_of_another_kind_say_how_to_make_one(tmp_path):
    with pytest.raises(ValueError, match=r"No world at .* Make one with: leplanner world train TASK"):
        read_artifact(tmp_path, "world")
    write_artifact(tmp_path, "gadget", {})
    with pytest.raises(ValueError, match="does not describe a leplanner world"):
        read_artifact(tmp_path, "world")


@pytest.mark.parametrize("number", [store.FORMAT + 1, "two", None])
def test_an_unknown_format_number_is_refused(number, tmp_path):
    write_artifact(tmp_path, "gadget", {})
    rewrite(tmp_path, format=number)
    with pytest.raises(ValueError, match=rf"has format {number}; this version .* reads up to {store.FORMAT}"):
        read_artifact(tmp_path, "gadget")


def test_an_earlier_format_without_a_migration_is_refused(tmp_path):
    write_artifact(tmp_path, "gadget", {})
    rewrite(tmp_path, format=store.FORMAT - 1)
    with pytest.raises(ValueError, match="made by an earlier version"):
        read_artifact(tmp_path, "gadget")


def test_earlier_formats_are_migrated_one_after_another(tmp_path, migrations, monkeypatch):
    monkeypatch.setattr(store, "FORMAT", 3)

    @migration("gadget", 1)
    def first(config):
        return config | {"sizes": [config["size"]]}

    @migration("gadget", 2)
    def second(config):
        return config | {"count": len(config["sizes"])}

    write_artifact(tmp_path, "gadget", {"size": 7})
    rewrite(tmp_path, format=1)
    config = read_artifact(tmp_path, "gadget")
    assert (config["sizes"], config["count"]) == ([7], 1)
    rewrite(tmp_path, format=2, sizes=[1, 2])
    assert read_artifact(tmp_path, "gadget")["count"] == 2


def test_a_config_without_a_number_is_of_the_first_format(tmp_path, migrations):
    migration("gadget", 1)(lambda config: config | {"migrated": True})
    write_artifact(tmp_path, "gadget", {})
    config = json.loads((tmp_path / "config.json").read_text())
    del config["format"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert read_artifact(tmp_path, "gadget")["migrated"]


def test_weights_of_another_digest_are_refused(tmp_path):
    check_digest(tmp_path, "abc", "abc")
    with pytest.raises(ValueError, match="damaged or was edited"):
        check_digest(tmp_path, "abc", "abd")
