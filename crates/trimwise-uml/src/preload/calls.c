/* What the kernel calls of the C library, and where it goes: to its calendar and its disks (line.c, compiled together
 * with this), or to the real function. */

#define REAL(name) \
	static __typeof__(&name) real; \
	if (!real) \
		real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

/* Takes up the line when the kernel connects to its calendar. */
static int open_line(int socket)
{
	int file = open("line", O_RDWR | O_CLOEXEC);
	if (file < 0)
		return -1;
	void *memory = mmap(NULL, sizeof(*line), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (memory == MAP_FAILED) {
		close(file);
		return -1;
	}
	unlink("line"); /* the guest sees this folder */
	line = memory;
	line_file = file;
	kernel = getpid();
	calendar.socket = socket;
	return 0;
}

int connect(int descriptor, const struct sockaddr *address, socklen_t length)
{
	REAL(connect);
	const char *path = ((const struct sockaddr_un *)address)->sun_path;
	unsigned int disk;

	if (address->sa_family == AF_UNIX && !strcmp(path, "time"))
		return open_line(descriptor);
	int done = real(descriptor, address, length);
	if (!done && line && address->sa_family == AF_UNIX && sscanf(path, "disk%u", &disk) == 1 && disk < DISKS_MAX) {
		for (; disk_count <= disk; disk_count++) {
			struct disk none = { .socket = -1, .channel = { -1, -1, { 0 } }, .is_answered = 1 };
			disks[disk_count] = none;
		}
		disks[disk].socket = descriptor;
		speak(CONNECTED, disk, 0);
	}
	return done;
}

int socketpair(int domain, int type, int protocol, int pair[2])
{
	REAL(socketpair);
	int done = real(domain, type, protocol, pair);
	if (!done) {
		new_channel.reader = pair[0];
		new_channel.far = pair[1];
	}
	return done;
}

int epoll_ctl(int epoll, int operation, int descriptor, struct epoll_event *event)
{
	REAL(epoll_ctl);
	struct disk *disk = disk_called_by(descriptor);
	if (operation != EPOLL_CTL_DEL && disk)
		disk->channel.registered = event->data;
	else if (operation != EPOLL_CTL_DEL && descriptor == new_channel.reader)
		new_channel.registered = event->data;
	return real(epoll, operation, descriptor, event);
}

int epoll_wait(int epoll, struct epoll_event *events, int length, int timeout_ms)
{
	REAL(epoll_wait);
	for (unsigned int i = 0; i < disk_count; i++)
		if (is_unread(&disks[i].call) && !disks[i].is_noticed) {
			disks[i].is_noticed = 1;
			events[0].events = EPOLLIN;
			events[0].data = disks[i].channel.registered;
			return 1;
		}
	return real(epoll, events, length, timeout_ms);
}

int poll(struct pollfd *descriptors, nfds_t count, int timeout_ms)
{
	REAL(poll);
	struct disk *disk;

	if (!line || !count || descriptors[count - 1].fd != calendar.socket)
		return real(descriptors, count, timeout_ms);
	/* The calendar comes first: a limit must be known before the kernel goes on. */
	struct pollfd *ready = &descriptors[count - 1];
	if (has_answer()) {
		ready->revents = POLLIN;
		return 1;
	}
	if (count == 1) {
		if (calendar.waits && wait_for_time()) {
			ready->revents = POLLIN;
			return 1;
		}
		errno = EINTR;
		return -1;
	}
	disk = disk_of(descriptors[0].fd);
	if (!disk || !is_unread(&disk->acknowledgement))
		return real(descriptors, count - 1, timeout_ms);
	descriptors[0].revents = POLLIN;
	return 1;
}

ssize_t read(int descriptor, void *buffer, size_t length)
{
	REAL(read);
	struct disk *disk;

	if (!line)
		return real(descriptor, buffer, length);
	if (descriptor == calendar.socket && has_answer() && length >= sizeof(calendar.answers[0])) {
		memcpy(buffer, &calendar.answers[calendar.first++ % 8], sizeof(calendar.answers[0]));
		return sizeof(calendar.answers[0]);
	}
	disk = disk_of(descriptor);
	if (disk && is_unread(&disk->acknowledgement))
		return take(&disk->acknowledgement, buffer, length);
	disk = disk_called_by(descriptor);
	if (!disk)
		return real(descriptor, buffer, length);
	if (is_unread(&disk->call))
		return take(&disk->call, buffer, length);
	errno = EAGAIN;
	return -1;
}

ssize_t recvmsg(int descriptor, struct msghdr *message, int flags)
{
	REAL(recvmsg);
	if (!line || descriptor != calendar.socket)
		return real(descriptor, message, flags);
	/* The second descriptor is for a shared log, which is not used. */
	int descriptors[2] = { dup(line_file), open("/dev/null", O_WRONLY | O_CLOEXEC) };
	struct cmsghdr *rights = CMSG_FIRSTHDR(message);
	if (rights && message->msg_controllen >= CMSG_SPACE(sizeof(descriptors))) {
		rights->cmsg_level = SOL_SOCKET;
		rights->cmsg_type = SCM_RIGHTS;
		rights->cmsg_len = CMSG_LEN(sizeof(descriptors));
		memcpy(CMSG_DATA(rights), descriptors, sizeof(descriptors));
	}
	return read(descriptor, message->msg_iov->iov_base, message->msg_iov->iov_len);
}

ssize_t write(int descriptor, const void *buffer, size_t length)
{
	REAL(write);
	struct calendar_message message;

	if (!line || descriptor != calendar.socket || length != sizeof(message))
		return real(descriptor, buffer, length);
	memcpy(&message, buffer, sizeof(message));
	take_calendar_message(&message);
	return (ssize_t)length;
}

ssize_t sendmsg(int descriptor, const struct msghdr *message, int flags)
{
	REAL(sendmsg);
	struct disk *disk;
	struct disk_message head = { 0 };
	size_t length = message->msg_iov->iov_len;

	disk = disk_called_by(descriptor);
	if (disk) {
		disk->is_answered = 1;
		return (ssize_t)length;
	}
	disk = disk_of(descriptor);
	if (!disk)
		return real(descriptor, message, flags);
	memcpy(&head, message->msg_iov->iov_base, length < sizeof(head) ? length : sizeof(head));
	uint32_t number = (uint32_t)(disk - disks);
	note_time();
	if (head.request == VRING_KICK) {
		speak(KICKED, number, 0);
		limit(next_completion());
		if (head.flags & FLAG_NEED_REPLY)
			put(&disk->acknowledgement, VRING_KICK, FLAG_REPLY);
		return (ssize_t)length;
	}
	if (head.request == SET_MEM_TABLE)
		map_guest_memory(message);
	const struct cmsghdr *rights = CMSG_FIRSTHDR(message);
	if (head.request == SET_BACKEND_REQ_FD && rights && !memcmp(CMSG_DATA(rights), &new_channel.far, sizeof(int)))
		disk->channel = new_channel;
	ssize_t sent = real(descriptor, message, flags);
	if (sent >= 0)
		speak(MESSAGE, number, 0);
	return sent;
}

int close(int descriptor)
{
	REAL(close);
	struct disk *disk = disk_of(descriptor);
	if (disk)
		disk->socket = -1;
	disk = disk_called_by(descriptor);
	if (disk)
		disk->channel.reader = -1;
	return real(descriptor);
}

__attribute__((destructor)) static void end(void)
{
	if (!line || getpid() != kernel)
		return;
	note_time();
	speak(ENDED, 0, 0);
}
