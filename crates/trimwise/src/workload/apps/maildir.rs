//! A mail spool in Maildir format: each message a file, made durable in `tmp`, renamed to `new`, later to `cur`.
//!
//! A delivery writes a message to `tmp`, makes it durable and renames it to `new` (the Maildir protocol, and Dovecot's
//! default `mail_fsync = optimized`). A reader opens new messages, reads them and renames them to `cur` with the flag
//! of a seen message. Once the spool has its size, each delivery is matched by the removal of a random message.
//!
//! Sizes are drawn from a table: half of all messages are below 8 KiB, one in fifty has an attachment of megabytes.
//! Assumed, after published surveys of mail servers in which the median is a few KiB and the mean some tens.

use super::parameters::{Parameter, parameters};
use super::{Place, Workload};
use crate::files::{FileError, Files};
use crate::units::Bytes;

pub const ABOUT: &str =
    "A mail spool in Maildir format: messages made durable in tmp, renamed to new, then to cur, and removed.";

parameters! {
    pub struct Parameters {
        messages: count(5_000, 1, 10_000_000, "messages at a time", "assumed").scaled(),
        deliveries: count(30_000, 1, 1_000_000_000, "messages delivered", "assumed").scaled(),
        users: count(20, 1, 10_000, "mailboxes", "assumed"),
        reads: percent(80, "deliveries after which a message is read and renamed to cur", "assumed"),
    }
}

/// Sizes of messages: KiB from and up to, and their share in percent.
const SIZES: [(u64, u64, u64); 5] = [(2, 4, 25), (4, 8, 30), (8, 32, 30), (32, 256, 13), (1024, 3072, 2)];

impl Workload for Parameters {
    fn operations(&self) -> u64 {
        self.deliveries
    }

    /// Returns the space for a spool. The mean size of the table above is 78 KiB. A spool that is larger by chance by a
    /// quarter still fits.
    fn needed(&self) -> Bytes {
        Bytes((self.messages * Bytes::kib(100).0).max(Bytes::mib(8).0))
    }
}

pub async fn run<F: Files>(at: &Place<'_, F, Parameters>) -> Result<(), FileError> {
    let (stage, p) = (at.stage, at.parameters);
    for user in 0..p.users {
        stage.mkdir(&at.path(&format!("u{user}"))).await?;
        for folder in ["tmp", "new", "cur"] {
            stage.mkdir(&at.path(&format!("u{user}/{folder}"))).await?;
        }
    }
    let (mut unread, mut seen): (Vec<String>, Vec<String>) = Default::default();
    for number in 0..p.deliveries {
        stage.operation().await;
        let user = stage.below(p.users);
        let path = |folder: &str| at.path(&format!("u{user}/{folder}/{number}.M1P1.host"));
        let mut file = stage.create(&path("tmp"), size(at)).await?;
        stage.fsync(&mut file).await?;
        stage.close(file).await?;
        stage.rename(&path("tmp"), &path("new")).await?;
        unread.push(path("new"));
        if stage.happens(p.reads) {
            let mail = unread.swap_remove(stage.below(unread.len() as u64) as usize);
            stage.read_whole(&mail, 64 << 10).await?;
            let read = mail.replace("/new/", "/cur/") + ":2,S";
            stage.rename(&mail, &read).await?;
            seen.push(read);
        }
        if unread.len() + seen.len() > p.messages as usize {
            let from = if seen.is_empty() { &mut unread } else { &mut seen };
            let message = from.swap_remove(stage.below(from.len() as u64) as usize);
            stage.unlink(&message).await?;
        }
    }
    Ok(())
}

fn size<F: Files>(at: &Place<'_, F, Parameters>) -> u64 {
    let mut share = at.stage.below(100);
    for (from, to, percent) in SIZES {
        if share < percent {
            return (from << 10) + at.stage.below((to - from) << 10);
        }
        share -= percent;
    }
    4 << 10
}
