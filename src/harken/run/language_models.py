"""Language models by tier or full name. Their libraries are imported when the first prompt is sent."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from harken.errors import HarkenError, NeedsAttention, RetryLater
from harken.extras import how_to_install
from harken.suggest import suggest_quoted

if TYPE_CHECKING:
    from pydantic_ai.models import Model
    from pydantic_ai.settings import ModelSettings as Limits

__all__ = [
    "ECHO",
    "TIERS",
    "Answer",
    "ModelAlias",
    "ModelSettings",
    "Models",
    "ProviderAccount",
    "extra_of",
    "is_provider",
]

TIERS = ("fast", "balanced", "strategic")
ECHO = "echo"
ECHO_PREFIX = "[echo: an offline stand-in, not a model; this is the prompt]"
OLLAMA = "http://localhost:11434/v1"
_EXTRAS: Mapping[str, str] = {
    "openai": "openai",
    "ollama": "openai",
    "anthropic": "anthropic",
    "google": "google",
    "google-gla": "google",
}


def extra_of(provider: str, *, base_url: bool = False) -> str:
    """The extra with the library for the provider's models. With a `base_url` any other is asked like OpenAI."""
    return _EXTRAS.get(provider, "openai" if base_url else "llm")


def is_provider(name: str) -> bool:
    """Whether a provider of this name can be asked without a base_url. Imports the library for the rarer ones."""
    if name in _EXTRAS:
        return True
    from pydantic_ai.providers import infer_provider_class

    try:
        infer_provider_class(name)
    except ValueError:
        return False
    except ImportError:
        # known, and its own package is missing: the first prompt says which
        return True
    return True


class ProviderAccount(msgspec.Struct, frozen=True, kw_only=True):
    """An account at a provider, or at any server with an OpenAI-compatible API."""

    api_key: str = ""
    base_url: str = ""

    def __repr__(self) -> str:
        return f"ProviderAccount(base_url={self.base_url!r})"


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`names` maps `default`, the tiers and further names to provider:model; `providers` has the accounts.

    `prices` are dollars per million input and output tokens, by provider:model. `usd_limited` are the triggers with a
    limit in dollars.
    """

    names: Mapping[str, str] = {}
    providers: Mapping[str, ProviderAccount] = {}
    prices: Mapping[str, tuple[float, float]] = {}
    usd_limited: Container[str] = frozenset()


class ModelAlias(msgspec.Struct, frozen=True, kw_only=True):
    """A name that a step may use, and its model; empty when none is configured."""

    name: str
    model: str


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a model returned: `text`, or `data` when a schema was given."""

    model: str
    text: str = ""
    data: Any = None
    usage: Mapping[str, int] = {}

    @property
    def tokens(self) -> int:
        return self.usage.get("input_tokens", 0) + self.usage.get("output_tokens", 0)


class Models:
    def __init__(self, settings: ModelSettings | None = None) -> None:
        self._settings = settings or ModelSettings()
        self._ready: dict[str, Model] = {}

    def list(self) -> Sequence[ModelAlias]:
        """The tiers and every configured name."""
        names = ["default", *TIERS, *(name for name in self._settings.names if name not in (*TIERS, "default"))]
        fallback = self._settings.names.get("default", "")
        return [ModelAlias(name=name, model=self._settings.names.get(name, fallback)) for name in names]

    def resolve(self, name: str) -> str:
        """The provider:model behind a tier or name; raises NeedsAttention when nothing is configured for it."""
        names = self._settings.names
        wanted = name or "default"
        if wanted in names:
            return names[wanted]
        if wanted == ECHO or ":" in wanted:
            return wanted
        if wanted in TIERS or wanted == "default":
            if "default" in names:
                return names["default"]
            fix = "Set models.default in harken.yaml, such as openai:gpt-4o-mini, or echo to try without a model"
            raise NeedsAttention(f"no model is configured for {wanted!r}", fix=fix)
        known = [*TIERS, *names]
        raise NeedsAttention(f"there is no model {wanted!r}", fix=suggest_quoted(wanted, known) or "Use provider:model")

    def cost(self, answer: Answer) -> float | None:
        """The price of the answer in dollars; None when no price of the model is configured."""
        price = (0.0, 0.0) if answer.model == ECHO else self._settings.prices.get(answer.model)
        if price is None:
            return None
        spent = answer.usage.get("input_tokens", 0) * price[0] + answer.usage.get("output_tokens", 0) * price[1]
        return spent / 1_000_000

    def has_usd_limit(self, trigger: str) -> bool:
        """Whether the trigger has a limit in dollars."""
        return trigger in self._settings.usd_limited

    async def test(self, name: str = "") -> Answer:
        """Ask the model for one word; raises what an llm step would raise."""
        return await self.ask(name, "Answer with the single word: ready", system="", max_tokens=256)

    async def ask(
        self,
        name: str,
        prompt: str,
        *,
        system: str = "",
        schema: Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
    ) -> Answer:
        """Send one prompt. Raises RetryLater if the provider is busy or away, NeedsAttention if a person must act."""
        model = self.resolve(name)
        if model == ECHO:
            return _echo(prompt, system, schema)
        settings: Limits = {}
        if max_tokens is not None:
            settings["max_tokens"] = max_tokens
        if temperature is not None:
            settings["temperature"] = temperature
        return await self._ask(model, prompt, system, schema, settings)

    async def _ask(
        self, model: str, prompt: str, system: str, schema: Mapping[str, Any] | None, settings: Limits
    ) -> Answer:
        ready = self._ready.get(model) or self._prepare(model)
        from pydantic_ai import Agent, StructuredDict
        from pydantic_ai.exceptions import AgentRunError, UserError

        shape: Any = str if schema is None else StructuredDict(dict(schema), name="answer")
        agent = Agent(ready, output_type=shape, instructions=system or None)
        try:
            result = await agent.run(prompt, model_settings=settings)
        except (AgentRunError, UserError) as error:
            # not chained: texts of providers repeat the prompt
            raise _failure(error, model) from None
        used = result.usage
        usage = {"input_tokens": used.input_tokens, "output_tokens": used.output_tokens, "requests": used.requests}
        if schema is None:
            return Answer(model=model, text=str(result.output), usage=usage)
        return Answer(model=model, data=dict(result.output), usage=usage)

    def _prepare(self, model: str) -> Model:
        provider, _, name = model.partition(":")
        account = self._settings.providers.get(provider, ProviderAccount())
        try:
            connected = _connect(provider, name, account)
        except ImportError:
            fix = how_to_install(extra_of(provider))
            raise NeedsAttention(f"the library for {provider} models is not installed", fix=fix) from None
        except (ValueError, RuntimeError) as error:
            fix = f"Check models: in harken.yaml, and that models.providers.{provider}.api_key is set"
            raise NeedsAttention(f"{model} cannot be used ({type(error).__name__})", fix=fix) from None
        self._ready[model] = connected
        return connected


def _connect(provider: str, name: str, account: ProviderAccount) -> Model:
    from pydantic_ai.models import infer_model
    from pydantic_ai.providers import infer_provider_class

    base_url = account.base_url or (OLLAMA if provider == "ollama" else "")
    if base_url and provider not in ("anthropic", "google", "google-gla"):
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider

        # local servers often need no key, but the library requires one
        return OpenAIChatModel(name, provider=OpenAIProvider(base_url=base_url, api_key=account.api_key or "none"))
    if not (account.api_key or base_url):
        return infer_model(f"{provider}:{name}")
    options: dict[str, str] = {"api_key": account.api_key} if account.api_key else {}
    if base_url:
        options["base_url"] = base_url
    return infer_model(f"{provider}:{name}", lambda provider: infer_provider_class(provider)(**options))


def _failure(error: Exception, model: str) -> HarkenError:
    """The error for a step; nothing of the provider's text is kept, because it may repeat the prompt."""
    status = getattr(error, "status_code", None)
    after = getattr(error, "retry_after", None)
    provider = model.partition(":")[0]
    if status == 429:
        return RetryLater(f"{provider} answered 429 for {model}", after=after, reason="rate_limited")
    if status in (401, 403):
        fix = f"Check models.providers.{provider}.api_key, then: harken models test {model}"
        return NeedsAttention(f"{provider} answered {status} for {model}", fix=fix)
    if status is not None and 400 <= status < 500 and status != 408:
        fix = "Check the model's name and the step's parameters"
        return NeedsAttention(f"{provider} answered {status} for {model}", fix=fix)
    if status is not None:
        return RetryLater(f"{provider} answered {status} for {model}", after=after)
    return _without_status(error, model, provider)


def _without_status(error: Exception, model: str, provider: str) -> HarkenError:
    from pydantic_ai.exceptions import ModelAPIError, UserError

    if isinstance(error, UserError):
        return NeedsAttention(f"{model} cannot be used", fix="Check models: in harken.yaml")
    if isinstance(error, ModelAPIError):
        return RetryLater(f"{provider} could not be reached for {model}")
    return RetryLater(f"{model} did not answer in the form that was asked for ({type(error).__name__})")


def _echo(prompt: str, system: str, schema: Mapping[str, Any] | None) -> Answer:
    text = f"{ECHO_PREFIX}\n{prompt}"
    usage = {"input_tokens": _estimate_tokens(system + prompt), "output_tokens": _estimate_tokens(text), "requests": 0}
    return Answer(model=ECHO, text=text, data=None if schema is None else _skeleton(schema, text), usage=usage)


def _estimate_tokens(text: str) -> int:
    """One token for four characters: a rule of thumb, so that budgets can be tried offline."""
    return (len(text) + 3) // 4


def _skeleton(schema: Mapping[str, Any], text: str) -> Any:
    """A value of the schema's form, with the prompt wherever it has text."""
    if "const" in schema or schema.get("enum"):
        return schema["const"] if "const" in schema else schema["enum"][0]
    kind = schema.get("type", "object")
    if kind == "object":
        properties = schema.get("properties", {})
        return {name: _skeleton(inner, text) for name, inner in properties.items() if isinstance(inner, Mapping)}
    empty: Mapping[Any, Any] = {"integer": 0, "number": 0.0, "boolean": False, "array": [], "null": None}
    return empty.get(kind if isinstance(kind, str) else "", text)
