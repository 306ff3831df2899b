//! Objects on a real server: created once, read in ranges, listed and deleted.

use crate::seaweedfs::{ACCESS_KEY, SeaweedServer};
use crate::{contents, one_server, read, read_all, temporary_file};
use bytes::Bytes;
use penstock_object_storage::{
    Bucket, BucketCredentials, BucketError, ContentStore, MAX_PAGE_OBJECTS, ProbeError, UPLOAD_PART_BYTES,
};
use std::io::ErrorKind;

const MIB: usize = 1 << 20;

#[test]
fn a_bucket_holds_objects_like_a_folder() {
    let _guard = one_server();
    let server = SeaweedServer::start();
    let bucket = Bucket::new(&server.options("tests")).unwrap();
    bucket.probe().unwrap();
    small_objects(&bucket);
    objects_in_parts(&bucket);
    ranges(&bucket);
    lists(&bucket);
    other_prefix(&bucket, &Bucket::new(&server.options("other")).unwrap());
    let counts = bucket.request_counts();
    let count = |method: &str, outcome: &str| {
        counts.iter().find(|count| count.method == method && count.outcome == outcome).unwrap().count
    };
    assert!(count("PUT", "ok") > 1_000 && count("GET", "not_found") > 0 && count("PUT", "precondition") > 0);
    assert_eq!(counts.iter().filter(|count| count.outcome == "unreachable").map(|c| c.count).sum::<u64>(), 0);
    refusals(&server);
}

fn small_objects(bucket: &Bucket) {
    bucket.create_from_bytes("small/a", Bytes::from_static(b"one")).unwrap();
    let again = bucket.create_from_bytes("small/a", Bytes::from_static(b"two")).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists);
    assert_eq!(BucketError::from_io_error(&again), Some(&BucketError::AlreadyExists));
    let source = temporary_file(b"two");
    let path = source.to_path_buf();
    assert_eq!(bucket.create_from_file("small/a", source).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert!(!path.exists(), "the temporary file is gone");
    assert_eq!(read_all(&*bucket.open("small/a").unwrap()).unwrap(), b"one");
    bucket.replace_from_file("small/a", temporary_file(b"three")).unwrap();
    assert_eq!(read_all(&*bucket.open("small/a").unwrap()).unwrap(), b"three");
    bucket.delete("small/a").unwrap();
    bucket.delete("small/a").unwrap();
    bucket.create_from_bytes("small/empty", Bytes::new()).unwrap();
    assert_eq!(read_all(&*bucket.open("small/empty").unwrap()).unwrap(), b"");
    assert_eq!(bucket.open("small/a").unwrap_err().kind(), ErrorKind::NotFound);
    for name in ["../a", "/a", "a b", ""] {
        assert_eq!(bucket.open(name).unwrap_err().kind(), ErrorKind::InvalidInput, "{name}");
    }
}

fn objects_in_parts(bucket: &Bucket) {
    for length in
        [UPLOAD_PART_BYTES as usize, UPLOAD_PART_BYTES as usize + 1, 3 * UPLOAD_PART_BYTES as usize, 21 * MIB]
    {
        let (name, bytes) = (format!("large/{length}"), contents(length, length));
        bucket.create_from_file(&name, temporary_file(&bytes)).unwrap();
        let object = bucket.open(&name).unwrap();
        assert_eq!(object.length().unwrap(), length as u64);
        assert!(read_all(&*object).unwrap() == bytes, "{length} bytes");
        let again = bucket.create_from_file(&name, temporary_file(&contents(length, 1))).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::AlreadyExists, "{length}");
        assert!(read_all(&*bucket.open(&name).unwrap()).unwrap() == bytes);
        let newer = contents(length + 1, 2);
        bucket.replace_from_file(&name, temporary_file(&newer)).unwrap();
        assert!(read_all(&*bucket.open(&name).unwrap()).unwrap() == newer);
        bucket.delete(&name).unwrap();
    }
}

fn ranges(bucket: &Bucket) {
    let bytes = contents(3 * MIB + 17, 5);
    bucket.create_from_file("ranges", temporary_file(&bytes)).unwrap();
    let object = bucket.open("ranges").unwrap();
    for (offset, length) in [(0, 1), (MIB - 1, 2), (0, bytes.len()), (bytes.len() - 1, 1), (7, 2 * MIB)] {
        assert!(read(&*object, offset as u64, length).unwrap() == bytes[offset..offset + length]);
    }
    let (requests, mut offset) = (gets(bucket), 0);
    for piece in bytes.chunks(64 << 10) {
        assert!(read(&*object, offset, piece.len()).unwrap() == piece, "at {offset}");
        offset += piece.len() as u64;
    }
    assert!(gets(bucket) - requests <= 6, "sequential reads share requests");
    let beyond = read(&*object, bytes.len() as u64 - 3, 4).unwrap_err();
    assert_eq!(beyond.kind(), ErrorKind::UnexpectedEof);
    assert!(read(&*object, u64::MAX, 4).is_err());
    bucket.delete("ranges").unwrap();
    assert_eq!(read(&*object, 1 << 20, 4).unwrap_err().kind(), ErrorKind::NotFound);
    bucket.create_from_file("ranges", temporary_file(&contents(3 * MIB + 17, 6))).unwrap();
    assert_eq!(read(&*object, 1 << 20, 4).unwrap_err().kind(), ErrorKind::InvalidData, "another object");
}

fn gets(bucket: &Bucket) -> u64 {
    bucket.request_counts().iter().filter(|count| count.method == "GET").map(|count| count.count).sum()
}

fn posts(bucket: &Bucket) -> u64 {
    bucket.request_counts().iter().filter(|count| count.method == "POST").map(|count| count.count).sum()
}

fn lists(bucket: &Bucket) {
    assert!(bucket.list("many", None).unwrap().objects.is_empty());
    let names: Vec<String> = (0..MAX_PAGE_OBJECTS + 3).map(|number| format!("many/{number:05}")).collect();
    std::thread::scope(|scope| {
        for part in names.chunks(names.len().div_ceil(8)) {
            scope.spawn(move || {
                for name in part {
                    bucket.create_from_bytes(name, Bytes::from_static(b"xy")).unwrap();
                }
            });
        }
    });
    bucket.create_from_bytes("many-others/1", Bytes::from_static(b"x")).unwrap();
    let first = bucket.list("many", None).unwrap();
    assert!(first.more && first.objects.len() == MAX_PAGE_OBJECTS);
    assert!(first.objects.iter().map(|object| &object.name).eq(&names[..MAX_PAGE_OBJECTS]));
    assert!(first.objects.iter().all(|object| object.length == 2 && object.age.as_secs() < 3_600));
    let rest = bucket.list("many", Some(&first.objects[MAX_PAGE_OBJECTS - 1].name)).unwrap();
    assert!(!rest.more && rest.objects.iter().map(|object| &object.name).eq(&names[MAX_PAGE_OBJECTS..]));
    let posts = posts(bucket);
    bucket.delete_objects(&names).unwrap();
    bucket.delete_objects(&names[..2]).unwrap();
    assert!(bucket.list("many", None).unwrap().objects.is_empty(), "missing objects are no error");
    assert_eq!(self::posts(bucket) - posts, 3, "a request deletes a page of objects");
    assert!(bucket.open("many-others/1").is_ok());
}

fn other_prefix(bucket: &Bucket, other: &Bucket) {
    bucket.create_from_bytes("mine", Bytes::from_static(b"x")).unwrap();
    assert_eq!(other.open("mine").unwrap_err().kind(), ErrorKind::NotFound);
    other.create_from_bytes("mine", Bytes::from_static(b"y")).unwrap();
    assert_eq!(read_all(&*bucket.open("mine").unwrap()).unwrap(), b"x");
}

fn refusals(server: &SeaweedServer) {
    let mut options = server.options("");
    options.credentials =
        BucketCredentials::AccessKey { id: ACCESS_KEY[0].to_owned(), secret: "another".to_owned() };
    let Err(ProbeError::Unsuitable(why)) = Bucket::new(&options).unwrap().probe() else {
        panic!("a bad key")
    };
    assert!(why.contains("refuses") && why.contains("403"), "{why}");
    assert!(!why.contains("another") && !why.contains("127.0.0.1"), "{why}");
    let mut options = server.options("");
    options.bucket = "missing".to_owned();
    let missing = Bucket::new(&options).unwrap().open("a").unwrap_err();
    assert_ne!(missing.kind(), ErrorKind::NotFound, "a missing bucket is not a missing object: {missing}");
}
