/* Batches of system calls (batch.rs in trimwise-linux has the other side).
 *
 * Each system call of a guest's process stops it, switches to the kernel's process and back, and takes the kernel six
 * calls of ptrace(2) and wait(2): 12 us, ten times what the guest's kernel does for a read from its memory. So a process
 * that knows its next calls may hand them over at once, by a call of a number that no kernel has: its memory holds the
 * list. The kernel is then told of the first as if the process had stopped at it. When it lets the process run with the
 * result, that goes on: the next call of the list is told, and only after the last one, or one whose result is too small,
 * does the process itself run. The kernel sees the same calls of the same task in the same order, with its own work
 * between two of them (signals, scheduling), and cannot tell the difference.
 *
 * A task is recognized by its process, its stack, and where it called: the threads of a process share one process of the
 * host, and another may run while a call waits. If a signal interrupts the list, the registers differ, and the handler
 * runs; after it the registers are as before, and the list goes on.
 *
 * Without this library the number is unknown, ENOSYS, and the process makes its calls one by one; so it does if the
 * kernel catches calls by seccomp. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

/* As in batch.rs. */
#define BATCH_NUMBER 0x7472696d
#define BATCH_CALLS_MAX 256
enum { OPENS = 1, TAKES_FILE = 2, IS_ASKED = 4 };

struct batched_call {
	uint32_t number;
	uint32_t flags; /* its result is the file; its first argument is the file; its result is told apart from the last */
	int64_t least; /* a smaller result ends the batch */
	uint64_t arguments[6];
};

#define BATCHES_MAX 64
/* <sys/ptrace.h> has it from glibc 2.27 on */
#define RUN_TO_NEXT_CALL 31 /* PTRACE_SYSEMU */
#define RUN_ONE_STEP 32 /* PTRACE_SYSEMU_SINGLESTEP */
#define AT_A_CALL (((SIGTRAP | 0x80) << 8) | 0x7f) /* the status of a process that stopped at one */

static struct batch {
	pid_t process; /* 0: unused */
	uint32_t count, at;
	uint64_t file;
	int64_t asked;
	struct user_regs_struct registers; /* at the call that began it */
	struct batched_call calls[BATCH_CALLS_MAX];
} batches[BATCHES_MAX];
static unsigned int batches_end; /* behind the last that was ever used */

/* The batch whose task the kernel is about to let run, and the one that it was last told of. */
static struct batch *returning, *told;
/* The registers with which it is about to run. */
static struct user_regs_struct batch_registers;
/* The process that stopped at a call of its own, until its registers are read. */
static pid_t at_a_call;
/* Whether it was let run to its next call (PTRACE_SYSEMU). */
static int runs_to_next_call;
/* Vector registers with which the kernel is about to let it run. Their memory is the task's, and stays. */
static struct iovec vector_registers;

static struct batch *batch_of(pid_t process, const struct user_regs_struct *registers)
{
	for (struct batch *batch = batches; batch < batches + batches_end; batch++)
		if (batch->process == process && batch->registers.rip == registers->rip
				&& batch->registers.rsp == registers->rsp)
			return batch;
	return NULL;
}

/* Tells the kernel the registers of a process that stopped at the batch's next call. */
static void tell(const struct batch *batch, struct user_regs_struct *registers)
{
	const struct batched_call *call = &batch->calls[batch->at];

	*registers = batch->registers;
	registers->orig_rax = call->number;
	registers->rax = (uint64_t)-ENOSYS;
	registers->rdi = call->flags & TAKES_FILE ? batch->file : call->arguments[0];
	registers->rsi = call->arguments[1];
	registers->rdx = call->arguments[2];
	registers->r10 = call->arguments[3];
	registers->r8 = call->arguments[4];
	registers->r9 = call->arguments[5];
}

/* Ends a batch. Returns the registers with which its process goes on: how many calls were made, the last result, the
 * file, and the result that was asked for. */
static struct user_regs_struct end_batch(struct batch *batch, int64_t result)
{
	struct user_regs_struct registers = batch->registers;

	registers.orig_rax = (uint64_t)-1; /* the host has no call to restart */
	registers.rax = batch->at;
	registers.rdx = (uint64_t)result;
	registers.rdi = batch->file;
	registers.r8 = (uint64_t)batch->asked;
	batch->process = 0;
	return registers;
}

static void drop_batches(pid_t process)
{
	for (struct batch *batch = batches; batch < batches + batches_end; batch++)
		if (batch->process == process)
			batch->process = 0;
}

/* Takes up the batch of a process that stopped at its call. Returns whether there is one. */
static int begin_batch(pid_t process, struct user_regs_struct *registers)
{
	struct batch *batch = batch_of(process, registers);
	uint64_t count = registers->rsi;

	if (batch)
		batch->process = 0; /* its task is gone */
	for (unsigned int i = 0; !batch && i < BATCHES_MAX; i++)
		if (!batches[i].process)
			batch = &batches[i];
	if (!batch || !count || count > BATCH_CALLS_MAX)
		return 0;
	struct iovec here = { batch->calls, count * sizeof(batch->calls[0]) };
	struct iovec there = { (void *)registers->rdi, here.iov_len };
	if (syscall(SYS_process_vm_readv, process, &here, 1, &there, 1, 0) != (long)here.iov_len)
		return 0; /* it is not mapped at the moment */
	if (batch == batches + batches_end)
		batches_end++;
	batch->process = process;
	batch->count = (uint32_t)count;
	batch->at = 0;
	batch->file = registers->rdx;
	batch->asked = 0;
	batch->registers = *registers;
	return 1;
}

/* Notes the result of the batch's call. Returns whether another one follows. */
static int next_of_batch(struct batch *batch, int64_t result)
{
	const struct batched_call *call = &batch->calls[batch->at++];

	if (call->flags & OPENS)
		batch->file = (uint64_t)result;
	if (call->flags & IS_ASKED)
		batch->asked = result;
	return result >= call->least && batch->at < batch->count;
}

pid_t waitpid(pid_t process, int *status, int options)
{
	static pid_t (*real)(pid_t, int *, int);

	if (told) {
		*status = AT_A_CALL;
		return process;
	}
	if (!real)
		real = (pid_t (*)(pid_t, int *, int))dlsym(RTLD_NEXT, "waitpid");
	pid_t found = real(process, status, options);
	at_a_call = found > 0 && runs_to_next_call && status && *status == AT_A_CALL ? found : 0;
	return found;
}
