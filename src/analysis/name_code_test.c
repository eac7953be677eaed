/* SPDX-License-Identifier: BSD-3-Clause */
#include "analysis/name_code.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void idle_loops_and_hypercalls_are_told_by_their_names(void **state)
{
	static const char *const idle[] = {"[idle]",
					   "default_idle",
					   "default_idle_call",
					   "mwait_idle_with_hints",
					   "intel_idle",
					   "acpi_idle_enter",
					   "psci_enter_idle_state",
					   "arch_cpu_idle",
					   "do_idle",
					   "cpuidle_enter_state",
					   "pv_native_safe_halt",
					   "native_halt",
					   "cpu_startup_entry",
					   "xen_idle"};
	static const char *const calls[] = {"xen_hypercall_sched_op", "HYPERVISOR_sched_op",
					    "vmcall", "kvm_hypercall1"};
	static const char *const others[] = {"idle_hands", "do_idle.part", "tcp_input",
					     "vmcallback", "cpuidle_"};

	for (size_t i = 0; i < sizeof(idle) / sizeof(idle[0]); i++)
		if (name_kind_of(idle[i], true, true) != NAME_IDLE)
			fail_msg("%s is not idle", idle[i]);
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		if (name_kind_of(calls[i], false, false) != NAME_HYPERVISOR)
			fail_msg("%s is no call of the hypervisor", calls[i]);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (name_kind_of(others[i], true, true) != NAME_KERNEL)
			fail_msg("%s is not of the kernel", others[i]);
}

static void the_guests_own_code_is_no_users(void **state)
{
	assert_int_equal(name_kind_of("main", false, false), NAME_GUEST);
	assert_int_equal(name_kind_of("main", false, true), NAME_USER);
}

static void packages_are_what_names_begin_with(void **state)
{
	static const struct {
		const char *name, *package;
	} cases[] = {{"std::vec::Vec::push", "std"},
		     {"<alloc::string::String as core::fmt::Write>::write_str", "alloc"},
		     {"net/http.(*conn).serve", "net/http"},
		     {"net/http.readRequest", "net/http"},
		     {"main.main.func1", "main"},
		     {"github.com/go-x/y.Do.func1.2", "github.com/go-x/y"},
		     {"camlStdlib__map_12", "Stdlib"},
		     {"[libcrypto.so.3]", "libcrypto.so.3"},
		     {"__tcp_input", "tcp"},
		     {"tcp_input", "tcp"},
		     {"main", "main"},
		     {"operator new(unsigned long)", "operator new(unsigned long)"},
		     {"", ""}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		size_t len;
		const char *package = name_package(cases[i].name, &len);

		if (len != strlen(cases[i].package) || strncmp(package, cases[i].package, len))
			fail_msg("%s: %.*s", cases[i].name, (int)len, package);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(idle_loops_and_hypercalls_are_told_by_their_names),
		cmocka_unit_test(the_guests_own_code_is_no_users),
		cmocka_unit_test(packages_are_what_names_begin_with),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
