import shutil
from email.message import Message

import pytest

from proofs.audit.__main__ import FOUND, NOT_CHECKED, NOTHING_FOUND, exit_status
from proofs.audit.crates import allowed_licences, judge_crates
from proofs.audit.licences import expression_of, is_allowed, judge, refused_as_programs
from proofs.audit.locks import LockError, Pin, parse_lock, rounds
from proofs.audit.vulnerabilities import CONTROL, check, parse
from proofs.native.build import LOCK
from proofs.paths import ROOT

NO_LICENCE_PROBLEM = {"refused": {}, "unknown": [], "not_installed": []}
ALLOWED = {"MIT", "Apache-2.0", "Apache-2.0 WITH Classpath-exception-2.0", "BSD-3-Clause"}


def report(*pins, vulns=(), skip=None):
    packages = [dict(zip(("name", "version"), pin.split("=="), strict=True)) for pin in pins]
    rest = {"skip_reason": skip} if skip else {"vulns": [{"id": name} for name in vulns]}
    return {"dependencies": [package | rest for package in packages]}


def service(known, *, vulnerable=(), silent=()):
    """Return a query of which the services `known` work, and report `vulnerable` pins; `silent` pins are skipped."""

    def query(name, pins):
        if name not in known:
            return None
        parts = [
            report(pin, skip="not found")
            if pin in silent
            else report(pin, vulns=["CVE-1"] if pin in vulnerable or pin == CONTROL else [])
            for pin in pins
        ]
        return {"dependencies": [package for part in parts for package in part["dependencies"]]}

    return query


def metadata(**fields):
    message = Message()
    for name, values in fields.items():
        for value in values if isinstance(values, list) else [values]:
            message[name.replace("_", "-")] = value
    return message


def test_a_lock_is_read_without_hashes_and_comments_and_with_every_marker():
    text = "A_b==1.0 \\\n    --hash=sha256:00 \\\n    --hash=sha256:11\n    # via x\nc[d]==2 ; python_version < '3'\n"
    assert parse_lock(text, "x.txt") == [Pin("a-b", "1.0"), Pin("c", "2", here=False)]


@pytest.mark.parametrize("line", ["a>=1", "a==1,<2", "a", "-r other.txt", "a @ file:///x"])
def test_a_line_that_pins_nothing_is_refused_and_not_passed_over(line):
    with pytest.raises(LockError, match=r"x\.txt:2: .*run make lock"):
        parse_lock(f"b==1\n{line}\n", "x.txt")


def test_every_lock_of_the_project_is_read_and_each_version_is_asked_once():
    locks = {path.name: parse_lock(path.read_text(), path.name) for path in (ROOT / "requirements").glob("*.txt")}
    assert all(locks.values())
    lists = rounds(locks)
    assert all(len({pin.split("==")[0] for pin in pins}) == len(pins) for pins in lists)
    assert {pin for pins in lists for pin in pins} == {
        f"{p.name}=={p.version}" for pins in locks.values() for p in pins
    }


def test_a_service_that_does_not_know_a_famous_vulnerability_has_checked_nothing():
    verdict = check([["a==1"]], lambda _, pins: report(*pins))
    assert verdict["status"] == "not checked"
    assert verdict["service"] is None
    assert exit_status(verdict, NO_LICENCE_PROBLEM) == NOT_CHECKED


def test_a_mirror_that_skips_every_package_has_checked_nothing():
    verdict = check([["a==1"]], lambda _, pins: report(*pins, skip="Dependency not found"))
    assert (verdict["status"], verdict["not_checked"]) == ("not checked", 1)


def test_the_second_service_is_asked_when_the_first_does_not_answer():
    verdict = check([["a==1"], ["a==2"]], service({"osv"}, vulnerable={"a==2"}))
    assert verdict == {
        "status": "checked", "service": "osv", "checked": 2, "not_checked": [], "found": {"a==2": ["CVE-1"]},
    }  # fmt: skip
    assert exit_status(verdict, NO_LICENCE_PROBLEM) == FOUND


def test_a_skipped_package_is_named_and_the_audit_is_not_passed():
    verdict = check([["a==1", "b==1"]], service({"pypi"}, silent={"b==1"}))
    assert (verdict["status"], verdict["not_checked"]) == ("partly checked", ["b==1"])
    assert exit_status(verdict, NO_LICENCE_PROBLEM) == NOT_CHECKED


def test_nothing_found_is_only_said_when_everything_was_checked():
    verdict = check([["a==1"]], service({"pypi"}))
    assert exit_status(verdict, NO_LICENCE_PROBLEM) == NOTHING_FOUND
    assert exit_status(verdict, NO_LICENCE_PROBLEM | {"not_installed": ["a==1"]}) == NOT_CHECKED
    assert exit_status(verdict, NO_LICENCE_PROBLEM | {"unknown": ["a==1"]}) == FOUND
    assert exit_status(verdict, NO_LICENCE_PROBLEM | {"refused": {"a==1": "X"}}) == FOUND


def test_without_cargo_no_crate_is_checked(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    verdict = judge_crates(allowed_licences())
    assert {package.partition("==")[0] for package in verdict["not_installed"]} >= {"efo-native", "memchr", "pyo3"}
    assert (verdict["allowed"], verdict["refused"], verdict["unknown"]) == (0, {}, [])


def test_no_answer_holds_no_package():
    assert parse(None) == {}


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("GPL-3.0-only OR MIT", True),
        ("GPL-3.0-only AND MIT", False),
        ("MIT AND GPL-3.0-only OR Apache-2.0", True),
        ("MIT AND (GPL-3.0-only OR Apache-2.0)", True),
        ("(MIT OR GPL-3.0-only) AND (GPL-3.0-only OR GPL-2.0-only)", False),
        ("MIT OR GPL-3.0-only AND GPL-2.0-only", True),
        ("Apache-2.0 WITH LLVM-exception", False),
        ("Apache-2.0 WITH Classpath-exception-2.0", True),
    ],
)
def test_an_expression_is_allowed_by_one_side_of_or_and_both_sides_of_and(expression, allowed):
    assert is_allowed(expression, ALLOWED) is allowed


@pytest.mark.parametrize(
    ("fields", "expression"),
    [
        ({"License_Expression": "mit or apache-2.0"}, "MIT OR Apache-2.0"),
        ({"License": "License :: OSI Approved :: Apache Software License"}, "Apache-2.0"),
        ({"Name": "wrapt", "License": "Copyright (c) 2013-2025, Graham Dumpleton"}, "BSD-2-Clause"),
        ({"License": "Apache 2.0"}, "Apache-2.0"),
        ({"License": "Public domain"}, "LicenseRef-Public-Domain"),
        ({"Classifier": ["License :: Public Domain"]}, "LicenseRef-Public-Domain"),
        ({"License": "a long text", "Classifier": ["License :: OSI Approved :: MIT License"]}, "MIT"),
        ({"Classifier": ["License :: OSI Approved", "License :: OSI Approved :: BSD License"]}, "LicenseRef-BSD"),
        ({"Classifier": ["License :: OSI Approved :: MIT License", "License :: x :: ISC"]}, "MIT AND ISC"),
        ({"Classifier": ["License :: OSI Approved :: MIT License", "License :: Strange"]}, None),
        ({"License": "UNKNOWN"}, None),
        (
            {"Name": "docutils", "Classifier": ["License :: OSI Approved :: GNU General Public License (GPL)"]},
            "LicenseRef-Public-Domain AND BSD-2-Clause AND BSD-3-Clause",
        ),
        ({}, None),
    ],
)
def test_the_licence_is_read_from_what_the_metadata_states(fields, expression):
    assert expression_of(metadata(**fields)) == expression


def test_a_program_that_is_only_run_is_not_refused_while_its_licence_is_the_named_one():
    refused = {"a==1": "GPL-3.0", "b==1": "GPL-3.0", "c==1": "AGPL-3.0"}
    assert refused_as_programs(refused, {"a": "GPL-3.0", "c": "GPL-3.0"}) == {"b==1": "GPL-3.0", "c==1": "AGPL-3.0"}


def test_packages_are_judged_by_name_and_version_and_what_is_missing_is_named():
    found = {("a", "1"): "MIT", ("b", "1"): "GPL-3.0-only", ("c", "1"): None, ("d", "2"): "MIT"}
    pins = [Pin("a", "1"), Pin("b", "1"), Pin("c", "1"), Pin("d", "1"), Pin("e", "1", here=False)]
    assert judge(pins, found, ALLOWED) == {
        "allowed": 1,
        "refused": {"b==1": "GPL-3.0-only"},
        "unknown": ["c==1"],
        "not_installed": ["d==1"],
        "other_platform": ["e==1"],
    }


@pytest.mark.skipif(shutil.which("cargo") is None or not LOCK.exists(), reason="efo-native is not built (make native)")
def test_the_licences_of_the_crates_of_efo_native_are_allowed():
    verdict = judge_crates(allowed_licences())
    assert (verdict["refused"], verdict["unknown"]) == ({}, [])
    assert verdict["allowed"] > 10
    assert judge_crates(["MIT"])["refused"]["target-lexicon==0.13.5"] == "Apache-2.0 WITH LLVM-exception"
