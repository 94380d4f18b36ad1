//! The block layer between a file system and the modelled device, in virtual time.
//!
//! A request belongs to one of two classes. *Foreground* requests (reads, log writes, discards: a task waits for them)
//! go before *background* ones (write-back), as in CFQ and mq-deadline. A starvation limit still lets background
//! requests through, and only a few of them may be in the device at once, so that a read does not queue behind 16 MiB
//! of write-back inside the drive.
//!
//! Up to the queue depth, requests are in the device at the same time. Commands that ATA cannot queue (FLUSH CACHE, and
//! DATA SET MANAGEMENT without its queued form) wait until the device is empty and run alone. This is how discards
//! delay their neighbours.
//!
//! A discard request becomes commands as in Linux: on SATA and SCSI one contiguous run per command (however many ranges
//! the command could carry), on NVMe the runs submitted together merge up to the device's limit. A policy that fills
//! its commands can do so on any link ([`BlockQueue::trim_as_one`]).

mod admission;
mod device;
mod discard;
mod model;
mod port;
mod target;
pub mod thin;
mod write_throttle;

pub use device::{
    BlockDevice, BlockError, Completion, DeviceFacts, Operation, TrimFacts, check as check_operation,
};
pub use model::ModelDevice;
pub(crate) use port::{Piece, pieces, whole_units};
pub use port::{Port, PortCounts, PortError, PortLimits, Request as PortRequest};
#[cfg(feature = "sabotage")]
pub use target::TargetFault;
pub use write_throttle::WriteThrottleConfig;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use crate::content::Content;
use crate::engine::{Event, Sim};
use crate::policy::Served;
use crate::ssd::{Drive, Ssd};
use crate::units::{Bytes, Lpn, SectorRange, SimDuration, SimTime, UNIT_BYTES, UnitRange};
use admission::{Admission, Kind};
use target::Target;
use thin::{ThinConfig, ThinVolume};
use write_throttle::WriteThrottle;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// Largest data request. Linux's `max_sectors_kb` defaults to 512 KiB in 2010, 1280 KiB in 6.12, 4 MiB in 7.3.
    pub max_request: Bytes,
    /// Background requests that may be in the device at once.
    pub background_depth: usize,
    /// CFQ's latency protection (`low_latency`, since Linux 2.6.32; `cfq_may_dispatch`): background requests go one at
    /// a time, plus one more for each such span since a foreground request was last in the queue, up to
    /// `background_depth`. The span is CFQ's `slice_sync`, 100 ms. `None`: always `background_depth`.
    pub background_ramp: Option<SimDuration>,
    /// Background requests that may wait (`nr_requests`, default 128). A task that submits more must wait.
    pub background_waiting_max: usize,
    /// A request waiting for the device can still grow (mq-deadline, as on SATA drives). Otherwise only writes
    /// submitted at the same instant are merged (the plug).
    pub merges_waiting: bool,
    /// After this many foreground requests in a row, one background request goes first.
    pub starvation_limit: u32,
    /// Linux's block layer since 4.10, for a drive with room for all of its requests (blk-mq over virtio, NVMe): there
    /// are no classes, commands reach the drive in order, those that one task submits at one instant together
    /// (`blk_plug`), and write-back is throttled before it is queued. `None`: the classes above.
    pub write_throttle: Option<WriteThrottleConfig>,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            max_request: Bytes::kib(512),
            background_depth: 4,
            background_ramp: None,
            background_waiting_max: 128,
            merges_waiting: true,
            starvation_limit: 16,
            write_throttle: None,
        }
    }
}

type OnDone = Box<dyn FnOnce(SimDuration)>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Read(UnitRange),
    Write(UnitRange, Content),
    ReadPart(SectorRange),
    WritePart(SectorRange, Content),
    Trim(Vec<UnitRange>),
    Flush,
}

impl Command {
    fn moves(&self) -> Option<Bytes> {
        match self {
            Self::Read(range) | Self::Write(range, _) => Some(Bytes(range.units * UNIT_BYTES)),
            Self::ReadPart(part) | Self::WritePart(part, _) => Some(part.bytes()),
            Self::Trim(_) | Self::Flush => None,
        }
    }

    fn is_trim(&self) -> bool {
        matches!(self, Self::Trim(_))
    }

    fn kind(&self) -> Kind {
        match self {
            Self::Read(_) | Self::Write(..) | Self::ReadPart(_) | Self::WritePart(..) => Kind::Transfer,
            Self::Trim(_) => Kind::Trim,
            Self::Flush => Kind::Flush,
        }
    }
}

/// Stage of a command in a block trace (blktrace: D and C).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Dispatched,
    /// The device has acknowledged the command; its submitter has not been told yet.
    Completed,
}

/// Called with each command and its time. It must not submit commands.
pub(crate) type Tracer = Box<dyn FnMut(SimTime, Stage, &Command)>;

struct Request {
    command: Command,
    background: bool,
    queued: SimTime,
    /// Number of bios: requests as the file system submitted them, before merging.
    bios: u64,
    on_done: Vec<OnDone>,
}

impl Request {
    /// Returns true if a task waits for the end of the command. TRIMs do not count.
    fn is_waited_for(&self) -> bool {
        !self.background && !self.command.is_trim()
    }
}

#[derive(Default)]
struct State {
    foreground: VecDeque<Request>,
    background: VecDeque<Request>,
    in_device: usize,
    background_in_device: usize,
    /// A command that must run alone is in the device.
    exclusive: bool,
    foreground_streak: u32,
    foreground_in_device: usize,
    /// When a foreground request was last in the queue or in the device.
    foreground_seen: SimTime,
    /// Requests other than TRIMs, waiting or in the device.
    requests: u32,
    /// Since when `requests` has not been zero.
    requests_since: SimTime,
    request_seen: SimTime,
    /// Completed requests other than TRIMs.
    requests_done: u64,
    /// Counts of what has completed. [`Counts::waited`] lacks the time since `waiting_since`.
    counts: Counts,
    /// Requests for which a task waits, and since when there have been some.
    waiting: u32,
    waiting_since: SimTime,
    /// When the last of them was served.
    waiting_seen: SimTime,
    /// Throttles write-back and TRIMs. With it, all requests are in the foreground queue.
    throttle: Option<WriteThrottle>,
    /// TRIMs that the throttle has not let into the queue yet.
    held_trims: VecDeque<Request>,
    is_plugged: bool,
}

impl State {
    /// Queues a foreground request, or holds a TRIM until the throttle lets it go. Held TRIMs keep their order.
    fn submit(&mut self, request: Request) {
        if self.throttle.is_none() || !request.command.is_trim() {
            return self.enter(request);
        }
        let now = request.queued;
        self.held_trims.push_back(request);
        if self.held_trims.len() == 1 {
            self.release_trims(now);
        }
    }

    fn release_trims(&mut self, now: SimTime) {
        while let Some(throttle) = &mut self.throttle
            && throttle.has_room_for_trim(now)
            && let Some(request) = self.held_trims.pop_front()
        {
            throttle.trim_queued(now);
            self.enter(request);
        }
    }

    fn enter(&mut self, request: Request) {
        if !request.command.is_trim() {
            if self.requests == 0 {
                // A request that a target held back was queued while others were served.
                self.requests_since = request.queued.max(self.request_seen);
            }
            self.requests += 1;
        }
        if request.is_waited_for() {
            if self.waiting == 0 {
                self.waiting_since = request.queued.max(self.waiting_seen);
            }
            self.waiting += 1;
        }
        if let Some(throttle) = &mut self.throttle {
            if request.background {
                throttle.queued(request.queued);
            }
            if matches!(request.command, Command::Read(_)) {
                throttle.read_issued(request.queued);
            }
            return self.foreground.push_back(request);
        }
        let class = if request.background { &mut self.background } else { &mut self.foreground };
        class.push_back(request);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    pub requests: u32,
    /// How long there have been no requests; zero while there are some.
    pub quiet: SimDuration,
    /// Requests that have completed, counted as they were submitted: before merging.
    pub done: u64,
}

/// Counts that a host sees in `/sys/block/DEVICE/stat` and `/proc/pressure/io`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub served: Served,
    pub in_device: u64,
    /// Time in which some task waited for a read, a synchronous write or a flush.
    pub waited: SimDuration,
}

struct Inner {
    sim: Sim,
    config: QueueConfig,
    admission: Admission,
    drive: RefCell<Drive>,
    state: RefCell<State>,
    room: Event,
    content: Cell<Content>,
    tracer: RefCell<Option<Tracer>>,
    target: RefCell<Option<Rc<Target>>>,
    /// The volume of thin storage between this queue and the drive, if there is one.
    thin: RefCell<Option<ThinVolume>>,
}

/// A device with its request queue. Cheap to clone: all clones are the same queue.
#[derive(Clone)]
pub struct BlockQueue(Rc<Inner>);

impl BlockQueue {
    pub fn new(sim: &Sim, drive: impl Into<Drive>, config: QueueConfig) -> Self {
        let drive = drive.into();
        Self(Rc::new(Inner {
            sim: sim.clone(),
            config,
            admission: Admission::of(drive.ssd().config()),
            drive: RefCell::new(drive),
            state: RefCell::new(State {
                throttle: config.write_throttle.map(WriteThrottle::new),
                ..State::default()
            }),
            room: Event::new(sim),
            content: Cell::default(),
            tracer: RefCell::default(),
            target: RefCell::default(),
            thin: RefCell::default(),
        }))
    }

    pub fn sim(&self) -> &Sim {
        &self.0.sim
    }

    /// Sets the content that a file system writes from now on, for a drive that compresses.
    pub(crate) fn set_content(&self, content: Content) {
        self.0.content.set(content);
    }

    /// Puts a new volume of thin storage on the drive.
    pub fn put_thin(&self, config: ThinConfig) {
        let units = self.with_ssd(Ssd::capacity_units);
        *self.0.thin.borrow_mut() = Some(ThinVolume::new(config, units));
    }

    pub(crate) fn put_thin_volume(&self, volume: Option<ThinVolume>) {
        *self.0.thin.borrow_mut() = volume;
    }

    /// Looks at the volume of thin storage on the drive; `None` if there is none.
    pub fn with_thin<T>(&self, look: impl FnOnce(&mut ThinVolume, SimTime) -> T) -> Option<T> {
        self.0.thin.borrow_mut().as_mut().map(|volume| look(volume, self.0.sim.now()))
    }

    fn thin_config(&self) -> Option<ThinConfig> {
        self.0.thin.borrow().as_ref().map(|volume| *volume.config())
    }

    /// The granularity of discards that the file system sees (`discard_granularity`).
    pub(crate) fn discard_granularity_units(&self) -> u64 {
        let of_drive = || self.with_ssd(|ssd| u64::from(ssd.config().trim.granularity_units));
        self.thin_config().map_or_else(of_drive, |thin| thin.granularity_units())
    }

    /// The transfer size that the device recommends (`optimal_io_size`), in units; 0: none.
    pub(crate) fn optimal_units(&self) -> u64 {
        self.thin_config().map_or(0, |thin| thin.optimal_units())
    }

    /// Tells the drive of free space at no cost, past its commands.
    pub(crate) fn reveal(&self, range: UnitRange) {
        let back = self.with_thin(|volume, now| volume.reveal(now, range));
        self.with_ssd_mut(|ssd| {
            back.unwrap_or(vec![range]).into_iter().for_each(|part| ssd.inform_free(part))
        });
    }

    pub(crate) fn admission(&self) -> Admission {
        self.0.admission
    }

    /// Looks at the device's state: statistics, mapping, configuration.
    pub fn with_ssd<T>(&self, look: impl FnOnce(&Ssd) -> T) -> T {
        look(self.0.drive.borrow().ssd())
    }

    /// Changes the device past its commands, as the oracle of `ideal` does.
    pub fn with_ssd_mut<T>(&self, change: impl FnOnce(&mut Ssd) -> T) -> T {
        change(self.0.drive.borrow_mut().ssd_mut())
    }

    pub fn drive(&self) -> std::cell::Ref<'_, Drive> {
        self.0.drive.borrow()
    }

    /// Takes the drive out of the queue; `None` if another handle exists, for example in a command in flight.
    pub fn into_drive(self) -> Option<Drive> {
        Rc::into_inner(self.0).map(|inner| inner.drive.into_inner())
    }

    /// Erases the device, bypassing the queue. Returns when it is done.
    pub fn secure_erase(&self) -> SimTime {
        self.0.drive.borrow_mut().secure_erase(self.0.sim.now())
    }

    /// Passes every command from now on to `tracer`, as blktrace does; `None` stops tracing.
    pub fn trace(&self, tracer: Option<Tracer>) {
        *self.0.tracer.borrow_mut() = tracer;
    }

    fn note(&self, stage: Stage, command: &Command) {
        if let Some(tracer) = &mut *self.0.tracer.borrow_mut() {
            tracer(self.0.sim.now(), stage, command);
        }
    }

    /// Reads `range`, and waits until the data are there.
    pub async fn read(&self, range: UnitRange) {
        self.foreground(self.split(range).map(Command::Read)).await;
    }

    /// Writes `range` in the foreground, and waits until the device has acknowledged all of it.
    pub async fn write(&self, range: UnitRange) {
        self.foreground(self.split(range).map(|piece| Command::Write(piece, self.0.content.get()))).await;
    }

    /// Writes zeros as the kernel does for a caller that gives it none (`BLKZEROOUT`). Waits as [`BlockQueue::write`].
    pub(crate) async fn write_zeros(&self, range: UnitRange) {
        if !self.thin_config().is_some_and(|thin| thin.zeros_take_nothing()) {
            self.write(range).await;
        }
    }

    /// Writes `range` as a journal does: block by block. The blocks then merge.
    pub(crate) async fn write_by_block(&self, range: UnitRange) {
        let commands = self.split(range).map(|piece| Command::Write(piece, self.0.content.get()));
        let enter = |queue: &Self, request: Request| {
            let bios = if let Command::Write(range, _) = &request.command { range.units } else { 1 };
            queue.route(Request { bios, ..request });
        };
        self.submitted(commands, enter).await;
    }

    pub async fn flush(&self) {
        self.foreground(std::iter::once(Command::Flush)).await;
    }

    /// Empties the write cache before a write that asks for it (`REQ_PREFLUSH`). Below the device mapper of Linux 6.12
    /// a drive without FUA then gets two flushes.
    pub(crate) async fn flush_ahead(&self) {
        self.flush().await;
        if self.target().is_some() {
            self.flush_behind().await;
        }
    }

    /// Empties the write cache after a write that must be durable (`REQ_FUA`). File system and target see that flush as
    /// a part of the write.
    pub(crate) async fn flush_behind(&self) {
        let enter = |queue: &Self, request: Request| queue.route(Request { bios: 0, ..request });
        self.submitted([Command::Flush], enter).await;
    }

    /// Discards `ranges`, submitted together, and waits until the device has acknowledged all commands.
    pub async fn trim(&self, ranges: &[UnitRange]) {
        self.foreground(self.trim_commands(ranges)).await;
    }

    pub(super) fn trim_commands(&self, ranges: &[UnitRange]) -> Vec<Command> {
        let commands = match self.thin_config() {
            None => discard::commands(&self.0.drive.borrow().ssd().config().trim, ranges),
            // Nothing joins the bios of a volume.
            Some(thin) => ranges.iter().flat_map(|&range| thin.bios(range)).map(|bio| vec![bio]).collect(),
        };
        commands.into_iter().map(Command::Trim).collect()
    }

    /// Discards `ranges` in as few commands as the device's limits allow, for a policy that fills its commands. Linux
    /// does so only on NVMe. Returns how long the device took, without the time in the queue.
    pub(crate) async fn trim_as_one(&self, ranges: &[UnitRange]) -> SimDuration {
        if self.thin_config().is_some() {
            return self.foreground(self.trim_commands(ranges)).await;
        }
        let commands = discard::filled_commands(&self.0.drive.borrow().ssd().config().trim, ranges);
        self.foreground(commands.into_iter().map(Command::Trim)).await
    }

    pub fn load(&self) -> Load {
        let state = self.0.state.borrow();
        let requests = state.requests;
        let quiet = if requests > 0 { SimDuration::ZERO } else { self.0.sim.now().since(state.request_seen) };
        Load { requests, quiet, done: state.requests_done }
    }

    pub fn counts(&self) -> Counts {
        let state = self.0.state.borrow();
        let until_now = |is: bool, since| if is { self.0.sim.now().since(since) } else { SimDuration::ZERO };
        let Counts { served, waited, .. } = state.counts;
        let busy = served.busy + until_now(state.requests > 0, state.requests_since);
        Counts {
            served: Served { busy, ..served },
            in_device: state.in_device as u64,
            waited: waited + until_now(state.waiting > 0, state.waiting_since),
        }
    }

    /// Starts a read and calls `on_done` at its end. For read-ahead, whose data may never be needed.
    pub fn submit_read(&self, range: UnitRange, on_done: impl FnOnce() + 'static) {
        let request = Request {
            command: Command::Read(range),
            background: false,
            queued: self.0.sim.now(),
            bios: 1,
            on_done: vec![Box::new(|_| on_done())],
        };
        self.0.state.borrow_mut().enter(request);
        self.dispatch();
    }

    /// Starts a background write of at most [`QueueConfig::max_request`] and calls `on_done` at its end.
    ///
    /// A write that continues the one queued last is merged with it.
    pub fn submit_background_write(&self, range: UnitRange, on_done: impl FnOnce() + 'static) {
        match self.target() {
            None => self.write_in_background(range, on_done),
            Some(target) => target.write(self, range, move |queue| queue.write_in_background(range, on_done)),
        }
    }

    fn write_in_background(&self, range: UnitRange, on_done: impl FnOnce() + 'static) {
        let mut state = self.0.state.borrow_mut();
        let limit = self.0.config.max_request.units_floor();
        let grows = self.0.config.merges_waiting || state.is_plugged;
        let queue = if state.throttle.is_some() { &mut state.foreground } else { &mut state.background };
        if grows
            && let Some(Request {
                command: Command::Write(last, _),
                on_done: waiting,
                background: true,
                bios,
                ..
            }) = queue.back_mut()
            && last.end() == range.start
            && last.units + range.units <= limit
        {
            last.units += range.units;
            *bios += 1;
            waiting.push(Box::new(|_| on_done()));
            return;
        }
        state.enter(Request {
            command: Command::Write(range, self.0.content.get()),
            background: true,
            queued: self.0.sim.now(),
            bios: 1,
            on_done: vec![Box::new(|_| on_done())],
        });
        if state.throttle.is_none() {
            drop(state);
            return self.dispatch();
        }
        if !std::mem::replace(&mut state.is_plugged, true) {
            drop(state);
            let queue = self.clone();
            self.0.sim.spawn(async move {
                queue.0.state.borrow_mut().is_plugged = false;
                queue.dispatch();
            });
        }
    }

    /// Notes that a writer pauses because too much memory is dirty: more write-back may be queued.
    pub(crate) fn writer_paused(&self) {
        let now = self.0.sim.now();
        if let Some(throttle) = &mut self.0.state.borrow_mut().throttle {
            throttle.writer_paused(now);
        }
    }

    /// Waits while the background queue is full (Linux: congestion).
    pub(crate) async fn wait_for_room(&self) {
        loop {
            let now = self.0.sim.now();
            match self.0.state.borrow_mut().throttle.as_mut().map(|throttle| throttle.has_room(now)) {
                None => break,
                Some(true) => return,
                Some(false) => {}
            }
            self.0.room.wait().await;
        }
        while self.0.state.borrow().background.len() >= self.0.config.background_waiting_max {
            self.0.room.wait().await;
        }
    }

    /// Splits `range` into pieces that fit in a request.
    pub fn split(&self, range: UnitRange) -> impl Iterator<Item = UnitRange> + use<> {
        range.pieces(self.0.config.max_request.units_floor().max(1))
    }

    /// Submits commands and waits for them. Returns the total time that the device took.
    async fn foreground(&self, commands: impl IntoIterator<Item = Command>) -> SimDuration {
        self.submitted(commands, Self::route).await
    }

    /// Discards `ranges` as [`BlockQueue::trim`] does, but below the target.
    async fn trim_below_target(&self, ranges: &[UnitRange]) {
        self.submitted(self.trim_commands(ranges), Self::enter).await;
    }

    async fn submitted(
        &self,
        commands: impl IntoIterator<Item = Command>,
        enter: fn(&Self, Request),
    ) -> SimDuration {
        let done = Event::new(&self.0.sim);
        let (told, ended) = (done.clone(), Rc::new(Cell::new(None)));
        let end = Rc::clone(&ended);
        let on_done = move |service| {
            end.set(Some(service));
            told.notify_all();
        };
        self.submit_by(commands, on_done, enter);
        loop {
            if let Some(service) = ended.get() {
                return service;
            }
            done.wait().await;
        }
    }

    /// Queues foreground commands. Calls `on_done` when the last has completed, with the total time that the device
    /// took; at once if there are none.
    pub fn submit(
        &self,
        commands: impl IntoIterator<Item = Command>,
        on_done: impl FnOnce(SimDuration) + 'static,
    ) {
        self.submit_by(commands, on_done, Self::route);
    }

    fn submit_by(
        &self,
        commands: impl IntoIterator<Item = Command>,
        on_done: impl FnOnce(SimDuration) + 'static,
        enter: fn(&Self, Request),
    ) {
        let commands: Vec<Command> = commands.into_iter().collect();
        if commands.is_empty() {
            return on_done(SimDuration::ZERO);
        }
        let left = Rc::new(Cell::new((commands.len(), SimDuration::ZERO)));
        let on_done = Rc::new(Cell::new(Some(on_done)));
        for command in commands {
            let (left, on_done) = (Rc::clone(&left), Rc::clone(&on_done));
            let count = Box::new(move |took| {
                let (others, sum) = (left.get().0 - 1, left.get().1 + took);
                left.set((others, sum));
                if let Some(on_done) = (others == 0).then(|| on_done.take()).flatten() {
                    on_done(sum);
                }
            });
            let (queued, on_done) = (self.0.sim.now(), vec![count as OnDone]);
            enter(self, Request { command, background: false, queued, bios: 1, on_done });
        }
        self.dispatch();
    }

    fn route(&self, request: Request) {
        let written = match &request.command {
            Command::Write(range, _) => *range,
            Command::WritePart(part, _) => part.units(),
            Command::Trim(_) => UnitRange::new(Lpn(0), 0),
            Command::Read(_) | Command::ReadPart(_) | Command::Flush => return self.enter(request),
        };
        match (self.target(), request) {
            (None, request) => self.enter(request),
            (Some(target), Request { command: Command::Trim(ranges), on_done, .. }) => {
                target.discard(self, &ranges, on_done);
            }
            (Some(target), request) => target.write(self, written, move |queue| queue.enter(request)),
        }
    }

    fn enter(&self, request: Request) {
        match request {
            Request { command: Command::Trim(ranges), on_done, .. } if self.thin_config().is_some() => {
                self.discard_in_thin(&ranges, on_done);
            }
            request => self.enter_drive(request),
        }
    }

    fn enter_drive(&self, request: Request) {
        self.0.state.borrow_mut().submit(request);
    }

    /// Takes a discard out of the volume of thin storage, and passes on to the drive what came back.
    fn discard_in_thin(&self, bios: &[UnitRange], on_done: Vec<OnDone>) {
        let discard =
            |volume: &mut ThinVolume, now| bios.iter().flat_map(|&bio| volume.discard(now, bio)).collect();
        let back: Vec<UnitRange> = self.with_thin(discard).unwrap_or_default();
        let commands = discard::commands(&self.0.drive.borrow().ssd().config().trim, &back);
        let end = move |took| on_done.into_iter().for_each(|on_done| on_done(took));
        self.submit_by(commands.into_iter().map(Command::Trim), end, Self::enter_drive);
    }

    /// Hands requests to the device until the device or the rules allow no more.
    fn dispatch(&self) {
        while let Some(request) = self.next_request() {
            self.note(Stage::Dispatched, &request.command);
            let now = self.0.sim.now();
            if let Some(volume) = &mut *self.0.thin.borrow_mut() {
                match &request.command {
                    Command::Write(range, _) => volume.write(now, *range),
                    Command::WritePart(part, _) => volume.write(now, part.units()),
                    Command::Read(_) | Command::ReadPart(_) | Command::Trim(_) | Command::Flush => {}
                }
            }
            let mut drive = self.0.drive.borrow_mut();
            let end = match &request.command {
                Command::Read(range) => drive.read(now, *range),
                Command::Write(range, content) => drive.write(now, *range, *content),
                Command::ReadPart(part) => drive.read_part(now, *part),
                Command::WritePart(part, content) => drive.write_part(now, *part, *content),
                Command::Trim(ranges) => drive.trim(now, ranges),
                Command::Flush => drive.flush(now),
            };
            drop(drive);
            let queue = self.clone();
            self.0.sim.spawn(async move {
                queue.0.sim.sleep_until(end).await;
                queue.complete(request, now);
            });
        }
    }

    fn next_request(&self) -> Option<Request> {
        let admission = self.0.admission;
        let mut guard = self.0.state.borrow_mut();
        let state = &mut *guard;
        if state.exclusive || !admission.has_room(state.in_device) {
            return None;
        }
        let now = self.0.sim.now();
        if state.foreground_in_device > 0 || !state.foreground.is_empty() {
            state.foreground_seen = now;
        }
        let quiet = now.since(state.foreground_seen);
        let background_may_go =
            !state.background.is_empty() && state.background_in_device < self.background_depth(quiet);
        let starved = background_may_go && state.foreground_streak >= self.0.config.starvation_limit;
        if let Some(first) = state.foreground.front()
            && !starved
        {
            if admission.runs_alone(first.command.kind()) {
                if state.in_device > 0 {
                    return None; // the queue drains; nothing may overtake
                }
                state.exclusive = true;
            }
            state.foreground_streak += 1;
            state.foreground_in_device += 1;
            state.in_device += 1;
            return state.foreground.pop_front();
        }
        if !background_may_go {
            return None;
        }
        state.foreground_streak = 0;
        state.in_device += 1;
        state.background_in_device += 1;
        state.background.pop_front()
    }

    /// Tells the throttle of a completed request. Returns true if tasks that wait to queue write-back must be woken.
    fn tell_throttle(&self, request: &Request) -> bool {
        let now = self.0.sim.now();
        let state = &mut *self.0.state.borrow_mut();
        let Some(throttle) = &mut state.throttle else { return true };
        match request.command {
            Command::Read(_) => throttle.read_done(now, request.queued),
            Command::Write(..) => throttle.write_done(now),
            Command::Trim(_) => {
                throttle.write_done(now);
                if throttle.trim_completed() {
                    state.release_trims(now);
                }
                return false;
            }
            _ => {}
        }
        request.background && throttle.completed(now)
    }

    fn background_depth(&self, quiet: SimDuration) -> usize {
        let QueueConfig { background_depth, background_ramp, .. } = self.0.config;
        match background_ramp {
            Some(span) => background_depth.min((quiet.as_nanos() / span.as_nanos().max(1)) as usize).max(1),
            None => background_depth,
        }
    }

    fn complete(&self, request: Request, dispatched: SimTime) {
        self.note(Stage::Completed, &request.command);
        {
            let mut state = self.0.state.borrow_mut();
            state.in_device -= 1;
            state.exclusive = false;
            let now = self.0.sim.now();
            if !request.command.is_trim() {
                state.requests -= 1;
                state.request_seen = now;
                if state.requests == 0 {
                    let since = now.since(state.requests_since);
                    state.counts.served.busy += since;
                }
                state.requests_done += request.bios;
            }
            if let Some(bytes) = request.command.moves() {
                let served = &mut state.counts.served;
                served.requests += 1;
                served.bytes.0 += bytes.0;
                served.time += now.since(request.queued);
            }
            if request.is_waited_for() {
                state.waiting -= 1;
                if state.waiting == 0 {
                    let since = now.since(state.waiting_since);
                    state.counts.waited += since;
                    state.waiting_seen = now;
                }
            }
            if request.background && state.throttle.is_none() {
                state.background_in_device -= 1;
            } else {
                state.foreground_in_device -= 1;
                state.foreground_seen = self.0.sim.now();
            }
        }
        let has_room = self.tell_throttle(&request);
        for on_done in request.on_done {
            on_done(self.0.sim.now().since(dispatched));
        }
        if request.background && has_room {
            // Wake all, not one: the task that is woken may have nothing left to submit.
            self.0.room.notify_all();
        }
        self.dispatch();
    }
}

#[cfg(test)]
mod tests;
