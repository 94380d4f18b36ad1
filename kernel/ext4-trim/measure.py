"""Prints what removals cost others, in a guest of `trimwise kernel run`: the tables of COVER.md.

`burst`: a file of 2,048 extents of 64 KiB is removed; an fsync of its directory, then 20 writes with fsync.
`beside`: 3,000 files of 64 KiB, between others that stay, are removed within 20 s, while 4 KiB are appended and synced,
each 2 ms after the last. `churn`: nine tenths are full; files of 64 KiB are replaced and synced, one after the other, for
20 s. Times are in ms; discards are those until a minute later.
"""

import os
import threading
import time

MS = 1e3


def disk():
    with open("/sys/block/vda/stat") as stat:
        words = stat.read().split()
    return int(words[11]), int(words[13]) * 512


def write(name, size, flags=os.O_TRUNC):
    begin = time.monotonic()
    file = os.open(name, os.O_WRONLY | os.O_CREAT | flags)
    os.write(file, bytes(size))
    os.fsync(file)
    os.close(file)
    return time.monotonic() - begin


def say(name, took, before, note=""):
    os.sync()
    time.sleep(60)
    took.sort()
    at = " ".join(f"{took[min(int(len(took) * part), len(took) - 1)] * MS:.2f}" for part in (0.5, 0.99, 1))
    commands, sent = (now - then for now, then in zip(disk(), before))
    print(f"{name}: {len(took)} writes, p50 p99 max {at}; discards {commands}, {sent >> 20} MiB{note}", flush=True)


def burst():
    with open("holes", "wb") as file:
        for i in range(2048):
            os.pwrite(file.fileno(), bytes(65536), i * 131072)
            # Every second extent is another file's, so that these do not touch.
            with open("between", "ab") as other:
                other.write(bytes(65536))
            os.fsync(file.fileno())
    os.sync()
    time.sleep(60)
    before = disk()
    os.unlink("holes")
    begin = time.monotonic()
    folder = os.open(".", os.O_RDONLY)
    os.fsync(folder)
    folder = time.monotonic() - begin
    took = [write("log", 4096, os.O_APPEND) for _ in range(20)]
    say("burst", took, before, f"; fsync of the folder {folder * MS:.2f}, mean {sum(took) / 20 * MS:.2f}")


def beside():
    for i in range(3000):
        for name in f"f{i}", f"stays{i}":
            with open(name, "wb") as file:
                file.write(bytes(65536))
    os.sync()
    time.sleep(60)
    before, begin, took = disk(), time.monotonic(), []

    def remove():
        for i in range(3000):
            time.sleep(max(0, begin + i / 150 - time.monotonic()))
            os.unlink(f"f{i}")

    remover = threading.Thread(target=remove)
    remover.start()
    while remover.is_alive():
        took.append(write("log", 4096, os.O_APPEND))
        time.sleep(0.002)
    say("beside", took, before)


def churn():
    room = os.statvfs(".")
    count = int(room.f_bavail * room.f_frsize * 0.9) // 65536
    for i in range(count):
        with open(f"c{i}", "wb") as file:
            file.write(bytes(65536))
    os.sync()
    time.sleep(60)
    before, begin, took, i = disk(), time.monotonic(), [], 0
    while time.monotonic() - begin < 20:
        i += 1
        name = f"c{i * 7919 % count}"
        os.unlink(name)
        took.append(write(name, 65536))
    say("churn", took, before)


for scenario in burst, beside, churn:
    scenario()
