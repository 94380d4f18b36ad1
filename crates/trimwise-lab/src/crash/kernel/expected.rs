//! A file as it may be found after a cut.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Write { operation: u32, offset: u64, length: u64 },
    Truncate { length: u64 },
    Punch { offset: u64, length: u64 },
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Expected {
    pub names: Vec<String>,
    pub must_exist: bool,
    pub is_gone: bool,
    pub promised: bool,
    pub base: Content,
    /// Changes that may have taken effect since, in order.
    pub optional: Vec<Change>,
}

/// Contents of a file: pieces in order, and holes between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    pub length: u64,
    /// Start, end, and the operation that wrote it.
    pub pieces: Vec<(u64, u64, u32)>,
}

impl Content {
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Write { operation, offset, length } => {
                self.cut_out(offset, offset + length);
                let at = self.pieces.partition_point(|piece| piece.0 < offset);
                self.pieces.insert(at, (offset, offset + length, operation));
                self.length = self.length.max(offset + length);
            }
            Change::Truncate { length } => {
                self.cut_out(length, u64::MAX);
                self.length = length;
            }
            Change::Punch { offset, length } => self.cut_out(offset, offset + length),
        }
    }

    fn cut_out(&mut self, from: u64, to: u64) {
        let rest = |&(start, end, operation): &(u64, u64, u32)| {
            let left = (start < from).then(|| (start, end.min(from), operation));
            let right = (end > to).then(|| (start.max(to), end, operation));
            [left, right].into_iter().flatten()
        };
        self.pieces = self.pieces.iter().flat_map(rest).collect();
    }
}
