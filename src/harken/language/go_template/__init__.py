"""Go-style templates: `{{.trigger.event.title}}` in prompts, messages and mappings."""
