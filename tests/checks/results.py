# SPDX-License-Identifier: BSD-3-Clause
"""Results of a step: counts of single tests, read from the test runners' output."""

import dataclasses
import re
import xml.etree.ElementTree as ElementTree


@dataclasses.dataclass
class Result:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    log: str = ""
    skip_reasons: list = dataclasses.field(default_factory=list)

    def summary(self):
        parts = [f"{self.passed} passed"]
        if self.failed:
            parts.append(f"{self.failed} FAILED")
        if self.skipped:
            parts.append(f"{self.skipped} skipped")
        return ", ".join(parts)

    def tail(self, lines=60):
        return "\n".join("    | " + line for line in self.log.splitlines()[-lines:])


# Status of a command that cannot run here; its last line says why.
SKIP_STATUS = 77


def failed_to_start(missing):
    return Result(failed=1, log=f"not run: {', '.join(missing)} failed before")


def skipped(reason):
    return Result(skipped=1, skip_reasons=[reason])


def of_command(status, log):
    """A step that is one test: it succeeds or not, or cannot run."""
    if status == SKIP_STATUS:
        return skipped((log.strip().splitlines() or ["no reason was told"])[-1])
    return Result(passed=int(status == 0), failed=int(status != 0), log=log)


def of_meson(status, log, junit):
    """The single tests that meson's JUnit file tells of."""
    result = Result(log=log)
    try:
        cases = ElementTree.parse(junit).getroot().iter("testcase")
    except (OSError, ElementTree.ParseError) as error:
        return Result(failed=1, log=f"{log}\n{error}")
    for case in cases:
        if case.find("skipped") is not None:
            result.skipped += 1
            result.skip_reasons.append(f"{case.get('classname')}: {case.get('name')}")
        elif case.find("failure") is not None or case.find("error") is not None:
            result.failed += 1
        else:
            result.passed += 1
    if status != 0 and not result.failed:
        result.failed = 1
    return result


def of_unittest(status, log):
    """The closing lines of Python's unittest: "Ran 5 tests", "FAILED (failures=1, skipped=2)"."""
    ran = re.findall(r"^Ran (\d+) tests? in", log, re.M)
    closing = re.findall(r"^(?:OK|FAILED)(?: \((.*)\))?$", log, re.M)
    if not ran or not closing:
        return Result(failed=1, log=log)
    counts = {kind: int(n) for kind, n in re.findall(r"(\w+)=(\d+)", closing[-1])}
    result = Result(log=log, skipped=counts.get("skipped", 0),
                    failed=counts.get("failures", 0) + counts.get("errors", 0))
    result.passed = max(0, int(ran[-1]) - result.skipped - result.failed)
    if status != 0 and not result.failed:
        result.failed = 1
    result.skip_reasons = re.findall(r"skipped ['\"](.*)['\"]$", log, re.M)
    return result
