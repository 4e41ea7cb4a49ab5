//! Hand-made images; those of real programs are in the tests of `disk-images`.

use image_format::{Error, Format, HEAD, Image, SECTOR, inspect, verify};
use proptest::prelude::*;

const CLUSTER: usize = 64 * 1024;
const GIB: u64 = 1 << 30;

fn put(image: &mut [u8], at: usize, bytes: &[u8]) {
    image[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Header, first table, one second table, one cluster of data.
fn qcow2(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut image = vec![0; 4 * CLUSTER];
    put(&mut image, 0, b"QFI\xfb");
    put(&mut image, 4, &3u32.to_be_bytes());
    put(&mut image, 20, &16u32.to_be_bytes());
    put(&mut image, 24, &GIB.to_be_bytes());
    put(&mut image, 36, &2u32.to_be_bytes());
    put(&mut image, 40, &(CLUSTER as u64).to_be_bytes());
    put(&mut image, 96, &4u32.to_be_bytes());
    put(&mut image, 100, &104u32.to_be_bytes());
    put(&mut image, CLUSTER, &((1 << 63) | (2 * CLUSTER as u64)).to_be_bytes());
    put(&mut image, 2 * CLUSTER, &((1 << 63) | (3 * CLUSTER as u64)).to_be_bytes());
    change(&mut image);
    image
}

/// An embedded descriptor, a directory, one table, one grain.
fn vmdk(text: &str, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut image = vec![0; 200 * 512];
    put(&mut image, 0, b"KDMV");
    for (at, number) in [(4, 1u32), (44, 512)] {
        put(&mut image, at, &number.to_le_bytes());
    }
    for (at, number) in [(12, 65_536u64), (20, 128), (28, 1), (36, 20), (56, 30)] {
        put(&mut image, at, &number.to_le_bytes());
    }
    put(&mut image, 512, text.as_bytes());
    put(&mut image, 30 * 512, &40u32.to_le_bytes());
    put(&mut image, 40 * 512, &60u32.to_le_bytes());
    change(&mut image);
    image
}

const DESCRIPTOR: &str = "# Disk DescriptorFile\nversion=1\nCID=12345678\nparentCID=ffffffff\n\
    createType=\"monolithicSparse\"\n# Extent description\nRW 65536 SPARSE \"a.vmdk\"\n";

type Refused = Error<std::convert::Infallible>;

fn of(image: &[u8]) -> Result<Image, Refused> {
    let found = inspect(&mut &image[..]);
    let verified = verify(&mut &image[..]);
    assert!(found.is_ok() || verified.is_err(), "what is refused by its header is refused by its tables, too");
    verified
}

#[test]
fn a_plain_qcow2_is_taken_with_its_virtual_size() {
    let expected = Image { format: Format::Qcow2, virtual_size: GIB };
    assert_eq!(of(&qcow2(|_| {})), Ok(expected));
    assert_eq!(of(&qcow2(|image| put(image, 4, &2u32.to_be_bytes()))), Ok(expected));
}

#[test]
fn a_qcow2_that_needs_another_file_or_a_key_is_refused() {
    let not_alone = |image: Vec<u8>, why| assert_eq!(of(&image), Err(Error::NotSelfContained(why)));
    not_alone(qcow2(|image| image[15] = 104), "has a backing file");
    not_alone(qcow2(|image| image[79] = 4), "keeps its data in another file");
    not_alone(qcow2(|image| put(image, 104, b"DATA\0\0\0\x04name")), "keeps its data in another file");
    not_alone(
        qcow2(|image| {
            // Behind an extension that is harmless.
            put(image, 104, &[0x68, 0x03, 0xf8, 0x57, 0, 0, 0, 3]);
            put(image, 120, b"DATA\0\0\0\x04name");
        }),
        "keeps its data in another file",
    );
    not_alone(qcow2(|image| image[35] = 1), "is encrypted");
    not_alone(qcow2(|image| put(image, 104, &[0x05, 0x37, 0xbe, 0x77, 0, 0, 0, 16])), "is encrypted");
}

#[test]
fn a_qcow2_with_absurd_numbers_is_refused() {
    type Change = fn(&mut Vec<u8>);
    let changes: &[(&str, Change)] = &[
        ("unknown feature", |image| image[78] = 0x80),
        ("marked as corrupt", |image| image[79] = 2),
        ("tiny clusters", |image| image[23] = 3),
        ("huge clusters", |image| image[23] = 40),
        ("a huge disk", |image| image[24] = 0xff),
        ("no disk", |image| put(image, 24, &[0; 8])),
        ("a huge first table", |image| image[36] = 0xff),
        ("a first table that is too small", |image| put(image, 36, &1u32.to_be_bytes())),
        ("a first table beyond the end", |image| image[41] = 0xff),
        ("a first table in the header", |image| put(image, 40, &[0; 8])),
        ("a first table off a cluster", |image| image[47] = 8),
        ("many snapshots", |image| image[60] = 0xff),
        ("a huge table of reference counts", |image| image[56] = 0xff),
        ("wide reference counts", |image| image[99] = 9),
        ("a header of no length", |image| image[103] = 0),
        ("a header longer than a cluster", |image| image[100] = 0xff),
        ("endless extensions", |image| image[104..CLUSTER].fill(0x01)),
        ("a reserved bit in the first table", |image| image[CLUSTER + 7] = 1),
        ("a second table beyond the end", |image| image[CLUSTER + 3] = 0xff),
        ("a second table off a cluster", |image| image[CLUSTER + 6] = 2),
        ("a second table twice", |image| {
            // Over and over: what it refers to would be more than the file.
            put(image, 24, &(1u64 << 40).to_be_bytes());
            put(image, 36, &2048u32.to_be_bytes());
            for entry in 0..2048 {
                put(image, CLUSTER + entry * 8, &(2 * CLUSTER as u64).to_be_bytes());
            }
        }),
        ("a cluster beyond the end", |image| image[2 * CLUSTER + 3] = 0xff),
        ("a cluster off a cluster", |image| image[2 * CLUSTER + 6] = 2),
        ("a compressed cluster beyond the end", |image| {
            put(image, 2 * CLUSTER, &((1u64 << 62) | (1 << 40)).to_be_bytes())
        }),
        ("half of it", |image| image.truncate(3 * CLUSTER)),
        ("the magic and nothing else", |image| image.truncate(4)),
    ];
    for (name, change) in changes {
        assert!(of(&qcow2(change)).is_err(), "{name}");
    }
}

#[test]
fn a_vmdk_in_one_file_is_taken_and_one_that_names_others_is_refused() {
    assert_eq!(of(&vmdk(DESCRIPTOR, |_| {})), Ok(Image { format: Format::Vmdk, virtual_size: 65_536 * SECTOR }));
    let others = "keeps its data in other files";
    let refused = [
        (DESCRIPTOR.replace("SPARSE", "FLAT"), others),
        (
            DESCRIPTOR.replace("RW 65536 SPARSE \"a.vmdk\"\n", "RW 1 SPARSE \"a\"\nRW 1 SPARSE \"/etc/shadow\"\n"),
            others,
        ),
        (DESCRIPTOR.replace("monolithicSparse", "twoGbMaxExtentSparse"), others),
        (DESCRIPTOR.replace("ffffffff", "00000001"), "has a backing file"),
        (format!("{DESCRIPTOR}parentFileNameHint=\"/etc/shadow\"\n"), "has a backing file"),
        ("parentFileNameHint=\"/etc/shadow\"".to_owned(), "has a backing file"),
    ];
    for (text, why) in refused {
        assert_eq!(of(&vmdk(&text, |_| {})), Err(Error::NotSelfContained(why)), "{text}");
    }
    let frame = vmdk(DESCRIPTOR, |image| put(image, 12, &[0; 8]));
    assert_eq!(of(&frame), Err(Error::NotSelfContained(others)));
    assert_eq!(of(DESCRIPTOR.as_bytes()), Err(Error::Format("VMDK in several files")));
}

#[test]
fn a_vmdk_with_absurd_numbers_is_refused() {
    type Change = fn(&mut Vec<u8>);
    let changes: &[(&str, Change)] = &[
        ("a huge disk", |image| put(image, 12, &[0xff; 8])),
        ("no grains", |image| put(image, 20, &[0; 8])),
        ("huge grains", |image| put(image, 20, &(1u64 << 40).to_le_bytes())),
        ("no entries", |image| put(image, 44, &[0; 4])),
        ("many entries", |image| put(image, 44, &[0xff; 4])),
        ("a huge descriptor", |image| put(image, 36, &[0xff; 8])),
        ("a descriptor beyond the end", |image| put(image, 28, &1000u64.to_le_bytes())),
        ("a directory beyond the end", |image| put(image, 56, &1000u64.to_le_bytes())),
        ("a table beyond the end", |image| put(image, 30 * 512, &1000u32.to_le_bytes())),
        ("a grain beyond the end", |image| put(image, 40 * 512, &1000u32.to_le_bytes())),
        ("a directory at the end, and no end", |image| put(image, 56, &[0xff; 8])),
        ("an unknown compression", |image| put(image, 10, &[1])),
        ("a header cut off", |image| image.truncate(60)),
    ];
    for (name, change) in changes {
        if *name == "an unknown compression" {
            assert_eq!(of(&vmdk(DESCRIPTOR, change)), Err(Error::Format("VMDK with an unknown compression")));
        }
        assert!(of(&vmdk(DESCRIPTOR, change)).is_err(), "{name}");
    }
}

#[test]
fn what_is_not_recognized_is_raw_in_whole_sectors() {
    assert_eq!(of(b"boot sector"), Ok(Image { format: Format::Raw, virtual_size: SECTOR }));
    assert_eq!(of(&[0; 1024]), Ok(Image { format: Format::Raw, virtual_size: 1024 }));
    assert_eq!(of(b""), Err(Error::Empty));
    assert_eq!(of(b"QED\0"), Err(Error::Format("QED")));
    assert_eq!(Format::of(&[]), Format::Raw);
}

fn headers() -> impl Strategy<Value = Vec<u8>> {
    let magics = prop::sample::select(vec![
        (0, b"QFI\xfb".to_vec()),
        (0, b"KDMV".to_vec()),
        (64, vec![0x7f, 0x10, 0xda, 0xbe]),
        (0, b"conectix".to_vec()),
        (0, b"vhdxfile".to_vec()),
    ]);
    (magics, prop::collection::vec(any::<u8>(), HEAD..4 * HEAD)).prop_map(|((at, magic), mut bytes)| {
        put(&mut bytes, at, &magic);
        bytes
    })
}

proptest! {
    #[test]
    fn no_header_makes_it_panic(bytes in headers()) {
        let _ = of(&bytes);
    }

    #[test]
    fn no_change_of_a_qcow2_makes_it_panic(at in 0..3 * CLUSTER, byte: u8, length in 0..4 * CLUSTER) {
        let _ = of(&qcow2(|image| { image[at] = byte; image.truncate(length); }));
    }

    #[test]
    fn no_change_of_a_vmdk_makes_it_panic(at in 0..100usize, byte: u8, length in 0..200 * 512usize) {
        let _ = of(&vmdk(DESCRIPTOR, |image| { image[at] = byte; image.truncate(length); }));
    }
}
