//! Labels of a node that launcher Pods select: which guests can run there, and whether new ones may come.
//!
//! virt-handler reads `/proc/cpuinfo`, asks QEMU, and patches the Node object with what is decided here.

mod cpu;
mod machines;
mod offer;

pub use cpu::{labels as cpu, qemu_version};
pub use machines::labels as machines;
pub use offer::{Offer, changes};
