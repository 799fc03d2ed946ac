"""Operations on language models: which model each tier means, and whether it answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from harken.errors import NeedsAttention, NotFound
from harken.operate.context import Context
from harken.operate.output_rows import Plain

if TYPE_CHECKING:
    from harken.config.loaded import Loaded
    from harken.run.language_models import Models

__all__ = ["configured_models", "list_models", "models_of", "test"]

TIERS = ("default", "fast", "balanced", "strategic")


def configured_models(loaded: Loaded | None) -> Mapping[str, str]:
    """The model of each tier that is configured."""
    if loaded is None:
        return {}
    configured = {tier: getattr(loaded.settings.models, tier) for tier in TIERS}
    return {tier: str(model) for tier, model in configured.items() if model}


def models_of(loaded: Loaded | None) -> Models:
    """The models that a configuration names, with the accounts of their providers."""
    from harken.run.language_models import Models, ModelSettings, ProviderAccount

    providers = loaded.settings.models.providers if loaded else {}
    accounts = {
        name: ProviderAccount(
            api_key=given.api_key.get_secret_value() if given.api_key else "", base_url=given.base_url or ""
        )
        for name, given in providers.items()
    }
    names = configured_models(loaded)
    priced = loaded.settings.models.prices if loaded else {}
    prices = {names.get(name, name): (price.input, price.output) for name, price in priced.items()}
    usd_limited = _UsdLimited(loaded)
    return Models(ModelSettings(names=names, providers=accounts, prices=prices, usd_limited=usd_limited))


class _UsdLimited:
    """The names of the triggers with a limit in dollars, each looked up when it is asked for."""

    def __init__(self, loaded: Loaded | None) -> None:
        self._loaded = loaded

    def __contains__(self, name: object) -> bool:
        found = self._loaded.trigger(str(name)) if self._loaded is not None else None
        return found is not None and found.budget is not None and found.budget.usd_per_day is not None


async def list_models(context: Context) -> Plain:
    rows = [
        {"tier": named.name, "model": named.model, "offline": named.model == "echo"}
        for named in models_of(context.loaded).list()
    ]
    return {"items": rows, "next": None}


async def test(context: Context, *, name: str = "default") -> Plain:
    """Ask a tier or a model for one word."""
    began = context.clock.monotonic()
    models = models_of(context.loaded)
    try:
        models.resolve(name)
    except NeedsAttention as error:
        raise NotFound(error.message, fix=error.fix) from None
    answer = await models.test(name)
    return {
        "tier": name,
        "model": answer.model,
        "answer": answer.text,
        "seconds": round(context.clock.monotonic() - began, 3),
        "usage": dict(answer.usage),
    }
