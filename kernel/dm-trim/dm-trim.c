// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-trim: a discard completes at once, and reaches the device when that is quiet.
 *
 * What was discarded waits in a set of extents, the pending set. A write takes
 * its range out of it, so that nothing is ever discarded that was written since.
 * A write over a discard that is in flight waits for this one discard.
 *
 * With zeros=off nothing else waits: not reads, which may still return what was
 * there, and not flushes, because a discard promises nothing. For the same reason
 * the target may drop a discard at any time, and does so where it would have to
 * wait for memory.
 *
 * Otherwise a discard is a write of zeros to a volatile cache, and the set is that
 * cache: reads of it return zeros, a flush waits until all of it is on the device,
 * and nothing is dropped. What cannot be discarded is written with zeros, and what
 * finds no room waits; so the set also reaches the device for a flush, or when it is
 * full. Parity of RAID 4, 5 and 6 relies on this.
 *
 * A write and a discard of the same range that are in progress at the same time
 * may take effect in either order, as on any block device; but here the discard
 * may come long after both have completed.
 */

#include <linux/bio.h>
#include <linux/bitmap.h>
#include <linux/blk-integrity.h>
#include <linux/blkdev.h>
#include <linux/delay.h>
#include <linux/device-mapper.h>
#include <linux/ktime.h>
#include <linux/list.h>
#include <linux/mempool.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/rbtree.h>
#include <linux/sizes.h>
#include <linux/reboot.h>
#include <linux/slab.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#define DM_MSG_PREFIX "trim"

#define TRIM_WORKERS_MAX 64

/* Extents that are joined, taken out or dropped at a time, with interrupts off. */
#define TRIM_BATCH 512

/* Pages of zeros in a write, for devices that cannot write zeros by themselves. */
#define TRIM_ZERO_PAGES 64

/* How long what could not be written is left alone. */
#define TRIM_RETRY HZ

/* How long a suspension issues what pends while requests go on, which may add to it. */
#define TRIM_PRESUSPEND_MAX (600 * HZ)

/* How long a reboot waits for discards in flight. */
#define TRIM_REBOOT_MAX (10 * HZ)

/* Sectors of one discard from above. */
#define TRIM_DISCARD_MAX (SZ_64M >> SECTOR_SHIFT)

/* Extents in reserve for splitting one without waiting for memory, also beyond the limit. */
#define TRIM_RESERVE 64

/*
 * With foreground requests that never pause, one in so many may meet a discard,
 * which leaves the 99th percentile alone of what takes five requests, as an fsync
 * does; and discards take at most one part in TRIM_REST + 1 of the time. Where
 * so few requests come that these numbers mean nothing, a rest ends after
 * TRIM_REST_MAX.
 */
#define TRIM_REQUESTS 1000
#define TRIM_REST 20
#define TRIM_REST_MAX (5 * HZ)

/*
 * A foreground request that meets a discard doubles the quiet time asked for, up
 * to this multiple; so many discards in a row that met none halve it again.
 */
#define TRIM_BACKOFF_MAX 32
#define TRIM_CLEAN 64

/*
 * SeT, low= and high=: Hyun, Choi, Lee and Noh, "To TRIM or Not to TRIM: Judicious
 * TRIMing for Solid State Drives", SOSP 2011, poster. Use is compared with what it
 * was so long ago, in so many steps; a smaller change decides nothing.
 */
#define TRIM_WINDOW (10 * HZ)
#define TRIM_MOMENTS 16
#define TRIM_STEP (TRIM_WINDOW / TRIM_MOMENTS)
#define TRIM_NET_MIN (SZ_1M >> SECTOR_SHIFT)

/* While nothing is discarded or written anew, it is decided more and more seldom. */
#define TRIM_POLL_MAX (60 * HZ)

/* What a discard must cover whole to count, if the map's memory allows that. */
#define TRIM_UNIT_SHIFT_MIN (ilog2(SZ_4K) - SECTOR_SHIFT)

struct trim_extent {
	struct rb_node node;
	struct list_head list;	/* in ready or small, oldest first */
	sector_t start, end;	/* on the device */
	/* What is withheld may wait for longer than 32 bits of jiffies last. */
	u64 born : 62;		/* jiffies, when it came into its list */
	u64 is_ready : 1;	/* contains a whole unit of the granularity */
	u64 age : 1;		/* of its oldest part; see trim.age */
};

/* How a range becomes zeros on the device. Where one fails, the next is tried. */
enum trim_way { TRIM_DISCARD, TRIM_ZEROES, TRIM_PAGES };

/* A discard in flight; idle if the range is empty. What is done leaves the range. */
struct trim_slot {
	struct trim *trim;
	sector_t start, end;
	unsigned int size;	/* of the bio, in sectors */
	enum trim_way way;
	bool is_zeroed;		/* not discarded, but written with zeros */
	bool is_back;		/* to be gone on with, by trim_go_on() */
	bool has_failed;
	bool is_stuck;		/* could not be made zeros, and the set has no room for it */
	unsigned int age;
	u64 born;
	ktime_t began;
	struct bio_list waiters;
	struct bio bio;		/* ends with a flexible array */
};

/* Foreground requests: everything but discards. Summed over processors. */
struct trim_cpu {
	unsigned long begun, ended;
	unsigned long last;	/* jiffies of the last beginning or end */
};

enum trim_zeros { TRIM_ZEROS_OFF, TRIM_ZEROS_ON, TRIM_ZEROS_DEVICE };

struct trim_options {
	unsigned int workers;
	unsigned int quiet_ms;
	unsigned int hold_s;
	unsigned int limit;	/* KiB of memory */
	unsigned int drain_ms;
	unsigned int is_eager;
	unsigned int is_full_pass;
	unsigned int is_reuse;
	unsigned int zeros;	/* enum trim_zeros */
	unsigned int is_flush_wait;
	unsigned int max_kib;	/* 0: as much as the device takes */
	unsigned int low, high;	/* percent; without high, nothing is withheld */
};

/* What was in use at a time, and all that was discarded until then, in units of the map. */
struct trim_moment {
	unsigned long at;	/* jiffies */
	unsigned long used, freed;
};

struct trim_sectors {
	u64 received, merged, reused, issued, passed, zeroed, dropped, pending;
};

struct trim {
	struct dm_target *ti;
	struct dm_dev *dev;
	sector_t start;
	struct trim_options options;
	unsigned int extents_max;

	/* Of the device, looked up when the target resumes. */
	u32 granularity, phase;	/* sectors */

	/*
	 * With high=: what was discarded and not written since, a bit a unit, which
	 * a discard sets before it completes and a write clears before it goes on.
	 */
	unsigned long *unused;
	unsigned long units;
	unsigned int unit_shift;	/* from sectors */
	atomic_long_t unused_units, freed;

	struct trim_cpu __percpu *cpu;
	mempool_t *pool;
	struct workqueue_struct *wq;
	struct trim_slot *slots;
	struct delayed_work issue;
	struct work_struct retry;
	wait_queue_head_t wait;
	struct list_head active;	/* in trim_active */
	u64 stop_mark;			/* what is older is issued before the target stops */
	unsigned long stop_until;	/* jiffies, when the rest is dropped */
	bool is_stop_draining;

	/* All that follows is changed under the lock; writes look at busy without it. */
	spinlock_t lock ____cacheline_aligned_in_smp;
	unsigned int busy;		/* extents in the set, and discards in flight */
	unsigned int flying;		/* discards in flight */
	struct rb_root set;
	struct list_head ready, small;
	sector_t waiting, in_flight;	/* sectors in the set, and in flight */
	struct bio_list deferred;	/* writes to be looked at again */
	struct bio_list held;		/* without reuse: writes to what is in the set */

	/*
	 * With zeros: discards that wait for room in the set, writes for memory to
	 * split an extent, and flushes. Those of flushing wait until nothing has the
	 * other age than what comes now; flushes, for the next turn.
	 */
	struct bio_list room, splits, flushing, flushes;
	struct bio_list failed;		/* of these, to be ended with an error */
	unsigned int age;		/* of what comes now */
	unsigned int ages[2];		/* extents, and discards in flight, by age */
	bool is_failing;		/* since failed_at, for TRIM_RETRY */
	bool is_dead;			/* nothing was discarded or zeroed between two of these times */
	unsigned long failed_at;	/* jiffies, when zeros could not be written last */
	unsigned long failures;		/* how often they could not */
	u64 failed_done;		/* sectors that were discarded or zeroed by then; U64_MAX before */
	u64 lose;			/* sectors, at the next failure while trim_gives_up() */

	bool is_closing;		/* everything must go now */
	bool is_stopped;		/* suspended, or on the way to it */
	bool is_interrupted;		/* messages must not wait any longer */
	bool is_paused;
	bool is_closed;			/* too little is in use, or more and more */
	bool is_refused;		/* the device has no discard, or has lost it */
	unsigned int draining;
	u64 drain_mark;			/* what is older is issued without waiting */

	unsigned long quiet;		/* jiffies without a foreground request */
	unsigned int clean;		/* discards in a row that met no such request */
	bool is_watched;
	unsigned long watched_begun;
	unsigned long rested_ended;	/* foreground requests, when the last was issued */
	unsigned long rested_since;	/* jiffies of the last discard's end */
	u64 took_ns;			/* a moving average */

	struct trim_moment moments[TRIM_MOMENTS];	/* oldest first */
	unsigned int moment_count;
	struct trim_moment polled;	/* when it was last decided to withhold */
	unsigned long poll;		/* jiffies from then until the next time */

	struct trim_sectors sectors;
	u64 commands, errors, waits, time_ns;
};

static struct kmem_cache *trim_extents;
static struct bio_vec trim_zero_pages[TRIM_ZERO_PAGES];

/* Targets that are in use. Two over the same sectors would not see each other's writes. */
static LIST_HEAD(trim_active);
static DEFINE_MUTEX(trim_active_lock);

/* Has trim_issue() run after so many jiffies, or before, if it is to run before already. */
static void trim_wake(struct trim *trim, unsigned long delay)
{
	struct timer_list *timer = &trim->issue.timer;

	lockdep_assert_held(&trim->lock);
	if (!work_pending(&trim->issue.work) ||
	    (timer_pending(timer) && time_before(jiffies + delay, timer->expires)))
		mod_delayed_work(trim->wq, &trim->issue, delay);
}

/*
 * The set
 */

static struct trim_extent *trim_entry(struct rb_node *node)
{
	return rb_entry_safe(node, struct trim_extent, node);
}

static struct trim_extent *trim_next(struct trim_extent *e)
{
	return trim_entry(rb_next(&e->node));
}

/* Returns the first extent that ends at this sector or later. */
static struct trim_extent *trim_find(struct trim *trim, sector_t sector)
{
	struct rb_node *node = trim->set.rb_node;
	struct trim_extent *found = NULL;

	while (node) {
		struct trim_extent *e = trim_entry(node);

		if (e->end >= sector) {
			found = e;
			node = node->rb_left;
		} else {
			node = node->rb_right;
		}
	}
	return found;
}

static sector_t trim_past_unit(struct trim *trim, sector_t sector)
{
	sector_t at = sector + trim->phase;

	return trim->granularity > 1 ? sector_div(at, trim->granularity) : 0;
}

/* Returns the device's granularity as it is now, in sectors, and where its units begin. */
static u32 trim_device_units(struct block_device *bdev, u32 *phase)
{
	u32 granularity = max_t(u32, bdev_discard_granularity(bdev),
				bdev_logical_block_size(bdev)) >> SECTOR_SHIFT;
	sector_t at = bdev_get_queue(bdev)->limits.discard_alignment >> SECTOR_SHIFT;
	sector_t first = bdev->bd_start_sect;

	first += granularity - sector_div(at, granularity);
	*phase = sector_div(first, granularity);
	return granularity;
}

/* Shrinks a range to whole units of the device's granularity; false if there is none. */
static bool trim_whole_units(struct trim *trim, sector_t *start, sector_t *end)
{
	sector_t past = trim_past_unit(trim, *start);

	if (past)
		*start += trim->granularity - past;
	past = trim_past_unit(trim, *end);
	if (*end < *start + past)
		return false;
	*end -= past;
	return *start < *end;
}

static struct trim_extent *trim_oldest(struct list_head *list)
{
	return list_first_entry_or_null(list, struct trim_extent, list);
}

/* Whether a drain waits for it. */
static bool trim_is_due(struct trim *trim, struct trim_extent *e)
{
	return e && trim->draining && trim->drain_mark >= e->born;
}

/* Moves an extent to the front of its list, as old as what was there. */
static void trim_move_to_front(struct trim *trim, struct trim_extent *e)
{
	struct list_head *list = e->is_ready ? &trim->ready : &trim->small;
	struct trim_extent *oldest = trim_oldest(list);

	if (oldest && oldest->born < e->born)
		e->born = oldest->born;
	list_move(&e->list, list);
}

/* Moves an extent to the list where it belongs now. */
static void trim_file(struct trim *trim, struct trim_extent *e)
{
	sector_t start = e->start, end = e->end;
	bool is_ready = trim_whole_units(trim, &start, &end), is_new = list_empty(&e->list);

	if (!is_new && e->is_ready == is_ready)
		return;
	e->is_ready = is_ready;
	if (!is_new && trim_is_due(trim, e)) {
		/* The drain looks at the oldest only. */
		trim_move_to_front(trim, e);
		return;
	}
	e->born = get_jiffies_64();
	list_move_tail(&e->list, is_ready ? &trim->ready : &trim->small);
}

/* Returns NULL if the set is full, or there is no memory at once. */
static struct trim_extent *trim_new(struct trim *trim, sector_t start, sector_t end,
				    unsigned int age, bool may_take_reserve)
{
	struct rb_node **link = &trim->set.rb_node, *parent = NULL;
	unsigned int max = trim->extents_max + (may_take_reserve ? TRIM_RESERVE : 0);
	gfp_t gfp = GFP_NOWAIT | __GFP_NOWARN;
	struct trim_extent *e;

	if (trim->busy - trim->flying >= max)
		return NULL;
	e = may_take_reserve ? mempool_alloc(trim->pool, gfp) : kmem_cache_alloc(trim_extents, gfp);
	if (!e)
		return NULL;
	e->start = start;
	e->end = end;
	e->age = age;
	trim->ages[age]++;
	INIT_LIST_HEAD(&e->list);
	while (*link) {
		parent = *link;
		link = start < trim_entry(parent)->start ? &parent->rb_left : &parent->rb_right;
	}
	rb_link_node(&e->node, parent, link);
	rb_insert_color(&e->node, &trim->set);
	WRITE_ONCE(trim->busy, trim->busy + 1);
	trim->waiting += end - start;
	return e;
}

static void trim_free(struct trim *trim, struct trim_extent *e)
{
	trim->waiting -= e->end - e->start;
	trim->ages[e->age]--;
	rb_erase(&e->node, &trim->set);
	list_del(&e->list);
	mempool_free(e, trim->pool);
	WRITE_ONCE(trim->busy, trim->busy - 1);
}

static bool trim_comes_before(struct trim_extent *a, struct trim_extent *b)
{
	return a->is_ready == b->is_ready ? a->born < b->born : a->is_ready;
}

/*
 * Adds a range of this age from *at on, and joins it with those that it overlaps or touches.
 * Sets *at to where it has come, which is the end or an extent too many to join with
 * interrupts off. Returns false if there is no room.
 */
static bool trim_add(struct trim *trim, sector_t *at, sector_t end, unsigned int age,
		     bool may_take_reserve)
{
	sector_t start = *at, from = start, to = start, merged = 0;
	struct trim_extent *kept = NULL, *e, *next;
	unsigned int count = TRIM_BATCH;

	for (e = trim_find(trim, start); e && e->start <= end; e = next) {
		if (!count--) {
			end = e->start;
			break;
		}
		next = trim_next(e);
		/* What is joined is as old as its oldest part. */
		if (e->age != trim->age)
			age = e->age;
		merged += min(end, e->end) - max(start, e->start);
		from = min(from, e->start);
		to = e->end;
		if (!kept) {
			kept = e;
			continue;
		}
		if (trim_comes_before(e, kept)) {
			trim_free(trim, kept);
			kept = e;
		} else {
			trim_free(trim, e);
		}
	}
	if (kept) {
		trim->ages[kept->age]--;
		trim->ages[age]++;
		kept->age = age;
		to = max(to, end);
		trim->waiting += (to - from) - (kept->end - kept->start);
		kept->start = from;
		kept->end = to;
	} else {
		kept = trim_new(trim, start, end, age, may_take_reserve);
		if (!kept)
			return false;
	}
	trim->sectors.merged += merged;
	trim_file(trim, kept);
	*at = end;
	return true;
}

/*
 * Takes a range out, from *at on, and sets *at to where it has come: to the end, or to
 * an extent too many to take out with interrupts off. Returns how many sectors of it
 * were in the set. With zeros, if there is no memory to split an extent, nothing is
 * taken out, and *at stays.
 */
static sector_t trim_take_out(struct trim *trim, sector_t *at, sector_t end)
{
	struct trim_extent *e, *next, *tail;
	unsigned int count = TRIM_BATCH;
	sector_t start = *at, taken = 0;

	/* What ends at start does not overlap. */
	for (e = trim_find(trim, start + 1); e && e->start < end; e = next) {
		sector_t size = min(end, e->end) - max(start, e->start);

		if (!count--) {
			*at = e->start;
			return taken;
		}
		next = trim_next(e);
		if (start <= e->start && e->end <= end) {
			taken += size;
			trim_free(trim, e);
			continue;
		}
		if (e->start < start && end < e->end) {
			sector_t rest = e->end - end, head = start - e->start;

			/* Off first, so that the tree stays in order. */
			trim->waiting -= rest;
			e->end = end;
			tail = trim_new(trim, end, end + rest, e->age, true);
			if (!tail && trim->options.zeros) {
				trim->waiting += rest;
				e->end = end + rest;
				return 0;
			}
			if (!tail) {
				/* One side can stay. */
				trim->sectors.dropped += min(rest, head);
				if (rest > head) {
					trim->waiting += rest - head;
					e->start = start;
					e->end = end + rest;
				}
			} else {
				tail->is_ready = e->is_ready;
				tail->born = e->born;
				list_add(&tail->list, &e->list);
				trim_file(trim, tail);
			}
		}
		taken += size;
		trim->waiting -= size;
		if (e->start < start)
			e->end = start;
		else
			e->start = end;
		trim_file(trim, e);
	}
	*at = end;
	return taken;
}

/* Drops the oldest; returns false if there are more than can be dropped under the lock. */
static bool trim_drop_from(struct trim *trim, struct list_head *list, unsigned int *count)
{
	struct trim_extent *e;

	for (; (e = trim_oldest(list)) && *count; (*count)--) {
		trim->sectors.dropped += e->end - e->start;
		trim_free(trim, e);
	}
	return !e;
}

/* Writes that waited for what is in the set have nothing to wait for. */
static void trim_look_again(struct trim *trim, struct bio_list *list)
{
	if (bio_list_empty(list))
		return;
	bio_list_merge(&trim->deferred, list);
	bio_list_init(list);
	queue_work(trim->wq, &trim->retry);
}

/* There may be room, and memory. */
static void trim_look_at_room(struct trim *trim)
{
	trim_look_again(trim, &trim->splits);
	if (!bio_list_empty(&trim->room))
		queue_work(trim->wq, &trim->retry);
}

/* Drops what is pending; returns false if it has to be called again. */
static bool trim_drop(struct trim *trim)
{
	unsigned int count = TRIM_BATCH;
	bool is_done = trim_drop_from(trim, &trim->small, &count) &&
		       trim_drop_from(trim, &trim->ready, &count);

	if (is_done)
		trim_look_again(trim, &trim->held);
	wake_up(&trim->wait);
	return is_done;
}

/* With zeros they are written, see trim_pick(). */
static void trim_drop_small(struct trim *trim)
{
	bool is_done = trim->options.zeros;

	while (!is_done) {
		unsigned int count = TRIM_BATCH;

		spin_lock_irq(&trim->lock);
		is_done = trim_drop_from(trim, &trim->small, &count);
		spin_unlock_irq(&trim->lock);
		cond_resched();
	}
}

static void trim_drop_all(struct trim *trim)
{
	bool is_done;

	do {
		spin_lock_irq(&trim->lock);
		is_done = trim_drop(trim);
		spin_unlock_irq(&trim->lock);
		cond_resched();
	} while (!is_done);
}

/*
 * SeT
 */

/* Of a partial unit nothing counts as discarded. */
static void trim_mark_unused(struct trim *trim, sector_t start, sector_t end)
{
	unsigned long unit = (start - trim->start + BIT(trim->unit_shift) - 1) >> trim->unit_shift;
	unsigned long last = min_t(sector_t, (end - trim->start) >> trim->unit_shift, trim->units);
	long count = 0;

	for (; unit < last; unit++)
		count += !test_and_set_bit(unit, trim->unused);
	atomic_long_add(count, &trim->unused_units);
	atomic_long_add(count, &trim->freed);
}

static void trim_mark_used(struct trim *trim, sector_t start, sector_t end)
{
	unsigned long unit = (start - trim->start) >> trim->unit_shift;
	unsigned long last = (end - 1 - trim->start) >> trim->unit_shift;
	long count = 0;

	for_each_set_bit_from(unit, trim->unused, min(last + 1, trim->units))
		count += test_and_clear_bit(unit, trim->unused);
	if (count)
		atomic_long_sub(count, &trim->unused_units);
}

static unsigned long trim_used(struct trim *trim)
{
	/* A bit may change before the count. */
	return trim->units - clamp(atomic_long_read(&trim->unused_units), 0L, (long)trim->units);
}

/* Notes what is in use, at most once in a step, and forgets what is too old to compare with. */
static struct trim_moment trim_sample(struct trim *trim)
{
	struct trim_moment now = { jiffies, trim_used(trim), atomic_long_read(&trim->freed) };
	struct trim_moment *moments = trim->moments;

	/*
	 * The oldest that is needed is the last one out of the window; but nobody
	 * looks while nothing is pending, and this may have been long ago.
	 */
	while ((trim->moment_count > 1 && now.at - moments[1].at >= TRIM_WINDOW) ||
	       (trim->moment_count && now.at - moments[0].at >= 2 * TRIM_WINDOW))
		memmove(moments, moments + 1, --trim->moment_count * sizeof(*moments));
	if (!trim->moment_count ||
	    (trim->moment_count < TRIM_MOMENTS &&
	     now.at - moments[trim->moment_count - 1].at >= TRIM_STEP))
		moments[trim->moment_count++] = now;
	return now;
}

/*
 * Decides whether discards are withheld: not above the high watermark, and below
 * the low one. In between, from when at least twice as much was written anew as
 * discarded within the last window until it is the other way round.
 */
static bool trim_decide(struct trim *trim)
{
	unsigned long least = max(TRIM_NET_MIN >> trim->unit_shift, 1);
	struct trim_moment *moments = trim->moments, now;
	u64 percent, total = trim->units;
	unsigned long freed;

	if (!trim->options.high)
		return false;
	now = trim_sample(trim);
	freed = now.freed - moments->freed;

	percent = 100 * (u64)now.used;
	if (percent > total * trim->options.high)
		trim->is_closed = false;
	else if (percent < total * trim->options.low)
		trim->is_closed = true;
	else if (now.used >= moments->used + max(freed, least))
		trim->is_closed = true;
	else if (moments->used >= now.used + max(DIV_ROUND_UP(freed, 2), least))
		trim->is_closed = false;
	return trim->is_closed;
}

/* Returns the jiffies until it is decided again: more and more while use stays as it is. */
static unsigned long trim_poll(struct trim *trim)
{
	unsigned long used = trim_used(trim), freed = atomic_long_read(&trim->freed);
	bool is_same = used == trim->polled.used && freed == trim->polled.freed;

	trim->polled = (struct trim_moment){ jiffies, used, freed };
	trim->poll = is_same ? clamp(2 * trim->poll, (unsigned long)TRIM_STEP,
				     (unsigned long)TRIM_POLL_MAX) : TRIM_STEP;
	return trim->poll;
}

/*
 * Foreground requests
 */

/* Without the lock, for there may be many processors. */
static void trim_foreground(struct trim *trim, struct trim_cpu *sum)
{
	int cpu;

	*sum = (struct trim_cpu){ .last = READ_ONCE(per_cpu_ptr(trim->cpu, 0)->last) };
	for_each_possible_cpu(cpu)
		sum->ended += READ_ONCE(per_cpu_ptr(trim->cpu, cpu)->ended);
	/* Ends first: a request that ends meanwhile must not make fewer begun than ended. */
	smp_rmb();
	for_each_possible_cpu(cpu) {
		unsigned long last = READ_ONCE(per_cpu_ptr(trim->cpu, cpu)->last);

		sum->begun += READ_ONCE(per_cpu_ptr(trim->cpu, cpu)->begun);
		if (time_after(last, sum->last))
			sum->last = last;
	}
}

static void trim_begin(struct trim *trim)
{
	this_cpu_inc(trim->cpu->begun);
	this_cpu_write(trim->cpu->last, jiffies);
}

/* For what waits for room or memory in the set. */
static void trim_make_room(struct trim *trim)
{
	/* With nothing to issue, or while the device fails, only time can help. */
	trim_wake(trim, trim->busy && !trim->is_failing ? 0 : 1);
}

/* Returns a discard in flight that overlaps this range, or NULL. */
static struct trim_slot *trim_slot_over(struct trim *trim, sector_t start, sector_t end)
{
	struct trim_slot *slot = trim->slots;

	if (!trim->flying)
		return NULL;
	for (; slot < trim->slots + trim->options.workers; slot++)
		if (slot->start < end && start < slot->end)
			return slot;
	return NULL;
}

/* Takes a write's range out of the set. Returns false if the write has to wait. */
static bool trim_write(struct trim *trim, struct bio *bio)
{
	sector_t start = bio->bi_iter.bi_sector, end = bio_end_sector(bio), at = start, was;
	unsigned int count = TRIM_BATCH;
	sector_t taken = 0, reused;
	struct trim_extent *e;
	struct trim_slot *slot;
	bool may_go = true, was_met = false;

	spin_lock_irq(&trim->lock);
	if (!trim->options.is_reuse && !trim->is_stopped && !trim->is_paused &&
	    !trim->is_closed && !trim->is_failing) {
		e = trim_find(trim, start + 1);
		while (e && e->start < end && !e->is_ready && count--)
			e = trim_next(e);
		if (e && e->start < end && e->is_ready) {
			trim_move_to_front(trim, e);
			bio_list_add(&trim->held, bio);
			trim_wake(trim, 0);
			trim->waits++;
			may_go = false;
			goto unlock;
		}
	}
	for (;;) {
		was = at;
		reused = trim_take_out(trim, &at, end);
		trim->sectors.reused += reused;
		taken += reused;
		if (reused)
			trim_look_at_room(trim);
		if (at == was) {
			/* No memory for a split: what is in the way goes first. */
			trim_move_to_front(trim, trim_find(trim, at + 1));
			bio_list_add(&trim->splits, bio);
			trim_make_room(trim);
			may_go = false;
			goto unlock;
		}
		slot = trim_slot_over(trim, start, end);
		if (at == end && slot) {
			bio_list_add(&slot->waiters, bio);
			trim->waits++;
			may_go = false;
			goto unlock;
		}
		if (at == end && !was_met)
			break;
		/*
		 * One that fails while this is unlocked puts its range back, maybe where
		 * the set was already looked at.
		 */
		was_met = at != end && (was_met || slot);
		if (at == end)
			at = start;
		spin_unlock_irq(&trim->lock);
		spin_lock_irq(&trim->lock);
	}
	/* One that ends because it would block must not leave what was there. */
	if (trim->options.zeros && taken && bio->bi_opf & REQ_NOWAIT) {
		bio_list_add(&trim->deferred, bio);
		queue_work(trim->wq, &trim->retry);
		may_go = false;
	}
unlock:
	spin_unlock_irq(&trim->lock);
	return may_go;
}

/*
 * Answers a read with zeros where these are promised, and leaves the rest of it to
 * the device. Returns false if the device has to be asked.
 */
static bool trim_read(struct trim *trim, struct bio *bio)
{
	sector_t start = bio->bi_iter.bi_sector, end = bio_end_sector(bio);
	sector_t from = end, to = end;
	struct trim_extent *e;
	unsigned int i;

	spin_lock_irq(&trim->lock);
	e = trim_find(trim, start + 1);
	if (e && e->start < end) {
		from = max(start, e->start);
		to = min(end, e->end);
	}
	for (i = 0; trim->flying && i < trim->options.workers; i++) {
		struct trim_slot *slot = &trim->slots[i];

		if (slot->start < end && start < slot->end && max(start, slot->start) < from) {
			from = max(start, slot->start);
			to = min(end, slot->end);
		}
	}
	spin_unlock_irq(&trim->lock);
	if (from > start) {
		if (from < end)
			dm_accept_partial_bio(bio, from - start);
		return false;
	}
	if (to < end)
		dm_accept_partial_bio(bio, to - start);
	zero_fill_bio(bio);
	bio_endio(bio);
	return true;
}

/* Keeps a flush until what was discarded before it is on the device; false if all of it is. */
static bool trim_flush(struct trim *trim, struct bio *bio)
{
	bool must_wait;

	spin_lock_irq(&trim->lock);
	must_wait = trim->busy;
	if (must_wait) {
		bio_list_add(&trim->flushes, bio);
		trim_wake(trim, 0);
	}
	spin_unlock_irq(&trim->lock);
	return must_wait;
}

/* Lets the flushes go whose discards are on the device, and begins the next turn. */
static void trim_turn(struct trim *trim, struct bio_list *done)
{
	while (!trim->ages[!trim->age]) {
		bio_list_merge(done, &trim->flushing);
		bio_list_init(&trim->flushing);
		if (bio_list_empty(&trim->flushes))
			break;
		bio_list_merge(&trim->flushing, &trim->flushes);
		bio_list_init(&trim->flushes);
		trim->age = !trim->age;
	}
}

static void trim_submit_again(struct bio *bio)
{
	/* Whoever could have tried again, or polls, is not here. */
	bio->bi_opf &= ~REQ_NOWAIT;
	bio_clear_polled(bio);
	submit_bio_noacct(bio);
}

/* Whether so much is pending that all of it is due. */
static bool trim_is_high(struct trim *trim)
{
	return trim->busy - trim->flying > trim->extents_max / 4 * 3;
}

/*
 * Adds a discard to the set, which ends it. With zeros it waits if there is no room, which
 * is DM_MAPIO_REQUEUE; if it has waited before, as the first.
 */
static int trim_admit(struct trim *trim, struct bio *bio, bool has_waited)
{
	unsigned long hold = trim->options.hold_s * HZ;
	unsigned long delay = trim->options.is_eager ? 0 : min(READ_ONCE(trim->quiet), hold);
	sector_t at = bio->bi_iter.bi_sector, end = bio_end_sector(bio), before;
	bool was_high, is_dropped, has_room = true;
	int r = DM_MAPIO_SUBMITTED;

	spin_lock_irq(&trim->lock);
	was_high = trim_is_high(trim);
	is_dropped = !trim->options.zeros && (trim->is_refused || trim->is_stopped);
	while (!is_dropped && has_room && at < end) {
		before = at;
		has_room = trim_add(trim, &at, end, trim->age, false);
		trim->sectors.received += at - before;
		if (has_room && at < end) {
			spin_unlock_irq(&trim->lock);
			spin_lock_irq(&trim->lock);
		}
	}
	if (!has_room) {
		/* What is left of it. */
		bio->bi_iter.bi_sector = at;
		bio->bi_iter.bi_size = (end - at) << SECTOR_SHIFT;
		if (trim->options.zeros) {
			if (has_waited)
				bio_list_add_head(&trim->room, bio);
			else
				bio_list_add(&trim->room, bio);
			trim_make_room(trim);
			r = DM_MAPIO_REQUEUE;
		} else if (trim->options.is_full_pass && !trim->is_paused && !trim_decide(trim)) {
			r = DM_MAPIO_REMAPPED;
		} else {
			is_dropped = true;
		}
	} else if (is_dropped) {
		/* There is nothing to issue. */
	} else if (!was_high && trim_is_high(trim)) {
		trim_wake(trim, 0);
	} else {
		/* It may be asleep for as long as small pieces wait, or what is withheld. */
		trim->poll = TRIM_STEP;
		trim_wake(trim, delay);
	}
	if (is_dropped || r == DM_MAPIO_REMAPPED) {
		trim->sectors.received += end - at;
		*(is_dropped ? &trim->sectors.dropped : &trim->sectors.passed) += end - at;
	}
	spin_unlock_irq(&trim->lock);
	if (is_dropped || has_room)
		bio_endio(bio);
	return r;
}

static int trim_discard(struct trim *trim, struct bio *bio)
{
	int r;

	if (trim->unused) {
		/* What was in use before, or the fall is not seen. */
		spin_lock_irq(&trim->lock);
		trim_sample(trim);
		spin_unlock_irq(&trim->lock);
		trim_mark_unused(trim, bio->bi_iter.bi_sector, bio_end_sector(bio));
	}
	r = trim_admit(trim, bio, false);
	return r == DM_MAPIO_REQUEUE ? DM_MAPIO_SUBMITTED : r;
}

/* Returns the discard that has waited for longest, or NULL. */
static struct bio *trim_pop_room(struct trim *trim)
{
	struct bio *bio;

	spin_lock_irq(&trim->lock);
	bio = bio_list_pop(&trim->room);
	spin_unlock_irq(&trim->lock);
	return bio;
}

static void trim_retry(struct work_struct *work)
{
	struct trim *trim = container_of(work, struct trim, retry);
	struct bio_list bios;
	struct bio *bio;

	spin_lock_irq(&trim->lock);
	bios = trim->deferred;
	bio_list_init(&trim->deferred);
	spin_unlock_irq(&trim->lock);
	/* As if they came only now: they may meet another discard, or what was discarded since. */
	while ((bio = bio_list_pop(&bios))) {
		if (!trim_write(trim, bio))
			continue;
		/* What was discarded since, and taken out just now, is in use again. */
		if (trim->unused)
			trim_mark_used(trim, bio->bi_iter.bi_sector, bio_end_sector(bio));
		trim_submit_again(bio);
	}
	while ((bio = trim_pop_room(trim)) &&
	       trim_admit(trim, bio, true) != DM_MAPIO_REQUEUE)
		cond_resched();
}

static int trim_map(struct dm_target *ti, struct bio *bio)
{
	struct trim *trim = ti->private;

	bio_set_dev(bio, trim->dev->bdev);
	if (bio_sectors(bio))
		bio->bi_iter.bi_sector = trim->start + dm_target_offset(ti, bio->bi_iter.bi_sector);
	if (bio_op(bio) == REQ_OP_DISCARD)
		return trim_discard(trim, bio);
	trim_begin(trim);
	if (trim->unused && op_is_write(bio_op(bio)) && bio_sectors(bio))
		trim_mark_used(trim, bio->bi_iter.bi_sector, bio_end_sector(bio));
	/*
	 * Whoever writes after a discard has completed sees busy as it was then, or
	 * later: an extent is counted before that, until its last discard ends.
	 */
	if (!READ_ONCE(trim->busy))
		return DM_MAPIO_REMAPPED;
	if (op_is_write(bio_op(bio)) && bio_sectors(bio))
		return trim_write(trim, bio) ? DM_MAPIO_REMAPPED : DM_MAPIO_SUBMITTED;
	if (!trim->options.zeros)
		return DM_MAPIO_REMAPPED;
	if (bio_op(bio) == REQ_OP_READ && trim_read(trim, bio))
		return DM_MAPIO_SUBMITTED;
	if (bio->bi_opf & REQ_PREFLUSH && trim->options.is_flush_wait && trim_flush(trim, bio))
		return DM_MAPIO_SUBMITTED;
	return DM_MAPIO_REMAPPED;
}

static int trim_end_io(struct dm_target *ti, struct bio *bio, blk_status_t *error)
{
	struct trim *trim = ti->private;

	if (bio_op(bio) != REQ_OP_DISCARD) {
		this_cpu_write(trim->cpu->last, jiffies);
		this_cpu_inc(trim->cpu->ended);
	}
	return DM_ENDIO_DONE;
}

/*
 * Discards
 */

/* Ends a slot. What it could not do is dropped. */
static void trim_land(struct trim *trim, struct trim_slot *slot)
{
	u64 took_ns = ktime_to_ns(ktime_sub(ktime_get(), slot->began));
	sector_t left = slot->end - slot->start;

	if (!slot->has_failed)
		trim->took_ns = trim->took_ns ? (7 * trim->took_ns + took_ns) / 8 : took_ns;
	trim->sectors.dropped += left;
	trim->time_ns += took_ns;
	trim->in_flight -= left;
	trim->flying--;
	trim->ages[slot->age]--;
	WRITE_ONCE(trim->busy, trim->busy - 1);
	slot->start = 0;
	slot->end = 0;
	trim->rested_since = jiffies;
	trim_look_again(trim, &slot->waiters);
	trim_look_again(trim, &trim->held);
	trim_look_at_room(trim);
	trim_wake(trim, 0);
	wake_up(&trim->wait);
}

static void trim_end_discard(struct bio *bio)
{
	struct trim_slot *slot = container_of(bio, struct trim_slot, bio);
	blk_status_t status = bio->bi_status;
	struct trim *trim = slot->trim;
	unsigned long flags;

	bio_uninit(bio);
	spin_lock_irqsave(&trim->lock, flags);
	slot->has_failed = status;
	if (!status) {
		*(slot->is_zeroed ? &trim->sectors.zeroed : &trim->sectors.issued) += slot->size;
		trim->in_flight -= slot->size;
		slot->start += slot->size;
	} else if (status != BLK_STS_NOTSUPP) {
		trim->errors++;
	} else if (slot->way == TRIM_DISCARD) {
		trim->is_refused = true;
	}
	slot->is_back = trim->options.zeros && slot->start < slot->end;
	if (slot->is_back)
		trim_wake(trim, 0);
	else
		trim_land(trim, slot);
	spin_unlock_irqrestore(&trim->lock, flags);
}

/* Whether everything goes, whatever the policy says. */
static bool trim_must_go(struct trim *trim)
{
	return trim->is_closing || !bio_list_empty(&trim->room) || !bio_list_empty(&trim->splits) ||
	       !bio_list_empty(&trim->flushing) || !bio_list_empty(&trim->flushes);
}

/*
 * Chooses what goes next. What is too small to be discarded goes as zeros, if these
 * are promised, when it has waited for long enough or all has to go; in turn with
 * what is larger, so that a flush waits for neither for ever.
 */
static struct trim_extent *trim_pick(struct trim *trim)
{
	struct trim_extent *ready = trim_oldest(&trim->ready), *small = trim_oldest(&trim->small);
	u64 hold = trim->options.hold_s * HZ;

	if (!trim->options.zeros || !small)
		return ready;
	/* What is younger than the drain may have to wait, which must not keep the other waiting. */
	if (!trim_must_go(trim) && trim_is_due(trim, small) != trim_is_due(trim, ready))
		return trim_is_due(trim, small) ? small : ready;
	if (ready && trim->commands & 1)
		return ready;
	if (trim_must_go(trim) || trim_is_due(trim, small) ||
	    get_jiffies_64() - small->born >= hold)
		return small;
	return ready;
}

static enum trim_way trim_way(struct trim *trim, bool is_whole)
{
	if (trim->options.zeros != TRIM_ZEROS_ON && is_whole &&
	    !(trim->options.zeros && trim->is_refused))
		return TRIM_DISCARD;
	return bdev_write_zeroes_sectors(trim->dev->bdev) ? TRIM_ZEROES : TRIM_PAGES;
}

/* Takes what to discard next; NULL if there is none, or all slots are in flight. */
static struct trim_slot *trim_take(struct trim *trim)
{
	sector_t start, end, at, max = bdev_max_discard_sectors(trim->dev->bdev);
	struct trim_extent *e = trim_pick(trim);
	struct trim_slot *slot = trim->slots;
	bool is_whole;
	u32 phase;

	if (!e || trim->flying == trim->options.workers)
		return NULL;
	while (slot->end)
		slot++;
	start = e->start;
	end = e->end;
	is_whole = trim_whole_units(trim, &start, &end);
	if (!is_whole) {
		start = e->start;
		end = e->end;
	}
	max = max ? min_t(sector_t, max, UINT_MAX >> SECTOR_SHIFT) : TRIM_DISCARD_MAX;
	if (trim->options.max_kib)
		max = min_t(sector_t, max, trim->options.max_kib * 2ULL);
	if (end - start > max) {
		sector_t whole = max;

		whole -= trim->granularity > 1 ? sector_div(max, trim->granularity) : 0;
		end = start + (whole ? whole : min_t(sector_t, trim->granularity, end - start));
	}
	slot->born = e->born;
	slot->age = e->age;
	/* Never seen as idle between set and flight. */
	trim->flying++;
	trim->ages[slot->age]++;
	WRITE_ONCE(trim->busy, trim->busy + 1);
	at = start;
	trim_take_out(trim, &at, end);
	if (at == start) {
		/* No memory for a split: what is before it goes first. */
		end = start;
		start = e->start;
		is_whole = false;
		at = start;
		trim_take_out(trim, &at, end);
	}
	slot->start = start;
	slot->end = end;
	/* A device that changed below, which does not suspend this, may leave what are no whole units. */
	if (trim->options.zeros == TRIM_ZEROS_DEVICE &&
	    (trim_device_units(trim->dev->bdev, &phase) != trim->granularity || phase != trim->phase))
		is_whole = false;
	slot->way = trim_way(trim, is_whole);
	slot->is_zeroed = !is_whole || slot->way == TRIM_PAGES ||
			  (slot->way == TRIM_ZEROES && trim->options.zeros != TRIM_ZEROS_ON);
	slot->began = ktime_get();
	trim->in_flight += end - start;
	trim->commands++;
	return slot;
}

static void trim_submit(struct trim_slot *slot)
{
	static const blk_opf_t ops[] = {
		[TRIM_DISCARD] = REQ_OP_DISCARD,
		[TRIM_ZEROES] = REQ_OP_WRITE_ZEROES,
		[TRIM_PAGES] = REQ_OP_WRITE,
	};
	blk_opf_t op = ops[slot->way];
	struct bio *bio = &slot->bio;
	unsigned int pages;

	slot->size = slot->end - slot->start;
	if (slot->way == TRIM_PAGES)
		slot->size = min_t(unsigned int, slot->size, TRIM_ZERO_PAGES * PAGE_SECTORS);
	/* Some devices leave a partial unit alone if they may unmap it. */
	if (slot->way == TRIM_ZEROES && slot->is_zeroed)
		op |= REQ_NOUNMAP;
	pages = slot->way == TRIM_PAGES ? DIV_ROUND_UP(slot->size, PAGE_SECTORS) : 0;
	bio_init(bio, slot->trim->dev->bdev, pages ? trim_zero_pages : NULL, pages, op);
	bio->bi_vcnt = pages;
	bio->bi_iter.bi_sector = slot->start;
	bio->bi_iter.bi_size = slot->size << SECTOR_SHIFT;
	bio->bi_end_io = trim_end_discard;
	submit_bio(bio);
}

static void trim_fail(struct trim *trim, struct bio_list *list)
{
	bio_list_merge(&trim->failed, list);
	bio_list_init(list);
}

/* Whether the target is about to be gone, and the device does nothing any more. */
static bool trim_gives_up(struct trim *trim)
{
	return trim->is_closing && trim->is_dead;
}

/*
 * Tells what waits for zeros that could not be written: flushes, and discards without
 * room. A write waits for memory or for a slot, which may come; but not where nothing
 * succeeds any more. One that waits for its range to be discarded first need not.
 */
static void trim_note_failure(struct trim *trim)
{
	u64 done = trim->sectors.issued + trim->sectors.zeroed;

	if (trim->failed_done != done) {
		trim->is_dead = false;
		trim->failed_done = done;
		trim->lose = 0;
	} else if (!trim->is_failing) {
		trim->is_dead = true;
	}
	trim->is_failing = true;
	trim->failed_at = jiffies;
	trim->failures++;
	trim_fail(trim, &trim->flushing);
	trim_fail(trim, &trim->flushes);
	trim_fail(trim, &trim->room);
	if (trim->is_dead)
		trim_fail(trim, &trim->splits);
	trim_look_again(trim, &trim->held);
	wake_up(&trim->wait);
}

/*
 * Gives up what could not be made zeros, and more each time until something can: a device
 * that has gone must not keep the target for long. Goes on with what is left of the slot.
 */
static void trim_lose(struct trim *trim, struct trim_slot *slot)
{
	sector_t start = slot->start;

	trim->lose = max_t(u64, 2 * trim->lose, slot->size);
	slot->start += min_t(u64, trim->lose, slot->end - start);
	trim->sectors.dropped += slot->start - start;
	trim->in_flight -= slot->start - start;
	spin_unlock_irq(&trim->lock);
	DMERR_LIMIT("%s: sectors %llu to %llu could not be written with zeros: reads of what was discarded there may return old data",
		    trim->dev->name, (u64)start, (u64)slot->start);
	spin_lock_irq(&trim->lock);
	slot->is_stuck = slot->start < slot->end;
	slot->is_back = slot->is_stuck;
	if (slot->is_stuck)
		trim_wake(trim, 0);
	else
		trim_land(trim, slot);
}

/*
 * Puts what could not be made zeros back into the set, where reads of it still return
 * zeros and it is tried again. What finds no room there stays in the slot, which does
 * the same.
 */
static void trim_give_back(struct trim *trim, struct trim_slot *slot)
{
	while (slot->start < slot->end) {
		sector_t before = slot->start;

		/* Flushes that wait for this age go on waiting. */
		slot->is_stuck = !trim_add(trim, &slot->start, slot->end, slot->age, true);
		trim->in_flight -= slot->start - before;
		if (slot->is_stuck) {
			if (trim->is_dead)
				trim_fail(trim, &slot->waiters);
			return;
		}
		spin_unlock_irq(&trim->lock);
		spin_lock_irq(&trim->lock);
	}
	slot->is_back = false;
	slot->is_stuck = false;
	trim_land(trim, slot);
}

/* Goes on with slots whose range is not all zeros yet when a bio has ended. */
static void trim_go_on(struct trim *trim)
{
	struct trim_slot *slot;

	if (jiffies - trim->failed_at >= TRIM_RETRY)
		trim->is_failing = false;
	for (slot = trim->slots; trim->flying && slot < trim->slots + trim->options.workers; slot++) {
		if (!slot->is_back)
			continue;
		if (slot->has_failed && slot->way == TRIM_PAGES && !slot->is_stuck) {
			trim_note_failure(trim);
			if (trim_gives_up(trim))
				trim_lose(trim, slot);
			else
				trim_give_back(trim, slot);
			continue;
		}
		if (slot->is_stuck && trim->is_failing && !trim_gives_up(trim)) {
			trim_give_back(trim, slot);
			continue;
		}
		slot->is_stuck = false;
		slot->is_back = false;
		if (slot->has_failed) {
			slot->way = slot->way == TRIM_DISCARD ? trim_way(trim, false) : TRIM_PAGES;
			slot->is_zeroed = true;
		}
		spin_unlock_irq(&trim->lock);
		trim_submit(slot);
		spin_lock_irq(&trim->lock);
	}
}

/*
 * Returns the jiffies until it may be that the foreground has been left alone for
 * long enough. Nobody knows when so many requests will have ended: it is looked at
 * again after an eighth of the time that has passed so far.
 */
static unsigned long trim_rest(struct trim *trim, const struct trim_cpu *sum)
{
	unsigned long since = jiffies - trim->rested_since;
	unsigned long rest = nsecs_to_jiffies(TRIM_REST * trim->took_ns);
	unsigned long depth = sum->begun - sum->ended;

	if (since < rest)
		return rest - since;
	if (since >= TRIM_REST_MAX ||
	    sum->ended - trim->rested_ended >= TRIM_REQUESTS * max(depth, 1UL))
		return 0;
	return max(since / 8, 1UL);
}

/* Learns from the last discard that was issued because it was quiet. */
static void trim_learn(struct trim *trim, const struct trim_cpu *sum)
{
	unsigned long quiet = msecs_to_jiffies(trim->options.quiet_ms);

	if (!trim->is_watched || trim->flying)
		return;
	trim->is_watched = false;
	if (sum->begun != trim->watched_begun) {
		trim->clean = 0;
		trim->quiet = min(2 * trim->quiet, TRIM_BACKOFF_MAX * quiet);
	} else if (++trim->clean >= TRIM_CLEAN) {
		trim->clean = 0;
		trim->quiet = max(trim->quiet / 2, quiet);
	}
}

/*
 * Returns the jiffies until the next discard may be issued: 0 for now,
 * MAX_SCHEDULE_TIMEOUT to wait for an event.
 */
static unsigned long trim_delay(struct trim *trim, const struct trim_cpu *sum)
{
	u64 now = get_jiffies_64(), hold = trim->options.hold_s * HZ;
	unsigned int count = TRIM_BATCH;
	unsigned long wait, rest;
	struct trim_extent *e;

	/* At the end of each, also of the last: a request that comes long after did not meet it. */
	trim_learn(trim, sum);
	if (trim->is_failing && !trim_gives_up(trim)) {
		wait = trim->failed_at + TRIM_RETRY - jiffies;
		/* trim_go_on() ends it. */
		return wait - 1 < TRIM_RETRY ? wait : 1;
	}
	e = trim_pick(trim);
	if (e && trim_must_go(trim))
		return 0;
	if (trim->is_refused && !trim->options.zeros)
		return trim_drop(trim) ? MAX_SCHEDULE_TIMEOUT : 1;
	while (!trim->options.zeros && (e = trim_oldest(&trim->small)) && now - e->born >= hold) {
		if (!count--)
			return 1;
		trim->sectors.dropped += e->end - e->start;
		trim_free(trim, e);
	}
	e = trim_pick(trim);
	if (!e) {
		/* With the gate closed, other writes may have taken out what these wait for. */
		trim_look_again(trim, &trim->held);
		/* What is in use after the last discard, or later use is compared with what was before. */
		if (trim->options.high &&
		    trim_sample(trim).used != trim->moments[trim->moment_count - 1].used)
			return TRIM_STEP;
		e = trim_oldest(&trim->small);
		return e ? hold - (now - e->born) : MAX_SCHEDULE_TIMEOUT;
	}
	if (trim_is_due(trim, e))
		return 0;
	if (trim->is_stopped || trim->is_paused)
		return MAX_SCHEDULE_TIMEOUT;
	if (trim_decide(trim)) {
		trim_look_again(trim, &trim->held);
		return trim_poll(trim);
	}
	if (trim->options.is_eager || !bio_list_empty(&trim->held))
		return 0;
	if (sum->begun == sum->ended && jiffies - sum->last >= trim->quiet) {
		trim->is_watched = true;
		trim->watched_begun = sum->begun;
		return 0;
	}
	wait = trim->quiet;
	if (now - e->born < hold && !trim_is_high(trim)) {
		wait = min_t(u64, wait, hold - (now - e->born));
	} else if (!trim->flying) {
		rest = trim_rest(trim, sum);
		if (!rest) {
			trim->rested_ended = sum->ended;
			return 0;
		}
		wait = min(wait, rest);
	}
	return max(wait, 1UL);
}

static void trim_issue(struct work_struct *work)
{
	struct trim *trim = container_of(to_delayed_work(work), struct trim, issue);
	struct bio_list flushes = BIO_EMPTY_LIST, failed;
	struct trim_cpu sum;
	struct trim_slot *slot;
	struct blk_plug plug;
	unsigned long delay = 0;
	struct bio *bio;

	/* A device that takes many ranges in one command gets them so. */
	blk_start_plug(&plug);
	trim_foreground(trim, &sum);
	spin_lock_irq(&trim->lock);
	trim_go_on(trim);
	trim_turn(trim, &flushes);
	while (bio_list_empty(&flushes) && !(delay = trim_delay(trim, &sum)) &&
	       (slot = trim_take(trim))) {
		spin_unlock_irq(&trim->lock);
		trim_submit(slot);
		/* A device that discards at once would keep this going. */
		cond_resched();
		trim_foreground(trim, &sum);
		spin_lock_irq(&trim->lock);
		trim_turn(trim, &flushes);
	}
	/* A write may have taken out what was waited for. */
	if (trim->draining)
		wake_up(&trim->wait);
	trim_turn(trim, &flushes);
	if (!trim->flying)
		trim_look_at_room(trim);
	failed = trim->failed;
	bio_list_init(&trim->failed);
	if (!bio_list_empty(&flushes))
		trim_wake(trim, 0);
	else if (delay && delay != MAX_SCHEDULE_TIMEOUT)
		trim_wake(trim, delay);
	spin_unlock_irq(&trim->lock);
	blk_finish_plug(&plug);
	while ((bio = bio_list_pop(&flushes)))
		trim_submit_again(bio);
	while ((bio = bio_list_pop(&failed))) {
		/* Not to be discarded by redo. */
		if (trim->unused && bio_op(bio) == REQ_OP_DISCARD)
			trim_mark_used(trim, bio->bi_iter.bi_sector, bio_end_sector(bio));
		bio_io_error(bio);
	}
}

/* Whether nothing of the set is left that was in it at this time. */
static bool trim_is_drained(struct trim *trim, u64 mark)
{
	struct trim_extent *e;
	bool is_drained;
	unsigned int i;

	spin_lock_irq(&trim->lock);
	e = trim_oldest(&trim->ready);
	is_drained = !e || mark < e->born;
	e = trim_oldest(&trim->small);
	is_drained &= !trim->options.zeros || !e || mark < e->born;
	for (i = 0; i < trim->options.workers; i++)
		is_drained &= !trim->slots[i].end || mark < trim->slots[i].born;
	is_drained |= trim->is_refused && !trim->options.zeros && !trim->flying;
	spin_unlock_irq(&trim->lock);
	return is_drained;
}

static bool trim_is_landed(struct trim *trim)
{
	bool is_landed;

	spin_lock_irq(&trim->lock);
	is_landed = !trim->flying;
	spin_unlock_irq(&trim->lock);
	return is_landed;
}

static u64 trim_begin_drain(struct trim *trim)
{
	u64 mark = get_jiffies_64();

	/* The device cannot discard them, and nothing may come that would complete them. */
	trim_drop_small(trim);
	spin_lock_irq(&trim->lock);
	trim->draining++;
	trim->drain_mark = max(trim->drain_mark, mark);
	trim_wake(trim, 0);
	spin_unlock_irq(&trim->lock);
	return mark;
}

static void trim_end_drain(struct trim *trim)
{
	spin_lock_irq(&trim->lock);
	trim->draining--;
	spin_unlock_irq(&trim->lock);
	trim_drop_small(trim);
}

/*
 * The target
 */

/* An option is a number, or a choice between words. */
static const struct trim_option {
	const char *name;
	size_t at;
	unsigned int min, max;
	const char *words[3];
} trim_option_table[] = {
	{ "workers", offsetof(struct trim_options, workers), 1, TRIM_WORKERS_MAX },
	{ "quiet_ms", offsetof(struct trim_options, quiet_ms), 0, 60000 },
	{ "hold_s", offsetof(struct trim_options, hold_s), 1, 86400 },
	{ "limit", offsetof(struct trim_options, limit), 64, 1048576 },
	{ "drain_ms", offsetof(struct trim_options, drain_ms), 0, 600000 },
	{ "policy", offsetof(struct trim_options, is_eager), 0, 1, { "quiet", "eager" } },
	{ "full", offsetof(struct trim_options, is_full_pass), 0, 1, { "drop", "pass" } },
	{ "reuse", offsetof(struct trim_options, is_reuse), 0, 1, { "off", "on" } },
	{ "zeros", offsetof(struct trim_options, zeros), 0, 2, { "off", "on", "device" } },
	{ "flush", offsetof(struct trim_options, is_flush_wait), 0, 1, { "pass", "wait" } },
	{ "max_kib", offsetof(struct trim_options, max_kib), 0, UINT_MAX },
	{ "low", offsetof(struct trim_options, low), 0, 100 },
	{ "high", offsetof(struct trim_options, high), 0, 100 },
};

static const struct trim_options trim_defaults = {
	.workers = 1,
	.quiet_ms = 100,
	.hold_s = 60,
	.limit = 16384,
	.drain_ms = 1000,
	.is_full_pass = true,
	.is_reuse = true,
	.is_flush_wait = true,
};

static unsigned int *trim_value(struct trim_options *options, const struct trim_option *option)
{
	return (void *)options + option->at;
}

static int trim_parse_option(struct trim_options *options, const char *text)
{
	const struct trim_option *option = trim_option_table;
	const char *value = strchr(text, '=');
	unsigned int *number;
	size_t length;
	int r;

	if (!value)
		goto unknown;
	length = value++ - text;
	while (strlen(option->name) != length || strncmp(option->name, text, length))
		if (++option == trim_option_table + ARRAY_SIZE(trim_option_table))
			goto unknown;
	number = trim_value(options, option);
	if (option->words[0]) {
		r = match_string(option->words, ARRAY_SIZE(option->words), value);
		if (r < 0) {
			DMERR("%s: expected %s%s%s or %s", text, option->words[0],
			      option->words[2] ? ", " : "", option->words[2] ?: "",
			      option->words[1]);
			return -EINVAL;
		}
		*number = r;
	} else if (kstrtouint(value, 10, number) || *number < option->min ||
		   *number > option->max) {
		DMERR("%s: expected a number from %u to %u", text, option->min, option->max);
		return -EINVAL;
	}
	return 0;
unknown:
	DMERR("%s: expected workers, quiet_ms, hold_s, limit, drain_ms, policy, full, reuse, zeros, flush, max_kib, low or high=VALUE",
	      text);
	return -EINVAL;
}

static int trim_parse(struct dm_target *ti, struct dm_arg_set *as, struct trim_options *options)
{
	static const struct dm_arg count = { 0, 32, "Invalid number of options" };
	unsigned int left;
	int r;

	*options = trim_defaults;
	if (!as->argc)
		return 0;
	r = dm_read_arg_group(&count, as, &left, &ti->error);
	for (; !r && left; left--) {
		r = trim_parse_option(options, dm_shift_arg(as));
		if (r)
			ti->error = "Invalid option";
	}
	if (!r && as->argc) {
		ti->error = "More arguments than the number of options says";
		r = -EINVAL;
	}
	if (!r && options->low > options->high) {
		DMERR("low=%u: expected at most high=%u", options->low, options->high);
		ti->error = "Invalid option";
		r = -EINVAL;
	}
	if (!r && options->zeros && !options->is_full_pass) {
		DMERR("full=drop: expected zeros=off, for what reads as zeros cannot be dropped");
		ti->error = "Invalid option";
		r = -EINVAL;
	}
	return r;
}

static void trim_deactivate(struct trim *trim)
{
	mutex_lock(&trim_active_lock);
	list_del_init(&trim->active);
	mutex_unlock(&trim_active_lock);
}

static void trim_dtr(struct dm_target *ti)
{
	struct trim *trim = ti->private;

	/* Still active if another target of the table refused to resume. */
	trim_deactivate(trim);
	if (trim->wq) {
		cancel_delayed_work_sync(&trim->issue);
		destroy_workqueue(trim->wq);
	}
	kvfree(trim->unused);
	kfree(trim->slots);
	mempool_destroy(trim->pool);
	free_percpu(trim->cpu);
	if (trim->dev)
		dm_put_device(ti, trim->dev);
	kfree(trim);
}

/*
 * The map takes no more memory than extents may, and no more bits than a long of
 * any processor counts; a larger device has larger units.
 */
static bool trim_make_map(struct trim *trim)
{
	u64 bits = min_t(u64, (u64)trim->options.limit * 1024 * BITS_PER_BYTE, INT_MAX);

	trim->unit_shift = TRIM_UNIT_SHIFT_MIN;
	while (trim->ti->len >> trim->unit_shift > bits)
		trim->unit_shift++;
	trim->units = trim->ti->len >> trim->unit_shift;
	trim->unused = kvcalloc(BITS_TO_LONGS(trim->units), sizeof(long), GFP_KERNEL);
	return trim->unused;
}

static int trim_ctr(struct dm_target *ti, unsigned int argc, char **argv)
{
	struct dm_arg_set as = { .argc = argc, .argv = argv };
	struct trim_options options;
	unsigned long long start;
	const char *path, *text;
	struct trim *trim;
	unsigned int i;
	int cpu, r;

	if (argc < 2) {
		ti->error = "Expected DEVICE START [COUNT OPTION...]";
		return -EINVAL;
	}
	path = dm_shift_arg(&as);
	text = dm_shift_arg(&as);
	if (kstrtoull(text, 10, &start) || start != (sector_t)start) {
		ti->error = "Invalid start sector";
		return -EINVAL;
	}
	r = trim_parse(ti, &as, &options);
	if (r)
		return r;

	trim = kzalloc(sizeof(*trim), GFP_KERNEL);
	if (!trim) {
		ti->error = "Out of memory";
		return -ENOMEM;
	}
	ti->private = trim;
	trim->ti = ti;
	trim->start = start;
	trim->options = options;
	trim->extents_max = options.limit * 1024 / sizeof(struct trim_extent);
	trim->is_stopped = true;
	trim->failed_done = U64_MAX;
	trim->set = RB_ROOT;
	INIT_LIST_HEAD(&trim->ready);
	INIT_LIST_HEAD(&trim->small);
	INIT_LIST_HEAD(&trim->active);
	bio_list_init(&trim->deferred);
	bio_list_init(&trim->held);
	bio_list_init(&trim->room);
	bio_list_init(&trim->splits);
	bio_list_init(&trim->flushing);
	bio_list_init(&trim->flushes);
	bio_list_init(&trim->failed);
	spin_lock_init(&trim->lock);
	init_waitqueue_head(&trim->wait);
	INIT_DELAYED_WORK(&trim->issue, trim_issue);
	INIT_WORK(&trim->retry, trim_retry);

	r = dm_get_device(ti, path, dm_table_get_mode(ti->table), &trim->dev);
	if (r) {
		ti->error = "Device lookup failed";
		goto failed;
	}
	/* The reset of a zone, and what is appended to one, would go unseen. */
	if (bdev_is_zoned(trim->dev->bdev)) {
		ti->error = "Device is zoned";
		r = -EINVAL;
		goto failed;
	}
	if (options.zeros && bdev_get_integrity(trim->dev->bdev)) {
		ti->error = "zeros: device has integrity data, which zeros from memory lack";
		r = -EINVAL;
		goto failed;
	}
	if (options.zeros == TRIM_ZEROS_ON && !bdev_write_zeroes_sectors(trim->dev->bdev)) {
		ti->error = "zeros=on: device cannot write zeros by itself";
		r = -EINVAL;
		goto failed;
	}
	r = -ENOMEM;
	ti->error = "Out of memory";
	trim->cpu = alloc_percpu(struct trim_cpu);
	trim->pool = mempool_create_slab_pool(TRIM_RESERVE, trim_extents);
	trim->wq = alloc_workqueue("dm-trim", WQ_MEM_RECLAIM | WQ_UNBOUND, 0);
	trim->slots = kcalloc(options.workers, sizeof(*trim->slots), GFP_KERNEL);
	if (!trim->cpu || !trim->pool || !trim->wq || !trim->slots)
		goto failed;
	if (options.high && !trim_make_map(trim))
		goto failed;
	for (i = 0; i < options.workers; i++) {
		trim->slots[i].trim = trim;
		bio_list_init(&trim->slots[i].waiters);
	}
	for_each_possible_cpu(cpu)
		per_cpu_ptr(trim->cpu, cpu)->last = jiffies;
	ti->error = NULL;

	ti->num_flush_bios = 1;
	ti->num_discard_bios = 1;
	ti->num_secure_erase_bios = 1;
	ti->num_write_zeroes_bios = 1;
	/* The set is a cache then, also over a device without. */
	ti->flush_supported = options.zeros && options.is_flush_wait;
	return 0;
failed:
	trim_dtr(ti);
	return r;
}

static bool trim_overlaps(struct trim *a, struct trim *b)
{
	struct block_device *of_a = a->dev->bdev, *of_b = b->dev->bdev;
	sector_t start_a = of_a->bd_start_sect + a->start, start_b = of_b->bd_start_sect + b->start;

	return of_a->bd_disk == of_b->bd_disk && start_a < start_b + b->ti->len &&
	       start_b < start_a + a->ti->len;
}

static int trim_preresume(struct dm_target *ti)
{
	struct trim *trim = ti->private, *other;
	int r = 0;

	mutex_lock(&trim_active_lock);
	if (list_empty(&trim->active)) {
		list_for_each_entry(other, &trim_active, active) {
			/* A table that did not resume goes only after the next one has resumed. */
			if (other->ti->table != ti->table &&
			    dm_table_get_md(other->ti->table) == dm_table_get_md(ti->table))
				continue;
			if (trim_overlaps(trim, other)) {
				DMERR("%s: another trim target is over the same sectors of %s",
				      dm_table_device_name(ti->table), trim->dev->name);
				r = -EBUSY;
			}
		}
		if (!r)
			list_add(&trim->active, &trim_active);
	}
	mutex_unlock(&trim_active_lock);
	return r;
}

static void trim_resume(struct dm_target *ti)
{
	struct trim *trim = ti->private;
	struct block_device *bdev = trim->dev->bdev;

	spin_lock_irq(&trim->lock);
	trim->granularity = trim_device_units(bdev, &trim->phase);
	trim->quiet = msecs_to_jiffies(trim->options.quiet_ms);
	trim->is_watched = false;
	trim->is_refused = !bdev_max_discard_sectors(bdev);
	trim->is_interrupted = false;
	trim->is_stopped = false;
	trim->is_closing = false;
	spin_unlock_irq(&trim->lock);
}

static void trim_set_interrupted(struct trim *trim, bool is_interrupted)
{
	spin_lock_irq(&trim->lock);
	trim->is_interrupted = is_interrupted;
	wake_up(&trim->wait);
	spin_unlock_irq(&trim->lock);
}

static bool trim_may_drain(struct trim *trim)
{
	return trim->options.zeros ||
	       (trim->options.drain_ms && !trim->is_paused && !trim_decide(trim));
}

/*
 * Issues what is pending while requests still come and go, so that they wait only for what
 * comes meanwhile. What fails is left to trim_postsuspend(), which ends in any case.
 */
static void trim_presuspend(struct dm_target *ti)
{
	struct trim *trim = ti->private;
	unsigned long failures = READ_ONCE(trim->failures);
	long allowed = msecs_to_jiffies(trim->options.drain_ms);
	bool may_drain;
	u64 mark;

	/* A message that waits would keep the suspension waiting. */
	trim_set_interrupted(trim, true);
	trim->stop_until = jiffies + allowed;
	spin_lock_irq(&trim->lock);
	may_drain = trim_may_drain(trim);
	spin_unlock_irq(&trim->lock);
	if (!may_drain)
		return;
	mark = trim_begin_drain(trim);
	wait_event_killable_timeout(trim->wait, trim_is_drained(trim, mark) ||
				    failures != READ_ONCE(trim->failures),
				    trim->options.zeros ? TRIM_PRESUSPEND_MAX : allowed);
	trim_end_drain(trim);
}

static void trim_presuspend_undo(struct dm_target *ti)
{
	trim_set_interrupted(ti->private, false);
}

/* Begins to issue what is pending. */
static void trim_begin_stop(struct trim *trim)
{
	bool may_drain;

	spin_lock_irq(&trim->lock);
	may_drain = trim_may_drain(trim) && (trim->options.zeros ||
					     time_before(jiffies, trim->stop_until));
	/* What reads as zeros has to become zeros, or fail twice from now on. */
	trim->is_closing = trim->options.zeros;
	trim->is_dead = false;
	trim->failed_done = U64_MAX;
	if (trim->is_closing)
		trim_wake(trim, 0);
	spin_unlock_irq(&trim->lock);
	trim->is_stop_draining = may_drain && !trim->options.zeros;
	if (trim->is_stop_draining)
		trim->stop_mark = trim_begin_drain(trim);
}

static bool trim_has_stopped(struct trim *trim)
{
	if (trim->options.zeros)
		return !READ_ONCE(trim->busy);
	return !trim->is_stop_draining || trim_is_drained(trim, trim->stop_mark);
}

/* Drops what is left, but not with zeros, where what still comes is issued at once. */
static void trim_end_stop(struct trim *trim)
{
	if (trim->options.zeros)
		return;
	if (trim->is_stop_draining)
		trim_end_drain(trim);
	trim->is_stop_draining = false;
	spin_lock_irq(&trim->lock);
	trim->is_stopped = true;
	spin_unlock_irq(&trim->lock);
	trim_drop_all(trim);
}

/*
 * No request comes any more. Nothing may stay pending: another table could write
 * to the device meanwhile.
 */
static void trim_postsuspend(struct dm_target *ti)
{
	struct trim *trim = ti->private;

	trim_begin_stop(trim);
	if (trim->options.zeros)
		wait_event(trim->wait, trim_has_stopped(trim));
	else if (trim->is_stop_draining)
		wait_event_timeout(trim->wait, trim_has_stopped(trim),
				   max((long)(trim->stop_until - jiffies), 0L));
	trim_end_stop(trim);
	wait_event(trim->wait, trim_is_landed(trim));
	spin_lock_irq(&trim->lock);
	trim->is_stopped = true;
	spin_unlock_irq(&trim->lock);
	cancel_delayed_work_sync(&trim->issue);
	flush_work(&trim->retry);
	trim_deactivate(trim);
}

/* Looks at all targets that are active, without keeping others from being suspended or resumed. */
static void trim_await_all(bool (*is_done)(struct trim *trim), unsigned long until)
{
	struct trim *trim;
	bool are_done;

	for (;;) {
		are_done = true;
		mutex_lock(&trim_active_lock);
		list_for_each_entry(trim, &trim_active, active)
			are_done &= is_done(trim);
		mutex_unlock(&trim_active_lock);
		if (are_done || time_after_eq(jiffies, until))
			return;
		msleep(20);
	}
}

static bool trim_has_stopped_or_must(struct trim *trim)
{
	return trim_has_stopped(trim) || time_after_eq(jiffies, trim->stop_until);
}

/* With zeros it was waited for already. */
static bool trim_has_landed_or_cannot(struct trim *trim)
{
	return trim->options.zeros || trim_is_landed(trim);
}

/*
 * Devices are about to be shut down, which would lose what is in flight. All targets
 * stop at the same time, so that many take no longer than one.
 */
static int trim_reboot(struct notifier_block *block, unsigned long event, void *data)
{
	struct trim *trim;

	mutex_lock(&trim_active_lock);
	list_for_each_entry(trim, &trim_active, active) {
		trim->stop_until = jiffies + (trim->options.zeros ? TRIM_REBOOT_MAX :
					      msecs_to_jiffies(trim->options.drain_ms));
		trim_begin_stop(trim);
	}
	mutex_unlock(&trim_active_lock);
	trim_await_all(trim_has_stopped_or_must, jiffies + MAX_JIFFY_OFFSET);
	mutex_lock(&trim_active_lock);
	list_for_each_entry(trim, &trim_active, active)
		trim_end_stop(trim);
	mutex_unlock(&trim_active_lock);
	trim_await_all(trim_has_landed_or_cannot, jiffies + TRIM_REBOOT_MAX);
	return NOTIFY_DONE;
}

static struct notifier_block trim_reboot_block = {
	.notifier_call = trim_reboot,
};

/*
 * Messages are sent with the table held, for which some suspensions wait without a
 * call to presuspend, with all I/O stopped (dm_internal_suspend_fast). So this wait
 * has the bound of a suspension.
 */
static int trim_drain(struct trim *trim)
{
	unsigned long failures = READ_ONCE(trim->failures);
	u64 mark = trim_begin_drain(trim);
	long r;

	r = wait_event_killable_timeout(trim->wait, trim_is_drained(trim, mark) ||
					READ_ONCE(trim->is_interrupted),
					msecs_to_jiffies(trim->options.drain_ms));
	/* What failed is back in the set, as if it were new. */
	if (r >= 0)
		r = trim_is_drained(trim, mark) && failures == READ_ONCE(trim->failures) ? 0 : -EBUSY;
	trim_end_drain(trim);
	return r;
}

/*
 * Adds again all that the map has as discarded and not written since, for whoever was
 * told that it is discarded does not ask again. That nobody else wrote to the device,
 * while this was suspended, is for the sender to know.
 */
static int trim_redo(struct trim *trim)
{
	unsigned long unit = 0, last, most = max(TRIM_DISCARD_MAX >> trim->unit_shift, 1);
	int r = 0;

	if (!trim->unused) {
		DMERR("message redo: expected a table with high=, which has a map of what is in use");
		return -EINVAL;
	}
	spin_lock_irq(&trim->lock);
	/* A removal does not wait for messages before it stops the target. */
	if (trim->is_stopped || trim->is_closing || trim->is_interrupted) {
		spin_unlock_irq(&trim->lock);
		return -EBUSY;
	}
	WRITE_ONCE(trim->busy, trim->busy + 1);
	spin_unlock_irq(&trim->lock);
	/* A write sees busy and takes its range out, or the map has seen the write: trim_map(). */
	smp_mb();
	while (!r && (unit = find_next_bit(trim->unused, trim->units, unit)) < trim->units) {
		sector_t at = trim->start + ((sector_t)unit << trim->unit_shift), before = at, end;

		spin_lock_irq(&trim->lock);
		last = find_next_zero_bit(trim->unused, min(unit + most, trim->units), unit);
		end = trim->start + ((sector_t)last << trim->unit_shift);
		if (trim->is_stopped || trim->is_closing || trim->is_interrupted ||
		    (trim->is_refused && !trim->options.zeros) || (at < end && !trim_add(trim, &at, end, trim->age, false)))
			r = -EBUSY;
		trim->sectors.received += at - before;
		spin_unlock_irq(&trim->lock);
		/* What is added by halves begins with the unit where it stopped. */
		unit = at < end ? (at - trim->start) >> trim->unit_shift : last;
		cond_resched();
	}
	spin_lock_irq(&trim->lock);
	WRITE_ONCE(trim->busy, trim->busy - 1);
	if (!trim->is_stopped)
		trim_wake(trim, 0);
	wake_up(&trim->wait);
	spin_unlock_irq(&trim->lock);
	return r;
}

static int trim_message(struct dm_target *ti, unsigned int argc, char **argv, char *result,
			unsigned int maxlen)
{
	struct trim *trim = ti->private;
	const char *word = argv[0];

	if (argc != 1)
		goto unknown;
	if (!strcasecmp(word, "drain"))
		return trim_drain(trim);
	if (!strcasecmp(word, "pause") || !strcasecmp(word, "resume")) {
		spin_lock_irq(&trim->lock);
		trim->is_paused = !strcasecmp(word, "pause");
		if (!trim->is_stopped)
			trim_wake(trim, 0);
		trim_look_again(trim, &trim->held);
		spin_unlock_irq(&trim->lock);
		return 0;
	}
	if (!strcasecmp(word, "redo"))
		return trim_redo(trim);
	if (!strcasecmp(word, "drop")) {
		if (trim->options.zeros) {
			DMERR("message drop: what reads as zeros cannot be dropped; expected drain");
			return -EINVAL;
		}
		trim_drop_all(trim);
		return 0;
	}
unknown:
	DMERR("message %s: expected pause, resume, drain, drop or redo", word);
	return -EINVAL;
}

static bool trim_is_default(struct trim *trim, const struct trim_option *option)
{
	struct trim_options defaults = trim_defaults;

	return *trim_value(&trim->options, option) == *trim_value(&defaults, option);
}

/* Those that are not as by default, after their number. */
static unsigned int trim_emit_options(struct trim *trim, char *result, unsigned int maxlen,
				      unsigned int sz)
{
	const struct trim_option *end = trim_option_table + ARRAY_SIZE(trim_option_table), *option;
	unsigned int count = 0;

	for (option = trim_option_table; option < end; option++)
		count += !trim_is_default(trim, option);
	if (count)
		DMEMIT(" %u", count);
	for (option = trim_option_table; option < end; option++) {
		unsigned int value = *trim_value(&trim->options, option);

		if (trim_is_default(trim, option))
			continue;
		if (option->words[0])
			DMEMIT(" %s=%s", option->name, option->words[value]);
		else
			DMEMIT(" %s=%u", option->name, value);
	}
	return sz;
}

/* In bytes. What was received is the sum of the others. */
static const struct {
	const char *name;
	size_t at;
} trim_counters[] = {
	{ "received", offsetof(struct trim_sectors, received) },
	{ "merged", offsetof(struct trim_sectors, merged) },
	{ "reused", offsetof(struct trim_sectors, reused) },
	{ "issued", offsetof(struct trim_sectors, issued) },
	{ "passed", offsetof(struct trim_sectors, passed) },
	{ "zeroed", offsetof(struct trim_sectors, zeroed) },
	{ "dropped", offsetof(struct trim_sectors, dropped) },
	{ "pending", offsetof(struct trim_sectors, pending) },
};

static void trim_status(struct dm_target *ti, status_type_t type, unsigned int status_flags,
			char *result, unsigned int maxlen)
{
	struct trim *trim = ti->private;
	unsigned long long start = trim->start;
	struct trim_sectors sectors;
	unsigned int sz = 0, i;

	switch (type) {
	case STATUSTYPE_INFO:
		spin_lock_irq(&trim->lock);
		sectors = trim->sectors;
		sectors.pending = trim->waiting + trim->in_flight;
		DMEMIT("%s", trim->is_refused ? "refused" : trim->is_paused ? "paused" :
			     trim->is_closed ? "withheld" : "running");
		for (i = 0; i < ARRAY_SIZE(trim_counters); i++)
			DMEMIT(" %s %llu", trim_counters[i].name,
			       *(u64 *)((void *)&sectors + trim_counters[i].at) << SECTOR_SHIFT);
		DMEMIT(" extents %u in_flight %u", trim->busy - trim->flying, trim->flying);
		DMEMIT(" commands %llu errors %llu", trim->commands, trim->errors);
		DMEMIT(" waits %llu time_ns %llu", trim->waits, trim->time_ns);
		DMEMIT(" quiet_now_ms %u", jiffies_to_msecs(trim->quiet));
		if (trim->unused)
			DMEMIT(" used %llu", (u64)trim_used(trim) << trim->unit_shift << SECTOR_SHIFT);
		spin_unlock_irq(&trim->lock);
		break;
	case STATUSTYPE_TABLE:
		DMEMIT("%s %llu", trim->dev->name, start);
		sz = trim_emit_options(trim, result, maxlen, sz);
		break;
	case STATUSTYPE_IMA:
		DMEMIT_TARGET_NAME_VERSION(ti->type);
		DMEMIT(",device_name=%s,start=%llu", trim->dev->name, start);
		for (i = 0; i < ARRAY_SIZE(trim_option_table); i++) {
			const struct trim_option *option = &trim_option_table[i];
			unsigned int value = *trim_value(&trim->options, option);

			if (option->words[0])
				DMEMIT(",%s=%s", option->name, option->words[value]);
			else
				DMEMIT(",%s=%u", option->name, value);
		}
		DMEMIT(";");
		break;
	}
}

static int trim_iterate_devices(struct dm_target *ti, iterate_devices_callout_fn fn, void *data)
{
	struct trim *trim = ti->private;

	return fn(ti, trim->dev, trim->start, ti->len, data);
}

static void trim_io_hints(struct dm_target *ti, struct queue_limits *limits)
{
	u32 unit = max(limits->discard_granularity >> SECTOR_SHIFT, 1U);
	u32 max = TRIM_DISCARD_MAX - TRIM_DISCARD_MAX % unit;

	/* A device without discard stays without. */
	if (limits->max_discard_sectors) {
		limits->max_discard_sectors = max ? max : unit;
		limits->max_hw_discard_sectors = max ? max : unit;
	}
}

/*
 * There is no prepare_ioctl: a command that goes to the device past the target,
 * such as SG_IO, could write what is about to be discarded.
 */
static struct target_type trim_target = {
	.name = "trim",
	.version = {1, 1, 1},
	.features = DM_TARGET_PASSES_INTEGRITY | DM_TARGET_NOWAIT | DM_TARGET_PASSES_CRYPTO,
	.module = THIS_MODULE,
	.ctr = trim_ctr,
	.dtr = trim_dtr,
	.map = trim_map,
	.end_io = trim_end_io,
	.preresume = trim_preresume,
	.resume = trim_resume,
	.presuspend = trim_presuspend,
	.presuspend_undo = trim_presuspend_undo,
	.postsuspend = trim_postsuspend,
	.message = trim_message,
	.status = trim_status,
	.iterate_devices = trim_iterate_devices,
	.io_hints = trim_io_hints,
};

static int __init trim_init(void)
{
	int r;

	for (r = 0; r < TRIM_ZERO_PAGES; r++)
		trim_zero_pages[r] = (struct bio_vec){ ZERO_PAGE(0), PAGE_SIZE, 0 };
	trim_extents = KMEM_CACHE(trim_extent, 0);
	if (!trim_extents)
		return -ENOMEM;
	r = dm_register_target(&trim_target);
	if (r < 0) {
		kmem_cache_destroy(trim_extents);
		return r;
	}
	register_reboot_notifier(&trim_reboot_block);
	return 0;
}

static void __exit trim_exit(void)
{
	unregister_reboot_notifier(&trim_reboot_block);
	dm_unregister_target(&trim_target);
	kmem_cache_destroy(trim_extents);
}

module_init(trim_init);
module_exit(trim_exit);

MODULE_DESCRIPTION(DM_NAME " target that issues discards when the device is quiet");
MODULE_LICENSE("GPL");
