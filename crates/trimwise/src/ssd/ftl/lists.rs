//! Lists threaded through an array of links. Each member is in at most one list, and enters or leaves it in a few
//! memory accesses.

use std::fmt::Display;

use super::super::address::{Number, Table};
use super::super::audit::{AuditError, ensure};

/// Two members: the ends of a list, or the neighbours of a member.
#[derive(Clone, Copy, Debug)]
struct Pair<K> {
    first: K,
    last: K,
}

#[derive(Clone, Debug)]
pub(in crate::ssd) struct Lists<K> {
    ends: Vec<Pair<K>>,
    links: Table<K, Pair<K>>,
}

impl<K: Number + PartialEq + Display> Lists<K> {
    const NONE: Pair<K> = Pair { first: K::NONE, last: K::NONE };

    pub fn new(lists: usize, members: usize) -> Self {
        Self { ends: vec![Self::NONE; lists], links: Table::new(members, Self::NONE) }
    }

    #[inline]
    pub fn first(&self, list: usize) -> K {
        self.ends[list].first
    }

    #[inline]
    pub fn last(&self, list: usize) -> K {
        self.ends[list].last
    }

    /// Returns the members of a list in order, after checking its links.
    pub fn audited(&self, list: usize) -> Result<Vec<K>, AuditError> {
        let (mut members, mut before, mut member) = (Vec::new(), K::NONE, self.first(list));
        while member != K::NONE {
            ensure!(members.len() < self.links.len(), "list {list} has more than all members");
            ensure!(
                self.links[member].first == before,
                "list {list}: {member} does not follow {before} both ways"
            );
            members.push(member);
            (before, member) = (member, self.links[member].last);
        }
        ensure!(before == self.last(list), "list {list} ends with {before}, not {}", self.last(list));
        Ok(members)
    }

    #[inline]
    pub fn push(&mut self, list: usize, member: K) {
        let last = std::mem::replace(&mut self.ends[list].last, member);
        self.links[member] = Pair { first: last, last: K::NONE };
        if last == K::NONE {
            self.ends[list].first = member;
        } else {
            self.links[last].last = member;
        }
    }

    #[inline]
    pub fn remove(&mut self, list: usize, member: K) {
        let Pair { first: before, last: behind } = self.links[member];
        if before == K::NONE {
            self.ends[list].first = behind;
        } else {
            self.links[before].last = behind;
        }
        if behind == K::NONE {
            self.ends[list].last = before;
        } else {
            self.links[behind].first = before;
        }
    }

    pub fn clear(&mut self) {
        self.ends.fill(Self::NONE);
    }

    pub fn memory_bytes(&self) -> u64 {
        (self.ends.capacity() * size_of::<Pair<K>>()) as u64 + self.links.memory_bytes()
    }
}
