//! Disk images from outside: fetched, checked, unpacked and converted by a confined process.
