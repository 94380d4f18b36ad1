//! The kernel's side of a disk: vhost-user messages, guest memory, virtqueues.
//!
//! The kernel is the front end, like QEMU for a virtual machine. It kicks queues and is interrupted by messages in band
//! (VHOST_USER_PROTOCOL_F_INBAND_NOTIFICATIONS) that are answered (REPLY_ACK); these the library in its process keeps
//! to itself (`line`), and only those that set up the disk arrive here. The crates `vhost` and `vhost-user-backend`
//! notify by eventfd from threads of their own, which no calendar could order. Memory and queues are from rust-vmm
//! (`vm-memory`, `virtio-queue`).
//!
//! The messages are described in <https://qemu-project.gitlab.io/qemu/interop/vhost-user.html>.

use std::io::{self, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use virtio_queue::{Queue, QueueT};
use vm_memory::{FileOffset, GuestAddress, GuestMemoryMmap, GuestRegionMmap, MmapRegion};

mod request {
    pub(crate) const GET_FEATURES: u32 = 1;
    pub(crate) const SET_FEATURES: u32 = 2;
    pub(crate) const SET_OWNER: u32 = 3;
    pub(crate) const SET_MEM_TABLE: u32 = 5;
    pub(crate) const SET_VRING_NUM: u32 = 8;
    pub(crate) const SET_VRING_ADDR: u32 = 9;
    pub(crate) const SET_VRING_BASE: u32 = 10;
    pub(crate) const GET_VRING_BASE: u32 = 11;
    pub(crate) const SET_VRING_KICK: u32 = 12;
    pub(crate) const SET_VRING_CALL: u32 = 13;
    pub(crate) const SET_VRING_ERR: u32 = 14;
    pub(crate) const GET_PROTOCOL_FEATURES: u32 = 15;
    pub(crate) const SET_PROTOCOL_FEATURES: u32 = 16;
    pub(crate) const GET_QUEUE_NUM: u32 = 17;
    pub(crate) const SET_VRING_ENABLE: u32 = 18;
    pub(crate) const SET_BACKEND_REQ_FD: u32 = 21;
    pub(crate) const GET_CONFIG: u32 = 24;
    pub(crate) const SET_CONFIG: u32 = 25;
}

const FLAG_VERSION: u32 = 1;
const FLAG_REPLY: u32 = 4;
const FLAG_NEED_REPLY: u32 = 8;
const HEAD_BYTES: usize = 12;
/// Longest payload that the kernel sends: a memory table of eight regions is 264 bytes.
const PAYLOAD_BYTES_MAX: usize = 4096;

/// VIRTIO_F_VERSION_1, VHOST_USER_F_PROTOCOL_FEATURES and VIRTIO_RING_F_INDIRECT_DESC.
const TRANSPORT_FEATURES: u64 = 1 << 32 | 1 << 30 | 1 << 28;
/// MQ, REPLY_ACK, BACKEND_REQ, CONFIG, INBAND_NOTIFICATIONS.
const PROTOCOL_FEATURES: u64 = 1 | 1 << 3 | 1 << 5 | 1 << 9 | 1 << 14;
/// The most that the kernel's driver can ask for (MAX_SUPPORTED_QUEUE_SIZE in its virtio_uml.c).
const QUEUE_SIZE_MAX: u16 = 256;

pub struct FrontEnd {
    socket: UnixStream,
    /// The connection for interrupts. The library keeps them to itself, but to the kernel it must not look broken.
    _backend: Option<OwnedFd>,
    memory: Option<GuestMemoryMmap>,
    /// Each region's start in the kernel's own addresses, which rings use, its start in the guest's addresses, and its
    /// length.
    regions: Vec<(u64, u64, u64)>,
    queue: Queue,
    used_ring: u64,
    features: u64,
    config: Vec<u8>,
}

impl FrontEnd {
    /// Creates the connection of a kernel to a disk with these features, besides the transport's, and this
    /// configuration space.
    pub fn new(socket: UnixStream, features: u64, config: Vec<u8>) -> io::Result<Self> {
        Ok(Self {
            socket,
            _backend: None,
            memory: None,
            regions: Vec::new(),
            queue: Queue::new(QUEUE_SIZE_MAX).map_err(io::Error::other)?,
            used_ring: 0,
            features: features | TRANSPORT_FEATURES,
            config,
        })
    }

    /// Creates a connection without a kernel, over this memory. The caller sets up the queue.
    #[cfg(test)]
    pub(crate) fn over(memory: GuestMemoryMmap) -> Self {
        let (socket, _) = UnixStream::pair().unwrap();
        Self { memory: Some(memory), ..Self::new(socket, 0, Vec::new()).unwrap() }
    }

    /// Returns the guest's memory and the queue, once the kernel has set them up.
    pub fn queue(&mut self) -> io::Result<(&GuestMemoryMmap, &mut Queue)> {
        match &self.memory {
            Some(memory) => Ok((memory, &mut self.queue)),
            None => Err(invalid("the queue is used before it is set up".to_owned())),
        }
    }

    /// Returns the address of the queue's used ring, as the kernel gave it, and its length.
    pub(crate) fn used_ring(&self) -> (u64, u16) {
        (self.used_ring, self.queue.size())
    }

    /// Receives one message, which must be available, and replies to it.
    pub(crate) fn take_message(&mut self) -> io::Result<()> {
        let (head, descriptors) = self.receive_head()?;
        let [code, flags, length] = head;
        if length as usize > PAYLOAD_BYTES_MAX {
            return Err(invalid(format!("a vhost-user message of {length} bytes")));
        }
        let mut payload = vec![0; length as usize];
        self.socket.read_exact(&mut payload)?;
        match self.answer(code, &payload, descriptors)? {
            Some(answer) => self.reply(code, &answer),
            None if flags & FLAG_NEED_REPLY != 0 => self.reply(code, &0_u64.to_ne_bytes()),
            None => Ok(()),
        }
    }

    /// Handles a message. Returns the reply, if it has one.
    fn answer(
        &mut self,
        code: u32,
        payload: &[u8],
        mut descriptors: Vec<OwnedFd>,
    ) -> io::Result<Option<Vec<u8>>> {
        let fields = Fields(payload);
        let answer = match code {
            request::GET_FEATURES => Some(self.features.to_ne_bytes().to_vec()),
            request::GET_PROTOCOL_FEATURES => Some(PROTOCOL_FEATURES.to_ne_bytes().to_vec()),
            request::GET_QUEUE_NUM => Some(1_u64.to_ne_bytes().to_vec()),
            request::GET_CONFIG => {
                let (offset, length) = (fields.u32(0)? as usize, fields.u32(4)? as usize);
                let mut answer = fields.take::<HEAD_BYTES>(0)?.to_vec();
                answer.extend(
                    (offset..offset.saturating_add(length.min(PAYLOAD_BYTES_MAX)))
                        .map(|at| self.config.get(at).copied().unwrap_or(0)),
                );
                Some(answer)
            }
            request::SET_MEM_TABLE => {
                self.map_memory(&fields, &descriptors)?;
                None
            }
            request::SET_VRING_NUM => {
                let size = fields.u16(4)?;
                let queue = self.queue_of(&fields)?;
                queue.try_set_size(size).map_err(io::Error::other)?;
                None
            }
            request::SET_VRING_ADDR => {
                let address = |at| -> io::Result<GuestAddress> { self.guest_address(fields.u64(at)?) };
                let (descriptors, used, avail) = (address(8)?, address(16)?, address(24)?);
                self.used_ring = fields.u64(16)?;
                let queue = self.queue_of(&fields)?;
                queue.try_set_desc_table_address(descriptors).map_err(io::Error::other)?;
                queue.try_set_used_ring_address(used).map_err(io::Error::other)?;
                queue.try_set_avail_ring_address(avail).map_err(io::Error::other)?;
                queue.set_ready(true);
                None
            }
            request::SET_VRING_BASE => {
                let base = fields.u16(4)?;
                let queue = self.queue_of(&fields)?;
                queue.set_next_avail(base);
                queue.set_next_used(base);
                None
            }
            request::GET_VRING_BASE => {
                let index = fields.u32(0)?;
                let queue = self.queue_of(&fields)?;
                queue.set_ready(false);
                Some([index, queue.next_avail().into()].map(u32::to_ne_bytes).concat())
            }
            request::SET_BACKEND_REQ_FD => {
                self._backend = descriptors.pop();
                None
            }
            request::SET_FEATURES
            | request::SET_OWNER
            | request::SET_PROTOCOL_FEATURES
            | request::SET_VRING_KICK
            | request::SET_VRING_CALL
            | request::SET_VRING_ERR
            | request::SET_VRING_ENABLE
            | request::SET_CONFIG => None,
            unknown => {
                return Err(invalid(format!("the kernel sent the unknown vhost-user message {unknown}")));
            }
        };
        Ok(answer)
    }

    fn queue_of(&mut self, fields: &Fields<'_>) -> io::Result<&mut Queue> {
        match fields.u32(0)? {
            0 => Ok(&mut self.queue),
            index => Err(invalid(format!("there is no queue {index}"))),
        }
    }

    /// Maps the guest's memory: regions of guest address, size, the kernel's own address and offset in the file.
    fn map_memory(&mut self, fields: &Fields<'_>, files: &[OwnedFd]) -> io::Result<()> {
        let mut regions = Vec::new();
        self.regions.clear();
        for (index, file) in files.iter().enumerate().take(fields.u32(0)? as usize) {
            let field = |i: usize| fields.u64(8 + 32 * index + 8 * i);
            let (guest, size, user, offset) = (field(0)?, field(1)?, field(2)?, field(3)?);
            let file = FileOffset::new(file.try_clone()?.into(), offset);
            let mapping = MmapRegion::from_file(file, size as usize).map_err(io::Error::other)?;
            let region = GuestRegionMmap::new(mapping, GuestAddress(guest))
                .ok_or_else(|| invalid("guest memory beyond the end of all addresses".to_owned()))?;
            regions.push(region);
            self.regions.push((user, guest, size));
        }
        self.memory = Some(GuestMemoryMmap::from_regions(regions).map_err(io::Error::other)?);
        Ok(())
    }

    fn guest_address(&self, user: u64) -> io::Result<GuestAddress> {
        let inside = |&&(start, _, size): &&(u64, u64, u64)| user >= start && user - start < size;
        match self.regions.iter().find(inside) {
            Some((start, guest, _)) => Ok(GuestAddress(guest + (user - start))),
            None => Err(invalid(format!("address {user:#x} lies in no region of the guest's memory"))),
        }
    }

    fn receive_head(&mut self) -> io::Result<([u32; 3], Vec<OwnedFd>)> {
        let mut bytes = [0; HEAD_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let slices = &mut [IoSliceMut::new(&mut bytes)];
        let received = recvmsg(&self.socket, slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?.bytes;
        if received == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let rights = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(rights) => Some(rights),
            _ => None,
        });
        let descriptors = rights.flatten().collect();
        self.socket.read_exact(&mut bytes[received..])?;
        let fields = Fields(&bytes);
        Ok(([fields.u32(0)?, fields.u32(4)?, fields.u32(8)?], descriptors))
    }

    fn reply(&mut self, code: u32, payload: &[u8]) -> io::Result<()> {
        let head = [code, FLAG_VERSION | FLAG_REPLY, payload.len() as u32].map(u32::to_ne_bytes).concat();
        self.socket.write_all(&[&head, payload].concat())
    }
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&self, at: usize) -> io::Result<[u8; N]> {
        let bytes = self.0.get(at..at + N).and_then(|bytes| bytes.try_into().ok());
        bytes.ok_or_else(|| invalid(format!("a vhost-user message of {} bytes is too short", self.0.len())))
    }

    fn u32(&self, at: usize) -> io::Result<u32> {
        Ok(u32::from_ne_bytes(self.take(at)?))
    }

    fn u16(&self, at: usize) -> io::Result<u16> {
        let number = self.u32(at)?;
        u16::try_from(number).map_err(|_| invalid(format!("{number}, expected at most {}", u16::MAX)))
    }

    fn u64(&self, at: usize) -> io::Result<u64> {
        Ok(u64::from_ne_bytes(self.take(at)?))
    }
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_short_and_large_fields_of_a_message_are_refused() {
        let (socket, _kernel) = UnixStream::pair().unwrap();
        let mut front = FrontEnd::new(socket, 0, vec![0; 8]).unwrap();
        let mut answer = |code, payload: &[u8]| front.answer(code, payload, Vec::new());
        for length in 0..HEAD_BYTES {
            assert!(answer(request::GET_CONFIG, &[0; HEAD_BYTES][..length]).is_err(), "{length}");
        }
        assert!(answer(request::GET_CONFIG, &[0; HEAD_BYTES]).is_ok());
        let queue = |number: u32| [0, number].map(u32::to_ne_bytes).concat();
        for code in [request::SET_VRING_NUM, request::SET_VRING_BASE] {
            assert!(answer(code, &queue(64)).is_ok());
            let error = answer(code, &queue(65_536 + 64)).unwrap_err().to_string();
            assert!(error.contains("65600") && error.contains("65535"), "{error}");
        }
    }
}
