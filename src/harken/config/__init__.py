"""Files to typed values: every error with its position, and a plan for every change.

Nothing is imported here: whoever needs one module of it, as a command line needs `env_file`, does not wait for all.
"""
