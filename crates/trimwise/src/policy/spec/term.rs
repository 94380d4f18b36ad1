//! A policy's word in the grammar: what each policy's file says of it.

use std::fmt;

use super::grammar::{Part, Wrong, wrong};
use crate::policy::{Governor, Native};

/// How a stock host can carry out a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LiveUse {
    /// Not at all: the policy must see each commit, or imitates what some kernel does anyway.
    Unsuited,
    /// By turning the kernel's own `discard` on and off, since the policy trims with each commit.
    Kernel,
    Slices,
    /// By `discard`, and by keeping untrimmed space below a bound. Trimming is left to the kernel where it does that
    /// well.
    Bounded,
}

pub(in crate::policy) type Arguments = [u64; 2];

/// A policy as it is written, and what it promises. Each policy's file has one, and `policies!` a line for it.
#[derive(Clone, Copy, Debug)]
pub(in crate::policy) struct Term {
    /// Name and arguments as help shows them: capitals stand for a value, brackets enclose optional parts.
    pub form: &'static str,
    pub meaning: &'static str,
    pub options: &'static [(&'static str, &'static str)],
    /// Complete policies with this term, for help and for tests that must hold under all policies.
    pub examples: &'static [&'static str],
    pub parse: fn(Part<'_>, &[Part<'_>]) -> Result<Arguments, Wrong>,
    /// Writes arguments as [`Self::parse`] reads them, each with a colon before it.
    pub show: fn(Arguments) -> String,
    pub make: fn(Issuer) -> Box<dyn Governor>,
    /// Why `set` before this term makes no sense.
    pub refuses_gate: Option<&'static str>,
    pub live: LiveUse,
    pub native_to: Option<Native>,
}

impl Term {
    pub const fn plain(
        form: &'static str,
        meaning: &'static str,
        examples: &'static [&'static str],
        make: fn(Issuer) -> Box<dyn Governor>,
    ) -> Self {
        Self {
            form,
            meaning,
            options: &[],
            examples,
            parse: without_arguments,
            show: |_| String::new(),
            make,
            refuses_gate: None,
            live: LiveUse::Unsuited,
            native_to: None,
        }
    }

    pub fn name(&self) -> &'static str {
        self.form.split([':', '[']).next().unwrap_or(self.form)
    }
}

pub(super) fn without_arguments(term: Part<'_>, arguments: &[Part<'_>]) -> Result<Arguments, Wrong> {
    let name = term.name();
    match arguments.first() {
        Some(more) => wrong(
            more.at,
            format!("'{name}' takes no value, but ':{}' follows", more.text),
            format!("'{name}' alone"),
        ),
        None => Ok(Arguments::default()),
    }
}

/// A policy with its arguments and options, without a gate.
#[derive(Clone, Copy, Debug)]
pub(in crate::policy) struct Issuer {
    pub(super) term: &'static Term,
    pub arguments: Arguments,
    options: u8,
}

impl Issuer {
    pub(super) const fn new(term: &'static Term, arguments: Arguments) -> Self {
        Self { term, arguments, options: 0 }
    }

    pub fn has(&self, option: &str) -> bool {
        self.index(option).is_some_and(|index| self.options >> index & 1 == 1)
    }

    pub(super) fn add(&mut self, option: &str) -> bool {
        let index = self.index(option);
        self.options |= index.map_or(0, |index| 1 << index);
        index.is_some()
    }

    fn index(&self, option: &str) -> Option<usize> {
        self.term.options.iter().position(|(name, _)| *name == option)
    }
}

impl PartialEq for Issuer {
    fn eq(&self, other: &Self) -> bool {
        (self.term.form, self.arguments, self.options) == (other.term.form, other.arguments, other.options)
    }
}

impl Eq for Issuer {}

impl fmt::Display for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.term.name(), (self.term.show)(self.arguments))?;
        let given = self.term.options.iter().filter(|(name, _)| self.has(name));
        given.into_iter().try_for_each(|(name, _)| write!(f, "+{name}"))
    }
}
