/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * forbidden frame DOMID: prints the frame of a PV domain's page of shared information.
 *
 * forbidden GUEST FRAME STRANGER FRAME: makes hypercalls about the domain GUEST, which may be
 * profiled, about STRANGER, which may not, and about the host; each domain with a frame of its
 * own. Prints for each the name and the errno, 0 if Xen did what was asked. What profilers do
 * comes first ("may-"), what leaves no guest behind last.
 */

#define XC_WANT_COMPAT_MAP_FOREIGN_API 1
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <xenctrl.h>
#include <xen/hvm/save.h>
#include <xen/sched.h>

#define PAGE 4096

struct domain {
	uint32_t id;
	xen_pfn_t frame;
};

struct subject {
	xc_interface *xc;
	struct domain guest, stranger;
	xen_pfn_t given; /* by give_memory */
};

static int map(xc_interface *xc, const struct domain *domain, int prot)
{
	void *page = xc_map_foreign_pages(xc, domain->id, prot, &domain->frame, 1);

	return page ? munmap(page, PAGE) : -1;
}

static int info(xc_interface *xc, uint32_t domid, xc_domaininfo_t *out)
{
	if (xc_domain_getinfolist(xc, domid, 1, out) == 1 && out->domain == domid)
		return 0;
	/* Xen leaves out what may not be seen. */
	errno = EACCES;
	return -1;
}

static int may_read(struct subject *s)
{
	return map(s->xc, &s->guest, PROT_READ);
}

static int may_see(struct subject *s)
{
	xc_domaininfo_t domain;

	return info(s->xc, s->guest.id, &domain);
}

static int may_pause(struct subject *s)
{
	return xc_domain_pause(s->xc, s->guest.id) ?: xc_domain_unpause(s->xc, s->guest.id);
}

static int see_stranger(struct subject *s)
{
	xc_domaininfo_t domain;

	return info(s->xc, s->stranger.id, &domain);
}

static int see_strangers_vcpu(struct subject *s)
{
	xc_vcpuinfo_t vcpu;

	return xc_vcpu_getinfo(s->xc, s->stranger.id, 0, &vcpu);
}

static int read_strangers_registers(struct subject *s)
{
	static vcpu_guest_context_any_t context;

	return xc_vcpu_getcontext(s->xc, s->stranger.id, 0, &context);
}

static int read_stranger(struct subject *s)
{
	return map(s->xc, &s->stranger, PROT_READ);
}

static int pause_stranger(struct subject *s)
{
	return xc_domain_pause(s->xc, s->stranger.id);
}

static int unpause_stranger(struct subject *s)
{
	return xc_domain_unpause(s->xc, s->stranger.id);
}

static int write_memory(struct subject *s)
{
	return map(s->xc, &s->guest, PROT_READ | PROT_WRITE);
}

/* Of memory, Xen tells how much it has changed, and not why it has not. */
static int one(int changed)
{
	errno = EACCES;
	return changed == 1 ? 0 : -1;
}

static int give_memory(struct subject *s)
{
	s->given = 0;
	return one(xc_domain_populate_physmap(s->xc, s->guest.id, 1, 0, 0, &s->given));
}

static int take_memory(struct subject *s)
{
	return one(xc_domain_decrease_reservation(s->xc, s->guest.id, 1, 0, &s->given));
}

static int set_max_memory(struct subject *s)
{
	return xc_domain_setmaxmem(s->xc, s->guest.id, 1 << 20);
}

static int set_max_vcpus(struct subject *s)
{
	return xc_domain_max_vcpus(s->xc, s->guest.id, 1);
}

static int set_handle(struct subject *s)
{
	xen_domain_handle_t handle = {1};

	return xc_domain_sethandle(s->xc, s->guest.id, handle);
}

static int set_clock(struct subject *s)
{
	return xc_domain_set_time_offset(s->xc, s->guest.id, 1);
}

static int set_weight(struct subject *s)
{
	struct xen_domctl_sched_credit2 parameters = {.weight = 1};

	return xc_sched_credit2_domain_set(s->xc, s->guest.id, &parameters);
}

static int set_rate_limit(struct subject *s)
{
	struct xen_sysctl_credit2_schedule parameters = {.ratelimit_us = 1000};

	return xc_sched_credit2_params_set(s->xc, 0, &parameters);
}

static int set_debugging(struct subject *s)
{
	return xc_domain_setdebugging(s->xc, s->guest.id, 0);
}

static int inject_nmi(struct subject *s)
{
	return xc_domain_send_trigger(s->xc, s->guest.id, XEN_DOMCTL_SENDTRIGGER_NMI, 0);
}

static int open_event_channel(struct subject *s)
{
	return xc_evtchn_alloc_unbound(s->xc, s->guest.id, 0);
}

static int press_debug_key(struct subject *s)
{
	return xc_send_debug_keys(s->xc, "h");
}

static int read_console(struct subject *s)
{
	char text[64];
	unsigned n = sizeof(text);
	uint32_t index = 0;

	return xc_readconsolering(s->xc, text, &n, 0, 0, &index);
}

static int see_host(struct subject *s)
{
	xc_physinfo_t host = {0};

	return xc_physinfo(s->xc, &host);
}

static int make_pool(struct subject *s)
{
	uint32_t pool = XC_CPUPOOL_POOLID_ANY;

	return xc_cpupool_create(s->xc, &pool, XEN_SCHEDULER_CREDIT2);
}

static int change_policy(struct subject *s)
{
	return xc_flask_setenforce(s->xc, 0);
}

static int create(struct subject *s)
{
	struct xen_domctl_createdomain config = {.max_vcpus = 1,
						 .max_grant_frames = 1,
						 .max_evtchn_port = 1};
	uint32_t domid = 0;

	return xc_domain_create(s->xc, &domid, &config);
}

static int write_registers(struct subject *s)
{
	static vcpu_guest_context_any_t context;

	return xc_vcpu_setcontext(s->xc, s->guest.id, 0, &context);
}

static int write_hvm_registers(struct subject *s)
{
	static uint8_t context[PAGE];

	return xc_domain_hvm_setcontext(s->xc, s->guest.id, context, sizeof(context));
}

static int shut_down(struct subject *s)
{
	return xc_domain_shutdown(s->xc, s->guest.id, SHUTDOWN_poweroff);
}

static int destroy(struct subject *s)
{
	return xc_domain_destroy(s->xc, s->guest.id);
}

static const struct operation {
	const char *name;
	int (*run)(struct subject *s);
} operations[] = {
	{"may-see", may_see},
	{"may-read", may_read},
	{"may-pause", may_pause},
	{"see-stranger", see_stranger},
	{"see-strangers-vcpu", see_strangers_vcpu},
	{"read-strangers-registers", read_strangers_registers},
	{"read-stranger", read_stranger},
	{"pause-stranger", pause_stranger},
	{"unpause-stranger", unpause_stranger},
	{"write-memory", write_memory},
	{"set-max-memory", set_max_memory},
	{"give-memory", give_memory},
	{"take-memory", take_memory},
	{"set-max-vcpus", set_max_vcpus},
	{"set-handle", set_handle},
	{"set-clock", set_clock},
	{"set-weight", set_weight},
	{"set-rate-limit", set_rate_limit},
	{"set-debugging", set_debugging},
	{"inject-nmi", inject_nmi},
	{"open-event-channel", open_event_channel},
	{"press-debug-key", press_debug_key},
	{"read-console", read_console},
	{"see-host", see_host},
	{"make-pool", make_pool},
	{"change-policy", change_policy},
	{"create", create},
	{"write-registers", write_registers},
	{"write-hvm-registers", write_hvm_registers},
	{"shut-down", shut_down},
	{"destroy", destroy},
};

static int print_frame(xc_interface *xc, uint32_t domid)
{
	xc_domaininfo_t domain;

	if (info(xc, domid, &domain))
		return 1;
	printf("%llu\n", (unsigned long long)domain.shared_info_frame);
	return 0;
}

static struct domain domain_of(char **words)
{
	return (struct domain){.id = (uint32_t)strtoul(words[0], NULL, 0),
			       .frame = strtoul(words[1], NULL, 0)};
}

int main(int argc, char **argv)
{
	struct subject subject = {.xc = xc_interface_open(NULL, NULL, 0)};

	if (!subject.xc)
		return 2;
	if (argc == 3 && !strcmp(argv[1], "frame"))
		return print_frame(subject.xc, (uint32_t)strtoul(argv[2], NULL, 0));
	if (argc != 5)
		return 2;
	subject.guest = domain_of(argv + 1);
	subject.stranger = domain_of(argv + 3);
	for (size_t i = 0; i < sizeof(operations) / sizeof(*operations); i++) {
		errno = 0;
		printf("%s %d\n", operations[i].name, operations[i].run(&subject) < 0 ? errno : 0);
	}
	return 0;
}
