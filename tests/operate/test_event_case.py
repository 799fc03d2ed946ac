"""An event as a test case for who looks at it: what `harken test add` writes, and nothing of what others have."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from harken.errors import NotFound, Refused
from harken.event import Event
from harken.operate.anonymize import Anonymiser
from harken.operate.event_case import MOST_BYTES
from harken.operate.principal import Principal
from tests.cpu_time import cpu_at_most
from tests.operate.operator_world import Office

SECRET = "s3cr3t-of-the-installation-42"


async def came(office: Office, **data: object) -> int:
    """An incident about which `oncall` and `digest` decide; its number."""
    event = msgspec.structs.replace(office.incident("INC-1"), data={"id": "INC-1", "urgency": "high", **data})
    return await shown(office, event)


async def shown(office: Office, event: Event) -> int:
    await office.shows(event)
    return int((await office.ask("events.list", limit=1))["items"][0]["id"])


async def test_secrets_and_people_are_replaced_and_the_verdict_stands_in_it(office: Office) -> None:
    office.operator.loaded = replace(office.loaded, secrets=frozenset({SECRET}))
    id = await came(office, assignee={"name": "Ana Muster"}, link=f"https://x.example/?t={SECRET}")

    case = await office.ask("events.case", id=id, trigger="oncall")

    assert (case["name"], case["outcome"], case["kept"]) == (f"event {id} is fired for oncall", "fired", [])
    assert "urgency: high" in case["yaml"] and "outcome: fired" in case["yaml"]
    assert "Ana" not in case["yaml"] and SECRET not in case["yaml"]


async def test_what_the_condition_needs_of_a_person_is_named_above_the_case(office: Office) -> None:
    needs = msgspec.structs.replace(office.loaded.triggers[0], condition='event.owner == "Ana Muster"')
    office.operator.loaded = replace(office.loaded, triggers=(needs, *office.loaded.triggers[1:]))
    id = await came(office, owner="Ana Muster")

    case = await office.ask("events.case", id=id, trigger="oncall")

    assert case["kept"] == ["owner"]
    assert case["yaml"].startswith("# The condition needs these values as they are: owner\ncases:\n")


async def test_a_trigger_is_named_if_several_have_decided(office: Office) -> None:
    id = await came(office)
    with pytest.raises(Refused, match=f"2 triggers have decided about event {id}"):
        await office.ask("events.case", id=id)
    assert (await office.ask("events.case", id=id, trigger="digest"))["outcome"] == "gathered"


async def test_who_sees_one_trigger_is_told_of_no_other_not_even_by_what_is_refused(office: Office) -> None:
    id = await came(office)
    viewer = Principal(name="v", role="viewer", triggers=("digest", "oncal"))
    theirs = office.operator.acting_as(viewer)

    assert (await theirs.call("events.case", id=id))["trigger"] == "digest"
    refused = []
    for name in ("oncall", "oncal", "nobodys"):
        with pytest.raises(NotFound) as found:
            await theirs.call("events.case", id=id, trigger=name)
        refused.append((found.value.message.replace(name, "…"), found.value.fix.replace("digest", "")))
    assert len({message for message, _ in refused}) == 1
    assert [fix for _, fix in refused if "oncall" in fix] == []


async def test_an_event_that_no_trigger_of_theirs_has_is_not_there(office: Office) -> None:
    id = await came(office)
    theirs = office.operator.acting_as(Principal(name="v", role="viewer", triggers=("deploys",)))
    with pytest.raises(NotFound, match=f"there is no event {id}"):
        await theirs.call("events.case", id=id, trigger="oncall")


async def test_what_cannot_be_a_case_is_refused_with_the_way_out(office: Office) -> None:
    id = await came(office, text="x" * MOST_BYTES)
    with pytest.raises(Refused, match="which is much for a test case") as large:
        await office.ask("events.case", id=id, trigger="oncall")
    assert large.value.fix == f"Have it written to a file: harken test add {id}"

    small = await shown(office, office.incident("INC-2"))
    office.operator.loaded = replace(office.loaded, rows={"oncall": "row-7"})
    with pytest.raises(Refused, match="trigger oncall is in no file"):
        await office.ask("events.case", id=small, trigger="oncall")


@pytest.mark.parametrize("data", [{"x": "a" * 64_000}, {"x": "(1-" * 20_000}, {"_birth" * 10_000 + "!": "a"}])
def test_no_text_takes_long_to_be_searched_for_people(data: dict[str, str]) -> None:
    with cpu_at_most(1):
        Anonymiser(()).data(data)


MEGABYTE = 1_000_000
HOSTILE: dict[str, dict[str, object]] = {
    "a beginning of a key": {"x": "sk-" * (MEGABYTE // 3)},
    "a beginning of a web token": {"x": "-eyJ" * (MEGABYTE // 4)},
    "a beginning of a web token without room": {"x": "eyJ." * (MEGABYTE // 4)},
    "a kind of authorization": {"x": "Bearer " * (MEGABYTE // 7)},
    "a private key": {"x": "-----BEGIN PRIVATE KEY" * (MEGABYTE // 22)},
    "pairs in pairs": {"x": "a:" * (MEGABYTE // 2)},
    "pairs of people in pairs": {"x": "by=" * (MEGABYTE // 3)},
    "pairs of secrets in pairs": {"x": "token:" * (MEGABYTE // 6)},
    "a long name of a pair": {"x": "a" * MEGABYTE + "=b"},
    "names that become the same": {f"1.{n // 65_536}.{n // 256 % 256}.{n % 256}": 1 for n in range(70_000)},
    "names that others become": {
        **{f"192.0.2.1-{n}": 1 for n in range(35_000)},
        **{f"1.{n // 65_536}.{n // 256 % 256}.{n % 256}": 1 for n in range(35_000)},
    },
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=list(HOSTILE))
def test_a_megabyte_of_what_looks_like_a_secret_takes_no_longer_than_another(data: dict[str, object]) -> None:
    with cpu_at_most(4):
        Anonymiser(()).data(data)


def test_names_that_become_the_same_are_counted_also_beside_those_that_look_like_it() -> None:
    changed = Anonymiser(()).data({"192.0.2.1-2": 0, "192.168.7.1": 1, "192.168.7.2": 2, "192.168.7.3": 3})

    assert changed == {"192.0.2.1-2": 0, "192.0.2.1": 1, "192.0.2.1-3": 2, "192.0.2.1-4": 3}


@pytest.mark.parametrize(
    "text",
    [
        "login:token=hunter2",
        '{"note":"password=hunter2","x',
        "a:b:c:pwd:hunter2",
        "at: by=hunter2",
        "from=password=hunter2",
        "token=password=hunter2",
        "token==hunter2",
        "a%3Dpassword%3Dhunter2",
        "x" * 70 + "_token=hunter2",
    ],
)
def test_a_pair_in_a_pair_is_found(text: str) -> None:
    assert "hunter2" not in f"{Anonymiser(()).text(text)}{Anonymiser(()).data({'x': text, text: 1})}"


@pytest.mark.parametrize("text", ["at:12:30", "a:b=c", "token=", "by= ", "kind=x:y&page=2", "a=b=c"])
def test_pairs_of_nobody_stay_as_they_are(text: str) -> None:
    assert Anonymiser(()).text(text) == text


@pytest.mark.parametrize(
    "data",
    [
        {"birth_date": "1980-02-29"},
        {"dob": "1980-02-29"},
        {"birthday": "1980-02-29T00:00:00Z"},
        {"phones": [1980]},
        {"phoneNumber": 1980},
        {"firstname": "1980"},
        {"fields": [{"name": "password", "stringValue": "1980"}]},
        {"fields": [{"key": "password", "val": "1980"}]},
        {"headers": [{"name": "Authorization", "values": ["1980"]}]},
        {"xml": "<login><password>1980</password></login>"},
    ],
)
def test_what_tells_of_somebody_is_found_also_as_a_date_a_number_or_beside_its_name(data: dict[str, object]) -> None:
    assert "1980" not in str(Anonymiser(()).data(data))


@pytest.mark.parametrize("data", [{"created_at": "1980-02-29"}, {"name": "size", "value": 1980}, {"x": "a->1980"}])
def test_dates_and_numbers_of_nobody_stay(data: dict[str, object]) -> None:
    assert "1980" in str(Anonymiser(()).data(data))


def nested(levels: int) -> object:
    value: object = "hunter2"
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("what", [nested(900), "[" * 600 + "1" + "]" * 600], ids=["values", "a text"])
async def test_what_is_nested_too_deep_for_a_case_is_left_out_of_it(what: object, office: Office) -> None:
    id = await came(office, what=what)
    case = await office.ask("events.case", id=id, trigger="oncall")
    assert case["outcome"] == "fired"
    assert "***" in case["yaml"] and "hunter2" not in case["yaml"]
