//! What the image of a container disk is, told by `image_format`: raw or qcow2, on its own.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use domain::ImageFormat;
pub(super) use image_format::SECTOR;
use image_format::{Content, Format};

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the image cannot be read")]
    Io(#[source] io::Error),
    #[error("the image is not a regular file")]
    NotAFile,
    #[error("the image has format {0}; only raw and qcow2 are supported, convert it with qemu-img")]
    Format(Format),
    #[error(transparent)]
    Refused(#[from] image_format::Error<io::Error>),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Image {
    pub(super) format: ImageFormat,
    pub(super) virtual_size: u64,
}

struct Bytes<'a> {
    file: &'a File,
    length: u64,
}

impl Content for Bytes<'_> {
    type Error = io::Error;

    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&mut self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(buffer, at)
    }
}

pub(super) fn inspect(file: &mut File) -> Result<Image, Error> {
    let metadata = file.metadata().map_err(Error::Io)?;
    if !metadata.is_file() {
        return Err(Error::NotAFile);
    }
    let image = image_format::inspect(&mut Bytes { file, length: metadata.len() })?;
    let format = match image.format {
        Format::Raw => ImageFormat::Raw,
        Format::Qcow2 => ImageFormat::Qcow2,
        other => return Err(Error::Format(other)),
    };
    Ok(Image { format, virtual_size: image.virtual_size })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file(content: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        file
    }

    #[test]
    fn what_is_not_recognized_is_raw_in_whole_sectors() {
        let image = inspect(&mut file(&[b'x'; 1000])).unwrap();
        assert_eq!(image, Image { format: ImageFormat::Raw, virtual_size: 1024 });
    }

    #[test]
    fn formats_that_guests_do_not_run_from_are_named_and_damaged_ones_refused() {
        let mut vdi = vec![0; 512];
        vdi[64..68].copy_from_slice(&[0x7f, 0x10, 0xda, 0xbe]);
        assert!(matches!(inspect(&mut file(&vdi)), Err(Error::Refused(_))));
        assert!(matches!(inspect(&mut file(b"QFI\xfb")), Err(Error::Refused(image_format::Error::Damaged(_)))));
        assert!(matches!(inspect(&mut file(b"")), Err(Error::Refused(image_format::Error::Empty))));
        assert!(matches!(inspect(&mut File::open("/").unwrap()), Err(Error::NotAFile)));
    }
}
