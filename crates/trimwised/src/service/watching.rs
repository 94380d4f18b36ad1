//! Frees that are seen as they happen: the watcher, and which file systems hear of it.

use std::collections::{BTreeMap, BTreeSet};

use super::Service;
use crate::frees::{TRACING, Watcher, tracepoint};
use crate::managed::Managed;
use crate::speak::warn;

/// The watcher, or why there is none.
#[derive(Default)]
pub struct Watching {
    pub watcher: Option<Watcher>,
    pub problem: Option<String>,
}

impl Service {
    /// Begins to watch, if the configuration wants it and it was not possible before; ends it, if not.
    pub(super) fn watch(&mut self) {
        // What only looks changes nothing, and who trims everything once has no use for it.
        if !self.config.tracepoints || self.options.dry_run || self.options.once {
            return self.watching = Watching::default();
        }
        if let Some(Err(problem)) = self.watching.watcher.as_ref().map(Watcher::check) {
            self.unwatched(problem);
        }
        if self.watching.watcher.is_none() {
            let tracing = self.options.places.host.path(TRACING);
            let no_folder = "the state folder, after which the trace instance is named, does not answer";
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
    }

    /// Watches what is managed and has maps: a file system is watched before its first map is read, or from then on.
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

    /// Tells each file system what was freed on it. Before helpers are heard, so that what they saw is not taken for newer
    /// than it is.
    pub(super) fn hear_frees(&mut self) {
        let Some(watcher) = &mut self.watching.watcher else { return };
        let heard = watcher.hear();
        for (numbers, freed) in &heard.freed {
            if let Some(one) = self.managed.get_mut(numbers) {
                one.freed(freed);
            }
        }
        if !heard.failed.is_empty() {
            let name = |numbers: &(u32, u32)| {
                let link = format!("/sys/dev/block/{}:{}", numbers.0, numbers.1);
                Some(std::fs::read_link(link).ok()?.file_name()?.to_string_lossy().into_owned())
            };
            let disks: BTreeSet<String> = heard.failed.iter().filter_map(name).collect();
            self.managed.values_mut().for_each(|one| one.discards_failed(&disks));
        }
        if heard.lost > 0 {
            // Whose they were cannot be said.
            self.managed.values_mut().filter_map(|one: &mut Managed| one.live.as_mut()).for_each(|live| {
                if live.are_frees_watched() {
                    live.frees_lost(heard.lost);
                }
            });
        }
    }
}
