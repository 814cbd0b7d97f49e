"""Reads the files in data/: `# title` starts a section, `//` a comment; other lines are entries."""

from pathlib import Path

DATA = Path(__file__).parent / "data"


def sections(name: str) -> dict[str, list[str]]:
    """The sections of data/<name>.txt in their order, each with its lines."""
    found: dict[str, list[str]] = {}
    title = ""
    for line in (DATA / f"{name}.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            title = line[2:]
            found[title] = []
        elif line and not line.startswith("//"):
            found[title].append(line)
    return found


def columns(lines: list[str]) -> list[list[str]]:
    """Splits "a => b" lines."""
    return [line.split(" => ") for line in lines]


def mapping(lines: list[str]) -> dict[str, str]:
    return {key: value for key, value in columns(lines)}
