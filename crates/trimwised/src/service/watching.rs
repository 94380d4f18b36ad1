//! Watches frees as they happen, and passes them to the file systems.

use std::collections::{BTreeMap, BTreeSet};

use trimwise_linux::block_device::SysBlock;
use trimwise_linux::host_root::HostRoot;

use super::Service;
use crate::frees::{Watcher, tracepoint};
use crate::managed::Managed;
use crate::speak::warn;
use trimwise::units::Span;
use trimwise_linux::tracefs::TRACING;
use trimwise_linux::trim::FailedPart;

#[derive(Default)]
pub(crate) struct Watching {
    pub watcher: Option<Watcher>,
    pub problem: Option<String>,
}

impl Service {
    /// Starts or stops watching, as configured; retries if it was not possible before.
    pub(super) fn watch(&mut self) {
        if !self.config.tracepoints || self.options.dry_run {
            return self.watching = Watching::default();
        }
        if let Some(Err(problem)) = self.watching.watcher.as_ref().map(Watcher::check) {
            self.unwatched(problem);
        }
        if self.watching.watcher.is_none() {
            let tracing = self.options.places.host.path(TRACING);
            let no_folder = "the state folder, which names the trace instance, does not respond";
            let opened = self.state.folder.ok_or_else(|| no_folder.to_owned());
            match opened.and_then(|state| Watcher::open(&tracing, state)) {
                Ok(watcher) => self.watching = Watching { watcher: Some(watcher), problem: None },
                Err(problem) => self.unwatched(problem),
            }
        }
    }

    fn unwatched(&mut self, problem: String) {
        if self.watching.problem.as_ref() != Some(&problem) {
            warn(&format!("frees are not seen as they happen: {problem}"));
        }
        self.watching = Watching { watcher: None, problem: Some(problem) };
        self.managed.values_mut().for_each(Managed::failures_unseen);
    }

    /// Selects the file systems to watch: managed ones with maps. A file system is watched before its first map is
    /// read, or from then on.
    pub(super) fn choose_watched(&mut self) {
        let wanted: BTreeMap<_, _> = self
            .managed
            .iter()
            .filter(|(_, one)| one.has_maps() && tracepoint(one.kind()).is_some())
            .map(|(&numbers, one)| (numbers, one.kind()))
            .collect();
        if let Some(Err(problem)) = self.watching.watcher.as_mut().map(|watcher| watcher.watch(wanted)) {
            self.unwatched(problem);
        }
        let watcher = self.watching.watcher.as_ref();
        for (&numbers, one) in &mut self.managed {
            if let Some(live) = &mut one.live {
                live.watch_frees(watcher.is_some_and(|watcher| watcher.is_watched(numbers)));
            }
        }
    }

    /// Passes the frees to their file systems. Called before helpers are read, so that their maps do not seem newer
    /// than they are.
    pub(super) fn hear_frees(&mut self) {
        let Some(watcher) = &mut self.watching.watcher else { return };
        let heard = watcher.hear();
        for (numbers, freed) in &heard.freed {
            if let Some(one) = self.managed.get_mut(numbers) {
                one.freed(freed);
            }
        }
        let name =
            |numbers: &(u32, u32)| Some(SysBlock::of_numbers(&HostRoot::default(), *numbers).ok()?.name());
        let names = |numbers: &BTreeSet<_>| numbers.iter().filter_map(name).collect::<BTreeSet<String>>();
        if !(heard.failed.is_empty() && heard.refused.is_empty()) {
            let part =
                |(&device, sectors): (_, &Vec<Span>)| FailedPart::of(&HostRoot::default(), device, sectors);
            let failed: Vec<FailedPart> = heard.failed.iter().filter_map(part).collect();
            let refused = names(&heard.refused);
            self.managed.values_mut().for_each(|one| one.discards_failed(&failed, &refused));
        }
        if heard.lost > 0 {
            // It is unknown whose failures were lost.
            self.managed.values_mut().for_each(Managed::failures_unseen);
            self.managed.values_mut().filter_map(|one: &mut Managed| one.live.as_mut()).for_each(|live| {
                if live.are_frees_watched() {
                    live.frees_lost(heard.lost);
                }
            });
        }
    }
}
