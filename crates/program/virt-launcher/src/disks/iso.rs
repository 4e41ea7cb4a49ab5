//! A writer of small ISO 9660 images: some files in the root directory, under their real names for Linux (Rock Ridge) and
//! Windows (Joliet).
//!
//! The layout is fixed and independent of the clock, so the same files always produce the same bytes. An ISO tool may
//! be missing from the launcher's image, and a general library would be the larger risk for three files.
//!
//! ```text
//!  sector 0–15   system area, empty             21, 22  path tables of the Joliet tree
//!         16     primary volume descriptor      23      root directory, with Rock Ridge entries
//!         17     Joliet's volume descriptor     24      root directory of the Joliet tree
//!         18     end of the descriptors         25 …    the files, one after the other
//!         19, 20 path tables (little, big endian)
//! ```

const SECTOR: usize = 2048;
const PRIMARY: u32 = 16;
const JOLIET: u32 = 17;
const END: u32 = 18;
const PRIMARY_TABLES: u32 = 19;
const JOLIET_TABLES: u32 = 21;
const PRIMARY_ROOT: u32 = 23;
const JOLIET_ROOT: u32 = 24;
const FILES: u32 = 25;

/// Size of a path table that contains only the root.
const PATH_TABLE: u32 = 10;
/// January 1, 2020: years since 1900, month, day, hour, minute, second, offset from GMT.
const DATE: [u8; 7] = [120, 1, 1, 0, 0, 0, 0];
const DATE_TEXT: &[u8; 17] = b"2020010100000000\0";
const MODE_DIRECTORY: u32 = 0o040_555;
const MODE_FILE: u32 = 0o100_444;

/// Builds an image with these files in its root directory.
pub(super) fn image(label: &str, files: &[(&str, Vec<u8>)]) -> Result<Vec<u8>, String> {
    let mut files: Vec<File<'_>> = files.iter().map(|(name, content)| File { name, content, sector: 0 }).collect();
    // Directory records are sorted by identifier.
    files.sort_by_key(|file| file.identifier());
    let mut next = FILES;
    for file in &mut files {
        file.sector = next;
        next += sectors(file.content.len())?;
    }
    let mut image = vec![0; next as usize * SECTOR];
    put(&mut image, PRIMARY, &descriptor(1, label, next, PRIMARY_TABLES, PRIMARY_ROOT));
    put(&mut image, JOLIET, &descriptor(2, label, next, JOLIET_TABLES, JOLIET_ROOT));
    put(&mut image, END, b"\xffCD001\x01");
    for (tables, root) in [(PRIMARY_TABLES, PRIMARY_ROOT), (JOLIET_TABLES, JOLIET_ROOT)] {
        put(&mut image, tables, &path_table(root.to_le_bytes(), 1u16.to_le_bytes()));
        put(&mut image, tables + 1, &path_table(root.to_be_bytes(), 1u16.to_be_bytes()));
    }
    put(&mut image, PRIMARY_ROOT, &directory(&files, Tree::Primary)?);
    put(&mut image, JOLIET_ROOT, &directory(&files, Tree::Joliet)?);
    for file in &files {
        put(&mut image, file.sector, file.content);
    }
    Ok(image)
}

struct File<'a> {
    name: &'a str,
    content: &'a [u8],
    sector: u32,
}

impl File<'_> {
    /// The name for readers without Rock Ridge and Joliet. The standard does not allow hyphens, but every reader
    /// accepts them.
    fn identifier(&self) -> Vec<u8> {
        format!("{}.;1", self.name.to_ascii_uppercase()).into_bytes()
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Tree {
    Primary,
    Joliet,
}

fn sectors(length: usize) -> Result<u32, String> {
    u32::try_from(length.div_ceil(SECTOR)).map_err(|_| "a file is too large for an ISO image".into())
}

fn put(image: &mut [u8], sector: u32, bytes: &[u8]) {
    let start = sector as usize * SECTOR;
    image[start..start + bytes.len()].copy_from_slice(bytes);
}

/// A number in both byte orders, as the standard mostly requires.
fn both32(value: u32) -> Vec<u8> {
    [value.to_le_bytes(), value.to_be_bytes()].concat()
}

fn both16(value: u16) -> Vec<u8> {
    [value.to_le_bytes(), value.to_be_bytes()].concat()
}

fn ucs2(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_be_bytes).collect()
}

fn descriptor(kind: u8, label: &str, total: u32, tables: u32, root: u32) -> Vec<u8> {
    let joliet = kind == 2;
    // Strings are padded with spaces, which are two bytes in Joliet.
    let text = |text: &str, length: usize| {
        let (mut bytes, blank): (_, &[u8]) =
            if joliet { (ucs2(text), b"\0 ") } else { (text.as_bytes().to_vec(), b" ") };
        bytes.extend(blank.iter().cycle().take(length.saturating_sub(bytes.len())));
        bytes.truncate(length);
        bytes
    };
    let mut out = vec![kind];
    out.extend(b"CD001\x01\0");
    out.extend(text("LINUX", 32));
    out.extend(text(label, 32));
    out.extend([0; 8]);
    out.extend(both32(total));
    // The escape sequence that says "UCS-2, level 3" makes a supplementary descriptor a Joliet one.
    let escape: &[u8] = if joliet { b"%/E" } else { b"" };
    out.extend(escape);
    out.resize(120, 0);
    out.extend(both16(1));
    out.extend(both16(1));
    out.extend(both16(SECTOR as u16));
    out.extend(both32(PATH_TABLE));
    out.extend(tables.to_le_bytes());
    out.extend([0; 4]);
    out.extend((tables + 1).to_be_bytes());
    out.extend([0; 4]);
    out.extend(record(root, SECTOR as u32, true, b"\0", &[]));
    // Volume set, publisher, preparer, application.
    (0..4).for_each(|_| out.extend(text("", 128)));
    // Files with copyright, abstract and bibliography.
    (0..3).for_each(|_| out.extend(text("", 37)));
    // Created, modified, expires, effective.
    out.extend(DATE_TEXT);
    out.extend(DATE_TEXT);
    out.extend(b"0000000000000000\0");
    out.extend(b"0000000000000000\0");
    out.push(1);
    out
}

fn path_table(root: [u8; 4], parent: [u8; 2]) -> Vec<u8> {
    let mut out = vec![1, 0];
    out.extend(root);
    out.extend(parent);
    out.extend([0, 0]);
    out
}

fn directory(files: &[File<'_>], tree: Tree) -> Result<Vec<u8>, String> {
    let rock_ridge = tree == Tree::Primary;
    let root = if rock_ridge { PRIMARY_ROOT } else { JOLIET_ROOT };
    let size = SECTOR as u32;
    let (own, parent) = match tree {
        Tree::Primary => {
            let posix = posix(MODE_DIRECTORY, 2);
            ([sharing_protocol(), posix.clone(), extension()].concat(), posix)
        }
        Tree::Joliet => (Vec::new(), Vec::new()),
    };
    let mut out = record(root, size, true, b"\0", &own);
    out.extend(record(root, size, true, b"\x01", &parent));
    for file in files {
        let length = file.content.len() as u32;
        out.extend(match tree {
            Tree::Primary => {
                let system_use = [posix(MODE_FILE, 1), alternate_name(file.name)].concat();
                record(file.sector, length, false, &file.identifier(), &system_use)
            }
            Tree::Joliet => record(file.sector, length, false, &ucs2(file.name), &[]),
        });
    }
    if out.len() > SECTOR {
        return Err("there are too many files for one directory sector".into());
    }
    Ok(out)
}

/// A directory record: where the file is, its name, and what Rock Ridge adds.
fn record(sector: u32, length: u32, directory: bool, identifier: &[u8], system_use: &[u8]) -> Vec<u8> {
    let mut out = vec![0, 0];
    out.extend(both32(sector));
    out.extend(both32(length));
    out.extend(DATE);
    out.extend([if directory { 2 } else { 0 }, 0, 0]);
    out.extend(both16(1));
    out.push(identifier.len() as u8);
    out.extend(identifier);
    out.resize(out.len().next_multiple_of(2), 0);
    out.extend(system_use);
    out.resize(out.len().next_multiple_of(2), 0);
    out[0] = out.len() as u8;
    out
}

/// SUSP's `SP`: marks the start of system use entries.
fn sharing_protocol() -> Vec<u8> {
    b"SP\x07\x01\xbe\xef\0".to_vec()
}

/// SUSP's `ER`: identifies them as Rock Ridge. Linux requires it before it accepts any of them.
fn extension() -> Vec<u8> {
    let identifier = b"RRIP_1991A";
    let mut out = b"ER\x12\x01".to_vec();
    out.extend([identifier.len() as u8, 0, 0, 1]);
    out.extend(identifier);
    out
}

/// Rock Ridge's `PX`: mode, links, owner, group.
fn posix(mode: u32, links: u32) -> Vec<u8> {
    let mut out = b"PX\x24\x01".to_vec();
    for value in [mode, links, 0, 0] {
        out.extend(both32(value));
    }
    out
}

/// Rock Ridge's `NM`: the real name.
fn alternate_name(name: &str) -> Vec<u8> {
    let mut out = b"NM".to_vec();
    out.extend([5 + name.len() as u8, 1, 0]);
    out.extend(name.as_bytes());
    out
}
