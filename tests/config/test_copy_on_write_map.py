"""Many items by name, and what they were at a moment."""

from __future__ import annotations

from random import Random

from harken.config.copy_on_write_map import FEWEST, Items, SnapshotValues


def test_a_snapshot_is_what_the_items_were_whatever_happens_to_them() -> None:
    random = Random(7)
    items, model = Items({f"item{number}": number for number in range(50)}), {f"item{n}": n for n in range(50)}
    taken = []
    for step in range(2_000):
        name = f"item{random.randrange(300)}"
        if random.random() < 0.4:
            assert items.pop(name) == model.pop(name, None)
        else:
            items[name] = model[name] = step + 1
        if step % 7 == 0:
            taken.append((items.snapshot(), dict(model)))
    for snapshot, wanted in taken:
        assert (dict(snapshot), len(snapshot)) == (wanted, len(wanted))
        assert sorted(SnapshotValues(snapshot)) == sorted(wanted.values())
        assert {name for name in model if name in snapshot} == model.keys() & wanted.keys()
    assert all(items.get(f"item{n}") == model.get(f"item{n}") for n in range(300))


def test_a_snapshot_costs_what_has_changed_and_not_what_there_is() -> None:
    items = Items({f"item{number}": number for number in range(10_000)})
    first = items.snapshot()
    items["item5"] = -5
    second = items.snapshot()
    assert (first["item5"], second["item5"]) == (5, -5)
    assert second._base is first._base


def test_after_many_changes_all_items_are_copied_once() -> None:
    items = Items({"one": 1})
    first = items.snapshot()
    for number in range(FEWEST + 1):
        items[f"item{number}"] = number + 1
    second = items.snapshot()
    assert second._base is not first._base and not second._changes
    assert (len(first), len(second)) == (1, FEWEST + 2)


def test_while_nothing_changes_the_snapshot_is_the_same() -> None:
    items = Items({"one": 1})
    assert items.snapshot() is items.snapshot()
    assert items.pop("other") is None and items.snapshot() is items.snapshot()


def test_the_values_of_a_snapshot_are_a_sequence() -> None:
    values = SnapshotValues(Items({"one": 1, "two": 2}).snapshot())
    assert (values[0], list(values[1:]), len(values), 2 in values, values.by_name["two"]) == (1, [2], 2, True, 2)
