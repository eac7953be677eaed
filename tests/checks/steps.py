# SPDX-License-Identifier: BSD-3-Clause
"""The steps of ./check, and how each is run."""

import dataclasses
import os
import signal
import subprocess
from pathlib import Path

from . import results

ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT / "build" / "check"

# No step may hang the whole: the slowest takes a few minutes.
TIMEOUT_S = 1500


def execute(name, command, env=None):
    """Runs a shell command in the root; returns (status, output). Ends it, and all that it started, after a time."""
    process = subprocess.Popen(["bash", "-euc", command], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, env=dict(os.environ, **(env or {})), start_new_session=True)
    try:
        output, _ = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        output += f"\nno end after {TIMEOUT_S} s\n".encode()
    text = output.decode("utf-8", "backslashreplace")
    LOGS.mkdir(parents=True, exist_ok=True)
    (LOGS / f"{name}.log").write_text(text)
    return process.returncode, text


@dataclasses.dataclass
class Step:
    name: str
    command: str
    kind: str = "command"  # whose closing words count the tests: command, meson, unittest
    build: str = "build"   # for meson: the build directory
    env: dict = dataclasses.field(default_factory=dict)
    needs: list = dataclasses.field(default_factory=list)  # steps of the same lane that must have passed

    def run(self):
        junit = ROOT / self.build / "meson-logs" / "testlog.junit.xml"
        if self.kind == "meson":
            junit.unlink(missing_ok=True)
        status, log = execute(self.name, self.command, self.env)
        if self.kind == "meson":
            return results.of_meson(status, log, junit)
        if self.kind == "unittest":
            return results.of_unittest(status, log)
        return results.of_command(status, log)


def build(directory, options=""):
    """Commands that bring a build directory up to date, with warnings as errors."""
    return (f"[ -e {directory}/build.ninja ] || meson setup {directory} {options}; "
            f"meson configure {directory} --werror -Dwarning_level=2; ninja -C {directory}")


BUILD = Step("build", build("build"))


def python_test(path, name=None, **more):
    return Step(name or Path(path).stem.replace("_", "-"), f"python3 {path} -v", kind="unittest", **more)


def rig_test(name, classes, step, **more):
    """Some of a file's tests in the rig."""
    return Step(step, f"python3 tests/rig/{name}_test.py -v {classes}", kind="unittest", **more)


def host_lane():
    sanitize = "-Db_sanitize=address,undefined -Db_lundef=false -Dguests=false -Dfuzz=true"
    return [
        Step("format", "git ls-files '*.c' '*.h' | xargs clang-format --dry-run --Werror"),
        Step("licence-lines", "! git ls-files '*.c' '*.h' '*.py' '*.S' '*.inc' '*.js' '*.css' '*.build' '*.ld' | "
             "xargs grep -L 'SPDX-License-Identifier: BSD-3-Clause' | grep ."),
        Step("unit", "meson test -C build --no-rebuild --print-errorlogs --no-suite browser", kind="meson"),
        python_test("tests/rig/chance_test.py"),
        Step("clang-sanitized-build", "export CC=clang; " + build("build-sanitized", sanitize)),
        Step("unit-sanitized", "meson test -C build-sanitized --no-rebuild --print-errorlogs --suite unit --timeout-multiplier 5",
             kind="meson", build="build-sanitized", needs=["clang-sanitized-build"],
             env={"ASAN_OPTIONS": "detect_leaks=1", "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}),
        Step("fuzz", "tests/fuzz 50", needs=["clang-sanitized-build"]),
        rig_test("hostile", "Records", "hostile-sanitized", needs=["clang-sanitized-build"],
                 env={"UNIPROF_BUILD": str(ROOT / "build-sanitized")}),
        python_test("tests/vmm/process_test.py", "process"),
        python_test("tests/vmm/kvm_test.py", "kvm"),
        python_test("tests/vmm/unpaused_test.py", "unpaused"),
        python_test("tests/vmm/qemu_test.py", "qemu"),
        python_test("tests/vmm/core_test.py", "qemu-core"),
        python_test("tests/builds_test.py"),
        python_test("tests/names/names_test.py"),
        python_test("tests/views/report_test.py"),
        python_test("tests/views/hostile_test.py", "views-hostile"),
        python_test("tests/browser/flamegraph_test.py", "browser"),
        python_test("tests/browser/verb_test.py", "browser-verb"),
        python_test("tests/exports/readers_test.py", "export-readers"),
        python_test("tests/exports/speedscope_test.py", "export-speedscope"),
        python_test("tests/browser/page_test.py", "browser-page"),
        python_test("tests/bench/draw_test.py", "bench-draw"),
    ]


XENCTRL = {"UNIPROF_BUILD": str(ROOT / "build-xenctrl")}


def xenctrl_test(name, tests=""):
    """Tests in the rig, on the uniprof that talks to Xen by libxenctrl."""
    return Step(f"xenctrl-{name}", f"python3 tests/rig/{name}_test.py -v {tests}", kind="unittest", env=XENCTRL)


def rig_lane():
    names = ("shares", "sampling", "guests", "endings", "errors", "verbs", "privilege", "images", "versions", "faults", "stack", "top")
    tests = [python_test(f"tests/rig/{name}_test.py", name) for name in names]
    tests += [Step("truth-test", "python3 tests/truth/truth_test.py -v Profiles", kind="unittest"),
              python_test("tests/rig/linux_test.py", "linux"),
              python_test("tests/rig/moved_kernel_test.py", "moved-kernel")]
    return [python_test("rig/rig_test.py", "rig")] + tests + [rig_test("hostile", "Pauses Memory", "hostile"),
        Step("bench-sample", "python3 tests/bench/sample_test.py -v Pages Smoke", kind="unittest")]


def faults_lane():
    """In the other lane, so that both take about as long."""
    return [python_test("tests/rig/kills_test.py", "kills"), python_test("tests/rig/events_test.py", "events"),
            rig_test("core", "Core.test_pv Core.test_pv_without_frame_pointers Core.test_pv_with_several_vcpus", "xen-core")]


def arm64_lanes():
    """Behind all else, where they disturb nothing; divided, so that they take less than five minutes."""
    return [[rig_test("arm64", "Shares", "arm64-shares"), rig_test("arm64", "Xen420", "arm64-xen-4.20")],
            [rig_test("arm64", "Hard", "arm64-hard"), rig_test("linux_arm64", "", "arm64-linux"),
             Step("arm64-bench", "python3 tests/bench/sample_test.py -v Arm64", kind="unittest"),
             Step("arm64-truth", "python3 tests/truth/truth_test.py -v Arm64Profiles", kind="unittest")]]


def xenctrl_lane():
    """Divided among the lanes, behind what is theirs."""
    return [[xenctrl_test("guests"), xenctrl_test("endings"), xenctrl_test("verbs")],
            [xenctrl_test("errors"), xenctrl_test("shares", "Shares.test_app1_pv Shares.test_app2_pvh"),
             xenctrl_test("privilege", "Privilege.test_while_it_samples_it_has_no_rights "
                          "Privilege.test_a_guard_that_replaces_a_killed_one_is_confined_too")]]


def lanes():
    own_steps = [host_lane() + faults_lane(), rig_lane()]
    return [own + xenctrl + arm64 for own, xenctrl, arm64 in zip(own_steps, xenctrl_lane(), arm64_lanes())]


def builds():
    """What all lanes stand on."""
    return [BUILD, Step("build-xenctrl", build("build-xenctrl", "-Dxen_interface=xenctrl -Dguests=false -Dtests=false"))]
