//! The folder of a sweep.
//!
//! `_sweep.json` describes the sweep. `_cells` has a file for each finished cell ([`kept`]). `part-*.parquet` are made
//! from the cells. Readers of Parquet data sets skip names that begin with `_` or `.`.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use trimwise::compare::result::Cell;
use trimwise::failure::{Failure, Mistake};
use trimwise_linux::files::{UNFINISHED, Unread, read_own};
use trimwise_linux::kept::{self, CELL_BYTES_MAX, hash, write_whole};

use super::grid::{Description, Grid, Named};
use crate::place::check_directory;

const DESCRIPTION: &str = "_sweep.json";
const CELLS: &str = "_cells";

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Result(Box<Cell>),
    Error(String),
}

pub enum Found {
    Missing,
    /// The file is damaged, or belongs to another cell.
    Broken,
    Done(Outcome),
}

pub struct Folder {
    path: PathBuf,
    pub sweep: String,
    cells_per_part: u64,
}

impl Folder {
    /// Creates the folder, or opens one of this sweep. With `replaces`, the results of another sweep are removed.
    /// Results of an earlier content of the caller's own policy are always removed, since nobody has that file any
    /// more.
    pub fn open(path: &Path, grid: &Grid, replaces: bool) -> Result<Self, Failure> {
        let text = grid.description.text()?;
        let groups_per_part = (CELLS_PER_PART / grid.cells_per_group()).max(1);
        let folder = Self {
            path: path.to_owned(),
            sweep: hash(text.as_bytes()),
            cells_per_part: groups_per_part * grid.cells_per_group(),
        };
        let check = || {
            folder.expect_same(&text, &grid.description)?;
            folder.expect_own_parts(grid.description.cells)
        };
        let mut checked = check();
        let is_replaced = replaces || folder.is_of_former_own(&grid.description);
        if checked.is_err() && is_replaced && folder.empty()? {
            checked = check();
        }
        checked.map(|()| folder)
    }

    /// Returns whether the folder's sweep differs only in the content of the caller's own policy.
    fn is_of_former_own(&self, description: &Description) -> bool {
        let there = read_own(&self.path.join(DESCRIPTION), DESCRIPTION_BYTES_MAX).ok().flatten();
        let there = there.and_then(|text| serde_json::from_str::<Description>(&text).ok());
        let names = |own: &[Named]| own.iter().map(|named| named.name.clone()).collect::<Vec<_>>();
        there.is_some_and(|there| {
            !there.own.is_empty()
                && names(&there.own) == names(&description.own)
                && Description { own: description.own.clone(), ..there } == *description
        })
    }

    /// Returns whether the folder has the results of a sweep, of whatever version.
    pub fn is_of_sweep(path: &Path) -> bool {
        let there =
            read_own(&path.join(DESCRIPTION), DESCRIPTION_BYTES_MAX).ok().flatten().unwrap_or_default();
        // Every version records the number of cells.
        serde_json::from_str::<serde_json::Value>(&there).is_ok_and(|of| of["cells"].is_u64())
    }

    /// Removes the results of a sweep, and nothing else. Returns whether there were any.
    fn empty(&self) -> Result<bool, Failure> {
        let failed = |error: io::Error| self.refuse(&error.to_string());
        if !Self::is_of_sweep(&self.path) {
            return Ok(false);
        }
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name == CELLS {
                fs::remove_dir_all(entry.path()).map_err(failed)?;
            } else if name.starts_with("part-") && name.ends_with(".parquet") {
                fs::remove_file(entry.path()).map_err(failed)?;
            }
        }
        // Removed last, so that an interrupted removal can still be recognised.
        fs::remove_file(self.path.join(DESCRIPTION)).map_err(failed)?;
        Ok(true)
    }

    fn expect_same(&self, text: &str, description: &Description) -> Result<(), Failure> {
        check_directory("out", &self.path)?;
        let refuse = |why: String| self.refuse(&why);
        let failed = |error: io::Error| refuse(error.to_string());
        fs::create_dir_all(&self.path).map_err(failed)?;
        let path = self.path.join(DESCRIPTION);
        let is_begun = || fs::exists(&path).map_err(failed);
        if !is_begun()? {
            for entry in fs::read_dir(&self.path).map_err(failed)? {
                let name = entry.map_err(failed)?.file_name();
                let name = name.to_string_lossy();
                // The files may come from another shard that has begun since.
                if !(name.starts_with('.') || name == DESCRIPTION || is_begun()?) {
                    return Err(refuse(format!(
                        "holds {name} and is not the folder of a sweep; expected a new or empty folder, or one of this \
                         grid"
                    )));
                }
            }
            match write_whole(&path, text.as_bytes(), false) {
                Ok(()) => return Ok(()),
                // Another shard was faster.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(error)),
            }
        }
        let unknown = |why: &str| {
            refuse(format!("its {DESCRIPTION} {why}; expected the one that sweep wrote, or another folder"))
        };
        let there = match read_own(&path, DESCRIPTION_BYTES_MAX) {
            Ok(there) => there.unwrap_or_default(),
            Err(Unread::Wrong(why) | Unread::Failed(why)) => return Err(unknown(&why)),
        };
        if there == text {
            return Ok(());
        }
        let Ok(there) = serde_json::from_str::<Description>(&there) else {
            return Err(unknown("is not one that this version of trimwise writes"));
        };
        let difference = difference(&there, description);
        Err(refuse(format!(
            "holds the results of another sweep: {difference}; expected another folder, or the grid and build \
             of trimwise that made it"
        )))
    }

    /// Rejects foreign files that would be read as parts of the data set, and anything but a regular file in place of a
    /// part.
    fn expect_own_parts(&self, cells: u64) -> Result<(), Failure> {
        let failed = |error: io::Error| self.refuse(&error.to_string());
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(number) = name.strip_prefix("part-").and_then(|rest| rest.strip_suffix(".parquet"))
            else {
                continue;
            };
            let number = number.parse().ok().filter(|&number| name == part_name(number));
            let why = if number.is_none_or(|number| number >= self.parts(cells)) {
                format!("{name}, which is not part of this sweep but would be read with its results")
            } else if fs::metadata(entry.path()).is_ok_and(|found| !found.is_file()) {
                format!("{name}, which is not a regular file; expected a part of the results")
            } else {
                continue;
            };
            return Err(self.refuse(&format!("holds {why}; move it away or remove it")));
        }
        Ok(())
    }

    fn refuse(&self, why: &str) -> Failure {
        Mistake::of("out", self.path.display()).because(why).fail()
    }

    pub fn parts(&self, cells: u64) -> u64 {
        cells.div_ceil(self.cells_per_part)
    }

    pub fn cells_of(&self, part: u64, cells: u64) -> std::ops::Range<u64> {
        let begin = part * self.cells_per_part;
        begin..(begin + self.cells_per_part).min(cells)
    }

    fn cells_folder(&self, part: u64) -> PathBuf {
        self.path.join(CELLS).join(format!("{part:05}"))
    }

    fn cell_path(&self, cell: u64) -> PathBuf {
        self.cells_folder(cell / self.cells_per_part).join(format!("{cell:08}"))
    }

    fn name(&self, cell: u64) -> String {
        format!("sweep {}, cell {cell}", self.sweep)
    }

    pub fn look(&self, cell: u64) -> Result<Found, Failure> {
        let path = self.cell_path(cell);
        let failed = |error: io::Error| Failure::run(format!("{}: {error}", path.display()));
        match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Missing),
            Err(error) if error.kind() == ErrorKind::NotADirectory => {
                let file = path.ancestors().find(|path| path.exists()).unwrap_or(&path);
                return Err(misplaced(file, "a file", "a folder of finished cells"));
            }
            Err(error) => return Err(failed(error)),
            Ok(there) if there.is_dir() => {
                return Err(misplaced(&path, "a directory", "the file of a finished cell"));
            }
            // A link may lead to an endless file.
            Ok(there) if !there.is_file() || there.len() > CELL_BYTES_MAX => return Ok(Found::Broken),
            Ok(_) => {}
        }
        let bytes = fs::read(&path).map_err(failed)?;
        let body = kept::body(&self.name(cell), bytes);
        let outcome = body.and_then(|body| serde_json::from_str(&body).ok());
        Ok(outcome.map_or(Found::Broken, Found::Done))
    }

    /// Stores a finished cell.
    pub fn enter(&self, cell: u64, outcome: &Outcome) -> Result<(), Failure> {
        let path = self.cell_path(cell);
        let failed = |error: io::Error| Failure::run(format!("{}: {error}", path.display()));
        let body = serde_json::to_string(outcome).map_err(Failure::run)?;
        let text = kept::text(&self.name(cell), &body);
        fs::create_dir_all(self.cells_folder(cell / self.cells_per_part)).map_err(failed)?;
        match write_whole(&path, text.as_bytes(), true) {
            // Two runs of a cell have equal results.
            Err(_) if matches!(self.look(cell), Ok(Found::Done(_))) => Ok(()),
            written => written.map_err(failed),
        }
    }

    /// Number of cell files, damaged ones included.
    pub fn count(&self, cells: u64) -> u64 {
        let of = |part| {
            let entries = fs::read_dir(self.cells_folder(part)).into_iter().flatten().flatten();
            entries.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.')).count() as u64
        };
        (0..self.parts(cells)).map(of).sum()
    }

    /// Removes files that killed runs left incomplete. Call it only when every cell is there, since then nobody writes
    /// any.
    pub fn clean(&self, cells: u64) {
        for part in 0..self.parts(cells) {
            for entry in fs::read_dir(self.cells_folder(part)).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let name = name.to_string_lossy();
                if name.starts_with('.') && name.ends_with(UNFINISHED) {
                    drop(fs::remove_file(entry.path()));
                }
            }
        }
    }

    /// Rejects a part that exists although none of its cells does.
    pub fn stray_part(&self, part: u64) -> Option<Failure> {
        let path = self.path.join(part_name(part));
        path.exists().then(|| {
            Failure::run(format!(
                "{}: {CELLS} has none of its cells; expected them with it: copy them there, or remove the part",
                path.display()
            ))
        })
    }

    /// Writes a part of the data set, unless it exists already; returns its name.
    pub fn write_part(&self, part: u64, bytes: &[u8]) -> Result<String, Failure> {
        let name = part_name(part);
        let path = self.path.join(&name);
        if fs::read(&path).is_ok_and(|there| there == bytes) {
            return Ok(name);
        }
        let failed = |error: io::Error| Failure::run(format!("{}: {error}", path.display()));
        write_whole(&path, bytes, true).map_err(failed)?;
        Ok(name)
    }
}

fn part_name(part: u64) -> String {
    format!("part-{part:05}.parquet")
}

/// The error for a path that has the name of something else.
fn misplaced(path: &Path, found: &str, expected: &str) -> Failure {
    let expected = format!("{expected}: move it away or remove it");
    Mistake::that(format!("is {found}")).expected(expected).at(path.display().to_string(), None).fail()
}

/// Limit for the description. Ten million seeds, a line each, take a fifth of it.
const DESCRIPTION_BYTES_MAX: u64 = 1 << 30;

/// Approximate number of cells in a part: few enough to be held in memory, enough for a file of some size.
const CELLS_PER_PART: u64 = 1000;

fn difference(there: &Description, here: &Description) -> String {
    let values = |description| serde_json::to_value(description).unwrap_or_default();
    let (there, here) = (values(there), values(here));
    // A key that only one of the two has is a difference too.
    let keys = [&here, &there].into_iter().flat_map(|all| all.as_object()).flat_map(|keys| keys.keys());
    let key = keys.filter(|key| *key != "cells").find(|key| there[*key] != here[*key]);
    let Some(key) = key else { return "they differ".to_owned() };
    let shown = |value: &serde_json::Value| {
        let text = if value.is_null() { "none".to_owned() } else { value.to_string() };
        if text.chars().count() > 60 { text.chars().take(57).chain("...".chars()).collect() } else { text }
    };
    let names = |value: &serde_json::Value| -> Option<Vec<serde_json::Value>> {
        value.as_array()?.iter().map(|named| Some(named.get("name")?.clone())).collect()
    };
    if let (Some(old), Some(new)) = (names(&there[key]), names(&here[key])) {
        if let (true, Some(at)) = (old == new, (0..old.len()).find(|&i| there[key][i] != here[key][i])) {
            return format!("{key}: the contents of {} have changed", new[at]);
        }
        return format!("{key} was {}, now {}", shown(&old.into()), shown(&new.into()));
    }
    format!("{key} was {}, now {}", shown(&there[key]), shown(&here[key]))
}
