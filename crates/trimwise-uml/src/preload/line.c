/* The kernel's side of the line to trimwise (line.rs has the other side, and the layout of the memory).
 *
 * A kernel in virtual time speaks with a calendar (include/uapi/linux/um_timetravel.h) and with its disks (vhost-user)
 * over sockets. With a process at the other end, each message is a switch between two tasks of the host, and there were
 * six for each block request. So this library, inside the kernel's own process, is the calendar, and the notifying half
 * of each disk. Only two things go to trimwise, through shared memory and one futex: that a queue was kicked, and the
 * messages by which a disk is set up. trimwise answers with a list of what will complete and when, in order. The library
 * passes it on to the kernel when the time has come, without asking again.
 *
 * The order of events: while the kernel runs, what it says is answered at once. When it waits, the earlier of two things
 * happens: the next completion, or the time at which it wants to run again. If both come at the same time, the completion
 * is first; of several disks, the one with the lowest number. Nothing else advances time.
 *
 * REQUEST says when the kernel wants to run again, WAIT that it has nothing to do before that, RUN lets it continue.
 * FREE_UNTIL tells how far it may move its clock by itself. From 6.11 on these times are in shared memory (the board),
 * which the kernel gets with the answer to START; only WAIT and RUN remain, without an answer. Older kernels read that
 * answer without the memory.
 *
 * What the kernel does with these sockets comes here by way of the C library's functions (calls.c). The kernel is one
 * thread; its processes run nothing of this. */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

/* A time that never comes. */
#define NEVER ((uint64_t)INT64_MAX)
/* How far the kernel may run without a word, in its own time: a guest that only sleeps would never say another one. */
#define FREE_SPAN_MAX_NS UINT64_C(60000000000)
/* The day on which every guest boots: 14 November 2023, 22:13:20 UTC. */
#define TIME_OF_DAY_NS UINT64_C(1700000000000000000)

#define DISKS_MAX 16
#define COMPLETIONS_MAX (DISKS_MAX * 256)

/* struct um_timetravel_schedshm, version 2, with two clients. */
struct client {
	uint32_t capabilities;
	uint32_t flags;
	uint64_t request;
	uint8_t reserved[112];
};

enum { CALENDAR, KERNEL };
enum { CAN_SHARE = 1 }; /* a capability: the client reads and writes times here */
enum { WANTS_TO_RUN = 1 }; /* a flag */

struct board {
	uint32_t version;
	uint32_t length;
	uint64_t free_until;
	uint64_t now;
	uint16_t running;
	uint16_t clients_max;
	uint8_t reserved[4096 - 28];
	struct client clients[2];
	uint8_t rest[4096 - 256];
};

struct completion {
	uint64_t at;
	uint32_t disk;
	uint32_t head;
	uint32_t written;
	uint32_t unused;
};

/* A virtqueue's used ring, at its address in the guest's memory. */
struct used_ring {
	uint64_t address;
	uint64_t size;
};

enum turn { KERNELS_TURN, TRIMWISES_TURN };
enum word { CONNECTED, MESSAGE, KICKED, BEYOND, ENDED };

static struct line {
	struct board board;
	uint32_t turn;
	uint32_t word;
	uint32_t disk; /* that the word is about */
	uint32_t beats; /* how often the kernel waited or spoke: it is alive */
	uint64_t now;
	uint64_t at; /* BEYOND: what would be next */
	uint64_t latest; /* the limit of virtual time */
	uint32_t passed; /* completions of the list that the kernel has */
	uint32_t count; /* completions in the list */
	uint8_t reserved[16];
	struct used_ring rings[DISKS_MAX];
	struct completion completions[COMPLETIONS_MAX]; /* in order of time, disk, request */
} *line;

_Static_assert(sizeof(struct board) == 8192, "the kernel maps whole pages");
_Static_assert(offsetof(struct line, rings) == 8192 + 64, "as in line.rs");
_Static_assert(offsetof(struct line, completions) == 8192 + 64 + DISKS_MAX * 16, "as in line.rs");

static int line_file = -1;
static pid_t kernel;

/* Lets trimwise act on a word. */
static void speak(enum word word, uint32_t disk, uint64_t at)
{
	line->word = word;
	line->disk = disk;
	line->at = at;
	line->beats++;
	__atomic_store_n(&line->turn, TRIMWISES_TURN, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &line->turn, FUTEX_WAKE, 1, NULL, NULL, 0);
	while (word != ENDED && __atomic_load_n(&line->turn, __ATOMIC_SEQ_CST) == TRIMWISES_TURN)
		syscall(SYS_futex, &line->turn, FUTEX_WAIT, TRIMWISES_TURN, NULL, NULL, 0);
}

/* The calendar. */

enum operation { ACK, START, REQUEST, WAIT, GET, UPDATE, RUN, FREE_UNTIL, GET_TOD };

struct calendar_message {
	uint32_t operation;
	uint32_t sequence;
	uint64_t time;
};

static struct {
	int socket;
	int shares; /* whether the kernel uses the board */
	int waits; /* whether the kernel has nothing to do until it may run again */
	uint64_t request; /* when it wants to run again, by its messages */
	uint64_t free_until; /* how far it may run, as it was last told */
	struct calendar_message answers[8]; /* that the kernel has not read */
	unsigned int first, end;
} calendar = { .socket = -1, .request = NEVER };

static void answer(enum operation operation, uint32_t sequence, uint64_t time)
{
	struct calendar_message message = { operation, sequence, time };
	calendar.answers[calendar.end++ % 8] = message;
}

static int has_answer(void)
{
	return calendar.first != calendar.end;
}

static void note_time(void)
{
	if (calendar.shares && !calendar.waits)
		line->now = line->board.now;
}

/* Tells the running kernel that something will happen at `event`, if it thinks that it may run beyond that. */
static void limit(uint64_t event)
{
	if (event >= calendar.free_until)
		return;
	calendar.free_until = event;
	if (!calendar.shares)
		answer(FREE_UNTIL, 0, event);
	else if (event < line->board.free_until) /* the kernel lowers it for its own requests, and never raises it */
		line->board.free_until = event;
}

static uint64_t next_completion(void)
{
	return line->passed < line->count ? line->completions[line->passed].at : NEVER;
}

static void take_calendar_message(const struct calendar_message *message)
{
	uint64_t time = 0;

	if (!calendar.shares && line->board.clients[KERNEL].capabilities & CAN_SHARE)
		calendar.shares = 1;
	note_time();
	switch (message->operation) {
	case ACK:
		return;
	case START:
		time = KERNEL;
		break;
	case REQUEST:
		calendar.request = message->time;
		break;
	case WAIT:
		line->beats++;
		calendar.waits = 1;
		if (calendar.shares) {
			line->board.running = CALENDAR;
			return;
		}
		break;
	case GET:
		time = line->now;
		break;
	case UPDATE:
		if (message->time > line->now)
			line->now = message->time;
		break;
	case GET_TOD:
		time = TIME_OF_DAY_NS;
		break;
	}
	answer(ACK, message->sequence, time);
}

static void run_until(uint64_t event)
{
	calendar.waits = 0;
	calendar.free_until = event;
	if (calendar.shares) {
		line->board.free_until = event;
		line->board.running = KERNEL;
	} else {
		calendar.request = NEVER;
		answer(FREE_UNTIL, 0, event);
	}
	answer(RUN, 0, line->now);
}

/* Disks. */

enum { SET_MEM_TABLE = 5, SET_BACKEND_REQ_FD = 21, VRING_KICK = 35 };
enum { BACKEND_VRING_CALL = 4 };
enum { FLAG_VERSION = 1, FLAG_REPLY = 4, FLAG_NEED_REPLY = 8 };

struct disk_message {
	uint32_t request;
	uint32_t flags;
	uint32_t length;
	uint32_t payload[2];
};

/* A message that the kernel reads in parts. */
struct unread {
	struct disk_message message;
	size_t at, end;
};

/* A channel on which a disk calls the kernel, and what it registered with epoll. */
struct channel {
	int reader, far;
	epoll_data_t registered;
};

static struct disk {
	int socket;
	struct unread acknowledgement; /* of a kick */
	struct channel channel;
	struct unread call; /* an interrupt */
	int is_noticed; /* whether epoll has reported the call */
	int is_answered;
} disks[DISKS_MAX];

static unsigned int disk_count;
static struct channel new_channel = { -1, -1, { 0 } };

static struct disk *disk_of(int descriptor)
{
	for (unsigned int i = 0; i < disk_count; i++)
		if (disks[i].socket == descriptor)
			return &disks[i];
	return NULL;
}

static struct disk *disk_called_by(int descriptor)
{
	for (unsigned int i = 0; i < disk_count; i++)
		if (disks[i].channel.reader == descriptor)
			return &disks[i];
	return NULL;
}

static void put(struct unread *unread, uint32_t request, uint32_t flags)
{
	struct disk_message message = { request, FLAG_VERSION | flags, 8, { 0, 0 } };
	unread->message = message;
	unread->at = 0;
	unread->end = sizeof(message);
}

static ssize_t take(struct unread *unread, void *buffer, size_t length)
{
	size_t left = unread->end - unread->at;
	if (length > left)
		length = left;
	memcpy(buffer, (const char *)&unread->message + unread->at, length);
	unread->at += length;
	return (ssize_t)length;
}

static int is_unread(const struct unread *unread)
{
	return unread->at < unread->end;
}

/* A region of the guest's memory as vhost-user tells it. */
struct region {
	uint64_t guest, size, user, offset;
};

/* The guest's memory, mapped once more: where the kernel has it is not known here. There is more than one region only
 * in guests of 32 bits. */
static struct region region;
static char *guest_memory;

static void map_guest_memory(const struct msghdr *message)
{
	const struct cmsghdr *rights = CMSG_FIRSTHDR(message);
	const char *payload = (const char *)message->msg_iov->iov_base + 12;
	int file;

	if (guest_memory || !rights || message->msg_iov->iov_len < 12 + 8 + sizeof(region))
		return;
	memcpy(&region, payload + 8, sizeof(region));
	memcpy(&file, CMSG_DATA(rights), sizeof(file));
	void *memory = mmap(NULL, region.size, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)region.offset);
	if (memory != MAP_FAILED)
		guest_memory = memory;
}

/* Passes the kernel what a disk completes by now, and raises its interrupt. */
static void complete(void)
{
	uint32_t disk = line->completions[line->passed].disk;
	uint64_t at = line->rings[disk].address - region.user;
	if (!guest_memory || at >= region.size) {
		fprintf(stderr, "trimwise: a disk's queue is not in the guest's memory\n");
		abort();
	}
	/* struct vring_used: flags, index, and elements of a head and a length. */
	volatile uint16_t *used = (volatile uint16_t *)(guest_memory + at);
	volatile uint32_t *elements = (volatile uint32_t *)(used + 2);

	while (next_completion() <= line->now && line->completions[line->passed].disk == disk) {
		const struct completion *completion = &line->completions[line->passed++];
		uint16_t index = used[1];
		uint64_t element = index % line->rings[disk].size;
		elements[2 * element] = completion->head;
		elements[2 * element + 1] = completion->written;
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		used[1] = (uint16_t)(index + 1);
	}
	put(&disks[disk].call, BACKEND_VRING_CALL, FLAG_NEED_REPLY);
	disks[disk].is_noticed = 0;
	disks[disk].is_answered = 0;
	syscall(SYS_tgkill, kernel, kernel, SIGIO);
}

/* Moves the waiting kernel's time to the next event. Returns whether it may run; otherwise it was interrupted. */
static int wait_for_time(void)
{
	for (unsigned int i = 0; i < disk_count; i++)
		if (!disks[i].is_answered) {
			usleep(100); /* the kernel must first enable its interrupts; a hang is noticed as silence */
			return 0;
		}
	const struct client *client = &line->board.clients[KERNEL];
	uint64_t request = calendar.request;
	if (calendar.shares)
		request = client->flags & WANTS_TO_RUN ? client->request : NEVER;
	uint64_t completion = next_completion();
	uint64_t at = completion < request ? completion : request;
	if (at >= NEVER || at > line->latest)
		speak(BEYOND, 0, at); /* and this is killed */
	if (at > line->now)
		line->now = at;
	if (calendar.shares)
		line->board.now = line->now;
	if (completion <= request) {
		complete();
		return 0;
	}
	uint64_t next = next_completion();
	run_until(next < at + FREE_SPAN_MAX_NS ? next : at + FREE_SPAN_MAX_NS);
	return 1;
}
