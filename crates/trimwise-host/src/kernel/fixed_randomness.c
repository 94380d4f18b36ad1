/* Preloaded into a User-Mode Linux kernel.
 *
 * From 6.1 on such a kernel seeds its random numbers from the host's getrandom(2); with the same bytes each time, the
 * same run gives the same result. No secret may ever come from it.
 *
 * The guest's processes are processes of the host whose system calls the kernel catches by ptrace(2). If the kernel is
 * killed, they must not go on without it, or their system calls would be the host's: each is told to die with it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>

ssize_t getrandom(void *buffer, size_t length, unsigned int flags)
{
	(void)flags;
	memset(buffer, 0x42, length);
	return (ssize_t)length;
}

long ptrace(enum __ptrace_request request, ...)
{
	static long (*real)(enum __ptrace_request, ...);
	va_list arguments;
	va_start(arguments, request);
	pid_t process = va_arg(arguments, pid_t);
	void *address = va_arg(arguments, void *);
	void *data = va_arg(arguments, void *);
	va_end(arguments);
	if (!real)
		real = (long (*)(enum __ptrace_request, ...))dlsym(RTLD_NEXT, "ptrace");
	/* Up to 6.1 it sets them by the request's old number, 21. */
	if (request == PTRACE_SETOPTIONS || (int)request == 21)
		data = (void *)((unsigned long)data | PTRACE_O_EXITKILL);
	return real(request, process, address, data);
}
