"""The tokens of one action, read from left to right."""

from __future__ import annotations

from collections.abc import Sequence

from harken.language.go_template.lexer import Action, Token, fault

__all__ = ["UNSUPPORTED", "Words"]

UNSUPPORTED = frozenset({"define", "template", "block"})
_KEYWORDS = frozenset({"if", "with", "range", "else", "end", "break", "continue"}) | UNSUPPORTED


class Words:
    """A cursor over the tokens of an action; every error says where it stands."""

    def __init__(self, source: str, action: Action) -> None:
        self._source = source
        self._tokens: Sequence[Token] = action.tokens
        self._at = 0
        self.end = action.at

    def peek(self, ahead: int = 0) -> Token | None:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else None

    def next(self) -> Token:
        token = self.peek()
        if token is None:
            raise fault(self._source, self.end, "a value is missing here")
        self._at += 1
        return token

    def take(self, text: str) -> bool:
        token = self.peek()
        if token is None or token.text != text or token.kind != "op":
            return False
        self._at += 1
        return True

    def keyword(self) -> Token | None:
        """Take the word that opens, ends or leaves a block; the same word as part of a path is no keyword."""
        token = self.peek()
        if token is None or token.kind != "name" or token.text not in _KEYWORDS or self.is_path():
            return None
        return self.next()

    def is_path(self) -> bool:
        after = self.peek(1)
        return after is not None and after.kind == "field" and not after.spaced

    def fields(self) -> tuple[str, ...]:
        names: list[str] = []
        while (token := self.peek()) is not None and token.kind == "field" and not token.spaced:
            names.append(token.text[1:])
            self._at += 1
        return tuple(names)

    def has_operand(self) -> bool:
        token = self.peek()
        return token is not None and (token.kind != "op" or token.text == "(")

    def has_argument(self) -> bool:
        after = self.peek(1)
        return after is not None and (after.kind != "op" or after.text == "(")

    def targets(self) -> list[Token]:
        """Take `$a` or `$a, $b` if an assignment follows; the sign itself is left."""
        found: list[Token] = []
        ahead = 0
        while (token := self.peek(ahead)) is not None and token.kind == "variable":
            found.append(token)
            after = self.peek(ahead + 1)
            if after is None or after.kind != "op" or after.text not in (",", ":=", "="):
                return []
            ahead += 2 if after.text == "," else 1
            if after.text != ",":
                self._at += ahead
                return found
        return []

    def finish(self) -> None:
        token = self.peek()
        if token is not None:
            raise fault(self._source, token.at, f"{token.text} cannot stand here")
