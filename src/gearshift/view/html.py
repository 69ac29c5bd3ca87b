"""What all pages have in common: one file that needs no other, readable offline, on a phone, in the
dark and on paper.

Must not know what is on a page.
"""

from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path

STYLE = Path(__file__).with_name("report.css")


def document(title: str, *parts: str) -> str:
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE.read_text()}</style></head>"
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


def section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>" if body else ""


def header(title: str, numbers: Iterable[tuple[str, str]]) -> str:
    """The numbers each with its name, the name first."""
    told = "".join(
        f"<div><b>{escape(text)}</b><span>{escape(name)}</span></div>" for name, text in numbers
    )
    return f"<header><h1>{escape(title)}</h1><div class=numbers>{told}</div></header>"


def facts_table(facts: Mapping[str, str]) -> str:
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{escape(text)}</td></tr>" for name, text in facts.items()
    )
    return f"<table class=costs>{rows}</table>"
