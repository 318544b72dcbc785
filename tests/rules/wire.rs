//! What the wire's types read back, and what they refuse.

use thermite_core::limits;
use thermite_core::wire::bulk::Chunk;

#[test]
fn a_chunk_is_read_back_and_one_that_is_too_long_is_not() {
    let chunk = Chunk(vec![0, 127, 255]);
    let long = Chunk(vec![1; limits::BULK_CHUNK_BYTES_MAX + 1]);

    let text = serde_json::to_string(&chunk).unwrap();
    let too_long = serde_json::from_str::<Chunk>(&serde_json::to_string(&long).unwrap());

    assert_eq!((text.as_str(), serde_json::from_str::<Chunk>(&text).unwrap()), ("[0,127,255]", chunk));
    assert!(too_long.unwrap_err().to_string().contains("at most 524288 bytes"));
}
