"""Names of models, and what is said when one cannot be used."""

from __future__ import annotations

import builtins
from typing import Any

import pytest

from harken.errors import NeedsAttention
from harken.run.language_models import Models, ModelSettings, ProviderAccount


def models(**names: str) -> Models:
    return Models(ModelSettings(names=names))


def test_a_tier_without_a_model_takes_the_default() -> None:
    assert models(default="echo").resolve("strategic") == "echo"


def test_a_tier_has_its_own_model() -> None:
    assert models(default="echo", fast="openai:small").resolve("fast") == "openai:small"


def test_a_full_name_needs_no_setting() -> None:
    assert models().resolve("anthropic:some-model") == "anthropic:some-model"


def test_a_misspelt_tier_is_told_with_the_nearest_one() -> None:
    with pytest.raises(NeedsAttention, match='Did you mean "balanced"'):
        models(default="echo").resolve("balancd")


def test_nothing_configured_says_what_to_set() -> None:
    with pytest.raises(NeedsAttention, match=r"models\.default"):
        models().resolve("")


def test_the_list_shows_what_each_name_stands_for() -> None:
    named = {one.name: one.model for one in models(default="echo", fast="openai:small").list()}
    assert named == {"default": "echo", "fast": "openai:small", "balanced": "echo", "strategic": "echo"}


async def test_echo_passes_the_test_and_says_what_it_is() -> None:
    answer = await models(default="echo").test()
    assert (answer.model, "not a model" in answer.text) == ("echo", True)


async def test_echo_fills_the_form_that_was_asked_for() -> None:
    schema = {
        "type": "object",
        "properties": {
            "level": {"enum": ["low", "high"]},
            "count": {"type": "integer"},
            "tags": {"type": "array"},
            "why": {"type": "string"},
        },
    }
    answer = await models(default="echo").ask("", "prompt", schema=schema)
    assert answer.data == {"level": "low", "count": 0, "tags": [], "why": answer.text}


async def test_a_missing_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("pydantic_ai"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(NeedsAttention, match=r"pip install 'harken\[openai\]'"):
        await models().ask("openai:small", "prompt")


def test_an_account_does_not_show_its_key() -> None:
    assert "sk-1" not in repr(ModelSettings(providers={"openai": ProviderAccount(api_key="sk-1")}))
