//! Heads and bodies of HTTP requests. The first byte is the size of the pieces in which the rest
//! arrives: in pieces or whole, the request is the same.
#![no_main]

use corelane::http::HttpError;
use corelane::http::body::BodyReader;
use corelane::http::head::{Head, HeadReader};

corelane_fuzz::target!(|bytes: &[u8]| {
    let Some((size, bytes)) = bytes.split_first() else { return };
    let whole = read([bytes]);
    let pieces = read(bytes.chunks(usize::from(*size) + 1));
    match (&whole, &pieces) {
        (Ok(whole), Ok(pieces)) => assert_eq!(whole, pieces),
        // A head in pieces is refused at its end at the latest.
        (Err(_), Err(_) | Ok(None)) => (),
        _ => panic!("whole: {whole:?}\nin pieces: {pieces:?}"),
    }
});

/// A request. The body is `None` if it is not complete.
type Request = (Head, Option<Vec<u8>>);

/// Reads one request as the front lane does, if its head is complete.
fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Option<Request>, HttpError> {
    let mut received = Vec::new();
    let mut heads = HeadReader::default();
    let mut reading: Option<(Head, BodyReader)> = None;
    for piece in pieces {
        received.extend_from_slice(piece);
        if reading.is_none() {
            let Some((head, length)) = heads.read(&received)? else { continue };
            received.drain(..length);
            let reader = BodyReader::new(head.framing);
            reading = Some((head, reader));
        }
        let (_, body) = reading.as_mut().expect("just read");
        let taken = body.feed(&received)?;
        received.drain(..taken);
    }
    Ok(reading.map(|(head, body)| (head, body.is_done().then(|| body.into_body()))))
}
