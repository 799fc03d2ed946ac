"""Watches become polls of pages with the same part, interval and messages; what cannot be is told by its watch."""

from __future__ import annotations

from typing import Any

import pytest

from harken.config.importers import Imported
from harken.config.importers.changedetection import document_of_list, translate

SETTINGS = {
    "requests": {"time_between_check": {"hours": 3}},
    "application": {
        "notification_urls": ["mailto://me:password@example.com"],
        "tags": {"t1": {"title": "shops", "notification_urls": ["slack://a/b/c"]}},
    },
}


def imported(**watch: Any) -> Imported:
    return translate(
        {"watching": {"u1": {"url": "https://shop.example/boots", **watch}}, "settings": SETTINGS}, file="w"
    )


def query(**watch: Any) -> Any:
    (workflow,) = imported(**watch).workflows.values()
    return workflow["trigger"]["poll"]["query"]


def test_a_watch_is_a_poll_of_the_page_with_the_usual_interval_and_message() -> None:
    made = imported(title="Boots")
    workflow = made.workflows["boots"]
    poll = {"integration": "page", "interval": "3h", "query": {"url": "https://shop.example/boots"}}
    assert workflow["trigger"] == {"poll": poll}
    assert workflow["steps"][0]["to"] == "mailto"
    assert workflow["steps"][0]["text"] == "{{.trigger.event.url}} had a change.\n---\n{{.trigger.event.diff}}"
    assert made.settings["integrations"]["apprise"]["urls"] == {"mailto": "${CHANGEDETECTION_MAILTO}"}


def test_addresses_of_notifications_and_secret_headers_stand_nowhere_but_in_variables() -> None:
    made = imported(headers={"Cookie": "sid=secret", "Accept-Language": "de"})
    assert query(headers={"Cookie": "sid=secret"})["headers"] == {"Cookie": "${SHOP_EXAMPLE_BOOTS_COOKIE}"}
    assert "secret" not in str(made.workflows) and "password" not in str((made.workflows, made.settings))
    assert made.variables["SHOP_EXAMPLE_BOOTS_COOKIE"].value == "sid=secret"


def test_a_password_in_an_address_stands_nowhere_but_in_a_variable() -> None:
    made = imported(url="https://me:hidden@shop.example/boots")
    (workflow,) = made.workflows.values()
    assert workflow["trigger"]["poll"]["query"]["url"] == "${SHOP_EXAMPLE_BOOTS_URL}"
    assert "hidden" not in str((made.workflows, made.findings))
    assert made.variables["SHOP_EXAMPLE_BOOTS_URL"].value == "https://me:hidden@shop.example/boots"


def test_its_own_interval_counts_unless_the_default_is_asked_for() -> None:
    own = {"weeks": None, "days": 1, "hours": 1, "minutes": 30, "seconds": None}
    (workflow,) = imported(time_between_check=own).workflows.values()
    assert workflow["trigger"]["poll"]["interval"] == "1d1h30m"
    (workflow,) = imported(time_between_check=own, time_between_check_use_default=True).workflows.values()
    assert workflow["trigger"]["poll"]["interval"] == "3h"


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (["p.price", "#stock"], {"selector": "p.price, #stock"}),
        (["json:$.offers[0].price"], {"json_path": "offers.0.price"}),
        ([], {}),
    ],
)
def test_the_part_that_counts(filters: list[str], expected: dict[str, str]) -> None:
    assert query(include_filters=filters) == {"url": "https://shop.example/boots", **expected}


def test_texts_that_are_ignored_and_texts_that_decide() -> None:
    assert query(ignore_text=["as of", r"/\d+ views/i"])["ignore"] == ["(?i)^.*as of.*$", r"(?i)\d+ views"]
    (workflow,) = imported(trigger_text=["in stock"], text_should_not_be_present=["sold out"]).workflows.values()
    condition = '(event.new.matches("(?i)in stock")) && (!(event.new.matches("(?i)sold out")))'
    assert workflow["trigger"]["condition"] == condition


def test_a_tag_says_who_is_told() -> None:
    (workflow,) = imported(tags=["t1"]).workflows.values()
    assert [step["to"] for step in workflow["steps"]] == ["slack"]


def test_a_muted_watch_notes_the_difference() -> None:
    (workflow,) = imported(notification_muted=True).workflows.values()
    assert workflow["steps"] == [{"id": "note", "action": "transform", "set": {"diff": "{{.trigger.event.diff}}"}}]


def test_of_several_tags_the_first_that_is_not_muted_and_has_addresses_says_who_is_told() -> None:
    tags = {
        "t0": {"notification_muted": True, "notification_urls": ["ntfy://muted"]},
        "t1": {"notification_urls": []},
        "t2": {"notification_urls": ["slack://a/b/c"]},
        "t3": {"notification_urls": ["tgram://1/2"]},
    }
    watch = {"url": "https://shop.example/boots", "tags": list(tags)}
    made = translate({"watching": {"u1": watch}, "settings": {"application": {"tags": tags}}}, file="w")
    (workflow,) = made.workflows.values()
    assert [step["to"] for step in workflow["steps"]] == ["slack"]


def test_a_title_with_a_reference_and_an_address_with_spaces_stay_text() -> None:
    assert imported(title="Only ${price}").workflows["only-price"]["description"] == "Changes of Only $${price}"
    assert list(imported(url=" https://shop.example/boots ").workflows) == ["shop-example-boots"]


def test_what_is_removed_from_every_page_is_told_once() -> None:
    settings = {"application": {"global_subtractive_selectors": ["nav"]}}
    made = translate({"watching": {"u": {"url": "https://x.example"}}, "settings": settings}, file="w")
    assert [finding.path[-1] for finding in made.findings] == ["global_subtractive_selectors"]


@pytest.mark.parametrize(
    ("watch", "message"),
    [
        ({"fetch_backend": "html_webdriver"}, "needs a browser"),
        ({"browser_steps": [{"operation": "Click"}]}, "needs a browser"),
        ({"processor": "restock_diff"}, "restock_diff"),
        ({"method": "POST"}, "GET"),
        ({"include_filters": ["//div"]}, "no CSS selector"),
        ({"include_filters": ["json:$..price"]}, "cannot be translated"),
        ({"include_filters": ["json:a", "json:b"]}, "cannot be translated"),
        ({"url": "source:https://x.example"}, "source of a page"),
        ({"url": "https://x.example/{% now %}"}, "template"),
        ({"url": "file:///etc/passwd", "notification_urls": ["discord://a/b"]}, "only http and https"),
        ({"paused": True}, "paused"),
        ({"url": 7}, "no watch"),
    ],
)
def test_what_cannot_be_watched_is_told_and_left_out(watch: dict[str, Any], message: str) -> None:
    made = imported(**watch)
    assert not made.workflows
    assert message in made.findings[0].message
    assert made.findings[0].path == ("watching", "u1")


@pytest.mark.parametrize("key", ["subtractive_selectors", "extract_text", "conditions", "proxy"])
def test_what_is_left_out_of_a_watch_is_told(key: str) -> None:
    made = imported(**{key: ["x"]})
    assert made.findings[0].path == ("watching", "u1", key)
    assert made.workflows


@pytest.mark.parametrize("document", [None, 7, [], {}, {"watching": []}, {"watching": None}])
def test_a_file_of_another_shape_is_told(document: Any) -> None:
    made = translate(document, file="w")
    assert (made.workflows, made.findings[0].code) == ({}, "missing")


@pytest.mark.parametrize("settings", [None, 7, {"application": 7, "requests": []}, {"application": {"tags": []}}])
def test_settings_of_another_shape_do_not_matter(settings: Any) -> None:
    watch = {"url": "https://x.example", "time_between_check": "often", "include_filters": 7, "headers": []}
    assert translate({"watching": {"u": watch}, "settings": settings}, file="w").workflows


def test_a_list_of_addresses_is_enough() -> None:
    made = translate(document_of_list("# mine\nhttps://a.example tag\n\nhttps://b.example\n"), file="list.txt")
    assert list(made.workflows) == ["a-example", "b-example"]
