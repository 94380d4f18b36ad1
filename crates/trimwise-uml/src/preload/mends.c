/* Preloaded into a User-Mode Linux kernel, to mend what it takes from the host. (Its calendar, line.c,
 * is compiled together with this.)
 *
 * From 6.1 on such a kernel seeds its random numbers from the host's getrandom(2); with the same bytes each time, the
 * same run gives the same result. No secret may ever come from it.
 *
 * The guest's processes are processes of the host whose system calls the kernel catches by ptrace(2). If the kernel is
 * killed, they must not go on without it, or their system calls would be the host's: each is told to die with it.
 *
 * It keeps their vector registers in a buffer of 2,696 bytes, which was all of them until processors had tile registers
 * (AMX). The host gives as much of them as is asked for, but takes back only the whole (xstateregs_set, EFAULT), and the
 * guest's first process would die. So the whole is given back, with the rest as a process has it at its begin.
 *
 * Each system call of such a process costs the kernel six of its own, of which reading and writing the vector registers
 * take a third. Most calls change none, and then they need not be written.
 *
 * The guest reaches the run's folder as /proc/self/cwd, and its init there. It would follow these links, and keep in its
 * memory each folder on the way to where they lead; how much of that is free decides when it writes back what is dirty,
 * and so where files come to lie. It is told that they are no links, so that the same run gives the same result wherever
 * folder and program are. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

ssize_t getrandom(void *buffer, size_t length, unsigned int flags)
{
	(void)flags;
	memset(buffer, 0x42, length);
	return (ssize_t)length;
}

typedef long ptrace_function(enum __ptrace_request, ...);

/* Gives registers back to a process, as many as the host wants. */
static long set_vector_registers(ptrace_function *real, pid_t process, void *kind, struct iovec *given)
{
	/* The kernel is one thread. Larger than any processor's registers (tiles included 11,008). */
	static _Alignas(64) unsigned char whole[65536];
	static size_t whole_bytes;
	struct iovec all = { whole, sizeof(whole) };

	if (!whole_bytes) {
		if (real(PTRACE_GETREGSET, process, kind, &all) < 0)
			return -1;
		whole_bytes = all.iov_len;
		memset(whole, 0, sizeof(whole));
	}
	if (given->iov_len >= whole_bytes)
		return real(PTRACE_SETREGSET, process, kind, given);
	memcpy(whole, given->iov_base, given->iov_len);
	/* Behind the 512 bytes of FXSAVE: which components are not as at the begin. Tiles (17, 18) were not kept. */
	uint64_t components;
	memcpy(&components, whole + 512, sizeof(components));
	components &= ~(UINT64_C(3) << 17);
	memcpy(whole + 512, &components, sizeof(components));
	all.iov_len = whole_bytes;
	return real(PTRACE_SETREGSET, process, kind, &all);
}

/* Vector registers as a process that has not run since has them: only then is `process` not 0. */
static struct {
	pid_t process;
	size_t bytes;
	_Alignas(64) unsigned char registers[16384];
} as_read;

static int are_as_read(pid_t process, const struct iovec *given)
{
	return process == as_read.process && given->iov_len >= as_read.bytes
		&& !memcmp(as_read.registers, given->iov_base, as_read.bytes);
}

static long get_vector_registers(ptrace_function *real, pid_t process, void *kind, struct iovec *wanted)
{
	if (process == as_read.process && wanted->iov_len >= as_read.bytes) {
		memcpy(wanted->iov_base, as_read.registers, as_read.bytes);
		wanted->iov_len = as_read.bytes;
		return 0;
	}
	long done = real(PTRACE_GETREGSET, process, kind, wanted);
	as_read.process = 0;
	if (!done && wanted->iov_len <= sizeof(as_read.registers)) {
		as_read.process = process;
		as_read.bytes = wanted->iov_len;
		memcpy(as_read.registers, wanted->iov_base, wanted->iov_len);
	}
	return done;
}

static long give_vector_registers(ptrace_function *real, pid_t process, void *kind, struct iovec *given)
{
	if (are_as_read(process, given))
		return 0;
	as_read.process = 0;
	return set_vector_registers(real, process, kind, given);
}

/* Sets the registers of a process whose setting was put off, and the vector registers if they were. */
static long set_registers(ptrace_function *real, pid_t process, struct user_regs_struct *registers)
{
	returning = NULL;
	long done = real(PTRACE_SETREGS, process, NULL, registers);
	if (!done && vector_registers.iov_len)
		done = give_vector_registers(real, process, (void *)NT_X86_XSTATE, &vector_registers);
	return done;
}

long ptrace(enum __ptrace_request request, ...)
{
	static ptrace_function *real;
	va_list arguments;
	va_start(arguments, request);
	pid_t process = va_arg(arguments, pid_t);
	void *address = va_arg(arguments, void *);
	void *data = va_arg(arguments, void *);
	va_end(arguments);
	if (!real)
		real = (ptrace_function *)dlsym(RTLD_NEXT, "ptrace");
	int is_vector = (request == PTRACE_GETREGSET || request == PTRACE_SETREGSET) && (uintptr_t)address == NT_X86_XSTATE;
	if (is_vector && request == PTRACE_GETREGSET) {
		if (told) { /* they are where they were put before */
			told = NULL;
			return 0;
		}
		return get_vector_registers(real, process, address, data);
	}
	if (is_vector) {
		if (returning) {
			vector_registers = *(const struct iovec *)data;
			return 0;
		}
		return give_vector_registers(real, process, address, data);
	}
	int runs = (int)request == RUN_TO_NEXT_CALL || (int)request == RUN_ONE_STEP;
	if (returning && !runs) {
		/* It does not run yet: up to 6.1, the kernel also sets the registers of a task that waits. */
		if (set_registers(real, process, &batch_registers) < 0)
			return -1;
	}
	if (request == PTRACE_SETREGS) {
		returning = batch_of(process, data);
		if (!returning)
			return real(request, process, address, data);
		batch_registers = *(const struct user_regs_struct *)data;
		vector_registers.iov_len = 0;
		return 0;
	}
	if (request == PTRACE_GETREGS && told) {
		tell(told, data);
		return 0;
	}
	if (request == PTRACE_GETREGS) {
		long done = real(request, process, address, data);
		struct user_regs_struct *found = data;
		int is_call = process == at_a_call;
		at_a_call = 0;
		if (!done && is_call && found->orig_rax == BATCH_NUMBER && begin_batch(process, found))
			tell(batch_of(process, found), found);
		return done;
	}
	if (returning) {
		struct batch *batch = returning;
		if (next_of_batch(batch, (int64_t)batch_registers.rax) && (int)request == RUN_TO_NEXT_CALL) {
			told = batch;
			returning = NULL;
			return 0;
		}
		struct user_regs_struct registers = end_batch(batch, (int64_t)batch_registers.rax);
		if (set_registers(real, process, &registers) < 0)
			return -1;
	}
	if (request == PTRACE_KILL)
		drop_batches(process);
	/* Whatever is left lets the process run, or may change them. */
	as_read.process = 0;
	runs_to_next_call = (int)request == RUN_TO_NEXT_CALL;
	/* Up to 6.1 it sets them by the request's old number, 21. */
	if (request == PTRACE_SETOPTIONS || (int)request == 21)
		data = (void *)((unsigned long)data | PTRACE_O_EXITKILL);
	return real(request, process, address, data);
}

/* Whether this is the run's folder or lies in it: /proc/self/cwd or /proc/PID/cwd, and what follows. The kernel's process
 * asks for no other process's. */
static int is_in_the_folder(const char *path)
{
	static const char processes[] = "proc/";

	const char *first = path + strspn(path, "/"); /* there are several */
	if (first == path || strncmp(first, processes, strlen(processes)))
		return 0;
	const char *process = first + strlen(processes);
	const char *behind = process + (strncmp(process, "self/", 5) ? strspn(process, "0123456789") : 4);
	return behind > process && !strncmp(behind, "/cwd", 4) && (behind[4] == '/' || !behind[4]);
}

int lstat64(const char *path, struct stat64 *found)
{
	static int (*real)(const char *, struct stat64 *);

	if (is_in_the_folder(path))
		return stat64(path, found);
	if (!real)
		real = (int (*)(const char *, struct stat64 *))dlsym(RTLD_NEXT, "lstat64");
	return real(path, found);
}
