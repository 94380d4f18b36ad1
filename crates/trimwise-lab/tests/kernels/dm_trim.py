"""Random writes, zeroes and discards on a block device; what was written last must be there.

    dm_trim.py DEVICE MIB OPERATIONS SEED [zeros]

A block whose last request was a discard may have its old content or zeros; with `zeros`, it must read as zeros, and all
blocks are read in between, too. Four threads, each with blocks of its own
that lie between those of the others, so that extents are joined and cut across them. Prints `bad N`.
"""

import fcntl
import mmap
import os
import random
import struct
import sys
import threading

BLOCK = 4096
BLKDISCARD, BLKZEROOUT = 0x1277, 0x127F
THREADS = 4

device, mib, operations, seed = sys.argv[1], *map(int, sys.argv[2:5])
discarded = bytes(BLOCK) if sys.argv[5:] == ["zeros"] else None
fd = os.open(device, os.O_RDWR | os.O_DIRECT)
stripe = 16  # blocks
last = [None] * ((mib << 20) // BLOCK)
early = 0


def content(block, version):
    return struct.pack("<QQ", block, version) * (BLOCK // 16)


def work(me):
    global early
    draw = random.Random(seed * THREADS + me)
    buffer = mmap.mmap(-1, stripe * BLOCK)
    for version in range(1, operations // THREADS + 1):
        first = (draw.randrange(len(last) // stripe // THREADS) * THREADS + me) * stripe
        begin = first + draw.randrange(stripe)
        end = draw.randrange(begin, first + stripe) + 1
        extent = struct.pack("QQ", begin * BLOCK, (end - begin) * BLOCK)
        kind = draw.random()
        if kind < 0.45:
            last[begin:end] = [None] * (end - begin)
            fcntl.ioctl(fd, BLKDISCARD, extent)
            last[begin:end] = [discarded] * (end - begin)
        elif kind < 0.55:
            fcntl.ioctl(fd, BLKZEROOUT, extent)
            last[begin:end] = [bytes(BLOCK)] * (end - begin)
        else:
            data = [content(block, version) for block in range(begin, end)]
            buffer.seek(0)
            buffer.write(b"".join(data))
            os.pwritev(fd, [memoryview(buffer)[: (end - begin) * BLOCK]], begin * BLOCK)
            last[begin:end] = data
            if kind > 0.95:
                os.fsync(fd)
        if discarded and version % 2:
            early += wrong(buffer, first)


def wrong(buffer, at):
    os.preadv(fd, [buffer], at * BLOCK)
    blocks = enumerate(last[at : at + stripe])
    return sum(expected is not None and buffer[i * BLOCK : (i + 1) * BLOCK] != expected for i, expected in blocks)


def bad():
    buffer = mmap.mmap(-1, stripe * BLOCK)
    return sum(wrong(buffer, at) for at in range(0, len(last), stripe))


threads = [threading.Thread(target=work, args=[me]) for me in range(THREADS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
early += bad()
while os.system("dmsetup message lazy 0 drain") != 0:
    pass
print("bad", early + bad())
