"""The registry: names are unique, unknown ones are explained, installed packages are asked only when needed."""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass

import pytest

from leplanner.core import registry
from leplanner.core.registry import Registry, load_object, load_plugins, match_name, plugins


@dataclass(frozen=True)
class Thing:
    name: str
    size: int = 1


class FakeEntry:
    """An entry point of an installed package."""

    def __init__(self, item: Thing):
        self.item, self.loads = item, 0

    def load(self) -> Thing:
        self.loads += 1
        return self.item


@pytest.fixture(autouse=True)
def known_plugins(monkeypatch):
    """What these tests load is forgotten after them."""
    monkeypatch.setattr(registry, "_plugins", registry._plugins.copy())


def test_items_keep_the_order_of_their_registration():
    things = Registry("thing")
    b, a = things.register(Thing("b")), things.register(Thing("a"))
    assert things["b"] is b
    assert things.names() == list(things) == ["b", "a"]
    assert things.values() == [b, a]
    assert "a" in things
    assert "c" not in things


def test_a_second_item_of_the_same_name_is_refused_and_the_same_one_is_not():
    things = Registry("thing")
    things.register(Thing("a"))
    things.register(Thing("a"))
    with pytest.raises(ValueError, match="There is a thing 'a' already"):
        things.register(Thing("a", size=2))
    assert things.get("a").size == 1


def test_an_unknown_name_lists_the_known_ones():
    things = Registry("thing")
    for name in ("one", "two"):
        things.register(Thing(name))
    with pytest.raises(ValueError, match=r"Unknown thing 'three'\. Known: one, two\."):
        things.get("three")


@pytest.mark.parametrize("name", ["one", "ONE", "One"])
def test_names_are_found_whatever_their_case(name):
    things = Registry("thing")
    one = things.register(Thing("one"))
    assert things.get(name) is one
    assert name in things
    with pytest.raises(ValueError, match="There is a thing 'one' already"):
        things.register(Thing("One", size=2))


def test_a_name_that_is_nearly_known_is_suggested():
    known = ("LePlanner", "cem", "no-op")
    assert match_name("method", "NO-OP", known) == "no-op"
    with pytest.raises(ValueError, match=r"Unknown method 'leplaner'\. Did you mean 'LePlanner'\? Known: LePl"):
        match_name("method", "leplaner", known)
    with pytest.raises(ValueError, match=r"Unknown method 'x'\. Known: none\."):
        match_name("method", "x", ())


def test_entry_points_are_loaded_once_and_only_when_a_name_is_missing(monkeypatch):
    entry, groups = FakeEntry(Thing("installed")), []
    monkeypatch.setattr(registry, "entry_points", lambda group: groups.append(group) or [entry])
    things = Registry("thing", "test.things")
    things.register(Thing("own"))
    assert things.get("own") == Thing("own")
    assert groups == []
    assert things.get("installed") is entry.item
    assert things.names() == ["own", "installed"]
    assert groups == ["test.things"]
    assert entry.loads == 1


def test_an_installed_package_cannot_take_a_name_of_ours(monkeypatch):
    monkeypatch.setattr(registry, "entry_points", lambda group: [FakeEntry(Thing("own", size=2))])
    things = Registry("thing", "test.things")
    things.register(Thing("own"))
    with pytest.raises(ValueError, match="There is a thing 'own' already"):
        things.names()


def test_a_home_module_is_imported_when_a_name_is_first_looked_for(monkeypatch, tmp_path):
    (tmp_path / "home_of_things.py").write_text(
        "import sys\nthings, item = sys.modules['things_of_a_test']\nthings.register(item)\n"
    )
    things = Registry("thing", home="home_of_things")
    monkeypatch.setitem(sys.modules, "things_of_a_test", (things, Thing("late")))
    monkeypatch.syspath_prepend(tmp_path)
    things.register(Thing("early"))
    assert things.get("early").name == "early"
    assert "home_of_things" not in sys.modules
    assert things.names() == ["early", "late"]
    del sys.modules["home_of_things"]


@pytest.fixture
def plugin(monkeypatch, tmp_path):
    """A module that Python can import, with a registry and an item that is not registered yet."""
    module = types.ModuleType("plugin_of_a_test")
    module.THINGS = Registry("thing", address="plugin_of_a_test:THINGS")
    module.ITEM = Thing("named")
    monkeypatch.setitem(sys.modules, "plugin_of_a_test", module)
    return module


def test_what_a_user_names_is_registered_and_remembered_for_new_processes(plugin):
    before = plugins()
    assert plugin.THINGS.find("plugin_of_a_test:ITEM") is plugin.ITEM
    plugin.THINGS.find("plugin_of_a_test:ITEM")
    assert plugin.THINGS.find("named") is plugin.ITEM
    assert plugins() == (*before, ("plugin_of_a_test:THINGS", "plugin_of_a_test:ITEM"))


def test_a_new_process_loads_what_was_named_into_the_same_registry(plugin):
    load_plugins((("plugin_of_a_test:THINGS", "plugin_of_a_test:ITEM"),))
    assert plugin.THINGS.names() == ["named"]


@pytest.mark.parametrize(
    "address", ["no_such_module:TASK", "math:no_such_name", "math", "math:", ":TASK", "./task:TASK"]
)
def test_what_cannot_be_loaded_is_explained(address):
    with pytest.raises(ValueError, match=r"could not be loaded .* Give package\.module:NAME"):
        load_object(address)


def test_what_cannot_be_loaded_is_not_remembered(plugin):
    before = plugins()
    with pytest.raises(ValueError, match="could not be loaded"):
        plugin.THINGS.find("no_such_module:TASK")
    assert plugins() == before


def test_a_module_in_the_current_folder_is_found(tmp_path, monkeypatch):
    """Also by the console script, whose path begins where it is installed."""
    (tmp_path / "made_here.py").write_text("THING = 5")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    assert load_object("made_here:THING") == 5
