//! Multipart forms: the part called `file`, as it arrives.

use bytes::{Buf as _, Bytes, BytesMut};

/// The head of a part may have this many bytes.
const HEAD: usize = 16 * 1024;

/// The boundary in the header `Content-Type` of a form.
pub(crate) fn boundary(header: &str) -> Option<String> {
    let mut parts = header.split(';').map(str::trim);
    if !parts.next()?.eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let value = parts.find_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.trim().eq_ignore_ascii_case("boundary").then(|| value.trim().trim_matches('"').to_owned())
    })?;
    // As RFC 2046 has it.
    (1..=70).contains(&value.len()).then_some(value)
}

/// A form that is being read.
pub(crate) struct Form {
    /// `--boundary`; what separates parts has a line break before it.
    delimiter: Vec<u8>,
    buffer: BytesMut,
    state: State,
    out: BytesMut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the first delimiter.
    Preamble,
    /// In the lines after a delimiter.
    Head,
    /// In the content of a part, which is wanted or not.
    Part {
        wanted: bool,
    },
    Over,
}

impl Form {
    pub(crate) fn new(boundary: &str) -> Self {
        let delimiter = format!("\r\n--{boundary}").into_bytes();
        // So that a form that begins with its delimiter begins like the others.
        Self { delimiter, buffer: BytesMut::from(&b"\r\n"[..]), state: State::Preamble, out: BytesMut::new() }
    }

    /// Content that is ready.
    pub(crate) fn take(&mut self) -> Option<Bytes> {
        (!self.out.is_empty()).then(|| self.out.split().freeze())
    }

    /// Whether the wanted part has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Reads on.
    pub(crate) fn give(&mut self, piece: &[u8]) -> Result<(), String> {
        self.buffer.extend_from_slice(piece);
        while self.step()? {}
        Ok(())
    }

    /// Whether anything was done.
    fn step(&mut self) -> Result<bool, String> {
        match self.state {
            State::Over => {
                self.buffer.clear();
                Ok(false)
            }
            State::Preamble => self.content(false),
            State::Part { wanted } => self.content(wanted),
            State::Head => self.head(),
        }
    }

    fn content(&mut self, wanted: bool) -> Result<bool, String> {
        let Some(at) = find(&self.buffer, &self.delimiter) else {
            // The delimiter may have begun.
            let safe = self.buffer.len().saturating_sub(self.delimiter.len() - 1);
            let piece = self.buffer.split_to(safe);
            if wanted {
                self.out.unsplit(piece);
            }
            return Ok(false);
        };
        let piece = self.buffer.split_to(at);
        if wanted {
            self.out.unsplit(piece);
            self.state = State::Over;
        } else {
            self.buffer.advance(self.delimiter.len());
            self.state = State::Head;
        }
        Ok(true)
    }

    fn head(&mut self) -> Result<bool, String> {
        if self.buffer.starts_with(b"--") {
            return Err("the form has no part \"file\"".to_owned());
        }
        let Some(end) = find(&self.buffer, b"\r\n\r\n") else {
            if self.buffer.len() > HEAD {
                return Err("the head of a part of the form is too long".to_owned());
            }
            return Ok(false);
        };
        let head = self.buffer.split_to(end);
        self.buffer.advance(4);
        let head = String::from_utf8_lossy(&head).to_lowercase();
        let disposition = head.lines().find(|line| line.starts_with("content-disposition:")).unwrap_or_default();
        let named = disposition.split(';').any(|part| matches!(part.trim(), "name=\"file\"" | "name=file"));
        self.state = State::Part { wanted: named };
        Ok(true)
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(form: &[u8], pieces: usize) -> Result<(Vec<u8>, bool), String> {
        let mut reader = Form::new("XX");
        let mut content = Vec::new();
        for piece in form.chunks(pieces) {
            reader.give(piece)?;
            while let Some(ready) = reader.take() {
                content.extend_from_slice(&ready);
            }
        }
        Ok((content, reader.is_over()))
    }

    #[test]
    fn the_file_is_found_however_the_form_arrives() {
        let form = b"--XX\r\nContent-Disposition: form-data; name=\"note\"\r\n\r\nhello\r\n--XX\r\n\
            Content-Disposition: form-data; name=\"file\"; filename=\"a.img\"\r\nContent-Type: x/y\r\n\r\n\
            disk\r\n--X\r\n--\r\n content\r\n--XX--\r\n";
        for pieces in [1, 2, 3, 7, 1000] {
            let (content, over) = read(form, pieces).unwrap();
            assert_eq!((content.as_slice(), over), (&b"disk\r\n--X\r\n--\r\n content"[..], true), "{pieces}");
        }
    }

    #[test]
    fn a_form_that_is_cut_off_is_not_over() {
        let form = b"--XX\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\ndisk\r\n--X";
        assert!(!read(form, 5).unwrap().1);
    }

    #[test]
    fn a_form_without_a_file_is_an_error() {
        assert!(read(b"--XX\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nx\r\n--XX--", 100).is_err());
        let endless = [b"--XX\r\n".to_vec(), vec![b'h'; HEAD + 10]].concat();
        assert!(read(&endless, 512).is_err());
    }

    #[test]
    fn boundaries_are_read_as_clients_write_them() {
        for (header, expected) in [
            ("multipart/form-data; boundary=abc", Some("abc")),
            ("Multipart/Form-Data; charset=x; Boundary=\"a b\"", Some("a b")),
            ("application/json", None),
            ("multipart/form-data", None),
            ("multipart/form-data; boundary=", None),
        ] {
            assert_eq!(boundary(header).as_deref(), expected, "{header}");
        }
    }
}
