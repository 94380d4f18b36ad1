/* A file in memory behind FUSE that does nothing but copy: the yardstick for `trimwise device attach`.
 *
 *     fuse-copy MOUNT_POINT SIZE_MIB THREADS
 *
 * Low-level libfuse 3, several threads with a /dev/fuse of their own each. Ends when it is unmounted. */
#define FUSE_USE_VERSION 312
#define _GNU_SOURCE
#include <errno.h>
#include <fuse_lowlevel.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static char *memory;
static size_t bytes;

static int attributes(fuse_ino_t inode, struct stat *stat) {
    memset(stat, 0, sizeof *stat);
    stat->st_ino = inode;
    stat->st_mode = inode == 1 ? S_IFDIR | 0700 : S_IFREG | 0600;
    stat->st_nlink = 1;
    stat->st_size = inode == 1 ? 0 : (off_t)bytes;
    return inode <= 2;
}

static void init(void *user, struct fuse_conn_info *connection) {
    connection->want |= connection->capable & (FUSE_CAP_ASYNC_DIO | FUSE_CAP_ASYNC_READ);
    connection->want &= ~(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
    connection->max_write = 1 << 20;
    connection->max_background = 1024;
    connection->congestion_threshold = 1024;
}

static void lookup(fuse_req_t request, fuse_ino_t parent, const char *name) {
    struct fuse_entry_param entry = {.ino = 2, .attr_timeout = 3600, .entry_timeout = 3600};
    if (parent != 1 || strcmp(name, "drive") != 0) {
        fuse_reply_err(request, ENOENT);
        return;
    }
    attributes(2, &entry.attr);
    fuse_reply_entry(request, &entry);
}

static void getattr(fuse_req_t request, fuse_ino_t inode, struct fuse_file_info *file) {
    struct stat stat;
    attributes(inode, &stat);
    fuse_reply_attr(request, &stat, 3600);
}

static void setattr(fuse_req_t request, fuse_ino_t inode, struct stat *new, int which, struct fuse_file_info *file) {
    getattr(request, inode, file);
}

static void open_file(fuse_req_t request, fuse_ino_t inode, struct fuse_file_info *file) {
    file->direct_io = 1;
#ifdef FUSE_CAP_DIRECT_IO_ALLOW_MMAP
    file->parallel_direct_writes = 1;
#endif
    fuse_reply_open(request, file);
}

static void read_file(fuse_req_t request, fuse_ino_t inode, size_t size, off_t at, struct fuse_file_info *file) {
    if ((size_t)at >= bytes)
        size = 0;
    else if (size > bytes - at)
        size = bytes - at;
    fuse_reply_buf(request, memory + at, size);
}

static void write_file(fuse_req_t request, fuse_ino_t inode, const char *data, size_t size, off_t at,
                       struct fuse_file_info *file) {
    if (at + size > bytes) {
        fuse_reply_err(request, ENOSPC);
        return;
    }
    memcpy(memory + at, data, size);
    fuse_reply_write(request, size);
}

static void fsync_file(fuse_req_t request, fuse_ino_t inode, int data, struct fuse_file_info *file) {
    fuse_reply_err(request, 0);
}

static void fallocate_file(fuse_req_t request, fuse_ino_t inode, int mode, off_t at, off_t length,
                           struct fuse_file_info *file) {
    memset(memory + at, 0, length);
    fuse_reply_err(request, 0);
}

static const struct fuse_lowlevel_ops operations = {
    .init = init, .lookup = lookup, .getattr = getattr, .setattr = setattr, .open = open_file,
    .read = read_file, .write = write_file, .fsync = fsync_file, .fallocate = fallocate_file,
};

int main(int count, char **words) {
    if (count != 4)
        return 2;
    bytes = strtoull(words[2], 0, 10) << 20;
    memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char *of_fuse[] = {words[0], "-o", "fsname=fuse-copy", 0};
    struct fuse_args arguments = FUSE_ARGS_INIT(3, of_fuse);
    struct fuse_session *session = fuse_session_new(&arguments, &operations, sizeof operations, 0);
    if (memory == MAP_FAILED || !session || fuse_session_mount(session, words[1]))
        return 1;
    struct fuse_loop_config *config = fuse_loop_cfg_create();
    fuse_loop_cfg_set_clone_fd(config, 1);
    fuse_loop_cfg_set_max_threads(config, atoi(words[3]));
    fuse_loop_cfg_set_idle_threads(config, atoi(words[3]));
    int ended = fuse_session_loop_mt(session, config);
    fuse_session_unmount(session);
    return ended;
}
