"""The user's own configuration on virtual time: `harken test` runs cases on it, `harken simulate` looks for trouble.

The engine, the store and the workflows are the real ones. Everything outside is a stand-in: sources show what a script
says, and whatever a step would do outside is written down instead of done.
"""
