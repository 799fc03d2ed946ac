"""The pollers: section and pollers.yaml: jobs that watch something and deliver messages about it."""
