"""A small text grammar: [a|b] chooses, {slot} looks up, and choices may nest.

`[a|b|]` may choose nothing. `{slot}` reads a Scene, `{a:slot}` puts "a" or "an" before it and
`{^slot}` capitalises it. A slot's value is itself expanded, so a slot may hold a rule.
"""

import random
import re

BRACKETS = re.compile(r"\[([^\[\]]*)\]")
SLOT = re.compile(r"\{(a:|\^)?(\w+)\}")
AN_WORD = re.compile(r"(?:[aeio]|u(?!ni|se|ku)|honest|hour)", re.IGNORECASE)


def article(phrase: str) -> str:
    return ("an " if AN_WORD.match(phrase) else "a ") + phrase


class Scene:
    """The slots of one text, and a note of which of them the text has used so far."""

    def __init__(self, rng: random.Random, slots: dict[str, str] | None = None):
        self.rng = rng
        self.slots: dict[str, str] = dict(slots or {})
        self.used: set[str] = set()

    def __getitem__(self, key: str) -> str:
        self.used.add(key)
        return self.slots[key]

    def __setitem__(self, key: str, value: str) -> None:
        self.slots[key] = value

    def say(self, template: str) -> str:
        """Expands a template and tidies spaces and sentence starts."""
        return tidy(self._expand(template))

    def _expand(self, template: str) -> str:
        while (match := BRACKETS.search(template)) is not None:
            choice = self.rng.choice(match.group(1).split("|"))
            template = template[: match.start()] + choice + template[match.end() :]
        return SLOT.sub(self._fill, template)

    def _fill(self, match: re.Match[str]) -> str:
        value = self._expand(self[match.group(2)])
        if match.group(1) == "a:":
            return article(value)
        return value[:1].upper() + value[1:] if match.group(1) == "^" else value


def tidy(text: str) -> str:
    text = re.sub(r" {2,}", " ", text.strip())
    text = re.sub(r" +([.,!?])", r"\1", text)
    text = text[:1].upper() + text[1:]
    return re.sub(r'([.!?] "?|\." |: ")([a-z])', lambda m: m.group(1) + m.group(2).upper(), text)


def listing(words: list[str]) -> str:
    """["a", "b", "c"] as "a, b and c"."""
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]
