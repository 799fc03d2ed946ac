"""Run → outcome: claimed runs are executed step by step, journaled, retried and settled."""
