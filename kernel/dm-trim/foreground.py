"""Prints what a durable writer's appends take beside removals, in a guest of `trimwise kernel run`.

3,000 files of 64 KiB, between others, are removed within 20 s, while 4 KiB are appended and synced, each 2 ms after the
last; then what the disk has discarded, at once and a minute later.
"""

import os
import threading
import time

FILES, SECONDS, PAUSE = 3000, 20, 0.002


def disk():
    with open("/sys/block/vda/stat") as stat:
        words = stat.read().split()
    return f"discards {words[11]}, {int(words[13]) * 512 >> 20} MiB"


def remove():
    for i in range(FILES):
        time.sleep(max(0, begin + i * SECONDS / FILES - time.monotonic()))
        os.unlink(f"f{i}")


for i in range(FILES):
    # What stays lies between, so that a removal frees an extent of its own.
    for name in f"f{i}", f"stays{i}":
        with open(name, "wb") as file:
            file.write(b"x" * 65536)
os.sync()
time.sleep(10)
begin, took = time.monotonic(), []
remover = threading.Thread(target=remove)
remover.start()
log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
while remover.is_alive():
    at = time.monotonic()
    os.write(log, bytes(4096))
    os.fsync(log)
    took.append(time.monotonic() - at)
    time.sleep(PAUSE)
took.sort()
at = {name: took[min(int(len(took) * part), len(took) - 1)] * 1e3 for name, part in
      (("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1))}
print(len(took), "appends, ms:", ", ".join(f"{name} {ms:.2f}" for name, ms in at.items()), "; at the end", disk())
os.sync()
time.sleep(60)
print("a minute later", disk())
