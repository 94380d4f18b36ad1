//! Functions that the page calls.
//!
//! Written by hand instead of by `wasm-bindgen`: the page needs eight functions over numbers and text, and a generator
//! would have to be installed in the version that matches the crate, to generate more JavaScript than the page has now.
//! No function here reads or writes through a pointer. Text passes through two buffers that this module owns; the page
//! finds them by [`trimwise_input`] and [`trimwise_output`] and reads or fills them in the module's memory.

// `no_mangle` is unsafe because two functions of one name would replace each other. All names here start with
// `trimwise_`, and no other linked crate exports any. There is no other unsafe code.
#![allow(unsafe_code)]

use std::cell::RefCell;

use crate::scene::{Catalogue, Scene, Settings};
use trimwise::units::SimDuration;

const SIDES: usize = 2;

#[derive(Default)]
struct Page {
    scenes: [Option<Scene>; SIDES],
    input: Vec<u8>,
    output: Vec<u8>,
}

thread_local! {
    static PAGE: RefCell<Page> = RefCell::default();
}

/// Calls `act` with the scene of a side; returns `nothing` if there is none.
fn with_scene<T>(side: u32, nothing: T, act: impl FnOnce(&mut Scene, &mut Vec<u8>) -> T) -> T {
    PAGE.with_borrow_mut(|page| match page.scenes.get_mut(side as usize) {
        Some(Some(scene)) => act(scene, &mut page.output),
        _ => nothing,
    })
}

/// Makes room for `bytes` of input, and returns its address.
#[unsafe(no_mangle)]
pub extern "C" fn trimwise_input(bytes: u32) -> *mut u8 {
    PAGE.with_borrow_mut(|page| {
        page.input = vec![0; bytes as usize];
        page.input.as_mut_ptr()
    })
}

/// Returns the address of the last output. The call that wrote it has returned its length.
#[unsafe(no_mangle)]
pub extern "C" fn trimwise_output() -> *const u8 {
    PAGE.with_borrow(|page| page.output.as_ptr())
}

/// Writes the version, policies, workloads, drives and limits as JSON. Returns its length in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn trimwise_catalogue() -> u32 {
    let json = serde_json::to_vec(&Catalogue::new()).unwrap_or_default();
    PAGE.with_borrow_mut(|page| {
        page.output = json;
        page.output.len() as u32
    })
}

/// Starts a scene on a side (0 or 1) from the settings in the input. Returns 0, or the length of an error message.
#[unsafe(no_mangle)]
pub extern "C" fn trimwise_open(side: u32) -> u32 {
    PAGE.with_borrow_mut(|page| {
        let opened = Settings::from_json(&page.input).and_then(|settings| Scene::new(&settings));
        let Some(place) = page.scenes.get_mut(side as usize) else { return 0 };
        match opened {
            Ok(scene) => {
                *place = Some(scene);
                0
            }
            Err(e) => {
                *place = None;
                page.output = e.to_string().into_bytes();
                page.output.len() as u32
            }
        }
    })
}

/// Advances virtual time by at most `ms` milliseconds, but not past the start of the workload, nor past `until_ms` of
/// its time. Returns the workload's time in milliseconds; -1 while the file system is being prepared, -2 if the scene
/// has failed.
#[unsafe(no_mangle)]
pub extern "C" fn trimwise_advance(side: u32, ms: f64, until_ms: f64) -> f64 {
    let span = |ms: f64| SimDuration::from_nanos((ms.max(0.0) * 1e6) as u64);
    with_scene(side, -2.0, |scene, _| {
        scene.advance(span(ms), span(until_ms));
        match (scene.failure(), scene.elapsed()) {
            (Some(_), _) => -2.0,
            (None, None) => -1.0,
            (None, Some(elapsed)) => elapsed.as_nanos() as f64 / 1e6,
        }
    })
}

/// Writes each superblock as [`BlockView::WORDS`](crate::scene::BlockView::WORDS) little-endian numbers of 32 bits.
/// Returns the length in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn trimwise_blocks(side: u32) -> u32 {
    with_scene(side, 0, |scene, output| {
        output.clear();
        for block in scene.blocks() {
            block.words().iter().for_each(|word| output.extend(word.to_le_bytes()));
        }
        output.len() as u32
    })
}

/// Writes the current counters, and the samples from number `from` on, as JSON. Returns its length in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn trimwise_report(side: u32, from: u32) -> u32 {
    with_scene(side, 0, |scene, output| {
        *output = serde_json::to_vec(&scene.report(from as usize)).unwrap_or_default();
        output.len() as u32
    })
}
