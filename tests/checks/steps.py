# SPDX-License-Identifier: BSD-3-Clause
"""The steps of ./check, and how each is run.

To add one: a row in everything(), at its place among those that take as long (the slow ones begin first).
Where a file of tests tries the same on several kinds of guest, a step that would take minutes names those
that differ most; `python3 FILE` runs all of them.
A step that tests a kind of guest, a format or a view that no short step tests names in `short` what of it
./check runs without --all: one test of each kind, so that all of them take less than twelve minutes.
"""

import dataclasses
import os
import signal
import subprocess
from pathlib import Path

from . import results

ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT / "build" / "check"
# Where tests note what they have run (tests/rig/ran.py).
RAN = LOGS / "ran"

# No step may hang the whole: the slowest takes a few minutes.
TIMEOUT_S = 1500


def execute(name, command, env=None):
    """Runs a shell command in the root; returns (status, output). Ends it, and all that it started, after a time."""
    process = subprocess.Popen(["bash", "-euc", command], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, env=dict(os.environ, UNIPROF_RAN=str(RAN), **(env or {})), start_new_session=True)
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
    needs: tuple = ("build",)  # steps that must have passed
    alone: str = ""        # a resource: steps with the same one never run at the same time
    short: str | None = None   # the command of the short check; None: not part of it

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


ALL = "all"


def command(name, line, short=None, **more):
    """A step that is one test: it succeeds or not."""
    return Step(name, line, short=line if short == ALL else short, **more)


def python_test(path, name=None, tests="", short=None, **more):
    """A file of unittest's, or some of its tests; `short` names those of the short check."""
    line = f"python3 {path} -v"
    return Step(name or Path(path).stem.removesuffix("_test").replace("_", "-"), f"{line} {tests}", kind="unittest",
                short=f"{line} {tests}" if short == ALL else short and f"{line} {short}", **more)


def rig_test(file, name=None, tests="", **more):
    return python_test(f"tests/rig/{file}_test.py", name or file.replace("_", "-"), tests, **more)


def browser_test(file, name, **more):
    return python_test(f"tests/{file}_test.py", name, alone="browser", **more)


def host_guests_test(file, name, **more):
    """Guests of this host: some tests look at all of them."""
    return python_test(f"tests/vmm/{file}_test.py", name, alone="host guests", **more)


def xenctrl_test(file, tests="", **more):
    """Tests in the rig, on the uniprof that talks to Xen by libxenctrl."""
    return rig_test(file, f"xenctrl-{file}", tests, needs=("build", "build-xenctrl"), env={"UNIPROF_BUILD": str(ROOT / "build-xenctrl")}, **more)


def builds():
    """The builds that tests need, and the checks that need none."""
    sanitize = "-Db_sanitize=address,undefined -Db_lundef=false -Dguests=false -Dfuzz=true"
    return [
        command("build", build("build"), needs=(), short=ALL),
        command("format", "git ls-files '*.c' '*.h' | xargs clang-format --dry-run --Werror", needs=(), short=ALL),
        command("tidy", "git ls-files 'src/*.c' ':!*_test.c' | tests/checks/tidy build", short=ALL),
        command("licence-lines", "! git ls-files '*.c' '*.h' '*.py' '*.S' '*.inc' '*.js' '*.css' '*.build' '*.ld' | "
                "xargs grep -L 'SPDX-License-Identifier: BSD-3-Clause' | grep .", needs=(), short=ALL),
        command("clang-sanitized-build", "export CC=clang; " + build("build-sanitized", sanitize), needs=(), short=ALL),
        python_test("tests/checks/pool_test.py", "check-itself", needs=(), short=ALL),
        python_test("tests/shape_test.py", needs=(), short=ALL),
        python_test("tests/words_test.py", needs=(), short=ALL),
        rig_test("chance", needs=(), short=ALL),
        command("build-xenctrl", build("build-xenctrl", "-Dxen_interface=xenctrl -Dguests=false -Dtests=false -Dwhole=false"), needs=("build",)),
    ]


def unit_tests():
    sanitized = ("build", "clang-sanitized-build")
    return [
        Step("unit-sanitized", "meson test -C build-sanitized --no-rebuild --print-errorlogs --suite unit --no-suite stepped --timeout-multiplier 5",
             kind="meson", build="build-sanitized", needs=sanitized, short=ALL,
             env={"ASAN_OPTIONS": "detect_leaks=1", "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}),
        # Tests that unwind at every instruction (stepped) take too long under the sanitizers.
        Step("unit", "meson test -C build --no-rebuild --print-errorlogs --no-suite browser", kind="meson",
             short="meson test -C build --no-rebuild --print-errorlogs --suite stepped"),
        command("fuzz", "tests/fuzz", needs=sanitized),
        rig_test("hostile", "hostile-sanitized", "Records", needs=sanitized, env={"UNIPROF_BUILD": str(ROOT / "build-sanitized")}),
    ]


def xen_tests():
    return [
        python_test("rig/rig_test.py", "rig"),
        rig_test("endings", short="Endings.test_signals_end_a_recording_and_keep_it Endings.test_an_administrators_pause_stays"),
        rig_test("shares", short="Shares.test_app1_pv Shares.test_app1_pvh_without_frame_pointers"),
        rig_test("verbs", short="Verbs.test_list_shows_the_guests_and_how_to_profile_them Verbs.test_one_command_leaves_everything"),
        rig_test("guests", short="HardGuests.test_a_deep_recursion_is_followed_to_its_end"),
        rig_test("linux", short="Linux.test_stacks_of_a_busy_pv_kernel"),
        rig_test("hvm", short="Hvm.test_firmware_without_a_disk"),
        rig_test("ps"), rig_test("processes", tests="Processes.test_pvh Processes.test_a_guest_without_processes_says_so"), rig_test("waits"), rig_test("unikernel_threads"),
        rig_test("crowd", tests="Crowd.test_pvh"), rig_test("domu_python", tests="Churn"),
        rig_test("top"), rig_test("stack"), rig_test("sampling"), rig_test("errors"), rig_test("privilege"), rig_test("images"),
        rig_test("versions", tests="Xen414 Xen420"), rig_test("faults"), rig_test("moved_kernel"),
        rig_test("xen_itself"),
        rig_test("inside", "xen-inside", "Inside.test_a_pv_guest Inside.test_when_the_profiler_is_killed_it_ends_by_itself "
                 "Inside.test_its_end_ends_the_recording Inside.test_a_guest_without_a_sampler"),
        # The first of them builds that Xen, unless it is in the rig's cache: 265 seconds of a CPU.
        command("xen-built", "rig/xen-x86 run --xen built -c true", needs=()),
        rig_test("flask", needs=("build", "xen-built")),
        rig_test("pv32", tests="Shares.test_app1 Shares.test_app2_without_frame_pointers Hard.test_a_deep_recursion_without_frame_pointers_is_followed_to_its_end "
                 "Threads", needs=("build", "xen-built")),
        python_test("tests/bench/sample_test.py", "pv32-bench", "Pv32", needs=("build", "xen-built")),
        rig_test("profiling_domain", tests=" ".join(f"ProfilingDomain.test_{what}" for what in (
            "pv_is_seen_as_from_dom0", "pvh_what_is_missing_is_named", "pv_what_is_withdrawn_ends_the_recording",
            "a_pvh_domain_is_told_that_xen_maps_nothing_for_it", "everything_else_is_refused")), needs=("build", "xen-built")),
        rig_test("hostile", tests="Pauses.test_a_hostile_pvh_guest_is_not_paused_for_much_longer Memory.test_memory_stays_flat_and_small_with_a_thousand_stacks_pv "
                 "Memory.test_memory_is_bounded_when_all_stacks_differ_and_every_report_says_so Searches"),
        rig_test("kills", short="Kills.test_killed_between_two_instructions_of_the_sampling_loop"),
        rig_test("events"), rig_test("agent", "xen-agent"),
        rig_test("core", "xen-core", "Core.test_pv Core.test_pv_without_frame_pointers Core.test_pv_with_several_vcpus"),
        python_test("tests/truth/truth_test.py", "truth", "Profiles"),
        rig_test("traits"),
        python_test("tests/foreign_test.py", short="Judged"),
        python_test("tests/bench/sample_test.py", "bench-sample", "Pages Smoke", short="Pages"),
        # libxenctrl is another way to the same hypercalls: what depends on them is tried on it once more.
        xenctrl_test("endings", "Endings.test_signals_end_a_recording_and_keep_it Endings.test_an_administrators_pause_stays "
                     "Endings.test_a_profiler_killed_at_any_moment_leaves_the_guest_running"),
        xenctrl_test("verbs", "Verbs.test_list_shows_the_guests_and_how_to_profile_them Verbs.test_two_profilers_share_a_guest "
                     "Verbs.test_run_takes_the_guest_that_xl_names_and_no_stranger"),
        xenctrl_test("errors", "Errors.test_no_such_domain Errors.test_dom0_is_refused Errors.test_without_rights Errors.test_without_xen"),
        xenctrl_test("shares", "Shares.test_app2_pvh"),
        xenctrl_test("privilege", "Privilege.test_while_it_samples_it_has_no_rights"),
    ]


def xen_arm64_tests():
    return [
        rig_test("arm64", "arm64-shares", " ".join(f"Shares.test_app{what}" for what in (
            "2_without_frame_pointers", "1_with_pages_of_16_kib", "1_with_pages_of_64_kib_without_frame_pointers", "1_of_32_bits",
            "1_of_32_bits_in_thumb_without_frame_pointers", "2_of_32_bits_by_tables_for_exceptions")), short="Shares.test_app1"),
        rig_test("arm64", "arm64-hard", "Hard"),
        rig_test("linux_arm64", "arm64-linux", "Linux"),
        rig_test("linux_arm64", "arm64-processes", "Processes"),
        python_test("tests/truth/truth_test.py", "arm64-truth", "Arm64Profiles"),
    ]


def host_tests():
    return [
        host_guests_test("qemu", "qemu", short="Profiles.test_app1 Profiles.test_arm64_app2_without_frame_pointers Leaves"),
        host_guests_test("inside", "inside", short="Inside.test_shares_agree_with_the_truth_and_with_those_from_outside Inside.test_sampling_costs_next_to_nothing"),
        host_guests_test("hostile_servers", "hostile-servers", short="Qmp.test_a_full_backlog Stub.test_output_of_the_monitor_without_end"),
        host_guests_test("gdb", "gdb", short="Machines.test_arm64 Programs Hostile.test_silence"),
        host_guests_test("kvm", "kvm", short="Profiles.test_shares Leaves.test_what_kvm_was_told_is_told_back"),
        host_guests_test("unpaused", "unpaused", short="Profiles.test_unwind_tables"),
        host_guests_test("process", "process", short="Unstopped.test_shares_of_a_process Ends.test_its_end"),
        host_guests_test("python", "python", short="Python.test_shares_and_calls_of_one_thread Python.test_lines_of_functions"),
        host_guests_test("agent", "agent", short="Guests Store"),
        python_test("tests/guides_test.py", alone="host guests", short="Shown Here.test_qemu"),
        host_guests_test("annotate", "annotate", short="Processes Guests.test_x86_64"),
        host_guests_test("core", "qemu-core"), host_guests_test("busy_host", "busy-host"),
        host_guests_test("linux", "qemu-linux"), host_guests_test("linux_kernels", "qemu-linux-kernels", tests="Linux510 LinuxArm64Apart LinuxOfDebian14"),
        host_guests_test("linux_python", "qemu-linux-python"), host_guests_test("linux_jit", "qemu-linux-jit"),
        host_guests_test("linux_hostile", "qemu-linux-hostile"), host_guests_test("rights", "rights"),
        host_guests_test("freertos", "qemu-freertos"),
        host_guests_test("run", "run", short="NoGuest.test_a_command_that_starts_none Guests.test_qemu_without_a_socket_is_given_one"),
        python_test("tests/first-try/first_try_test.py", alone="host guests",
                    short="Answers.test_wrong_words Profiles.test_qemu_with_nothing_but_an_image"),
        python_test("tests/builds_test.py", needs=("build", "build-xenctrl")),
        python_test("tests/packages/packages_test.py", tests="Built Demo Described Filter Service Installed", short="Described.test_no_other_file_has_a_version"),
        python_test("tests/names/names_test.py"),
        python_test("tests/names/hostile_files_test.py"),
        # It takes two minutes; the short check has its parts.
        command("soak", "tests/soak", alone="host guests"),
    ]


def kvm_tests():
    """In the rig, on a KVM that is emulated."""
    return [
        rig_test("kvm_x86", tests="Spaces OneCpu Shares", short="FewSpaces.test_by_bpf Shares.test_app1_by_bpf FewKills"),
        rig_test("kvm_x86", "kvm-x86-6.12", "Spaces612 Shares612"),
        rig_test("kvm_x86", "kvm-x86-processes", "Processes.test_by_bpf Processes.test_by_ptrace_without_frame_pointers "
                 "Processes612.test_by_bpf_without_frame_pointers Processes612.test_by_ptrace"),
        rig_test("kvm_x86", "kvm-x86-shadow", "Shadow"),
        rig_test("kvm_x86", "kvm-x86-load", "Loads Loads612 Refused"),
        rig_test("kvm_x86", "kvm-x86-kills", "Kills"),
        rig_test("kvm_x86", "kvm-x86-cost", "Cost"),
        rig_test("kvm_linux", "kvm-x86-linux", "Linux.test_ps_has_processes_and_their_threads Linux.test_the_live_view_has_processes_within_two_seconds Linux.test_shares_by_bpf"),
        rig_test("kvm_protected", "kvm-x86-protected"),
        rig_test("kvm_host", "kvm-x86-host", "Host HostEvents.test_ports HostEvents.test_halts", short="Host.test_ports"),
        rig_test("kvm_arm64", tests="FewSpaces Shares.test_app2_without_frame_pointers Ways Kills"),
        rig_test("kvm_arm64", "kvm-arm64-qemu", "Qemu.test_two_address_spaces_without_frame_pointers Qemu.test_each_vcpu_shows_its_own_worker"),
        rig_test("kvm_arm64", "kvm-arm64-nvhe", "SpacesNvhe WaysNvhe QemuNvhe.test_two_address_spaces"),
        rig_test("kvm_arm64", "kvm-arm64-kernels", "Spaces612.test_with_frame_pointers SpacesNvhe612.test_without_frame_pointers"),
        rig_test("kvm_arm64", "kvm-arm64-processes", "ProcessesNvhe"),
    ]


def view_tests():
    return [
        browser_test("browser/flamegraph", "browser"),
        browser_test("browser/page", "browser-page", short="OneRecording.test_it_is_the_same_as_the_svg OneRecording.test_hostile_names_are_harmless"),
        browser_test("browser/page_time", "browser-page-time"),
        browser_test("browser/annotate", "browser-annotate"),
        browser_test("browser/verb", "browser-verb"),
        browser_test("browser/history", "browser-history"),
        browser_test("exports/readers", "export-readers", short="Pprof PerfData"),
        browser_test("exports/speedscope", "export-speedscope"),
        python_test("tests/exports/push_test.py", short=ALL),
        python_test("tests/exports/import_test.py", "imports", short="Again Written"),
        python_test("tests/commands_test.py", short=ALL),
        python_test("tests/views/report_test.py", short=ALL),
        python_test("tests/views/history_test.py", "history", short=ALL),
        python_test("tests/views/outputs_test.py", short=ALL),
        browser_test("views/hostile", "views-hostile"),
        python_test("tests/bench/views_test.py", "bench-views"),
        python_test("tests/bench/fleet_test.py", "bench-fleet"),
    ]


def everything():
    guests = xen_tests() + host_tests() + kvm_tests() + xen_arm64_tests()
    told = command("what-was-run", f"tests/rig/ran.py {RAN}", needs=tuple(step.name for step in guests))
    return builds() + unit_tests() + guests + view_tests() + [told]


def short():
    return [dataclasses.replace(step, command=step.command if step.short == ALL else step.short)
            for step in everything() if step.short]


def with_needed(wanted, steps):
    """These steps, and before them those that they need."""
    names = {step.name for step in wanted}
    while True:
        needed = {name for step in steps if step.name in names for name in step.needs}
        if needed <= names:
            return [step for step in steps if step.name in names]
        names |= needed
