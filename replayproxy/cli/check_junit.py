"""`check --junit`: JUnit XML as CI servers read it. A suite per run; a test case per episode, one for the budget."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree as Xml

from replayproxy.cli.moments import moment
from replayproxy.core.shown import safe

HEAD = b'<?xml version="1.0" encoding="UTF-8"?>\n'


def junit_xml(documents: Sequence[Mapping[str, Any]], fail_on: Collection[str]) -> bytes:
    """An episode fails where a finding of a failing grade falls on it that is not known; one that could not be judged
    is an error, one of which nothing is known is skipped."""
    root = Xml.Element("testsuites", name="replayproxy")
    for told in documents:
        suite = Xml.SubElement(root, "testsuite", name=plain(told["run"]), time="0")
        began = told["began"]
        if began is not None:
            suite.set("timestamp", moment(began["wall"]).replace(" ", "T"))
        for case in _cases(told, set(fail_on)):
            suite.append(case)
        _count(suite)
    _count(root)
    Xml.indent(root)
    return HEAD + Xml.tostring(root, encoding="unicode").encode() + b"\n"


def plain(text: object) -> str:
    """Text that XML can hold: what it has no character for (controls, lone surrogates) as an escape."""
    shown = safe(str(text), lines=True)
    return "".join(char if char not in "\ufffe\uffff" else f"\\u{ord(char):04x}" for char in shown)


def _cases(told: Mapping[str, Any], fail_on: Collection[str]) -> Iterator[Xml.Element]:
    fallen: dict[str, list[Mapping[str, Any]]] = {}
    for finding in told["findings"]:
        fallen.setdefault(finding["episode"], []).append(finding)
    unjudged = {*told["incomplete"], *told["open"]}
    for name, word in told["verdicts"].items():
        case = _case(told["run"], name)
        failing = [f for f in fallen.get(name, ()) if f["grade"] in fail_on and "known" not in f]
        if failing:
            first = f"{failing[0]['number']} {failing[0]['kind']} {failing[0]['grade']}: {failing[0]['title']}"
            _note(case, "failure", first, failing[0]["kind"], "\n\n".join(map(_finding, failing)))
        elif name in unjudged:
            _note(case, "error", "the episode is not sealed: it cannot be judged", "unjudged", "")
        elif word == "unknown":
            Xml.SubElement(case, "skipped", message="no check could run")
        if rest := [f for f in fallen.get(name, ()) if f not in failing]:
            Xml.SubElement(case, "system-out").text = plain("\n\n".join(map(_finding, rest)))
        yield case
    yield _budget(told)


def _case(run: str, name: str) -> Xml.Element:
    return Xml.Element("testcase", classname=plain(run), name=plain(name), time="0")


def _budget(told: Mapping[str, Any]) -> Xml.Element:
    """The whole run: why the exit code is what it is."""
    case = _case(told["run"], "(the run as a whole)")
    if told["why"]:
        word = "failure" if told["exit"] == 1 else "error"
        _note(case, word, "; ".join(told["why"]), "run", "")
    return case


def _note(case: Xml.Element, word: str, message: str, kind: str, text: str) -> None:
    note = Xml.SubElement(case, word, message=plain(message).replace("\n", " "), type=plain(kind))
    note.text = plain(text)


def _finding(finding: Mapping[str, Any]) -> str:
    lines = [f"{finding['number']} {finding['kind']} {finding['grade']}: {finding['title']}"]
    lines += [
        f"  {w['role']:<8} {w['address']}  {w['method']} {w['target']}  {w['status'] or ''}".rstrip()
        for w in finding["exchanges"]
    ]
    if finding["pointer"]:
        lines.append(f"  {finding['pointer']}: expected {finding['values'][0]!r}, there was {finding['values'][1]!r}")
    if "known" in finding:
        lines.append(f"  known since {finding['known']['added']}: {finding['known']['reason'] or 'no reason given'}")
    lines += [f"  blame {finding['blame']}: {finding['blame_reason']}", f"  {finding['reproduce']}"]
    return "\n".join(lines)


def _count(suite: Xml.Element) -> None:
    cases = list(suite.iter("testcase"))
    suite.set("tests", str(len(cases)))
    for attribute, word in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(attribute, str(sum(case.find(word) is not None for case in cases)))
