"""Go-style templates: `{{.trigger.event.title}}` in prompts, messages and mappings."""

from __future__ import annotations

from harken.language.go_template.template import Rendered, Template, compile_template

__all__ = ["Rendered", "Template", "compile_template"]
