"""Members of a JSON object that somebody else wrote: of the type that is needed, or an error that names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, overload


class NotHar(ValueError):
    """The document is not what HAR says; the text names the entry and the member."""


class Members:
    """One object, and where it stands. Raises NotHar for what is no object."""

    def __init__(self, given: Any, at: str) -> None:
        if not isinstance(given, Mapping):
            raise NotHar(f"{at} is no object")
        self.given: Mapping[str, Any] = given
        self.at = at

    def need[T](self, name: str, kind: type[T]) -> T:
        """A member that must be there. A bool is no number."""
        value = self.given.get(name)
        if name not in self.given:
            raise NotHar(f"{self.at}.{name} is missing")
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise NotHar(f"{self.at}.{name} is not of the right type")
        return value

    def text(self, name: str, default: str) -> str:
        """A member that may be missing, or null."""
        value = self.given.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise NotHar(f"{self.at}.{name} is no text")
        return value

    def number(self, name: str, default: float) -> float:
        value = self.given.get(name)
        if value is None:
            return default
        if not isinstance(value, int | float) or isinstance(value, bool) or abs(value) > 1e15 or value != value:
            raise NotHar(f"{self.at}.{name} is no number")
        return float(value)

    def items(self, name: str) -> list[Any]:
        value = self.given.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise NotHar(f"{self.at}.{name} is no list")
        return value

    @overload
    def object(self, name: str, default: None) -> Members | None: ...

    @overload
    def object(self, name: str, default: Mapping[str, Any]) -> Members: ...

    def object(self, name: str, default: Mapping[str, Any] | None) -> Members | None:
        value = self.given.get(name)
        if value is None:
            return None if default is None else Members(default, f"{self.at}.{name}")
        return Members(value, f"{self.at}.{name}")
